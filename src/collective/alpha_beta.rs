//! The compiled form of a collective: lines in the bytes.

use crate::units::{Bytes, Seconds};
use std::ops::Add;

/// A communication whose time is a line in its bytes: `latency + bytes * seconds_per_byte`.
///
/// Source: Hockney, The communication challenge for MPP, Parallel Computing 20 (1994): the alpha-beta model.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AlphaBeta {
    /// Time without data (alpha).
    pub latency: Seconds,
    /// Seconds per byte of the message (beta).
    pub seconds_per_byte: f64,
}

impl AlphaBeta {
    /// No communication at all.
    pub const FREE: Self = Self { latency: Seconds::ZERO, seconds_per_byte: 0.0 };

    /// The time for a message.
    ///
    /// ```
    /// use llm_roofline::{collective::AlphaBeta, units::*};
    /// let hop = AlphaBeta { latency: Seconds::from_micros(5.0), seconds_per_byte: 1e-11 };
    /// assert_eq!(hop.time(Bytes::from_mb(1.0)).to_string(), "15.0 us");
    /// ```
    #[inline]
    pub fn time(&self, message: Bytes) -> Seconds {
        Seconds::from_seconds(self.latency.as_seconds() + message.as_bytes() * self.seconds_per_byte)
    }

    /// Two communications that run at the same time over different links: never less than the slower of them.
    #[must_use]
    pub fn beside(self, other: Self) -> Self {
        Self {
            latency: self.latency.max(other.latency),
            seconds_per_byte: self.seconds_per_byte.max(other.seconds_per_byte),
        }
    }
}

impl Add for AlphaBeta {
    type Output = Self;
    /// One after the other.
    fn add(self, other: Self) -> Self {
        Self { latency: self.latency + other.latency, seconds_per_byte: self.seconds_per_byte + other.seconds_per_byte }
    }
}

/// An all-reduce compiled to one line per algorithm: a call takes the fastest.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AllReduce {
    branches: [AlphaBeta; Self::ALGORITHMS],
}

impl AllReduce {
    /// One-shot, two-shot, ring, reduction in the switch.
    const ALGORITHMS: usize = 4;
    /// No communication at all.
    pub const FREE: Self = Self { branches: [AlphaBeta::FREE; Self::ALGORITHMS] };

    /// The fastest of the algorithms that exist.
    pub(super) fn fastest(always: AlphaBeta, others: [Option<AlphaBeta>; Self::ALGORITHMS - 1]) -> Self {
        let [one, two, three] = others.map(|line| line.unwrap_or(always));
        Self { branches: [always, one, two, three] }
    }

    /// The time for a message that every device holds.
    #[inline]
    pub fn time(&self, message: Bytes) -> Seconds {
        let [ring, one_shot, two_shot, in_switch] = self.branches.map(|line| line.time(message));
        ring.min(one_shot).min(two_shot.min(in_switch))
    }
}
