//! M/D/c: several servers, all services alike; the mean wait, exactly.

use super::erlang::SERVER_LIMIT;
use super::poisson::probability;
use super::{Mmc, QueueError, check};
use std::f64::consts::PI;

/// Poisson arrivals, services of constant length, `c` servers, one queue, first come first served.
///
/// # Method
/// The number queued, seen once per service time, is a random walk that gains the arrivals of that time and loses `c`. Its mean has two exact forms; the
/// one with fewer terms is taken:
/// - *Spitzer's identity*: `sum over n of E[(N(n a) - n c)^+] / n`, with `N(x)` a Poisson number of mean `x` and `a` the offered load. Only positive terms,
///   so tiny queues keep their digits; the terms fall by `e^(-c (rho - 1 - ln rho))` each.
/// - *Roots*: `(a^2 - c (c-1)) / (2 (c - a)) + sum over k from 1 to c-1 of 1/(1 - z_k)`, with `z_k` the root of `z = w^k e^(rho (z-1))` inside the unit circle and
///   `w` the first `c`th root of 1: for high loads, where `c (rho - 1 - ln rho)` is below 0.7.
///
/// References: F. Spitzer, Transactions of the AMS 82 (1956) 323; C. D. Crommelin, Post Office Electrical Engineers' Journal 25 (1932) 41;
/// A. J. E. M. Janssen and J. S. H. van Leeuwaarden, Queueing Systems 50 (2005) 141.
///
/// ```
/// use llm_roofline::queueing::Mdc;
///
/// let queue = Mdc::new(7.2, 1.0, 8)?;
/// assert_eq!(format!("{:.4}", queue.mean_wait()), "0.4500");
/// # Ok::<(), llm_roofline::queueing::QueueError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mdc {
    exponential: Mmc,
    mean_wait: f64,
}

/// Decay per term of the sum below which roots are faster.
const SLOW: f64 = 0.7;
/// The most servers for which roots are computed.
const ROOT_LIMIT: u64 = 1_000_000;

impl Mdc {
    /// A queue of `arrival_rate` arrivals per unit of time, each of which is served for `service` units.
    ///
    /// # Errors
    /// As [`Mmc::new`]; [`QueueError::Count`] for more than a million servers so near to their limit that roots are needed.
    pub fn new(arrival_rate: f64, service: f64, servers: u64) -> Result<Self, QueueError> {
        let exponential = Mmc::new(arrival_rate, service, servers)?;
        let (rho, offered) = (exponential.load(), exponential.offered_load());
        let queue_in_services = if servers == 1 {
            rho * rho / (2.0 * (1.0 - rho))
        } else if rho < 1e-100 {
            0.0
        } else if servers as f64 * (rho - 1.0 - rho.ln()) >= SLOW {
            queue_by_sum(servers as f64, offered)
        } else {
            check::count("servers at a high load", servers, 1, ROOT_LIMIT.min(SERVER_LIMIT))?;
            queue_by_roots(servers, offered)
        };
        let mean_wait = if offered < 1e-100 { 0.0 } else { queue_in_services / offered * service };
        Ok(Self { exponential, mean_wait })
    }

    /// The same queue with exponential services.
    pub const fn exponential(&self) -> &Mmc {
        &self.exponential
    }

    /// Share of time that a server is busy.
    pub fn load(&self) -> f64 {
        self.exponential.load()
    }

    /// Mean time in the queue, exactly.
    pub const fn mean_wait(&self) -> f64 {
        self.mean_wait
    }

    /// Mean time in the queue, by Cosmetatos' closed form.
    ///
    /// # Formula
    /// `1/2 [1 + (1 - rho)(c - 1)(sqrt(4 + 5c) - 2) / (16 rho c)]` times the wait of M/M/c (G. P. Cosmetatos, Operational Research Quarterly 26 (1975) 615).
    ///
    /// # Validity
    /// Within 1 % for loads from 0.5 on and up to eight servers. The correction grows without limit at low loads, where it is cut off at the wait of M/M/c.
    pub fn mean_wait_cosmetatos(&self) -> f64 {
        let (rho, servers) = (self.load(), self.exponential.servers() as f64);
        if rho == 0.0 {
            return 0.0;
        }
        let correction = (1.0 - rho) * (servers - 1.0) * ((4.0 + 5.0 * servers).sqrt() - 2.0) / (16.0 * rho * servers);
        0.5 * (1.0 + correction.min(1.0)) * self.exponential.mean_wait()
    }

    /// Mean time in queue and service.
    pub fn mean_sojourn(&self) -> f64 {
        self.mean_wait + self.exponential.mean_sojourn() - self.exponential.mean_wait()
    }
}

/// Mean number queued, as a sum over random walks.
fn queue_by_sum(servers: f64, offered: f64) -> f64 {
    let mut sum = 0.0;
    for n in 1..100_000 {
        let n = f64::from(n);
        let term = mean_excess(n * offered, n * servers) / n;
        sum += term;
        // What is left is at most a geometric series: a term over the decay.
        if term <= sum * 1e-17 * SLOW {
            break;
        }
    }
    sum
}

/// `E[(N - k)^+]` for a Poisson number of mean `m` below the integer `k`.
fn mean_excess(mean: f64, k: f64) -> f64 {
    let (mut term, mut sum, mut i) = (1.0, 0.0, 0.0);
    // Terms i p(k + i) / p(k); those of p shrink by m/(k+i) each.
    while term * (i + 1.0) > sum * 1e-17 {
        i += 1.0;
        term *= mean / (k + i);
        sum += i * term;
    }
    sum * probability(k, mean)
}

/// Mean number queued, from the roots of the generating function.
fn queue_by_roots(servers: u64, offered: f64) -> f64 {
    let count = servers as f64;
    let rho = offered / count;
    // Roots come in conjugate pairs, k and c - k, and a real one in the middle of an even number.
    let real_part = |k: u64| {
        let (re, im) = root(rho, 2.0 * PI * k as f64 / count);
        (1.0 - re) / ((1.0 - re) * (1.0 - re) + im * im)
    };
    let pairs: f64 = (1..servers.div_ceil(2)).map(|k| 2.0 * real_part(k)).sum();
    let middle = if servers.is_multiple_of(2) { real_part(servers / 2) } else { 0.0 };
    ((offered * offered - count * (count - 1.0)) / (2.0 * (count - offered)) + pairs + middle).max(0.0)
}

/// The root of `z = e^(i angle + rho (z - 1))` in the unit circle: steps of the contraction, then Newton's.
fn root(rho: f64, angle: f64) -> (f64, f64) {
    let image = |(re, im): (f64, f64)| {
        let size = (rho * (re - 1.0)).exp();
        let (sin, cos) = (angle + rho * im).sin_cos();
        (size * cos, size * sin)
    };
    let mut z = (0.0, 0.0);
    for _ in 0..4 {
        z = image(z);
    }
    for _ in 0..60 {
        let g = image(z);
        // (g - z) / (1 - rho g)
        let (num, den) = ((g.0 - z.0, g.1 - z.1), (1.0 - rho * g.0, -rho * g.1));
        let square = den.0 * den.0 + den.1 * den.1;
        let step = ((num.0 * den.0 + num.1 * den.1) / square, (num.1 * den.0 - num.0 * den.1) / square);
        z = (z.0 + step.0, z.1 + step.1);
        if step.0.abs() + step.1.abs() < 1e-15 {
            break;
        }
    }
    z
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two derivations of one number.
    #[test]
    fn sum_and_roots_agree() {
        for (servers, rho) in [(2, 0.6), (2, 0.9), (3, 0.8), (7, 0.9), (16, 0.9), (64, 0.95), (500, 0.99)] {
            let offered = servers as f64 * rho;
            let (sum, roots) = (queue_by_sum(servers as f64, offered), queue_by_roots(servers, offered));
            assert!((sum / roots - 1.0).abs() < 1e-9, "{servers} {rho}: {sum} {roots}");
        }
    }
}
