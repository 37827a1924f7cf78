//! Inference engines: the laws that their kernels follow, what a step costs besides, and how work is cut into steps.
//!
//! Everything is data in `engine-profiles/<slug>.toml`. A profile may extend another one and then holds only what differs. The profile
//! [`ideal`](Engine::ideal) has no law at all: every operator reaches the hardware's peak, the textbook roofline.

mod laws;
mod memory;
mod parameter;
mod scheduling;

pub use laws::{
    CommunicationLaw, DecodeAttentionLaw, ElementwiseLaw, ExpertLaw, GemmLaw, HostLaw, PipelineLaw,
    PrefillAttentionLaw, RecurrentLaw, SamplingLaw, SpeculationLaw, UncertaintyLaw,
};
pub use memory::{Below, Budget, ByDevice, CacheAccounting, Exhaustion, MemoryRules, PrintedTokens};
pub use parameter::{AnyParameter, Factor, Keys, Number, Parameter, Positive, Quantity, Resolved, Share};
pub use scheduling::{Arithmetic, MatrixUnit, PromptPolicy, Scheduling};

use crate::profile::{self, ProfileError, Provenance, Sources};
use serde::{Deserialize, Serialize};
use std::sync::{Arc, LazyLock};

/// An inference engine of one version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Engine {
    /// Version of the file format, 1.
    pub schema_version: u32,
    /// Short name, the key in the catalog, such as `vllm-2026`.
    pub slug: String,
    /// Name for people.
    pub name: String,
    /// Versions of the engine that the profile stands for.
    pub version: String,
    /// Other spellings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// The profile that this one extends; its own keys have already been filled in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extends: Option<String>,
    /// Where the numbers come from: key to reference.
    pub sources: Sources,
    /// Which units multiply.
    #[serde(default)]
    pub arithmetic: Arithmetic,
    /// Dense matrix products.
    #[serde(default)]
    pub gemm: GemmLaw,
    /// Routed experts.
    #[serde(default)]
    pub experts: ExpertLaw,
    /// Attention of prompts.
    #[serde(default)]
    pub prefill_attention: PrefillAttentionLaw,
    /// Attention of decode tokens.
    #[serde(default)]
    pub decode_attention: DecodeAttentionLaw,
    /// State-space and linear attention.
    #[serde(default)]
    pub recurrent: RecurrentLaw,
    /// Small kernels.
    #[serde(default)]
    pub elementwise: ElementwiseLaw,
    /// Choice of tokens.
    #[serde(default)]
    pub sampling: SamplingLaw,
    /// Communication between devices.
    #[serde(default)]
    pub communication: CommunicationLaw,
    /// Layers over devices one after another.
    #[serde(default)]
    pub pipeline: PipelineLaw,
    /// Time of the host.
    #[serde(default)]
    pub host: HostLaw,
    /// Cycles of speculative decoding.
    #[serde(default)]
    pub speculation: SpeculationLaw,
    /// How work is cut into steps.
    #[serde(default)]
    pub scheduling: Scheduling,
    /// How memory is divided.
    #[serde(default)]
    pub memory: MemoryRules,
    /// Scatter of measurements.
    #[serde(default)]
    pub uncertainty: UncertaintyLaw,
}

/// Calls a macro with the name of every law.
macro_rules! every_law {
    ($call:ident) => {
        $call!(
            gemm,
            experts,
            prefill_attention,
            decode_attention,
            recurrent,
            elementwise,
            sampling,
            communication,
            pipeline,
            host,
            speculation,
            uncertainty
        )
    };
}

impl Engine {
    /// The textbook roofline: every operator at the hardware's peak, no overhead.
    pub fn ideal() -> Self {
        Self::clone(&Self::ideal_for_all())
    }

    /// The same, which all deployments share that name no engine.
    pub(crate) fn ideal_for_all() -> Arc<Self> {
        static IDEAL: LazyLock<Result<Arc<Engine>, ProfileError>> = LazyLock::new(|| {
            let text = include_str!("../../engine-profiles/ideal.toml");
            Engine::from_toml(text, "engine-profiles/ideal.toml").map(Arc::new)
        });
        match &*IDEAL {
            Ok(engine) => Arc::clone(engine),
            Err(error) => unreachable!("the embedded ideal engine is valid, a test reads it: {error}"),
        }
    }

    /// Reads a profile that stands for itself; one that extends another is read through a catalog.
    ///
    /// # Errors
    /// [`ProfileError`] with file, line, key and the nearest valid name; for values outside their range, and unknown sources.
    pub fn from_toml(text: &str, file: &str) -> Result<Self, ProfileError> {
        Self::from_toml_over(text, file, |_| None)
    }

    /// Reads a profile; `find` gives the text of the profile that it extends.
    ///
    /// Tables are merged key by key: what a profile says replaces what the one below says. A parameter that is given a new `value` keeps the
    /// factors below it; a rule of memory is replaced as a whole.
    ///
    /// # Errors
    /// As for [`from_toml`](Self::from_toml); also for a profile that is not found, or extends itself.
    pub fn from_toml_over<'a>(
        text: &str,
        file: &str,
        find: impl Fn(&str) -> Option<&'a str>,
    ) -> Result<Self, ProfileError> {
        let mut merged: toml::Table = profile::read(text, file)?;
        let mut below = merged.get("extends").and_then(toml::Value::as_str).map(str::to_owned);
        let mut steps = 0;
        while let Some(slug) = below {
            let base = find(&slug).filter(|_| steps < EXTENDS_LIMIT).ok_or_else(|| {
                let message = format!("names `{slug}`, which is no profile of the catalog or extends too many others");
                ProfileError::at_key(file, "extends", message).locate(text)
            })?;
            let base: toml::Table = profile::read(base, &slug)?;
            below = base.get("extends").and_then(toml::Value::as_str).map(str::to_owned);
            fill_in(&mut merged, base);
            steps += 1;
        }
        let engine: Self = match merged.contains_key("extends") {
            // Errors of a profile that stands for itself name the line by the text itself.
            false => profile::read(text, file)?,
            true => toml::Table::try_into(merged)
                .map_err(|error: toml::de::Error| profile::explained(text, file, &error))?,
        };
        engine.check_as(file).map_err(|error| error.locate(text))?;
        Ok(engine)
    }

    /// Writes the profile; reading it again gives an equal engine.
    pub fn to_toml(&self) -> String {
        toml::to_string(&Self { extends: None, ..self.clone() }).unwrap_or_default()
    }

    /// Every parameter with its name, such as `gemm.compute`.
    pub fn parameters(&self) -> Vec<(String, &dyn AnyParameter)> {
        let mut all: Vec<(String, &dyn AnyParameter)> = Vec::new();
        macro_rules! visit {
            ($($law:ident),*) => {
                $(self.$law.each(&mut |name, parameter| all.push((format!("{}.{name}", stringify!($law)), parameter)));)*
            };
        }
        every_law!(visit);
        all
    }

    /// The number called `gemm.compute` (a value) or `gemm.compute.by_generation.hopper` (a factor), in its base unit.
    pub fn parameter(&self, name: &str) -> Option<f64> {
        let (law, rest) = name.split_once('.')?;
        let (short, factor) = rest.split_once('.').map_or((rest, None), |(short, factor)| (short, Some(factor)));
        let full = format!("{law}.{short}");
        let (_, parameter) = self.parameters().into_iter().find(|(candidate, _)| *candidate == full)?;
        let Some((table, key)) = factor.map(|factor| factor.split_once('.')).unwrap_or_default() else {
            return factor.is_none().then(|| parameter.number());
        };
        let factors = parameter.factors().into_iter().find(|(name, _)| *name == table)?.1;
        factors.get(key).map(|factor| factor.value)
    }

    /// The number called `gemm.compute` (a value) or `gemm.compute.by_generation.hopper` (a factor) is set; `None` if there is none.
    pub fn set_parameter(&mut self, name: &str, number: f64) -> Option<()> {
        let mut path = name.splitn(4, '.');
        let (law, parameter) = (path.next()?, path.next()?);
        macro_rules! find {
            ($($law:ident),*) => {
                match law {
                    $(stringify!($law) => self.$law.parameter_mut(parameter)?,)*
                    _ => return None,
                }
            };
        }
        let parameter = every_law!(find);
        match (path.next(), path.next()) {
            (Some(table), Some(key)) => parameter.factor_mut(table, key)?.value = number,
            (None, None) => parameter.set_number(number),
            _ => return None,
        }
        Some(())
    }

    /// Whether any parameter is a time above 0.
    pub fn has_times(&self) -> bool {
        self.parameters().iter().any(|(_, parameter)| parameter.is_time() && parameter.number() > 0.0)
    }

    /// The same engine with every parameter that is a time multiplied by a factor.
    ///
    /// ```
    /// use llm_roofline::catalog::Catalog;
    /// let engine = Catalog::embedded().engine("vllm-2026")?;
    /// let slower = engine.with_times_scaled(2.0);
    /// assert_eq!(slower.parameter("gemm.launch"), engine.parameter("gemm.launch").map(|time| 2.0 * time));
    /// assert_eq!(slower.parameter("gemm.memory"), engine.parameter("gemm.memory")); // a share of a bandwidth is no time
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_times_scaled(&self, factor: f64) -> Self {
        let times = self.parameters().into_iter().filter(|(_, parameter)| parameter.is_time());
        let times: Vec<(String, f64)> = times.map(|(name, parameter)| (name, parameter.number() * factor)).collect();
        let mut scaled = self.clone();
        for (name, time) in times {
            // The name was read from the same engine, so that it is there.
            let _ = scaled.set_parameter(&name, time);
        }
        scaled
    }

    /// Whether an engine whose fields were changed is still one: numbers in their range, at least one token per step, sources that are
    /// listed.
    ///
    /// # Errors
    /// [`ProfileError`] with the key, the value and the range.
    pub fn check(&self) -> Result<(), ProfileError> {
        self.check_as(&self.slug)
    }

    fn check_as(&self, file: &str) -> Result<(), ProfileError> {
        if self.schema_version != 1 {
            let message = format!("is {}, this version reads 1", self.schema_version);
            return Err(ProfileError::at_key(file, "schema_version", message));
        }
        macro_rules! visit {
            ($($law:ident),*) => {$(
                let mut result = Ok(());
                self.$law.each(&mut |name, parameter| {
                    if result.is_ok() {
                        result = self.check_parameter(file, stringify!($law), name, parameter);
                    }
                });
                result?;
            )*};
        }
        every_law!(visit);
        self.check_scheduling(file)
    }

    fn check_parameter(
        &self,
        file: &str,
        law: &str,
        name: &str,
        parameter: &dyn AnyParameter,
    ) -> Result<(), ProfileError> {
        let key = || format!("{law}.{name}");
        if !parameter.is_valid() {
            let message = format!("is {}, expected {}", parameter.number(), parameter.expected());
            return Err(ProfileError::at_key(file, &key(), message));
        }
        self.check_source(file, key, parameter.source())?;
        for (table, factors) in parameter.factors() {
            for (factor_key, factor) in factors {
                let key = || format!("{law}.{name}.{table}.{factor_key}");
                if !(factor.value.is_finite() && factor.value > 0.0) {
                    let message = format!("is {}, expected a positive finite factor", factor.value);
                    return Err(ProfileError::at_key(file, &key(), message));
                }
                self.check_source(file, key, &factor.source)?;
            }
        }
        Ok(())
    }

    fn check_scheduling(&self, file: &str) -> Result<(), ProfileError> {
        let scheduling = &self.scheduling;
        let steps = scheduling.prompt_wait_steps.as_ref().map_or(0.0, |steps| steps.value);
        if !(steps.is_finite() && steps >= 0.0) {
            let message = format!("is {steps}, expected a number of steps from 0 on");
            return Err(ProfileError::at_key(file, "scheduling.prompt_wait_steps", message));
        }
        let by_device = [
            ("scheduling.max_tokens_per_step", &scheduling.max_tokens_per_step),
            ("scheduling.max_sequences", &scheduling.max_sequences),
        ];
        for (key, count) in by_device {
            if let Some(count) = count {
                if count.values().any(|count| count == 0) {
                    return Err(ProfileError::at_key(file, key, "is 0, expected at least 1"));
                }
                self.check_source(file, || key.into(), &count.source)?;
            }
        }
        for (key, source) in [
            ("scheduling.prompts", scheduling.prompts.as_ref().map(|rule| &rule.source)),
            ("scheduling.reserves_output", scheduling.reserves_output.as_ref().map(|rule| &rule.source)),
            ("scheduling.prompt_wait_steps", scheduling.prompt_wait_steps.as_ref().map(|rule| &rule.source)),
        ] {
            source.map_or(Ok(()), |source| self.check_source(file, || key.into(), source))?;
        }
        let counts = [
            ("scheduling.micro_batches_in_flight", &scheduling.micro_batches_in_flight),
            ("scheduling.offload_rows", &scheduling.offload_rows),
        ];
        for (key, count) in counts {
            if let Some(count) = count {
                if count.value == 0 {
                    return Err(ProfileError::at_key(file, key, "is 0, expected at least 1"));
                }
                self.check_source(file, || key.into(), &count.source)?;
            }
        }
        self.check_memory(file)
    }

    fn check_memory(&self, file: &str) -> Result<(), ProfileError> {
        if let Some((key, number, low, high)) = self.memory.first_out_of_range() {
            let message = format!("is {number}, expected {low} to {high}");
            return Err(ProfileError::at_key(file, &format!("memory.{key}"), message));
        }
        for (key, source) in self.memory.sources() {
            self.check_source(file, || format!("memory.{key}"), source)?;
        }
        Ok(())
    }

    fn check_source(&self, file: &str, key: impl Fn() -> String, source: &str) -> Result<(), ProfileError> {
        // What the caller supposed needs no reference.
        if self.sources.contains_key(source) || source == "caller" {
            return Ok(());
        }
        let known = self.sources.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        let message = format!("names the source `{source}`, declared in [sources] are: {known}");
        Err(ProfileError::at_key(file, &key(), message))
    }
}

/// Profiles extend at most so many others.
const EXTENDS_LIMIT: usize = 8;

/// Adds the keys of `base` that `table` lacks, table by table. Names of the base stay with the base.
fn fill_in(table: &mut toml::Table, base: toml::Table) {
    for (key, value) in base {
        match (table.get_mut(&key), value) {
            // Factors below stay valid for a new value of a law; a rule of memory is whole.
            (Some(toml::Value::Table(own)), toml::Value::Table(below)) if key == "memory" => {
                below.into_iter().for_each(|(rule, value)| {
                    own.entry(rule).or_insert(value);
                });
            }
            (Some(toml::Value::Table(own)), toml::Value::Table(below)) => fill_in(own, below),
            (Some(_), _) => {}
            (None, _) if key == "aliases" || key == "extends" => {}
            (None, value) => {
                table.insert(key, value);
            }
        }
    }
}

impl<Q: Quantity> Parameter<Q> {
    /// A parameter supposed by the caller.
    pub fn assumed(value: Q) -> Self {
        Self {
            value,
            kind: Provenance::Assumed,
            source: "caller".into(),
            note: None,
            by_generation: Default::default(),
            by_format: Default::default(),
        }
    }
}

#[cfg(test)]
mod tests;
