//! The operator laws of an engine: which numbers each class of operators has, and what they mean.
//!
//! A parameter that is absent stands for a mechanism that costs nothing: the ideal engine has none of them.

use super::parameter::{AnyParameter, Number, Parameter, Positive, Share};
use crate::units::Seconds;
use serde::{Deserialize, Serialize};

/// Declares a law: a struct of optional parameters that can be listed by name.
macro_rules! law {
    ($(#[$meta:meta])* $name:ident { $($(#[$field_meta:meta])* $field:ident: $quantity:ty,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        #[non_exhaustive]
        pub struct $name {
            $(
                $(#[$field_meta])*
                #[serde(skip_serializing_if = "Option::is_none")]
                pub $field: Option<Parameter<$quantity>>,
            )*
        }

        impl $name {
            pub(super) fn each<'a>(&'a self, visit: &mut dyn FnMut(&'static str, &'a dyn AnyParameter)) {
                $(if let Some(parameter) = &self.$field { visit(stringify!($field), parameter); })*
            }

            pub(super) fn parameter_mut(&mut self, name: &str) -> Option<&mut dyn AnyParameter> {
                match name {
                    $(stringify!($field) => self.$field.as_mut().map(|parameter| parameter as &mut dyn AnyParameter),)*
                    _ => None,
                }
            }
        }
    };
}

law! {
    /// Dense matrix products of `M` rows with a `K x N` matrix.
    ///
    /// # Formula
    /// `launch + per_thousand_inputs * K/1000 + quantize_passes * 3MK/BW + smooth_max(weights and activations, arithmetic; serialised)` with
    /// - memory: bytes over `min(memory * BW, load_bytes_per_operation * fp32 peak)`;
    /// - arithmetic with matrix units: `2(M + padding_rows)KN / min(compute * P, sustained power)`, plus unpacking of quantized weights;
    /// - arithmetic with vector units, up to [`vector_rows`](super::Scheduling::vector_rows) rows: `vector_operations * (vector_shared +
    ///   (1 - vector_shared) M) * K * N / fp32 peak`.
    GemmLaw {
        /// Share of the rate of the [`MatrixUnit`](super::MatrixUnit)s; no product is faster than the format's or the unit's own peak.
        compute: Positive,
        /// Share of the memory bandwidth.
        memory: Share,
        /// Share of the shorter of arithmetic and memory time that does not overlap with the longer.
        serialised: Number,
        /// Time of a launch with prologue and epilogue.
        launch: Seconds,
        /// Time per 1,000 input features in matrix kernels: a block walks them one after another, however small the rest is.
        per_thousand_inputs: Seconds,
        /// Quantization of the inputs as a kernel of its own, in passes of 3 bytes per input element.
        quantize_passes: Number,
        /// Bytes that the compute units can keep in flight, per operation of the fp32 peak (which stands for units times clock).
        load_bytes_per_operation: Number,
        /// Rows by which tiles are padded on average.
        padding_rows: Number,
        /// Vector kernels: operations per weight of a single row, dequantization included.
        vector_operations: Number,
        /// Share of these that is done once for all rows: dequantization.
        vector_shared: Share,
        /// Matrix kernels on quantized weights: fp32 operations per weight and row for unpacking and scaling.
        unpack_operations: Number,
        /// Matrix kernels on quantized weights: bytes moved per weight when they are expanded to 16 bits first.
        expand_bytes: Number,
        /// Matrix kernels on quantized weights: fp32 operations per weight when they are expanded to 16 bits first.
        expand_operations: Number,
        /// Arithmetic rate that the power limit sustains, in 16-bit TFLOP/s per watt.
        sustained_tflops_per_watt: Number,
    }
}

law! {
    /// Grouped matrix products over the routed experts: `T` tokens to `k` of `E` experts, of which `D` distinct ones.
    ///
    /// # Formula
    /// `launch + smooth_max(D expert matrices / (memory BW), 6hI(Tk + padding_rows D) imbalance/(compute P); serialised) + Tk(2h+3I) 2 bytes/(activation_memory BW)`.
    ExpertLaw {
        /// Share of the rate of the matrix units.
        compute: Positive,
        /// Share of the memory bandwidth in reading experts.
        memory: Share,
        /// Share of the shorter of arithmetic and memory time that does not overlap.
        serialised: Number,
        /// Time of routing, permuting and launching.
        launch: Seconds,
        /// More of the same in steps with prompt tokens.
        prompt_launch: Seconds,
        /// Share of the bandwidth in moving activations to and from experts.
        activation_memory: Share,
        /// Rows by which the tile of each expert is padded on average.
        padding_rows: Number,
        /// Busiest device over the mean under expert parallelism.
        imbalance: Number,
        /// Operations per weight and row in vector kernels.
        vector_operations: Number,
    }
}

law! {
    /// Attention of prompt chunks.
    ///
    /// # Formula
    /// `launch + smooth_max(pairs * 4 * heads * d / (compute P16), traffic / (memory BW); serialised)`; unfused attention writes and reads its scores.
    PrefillAttentionLaw {
        /// Share of the 16-bit peak.
        compute: Share,
        /// Share of the bandwidth; stands for everything linear in the tokens.
        memory: Share,
        /// Share of the shorter of the two times that does not overlap.
        serialised: Number,
        /// Share of the masked pairs that are computed all the same: 1 for kernels that work on the whole rectangle of new tokens and keys.
        masked_share: Number,
        /// Time of a launch.
        launch: Seconds,
        /// Share of the 16-bit peak in latent attention.
        latent_compute: Share,
        /// Share of the bandwidth in latent attention.
        latent_memory: Share,
        /// Share of the 16-bit peak without flash attention.
        unfused_compute: Share,
        /// Bytes per score that is written and read without flash attention.
        unfused_score_bytes: Number,
    }
}

law! {
    /// Attention of decode tokens: linear in the context, so that any number of steps sums up in closed form.
    ///
    /// # Formula
    /// `launch + max(cache bytes / (memory BW), operations / (compute P16))`.
    DecodeAttentionLaw {
        /// Share of the bandwidth in reading the cache.
        memory: Share,
        /// Share of the 16-bit peak.
        compute: Share,
        /// Time of a launch with the reduction over splits.
        launch: Seconds,
        /// Share of the bandwidth in latent attention.
        latent_memory: Share,
        /// Share of the 16-bit peak in latent attention.
        latent_compute: Share,
        /// Share of the bandwidth without flash attention.
        unfused_memory: Share,
        /// Share of the 16-bit peak without flash attention.
        unfused_compute: Share,
        /// Bytes per score that is written and read without flash attention.
        unfused_score_bytes: Number,
    }
}

law! {
    /// State-space and linear-attention layers: read and write the state of each sequence, scan prompts.
    RecurrentLaw {
        /// Share of the 16-bit peak in scanning.
        compute: Share,
        /// Share of the bandwidth.
        memory: Share,
        /// Time of a launch.
        launch: Seconds,
    }
}

law! {
    /// Norms, rotations, residuals, activations, copies: traffic and launches.
    ///
    /// # Formula
    /// `launch * (kernels of every layer + kernels_step) + bytes_per_element * sum(K + N) * M / (memory BW)` over the inputs `K` and
    /// outputs `N` of all matrix products.
    ElementwiseLaw {
        /// Share of the bandwidth.
        memory: Share,
        /// Time of one small kernel.
        launch: Seconds,
        /// Factor on it in steps with prompt tokens.
        prompt_launch: Number,
        /// Bytes moved per element of the inputs and outputs of matrix products.
        bytes_per_element: Number,
        /// Small kernels of a layer with attention over heads.
        kernels_attention: Number,
        /// Small kernels of a layer with latent attention.
        kernels_latent: Number,
        /// Small kernels of a recurrent layer.
        kernels_recurrent: Number,
        /// Small kernels of a dense feed-forward.
        kernels_feed_forward: Number,
        /// Small kernels of a mixture of experts.
        kernels_moe: Number,
        /// Small kernels of shared experts.
        kernels_shared_expert: Number,
        /// Small kernels of a step outside the layers.
        kernels_step: Number,
    }
}

law! {
    /// Choosing the next token from the logits.
    SamplingLaw {
        /// Time of the launches.
        launch: Seconds,
        /// Passes over the 32-bit logits at the elementwise bandwidth.
        passes: Number,
    }
}

law! {
    /// Communication between the devices of a node or across nodes; factors by link (`nvlink`, `pcie`, ...) stand under `by_format`.
    ///
    /// # Formula
    /// All-reduce of `S` bytes over `n` devices: `scale * min(one_shot_latency + (n-1) S/(one_shot_efficiency L), two_shot_latency +
    /// two_shot_latency_per_device n + 2(n-1)/n S/(two_shot_efficiency L)) + extra`.
    CommunicationLaw {
        /// Time without data of the algorithm in which every device reads all others.
        one_shot_latency: Seconds,
        /// Share of the link bandwidth in that algorithm.
        one_shot_efficiency: Share,
        /// Time without data of reduce-scatter and all-gather.
        two_shot_latency: Seconds,
        /// The same per device of the group.
        two_shot_latency_per_device: Seconds,
        /// Share of the link bandwidth in that algorithm.
        two_shot_efficiency: Share,
        /// Factor on both.
        scale: Number,
        /// Time per call on top.
        extra: Seconds,
        /// Time without data of an all-to-all, per direction.
        all_to_all_latency: Seconds,
        /// Share of the link bandwidth in an all-to-all.
        all_to_all_efficiency: Share,
        /// Share of the bandwidth of the link to the host in copies from and to main memory.
        host_efficiency: Share,
    }
}

law! {
    /// Layers spread over devices one after another.
    PipelineLaw {
        /// Time to hand a step on to the next device.
        hop: Seconds,
        /// Time to hand a step on to the host's processor, or from there to the device.
        host_hop: Seconds,
        /// Time lost per further stage to unequal stages.
        imbalance: Number,
        /// Share of the time lost when micro-batches of a prompt follow one another through the stages.
        prompt_loss: Number,
    }
}

law! {
    /// What the host does between steps while the device waits.
    HostLaw {
        /// Per step.
        per_step: Seconds,
        /// Per sequence and step.
        per_sequence: Seconds,
        /// Per step with prompt tokens.
        per_prompt_step: Seconds,
        /// Per layer and step: eager launches that the device waits for.
        per_layer: Seconds,
        /// Per further device of the group and step.
        per_device: Seconds,
        /// Per request, outside of steps: parsing, tokenizing and queueing before the first step can see it, and the way of its first token back.
        per_request: Seconds,
        /// Once, if no request came before: what is compiled, tuned or allocated at first use. Benchmarks without a warm-up have it in their first burst.
        first_use: Seconds,
    }
}

law! {
    /// Speculative decoding: what a cycle of drafting and verifying costs beside the passes of the two models.
    ///
    /// # Formula
    /// `cycle + tree (if there are several candidates for a position) + take_back * recurrent layers + draft_pass * passes of the drafter`.
    SpeculationLaw {
        /// Per cycle: comparing, and preparing what an engine prepares ahead where the next tokens are not awaited.
        cycle: Seconds,
        /// Per pass of the drafter, in place of the host's time of a step; absent: a pass is a step like any other.
        draft_pass: Seconds,
        /// Per cycle in which there are several candidates for a position: growing, masking and walking the tree.
        tree: Seconds,
        /// Per recurrent layer and cycle: taking the state back to the last accepted token.
        take_back: Seconds,
    }
}

law! {
    /// How far measurements scatter around the laws: standard deviations of the logarithm of time.
    UncertaintyLaw {
        /// Matrix products.
        gemm: Number,
        /// Experts.
        experts: Number,
        /// Attention, both phases, and recurrences.
        attention: Number,
        /// Elementwise kernels, host and sampling.
        overhead: Number,
        /// Communication.
        communication: Number,
        /// Common to a whole decode step: build, clocks, settings.
        decode: Number,
        /// Common to a whole step with prompt tokens.
        prefill: Number,
        /// The speed-up of speculative decoding, where it is known how much is accepted.
        speculation: Number,
        /// Rates and times per token under load, beside that of the steps.
        load: Number,
        /// Times to first token under load: a queue amplifies what is wrong with a step, and how a client starts is seldom known.
        load_first_token: Number,
        /// Added where a law has no measurement of the hardware's generation.
        unknown_hardware: Number,
    }
}
