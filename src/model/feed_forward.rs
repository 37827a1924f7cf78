//! Feed-forward layers: dense, and mixtures of experts.

use super::attention::is_false;
use super::{Linear, Split};
use crate::format::TensorClass as Class;
use serde::{Deserialize, Serialize};

/// The channel mixer of a layer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum FeedForward {
    /// The layer has none.
    #[default]
    None,
    /// Up and down projections, with a gate in gated variants (SwiGLU, GeGLU).
    Dense {
        /// Intermediate width.
        intermediate: u64,
        /// Whether there is a gate projection beside the up projection.
        gated: bool,
    },
    /// A single square matrix in place of the feed-forward (found by architecture search).
    Linear,
    /// Routed experts, of which each token uses a few, and shared ones that every token uses.
    Moe(Moe),
}

/// A mixture of experts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Moe {
    /// Routed experts.
    pub experts: u64,
    /// Experts that each token is sent to.
    pub experts_per_token: u64,
    /// Intermediate width of one routed expert.
    pub intermediate: u64,
    /// Whether experts have a gate projection.
    pub gated: bool,
    /// Total intermediate width of what every token passes: shared experts, or a dense branch beside the experts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_intermediate: Option<u64>,
    /// Width in which routed experts work, where it differs from the hidden size (latent experts).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latent_size: Option<u64>,
    /// Bias and scale parameters of one routed expert.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub vector_params_per_expert: u64,
    /// Whether the shared expert's output is scaled by a learned scalar gate.
    #[serde(default, skip_serializing_if = "is_false")]
    pub shared_gate: bool,
}

impl FeedForward {
    /// The matrices that every token is multiplied with (routed experts are in [`Moe::expert_linears`]).
    pub fn linears(&self, hidden_size: u64, out: &mut Vec<Linear>) {
        match self {
            Self::None => {}
            Self::Dense { intermediate, gated } => {
                mlp([Class::FfnGate, Class::FfnUp, Class::FfnDown], hidden_size, *intermediate, *gated, out);
            }
            Self::Linear => out.push(Linear::new(Class::OtherMatrix, hidden_size, hidden_size, Split::Input)),
            Self::Moe(moe) => moe.common_linears(hidden_size, out),
        }
    }

    /// The mixture of experts, if it is one.
    pub const fn moe(&self) -> Option<&Moe> {
        match self {
            Self::Moe(moe) => Some(moe),
            _ => None,
        }
    }
}

impl Moe {
    /// The matrices of one routed expert.
    pub fn expert_linears(&self, hidden_size: u64, out: &mut Vec<Linear>) {
        let width = self.latent_size.unwrap_or(hidden_size);
        mlp([Class::ExpertGate, Class::ExpertUp, Class::ExpertDown], width, self.intermediate, self.gated, out);
    }

    fn common_linears(&self, hidden_size: u64, out: &mut Vec<Linear>) {
        out.push(Linear::new(Class::Router, hidden_size, self.experts, Split::Replicated));
        if let Some(latent) = self.latent_size {
            out.push(Linear::new(Class::OtherMatrix, hidden_size, latent, Split::Replicated));
            out.push(Linear::new(Class::OtherMatrix, latent, hidden_size, Split::Replicated));
        }
        if let Some(shared) = self.shared_intermediate {
            let classes = [Class::SharedExpertGate, Class::SharedExpertUp, Class::SharedExpertDown];
            mlp(classes, hidden_size, shared, self.gated, out);
            if self.shared_gate {
                out.push(Linear::new(Class::Router, hidden_size, 1, Split::Replicated));
            }
        }
    }

    /// Expected number of distinct experts that `tokens` tokens are sent to: `E * (1 - (1 - k/E)^tokens)`.
    ///
    /// Exact for uniform, independent routing; real routing is skewed, so it is an upper bound on the weights read.
    ///
    /// ```
    /// # use llm_roofline::model::Moe;
    /// # let moe: Moe = toml::from_str("experts = 8\nexperts_per_token = 2\nintermediate = 1\ngated = true").unwrap();
    /// assert_eq!(format!("{:.4}", moe.expected_distinct_experts(1.0)), "2.0000");
    /// assert_eq!(format!("{:.4}", moe.expected_distinct_experts(4.0)), "5.4688");
    /// ```
    pub fn expected_distinct_experts(&self, tokens: f64) -> f64 {
        if tokens > 0.0 { -(self.experts as f64) * (tokens * self.log_missed()).exp_m1() } else { 0.0 }
    }

    /// Logarithm of the probability that one token is not sent to a given expert: `ln(1 - k/E)`.
    pub(crate) fn log_missed(&self) -> f64 {
        (-(self.experts_per_token as f64) / self.experts as f64).ln_1p()
    }
}

fn mlp(classes: [Class; 3], width: u64, intermediate: u64, gated: bool, out: &mut Vec<Linear>) {
    let [gate, up, down] = classes;
    if gated {
        out.push(Linear::new(gate, width, intermediate, Split::Output));
    }
    out.push(Linear::new(up, width, intermediate, Split::Output));
    out.push(Linear::new(down, intermediate, width, Split::Input));
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}
