//! Recipes for books, lectures, papers and tools about whole models on whole systems.

use crate::setup::*;
use crate::table::{
    Row,
    Value::{self, *},
};
use llm_roofline::model::{Architecture, FeedForward, LatentAttention, Mixer, Moe};
use llm_roofline::operator::{GemmFormats, gemm, unfused_attention};
use llm_roofline::prelude::*;
use llm_roofline::roofline::{Work, mbu, mfu};

/// How To Scale Your Model, chapters 1, 7 and 8.
pub fn scaling_book(number: u32, row: &Row) -> Option<Value> {
    let n = |name| row.number(name);
    let gated = |intermediate| FeedForward::Dense { intermediate, gated: true };
    let heads = || attention(row.count("N"), row.count("K"), row.count("H"));
    let chips = || row.count("chips") as u32;
    Some(match number {
        1 | 2 => {
            let v5e = Roofline::new(row.flops_per_second("flops"), row.bandwidth("hbm_bw"));
            Count(v5e.critical_tokens(if number == 1 { 16.0 } else { 8.0 * n("w_bytes") }))
        }
        4 | 5 => {
            let (params, peak) =
                if number == 4 { (n("param_bytes"), FAST) } else { (n("P"), row.flops_per_second("flops")) };
            let (context, roofline) = (8192, Roofline::new(peak, row.bandwidth("hbm_bw")));
            let per_token = row.bytes("kv_bytes_per_seq") / context as f64;
            Time(decode(&totals(params, 8.0, per_token, roofline, chips()), row.count("B"), context))
        }
        6 => {
            let intermediate = (n("F_over_D") * n("D")) as u64;
            Count(stack(row.count("L"), row.count("D"), 0, Mixer::None, gated(intermediate)).params_total() as f64)
        }
        7 => Count(stack(row.count("L"), row.count("D"), 0, heads(), FeedForward::None).params_total() as f64),
        8 => {
            let mut embeddings = stack(0, row.count("D"), row.count("V"), Mixer::None, FeedForward::None);
            embeddings.tied_embeddings = false;
            Count(embeddings.params_total() as f64)
        }
        9 => {
            let cache = attention_only(row.count("L"), row.count("K"), row.count("H"));
            Data(kv_bytes(cache, row.count("bytes"), row.count("T")))
        }
        11..=34 => {
            let (context, batch) = (8192, row.count("B"));
            let per_token = Bytes::from_gb(n("kv_GB_per_seq")) / context as f64;
            let bandwidth = BytesPerSecond::from_tb_per_second(n("hbm_TBps"));
            let params = Bytes::from_gb(n("param_GB")).as_bytes() / 2.0;
            let roofline = Roofline::new(FAST, bandwidth);
            let time = decode(&totals(params, 16.0, per_token, roofline, chips()), batch, context);
            if row.unit == "ms" { Time(time) } else { Rate(batch_rate(batch, time)) }
        }
        36 => {
            let feed_forward = gated(row.count("F"));
            Count(stack(row.count("L"), row.count("D"), row.count("V"), heads(), feed_forward).params_total() as f64)
        }
        41 => Data(kv_bytes(attention_only(row.count("L"), row.count("K"), row.count("H")), row.count("bytes"), 1)),
        42 => {
            let deployment = totals(0.0, 8.0, row.bytes("kv"), Roofline::new(FAST, PLENTY), 1);
            Data(deployment.memory_plan(1, row.count("seq")).kv_cache)
        }
        43 => Count((row.bytes("param_B") + row.bytes("kv_B")) / row.bytes("hbm")),
        44 => {
            let deployment = totals(n("param_B"), 8.0, row.bytes("kv"), Roofline::new(FAST, PLENTY), 1);
            Data(deployment.memory_plan(row.count("B"), row.count("seq")).needed())
        }
        45 => Time(weight_time(n("bytes"), 8.0, row.bandwidth("hbm_bw"), chips())),
        46 => Rate(batch_rate(row.count("B"), Seconds::from_seconds(n("step_s")))),
        47 => Rate(TokensPerSecond::from_tokens_per_second(n("tps")) / n("chips")),
        50 => {
            let activations = gemm(n("B"), row.count("D"), 0, GemmFormats::SIXTEEN_BIT).bytes;
            Time(activations / row.bandwidth("ici_bw"))
        }
        51 | 52 => {
            // One of two feed-forward products, divided over Y chips.
            let tokens = if number == 51 { 0.0 } else { n("B") };
            let work = gemm(tokens, row.count("D"), row.count("F") / row.count("Y"), GemmFormats::SIXTEEN_BIT);
            Time(if number == 51 {
                Roofline::new(FAST, row.bandwidth("hbm_bw")).memory_time(work)
            } else {
                Roofline::new(row.flops_per_second("flops"), PLENTY).compute_time(work)
            })
        }
        53 => {
            let v5e = Roofline::new(row.flops_per_second("flops"), PLENTY).with_efficiency(n("mfu"), 1.0);
            Time(prefill_time(n("P"), row.count("tokens"), v5e.peak, chips()))
        }
        56 => Time(weight_time(n("hbm"), 8.0, row.bandwidth("hbm_bw"), 1)),
        70 => Intensity(Roofline::new(row.flops_per_second("ops"), row.bandwidth("bw")).ridge()),
        71 => {
            let bandwidth = BytesPerSecond::from_tb_per_second(1.0);
            let roofline = Roofline::new(FlopsPerByte::from_flops_per_byte(n("ridge")) * bandwidth, bandwidth);
            Count(roofline.critical_tokens(8.0))
        }
        72 => Time(weight_time(n("P"), 8.0 * n("bytes"), row.bandwidth("bw"), chips())),
        73 => Count(Roofline::new(row.flops_per_second("flops"), row.bandwidth("pcie")).critical_tokens(16.0)),
        74 | 75 => {
            let roofline = Roofline::new(row.flops_per_second("ops"), row.bandwidth("bw"));
            let per_token = Work { flops: Flops::from_flops(n("ops_per_B")), bytes: row.bytes("act_bytes_per_B") };
            Count(roofline.critical_tokens_with_activations(row.bytes("w_bytes"), per_token)?)
        }
        76 => {
            let (width, mixer) = (row.count("D"), attention(1, 1, row.count("D")));
            let mut model = stack(row.count("L"), width, row.count("V"), mixer, gated(row.count("F")));
            model.tied_embeddings = false;
            Count(model.params_total() as f64)
        }
        77 => Data(kv_bytes(attention_only(row.count("L"), 1, row.count("D")), row.count("bytes"), 1)),
        78 => Data(kv_bytes(attention_only(row.count("L"), 1, row.count("D")), row.count("bytes"), row.count("S"))),
        _ => return None,
    })
}

/// Llama-2-13B, with as many key-value heads as given.
pub fn llama_2_13b(kv_heads: u64) -> Architecture {
    let feed_forward = FeedForward::Dense { intermediate: 13824, gated: true };
    let mut model = stack(40, 5120, 32000, attention(40, kv_heads, 128), feed_forward);
    model.tied_embeddings = false;
    model
}

/// Stanford CS336, the lecture on inference: every parameter is read, the look-up table too.
pub fn cs336(number: u32, row: &Row) -> Option<Value> {
    Some(match number {
        1 => Intensity(Roofline::new(row.flops_per_second("flops"), row.bandwidth("bw")).ridge()),
        2 => {
            let feed_forward = FeedForward::Dense { intermediate: row.count("F"), gated: true };
            let heads = attention(row.count("N"), row.count("K"), row.count("H"));
            let mut model = stack(row.count("L"), row.count("D"), row.count("V"), heads, feed_forward);
            model.tied_embeddings = false;
            Count(model.params_total() as f64)
        }
        10..=24 => {
            let model = llama_2_13b(row.count("K"));
            let (params, per_token) = (model.params_total() as f64, kv_bytes(model, 2, 1));
            let roofline = Roofline::new(FAST, row.bandwidth("bw"));
            let time = decode(&totals(params, 16.0, per_token, roofline, 1), row.count("B"), row.count("S"));
            if row.unit == "ms" { Time(time) } else { Rate(batch_rate(row.count("B"), time)) }
        }
        _ => return None,
    })
}

/// cli99/llm-analysis on OPT-13B.
pub fn llm_analysis(number: u32, row: &Row) -> Option<Value> {
    let shape = |vocab| gpt(row.count("L"), row.count("h"), vocab);
    Some(match number {
        1 => Data(kv_bytes(shape(0), row.count("bytes"), row.count("s"))),
        2 => Data(shape(row.count("V")).weight_bytes(&"bf16".parse().unwrap())),
        3 => {
            // Every position gets logits, and masked pairs are counted.
            let linears = gemm_flops(&on_one_device(shape(row.count("V"))), row.count("s"));
            let scores = unfused_attention(row.count("h") / 128, 128, row.count("s"), row.count("s"));
            Operations(linears + (scores.scores + scores.weighted_sum).flops * row.number("L"))
        }
        4 => Operations(step(&on_one_device(shape(row.count("V")))).decode_step(1, 0).flops()),
        5 => {
            let roofline = Roofline::new(FAST, row.bandwidth("bw")).with_efficiency(1.0, row.number("eff"));
            let read_and_written = Work { bytes: row.bytes("kv_bytes") * 2.0, ..Work::default() };
            Time(roofline.time(read_and_written))
        }
        _ => return None,
    })
}

/// Utilisations: Pope et al., Efficiently Scaling Transformer Inference; Databricks, LLM Inference Performance Engineering.
pub fn utilisation(family: &str, number: u32, row: &Row) -> Option<Value> {
    let n = |name| row.number(name);
    Some(match (family, number) {
        ("PO", 1..=4) => {
            let flops = Flops::from_flops(2.0 * n("P") * n("tokens") * n("batch"));
            Count(mfu(flops, Seconds::from_seconds(n("time_s")), row.flops_per_second("flops") * n("chips")))
        }
        ("PO", 5) => Time(Seconds::from_seconds(n("time_s")) / n("tokens")),
        ("DB", 1) => {
            let weights = Totals::dense(row.count("P"), 8.0 * n("bytes"), Bytes::ZERO).weight_bytes();
            Bandwidth(weights / Seconds::from_millis(n("tpot_ms")))
        }
        ("DB", 2) => {
            let second = Seconds::from_seconds(1.0);
            let peak = BytesPerSecond::from_tb_per_second(n("peak_TBps"));
            Count(mbu(Bytes::from_tb(n("achieved_TBps")), second, peak))
        }
        _ => return None,
    })
}

/// Caches: NVIDIA, Zhao et al. (Insights into DeepSeek-V3), DistServe.
pub fn caches(family: &str, number: u32, row: &Row) -> Option<Value> {
    Some(match (family, number) {
        ("NV", 1) => Data(kv_bytes(gpt(row.count("L"), row.count("h"), 0), row.count("bytes"), row.count("s"))),
        ("NV", 2) => Data(Totals::dense(row.count("P"), 8.0 * row.number("bytes"), Bytes::ZERO).weight_bytes()),
        ("KV", 1) => {
            let latent = LatentAttention {
                heads: 128,
                q_lora_rank: Some(1536),
                kv_lora_rank: row.count("kv_lora"),
                qk_nope_head_dim: 128,
                qk_rope_head_dim: row.count("rope"),
                v_head_dim: 128,
                output_gate: false,
                sparse: None,
            };
            let model = stack(row.count("L"), 7168, 0, Mixer::LatentAttention(latent), FeedForward::None);
            Data(kv_bytes(model, row.count("bytes"), 1))
        }
        ("KV", 2 | 3) => {
            Data(kv_bytes(attention_only(row.count("L"), row.count("K"), row.count("H")), row.count("bytes"), 1))
        }
        ("KV", 4) => Count(Bytes::from_kb(row.number("a")) / Bytes::from_kb(row.number("b"))),
        ("KV", 6) => Data(kv_bytes(gpt(row.count("L"), row.count("h"), 0), row.count("bytes"), row.count("tokens"))),
        _ => return None,
    })
}

/// Mixtures of experts.
pub fn experts(number: u32, row: &Row) -> Option<Value> {
    let moe = Moe {
        experts: row.count("E"),
        experts_per_token: row.count("k"),
        intermediate: 1,
        gated: true,
        shared_intermediate: None,
        latent_size: None,
        vector_params_per_expert: 0,
        shared_gate: false,
    };
    Some(match number {
        1..=8 => Count(moe.expected_distinct_experts(row.number("tokens"))),
        10 => {
            let bandwidth = BytesPerSecond::from_tb_per_second(1.0);
            let ridge = FlopsPerByte::from_flops_per_byte(row.number("ridge"));
            let one_expert = Roofline::new(ridge * bandwidth, bandwidth).critical_tokens(16.0);
            Count(one_expert * moe.experts as f64 / moe.experts_per_token as f64)
        }
        _ => return None,
    })
}
