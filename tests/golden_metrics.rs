//! Published limits on latency, and what load-test tools report for the same times, each recomputed with the public API.
//!
//! `tests/data/golden_metrics.csv` names the source of every number. A row without a recipe fails the test, unless the table says that it is skipped,
//! and why.

#[path = "common/golden.rs"]
mod golden;
#[path = "common/table.rs"]
mod table;

use golden::{Inputs, reproduce};
use llm_roofline::serving::metrics::{
    Chunks, Convention, Percentiles, RequestTimes, Slo, ToolReport, mlperf_queries, named_slo, queries_needed,
    response_limit, summarise,
};
use llm_roofline::text::{Density, Experience, READING_ALOUD_WORDS_PER_MINUTE, READING_WORDS_PER_MINUTE};
use llm_roofline::units::{Seconds, TokensPerSecond};
use table::Row;

const TABLE: &str = include_str!("data/golden_metrics.csv");
/// Rows of the table, and those among them that are skipped: a row is lost if these change.
const ROWS: usize = 52;
const SKIPPED: usize = 1;
/// Exact rows may differ by the rounding of floating-point sums.
const ROUNDING: f64 = 1e-12;

impl Inputs<'_> {
    fn millis(&self, name: &str) -> Seconds {
        Seconds::from_millis(self.number(name))
    }

    /// One request of which the times are given.
    fn request(&self) -> RequestTimes {
        let (start, first, last) =
            (self.millis("request_start"), self.millis("first_token_ms"), self.millis("last_token_ms"));
        RequestTimes::new(start, first, last, self.count("tokens"))
    }

    /// Two requests of which the gaps are given; when they start does not matter.
    fn pair(&self) -> [RequestTimes; 2] {
        [("req1_tokens", "req1_gap_ms"), ("req2_tokens", "req2_gap_ms")].map(|(tokens, gap)| {
            let (tokens, first) = (self.count(tokens), Seconds::from_millis(100.0));
            let decode = self.millis(gap) * (tokens - 1) as f64;
            RequestTimes::new(Seconds::ZERO, first, first + decode, tokens)
        })
    }

    /// One request that is streamed in pieces of several tokens.
    fn chunked(&self) -> RequestTimes {
        let decode = self.millis("decode_ms");
        let request = RequestTimes::new(Seconds::ZERO, Seconds::ZERO, decode, self.count("tokens"));
        request.with_chunks(Chunks::Even(self.count("chunks")))
    }
}

fn report(requests: &[RequestTimes], convention: Convention) -> ToolReport {
    let duration = Seconds::from_seconds(10.0);
    let report = summarise(requests, convention, &Slo::default(), duration).unwrap();
    assert_eq!(report.convention, convention);
    report
}

fn mean(percentiles: Option<Percentiles>) -> f64 {
    percentiles.unwrap().mean.as_millis()
}

/// The quantity of a row as this crate computes it, in the unit of the row.
fn recompute(row: &Row) -> Option<f64> {
    use Convention::{AiPerf, GenAiPerf, GuideLlm, MlPerf, Vllm};
    let inputs = Inputs(row);
    let number = |name| inputs.number(name);
    let limits = |author: &str, case: &str| &named_slo(&format!("{author}/{case}")).unwrap().slo;
    let mlperf = || limits("mlperf", &format!("{}/{}", inputs.text("model"), inputs.text("scenario")));
    let guidellm = || limits("guidellm", inputs.text("use"));
    Some(match row.text("quantity") {
        "TTFT p99 limit" => mlperf().ttft?.as_millis(),
        "TPOT p99 limit" => mlperf().tpot?.as_millis(),
        "TTFT p99 SLO" => guidellm().ttft?.as_millis(),
        "ITL p99 SLO" => guidellm().itl?.as_millis(),
        "queries = z^2 p(1-p)/margin^2" => {
            queries_needed(number("percentile"), number("confidence"), number("margin")).unwrap() as f64
        }
        "response-time limit" => {
            response_limit(&format!("nielsen/{}", inputs.text("limit"))).unwrap().limit.as_seconds()
        }
        "typical human turn-taking gap" => response_limit("conversation/turn-gap").unwrap().limit.as_millis(),
        "reading rate" => {
            // The rate at which text of this density passes at the reader's pace.
            let mut density = Density::rule_of_thumb();
            density.tokens_per_word = Some(1.0 / number("words_per_token"));
            let words = density.rate(TokensPerSecond::from_tokens_per_second(1.0)).words_per_second.unwrap();
            number("wpm") / 60.0 / words
        }
        "TPOT = (latency-TTFT)/(N-1)" => Vllm.tpot(&inputs.request())?.as_millis(),
        "time_per_output_token = (last-start)/N, FIRST TOKEN INCLUDED" => GuideLlm.tpot(&inputs.request())?.as_millis(),
        "inter_token_latency = (last-first)/(N-1)" => GuideLlm.itl(&inputs.request())?.as_millis(),
        "ITL = (latency-TTFT)/(OSL-1)" => AiPerf.itl(&inputs.request())?.as_millis(),
        "output TPS per user = 1/ITL" => AiPerf.stream_tps(&inputs.request())?.as_tokens_per_second(),
        "TPOT = (latency-TTFT)/(n_tokens-1)" => MlPerf.tpot(&inputs.request())?.as_millis(),
        "E2E = TTFT+(N-1)*TPOT" => {
            let request = inputs.request();
            let e2e = request.ttft() + request.tpot()? * (request.output_tokens - 1) as f64;
            assert!((e2e - request.e2e()).as_seconds().abs() < ROUNDING);
            e2e.as_millis()
        }
        "output tokens per second = N/latency" => GuideLlm.stream_tps(&inputs.request())?.as_tokens_per_second(),
        "mean ITL (token weighted)" => mean(report(&inputs.pair(), Vllm).itl),
        "mean TPOT (request weighted)" => mean(report(&inputs.pair(), Vllm).tpot),
        "GuideLLM mean ITL (token weighted)" => mean(report(&inputs.pair(), GuideLlm).itl),
        "AIPerf mean ITL (request weighted)" => {
            let found = mean(report(&inputs.pair(), AiPerf).itl);
            assert_eq!(found, mean(report(&inputs.pair(), GenAiPerf).itl));
            found
        }
        "vLLM mean ITL = decode/(chunks-1)" => mean(report(&[inputs.chunked()], Vllm).itl),
        "TPOT = decode/(tokens-1)" => mean(report(&[inputs.chunked()], Vllm).tpot),
        _ => return None,
    })
}

#[test]
fn published_numbers_are_reproduced() {
    reproduce(TABLE, ROWS, SKIPPED, ROUNDING, recompute);
}

/// The row that is skipped because its sources disagree: both values are kept, each with its source.
#[test]
fn the_conflict_of_sources_is_kept() {
    let limits = named_slo("mlperf/gpt-oss-120b/interactive").unwrap();
    assert_eq!(limits.slo.tpot, Some(Seconds::from_millis(20.0))); // table of the rules
    let (other, source) = limits.alternative.as_ref().unwrap();
    assert_eq!(other.tpot, Some(Seconds::from_millis(15.0))); // mlperf.conf
    assert!(source.contains("mlperf.conf") && limits.sources[0].contains("inference_rules"));
    assert!(limits.note.is_some());
}

/// Reddi et al., MLPerf Inference Benchmark (arXiv:1911.02549), table IV: rounded to 3, 7 and 33 times 2^13.
#[test]
fn mlperf_rounds_queries_up() {
    assert_eq!(mlperf_queries(0.90).unwrap(), 24_576);
    assert_eq!(mlperf_queries(0.95).unwrap(), 57_344);
    assert_eq!(mlperf_queries(0.99).unwrap(), 270_336);
}

/// Brysbaert 2019: 238 words per minute silently, 183 aloud; what the reader of a stream is held to.
#[test]
fn readers_read_at_the_published_pace() {
    assert_eq!((READING_WORDS_PER_MINUTE, READING_ALOUD_WORDS_PER_MINUTE), (238.0, 183.0));
    let verdict = Experience::reading(Seconds::from_millis(100.0), &Density::rule_of_thumb());
    let Experience::KeepsUpWithReader { limit, .. } = verdict else { panic!("{verdict}") };
    assert!((limit.token_rate().as_tokens_per_second() / 5.2889 - 1.0).abs() < 1e-4);
}

/// GuideLLM's sheet in full: docs/guides/service_level_objectives.md, 99 % of requests each.
#[test]
fn limits_by_use() {
    let ms = |millis: f64| Some(Seconds::from_millis(millis));
    let sheet = [
        ("chat", ms(200.0), ms(50.0), None),
        ("rag", ms(300.0), ms(100.0), ms(3000.0)),
        ("agentic", None, None, ms(5000.0)),
        ("content generation", ms(600.0), ms(200.0), None),
        ("code generation", ms(500.0), ms(150.0), None),
        ("code completion", None, None, ms(2000.0)),
    ];
    for (case, ttft, itl, e2e) in sheet {
        let limits = named_slo(&format!("guidellm/{case}")).unwrap();
        let found = (limits.slo.ttft, limits.slo.tpot, limits.slo.itl, limits.slo.e2e, limits.percentile);
        assert_eq!(found, (ttft, None, itl, e2e, 0.99), "{case}");
    }
}
