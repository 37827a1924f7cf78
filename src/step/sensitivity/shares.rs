//! Seconds by the resource that they depend on.

use crate::deployment::Spec;
use crate::units::Seconds;
use serde::Serialize;
use std::fmt;
use std::ops::{AddAssign, Mul};

/// The time of one step or of several, by what it depends on.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ResourceShares {
    total: Seconds,
    shares: Vec<(Spec, Seconds)>,
}

impl ResourceShares {
    pub(super) const fn new(total: Seconds, shares: Vec<(Spec, Seconds)>) -> Self {
        Self { total, shares }
    }

    /// The whole time.
    pub const fn total(&self) -> Seconds {
        self.total
    }

    /// The seconds that shrink when this rate grows, or grow with this time; zero for what the time does not depend on.
    pub fn of(&self, spec: Spec) -> Seconds {
        let found = self.shares.iter().find(|(known, _)| *known == spec);
        found.map_or(Seconds::ZERO, |(_, share)| *share)
    }

    /// `d ln T / d ln spec`: by how many percent the time changes if the number grows by 1 %. Negative for rates, positive for times; 0 for no time at all.
    pub fn elasticity(&self, spec: Spec) -> f64 {
        if self.total <= Seconds::ZERO {
            return 0.0;
        }
        let share = self.of(spec) / self.total;
        if spec.is_cost() { share } else { -share }
    }

    /// Every resource with its share. Those that are no arithmetic of a single format add up to the total.
    pub fn iter(&self) -> impl Iterator<Item = (Spec, Seconds)> + '_ {
        self.shares.iter().copied()
    }

    /// The sum of all resources, each second counted once: the total, up to rounding.
    pub fn sum(&self) -> Seconds {
        self.iter().filter(|(spec, _)| !matches!(spec, Spec::Compute(_))).map(|(_, share)| share).sum()
    }

    /// The resource with the largest share.
    pub fn largest(&self) -> Option<Spec> {
        let all = self.iter().filter(|(spec, _)| !matches!(spec, Spec::Compute(_)));
        all.max_by(|a, b| a.1.as_seconds().total_cmp(&b.1.as_seconds())).map(|(spec, _)| spec)
    }
}

impl AddAssign<&Self> for ResourceShares {
    fn add_assign(&mut self, other: &Self) {
        self.total += other.total;
        for (spec, share) in other.iter() {
            match self.shares.iter_mut().find(|(known, _)| *known == spec) {
                Some((_, sum)) => *sum += share,
                None => self.shares.push((spec, share)),
            }
        }
    }
}

impl Mul<f64> for ResourceShares {
    type Output = Self;
    fn mul(mut self, times: f64) -> Self {
        self.total = self.total * times;
        self.shares.iter_mut().for_each(|(_, share)| *share = *share * times);
        self
    }
}

impl fmt::Display for ResourceShares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.total)?;
        let mut shares: Vec<_> = self.iter().filter(|(spec, _)| !matches!(spec, Spec::Compute(_))).collect();
        shares.sort_by(|a, b| b.1.as_seconds().total_cmp(&a.1.as_seconds()));
        for (index, (spec, share)) in shares.into_iter().filter(|(_, share)| *share / self.total >= 0.005).enumerate() {
            write!(f, "{}{spec} {:.0} %", if index == 0 { ": " } else { ", " }, 100.0 * (share / self.total))?;
        }
        Ok(())
    }
}
