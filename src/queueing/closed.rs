//! Closed networks: a fixed number of customers that go round among stations.

use super::{QueueError, check};

/// The most customers and stations.
const LIMIT: u64 = 10_000_000;

/// One place of a closed network, with the mean time that a customer needs there per round when alone (visits times service time).
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Station {
    /// One server: first come first served with exponential times, or shared by all with any times.
    Queue(f64),
    /// As many servers as customers: nobody waits.
    Delay(f64),
}

/// Customers that think for a while, go through all stations, and think again.
///
/// ```
/// use llm_roofline::queueing::{ClosedNetwork, Station};
///
/// // 32 clients, ten seconds between an answer and the next question, a quarter of a second of service.
/// let network = ClosedNetwork::new(10.0, &[Station::Queue(0.25)])?;
/// let solution = network.solve(32)?;
/// assert_eq!(format!("{:.4} {:.4}", solution.throughput, solution.response_time), "2.9668 0.7860");
/// assert_eq!(network.asymptotic_bounds(32)?.high, 32.0 / 10.25);
/// # Ok::<(), llm_roofline::queueing::QueueError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ClosedNetwork {
    think_time: f64,
    stations: Vec<Station>,
}

/// How a closed network runs with some population.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ClosedSolution {
    /// Rounds per unit of time, of all customers together.
    pub throughput: f64,
    /// Mean time of a round without thinking.
    pub response_time: f64,
    /// Mean number at each station, in the order in which they were given.
    pub numbers: Vec<f64>,
    /// Share of time that each station is busy; for a delay the mean number there.
    pub utilizations: Vec<f64>,
}

/// Limits of the throughput.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct ThroughputBounds {
    /// The throughput is not less.
    pub low: f64,
    /// The throughput is not more.
    pub high: f64,
}

impl ClosedNetwork {
    /// A network of `stations`; `think_time` is the mean time that customers spend outside of it.
    ///
    /// # Errors
    /// [`QueueError::Number`] for a think time that is not from 0 to 1e90 or a demand that is not from 1e-90 to 1e90, [`QueueError::Count`] without stations
    /// or for more than ten million.
    pub fn new(think_time: f64, stations: &[Station]) -> Result<Self, QueueError> {
        check::count("stations", stations.len() as u64, 1, LIMIT)?;
        let think_time = check::not_negative("think time", think_time)?;
        for station in stations {
            let (Station::Queue(demand) | Station::Delay(demand)) = *station;
            check::positive("demand at a station", demand)?;
        }
        Ok(Self { think_time, stations: stations.to_vec() })
    }

    /// Throughput, response time and queues with `population` customers.
    ///
    /// # Formula
    /// Exact mean value analysis: an arrival sees the network with one customer less, so `R_k(n) = D_k (1 + Q_k(n-1))` at queues and `D_k` at delays;
    /// `X(n) = n / (Z + sum of R_k(n))`, `Q_k(n) = X(n) R_k(n)` (M. Reiser and S. S. Lavenberg, Journal of the ACM 27 (1980) 313).
    ///
    /// # Errors
    /// [`QueueError::Count`] unless there are 1 to ten million customers.
    pub fn solve(&self, population: u64) -> Result<ClosedSolution, QueueError> {
        let population = check::count("population", population, 1, LIMIT)?;
        let mut numbers = vec![0.0; self.stations.len()];
        let (mut throughput, mut response_time) = (0.0, 0.0);
        for n in 1..=population {
            response_time = 0.0;
            for (number, station) in numbers.iter_mut().zip(&self.stations) {
                // For now the response time; times the throughput it becomes the number.
                *number = match station {
                    Station::Queue(demand) => demand * (1.0 + *number),
                    Station::Delay(demand) => *demand,
                };
                response_time += *number;
            }
            throughput = n as f64 / (self.think_time + response_time);
            numbers.iter_mut().for_each(|number| *number *= throughput);
        }
        let busy = |station: &Station| {
            let (Station::Queue(demand) | Station::Delay(demand)) = station;
            throughput * demand
        };
        Ok(ClosedSolution {
            throughput,
            response_time,
            numbers,
            utilizations: self.stations.iter().map(busy).collect(),
        })
    }

    /// What the busiest station and the shortest possible round allow.
    ///
    /// # Formula
    /// `N / (N D + Z) <= X <= min(1 / D_max, N / (D + Z))` with the sum of the queues' demands `D`, the largest `D_max`, and delays counted as thinking
    /// (E. D. Lazowska et al., Quantitative System Performance, 1984, table 5.1).
    ///
    /// # Errors
    /// As [`solve`](Self::solve).
    pub fn asymptotic_bounds(&self, population: u64) -> Result<ThroughputBounds, QueueError> {
        let n = check::count("population", population, 1, LIMIT)? as f64;
        let Demands { sum, largest, away, .. } = self.demands();
        Ok(ThroughputBounds { low: n / (n * sum + away), high: (n / (sum + away)).min(1.0 / largest.max(1e-100)) })
    }

    /// Tighter bounds: the network lies between ones whose stations are all alike.
    ///
    /// # Formula
    /// `N / (D + Z + (N-1) D_max / (1 + Z/(N D))) <= X <= min(1/D_max, N / (D + Z + (N-1) D_mean / (1 + Z/D)))` (Lazowska et al., table 5.2;
    /// J. Zahorjan et al., Communications of the ACM 25 (1982) 134).
    ///
    /// # Errors
    /// As [`solve`](Self::solve).
    pub fn balanced_job_bounds(&self, population: u64) -> Result<ThroughputBounds, QueueError> {
        let n = check::count("population", population, 1, LIMIT)? as f64;
        let Demands { sum, largest, mean, away } = self.demands();
        if sum == 0.0 {
            return self.asymptotic_bounds(population);
        }
        let round = |waiting: f64, others: f64| n / (sum + away + (n - 1.0) * waiting / (1.0 + away / (others * sum)));
        Ok(ThroughputBounds { low: round(largest, n), high: round(mean, 1.0).min(1.0 / largest) })
    }

    fn demands(&self) -> Demands {
        let mut demands = Demands { sum: 0.0, largest: 0.0, mean: 0.0, away: self.think_time };
        let mut queues = 0.0;
        for station in &self.stations {
            match *station {
                Station::Queue(demand) => {
                    demands.sum += demand;
                    demands.largest = demands.largest.max(demand);
                    queues += 1.0;
                }
                Station::Delay(demand) => demands.away += demand,
            }
        }
        demands.mean = if queues > 0.0 { demands.sum / queues } else { 0.0 };
        demands
    }
}

struct Demands {
    sum: f64,
    largest: f64,
    mean: f64,
    /// Thinking and delays.
    away: f64,
}
