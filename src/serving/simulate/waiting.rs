//! Requests that have no place yet.

use super::sequence::Sequences;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// In which order requests that wait are admitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Order {
    /// First come, first served; whoever was preempted comes before all others (vLLM: `--scheduling-policy fcfs`).
    #[default]
    Fcfs,
    /// By the priority of the class, the lowest number first, then by arrival; who is preempted is the running request of the highest number that
    /// came last (vLLM: `--scheduling-policy priority`).
    Priority,
}

/// The queue of a replica.
#[derive(Clone, Debug)]
pub(super) enum Waiting {
    Fcfs(VecDeque<u32>),
    Priority(BinaryHeap<Reverse<(i64, u64, u32)>>),
}

impl Waiting {
    pub(super) fn new(order: Order) -> Self {
        match order {
            Order::Fcfs => Self::Fcfs(VecDeque::new()),
            Order::Priority => Self::Priority(BinaryHeap::new()),
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Fcfs(queue) => queue.len(),
            Self::Priority(heap) => heap.len(),
        }
    }

    /// Who is next.
    #[inline]
    pub(super) fn head(&self) -> Option<u32> {
        match self {
            Self::Fcfs(queue) => queue.front().copied(),
            Self::Priority(heap) => heap.peek().map(|Reverse((.., slot))| *slot),
        }
    }

    pub(super) fn pop(&mut self) -> Option<u32> {
        match self {
            Self::Fcfs(queue) => queue.pop_front(),
            Self::Priority(heap) => heap.pop().map(|Reverse((.., slot))| slot),
        }
    }

    /// A request that has arrived.
    pub(super) fn push(&mut self, sequences: &Sequences<'_>, slot: u32) {
        match self {
            Self::Fcfs(queue) => queue.push_back(slot),
            Self::Priority(heap) => heap.push(Reverse(key(sequences, slot))),
        }
    }

    /// A request that has lost its place.
    pub(super) fn push_back_in_front(&mut self, sequences: &Sequences<'_>, slot: u32) {
        match self {
            Self::Fcfs(queue) => queue.push_front(slot),
            Self::Priority(heap) => heap.push(Reverse(key(sequences, slot))),
        }
    }

    /// The running sequence that gives way to the others.
    pub(super) fn victim(&self, sequences: &Sequences<'_>) -> Option<u32> {
        match self {
            Self::Fcfs(_) => sequences.last_admitted(),
            Self::Priority(_) => sequences.latest_first().max_by_key(|slot| key(sequences, *slot)),
        }
    }
}

fn key(sequences: &Sequences<'_>, slot: u32) -> (i64, u64, u32) {
    let asked = &sequences.at(slot).asked;
    (asked.priority, asked.id, slot)
}
