//! The exchange of tokens with experts on other devices.

use crate::units::{Bytes, BytesPerSecond, Seconds};

/// Under expert parallelism, what one device sends in a layer: its tokens to their experts (dispatch), and the results back (combine).
///
/// # Formula
/// `tokens * experts_per_token * hidden_size * (dispatch + combine bytes per element)`, the share that stays on the device not
/// deducted.
///
/// Source: Zhao et al., Insights into DeepSeek-V3 (ISCA 2025, arXiv 2505.09343), section 2.3.2.
///
/// ```
/// use llm_roofline::{collective::ExpertExchange, units::*};
/// let element = Bytes::from_bytes;
/// let exchange = ExpertExchange {
///     tokens: 32,
///     experts_per_token: 9, // 8 routed, 1 shared
///     hidden_size: 7168,
///     dispatch_element: element(1.0), // fp8
///     combine_element: element(2.0), // bf16
/// };
/// let infiniband = BytesPerSecond::from_gb_per_second(50.0);
/// assert_eq!((exchange.bytes() / infiniband).to_string(), "123.9 us");
/// // Two micro-batches in turn, one communicating while the other computes, over 61 layers:
/// assert_eq!((exchange.layer_time(infiniband, 2) * 61.0).to_string(), "15.1 ms");
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpertExchange {
    /// Tokens of one device.
    pub tokens: u64,
    /// Experts that each token is sent to, those that every token uses included if they are on other devices.
    pub experts_per_token: u64,
    /// Elements of a token.
    pub hidden_size: u64,
    /// Bytes per element on the way to the experts.
    pub dispatch_element: Bytes,
    /// Bytes per element on the way back.
    pub combine_element: Bytes,
}

impl ExpertExchange {
    /// Bytes sent to the experts.
    pub fn dispatch_bytes(&self) -> Bytes {
        self.dispatch_element * self.elements()
    }

    /// Bytes sent back.
    pub fn combine_bytes(&self) -> Bytes {
        self.combine_element * self.elements()
    }

    /// Bytes of both ways.
    pub fn bytes(&self) -> Bytes {
        self.dispatch_bytes() + self.combine_bytes()
    }

    /// Time of a layer that waits for nothing but the exchange of its micro-batches, each with these tokens.
    pub fn layer_time(&self, bandwidth: BytesPerSecond, micro_batches: u64) -> Seconds {
        self.bytes() / bandwidth * micro_batches as f64
    }

    fn elements(&self) -> f64 {
        self.tokens as f64 * self.experts_per_token as f64 * self.hidden_size as f64
    }
}
