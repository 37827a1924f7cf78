//! One change applied, and measured anew.

use super::{Lever, LeverChange, Measure, Measures, Question};
use crate::deployment::Deployment;
use crate::planner::PlannerError;
use crate::serving::{Criterion, Disaggregated, KvTransfer, Limit, Server, Split, Statistic, Target};
use crate::speculative::{Method, Speculation, SpeculativeEstimate, SpeculativeModel};
use crate::step::StepModel;
use crate::units::RequestsPerSecond;
use crate::workload::{Lengths, Slo};

/// What came of a change: measures after it, what they are compared with if not with the question's own, and a remark.
type Outcome = Result<(Measures, Option<Measures>, String), Refused>;

/// Why a change is not made.
struct Refused(String);

impl<E: Into<PlannerError>> From<E> for Refused {
    fn from(error: E) -> Self {
        Self(error.into().to_string())
    }
}

fn refused<T>(why: impl Into<String>) -> Result<T, Refused> {
    Err(Refused(why.into()))
}

impl Question {
    pub(super) fn pull(&self, change: LeverChange, measure: Measure, base: &Measures) -> Lever {
        let per_request = measure == Measure::CostPerMillionOutputTokens && change.changes_lengths();
        let measure = if per_request { Measure::CostPerRequest } else { measure };
        match self.outcome(&change, measure, base) {
            Ok((after, before, mut note)) => {
                let before = before.unwrap_or(*base);
                let gain = after.gain_over(&before, measure);
                if note.is_empty() && gain.is_some() && after.devices != before.devices {
                    let compared = if measure.is_per_device() { ", compared per device" } else { "" };
                    note = format!("{} devices{compared}", after.devices);
                }
                if self.target().is_some() && base.rate_under.is_none() && after.rate_under.is_some() {
                    note = "meets the limits".into();
                }
                if note.is_empty() && after.number(measure).is_none() {
                    note = if self.target().is_some() { "no load meets the limits" } else { "not known" }.into();
                }
                Lever { change, measure, before: Some(before), after: Some(after), gain, note }
            }
            Err(Refused(note)) => Lever { change, measure, before: Some(*base), after: None, gain: None, note },
        }
    }

    fn outcome(&self, change: &LeverChange, measure: Measure, base: &Measures) -> Outcome {
        let deployment = self.deployment().clone();
        let on = |deployment: Deployment| self.clone().with_deployment(deployment).measure();
        let plain = |measures: Measures| (measures, None, String::new());
        match change {
            LeverChange::Weights(format) => Ok(plain(on(deployment.with_weights(format.clone()))?)),
            LeverChange::Cache(format) => Ok(plain(on(deployment.with_kv(*format))?)),
            LeverChange::Sequences { at_once } => Ok(plain(self.with_sequences(*at_once)?)),
            LeverChange::CachedPrompts { share } => {
                let cached = self.clone().with_cached_share(*share)?.measure()?;
                Ok((cached, None, "assumed: prompts have to share so much".into()))
            }
            LeverChange::Speculation => self.speculating(measure, base),
            LeverChange::TensorParallel { degree } => {
                let system = deployment.system().clone();
                let count = system.count().saturating_mul(2);
                Ok(plain(on(deployment.with_system(system.with_count(count)?).with_tensor_parallel(*degree))?))
            }
            LeverChange::SplitPhases => self.split(measure),
            LeverChange::ShorterAnswers { tokens } => {
                Ok(plain(self.clone().with_lengths(self.prompt_tokens(), *tokens)?.measure()?))
            }
            LeverChange::ShorterPrompts { tokens } => {
                Ok(plain(self.clone().with_lengths(*tokens, self.output_tokens())?.measure()?))
            }
        }
    }

    fn with_sequences(&self, at_once: u64) -> Result<Measures, Refused> {
        let model = StepModel::compile(self.deployment())?;
        let (slots, limit) = self.server(&model)?.rules().slots();
        if at_once > slots && limit == Limit::Cache {
            return refused(format!("the cache is full with {slots}"));
        }
        let ranks = u64::from(self.deployment().data_parallel_attention().max(1));
        let limited = self.deployment().clone().with_max_sequences(at_once.div_ceil(ranks));
        Ok(self.clone().with_deployment(limited).measure()?)
    }

    /// Alone only: under load a step has more to verify, which the steady state does not know.
    fn speculating(&self, measure: Measure, base: &Measures) -> Outcome {
        let Some((method, answer)) = self.fastest_speculation(1) else {
            return refused("no method can be built, or none fits");
        };
        if !measure.is_unloaded() {
            let faster = |answer: &SpeculativeEstimate| answer.speedup.map_or(1.0, |speedup| speedup.expected);
            let mut why = format!("TPOT alone {:.2}x ({method})", faster(&answer));
            let model = StepModel::compile(self.deployment())?;
            let sequences = self.state_at_capacity(&self.server(&model)?)?.0.summary.mean_batch;
            let batch = sequences.unwrap_or(1.0).round().max(1.0) as u64;
            if let Some((method, answer)) = self.fastest_speculation(batch) {
                why += &format!(", at {batch} {:.2}x ({method})", faster(&answer));
            }
            return refused(why);
        }
        let tokens = answer.tokens_per_step;
        let after = Measures {
            devices: base.devices,
            ttft: Some(answer.ttft),
            tpot: answer.tpot,
            e2e: Some(answer.e2e),
            ..Measures::default()
        };
        Ok((after, None, format!("{method}, {tokens:.1} tokens per step (typical)")))
    }

    /// Of equal requests that start together.
    fn fastest_speculation(&self, batch: u64) -> Option<(Method, SpeculativeEstimate)> {
        let tried = Method::ALL.into_iter().filter(|method| self.has_drafter(*method));
        let tried = tried.filter_map(|method| Some((method, self.speculate(method, batch)?)));
        tried.min_by(|a, b| a.1.e2e.as_seconds().total_cmp(&b.1.e2e.as_seconds()))
    }

    /// Heads can be trained for any model; prediction modules come with it.
    fn has_drafter(&self, method: Method) -> bool {
        match method {
            Method::DraftModel => false,
            Method::Mtp => self.deployment().model().architecture().is_some_and(|model| model.mtp.is_some()),
            _ => true,
        }
    }

    fn speculate(&self, method: Method, batch: u64) -> Option<SpeculativeEstimate> {
        let speculation = Speculation::new(method, self.deployment()).ok()?;
        let model = SpeculativeModel::compile(self.deployment(), &speculation).ok()?;
        model.request(&self.request().with_batch(batch)).ok()
    }

    /// One replica for prompts and one for answers, against two that do both: rates within the same limits, met together by the same share of requests.
    fn split(&self, measure: Measure) -> Outcome {
        if measure.is_unloaded() || matches!(measure, Measure::OutputTpsTotal | Measure::Concurrency) {
            return refused("needs a load: rank by a rate or a cost");
        }
        if self.cached_share() > 0.0 {
            return refused("not modelled with cached prompts");
        }
        let model = StepModel::compile(self.deployment())?;
        let (lengths, each) = (self.lengths()?, self.deployment().devices_per_replica());
        let pair = self.deployment().system().clone().with_count(each.saturating_mul(2))?;
        let transfer = KvTransfer::over(&pair.pair_link(each)?, each)?;
        // The largest rate of all knows no limits.
        let target = self.target().filter(|_| measure != Measure::MaxRate);
        let (slo, share) = target.map_or((Slo::default(), 1.0), |target| (target.slo(), share_of(target)));
        let apart: Split = Disaggregated::best_split(&model, &model, transfer, &lengths, pair.count(), (&slo, share))?;
        let together = within(&model, &lengths, &slo, share)? * 2.0;
        let measures = |rate: RequestsPerSecond| {
            let found = Some(rate).filter(|rate| *rate > RequestsPerSecond::ZERO);
            let mut measures = Measures { devices: pair.count(), ..Measures::default() };
            *(if target.is_some() { &mut measures.rate_under } else { &mut measures.max_rate }) = found;
            self.add_costs(&mut measures);
            measures
        };
        let (prompts, answers) = (apart.prefill, apart.decode);
        let note = if target.is_some() { format!(", {:.0} % in all limits", 100.0 * share) } else { String::new() };
        let note = format!("{prompts} + {answers} replicas against {}{note}", prompts + answers);
        Ok((measures(apart.rate), Some(measures(together)), note))
    }
}

/// Requests per second of which a share meets all limits together.
fn within(model: &StepModel, lengths: &Lengths, slo: &Slo, share: f64) -> Result<RequestsPerSecond, Refused> {
    let server = Server::new(model, lengths)?;
    if slo.is_empty() {
        return Ok(server.max_rate());
    }
    Ok(server.max_rate_under(&Target::goodput(*slo, share)?)?.rate)
}

/// The share of requests that a target asks for: that of its goodput, or of its strictest percentile; half for limits on means.
fn share_of(target: &Target) -> f64 {
    let share = |criterion: Criterion| match criterion {
        Criterion::Goodput { share, .. } => share,
        Criterion::Latency { statistic: Statistic::P99, .. } => 0.99,
        Criterion::Latency { statistic: Statistic::P95, .. } => 0.95,
        Criterion::Latency { statistic: Statistic::P90, .. } => 0.9,
        Criterion::Latency { statistic: Statistic::Mean | Statistic::P50, .. } => 0.5,
    };
    target.criteria().map(share).fold(0.5, f64::max)
}
