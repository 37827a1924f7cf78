//! Prefill and decode on devices of their own, against the same devices that do both.

use super::{Configuration, PlannerError};
use crate::deployment::Deployment;
use crate::hardware::System;
use crate::parallel::in_order;
use crate::serving::{Disaggregated, KvTransfer, Server, ServingError, Split, Target};
use crate::step::StepModel;
use crate::units::RequestsPerSecond;
use crate::workload::{Lengths, Slo};
use serde::Serialize;
use std::fmt;
use std::sync::Arc;

/// Replicas of one layout.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct PoolLayout {
    /// One replica.
    #[serde(flatten)]
    pub configuration: Configuration,
    /// How many.
    pub replicas: u32,
}

impl fmt::Display for PoolLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} x {}", self.replicas, self.configuration.layout)
    }
}

/// The same devices in both ways: the best of each.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Disaggregation {
    /// Devices.
    pub devices: u32,
    /// Replicas that do both; none if no layout meets the limits.
    pub aggregated: Option<(PoolLayout, RequestsPerSecond)>,
    /// Replicas for prompts, replicas for answers, and what they answer within the limits; none if no layouts meet them.
    pub disaggregated: Option<(PoolLayout, PoolLayout, RequestsPerSecond)>,
}

impl Disaggregation {
    /// The layouts of a deployment's model on so many devices that answer most requests per second of which a share meets the limits, with and without pools.
    ///
    /// # Method
    /// Tensor parallelism of all powers of two in a node, for each pool by itself, and every split of the devices between the pools ([`Disaggregated::best_split`]); devices that no replica fills
    /// stay idle. Replicas that do both get independent parts of the requests.
    ///
    /// # Errors
    /// [`PlannerError`] for limits or a number of devices that are none. Layouts that cannot be or do not fit are left out.
    ///
    /// # Validity
    /// Times to first token of pools are too short against published measurements ([`Disaggregated`]): read a gain as an upper bound.
    ///
    /// ```
    /// use llm_roofline::planner::Disaggregation;
    /// use llm_roofline::prelude::*;
    /// use llm_roofline::serving::KvTransfer;
    /// use llm_roofline::workload::{Lengths, Slo};
    /// let catalog = Catalog::embedded();
    /// let system = System::new(catalog.device("h100-sxm-80gb")?, 1)?;
    /// let deployment = Deployment::new(catalog.model("llama-3.1-8b")?, system).with_engine(catalog.engine("vllm-2026")?);
    /// let network = KvTransfer::new(BytesPerSecond::from_gb_per_second(50.0))?;
    /// let slo = Slo::ttft_tpot("1 s".parse()?, "15 ms".parse()?);
    /// let compared = Disaggregation::new(&deployment, &Lengths::fixed(4000, 200)?, (&slo, 0.9), 4, network)?;
    /// // Long prompts disturb answers that must be fast, and take at least as many devices.
    /// let (prefill, decode) = compared.ratio().unwrap();
    /// assert!(prefill >= decode && compared.gain().unwrap() > 1.0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new(
        deployment: &Deployment,
        lengths: &Lengths,
        limits: (&Slo, f64),
        devices: u32,
        transfer: KvTransfer,
    ) -> Result<Self, PlannerError> {
        let target = Target::goodput(*limits.0, limits.1)?;
        let system = deployment.system().clone().with_count(devices)?;
        let layouts = layouts(deployment, &system, lengths)?;
        let aggregated = in_order(0..layouts.len(), |index| aggregated(&layouts[index], lengths, &target, devices));
        let aggregated = best(aggregated, |(_, rate)| *rate)?;
        let pairs: Vec<(&StepModel, &StepModel)> =
            layouts.iter().flat_map(|prefill| layouts.iter().map(move |decode| (prefill, decode))).collect();
        let pools = in_order(0..pairs.len(), |index| {
            let (prefill, decode) = pairs[index];
            split(prefill, decode, transfer, lengths, devices, limits)
                .map(|split| (pool(prefill, split.prefill), pool(decode, split.decode), split.rate))
        });
        Ok(Self { devices, aggregated, disaggregated: best(pools, |(_, _, rate)| *rate)? })
    }

    /// Requests per second of the pools over those of replicas that do both, if both meet the limits.
    pub fn gain(&self) -> Option<f64> {
        let ((_, one), (_, _, two)) = (self.aggregated.as_ref()?, self.disaggregated.as_ref()?);
        Some(*two / *one)
    }

    /// Prefill and decode replicas.
    pub fn ratio(&self) -> Option<(u32, u32)> {
        self.disaggregated.as_ref().map(|(prefill, decode, _)| (prefill.replicas, decode.replicas))
    }
}

/// The models in every layout that can serve a request.
fn layouts(deployment: &Deployment, system: &System, lengths: &Lengths) -> Result<Vec<StepModel>, PlannerError> {
    let most = system.count().min(system.devices_per_node());
    let mut models = Vec::new();
    for degree in (0..u32::BITS).map(|power| 1 << power).take_while(|degree| *degree <= most) {
        let system = System::new(Arc::clone(system.device()), degree)?;
        let layout = deployment.clone().with_system(system).with_replicas(1).with_tensor_parallel(degree);
        let layout = layout.with_pipeline_parallel(1).with_expert_parallel(1).with_data_parallel_attention(1);
        let Ok(model) = StepModel::compile(&layout) else { continue };
        if model.memory().check(1, lengths.longest_total()).is_ok() {
            models.push(model);
        }
    }
    Ok(models)
}

fn aggregated(
    model: &StepModel,
    lengths: &Lengths,
    target: &Target,
    devices: u32,
) -> Result<(PoolLayout, RequestsPerSecond), ServingError> {
    let replicas = devices / model.deployment().devices_per_replica();
    let rate = Server::new(model, lengths)?.max_rate_under(target)?.rate;
    Ok((pool(model, replicas), rate * f64::from(replicas)))
}

fn split(
    prefill: &StepModel,
    decode: &StepModel,
    transfer: KvTransfer,
    lengths: &Lengths,
    devices: u32,
    limits: (&Slo, f64),
) -> Result<Split, ServingError> {
    let needed = prefill.deployment().devices_per_replica() + decode.deployment().devices_per_replica();
    if needed > devices {
        let none = Split { prefill: 0, decode: 0, devices: 0, rate: RequestsPerSecond::ZERO };
        return Ok(none);
    }
    Disaggregated::best_split(prefill, decode, transfer, lengths, devices, limits)
}

fn pool(model: &StepModel, replicas: u32) -> PoolLayout {
    PoolLayout { configuration: Configuration::of(model.deployment()), replicas }
}

/// The first of those that answer most, if any answers something.
fn best<T>(
    found: Vec<Result<T, ServingError>>,
    rate: impl Fn(&T) -> RequestsPerSecond,
) -> Result<Option<T>, PlannerError> {
    let mut best: Option<T> = None;
    for found in found {
        let found = found?;
        let most = best.as_ref().map_or(RequestsPerSecond::ZERO, &rate);
        if rate(&found) > most {
            best = Some(found);
        }
    }
    Ok(best)
}

impl fmt::Display for Disaggregation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.aggregated {
            Some((pool, rate)) => writeln!(f, "{} devices, both phases together: {pool}: {rate}", self.devices)?,
            None => writeln!(f, "{} devices, both phases together: no layout meets the limits", self.devices)?,
        }
        match &self.disaggregated {
            Some((prefill, decode, rate)) => write!(f, "prefill {prefill}, decode {decode}: {rate}")?,
            None => write!(f, "pools: no layout meets the limits")?,
        }
        self.gain().map_or(Ok(()), |gain| write!(f, " ({gain:.2} times as much)"))
    }
}
