//! An answer as a table for people and as JSON for programs.

use super::{Request, RequestEstimate};
use crate::deployment::Offload;
use crate::engine::Engine;
use crate::memory::MemoryModel;
use crate::roofline::Bound;
use crate::step::{Interval, StepModel};
use crate::text::{Experience, Language, Tokenizer};
use crate::units::{Bytes, Seconds};
use serde::Serialize;
use std::fmt;

/// What a request estimate says, flattened: units in the names, ready for JSON and CSV.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Summary {
    /// Slug of the model.
    pub model: String,
    /// Slug of the device.
    pub device: String,
    /// Devices that share every layer.
    pub tensor_parallel: u32,
    /// Weight format.
    pub weight_format: String,
    /// Format of the key-value cache.
    pub kv_format: String,
    /// Slug of the engine.
    pub engine: String,
    /// Tokens of each prompt.
    pub prompt_tokens: u64,
    /// Prompt tokens found in the prefix cache.
    pub cached_prompt_tokens: u64,
    /// Tokens of each answer.
    pub output_tokens: u64,
    /// Requests in the batch.
    pub batch: u64,
    /// Time to first token.
    pub ttft_ms: f64,
    /// Mean time per output token after the first; null for an answer of one token.
    pub tpot_ms: Option<f64>,
    /// Fast end of the interval of nine of ten measurements of `ttft_ms`; left out, as all ends are, under the ideal engine, which is a bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttft_low_ms: Option<f64>,
    /// Slow end of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttft_high_ms: Option<f64>,
    /// Fast end for `tpot_ms`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tpot_low_ms: Option<f64>,
    /// Slow end for `tpot_ms`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tpot_high_ms: Option<f64>,
    /// Fast end for `e2e_ms`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub e2e_low_ms: Option<f64>,
    /// Slow end for `e2e_ms`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub e2e_high_ms: Option<f64>,
    /// Gap before the second token.
    pub itl_first_ms: Option<f64>,
    /// Gap before the last token.
    pub itl_last_ms: Option<f64>,
    /// End-to-end latency.
    pub e2e_ms: f64,
    /// Decode rate of one request.
    pub tps_per_stream: Option<f64>,
    /// Decode rate of the batch.
    pub tps_total: Option<f64>,
    /// Output tokens of the batch over the end-to-end latency.
    pub output_tps_total: f64,
    /// Prompt tokens of the batch over the time to first token.
    pub prefill_tps_total: f64,
    /// Characters per second that one request writes, in English.
    pub characters_per_second: Option<f64>,
    /// Words per second that one request writes, in English.
    pub words_per_second: Option<f64>,
    /// Bytes of the model's weights, copies on several devices not counted.
    pub weights_bytes: f64,
    /// Bytes of keys, values and recurrent states of the batch at the end of the answer, copies not counted.
    pub kv_cache_bytes: f64,
    /// Bytes that each device must hold.
    pub memory_per_device_bytes: f64,
    /// Bytes that each device has.
    pub memory_capacity_bytes: f64,
    /// A sentence where memory is nearly full.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_warning: Option<String>,
    /// What limits the time to first token.
    pub prefill_bound: Bound,
    /// What limits the time per output token.
    pub decode_bound: Bound,
    /// Model FLOP/s utilisation of the prefill.
    pub mfu: f64,
    /// Model bandwidth utilisation of the decode.
    pub mbu: Option<f64>,
    /// How it feels to read along.
    pub experience: Option<String>,
    /// What the answer rests on besides data sheets and measurements.
    pub assumptions: Vec<String>,
}

impl RequestEstimate {
    /// The estimate with its deployment, flattened for printing.
    pub fn summary(&self, model: &StepModel) -> Summary {
        let deployment = model.deployment();
        let one_device = deployment.clone().with_tensor_parallel(1).with_pipeline_parallel(1).with_kv(*deployment.kv());
        let whole = MemoryModel::new(&one_device.with_engine(Engine::ideal()).with_offload(Offload::None));
        let request = &self.request;
        let density = Tokenizer::density_or_default(deployment.model().tokenizer.as_deref(), Language::English).ok();
        let text = self.tps_per_stream.zip(density.as_ref()).map(|(rate, density)| density.rate(rate));
        let experience = self.tpot.zip(density.as_ref()).map(|(tpot, density)| Experience::reading(tpot, density));
        let cache = whole.kv_per_sequence(request.context_tokens()) + whole.state_per_sequence();
        let mut assumptions = deployment.assumptions();
        if deployment.model().tokenizer.is_none() {
            assumptions
                .push("tokenizer density not known: 4 characters per token assumed for characters per second".into());
        }
        let (ttft_low_ms, ttft_high_ms) = ends(Some(self.ttft_interval));
        let (tpot_low_ms, tpot_high_ms) = ends(self.tpot_interval);
        let (e2e_low_ms, e2e_high_ms) = ends(Some(self.e2e_interval));
        Summary {
            model: deployment.model().slug.clone(),
            device: deployment.system().device().slug().to_string(),
            tensor_parallel: deployment.tensor_parallel(),
            weight_format: deployment.weights().to_string(),
            kv_format: deployment.kv().to_string(),
            engine: deployment.engine().slug.clone(),
            prompt_tokens: request.prompt_tokens,
            cached_prompt_tokens: request.cached_prompt_tokens,
            output_tokens: request.output_tokens,
            batch: request.batch,
            ttft_ms: self.ttft.as_millis(),
            tpot_ms: self.tpot.map(Seconds::as_millis),
            ttft_low_ms,
            ttft_high_ms,
            tpot_low_ms,
            tpot_high_ms,
            e2e_low_ms,
            e2e_high_ms,
            itl_first_ms: self.itl_first.map(Seconds::as_millis),
            itl_last_ms: self.itl_last.map(Seconds::as_millis),
            e2e_ms: self.e2e.as_millis(),
            tps_per_stream: self.tps_per_stream.map(|rate| rate.as_tokens_per_second()),
            tps_total: self.tps_total.map(|rate| rate.as_tokens_per_second()),
            output_tps_total: self.output_tps_total.as_tokens_per_second(),
            prefill_tps_total: self.prefill_tps_total.as_tokens_per_second(),
            characters_per_second: text.map(|text| text.characters_per_second),
            words_per_second: text.and_then(|text| text.words_per_second),
            weights_bytes: whole.weights().as_bytes(),
            kv_cache_bytes: (cache * request.batch as f64).as_bytes(),
            memory_per_device_bytes: self.memory.needed().as_bytes(),
            memory_capacity_bytes: self.memory.capacity.as_bytes(),
            memory_warning: self.memory.warning(),
            prefill_bound: self.prefill_bound(),
            decode_bound: self.decode_bound(),
            mfu: self.mfu,
            mbu: self.mbu,
            experience: experience.map(|experience| experience.to_string()),
            assumptions,
        }
    }
}

/// The ends of an interval that is more than a point, in milliseconds.
fn ends(interval: Option<Interval>) -> (Option<f64>, Option<f64>) {
    interval
        .filter(|interval| interval.low < interval.high)
        .map_or((None, None), |interval| (Some(interval.low.as_millis()), Some(interval.high.as_millis())))
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { model, device, tensor_parallel, weight_format, kv_format, engine, .. } = self;
        writeln!(
            f,
            "{model} ({weight_format} weights, {kv_format} cache) on {tensor_parallel} x {device}, {engine} engine"
        )?;
        let request = Request::new(self.prompt_tokens, self.output_tokens)
            .with_batch(self.batch)
            .with_cached_prompt_tokens(self.cached_prompt_tokens);
        writeln!(f, "{request}\n")?;
        let millis = |millis: f64| Seconds::from_millis(millis).to_string();
        let rate = |rate: f64| if rate < 1000.0 { format!("{rate:.1} tok/s") } else { format!("{rate:.0} tok/s") };
        let bytes = |bytes: f64| Bytes::from_bytes(bytes).to_string();
        let interval = |low: Option<f64>, high: Option<f64>| {
            let ends = low.zip(high);
            ends.map_or(String::new(), |(low, high)| format!("({} to {}) ", millis(low), millis(high)))
        };
        let mut row = |name: &str, value: String, meaning: &str| writeln!(f, "  {name:<22} {value:>20}   {meaning}");
        let ttft = interval(self.ttft_low_ms, self.ttft_high_ms);
        let prefill = format!("{ttft}time to first token, {} bound, MFU {:.0} %", self.prefill_bound, 100.0 * self.mfu);
        row("TTFT", millis(self.ttft_ms), &prefill)?;
        if let (Some(tpot), Some(first), Some(last)) = (self.tpot_ms, self.itl_first_ms, self.itl_last_ms) {
            let mbu = 100.0 * self.mbu.unwrap_or_default();
            let ends = interval(self.tpot_low_ms, self.tpot_high_ms);
            row(
                "TPOT",
                millis(tpot),
                &format!("{ends}mean time per output token, {} bound, MBU {mbu:.0} %", self.decode_bound),
            )?;
            row("ITL", format!("{} .. {}", millis(first), millis(last)), "inter-token latency, first .. last")?;
        }
        let e2e = format!("{}TTFT + (output tokens - 1) x TPOT", interval(self.e2e_low_ms, self.e2e_high_ms));
        row("E2E", millis(self.e2e_ms), &e2e)?;
        if let (Some(per_stream), Some(total)) = (self.tps_per_stream, self.tps_total) {
            row("TPS per stream", rate(per_stream), "decode rate that one user sees")?;
            row("TPS total", rate(total), "decode rate of the batch")?;
        }
        row("prefill TPS total", rate(self.prefill_tps_total), "prompt tokens per second")?;
        if let Some(characters) = self.characters_per_second {
            let words = self.words_per_second.map_or(String::new(), |words| format!("{words:.1} words/s in English"));
            row("text per stream", format!("{characters:.0} chars/s"), &words)?;
        }
        row("weights", bytes(self.weights_bytes), "all devices together")?;
        row("KV cache", bytes(self.kv_cache_bytes), "of the batch at the end of the answer")?;
        let share = 100.0 * self.memory_per_device_bytes / self.memory_capacity_bytes;
        let of = format!("of {} on each device ({share:.0} %)", bytes(self.memory_capacity_bytes));
        row("memory", bytes(self.memory_per_device_bytes), &of)?;
        if let Some(warning) = &self.memory_warning {
            writeln!(f, "\n  {warning}")?;
        }
        if self.ttft_low_ms.is_some() {
            writeln!(f, "\n  (low to high): nine of ten measurements are expected there")?;
        }
        if let Some(experience) = &self.experience {
            writeln!(f, "\n  {experience}")?;
        }
        Ok(())
    }
}
