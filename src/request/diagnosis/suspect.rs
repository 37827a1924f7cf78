//! What would take as long as was measured: the same load priced under other circumstances.

use super::Observation;
use crate::catalog::Catalog;
use crate::deployment::Deployment;
use crate::format::WeightFormat;
use crate::hardware::{Device, System};
use crate::operator::OperatorClass;
use crate::request::Request;
use crate::step::{Explanation, StepModel};
use crate::units::{Bytes, BytesPerSecond, Seconds};

/// A circumstance under which the measured time would be normal. That the numbers agree is no proof.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Suspect {
    /// The circumstance, with its numbers.
    pub what: String,
    /// The time under it.
    pub time: Seconds,
    /// How to find out.
    pub check: &'static str,
}

/// Times that differ by less than this factor agree.
const NEAR: f64 = 1.2;
/// Main memory of usual desktops: two channels from DDR4-3200 to DDR5-6400, 8 bytes per transfer.
const MAIN_MEMORY: [BytesPerSecond; 2] =
    [BytesPerSecond::from_gb_per_second(51.2), BytesPerSecond::from_gb_per_second(102.4)];
/// Contexts are looked for up to this length where the model has no limit.
const LONGEST_CONTEXT: u64 = 1 << 20;

/// The circumstances that agree with a slow measurement, the nearest first.
pub(super) fn find(
    model: &StepModel,
    observation: &Observation,
    measured: Seconds,
    explanation: &Explanation,
) -> Vec<Suspect> {
    let case = Case { model, observation, measured, expected: model.predict(observation).expected };
    let mut suspects = case.variants();
    suspects.extend(case.weights_elsewhere(explanation));
    // Near what was measured, and nearer than to what is expected anyway.
    let explains = |time: Seconds| case.distance(time) <= NEAR.ln().min((time / case.expected).ln());
    suspects.retain(|suspect| explains(suspect.time));
    suspects.sort_by(|a, b| case.distance(a.time).total_cmp(&case.distance(b.time)));
    // Quantities that are solved for always agree: they come last.
    suspects.extend(case.weights_in_main_memory(explanation));
    suspects.extend(case.longer_context());
    suspects
}

struct Case<'a> {
    model: &'a StepModel,
    observation: &'a Observation,
    measured: Seconds,
    expected: Seconds,
}

impl Case<'_> {
    /// The same load under other settings.
    fn variants(&self) -> Vec<Suspect> {
        let deployment = self.model.deployment();
        let mut suspects = Vec::new();
        let mut suspect = |variant: Deployment, what: &str, check| {
            // A variant that cannot be compiled cannot have been measured.
            let Ok(model) = StepModel::compile(&variant) else { return };
            // Nor one that lacks memory, unless the deployment itself does.
            if self.fits(self.model) && !self.fits(&model) {
                return;
            }
            let time = model.predict(self.observation).expected;
            if time > self.expected {
                suspects.push(Suspect { what: what.into(), time, check });
            }
        };
        if let Some(half) = half_bandwidth(deployment) {
            suspect(
                half,
                "half of the memory bandwidth",
                "the card's variant, memory clocks, power limit, memory channels",
            );
        }
        if let Ok(eager) = Catalog::embedded().engine("transformers") {
            suspect(
                deployment.clone().with_engine(eager),
                "every layer launched by the host (no CUDA graphs, as plain PyTorch does)",
                "flags such as --enforce-eager; a host that is busy or slow",
            );
        }
        if deployment.flash_attention() {
            suspect(
                deployment.clone().with_flash_attention(false),
                "attention without flash attention",
                "the attention backend",
            );
        }
        if !["f16", "f32"].contains(&deployment.weights().kernel_key()) {
            suspect(
                deployment.clone().with_weights(WeightFormat::Bf16),
                "weights in 16 bits",
                "whether the engine loaded the quantized checkpoint",
            );
        }
        if deployment.tensor_parallel() > 1 {
            let stages = deployment.devices_used();
            suspect(
                deployment.clone().with_tensor_parallel(1).with_pipeline_parallel(stages),
                "devices that work one after another (layers split between them)",
                "the split mode: tensor or row, not layer; a pipeline does not speed up one stream",
            );
        }
        suspects
    }

    /// All weights that the step reads come over a link instead of from the device's memory.
    fn weights_elsewhere(&self, explanation: &Explanation) -> Option<Suspect> {
        let device = self.model.deployment().system().device();
        let link = device.host_link().filter(|_| !device.has_unified_memory() && self.may_offload())?;
        let (mut bytes, time) = weights(explanation);
        if self.observation.is_prefill() {
            let request = Request::new(self.observation.context, 1).with_batch(self.observation.batch);
            bytes = self.model.weight_bytes_per_device() * self.model.prefill_steps(&request) as f64;
        }
        // Prompts compute meanwhile.
        let streamed = (bytes / link.bandwidth.value).max(time);
        Some(Suspect {
            what: format!("all weights over {} ({} at {})", link.kind, bytes, link.bandwidth.value),
            time: self.expected - time + streamed,
            check: "the driver's fallback to system memory, offloading options, memory use near the limit",
        })
    }

    /// Which part of the weights would have to be read by the host.
    fn weights_in_main_memory(&self, explanation: &Explanation) -> Option<Suspect> {
        let device = self.model.deployment().system().device();
        let elsewhere = !device.has_unified_memory() && device.host_link().is_some();
        if self.observation.is_prefill() || !elsewhere || !self.may_offload() {
            return None;
        }
        let (bytes, time) = weights(explanation);
        let share = |bandwidth: BytesPerSecond| (self.measured - self.expected) / (bytes / bandwidth - time);
        let [low, high] = MAIN_MEMORY.map(share);
        let possible = low > 0.0 && low <= 1.0;
        let [slow, fast] = MAIN_MEMORY;
        possible.then(|| Suspect {
            what: format!(
                "{:.0} to {:.0} % of the weights read from main memory, as if that share of the layers ran on the host (two channels, {slow} to {fast})",
                100.0 * low,
                100.0 * high.clamp(low, 1.0)
            ),
            time: self.measured,
            check: "the log line that says how many layers are on the device (llama.cpp: offloaded n/n layers)",
        })
    }

    /// Whether the engine keeps layers on the host when it is not told otherwise, or has to.
    fn may_offload(&self) -> bool {
        let engine = self.model.deployment().engine();
        let names = [Some(&engine.slug), engine.extends.as_ref()];
        names.into_iter().flatten().any(|name| name.contains("llama-cpp")) || !self.fits(self.model)
    }

    /// The context that would explain the time.
    fn longer_context(&self) -> Option<Suspect> {
        if self.observation.is_prefill() {
            return None;
        }
        let longest = self.model.deployment().context_limit().unwrap_or(LONGEST_CONTEXT);
        let time = |context| self.model.predict(&Observation { context, ..*self.observation }).expected;
        if longest <= self.observation.context || time(longest) < self.measured {
            return None;
        }
        let (mut below, mut above) = (self.observation.context, longest);
        while above - below > 1 {
            let middle = below + (above - below) / 2;
            *(if time(middle) < self.measured { &mut below } else { &mut above }) = middle;
        }
        self.model.memory().fits(self.observation.batch, above).then(|| Suspect {
            what: format!("a context of {above} tokens instead of {}", self.observation.context),
            time: time(above),
            check: "how long the prompts really are: system prompt, tools, earlier turns",
        })
    }

    fn fits(&self, model: &StepModel) -> bool {
        model.memory().fits(self.observation.batch, self.observation.context)
    }

    fn distance(&self, time: Seconds) -> f64 {
        (self.measured / time).ln().abs()
    }
}

fn half_bandwidth(deployment: &Deployment) -> Option<Deployment> {
    let mut profile = Device::clone(deployment.system().device()).into_profile();
    profile.memory.bandwidth.value = profile.memory.bandwidth.value * 0.5;
    let system = deployment.system();
    let halved = System::new(Device::new(profile).ok()?, system.count()).ok()?;
    let halved = halved.with_devices_per_node(system.devices_per_node()).ok()?;
    let halved = halved.with_scale_out(system.scale_out_link().bandwidth).ok()?;
    Some(deployment.clone().with_system(halved))
}

/// Bytes of the matrix products of a step, and their time.
fn weights(explanation: &Explanation) -> (Bytes, Seconds) {
    let products = explanation
        .operators
        .iter()
        .filter(|operator| matches!(operator.class, OperatorClass::Gemm | OperatorClass::ExpertGemm));
    products.fold((Bytes::ZERO, Seconds::ZERO), |(bytes, time), operator| {
        (bytes + operator.work.bytes, time + operator.time)
    })
}
