//! Models with a drafter for speculative decoding, which the library does not know: its layers as further layers of the model.

use super::Log;
use llm_roofline::model::{Architecture, LayerKind, Mixer, ModelBody, Reach, Recurrent};
use llm_roofline::prelude::*;

/// A drafter of layers with the key-value heads of the model's own.
pub struct Drafter {
    pub layers: usize,
    pub reach: Reach,
    /// Tokens that are proposed at once.
    pub proposes: u64,
}

impl Drafter {
    /// The deployment of the log with it. A state is kept for each proposed token beside the two of prefix caching, which is on in all of
    /// these logs, and its convolution remembers as many inputs more.
    pub fn beside(&self, log: &Log) -> Deployment {
        let deployment = log.deployment();
        let mut model = deployment.model().clone();
        let ModelBody::Architecture(architecture) = &mut model.body else { panic!("{}: totals only", log.id()) };
        self.add_layers(architecture);
        let mut engine = deployment.engine().clone();
        let states = engine.memory.states_per_sequence.as_mut().expect("a rule for states");
        states.value = 2 + self.proposes;
        let bare = Deployment::new(model, deployment.system().clone())
            .with_engine(engine)
            .with_weights(deployment.weights().clone());
        bare.with_kv(*deployment.kv()).with_tensor_parallel(deployment.tensor_parallel())
    }

    fn add_layers(&self, architecture: &mut Architecture) {
        for kind in &mut architecture.layer_kinds {
            if let Mixer::Recurrent(Recurrent::GatedDeltaNet { conv_kernel, .. }) = &mut kind.layer.mixer {
                *conv_kernel += self.proposes;
            }
        }
        let full = architecture.layer_kinds.iter().find(|kind| matches!(kind.layer.mixer, Mixer::Attention(_)));
        let mut drafting: LayerKind = full.expect("attention").clone();
        drafting.name = "drafting".into();
        if let Mixer::Attention(attention) = &mut drafting.layer.mixer {
            attention.reach = self.reach;
        }
        architecture.layer_kinds.push(drafting);
        let last = architecture.layer_kinds.len() - 1;
        architecture.layer_order.extend(std::iter::repeat_n(last, self.layers));
    }
}
