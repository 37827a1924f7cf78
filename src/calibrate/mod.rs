//! Finds the constants of engine profiles from measurements.

pub mod fit;
