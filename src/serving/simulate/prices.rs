//! Prices of steps with prompts that have been met before.

use crate::step::{StepLoad, StepModel};

/// What a step costs without attention, by its tokens and sequences: requests of equal length meet the same steps again and again.
#[derive(Clone, Debug)]
pub(super) struct Prices {
    known: Vec<(Shape, f64)>,
}

/// What that part of the price depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Shape {
    prompt_tokens: f64,
    prompts: f64,
    decoders: f64,
    emitting: f64,
}

/// Places in the table; what falls on a place that is taken replaces it.
const PLACES: usize = 256;

impl Prices {
    pub(super) fn new() -> Self {
        Self { known: vec![(Shape::default(), 0.0); PLACES] }
    }

    /// Seconds of a step.
    pub(super) fn time(&mut self, model: &StepModel, load: &StepLoad) -> f64 {
        let (prefill, decode) = (load.prefill(), load.decode());
        let shape = Shape {
            prompt_tokens: prefill.tokens,
            prompts: prefill.sequences,
            decoders: decode.tokens,
            emitting: load.emitting(),
        };
        // Decoders and prompts are small numbers, tokens are not.
        let place = (decode.tokens + 5.0 * prefill.sequences + 0.31 * prefill.tokens) as i64 as usize % PLACES;
        let known = &mut self.known[place];
        if known.0 != shape {
            match model.time_without_attention(load) {
                Some(time) => *known = (shape, time.as_seconds()),
                None => return model.time(load).as_seconds(),
            }
        }
        known.1 + model.attention_time(load).as_seconds()
    }
}
