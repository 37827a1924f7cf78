//! Replicas that go and come during a run.

use super::decoding::Decoding;
use super::fleet::Fleet;
use super::kv::KvBlocks;
use super::log::EventKind;
use super::replica::{Plan, Replica};
use super::scaling::{Autoscaler, Control, FleetView, Outage};
use super::sequence::{Sequence, Sequences};
use super::sink::Sink;
use super::speculating::Speculating;
use super::statistics::Totals;
use super::waiting::Waiting;
use crate::units::Seconds;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What is to be done to replicas, and when.
pub(super) struct Controls<'a> {
    pending: BinaryHeap<Reverse<(u64, u64)>>,
    actions: Vec<Control>,
    autoscaler: Option<Autoscaler<'a>>,
    starting: u32,
    /// Replicas that are up, since when, and seconds times replicas before.
    up: u32,
    since: f64,
    available: f64,
    last: Totals,
}

impl<'a> Controls<'a> {
    pub(super) fn new(outages: &[Outage], autoscaler: Option<Autoscaler<'a>>, up: u32) -> Self {
        let mut controls = Self {
            pending: BinaryHeap::new(),
            actions: Vec::new(),
            autoscaler,
            starting: 0,
            up,
            since: 0.0,
            available: 0.0,
            last: Totals::default(),
        };
        for outage in outages {
            controls.schedule(outage.at.as_seconds(), Control::Down(outage.replica));
            if let Some(until) = outage.until {
                controls.schedule(until.as_seconds(), Control::Up(outage.replica));
            }
        }
        if let Some(autoscaler) = &autoscaler {
            controls.schedule(autoscaler.interval, Control::Scale);
        }
        controls
    }

    fn schedule(&mut self, at: f64, action: Control) {
        self.pending.push(Reverse((at.to_bits(), self.actions.len() as u64)));
        self.actions.push(action);
    }

    pub(super) fn next(&self) -> f64 {
        self.pending.peek().map_or(f64::INFINITY, |Reverse((bits, _))| f64::from_bits(*bits))
    }

    /// Seconds times replicas that were up.
    pub(super) fn available_until(&self, now: f64) -> f64 {
        self.available + f64::from(self.up) * (now - self.since)
    }

    fn set_up(&mut self, up: u32, now: f64) {
        self.available = self.available_until(now);
        (self.up, self.since) = (up, now);
    }
}

impl<'a> Fleet<'a> {
    /// Does what is due to replicas.
    pub(super) fn control(&mut self) {
        let Some(Reverse((_, index))) = self.controls.pending.pop() else { return };
        match self.controls.actions[index as usize] {
            Control::Down(replica) => self.lose(replica as usize),
            Control::Up(replica) => {
                if self.controls.autoscaler.is_some() {
                    self.controls.starting = self.controls.starting.saturating_sub(1);
                }
                self.bring_up(replica as usize);
            }
            Control::Scale => self.scale(),
        }
    }

    fn bring_up(&mut self, index: usize) {
        if !self.replicas[index].is_up {
            self.replicas[index].bring_up(self.now);
            self.controls.set_up(self.controls.up + 1, self.now);
            self.sink.log_replica(self.now, index as u32, EventKind::ReplicaUp);
            self.rescue();
        }
    }

    fn take_down(&mut self, index: usize) {
        if self.replicas[index].is_up {
            (self.replicas[index].is_up, self.replicas[index].down_since) = (false, self.now);
            self.controls.set_up(self.controls.up - 1, self.now);
            self.sink.log_replica(self.now, index as u32, EventKind::ReplicaDown);
        }
    }

    /// A replica stops at once; its requests go elsewhere.
    fn lose(&mut self, index: usize) {
        self.take_down(index);
        let mut lost = self.replicas[index].lose(self.now, &mut self.sink);
        self.due[index] = f64::INFINITY;
        if let Some(network) = &mut self.network {
            lost.extend(network.lose(index as u32, self.now));
        }
        for sequence in lost {
            self.sink.log(self.now, index as u32, sequence.asked.id, EventKind::Lost);
            self.send(sequence);
        }
    }

    /// Asks the rule, and starts or drains replicas.
    fn scale(&mut self) {
        let Some(autoscaler) = self.controls.autoscaler else { return };
        let totals = self.totals();
        let passed = totals - self.controls.last;
        self.controls.last = totals;
        let now = self.now;
        self.replicas.iter_mut().for_each(|replica| replica.catch_up(now));
        let on = || self.replicas.iter().filter(|replica| replica.is_up);
        let blocks: f64 = on().map(|replica| replica.kv.total() as f64).sum();
        let used: f64 = on().map(|replica| replica.kv.used() as f64).sum();
        let view = FleetView {
            time: Seconds::from_seconds(self.now),
            up: self.controls.up,
            starting: self.controls.starting,
            running: self.replicas.iter().map(|replica| replica.sequences.running()).sum(),
            waiting: self.replicas.iter().map(|replica| replica.waiting.len() as u64).sum::<u64>()
                + self.stranded.len() as u64,
            utilization: passed.busy_s / passed.available_s.max(f64::MIN_POSITIVE),
            kv_utilization: used / blocks.max(1.0),
            arrival_rate: passed.arrived as f64 / autoscaler.interval,
        };
        let wanted = (autoscaler.rule)(&view).clamp(autoscaler.fewest, self.replicas.len() as u32);
        let there = self.controls.up + self.controls.starting;
        let down: Vec<usize> = (0..self.replicas.len()).filter(|index| !self.replicas[*index].is_up).collect();
        let more = wanted.saturating_sub(there) as usize;
        for index in down.into_iter().skip(self.controls.starting as usize).take(more) {
            self.controls.starting += 1;
            self.controls.schedule(self.now + autoscaler.start_up, Control::Up(index as u32));
        }
        // The last ones take no more requests, and end what they have.
        let fewer = self.controls.up.saturating_sub(wanted.max(1)) as usize;
        let up: Vec<usize> = (0..self.replicas.len()).rev().filter(|index| self.replicas[*index].is_up).collect();
        for index in up.into_iter().take(fewer) {
            self.take_down(index);
        }
        self.controls.schedule(self.now + autoscaler.interval, Control::Scale);
    }
}

impl<'a> Replica<'a> {
    /// Stops: steps that have ended count, the one that runs does not. Its requests, as they were sent, with what they have emitted.
    fn lose(&mut self, now: f64, sink: &mut Sink<'a>) -> Vec<Sequence<'a>> {
        if let Plan::Leap(line) = self.plan {
            let ended = line.step_at(Seconds::from_seconds(now - self.start));
            if now < self.end && ended > 0 {
                self.plan_steps = ended;
                self.end = self.start + line.total(ended).as_seconds();
                self.happen(sink);
            }
        }
        self.count_waiting(now);
        let decoded = self.decoding.steps();
        let mut slots: Vec<u32> = self.sequences.latest_first().collect();
        slots.reverse();
        while let Some(slot) = self.waiting.pop() {
            slots.push(slot);
        }
        let last_decode = self.last_decode;
        let lost = slots.into_iter().map(|slot| self.sequences.at(slot).lost(decoded, last_decode));
        // A static batch keeps those whose answers have ended.
        let lost = lost.filter(|sequence| sequence.emitted < sequence.asked.output).collect();
        self.reset();
        lost
    }

    fn reset(&mut self) {
        self.sequences = Sequences::default();
        self.waiting = Waiting::new(self.rules.order);
        self.prompts.clear();
        self.decoding = Decoding::new(self.model);
        self.speculating.iter_mut().for_each(Speculating::clear);
        self.kv = KvBlocks::new(&self.rules.pool);
        self.batch.clear();
        (self.batch_left, self.decoding_on) = (0, 0);
        (self.plan, self.end) = (Plan::Idle, f64::INFINITY);
    }
}

impl Sequence<'_> {
    /// As it starts again elsewhere, after so many decode steps of the replica that was lost.
    fn lost(mut self, decode_steps: u64, last_decode: f64) -> Self {
        if self.decodes() {
            let steps = decode_steps - self.joined;
            self.emitted += steps;
            if steps > 0 {
                self.last_token = last_decode;
            }
        }
        Self {
            emitted: self.emitted,
            admitted: self.admitted,
            first_token: self.first_token,
            last_token: self.last_token,
            preemptions: self.preemptions + 1,
            found: self.found,
            ..Self::new(self.asked)
        }
    }
}
