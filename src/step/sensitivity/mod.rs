//! Which number of a data sheet the time of a step is made of: exact derivatives of the step model.

mod decode;
mod shares;

pub use shares::ResourceShares;

use super::compile::Terms;
use super::cost::OperatorTimes;
use super::load::StepLoad;
use super::model::{CompileError, StepModel};
use crate::deployment::{Spec, SpecError};
use crate::roofline::{smooth_max, smooth_max_slopes};
use crate::units::Seconds;

/// A step model that cannot be taken the derivative of.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SensitivityError {
    /// A number cannot be changed.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The changed deployment is impossible.
    #[error(transparent)]
    Compile(#[from] CompileError),
}

/// The derivatives of a step model with respect to every [`Spec`] that times depend on.
///
/// # Formula
/// The *share* of a resource is the time `s` with `d ln T / d ln rate = -s / T`: the seconds that shrink when the rate grows. All coefficients of the model are
/// sums of `constant / rate`, so half the difference of each between rates that are `1 ± h` times as slow, over `h`, is its derivative without any error but that of
/// rounding. The smooth maximum of arithmetic and memory is differentiated in closed form
/// ([`smooth_max_slopes`]); of several limits that a law takes the lowest of, the one that holds has the share.
/// Times are homogeneous: doubled rates and halved overheads halve them. So the shares of all [resources](Spec::resources) add up to the time (Euler).
///
/// # Validity
/// - Steps cost nothing else than rates and times, so a share is what a *slightly* better resource gains. A factor of 2 may pass a kink: measure that anew.
/// - Within `h` = 1/1024 of a switch between algorithms of a collective, or between limits of a law, the share is that of both sides.
/// - Under a power limit the peak of a *single* format also changes what the limit means (`sustained_tflops_per_watt` is in 16-bit operations): that share is exact to
///   10⁻⁶, and of 16 bits it may be negative. All formats together have no such term.
/// - Decode batches over unequal devices wait for the slowest: that factor's derivative is exact to 10⁻⁶ of it, and the shares add up to 10⁻⁶.
///
/// # Examples
/// ```
/// use llm_roofline::deployment::Spec;
/// use llm_roofline::prelude::*;
/// let catalog = Catalog::embedded();
/// let system = System::new(catalog.device("h100-sxm-80gb")?, 1)?;
/// let deployment = Deployment::new(catalog.model("llama-3.1-8b")?, system).with_engine(catalog.engine("vllm-2026")?);
/// let model = StepModel::compile(&deployment)?;
/// let mut load = model.load();
/// load.add_decode(1000, 1, 16.0);
/// let shares = model.sensitivity()?.shares(&load);
/// // Most of a decode step is reading: the elasticity would be -1 if all of it were.
/// assert!((-0.9..-0.6).contains(&shares.elasticity(Spec::MemoryBandwidth)));
/// assert!(shares.elasticity(Spec::Overhead) > 0.1); // a time: more of it is slower
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct StepSensitivity<'a> {
    model: &'a StepModel,
    directions: Vec<Direction>,
}

/// The model with one resource slightly slower and slightly faster.
#[derive(Clone, Debug)]
struct Direction {
    spec: Spec,
    slower: StepModel,
    faster: StepModel,
}

/// How much slower and faster. A power of two, large enough for ten digits of every difference; coefficients are straight lines, so it need not be small.
const STEP: f64 = 1.0 / 1024.0;

impl StepModel {
    /// Derivatives with respect to every number that times depend on; compiles two models for each.
    ///
    /// # Errors
    /// [`SensitivityError`] for devices at the edge of what a profile may say.
    pub fn sensitivity(&self) -> Result<StepSensitivity<'_>, SensitivityError> {
        let deployment = self.deployment();
        let specs = Spec::resources(deployment).into_iter().chain(Spec::formats(deployment));
        let directions = specs.map(|spec| Direction::new(spec, self)).collect::<Result<_, _>>()?;
        Ok(StepSensitivity { model: self, directions })
    }
}

impl StepSensitivity<'_> {
    /// The model that it is the derivative of.
    pub const fn model(&self) -> &StepModel {
        self.model
    }

    /// What the time of one step is made of.
    pub fn shares(&self, load: &StepLoad) -> ResourceShares {
        let micro_batches = self.model.pipeline.decode_micro_batches(load.sequences());
        let load = if micro_batches > 1.0 { load.scaled(1.0 / micro_batches) } else { *load };
        let slope = |direction: &Direction| direction.slope_of_step(self.model, &load);
        self.through_stages(micro_batches, self.model.time_at_once(&load), slope)
    }

    /// Times the loss of stages that wait for one another.
    fn through_stages(&self, micro_batches: f64, once: Seconds, slope: impl Fn(&Direction) -> f64) -> ResourceShares {
        let loss = |model: &StepModel| model.pipeline.stage_loss(micro_batches);
        let here = loss(self.model);
        let share = |direction: &Direction| {
            let of_loss = half_difference(loss(&direction.slower), loss(&direction.faster));
            Seconds::from_seconds(here * slope(direction) + once.as_seconds() * of_loss)
        };
        let shares = self.directions.iter().map(|direction| (direction.spec, share(direction)));
        ResourceShares::new(once * here, shares.collect())
    }
}

impl Direction {
    fn new(spec: Spec, model: &StepModel) -> Result<Self, SensitivityError> {
        let at = |slower: f64| {
            let factor = if spec == Spec::Overhead { slower } else { 1.0 / slower };
            Ok::<_, SensitivityError>(StepModel::compile(&spec.times(factor, model.deployment())?)?)
        };
        Ok(Self { spec, slower: at(1.0 + STEP)?, faster: at(1.0 - STEP)? })
    }

    /// The derivative of the time of a step whose tokens pass through the layers together.
    fn slope_of_step(&self, model: &StepModel, load: &StepLoad) -> f64 {
        let mut slope = self.slope_without_decode_attention(model, load);
        if load.decode().tokens > 0.0 {
            let Three { here, slower, faster } = self.terms(model, load);
            let all = of_all(&here.decode_attention, &slower.decode_attention, &faster.decode_attention);
            slope += all.map(|three| three.slope(0.0, |named| named.term.times(load.decode()))).sum::<f64>();
            let all = of_all(&here.transfers, &slower.transfers, &faster.transfers);
            slope += all.map(|three| three.difference(|named| named.term.cache_time(load.decode()))).sum::<f64>();
        }
        slope
    }

    fn slope_without_decode_attention(&self, model: &StepModel, load: &StepLoad) -> f64 {
        if load.tokens() <= 0.0 {
            return 0.0;
        }
        let three = self.terms(model, load);
        let Three { here, slower, faster } = three;
        let linears = of_all(&here.linears, &slower.linears, &faster.linears)
            .map(|three| three.slope(three.here.term.serialised, |named| named.term.times(load)));
        let experts = of_all(&here.experts, &slower.experts, &faster.experts)
            .map(|three| three.slope(three.here.term.serialised, |named| named.term.times(load)));
        let prefill = of_all(&here.prefill_attention, &slower.prefill_attention, &faster.prefill_attention)
            .map(|three| three.slope(three.here.term.serialised, |named| named.term.times(load.prefill())));
        let recurrent = of_all(&here.recurrent, &slower.recurrent, &faster.recurrent)
            .map(|three| three.slope(0.0, |named| named.term.times(load)));
        let elementwise = of_all(&here.elementwise, &slower.elementwise, &faster.elementwise)
            .map(|three| three.slope(0.0, |named| named.term.times(load)));
        let sampling = of_all(&here.sampling, &slower.sampling, &faster.sampling)
            .map(|three| three.slope(0.0, |named| named.term.times(load)));
        let transfers = of_all(&here.transfers, &slower.transfers, &faster.transfers).map(|three| {
            three.difference(|named| named.term.time_without_cache(load) + named.term.cache_time(load.prefill()))
        });
        let communication = |terms: &Terms| terms.communication.map_or(Seconds::ZERO, |term| term.time(load));
        let outside = three.difference(|terms| communication(terms) + terms.host.time(load));
        let products = linears.sum::<f64>() + experts.sum::<f64>();
        let layers = prefill.sum::<f64>() + recurrent.sum::<f64>() + elementwise.sum::<f64>() + sampling.sum::<f64>();
        products + layers + transfers.sum::<f64>() + outside
    }

    fn terms<'a>(&'a self, model: &'a StepModel, load: &StepLoad) -> Three<'a, Terms> {
        Three { here: model.terms(load), slower: self.slower.terms(load), faster: self.faster.terms(load) }
    }
}

/// One thing in the model itself, in the slower and in the faster one.
#[derive(Debug)]
struct Three<'a, T> {
    here: &'a T,
    slower: &'a T,
    faster: &'a T,
}

impl<T> Clone for Three<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Three<'_, T> {}

impl<T> Three<'_, T> {
    /// The derivative of a time that is a straight line in what changes.
    fn difference(&self, time: impl Fn(&T) -> Seconds) -> f64 {
        half_difference(time(self.slower).as_seconds(), time(self.faster).as_seconds())
    }

    /// The derivative of the time of an operator.
    fn slope(&self, serialised: f64, times: impl Fn(&T) -> OperatorTimes) -> f64 {
        let [here, slower, faster] = [self.here, self.slower, self.faster].map(times);
        let (by_compute, by_memory) =
            smooth_max_slopes(here.compute.as_seconds(), here.memory.as_seconds(), serialised);
        // Behind the overlap, and behind the operator.
        let rest = |times: &OperatorTimes| {
            times.total().as_seconds() - smooth_max(times.compute.as_seconds(), times.memory.as_seconds(), serialised)
        };
        by_compute * half_difference(slower.compute.as_seconds(), faster.compute.as_seconds())
            + by_memory * half_difference(slower.memory.as_seconds(), faster.memory.as_seconds())
            + half_difference(rest(&slower), rest(&faster))
    }
}

/// Operators of three compiled models one by one: which there are depends on shapes, and these are equal.
fn of_all<'a, T>(here: &'a [T], slower: &'a [T], faster: &'a [T]) -> impl Iterator<Item = Three<'a, T>> {
    here.iter().zip(slower).zip(faster).map(|((here, slower), faster)| Three { here, slower, faster })
}

fn half_difference(slower: f64, faster: f64) -> f64 {
    (slower - faster) / (2.0 * STEP)
}
