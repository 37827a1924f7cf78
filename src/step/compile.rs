//! From a deployment to coefficients: every operator of every kind of layer, as one device runs it.

use super::terms::{
    AttentionTerm, CollectiveTerm, ElementwiseTerm, ExpertTerm, LinearTerm, Named, RecurrentTerm, Rows,
};
use crate::collective::Group;
use crate::deployment::{Deployment, ShardedKind, ShardedLinear, ShardedModel};
use crate::engine::{CollectiveProfile, Efficiency, Engine};
use crate::format::{NumberFormat, TensorClass};
use crate::memory::STATE_BITS;
use crate::model::{AttentionPass, FeedForward, Layer, Mixer, Reaches, Split, Totals};
use crate::operator::OperatorClass;
use crate::roofline::Roofline;
use crate::units::{Bytes, BytesPerSecond, FlopsPerSecond};
use std::sync::Arc;

/// Activations between operators are kept in 16 bits.
const ACTIVATION_BYTES: f64 = 2.0;
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
    pub(super) elementwise: Option<ElementwiseTerm>,
    pub(super) collective: Option<CollectiveTerm>,
}

/// Compiles a model taken apart.
pub(super) fn architecture_terms(
    deployment: &Deployment,
    sharded: &ShardedModel<'_>,
    reaches: &Reaches,
    link: BytesPerSecond,
) -> Terms {
    let compiler = Compiler::new(deployment, sharded, reaches);
    let mut terms = Terms::default();
    for kind in &sharded.kinds {
        compiler.kind(kind, &mut terms);
    }
    compiler.outside_layers(&mut terms);
    terms.elementwise = Some(compiler.elementwise());
    if compiler.tp > 1 {
        terms.collective = Some(compiler.collective(link));
    }
    terms
}

/// Compiles a model known by its totals: one matrix that holds every active weight, and a cache.
pub(super) fn totals_terms(deployment: &Deployment, totals: &Totals) -> Terms {
    let (engine, tp) = (deployment.engine(), f64::from(deployment.tensor_parallel()));
    let device = deployment.system().device();
    let peak = device.matmul_peak(TOTALS_FORMAT, TOTALS_FORMAT).peak;
    let group: Arc<str> = "model".into();
    let roofline = |efficiency| achieved(efficiency, peak, device.bandwidth());
    let linear = LinearTerm {
        count: 1.0,
        rows: Rows::All,
        flops_per_row: 2.0 * totals.params_active as f64 / tp,
        weight_bytes: totals.active_weight_bytes().as_bytes() / tp,
        bytes_per_row: 0.0,
        roofline: roofline(&engine.efficiency.gemm),
    };
    let attention = AttentionTerm {
        count: 1.0,
        reach: 0,
        flops_per_pair: 0.0,
        flops_per_cached: 0.0,
        bytes_per_entry: totals.kv_bytes_per_token.as_bytes() / tp,
        bytes_per_token: 0.0,
        roofline: roofline(&engine.efficiency.decode_attention),
    };
    let prefill = AttentionTerm { roofline: roofline(&engine.efficiency.prefill_attention), ..attention };
    let (linears, cache) = (OperatorClass::Gemm, "cache");
    Terms {
        linears: vec![Named { group: group.clone(), name: "weights", class: linears, term: linear }],
        prefill_attention: vec![Named {
            group: group.clone(),
            name: cache,
            class: OperatorClass::PrefillAttention,
            term: prefill,
        }],
        decode_attention: vec![Named { group, name: cache, class: OperatorClass::DecodeAttention, term: attention }],
        ..Terms::default()
    }
}

fn achieved(efficiency: &Efficiency, peak: FlopsPerSecond, bandwidth: BytesPerSecond) -> Roofline {
    Roofline::new(peak * efficiency.compute.value, bandwidth * efficiency.memory.value)
}

struct Compiler<'a> {
    deployment: &'a Deployment,
    sharded: &'a ShardedModel<'a>,
    reaches: &'a Reaches,
    engine: &'a Engine,
    bandwidth: BytesPerSecond,
    /// Peak of arithmetic on activations: attention, recurrences.
    activation_peak: FlopsPerSecond,
    tp: u64,
}

impl<'a> Compiler<'a> {
    fn new(deployment: &'a Deployment, sharded: &'a ShardedModel<'a>, reaches: &'a Reaches) -> Self {
        let device = deployment.system().device();
        Self {
            deployment,
            sharded,
            reaches,
            engine: deployment.engine(),
            bandwidth: device.bandwidth(),
            activation_peak: device.matmul_peak(NumberFormat::Bf16, NumberFormat::Bf16).peak,
            tp: u64::from(deployment.tensor_parallel()),
        }
    }

    fn kind(&self, kind: &ShardedKind<'_>, terms: &mut Terms) {
        let group: Arc<str> = kind.name.into();
        let count = kind.count as f64;
        let named = |name, term| Named { group: group.clone(), name, class: OperatorClass::Gemm, term };
        for run in kind.linears.chunk_by(fused) {
            terms.linears.push(named(fused_name(&run[0]), self.linear(run, count, Rows::All)));
        }
        if let Some(term) = self.experts(kind) {
            terms.experts.push(Named { group: group.clone(), name: "experts", class: OperatorClass::ExpertGemm, term });
        }
        for pass in kind.layer.attention_passes() {
            let (prefill, decode) = self.attention(kind, &pass);
            let named = |class, term| Named { group: group.clone(), name: pass.name, class, term };
            terms.prefill_attention.push(named(OperatorClass::PrefillAttention, prefill));
            terms.decode_attention.push(named(OperatorClass::DecodeAttention, decode));
        }
        if let Mixer::Recurrent(recurrent) = &kind.layer.mixer {
            let share = 1.0 / self.tp as f64;
            let term = RecurrentTerm {
                count,
                flops_per_token: recurrent.scan_flops_per_token() as f64 * share,
                bytes_per_token: recurrent.io_elements_per_token() as f64 * ACTIVATION_BYTES * share,
                state_bytes: recurrent.state_elements() as f64 * STATE_BITS / 8.0 * share,
                roofline: achieved(&self.engine.efficiency.recurrent, self.activation_peak, self.bandwidth),
            };
            terms.recurrent.push(Named { group, name: "recurrence", class: OperatorClass::Recurrent, term });
        }
    }

    /// Matrices that engines fuse into one product: they share their input, which is read once.
    fn linear(&self, fused: &[ShardedLinear], count: f64, rows: Rows) -> LinearTerm {
        let params: f64 = fused.iter().map(ShardedLinear::params).sum();
        let outputs: f64 = fused.iter().map(ShardedLinear::outputs).sum();
        let input_bytes = fused[0].inputs() * fused[0].input_bits / 8.0;
        // A fused product runs in the widest format of its parts: the slowest peak.
        let peak = fused.iter().map(|linear| linear.peak).fold(fused[0].peak, FlopsPerSecond::min);
        LinearTerm {
            count,
            rows,
            flops_per_row: 2.0 * params,
            weight_bytes: fused.iter().map(ShardedLinear::weight_bytes).sum(),
            bytes_per_row: input_bytes + outputs * ACTIVATION_BYTES,
            roofline: achieved(&self.engine.efficiency.gemm, peak, self.bandwidth),
        }
    }

    /// Routed experts: Mixtral's expert traffic is computed here, from the expected number of distinct experts.
    fn experts(&self, kind: &ShardedKind<'_>) -> Option<ExpertTerm> {
        let moe = kind.layer.feed_forward.moe()?;
        let first = kind.expert.first()?;
        let chosen = moe.experts_per_token as f64;
        let params: f64 = kind.expert.iter().map(ShardedLinear::params).sum();
        let vectors = moe.vector_params_per_expert as f64 * self.sharded.vector_bits / 8.0;
        // Each of the chosen experts reads the token and writes its intermediate and its output.
        let fused = kind.expert.chunk_by(fused);
        let moved: f64 = fused.map(|run| self.linear(run, 1.0, Rows::All).bytes_per_row).sum();
        Some(ExpertTerm {
            count: kind.count as f64,
            experts: moe.experts as f64,
            log_missed: moe.log_missed(),
            flops_per_token: 2.0 * chosen * params,
            bytes_per_expert: kind.expert.iter().map(ShardedLinear::weight_bytes).sum::<f64>() + vectors,
            bytes_per_token: chosen * moved,
            roofline: achieved(&self.engine.efficiency.expert_gemm, first.peak, self.bandwidth),
        })
    }

    /// One attention pass in prefill and in decode.
    fn attention(&self, kind: &ShardedKind<'_>, pass: &AttentionPass) -> (AttentionTerm, AttentionTerm) {
        let head_share = if pass.heads >= self.tp { 1.0 / self.tp as f64 } else { 1.0 };
        let cache_bytes =
            self.deployment.cache_bits(kind.layer, pass) / 8.0 * Split::KvHeads(pass.kv_heads).share(self.tp);
        let written = pass.elements_written_per_token * cache_bytes;
        let moved = |io_elements: u64| written + io_elements as f64 * ACTIVATION_BYTES * head_share;
        let decode = AttentionTerm {
            count: kind.count as f64,
            reach: self.reaches.position(pass.reach).unwrap_or(0),
            flops_per_pair: pass.decode_flops_per_pair * head_share,
            flops_per_cached: 0.0,
            bytes_per_entry: pass.elements_per_entry as f64 * cache_bytes,
            bytes_per_token: moved(pass.decode_io_elements_per_token),
            roofline: achieved(&self.engine.efficiency.decode_attention, self.activation_peak, self.bandwidth),
        };
        let prefill = AttentionTerm {
            flops_per_pair: pass.prefill_flops_per_pair * head_share,
            flops_per_cached: pass.expand_flops_per_entry * head_share,
            bytes_per_token: moved(pass.prefill_io_elements_per_token),
            roofline: achieved(&self.engine.efficiency.prefill_attention, self.activation_peak, self.bandwidth),
            ..decode
        };
        (prefill, decode)
    }

    fn outside_layers(&self, terms: &mut Terms) {
        let named = |group: &str, name, term| Named { group: group.into(), name, class: OperatorClass::Gemm, term };
        for linear in &self.sharded.global {
            let term = self.linear(std::slice::from_ref(linear), 1.0, Rows::All);
            terms.linears.push(named("outside layers", fused_name(linear), term));
        }
        let term = self.linear(std::slice::from_ref(&self.sharded.lm_head), 1.0, Rows::Emitting);
        terms.linears.push(named("output", "lm_head", term));
    }

    fn elementwise(&self) -> ElementwiseTerm {
        let architecture = self.sharded.architecture;
        let passes = self.engine.overhead.elementwise_passes_per_layer.value * architecture.layers() as f64;
        let residual_bytes = passes * architecture.hidden_size as f64 * ACTIVATION_BYTES;
        ElementwiseTerm {
            vector_bytes: self.sharded.vector_bytes(),
            bytes_per_token: self.sharded.embedding_row_bytes + residual_bytes,
            roofline: achieved(&self.engine.efficiency.elementwise, self.activation_peak, self.bandwidth),
        }
    }

    /// An all-reduce after every token mixer and every feed-forward (the last matrix of each is divided by its input features), and
    /// one after the divided embedding table.
    fn collective(&self, link: BytesPerSecond) -> CollectiveTerm {
        let architecture = self.sharded.architecture;
        let per_layer = |layer: &Layer| {
            f64::from(u8::from(layer.mixer != Mixer::None) + u8::from(layer.feed_forward != FeedForward::None))
        };
        let in_layers: f64 = self.sharded.kinds.iter().map(|kind| kind.count as f64 * per_layer(kind.layer)).sum();
        let CollectiveProfile { latency, efficiency } = &self.engine.collective;
        let group = Group::textbook(self.tp, link * efficiency.value, latency.value);
        CollectiveTerm {
            all_reduces: in_layers + 1.0,
            bytes_per_token: architecture.hidden_size as f64 * ACTIVATION_BYTES,
            logit_bytes_per_row: architecture.vocab_size as f64 * ACTIVATION_BYTES,
            all_reduce: group.compile_all_reduce(),
            gather: group.compile_gather(),
        }
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
