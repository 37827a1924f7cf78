//! Kernel laws: their limits, and fits that find the constants a table was made with.
#![cfg(feature = "fit")]

use llm_roofline::calibrate::fit::kernels::{
    DecodeAttention, Fitted, Gemm, KernelError, Law, Measured, fit_folder, fit_groups, smooth_max,
};
use proptest::prelude::*;
use std::path::PathBuf;

proptest! {
    /// Between the maximum and the sum, growing with each argument, and the root of its definition.
    #[test]
    fn smooth_max_lies_between_maximum_and_sum(a in 0.0..1e4_f64, b in 0.0..1e4_f64, s in 0.0..=1.0_f64) {
        let t = smooth_max(a, b, s);
        prop_assert!(t >= a.max(b) * (1.0 - 1e-12) && t <= (a + b) * (1.0 + 1e-12));
        prop_assert!(((t - a) * (t - b) - s * a * b).abs() <= 1e-9 * (1.0 + t * t));
        prop_assert!(smooth_max(a * 1.01, b, s).min(smooth_max(a, b * 1.01, s)) >= t * (1.0 - 1e-12));
        prop_assert_eq!(smooth_max(b, a, s), t);
    }
}

fn measured<const N: usize, L: Law<N>>(device: &str, framework: &str, law: L, truth: &[f64; N]) -> Measured<L> {
    let [device, framework, format] = [device, framework, "bfloat16"].map(String::from);
    let measured_us = law.time_us(truth);
    Measured { device, framework, format, law, measured_us }
}

fn find<'a>(fits: &'a [Fitted], scope: &str, framework: &str) -> &'a Fitted {
    fits.iter().find(|fit| fit.scope == scope && fit.framework == framework).unwrap()
}

fn value(fit: &Fitted, name: &str) -> f64 {
    fit.constants.iter().find(|constant| constant.name == name).unwrap().value
}

/// Shapes of a 7 billion parameter model on a device with 300 TFLOP/s and 2 TB/s.
#[test]
fn gemm_constants_are_found_again() {
    let truth = [5.0, 0.3, 1.5, 0.7, 0.85, 0.1];
    let shapes = [(4096.0, 4096.0), (11008.0, 4096.0), (4096.0, 11008.0), (32000.0, 4096.0)];
    let sizes = (0..15).map(|power| 2.0_f64.powi(power));
    let rows: Vec<_> = sizes
        .flat_map(|m| shapes.map(|(n, k)| (m, n, k)))
        .map(|(m, n, k)| {
            let (compute_us, memory_us) = (2.0 * m * n * k / 3e8, 2.0 * (n * k + m * n + m * k) / 2e6);
            let law = Gemm { k, compute_us, memory_us, quantize_us: 3.0 * m * k / 2e6 };
            measured("a100_sxm", "vllm", law, &truth)
        })
        .collect();
    let fits = fit_groups("gemm", &rows).unwrap();
    assert_eq!(fits.len(), 6, "device, generation and all, each with one framework and with all");
    let fit = find(&fits, "ampere", "all");
    for (constant, truth) in fit.constants.iter().zip(truth) {
        let error = (constant.value / truth).ln().abs();
        assert!(error < 0.02 + constant.log_sd, "{constant:?} for {truth}");
    }
    assert!(fit.median_error < 0.005 && fit.rows == 60);
    assert_eq!(fit.csv().lines().count(), 6);
    assert!(fit.csv().starts_with("gemm,ampere,bfloat16,all,t0_us,"));
}

/// Two devices that differ: each fit finds its own, the generation lies between, and small groups are not fitted alone.
#[test]
fn groups_are_fitted_apart_and_together() {
    let rows = |device, framework, em, count| {
        let law = |step| DecodeAttention { memory_us: 20.0 * 1.2_f64.powi(step), items: 1.0 };
        (0..count).map(move |step| measured(device, framework, law(step), &[10.0, em])).collect::<Vec<_>>()
    };
    let mut table = rows("h100_sxm", "vllm", 0.9, 30);
    table.extend(rows("h200_sxm", "vllm", 0.7, 30));
    table.extend(rows("h200_sxm", "sglang", 0.7, 5));
    let fits = fit_groups("decode_attention", &table).unwrap();
    let em = |scope, framework| value(find(&fits, scope, framework), "em");
    assert!((em("h100_sxm", "vllm") - 0.9).abs() < 0.005);
    assert!((em("h200_sxm", "vllm") - 0.7).abs() < 0.005);
    assert!((0.7..0.9).contains(&em("hopper", "all")));
    assert!(!fits.iter().any(|fit| fit.framework == "sglang"), "five rows are too few");
}

#[test]
fn tables_that_cannot_be_read_are_named() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("kernel-tables");
    std::fs::create_dir_all(&folder).unwrap();
    let _ = std::fs::remove_file(folder.join("specs.csv"));
    let missing = fit_folder(&folder).unwrap_err();
    assert!(matches!(&missing, KernelError::Read { path, .. } if path.ends_with("specs.csv")), "{missing}");

    let header = "gpu,bf16_tflops_dense,fp8_tflops_dense,fp4_tflops_dense,mem_gbs,sms,l2_mb,link_gbs_per_direction\n";
    std::fs::write(folder.join("specs.csv"), format!("{header}a100_sxm,312,,,fast,108,40,300\n")).unwrap();
    let wrong = fit_folder(&folder).unwrap_err().to_string();
    assert_eq!(wrong, "specs.csv, row 1, column mem_gbs: found fast");
}
