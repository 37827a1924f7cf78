//! The roofline: how long a piece of work takes on hardware with two limits, arithmetic and memory bandwidth.

use crate::units::{Bytes, BytesPerSecond, Flops, FlopsPerByte, FlopsPerSecond, Seconds};
use std::fmt;

/// What limits a piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Bound {
    /// Arithmetic throughput.
    Compute,
    /// Memory bandwidth.
    Memory,
    /// Links between devices.
    Interconnect,
    /// Time that no operator explains.
    Overhead,
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Compute => "compute",
            Self::Memory => "memory",
            Self::Interconnect => "interconnect",
            Self::Overhead => "overhead",
        })
    }
}

/// Operations to do and bytes to move.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Operations.
    pub flops: Flops,
    /// Bytes moved between memory and chip, in both directions together.
    pub bytes: Bytes,
}

impl Work {
    /// Operations per byte.
    pub fn intensity(&self) -> FlopsPerByte {
        self.flops / self.bytes
    }
}

impl std::ops::Add for Work {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self { flops: self.flops + other.flops, bytes: self.bytes + other.bytes }
    }
}

impl std::ops::Mul<f64> for Work {
    type Output = Self;
    fn mul(self, times: f64) -> Self {
        Self { flops: self.flops * times, bytes: self.bytes * times }
    }
}

/// Two limits and what follows from them.
///
/// # Formula
/// `time = max(flops / peak, bytes / bandwidth)`: arithmetic and data movement overlap, the slower one decides. The attainable
/// rate at intensity `I` is `min(peak, I * bandwidth)`; both meet at the ridge point `peak / bandwidth`.
///
/// # Examples
/// ```
/// use llm_roofline::{roofline::{Bound, Roofline, Work}, units::*};
///
/// let a100 = Roofline::new(FlopsPerSecond::from_tflops_per_second(312.0), BytesPerSecond::from_tb_per_second(1.5));
/// assert_eq!(a100.ridge().as_flops_per_byte(), 208.0);
/// let decode = Work { flops: Flops::from_gflops(14.0), bytes: Bytes::from_gb(14.0) };
/// assert_eq!(a100.bound(decode), Bound::Memory);
/// assert_eq!(a100.time(decode).to_string(), "9.33 ms");
/// ```
///
/// # References
/// Williams, Waterman, Patterson: Roofline, CACM 52(4), 2009. The A100 example: Chen, Transformer Inference Arithmetic, 2022.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Roofline {
    /// Arithmetic peak.
    pub peak: FlopsPerSecond,
    /// Memory bandwidth.
    pub bandwidth: BytesPerSecond,
}

impl Roofline {
    /// A roofline from its two limits.
    pub const fn new(peak: FlopsPerSecond, bandwidth: BytesPerSecond) -> Self {
        Self { peak, bandwidth }
    }

    /// Intensity above which arithmetic limits.
    pub fn ridge(&self) -> FlopsPerByte {
        self.peak / self.bandwidth
    }

    /// Arithmetic rate that work of this intensity can reach.
    pub fn attainable(&self, intensity: FlopsPerByte) -> FlopsPerSecond {
        self.peak.min(intensity * self.bandwidth)
    }

    /// Time of the arithmetic alone.
    pub fn compute_time(&self, work: Work) -> Seconds {
        work.flops / self.peak
    }

    /// Time of the data movement alone.
    pub fn memory_time(&self, work: Work) -> Seconds {
        work.bytes / self.bandwidth
    }

    /// Time with both overlapped.
    pub fn time(&self, work: Work) -> Seconds {
        self.compute_time(work).max(self.memory_time(work))
    }

    /// Which limit decides; memory at the ridge point itself.
    pub fn bound(&self, work: Work) -> Bound {
        if self.compute_time(work) > self.memory_time(work) { Bound::Compute } else { Bound::Memory }
    }

    /// Tokens per step from which a weight matrix is compute-bound: `ridge * bytes per weight / 2`, activations neglected.
    ///
    /// ```
    /// use llm_roofline::{roofline::Roofline, units::*};
    /// let v5e = Roofline::new(FlopsPerSecond::from_tflops_per_second(197.0), BytesPerSecond::from_gb_per_second(820.0));
    /// assert_eq!(v5e.critical_tokens(16.0).round(), 240.0); // How To Scale Your Model, chapter 7
    /// ```
    pub fn critical_tokens(&self, bits_per_weight: f64) -> f64 {
        self.ridge().as_flops_per_byte() * bits_per_weight / 16.0
    }

    /// The roofline that is reached in practice: both limits times the share of them that software achieves.
    ///
    /// ```
    /// use llm_roofline::{roofline::Roofline, units::*};
    /// let a100 = Roofline::new(FlopsPerSecond::from_tflops_per_second(312.0), BytesPerSecond::from_tb_per_second(1.5));
    /// assert_eq!(a100.with_efficiency(1.0, 0.9).ridge().to_string(), "231.1 FLOP/B"); // Chen, 2022
    /// ```
    #[must_use]
    pub fn with_efficiency(&self, compute: f64, memory: f64) -> Self {
        Self { peak: self.peak * compute, bandwidth: self.bandwidth * memory }
    }

    /// Tokens per step from which a matrix product is compute-bound, its activations counted; `None` if it never is.
    ///
    /// # Formula
    /// `(weights / bandwidth) / (flops_per_token / peak - activations_per_token / bandwidth)`: where the arithmetic of all tokens
    /// takes as long as reading the weights once and moving the activations of each token.
    ///
    /// ```
    /// use llm_roofline::{operator::{gemm, GemmFormats}, roofline::Roofline, units::*};
    /// // 8-bit weights of 4096 x 16384 on a TPU v5e (How To Scale Your Model, chapter 1).
    /// let v5e = Roofline::new(FlopsPerSecond::from_tflops_per_second(394.0), BytesPerSecond::from_gb_per_second(810.0));
    /// let eight_bit = GemmFormats { weight_bits: 8.0, input_bits: 8.0, output_bits: 8.0 };
    /// let weights = gemm(0.0, 4096, 16384, eight_bit).bytes;
    /// let mut per_token = gemm(1.0, 4096, 16384, eight_bit);
    /// per_token.bytes -= weights;
    /// assert_eq!(v5e.critical_tokens_with_activations(weights, per_token).unwrap().round(), 263.0);
    /// ```
    pub fn critical_tokens_with_activations(&self, weights: Bytes, per_token: Work) -> Option<f64> {
        let excess = self.compute_time(per_token) - self.memory_time(per_token);
        (excess > Seconds::ZERO).then(|| weights / self.bandwidth / excess)
    }
}

/// The time of two activities that overlap in part: `serialised` is the share of the shorter one that the longer one does not hide.
///
/// # Formula
/// The larger root of `(t - a)(t - b) = serialised * a * b`, that is `(a + b + sqrt((a - b)^2 + 4 serialised a b)) / 2`: `max(a, b)` for 0, `a + b` for
/// 1, in between a smooth maximum that grows with both. Two equal times give `a (1 + sqrt(serialised))`; the p-norm of
/// `1/p = log2(1 + sqrt(serialised))` agrees there, but costs two powers instead of a square root.
///
/// ```
/// use llm_roofline::roofline::smooth_max;
/// assert_eq!(smooth_max(3.0, 4.0, 0.0), 4.0);
/// assert_eq!(smooth_max(3.0, 4.0, 1.0), 7.0);
/// assert_eq!(smooth_max(4.0, 4.0, 0.25), 6.0);
/// ```
#[inline]
pub fn smooth_max(a: f64, b: f64, serialised: f64) -> f64 {
    if serialised == 0.0 {
        return a.max(b);
    }
    let gap = a - b;
    0.5 * (a + b + (gap * gap + 4.0 * serialised * (a * b)).sqrt())
}

/// The derivatives of [`smooth_max`] with respect to its two times.
///
/// # Formula
/// Of the root `t` of `(t - a)(t - b) = s a b`: `dt/da = (t - b + s b)/(2t - a - b)`, and the same with `a` and `b` exchanged. As `t` is homogeneous of degree 1,
/// `a dt/da + b dt/db = t` (Euler). For `s = 0` the larger time has all of it; at equal times, where the maximum has a kink, the second one.
///
/// ```
/// use llm_roofline::roofline::smooth_max_slopes;
/// assert_eq!(smooth_max_slopes(3.0, 4.0, 0.0), (0.0, 1.0)); // a maximum
/// assert_eq!(smooth_max_slopes(3.0, 4.0, 1.0), (1.0, 1.0)); // a sum
/// assert_eq!(smooth_max_slopes(4.0, 4.0, 0.25), (0.75, 0.75)); // 4 (1 + sqrt(1/4)) = 6
/// ```
pub fn smooth_max_slopes(a: f64, b: f64, serialised: f64) -> (f64, f64) {
    if serialised == 0.0 {
        return if a > b { (1.0, 0.0) } else { (0.0, 1.0) };
    }
    let t = smooth_max(a, b, serialised);
    let root = 2.0 * t - a - b;
    // Without any work there is nothing to be derived.
    if root <= 0.0 {
        return (0.0, 0.0);
    }
    ((t - b + serialised * b) / root, (t - a + serialised * a) / root)
}

/// Model FLOP/s utilisation: the share of the arithmetic peak that useful operations reached in a measured time.
///
/// ```
/// use llm_roofline::{roofline::mfu, units::*};
/// // PaLM 540B, 2,048 prompt tokens in 0.29 s on 64 TPU v4 (Pope et al., arXiv 2211.05102): 43 %.
/// let flops = Flops::from_tflops(2.0 * 0.54 * 2048.0);
/// let peak = FlopsPerSecond::from_tflops_per_second(64.0 * 275.0);
/// assert_eq!(format!("{:.2}", mfu(flops, Seconds::from_seconds(0.29), peak)), "0.43");
/// ```
///
/// # References
/// Chowdhery et al., PaLM, arXiv 2204.02311, appendix B.
pub fn mfu(flops: Flops, time: Seconds, peak: FlopsPerSecond) -> f64 {
    flops / time / peak
}

/// Model bandwidth utilisation: the share of the memory bandwidth that necessary bytes reached in a measured time.
///
/// ```
/// use llm_roofline::{roofline::mbu, units::*};
/// // 7 billion parameters in 16 bits, 14 ms per token at 2 TB/s: half of the bandwidth.
/// assert_eq!(mbu(Bytes::from_gb(14.0), Seconds::from_millis(14.0), BytesPerSecond::from_tb_per_second(2.0)), 0.5);
/// ```
pub fn mbu(bytes: Bytes, time: Seconds, bandwidth: BytesPerSecond) -> f64 {
    bytes / time / bandwidth
}
