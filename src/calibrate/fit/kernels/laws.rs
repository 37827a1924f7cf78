//! The laws: time of one kernel from its ideal times and a few constants.
//!
//! A row holds what follows from the shape and the data sheet alone, in microseconds at efficiency 1; the law adds the constants
//! to fit. Constants are positive and searched as logarithms.

use crate::calibrate::fit::solver::Prior;
use crate::roofline::smooth_max;

/// A kernel law with `N` constants.
pub trait Law<const N: usize>: Sync {
    /// What is known of the constants' logarithms before the data.
    fn priors() -> [Prior; N];

    /// Predicted time in us.
    fn time_us(&self, constants: &[f64; N]) -> f64;
}

fn efficiency(name: &str, typical: f64) -> Prior {
    Prior::ln(name, typical, 0.5).within(f64::ln(0.01), 0.0)
}

fn overlap() -> Prior {
    Prior::ln("s", 0.1, 1.5).within(f64::ln(1e-3), 0.0)
}

/// Matrix product of `m` rows.
///
/// # Formula
/// `t0 + tk * K / 1000 + q * 3MK / BW + smooth_max(F / (ec * P), B / (em * BW); s)`: `tk` is one block's serial walk along the
/// inner dimension, `q` the separate kernel that quantizes activations. Rows that fill up a tile, `F * (1 + pad / M)`, do not lower
/// the error: libraries choose the tile by the shape.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gemm {
    /// Inner dimension.
    pub k: f64,
    /// `2MNK / P`.
    pub compute_us: f64,
    /// Weights, input and output over bandwidth.
    pub memory_us: f64,
    /// `3MK / BW`, 0 where activations stay in 16 bits.
    pub quantize_us: f64,
}

impl Law<6> for Gemm {
    fn priors() -> [Prior; 6] {
        [
            Prior::ln("t0_us", 4.0, 1.0),
            Prior::ln("tk_us", 0.35, 1.0),
            Prior::ln("q", 1.5, 1.0),
            efficiency("ec", 0.75),
            efficiency("em", 0.9),
            overlap(),
        ]
    }

    fn time_us(&self, &[t0, tk, q, ec, em, s]: &[f64; 6]) -> f64 {
        let busy = smooth_max(self.compute_us / ec, self.memory_us / em, s);
        t0 + tk * self.k / 1000.0 + q * self.quantize_us + busy
    }
}

/// Attention of one new token per sequence.
///
/// # Formula
/// `t0 + B / (em * BW)`, B the cached keys and values with the queries and outputs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DecodeAttention {
    /// Bytes over bandwidth.
    pub memory_us: f64,
    /// Sequences times key-value heads, per multiprocessor of the device.
    pub items: f64,
}

impl Law<2> for DecodeAttention {
    fn priors() -> [Prior; 2] {
        [Prior::ln("t0_us", 10.0, 1.0), efficiency("em", 0.85)]
    }

    fn time_us(&self, &[t0, em]: &[f64; 2]) -> f64 {
        t0 + self.memory_us / em
    }
}

/// Attention of one new token per sequence, short contexts included.
///
/// # Formula
/// `t0 + B / (em * BW) + item * batch * kv_heads / SMs`: each pair of a sequence and a key-value head costs a multiprocessor some
/// time before the first key is read. Below about 500 tokens of context that is most of the time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DecodeAttentionItems(pub DecodeAttention);

impl Law<3> for DecodeAttentionItems {
    fn priors() -> [Prior; 3] {
        let [t0, em] = DecodeAttention::priors();
        [t0, em, Prior::ln("item_us", 1.0, 1.0)]
    }

    fn time_us(&self, &[t0, em, item]: &[f64; 3]) -> f64 {
        self.0.time_us(&[t0, em]) + item * self.0.items
    }
}

/// Causal attention of whole prompts.
///
/// # Formula
/// `t0 + F / (ec * P) + B / (em * BW)`: the part that grows with the square of the prompt, and the part that grows with it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrefillAttention {
    /// `2 * batch * heads * d * S * (S + 128)` over the peak in 16 bits.
    pub compute_us: f64,
    /// `2 * batch * S * d * (2 * heads + 2 * kv_heads)` over bandwidth.
    pub memory_us: f64,
    /// Tokens S of one prompt.
    pub tokens: f64,
}

impl Law<3> for PrefillAttention {
    fn priors() -> [Prior; 3] {
        let ec = Prior::ln("ec", 0.6, 0.5).within(f64::ln(0.01), f64::ln(2.0));
        [Prior::ln("t0_us", 14.0, 1.0), ec, efficiency("em", 0.45)]
    }

    fn time_us(&self, &[t0, ec, em]: &[f64; 3]) -> f64 {
        t0 + self.compute_us / ec + self.memory_us / em
    }
}

/// Causal attention of whole prompts, few short ones included.
///
/// # Formula
/// `t0 + ts * S / 1000 + F / (ec * P) + B / (em * BW)`: `ts` is one block's serial walk along the context, visible when there are too
/// few heads and sequences to fill the device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrefillAttentionWalk(pub PrefillAttention);

impl Law<4> for PrefillAttentionWalk {
    fn priors() -> [Prior; 4] {
        let [t0, ec, em] = PrefillAttention::priors();
        [t0, ec, em, Prior::ln("ts_us", 5.0, 1.0)]
    }

    fn time_us(&self, &[t0, ec, em, ts]: &[f64; 4]) -> f64 {
        self.0.time_us(&[t0, ec, em]) + ts * self.0.tokens / 1000.0
    }
}

/// Feed-forward layer of experts: routing, two grouped matrix products, activation, combination.
///
/// # Formula
/// `t0 + smooth_max(F / (ec * P), W / (em * BW); s) + A / (ea * BW)`: W the weights of the distinct experts, A the traffic of
/// activations. Rows that fill up each expert's last tile, `F * (1 + pad / rows per expert)`, do not lower the error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Experts {
    /// `6 * h * I * T * k / P`.
    pub compute_us: f64,
    /// Weights of the distinct experts over bandwidth.
    pub memory_us: f64,
    /// `2 * T * k * (2h + 3I)` over bandwidth.
    pub activation_us: f64,
}

impl Law<5> for Experts {
    fn priors() -> [Prior; 5] {
        [
            Prior::ln("t0_us", 25.0, 1.0),
            efficiency("ec", 0.65),
            efficiency("em", 0.9),
            overlap(),
            Prior::ln("ea", 0.4, 0.5).within(f64::ln(0.01), f64::ln(2.0)),
        ]
    }

    fn time_us(&self, &[t0, ec, em, s, ea]: &[f64; 5]) -> f64 {
        t0 + smooth_max(self.compute_us / ec, self.memory_us / em, s) + self.activation_us / ea
    }
}

/// All-reduce by kernels that read their neighbours' memory.
///
/// # Formula
/// `min(one + one_n * n + (n-1) * S / (e1 * L), two + two_n * n + 2(n-1)/n * S / (e2 * L))`: either every device reads everything,
/// or each reduces a share and all gather.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AllReduce {
    /// Devices.
    pub devices: f64,
    /// `S / L`: message over one device's link, one direction.
    pub message_us: f64,
}

impl AllReduce {
    fn ring_us(&self) -> f64 {
        2.0 * (self.devices - 1.0) / self.devices * self.message_us
    }
}

impl Law<6> for AllReduce {
    fn priors() -> [Prior; 6] {
        [
            Prior::ln("one_us", 4.0, 1.0),
            Prior::ln("one_us_per_device", 0.15, 1.0),
            efficiency("one_e", 0.55),
            Prior::ln("two_us", 6.0, 1.0),
            Prior::ln("two_us_per_device", 0.8, 1.0),
            efficiency("two_e", 0.65),
        ]
    }

    fn time_us(&self, &[one, one_n, one_e, two, two_n, two_e]: &[f64; 6]) -> f64 {
        let one_shot = one + one_n * self.devices + (self.devices - 1.0) * self.message_us / one_e;
        let two_shot = two + two_n * self.devices + self.ring_us() / two_e;
        one_shot.min(two_shot)
    }
}

/// All-reduce of a general library (NCCL), and of any engine over a shared bus.
///
/// # Formula
/// `base + per_device * n + V / (e * L) * (n / 2)^x + c * sqrt(V / L)`, `V = 2(n-1)/n * S`, times in us: the root is the pipeline
/// that fills; `x` is 0 where every pair of devices has its own path, and positive where devices share one (PCIe).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LibraryAllReduce(pub AllReduce);

impl Law<5> for LibraryAllReduce {
    fn priors() -> [Prior; 5] {
        [
            Prior::ln("base_us", 5.0, 1.0),
            Prior::ln("us_per_device", 2.0, 1.0),
            Prior::ln("e", 0.7, 0.5).within(f64::ln(0.01), f64::ln(1.2)),
            Prior::ln("c", 4.0, 1.0),
            Prior::ln("x", 0.1, 2.0).within(f64::ln(1e-3), f64::ln(3.0)),
        ]
    }

    fn time_us(&self, &[base, per_device, e, c, x]: &[f64; 5]) -> f64 {
        let AllReduce { devices, .. } = self.0;
        let ring = self.0.ring_us();
        base + per_device * devices + ring / e * (devices / 2.0).powf(x) + c * ring.sqrt()
    }
}
