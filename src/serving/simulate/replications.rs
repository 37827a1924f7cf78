//! Independent runs of the same simulation, in parallel.

use super::outcome::{Outcome, summarise};
use super::simulation::Simulation;
use super::statistics::Statistics;
use crate::parallel::in_order_on;
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
        let outcomes = in_order_on(threads.get(), 0..runs as usize, |run| {
            self.clone().with_seed(self.seed().wrapping_add(run as u64)).run(workload, requests)
        });
        let endless = workload.arrivals().mean_rate().is_some();
        Ok(combine(outcomes.into_iter().collect::<Result<Vec<_>, _>>()?, endless))
    }
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
