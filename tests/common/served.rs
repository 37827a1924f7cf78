//! Deployments of the catalog that tests put under load.
#![allow(dead_code, reason = "each test binary uses a part")]

use llm_roofline::prelude::*;

/// A model on some devices, with tensor parallelism, in a format of its weights, under an engine.
pub fn deployment(model: &str, device: &str, count: u32, weights: &str, engine: &str) -> Deployment {
    let catalog = Catalog::embedded();
    let system = System::new(catalog.device(device).unwrap(), count).unwrap();
    Deployment::new(catalog.model(model).unwrap(), system)
        .with_engine(catalog.engine(engine).unwrap())
        .with_weights(weights.parse().unwrap())
}

/// The same, compiled.
pub fn compile(model: &str, device: &str, count: u32, weights: &str, engine: &str) -> StepModel {
    StepModel::compile(&deployment(model, device, count, weights, engine)).unwrap()
}
