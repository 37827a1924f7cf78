//! A model in several memories: the operators of every place under its own laws, and what moves between places in every step.

use super::compile::{ACTIVATION_BYTES, Compiler, Terms};
use super::laws::Laws;
use super::load::StepLoad;
use super::terms::{Counted, HostTerm, Named, Rows, TransferTerm};
use crate::deployment::{Deployment, Offload, Place, ShardedModel};
use crate::hardware::{System, SystemError};
use crate::model::Reaches;
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
        let places = deployment.places();
        let mut alone: Vec<Alone> = places.iter().map(|place| Alone::new(deployment, place)).collect();
        let divided = Places { deployment, whole, reaches, places: &places };
        let mut terms = Terms { host: divided.host_time(&alone), ..Terms::default() };
        let mut prompt_times = Vec::new();
        for (index, place) in places.iter().enumerate() {
            let own = divided.operators(&alone, index, |sharded| sharded.at(place));
            prompt_times.push(product_time(&own));
            terms.extend(own);
        }
        terms.transfers = divided.transfers(&alone)?;
        let mut many_rows = None;
        if let (Some(rows), Some(host)) = (deployment.offload_rows(), places.iter().position(|place| place.is_host)) {
            alone.push(Alone { deployment: deployment.on_first_device(), suffix: " of host".into() });
            many_rows = Some((rows, divided.many_rows(&alone, host, terms.host)?));
        }
        let total: f64 = prompt_times.iter().sum();
        let longest = prompt_times.into_iter().fold(0.0, f64::max) / total;
        let longest_stage = (total > 0.0 && !deployment.has_parts_on_host()).then_some(longest);
        Ok(Self { terms, many_rows, alone, longest_stage })
    }
}

impl Alone {
    fn new(deployment: &Deployment, place: &Place) -> Self {
        let suffix = match place.is_host {
            true => " on host".into(),
            false if deployment.has_unequal_devices() => format!(" on {}", place.device.name()),
            false => String::new(),
        };
        Self { deployment: deployment.at(place), suffix }
    }
}

/// A divided model while it is compiled.
struct Places<'a> {
    deployment: &'a Deployment,
    whole: &'a ShardedModel<'a>,
    reaches: &'a Reaches,
    places: &'a [Place],
}

impl Places<'_> {
    /// What `part` of the model costs under the laws of a place.
    fn operators(
        &self,
        alone: &[Alone],
        index: usize,
        part: impl FnOnce(ShardedModel<'_>) -> ShardedModel<'_>,
    ) -> Terms {
        let Alone { deployment, suffix } = &alone[index];
        let sharded = part(deployment.sharded_as(self.whole.architecture));
        let mut terms = Terms::default();
        Compiler::new(deployment, &sharded, self.reaches).named(index, suffix).operators(&mut terms);
        terms
    }

    /// Steps whose rows are so many that weights on the host are worth copying: everything but the output head runs on devices, what lives on
    /// the host on the first one, whose laws are the last of `alone`.
    fn many_rows(&self, alone: &[Alone], host: usize, host_time: HostTerm) -> Result<Terms, SystemError> {
        let mut terms = Terms { host: host_time, ..Terms::default() };
        for (index, place) in self.places.iter().enumerate().filter(|(index, _)| *index != host) {
            terms.extend(self.operators(alone, index, |sharded| sharded.at(place)));
        }
        let copied = self.operators(alone, alone.len() - 1, |sharded| sharded.at(&self.places[host]).without_head());
        terms.transfers = self.hops(alone, |place| !place.is_host)?;
        terms.transfers.extend(streamed(&copied, 1.0, 1.0, self.host_link(Seconds::ZERO)));
        terms.extend(copied);
        // Few rows reach the output head.
        terms.extend(self.operators(alone, host, |sharded| sharded.at(&self.places[host]).only_head()));
        Ok(terms)
    }

    /// The engine's own time counts once; launches that wait for a device, for the layers of each.
    fn host_time(&self, alone: &[Alone]) -> HostTerm {
        let driver = self.places.iter().position(|place| !place.is_host).unwrap_or(0);
        let devices = u64::from(self.deployment.devices_per_replica());
        let mut sum = HostTerm::default();
        for (index, (place, one)) in self.places.iter().zip(alone).enumerate() {
            let laws = Laws::new(&one.deployment);
            let layers = place.stage.kind_counts.iter().sum();
            let (own, without_layers) = (laws.host(layers, devices), laws.host(0, devices));
            if index == driver {
                (sum.per_sequence, sum.per_prompt_step) = (own.per_sequence, own.per_prompt_step);
                sum.per_step += own.per_step;
            } else {
                sum.per_step += own.per_step - without_layers.per_step;
            }
        }
        sum
    }

    /// Hidden states between places.
    fn transfers(&self, alone: &[Alone]) -> Result<Vec<Named<TransferTerm>>, SystemError> {
        let mut all = self.hops(alone, |_| true)?;
        if let Offload::Experts { .. } = self.deployment.offload() {
            let host = self.places.iter().filter(|place| place.is_host);
            let layers: u64 = host.flat_map(|place| &place.experts_of_kind).sum();
            let link = self.host_link(Laws::new(self.deployment).host_hop());
            // To the host and back.
            all.push(named("hidden states to experts", self.hidden_states(2.0 * layers as f64, link)));
        }
        Ok(all)
    }

    /// Hidden states from one run of layers to the next, among the places that take part.
    fn hops(
        &self,
        alone: &[Alone],
        takes_part: impl Fn(&Place) -> bool,
    ) -> Result<Vec<Named<TransferTerm>>, SystemError> {
        let in_line = |place: &Place| place.stage.kind_counts.iter().sum::<u64>() > 0 || place.stage.is_last;
        let runs = self.places.iter().zip(alone);
        let runs: Vec<_> = runs.filter(|(place, _)| in_line(place) && takes_part(place)).collect();
        let mut all: Vec<Named<TransferTerm>> = Vec::new();
        for pair in runs.windows(2) {
            let between_devices = pair.iter().all(|(place, _)| !place.is_host);
            let (name, link) = if between_devices {
                ("stage hops", self.slower_link(pair[0].1, pair[1].1)?)
            } else {
                ("hidden states from host", self.host_link(Laws::new(self.deployment).host_hop()))
            };
            let term = self.hidden_states(1.0, link);
            match all.iter_mut().find(|known| known.name == name && known.term.with_count(1.0) == term) {
                Some(known) => known.term.count += 1.0,
                None => all.push(named(name, term)),
            }
        }
        Ok(all)
    }

    /// The slower of the links that two devices have with their like.
    fn slower_link(&self, from: &Alone, to: &Alone) -> Result<Link, SystemError> {
        let laws = Laws::new(self.deployment);
        let (from, to) = (laws.hop(&beside(&from.deployment))?, laws.hop(&beside(&to.deployment))?);
        let line = from.beside(to);
        Ok(Link { latency: line.latency.as_seconds(), seconds_per_byte: line.seconds_per_byte })
    }

    /// The link between the first device and the main memory; free where nothing is known of one.
    fn host_link(&self, latency: Seconds) -> Link {
        let efficiency = Laws::new(self.deployment).host_efficiency();
        match self.deployment.host_bandwidth(efficiency) {
            Some(bandwidth) => Link::new(bandwidth, latency),
            None => Link { latency: latency.as_seconds(), seconds_per_byte: 0.0 },
        }
    }

    fn hidden_states(&self, count: f64, link: Link) -> TransferTerm {
        let bytes = self.whole.architecture.hidden_size as f64 * ACTIVATION_BYTES;
        let (fixed, per_row) = (link.latency, bytes * link.seconds_per_byte);
        TransferTerm { count, fixed, per_row, ..TransferTerm::default() }
    }
}

/// Two of a device, to ask how they are linked.
fn beside(alone: &Deployment) -> Deployment {
    let two = System::new(alone.system().device().clone(), 2);
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

/// Adds what a deployment streams; `held` are the weights that a device would hold otherwise.
pub(super) fn add_streamed(terms: &mut Terms, deployment: &Deployment, held: Bytes) {
    let Offload::Stream { weights, cache_share, .. } = deployment.offload() else { return };
    let efficiency = Laws::new(deployment).host_efficiency();
    let Some(bandwidth) = deployment.stream_bandwidth(efficiency) else { return };
    let link = Link::new(bandwidth, Seconds::ZERO);
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
