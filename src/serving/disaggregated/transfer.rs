//! The way of a prompt's cache from the replica that computed it to the one that goes on.

use crate::hardware::Link;
use crate::memory::MemoryModel;
use crate::request::Request;
use crate::serving::ServingError;
use crate::serving::error::not_negative;
use crate::step::StepModel;
use crate::units::{Bytes, BytesPerSecond, Seconds};

/// How caches get from prefill to decode.
///
/// ```
/// use llm_roofline::serving::KvTransfer;
/// use llm_roofline::units::{Bytes, BytesPerSecond, Seconds};
/// let network = KvTransfer::new(BytesPerSecond::from_gb_per_second(50.0))?;
/// let cache = Bytes::from_gb(2.0);
/// assert_eq!(network.time(cache).to_string(), "40.0 ms");
/// // Layer by layer behind the computation of the next one, only the last of 80 layers is seen.
/// let prefill = Seconds::from_millis(400.0);
/// assert_eq!(network.exposed(cache, prefill, 80).to_string(), "40.0 ms");
/// assert_eq!(network.layer_by_layer().exposed(cache, prefill, 80).to_string(), "500 us");
/// # Ok::<(), llm_roofline::serving::ServingError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KvTransfer {
    bandwidth: BytesPerSecond,
    latency: Seconds,
    layer_by_layer: bool,
}

impl KvTransfer {
    /// Over so much bandwidth out of one prefill replica, all its devices together; sent when the prefill has ended.
    ///
    /// # Errors
    /// [`ServingError::Number`] for a bandwidth that is not above 0. An infinite one is no transfer.
    pub fn new(bandwidth: BytesPerSecond) -> Result<Self, ServingError> {
        let value = bandwidth.as_bytes_per_second();
        if value > 0.0 {
            return Ok(Self { bandwidth, latency: Seconds::ZERO, layer_by_layer: false });
        }
        Err(ServingError::Number { what: "bandwidth in bytes per second", value, expected: "above 0" })
    }

    /// Over the links of so many devices that send at once.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn over(link: &Link, devices: u32) -> Result<Self, ServingError> {
        Self::new(link.bandwidth * f64::from(devices))
    }

    /// With a time that each transfer takes in addition.
    ///
    /// # Errors
    /// [`ServingError::Number`] for one that is negative or not finite.
    pub fn with_latency(self, latency: Seconds) -> Result<Self, ServingError> {
        not_negative("the latency of a transfer in seconds", latency.as_seconds())?;
        Ok(Self { latency, ..self })
    }

    /// Sent layer by layer, while the next layer is computed.
    #[must_use]
    pub const fn layer_by_layer(self) -> Self {
        Self { layer_by_layer: true, ..self }
    }

    /// Bandwidth out of one prefill replica.
    pub const fn bandwidth(&self) -> BytesPerSecond {
        self.bandwidth
    }

    /// Time that the link needs for a cache.
    pub fn time(&self, cache: Bytes) -> Seconds {
        cache / self.bandwidth + self.latency
    }

    /// The part of it that comes after the prefill.
    ///
    /// # Formula
    /// All of it; layer by layer `max(T/L, T - t (1 - 1/L))` for a transfer of `T`, a prefill of `t` and `L` layers: the first layer must be computed before
    /// anything is sent, and the last one is sent after everything is computed (P. Patel et al., Splitwise, ISCA 2024).
    pub fn exposed(&self, cache: Bytes, prefill: Seconds, layers: usize) -> Seconds {
        let transfer = self.time(cache);
        if !self.layer_by_layer {
            return transfer;
        }
        let layers = layers.max(1) as f64;
        (transfer / layers).max(transfer - prefill * (1.0 - 1.0 / layers))
    }
}

/// Bytes of the caches of a deployment's sequences, whatever their layout over devices: windows, latents and recurrent states included.
#[derive(Clone, Debug)]
pub(in crate::serving) struct CacheBytes {
    memory: MemoryModel,
}

impl CacheBytes {
    pub(in crate::serving) fn new(model: &StepModel) -> Self {
        // On one device nothing is divided, and nothing held twice.
        let whole = model.deployment().clone().with_tensor_parallel(1).with_pipeline_parallel(1);
        let whole = whole.with_expert_parallel(1).with_data_parallel_attention(1);
        Self { memory: MemoryModel::new(&whole) }
    }

    pub(in crate::serving) fn of(&self, tokens: u64) -> Bytes {
        self.memory.kv_per_sequence(tokens) + self.memory.state_per_sequence()
    }
}

/// Layers that are sent one after another.
pub(in crate::serving) fn layers(model: &StepModel) -> usize {
    model.deployment().model().architecture().map_or(1, |architecture| architecture.layers())
}

/// Whether a prefix whose cache lies elsewhere is better fetched or computed again.
///
/// # Formula
/// Fetch if `bytes(s) / bandwidth` is below `prefill(n) - prefill(n after s cached)` (R. Qin et al., Mooncake, FAST 2025, arXiv:2407.00079: reuse
/// pays if the transfer is faster than recomputing).
///
/// ```
/// use llm_roofline::prelude::*;
/// use llm_roofline::serving::Reuse;
/// let catalog = Catalog::embedded();
/// let system = System::new(catalog.device("h100-sxm-80gb")?, 1)?;
/// let model = StepModel::compile(&Deployment::new(catalog.model("llama-3.1-8b")?, system))?;
/// let network = BytesPerSecond::from_gb_per_second(50.0);
/// assert!(Reuse::new(&model, 8192, 7000, network)?.pays());
/// assert!(!Reuse::new(&model, 8192, 7000, network * 0.01)?.pays());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Reuse {
    /// Time to fetch the cache of the prefix.
    pub fetch: Seconds,
    /// Time of the prefill that it saves.
    pub recompute: Seconds,
}

impl Reuse {
    /// For a prompt whose first `cached` tokens lie somewhere at the other end of a link.
    ///
    /// # Errors
    /// [`ServingError::Number`] unless the bandwidth is above 0 and at most all but one of the prompt's tokens are cached.
    pub fn new(model: &StepModel, prompt: u64, cached: u64, bandwidth: BytesPerSecond) -> Result<Self, ServingError> {
        if cached >= prompt {
            let expected = "fewer than the prompt has";
            return Err(ServingError::Number { what: "number of cached tokens", value: cached as f64, expected });
        }
        let fetch = KvTransfer::new(bandwidth)?.time(CacheBytes::new(model).of(cached));
        let request = Request::new(prompt, 1);
        let after = model.prefill(&request.with_cached_prompt_tokens(cached)).total();
        Ok(Self { fetch, recompute: (model.prefill(&request).total() - after).max(Seconds::ZERO) })
    }

    /// Whether fetching is faster.
    pub fn pays(&self) -> bool {
        self.fetch < self.recompute
    }
}
