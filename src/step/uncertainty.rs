//! How far a measurement may lie from a step's price: the scatter of the operator laws, weighted with their shares of the time.

use super::cost::StepCost;
use super::model::StepModel;
use super::places::Alone;
use crate::deployment::Deployment;
use crate::engine::{Engine, Keys, Number, Parameter, Resolved};
use crate::operator::OperatorClass;
use crate::profile::Provenance;
use crate::units::Seconds;

/// Nine of ten measurements are expected between the two ends.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Interval {
    /// The 5 % end.
    pub low: Seconds,
    /// The prediction.
    pub expected: Seconds,
    /// The 95 % end.
    pub high: Seconds,
}

/// Standard deviations from the middle to the 5 % and 95 % ends of a normal distribution.
const NINE_OF_TEN: f64 = 1.645;

impl Interval {
    /// Around a time whose logarithm scatters with a standard deviation.
    ///
    /// ```
    /// use llm_roofline::{step::Interval, units::Seconds};
    /// let interval = Interval::around(Seconds::from_millis(10.0), 0.1);
    /// assert_eq!((interval.low.to_string(), interval.high.to_string()), ("8.48 ms".into(), "11.8 ms".into()));
    /// ```
    pub fn around(expected: Seconds, log_deviation: f64) -> Self {
        let factor = (NINE_OF_TEN * log_deviation).exp();
        Self { low: expected / factor, expected, high: expected * factor }
    }
}

impl std::ops::Add for Interval {
    type Output = Self;
    /// Times that follow one another and err together.
    fn add(self, other: Self) -> Self {
        Self { low: self.low + other.low, expected: self.expected + other.expected, high: self.high + other.high }
    }
}

impl std::ops::Div<f64> for Interval {
    type Output = Self;
    fn div(self, by: f64) -> Self {
        Self { low: self.low / by, expected: self.expected / by, high: self.high / by }
    }
}

impl std::fmt::Display for Interval {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({} to {})", self.expected, self.low, self.high)
    }
}

/// Variances of the logarithm of time, by what they belong to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spread {
    by_class: [f64; OperatorClass::ALL.len()],
    decode: f64,
    prefill: f64,
}

impl Spread {
    pub(super) fn new(deployment: &Deployment) -> Self {
        let (engine, device) = (deployment.engine(), deployment.system().device());
        let keys = device.kernel_keys();
        let generation = keys.each_ref().map(String::as_str);
        let format = [deployment.weights().kernel_key()];
        let keys = Keys { generation: &generation, format: &format };
        let laws = Laws { engine, keys };
        let mut by_class = [0.0; OperatorClass::ALL.len()];
        for class in OperatorClass::ALL {
            by_class[class as usize] = laws.variance(class);
        }
        let law = &engine.uncertainty;
        Self { by_class, decode: laws.square(&law.decode), prefill: laws.square(&law.prefill) }
    }

    /// Of a model in several places: the wider of their laws.
    pub(super) fn of_places(deployment: &Deployment, places: &[Alone]) -> Self {
        let mut spreads = places.iter().map(|place| Self::new(&place.deployment));
        let Some(first) = spreads.next() else { return Self::new(deployment) };
        spreads.fold(first, |mut widest, other| {
            for (own, others) in widest.by_class.iter_mut().zip(other.by_class) {
                *own = own.max(others);
            }
            (widest.decode, widest.prefill) = (widest.decode.max(other.decode), widest.prefill.max(other.prefill));
            widest
        })
    }

    /// Standard deviation of the logarithm of the time: independent laws, weighted with their shares, and what is common to the step.
    fn log_deviation(&self, cost: &StepCost) -> f64 {
        let total = cost.total();
        if total <= Seconds::ZERO {
            return 0.0;
        }
        let laws: f64 = OperatorClass::ALL
            .into_iter()
            .map(|class| (cost.time(class) / total).powi(2) * self.by_class[class as usize])
            .sum();
        let prompts = cost.prompt_time() / total;
        (laws + prompts * self.prefill + (1.0 - prompts) * self.decode).sqrt()
    }
}

struct Laws<'a> {
    engine: &'a Engine,
    keys: Keys<'a>,
}

impl Laws<'_> {
    fn variance(&self, class: OperatorClass) -> f64 {
        let (engine, law) = (self.engine, &self.engine.uncertainty);
        match class {
            OperatorClass::Gemm => {
                self.square(&law.gemm) + self.provenance([self.at(&engine.gemm.compute), self.at(&engine.gemm.memory)])
            }
            OperatorClass::ExpertGemm => {
                let gemm = [self.at(&engine.gemm.compute), self.at(&engine.experts.memory)];
                self.square(&law.experts) + self.provenance(gemm)
            }
            OperatorClass::PrefillAttention => {
                self.square(&law.attention) + self.provenance([self.at(&engine.prefill_attention.compute)])
            }
            OperatorClass::DecodeAttention => {
                self.square(&law.attention) + self.provenance([self.at(&engine.decode_attention.memory)])
            }
            OperatorClass::Recurrent => self.square(&law.attention),
            OperatorClass::Elementwise | OperatorClass::Overhead => self.square(&law.overhead),
            OperatorClass::Collective => self.square(&law.communication),
        }
    }

    /// What is added for laws that no measurement of this hardware stands behind.
    fn provenance<const N: usize>(&self, parameters: [Option<Resolved>; N]) -> f64 {
        let share = |resolved: Resolved| match (resolved.known, resolved.kind) {
            (false, _) => 1.0,
            (true, Provenance::Assumed) => 0.5,
            (true, _) => 0.0,
        };
        let worst = parameters.into_iter().flatten().map(share).fold(0.0, f64::max);
        worst * self.square(&self.engine.uncertainty.unknown_hardware)
    }

    fn at<Q: crate::engine::Quantity>(&self, parameter: &Option<Parameter<Q>>) -> Option<Resolved> {
        parameter.as_ref().map(|parameter| parameter.at(&self.keys))
    }

    fn square(&self, parameter: &Option<Parameter<Number>>) -> f64 {
        self.at(parameter).map_or(0.0, |deviation| deviation.value * deviation.value)
    }
}

impl StepModel {
    /// Where nine of ten measurements of this cost are expected.
    ///
    /// # Formula
    /// `expected * exp(+-1.645 s)` with `s^2 = sum over classes of (share of the time * deviation of the law)^2 + deviation of the engine^2`; laws
    /// that were not measured on the hardware's generation deviate more. The ideal engine has no scatter: it is a bound, not a prediction.
    pub fn interval(&self, cost: &StepCost) -> Interval {
        Interval::around(cost.total(), self.spread.log_deviation(cost))
    }
}
