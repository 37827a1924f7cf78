//! Which layers attend to a window only. Files name the window, but for most architectures the pattern is in llama.cpp's code.

use super::keys::{Keys, PerLayer};
use crate::import::ImportError;
use crate::model::Reach;

/// How an architecture alternates windowed and full layers where its files do not say.
struct Pattern {
    /// One full layer in so many; 0 if all layers are windowed.
    period: u64,
    /// Whether the full layer is the first of a period instead of the last.
    full_first: bool,
    /// The window, if files may leave it out.
    default_window: Option<u64>,
}

/// Source: `hparams.set_swa_pattern` and `hparams.n_swa` of each architecture in llama.cpp (`src/llama-model.cpp`, later
/// `src/models/*.cpp`): layer `il` is windowed if `period == 0 || il % period < period - 1`, or with the full layer first
/// if `il % period != 0`.
fn pattern(architecture: &str, layers: usize) -> Option<Pattern> {
    let last = |period, default_window| Some(Pattern { period, full_first: false, default_window });
    match architecture {
        "gemma2" => last(2, Some(4096)),
        "gpt-oss" => last(2, None),
        "cohere2" | "olmo2" | "exaone-moe" | "afmoe" => last(4, None),
        "exaone4" => last(4, (layers == 64).then_some(4096)),
        "llama4" => last(4, Some(8192)),
        "gemma3n" => last(5, None),
        "gemma3" => last(6, None),
        "smallthinker" => Some(Pattern { period: 4, full_first: true, default_window: None }),
        _ => None,
    }
}

/// What each layer attends to.
pub(super) struct Windows {
    window: u64,
    chunked: bool,
    pattern: Option<Pattern>,
    each: Option<Vec<u64>>,
    /// What was assumed, for the notes of the model.
    pub(super) note: Option<String>,
}

impl Windows {
    pub(super) fn read(keys: &Keys<'_>, layers: usize) -> Result<Self, ImportError> {
        const WINDOW: &str = "attention.sliding_window";
        let mut pattern = pattern(keys.architecture, layers);
        let chunked = keys.architecture == "llama4";
        let stated = keys.optional(WINDOW, 1 << 40)?;
        let default = pattern.as_ref().and_then(|pattern| pattern.default_window);
        // Llama 4 files state 0 for "no chunks"; the chunk itself is fixed.
        let window = match stated {
            Some(0) => 0,
            Some(window) if !chunked => window,
            _ => default.unwrap_or(0),
        };
        let mut each = None;
        match keys.per_layer("attention.sliding_window_pattern", layers, 1 << 16)? {
            Some(PerLayer::Each(flags)) => each = Some(flags),
            Some(PerLayer::Same(period)) => match &mut pattern {
                Some(pattern) => pattern.period = period,
                None => pattern = Some(Pattern { period, full_first: false, default_window: None }),
            },
            None => {}
        }
        let ignored = window > 0 && pattern.is_none() && each.is_none();
        let note = ignored.then(|| {
            format!("{WINDOW} is {window} but no layer pattern is known: all layers attend to the whole context, as in llama.cpp")
        });
        Ok(Self { window, chunked, pattern, each, note })
    }

    pub(super) fn reach(&self, layer: usize) -> Reach {
        let windowed = match (&self.each, &self.pattern) {
            (Some(flags), _) => flags.get(layer).is_some_and(|&flag| flag != 0),
            (None, Some(pattern)) => pattern.windowed(layer as u64),
            (None, None) => false,
        };
        match self.window {
            window if windowed && window > 0 && self.chunked => Reach::Chunk(window),
            window if windowed && window > 0 => Reach::Window(window),
            _ => Reach::Full,
        }
    }
}

impl Pattern {
    const fn windowed(&self, layer: u64) -> bool {
        match self.period {
            0 => true,
            period if self.full_first => !layer.is_multiple_of(period),
            period => layer % period < period - 1,
        }
    }
}
