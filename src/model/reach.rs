//! How far back a token attends, and the sums over it that price attention.

use serde::{Deserialize, Serialize};

/// Which earlier positions a query attends to. A query at position `n` (counted from 1, itself included) sees
/// `attended(n)` entries of the cache; every variant is piecewise linear in `n`, so sums over positions are closed forms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reach {
    /// All of them: `n`.
    #[default]
    Full,
    /// The last so many tokens (sliding window): `min(n, w)`.
    Window(u64),
    /// Those of the same chunk: `(n - 1) mod w + 1`, as Llama 4's local layers. A chunk of 0 tokens, which no checked model has, is
    /// taken as 1.
    Chunk(u64),
    /// The best `top` (0 = all) of entries that stand for `ratio` tokens each: `min(n / ratio, top)`. Sparse attention with an
    /// indexer (DeepSeek-V3.2) has one entry per token, compressed caches (DeepSeek-V4) one for several; the entry under construction
    /// counts as its fraction, so the cost grows evenly. Everything is kept, since any of it may be selected.
    Selected {
        /// Tokens per entry.
        ratio: u64,
        /// Entries selected at most, 0 for all.
        top: u64,
    },
}

impl Reach {
    /// Entries that the query at position `n` (from 1, itself included) attends to.
    ///
    /// ```
    /// use llm_roofline::model::Reach;
    /// assert_eq!(Reach::Window(128).attended(1000), 128.0);
    /// assert_eq!(Reach::Chunk(8192).attended(8193), 1.0);
    /// assert_eq!(Reach::Selected { ratio: 4, top: 512 }.attended(1000), 250.0);
    /// ```
    pub fn attended(self, n: u64) -> f64 {
        match self {
            Self::Full => n as f64,
            Self::Window(window) => n.min(window) as f64,
            Self::Chunk(_) if n == 0 => 0.0,
            Self::Chunk(chunk) => ((n - 1) % chunk.max(1) + 1) as f64,
            Self::Selected { ratio, top } => n.min(saturation(ratio, top)) as f64 / tokens_per_entry(ratio),
        }
    }

    /// Query-key pairs of `new` tokens after `cached` ones: the sum of `attended(n)` for `n` in `cached+1 ..= cached+new`.
    ///
    /// # Formula
    /// Full: `new * cached + new * (new + 1) / 2`, exact causal counting. The others follow by cutting the range where
    /// `attended` bends.
    ///
    /// ```
    /// use llm_roofline::model::Reach;
    /// assert_eq!(Reach::Full.pairs(0, 4), 1.0 + 2.0 + 3.0 + 4.0);
    /// assert_eq!(Reach::Window(3).pairs(1, 4), 2.0 + 3.0 + 3.0 + 3.0);
    /// ```
    pub fn pairs(self, cached: u64, new: u64) -> f64 {
        self.prefix_sum(cached.saturating_add(new)) - self.prefix_sum(cached)
    }

    /// The sum of `attended(n)` for `n` in `1 ..= to`.
    fn prefix_sum(self, to: u64) -> f64 {
        let clipped = |limit: u64| triangle(to.min(limit)) + to.saturating_sub(limit) as f64 * limit as f64;
        match self {
            Self::Full => triangle(to),
            Self::Window(window) => clipped(window),
            Self::Chunk(chunk) => {
                let chunk = chunk.max(1);
                (to / chunk) as f64 * triangle(chunk) + triangle(to % chunk)
            }
            Self::Selected { ratio, top } => clipped(saturation(ratio, top).min(to)) / tokens_per_entry(ratio),
        }
    }

    /// Entries of the cache that are read when `new` tokens are appended to `cached` ones, each once.
    pub fn read(self, cached: u64, new: u64) -> f64 {
        let end = cached.saturating_add(new);
        match self {
            Self::Full => end as f64,
            Self::Window(window) => end.min(window.saturating_sub(1).saturating_add(new)) as f64,
            Self::Chunk(chunk) => end.min((cached % chunk.max(1)).saturating_add(new)) as f64,
            // A single query reads its selection; many queries together may select everything.
            Self::Selected { ratio, top } if top > 0 => {
                end.min(saturation(ratio, top).saturating_mul(new.max(1))) as f64 / tokens_per_entry(ratio)
            }
            Self::Selected { ratio, .. } => end as f64 / tokens_per_entry(ratio),
        }
    }

    /// Entries that a sequence of `context` tokens keeps in memory.
    pub fn kept(self, context: u64) -> f64 {
        match self {
            Self::Full => context as f64,
            Self::Window(window) | Self::Chunk(window) => context.min(window) as f64,
            Self::Selected { ratio, .. } => context as f64 / tokens_per_entry(ratio),
        }
    }

    /// By how much `attended` grows with the next token, from position `n` on.
    pub fn slope(self, n: u64) -> f64 {
        match self {
            Self::Full | Self::Chunk(_) => 1.0,
            Self::Window(window) => {
                if n < window {
                    1.0
                } else {
                    0.0
                }
            }
            Self::Selected { ratio, top } => {
                if n < saturation(ratio, top) {
                    1.0 / tokens_per_entry(ratio)
                } else {
                    0.0
                }
            }
        }
    }

    /// By how much [`read`](Self::read) of `new` tokens grows with the next cached token, from `cached` ones on.
    pub fn read_slope(self, cached: u64, new: u64) -> f64 {
        match self {
            Self::Selected { ratio, .. } if cached < self.read_saturation(new) => 1.0 / tokens_per_entry(ratio),
            Self::Selected { .. } => 0.0,
            _ => self.slope(cached.saturating_add(1)),
        }
    }

    /// The cached tokens up to which [`read`](Self::read) of `new` tokens stays on the line through `cached`, if the line ends apart from that of
    /// `attended`.
    pub const fn read_line_end(self, cached: u64, new: u64) -> Option<u64> {
        let limit = self.read_saturation(new);
        if cached < limit && limit < u64::MAX { Some(limit) } else { None }
    }

    /// The cached tokens from which on `new` tokens read no more entries of a selection: each of them selects its own.
    const fn read_saturation(self, new: u64) -> u64 {
        match self {
            Self::Selected { top: 0, .. } => u64::MAX,
            Self::Selected { ratio, top } => saturation(ratio, top).saturating_mul(new).saturating_sub(new),
            _ => u64::MAX,
        }
    }

    /// The position from which on a query attends to no more than the one before; `u64::MAX` if there is none.
    pub(crate) const fn saturated_from(self) -> u64 {
        match self {
            Self::Window(window) => window,
            Self::Selected { ratio, top } => saturation(ratio, top),
            Self::Full | Self::Chunk(_) => u64::MAX,
        }
    }

    /// Entries that stand for a token: less than one where they are compressed.
    #[inline]
    pub(crate) fn entries_per_token(self) -> f64 {
        match self {
            Self::Selected { ratio, .. } => 1.0 / tokens_per_entry(ratio),
            _ => 1.0,
        }
    }

    /// The last position up to which `attended` stays on the line through `n`, if the line ends.
    ///
    /// From `n` to there, `attended(m) = attended(n) + (m - n) * slope(n)`.
    pub const fn line_end(self, n: u64) -> Option<u64> {
        let limit = match self {
            Self::Full => return None,
            Self::Window(window) => window,
            Self::Chunk(chunk) => {
                let chunk = if chunk == 0 { 1 } else { chunk };
                return Some(if n == 0 { 0 } else { n.div_ceil(chunk).saturating_mul(chunk) });
            }
            Self::Selected { ratio, top } => saturation(ratio, top),
        };
        if n < limit && limit < u64::MAX { Some(limit) } else { None }
    }
}

/// The few distinct reaches of one model, full reach first. Copied into every step load, so it is small and has no heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reaches {
    list: [Reach; Self::LIMIT],
    len: usize,
}

impl Reaches {
    /// Most reaches that a model may mix.
    pub const LIMIT: usize = 8;
    /// Full attention only.
    pub const FULL: Self = Self { list: [Reach::Full; Self::LIMIT], len: 1 };

    /// The reaches of a list, `None` if there are too many.
    pub fn new(distinct: &[Reach]) -> Option<Self> {
        let mut list = [Reach::Full; Self::LIMIT];
        list.get_mut(..distinct.len())?.copy_from_slice(distinct);
        Some(Self { list, len: distinct.len() })
    }

    /// The reaches as a slice.
    pub fn as_slice(&self) -> &[Reach] {
        &self.list[..self.len]
    }

    /// The place of a reach in the list.
    pub fn position(&self, reach: Reach) -> Option<usize> {
        self.as_slice().iter().position(|known| *known == reach)
    }

    /// The nearest number of cached tokens at which what any of them reads leaves its line, see [`Reach::read_line_end`].
    pub fn read_line_end(&self, cached: u64, new: u64) -> Option<u64> {
        self.as_slice().iter().filter_map(|reach| reach.read_line_end(cached, new)).min()
    }

    /// The nearest position at or after `n` where any of them leaves its line, see [`Reach::line_end`].
    pub fn line_end(&self, n: u64) -> Option<u64> {
        self.as_slice().iter().filter_map(|reach| reach.line_end(n)).min()
    }
}

/// The position from which on `top` entries are attended to.
const fn saturation(ratio: u64, top: u64) -> u64 {
    match (ratio, top) {
        (_, 0) => u64::MAX,
        (0, top) => top,
        (ratio, top) => ratio.saturating_mul(top),
    }
}

/// A ratio of 0, which no checked model has, is taken as 1.
fn tokens_per_entry(ratio: u64) -> f64 {
    ratio.max(1) as f64
}

/// `1 + 2 + ... + n`.
fn triangle(n: u64) -> f64 {
    let n = n as f64;
    n * (n + 1.0) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_reach() -> impl Strategy<Value = Reach> {
        prop_oneof![
            Just(Reach::Full),
            (1u64..300).prop_map(Reach::Window),
            (1u64..300).prop_map(Reach::Chunk),
            (1u64..20, 0u64..40).prop_map(|(ratio, top)| Reach::Selected { ratio, top }),
        ]
    }

    proptest! {
        #[test]
        fn pairs_are_the_sum_over_positions(reach in any_reach(), cached in 0u64..700, new in 0u64..700) {
            let summed: f64 = (cached + 1..=cached + new).map(|n| reach.attended(n)).sum();
            prop_assert!((reach.pairs(cached, new) - summed).abs() <= 1e-9 * summed);
        }

        #[test]
        fn attended_is_linear_up_to_the_line_end(reach in any_reach(), n in 1u64..700) {
            let end = reach.line_end(n).unwrap_or(n + 100);
            for m in n..=end {
                let line = reach.attended(n) + (m - n) as f64 * reach.slope(n);
                prop_assert!((reach.attended(m) - line).abs() < 1e-9);
            }
        }

        #[test]
        fn no_query_reads_more_than_its_pairs(reach in any_reach(), cached in 0u64..700, new in 1u64..700) {
            prop_assert!(reach.read(cached, new) <= reach.pairs(cached, new) + 1.0);
            prop_assert!(reach.attended(cached + new) <= reach.read(cached, new) + 1e-9);
        }

        /// Also shapes that no model has: answers are numbers, and nothing overflows.
        #[test]
        fn nothing_panics(size in any::<u64>(), top in any::<u64>(), cached in any::<u64>(), new in any::<u64>()) {
            for (size, top) in [(size, top), (0, top), (size, 0), (0, 0), (u64::MAX, u64::MAX)] {
                let selected = Reach::Selected { ratio: size, top };
                for reach in [Reach::Full, Reach::Window(size), Reach::Chunk(size), selected] {
                    let numbers = [reach.attended(cached), reach.pairs(cached, new), reach.read(cached, new)];
                    let kept = [reach.kept(cached), reach.slope(cached)];
                    prop_assert!(numbers.into_iter().chain(kept).all(|x| x.is_finite() && x >= 0.0), "{:?}", reach);
                    prop_assert!(reach.line_end(cached).is_none_or(|end| end >= cached), "{:?}", reach);
                }
            }
        }
    }
}
