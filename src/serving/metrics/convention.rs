//! How each tool defines what it reports.

use super::{Metric, MetricsError, PercentileRule, RequestTimes};
use crate::profile::{folded, nearest};
use crate::units::{Seconds, TokensPerSecond};
use crate::workload::Latencies;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A tool whose definitions are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Convention {
    /// `vllm bench serve` and the older `benchmark_serving.py`; SGLang's `bench_serving` was made from it.
    ///
    /// Source: vllm-project/vllm, `vllm/benchmarks/serve.py`, `calculate_metrics`. TPOT is one number per request and its mean is over
    /// requests; ITL pools the gaps between stream pieces of all requests.
    Vllm,
    /// GuideLLM.
    ///
    /// Source: vllm-project/guidellm, `src/guidellm/schemas/base/request_stats.py` and `statistics.py`, `schemas/benchmark/goodput.py`. Its
    /// "time per output token" divides the whole latency by all tokens, TTFT included. ITL is weighted with `N - 1`, time per output token
    /// with `N`. An objective called `tpot_ms` is held against its ITL; an answer without one is not judged at all, even if its TTFT is
    /// too long. (Versions before 2026 have no goodput.)
    GuideLlm,
    /// GenAI-Perf.
    ///
    /// Source: triton-inference-server/perf_analyzer, `genai-perf/genai_perf/profile_data_parser/llm_profile_data_parser.py`. One ITL per
    /// request, which others call TPOT. Its `goodput_calculator` pairs the lists of metrics by position and stops at the shortest, so an
    /// answer of one token is never good if ITL is limited, and shifts the pairs after it (which is not imitated).
    GenAiPerf,
    /// AIPerf.
    ///
    /// Source: ai-dynamo/aiperf, `src/aiperf/metrics/types/inter_token_latency_metric.py` and `good_request_count_metric.py`. As
    /// GenAI-Perf; the gaps between pieces are a metric of their own there (`inter_chunk_latency`). A request without a metric that is
    /// limited is not good.
    AiPerf,
    /// MLPerf Inference.
    ///
    /// Source: mlcommons/inference, `loadgen/logging.cc` and `results.cc`. Times count from the moment that the schedule had foreseen. The
    /// 99th percentiles of TTFT and TPOT are tested one by one, and answers of one token are an error.
    MlPerf,
    /// llama-bench.
    ///
    /// Source: ggml-org/llama.cpp, `tools/llama-bench/llama-bench.cpp`. No TTFT, no percentiles: tokens per second as mean and standard
    /// deviation over repetitions, prompt and generation apart, without tokenizing and sampling.
    LlamaBench,
    /// The artefact of the DistServe paper (Zhong et al., OSDI 2024).
    ///
    /// Source: LLMServe/DistServe, `evaluation/2-benchmark-serving/structs.py`. A request counts when TTFT and TPOT both hold; answers of
    /// one token enter with a TPOT of 0. The paper asks for 90 % or 99 % of the requests.
    DistServe,
}

/// Since when a latency counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Since the request wanted to be served: waiting at the client counts.
    Arrival,
    /// Since it was sent.
    Sent,
}

/// Which times are taken for a time per token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gaps {
    /// `(E2E - TTFT) / (N - 1)`: the tokens after the first.
    AfterFirst,
    /// `E2E / N`: all tokens, the wait for the first included.
    All,
    /// Every gap between pieces of the stream.
    Chunks,
}

/// What a mean counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// Every request once.
    Request,
    /// Every gap once: long answers count for more.
    Token,
}

/// A time per token: of what, and how it is averaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerToken {
    /// Which times.
    pub gaps: Gaps,
    /// What counts once.
    pub weight: Weight,
}

/// What becomes of an answer of one token, which has no time per further token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SingleToken {
    /// Left out of the statistics; meets every limit on the time per token.
    LeftOutGood,
    /// Left out of the statistics; meets no limit on the time per token.
    LeftOutBad,
    /// Left out of the statistics, and of the share of good requests if the time per token is limited.
    LeftOutOpen,
    /// Enters the statistics with 0 s per token.
    Zero,
    /// An error.
    Refused,
}

/// How limits are tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoodputRule {
    /// Per request, which is good if it meets all.
    Joint,
    /// A percentile of each metric by itself.
    PerMetric,
    /// Not at all.
    None,
}

/// What a tool reports, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Definition {
    /// Since when TTFT and E2E count.
    pub start: Start,
    /// Whether there is a TTFT and an E2E at all, with percentiles.
    pub latencies: bool,
    /// Time per output token, if there is one.
    pub tpot: Option<PerToken>,
    /// Inter-token latency, if there is one.
    pub itl: Option<PerToken>,
    /// How percentiles are read off.
    pub percentile: PercentileRule,
    /// What an answer of one token counts as.
    pub single_token: SingleToken,
    /// How limits are tested.
    pub goodput: GoodputRule,
}

impl Convention {
    /// Every tool.
    pub const ALL: [Self; 7] =
        [Self::Vllm, Self::GuideLlm, Self::GenAiPerf, Self::AiPerf, Self::MlPerf, Self::LlamaBench, Self::DistServe];

    /// The name of the tool.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vllm => "vLLM",
            Self::GuideLlm => "GuideLLM",
            Self::GenAiPerf => "GenAI-Perf",
            Self::AiPerf => "AIPerf",
            Self::MlPerf => "MLPerf",
            Self::LlamaBench => "llama-bench",
            Self::DistServe => "DistServe",
        }
    }

    /// The tool of a name; case, spaces and dashes do not matter.
    ///
    /// # Errors
    /// [`MetricsError::UnknownName`] with the nearest known name.
    pub fn named(name: &str) -> Result<Self, MetricsError> {
        let found = Self::ALL.into_iter().find(|known| folded(known.name()) == folded(name));
        found.ok_or_else(|| MetricsError::UnknownName {
            kind: "tool for load tests",
            name: name.into(),
            nearest: nearest(name, Self::ALL.map(Self::name)),
            known: Self::ALL.map(Self::name).join(", "),
        })
    }

    /// What the tool reports, and how.
    pub const fn definition(self) -> Definition {
        const PER_REQUEST: PerToken = PerToken { gaps: Gaps::AfterFirst, weight: Weight::Request };
        const COMMON: Definition = Definition {
            start: Start::Sent,
            latencies: true,
            tpot: None,
            itl: Some(PER_REQUEST),
            percentile: PercentileRule::Linear,
            single_token: SingleToken::LeftOutBad,
            goodput: GoodputRule::Joint,
        };
        match self {
            Self::Vllm => Definition {
                tpot: Some(PER_REQUEST),
                itl: Some(PerToken { gaps: Gaps::Chunks, weight: Weight::Token }),
                single_token: SingleToken::LeftOutGood,
                ..COMMON
            },
            Self::GuideLlm => Definition {
                tpot: Some(PerToken { gaps: Gaps::All, weight: Weight::Token }),
                itl: Some(PerToken { gaps: Gaps::AfterFirst, weight: Weight::Token }),
                percentile: PercentileRule::Cumulative,
                single_token: SingleToken::LeftOutOpen,
                ..COMMON
            },
            Self::GenAiPerf | Self::AiPerf => COMMON,
            Self::MlPerf => Definition {
                start: Start::Arrival,
                tpot: Some(PER_REQUEST),
                itl: None,
                percentile: PercentileRule::OrderStatistic,
                single_token: SingleToken::Refused,
                goodput: GoodputRule::PerMetric,
                ..COMMON
            },
            Self::LlamaBench => Definition { latencies: false, itl: None, goodput: GoodputRule::None, ..COMMON },
            Self::DistServe => {
                Definition { tpot: Some(PER_REQUEST), itl: None, single_token: SingleToken::Zero, ..COMMON }
            }
        }
    }

    /// Time to first token of a request, where the tool has one.
    pub fn ttft(self, request: &RequestTimes) -> Option<Seconds> {
        self.definition().latencies.then(|| request.first_token - self.start(request))
    }

    /// Time to the last token of a request, where the tool has one.
    pub fn e2e(self, request: &RequestTimes) -> Option<Seconds> {
        self.definition().latencies.then(|| request.last_token - self.start(request))
    }

    /// What the tool calls the time per output token of a request.
    ///
    /// ```
    /// use llm_roofline::serving::metrics::{Convention, RequestTimes};
    /// use llm_roofline::units::Seconds;
    /// let ms = Seconds::from_millis;
    /// let request = RequestTimes::new(ms(0.0), ms(200.0), ms(1190.0), 100);
    /// assert_eq!(Convention::Vllm.tpot(&request).unwrap().to_string(), "10.0 ms");
    /// assert_eq!(Convention::GuideLlm.tpot(&request).unwrap().to_string(), "11.9 ms"); // the first token included
    /// ```
    pub fn tpot(self, request: &RequestTimes) -> Option<Seconds> {
        self.per_token(request, self.definition().tpot?)
    }

    /// What the tool calls the inter-token latency of a request: the mean over its gaps.
    pub fn itl(self, request: &RequestTimes) -> Option<Seconds> {
        self.per_token(request, self.definition().itl?)
    }

    /// Output tokens per second of one stream, as the tool reports it.
    ///
    /// # Formula
    /// GuideLLM and GenAI-Perf divide all tokens by the whole latency, TTFT included: `N / E2E`. AIPerf ("per user") and llama-bench ("tg")
    /// look at the tokens after the first only: `1 / ITL`. The others report none.
    pub fn stream_tps(self, request: &RequestTimes) -> Option<TokensPerSecond> {
        let per_token = match self {
            Self::GuideLlm | Self::GenAiPerf => {
                (request.output_tokens > 0).then(|| request.e2e() / request.output_tokens as f64)
            }
            Self::AiPerf | Self::LlamaBench => request.tpot(),
            Self::Vllm | Self::MlPerf | Self::DistServe => None,
        };
        Some(per_token?.token_rate()).filter(|rate| rate.is_finite())
    }

    /// What the tool holds against limits.
    pub(super) fn latencies(self, request: &RequestTimes) -> Latencies {
        let (tpot, itl) = (self.tpot(request), self.itl(request));
        let tpot = match self {
            // `tpot_ms` is compared with the inter-token latency.
            Self::GuideLlm => itl,
            // What others call TPOT.
            Self::GenAiPerf | Self::AiPerf => itl,
            _ => tpot,
        };
        Latencies { ttft: self.ttft(request), tpot, itl, e2e: self.e2e(request) }
    }

    /// Whether the tool has a metric that can be limited.
    pub(super) fn has(self, metric: Metric) -> bool {
        let definition = self.definition();
        match metric {
            Metric::Ttft | Metric::E2e => definition.latencies,
            Metric::Tpot => definition.tpot.is_some() || definition.itl.is_some(),
            Metric::Itl => definition.itl.is_some(),
        }
    }

    fn start(self, request: &RequestTimes) -> Seconds {
        match self.definition().start {
            Start::Arrival => request.arrival,
            Start::Sent => request.sent,
        }
    }

    fn per_token(self, request: &RequestTimes, of: PerToken) -> Option<Seconds> {
        let found = match of.gaps {
            Gaps::AfterFirst => request.tpot(),
            Gaps::All => (request.output_tokens > 0)
                .then(|| (request.last_token - self.start(request)) / request.output_tokens as f64),
            Gaps::Chunks => request.mean_gap(),
        };
        match self.definition().single_token {
            SingleToken::Zero => found.or((request.output_tokens == 1).then_some(Seconds::ZERO)),
            _ => found,
        }
    }
}

impl fmt::Display for Convention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
