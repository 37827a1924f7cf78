//! Independent runs of the same simulation, in parallel.

use super::outcome::{Outcome, summarise};
use super::simulation::Simulation;
use super::statistics::Statistics;
use crate::serving::ServingError;
use crate::workload::Workload;
use std::num::NonZeroUsize;

impl Simulation<'_> {
    /// Runs with the seeds `seed, seed + 1, ...` and puts them together: numbers are those of all runs, confidence intervals come from the differences
    /// between runs (each is one observation), which is safer than those from within one run. Work is shared among `threads`; the answer does not
    /// depend on their number.
    ///
    /// Times, timelines and replicas are those of the first run.
    ///
    /// # Errors
    /// As [`run`](Self::run); [`ServingError::Number`] for no runs.
    ///
    /// # References
    /// S. Asmussen and P. W. Glynn, Stochastic Simulation, Springer 2007, section III.
    pub fn replicate(
        &self,
        workload: &Workload,
        requests: u64,
        runs: u32,
        threads: NonZeroUsize,
    ) -> Result<Outcome, ServingError> {
        if runs == 0 {
            let expected = "1 or more";
            return Err(ServingError::Number { what: "number of runs", value: 0.0, expected });
        }
        let outcomes = side_by_side(runs as usize, threads.get(), |run| {
            self.clone().with_seed(self.seed().wrapping_add(run as u64)).run(workload, requests)
        });
        let endless = workload.arrivals().mean_rate().is_some();
        Ok(combine(outcomes.into_iter().collect::<Result<Vec<_>, _>>()?, endless))
    }
}

/// Results of tasks in the order of their numbers.
#[cfg(feature = "parallel")]
fn side_by_side<T: Send>(tasks: usize, threads: usize, task: impl Fn(usize) -> T + Sync) -> Vec<T> {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(tasks));
    std::thread::scope(|scope| {
        for _ in 0..threads.min(tasks) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= tasks {
                        break;
                    }
                    let result = task(number);
                    done.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push((number, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, result)| result).collect()
}

/// The same one after another.
#[cfg(not(feature = "parallel"))]
fn side_by_side<T>(tasks: usize, _threads: usize, task: impl Fn(usize) -> T) -> Vec<T> {
    (0..tasks).map(task).collect()
}

fn combine(mut outcomes: Vec<Outcome>, endless: bool) -> Outcome {
    let statistics: Vec<Statistics> = outcomes.iter_mut().map(|run| std::mem::take(&mut run.statistics)).collect();
    let statistics = Statistics::combined(&statistics);
    let sum = |of: fn(&Outcome) -> u64| outcomes.iter().map(of).sum::<u64>();
    let (arrived, completed) = (sum(|run| run.arrived), sum(|run| run.completed));
    let (output_tokens, steps) = (sum(|run| run.output_tokens), sum(|run| run.steps));
    let rho = outcomes.first().and_then(|run| run.summary.rho);
    let mut summary = summarise(&statistics, arrived, completed, endless);
    summary.rho = rho;
    let first = outcomes.into_iter().next().unwrap_or_default();
    Outcome { summary, statistics, arrived, completed, output_tokens, steps, ..first }
}
