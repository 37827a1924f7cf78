//! Operators that touch every element once or twice: always memory-bound.

use crate::roofline::Work;
use crate::units::{Bytes, Flops};

/// Layer norm of `tokens x hidden_size` in 16 bits: 7 operations per element, one read and one write.
///
/// # References
/// Yuan et al., LLM Inference Unveiled (arXiv 2402.16363), table 1.
pub fn norm(tokens: f64, hidden_size: u64) -> Work {
    elementwise(tokens * hidden_size as f64, 7.0)
}

/// Residual addition in 16 bits: one operation per element, one read (the other operand is still on the chip) and one write.
///
/// # References
/// Yuan et al., LLM Inference Unveiled (arXiv 2402.16363), table 1.
pub fn residual_add(tokens: f64, hidden_size: u64) -> Work {
    elementwise(tokens * hidden_size as f64, 1.0)
}

fn elementwise(elements: f64, flops_per_element: f64) -> Work {
    Work { flops: Flops::from_flops(elements * flops_per_element), bytes: Bytes::from_bytes(elements * 4.0) }
}
