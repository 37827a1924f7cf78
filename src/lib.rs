//! Predicts how fast a language model will serve, without any hardware.
pub mod format;
pub mod import;
pub mod model;
pub mod profile;
pub mod units;
