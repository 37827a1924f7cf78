//! The shape of what is proposed in one cycle: a chain, or a tree of candidates.

use super::rate::check_count;
use super::{AcceptanceRate, DRAFT_TOKEN_LIMIT, SpeculationError};
use std::collections::BinaryHeap;

/// What is proposed for one sequence before each step of the target.
///
/// The target verifies `draft_tokens + 1` positions: the proposals, and behind the last accepted one a token of its own.
///
/// | here | vLLM | SGLang |
/// | --- | --- | --- |
/// | `draft_tokens` | `num_speculative_tokens` | `--speculative-num-draft-tokens` less 1: SGLang counts the root |
/// | `depth` | the same for chains | `--speculative-num-steps` |
/// | `top_k` | 1 | `--speculative-eagle-topk` |
///
/// ```
/// use llm_roofline::speculative::{AcceptanceRate, Proposal};
///
/// let rate = AcceptanceRate::new(0.6)?;
/// let (chain, tree) = (Proposal::chain(7)?, Proposal::tree(4, 7, 63)?);
/// assert_eq!(format!("{:.2}", chain.tokens_per_step(|_, _| rate.value())), "2.46");
/// // Up to four candidates at each of seven positions; the most promising 63 of them are verified.
/// let candidate = |_, rank| rate.value() * (1.0 - rate.value()).powi(rank as i32);
/// assert_eq!(format!("{:.2}", tree.tokens_per_step(candidate)), "4.67");
/// # Ok::<(), llm_roofline::speculative::SpeculationError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Proposal {
    depth: u64,
    top_k: u64,
    draft_tokens: u64,
}

impl Proposal {
    /// Nothing is proposed: plain decoding.
    pub const NONE: Self = Self { depth: 0, top_k: 1, draft_tokens: 0 };

    /// One candidate after another.
    ///
    /// # Errors
    /// [`SpeculationError::Count`] for more than 256 tokens.
    pub fn chain(draft_tokens: u64) -> Result<Self, SpeculationError> {
        check_count("draft tokens", draft_tokens, 0)?;
        Ok(Self { depth: draft_tokens, top_k: 1, draft_tokens })
    }

    /// The `draft_tokens` most probable nodes of a tree with `top_k` candidates after each node, down to `depth`.
    ///
    /// # Errors
    /// [`SpeculationError::Count`] for a count of zero or more than 256, and for more tokens than the tree has.
    pub fn tree(top_k: u64, depth: u64, draft_tokens: u64) -> Result<Self, SpeculationError> {
        check_count("candidates per token", top_k, 1)?;
        check_count("depth", depth, 1)?;
        let mut nodes = 0_u64;
        let mut level = 1_u64;
        for _ in 0..depth {
            level = level.saturating_mul(top_k);
            nodes = nodes.saturating_add(level);
        }
        let most = nodes.min(DRAFT_TOKEN_LIMIT);
        if !(1..=most).contains(&draft_tokens) {
            return Err(SpeculationError::Count { what: "draft tokens", value: draft_tokens, least: 1, most });
        }
        Ok(Self { depth, top_k, draft_tokens })
    }

    /// A shape that is known to be possible.
    pub(super) const fn of(top_k: u64, depth: u64, draft_tokens: u64) -> Self {
        Self { depth, top_k, draft_tokens }
    }

    /// Positions that are proposed for: the length of the chain, the depth of the tree.
    pub const fn depth(&self) -> u64 {
        self.depth
    }

    /// Most tokens that can be accepted in one cycle.
    pub const fn most_accepted(&self) -> u64 {
        if self.depth < self.draft_tokens { self.depth } else { self.draft_tokens }
    }

    /// Candidates after each node.
    pub const fn top_k(&self) -> u64 {
        self.top_k
    }

    /// Tokens that are proposed and verified.
    pub const fn draft_tokens(&self) -> u64 {
        self.draft_tokens
    }

    /// Positions that the target computes for each sequence.
    pub const fn verified_tokens(&self) -> u64 {
        self.draft_tokens + 1
    }

    /// Whether there may be more than one candidate for a position.
    pub const fn is_tree(&self) -> bool {
        self.top_k > 1
    }

    /// Tokens per step of the target, its own included, if `candidate(position, rank)` is the probability that the candidate of this rank
    /// (0 is the best) is right at this position (from 0) when all before it are.
    ///
    /// # Formula
    /// `1 + sum over nodes of the product of the probabilities along the path`; the nodes are the most probable ones (EAGLE-2,
    /// arXiv:2406.16858; static trees as in Medusa, arXiv:2401.10774, are built the same way from mean probabilities).
    ///
    /// # Validity
    /// Probabilities of one rank must not depend on which node it is below; the sum over the ranks of one position must not exceed 1.
    pub fn tokens_per_step(&self, candidate: impl Fn(u64, u64) -> f64) -> f64 {
        let mut tokens = 1.0;
        if !self.is_tree() {
            let mut path = 1.0;
            for position in 0..self.most_accepted() {
                path *= candidate(position, 0);
                tokens += path;
            }
            return tokens;
        }
        let mut open = BinaryHeap::from([Node::below(1.0, 0, 0, &candidate)]);
        for _ in 0..self.draft_tokens {
            let Some(node) = open.pop() else { break };
            tokens += node.path;
            if node.rank + 1 < self.top_k {
                open.push(Node::below(node.parent, node.position, node.rank + 1, &candidate));
            }
            if node.position + 1 < self.depth {
                open.push(Node::below(node.path, node.position + 1, 0, &candidate));
            }
        }
        tokens
    }
}

/// A candidate that may be verified.
#[derive(Clone, Copy, Debug)]
struct Node {
    /// Probability that it is accepted.
    path: f64,
    /// The same of the node above.
    parent: f64,
    position: u64,
    rank: u64,
}

impl Node {
    fn below(parent: f64, position: u64, rank: u64, candidate: impl Fn(u64, u64) -> f64) -> Self {
        Self { path: parent * candidate(position, rank), parent, position, rank }
    }
}

impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Node {}

impl PartialOrd for Node {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Node {
    /// The more probable is greater; of equals, the one that is less deep.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.path.total_cmp(&other.path).then(other.position.cmp(&self.position))
    }
}

/// Probability that a candidate of this rank is right, if each of `top_k` candidates is drawn independently and is right with this rate.
///
/// # Formula
/// `a (1 - a)^rank`: `k` of them are right with `1 - (1 - a)^k`, an upper bound of what real drafters reach.
pub(super) fn independent(rate: AcceptanceRate, rank: u64) -> f64 {
    rate.value() * (1.0 - rate.value()).powi(rank.min(DRAFT_TOKEN_LIMIT) as i32)
}
