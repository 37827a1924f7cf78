use super::*;
use crate::units::Seconds;
use std::time::Instant;
#[test]
#[ignore]
fn speed() {
    for n in [500u64, 2_000, 20_000, 1_000_000] {
        let mut best = (f64::MAX, f64::MAX, f64::MAX, f64::MAX);
        for _ in 0..5 {
            let reqs: Vec<CompletedRequest> = {
                let mut x = 1u64;
                let mut u = || {
                    x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    ((x >> 11) as f64 + 0.5) / (1u64 << 53) as f64
                };
                (0..n)
                    .map(|id| {
                        let a = id as f64 * 0.1;
                        let q = if u() < 0.5 { 0.0 } else { u() * 0.3 };
                        let t = q + 0.02 + 0.1 * u();
                        let e = t + 200.0 * (0.01 + 0.02 * u());
                        let s = Seconds::from_seconds;
                        CompletedRequest {
                            id,
                            class: 0,
                            prompt_tokens: 100,
                            cached_tokens: 0,
                            output_tokens: 201,
                            arrival: s(a),
                            admitted: s(a + q),
                            first_token: s(a + t),
                            last_token: s(a + e),
                            preemptions: 0,
                        }
                    })
                    .collect()
            };
            let mut r = Recorder::new(RecorderSettings {
                open: true,
                devices: 1,
                kv_blocks: 1,
                slos: vec![crate::workload::Slo::ttft_tpot(Seconds::from_seconds(0.2), Seconds::from_seconds(0.02))],
                ..Default::default()
            });
            let t = Instant::now();
            for q in &reqs {
                if r.needs_mark(q.id) {
                    r.mark(
                        q.id,
                        Totals { time_s: q.arrival.as_seconds(), arrived: q.id, completed: q.id, ..Default::default() },
                    );
                }
                r.completed(q);
            }
            let a = t.elapsed().as_nanos() as f64 / n as f64;
            let t = Instant::now();
            for i in 0..10 * n {
                r.gaps(0.01 + (i % 1000) as f64 * 1e-5, 1e-9, 1 + i % 40, 30);
            }
            let b = t.elapsed().as_nanos() as f64 / (10 * n) as f64;
            let t = Instant::now();
            std::hint::black_box(r.p99_known_within(0.02));
            let c = t.elapsed().as_micros() as f64;
            let t = Instant::now();
            std::hint::black_box(r.finish(Totals {
                time_s: n as f64 * 0.1 + 3.0,
                arrived: n,
                completed: n,
                ..Default::default()
            }));
            let d = t.elapsed().as_micros() as f64;
            best = (best.0.min(a), best.1.min(b), best.2.min(c), best.3.min(d));
        }
        println!(
            "{n}: completed {:.1} ns, gaps {:.1} ns, p99_known {} us, finish {} us",
            best.0, best.1, best.2, best.3
        );
    }
}
