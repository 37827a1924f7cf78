//! Why does prefill fly and decode crawl? The roofline of one device, with both phases of one model on it, as vLLM runs them.

mod shared;

use llm_roofline::prelude::*;
use std::error::Error;
use std::fmt::Write;

const WIDTH: usize = 78;
const HEIGHT: usize = 16;
const INTRODUCTION: &str =
    "Every step reads all weights once. How much it computes per byte read depends on how many tokens it carries.";
const CONCLUSION: &str = "\
Left of the ridge the memory bandwidth is the roof: a decode step of one sequence uses 0.2 % of the arithmetic.
Batching moves decode to the right almost for free; prefill is near the roof, only fewer tokens make it much faster.
Marks below the roof are what the engine loses: launches, the host, kernels below the peak (`quickstart` lists them).";

fn main() -> std::process::ExitCode {
    shared::finish(run())
}

fn run() -> Result<String, Box<dyn Error>> {
    let mut out = String::new();
    let catalog = Catalog::embedded();
    let device = catalog.device("h100-sxm-80gb")?;
    let deployment = Deployment::new(catalog.model("llama-3.1-8b")?, System::new(device.clone(), 1)?);
    let model = StepModel::compile(&deployment.with_engine(catalog.engine("vllm")?))?;
    let roofline = Roofline::new(model.linear_peak(), device.bandwidth());

    writeln!(out, "Llama 3.1 8B in 16 bits on one {} under vLLM\n\n{INTRODUCTION}\n", device.name())?;
    let steps = [('1', 1), ('2', 16), ('3', 128), ('4', 512), ('5', 4096)].map(|(mark, tokens)| {
        let mut load = model.load();
        match tokens {
            4096 => load.add_prefill(0, tokens, true),
            _ => load.add_decode(1000, 1, tokens as f64),
        }
        (mark, tokens, model.cost(&load), model.explain(&load).efficiency())
    });
    writeln!(
        out,
        "mark step                               time      intensity      reached  of limit     bound   time per token"
    )?;
    for (mark, tokens, cost, efficiency) in &steps {
        let what =
            if *tokens == 4096 { "prefill of a 4,096 prompt".into() } else { format!("decode, batch of {tokens}") };
        let intensity = cost.flops() / cost.bytes();
        let reached = cost.flops().as_tflops() / cost.total().as_seconds();
        let (time, bound, each) = (cost.total(), cost.bound(), cost.total() / *tokens as f64);
        writeln!(
            out,
            "{mark:<4} {what:<28} {time:>10} {intensity:>14.1} {reached:>9.0} TF {:>7.0} % {bound:>9} {each:>16}",
            100.0 * efficiency
        )?;
    }
    writeln!(out, "\nFLOP/s (log)                              ridge: {:.0}", roofline.ridge())?;
    write!(out, "{}", draw(&roofline, &steps))?;
    writeln!(out, "{:>WIDTH$}\n\n{CONCLUSION}", "operations per byte (log)")?;
    Ok(out)
}

/// The roof and the steps on logarithmic axes: intensity 0.25 to 16,384, rate from 1/4096 of the peak.
fn draw(roofline: &Roofline, steps: &[(char, u64, llm_roofline::step::StepCost, f64)]) -> String {
    let mut canvas = vec![vec![' '; WIDTH]; HEIGHT];
    let row = |rate: f64| {
        let octaves_below_peak = (roofline.peak.as_flops_per_second() / rate).log2();
        (octaves_below_peak / 12.0 * (HEIGHT - 1) as f64).round().clamp(0.0, (HEIGHT - 1) as f64) as usize
    };
    let intensity_at = |column: usize| 2f64.powf(-2.0 + 16.0 * column as f64 / (WIDTH - 1) as f64);
    let roof = (0..WIDTH).map(|column| roofline.attainable(FlopsPerByte::from_flops_per_byte(intensity_at(column))));
    for (column, rate) in roof.enumerate() {
        canvas[row(rate.as_flops_per_second())][column] = if rate < roofline.peak { '/' } else { '_' };
    }
    for (mark, _, cost, _) in steps {
        let intensity = (cost.flops() / cost.bytes()).as_flops_per_byte();
        let column =
            ((intensity.log2() + 2.0) / 16.0 * (WIDTH - 1) as f64).round().clamp(0.0, (WIDTH - 1) as f64) as usize;
        canvas[row(cost.flops().as_flops() / cost.total().as_seconds())][column] = *mark;
    }
    canvas.into_iter().map(|line| format!("|{}\n", line.into_iter().collect::<String>().trim_end())).collect()
}
