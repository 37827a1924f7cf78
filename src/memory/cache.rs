//! What the cache of a sequence takes, as the engine keeps accounts of it.

use super::paged::Paged;
use crate::deployment::Deployment;
use crate::engine::{CacheAccounting, MemoryRules};
use crate::model::{Architecture, AttentionPass, Layer, Mixer, Reach, Split};
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
    /// The cache of so many layers of each kind.
    pub(super) fn new(deployment: &Deployment, architecture: &Architecture, kind_counts: &[u64]) -> Self {
        let rules = &deployment.engine().memory;
        let accounting = rules.accounting.as_ref().map(|rule| rule.value).unwrap_or_default();
        let layers = layers(deployment, architecture, kind_counts);
        let paged = match (accounting, layers) {
            (CacheAccounting::Kept, _) | (_, None) => None,
            (accounting, Some(layers)) => Paged::new(deployment, accounting, &layers),
        };
        paged.map_or_else(|| Self::Kept(Kept::new(deployment, architecture, kind_counts)), Self::Paged)
    }

    /// The cache of a model known by its totals.
    pub(super) fn of_totals(bytes_per_token: Bytes) -> Self {
        let parts = if bytes_per_token > Bytes::ZERO { vec![(Reach::Full, bytes_per_token)] } else { Vec::new() };
        Self::Kept(Kept { parts, granularity: 1, ..Kept::default() })
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
    fn new(deployment: &Deployment, architecture: &Architecture, kind_counts: &[u64]) -> Self {
        let rules = &deployment.engine().memory;
        let mut kept = Self {
            granularity: rules.block_tokens.as_ref().map_or(1, |tokens| tokens.value),
            beyond_window: step_beside_window(deployment),
            unified: is_unified(deployment),
            ..Self::default()
        };
        for (kind, &count) in architecture.layer_kinds.iter().zip(kind_counts).filter(|(_, count)| **count > 0) {
            for pass in kind.layer.kept_passes() {
                let bytes = pass_bytes(deployment, &kind.layer, &pass) * count as f64;
                kept.add(deployment.reach(pass.reach), Bytes::from_bytes(bytes));
            }
            kept.state += Bytes::from_bytes(state_bytes(deployment, &kind.layer) * count as f64);
        }
        kept
    }

    fn add(&mut self, reach: Reach, bytes: Bytes) {
        match self.parts.iter_mut().find(|(known, _)| *known == reach) {
            Some((_, sum)) => *sum += bytes,
            None => self.parts.push((reach, bytes)),
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

/// Layers by need, if each keeps either entries of one reach or a state.
fn layers(deployment: &Deployment, architecture: &Architecture, kind_counts: &[u64]) -> Option<Vec<CacheLayers>> {
    let mut all: Vec<CacheLayers> = Vec::new();
    for (kind, &count) in architecture.layer_kinds.iter().zip(kind_counts).filter(|(_, count)| **count > 0) {
        let layer = of_layer(deployment, &kind.layer)?;
        if layer.reach.is_none() && layer.state_bytes == 0.0 {
            continue;
        }
        match all.iter_mut().find(|known| CacheLayers { layers: 0, ..**known } == layer) {
            Some(known) => known.layers += count,
            None => all.push(CacheLayers { layers: count, ..layer }),
        }
    }
    Some(all)
}

fn of_layer(deployment: &Deployment, layer: &Layer) -> Option<CacheLayers> {
    let mut found =
        CacheLayers { reach: None, layers: 0, bytes_per_token: 0.0, state_bytes: state_bytes(deployment, layer) };
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

/// Bytes of the state of a sequence in one layer, on one device.
fn state_bytes(deployment: &Deployment, layer: &Layer) -> f64 {
    let Mixer::Recurrent(recurrent) = &layer.mixer else { return 0.0 };
    let MemoryRules { state_bits, convolution_bits, .. } = &deployment.engine().memory;
    let convolution = recurrent.convolution_elements();
    let matrix = recurrent.state_elements() - convolution;
    let bits = matrix as f64 * bits(state_bits) + convolution as f64 * bits(convolution_bits);
    bits / 8.0 / shares(deployment) as f64
}

fn bits(rule: &Option<Sourced<f64>>) -> f64 {
    rule.as_ref().map_or(STATE_BITS, |rule| rule.value)
}

/// Recurrent states are kept in the model's 16 bits where an engine says nothing.
pub(crate) const STATE_BITS: f64 = 16.0;
