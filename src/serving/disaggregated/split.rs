//! How many replicas of each kind.

use super::{Disaggregated, KvTransfer, Pool, PromptOrder};
use crate::serving::ServingError;
use crate::serving::error::above_zero;
use crate::step::StepModel;
use crate::units::{RequestsPerSecond, Seconds};
use crate::workload::{Lengths, Slo};

/// Prefill replicas for each decode replica, so that both are busy.
///
/// # Formula
/// `t_p B / (tau m)`: a decode replica ends `B / (tau m)` answers per second, and each took a prefill of `t_p` (J. Austin et al., How to Scale Your Model, 2025, chapter 8).
///
/// ```
/// use llm_roofline::serving::balanced_ratio;
/// use llm_roofline::units::Seconds;
/// // Llama 3 70B on 16 TPU v5e: prefill 0.91 s, decode at batch 32 in steps of 19 ms, answers of 512 tokens.
/// let ratio = balanced_ratio(Seconds::from_seconds(0.91), Seconds::from_millis(19.0), 32.0, 512.0)?;
/// assert_eq!(format!("{ratio:.1}"), "3.0");
/// # Ok::<(), llm_roofline::serving::ServingError>(())
/// ```
///
/// # Errors
/// [`ServingError::Number`] for any of the four that is not finite and above 0.
pub fn balanced_ratio(prefill: Seconds, step: Seconds, batch: f64, output_tokens: f64) -> Result<f64, ServingError> {
    let prefill = above_zero("the time of a prefill in seconds", prefill.as_seconds())?;
    let step = above_zero("the time of a step in seconds", step.as_seconds())?;
    let batch = above_zero("the batch of a decode replica", batch)?;
    let output_tokens = above_zero("the number of output tokens", output_tokens)?;
    Ok(prefill / step * batch / output_tokens)
}

/// A choice of replicas.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Split {
    /// Prefill replicas.
    pub prefill: u32,
    /// Decode replicas.
    pub decode: u32,
    /// Devices of both.
    pub devices: u32,
    /// Requests per second that it answers within the limits.
    pub rate: RequestsPerSecond,
}

impl Disaggregated<'_> {
    /// The split of so many devices that answers most requests per second: within the limits for a `share` of them, or at most if there are no limits.
    ///
    /// Every number of prefill replicas is tried, with as many decode replicas as the rest of the devices makes.
    ///
    /// # Errors
    /// [`ServingError::Number`] if the devices do not make one replica of each kind; as [`new`](Self::new).
    pub fn best_split(
        prefill: &StepModel,
        decode: &StepModel,
        transfer: KvTransfer,
        lengths: &Lengths,
        devices: u32,
        (slo, share): (&Slo, f64),
    ) -> Result<Split, ServingError> {
        let pool = |model| Pool { model, replicas: 1 };
        let mut pools =
            Disaggregated::new(pool(prefill), pool(decode), transfer, lengths)?.with_prompts(PromptOrder::OneByOne);
        let (each_prefill, each_decode) = pools.devices;
        let mut best: Option<Split> = None;
        for prefills in 1..=devices / each_prefill.max(1) {
            let decodes = (devices - prefills * each_prefill) / each_decode.max(1);
            if decodes == 0 {
                break;
            }
            pools = pools.with_replicas(prefills, decodes)?;
            let most = pools.max_rate();
            if best.is_some_and(|best| most <= best.rate) {
                continue;
            }
            let rate = if slo.is_empty() { most } else { pools.max_rate_within(slo, share)? };
            if best.is_none_or(|best| rate > best.rate) {
                best = Some(Split { prefill: prefills, decode: decodes, devices: pools.devices(), rate });
            }
        }
        let too_few = ServingError::Number {
            what: "number of devices",
            value: f64::from(devices),
            expected: "enough for a replica of each kind",
        };
        best.ok_or(too_few)
    }
}
