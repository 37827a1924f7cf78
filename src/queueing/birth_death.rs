//! Birth-death chains: a server whose speed depends on how many are present.

use super::{QueueError, States, check};

/// The most states that are computed.
const STATE_LIMIT: u64 = 1 << 24;
/// Service rates and ratios of neighbouring probabilities that can be multiplied without overflow.
const RATE_RANGE: (f64, f64) = (1e-100, 1e100);
/// Weights are scaled down beyond this.
const LARGE: f64 = 1e100;
/// Share of the moments that may lie beyond the last state computed.
const BEYOND: f64 = 1e-16;

/// Customers that arrive one by one and leave one by one, at rates that depend on how many are present.
///
/// `service_rate(n)` is the rate at which one of `n` leaves, for `n` from 1 on: `min(n, c) mu` is M/M/c; `min(n, M) / tau(min(n, M))` a server that works on
/// up to `M` at once, each of which takes `tau(b)` among `b`.
///
/// # Formula
/// `p_n = p_0` times the product over `i` from 1 to `n` of `lambda_{i-1} / service_rate(i)`. The products are scaled as they grow, so no number of states overflows.
///
/// # Validity
/// Poisson arrivals; exponential services, or any services as long as all that are present share the server equally (processor sharing): then the distribution
/// depends on mean service times only.
///
/// ```
/// use llm_roofline::queueing::BirthDeath;
///
/// // Sixteen slots; a step takes 10 ms plus 0.1 ms for each busy slot, and a request 100 steps. At most 100 present.
/// let steps = |batch: f64| 100.0 * (0.010 + 0.0001 * batch);
/// let rate = |n: usize| n.min(16) as f64 / steps(n.min(16) as f64);
/// let server = BirthDeath::new(10.0, rate, Some(100))?.with_slots(16)?;
/// let summary = server.summary()?;
/// assert_eq!(format!("{:.2} busy, {:.2} waiting", summary.mean_in_service, summary.mean_in_queue), "11.21 busy, 0.38 waiting");
/// assert_eq!(server.solve()?.quantile(0.99)?, 24); // present, in 99 % of the time at most
/// # Ok::<(), llm_roofline::queueing::QueueError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct BirthDeath<F> {
    arrivals: Arrivals,
    service_rate: F,
    slots: Option<u64>,
    capacity: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
enum Arrivals {
    Open { rate: f64 },
    Closed { population: f64, each: f64 },
}

impl Arrivals {
    fn rate(self, present: f64) -> f64 {
        match self {
            Self::Open { rate } => rate,
            Self::Closed { population, each } => (population - present) * each,
        }
    }
}

/// Means over all states of a [`BirthDeath`] chain.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct BirthDeathSummary {
    /// Mean number present.
    pub mean_number: f64,
    /// Variance of the number present.
    pub variance: f64,
    /// Mean number in service: those present, at most the slots.
    pub mean_in_service: f64,
    /// Mean number that finds no slot.
    pub mean_in_queue: f64,
    /// Customers that leave per unit of time; the same number enters.
    pub throughput: f64,
    /// Share of arrivals that are turned away at the capacity; 0 without one.
    pub blocking: f64,
    /// Share of time in which nobody is present.
    pub probability_empty: f64,
    /// Share of time in which all slots are taken; 0 if there is no limit to them.
    pub probability_full: f64,
    /// Largest probability that the states beyond the last one computed can have; 0 if the capacity was reached or the rest summed in closed form.
    pub tail: f64,
}

impl BirthDeathSummary {
    /// Mean time from entering to leaving, by Little's law.
    pub fn mean_sojourn(&self) -> f64 {
        self.mean_number / self.throughput
    }

    /// Mean time until a slot is free, by Little's law.
    pub fn mean_wait(&self) -> f64 {
        self.mean_in_queue / self.throughput
    }

    /// Mean time in a slot, by Little's law.
    pub fn mean_service(&self) -> f64 {
        self.mean_in_service / self.throughput
    }
}

/// What a walk through the states tells.
enum Event {
    /// The weight of the next state.
    State(f64),
    /// All weights so far are to be multiplied.
    Scale(f64),
}

/// Sums of weights over the states.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    weight: f64,
    number: f64,
    square: f64,
    served: f64,
    queued: f64,
    full: f64,
    entering: f64,
    empty: f64,
    turned_away: f64,
    beyond: f64,
}

impl Sums {
    fn add(&mut self, n: f64, weight: f64, slots: f64) {
        self.weight += weight;
        self.number += n * weight;
        self.square += n * n * weight;
        self.served += n.min(slots) * weight;
        self.queued += (n - slots).max(0.0) * weight;
        self.full += if n >= slots { weight } else { 0.0 };
    }

    fn scale(&mut self, by: f64) {
        for sum in [
            &mut self.weight,
            &mut self.number,
            &mut self.square,
            &mut self.served,
            &mut self.queued,
            &mut self.full,
            &mut self.entering,
            &mut self.empty,
        ] {
            *sum *= by;
        }
    }

    fn summary(&self) -> BirthDeathSummary {
        let mean_number = self.number / self.weight;
        BirthDeathSummary {
            mean_number,
            variance: (self.square / self.weight - mean_number * mean_number).max(0.0),
            mean_in_service: self.served / self.weight,
            mean_in_queue: self.queued / self.weight,
            throughput: self.entering / self.weight,
            blocking: self.turned_away / self.weight,
            probability_empty: self.empty / self.weight,
            probability_full: self.full / self.weight,
            tail: self.beyond / self.weight,
        }
    }
}

impl<F: Fn(usize) -> f64> BirthDeath<F> {
    /// Poisson arrivals of `arrival_rate`; with a `capacity`, arrivals that find so many present are turned away.
    ///
    /// Without a capacity, states are added until the rest is negligible. The rest is bounded by a geometric series, which supposes that service rates do
    /// not fall from there on; with [`with_slots`](Self::with_slots) it is summed in closed form.
    ///
    /// # Errors
    /// [`QueueError::Number`] for a rate that is not from 1e-90 to 1e90, [`QueueError::Count`] for a capacity that is not from 1 to 16,777,216.
    pub fn new(arrival_rate: f64, service_rate: F, capacity: Option<usize>) -> Result<Self, QueueError> {
        let rate = check::positive("arrival rate", arrival_rate)?;
        let capacity = capacity.map(|most| check::count("capacity", most as u64, 1, STATE_LIMIT)).transpose()?;
        Ok(Self { arrivals: Arrivals::Open { rate }, service_rate, slots: None, capacity })
    }

    /// A fixed number of customers that come back after a mean `think_time` (of any distribution): a load test with so many clients.
    ///
    /// # Errors
    /// [`QueueError::Number`] for a time that is not from 1e-90 to 1e90, [`QueueError::Count`] for a population that is not from 1 to 16,777,216.
    ///
    /// ```
    /// use llm_roofline::queueing::BirthDeath;
    ///
    /// let clients = BirthDeath::closed(10, 5.0, |_| 1.0 / 0.5)?.summary()?; // half a second each, five seconds of thought
    /// assert_eq!(format!("{:.4} {:.4}", clients.throughput, clients.mean_sojourn()), "1.5708 1.3660");
    /// # Ok::<(), llm_roofline::queueing::QueueError>(())
    /// ```
    pub fn closed(population: usize, think_time: f64, service_rate: F) -> Result<Self, QueueError> {
        let think_time = check::within("think time", think_time, 1e-90, 1e90)?;
        let most = check::count("population", population as u64, 1, STATE_LIMIT)?;
        let arrivals = Arrivals::Closed { population: most as f64, each: 1.0 / think_time };
        Ok(Self { arrivals, service_rate, slots: None, capacity: Some(most) })
    }

    /// At most so many are served at once: the others queue, and the service rate with more present is that with `slots`.
    ///
    /// # Errors
    /// [`QueueError::Count`] unless from 1 to 16,777,216.
    pub fn with_slots(self, slots: usize) -> Result<Self, QueueError> {
        Ok(Self { slots: Some(check::count("slots", slots as u64, 1, STATE_LIMIT)?), ..self })
    }

    /// Means and probabilities, without storing the states: allocates nothing.
    ///
    /// # Errors
    /// [`QueueError::ServiceRate`] for a rate of service that is not from 1e-100 to 1e100, [`QueueError::Unstable`] or [`QueueError::NoEnd`] if the number present grows
    /// for ever.
    pub fn summary(&self) -> Result<BirthDeathSummary, QueueError> {
        Ok(self.walk(true, |_| {})?.summary())
    }

    /// The probability of every state.
    ///
    /// # Errors
    /// As [`summary`](Self::summary).
    pub fn solve(&self) -> Result<States, QueueError> {
        self.solve_into(Vec::new())
    }

    /// The probability of every state, in a buffer that is used again: see [`States::into_buffer`].
    ///
    /// # Errors
    /// As [`summary`](Self::summary).
    pub fn solve_into(&self, mut buffer: Vec<f64>) -> Result<States, QueueError> {
        buffer.clear();
        // Weights that were scaled down to nothing stay so.
        let mut first = 0;
        let sums = self.walk(false, |event| match event {
            Event::State(weight) => buffer.push(weight),
            Event::Scale(by) => {
                buffer[first..].iter_mut().for_each(|weight| *weight *= by);
                first += buffer[first..].iter().take_while(|weight| **weight == 0.0).count();
            }
        })?;
        buffer.iter_mut().for_each(|weight| *weight /= sums.weight);
        Ok(States::new(buffer, sums.summary()))
    }

    /// Goes through the states; with `in_closed_form`, those beyond the slots of a chain without capacity are summed instead.
    fn walk(&self, in_closed_form: bool, mut visit: impl FnMut(Event)) -> Result<Sums, QueueError> {
        let last = self.capacity.unwrap_or(STATE_LIMIT);
        let unlimited = self.capacity.is_none();
        let (slots, slot_count) = (self.slots.unwrap_or(u64::MAX), self.slots.map_or(f64::INFINITY, |n| n as f64));
        let mut sums = Sums { empty: 1.0, ..Sums::default() };
        let (mut weight, mut ratio, mut rate) = (1.0, 0.0, f64::NAN);
        sums.add(0.0, weight, slot_count);
        visit(Event::State(weight));
        for n in 1..=last {
            let arriving = self.arrivals.rate((n - 1) as f64);
            sums.entering += weight * arriving;
            if n <= slots {
                rate = self.rate(n)?;
            }
            ratio = arriving / rate;
            weight *= ratio;
            if weight > LARGE {
                let by = 1.0 / weight;
                sums.scale(by);
                visit(Event::Scale(by));
                weight = 1.0;
            }
            sums.add(n as f64, weight, slot_count);
            visit(Event::State(weight));
            if weight == 0.0 {
                return Ok(sums);
            }
            if unlimited && n >= slots && ratio >= 1.0 {
                return Err(QueueError::Unstable { rho: ratio });
            }
            if unlimited && ratio < 1.0 && (n >= slots || self.slots.is_none()) {
                let tail = Geometric { n: n as f64, weight, ratio };
                if in_closed_form && self.slots.is_some() {
                    sums.add_tail(tail, slot_count, arriving);
                    return Ok(sums);
                }
                let few_wait = self.slots.is_none() || tail.weight() <= BEYOND * sums.full;
                if few_wait && tail.square() <= BEYOND * sums.square {
                    sums.entering += weight * arriving;
                    sums.beyond = tail.weight();
                    return Ok(sums);
                }
            }
        }
        if unlimited {
            return Err(QueueError::NoEnd { states: last, ratio });
        }
        sums.turned_away = if matches!(self.arrivals, Arrivals::Open { .. }) { weight } else { 0.0 };
        Ok(sums)
    }

    fn rate(&self, n: u64) -> Result<f64, QueueError> {
        let value = (self.service_rate)(n as usize);
        if value >= RATE_RANGE.0 && value <= RATE_RANGE.1 {
            Ok(value)
        } else {
            Err(QueueError::ServiceRate { state: n, value })
        }
    }
}

/// States beyond the `n`th, each `ratio` times as probable as the one before.
#[derive(Clone, Copy)]
struct Geometric {
    n: f64,
    weight: f64,
    ratio: f64,
}

impl Geometric {
    fn weight(self) -> f64 {
        self.weight * self.ratio / (1.0 - self.ratio)
    }

    /// Sum of `(n + j) r^j`.
    fn number(self) -> f64 {
        self.weight() * (self.n + 1.0 / (1.0 - self.ratio))
    }

    /// Sum of `(n + j)^2 r^j`.
    fn square(self) -> f64 {
        let mean = 1.0 / (1.0 - self.ratio);
        self.weight() * (self.n * self.n + 2.0 * self.n * mean + (1.0 + self.ratio) * mean * mean)
    }
}

impl Sums {
    fn add_tail(&mut self, tail: Geometric, slots: f64, arriving: f64) {
        self.entering += (tail.weight + tail.weight()) * arriving;
        self.weight += tail.weight();
        self.number += tail.number();
        self.square += tail.square();
        self.served += slots * tail.weight();
        self.queued += Geometric { n: tail.n - slots, ..tail }.number();
        self.full += tail.weight();
    }
}
