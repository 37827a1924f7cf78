//! Random requests of a workload.

use super::asked::Workload;
use super::error::{WorkloadError, at_least};
use super::prefix::SharedPrefix;
use super::times::uniform;
use super::trace::{Trace, TraceRequest};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// A random request: what it asks for, without the time at which it comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DrawnRequest {
    /// Tokens of its prompt, cached ones included.
    pub prompt_tokens: u64,
    /// Tokens of its answer.
    pub output_tokens: u64,
    /// Tokens of its prompt that are found in the prefix cache.
    pub cached_tokens: u64,
    /// Which of the workload's classes it belongs to; 0 where there are none.
    pub class: usize,
}

impl SharedPrefix {
    /// The cached tokens of one request, whole or not at all where a hit is a matter of luck.
    pub fn sample_cached_tokens<R: Rng + ?Sized>(&self, prompt_tokens: u64, rng: &mut R) -> u64 {
        let (certain, hit_rate) = match *self {
            Self::Fixed { tokens, hit_rate } => (Self::Fixed { tokens, hit_rate: 1.0 }, hit_rate),
            Self::Turns { first_prompt, new_tokens, hit_rate } => {
                (Self::Turns { first_prompt, new_tokens, hit_rate: 1.0 }, hit_rate)
            }
            Self::Share { .. } => (*self, 1.0),
        };
        if uniform(rng) < hit_rate { certain.cached_tokens(prompt_tokens as f64).round() as u64 } else { 0 }
    }
}

impl Workload {
    /// A random request.
    pub fn sample<R: Rng + ?Sized>(&self, rng: &mut R) -> DrawnRequest {
        let class = self.sample_class(rng);
        let lengths = self.classes().get(class).map_or(self.lengths(), |class| &class.lengths);
        let (prompt_tokens, output_tokens) = lengths.sample(rng);
        let cached_tokens = self.prefix().map_or(0, |prefix| prefix.sample_cached_tokens(prompt_tokens, rng));
        DrawnRequest { prompt_tokens, output_tokens, cached_tokens, class }
    }

    /// The first `requests` of this workload, always the same for the same seed; fewer where arrivals end before.
    ///
    /// # Errors
    /// [`WorkloadError::NoTimes`] for clients that wait, [`WorkloadError::TooFew`] for no requests.
    ///
    /// ```
    /// use llm_roofline::workload::{Lengths, Workload};
    ///
    /// let trace = Workload::poisson("10 req/s".parse()?, Lengths::fixed(100, 10)?)?.trace(500, 7)?;
    /// assert_eq!(trace.requests().len(), 500);
    /// assert!((8.0..12.0).contains(&trace.arrivals().mean_rate.unwrap().as_requests_per_second()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn trace(&self, requests: usize, seed: u64) -> Result<Trace, WorkloadError> {
        at_least("requests of a trace", requests as u64, 1)?;
        // Times and lengths have generators of their own: other lengths leave the times as they are.
        let mut rng = Pcg64Mcg::seed_from_u64(seed ^ 0x9E37_79B9_7F4A_7C15);
        let request = |arrival| {
            let drawn = self.sample(&mut rng);
            TraceRequest {
                arrival,
                prompt_tokens: drawn.prompt_tokens,
                output_tokens: drawn.output_tokens,
                cached_tokens: drawn.cached_tokens,
                block_hashes: Vec::new(),
            }
        };
        Trace::new(self.arrivals().times(seed)?.take(requests).map(request).collect())
    }

    fn sample_class<R: Rng + ?Sized>(&self, rng: &mut R) -> usize {
        let mut left = uniform(rng);
        let chosen = self.classes().iter().position(|class| {
            left -= class.share;
            left < 0.0
        });
        // Rounding may leave a little beyond the last share.
        chosen.unwrap_or(self.classes().len().saturating_sub(1))
    }
}
