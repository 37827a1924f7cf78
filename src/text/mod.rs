//! From tokens to what people read: characters, words, and whether it feels fast.
//!
//! Tokens per second of two models do not compare when their tokenizers differ: the same sentence is more tokens for one than
//! for the other. Characters or words per second do compare:
//!
//! ```
//! use llm_roofline::text::{Language, Tokenizer};
//! use llm_roofline::units::TokensPerSecond;
//!
//! let speed = TokensPerSecond::from_tokens_per_second(50.0);
//! let old = Tokenizer::named("Llama 2")?.density(Language::Russian)?.rate(speed);
//! let new = Tokenizer::named("Llama 3")?.density(Language::Russian)?.rate(speed);
//! assert_eq!(format!("{:.0}", old.characters_per_second), "138");
//! assert_eq!(format!("{:.0}", new.characters_per_second), "184"); // a third faster at the same TPS
//! # Ok::<(), llm_roofline::text::TextError>(())
//! ```

mod density;
mod experience;
mod tokenizer;

pub use density::{Density, Language, TextRate};
pub use experience::{
    COMFORTABLE_READING, Experience, INLINE_COMPLETION, READING_ALOUD_WORDS_PER_MINUTE, READING_WORDS_PER_MINUTE,
    VOICE_PAUSE,
};
pub use tokenizer::{TextError, Tokenizer};
