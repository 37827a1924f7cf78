//! Rows of the metric `speedup`: how many times faster an engine was with speculative decoding than without.

use super::deployed::weights;
use super::measurement::Measurement;
use super::predict::Refusal;
use super::score::SPEEDUP;
use crate::catalog::Catalog;
use crate::deployment::Deployment;
use crate::engine::Engine;
use crate::format::WeightFormat;
use crate::hardware::{Device, System};
use crate::model::{Architecture, Attention, FeedForward, Layer, Mixer, Model};
use crate::request::Request;
use crate::speculative::{Method, Proposal, Speculation, SpeculationError, SpeculativeModel, Speedup};
use crate::step::StepModel;
use crate::units::Bytes;
use std::sync::Arc;

/// What a row says about speculation, and what was assumed.
pub(super) struct Speculated {
    model: SpeculativeModel,
    request: Request,
}

impl Speculated {
    /// Compiles what a row was measured on; adds to the assumptions.
    pub(super) fn of(
        catalog: &Catalog,
        row: &Measurement,
        target: &Deployment,
        assumptions: &mut Vec<String>,
    ) -> Result<Self, Refusal> {
        let method = row.tag("method").ok_or_else(|| tag_refused(row, "method", "a method such as eagle3"))?;
        let method: Method = method.parse()?;
        let speculation = match method {
            Method::DraftModel => Speculation::draft_model(draft_model(catalog, row, target, assumptions)?),
            _ => Speculation::new(method, target)?,
        };
        let length = number(row, "acceptance_length", "tokens per step, at least 1")?;
        let proposal = match proposal(row)? {
            Some(proposal) => proposal,
            None => {
                let usual = usual_proposal(row, method, length)?;
                let (tokens, depth) = (usual.draft_tokens(), usual.depth());
                assumptions.push(format!("{tokens} tokens proposed down to {depth}, as {method} usually does"));
                usual
            }
        };
        let length = match (length, number(row, "acceptance_rate", "accepted over proposed, from 0 to 1")?) {
            (None, Some(share)) => Some(1.0 + share * proposal.draft_tokens() as f64),
            (length, _) => length,
        };
        let speculation = speculation.with_proposal(proposal);
        let speculation = match length {
            Some(length) => speculation.with_measured_tokens_per_step(length)?,
            None => speculation,
        };
        assumptions.extend(speculation.assumptions());
        let model = SpeculativeModel::compile(target, &speculation)?;
        Ok(Self { model, request: request(row, assumptions) })
    }

    /// The quotient of the times in which the requests in flight are answered.
    pub(super) fn speedup(&self) -> Speedup {
        self.model.closed_loop_speedup(&self.request)
    }
}

fn proposal(row: &Measurement) -> Result<Option<Proposal>, Refusal> {
    // Means of drafts of changing length are rounded.
    let count =
        |name| Ok::<_, Refusal>(number(row, name, "a number from 1")?.map(|number| number.round().max(1.0) as u64));
    let (steps, top_k, verified) = (count("steps")?, count("topk")?, count("num_draft_tokens")?);
    let proposal = match (steps, top_k.unwrap_or(1), verified) {
        (None, _, None) => return Ok(None),
        (Some(steps), 1, _) => Proposal::chain(steps),
        (None, 1, Some(verified)) => Proposal::chain(verified.saturating_sub(1)),
        (steps, top_k, verified) => {
            let verified = verified.or(steps.map(|steps| steps.saturating_add(1))).unwrap_or(1);
            Proposal::tree(top_k, steps.unwrap_or(verified - 1), verified.saturating_sub(1))
        }
    };
    Ok(Some(proposal?))
}

/// The shape that a method usually proposes: trees by the authors' own code of EAGLE-3 where serving engines propose chains; deeper where more was
/// accepted than it allows.
fn usual_proposal(row: &Measurement, method: Method, length: Option<f64>) -> Result<Proposal, SpeculationError> {
    let by_authors = method == Method::Eagle3 && row.engine == "transformers";
    let usual = if by_authors { Method::Eagle2.usual_proposal() } else { method.usual_proposal() };
    let deepest = length.map_or(0, |length| (length.min(1e3) - 1.0).ceil().max(0.0) as u64);
    match (usual.is_tree(), deepest > usual.most_accepted()) {
        (_, false) => Ok(usual),
        (true, true) => Proposal::tree(usual.top_k(), deepest, usual.draft_tokens().max(deepest)),
        (false, true) => Proposal::chain(deepest),
    }
}

fn number(row: &Measurement, name: &str, expected: &'static str) -> Result<Option<f64>, Refusal> {
    let Some(text) = row.tag(name) else { return Ok(None) };
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
    number.map(Some).ok_or_else(|| tag_refused(row, name, expected))
}

fn tag_refused(row: &Measurement, name: &str, expected: &'static str) -> Refusal {
    let value = row.tag(name).unwrap_or_default().chars().take(100).collect();
    Refusal::Tag { tag: name.into(), value, expected }
}

/// The draft model that a row names, or the one of Spec-Bench if it names none; in 16 bits where `draft_format` does not say otherwise.
fn draft_model(
    catalog: &Catalog,
    row: &Measurement,
    target: &Deployment,
    assumptions: &mut Vec<String>,
) -> Result<Deployment, Refusal> {
    let named = row.tag("draft").filter(|name| !name.to_lowercase().contains("68m"));
    let named = named.map(|name| catalog.model(name)).transpose()?;
    let format = row.tag("draft_format").map(str::parse).transpose()?.unwrap_or(WeightFormat::Bf16);
    let draft = target.clone().with_weights(format);
    let draft = match named {
        Some(model) => draft.with_model(model),
        None => {
            assumptions.push("draft model of 68 million parameters in two layers, as the one of Spec-Bench".into());
            draft.with_model(vicuna_68m())
        }
    };
    if draft.check().is_ok() {
        return Ok(draft);
    }
    assumptions.push("draft model on one device: its heads cannot be divided as the target's are".into());
    Ok(draft.with_tensor_parallel(1))
}

/// double7/vicuna-68m, the draft model of Spec-Bench.
fn vicuna_68m() -> Model {
    let mixer = Mixer::Attention(Attention::full(12, 12, 64));
    let feed_forward = FeedForward::Dense { intermediate: 3072, gated: true };
    let layer = Layer { mixer, feed_forward, extra: Vec::new(), vector_params: 2 * 768 };
    let layers = vec![(String::from("dense"), layer); 2];
    Model::from_architecture("vicuna-68m", "llama", Architecture::from_layers(768, 32_000, 2048, layers))
}

/// Requests in flight, and how long they are.
fn request(row: &Measurement, assumptions: &mut Vec<String>) -> Request {
    let count = |tokens: f64| (tokens.round().min(LONGEST) as u64).max(1);
    let dataset = row.tag("dataset").map(|name| name.to_lowercase().replace(['-', '_'], ""));
    let known = dataset.and_then(|name| LENGTHS.iter().find(|(known, ..)| name.starts_with(known)));
    let (cached, new, output) = known.map_or(USUAL_LENGTHS, |(_, cached, new, output)| (*cached, *new, *output));
    let (cached, prompt) = match (row.input_tokens, row.context_tokens) {
        (Some(tokens), _) => (0, count(tokens)),
        // Decode alone: the cache is filled when it starts.
        (None, Some(tokens)) => (count(tokens) - 1, count(tokens)),
        (None, None) => (cached, cached + new),
    };
    if (row.input_tokens.is_none() && row.context_tokens.is_none()) || row.output_tokens.is_none() {
        assumptions
            .push(format!("lengths not stated: prompts of {prompt} tokens ({cached} cached) and answers of {output}"));
    }
    let output = row.output_tokens.map_or(output, count).max(2);
    Request::new(prompt, output).with_batch(row.concurrency.map_or(1, count)).with_cached_prompt_tokens(cached)
}

/// Longer prompts and answers are priced as this: nobody has them, and the steps of a prompt are priced one by one.
const LONGEST: f64 = (1_u64 << 24) as f64;
/// Tokens of prompts in the prefix cache and beyond it, and of answers.
const USUAL_LENGTHS: (u64, u64, u64) = (0, 250, 500);
/// The same by data set: question sets in tokens of today's models, answers as SpecForge's benchmarks of Qwen3 models imply (sgl-project/sglang
/// pull request 14607 and published model cards: latency times rate over questions); the five examples before each question of gsm8k are cached.
const LENGTHS: [(&str, u64, u64, u64); 7] = [
    ("gsm8k", 700, 80, 160),
    ("math500", 0, 120, 820),
    ("mtbench", 0, 300, 650),
    ("humaneval", 0, 180, 570),
    ("livecodebench", 0, 500, 1200),
    ("financeqa", 0, 1000, 400),
    ("gpqa", 0, 300, 1000),
];

/// Devices, and those that share every layer: as stated, or else as usual for a model of this size under an engine that serves from a pool; other
/// engines run on one.
pub(super) fn devices(
    row: &Measurement,
    device: &Arc<Device>,
    model: &Arc<Model>,
    engine: &Engine,
    assumptions: &mut Vec<String>,
) -> Result<(u32, u32), Refusal> {
    let serves_from_pool = !engine.memory.is_empty() && !engine.memory.allocates_as_needed();
    if row.layout_stated || row.metric != SPEEDUP || !serves_from_pool {
        return Ok((row.device_count, row.tp));
    }
    let alone =
        Deployment::new(Arc::clone(model), System::new(Arc::clone(device), 1)?).with_weights(weights(row, model)?);
    let usual = usual_devices(StepModel::compile(&alone)?.weight_bytes_per_device(), device);
    assumptions.push(format!("devices not stated: {usual} that share every layer"));
    Ok((usual, usual))
}

/// Devices that a model is usually spread over where nobody says it: one if the weights take at most a sixth of its memory, four if they take at
/// most half of theirs, else eight (launch commands of the draft models of SpecForge's SpecBundle: Llama-3.1-8B on 1, Qwen3-30B-A3B,
/// Llama-3.3-70B and gpt-oss-120b on 4, Qwen3-235B-A22B and Kimi-K2 on 8).
fn usual_devices(weights: Bytes, device: &Device) -> u32 {
    let fits = |(devices, share): (u32, f64)| weights <= device.capacity() * share * f64::from(devices);
    [(1, 1.0 / 6.0), (4, 0.5)].into_iter().find(|&group| fits(group)).map_or(8, |(devices, _)| devices)
}
