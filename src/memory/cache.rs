//! What the cache of a sequence takes, as the engine keeps accounts of it.

use super::cache_pool::{CacheGroup, CachePool, common_bytes, pieces};
use super::drafting::{Drafter, Speculation};
use super::paged::Paged;
use crate::deployment::Deployment;
use crate::engine::{CacheAccounting, MemoryRules};
use crate::model::{Architecture, AttentionPass, Layer, Mixer, ModelBody, Reach, Recurrent, Split};
use crate::profile::Sourced;
use crate::units::Bytes;

/// The cache of the layers of one place, on one device.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cache {
    /// Every layer keeps what its reach keeps.
    Kept(Kept),
    /// A pool of blocks.
    Paged(Paged),
}

/// Keys and values, and recurrent states, of one device.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Need {
    pub cache: Bytes,
    pub state: Bytes,
}

/// A cache of exactly what each layer needs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Kept {
    /// Bytes per kept entry in all layers with this reach.
    parts: Vec<(Reach, Bytes)>,
    state: Bytes,
    /// Contexts are rounded up to multiples of this.
    granularity: u64,
    /// Tokens that layers with a window keep beyond it.
    beyond_window: u64,
    /// Whether all sequences are in one cache.
    unified: bool,
}

/// Layers with equal needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct CacheLayers {
    /// How far back they keep entries, as the engine sees it; `None` for layers with a state only.
    pub reach: Option<Reach>,
    pub layers: u64,
    /// Bytes that a token takes in one layer.
    pub bytes_per_token: f64,
    /// Bytes of the state of a sequence in one layer.
    pub state_bytes: f64,
}

impl Cache {
    /// The cache of so many layers of each kind, and of the drafter if it is here.
    pub(super) fn new(
        deployment: &Deployment,
        architecture: &Architecture,
        kind_counts: &[u64],
        speculation: &Speculation<'_>,
        drafter: Option<&Drafter<'_>>,
    ) -> Self {
        let rules = &deployment.engine().memory;
        let accounting = rules.accounting.as_ref().map(|rule| rule.value).unwrap_or_default();
        let inputs = if accounting == CacheAccounting::Grouped { speculation.draft_tokens } else { 0 };
        let paged = match (accounting, layers(deployment, architecture, kind_counts, inputs, drafter)) {
            (CacheAccounting::Kept, _) | (_, None) => None,
            (accounting, Some(layers)) => Paged::new(deployment, accounting, &layers, speculation),
        };
        let kept = || {
            let mut kept = Kept::new(deployment);
            kept.add_layers(deployment, architecture, kind_counts);
            Self::Kept(kept.beside(drafter, speculation))
        };
        paged.map_or_else(kept, Self::Paged)
    }

    /// The cache of a model known by its totals.
    pub(super) fn of_totals(
        bytes_per_token: Bytes,
        speculation: &Speculation<'_>,
        drafter: Option<&Drafter<'_>>,
    ) -> Self {
        let mut kept = Kept { granularity: 1, ..Kept::default() };
        kept.add(Reach::Full, bytes_per_token);
        Self::Kept(kept.beside(drafter, speculation))
    }

    /// No cache.
    pub(super) fn empty() -> Self {
        Self::Kept(Kept { granularity: 1, ..Kept::default() })
    }

    /// What so many sequences of this context take.
    pub(super) fn need(&self, sequences: u64, context: u64) -> Need {
        match self {
            Self::Kept(kept) => kept.need(sequences, context),
            Self::Paged(paged) => paged.need(sequences, context),
        }
    }
}

impl Kept {
    fn new(deployment: &Deployment) -> Self {
        let rules = &deployment.engine().memory;
        Self {
            granularity: rules.block_tokens.as_ref().map_or(1, |tokens| tokens.value),
            beyond_window: step_beside_window(deployment),
            unified: is_unified(deployment),
            ..Self::default()
        }
    }

    fn add_layers(&mut self, deployment: &Deployment, architecture: &Architecture, kind_counts: &[u64]) {
        for (kind, &count) in architecture.layer_kinds.iter().zip(kind_counts).filter(|(_, count)| **count > 0) {
            for pass in kind.layer.kept_passes() {
                let bytes = pass_bytes(deployment, &kind.layer, &pass) * count as f64;
                self.add(deployment.reach(pass.reach), Bytes::from_bytes(bytes));
            }
            self.state += Bytes::from_bytes(state_bytes(deployment, &kind.layer, 0) * count as f64);
        }
    }

    /// With the cache of a drafter, and a state more for each token that is proposed.
    fn beside(mut self, drafter: Option<&Drafter<'_>>, speculation: &Speculation<'_>) -> Self {
        if let Some(drafter) = drafter {
            match &drafter.deployment.model().body {
                ModelBody::Architecture(architecture) => {
                    self.add_layers(&drafter.deployment, architecture, &architecture.kind_counts());
                }
                ModelBody::Totals(_) => self.add(Reach::Full, Bytes::from_bytes(bytes_per_token_of_totals(drafter))),
            }
        }
        Self { state: self.state * (1.0 + speculation.draft_tokens as f64), ..self }
    }

    fn add(&mut self, reach: Reach, bytes: Bytes) {
        match self.parts.iter_mut().find(|(known, _)| *known == reach) {
            Some((_, sum)) => *sum += bytes,
            None if bytes > Bytes::ZERO => self.parts.push((reach, bytes)),
            None => {}
        }
    }

    fn need(&self, sequences: u64, context: u64) -> Need {
        // In one cache for all, what windows and steps need is rounded once.
        let (caches, per_cache) = if self.unified { (sequences.min(1), sequences) } else { (sequences, 1) };
        let rounded = round_up(context.saturating_mul(per_cache), self.granularity);
        let entries = |reach: &Reach| match reach {
            Reach::Window(window) if self.beyond_window > 0 => {
                window_entries(*window, per_cache, self.beyond_window, self.granularity).min(rounded) as f64
            }
            Reach::Full => rounded as f64,
            reach => reach.kept(round_up(context, self.granularity)) * per_cache as f64,
        };
        let cache: Bytes = self.parts.iter().map(|(reach, per_entry)| *per_entry * entries(reach)).sum();
        Need { cache: cache * caches as f64, state: self.state * sequences as f64 }
    }
}

impl Kept {
    /// Whether all sequences are in one cache.
    pub(super) const fn is_unified(&self) -> bool {
        self.unified
    }

    /// Whether there is nothing but keys and values of full attention.
    pub(super) fn is_plain(&self) -> bool {
        matches!(self.parts[..], [(Reach::Full, _)]) && self.state == Bytes::ZERO
    }

    /// The pool of so much memory, if this share of keys and values is in it.
    ///
    /// One cache for all sequences is rounded up once, and keeps the tokens of a step once: both are set aside.
    pub(super) fn cache_pool_in(&self, memory: Bytes, cache_share: f64) -> CachePool {
        let granularity = self.granularity.max(1);
        let together = |reach| self.unified && (reach == Reach::Full || self.keeps_step(reach));
        let tokens = |reach| if together(reach) { 1 } else { granularity };
        let parts = || self.parts.iter().map(|(reach, bytes)| (*reach, *bytes * cache_share));
        // An entry of a compressed cache stands for several tokens.
        let block = |(reach, bytes): (Reach, Bytes)| match reach {
            Reach::Selected { .. } => bytes * reach.kept(tokens(reach)),
            _ => bytes * tokens(reach) as f64,
        };
        let unit = match common_bytes(parts().map(block).filter(|bytes| *bytes > Bytes::ZERO)) {
            // States only: a sequence is a block.
            0 => self.state,
            bytes => Bytes::from_bytes(bytes as f64),
        };
        let count = |bytes: Bytes| if bytes > Bytes::ZERO { (bytes / unit).ceil() as u64 } else { 0 };
        let group = |part| CacheGroup::new(count(block(part)), tokens(part.0), self.most_kept(part.0), 0);
        let once = |(reach, bytes): (Reach, Bytes)| {
            let step = if self.keeps_step(reach) { self.beyond_window } else { 0 };
            if together(reach) { bytes * (step + granularity - 1) as f64 } else { Bytes::ZERO }
        };
        let plain = self.unified && self.is_plain();
        let blocks = pieces(if plain { memory } else { memory - parts().map(once).sum() }, unit);
        CachePool {
            // Alone, full attention uses all of what it is rounded up to.
            blocks: if plain { blocks - blocks % granularity } else { blocks },
            per_sequence: count(self.state),
            groups: parts().map(group).filter(|group| group.count > 0).collect(),
            ..CachePool::default()
        }
    }

    /// Whether layers of this reach keep the tokens of a step beside their window.
    const fn keeps_step(&self, reach: Reach) -> bool {
        matches!(reach, Reach::Window(_)) && self.beyond_window > 0
    }

    /// Tokens that a sequence keeps at most.
    const fn most_kept(&self, reach: Reach) -> u64 {
        match reach {
            Reach::Window(window) if self.keeps_step(reach) && !self.unified => {
                window_entries(window, 1, self.beyond_window, self.granularity)
            }
            Reach::Window(tokens) | Reach::Chunk(tokens) => tokens,
            _ => u64::MAX,
        }
    }
}

const fn round_up(tokens: u64, granularity: u64) -> u64 {
    tokens.div_ceil(granularity).saturating_mul(granularity)
}

/// Entries of a layer with a window that keeps the tokens of a step beside the windows of all sequences.
pub(super) const fn window_entries(window: u64, sequences: u64, step_tokens: u64, granularity: u64) -> u64 {
    round_up(window.saturating_mul(sequences).saturating_add(step_tokens), granularity)
}

/// Whether all sequences share one cache.
pub(super) fn is_unified(deployment: &Deployment) -> bool {
    deployment.engine().memory.unified_cache.as_ref().is_some_and(|unified| unified.value)
}

/// Devices of a stage that cache, states and activations are divided among.
pub(super) fn shares(deployment: &Deployment) -> u64 {
    let whole = deployment.engine().memory.cache_on_one_device.as_ref().is_some_and(|whole| whole.value);
    if whole { 1 } else { u64::from(deployment.tensor_parallel()) }
}

/// Tokens of the steps in flight, where layers with a window keep them beside it.
pub(super) fn step_beside_window(deployment: &Deployment) -> u64 {
    let rules = &deployment.engine().memory;
    let keeps = rules.windows_keep_step.as_ref().is_some_and(|keeps| keeps.value);
    let steps = rules.steps_in_flight.as_ref().map_or(1, |steps| steps.value);
    if keeps { deployment.memory_step_tokens().saturating_mul(steps) } else { 0 }
}

/// Layers by need, those of the drafter last, if each keeps either entries of one reach or a state. Convolutions remember `inputs` more.
fn layers(
    deployment: &Deployment,
    architecture: &Architecture,
    kind_counts: &[u64],
    inputs: u64,
    drafter: Option<&Drafter<'_>>,
) -> Option<Vec<CacheLayers>> {
    let mut all = Vec::new();
    add_layers(&mut all, deployment, architecture, kind_counts, inputs)?;
    match drafter.map(|drafter| (drafter, &drafter.deployment.model().body)) {
        Some((drafter, ModelBody::Architecture(architecture))) => {
            add_layers(&mut all, &drafter.deployment, architecture, &architecture.kind_counts(), inputs)?;
        }
        Some((drafter, ModelBody::Totals(_))) => {
            let bytes_per_token = bytes_per_token_of_totals(drafter);
            let layer = CacheLayers { reach: Some(Reach::Full), layers: 1, bytes_per_token, state_bytes: 0.0 };
            all.extend((bytes_per_token > 0.0).then_some(layer));
        }
        None => {}
    }
    Some(all)
}

fn add_layers(
    all: &mut Vec<CacheLayers>,
    deployment: &Deployment,
    architecture: &Architecture,
    kind_counts: &[u64],
    inputs: u64,
) -> Option<()> {
    for (kind, &count) in architecture.layer_kinds.iter().zip(kind_counts).filter(|(_, count)| **count > 0) {
        let layer = of_layer(deployment, &kind.layer, inputs)?;
        if layer.reach.is_none() && layer.state_bytes == 0.0 {
            continue;
        }
        match all.iter_mut().find(|known| CacheLayers { layers: 0, ..**known } == layer) {
            Some(known) => known.layers += count,
            None => all.push(CacheLayers { layers: count, ..layer }),
        }
    }
    Some(())
}

/// Bytes that a token takes on one device in the cache of a drafter known by its totals.
fn bytes_per_token_of_totals(drafter: &Drafter<'_>) -> f64 {
    match &drafter.deployment.model().body {
        ModelBody::Totals(totals) => totals.kv_bytes_per_token.as_bytes() / shares(&drafter.deployment) as f64,
        ModelBody::Architecture(_) => 0.0,
    }
}

fn of_layer(deployment: &Deployment, layer: &Layer, inputs: u64) -> Option<CacheLayers> {
    let state_bytes = state_bytes(deployment, layer, inputs);
    let mut found = CacheLayers { reach: None, layers: 0, bytes_per_token: 0.0, state_bytes };
    for pass in layer.kept_passes() {
        let reach = match deployment.reach(pass.reach) {
            // Selected entries, one per token, are all kept.
            Reach::Selected { ratio: 0 | 1, .. } => Reach::Full,
            Reach::Selected { .. } => return None,
            reach => reach,
        };
        if found.reach.is_some_and(|known| known != reach) {
            return None;
        }
        found.reach = Some(reach);
        found.bytes_per_token += pass_bytes(deployment, layer, &pass);
    }
    Some(found)
}

/// Bytes of an entry of one pass in one layer, on one device.
fn pass_bytes(deployment: &Deployment, layer: &Layer, pass: &AttentionPass) -> f64 {
    let tp = shares(deployment);
    let expands = deployment.engine().memory.expands_latents.as_ref().is_some_and(|expands| expands.value);
    if let (Mixer::LatentAttention(latent), true) = (&layer.mixer, expands) {
        let head_dim = latent.qk_nope_head_dim + latent.qk_rope_head_dim;
        let elements = latent.heads * (head_dim + latent.v_head_dim);
        return deployment.kv().bits_per_element(head_dim) * elements as f64 / 8.0 / tp as f64;
    }
    let bits = deployment.cache_bits(layer, pass) * pass.elements_per_entry as f64;
    let bytes = bits * Split::KvHeads(pass.kv_heads).share(tp) / 8.0;
    let padding = deployment.engine().memory.latent_entry_multiple.as_ref();
    match padding.filter(|_| matches!(layer.mixer, Mixer::LatentAttention(_))) {
        Some(multiple) => (bytes / multiple.value.as_bytes()).ceil() * multiple.value.as_bytes(),
        None => bytes,
    }
}

/// Bytes of the state of a sequence in one layer, on one device, whose convolution remembers so many inputs more.
fn state_bytes(deployment: &Deployment, layer: &Layer, inputs: u64) -> f64 {
    let Mixer::Recurrent(recurrent) = &layer.mixer else { return 0.0 };
    let MemoryRules { state_bits, convolution_bits, .. } = &deployment.engine().memory;
    let convolution = recurrent.convolution_elements();
    let matrix = recurrent.state_elements() - convolution;
    let convolution = convolution as f64 + inputs as f64 * elements_per_input(recurrent) as f64;
    let bits = matrix as f64 * bits(state_bits) + convolution * bits(convolution_bits);
    bits / 8.0 / shares(deployment) as f64
}

/// Elements of an input that a convolution remembers, where it remembers one more for each token that is proposed.
///
/// Source: vLLM, vllm/model_executor/layers/mamba/mamba_utils.py: `num_spec` in the shapes of Mamba-2, gated delta nets and Kimi delta
/// attention, but not of Mamba-1 and short convolutions.
const fn elements_per_input(recurrent: &Recurrent) -> u64 {
    match *recurrent {
        Recurrent::Mamba2 { heads, head_dim, groups, state, .. } => heads * head_dim + 2 * groups * state,
        Recurrent::GatedDeltaNet { key_heads, value_heads, key_dim, value_dim, .. } => {
            2 * key_heads * key_dim + value_heads * value_dim
        }
        Recurrent::KimiDelta { heads, head_dim, .. } => 3 * heads * head_dim,
        Recurrent::Mamba1 { .. } | Recurrent::Lightning { .. } | Recurrent::ShortConvolution { .. } => 0,
    }
}

fn bits(rule: &Option<Sourced<f64>>) -> f64 {
    rule.as_ref().map_or(STATE_BITS, |rule| rule.value)
}

/// Recurrent states are kept in the model's 16 bits where an engine says nothing.
pub(crate) const STATE_BITS: f64 = 16.0;
