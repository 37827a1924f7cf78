//! Predicts how fast a language model will serve, without any hardware.
#![forbid(unsafe_code)]

pub mod catalog;
pub mod collective;
pub mod delivery;
pub mod deployment;
pub mod engine;
pub mod format;
pub mod hardware;
pub mod memory;
pub mod model;
pub mod operator;
pub mod prelude;
pub mod profile;
pub mod request;
pub mod roofline;
pub mod step;
pub mod text;
pub mod units;
