//! When it pays: the best length, the acceptance and the batch at which nothing is gained.

use super::rate::{check_count, solve};
use super::{AcceptanceRate, Proposal, SpeculationError, SpeculativeModel};
use std::ops::RangeInclusive;

/// The chain that is fastest.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct BestChain {
    /// Tokens to propose; 0: better not to speculate.
    pub draft_tokens: u64,
    /// How many times faster than without speculation.
    pub speedup: f64,
}

/// Batches are tried one by one.
const LARGEST_BATCH: u64 = 1 << 16;

impl SpeculativeModel {
    /// How many times faster `batch` sequences of `cached` tokens decode than without speculation; below 1 they are slower.
    ///
    /// # Formula
    /// `tokens_per_step * T_T / (T_D + T_V + overhead)`: a step without speculation over a cycle with it.
    pub fn speedup(&self, batch: u64, cached: u64) -> f64 {
        self.tokens_per_step() / self.cycle_in_steps(batch, cached)
    }

    /// A cycle in steps of the target alone.
    fn cycle_in_steps(&self, batch: u64, cached: u64) -> f64 {
        let batch = batch.max(1);
        let plain = self.plain(batch, cached, 1);
        self.cycles(self.speculation().proposal(), batch, cached, 1, &plain).total() / plain.total()
    }

    /// The chain of at most `most` tokens that decodes fastest, by pricing each.
    ///
    /// # Errors
    /// [`SpeculationError::Count`] for more than 256.
    ///
    /// ```
    /// use llm_roofline::prelude::*;
    /// use llm_roofline::speculative::{Method, Speculation, SpeculativeModel};
    ///
    /// let catalog = Catalog::embedded();
    /// let target = Deployment::new(catalog.model("llama-3.1-8b")?, System::new(catalog.device("h100-sxm-80gb")?, 1)?)
    ///     .with_engine(catalog.engine("sglang")?);
    /// let speculation = Speculation::new(Method::Eagle3, &target)?.with_acceptance_rate(0.8)?;
    /// let model = SpeculativeModel::compile(&target, &speculation)?;
    /// let [alone, busy, full] = [1, 64, 256].map(|batch| model.best_draft_tokens(batch, 1000, 16).unwrap().draft_tokens);
    /// assert!(alone > busy && busy > full);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn best_draft_tokens(&self, batch: u64, cached: u64, most: u64) -> Result<BestChain, SpeculationError> {
        check_count("draft tokens", most, 0)?;
        let batch = batch.max(1);
        let plain = self.plain(batch, cached, 1);
        let mut best = BestChain { draft_tokens: 0, speedup: 1.0 };
        for draft_tokens in 1..=most {
            let proposal = Proposal::of(1, draft_tokens, draft_tokens);
            let tokens = self.speculation().acceptance().tokens_per_step(&proposal);
            let speedup = tokens / (self.cycles(&proposal, batch, cached, 1, &plain).total() / plain.total());
            if speedup > best.speedup {
                best = BestChain { draft_tokens, speedup };
            }
        }
        Ok(best)
    }

    /// The rate of acceptance (the same at every position) from which on speculation with the present proposals pays; `None` if it never
    /// does.
    pub fn break_even_acceptance(&self, batch: u64, cached: u64) -> Option<AcceptanceRate> {
        let proposal = self.speculation().proposal();
        let needed = self.cycle_in_steps(batch, cached);
        let tokens = |rate: AcceptanceRate| super::Acceptance::from(rate).tokens_per_step(proposal);
        (needed <= tokens(AcceptanceRate::ALWAYS)).then(|| solve(|rate| tokens(rate) - needed))
    }

    /// The smallest batch, up to `most` (at most 65,536), at which speculation no longer pays; `None` if it pays at all of them.
    pub fn break_even_batch(&self, cached: u64, most: u64) -> Option<u64> {
        (1..=most.min(LARGEST_BATCH)).find(|&batch| self.speedup(batch, cached) <= 1.0)
    }

    /// All batches from 1 to `most` (at most 65,536) at which speculation pays, as ranges: with mixtures of experts and long contexts it may stop to pay and pay again.
    pub fn paying_batches(&self, cached: u64, most: u64) -> Vec<RangeInclusive<u64>> {
        let mut ranges: Vec<RangeInclusive<u64>> = Vec::new();
        for batch in (1..=most.min(LARGEST_BATCH)).filter(|&batch| self.speedup(batch, cached) > 1.0) {
            match ranges.last_mut() {
                Some(range) if *range.end() + 1 == batch => *range = *range.start()..=batch,
                _ => ranges.push(batch..=batch),
            }
        }
        ranges
    }
}
