//! Published figures of acceptance: what others measured, by method and task.
//!
//! How far a draft is accepted depends on the two models and on the text, and no data sheet says it. These figures are the
//! starting point where nothing was measured: [`published_acceptance`] lists them, [`typical`] sums up those of a method and
//! a task.

use super::{Acceptance, AcceptanceRate, Method};
use crate::profile::{self, ProfileError, Provenance, Sources};
use serde::{Deserialize, Serialize};
use std::sync::LazyLock;

/// What is generated; text that repeats its prompt or a template is easier to draft.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Task {
    /// Conversation and instructions.
    Chat,
    /// Programs.
    Code,
    /// Reasoning in steps.
    Math,
    /// Summaries.
    Summarization,
    /// Translation.
    Translation,
    /// Answers from knowledge.
    QuestionAnswering,
    /// Answers from retrieved passages.
    RetrievalAugmented,
    /// Several of these, or not said.
    Mixed,
}

/// A published figure, as its source defines it. Four definitions are in use, and they differ by more than a factor of two
/// for the same run.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Figure {
    /// Probability that a draft token is accepted, given that all before it were: alpha of Leviathan et al., from 0 to 1.
    AcceptanceRate(f64),
    /// Tokens per pass of the target, with the one that the target itself adds: tau of the EAGLE papers, "mean acceptance
    /// length" of vLLM, "accept length" of SGLang. From 1 to the depth of the draft plus 1.
    LengthWithBonus(f64),
    /// Draft tokens accepted per pass of the target, without the one that it adds. From 0 to the depth of the draft.
    LengthWithoutBonus(f64),
    /// Accepted over proposed draft tokens, from 0 to 1: "draft acceptance rate" of vLLM (V1) and llama.cpp.
    ///
    /// **Not the acceptance rate.** Whatever follows the first rejection is thrown away unseen, yet counts as proposed. So for
    /// the same pair of models the quotient falls when drafts get longer: with a rate of 0.8 it is 0.8 for one token, 0.59 for
    /// four and 0.42 for eight. Where every step proposes `g` tokens, `1 + g * quotient` is the length with bonus. Where
    /// drafts stop early, as in llama.cpp below a confidence, it says nothing about longer drafts.
    AcceptedOverProposed(f64),
}

/// One published figure of acceptance, and what it was measured on.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "RawPublished")]
#[non_exhaustive]
pub struct Published {
    /// How tokens were drafted.
    pub method: Method,
    /// What was generated.
    pub task: Task,
    /// Data set, or prompt; empty where it is not said.
    pub dataset: String,
    /// Model that verifies.
    pub target: String,
    /// Model or head that drafts; empty where drafts need no weights, or only the target's.
    pub draft: String,
    /// Depth of the draft in tokens: length of a chain, levels of a tree. None where it varies from step to step or is not said.
    pub draft_tokens: Option<u32>,
    /// Tokens in the verifying pass of the target: every node of the draft, and the token before them.
    pub verified_tokens: Option<u32>,
    /// Temperature of sampling, 0 being greedy; none where the source does not say.
    pub temperature: Option<f64>,
    /// The figure.
    pub figure: Figure,
    /// [`Provenance::Measured`] where the number was read in its source; [`Provenance::Assumed`] where it was read second hand,
    /// or its definition is open.
    pub kind: Provenance,
    /// The publication: authors and number of the paper and its table, or the thread, or the file.
    pub source: String,
    /// Counts behind a quotient, and remarks.
    pub note: Option<String>,
}

impl Published {
    /// Whether the draft was a tree: more nodes verified than a chain of that depth has. False where either is not known.
    pub fn is_tree(&self) -> bool {
        matches!((self.draft_tokens, self.verified_tokens), (Some(depth), Some(verified)) if verified > depth + 1)
    }

    /// The acceptance rate that, equal and independent at every depth, gives the figure; none without a depth to refer it to.
    ///
    /// # Formula
    /// With the rate `a` and the depth `g`, a pass of the target yields
    ///
    /// ```text
    /// L = 1 + a + a^2 + ... + a^g = (1 - a^(g+1)) / (1 - a)
    /// ```
    ///
    /// tokens (Leviathan et al., equation 1), solved for `a`. `L` is the length with bonus, or 1 + the length without, or
    /// `1 + g * accepted / proposed`.
    ///
    /// # Validity
    /// For a tree it is the chance that *some* node of a level continues the accepted path, so it exceeds the rate of a single
    /// token, and belongs to that tree. Measured rates of later positions are often lower than that of the first, so a rate
    /// from a deep draft underestimates a shallow one.
    ///
    /// # References
    /// Leviathan, Kalman, Matias, *Fast Inference from Transformers via Speculative Decoding*, arXiv:2211.17192, section 3.1.
    pub fn rate(&self) -> Option<AcceptanceRate> {
        self.rate_at(self.draft_tokens.map(u64::from))
    }

    /// The same for drafts of a depth that is known from elsewhere.
    fn rate_at(&self, depth: Option<u64>) -> Option<AcceptanceRate> {
        match self.figure {
            Figure::AcceptanceRate(rate) => AcceptanceRate::new(rate),
            Figure::LengthWithBonus(length) => AcceptanceRate::from_tokens_per_step(length, depth?),
            Figure::LengthWithoutBonus(accepted) => AcceptanceRate::from_accepted_per_step(accepted, depth?),
            Figure::AcceptedOverProposed(quotient) => AcceptanceRate::from_accepted_share(quotient, depth?),
        }
        .ok()
    }
}

/// Every published figure that the library knows, in the order of its data file `published.toml`.
///
/// ```
/// use llm_roofline::speculative::{Figure, Method, Task, published_acceptance};
///
/// // EAGLE-3 writes code for Vicuna 13B at 7.54 tokens per pass (table 1 of its paper).
/// let best = published_acceptance().iter().filter(|p| p.method == Method::Eagle3 && p.task == Task::Code);
/// assert!(best.clone().any(|p| p.target == "Vicuna 13B" && p.figure == Figure::LengthWithBonus(7.54)));
/// ```
pub fn published_acceptance() -> &'static [Published] {
    TABLE.as_ref().map_or(&[], |table| table)
}

/// What acceptance to expect of a method on a task, before anything was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Typical {
    /// Median of the rates, each as of [`Published::rate`].
    pub rate: AcceptanceRate,
    /// Lowest of them.
    pub lowest: AcceptanceRate,
    /// Highest of them.
    pub highest: AcceptanceRate,
    /// How many measured figures that is; of a single one, the three above are equal.
    pub figures: usize,
}

impl Typical {
    fn of(rates: impl Iterator<Item = AcceptanceRate>) -> Option<Self> {
        let mut rates: Vec<f64> = rates.map(AcceptanceRate::value).collect();
        rates.sort_by(f64::total_cmp);
        let at = |place: usize| rates.get(place).copied();
        let middle = (at((rates.len().checked_sub(1)?) / 2)? + at(rates.len() / 2)?) / 2.0;
        let rate = |value: f64| AcceptanceRate::new(value).ok();
        let (lowest, highest) = (rate(at(0)?)?, rate(at(rates.len() - 1)?)?);
        Some(Self { rate: rate(middle)?, lowest, highest, figures: rates.len() })
    }
}

/// Median and range of the acceptance rate over the measured figures of a method and a task; none where there is no figure
/// that can be converted to a rate.
///
/// Figures of several papers, models and temperatures are mixed, each with the same weight, so that papers with large tables
/// count more: the range says more than the median. Of methods with both kinds of drafts only those of their
/// [usual](Method::usual_proposal) kind count: EAGLE-3 with trees of 48 to 60 nodes passes a level with 0.79 to 0.96, as a chain with 0.57 to
/// 0.89.
///
/// ```
/// use llm_roofline::speculative::{Method, Task, typical};
///
/// // Prompt lookup: good where the output repeats the prompt, poor where it does not.
/// let summary = typical(Method::NGram, Task::Summarization).unwrap();
/// let question = typical(Method::NGram, Task::QuestionAnswering).unwrap();
/// assert!(summary.highest.value() > 0.6 && question.highest.value() < 0.4);
/// assert_eq!(typical(Method::Medusa, Task::Translation), None); // nobody published it
/// ```
pub fn typical(method: Method, task: Task) -> Option<Typical> {
    Typical::of(usual_drafts(method).filter(|published| published.task == task).filter_map(Published::rate))
}

/// The acceptance that is usual for a method over all tasks, with its usual proposals: the median of the measured figures, those without
/// a depth taken at the usual one.
pub(super) fn typical_acceptance(method: Method) -> Acceptance {
    let proposal = method.usual_proposal();
    let rates = usual_drafts(method);
    let usual_depth = Some(proposal.depth());
    let rates = rates.filter_map(|published| published.rate().or_else(|| published.rate_at(usual_depth)));
    let rate = Typical::of(rates).map_or(AcceptanceRate::NEVER, |typical| typical.rate);
    // Rates of trees are those of whole levels, whatever is between.
    let tokens = rate.tokens_per_step(proposal.depth());
    Acceptance::measured(tokens, proposal).unwrap_or_else(|_| rate.into())
}

fn usual_drafts(method: Method) -> impl Iterator<Item = &'static Published> {
    let of_method = published_acceptance().iter().filter(move |published| published.method == method);
    let measured = of_method.filter(|published| published.kind == Provenance::Measured);
    let as_usual = move |published: &&Published| published.is_tree() == method.usual_proposal().is_tree();
    measured.filter(move |published| published.verified_tokens.is_none() || as_usual(published))
}

static TABLE: LazyLock<Result<Vec<Published>, ProfileError>> = LazyLock::new(read);

const FILE: &str = "published.toml";
const TEXT: &str = include_str!("published.toml");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    published: Vec<Published>,
    sources: Sources,
}

/// Reads the data file, and writes out the sources that entries name by key.
fn read() -> Result<Vec<Published>, ProfileError> {
    let Table { mut published, sources } = profile::read(TEXT, FILE)?;
    for entry in &mut published {
        let full = sources.get(&entry.source).ok_or_else(|| {
            ProfileError::at_key(FILE, "source", format!("`{}` is not among the sources of the file", entry.source))
        })?;
        entry.source.clone_from(full);
    }
    Ok(published)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPublished {
    method: Method,
    task: Task,
    dataset: String,
    target: String,
    draft: String,
    draft_tokens: Option<u32>,
    verified_tokens: Option<u32>,
    temperature: Option<f64>,
    acceptance_rate: Option<f64>,
    length_with_bonus: Option<f64>,
    length_without_bonus: Option<f64>,
    accepted_over_proposed: Option<f64>,
    kind: Provenance,
    source: String,
    note: Option<String>,
}

impl TryFrom<RawPublished> for Published {
    type Error = String;

    fn try_from(raw: RawPublished) -> Result<Self, String> {
        let figures = [
            raw.acceptance_rate.map(Figure::AcceptanceRate),
            raw.length_with_bonus.map(Figure::LengthWithBonus),
            raw.length_without_bonus.map(Figure::LengthWithoutBonus),
            raw.accepted_over_proposed.map(Figure::AcceptedOverProposed),
        ];
        let mut given = figures.into_iter().flatten();
        let (Some(figure), None) = (given.next(), given.next()) else {
            return Err(format!(
                "an entry needs exactly one of acceptance_rate, length_with_bonus, length_without_bonus and \
                 accepted_over_proposed ({} on {})",
                raw.target, raw.dataset
            ));
        };
        Ok(Self {
            method: raw.method,
            task: raw.task,
            dataset: raw.dataset,
            target: raw.target,
            draft: raw.draft,
            draft_tokens: raw.draft_tokens,
            verified_tokens: raw.verified_tokens,
            temperature: raw.temperature,
            figure,
            kind: raw.kind,
            source: raw.source,
            note: raw.note,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_can_be_read() {
        assert_eq!(TABLE.as_ref().err(), None);
        assert!(published_acceptance().len() >= 100);
    }

    #[test]
    fn every_source_is_used_and_every_entry_has_one() {
        let Table { published, sources } = profile::read(TEXT, FILE).unwrap();
        for entry in &published {
            assert!(sources.contains_key(&entry.source), "{entry:?}");
        }
        for key in sources.keys() {
            assert!(published.iter().any(|entry| entry.source == *key), "{key} is not used");
        }
        assert!(published_acceptance().iter().all(|entry| sources.values().any(|full| *full == entry.source)));
    }

    #[test]
    fn figures_are_possible() {
        for entry in published_acceptance() {
            let most = entry.draft_tokens.map_or(f64::INFINITY, f64::from);
            let possible = match entry.figure {
                Figure::AcceptanceRate(share) | Figure::AcceptedOverProposed(share) => share > 0.0 && share <= 1.0,
                Figure::LengthWithBonus(length) => length > 1.0 && length <= most + 1.0,
                Figure::LengthWithoutBonus(length) => length > 0.0 && length <= most,
            };
            assert!(possible, "{entry:?}");
            assert!(entry.temperature.is_none_or(|temperature| (0.0..=2.0).contains(&temperature)), "{entry:?}");
            if let (Some(depth), Some(verified)) = (entry.draft_tokens, entry.verified_tokens) {
                assert!(depth > 0 && verified > depth, "{entry:?}");
            }
            if let Some(rate) = entry.rate() {
                assert!(rate > AcceptanceRate::NEVER && rate < AcceptanceRate::ALWAYS, "{entry:?}: {rate}");
            }
        }
    }

    #[test]
    fn no_figure_is_entered_twice() {
        let key = |p: &Published| {
            let temperature = p.temperature.map(f64::to_bits);
            let who = (p.target.clone(), p.draft.clone(), p.note.clone());
            (p.method, p.dataset.clone(), who, p.draft_tokens, temperature, p.source.clone())
        };
        let mut keys: Vec<_> = published_acceptance().iter().map(key).collect();
        keys.sort();
        for pair in keys.windows(2) {
            assert_ne!(pair[0], pair[1]);
        }
    }

    /// The only entry of that description.
    fn entry(method: Method, target: &str, draft: &str, dataset: &str, temperature: f64) -> &'static Published {
        let named = |p: &&Published| p.method == method && p.target == target && p.draft == draft;
        let of = |p: &&Published| p.dataset == dataset && p.temperature == Some(temperature);
        let mut found = published_acceptance().iter().filter(named).filter(of);
        let first = found.next().unwrap();
        assert_eq!(found.next(), None);
        first
    }

    // Leviathan et al., arXiv:2211.17192, tables 2 and 3: T5-small and T5-large for T5-XXL.
    #[test]
    fn rates_of_leviathan() {
        let alpha =
            |draft, dataset, temperature| entry(Method::DraftModel, "T5-XXL 11B", draft, dataset, temperature).figure;
        assert_eq!(alpha("T5-small", "WMT EnDe", 0.0), Figure::AcceptanceRate(0.75));
        assert_eq!(alpha("T5-small", "WMT EnDe", 1.0), Figure::AcceptanceRate(0.62));
        assert_eq!(alpha("T5-large", "CNN/DM", 1.0), Figure::AcceptanceRate(0.56));
    }

    // EAGLE-2, arXiv:2406.16858, table 1, Vicuna 7B at temperature 0, CNN/DM: prompt lookup 2.72, EAGLE-2 4.12; and
    // EAGLE-3, arXiv:2503.01840, table 1, Llama 3.3 70B at temperature 0, GSM8K: 6.15.
    #[test]
    fn lengths_of_eagle() {
        let length = |method, draft| entry(method, "Vicuna 7B", draft, "CNN/DM", 0.0).figure;
        assert_eq!(length(Method::NGram, ""), Figure::LengthWithBonus(2.72));
        assert_eq!(length(Method::Eagle2, "EAGLE head"), Figure::LengthWithBonus(4.12));
        let eagle3 = entry(Method::Eagle3, "Llama 3.3 70B Instruct", "EAGLE-3 head", "GSM8K", 0.0);
        assert_eq!(eagle3.figure, Figure::LengthWithBonus(6.15));
    }

    // vLLM, tests/v1/spec_decode/test_acceptance_length.py: for each baseline, the share of drafts accepted up to position 1,
    // 2 and 3, which add up to the length. The rate of the length has to be among the conditional rates of the positions.
    #[test]
    fn the_rate_is_a_mean_of_the_rates_by_position() {
        let baselines = [
            ("Llama 3.1 8B Instruct", 2.60, [0.7296, 0.5208, 0.3545]),
            ("Qwen3-8B", 2.26, [0.6541, 0.3993, 0.2020]),
            ("gpt-oss-20b", 2.56, [0.7165, 0.5120, 0.3337]),
        ];
        for (target, length, [first, second, third]) in baselines {
            let of = |p: &&Published| p.target == target && p.draft.starts_with("RedHatAI/");
            let published = published_acceptance().iter().find(of).unwrap();
            assert_eq!(published.figure, Figure::LengthWithBonus(length));
            assert!((1.0 + first + second + third - length).abs() < 0.01, "{target}");
            let rate = published.rate().unwrap().value();
            let conditional: [f64; 3] = [first, second / first, third / second];
            assert!(rate < conditional.into_iter().fold(0.0, f64::max), "{target}: {rate}");
            assert!(rate > conditional.into_iter().fold(1.0, f64::min), "{target}: {rate}");
        }
    }

    // ROCm/ATOM#943 gives both figures of one run: 60.25 % of the draft tokens, and 2.81 tokens per pass with three of them.
    // HabanaAI/vllm-fork#1264: 1,918 of 2,180 with one draft token, where both rates are the same.
    #[test]
    fn accepted_over_proposed_converts_where_the_depth_is_fixed() {
        let of = |source: &'static str| published_acceptance().iter().find(move |p| p.source.contains(source)).unwrap();
        let kimi = of("ROCm/ATOM#943").rate().unwrap();
        assert!((kimi.tokens_per_step(3) - 2.81).abs() < 0.005, "{kimi}");
        let gaudi = of("HabanaAI/vllm-fork#1264").rate().unwrap();
        assert!((gaudi.value() - 1918.0 / 2180.0).abs() < 1e-4, "{gaudi}");
        let varying = of("ggml-org/llama.cpp#3006");
        assert_eq!((varying.draft_tokens, varying.rate()), (None, None));
    }

    // EAGLE-2 and EAGLE-3 verify trees of 48 to 60 nodes, SGLang with top-k 1 chains; Leviathan's rates have no depth.
    #[test]
    fn trees_are_told_from_chains() {
        for entry in published_acceptance() {
            let tree = ["arXiv:2406.16858", "arXiv:2503.01840"].iter().any(|paper| entry.source.contains(paper))
                && !matches!(entry.method, Method::NGram | Method::Lookahead | Method::DraftModel);
            let chain = ["SpecBundle", "arXiv:2211.17192", "llama.cpp"].iter().any(|own| entry.source.contains(own));
            assert!(if tree { entry.is_tree() } else { !(chain && entry.is_tree()) }, "{entry:?}");
        }
    }

    #[test]
    fn an_entry_has_one_figure() {
        let read = |figures: &str| {
            let head = "method = \"mtp\"\ntask = \"chat\"\ndataset = \"\"\ntarget = \"T\"\ndraft = \"\"\n";
            let text = format!("{head}{figures}\nkind = \"measured\"\nsource = \"s\"");
            profile::read::<Published>(&text, "test")
        };
        let without = read("draft_tokens = 2\nlength_without_bonus = 0.75").unwrap();
        assert!((without.rate().unwrap().value() - 0.5).abs() < 1e-12); // 0.5 + 0.25
        assert!(read("").unwrap_err().message.contains("exactly one"));
        assert!(read("acceptance_rate = 0.5\nlength_with_bonus = 1.5").unwrap_err().message.contains("exactly one"));
    }

    #[test]
    fn typical_is_between_the_extremes() {
        for entry in published_acceptance() {
            let Some(typical) = typical(entry.method, entry.task) else { continue };
            assert!(typical.lowest <= typical.rate && typical.rate <= typical.highest, "{entry:?}: {typical:?}");
            let is_usual =
                entry.verified_tokens.is_none() || entry.is_tree() == entry.method.usual_proposal().is_tree();
            if let (Provenance::Measured, Some(rate), true) = (entry.kind, entry.rate(), is_usual) {
                assert!((typical.lowest..=typical.highest).contains(&rate), "{entry:?}: {typical:?}");
            }
        }
        // Leviathan et al., table 3, translation: 0.62, 0.68, 0.71, 0.75, 0.80, 0.82.
        let translation = typical(Method::DraftModel, Task::Translation).unwrap();
        assert_eq!((translation.lowest.value(), translation.highest.value(), translation.figures), (0.62, 0.82, 6));
        assert!((translation.rate.value() - 0.73).abs() < 1e-12);
    }
}
