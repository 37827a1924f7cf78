//! All replicas together: the loop over everything that happens, in the order of time.

use super::control::Controls;
use super::log::EventKind;
use super::network::Network;
use super::replica::Replica;
use super::routing::Router;
use super::sequence::Sequence;
use super::sink::Sink;
use super::source::Source;
use super::statistics::Totals;
use std::collections::VecDeque;
use std::ops::Range;

/// A run under way.
pub(super) struct Fleet<'a> {
    pub(super) replicas: Vec<Replica<'a>>,
    /// When the next thing happens at each replica, when the next request comes, when a cache arrives or a replica goes or comes.
    pub(super) due: Vec<f64>,
    pub(super) next_arrival: f64,
    pub(super) next_other: f64,
    /// Replicas that take new requests, and those that go on where prompts were computed elsewhere.
    pub(super) entry: Range<usize>,
    pub(super) decode: Range<usize>,
    pub(super) router: Router,
    pub(super) decode_router: Router,
    pub(super) source: Source<'a>,
    pub(super) sink: Sink<'a>,
    pub(super) network: Option<Network<'a>>,
    pub(super) controls: Controls<'a>,
    /// Requests that find no replica.
    pub(super) stranded: VecDeque<Sequence<'a>>,
    /// Seconds that a request spends outside of steps before it is queued.
    pub(super) front_end: f64,
    pub(super) now: f64,
    pub(super) arrived: u64,
    pub(super) completed: u64,
}

impl<'a> Fleet<'a> {
    /// Serves until everything is answered, or `go_on`, asked after every [`PACE`] arrivals and answers, says no. Whether it came to the end.
    pub(super) fn run(&mut self, mut go_on: impl FnMut(&mut Self) -> bool) -> bool {
        let mut asked_at = 0;
        self.look_ahead();
        while self.advance() {
            if self.arrived + self.completed - asked_at >= PACE {
                asked_at = self.arrived + self.completed;
                if !go_on(self) {
                    return false;
                }
            }
        }
        true
    }

    /// Does whatever is due next; arrivals come before what replicas do at the same moment. False if nothing is left.
    #[inline]
    fn advance(&mut self) -> bool {
        let (arrival, other) = (self.next_arrival, self.next_other);
        let (replica, due) = self.next_due();
        if arrival <= with_rounding(due) && arrival <= other {
            if arrival == f64::INFINITY {
                return false;
            }
            self.arrive(arrival.min(due));
        } else if other < due || other == due && self.controls.next() > other {
            return self.do_other(other);
        } else {
            self.now = due;
            self.happen(replica);
            // What has ended leads to the next step at once, unless somebody comes at this very moment.
            if self.due[replica] == due && self.next_arrival > with_rounding(due) && self.next_other > due {
                self.happen(replica);
            }
        }
        true
    }

    #[inline]
    fn next_due(&self) -> (usize, f64) {
        let mut first = (0, self.due[0]);
        for (index, &due) in self.due.iter().enumerate().skip(1) {
            if due < first.1 {
                first = (index, due);
            }
        }
        first
    }

    /// Sees when the next request comes, and when anything but requests and replicas is due.
    fn look_ahead(&mut self) {
        self.next_arrival = self.source.next_time() + self.front_end;
        let transfer = self.network.as_ref().map_or(f64::INFINITY, Network::next_arrival);
        self.next_other = transfer.min(self.controls.next());
    }

    fn arrive(&mut self, now: f64) {
        let Some(asked) = self.source.take() else { return };
        self.next_arrival = self.source.next_time() + self.front_end;
        self.now = now;
        if self.sink.recorder.needs_mark(asked.id) {
            let totals = self.totals();
            self.sink.recorder.mark(asked.id, totals);
        }
        self.arrived += 1;
        self.send(Sequence::new(asked));
    }

    /// Brings a request to a replica that computes prompts.
    pub(super) fn send(&mut self, sequence: Sequence<'a>) {
        match self.router.choose(&mut self.replicas, self.entry.clone(), &sequence, self.now) {
            Some(index) => self.queue(index, sequence),
            None => self.stranded.push_back(sequence),
        }
    }

    #[inline]
    fn queue(&mut self, index: usize, sequence: Sequence<'a>) {
        let replica = &mut self.replicas[index];
        replica.queue(sequence, self.now, &mut self.sink);
        self.due[index] = replica.end;
    }

    #[inline]
    fn happen(&mut self, index: usize) {
        let replica = &mut self.replicas[index];
        replica.happen(&mut self.sink);
        self.due[index] = replica.end;
        if self.sink.ended > 0 {
            let answers = std::mem::take(&mut self.sink.ended);
            self.completed += answers;
            if self.source.hears_of_answers() {
                self.source.answered(answers, self.sink.ended_at);
                self.look_ahead();
            }
        }
        if !self.sink.handoffs.is_empty() {
            self.hand_over();
        }
        if self.sink.recorder.due(self.now) {
            let totals = self.totals();
            self.sink.recorder.sample(totals);
        }
    }

    /// Sends the caches of prompts that have been computed.
    fn hand_over(&mut self) {
        for handoff in self.sink.handoffs.drain(..) {
            if let Some(network) = &mut self.network {
                network.send(handoff);
            }
        }
        self.look_ahead();
    }

    /// False if nothing is left but to ask whether there should be more replicas.
    fn do_other(&mut self, now: f64) -> bool {
        let idle = self.arrived == self.completed && self.source.next_time() == f64::INFINITY;
        if idle {
            return false;
        }
        self.now = now;
        match self.network.as_mut().and_then(|network| network.arrived_by(now)) {
            Some(sequence) => self.go_on(sequence),
            None => self.control(),
        }
        self.look_ahead();
        true
    }

    /// A cache has arrived: its request goes on at a replica that decodes.
    fn go_on(&mut self, sequence: Sequence<'a>) {
        match self.decode_router.choose(&mut self.replicas, self.decode.clone(), &sequence, self.now) {
            Some(index) => {
                self.sink.log(self.now, index as u32, sequence.asked.id, EventKind::Transferred);
                self.queue(index, Sequence { resumes: true, ..sequence });
            }
            None => self.stranded.push_back(sequence),
        }
    }

    /// Requests that found no replica try again.
    pub(super) fn rescue(&mut self) {
        for _ in 0..self.stranded.len() {
            let Some(sequence) = self.stranded.pop_front() else { break };
            self.send(sequence);
        }
    }

    /// Integrals and counts of all replicas up to now.
    pub(super) fn totals(&mut self) -> Totals {
        let mut sum = Totals::default();
        for replica in &mut self.replicas {
            sum = sum + replica.totals_at(self.now);
        }
        sum.available_s += self.controls.available_until(self.now);
        Totals { time_s: self.now, arrived: self.arrived, ..sum }
    }
}

/// A moment, and what rounding may have added: clients of a closed loop come back at the very end of a step again and again, and whether a sum of
/// times is a digit more or less must not decide who shares a step.
#[inline]
pub(super) fn with_rounding(moment_s: f64) -> f64 {
    moment_s + moment_s * ROUNDING
}

/// Share of a time that counts as rounding.
pub(super) const ROUNDING: f64 = 1e-12;

/// Arrivals and answers between two looks at progress.
const PACE: u64 = 2048;
