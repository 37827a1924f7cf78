//! What the benchmarks have in common: deployments by their names.

use llm_roofline::prelude::*;

/// A deployment of things that the catalog knows.
pub fn deployment(model: &str, device: &str, count: u32, weights: &str, engine: &str) -> Deployment {
    let catalog = Catalog::embedded();
    let system = System::new(catalog.device(device).expect("known device"), count).expect("a system");
    let model = catalog.model(model).expect("known model");
    let engine = catalog.engine(engine).expect("known engine");
    Deployment::new(model, system).with_weights(weights.parse().expect("known format")).with_engine(engine)
}
