//! Weights as engines load them.

use crate::deployment::{Deployment, Place, ShardedModel};
use crate::engine::MemoryRules;
use crate::format::WeightFormat;
use crate::model::{Architecture, Mixer};
use crate::units::Bytes;

/// What a device of a place loads, with the tables of rotary angles.
pub(super) fn of_place(
    deployment: &Deployment,
    architecture: &Architecture,
    sharded: &ShardedModel<'_>,
    place: &Place,
) -> Bytes {
    let sizes = rotary_sizes(architecture, &place.stage.kind_counts);
    loaded(deployment, sharded, place) + rotary_tables(architecture, &sizes, place)
}

/// The matrices and vectors of them: without embeddings that stay on the host, with padded experts.
pub(super) fn loaded(deployment: &Deployment, sharded: &ShardedModel<'_>, place: &Place) -> Bytes {
    let first = || sharded.places().iter().find(|place| place.stage.is_first);
    let moved = match (embeddings_on_host(deployment), place.is_host) {
        (true, true) if !place.stage.is_first => first().map_or(Bytes::ZERO, |first| sharded.look_up_bytes(first)),
        (true, false) if is_separate(place) => Bytes::ZERO - sharded.look_up_bytes(place),
        _ => Bytes::ZERO,
    };
    sharded.place_bytes(place) + moved + padding(deployment, sharded, place, &place.engine.memory)
}

/// Whether a place is without the embeddings, which stay in the memory of the host.
pub(super) fn is_without_embeddings(deployment: &Deployment, place: &Place) -> bool {
    embeddings_on_host(deployment) && !place.is_host && is_separate(place)
}

fn embeddings_on_host(deployment: &Deployment) -> bool {
    deployment.engine().memory.embeddings_on_host.as_ref().is_some_and(|rule| rule.value)
}

/// What the GPU gets of shared memory may be limited: the host's part is not counted then.
fn is_separate(place: &Place) -> bool {
    !place.device.has_unified_memory() || place.device.usable_memory() < place.device.capacity()
}

/// What padding of 4-bit experts to the kernel's tiles adds.
fn padding(deployment: &Deployment, sharded: &ShardedModel<'_>, place: &Place, rules: &MemoryRules) -> Bytes {
    if *deployment.weights() != WeightFormat::Mxfp4 || place.is_host {
        return Bytes::ZERO;
    }
    let hidden = rules.expert_hidden_multiple.as_ref().map_or(1, |rule| rule.value.max(1));
    let intermediate = rules.expert_intermediate_multiple.as_ref().map_or(1, |rule| rule.on(&place.device).max(1));
    sharded.expert_padding(place, deployment.expert_slices(), hidden, intermediate)
}

/// The distinct head sizes with rotary positions of so many layers of each kind.
pub(super) fn rotary_sizes(architecture: &Architecture, kind_counts: &[u64]) -> Vec<u64> {
    let mut sizes: Vec<u64> = Vec::new();
    for (kind, _) in architecture.layer_kinds.iter().zip(kind_counts).filter(|(_, count)| **count > 0) {
        let size = match &kind.layer.mixer {
            Mixer::Attention(attention) => attention.head_dim,
            Mixer::LatentAttention(latent) => latent.qk_rope_head_dim,
            _ => continue,
        };
        if !sizes.contains(&size) {
            sizes.push(size);
        }
    }
    sizes
}

/// A cosine and a sine for every position and rotary dimension, in 16 bits, for every head size.
pub(super) fn rotary_tables(architecture: &Architecture, sizes: &[u64], place: &Place) -> Bytes {
    if !place.engine.memory.rotary_table.as_ref().is_some_and(|rule| rule.value) || place.is_host {
        return Bytes::ZERO;
    }
    let elements = architecture.max_context_tokens as f64 * sizes.iter().sum::<u64>() as f64;
    Bytes::from_bytes(elements * 2.0)
}
