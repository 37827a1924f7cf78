//! What vLLM printed about its memory when it started, against the public API: pools to the block, weights and activations by part, pools
//! from the configuration alone.
//!
//! The logs and their sources are in `data/memory_vllm.csv`. Only text towers are modelled: the weights of vision towers are added here where a
//! profile knows their number, and the memory of their outputs is a stated part of the tolerance.

mod logs;

use llm_roofline::prelude::*;
use logs::Log;

/// Blocks, tokens and concurrency follow from the printed GiB, whose two decimals admit a few blocks, and agree with each other exactly.
#[test]
fn pools_follow_from_the_printed_memory() {
    let logs = logs::all();
    let checked: Vec<&Log> = logs.iter().filter(|log| log.number("pool_tol_pct").is_some()).collect();
    let wrong = checked.iter().filter(|log| log.pool_as_printed().is_none());
    let wrong: Vec<String> = wrong.map(|log| format!("{}: {:?}", log.id(), log.pool_from_gib())).collect();
    assert!(wrong.is_empty(), "no number of blocks agrees with {wrong:#?}");
    assert!(checked.len() >= 30, "{} logs", checked.len());
}

/// Weights as loaded, vision towers with what their profiles know.
#[test]
fn weights_as_loaded() {
    check_parts("weights", "weights_gib", "weights_tol_pct", 35, |log| {
        let plan = log.deployment().memory_plan(1, log.longest_context());
        (plan.weights + log.vision_tower()).as_gib()
    });
}

/// The peak of the profile run above the weights.
#[test]
fn activations_of_the_profile_run() {
    check_parts("activations", "activation_gib", "activation_tol_pct", 35, |log| {
        log.deployment().memory_plan(1, log.longest_context()).activations.as_gib()
    });
}

fn check_parts(what: &str, printed: &str, tolerance: &str, least: usize, found: impl Fn(&Log) -> f64) {
    let logs = logs::all();
    let rows = logs.iter().filter_map(|log| Some((log, log.number(printed)?, log.number(tolerance)?)));
    let mut outside = Vec::new();
    let mut checked = 0;
    for (log, expected, tolerance) in rows {
        let found = found(log);
        let error = 100.0 * (found / expected - 1.0);
        println!("{:5} {:44} {what} printed {expected:8.4} found {found:8.4} GiB {error:+6.2} %", log.id(), log.title());
        if (found - expected).abs() > expected * tolerance / 100.0 + 0.005 {
            outside.push(format!("{}: {what} {found:.4} GiB, printed {expected}, tolerance {tolerance} %", log.id()));
        }
        checked += 1;
    }
    assert!(outside.is_empty(), "{outside:#?}");
    assert!(checked >= least, "{checked} logs");
}

/// `utilization x visible = weights + outside of torch + activations + cache`, as printed and as planned.
#[test]
fn budgets_add_up() {
    let mut checked = 0;
    for log in logs::all().iter().filter(|log| log.number("identity_tol_gib").is_some()) {
        let term = |name: &str| log.number(name).unwrap();
        let sum = term("weights_gib") + term("non_torch_gib") + term("activation_gib") + term("kv_gib");
        let budget = term("utilization") * term("visible_gib");
        let capacity = log.deployment().memory_plan(1, log.longest_context()).capacity.as_gib();
        assert!((capacity - budget).abs() < 0.01, "{}: capacity {capacity}, budget {budget}", log.id());
        assert!((sum - capacity).abs() <= term("identity_tol_gib"), "{}: terms {sum}, capacity {capacity}", log.id());
        checked += 1;
    }
    assert!(checked >= 20, "{checked} logs");
}

/// The pool from nothing but the configuration. Run with `--nocapture` for the table.
#[test]
fn pools_from_the_configuration() {
    let mut errors = Vec::new();
    let mut outside = Vec::new();
    for log in logs::all().iter().filter(|log| log.number("end_tol_pct").is_some()) {
        let pool = log.deployment().kv_pool(log.longest_context());
        let (what, printed, found) = log.printed_size(&pool);
        let error = 100.0 * (found / printed - 1.0);
        println!("{:5} {:44} {what:6} printed {printed:12.2} found {found:12.2} {error:+7.2} %", log.id(), log.title());
        let tolerance = log.number("end_tol_pct").unwrap();
        if error.abs() > tolerance {
            outside.push(format!("{}: {what} {found}, printed {printed}, tolerance {tolerance} %", log.id()));
        }
        errors.push(error.abs());
    }
    errors.sort_by(f64::total_cmp);
    let median = errors[errors.len() / 2];
    println!("{} pools, median error {median:.2} %, largest {:.2} %", errors.len(), errors[errors.len() - 1]);
    assert!(outside.is_empty(), "{outside:#?}");
    assert!(errors.len() >= 25 && median < 2.0, "{} pools, median error {median} %", errors.len());
}
