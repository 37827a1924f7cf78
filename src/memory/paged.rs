//! A cache cut into blocks, as vLLM, SGLang and TensorRT-LLM keep it.

use super::cache::{CacheLayers, Need, step_beside_window};
use super::cache_pool::{CacheGroup, CachePool, pieces};
use super::drafting::Speculation;
use crate::deployment::Deployment;
use crate::engine::{CacheAccounting, PrintedTokens};
use crate::model::{Architecture, Mixer, Reach};
use crate::units::Bytes;

/// A pool of blocks of equal size on one device.
///
/// A block belongs to one group of layers and holds tokens in each of them: fewer in layers whose entries are larger. With one group that
/// is the plain paged cache.
///
/// # Source
/// vLLM, vllm/v1/core/kv_cache_utils.py: `_get_kv_cache_groups_uniform_page_size`, `unify_kv_cache_spec_page_size`,
/// `get_max_concurrency_for_kv_cache_config`; vllm/v1/kv_cache_interface.py: `max_memory_usage_bytes` of each kind of layer.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Paged {
    /// Tokens of a block in the layers with the largest entries.
    pub(super) block_tokens: u64,
    pub(super) block_bytes: Bytes,
    /// Groups of layers that keep entries.
    groups: Vec<Groups>,
    /// Groups with states.
    state_groups: u64,
    /// States of a group that a sequence holds, each in a block of its own; one more for each token that is proposed.
    states_per_sequence: u64,
    /// Tokens beyond the context that a sequence takes blocks for, up to the longest context of the model.
    tokens_ahead: u64,
    context_limit: u64,
    /// States that are set aside once for all sequences that may run.
    reserved_states: Bytes,
    /// Bytes of the states of a sequence in a pool of their own.
    state_bytes: Bytes,
    /// Share of the memory for the cache that this pool of states has.
    state_share: f64,
    printed: PrintedTokens,
}

/// Groups of layers that keep the same tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Groups {
    count: u64,
    /// Tokens of a block.
    block_tokens: u64,
    /// Tokens that a sequence keeps at most while it is extended.
    most: u64,
    /// Blocks beyond those: a window that slides may begin and end within a block.
    beyond: u64,
}

impl Paged {
    /// The pool for these layers; `None` if none of them keeps entries that grow with the context.
    pub(super) fn new(
        deployment: &Deployment,
        accounting: CacheAccounting,
        layers: &[CacheLayers],
        speculation: &Speculation<'_>,
    ) -> Option<Self> {
        let rules = &deployment.engine().memory;
        let states_per_sequence = rules.states_per_sequence.as_ref().map_or(1, |states| states.value);
        let printed = rules.printed_tokens.as_ref().map(|rule| rule.value).unwrap_or_default();
        let block_tokens = block_tokens(deployment);
        layers.iter().find(|layer| layer.reach.is_some())?;
        let pool = Self {
            block_tokens,
            block_bytes: Bytes::ZERO,
            groups: Vec::new(),
            state_groups: 0,
            states_per_sequence: states_per_sequence.saturating_add(speculation.draft_tokens),
            tokens_ahead: speculation.tokens_ahead(),
            context_limit: deployment.context_limit().unwrap_or(u64::MAX),
            reserved_states: Bytes::ZERO,
            state_bytes: Bytes::ZERO,
            state_share: 0.0,
            printed,
        };
        // Outside of blocks the engine keeps one state of a sequence, and one for each token that is proposed.
        let states_of_sequence = states(layers) * (1.0 + speculation.draft_tokens as f64);
        Some(match accounting {
            CacheAccounting::Grouped => pool.grouped(deployment, layers),
            CacheAccounting::Pools => pool.pools(deployment, layers, states_of_sequence),
            _ => pool.uniform(deployment, layers, states_of_sequence),
        })
    }

    /// Every block holds its tokens in all layers.
    fn uniform(self, deployment: &Deployment, layers: &[CacheLayers], state: f64) -> Self {
        let sequences = deployment.memory_sequences().unwrap_or(1);
        Self {
            block_bytes: block_bytes(self.block_tokens, layers, |_| 1.0),
            reserved_states: Bytes::from_bytes(state * sequences as f64),
            groups: vec![Groups::full(1, self.block_tokens)],
            ..self
        }
    }

    /// A pool for full attention, one of a fixed share of its tokens for windows, one of a fixed share of all for states.
    fn pools(self, deployment: &Deployment, layers: &[CacheLayers], state: f64) -> Self {
        let rules = &deployment.engine().memory;
        let window_share = rules.window_share.as_ref().map_or(1.0, |share| share.value);
        let has_full = layers.iter().any(|layer| layer.reach == Some(Reach::Full));
        let share = |reach: Reach| if has_full && is_window(reach) { window_share } else { 1.0 };
        Self {
            block_bytes: block_bytes(self.block_tokens, layers, share),
            state_bytes: Bytes::from_bytes(state),
            groups: vec![Groups::full(1, self.block_tokens)],
            state_share: rules.state_share.as_ref().filter(|_| state > 0.0).map_or(0.0, |share| share.value),
            ..self
        }
    }

    /// Groups of layers of one kind, all of the same size, that share one pool.
    fn grouped(self, deployment: &Deployment, layers: &[CacheLayers]) -> Self {
        // Layers that keep the same tokens are one group, whatever the size of their entries.
        if let [first, others @ ..] = layers
            && others.iter().all(|layer| layer.reach == first.reach)
        {
            let groups = vec![Groups::new(deployment, first.reach.unwrap_or_default(), 1, self.block_tokens)];
            return Self { block_bytes: block_bytes(self.block_tokens, layers, |_| 1.0), groups, ..self };
        }
        let page = page_bytes(self.block_tokens, layers);
        let ratio = deployment.engine().memory.group_ratio.as_ref().map_or(GROUP_RATIO, |ratio| ratio.value);
        let layers_per_group = group_size(layers, ratio);
        let count = |layer: &CacheLayers| layer.layers.div_ceil(layers_per_group);
        let tokens = |layer: &CacheLayers| (page / layer.bytes_per_token.max(1.0)).floor().max(1.0) as u64;
        let groups = |layer: &CacheLayers| Some(Groups::new(deployment, layer.reach?, count(layer), tokens(layer)));
        let groups: Vec<Groups> = layers.iter().filter_map(groups).collect();
        Self {
            block_tokens: groups.iter().map(|group| group.block_tokens).min().unwrap_or(1),
            block_bytes: Bytes::from_bytes(page * layers_per_group as f64),
            groups,
            state_groups: layers.iter().filter(|layer| layer.reach.is_none()).map(count).sum(),
            ..self
        }
    }

    /// Blocks of the keys and values of a sequence.
    fn cache_blocks(&self, context: u64) -> u64 {
        self.groups.iter().fold(0, |sum, group| sum.saturating_add(group.blocks(context)))
    }

    /// Blocks of the states of a sequence.
    const fn state_blocks(&self) -> u64 {
        self.state_groups.saturating_mul(self.states_per_sequence)
    }

    /// Tokens that a sequence of this context takes blocks for.
    fn tokens(&self, context: u64) -> u64 {
        context.saturating_add(self.tokens_ahead).min(self.context_limit.max(context))
    }

    /// What so many sequences of this context take of the pool.
    pub(super) fn need(&self, sequences: u64, context: u64) -> Need {
        let blocks = |count: u64| self.block_bytes * (count as f64 * sequences as f64);
        let cache = blocks(self.cache_blocks(self.tokens(context)));
        let state = self.state_bytes * sequences as f64;
        // Two pools of fixed shares: each is as large as the other asks for.
        let (state, cache) = match self.state_share > 0.0 {
            true => (state.max(cache * self.states_per_cache()), cache.max(state / self.states_per_cache())),
            false => (state, cache),
        };
        Need { cache, state: state + blocks(self.state_blocks()) + self.reserved_states }
    }

    /// Whole blocks in so much memory.
    pub(super) fn blocks_in(&self, memory: Bytes) -> u64 {
        let room = (memory - self.reserved_states) * (1.0 - self.state_share);
        if room > Bytes::ZERO && self.block_bytes > Bytes::ZERO { (room / self.block_bytes).floor() as u64 } else { 0 }
    }

    /// The pool of so much memory, if this share of keys and values is in it.
    pub(super) fn cache_pool_in(&self, memory: Bytes, cache_share: f64) -> CachePool {
        let memory = memory - self.reserved_states;
        let groups = self.groups.iter().filter(|_| cache_share > 0.0);
        let groups = groups.map(|group| CacheGroup::new(group.count, group.block_tokens, group.most, group.beyond));
        // Where keys and values are streamed, states are not, and count for more of the smaller blocks.
        let share = if cache_share > 0.0 { cache_share } else { 1.0 };
        let block = self.block_bytes * share;
        let own_pool = self.state_share > 0.0 && self.state_bytes > Bytes::ZERO;
        let state_bytes = if own_pool { Bytes::ZERO } else { self.state_bytes };
        let states = self.block_bytes * self.state_blocks() as f64 + state_bytes;
        CachePool {
            blocks: pieces(memory * (1.0 - self.state_share), block),
            per_sequence: if states > Bytes::ZERO { (states / block).ceil() as u64 } else { 0 },
            groups: groups.collect(),
            tokens_ahead: self.tokens_ahead,
            max_sequences: own_pool.then(|| pieces(memory * self.state_share, self.state_bytes)),
        }
    }

    /// How many sequences of this context fit into so many blocks.
    pub(super) fn concurrency(&self, blocks: u64, context: u64) -> f64 {
        let by_tokens = blocks as f64 / self.cache_blocks(context).saturating_add(self.state_blocks()).max(1) as f64;
        let states = self.block_bytes * (blocks as f64 * self.states_per_cache());
        if self.state_share > 0.0 && self.state_bytes > Bytes::ZERO {
            by_tokens.min(states / self.state_bytes)
        } else {
            by_tokens
        }
    }

    /// Size of the pool of states over that of keys and values.
    fn states_per_cache(&self) -> f64 {
        self.state_share / (1.0 - self.state_share)
    }

    /// What the engine prints as the size of a pool of so many blocks, in tokens.
    pub(super) fn printed_tokens(&self, blocks: u64, longest_context: u64) -> u64 {
        let groups = self.groups.iter().map(|group| group.count).sum::<u64>() + self.state_groups;
        match self.printed {
            PrintedTokens::Blocks => blocks / groups.max(1) * self.block_tokens,
            PrintedTokens::Concurrency => (self.concurrency(blocks, longest_context) * longest_context as f64) as u64,
        }
    }
}

impl Groups {
    const fn full(count: u64, block_tokens: u64) -> Self {
        Self { count, block_tokens, most: u64::MAX, beyond: 0 }
    }

    fn new(deployment: &Deployment, reach: Reach, count: u64, block_tokens: u64) -> Self {
        let step = step_beside_window(deployment);
        let (most, beyond) = match reach {
            Reach::Window(window) => (window.saturating_add(step.saturating_sub(1)), 1),
            // Chunks begin with a block.
            Reach::Chunk(chunk) => (chunk.saturating_add(step), 0),
            _ => (u64::MAX, 0),
        };
        Self { count, block_tokens, most, beyond }
    }

    const fn blocks(&self, context: u64) -> u64 {
        let kept = if context < self.most { context } else { self.most };
        self.count.saturating_mul(kept.div_ceil(self.block_tokens).saturating_add(self.beyond))
    }
}

/// Tokens of a block: the engine's, or a multiple of what the kernels of latent attention ask for.
fn block_tokens(deployment: &Deployment) -> u64 {
    let rules = &deployment.engine().memory;
    let tokens = rules.block_tokens.as_ref().map_or(1, |tokens| tokens.value.max(1));
    let of_kernel =
        rules.latent_block_tokens.as_ref().filter(|_| deployment.model().architecture().is_some_and(is_latent));
    let of_kernel = of_kernel.map_or(1, |tokens| tokens.on(deployment.system().device()).max(1));
    if tokens.is_multiple_of(of_kernel) { tokens } else { of_kernel }
}

fn is_latent(architecture: &Architecture) -> bool {
    architecture.layer_kinds.iter().any(|kind| matches!(kind.layer.mixer, Mixer::LatentAttention(_)))
}

/// Bytes of a block that holds its tokens in all layers, those with a window in a share of them.
fn block_bytes(tokens: u64, layers: &[CacheLayers], share: impl Fn(Reach) -> f64) -> Bytes {
    let of_layer = |layer: &CacheLayers| layer.layers as f64 * layer.bytes_per_token * layer.reach.map_or(0.0, &share);
    Bytes::from_bytes(tokens as f64 * layers.iter().map(of_layer).sum::<f64>())
}

/// States of a sequence in all layers.
fn states(layers: &[CacheLayers]) -> f64 {
    layers.iter().map(|layer| layer.layers as f64 * layer.state_bytes).sum()
}

const fn is_window(reach: Reach) -> bool {
    matches!(reach, Reach::Window(_) | Reach::Chunk(_))
}

/// Bytes of a block in one layer: all kinds of layers share one pool, so that blocks of the largest entries, enlarged to hold a state,
/// set the size.
fn page_bytes(block_tokens: u64, layers: &[CacheLayers]) -> f64 {
    let entries = layers.iter().map(|layer| layer.bytes_per_token).fold(0.0, f64::max);
    let state = layers.iter().map(|layer| layer.state_bytes).fold(0.0, f64::max);
    let block = entries * block_tokens as f64;
    if block > 0.0 { block * (state / block).ceil().max(1.0) } else { state }
}

/// Layers of a group: as many as the rarest kind has, or as the most frequent one if they are nearly as many.
fn group_size(layers: &[CacheLayers], ratio: f64) -> u64 {
    let counts = || layers.iter().map(|layer| layer.layers);
    let (fewest, most) = (counts().min().unwrap_or(1).max(1), counts().max().unwrap_or(1).max(1));
    if (most as f64) < fewest as f64 * ratio { most } else { fewest }
}

/// vLLM up to 0.18.
const GROUP_RATIO: f64 = 1.25;
