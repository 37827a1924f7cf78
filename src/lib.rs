//! Predicts how fast a language model will serve, without any hardware.
pub mod catalog;
pub mod collective;
pub mod delivery;
pub mod engine;
pub mod format;
pub mod model;
pub mod operator;
pub mod profile;
pub mod roofline;
pub mod text;
pub mod units;
