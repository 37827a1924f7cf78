#![allow(missing_docs, clippy::all)]
use llm_roofline::prelude::*;
use llm_roofline::speculative::*;
fn main() {
    let c = Catalog::embedded();
    for (dev, eng, mo, tp) in [
        ("h100-sxm-80gb", "sglang", "llama-3.1-8b", 1),
        ("h100-sxm-80gb", "vllm", "llama-3.1-70b", 4),
        ("h100-sxm-80gb", "ideal", "llama-3.1-8b", 1),
        ("h200-sxm-141gb", "sglang", "deepseek-r1", 8),
        ("h200-sxm-141gb", "sglang", "qwen3-30b-a3b", 4),
    ] {
        let sys = System::new(c.device(dev).unwrap(), tp).unwrap();
        let t = Deployment::new(c.model(mo).unwrap(), sys).with_engine(c.engine(eng).unwrap());
        let s = Speculation::new(Method::Eagle3, &t)
            .unwrap()
            .with_draft_tokens(3)
            .unwrap()
            .with_acceptance_rate(0.7)
            .unwrap();
        let m = SpeculativeModel::compile(&t, &s).unwrap();
        println!("{mo} {eng}");
        for ctx in [500u64, 4000, 32000, 120000] {
            print!("{ctx:>7}");
            for b in [1u64, 4, 16, 64, 128, 256, 512] {
                print!(" {:.2}/{}", m.speedup(b, ctx), m.best_draft_tokens(b, ctx, 16).unwrap().draft_tokens);
            }
            println!(" be {:?} {:?}", m.break_even_batch(ctx, 2048), m.paying_batches(ctx, 2048));
        }
    }
}
