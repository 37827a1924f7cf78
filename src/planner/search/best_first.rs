//! The search itself: always the candidate whose bound is lowest, until no bound is below what was found.

use super::candidate::{Candidate, Dropped, Valued};
use super::demand::Outlook;
use super::refusal::{Refusal, Tally};
use super::space::Key;
use super::{Search, SearchProgress};
use crate::planner::PlannerError;
use crate::planner::parallel::mapped;
use crate::units::Bytes;
use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::ControlFlow;

/// Nodes that are worked on at the same time. Always as many, so that what is looked at does not depend on the number of threads.
const BATCH: usize = 32;

/// What a search found: the best candidates in order, at most one of each group.
pub(super) struct Found {
    pub(super) best: Vec<(Key, Valued)>,
    pub(super) tally: Tally,
    /// The candidate that misses the target by least, where none meets it.
    pub(super) nearest: Option<(Key, Refusal)>,
}

/// A candidate that may still be better than what was found.
struct Node {
    bound: f64,
    candidate: Candidate,
    /// Whether the bound knows the largest rate.
    compiled: bool,
}

impl Node {
    fn rank(&self) -> (f64, bool, usize) {
        // Of equal bounds those that are compiled first: they lead to values.
        (self.bound, !self.compiled, self.candidate.index)
    }
}

impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Node {}

impl PartialOrd for Node {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Node {
    fn cmp(&self, other: &Self) -> Ordering {
        let (a, b) = (self.rank(), other.rank());
        a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)).then(a.2.cmp(&b.2))
    }
}

/// What came of a node.
enum Outcome {
    Bound(f64),
    Value(Valued),
}

impl Search<'_> {
    /// The `keep` best candidates of different groups.
    pub(super) fn best_first(
        &self,
        outlook: Outlook,
        keep: usize,
        progress: &mut dyn FnMut(&SearchProgress) -> ControlFlow<()>,
    ) -> Result<Found, PlannerError> {
        let mut walk = Walk::new(self, keep);
        walk.start()?;
        let total = walk.found.tally.deployments;
        loop {
            let batch = walk.next_batch();
            let tally = &walk.found.tally;
            let state = SearchProgress {
                done: total - walk.open.len() as u64 - batch.len() as u64,
                total,
                solved: tally.solved,
                best: walk.standing().first().map(|valued| valued.score.value),
            };
            if progress(&state).is_break() {
                return Err(PlannerError::Cancelled);
            }
            if batch.is_empty() {
                break;
            }
            let outcomes = mapped(&batch, |(node, worst)| {
                let candidate = &node.candidate;
                let deployment = self.space.deployment(&walk.keys[candidate.index]).map_err(Refusal::Failed)?;
                match node.compiled {
                    false => self.bound(&deployment, candidate, outlook).map(Outcome::Bound),
                    true => self.value(&deployment, candidate, outlook, *worst).map(Outcome::Value),
                }
            });
            for ((node, _), outcome) in batch.into_iter().zip(outcomes) {
                walk.take(node, outcome);
            }
        }
        walk.found.tally.outbid += walk.open.len() as u64;
        let best =
            walk.standing().into_iter().take(keep).map(|valued| (walk.keys[valued.score.index], valued)).collect();
        Ok(Found { best, ..walk.found })
    }
}

/// A search under way.
struct Walk<'a, 's> {
    search: &'a Search<'s>,
    keep: usize,
    keys: Vec<Key>,
    open: BinaryHeap<Reverse<Node>>,
    /// The best of each group so far.
    best: BTreeMap<(u16, u16, usize), Valued>,
    found: Found,
}

impl<'a, 's> Walk<'a, 's> {
    fn new(search: &'a Search<'s>, keep: usize) -> Self {
        let found = Found { best: Vec::new(), tally: Tally::default(), nearest: None };
        Self { search, keep, keys: search.space.keys(), open: BinaryHeap::new(), best: BTreeMap::new(), found }
    }

    /// All candidates with their first bounds.
    fn start(&mut self) -> Result<(), PlannerError> {
        let search = self.search;
        self.found.tally.deployments = self.keys.len() as u64;
        let mut weights: BTreeMap<(u16, u16, u16), Bytes> = BTreeMap::new();
        for (index, key) in self.keys.iter().enumerate() {
            let of_parts = match weights.get(&key.weight_parts()) {
                Some(bytes) => *bytes,
                None => {
                    let bytes = search.space.weights_at_least(key)?;
                    weights.insert(key.weight_parts(), bytes);
                    bytes
                }
            };
            if search.is_hopeless(key, of_parts) {
                self.found.tally.memory += 1;
                continue;
            }
            match search.candidate(index, search.space.device(key), key.layout.devices()) {
                Ok(candidate) => {
                    let bound = search.first_bound(&candidate);
                    self.open.push(Reverse(Node { bound, candidate, compiled: false }));
                }
                Err(refusal) => self.found.tally.count(&refusal),
            }
        }
        Ok(())
    }

    /// Plans that are told apart: one for each of these.
    fn group(&self, candidate: &Candidate) -> (u16, u16, usize) {
        let Key { model, device, .. } = self.keys[candidate.index];
        if self.search.one_per_device { (model, device, 0) } else { (model, device, 1 + candidate.index) }
    }

    /// What was found so far, the best first.
    fn standing(&self) -> Vec<Valued> {
        let mut standing: Vec<_> = self.best.values().copied().collect();
        standing.sort_by(|a, b| a.score.order(&b.score));
        standing
    }

    /// The value beyond which nothing matters, whatever group it is of.
    fn worst(&self) -> f64 {
        match self.search.prune {
            true => self.standing().get(self.keep - 1).map_or(f64::INFINITY, |valued| valued.score.value),
            false => f64::INFINITY,
        }
    }

    /// The next nodes with the values that they must not exceed.
    fn next_batch(&mut self) -> Vec<(Node, f64)> {
        let worst = self.worst();
        let mut batch = Vec::new();
        while batch.len() < BATCH {
            let Some(Reverse(node)) = self.open.pop() else { break };
            if node.bound > worst {
                self.open.push(Reverse(node));
                break;
            }
            let of_group = self.best.get(&self.group(&node.candidate)).filter(|_| self.search.prune);
            let limit = of_group.map_or(worst, |valued| valued.score.value.min(worst));
            match node.bound > limit {
                true => self.found.tally.outbid += 1,
                false => batch.push((node, limit)),
            }
        }
        batch
    }

    fn take(&mut self, node: Node, outcome: Result<Outcome, Dropped>) {
        let tally = &mut self.found.tally;
        match node.compiled {
            true => tally.solved += 1,
            false => tally.compiled += 1,
        }
        match outcome {
            Ok(Outcome::Bound(bound)) => {
                let bound = bound.max(node.bound);
                self.open.push(Reverse(Node { bound, compiled: true, ..node }));
            }
            Ok(Outcome::Value(valued)) => {
                let group = self.group(&node.candidate);
                let better = |known: &Valued| known.score.order(&valued.score) == Ordering::Greater;
                if self.best.get(&group).is_none_or(better) {
                    self.best.insert(group, valued);
                }
            }
            Err(Dropped::Outbid) => tally.outbid += 1,
            Err(Dropped::Refused(refusal)) => {
                tally.count(&refusal);
                let excess = |refusal: &Refusal| refusal.excess().unwrap_or(f64::INFINITY);
                let nearer = |(_, known): &(Key, Refusal)| excess(&refusal) < excess(known);
                if refusal.excess().is_some() && self.found.nearest.as_ref().is_none_or(nearer) {
                    self.found.nearest = Some((self.keys[node.candidate.index], refusal));
                }
            }
        }
    }
}
