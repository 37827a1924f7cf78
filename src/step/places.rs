//! A model in several memories: the operators of every place under its own laws, and what moves between places in every step.

use super::compile::{ACTIVATION_BYTES, Compiler, Terms};
use super::laws::Laws;
use super::load::StepLoad;
use super::terms::{Named, Rows, TransferTerm};
use crate::deployment::{Deployment, Offload, Place, ShardedModel};
use crate::hardware::SystemError;
use crate::model::{Architecture, Reaches};
use crate::operator::OperatorClass;
use crate::units::{Bytes, BytesPerSecond, Seconds};
use std::sync::Arc;

/// A divided model, compiled.
#[derive(Clone, Debug)]
pub(super) struct Divided {
    pub(super) terms: Terms,
    /// Steps with many rows, if they run elsewhere.
    pub(super) many_rows: Option<(f64, Terms)>,
    /// The deployment that each place would be alone; operators name theirs by its position.
    pub(super) alone: Vec<Alone>,
    /// Share of a prompt's time that the slowest device takes; none if devices do not work at the same time.
    pub(super) longest_stage: Option<f64>,
}

/// One place as a deployment of its own.
#[derive(Clone, Debug)]
pub(super) struct Alone {
    pub(super) deployment: Deployment,
    /// What follows the names of its groups.
    pub(super) suffix: String,
    place: Place,
}

impl Divided {
    /// A model that is not: all of it on equal devices.
    pub(super) fn undivided(terms: Terms) -> Self {
        Self { terms, many_rows: None, alone: Vec::new(), longest_stage: None }
    }

    /// Compiles a deployment whose parts run under different laws; `whole` is the undivided model on its first device.
    pub(super) fn new(
        deployment: &Deployment,
        whole: &ShardedModel<'_>,
        reaches: &Reaches,
    ) -> Result<Self, SystemError> {
        let alone: Vec<Alone> = deployment.places().into_iter().map(|place| Alone::new(deployment, place)).collect();
        let mut terms = Terms::default();
        let mut prompt_times = Vec::new();
        for (index, one) in alone.iter().enumerate() {
            let own = one.terms(index, whole, reaches, |sharded| sharded.at(&one.place))?;
            prompt_times.push(product_time(&own));
            terms.extend(own);
        }
        let first_device = alone.iter().position(|one| !one.place.is_host);
        terms.host = host_time(&alone, deployment, first_device);
        terms.transfers = transfers(deployment, &alone, whole.architecture)?;
        let many_rows = match (deployment.offload_rows(), first_device) {
            (Some(rows), Some(device)) if alone.iter().any(|one| one.place.is_host) => {
                Some((rows, many_rows(deployment, &alone, device, whole, reaches, terms.host)?))
            }
            _ => None,
        };
        let total: f64 = prompt_times.iter().sum();
        let beside_host = alone.iter().any(|one| one.place.is_host);
        let longest_stage = (total > 0.0 && !beside_host).then(|| prompt_times.into_iter().fold(0.0, f64::max) / total);
        Ok(Self { terms, many_rows, alone, longest_stage })
    }
}

impl Alone {
    fn new(deployment: &Deployment, place: Place) -> Self {
        let suffix = match place.is_host {
            true => " on host".into(),
            false if deployment.has_unequal_devices() => format!(" on {}", place.device.name()),
            false => String::new(),
        };
        Self { deployment: deployment.at(&place), suffix, place }
    }

    /// What `part` of the model costs under the laws of this place.
    fn terms(
        &self,
        index: usize,
        whole: &ShardedModel<'_>,
        reaches: &Reaches,
        part: impl FnOnce(ShardedModel<'_>) -> ShardedModel<'_>,
    ) -> Result<Terms, SystemError> {
        let sharded = part(self.deployment.sharded_as(whole.architecture));
        let compiler = Compiler::new(&self.deployment, &sharded, reaches).named(index, &self.suffix);
        let mut terms = Terms::default();
        compiler.operators(&mut terms);
        Ok(terms)
    }
}

/// Steps whose rows are so many that weights on the host are worth copying: everything but the output head runs on the device.
fn many_rows(
    deployment: &Deployment,
    alone: &[Alone],
    device: usize,
    whole: &ShardedModel<'_>,
    reaches: &Reaches,
    host: super::terms::HostTerm,
) -> Result<Terms, SystemError> {
    let (mut terms, mut copied) = (Terms { host, ..Terms::default() }, Vec::new());
    for (index, one) in alone.iter().enumerate() {
        if !one.place.is_host {
            terms.extend(one.terms(index, whole, reaches, |sharded| sharded.at(&one.place))?);
            continue;
        }
        let guest = Alone { suffix: " of host".into(), ..alone[device].clone() };
        let own = guest.terms(device, whole, reaches, |sharded| sharded.at(&one.place).without_head())?;
        copied = streamed(&own, 1.0, 1.0, host_link(deployment, Seconds::ZERO));
        terms.extend(own);
        // Few rows reach the output head.
        terms.extend(one.terms(index, whole, reaches, |sharded| sharded.at(&one.place).only_head())?);
    }
    terms.transfers = hops(deployment, alone, whole.architecture, |place| !place.is_host)?;
    terms.transfers.extend(copied);
    Ok(terms)
}

/// The engine's own time counts once; launches that wait for a device, for the layers of each.
fn host_time(alone: &[Alone], deployment: &Deployment, first_device: Option<usize>) -> super::terms::HostTerm {
    let mut sum = super::terms::HostTerm::default();
    for (index, one) in alone.iter().enumerate() {
        let layers = one.place.stage.kind_counts.iter().sum();
        let devices = u64::from(deployment.devices_per_replica());
        let own = Laws::new(&one.deployment).host(layers, devices);
        let without_layers = Laws::new(&one.deployment).host(0, devices);
        sum.per_step += own.per_step - without_layers.per_step;
        if index == first_device.unwrap_or(0) {
            sum.per_step += without_layers.per_step;
            (sum.per_sequence, sum.per_prompt_step) = (own.per_sequence, own.per_prompt_step);
        }
    }
    sum
}

/// Everything that moves in a step of a divided model: hidden states between places.
fn transfers(
    deployment: &Deployment,
    alone: &[Alone],
    architecture: &Architecture,
) -> Result<Vec<Named<TransferTerm>>, SystemError> {
    let mut all = hops(deployment, alone, architecture, |_| true)?;
    if let Offload::Experts { .. } = deployment.offload() {
        let host = alone.iter().filter(|one| one.place.is_host);
        let layers: u64 = host.flat_map(|one| &one.place.experts_of_kind).sum();
        let link = host_link(deployment, Laws::new(deployment).host_hop());
        let bytes = architecture.hidden_size as f64 * ACTIVATION_BYTES;
        // To the host and back.
        all.push(named("hidden states to experts", hidden_state(2.0 * layers as f64, bytes, link)));
    }
    Ok(all)
}

/// Hidden states from one run of layers to the next, among the places that `takes_part`.
fn hops(
    deployment: &Deployment,
    alone: &[Alone],
    architecture: &Architecture,
    takes_part: impl Fn(&Place) -> bool,
) -> Result<Vec<Named<TransferTerm>>, SystemError> {
    let has_layers = |one: &&Alone| one.place.stage.kind_counts.iter().sum::<u64>() > 0 || one.place.stage.is_last;
    let runs: Vec<&Alone> = alone.iter().filter(has_layers).filter(|one| takes_part(&one.place)).collect();
    let mut all = Vec::new();
    let bytes = architecture.hidden_size as f64 * ACTIVATION_BYTES;
    for pair in runs.windows(2) {
        let between_devices = pair.iter().all(|one| !one.place.is_host);
        let (name, link) = if between_devices {
            let lines = pair.iter().map(|one| Laws::new(deployment).hop(&beside(&one.deployment)));
            let lines = lines.collect::<Result<Vec<_>, _>>()?;
            let slowest = lines.iter().map(|line| line.seconds_per_byte).fold(0.0, f64::max);
            let latency = lines.iter().map(|line| line.latency).fold(Seconds::ZERO, Seconds::max);
            ("stage hops", Link { latency: latency.as_seconds(), seconds_per_byte: slowest })
        } else {
            ("hidden states from host", host_link(deployment, Laws::new(deployment).host_hop()))
        };
        let term = hidden_state(1.0, bytes, link);
        match all.iter_mut().find(|known: &&mut Named<TransferTerm>| known.name == name && known.term.same_as(&term)) {
            Some(known) => known.term.count += 1.0,
            None => all.push(named(name, term)),
        }
    }
    Ok(all)
}

/// Two of a device, to ask how they are linked.
fn beside(alone: &Deployment) -> Deployment {
    let two = crate::hardware::System::new(alone.system().device().clone(), 2);
    let system = two.unwrap_or_else(|_| alone.system().clone());
    alone.clone().with_system(system).with_pipeline_parallel(2)
}

/// A line in the bytes, in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    latency: f64,
    seconds_per_byte: f64,
}

impl Link {
    pub(super) fn new(bandwidth: BytesPerSecond, latency: Seconds) -> Self {
        let seconds_per_byte = (Bytes::from_bytes(1.0) / bandwidth).as_seconds();
        Self { latency: latency.as_seconds(), seconds_per_byte }
    }
}

/// The link between the first device and the main memory; free where nothing is known of one.
fn host_link(deployment: &Deployment, latency: Seconds) -> Link {
    let efficiency = Laws::new(deployment).host_efficiency();
    match deployment.system().device().host_link() {
        Some(link) => Link::new(link.bandwidth.value * efficiency, latency),
        None => Link { latency: latency.as_seconds(), seconds_per_byte: 0.0 },
    }
}

fn hidden_state(count: f64, bytes: f64, link: Link) -> TransferTerm {
    let (fixed, per_row) = (link.latency, bytes * link.seconds_per_byte);
    TransferTerm { count, fixed, per_row, ..TransferTerm::default() }
}

/// Adds what a deployment streams; `held` are the weights that a device would hold otherwise.
pub(super) fn add_streamed(terms: &mut Terms, deployment: &Deployment, held: Bytes) {
    let Offload::Stream { weights, cache_share, .. } = deployment.offload() else { return };
    let Some(bandwidth) = deployment.stream_bandwidth() else { return };
    let efficiency = Laws::new(deployment).host_efficiency();
    let link = Link::new(bandwidth * efficiency, Seconds::ZERO);
    let share = if held > Bytes::ZERO { (weights / held).min(1.0) } else { 0.0 };
    let streamed = streamed(terms, share, cache_share, link);
    terms.transfers.extend(streamed);
}

/// Weights and cache that are read over a link in every step: shares of what the operators read.
pub(super) fn streamed(terms: &Terms, weights: f64, cache: f64, link: Link) -> Vec<Named<TransferTerm>> {
    let seconds = |bytes: f64, share: f64| bytes * share * link.seconds_per_byte;
    let mut all = Vec::new();
    for (name, rows) in [("weights", Rows::All), ("output head", Rows::Emitting)] {
        let read = terms.linears.iter().map(|named| named.term).filter(|term| term.rows == rows);
        let fixed = seconds(read.map(|term| term.count * term.weight_bytes).sum(), weights);
        all.push(named(name, TransferTerm { count: 1.0, rows, fixed, ..TransferTerm::default() }));
    }
    for Named { term, .. } in &terms.experts {
        let term = TransferTerm {
            count: term.count,
            experts_here: term.experts_here,
            log_missed: term.log_missed,
            per_expert: seconds(term.bytes_per_expert, weights),
            ..TransferTerm::default()
        };
        all.push(named("experts", term));
    }
    for Named { term, .. } in &terms.decode_attention {
        let per_entry = seconds(term.bytes_per_entry, cache);
        all.push(named(
            "cache",
            TransferTerm { count: term.count, reach: term.reach, per_entry, ..TransferTerm::default() },
        ));
    }
    all.retain(|named| !named.term.is_free());
    all
}

fn named(name: &'static str, term: TransferTerm) -> Named<TransferTerm> {
    Named { group: Arc::from("transfer"), name, class: OperatorClass::Collective, place: 0, term }
}

/// Time of the matrix products of a prompt chunk, to compare stages by.
fn product_time(terms: &Terms) -> f64 {
    let mut load = StepLoad::new(Reaches::FULL);
    load.add_prefill(0, COMPARED_TOKENS, false);
    let linears = terms.linears.iter().map(|named| named.term.times(&load).total());
    let experts = terms.experts.iter().map(|named| named.term.times(&load).total());
    linears.chain(experts).sum::<Seconds>().as_seconds()
}

/// Tokens of a usual prompt chunk.
const COMPARED_TOKENS: u64 = 512;
