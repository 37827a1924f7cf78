//! Recipes for articles that count operations and bytes of a transformer.

use crate::setup::*;
use crate::table::{
    Row,
    Value::{self, *},
};
use llm_roofline::operator::{GemmFormats, gemm, norm, residual_add, unfused_attention};
use llm_roofline::prelude::*;
use llm_roofline::roofline::Work;

/// Chen, Transformer Inference Arithmetic and its companions.
pub fn chen(number: u32, row: &Row) -> Option<Value> {
    let n = |name| row.number(name);
    let shape = || gpt(row.count("n_layers"), row.count("d_model"), 0);
    let params = || shape().params_total() as f64;
    Some(match number {
        1 => {
            let width = row.count("d_model");
            let projection = gemm(1.0, width, width, GemmFormats::SIXTEEN_BIT);
            Operations(projection.flops * (2.0 * n("n_layers")))
        }
        2 => Intensity(Roofline::new(row.flops_per_second("flops"), row.bandwidth("mem_bw")).ridge()),
        3 => Time(weight_time(params(), 16.0, row.bandwidth("mem_bw"), 1)),
        4 => Time(weight_time(params(), 16.0, row.bandwidth("mem_bw"), row.count("n_gpu") as u32)),
        5 => Data(kv_bytes(shape(), row.count("bytes"), 1)),
        6 => return cache_capacity(row),
        8 => {
            let deployment = totals(params(), 16.0, Bytes::ZERO, Roofline::new(FAST, PLENTY), 1);
            Operations(step(&deployment).decode_step(1, 0).flops())
        }
        9 | 33 => Time(weight_time(n("P"), 16.0, row.bandwidth("mem_bw"), row.count("N") as u32)),
        10 | 23 | 28 | 30 | 32 => {
            Time(prefill_time(n("P"), row.count("B"), row.flops_per_second("flops"), row.count("N") as u32))
        }
        11 | 12 | 24 | 29 | 31 => {
            let bytes = row.inputs.get("bytes").map_or(2.0, |_| n("bytes"));
            Time(all_reduces(row.count("n_layers"), n("B"), row.count("d_model"), bytes, row.bandwidth("comm_bw")))
        }
        14 => Intensity(Roofline::new(row.flops_per_second("flops"), row.bandwidth("comm_bw")).ridge()),
        15 | 16 => Time(weight_time(params(), 16.0, row.bandwidth("mem_bw"), row.count("N") as u32)),
        17 => {
            let a100 = Roofline::new(row.flops_per_second("flops"), row.bandwidth("mem_bw"));
            Intensity(a100.with_efficiency(1.0, n("mbu")).ridge())
        }
        18 | 19 => {
            // A model that is read in the given time on a device with the given ridge.
            let bandwidth = BytesPerSecond::from_tb_per_second(1.0);
            let roofline = Roofline::new(FlopsPerByte::from_flops_per_byte(n("ridge")) * bandwidth, bandwidth);
            let params = (Seconds::from_millis(n("step_ms")) * bandwidth).as_bytes() / 2.0;
            let deployment = totals(params, 16.0, Bytes::ZERO, roofline, 1);
            Time(step(&deployment).request(&Request::new(row.count("tokens"), 1)).unwrap().ttft)
        }
        20 | 21 => {
            let width = row.count("d_model");
            let outputs = if number == 20 { 4 * width } else { width };
            let work = gemm(n("tokens"), width, outputs, GemmFormats::SIXTEEN_BIT);
            Time(Roofline::new(row.flops_per_second("flops"), PLENTY).compute_time(work))
        }
        25 => Count(params()),
        26 => Count(gpt(0, row.count("d_model"), row.count("vocab")).params_total() as f64),
        27 => Count(gpt(row.count("n_layers"), row.count("d_model"), row.count("vocab")).params_total() as f64),
        34 => Data(kv_bytes(shape(), row.count("bytes"), row.count("tokens"))),
        _ => return None,
    })
}

/// Baseten, A guide to LLM inference and performance.
pub fn baseten(number: u32, row: &Row) -> Option<Value> {
    let n = |name| row.number(name);
    Some(match number {
        40 => Intensity(Roofline::new(row.flops_per_second("flops"), row.bandwidth("mem_bw")).ridge()),
        41..=43 => {
            let unfused = unfused_attention(1, row.count("d"), row.count("N"), row.count("N"));
            // The source counts 3 operations per score in the softmax, this crate 5.
            let softmax = Work { flops: unfused.softmax.flops * (3.0 / 5.0), ..unfused.softmax };
            let work = unfused.scores + softmax + unfused.weighted_sum;
            match number {
                41 => Data(work.bytes),
                42 => Operations(work.flops),
                _ => Intensity(work.intensity()),
            }
        }
        44 => Data(kv_bytes(gpt(row.count("n_layers"), row.count("d_model"), 0), row.count("bytes"), 1)),
        45 => return cache_capacity(row),
        46 => {
            let (room, token) = (row.bytes("kv_tokens"), Bytes::from_bytes(1.0));
            let deployment = totals_within(room, 0.0, 16.0, token, Roofline::new(FAST, PLENTY), 1);
            Count(deployment.max_sequences(row.count("ctx"))? as f64)
        }
        50..=52 => Time(weight_time(n("P"), 8.0 * n("bytes"), row.bandwidth("mem_bw"), 1)),
        53..=55 => Time(prefill_time(n("P"), row.count("tokens"), row.flops_per_second("flops"), 1)),
        56..=58 => {
            // A billion parameters in 16 bits, on a device that takes the given times for them. The source lets the prefill
            // emit no token, hence one more token here.
            let (tokens, params) = (1000, 1e9);
            let bandwidth = Bytes::from_bytes(2.0 * params) / Seconds::from_millis(n("ms_per_tok"));
            let peak = Flops::from_flops(2.0 * params * tokens as f64) / Seconds::from_millis(n("prefill_ms"));
            let model = step(&totals(params, 16.0, Bytes::ZERO, Roofline::new(peak, bandwidth), 1));
            Time(model.request(&Request::new(tokens, row.count("out_tokens") + 1)).unwrap().e2e)
        }
        _ => return None,
    })
}

/// Yuan et al., LLM Inference Unveiled, table of Llama-2-7B on an A6000.
pub fn llm_viewer(row: &Row) -> Option<Value> {
    let (hidden, heads, head_dim) = (row.count("h"), row.count("heads"), row.count("head_dim"));
    let context = row.count("s");
    let tokens = if row.text("stage") == "prefill" { context } else { 1 };
    let product = |inputs, outputs| gemm(tokens as f64, inputs, outputs, GemmFormats::SIXTEEN_BIT);
    let attention = unfused_attention(heads, head_dim, tokens, context);
    let work = match row.text("layer") {
        "q_proj" | "o_proj" => product(hidden, hidden),
        "gate_proj" => product(hidden, row.count("ffn")),
        "down_proj" => product(row.count("ffn"), hidden),
        "qk_matmul" => attention.scores,
        "sv_matmul" => attention.weighted_sum,
        "softmax" => attention.softmax,
        "norm" => norm(tokens as f64, hidden),
        "add" => residual_add(tokens as f64, hidden),
        _ => return None,
    };
    let a6000 = Roofline::new(FlopsPerSecond::from_tflops_per_second(155.0), BytesPerSecond::from_gb_per_second(768.0));
    Some(match row.quantity.as_str() {
        "ops" => Operations(work.flops),
        "memory_access" => Data(work.bytes),
        "arithmetic_intensity" => Intensity(work.intensity()),
        "attainable_perf" => Arithmetic(a6000.attainable(work.intensity())),
        _ => return None,
    })
}
