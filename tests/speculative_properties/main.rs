//! Laws of speculative decoding, whatever the engine, the target, the drafter and the load: nothing proposed is plain decoding, nothing yields
//! more than was proposed, answers add up, and searches find what trying everything finds.

#[path = "../common/mod.rs"]
mod common;

mod cycles;
mod inputs;
mod runs;
mod searches;
mod setups;
mod shapes;

const REGRESSIONS: &str = "tests/speculative_properties.proptest-regressions";
