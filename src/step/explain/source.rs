//! Which parameters of the engine's laws decide an operator's time, and where they come from.

use crate::deployment::Deployment;
use crate::engine::{AnyParameter, Engine, Keys, Number, Parameter, Positive, Quantity, Share};
use crate::model::{AttentionPass, Mixer};
use crate::profile::Provenance;
use crate::roofline::Bound;
use crate::step::terms::{ExpertTerm, LinearTerm};
use crate::step::{StepLoad, StepModel};
use crate::units::Seconds;
use std::fmt;

/// A parameter of an operator law, as it holds for the device and the operand.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LawSource {
    /// Name in the engine's profile, such as `gemm.memory`.
    pub parameter: &'static str,
    /// The value, factors for hardware and number format included.
    pub value: LawValue,
    /// The weakest provenance among the value and its factors.
    pub kind: Provenance,
    /// Whether the hardware's generation is listed, or the parameter does not depend on it.
    pub known: bool,
    /// Where it comes from: the source of the value, then those of its factors.
    pub sources: Vec<LawReference>,
}

/// A source of an engine profile.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LawReference {
    /// Key into the sources of the profile.
    pub key: String,
    /// What the profile says about it.
    pub reference: String,
}

/// Value of a parameter of a law.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LawValue {
    /// A share of a peak, a count, bytes or operations per element.
    Number(f64),
    /// A time.
    Time(Seconds),
}

impl fmt::Display for LawValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&match self {
            Self::Number(number) => format!("{number:.3}"),
            Self::Time(time) => time.to_string(),
        })
    }
}

impl LawSource {
    /// Name without the law.
    pub fn short_name(&self) -> &'static str {
        self.parameter.split_once('.').map_or(self.parameter, |(_, name)| name)
    }

    /// Provenance in a word.
    pub const fn kind_name(&self) -> &'static str {
        match self.kind {
            Provenance::Datasheet => "datasheet",
            Provenance::Measured => "measured",
            Provenance::Fitted => "fitted",
            Provenance::Assumed => "assumed",
        }
    }
}

impl fmt::Display for LawSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { parameter, value, sources, known, .. } = self;
        let unknown = if *known { "" } else { "; this hardware not measured" };
        let keys: Vec<&str> = sources.iter().map(|source| source.key.as_str()).collect();
        write!(f, "{parameter} = {value} ({}: {}{unknown})", self.kind_name(), keys.join(", "))
    }
}

/// Looks parameters up for one device.
pub(super) struct LawSources<'a> {
    deployment: &'a Deployment,
    engine: &'a Engine,
    generation: [String; 5],
}

/// The parameters that exist, each with its name.
macro_rules! sources {
    ($self:ident, $keys:expr; $($law:ident . $parameter:ident),* $(,)?) => {
        [$($self.at(concat!(stringify!($law), ".", stringify!($parameter)), &$self.engine.$law.$parameter, $keys)),*]
            .into_iter().flatten().collect::<Vec<LawSource>>()
    };
}

impl<'a> LawSources<'a> {
    pub(super) fn new(deployment: &'a Deployment) -> Self {
        let generation = deployment.system().device().kernel_keys();
        Self { deployment, engine: deployment.engine(), generation }
    }

    /// Of every place of a model, in order.
    pub(super) fn of_places(model: &'a StepModel) -> Vec<Self> {
        if model.alone.is_empty() {
            return vec![Self::new(model.deployment())];
        }
        model.alone.iter().map(|place| Self::new(&place.deployment)).collect()
    }

    pub(super) fn linear(&self, term: &LinearTerm, load: &StepLoad, bound: Bound) -> Vec<LawSource> {
        let keys = &[self.product_key(term.weight_bytes, term.flops_per_row)][..];
        let vector = load.tokens() * term.share_of_rows <= term.vector_rows;
        match bound {
            Bound::Overhead => sources!(self, keys; gemm.launch, gemm.per_thousand_inputs),
            Bound::Compute if vector => sources!(self, keys; gemm.vector_operations, gemm.launch),
            Bound::Compute => sources!(self, keys; gemm.compute, gemm.unpack_operations, gemm.launch),
            _ if self.loads_limit(term.memory_rate, keys) => {
                sources!(self, keys; gemm.load_bytes_per_operation, gemm.launch)
            }
            _ => sources!(self, keys; gemm.memory, gemm.launch),
        }
    }

    pub(super) fn experts(&self, term: &ExpertTerm, load: &StepLoad, bound: Bound) -> Vec<LawSource> {
        let keys = &[self.product_key(term.bytes_per_expert, term.flops_per_row)][..];
        match bound {
            Bound::Overhead if load.prefill().tokens > 0.0 => {
                sources!(self, keys; experts.prompt_launch, experts.launch)
            }
            Bound::Overhead => sources!(self, keys; experts.launch),
            Bound::Compute if load.tokens() <= term.unshared_tokens => {
                sources!(self, keys; experts.vector_operations, experts.launch)
            }
            Bound::Compute => sources!(self, keys; experts.compute, experts.activation_memory, experts.launch),
            _ => sources!(self, keys; experts.memory, experts.activation_memory, experts.launch),
        }
    }

    pub(super) fn prefill_attention(&self, group: &str, name: &str, bound: Bound) -> Vec<LawSource> {
        let (latent, keys) = self.attention_keys(group, name);
        let fused = self.deployment.flash_attention();
        match bound {
            Bound::Overhead => sources!(self, &keys; prefill_attention.launch),
            Bound::Compute if latent => sources!(self, &keys; prefill_attention.latent_compute),
            Bound::Compute if fused => sources!(self, &keys; prefill_attention.compute),
            Bound::Compute => sources!(self, &keys; prefill_attention.unfused_compute),
            _ if latent => sources!(self, &keys; prefill_attention.latent_memory),
            _ => sources!(self, &keys; prefill_attention.memory),
        }
    }

    pub(super) fn decode_attention(&self, group: &str, name: &str, bound: Bound) -> Vec<LawSource> {
        let (latent, keys) = self.attention_keys(group, name);
        let fused = self.deployment.flash_attention();
        match bound {
            Bound::Overhead => sources!(self, &keys; decode_attention.launch),
            Bound::Compute if latent => sources!(self, &keys; decode_attention.latent_compute),
            Bound::Compute => sources!(self, &keys; decode_attention.compute),
            _ if latent => sources!(self, &keys; decode_attention.latent_memory),
            _ if fused => sources!(self, &keys; decode_attention.memory, decode_attention.launch),
            _ => sources!(self, &keys; decode_attention.unfused_memory, decode_attention.launch),
        }
    }

    pub(super) fn recurrent(&self, bound: Bound) -> Vec<LawSource> {
        match bound {
            Bound::Overhead => sources!(self, &[]; recurrent.launch),
            Bound::Compute => sources!(self, &[]; recurrent.compute),
            _ => sources!(self, &[]; recurrent.memory),
        }
    }

    pub(super) fn elementwise(&self, load: &StepLoad, bound: Bound) -> Vec<LawSource> {
        match bound {
            Bound::Overhead if load.prefill().tokens > 0.0 => {
                sources!(self, &[]; elementwise.launch, elementwise.prompt_launch)
            }
            Bound::Overhead => sources!(self, &[]; elementwise.launch),
            _ => sources!(self, &[]; elementwise.memory, elementwise.bytes_per_element),
        }
    }

    pub(super) fn sampling(&self, bound: Bound) -> Vec<LawSource> {
        match bound {
            Bound::Overhead => sources!(self, &[]; sampling.launch),
            _ => sources!(self, &[]; sampling.passes, elementwise.memory),
        }
    }

    /// Of exchanges whose time is mostly that of the data (`bandwidth`), or of latencies.
    pub(super) fn communication(&self, bandwidth: bool) -> Vec<LawSource> {
        let size = self.deployment.tensor_parallel().max(2);
        let links = self.deployment.system().group_links(size).ok();
        let link = links.as_ref().and_then(|links| links.inside.as_ref().or(links.across.as_ref()));
        let keys = [link.map_or("", |link| link.kind.name()), &format!("group-{size}")];
        if bandwidth {
            return sources!(self, &keys; communication.two_shot_efficiency, communication.scale);
        }
        sources!(self, &keys; communication.two_shot_latency, communication.one_shot_latency, communication.scale)
    }

    pub(super) fn hops(&self) -> Vec<LawSource> {
        sources!(self, &[]; pipeline.hop)
    }

    /// Of transfers from and to main memory whose time is mostly that of the data (`bandwidth`), or of latencies.
    pub(super) fn transfers(&self, bandwidth: bool) -> Vec<LawSource> {
        if bandwidth {
            return sources!(self, &[]; communication.host_efficiency, pipeline.host_hop);
        }
        sources!(self, &[]; pipeline.host_hop, communication.host_efficiency)
    }

    pub(super) fn host(&self, load: &StepLoad) -> Vec<LawSource> {
        if load.prefill().tokens > 0.0 {
            return sources!(self, &[]; host.per_prompt_step, host.per_step, host.per_layer, host.per_sequence);
        }
        sources!(self, &[]; host.per_step, host.per_layer, host.per_sequence)
    }

    fn at<Q: Quantity + Valued>(
        &self,
        name: &'static str,
        parameter: &Option<Parameter<Q>>,
        format: &[&str],
    ) -> Option<LawSource> {
        let parameter = parameter.as_ref()?;
        let generation = self.generation.each_ref().map(String::as_str);
        let resolved = parameter.at(&Keys { generation: &generation, format });
        let mut keys = vec![&parameter.source];
        let [by_generation, by_format] = parameter.factors().map(|(_, factors)| factors);
        let factors = generation.iter().find_map(|&key| by_generation.get(key)).into_iter();
        for factor in factors.chain(format.iter().filter_map(|&key| by_format.get(key))) {
            if !keys.contains(&&factor.source) {
                keys.push(&factor.source);
            }
        }
        let reference = |key: &String| LawReference {
            key: key.clone(),
            reference: self.engine.sources.get(key).map_or("given by the caller", String::as_str).into(),
        };
        let sources = keys.into_iter().map(reference).collect();
        let (value, kind, known) = (Q::valued(resolved.value), resolved.kind, resolved.known);
        Some(LawSource { parameter: name, value, kind, known, sources })
    }

    /// What the factors of a matrix product are looked up by: the weights' format, or what it is multiplied as.
    fn product_key(&self, weight_bytes: f64, flops_per_row: f64) -> &'static str {
        let bits = 16.0 * weight_bytes / flops_per_row;
        let stored = self.deployment.weights();
        let wanted = stored.compute_format();
        let expanded =
            self.deployment.system().device().matmul_peak(wanted, wanted).fallback && !stored.is_weight_only();
        match expanded {
            // Sums of bytes of several matrices round.
            _ if (bits - 16.0).abs() < 1e-9 => "f16",
            false => stored.kernel_key(),
            true if bits < 6.0 => "int4",
            true => "gptq-int8",
        }
    }

    /// Whether loads in flight limit the bandwidth, not the memory itself.
    fn loads_limit(&self, memory_rate: f64, keys: &[&str]) -> bool {
        let bandwidth = self.deployment.system().device().bandwidth().as_bytes_per_second();
        let memory = self.at("gemm.memory", &self.engine.gemm.memory, keys);
        let share = match memory.map(|law| law.value) {
            Some(LawValue::Number(share)) => share,
            _ => 1.0,
        };
        memory_rate * share * bandwidth > 1.0 + 1e-9
    }

    /// Whether attention is latent, and what its factors are looked up by.
    fn attention_keys(&self, group: &str, name: &str) -> (bool, [&'static str; 2]) {
        let kinds = self.deployment.model().architecture().map_or(&[][..], |model| &model.layer_kinds);
        // The name of a place may follow that of the kind.
        let named = kinds.iter().filter(|kind| group.starts_with(&kind.name));
        let Some(kind) = named.max_by_key(|kind| kind.name.len()) else {
            return (false, ["cache-16", "head-64"]);
        };
        let latent = matches!(kind.layer.mixer, Mixer::LatentAttention(_));
        let pass = kind.layer.attention_passes().into_iter().find(|pass| pass.name == name);
        let small = |pass: &AttentionPass| self.deployment.cache_bits(&kind.layer, pass) < 16.0;
        let cache = if pass.as_ref().is_some_and(small) { "cache-8" } else { "cache-16" };
        let head_dim = pass.map_or(0, |pass| pass.elements_per_entry / (2 * pass.kv_heads).max(1));
        let head = match head_dim {
            0..=64 => "head-64",
            65..=128 => "head-128",
            _ => "head-256",
        };
        (latent, [cache, head])
    }
}

/// How a quantity is shown.
trait Valued {
    fn valued(number: f64) -> LawValue;
}

impl Valued for Share {
    fn valued(number: f64) -> LawValue {
        LawValue::Number(number)
    }
}

impl Valued for Positive {
    fn valued(number: f64) -> LawValue {
        LawValue::Number(number)
    }
}

impl Valued for Number {
    fn valued(number: f64) -> LawValue {
        LawValue::Number(number)
    }
}

impl Valued for Seconds {
    fn valued(number: f64) -> LawValue {
        LawValue::Time(Self::from_seconds(number))
    }
}
