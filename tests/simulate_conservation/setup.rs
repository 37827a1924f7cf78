//! Random things to simulate: engines, requests, caches, fleets, and what goes wrong.

use llm_roofline::engine::Exhaustion;
use llm_roofline::prelude::*;
use llm_roofline::serving::simulate::{
    Autoscaler, EngineSettings, FleetView, Order, Outage, Routing, Simulation, WarmUp,
};
use llm_roofline::serving::{KvTransfer, Pool};
use llm_roofline::workload::{Arrivals, LengthDistribution, Lengths, RequestClass, SharedPrefix, Workload};
use proptest::prelude::*;
use proptest::sample::select;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

const ENGINES: [&str; 6] =
    ["vllm-2026", "vllm-2024", "sglang-2026", "tensorrt-llm-2026", "llama-cpp-cuda-2026", "transformers"];

/// The second has windows: sums over its contexts bend.
const MODELS: [&str; 2] = ["llama-3.1-8b", "gpt-oss-20b"];

/// A deployment on one H100, compiled once.
pub fn model(model: &'static str, engine: &'static str) -> &'static StepModel {
    static COMPILED: Mutex<Option<HashMap<[&str; 2], &'static StepModel>>> = Mutex::new(None);
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    compiled.get_or_insert_default().entry([model, engine]).or_insert_with(|| {
        let catalog = Catalog::embedded();
        let system = System::new(catalog.device("h100-sxm-80gb").unwrap(), 1).unwrap();
        let deployment = Deployment::new(catalog.model(model).unwrap(), system);
        let deployment = deployment.with_engine(catalog.engine(engine).unwrap());
        Box::leak(Box::new(StepModel::compile(&deployment).unwrap()))
    })
}

/// When requests come.
#[derive(Clone, Copy, Debug)]
pub enum Coming {
    Poisson(f64),
    Bursts(u64),
    Clients(u64, f64),
    AllAtOnce,
    /// At random, but a client has no more than so many under way.
    Bounded(f64, u64),
}

/// Which replicas there are.
#[derive(Clone, Copy, Debug)]
pub enum Fleet {
    Equal(u32),
    /// Some of one engine, some of another.
    Mixed(u32, u32),
    Disaggregated(u32, u32),
}

/// What becomes of replicas on the way.
#[derive(Clone, Copy, Debug)]
pub enum Trouble {
    None,
    /// The first one is lost and returns.
    Returns(f64, f64),
    /// The last one is lost for good, if there are others of its kind.
    Stays(f64),
    /// All are lost at once, and return.
    AllReturn(f64, f64),
    /// A rule asks for one replica for every so many requests.
    Scaling(u64),
}

#[derive(Clone, Debug)]
pub struct Setup {
    pub model: &'static str,
    pub engine: &'static str,
    pub coming: Coming,
    pub prompt: u64,
    pub output: u64,
    pub places: u64,
    /// Blocks of the cache, in sequences of the longest request.
    pub cache: f64,
    pub prefix: Option<SharedPrefix>,
    pub swap: bool,
    pub priorities: bool,
    pub fleet: Fleet,
    pub routing: Routing,
    pub trouble: Trouble,
    pub seed: u64,
}

/// Requests of a run.
pub const REQUESTS: u64 = 120;

/// An autoscaler's rule.
fn one_for_every<const REQUESTS: u64>(view: &FleetView) -> u32 {
    ((view.running + view.waiting) / REQUESTS) as u32
}

impl Setup {
    fn lengths(&self, prompt: u64) -> Lengths {
        let up_to = |tokens: u64| LengthDistribution::uniform(1, 2 * tokens).unwrap();
        Lengths::independent(up_to(prompt), up_to(self.output)).unwrap()
    }

    pub fn workload(&self) -> Workload {
        let rate = RequestsPerSecond::from_requests_per_second;
        let arrivals = match self.coming {
            Coming::Poisson(per_second) | Coming::Bounded(per_second, _) => Arrivals::poisson(rate(per_second)),
            Coming::Bursts(size) => Arrivals::bursts(size, Seconds::from_seconds(0.8)),
            Coming::Clients(clients, think) => Arrivals::closed_loop_with(clients, Seconds::from_seconds(think), None),
            Coming::AllAtOnce => Arrivals::all_at_once(REQUESTS),
        };
        let mut workload = Workload::new(arrivals.unwrap(), self.lengths(self.prompt));
        if let Coming::Bounded(_, most) = self.coming {
            workload = workload.with_max_concurrency(most).unwrap();
        }
        if let Some(prefix) = self.prefix {
            workload = workload.with_prefix(prefix);
        }
        if self.priorities {
            let class = |name: &str, share: f64, prompt: u64, priority: i64| {
                RequestClass::new(name, share, self.lengths(prompt)).with_priority(priority)
            };
            let classes = vec![class("now", 0.4, self.prompt.div_ceil(2), -1), class("later", 0.6, self.prompt, 3)];
            workload = workload.with_classes(classes).unwrap();
        }
        workload
    }

    fn settings(&self) -> EngineSettings {
        let longest = 2 * (self.prompt + self.output);
        let needed = |engine: &'static str| model(self.model, engine).memory().cache_pool(longest).blocks_of(longest);
        let needed = needed(self.engine).max(needed(OTHER));
        let mut settings = EngineSettings::default();
        settings.max_sequences = Some(self.places);
        settings.kv_blocks = Some((needed as f64 * self.cache).ceil() as u64);
        settings.order = if self.priorities { Order::Priority } else { Order::Fcfs };
        settings.exhaustion = Some(if self.swap { Exhaustion::Swap } else { Exhaustion::Recompute });
        settings
    }

    /// Half a block of every group of layers for each running sequence, as a share of the cache: what a line between blocks taken one by one may be off.
    pub fn half_blocks(&self, mean_batch: f64) -> f64 {
        let pool =
            |engine: &'static str| model(self.model, engine).memory().cache_pool(2 * (self.prompt + self.output));
        let blocks = |engine: &'static str| pool(engine).groups.iter().map(|group| group.count).sum::<u64>();
        let total = self.settings().kv_blocks.unwrap() as f64;
        0.5 * mean_batch * blocks(self.engine).max(blocks(OTHER)) as f64 / total
    }

    pub fn simulation(&self) -> Simulation<'static> {
        let pool = |engine: &'static str, replicas: u32| Pool { model: model(self.model, engine), replicas };
        let simulation = match self.fleet {
            Fleet::Equal(replicas) => Simulation::of_pools(vec![pool(self.engine, replicas)]),
            Fleet::Mixed(one, other) => Simulation::of_pools(vec![pool(self.engine, one), pool(OTHER, other)]),
            Fleet::Disaggregated(prefill, decode) => {
                let transfer = KvTransfer::new(BytesPerSecond::from_gb_per_second(20.0)).unwrap();
                Simulation::disaggregated(pool(self.engine, prefill), pool(self.engine, decode), transfer)
            }
        };
        let simulation = simulation.with_routing(self.routing).with_settings(self.settings()).with_seed(self.seed);
        let simulation = simulation.with_outages(self.outages()).with_warm_up(WarmUp::None).keep_requests();
        match self.trouble {
            Trouble::Scaling(few) => {
                let rule: &(dyn Fn(&FleetView) -> u32 + Sync) =
                    if few < 5 { &one_for_every::<3> } else { &one_for_every::<10> };
                let (interval, start_up) = (Seconds::from_seconds(0.31), Seconds::from_seconds(0.17));
                simulation.with_autoscaler(Autoscaler::new(interval, start_up, self.fewest(), rule).unwrap())
            }
            _ => simulation,
        }
    }

    fn replicas(&self) -> u32 {
        match self.fleet {
            Fleet::Equal(replicas) => replicas,
            Fleet::Mixed(one, other) | Fleet::Disaggregated(one, other) => one + other,
        }
    }

    /// Where each kind is needed, an autoscaler keeps all.
    fn fewest(&self) -> u32 {
        if matches!(self.fleet, Fleet::Disaggregated(..)) { self.replicas() } else { 1 }
    }

    pub fn outages(&self) -> Vec<Outage> {
        let outage = |replica: u32, at: f64, lasts: Option<f64>| Outage {
            replica,
            at: Seconds::from_seconds(at),
            until: lasts.map(|lasts| Seconds::from_seconds(at + lasts)),
        };
        let last = self.replicas() - 1;
        match (self.trouble, self.fleet) {
            (Trouble::None | Trouble::Scaling(_), _) => Vec::new(),
            (Trouble::Returns(at, lasts), _) => vec![outage(0, at, Some(lasts)), outage(last, 1.1 * at, Some(lasts))],
            (Trouble::Stays(_), Fleet::Equal(1) | Fleet::Disaggregated(_, 1)) => Vec::new(),
            (Trouble::Stays(at), _) => vec![outage(last, at, None)],
            (Trouble::AllReturn(at, lasts), _) => (0..=last).map(|one| outage(one, at, Some(lasts))).collect(),
        }
    }
}

/// The engine of the other replicas of a mixed fleet.
pub const OTHER: &str = "vllm-2024";

/// Any setup.
pub fn setup() -> impl Strategy<Value = Setup> {
    let coming = prop_oneof![
        3 => (2.0..60.0).prop_map(Coming::Poisson),
        1 => (2_u64..20).prop_map(Coming::Bursts),
        2 => (1_u64..40, 0.0..1.0).prop_map(|(clients, think)| Coming::Clients(clients, think)),
        1 => Just(Coming::AllAtOnce),
        1 => (10.0..60.0, 1_u64..20).prop_map(|(rate, most)| Coming::Bounded(rate, most)),
    ];
    let prefix = prop_oneof![
        2 => Just(None),
        1 => (1_u64..600, 0.3..=1.0).prop_map(|(tokens, rate)| Some(SharedPrefix::fixed(tokens, rate).unwrap())),
        1 => (0.0..1.0).prop_map(|rate| Some(SharedPrefix::share(rate).unwrap())),
    ];
    let fleet = prop_oneof![
        2 => Just(Fleet::Equal(1)),
        2 => (2_u32..5).prop_map(Fleet::Equal),
        1 => (1_u32..3, 1_u32..3).prop_map(|(one, other)| Fleet::Mixed(one, other)),
        1 => (1_u32..3, 1_u32..3).prop_map(|(prefill, decode)| Fleet::Disaggregated(prefill, decode)),
    ];
    let trouble = prop_oneof![
        3 => Just(Trouble::None),
        1 => (0.0..4.0, 0.01..2.0).prop_map(|(at, lasts)| Trouble::Returns(at, lasts)),
        1 => (0.0..4.0).prop_map(Trouble::Stays),
        1 => (0.0..4.0, 0.01..2.0).prop_map(|(at, lasts)| Trouble::AllReturn(at, lasts)),
        1 => (1_u64..10).prop_map(Trouble::Scaling),
    ];
    const ROUTINGS: [Routing; 5] = [
        Routing::Random,
        Routing::RoundRobin,
        Routing::LeastLoaded,
        Routing::PowerOfTwoChoices,
        Routing::PrefixAffinity,
    ];
    let what = (select(&MODELS[..]), select(&ENGINES[..]), coming, 1_u64..1200, 1_u64..120);
    let how = (1_u64..40, 1.02..12.0, prefix, any::<bool>(), any::<bool>());
    (what, how, fleet, select(&ROUTINGS[..]), trouble, any::<u64>()).prop_map(
        |((model, engine, coming, prompt, output), how, fleet, routing, trouble, seed)| {
            let (places, cache, prefix, swap, priorities) = how;
            // A static batch is no prefill pool: its places are not given up before its answers end.
            let fleet = match fleet {
                Fleet::Disaggregated(prefill, decode) if engine == "transformers" => Fleet::Equal(prefill + decode),
                fleet => fleet,
            };
            Setup {
                model,
                engine,
                coming,
                prompt,
                output,
                places,
                cache,
                prefix,
                swap,
                priorities,
                fleet,
                routing,
                trouble,
                seed,
            }
        },
    )
}
