//! The figures of a candidate: what follows from its largest rate alone.

use super::Search;
use super::candidate::{Candidate, Valued};
use super::demand::{Load, Outlook, Slowness};
use super::objective::{Objective, Score};
use crate::planner::Power;
use crate::serving::Server;
use crate::units::{RequestsPerSecond, Watts};

/// What a replica can do, whatever is asked of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    max_rate: RequestsPerSecond,
    /// Share of its time that prompts take when it is full.
    prefill_share: f64,
    /// At the long end of the interval.
    slowest: Slowness,
}

impl Facts {
    pub(super) fn of(server: &Server<'_>) -> Self {
        Self {
            max_rate: server.max_rate(),
            prefill_share: server.phase_times().prefill_share(),
            slowest: Slowness::of(server),
        }
    }

    pub(super) const fn slowness(&self, outlook: Outlook) -> Slowness {
        match outlook {
            Outlook::Expected => Slowness::NONE,
            Outlook::Pessimistic => self.slowest,
        }
    }
}

/// A candidate with its facts under an outlook.
pub(super) struct Figures<'a> {
    pub(super) search: &'a Search<'a>,
    pub(super) candidate: &'a Candidate,
    pub(super) facts: Facts,
    pub(super) slowness: Slowness,
}

impl Figures<'_> {
    pub(super) fn load(&self) -> Load {
        self.search.load.slowed(self.slowness.others)
    }

    /// Output tokens per second at a rate; under a pessimistic outlook the same number of requests comes.
    pub(super) fn output_tokens(&self, rate: RequestsPerSecond) -> f64 {
        rate.as_requests_per_second() * self.search.workload.lengths().moments().output
    }

    /// USD per million output tokens of one replica at a rate.
    pub(super) fn per_million(&self, rate: RequestsPerSecond) -> f64 {
        self.candidate.replica_price / 3600.0 / self.output_tokens(rate / self.slowness.others) * 1e6
    }

    /// The load that replicas have to have room for.
    pub(super) fn load_with_headroom(&self) -> Load {
        self.search.load.grown(self.search.headroom).slowed(self.slowness.others)
    }

    /// The value with as few replicas as any target needs; none beyond the budget.
    pub(super) fn bound(&self) -> Option<f64> {
        let fewest = self.load_with_headroom().fewest(self.facts.max_rate);
        if fewest > f64::from(self.candidate.most) {
            return None;
        }
        Some(match self.search.objective {
            Objective::CostPerMillionTokens => self.per_million(self.facts.max_rate),
            Objective::Latency(..) => 0.0,
            _ => self.value_of(fewest),
        })
    }

    /// The value of so many replicas, for objectives that grow with their number; of energy a lower bound.
    pub(super) fn value_of(&self, replicas: f64) -> f64 {
        let Candidate { devices, replica_price, power, .. } = *self.candidate;
        match (self.search.objective, power) {
            (Objective::Devices, _) => devices * replicas,
            (Objective::Energy, Some(power)) => self.least_joules_per_token(replicas, &power),
            _ => replica_price * replicas,
        }
    }

    /// Energy per output token if replicas were busy for no longer than saturated ones are with as much work: idle power, and what the work adds.
    fn least_joules_per_token(&self, replicas: f64, power: &Power) -> f64 {
        let facility = |watts: Watts| watts.as_watts() * power.pue() * self.candidate.devices;
        let prefill = self.facts.prefill_share;
        let working = power.prefill() * prefill + power.decode() * (1.0 - prefill) - power.idle();
        let (rate, most) = (self.served(replicas), self.facts.max_rate);
        let watts = facility(power.idle() + power.host()) * replicas + facility(working) * (rate / most);
        watts / self.output_tokens(rate / self.slowness.others)
    }

    /// Requests per second of all replicas; of users as many as could be served at most.
    fn served(&self, replicas: f64) -> RequestsPerSecond {
        match self.load() {
            Load::Rate(rate) => rate,
            Load::Users { .. } => self.facts.max_rate * replicas,
        }
    }

    /// The most replicas whose value is at most `worst`.
    pub(super) fn affordable(&self, worst: f64) -> u32 {
        let each = self.value_of(1.0) - self.value_of(0.0);
        let number = if each > 0.0 { (worst - self.value_of(0.0)) / each } else { f64::INFINITY };
        // What is as good as the worst must not be lost to rounding.
        (number * (1.0 + 1e-12)).floor().clamp(0.0, f64::from(self.candidate.most)) as u32
    }

    pub(super) fn valued(&self, value: f64, replicas: u32) -> Valued {
        let Candidate { index, devices, replica_price, .. } = *self.candidate;
        let cost = replica_price * f64::from(replicas);
        Valued { score: Score { value, cost, devices: (devices as u32).saturating_mul(replicas), index }, replicas }
    }
}
