//! Caches on their way from the replicas that computed prompts to those that go on.

use super::sequence::Sequence;
use super::sink::Handoff;
use crate::serving::KvTransfer;
use crate::serving::disaggregated::CacheBytes;
use crate::units::Seconds;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Links of prefill replicas, each of which sends one cache after another.
pub(super) struct Network<'a> {
    transfer: KvTransfer,
    bytes: CacheBytes,
    layers: usize,
    /// When the link of each replica is free again.
    free: Vec<f64>,
    /// What is on its way, by the bits of the time of its arrival.
    arrivals: BinaryHeap<Reverse<(u64, usize)>>,
    under_way: Vec<Option<Handoff<'a>>>,
    unused: Vec<usize>,
}

impl<'a> Network<'a> {
    pub(super) fn new(transfer: KvTransfer, bytes: CacheBytes, layers: usize, replicas: usize) -> Self {
        Self {
            transfer,
            bytes,
            layers,
            free: vec![0.0; replicas],
            arrivals: BinaryHeap::new(),
            under_way: Vec::new(),
            unused: Vec::new(),
        }
    }

    /// Sends a cache when the link is free. What was sent layer by layer began before the prompt had ended.
    pub(super) fn send(&mut self, handoff: Handoff<'a>) {
        let bytes = self.bytes.of(handoff.sequence.asked.prompt + handoff.sequence.emitted - 1);
        let time = self.transfer.time(bytes).as_seconds();
        let exposed = self.transfer.exposed(bytes, Seconds::from_seconds(handoff.computed_in), self.layers);
        let link = &mut self.free[handoff.from as usize];
        let arrival = (handoff.at + exposed.as_seconds()).max(*link + time);
        *link = arrival;
        let place = self.unused.pop().unwrap_or(self.under_way.len());
        if place == self.under_way.len() {
            self.under_way.push(None);
        }
        self.under_way[place] = Some(handoff);
        self.arrivals.push(Reverse((arrival.to_bits(), place)));
    }

    pub(super) fn next_arrival(&self) -> f64 {
        self.arrivals.peek().map_or(f64::INFINITY, |Reverse((bits, _))| f64::from_bits(*bits))
    }

    /// A request whose cache has arrived.
    pub(super) fn arrived_by(&mut self, now: f64) -> Option<Sequence<'a>> {
        if self.next_arrival() > now {
            return None;
        }
        let Reverse((_, place)) = self.arrivals.pop()?;
        self.unused.push(place);
        self.under_way[place].take().map(|handoff| handoff.sequence)
    }

    /// Requests whose caches were on their way from a replica that is lost.
    pub(super) fn lose(&mut self, from: u32, now: f64) -> Vec<Sequence<'a>> {
        self.free[from as usize] = now;
        let lost = |place: &usize| self.under_way[*place].is_some_and(|handoff| handoff.from == from);
        let (gone, left): (Vec<_>, Vec<_>) = self.arrivals.drain().partition(|Reverse((_, place))| lost(place));
        self.arrivals.extend(left);
        let mut places: Vec<usize> = gone.into_iter().map(|Reverse((_, place))| place).collect();
        places.sort_unstable();
        self.unused.extend(&places);
        places.into_iter().filter_map(|place| self.under_way[place].take()).map(|handoff| handoff.sequence).collect()
    }
}
