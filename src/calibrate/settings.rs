//! Settings of engine and device that a row states in its tags.

use super::measurement::{Measurement, Tag};
use super::predict::Refusal;
use crate::deployment::Deployment;
use crate::hardware::Device;
use crate::memory::MemoryPlan;
use crate::profile::Sourced;
use crate::units::Bytes;
use std::sync::Arc;

/// Something that a tag sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Setting {
    /// Share of memory for the engine.
    Fraction,
    /// Tokens of a step.
    StepTokens,
    /// Sequences at once.
    Sequences,
    /// Tokens of a block of the cache.
    BlockTokens,
    /// The longest context that is served.
    Context,
    /// Memory of a device that is sold with several sizes.
    DeviceMemory,
    /// Memory that the engine found for its cache on each device, in GiB.
    CacheMemory,
    /// Memory of a device that programs see, in GiB.
    Visible,
    /// Weights of one device as loaded, in GiB.
    Weights,
    /// Activations at the peak, in GiB.
    Activations,
    /// What is taken beside the engine's allocator, in GiB.
    Overhead,
    /// Threads of the cores of a processor that were at work: `2/16`.
    Threads,
}

use Setting::{
    Activations, BlockTokens, CacheMemory, Context, DeviceMemory, Fraction, Overhead, Sequences, StepTokens, Threads,
    Visible, Weights,
};

/// Names of tags, as the options of engines are called; `_` is taken for `-`.
const NAMES: [(&str, Setting); 32] = [
    ("gpu-memory-utilization", Fraction),
    ("gpu-memory-util", Fraction),
    ("util", Fraction),
    ("mem-fraction-static", Fraction),
    ("free-gpu-memory-fraction", Fraction),
    ("cache-max-entry-count", Fraction),
    ("ub", StepTokens),
    ("max-num-batched-tokens", StepTokens),
    ("max-batched-tokens", StepTokens),
    ("chunked-prefill-size", StepTokens),
    ("max-num-tokens", StepTokens),
    ("max-num-seqs", Sequences),
    ("max-running-requests", Sequences),
    ("max-batch-size", Sequences),
    ("block-size", BlockTokens),
    ("page-size", BlockTokens),
    ("tokens-per-block", BlockTokens),
    ("max-model-len", Context),
    ("context-length", Context),
    ("max-seq-len", Context),
    ("ctx-size", Context),
    ("n-ctx", Context),
    ("num-ctx", Context),
    ("device-memory-gb", DeviceMemory),
    ("kv-cache-gib", CacheMemory),
    ("available-kv-cache-gib", CacheMemory),
    ("kv-gib", CacheMemory),
    ("visible-gib", Visible),
    ("weights-gib", Weights),
    ("activation-gib", Activations),
    ("non-torch-gib", Overhead),
    ("threads", Threads),
];

fn setting(tag: &Tag) -> Option<Setting> {
    let name = normal(&tag.name);
    NAMES.iter().find(|(known, _)| *known == name).map(|(_, setting)| *setting)
}

fn normal(name: &str) -> String {
    name.to_lowercase().replace('_', "-")
}

/// The settings that a row states, as text: what its deployment depends on.
pub(super) fn stated(row: &Measurement) -> Vec<(String, String)> {
    let settings = row.tags.iter().filter(|tag| setting(tag).is_some());
    let settings = settings.map(|tag| (normal(&tag.name), tag.value.clone().unwrap_or_default()));
    settings.chain(threads(row).map(|threads| ("threads".into(), threads.into()))).collect()
}

/// The last tag that sets this.
fn tag(row: &Measurement, wanted: Setting) -> Option<&Tag> {
    row.tags.iter().rfind(|tag| setting(tag) == Some(wanted))
}

/// The number of a setting.
///
/// # Errors
/// [`Refusal::Tag`] if it is none, or `valid` says no.
fn number(
    row: &Measurement,
    wanted: Setting,
    expected: &'static str,
    valid: impl Fn(f64) -> bool,
) -> Result<Option<f64>, Refusal> {
    let Some(tag) = tag(row, wanted) else { return Ok(None) };
    let value = tag.value.as_deref().unwrap_or_default();
    let number = value.parse().ok().filter(|number: &f64| number.is_finite() && valid(*number));
    let refused = || Refusal::Tag { tag: tag.name.clone(), value: value.chars().take(100).collect(), expected };
    number.map(Some).ok_or_else(refused)
}

/// A setting that is a number of tokens or sequences.
///
/// # Errors
/// [`Refusal::Tag`] if it is not a whole number from 1.
pub(super) fn whole(row: &Measurement, wanted: Setting) -> Result<Option<u64>, Refusal> {
    let is_count = |number: f64| (1.0..=LARGEST).contains(&number) && number.fract() == 0.0;
    Ok(number(row, wanted, "a whole number from 1 to 2^40", is_count)?.map(|number| number as u64))
}

/// Contexts and batches beyond this are never asked for.
const LARGEST: f64 = (1_u64 << 40) as f64;

/// The deployment with the settings of the engine that a row states.
///
/// # Errors
/// [`Refusal::Tag`] for malformed values.
pub(super) fn applied(mut deployment: Deployment, row: &Measurement) -> Result<Deployment, Refusal> {
    if let Some(tokens) = whole(row, StepTokens)? {
        deployment = deployment.with_max_tokens_per_step(tokens);
    }
    if let Some(sequences) = whole(row, Sequences)? {
        deployment = deployment.with_max_sequences(sequences);
    }
    if let Some(tokens) = whole(row, BlockTokens)? {
        deployment = deployment.with_block_tokens(tokens);
    }
    let is_share = |share: f64| share > 0.0 && share <= 1.0;
    if let Some(fraction) = number(row, Fraction, "a number above 0, at most 1", is_share)? {
        deployment = deployment.with_memory_fraction(fraction);
    }
    whole(row, Context)?;
    Ok(deployment)
}

/// The memory of the cache that a row states, or `predicted` corrected by the parts that it states instead of those of the plan; `None` if it
/// states neither.
///
/// # Errors
/// [`Refusal::Tag`] for a malformed amount.
pub(super) fn cache_memory(row: &Measurement, predicted: Bytes, plan: &MemoryPlan) -> Result<Option<Bytes>, Refusal> {
    if let Some(memory) = gibibytes(row, CacheMemory)? {
        return Ok(Some(memory));
    }
    let mut memory = None;
    for (setting, part) in [(Weights, plan.weights), (Activations, plan.activations), (Overhead, plan.overhead)] {
        if let Some(stated) = gibibytes(row, setting)? {
            memory = Some(memory.unwrap_or(predicted) + part - stated);
        }
    }
    Ok(memory.map(|memory| memory.max(Bytes::ZERO)))
}

fn gibibytes(row: &Measurement, wanted: Setting) -> Result<Option<Bytes>, Refusal> {
    let is_amount = |amount: f64| amount > 0.0 && amount <= 1e6;
    Ok(number(row, wanted, "gibibytes, above 0 and at most 1e6", is_amount)?.map(Bytes::from_gib))
}

/// The device with the memory and the cores that a row states.
///
/// # Errors
/// [`Refusal::Tag`] for a malformed amount.
pub(super) fn device(device: &Arc<Device>, row: &Measurement) -> Result<Arc<Device>, Refusal> {
    let is_amount = |amount: f64| amount > 0.0 && amount <= 1e6;
    let stated = number(row, DeviceMemory, "gigabytes, above 0 and at most 1e6", is_amount)?;
    let device = match stated {
        Some(gigabytes) => Arc::new(device.as_ref().clone().with_memory_capacity(Bytes::from_gb(gigabytes))?),
        None => device.clone(),
    };
    let device = match gibibytes(row, Visible)? {
        Some(visible) => with_visible(&device, visible)?,
        None => device,
    };
    match threads(row) {
        Some(threads) => with_threads(&device, threads),
        None => Ok(device),
    }
}

fn with_visible(device: &Device, visible: Bytes) -> Result<Arc<Device>, Refusal> {
    let mut profile = device.clone().into_profile();
    let source = String::from("row");
    profile.sources.insert(source.clone(), "the measured row states it".into());
    profile.memory.usable = Some(Sourced { source, ..Sourced::assumed(visible) });
    Ok(Arc::new(Device::new(profile)?))
}

/// Rates of whole tables that were measured with some of the cores, which their columns do not hold: source (a part of its name), date,
/// device, metric (its beginning), threads. ikawrakow/ik_llama.cpp discussion 164: all decode rates with two of sixteen cores.
const SOME_CORES: [(&str, &str, &str, &str, &str); 1] =
    [("ik-llama-cpp", "2024-12-24", "ryzen-9-7950x", "decode", "2/16")];

/// The threads of cores that were at work, where it was not all.
fn threads(row: &Measurement) -> Option<&str> {
    let stated = tag(row, Threads).map(|tag| tag.value.as_deref().unwrap_or_default());
    let known = SOME_CORES.iter().find(|(source, date, device, metric, _)| {
        let same_run = row.source.contains(source) && row.date.as_deref() == Some(*date) && row.device == *device;
        same_run && row.metric.starts_with(metric)
    });
    stated.or(known.map(|(.., threads)| *threads))
}

/// The processor with as many cores at work: the memory is shared, arithmetic is not.
fn with_threads(device: &Device, text: &str) -> Result<Arc<Device>, Refusal> {
    let expected = "threads of cores such as 2/16";
    let refused = || Refusal::Tag { tag: "threads".into(), value: text.chars().take(100).collect(), expected };
    let (threads, cores) = text.split_once('/').ok_or_else(refused)?;
    let (threads, cores): (u32, u32) = threads.parse().ok().zip(cores.parse().ok()).ok_or_else(refused)?;
    if threads == 0 || threads > cores {
        return Err(refused());
    }
    let mut profile = device.clone().into_profile();
    let compute = &mut profile.compute;
    for peak in [&mut compute.fp32, &mut compute.fp16, &mut compute.bf16, &mut compute.int8].into_iter().flatten() {
        peak.value = peak.value * (f64::from(threads) / f64::from(cores));
    }
    Ok(Arc::new(Device::new(profile)?))
}
