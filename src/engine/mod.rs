//! Inference engines: how far from the hardware's peaks each class of operators stays, what a step costs besides, and how
//! prompts are cut into steps.
//!
//! Everything is data in `engine-profiles/<slug>.toml`. The profile [`ideal`](Engine::ideal) is the textbook roofline: efficiency 1, no overhead.

use crate::profile::{self, ProfileError, Sourced, Sources};
use crate::units::Seconds;
use serde::{Deserialize, Serialize};
use std::sync::LazyLock;

/// An inference engine of one version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Engine {
    /// Version of the file format, 1.
    pub schema_version: u32,
    /// Short name, the key in the catalog, such as `vllm-0.6`.
    pub slug: String,
    /// Name for people.
    pub name: String,
    /// Version of the engine.
    pub version: String,
    /// Other spellings.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// Where the numbers come from: key to reference.
    pub sources: Sources,
    /// Share of the peaks reached, per class of operators.
    pub efficiency: Efficiencies,
    /// Time that no operator explains.
    pub overhead: Overhead,
    /// Communication between devices.
    pub collective: CollectiveProfile,
    /// How work is cut into steps.
    #[serde(default)]
    pub scheduling: Scheduling,
}

/// Shares of the two peaks that a class of operators reaches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Efficiency {
    /// Share of the arithmetic peak, above 0 and at most 1.
    pub compute: Sourced<f64>,
    /// Share of the memory bandwidth, above 0 and at most 1.
    pub memory: Sourced<f64>,
}

/// Efficiencies per class of operators.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Efficiencies {
    /// Dense matrix products.
    pub gemm: Efficiency,
    /// Grouped matrix products over experts.
    pub expert_gemm: Efficiency,
    /// Attention of prompt chunks.
    pub prefill_attention: Efficiency,
    /// Attention of decode tokens.
    pub decode_attention: Efficiency,
    /// State-space and linear-attention scans.
    pub recurrent: Efficiency,
    /// Norms, rotations, residuals, look-ups.
    pub elementwise: Efficiency,
}

/// Time and traffic that do not belong to one of the large operators.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Overhead {
    /// Added to every step: launches, scheduling, sampling.
    pub per_step: Sourced<Seconds>,
    /// Added to every step for each sequence in it.
    pub per_sequence: Sourced<Seconds>,
    /// How often a layer reads or writes the residual stream in unfused elementwise kernels, in passes over `tokens * hidden_size`.
    pub elementwise_passes_per_layer: Sourced<f64>,
}

/// Communication between the devices of a tensor-parallel group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CollectiveProfile {
    /// Time of one hop without data.
    pub latency: Sourced<Seconds>,
    /// Share of the link bandwidth reached.
    pub efficiency: Sourced<f64>,
}

/// How an engine cuts work into steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Scheduling {
    /// Most tokens in one step (chunked prefill); absent if a prompt is processed in one step, however long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens_per_step: Option<Sourced<u64>>,
    /// Share of device memory that weights and cache may use; absent means all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_fraction: Option<Sourced<f64>>,
}

impl Engine {
    /// The textbook roofline: every operator at the hardware's peak, no overhead.
    pub fn ideal() -> Self {
        static IDEAL: LazyLock<Result<Engine, ProfileError>> = LazyLock::new(|| {
            Engine::from_toml(include_str!("../../engine-profiles/ideal.toml"), "engine-profiles/ideal.toml")
        });
        match &*IDEAL {
            Ok(engine) => engine.clone(),
            Err(error) => unreachable!("the embedded ideal engine is valid, a test reads it: {error}"),
        }
    }

    /// Reads a profile.
    ///
    /// # Errors
    /// [`ProfileError`] with file, line, key and the nearest valid name; for efficiencies outside (0, 1].
    pub fn from_toml(text: &str, file: &str) -> Result<Self, ProfileError> {
        let engine: Self = profile::read(text, file)?;
        engine.check_as(file).map_err(|error| error.locate(text))?;
        Ok(engine)
    }

    /// Writes the profile; reading it again gives an equal engine.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).unwrap_or_default()
    }

    /// Whether an engine whose fields were changed is still one: shares in (0, 1], times that are finite and not negative, at least one
    /// token per step, sources that are listed.
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
        let classes = [
            ("gemm", &self.efficiency.gemm),
            ("expert_gemm", &self.efficiency.expert_gemm),
            ("prefill_attention", &self.efficiency.prefill_attention),
            ("decode_attention", &self.efficiency.decode_attention),
            ("recurrent", &self.efficiency.recurrent),
            ("elementwise", &self.efficiency.elementwise),
        ];
        for (class, efficiency) in classes {
            self.check_share(file, || format!("efficiency.{class}.compute"), &efficiency.compute)?;
            self.check_share(file, || format!("efficiency.{class}.memory"), &efficiency.memory)?;
        }
        self.check_share(file, || "collective.efficiency".into(), &self.collective.efficiency)?;
        if let Some(fraction) = &self.scheduling.memory_fraction {
            self.check_share(file, || "scheduling.memory_fraction".into(), fraction)?;
        }
        self.check_time(file, "overhead.per_step", &self.overhead.per_step)?;
        self.check_time(file, "overhead.per_sequence", &self.overhead.per_sequence)?;
        self.check_time(file, "collective.latency", &self.collective.latency)?;
        let passes = &self.overhead.elementwise_passes_per_layer;
        if !(passes.value.is_finite() && passes.value >= 0.0) {
            let message = format!("is {}, expected a number of passes that is not negative", passes.value);
            return Err(ProfileError::at_key(file, "overhead.elementwise_passes_per_layer", message));
        }
        self.check_source(file, || "overhead.elementwise_passes_per_layer".into(), &passes.source)?;
        if let Some(budget) = &self.scheduling.max_tokens_per_step {
            let key = "scheduling.max_tokens_per_step";
            if budget.value == 0 {
                return Err(ProfileError::at_key(file, key, "is 0, expected at least 1 token"));
            }
            self.check_source(file, || key.into(), &budget.source)?;
        }
        Ok(())
    }

    fn check_time(&self, file: &str, key: &str, time: &Sourced<Seconds>) -> Result<(), ProfileError> {
        if !(time.value.is_finite() && time.value >= Seconds::ZERO) {
            let message = format!("is {}, expected a finite time that is not negative", time.value);
            return Err(ProfileError::at_key(file, key, message));
        }
        self.check_source(file, || key.into(), &time.source)
    }

    fn check_share(&self, file: &str, key: impl Fn() -> String, share: &Sourced<f64>) -> Result<(), ProfileError> {
        if !(share.value > 0.0 && share.value <= 1.0) {
            let message = format!("is {}, expected a share above 0 and at most 1", share.value);
            return Err(ProfileError::at_key(file, &key(), message));
        }
        self.check_source(file, key, &share.source)
    }

    fn check_source(&self, file: &str, key: impl Fn() -> String, source: &str) -> Result<(), ProfileError> {
        if self.sources.contains_key(source) {
            return Ok(());
        }
        let known = self.sources.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        let message = format!("names the source `{source}`, declared in [sources] are: {known}");
        Err(ProfileError::at_key(file, &key(), message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ideal_engine_is_valid_and_has_no_losses() {
        let engine = Engine::ideal();
        assert_eq!(engine.efficiency.gemm.compute.value, 1.0);
        assert_eq!(engine.overhead.per_step.value, Seconds::ZERO);
        assert_eq!(Engine::from_toml(&engine.to_toml(), "copy").unwrap(), engine);
    }

    #[test]
    fn bad_profiles_name_key_line_and_limit() {
        let text = include_str!("../../engine-profiles/ideal.toml");
        let above_one = text.replacen("compute = { value = 1.0", "compute = { value = 1.5", 1);
        let error = Engine::from_toml(&above_one, "mine.toml").unwrap_err();
        assert!(error.to_string().contains("efficiency.gemm.compute"), "{error}");
        assert!(error.to_string().contains("1.5"), "{error}");
        let unsourced = text.replacen(
            "latency = { value = \"0 s\", kind = \"assumed\", source = \"definition\"",
            "latency = { value = \"0 s\", kind = \"assumed\", source = \"hearsay\"",
            1,
        );
        let error = Engine::from_toml(&unsourced, "mine.toml").unwrap_err();
        assert!(error.to_string().contains("key `collective.latency`: names the source `hearsay`"), "{error}");
        let mistyped = text.replacen("per_step", "per_stepp", 1);
        let error = Engine::from_toml(&mistyped, "mine.toml").unwrap_err();
        assert!(error.to_string().contains("did you mean `per_step`"), "{error}");
        assert_eq!(error.line, Some(1 + mistyped.lines().position(|line| line.starts_with("per_stepp")).unwrap()));
    }

    #[test]
    fn changed_engines_are_checked_again() {
        let changed = |change: fn(&mut Engine)| {
            let mut engine = Engine::ideal();
            change(&mut engine);
            engine.check().unwrap_err().to_string()
        };
        let share = changed(|engine| engine.efficiency.gemm.memory.value = f64::NAN);
        assert_eq!(share, "ideal: key `efficiency.gemm.memory`: is NaN, expected a share above 0 and at most 1");
        let time = changed(|engine| engine.overhead.per_step.value = Seconds::from_seconds(-1.0));
        assert!(time.contains("overhead.per_step") && time.contains("not negative"), "{time}");
        let budget = changed(|engine| engine.scheduling.max_tokens_per_step = Some(Sourced::assumed(0)));
        assert!(budget.contains("scheduling.max_tokens_per_step"), "{budget}");
        assert!(Engine::ideal().check().is_ok());
    }
}
