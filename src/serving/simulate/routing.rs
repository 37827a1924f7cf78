//! Which replica a request goes to.

use super::replica::Replica;
use super::sequence::Sequence;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::ops::Range;

/// How requests are shared among replicas. A replica that is down gets none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Routing {
    /// Each to any replica.
    Random,
    /// One after the other.
    RoundRobin,
    /// To the replica that has the fewest requests, waiting ones included (join the shortest queue).
    #[default]
    LeastLoaded,
    /// To the less loaded of two that are drawn (M. Mitzenmacher, IEEE TPDS 12 (2001) 1094): nearly as good, and only two are asked.
    PowerOfTwoChoices,
    /// To the replica whose prefix cache holds most of the prompt, the less loaded of equal ones; to the least loaded one if that would have more than
    /// twice as many requests and [`AFFINITY_SLACK`](Self::AFFINITY_SLACK) more.
    PrefixAffinity,
}

impl Routing {
    /// By how many requests more a replica may be ahead of the least loaded one, beyond twice as many, before affinity gives way.
    pub const AFFINITY_SLACK: u64 = 16;
}

/// A router at work.
#[derive(Clone, Debug)]
pub(super) struct Router {
    routing: Routing,
    next: usize,
    rng: Pcg64Mcg,
}

impl Router {
    pub(super) fn new(routing: Routing, seed: u64) -> Self {
        Self { routing, next: 0, rng: Pcg64Mcg::seed_from_u64(seed ^ 0xD1B5_4A32_D192_ED03) }
    }

    /// The replica among these for a request; none if all are down.
    pub(super) fn choose(
        &mut self,
        replicas: &mut [Replica<'_>],
        among: Range<usize>,
        sequence: &Sequence<'_>,
        now: f64,
    ) -> Option<usize> {
        let up = |replicas: &[Replica<'_>], index: &usize| replicas[*index].is_up;
        match self.routing {
            Routing::RoundRobin => {
                let count = among.len();
                let chosen = (0..count).map(|step| among.start + (self.next + step) % count);
                let chosen = chosen.into_iter().find(|index| up(replicas, index))?;
                self.next = chosen - among.start + 1;
                Some(chosen)
            }
            Routing::Random => self.draw(replicas, among),
            Routing::PowerOfTwoChoices => {
                let (one, other) = (self.draw(replicas, among.clone())?, self.draw(replicas, among)?);
                Some(if replicas[other].requests() < replicas[one].requests() { other } else { one })
            }
            Routing::LeastLoaded => least_loaded(replicas, among),
            Routing::PrefixAffinity => {
                replicas.iter_mut().for_each(|replica| replica.catch_up(now));
                let least = least_loaded(replicas, among.clone())?;
                let most = replicas[least].requests() * 2 + Routing::AFFINITY_SLACK;
                let (mut best, mut found) = (least, replicas[least].tokens_found(sequence));
                for index in among {
                    let tokens = if replicas[index].is_up { replicas[index].tokens_found(sequence) } else { 0 };
                    let lighter = replicas[index].requests() < replicas[best].requests();
                    if replicas[index].is_up && (tokens > found || tokens == found && lighter) {
                        (best, found) = (index, tokens);
                    }
                }
                Some(if replicas[best].requests() > most { least } else { best })
            }
        }
    }

    /// Any of those that are up.
    fn draw(&mut self, replicas: &[Replica<'_>], among: Range<usize>) -> Option<usize> {
        let up = among.clone().filter(|index| replicas[*index].is_up).count();
        if up == 0 {
            return None;
        }
        // The high half of a product: no remainder, no bias worth the name.
        let chosen = ((u128::from(self.rng.next_u64()) * up as u128) >> 64) as usize;
        among.filter(|index| replicas[*index].is_up).nth(chosen)
    }
}

fn least_loaded(replicas: &[Replica<'_>], among: Range<usize>) -> Option<usize> {
    among.filter(|index| replicas[*index].is_up).min_by_key(|index| replicas[*index].requests())
}
