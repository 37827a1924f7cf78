//! Why is it slow? A measured rate against the hardware's limit and against what the engine usually reaches.

mod suspect;
mod text;

pub use suspect::Suspect;

use super::{Request, RequestError};
use crate::memory::DoesNotFit;
use crate::operator::OperatorClass;
use crate::roofline;
use crate::step::{Explanation, Interval, OperatorCost, StepModel};
use crate::units::{Seconds, TokensPerSecond};

/// What was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Measured {
    /// Decode rate of one request, the prompt not counted.
    TpsPerStream(TokensPerSecond),
    /// Time per output token, the first one not counted.
    Tpot(Seconds),
    /// Prompt tokens per second of all prompts together.
    PrefillTps(TokensPerSecond),
}

/// A measurement, and the load under which it was taken.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Observation {
    /// What was measured.
    pub measured: Measured,
    /// In decode the tokens in each sequence's cache (for a whole answer: prompt and half of the answer); in prefill the tokens of each prompt.
    pub context: u64,
    /// Sequences at once.
    pub batch: u64,
}

impl Observation {
    /// A measurement at a context of so many tokens, with nothing else running.
    pub const fn new(measured: Measured, context: u64) -> Self {
        Self { measured, context, batch: 1 }
    }

    /// With so many sequences at once.
    #[must_use]
    pub const fn with_batch(self, batch: u64) -> Self {
        Self { batch, ..self }
    }

    const fn is_prefill(&self) -> bool {
        matches!(self.measured, Measured::PrefillTps(_))
    }

    /// The measurement as a time: of a decode step, or of the prefill of the batch.
    fn time(&self) -> Result<Seconds, DiagnosisError> {
        let (value, unit, time) = match self.measured {
            Measured::Tpot(time) => (time.as_seconds(), "s", time),
            Measured::TpsPerStream(rate) => {
                let rate = rate.as_tokens_per_second();
                (rate, "tok/s", Seconds::from_seconds(1.0 / rate))
            }
            Measured::PrefillTps(rate) => {
                let (rate, tokens) = (rate.as_tokens_per_second(), self.context as f64 * self.batch as f64);
                (rate, "tok/s", Seconds::from_seconds(tokens / rate))
            }
        };
        let possible = value > 0.0 && value.is_finite() && time.is_finite() && time > Seconds::ZERO;
        if possible { Ok(time) } else { Err(DiagnosisError::Measurement { value, unit }) }
    }
}

/// An observation that cannot be judged.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DiagnosisError {
    /// The measured number cannot be one.
    #[error("measured {value} {unit}, expected a positive finite number")]
    Measurement {
        /// The number.
        value: f64,
        /// Its unit.
        unit: &'static str,
    },
    /// No such request.
    #[error(transparent)]
    Request(#[from] RequestError),
}

/// How a measurement compares with the prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Verdict {
    /// Faster than the hardware allows: the measurement or the description of the deployment is wrong.
    Impossible,
    /// Faster than nine of ten measurements: check what was measured.
    FasterThanExpected,
    /// Where nine of ten measurements lie.
    Healthy,
    /// Slower than that, by less than [`BROKEN_FROM`](Self::BROKEN_FROM): settings.
    Slow,
    /// Slower still: something does not work as it should.
    Broken,
}

impl Verdict {
    /// A time this many times the slow end of the interval is no matter of settings.
    pub const BROKEN_FROM: f64 = 1.5;

    /// Compares a time with the hardware's limit and the interval in which it is expected.
    ///
    /// ```
    /// use llm_roofline::{request::Verdict, step::Interval, units::Seconds};
    /// let ms = Seconds::from_millis;
    /// let expected = Interval { low: ms(10.0), expected: ms(12.0), high: ms(14.0) };
    /// let verdicts = [7.9, 8.0, 10.0, 14.0, 21.0, 21.1].map(|measured| Verdict::new(ms(measured), ms(8.0), &expected));
    /// use Verdict::*;
    /// assert_eq!(verdicts, [Impossible, FasterThanExpected, Healthy, Healthy, Slow, Broken]);
    /// ```
    pub fn new(measured: Seconds, ideal: Seconds, expected: &Interval) -> Self {
        if measured < ideal {
            Self::Impossible
        } else if measured < expected.low {
            Self::FasterThanExpected
        } else if measured <= expected.high {
            Self::Healthy
        } else if measured <= expected.high * Self::BROKEN_FROM {
            Self::Slow
        } else {
            Self::Broken
        }
    }
}

/// Where a part of the measured time goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Cause {
    /// Nothing is lost: the hardware's limit.
    Limit,
    /// Matrix products, experts included, below the peak that bounds them.
    MatrixProducts,
    /// Attention and recurrences below the peak that bounds them.
    Attention,
    /// Norms, activations and sampling that are kernels of their own.
    Elementwise,
    /// Launches and other times of kernels that do not depend on the work.
    Launches,
    /// The host between steps.
    Host,
    /// Devices that exchange data, beyond the time that the links take at their bandwidth.
    Communication,
}

impl Cause {
    /// Every cause, in the order of the table.
    pub const ALL: [Self; 7] = [
        Self::Limit,
        Self::MatrixProducts,
        Self::Attention,
        Self::Elementwise,
        Self::Launches,
        Self::Host,
        Self::Communication,
    ];

    fn time(self, operator: &OperatorCost) -> Seconds {
        let host = operator.class == OperatorClass::Overhead;
        match self {
            Self::Limit => operator.ideal,
            Self::Host if host => operator.lost(),
            Self::Launches if !host => operator.fixed,
            _ if !host && self == Self::of(operator.class) => operator.lost() - operator.fixed,
            _ => Seconds::ZERO,
        }
    }

    const fn of(class: OperatorClass) -> Self {
        match class {
            OperatorClass::Gemm | OperatorClass::ExpertGemm => Self::MatrixProducts,
            OperatorClass::PrefillAttention | OperatorClass::DecodeAttention | OperatorClass::Recurrent => {
                Self::Attention
            }
            OperatorClass::Elementwise => Self::Elementwise,
            OperatorClass::Collective => Self::Communication,
            OperatorClass::Overhead => Self::Host,
        }
    }
}

/// A measured rate, judged: how near it is to the hardware's limit, and where the rest goes.
///
/// Its text form is what `examples/why_slow.rs` prints.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Diagnosis {
    /// What was observed.
    pub observation: Observation,
    /// The measured time: of a decode step, or of the prefill of the batch.
    pub measured: Seconds,
    /// The prediction, with the interval of nine of ten measurements.
    pub predicted: Interval,
    /// The shortest time that the hardware allows.
    pub ideal: Seconds,
    /// Measured against predicted.
    pub verdict: Verdict,
    /// Model bandwidth utilisation in decode: bytes that the step must move over `measured * bandwidth`.
    pub mbu: Option<f64>,
    /// Model FLOP/s utilisation in prefill.
    pub mfu: Option<f64>,
    /// The predicted step, operator by operator.
    pub explanation: Explanation,
    /// What else would take about as long as was measured, the nearest first; only for slow measurements.
    pub suspects: Vec<Suspect>,
    /// What the device's memory lacks for this load: an engine that runs it nevertheless keeps a part elsewhere.
    pub does_not_fit: Option<Box<DoesNotFit>>,
    deployment: String,
}

impl Diagnosis {
    /// Share of the hardware's limit that the measurement reaches; above 1 it is impossible.
    pub fn fraction_of_limit(&self) -> f64 {
        self.ideal / self.measured
    }

    /// Share of the hardware's limit that the prediction reaches.
    pub fn expected_fraction_of_limit(&self) -> f64 {
        self.ideal / self.predicted.expected
    }

    /// The parts of the predicted time: the hardware's limit, then what is lost to each cause. With [`unexplained`](Self::unexplained) they sum to the
    /// measured time.
    pub fn parts(&self) -> Vec<(Cause, Seconds)> {
        let time = |cause: Cause| self.explanation.operators.iter().map(|operator| cause.time(operator)).sum();
        Cause::ALL.into_iter().map(|cause| (cause, time(cause))).collect()
    }

    /// Measured less predicted: what no law explains; negative if the measurement is faster.
    pub fn unexplained(&self) -> Seconds {
        self.measured - self.predicted.expected
    }
}

impl StepModel {
    /// Judges a measurement: is it near the hardware's limit, as good as this engine usually is, or broken?
    ///
    /// # Errors
    /// [`DiagnosisError`] for a measurement that is not positive, or a request that cannot be. Too little memory is no error but a finding.
    ///
    /// ```
    /// use llm_roofline::prelude::*;
    /// use llm_roofline::request::{Measured, Observation, Verdict};
    ///
    /// let catalog = Catalog::embedded();
    /// let system = System::new(catalog.device("rtx-4090-24gb")?, 1)?;
    /// let deployment = Deployment::new(catalog.model("llama-3.1-8b")?, system)
    ///     .with_weights("q4_k_m".parse()?)
    ///     .with_engine(catalog.engine("llama.cpp")?);
    /// let model = StepModel::compile(&deployment)?;
    /// let rate = |tps| Measured::TpsPerStream(TokensPerSecond::from_tokens_per_second(tps));
    /// let verdict = |tps| model.why_slow(&Observation::new(rate(tps), 1000)).map(|diagnosis| diagnosis.verdict);
    /// assert_eq!(verdict(20.0)?, Verdict::Broken);
    /// assert_eq!(verdict(400.0)?, Verdict::Impossible); // 400 times 4.6 GB per second, and the card reads 1 TB/s
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn why_slow(&self, observation: &Observation) -> Result<Diagnosis, DiagnosisError> {
        let request = Request::new(observation.context, 1).with_batch(observation.batch);
        request.check(self.deployment().context_limit(), self.prefill_steps(&request))?;
        let measured = observation.time()?;
        let explanation = self.explain_observed(observation);
        let predicted = self.predict(observation);
        let ideal = explanation.ideal();
        let verdict = Verdict::new(measured, ideal, &predicted);
        let does_not_fit = self.fit(request.batch, request.context_tokens()).err();
        let suspects = match verdict {
            Verdict::Slow | Verdict::Broken => suspect::find(self, observation, measured, &explanation),
            _ => Vec::new(),
        };
        let prefill = observation.is_prefill();
        Ok(Diagnosis {
            observation: *observation,
            measured,
            predicted,
            ideal,
            verdict,
            mbu: (!prefill).then(|| self.measured_mbu(observation, measured)),
            mfu: prefill.then(|| self.measured_mfu(observation, measured)),
            explanation,
            suspects,
            does_not_fit,
            deployment: self.described(),
        })
    }

    /// What the time of an observation should be.
    fn predict(&self, observation: &Observation) -> Interval {
        let Observation { context, batch, .. } = *observation;
        self.interval(&match observation.is_prefill() {
            true => self.prefill(&Request::new(context, 1).with_batch(batch)),
            false => self.decode_step(batch, context),
        })
    }

    fn explain_observed(&self, observation: &Observation) -> Explanation {
        let request = Request::new(observation.context, 2).with_batch(observation.batch);
        match observation.is_prefill() {
            true => self.explain_prefill(&request),
            false => self.explain_decode(&request, 2),
        }
    }

    fn measured_mbu(&self, observation: &Observation, measured: Seconds) -> f64 {
        let step = self.decode_step(observation.batch, observation.context);
        roofline::mbu(step.bytes(), measured, self.deployment().system().device().bandwidth())
    }

    fn measured_mfu(&self, observation: &Observation, measured: Seconds) -> f64 {
        let tokens = observation.context as f64 * observation.batch as f64;
        let flops = self.model_flops(tokens, observation.batch as f64);
        roofline::mfu(flops, measured, self.linear_peak() * f64::from(self.deployment().tensor_parallel()))
    }

    fn described(&self) -> String {
        let deployment = self.deployment();
        let devices = match deployment.devices_used() {
            1 => String::new(),
            count => format!("{count} x "),
        };
        let (model, weights) = (&deployment.model().slug, deployment.weights());
        let (device, engine) = (deployment.system().device().name(), &deployment.engine().name);
        format!("{model} ({weights} weights, {} cache) on {devices}{device} under {engine}", deployment.kv())
    }
}
