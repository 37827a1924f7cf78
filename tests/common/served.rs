//! Deployments of the catalog that tests put under load.

use llm_roofline::prelude::*;

/// A model on some devices, with tensor parallelism, in a format of its weights, under an engine.
pub fn compile(model: &str, device: &str, count: u32, weights: &str, engine: &str) -> StepModel {
    let catalog = Catalog::embedded();
    let system = System::new(catalog.device(device).unwrap(), count).unwrap();
    let deployment = Deployment::new(catalog.model(model).unwrap(), system)
        .with_engine(catalog.engine(engine).unwrap())
        .with_weights(weights.parse().unwrap());
    StepModel::compile(&deployment).unwrap()
}
