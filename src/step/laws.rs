//! The engine's laws for one device: turns the shape of an operator into the coefficients of its time.

use super::compile::ACTIVATION_BYTES;
use super::terms::{
    AttentionTerm, ElementwiseTerm, ExpertTerm, HostTerm, LinearTerm, MatrixKernel, RecurrentTerm, Rows, SamplingTerm,
};
use crate::collective::{Algorithm, AlphaBeta, CollectiveLaw, Group, Ring};
use crate::deployment::Deployment;
use crate::engine::{Engine, Keys, MatrixUnit, Number, Parameter, Positive, Quantity, Share};
use crate::format::NumberFormat;
use crate::hardware::{Device, SystemError};
use crate::model::{FeedForward, Layer, Mixer};
use crate::units::{Bytes, FlopsPerSecond, Seconds};
use std::cell::RefCell;

/// A matrix product as one device runs it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Product {
    pub(super) flops_per_row: f64,
    pub(super) weights: f64,
    pub(super) weight_bytes: f64,
    pub(super) inputs: f64,
    pub(super) outputs: f64,
    pub(super) input_bytes: f64,
    pub(super) peak: FlopsPerSecond,
    /// What factors are looked up by: the format of the model, and the type of this matrix where it has kernels of its own.
    pub(super) key: &'static str,
    pub(super) detail: &'static str,
}

/// An attention pass as one device runs it, in one phase.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pass {
    pub(super) reach: usize,
    pub(super) flops_per_pair: f64,
    pub(super) flops_per_cached: f64,
    /// Query heads: a score each per pair.
    pub(super) heads: f64,
    pub(super) bytes_per_entry: f64,
    pub(super) bytes_per_token: f64,
    pub(super) latent: bool,
    pub(super) head_dim: u32,
    /// Whether the cache has fewer than 16 bits.
    pub(super) small_cache: bool,
}

impl Pass {
    fn keys(&self) -> [&'static str; 2] {
        let head = match self.head_dim {
            0..=64 => "head-64",
            65..=128 => "head-128",
            _ => "head-256",
        };
        [if self.small_cache { "cache-8" } else { "cache-16" }, head]
    }
}

/// The engine's numbers for one device.
pub(super) struct Laws<'a> {
    engine: &'a Engine,
    device: &'a Device,
    keys: [String; 5],
    flash_attention: bool,
    bandwidth: f64,
    /// Peak of 32-bit arithmetic on vector units; it stands for units times clock.
    vector_peak: f64,
    /// Peak of arithmetic on activations: attention, recurrences.
    activation_peak: f64,
    /// Laws of dense products that have been looked up.
    dense: RefCell<Vec<Dense>>,
}

/// The law of dense products for one format, in seconds per unit.
#[derive(Clone, Copy, Debug)]
struct Dense {
    key: &'static str,
    detail: &'static str,
    peak: FlopsPerSecond,
    seconds_per_byte: f64,
    seconds_per_flop: f64,
    padding_rows: f64,
    unpack_per_weight: f64,
    expand_per_weight: f64,
    walk_per_input: f64,
    vector_per_weight: f64,
    vector_shared: f64,
    serialised: f64,
    launch: f64,
    quantize_per_input: f64,
}

/// A pass of quantization reads a 16-bit input and writes an 8-bit one.
const QUANTIZE_BYTES: f64 = 3.0;

impl<'a> Laws<'a> {
    pub(super) fn new(deployment: &'a Deployment) -> Self {
        let (engine, device) = (deployment.engine(), deployment.system().device().as_ref());
        let sixteen_bit = device.matmul_peak(NumberFormat::Bf16, NumberFormat::Bf16).peak;
        Self {
            engine,
            device,
            keys: device.kernel_keys(),
            flash_attention: deployment.flash_attention(),
            bandwidth: device.bandwidth().as_bytes_per_second(),
            vector_peak: device.peak(NumberFormat::Fp32).unwrap_or(sixteen_bit).as_flops_per_second(),
            activation_peak: unit_peak(device, &engine.arithmetic.plain, sixteen_bit).as_flops_per_second(),
            dense: RefCell::default(),
        }
    }

    /// A matrix product with the engine's dense kernels.
    pub(super) fn linear(&self, product: &Product, count: f64, rows: Rows) -> LinearTerm {
        let dense = self.dense(product);
        let vector_rows = self.engine.scheduling.vector_rows.as_ref().map_or(0.0, |rows| rows.value as f64);
        LinearTerm {
            count,
            rows,
            share_of_rows: 1.0,
            flops_per_row: product.flops_per_row,
            weight_bytes: product.weight_bytes,
            bytes_per_row: product.inputs * product.input_bytes + product.outputs * ACTIVATION_BYTES,
            memory_rate: dense.seconds_per_byte,
            matrix: MatrixKernel {
                compute_per_row: product.flops_per_row * dense.seconds_per_flop,
                padding_rows: dense.padding_rows,
                unpack_per_row: product.weights * dense.unpack_per_weight,
                expand: product.weights * dense.expand_per_weight,
                walk: product.inputs * dense.walk_per_input,
            },
            vector_rows,
            vector_per_row: product.weights * dense.vector_per_weight * (1.0 - dense.vector_shared),
            vector_once: product.weights * dense.vector_per_weight * dense.vector_shared,
            serialised: dense.serialised,
            fixed: dense.launch,
            fixed_per_row: product.inputs * dense.quantize_per_input,
        }
    }

    /// The law of dense products for the format of one, looked up once for all of that format.
    fn dense(&self, product: &Product) -> Dense {
        let mut known = self.dense.borrow_mut();
        let same =
            |dense: &&Dense| (dense.key, dense.detail, dense.peak) == (product.key, product.detail, product.peak);
        if let Some(dense) = known.iter().find(same) {
            return *dense;
        }
        let (law, format) = (&self.engine.gemm, &[product.key, product.detail][..]);
        let quantized = self.quantized_work(product.key, format);
        let dense = Dense {
            key: product.key,
            detail: product.detail,
            peak: product.peak,
            seconds_per_byte: 1.0 / self.load_bandwidth(self.share(&law.memory, format)),
            seconds_per_flop: 1.0 / self.matrix_rate(product, self.compute(&law.compute, format)),
            padding_rows: self.number(&law.padding_rows, format),
            unpack_per_weight: quantized.unpack_per_row,
            expand_per_weight: quantized.expand,
            walk_per_input: self.seconds(&law.per_thousand_inputs, format) / 1000.0,
            vector_per_weight: self.number(&law.vector_operations, format) / self.vector_peak,
            vector_shared: law.vector_shared.as_ref().map_or(0.0, |_| self.share(&law.vector_shared, format)),
            serialised: self.number(&law.serialised, format),
            launch: self.seconds(&law.launch, format),
            quantize_per_input: QUANTIZE_BYTES * self.number(&law.quantize_passes, format) / self.bandwidth,
        };
        known.push(dense);
        dense
    }

    /// Routed experts with the engine's grouped kernels; `expert` is one expert, `term` what does not depend on the engine.
    pub(super) fn experts(&self, expert: &Product, term: ExpertTerm) -> ExpertTerm {
        let (law, format) = (&self.engine.experts, &[expert.key, expert.detail][..]);
        let quantized = self.quantized_work(expert.key, format);
        let unshared = self.engine.scheduling.unshared_expert_rows.as_ref();
        let rate = 1.0 / self.load_bandwidth(self.share(&law.memory, format));
        ExpertTerm {
            flops_per_row: expert.flops_per_row,
            bytes_per_expert: expert.weight_bytes,
            memory_rate: rate,
            activation_rate: law.activation_memory.as_ref().map_or(rate, |parameter| {
                1.0 / (self.bandwidth * parameter.at(&self.keys(format, &self.generation())).value)
            }),
            matrix: MatrixKernel {
                compute_per_row: expert.flops_per_row / self.matrix_rate(expert, self.compute(&law.compute, format)),
                padding_rows: self.number(&law.padding_rows, format),
                unpack_per_row: expert.weights * quantized.unpack_per_row,
                expand: expert.weights * quantized.expand,
                walk: 0.0,
            },
            unshared_tokens: unshared.map_or(0.0, |rows| rows.value as f64),
            vector_per_row: expert.weights * self.number(&law.vector_operations, format) / self.vector_peak,
            serialised: self.number(&law.serialised, format),
            fixed: self.seconds(&law.launch, format),
            prompt_fixed: self.seconds(&law.prompt_launch, format),
            ..term
        }
    }

    /// Unpacking (per row) and expansion of one quantized weight; nothing for others.
    fn quantized_work(&self, key: &str, format: &[&str]) -> MatrixKernel {
        if key == "f16" || key == "f32" {
            return MatrixKernel::default();
        }
        let law = &self.engine.gemm;
        MatrixKernel {
            unpack_per_row: self.number(&law.unpack_operations, format) / self.vector_peak,
            expand: self.number(&law.expand_bytes, format) / self.bandwidth
                + self.number(&law.expand_operations, format) / self.vector_peak,
            ..MatrixKernel::default()
        }
    }

    /// Bandwidth at which weights arrive: a share of the peak, and no more than the compute units can keep in flight.
    fn load_bandwidth(&self, share: f64) -> f64 {
        let in_flight = self.number(&self.engine.gemm.load_bytes_per_operation, &[]) * self.vector_peak;
        let shared = share * self.bandwidth;
        if in_flight > 0.0 { shared.min(in_flight) } else { shared }
    }

    /// Arithmetic rate of matrix units: a share of their peak, no more than the power limit sustains, and never more than the hardware has.
    fn matrix_rate(&self, product: &Product, share: f64) -> f64 {
        let plain = product.key == "f16" || product.key == "f32";
        let units = if plain { &self.engine.arithmetic.plain } else { &self.engine.arithmetic.quantized };
        let (unit, limit) = match units.as_slice() {
            [] => (product.peak, product.peak),
            units => (unit_peak(self.device, units, product.peak), unit_limit(self.device, units, product.peak)),
        };
        let rate = (share * unit.as_flops_per_second()).min(limit.as_flops_per_second());
        let tflops_per_watt = self.number(&self.engine.gemm.sustained_tflops_per_watt, &[]);
        match self.device.tdp().filter(|_| tflops_per_watt > 0.0) {
            Some(tdp) => {
                let sixteen_bit = self.device.matmul_peak(NumberFormat::Bf16, NumberFormat::Bf16).peak;
                rate.min(tflops_per_watt * 1e12 * tdp.as_watts() * (unit / sixteen_bit))
            }
            None => rate,
        }
    }

    /// Attention of decode tokens.
    pub(super) fn decode_attention(&self, pass: &Pass, count: f64) -> AttentionTerm {
        let law = &self.engine.decode_attention;
        let reached = match (pass.latent, self.flash_attention) {
            (true, _) => (&law.latent_compute, &law.latent_memory),
            (false, true) => (&law.compute, &law.memory),
            (false, false) => (&law.unfused_compute, &law.unfused_memory),
        };
        let fixed = self.seconds(&law.launch, &pass.keys());
        AttentionTerm { count, fixed, ..self.attention(pass, reached, &law.unfused_score_bytes) }
    }

    /// Attention of prompt chunks.
    pub(super) fn prefill_attention(&self, pass: &Pass, count: f64) -> AttentionTerm {
        let (law, keys) = (&self.engine.prefill_attention, pass.keys());
        let reached = match (pass.latent, self.flash_attention) {
            (true, _) => (&law.latent_compute, &law.latent_memory),
            (false, true) => (&law.compute, &law.memory),
            (false, false) => (&law.unfused_compute, &law.memory),
        };
        AttentionTerm {
            count,
            serialised: self.number(&law.serialised, &keys),
            masked_share: self.number(&law.masked_share, &keys),
            fixed: self.seconds(&law.launch, &keys),
            ..self.attention(pass, reached, &law.unfused_score_bytes)
        }
    }

    /// What both phases have in common; `reached` are the shares of the 16-bit peak and of the bandwidth.
    fn attention(
        &self,
        pass: &Pass,
        reached: (&Option<Parameter<Share>>, &Option<Parameter<Share>>),
        score_bytes: &Option<Parameter<Number>>,
    ) -> AttentionTerm {
        let keys = pass.keys();
        let scores = if self.flash_attention { 0.0 } else { self.number(score_bytes, &[]) };
        AttentionTerm {
            count: 1.0,
            reach: pass.reach,
            flops_per_pair: pass.flops_per_pair,
            flops_per_cached: pass.flops_per_cached,
            bytes_per_pair: pass.heads * scores,
            bytes_per_entry: pass.bytes_per_entry,
            bytes_per_token: pass.bytes_per_token,
            compute_rate: 1.0 / (self.share(reached.0, &keys) * self.activation_peak),
            memory_rate: 1.0 / (self.share(reached.1, &keys) * self.bandwidth),
            serialised: 0.0,
            masked_share: 0.0,
            fixed: 0.0,
        }
    }

    /// State-space and linear attention.
    pub(super) fn recurrent(&self, term: RecurrentTerm) -> RecurrentTerm {
        let law = &self.engine.recurrent;
        RecurrentTerm {
            compute_rate: 1.0 / (self.share(&law.compute, &[]) * self.activation_peak),
            memory_rate: 1.0 / (self.share(&law.memory, &[]) * self.bandwidth),
            fixed: self.seconds(&law.launch, &[]),
            ..term
        }
    }

    /// Small kernels of a layer.
    pub(super) fn kernels(&self, layer: &Layer) -> f64 {
        let law = &self.engine.elementwise;
        let mixer = match &layer.mixer {
            Mixer::Attention(_) => &law.kernels_attention,
            Mixer::LatentAttention(_) | Mixer::CompressedAttention(_) => &law.kernels_latent,
            Mixer::Recurrent(_) | Mixer::Linear => &law.kernels_recurrent,
            Mixer::None => &None,
        };
        let feed_forward = match &layer.feed_forward {
            FeedForward::None => 0.0,
            other => match other.moe() {
                Some(moe) => {
                    let shared = if moe.shared_intermediate.is_some() {
                        self.number(&law.kernels_shared_expert, &[])
                    } else {
                        0.0
                    };
                    self.number(&law.kernels_moe, &[]) + shared
                }
                None => self.number(&law.kernels_feed_forward, &[]),
            },
        };
        self.number(mixer, &[]) + feed_forward
    }

    /// Small kernels outside the layers.
    pub(super) fn kernels_step(&self) -> f64 {
        self.number(&self.engine.elementwise.kernels_step, &[])
    }

    /// Everything elementwise: `elements` are the inputs and outputs of all matrix products per token.
    pub(super) fn elementwise(&self, vectors: f64, row_bytes: f64, elements: f64, kernels: f64) -> ElementwiseTerm {
        let law = &self.engine.elementwise;
        let launches = self.seconds(&law.launch, &[]) * kernels;
        let prompt = law.prompt_launch.as_ref().map_or(1.0, |_| self.number(&law.prompt_launch, &[]));
        ElementwiseTerm {
            vector_bytes: vectors,
            bytes_per_token: row_bytes + elements * self.number(&law.bytes_per_element, &[]),
            memory_rate: 1.0 / (self.share(&law.memory, &[]) * self.bandwidth),
            launches,
            prompt_launches: launches * prompt,
        }
    }

    /// Choosing from `vocabulary` 32-bit logits on this device.
    pub(super) fn sampling(&self, vocabulary: f64) -> SamplingTerm {
        let law = &self.engine.sampling;
        SamplingTerm {
            bytes_per_row: 4.0 * vocabulary * self.number(&law.passes, &[]),
            memory_rate: 1.0 / (self.share(&self.engine.elementwise.memory, &[]) * self.bandwidth),
            fixed: self.seconds(&law.launch, &[]),
        }
    }

    /// Busiest device over the mean with experts spread so many ways.
    pub(super) fn imbalance(&self, expert_parallel: u32) -> f64 {
        match &self.engine.experts.imbalance {
            Some(imbalance) if expert_parallel > 1 => imbalance.at(&self.keys(&[], &self.generation())).value,
            _ => 1.0,
        }
    }

    /// A group of neighbouring devices and how the engine communicates in it.
    pub(super) fn group(&self, deployment: &Deployment, size: u32) -> Result<Group, SystemError> {
        let links = deployment.system().group_links(size)?;
        let link = links.inside.as_ref().or(links.across.as_ref()).map_or("", |link| link.kind.name());
        let devices = format!("group-{size}");
        let (law, network) = (self.collectives(&[link, &devices]), self.collectives(&["network"]).ring);
        Ok(Group::over(&links, law, network))
    }

    fn collectives(&self, keys: &[&str]) -> CollectiveLaw {
        let law = &self.engine.communication;
        let seconds = |parameter| Seconds::from_seconds(self.seconds(parameter, keys));
        let two_shot = Algorithm {
            latency: seconds(&law.two_shot_latency),
            latency_per_device: seconds(&law.two_shot_latency_per_device),
            efficiency: self.share(&law.two_shot_efficiency, keys),
        };
        let one_shot = Algorithm {
            efficiency: self.share(&law.one_shot_efficiency, keys),
            ..Algorithm::textbook(seconds(&law.one_shot_latency))
        };
        let all_to_all = Algorithm {
            efficiency: self.share(&law.all_to_all_efficiency, keys),
            ..Algorithm::textbook(seconds(&law.all_to_all_latency))
        };
        CollectiveLaw {
            one_shot: Some(one_shot),
            two_shot: Some(two_shot),
            // Two-shot stands for the ring too: the same traffic, with the hops in its latency per device.
            ring: Ring {
                latency: two_shot.latency,
                hop_latency: two_shot.latency_per_device * 0.5,
                efficiency: two_shot.efficiency,
            },
            in_switch: None,
            gather: two_shot,
            all_to_all,
            point_to_point: Algorithm { efficiency: two_shot.efficiency, ..Algorithm::textbook(Seconds::ZERO) },
            extra: seconds(&law.extra),
            factor: law.scale.as_ref().map_or(1.0, |_| self.number(&law.scale, keys)),
        }
    }

    /// Handing a step on to the next stage.
    pub(super) fn hop(&self, deployment: &Deployment) -> Result<AlphaBeta, SystemError> {
        if deployment.pipeline_parallel() < 2 {
            return Ok(AlphaBeta::FREE);
        }
        let link = deployment.system().pair_link(deployment.devices_per_stage())?;
        let keys = [link.kind.name()];
        let efficiency = self.share(&self.engine.communication.two_shot_efficiency, &keys);
        let latency = Seconds::from_seconds(self.seconds(&self.engine.pipeline.hop, &keys));
        let seconds_per_byte = Bytes::from_bytes(1.0) / (link.bandwidth * efficiency);
        Ok(AlphaBeta { latency, seconds_per_byte: seconds_per_byte.as_seconds() })
    }

    /// Time without data from the device to the main memory or back.
    pub(super) fn host_hop(&self) -> Seconds {
        Seconds::from_seconds(self.seconds(&self.engine.pipeline.host_hop, &[]))
    }

    /// Share of the bandwidth of the link to the main memory that copies reach.
    pub(super) fn host_efficiency(&self) -> f64 {
        self.share(&self.engine.communication.host_efficiency, &[])
    }

    /// Time of the host for a model of so many layers on so many devices.
    pub(super) fn host(&self, layers: u64, devices: u64) -> HostTerm {
        let law = &self.engine.host;
        HostTerm {
            per_step: self.seconds(&law.per_step, &[])
                + self.seconds(&law.per_layer, &[]) * layers as f64
                + self.seconds(&law.per_device, &[]) * devices.saturating_sub(1) as f64,
            per_sequence: self.seconds(&law.per_sequence, &[]),
            per_prompt_step: self.seconds(&law.per_prompt_step, &[]),
        }
    }

    fn compute(&self, parameter: &Option<Parameter<Positive>>, format: &[&str]) -> f64 {
        self.value(parameter, format, 1.0)
    }

    fn share(&self, parameter: &Option<Parameter<Share>>, format: &[&str]) -> f64 {
        self.value(parameter, format, 1.0)
    }

    fn number(&self, parameter: &Option<Parameter<Number>>, format: &[&str]) -> f64 {
        self.value(parameter, format, 0.0)
    }

    fn seconds(&self, parameter: &Option<Parameter<Seconds>>, format: &[&str]) -> f64 {
        self.value(parameter, format, 0.0)
    }

    /// The parameter, or what stands for a mechanism that is not there.
    fn value<Q: Quantity>(&self, parameter: &Option<Parameter<Q>>, format: &[&str], absent: f64) -> f64 {
        let at = |parameter: &Parameter<Q>| parameter.at(&self.keys(format, &self.generation())).value;
        parameter.as_ref().map_or(absent, at)
    }

    fn generation(&self) -> [&str; 5] {
        self.keys.each_ref().map(String::as_str)
    }

    fn keys<'k>(&self, format: &'k [&'k str], generation: &'k [&'k str]) -> Keys<'k> {
        Keys { generation, format }
    }
}

/// The rate of the fastest of the units that an engine uses, or of the format's own.
fn unit_peak(device: &Device, units: &[MatrixUnit], native: FlopsPerSecond) -> FlopsPerSecond {
    let rate = |unit: &MatrixUnit| match unit {
        MatrixUnit::Fp16Accumulate => device.fp16_accumulate_peak(),
        MatrixUnit::HalfInt8 => device.peak(NumberFormat::Int8).map(|peak| peak * 0.5),
        MatrixUnit::Fp32 => device.peak(NumberFormat::Fp32),
    };
    units.iter().filter_map(rate).reduce(FlopsPerSecond::max).unwrap_or(native)
}

/// The highest rate that those units can have: 8-bit integers at their full rate.
fn unit_limit(device: &Device, units: &[MatrixUnit], native: FlopsPerSecond) -> FlopsPerSecond {
    let unit = unit_peak(device, units, native);
    match device.peak(NumberFormat::Int8).filter(|_| units.contains(&MatrixUnit::HalfInt8)) {
        Some(int8) => unit.max(int8),
        None => unit,
    }
}
