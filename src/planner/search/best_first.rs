//! The search itself: always the candidate whose bound is lowest, until no bound is below what was found.

use super::candidate::{Candidate, Dropped, Valued};
use super::demand::Outlook;
use super::figures::Facts;
use super::objective::Objective;
use super::refusal::{Refusal, Tally};
use super::space::Key;
use super::{Search, SearchProgress};
use crate::parallel::in_order;
use crate::planner::PlannerError;
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
    Facts(Result<Facts, Refusal>),
    Value(Result<Valued, Dropped>),
}

/// The deployments of the space, and what is known of those that were compiled: the same for every outlook.
pub(super) struct Known {
    keys: Vec<Key>,
    facts: Vec<Option<Result<Facts, Refusal>>>,
    /// Lower bounds of values that the expected outlook left behind: longer times never need fewer replicas.
    at_least: Vec<f64>,
}

impl Known {
    pub(super) fn new(search: &Search<'_>) -> Self {
        let keys = search.space.keys();
        Self { facts: vec![None; keys.len()], at_least: vec![0.0; keys.len()], keys }
    }
}

impl Search<'_> {
    /// The `keep` best candidates of different groups.
    pub(super) fn best_first(
        &self,
        known: &mut Known,
        outlook: Outlook,
        keep: usize,
        progress: &mut dyn FnMut(&SearchProgress) -> ControlFlow<()>,
    ) -> Result<Found, PlannerError> {
        let mut walk = Walk::new(self, known, outlook, keep);
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
            let outcomes = in_order(0..batch.len(), |number| {
                let (node, worst) = &batch[number];
                let deployment = self.space.deployment(&walk.known.keys[node.candidate.index]);
                match (deployment, node.compiled) {
                    (Err(error), _) => Outcome::Facts(Err(Refusal::Failed(error))),
                    (Ok(of), false) => Outcome::Facts(self.facts(&of)),
                    (Ok(of), true) => Outcome::Value(self.value(&of, &node.candidate, outlook, *worst)),
                }
            });
            for ((node, worst), outcome) in batch.into_iter().zip(outcomes) {
                match outcome {
                    Outcome::Facts(facts) => walk.take_facts(node, facts),
                    Outcome::Value(value) => walk.take_value(node, value, worst),
                }
            }
        }
        walk.found.tally.outbid += walk.open.len() as u64;
        let best = walk
            .standing()
            .into_iter()
            .take(keep)
            .map(|valued| (walk.known.keys[valued.score.index], valued))
            .collect();
        Ok(Found { best, ..walk.found })
    }
}

/// A search under way.
struct Walk<'a, 's> {
    search: &'a Search<'s>,
    known: &'a mut Known,
    outlook: Outlook,
    keep: usize,
    open: BinaryHeap<Reverse<Node>>,
    /// The best of each group so far.
    best: BTreeMap<(u32, u32, usize), Valued>,
    found: Found,
}

impl<'a, 's> Walk<'a, 's> {
    fn new(search: &'a Search<'s>, known: &'a mut Known, outlook: Outlook, keep: usize) -> Self {
        let found = Found { best: Vec::new(), tally: Tally::default(), nearest: None };
        Self { search, known, outlook, keep, open: BinaryHeap::new(), best: BTreeMap::new(), found }
    }

    /// All candidates with their first bounds.
    fn start(&mut self) -> Result<(), PlannerError> {
        let search = self.search;
        self.found.tally.deployments = self.known.keys.len() as u64;
        let mut weights: BTreeMap<(u32, u32, u32), Bytes> = BTreeMap::new();
        for (index, key) in self.known.keys.iter().enumerate() {
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
            let candidate = search.candidate(index, search.space.device(key), key.layout.devices());
            match candidate.and_then(|candidate| self.first_node(candidate)) {
                Ok(node) => {
                    self.found.tally.compiled += u64::from(node.compiled);
                    self.open.push(Reverse(node));
                }
                Err(refusal) => self.found.tally.count(&refusal),
            }
        }
        Ok(())
    }

    /// A candidate with the best bound that takes no compilation.
    fn first_node(&self, candidate: Candidate) -> Result<Node, Refusal> {
        let (search, known) = (self.search, &self.known);
        let mut bound = search.first_bound(&candidate).max(known.at_least[candidate.index]);
        // Nothing but the steady state tells anything about latencies.
        let mut compiled = matches!(search.objective, Objective::Latency(..));
        if let Some(facts) = &known.facts[candidate.index] {
            bound = bound.max(search.bound(&candidate, facts.clone()?, self.outlook)?);
            compiled = true;
        }
        Ok(Node { bound, candidate, compiled })
    }

    /// Plans that are told apart: one for each of these.
    fn group(&self, candidate: &Candidate) -> (u32, u32, usize) {
        let Key { model, device, .. } = self.known.keys[candidate.index];
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

    fn take_facts(&mut self, node: Node, facts: Result<Facts, Refusal>) {
        self.found.tally.compiled += 1;
        self.known.facts[node.candidate.index] = Some(facts.clone());
        match facts.and_then(|facts| self.search.bound(&node.candidate, facts, self.outlook)) {
            Ok(bound) => {
                let bound = bound.max(node.bound);
                self.open.push(Reverse(Node { bound, compiled: true, ..node }));
            }
            Err(refusal) => self.refuse(&node, refusal),
        }
    }

    fn take_value(&mut self, node: Node, value: Result<Valued, Dropped>, worst: f64) {
        self.found.tally.solved += 1;
        self.learn(&node, &value, worst);
        match value {
            Ok(valued) => {
                let group = self.group(&node.candidate);
                let better = |known: &Valued| known.score.order(&valued.score) == Ordering::Greater;
                if self.best.get(&group).is_none_or(better) {
                    self.best.insert(group, valued);
                }
            }
            Err(Dropped::Outbid) => self.found.tally.outbid += 1,
            Err(Dropped::Refused(refusal)) => self.refuse(&node, refusal),
        }
    }

    /// Keeps what holds for longer times too.
    fn learn(&mut self, node: &Node, value: &Result<Valued, Dropped>, worst: f64) {
        let of_replicas = !matches!(self.search.objective, Objective::Latency(..) | Objective::Energy);
        if self.outlook != Outlook::Expected || !of_replicas {
            return;
        }
        let index = node.candidate.index;
        match value {
            Ok(valued) => self.known.at_least[index] = valued.score.value,
            Err(Dropped::Outbid) => self.known.at_least[index] = worst,
            Err(Dropped::Refused(refusal)) => self.known.facts[index] = Some(Err(refusal.clone())),
        }
    }

    fn refuse(&mut self, node: &Node, refusal: Refusal) {
        self.found.tally.count(&refusal);
        let excess = |refusal: &Refusal| refusal.excess().unwrap_or(f64::INFINITY);
        let nearer = |(_, known): &(Key, Refusal)| excess(&refusal) < excess(known);
        if refusal.excess().is_some() && self.found.nearest.as_ref().is_none_or(nearer) {
            self.found.nearest = Some((self.known.keys[node.candidate.index], refusal));
        }
    }
}
