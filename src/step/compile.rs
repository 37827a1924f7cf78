//! From a deployment to coefficients: every operator of every kind of layer, as one device runs it.

use super::laws::{Laws, Pass, Product};
use super::terms::{
    AttentionTerm, CommunicationTerm, ElementwiseTerm, ExpertTerm, HostTerm, LinearTerm, Named, RecurrentTerm, Rows,
    SamplingTerm, TransferTerm,
};
use crate::collective::AlphaBeta;
use crate::deployment::{Deployment, ShardedKind, ShardedLinear, ShardedModel};
use crate::format::{NumberFormat, TensorClass};
use crate::hardware::SystemError;
use crate::memory::STATE_BITS;
use crate::model::{AttentionPass, FeedForward, Mixer, ModelBody, Reaches, Split};
use crate::operator::OperatorClass;
use crate::units::Bytes;
use std::sync::Arc;

/// Activations between operators are kept in 16 bits.
pub(super) const ACTIVATION_BYTES: f64 = 2.0;
/// Models known by their totals are multiplied in 16 bits.
pub(super) const TOTALS_FORMAT: NumberFormat = NumberFormat::Bf16;

/// All operators of a step.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Terms {
    pub(super) linears: Vec<Named<LinearTerm>>,
    pub(super) experts: Vec<Named<ExpertTerm>>,
    pub(super) prefill_attention: Vec<Named<AttentionTerm>>,
    pub(super) decode_attention: Vec<Named<AttentionTerm>>,
    pub(super) recurrent: Vec<Named<RecurrentTerm>>,
    pub(super) elementwise: Vec<Named<ElementwiseTerm>>,
    pub(super) sampling: Vec<Named<SamplingTerm>>,
    pub(super) communication: Option<CommunicationTerm>,
    pub(super) transfers: Vec<Named<TransferTerm>>,
    pub(super) host: HostTerm,
}

impl Terms {
    /// Adds the operators of another part.
    pub(super) fn extend(&mut self, other: Self) {
        self.linears.extend(other.linears);
        self.experts.extend(other.experts);
        self.prefill_attention.extend(other.prefill_attention);
        self.decode_attention.extend(other.decode_attention);
        self.recurrent.extend(other.recurrent);
        self.elementwise.extend(other.elementwise);
        self.sampling.extend(other.sampling);
    }
}

/// Compiles a model taken apart.
pub(super) fn architecture_terms(
    deployment: &Deployment,
    sharded: &ShardedModel<'_>,
    reaches: &Reaches,
) -> Result<Terms, SystemError> {
    let compiler = Compiler::new(deployment, sharded, reaches);
    let mut terms = Terms::default();
    compiler.operators(&mut terms);
    terms.communication = compiler.communication()?;
    terms.host = compiler.laws.host(sharded.layers(), u64::from(deployment.devices_per_replica()));
    Ok(terms)
}

/// Compiles a model known by its totals: one matrix that holds every active weight, and a cache.
pub(super) fn totals_terms(deployment: &Deployment) -> Terms {
    let ModelBody::Totals(totals) = &deployment.model().body else { return Terms::default() };
    let tp = f64::from(deployment.tensor_parallel());
    let laws = Laws::new(deployment);
    let peak = deployment.system().device().matmul_peak(TOTALS_FORMAT, TOTALS_FORMAT).peak;
    let group: Arc<str> = "model".into();
    let matrix = Product {
        flops_per_row: 2.0 * totals.params_active as f64 / tp,
        weight_bytes: totals.active_weight_bytes().as_bytes() / tp,
        weights: totals.params_active as f64 / tp,
        peak,
        key: deployment.weights().kernel_key(),
        ..Product::default()
    };
    let linear = laws.linear(&matrix, 1.0, Rows::All);
    let cache = Pass { bytes_per_entry: totals.kv_bytes_per_token.as_bytes() / tp, ..Pass::default() };
    let attention = laws.decode_attention(&cache, 1.0);
    let prefill = laws.prefill_attention(&cache, 1.0);
    let (linears, cache) = (OperatorClass::Gemm, "cache");
    Terms {
        linears: vec![Named { group: group.clone(), name: "weights", class: linears, place: 0, term: linear }],
        prefill_attention: vec![Named {
            group: group.clone(),
            name: cache,
            class: OperatorClass::PrefillAttention,
            place: 0,
            term: prefill,
        }],
        decode_attention: vec![Named {
            group,
            name: cache,
            class: OperatorClass::DecodeAttention,
            place: 0,
            term: attention,
        }],
        host: laws.host(0, 1),
        ..Terms::default()
    }
}

/// The operators of what one place holds.
pub(super) struct Compiler<'a> {
    deployment: &'a Deployment,
    sharded: &'a ShardedModel<'a>,
    reaches: &'a Reaches,
    laws: Laws<'a>,
    tp: u64,
    /// Ranks of data-parallel attention: each sees its share of the tokens everywhere but in the experts.
    ranks: f64,
    /// Which place it is, and what follows the names of its groups.
    place: usize,
    suffix: &'a str,
}

impl<'a> Compiler<'a> {
    pub(super) fn new(deployment: &'a Deployment, sharded: &'a ShardedModel<'a>, reaches: &'a Reaches) -> Self {
        let tp = u64::from(deployment.tensor_parallel());
        let ranks = f64::from(deployment.data_parallel_attention());
        Self { deployment, sharded, reaches, laws: Laws::new(deployment), tp, ranks, place: 0, suffix: "" }
    }

    /// As one of several places.
    pub(super) fn named(self, place: usize, suffix: &'a str) -> Self {
        Self { place, suffix, ..self }
    }

    /// Everything but communication and the time of the host.
    pub(super) fn operators(&self, terms: &mut Terms) {
        for kind in &self.sharded.kinds {
            self.kind(kind, terms);
        }
        self.outside_layers(terms);
    }

    fn group(&self, name: &str) -> Arc<str> {
        if self.suffix.is_empty() { name.into() } else { format!("{name}{}", self.suffix).into() }
    }

    fn kind(&self, kind: &ShardedKind<'_>, terms: &mut Terms) {
        let (group, place, count) = (self.group(kind.name), self.place, kind.count as f64);
        if let Some(term) = self.experts(kind).filter(|_| kind.count == 0 && kind.experts_count > 0) {
            let (class, group) = (OperatorClass::ExpertGemm, group.clone());
            terms.experts.push(Named { group, name: "experts", class, place, term });
        }
        if kind.count == 0 {
            return;
        }
        let named = |name, term| Named { group: group.clone(), name, class: OperatorClass::Gemm, place, term };
        for run in kind.linears.chunk_by(fused) {
            terms.linears.push(named(fused_name(&run[0]), self.linear(run, count, Rows::All)));
        }
        if let Some(term) = self.experts(kind) {
            let (class, group) = (OperatorClass::ExpertGemm, group.clone());
            terms.experts.push(Named { group, name: "experts", class, place, term });
        }
        for pass in kind.layer.attention_passes() {
            let (prefill, decode) = self.attention(kind, &pass);
            let named = |class, term| Named { group: group.clone(), name: pass.name, class, place, term };
            terms.prefill_attention.push(named(OperatorClass::PrefillAttention, prefill));
            terms.decode_attention.push(named(OperatorClass::DecodeAttention, decode));
        }
        if let Mixer::Recurrent(recurrent) = &kind.layer.mixer {
            let share = 1.0 / self.tp as f64 / self.ranks;
            let term = self.laws.recurrent(RecurrentTerm {
                count,
                flops_per_token: recurrent.scan_flops_per_token() as f64 * share,
                bytes_per_token: recurrent.io_elements_per_token() as f64 * ACTIVATION_BYTES * share,
                state_bytes: recurrent.state_elements() as f64 * STATE_BITS / 8.0 * share,
                ..RecurrentTerm::default()
            });
            terms.recurrent.push(Named { group, name: "recurrence", class: OperatorClass::Recurrent, place, term });
        }
    }

    /// Matrices that engines fuse into one product: they share their input, which is read once.
    fn linear(&self, fused: &[ShardedLinear], count: f64, rows: Rows) -> LinearTerm {
        let term = self.laws.linear(&self.product(fused), count, rows);
        LinearTerm { share_of_rows: 1.0 / self.ranks, ..term }
    }

    fn product(&self, fused: &[ShardedLinear]) -> Product {
        let first = &fused[0];
        let weights: f64 = fused.iter().map(ShardedLinear::params).sum();
        // A fused product runs in the widest format of its parts: the slowest peak.
        let slowest = fused.iter().min_by(|a, b| a.peak.as_flops_per_second().total_cmp(&b.peak.as_flops_per_second()));
        let plain = first.bits_per_weight == 16.0;
        let stored = self.deployment.weights();
        // Formats that the device cannot multiply are expanded by weight-only kernels.
        let expanded = first.format != stored.compute_format() && !stored.is_weight_only();
        let key = match (plain, expanded) {
            (true, _) => "f16",
            (false, false) => stored.kernel_key(),
            (false, true) if first.bits_per_weight < 6.0 => "int4",
            (false, true) => "gptq-int8",
        };
        Product {
            flops_per_row: 2.0 * weights,
            weights,
            weight_bytes: fused.iter().map(ShardedLinear::weight_bytes).sum(),
            inputs: first.inputs(),
            outputs: fused.iter().map(ShardedLinear::outputs).sum(),
            input_bytes: first.input_bits / 8.0,
            peak: slowest.map_or(first.peak, |linear| linear.peak),
            key,
            detail: if key == "k-quant" && (6.4..7.0).contains(&first.bits_per_weight) { "q6_k" } else { "" },
        }
    }

    /// Routed experts: Mixtral's expert traffic is computed here, from the expected number of distinct experts.
    fn experts(&self, kind: &ShardedKind<'_>) -> Option<ExpertTerm> {
        let moe = kind.layer.feed_forward.moe()?;
        if kind.expert.is_empty() || kind.experts_count == 0 {
            return None;
        }
        let vectors = moe.vector_params_per_expert as f64 * self.sharded.vector_bits / 8.0;
        let mut expert = self.product(&kind.expert);
        expert.weight_bytes += vectors;
        // Each of the chosen experts reads the token and writes its intermediate and its output.
        let moved = |run: &[ShardedLinear]| {
            let product = self.product(run);
            product.inputs * product.input_bytes + product.outputs * ACTIVATION_BYTES
        };
        let bytes_per_row = kind.expert.chunk_by(fused).map(moved).sum();
        Some(self.laws.experts(
            &expert,
            ExpertTerm {
                count: kind.experts_count as f64,
                experts_here: kind.experts_per_device,
                log_missed: moe.log_missed(),
                rows_per_token: moe.experts_per_token as f64 * kind.experts_per_device / moe.experts as f64,
                imbalance: self.laws.imbalance(self.deployment.expert_parallel()),
                bytes_per_row,
                ..ExpertTerm::default()
            },
        ))
    }

    /// One attention pass in prefill and in decode.
    fn attention(&self, kind: &ShardedKind<'_>, pass: &AttentionPass) -> (AttentionTerm, AttentionTerm) {
        // Each rank of data-parallel attention has its share of the sequences.
        let head_share = if pass.heads >= self.tp { 1.0 / self.tp as f64 } else { 1.0 } / self.ranks;
        let element_bytes = self.deployment.cache_bits(kind.layer, pass) / 8.0;
        let cache_bytes = element_bytes * Split::KvHeads(pass.kv_heads).share(self.tp) / self.ranks;
        let written = pass.elements_written_per_token * cache_bytes;
        let moved = |io_elements: u64| written + io_elements as f64 * ACTIVATION_BYTES * head_share;
        let decode = Pass {
            reach: self.reaches.position(self.deployment.reach(pass.reach)).unwrap_or(0),
            flops_per_pair: pass.decode_flops_per_pair * head_share,
            flops_per_cached: 0.0,
            heads: pass.heads as f64 * head_share,
            bytes_per_entry: pass.elements_per_entry as f64 * cache_bytes,
            bytes_per_token: moved(pass.decode_io_elements_per_token),
            latent: matches!(kind.layer.mixer, Mixer::LatentAttention(_)),
            head_dim: (pass.elements_per_entry / (2 * pass.kv_heads).max(1)) as u32,
            small_cache: element_bytes < ACTIVATION_BYTES,
        };
        let prefill = Pass {
            flops_per_pair: pass.prefill_flops_per_pair * head_share,
            flops_per_cached: pass.expand_flops_per_entry * head_share,
            bytes_per_token: moved(pass.prefill_io_elements_per_token),
            ..decode
        };
        let count = kind.count as f64;
        (self.laws.prefill_attention(&prefill, count), self.laws.decode_attention(&decode, count))
    }

    fn outside_layers(&self, terms: &mut Terms) {
        let (place, class) = (self.place, OperatorClass::Gemm);
        let named = |group: &str, name, term| Named { group: self.group(group), name, class, place, term };
        if self.sharded.is_first {
            for linear in &self.sharded.global {
                let term = self.linear(std::slice::from_ref(linear), 1.0, Rows::All);
                terms.linears.push(named("outside layers", fused_name(linear), term));
            }
        }
        if self.sharded.is_last {
            let term = self.linear(std::slice::from_ref(&self.sharded.lm_head), 1.0, Rows::Emitting);
            terms.linears.push(named("output", "lm_head", term));
            let vocabulary = self.sharded.architecture.vocab_size as f64 / self.tp as f64 / self.ranks;
            let (group, class, term) =
                (self.group("output"), OperatorClass::Elementwise, self.laws.sampling(vocabulary));
            terms.sampling.push(Named { group, name: "sampling", class, place, term });
        }
        if self.sharded.is_first || self.sharded.is_last || self.sharded.layers() > 0 {
            let (group, class) = (self.group("outside layers"), OperatorClass::Elementwise);
            terms.elementwise.push(Named { group, name: "embedding, norms", class, place, term: self.elementwise() });
        }
    }

    fn elementwise(&self) -> ElementwiseTerm {
        let elements = |linears: &[ShardedLinear]| -> f64 {
            linears.chunk_by(fused).map(|run| self.product(run)).map(|product| product.inputs + product.outputs).sum()
        };
        let kinds = self.sharded.kinds.iter();
        let (mut moved, mut kernels) = (0.0, 0.0);
        for kind in kinds {
            moved += kind.count as f64 * elements(&kind.linears);
            kernels += kind.count as f64 * self.laws.kernels(kind.layer);
        }
        let row_bytes = if self.sharded.is_first { self.sharded.embedding_row_bytes / self.ranks } else { 0.0 };
        kernels += if self.sharded.is_last { self.laws.kernels_step() } else { 0.0 };
        self.laws.elementwise(self.sharded.vector_bytes(), row_bytes, moved / self.ranks, kernels)
    }

    /// An all-reduce after every token mixer and every feed-forward (the last matrix of each is divided by its input features), and
    /// one after the divided embedding table; with data-parallel attention, all tokens are gathered before the experts and scattered
    /// again after them.
    fn communication(&self) -> Result<Option<CommunicationTerm>, SystemError> {
        let (deployment, architecture) = (self.deployment, self.sharded.architecture);
        if deployment.devices_per_replica() == 1 {
            return Ok(None);
        }
        let hidden_bytes = architecture.hidden_size as f64 * ACTIVATION_BYTES;
        let (mut all_reduces, mut exchanges) = (1.0, 0.0);
        for kind in &self.sharded.kinds {
            let count = kind.count as f64;
            let experts = kind.layer.feed_forward.moe().is_some();
            let exchanged = experts && self.ranks > 1.0;
            exchanges += if exchanged { count } else { 0.0 };
            all_reduces += count * f64::from(u8::from(kind.layer.mixer != Mixer::None));
            all_reduces += count * f64::from(u8::from(kind.layer.feed_forward != FeedForward::None && !exchanged));
        }
        let stages = f64::from(deployment.pipeline_parallel());
        let tensor = self.laws.group(deployment, deployment.tensor_parallel())?;
        let stage = self.laws.group(deployment, deployment.devices_per_stage())?;
        // Of an all-to-all, each device holds its share of the tokens, once for every device that has experts of theirs.
        let copies = self.sharded.kinds.iter().filter_map(|kind| kind.layer.feed_forward.moe());
        let copies =
            copies.map(|moe| moe.experts_per_token.min(u64::from(deployment.expert_parallel()))).max().unwrap_or(0);
        let all_to_all = stage.compile_all_to_all();
        let share = copies as f64 / f64::from(deployment.devices_per_stage());
        let sent = AlphaBeta { seconds_per_byte: all_to_all.seconds_per_byte * share, ..all_to_all };
        Ok(Some(CommunicationTerm {
            all_reduces: if self.tp > 1 { all_reduces } else { 0.0 },
            all_reduce_bytes_per_token: hidden_bytes / self.ranks,
            all_reduce: tensor.compile_all_reduce(),
            logit_bytes_per_row: if self.tp > 1 {
                architecture.vocab_size as f64 * ACTIVATION_BYTES / self.ranks
            } else {
                0.0
            },
            gather: tensor.compile_gather(),
            exchanges,
            exchange_bytes_per_token: hidden_bytes,
            exchange: [stage.compile_gather() + stage.compile_gather(), sent + sent],
            hops: stages - 1.0,
            hop_bytes_per_token: hidden_bytes,
            hop: self.laws.hop(deployment)?,
        }))
    }
}

/// Whether engines compute two matrices in one product: the same input, and no sum over devices in between.
fn fused(a: &ShardedLinear, b: &ShardedLinear) -> bool {
    let shares_input = |linear: &ShardedLinear| linear.linear.split != Split::Input && linear.linear.copies == 1;
    fused_name(a) == fused_name(b) && a.linear.in_features == b.linear.in_features && shares_input(a) && shares_input(b)
}

/// The name under which a matrix is computed: parts of one fused product have the same name.
fn fused_name(linear: &ShardedLinear) -> &'static str {
    match linear.linear.class {
        TensorClass::AttentionQ | TensorClass::AttentionK | TensorClass::AttentionV => "qkv_proj",
        TensorClass::AttentionOutput if linear.linear.copies > 1 => "o_a_proj",
        TensorClass::AttentionOutput => "o_proj",
        TensorClass::LatentQDown => "q_a_proj",
        TensorClass::LatentQUp => "q_b_proj",
        TensorClass::LatentKvDown => "kv_a_proj",
        TensorClass::LatentKvUp => "kv_b_proj",
        TensorClass::Indexer => "indexer_proj",
        TensorClass::FfnGate | TensorClass::FfnUp => "gate_up_proj",
        TensorClass::FfnDown => "down_proj",
        TensorClass::SharedExpertGate | TensorClass::SharedExpertUp => "shared_gate_up_proj",
        TensorClass::SharedExpertDown => "shared_down_proj",
        TensorClass::ExpertGate | TensorClass::ExpertUp => "expert_gate_up_proj",
        TensorClass::ExpertDown => "expert_down_proj",
        TensorClass::Router => "router",
        TensorClass::RecurrentIn => "in_proj",
        TensorClass::RecurrentOut => "out_proj",
        TensorClass::RecurrentSmall => "gates",
        TensorClass::LmHead | TensorClass::TokenEmbedding => "lm_head",
        _ => "projection",
    }
}

/// Bytes of weights on one device.
pub(super) fn weight_bytes(deployment: &Deployment, sharded: Option<&ShardedModel<'_>>) -> Bytes {
    sharded.map_or_else(|| deployment.weight_bytes_per_device(), ShardedModel::weight_bytes)
}
