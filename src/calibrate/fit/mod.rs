//! Fits: from measured times to constants with uncertainties.
//!
//! - [`solver`]: maximum-a-posteriori least squares for any law.
//! - [`refit`]: engine profiles, fitted to published measurements of whole steps.
//! - [`kernels`]: the laws of single operators, fitted to public kernel measurements.

pub mod kernels;
pub mod refit;
pub mod solver;
mod write;

pub use write::set_in_text;
