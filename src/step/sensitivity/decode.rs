//! The derivative of many decode steps at once: the closed form of the run, term by term.

use super::{Direction, ResourceShares, StepSensitivity, Three, of_all};
use crate::step::cost::OperatorTimes;
use crate::step::model::StepModel;
use crate::step::run::{crossing, decode_load, slopes, straight_steps};
use crate::units::Seconds;

impl StepSensitivity<'_> {
    /// What the time of [`decode_run`](StepModel::decode_run) is made of.
    ///
    /// # Formula
    /// On each side of the step at which attention turns from one limit to the other, the derivative of an arithmetic series.
    pub fn decode_shares(&self, sequences: u64, cached: u64, steps: u64) -> ResourceShares {
        let micro_batches = self.model.pipeline.decode_micro_batches(sequences as f64);
        let run = Run { batch: sequences as f64 / micro_batches, cached, steps };
        let once =
            self.model.decode_run(sequences, cached, steps).total() / self.model.pipeline.stage_loss(micro_batches);
        self.through_stages(micro_batches, once, |direction| direction.slope_of_run(self.model, &run))
    }
}

/// Steps of equal sequences that pass the layers together.
struct Run {
    batch: f64,
    cached: u64,
    steps: u64,
}

impl Direction {
    fn slope_of_run(&self, model: &StepModel, run: &Run) -> f64 {
        let (reaches, mut cached, mut left) = (model.reaches(), run.cached, run.steps);
        let first = decode_load(model, 1, cached, run.batch);
        let mut slope = self.slope_without_decode_attention(model, &first) * run.steps as f64;
        while left > 0 && run.batch > 0.0 {
            let load = decode_load(model, 1, cached, run.batch);
            let straight = straight_steps(reaches, 1, cached).min(left);
            let pairs = slopes(reaches, run.batch, |reach| reach.slope(cached.saturating_add(1)));
            let entries = slopes(reaches, run.batch, |reach| reach.read_slope(cached, 1));
            let Three { here, slower, faster } = self.terms(model, &load);
            for three in of_all(&here.decode_attention, &slower.decode_attention, &faster.decode_attention) {
                let reach = three.here.term.reach;
                slope += of_series(
                    three,
                    straight,
                    |named| named.term.times(load.decode()),
                    |named| named.term.growth(pairs[reach], entries[reach]),
                );
            }
            let count = straight as f64;
            for three in of_all(&here.transfers, &slower.transfers, &faster.transfers) {
                slope += three.difference(|named| {
                    let growth = named.term.entries_time(entries[named.term.reach]);
                    named.term.cache_time(load.decode()) * count + growth * ((count - 1.0) * count / 2.0)
                });
            }
            cached = cached.saturating_add(straight);
            left -= straight;
        }
        slope
    }
}

/// The derivative of `steps` passes of an attention operator whose times grow by the same from step to step.
fn of_series<T>(
    three: Three<'_, T>,
    steps: u64,
    start: impl Fn(&T) -> OperatorTimes,
    growth: impl Fn(&T) -> OperatorTimes,
) -> f64 {
    let (first, more) = (start(three.here), growth(three.here));
    let seconds = |a: Seconds, b: Seconds| (a.as_seconds(), b.as_seconds());
    let turn = crossing(seconds(first.compute, more.compute), seconds(first.memory, more.memory), steps);
    let mut slope = 0.0;
    for (from, to) in [(0, turn), (turn, steps)] {
        if to > from {
            let count = (to - from) as f64;
            let offsets = (from as f64 + (to - 1) as f64) * count / 2.0;
            let sum = |start: Seconds, growth: Seconds| start * count + growth * offsets;
            let (compute, memory) = (sum(first.compute, more.compute), sum(first.memory, more.memory));
            let limit = |times: &OperatorTimes| if compute > memory { times.compute } else { times.memory };
            slope += three.difference(|term| {
                let (start, growth) = (start(term), growth(term));
                sum(limit(&start), limit(&growth)) + start.fixed * count
            });
        }
    }
    slope
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Catalog;
    use crate::deployment::Deployment;
    use crate::hardware::System;
    use crate::step::load::StepLoad;

    #[test]
    fn the_closed_form_is_the_sum_of_steps() {
        let catalog = Catalog::embedded();
        // Windows that fill up within the run, and experts.
        for (name, cached) in [("gpt-oss-20b", 100), ("llama-3.1-8b", 10)] {
            let system = System::new(catalog.device("h100-sxm-80gb").unwrap(), 1).unwrap();
            let deployment = Deployment::new(catalog.model(name).unwrap(), system);
            let deployment = deployment.with_engine(catalog.engine("vllm-2026").unwrap());
            let model = StepModel::compile(&deployment).unwrap();
            let sensitivity = model.sensitivity().unwrap();
            let at_once = sensitivity.decode_shares(4, cached, 60);
            let mut one_by_one = ResourceShares::default();
            for step in 0..60 {
                let mut load = StepLoad::new(*model.reaches());
                load.add_decode(cached + step, 1, 4.0);
                one_by_one += &sensitivity.shares(&load);
            }
            for (spec, share) in at_once.iter() {
                let difference = (share - one_by_one.of(spec)).as_seconds().abs();
                assert!(difference < 1e-11 * at_once.total().as_seconds(), "{name}, {spec}: {difference}");
            }
            assert!((at_once.sum() / at_once.total() - 1.0).abs() < 1e-11);
        }
    }
}
