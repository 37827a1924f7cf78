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
    /// The last so many tokens (sliding window) or the best so many (sparse selection): `min(n, w)`.
    Window(u64),
    /// Those of the same chunk: `(n - 1) mod w + 1`, as Llama 4's local layers.
    Chunk(u64),
    /// One entry per `ratio` tokens, at most `top` of them (0 = no limit): `min(floor(n / ratio), top)`, as
    /// DeepSeek-V4's compressed cache.
    Compressed {
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
    /// assert_eq!(Reach::Window(128).attended(1000), 128);
    /// assert_eq!(Reach::Chunk(8192).attended(8193), 1);
    /// ```
    pub const fn attended(self, n: u64) -> u64 {
        match self {
            Self::Full => n,
            Self::Window(window) => min(n, window),
            Self::Chunk(chunk) => match n {
                0 => 0,
                _ => (n - 1) % chunk + 1,
            },
            Self::Compressed { ratio, top: 0 } => n / ratio,
            Self::Compressed { ratio, top } => min(n / ratio, top),
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
        self.prefix_sum(cached + new) - self.prefix_sum(cached)
    }

    /// The sum of `attended(n)` for `n` in `1 ..= to`.
    fn prefix_sum(self, to: u64) -> f64 {
        match self {
            Self::Full => triangle(to),
            Self::Window(window) => triangle(to.min(window)) + to.saturating_sub(window) as f64 * window as f64,
            Self::Chunk(chunk) => (to / chunk) as f64 * triangle(chunk) + triangle(to % chunk),
            Self::Compressed { ratio, top } => {
                let entries = to / ratio;
                let bend = if top == 0 { entries } else { entries.min(top) };
                // n = ratio*e .. ratio*e + ratio - 1 all see e entries, for e < bend; from there on all see `bend`.
                let below = ratio as f64 * if bend == 0 { 0.0 } else { triangle(bend - 1) };
                below + (to + 1).saturating_sub(ratio * bend) as f64 * bend as f64
            }
        }
    }

    /// Entries of the cache that must be read when `new` tokens are appended to `cached` ones: each once.
    pub const fn read(self, cached: u64, new: u64) -> u64 {
        let end = cached + new;
        match self {
            Self::Full => end,
            Self::Window(window) => min(end, window.saturating_sub(1) + new),
            Self::Chunk(chunk) => min(end, cached % chunk + new),
            Self::Compressed { ratio, .. } => end / ratio,
        }
    }

    /// Entries that a sequence of `context` tokens must keep in memory.
    pub const fn kept(self, context: u64) -> u64 {
        match self {
            Self::Full => context,
            Self::Window(window) | Self::Chunk(window) => min(context, window),
            Self::Compressed { ratio, .. } => context / ratio,
        }
    }

    /// The next position after `n` at which the slope of `attended` changes, if any.
    pub const fn next_bend(self, n: u64) -> Option<u64> {
        match self {
            Self::Full => None,
            Self::Window(window) => {
                if n < window {
                    Some(window)
                } else {
                    None
                }
            }
            Self::Chunk(chunk) => Some((n / chunk + 1) * chunk),
            Self::Compressed { ratio, top } => {
                let next = (n / ratio + 1) * ratio;
                if top == 0 || n / ratio < top { Some(next) } else { None }
            }
        }
    }
}

const fn min(a: u64, b: u64) -> u64 {
    if a < b { a } else { b }
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
            (1u64..20, 0u64..40).prop_map(|(ratio, top)| Reach::Compressed { ratio, top }),
        ]
    }

    proptest! {
        #[test]
        fn pairs_are_the_sum_over_positions(reach in any_reach(), cached in 0u64..700, new in 0u64..700) {
            let summed: u64 = (cached + 1..=cached + new).map(|n| reach.attended(n)).sum();
            prop_assert_eq!(reach.pairs(cached, new), summed as f64);
        }

        #[test]
        fn attended_is_linear_between_bends(reach in any_reach(), n in 1u64..700) {
            let end = reach.next_bend(n).unwrap_or(n + 100);
            // Between two bends the second difference is zero: n .. end-1 lies on one line.
            for m in n + 1..end.saturating_sub(1) {
                let (a, b, c) = (reach.attended(m - 1) as i64, reach.attended(m) as i64, reach.attended(m + 1) as i64);
                if m + 1 < end {
                    prop_assert_eq!(c - b, b - a);
                }
            }
        }
    }
}
