//! How much text a token is.

use crate::profile::Provenance;
use crate::units::TokensPerSecond;
use serde::Deserialize;
use std::fmt;

/// What the text is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Language {
    /// English prose.
    English,
    /// Spanish prose.
    Spanish,
    /// Russian prose.
    Russian,
    /// Chinese prose in simplified characters.
    Chinese,
    /// Python code.
    Python,
    /// Rust code.
    Rust,
}

impl Language {
    /// Every language that densities are known for.
    pub const ALL: [Self; 6] = [Self::English, Self::Spanish, Self::Russian, Self::Chinese, Self::Python, Self::Rust];

    /// The name for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::English => "English",
            Self::Spanish => "Spanish",
            Self::Russian => "Russian",
            Self::Chinese => "Chinese",
            Self::Python => "Python code",
            Self::Rust => "Rust code",
        }
    }
}

impl fmt::Display for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How much text a token is, for one tokenizer and language.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Density {
    /// Characters per token.
    pub chars_per_token: f64,
    /// Tokens per word; none for text that is written without spaces.
    pub tokens_per_word: Option<f64>,
    /// How it was obtained.
    pub kind: Provenance,
    /// The text that was counted and what counted it, or the rule that was followed.
    pub source: String,
}

impl Density {
    /// The rule of thumb for English: a token is 4 characters, or 0.75 words.
    ///
    /// Source: OpenAI, "What are tokens and how to count them?", quoted from memory. Modern tokenizers do better on long words:
    /// 5.2 to 5.4 characters on the Universal Declaration of Human Rights.
    ///
    /// ```
    /// use llm_roofline::{text::Density, units::TokensPerSecond};
    /// let rate = Density::rule_of_thumb().rate(TokensPerSecond::from_tokens_per_second(40.0));
    /// assert_eq!(rate.to_string(), "160 characters/s, 30.0 words/s");
    /// ```
    pub fn rule_of_thumb() -> Self {
        Self {
            chars_per_token: 4.0,
            tokens_per_word: Some(1.0 / 0.75),
            kind: Provenance::Assumed,
            source: "rule of thumb: a token is 4 characters or 0.75 words of English".into(),
        }
    }

    /// Text per time at a rate of tokens.
    ///
    /// # Formula
    /// `characters/s = tokens/s * chars_per_token`, `words/s = tokens/s / tokens_per_word`
    pub fn rate(&self, speed: TokensPerSecond) -> TextRate {
        let tokens_per_second = speed.as_tokens_per_second();
        TextRate {
            characters_per_second: tokens_per_second * self.chars_per_token,
            words_per_second: self.tokens_per_word.map(|tokens_per_word| tokens_per_second / tokens_per_word),
        }
    }
}

/// Text per time: comparable between models with different tokenizers.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct TextRate {
    /// Characters per second.
    pub characters_per_second: f64,
    /// Words per second; none for text that is written without spaces.
    pub words_per_second: Option<f64>,
}

impl fmt::Display for TextRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0} characters/s", self.characters_per_second)?;
        self.words_per_second.map_or(Ok(()), |words| write!(f, ", {words:.1} words/s"))
    }
}
