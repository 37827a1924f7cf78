//! Models with a drafter for speculative decoding.

use super::Log;
use llm_roofline::memory::{Drafting, MemoryModel};
use llm_roofline::model::{Architecture, Layer, Mixer, Reach};
use llm_roofline::prelude::*;

/// A drafter of layers with the key-value heads of the model's own, which has the model's embeddings and output head.
pub struct Drafter {
    pub layers: usize,
    pub reach: Reach,
    /// Tokens that are proposed at once.
    pub proposes: u64,
}

impl Drafter {
    /// The memory of the log's deployment with it. Prefix caching, which keeps a second state of a sequence, is on in all of these logs.
    pub fn beside(&self, log: &Log) -> MemoryModel {
        let target = log.deployment();
        let mut engine = target.engine().clone();
        if let Some(states) = &mut engine.memory.states_per_sequence {
            states.value = 2;
        }
        let target = target.with_engine(engine);
        MemoryModel::with_drafter(&target, self.proposes, Some(&self.drafting(&target)))
    }

    fn drafting(&self, target: &Deployment) -> Drafting {
        let architecture = target.model().architecture().expect("a known architecture");
        let layers = std::iter::repeat_n(("drafting".to_string(), self.layer(architecture)), self.layers);
        let Architecture { hidden_size, vocab_size, max_context_tokens, .. } = *architecture;
        let drafting = Architecture::from_layers(hidden_size, vocab_size, max_context_tokens, layers);
        let model = Model::from_architecture("drafter", &target.model().family, drafting);
        let deployment = Deployment::new(model, target.system().clone())
            .with_weights(target.weights().clone())
            .with_kv(*target.kv())
            .with_tensor_parallel(target.tensor_parallel());
        Drafting::new(deployment).with_shared_embedding().with_shared_lm_head()
    }

    fn layer(&self, architecture: &Architecture) -> Layer {
        let attending = |layer: &&Layer| matches!(layer.mixer, Mixer::Attention(_));
        let mut layer = architecture.iter_layers().find(attending).expect("attention").clone();
        if let Mixer::Attention(attention) = &mut layer.mixer {
            attention.reach = self.reach;
        }
        layer
    }
}
