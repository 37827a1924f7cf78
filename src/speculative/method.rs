//! The ways of speculating, as engines and papers call them.

use super::{Proposal, SpeculationError};
use crate::profile::nearest;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Who proposes the tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Method {
    /// A smaller model of the same vocabulary (vLLM `draft_model`, llama.cpp `--model-draft`; SpS of Spec-Bench).
    DraftModel,
    /// A layer that continues the target's last hidden states (EAGLE, arXiv:2401.15077).
    Eagle,
    /// The same with a tree that grows where it is confident (EAGLE-2, arXiv:2406.16858).
    Eagle2,
    /// A layer over hidden states of three depths, with a vocabulary of its own (EAGLE-3, arXiv:2503.01840).
    Eagle3,
    /// Heads that each guess one position, all at once (Medusa, arXiv:2401.10774).
    Medusa,
    /// The same heads one after another, each knowing what the ones before guessed (Hydra, arXiv:2402.05109).
    Hydra,
    /// A few layers that guess a whole block of positions in one pass, from hidden states of the target (DFlash, arXiv:2602.06036).
    #[serde(rename = "dflash")]
    DFlash,
    /// The multi-token-prediction module that the target was trained with (DeepSeek-V3, arXiv:2412.19437).
    Mtp,
    /// What followed the same words earlier in the context (prompt lookup, vLLM `ngram`).
    NGram,
    /// Jacobi iterations inside the target (Lookahead decoding, arXiv:2402.02057).
    Lookahead,
    /// What followed the same words in a collection of texts, or in tables of earlier outputs (REST, arXiv:2311.08252; Token Recycling,
    /// arXiv:2408.08696).
    Retrieval,
}

impl Method {
    /// Every method.
    pub const ALL: [Self; 11] = [
        Self::DraftModel,
        Self::Eagle,
        Self::Eagle2,
        Self::Eagle3,
        Self::Medusa,
        Self::Hydra,
        Self::DFlash,
        Self::Mtp,
        Self::NGram,
        Self::Lookahead,
        Self::Retrieval,
    ];

    /// The name for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::DraftModel => "draft model",
            Self::Eagle => "EAGLE",
            Self::Eagle2 => "EAGLE-2",
            Self::Eagle3 => "EAGLE-3",
            Self::Medusa => "Medusa",
            Self::Hydra => "Hydra",
            Self::DFlash => "DFlash",
            Self::Mtp => "MTP",
            Self::NGram => "n-gram",
            Self::Lookahead => "lookahead",
            Self::Retrieval => "retrieval",
        }
    }

    /// Whether candidates come out of passes of a model, one after another.
    pub const fn is_sequential(self) -> bool {
        matches!(self, Self::DraftModel | Self::Eagle | Self::Eagle2 | Self::Eagle3 | Self::Hydra | Self::Mtp)
    }

    /// The shape that published implementations propose unless told otherwise.
    ///
    /// Draft models: 3 tokens (transformers lengthens and shortens chains until about a third is accepted whole); EAGLE: 25 nodes down to 5 (`mc_sim_7b_63`); EAGLE-2:
    /// 59 of 10 candidates down to 6; EAGLE-3: chains of 3 (vLLM, SGLang); Medusa and Hydra: 63 nodes down to 4; DFlash: 15, a block of 16; MTP: 1; n-gram: 10
    /// (`num_pred_tokens`); lookahead: 7 windows and 7 guesses of n-grams of 5; retrieval: 63 nodes down to 6 (REST).
    pub const fn usual_proposal(self) -> Proposal {
        let (top_k, depth, draft_tokens) = match self {
            Self::DraftModel => (1, 3, 3),
            Self::Eagle => (4, 5, 25),
            Self::Eagle2 => (10, 6, 59),
            Self::Eagle3 => (1, 3, 3),
            Self::Medusa | Self::Hydra => (10, 4, 63),
            Self::DFlash => (1, 15, 15),
            Self::Mtp => (1, 1, 1),
            Self::NGram => (1, 10, 10),
            Self::Lookahead => (7, 4, 55),
            Self::Retrieval => (8, 6, 63),
        };
        Proposal::of(top_k, depth, draft_tokens)
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Other spellings, in lower case without anything but letters and digits.
const SPELLINGS: [(&str, Method); 27] = [
    ("draftmodel", Method::DraftModel),
    ("draft", Method::DraftModel),
    ("sps", Method::DraftModel),
    ("assisted", Method::DraftModel),
    ("standalone", Method::DraftModel),
    ("eagle", Method::Eagle),
    ("eagle1", Method::Eagle),
    ("eagle2", Method::Eagle2),
    ("samdeagle2", Method::Eagle2),
    ("eagle3", Method::Eagle3),
    ("medusa", Method::Medusa),
    ("hydra", Method::Hydra),
    ("dflash", Method::DFlash),
    ("mtp", Method::Mtp),
    ("nextn", Method::Mtp),
    ("ngram", Method::NGram),
    ("promptlookup", Method::NGram),
    ("pld", Method::NGram),
    ("lookahead", Method::Lookahead),
    ("retrieval", Method::Retrieval),
    ("rest", Method::Retrieval),
    ("recycling", Method::Retrieval),
    ("tokenrecycling", Method::Retrieval),
    ("suffix", Method::Retrieval),
    ("samd", Method::Retrieval),
    ("samdrecycling", Method::Retrieval),
    ("samdtokenrecycling", Method::Retrieval),
];

impl FromStr for Method {
    type Err = SpeculationError;

    /// Reads the names of engines, papers and benchmarks: `eagle3`, `EAGLE-3`, `mtp`, `NEXTN`, `ngram`, `PLD`, `SpS`.
    fn from_str(text: &str) -> Result<Self, SpeculationError> {
        let plain: String = text.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
        let known = SPELLINGS.iter().find(|(name, _)| *name == plain);
        known.map(|(_, method)| *method).ok_or_else(|| SpeculationError::UnknownMethod {
            method: text.chars().take(100).collect(),
            nearest: nearest(&plain, SPELLINGS.iter().map(|(name, _)| *name)),
        })
    }
}
