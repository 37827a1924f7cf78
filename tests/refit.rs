//! Constants of engine profiles are found again: in published measurements, and in measurements made with other constants.
#![cfg(feature = "fit")]

use llm_roofline::calibrate::fit::refit::{FreeParameter, Refit, RefitError, read_free_parameters};
use llm_roofline::calibrate::fit::solver::Problem;
use llm_roofline::calibrate::{Measurement, Predictor, price, read_measurements};
use llm_roofline::prelude::*;

fn published() -> Vec<Measurement> {
    read_measurements(include_str!("data/measurements.csv").as_bytes(), "measurements.csv").unwrap()
}

fn of_engine(engine: &str) -> Vec<Measurement> {
    published().into_iter().filter(|row| row.engine == engine && row.mode != "open_loop").collect()
}

fn free(profile: &str, parameter: &str, prior: f64, log_sd: f64) -> FreeParameter {
    FreeParameter { profile: profile.into(), parameter: parameter.into(), prior, log_sd }
}

fn value(profile: &str, parameter: &str) -> f64 {
    Catalog::embedded().engine(profile).unwrap().parameter(parameter).unwrap()
}

/// The function that a fit minimizes, at its priors: what it must improve on.
fn objective_at_priors(refit: &Refit<'_>, log_values: &[f64]) -> f64 {
    let state = refit.state(log_values);
    (0..refit.residual_count()).map(|row| refit.weight(row) * refit.residual(row, &state).powi(2)).sum()
}

#[test]
fn changed_constants_are_found_again() {
    // What the rows would measure if these constants were other ones.
    let profile = "llama-cpp-metal-2026";
    let changes = [("gemm.memory", 0.8), ("elementwise.launch", 2.0)];
    let mut engine = Engine::clone(&Catalog::embedded().engine(profile).unwrap());
    let expected = changes.map(|(name, factor)| {
        let changed = engine.parameter(name).unwrap() * factor;
        engine.set_parameter(name, changed).unwrap();
        changed
    });
    let predictor = Predictor::new(Catalog::embedded());
    let mut rows: Vec<Measurement> =
        of_engine("llama.cpp").into_iter().filter(|row| row.device == "m2-ultra-76c").collect();
    for row in &mut rows {
        let (deployment, _) = predictor.deployment(row).unwrap();
        let mut engine = engine.clone();
        engine.scheduling = deployment.engine().scheduling.clone();
        engine.sources = deployment.engine().sources.clone();
        assert_eq!(deployment.engine().slug, profile);
        row.value = price(row, &StepModel::compile(&deployment.with_engine(engine)).unwrap()).unwrap();
    }
    // Priors that are far off and say next to nothing.
    let priors = changes.map(|(name, factor)| free(profile, name, value(profile, name) * factor.sqrt() * 0.7, 3.0));
    let refit = Refit::new(Catalog::embedded(), &rows, priors.to_vec()).unwrap();
    assert_eq!(refit.rows().count(), rows.len());
    let solution = refit.solve().unwrap();
    assert!(solution.converged);
    for ((theta, expected), (name, _)) in solution.theta.iter().zip(expected).zip(changes) {
        let found = theta.exp();
        assert!((found / expected - 1.0).abs() < 0.01, "{name}: {found} instead of {expected}");
    }
    assert!(solution.residuals.iter().all(|residual| residual.abs() < 0.05));
}

#[test]
fn published_measurements_improve_wrong_priors() {
    let rows = of_engine("llama.cpp");
    let names = ["gemm.memory", "decode_attention.memory", "elementwise.launch"];
    let profile = "llama-cpp-metal-2026";
    // A launch three times as long as believed, and little certainty.
    let wrong = [0.5, 0.5, 3.0 * value(profile, "elementwise.launch")];
    let priors = names.iter().zip(wrong).map(|(name, prior)| free(profile, name, prior, 1.0)).collect();
    let refit = Refit::new(Catalog::embedded(), &rows, priors).unwrap();
    let before = objective_at_priors(&refit, &wrong.map(f64::ln));
    let solution = refit.solve().unwrap();
    let after = objective_at_priors(&refit, &solution.theta);
    assert!(after < 0.5 * before, "{after} instead of {before}");
    // The same every time.
    assert_eq!(refit.solve().unwrap().theta, solution.theta);
    let [memory, attention, launch] = [0, 1, 2].map(|index| solution.theta[index].exp());
    assert!((0.6..=1.0).contains(&memory), "a share of the bandwidth: {memory}");
    assert!((0.05..=1.0).contains(&attention), "a share of the bandwidth: {attention}");
    assert!((1e-7..1e-4).contains(&launch), "a small kernel: {launch} s");
    assert!(solution.sd.iter().all(|sd| *sd > 0.0 && *sd <= 1.0), "{:?}", solution.sd);
}

#[test]
fn the_table_of_free_constants_fits_the_profiles() {
    let free = read_free_parameters(include_str!("../engine-profiles/priors.csv")).unwrap();
    let rows = published();
    let refit = Refit::new(Catalog::embedded(), &rows, free.clone()).unwrap();
    assert_eq!(refit.free(), free);
    assert!(refit.rows().count() > 100);
}

#[test]
fn what_a_profile_does_not_hold_cannot_be_fitted() {
    let rows = published();
    let unknown = vec![free("vllm-2024", "gemm.memory", 0.8, 0.1)]; // inherited from `serving`
    let error = Refit::new(Catalog::embedded(), &rows, unknown).unwrap_err();
    assert!(matches!(&error, RefitError::Unknown { .. }), "{error}");
    assert!(error.to_string().contains("`gemm.memory`"), "{error}");
    let error = read_free_parameters("profile,parameter,prior,log_sd\nserving,gemm.memory,0,0.1\n").unwrap_err();
    assert!(matches!(error, RefitError::Prior { .. }), "{error}");
}

/// A quotient of two rates says what a cycle costs, and nothing of what a step costs: only constants of speculation move.
#[test]
fn speedups_move_only_what_is_said_of_speculation() {
    let file = include_str!("data/speculation.csv");
    let rows = read_measurements(file.as_bytes(), "speculation.csv").unwrap();
    let rows: Vec<Measurement> =
        rows.into_iter().filter(|row| row.source == "sgl-project/SpecForge SpecBundle").collect();
    let names = [("speculation.cycle", 2.0), ("host.per_step", 1.0)];
    let priors = names.map(|(name, off)| free("sglang-2026", name, value("sglang-2026", name) * off, 0.5));
    let refit = Refit::new(Catalog::embedded(), &rows, priors.to_vec()).unwrap();
    assert_eq!(refit.rows().count(), rows.len());
    let solution = refit.solve().unwrap();
    assert!(solution.theta[0] < priors[0].prior.ln() - 0.1 && solution.sd[0] < 0.45, "{:?}", solution.sd);
    assert!((solution.theta[1] - priors[1].prior.ln()).abs() < 1e-6 && (solution.sd[1] - 0.5).abs() < 1e-6);
}
