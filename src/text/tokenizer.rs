//! Tokenizers whose text density was measured.

use super::{Density, Language};
use crate::profile::{self, ProfileError, Provenance, folded};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// A tokenizer or a density that is not known.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// No tokenizer has that name.
    #[error(
        "no tokenizer is named `{name}`{}; known are {known}",
        .nearest.map(|nearest| format!(" (did you mean `{nearest}`?)")).unwrap_or_default()
    )]
    UnknownTokenizer {
        /// The name asked for.
        name: String,
        /// The nearest known name.
        nearest: Option<&'static str>,
        /// All known names.
        known: String,
    },
    /// The tokenizer was not measured on that language.
    #[error("the density of tokenizer {tokenizer} was not measured for {language}")]
    UnknownDensity {
        /// The tokenizer.
        tokenizer: &'static str,
        /// The language.
        language: Language,
    },
    /// The embedded table has a mistake in it.
    #[error(transparent)]
    Table(#[from] ProfileError),
}

/// A tokenizer and how densely it writes.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tokenizer {
    name: String,
    aliases: Vec<String>,
    vocab_size: u64,
    source: String,
    tokens: BTreeMap<Language, u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Corpus {
    text: String,
    characters: u64,
    words: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    corpora: BTreeMap<Language, Corpus>,
    tokenizers: Vec<Tokenizer>,
}

static TABLE: LazyLock<Result<Table, ProfileError>> =
    LazyLock::new(|| profile::read(include_str!("tokenizers.toml"), "tokenizers.toml"));

fn table() -> Result<&'static Table, ProfileError> {
    TABLE.as_ref().map_err(Clone::clone)
}

impl Tokenizer {
    /// The tokenizer of that name, ignoring case, spaces, dashes and underscores.
    ///
    /// # Errors
    /// [`TextError::UnknownTokenizer`] with the nearest name and all names.
    ///
    /// ```
    /// use llm_roofline::text::Tokenizer;
    /// assert_eq!(Tokenizer::named("llama-3.1")?.name(), "Llama 3");
    /// assert!(Tokenizer::named("llama-7").unwrap_err().to_string().contains("did you mean `Llama"));
    /// # Ok::<(), llm_roofline::text::TextError>(())
    /// ```
    pub fn named(name: &str) -> Result<&'static Self, TextError> {
        let tokenizers = &table()?.tokenizers;
        let wanted = folded(name);
        let found = tokenizers.iter().find(|tokenizer| tokenizer.names().any(|known| folded(known) == wanted));
        found.ok_or_else(|| TextError::UnknownTokenizer {
            name: name.into(),
            nearest: profile::nearest(name, tokenizers.iter().flat_map(Self::names)),
            known: tokenizers.iter().map(|tokenizer| tokenizer.name.as_str()).collect::<Vec<_>>().join(", "),
        })
    }

    /// All tokenizers whose density is known.
    ///
    /// # Errors
    /// [`TextError::Table`] if the embedded table has a mistake in it.
    pub fn all() -> Result<&'static [Self], TextError> {
        Ok(&table()?.tokenizers)
    }

    /// The density of a tokenizer that may be unknown, for a language: measured where it was measured, otherwise a default
    /// whose [`kind`](Density::kind) is [`Provenance::Assumed`].
    ///
    /// The default for English is the [rule of thumb](Density::rule_of_thumb); for other languages, the median of the measured
    /// tokenizers.
    ///
    /// # Errors
    /// [`TextError::Table`] if the embedded table has a mistake in it.
    ///
    /// ```
    /// use llm_roofline::profile::Provenance;
    /// use llm_roofline::text::{Language, Tokenizer};
    /// assert_eq!(Tokenizer::density_or_default(Some("Qwen3"), Language::English)?.kind, Provenance::Measured);
    /// let assumed = Tokenizer::density_or_default(None, Language::English)?;
    /// assert_eq!((assumed.chars_per_token, assumed.kind), (4.0, Provenance::Assumed));
    /// # Ok::<(), llm_roofline::text::TextError>(())
    /// ```
    pub fn density_or_default(tokenizer: Option<&str>, language: Language) -> Result<Density, TextError> {
        let known = tokenizer.and_then(|name| Self::named(name).ok());
        match known.map(|tokenizer| tokenizer.density(language)) {
            Some(Ok(density)) => Ok(density),
            _ if language == Language::English => Ok(Density::rule_of_thumb()),
            _ => median(language),
        }
    }

    /// Name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Number of different tokens.
    pub const fn vocab_size(&self) -> u64 {
        self.vocab_size
    }

    /// Characters per token and tokens per word of a language, as measured.
    ///
    /// # Errors
    /// [`TextError::UnknownDensity`] if it was not measured on that language.
    pub fn density(&'static self, language: Language) -> Result<Density, TextError> {
        let unknown = TextError::UnknownDensity { tokenizer: &self.name, language };
        let (Some(&tokens), Some(corpus)) = (self.tokens.get(&language), table()?.corpora.get(&language)) else {
            return Err(unknown);
        };
        if tokens == 0 {
            return Err(unknown);
        }
        Ok(Density {
            chars_per_token: corpus.characters as f64 / tokens as f64,
            tokens_per_word: corpus.words.map(|words| tokens as f64 / words as f64),
            kind: Provenance::Measured,
            source: format!("{}, counted with {}", corpus.text, self.source),
        })
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.name.as_str()).chain(self.aliases.iter().map(String::as_str))
    }
}

/// The measured density in the middle, as a guess for a tokenizer that is not known.
fn median(language: Language) -> Result<Density, TextError> {
    let mut measured: Vec<Density> =
        table()?.tokenizers.iter().filter_map(|tokenizer| tokenizer.density(language).ok()).collect();
    measured.sort_by(|a, b| a.chars_per_token.total_cmp(&b.chars_per_token));
    let source = format!("median of {} measured tokenizers", measured.len());
    let middle = measured.len() / 2;
    let density = measured.into_iter().nth(middle);
    let density = density.ok_or(TextError::UnknownDensity { tokenizer: "(any)", language })?;
    Ok(Density { kind: Provenance::Assumed, source, ..density })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_language_is_measured_for_every_tokenizer() {
        for tokenizer in Tokenizer::all().unwrap() {
            for language in Language::ALL {
                let density = tokenizer.density(language).unwrap();
                assert!((0.5..8.0).contains(&density.chars_per_token), "{} {language}", tokenizer.name);
                assert_eq!(density.tokens_per_word.is_none(), language == Language::Chinese);
            }
        }
    }

    #[test]
    fn every_name_leads_to_one_tokenizer() {
        let mut names: Vec<String> = Tokenizer::all().unwrap().iter().flat_map(Tokenizer::names).map(folded).collect();
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    // GPT-4 cl100k and GPT-4o o200k on the Russian declaration of human rights: 5127 and 2738 tokens for 11891 characters.
    #[test]
    fn a_larger_vocabulary_writes_russian_denser() {
        let density = |name| Tokenizer::named(name).unwrap().density(Language::Russian).unwrap();
        assert_eq!(format!("{:.3}", density("cl100k_base").chars_per_token), "2.319");
        assert_eq!(format!("{:.3}", density("gpt-oss").chars_per_token), "4.343");
        assert_eq!(format!("{:.3}", density("gpt-oss").tokens_per_word.unwrap()), "1.724");
    }

    #[test]
    fn an_unknown_tokenizer_gets_an_assumed_density_between_the_extremes() {
        for language in [Language::Spanish, Language::Chinese, Language::Rust] {
            let guess = Tokenizer::density_or_default(Some("something else"), language).unwrap();
            assert_eq!(guess.kind, Provenance::Assumed);
            let measured = Tokenizer::all().unwrap().iter().map(|t| t.density(language).unwrap().chars_per_token);
            let measured: Vec<f64> = measured.collect();
            let below = measured.iter().filter(|&&chars| chars < guess.chars_per_token).count();
            let above = measured.iter().filter(|&&chars| chars > guess.chars_per_token).count();
            assert!(below.max(above) <= measured.len() / 2, "{language}: {guess:?} of {measured:?}");
        }
    }
}
