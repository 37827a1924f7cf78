//! Deployments under load that both simulations, the leaping and the stepping one, are compared with the steady state on.

use llm_roofline::workload::{LengthDistribution, Lengths};

/// Model, format, device, devices, engine, prompt, output, spread of both lengths.
pub type Case = (&'static str, &'static str, &'static str, u32, &'static str, u64, u64, f64);

pub const CASES: [Case; 6] = [
    ("llama-3.1-8b", "bf16", "h100-sxm-80gb", 1, "vllm-2026", 1024, 256, 0.0),
    ("llama-3.1-8b", "bf16", "h100-sxm-80gb", 1, "vllm-2026", 200, 200, 0.0),
    ("llama-3.1-70b", "fp8", "h100-sxm-80gb", 4, "vllm-2026", 1024, 512, 0.2),
    ("llama-3.1-8b", "fp8", "l4-24gb", 1, "vllm-2026", 500, 300, 0.5),
    ("llama-3.1-8b", "bf16", "h100-sxm-80gb", 1, "sglang-2026", 1024, 256, 0.0),
    ("qwen3-30b-a3b", "fp8", "h100-sxm-80gb", 1, "vllm-2026", 1000, 300, 0.5),
];

/// Lengths of the requests of a case.
pub fn lengths(case: &Case) -> Lengths {
    let (.., prompt, output, spread) = *case;
    if spread == 0.0 {
        return Lengths::fixed(prompt, output).unwrap();
    }
    let around = |tokens| LengthDistribution::uniform_ratio(tokens, spread).unwrap();
    Lengths::independent(around(prompt), around(output)).unwrap()
}
