//! Predicts how fast a language model will serve, without any hardware.
pub mod catalog;
pub mod delivery;
pub mod format;
pub mod model;
pub mod profile;
pub mod text;
pub mod units;
