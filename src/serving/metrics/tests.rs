//! Laws of the metrics, whatever the requests; percentiles against the definitions of numpy and LoadGen.

use super::*;
use crate::units::Seconds;
use proptest::prelude::*;

const fn ms(millis: f64) -> Seconds {
    Seconds::from_millis(millis)
}

fn second() -> Seconds {
    Seconds::from_seconds(1.0)
}

/// A request that starts at 0, with so many tokens after the first at a gap.
fn request(ttft: f64, gap: f64, tokens: u64) -> RequestTimes {
    RequestTimes::new(ms(0.0), ms(ttft), ms(ttft + gap * (tokens - 1) as f64), tokens)
}

fn requests(tokens: std::ops::Range<u64>) -> impl Strategy<Value = Vec<RequestTimes>> {
    let one = (0.0..1e4, 0.0..50.0, 0.0..500.0, 0.0..100.0, tokens).prop_map(|(arrival, held, ttft, gap, tokens)| {
        let (arrival, sent) = (ms(arrival), ms(arrival + held));
        let first = sent + ms(ttft);
        RequestTimes::new(sent, first, first + ms(gap) * (tokens - 1) as f64, tokens).with_arrival(arrival)
    });
    prop::collection::vec(one, 1..40)
}

fn any_slo() -> impl Strategy<Value = Slo> {
    let limit = |most: f64| prop::option::of((0.0..most).prop_map(ms));
    (limit(600.0), limit(120.0), limit(120.0), limit(4000.0)).prop_map(|(ttft, tpot, itl, e2e)| {
        let mut slo = Slo::default();
        (slo.ttft, slo.tpot, slo.itl, slo.e2e) = (ttft, tpot, itl, e2e);
        slo
    })
}

fn any_tool() -> impl Strategy<Value = Convention> {
    prop::sample::select(Convention::ALL.to_vec())
}

fn any_rule() -> impl Strategy<Value = PercentileRule> {
    use PercentileRule::{Cumulative, Linear, OrderStatistic};
    prop::sample::select(vec![Linear, OrderStatistic, Cumulative])
}

fn near(a: Seconds, b: Seconds) -> bool {
    (a - b).as_seconds().abs() <= 1e-9 * (1e-3 + b.as_seconds().abs())
}

fn near_all(a: Percentiles, b: Percentiles) -> bool {
    a.named().iter().zip(b.named()).all(|((_, a), (_, b))| near(*a, b))
}

proptest! {
    #[test]
    fn meeting_all_limits_is_rarer_than_meeting_one(requests in requests(2..50), slo in any_slo(), tool in any_tool()) {
        let report = summarise(&requests, tool, &slo, second()).unwrap();
        let good = goodput(&requests, tool, &slo, second()).unwrap().unwrap();
        let attained = [Metric::Ttft, Metric::Tpot, Metric::Itl, Metric::E2e].map(|metric| report.attainment.of(metric));
        for share in attained.into_iter().flatten() {
            prop_assert!(good.share <= share);
        }
        let limits = [slo.ttft, slo.tpot, slo.itl, slo.e2e].into_iter().flatten().count();
        if limits == attained.into_iter().flatten().count() {
            // Of the requests that fail, each fails at least one limit.
            let failing: f64 = attained.into_iter().flatten().map(|share| 1.0 - share).sum();
            prop_assert!(good.share >= 1.0 - failing - 1e-9);
        } else {
            prop_assert_eq!(good.share, 0.0); // what the tool does not measure, it cannot show
        }
        prop_assert!((good.rate.as_requests_per_second() - good.share * requests.len() as f64).abs() < 1e-9);
    }

    #[test]
    fn percentiles_are_ordered_samples(millis in prop::collection::vec(0.0..1e4, 1..300), rule in any_rule()) {
        let found = Percentiles::of(millis.iter().copied().map(ms), rule).unwrap();
        let mut sorted = millis.clone();
        sorted.sort_by(f64::total_cmp);
        prop_assert!(found.p50 <= found.p90 && found.p90 <= found.p95 && found.p95 <= found.p99);
        let (least, most) = (ms(sorted[0]), ms(sorted[sorted.len() - 1]));
        prop_assert!(found.named().iter().all(|(_, value)| near(*value, value.max(least).min(most))));
        // The definitions, written down for a sorted list.
        let n = sorted.len();
        for (p, value) in [(0.5, found.p50), (0.9, found.p90), (0.95, found.p95), (0.99, found.p99)] {
            let expected = match rule {
                PercentileRule::Linear => {
                    let at = p * (n - 1) as f64;
                    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
                    low + (high - low) * at.fract()
                }
                PercentileRule::OrderStatistic => sorted[((p * n as f64) as usize).min(n - 1)],
                PercentileRule::Cumulative => {
                    let share = |at: usize| (at + 1) as f64 / n as f64;
                    sorted[(0..n).find(|&at| share(at) >= p - 1e-12).unwrap()]
                }
            };
            prop_assert!(near(value, ms(expected)), "{p} {value:?} {expected}");
        }
    }

    #[test]
    fn weights_are_repetitions(
        samples in prop::collection::vec((0.0..1e3, 0_u64..20), 1..40),
        rule in any_rule(),
    ) {
        let weighted = Percentiles::weighted(samples.iter().map(|&(value, count)| (ms(value), count)), rule);
        let repeated = samples.iter().flat_map(|&(value, count)| (0..count).map(move |_| ms(value)));
        match (weighted, Percentiles::of(repeated, rule)) {
            (Ok(weighted), Ok(repeated)) => prop_assert!(near_all(weighted, repeated)),
            (weighted, repeated) => prop_assert_eq!(weighted, repeated),
        }
    }

    #[test]
    fn answers_of_equal_length_weigh_the_same(requests in requests(2..3), copies in 1_u64..60) {
        // All have 2 tokens; stretched to one common other length, their gaps stay.
        let stretch = |request: &RequestTimes| {
            let (first, gap) = (request.first_token, request.last_token - request.first_token);
            RequestTimes::new(request.sent, first, first + gap * copies as f64, copies + 1)
        };
        let requests: Vec<_> = requests.iter().map(stretch).collect();
        let by_request = summarise(&requests, Convention::AiPerf, &Slo::default(), second()).unwrap().itl.unwrap();
        let by_token = summarise(&requests, Convention::GuideLlm, &Slo::default(), second()).unwrap().itl.unwrap();
        let pooled = summarise(&requests, Convention::Vllm, &Slo::default(), second()).unwrap();
        prop_assert!(near(by_request.mean, by_token.mean));
        prop_assert!(near(by_request.mean, pooled.itl.unwrap().mean));
        prop_assert!(near_all(by_request, pooled.tpot.unwrap()));
    }

    #[test]
    fn the_identity_holds_for_every_tool(requests in requests(2..200), tool in any_tool()) {
        for request in &requests {
            let (Some(ttft), Some(e2e), Some(tpot)) = (tool.ttft(request), tool.e2e(request), request.tpot()) else {
                prop_assert_eq!(tool, Convention::LlamaBench);
                continue;
            };
            prop_assert!(near(ttft + tpot * (request.output_tokens - 1) as f64, e2e));
        }
    }

    #[test]
    fn nothing_is_infinite(requests in requests(1..4), tool in any_tool(), slo in any_slo()) {
        match LoadSummary::measured(requests.len() as u64, &requests, tool, &slo, second(), 1) {
            Ok(summary) => {
                let found = [summary.ttft, summary.tpot, summary.itl, summary.e2e].into_iter().flatten();
                prop_assert!(found.flat_map(|latency| latency.named()).all(|(_, value)| value.is_finite()));
                let json: serde_json::Value = serde_json::from_str(&summary.to_json()).unwrap();
                prop_assert_eq!(json.as_object().unwrap().len(), 14);
            }
            Err(error) => {
                let refused = matches!(error, MetricsError::SingleToken { convention: Convention::MlPerf, .. });
                prop_assert!(refused, "{}", error);
            }
        }
    }
}

// numpy.percentile([15, 20, 35, 40, 50], [50, 90, 95, 99]) is [35, 46, 48, 49.6] by its documented rule, position p (n - 1).
#[test]
fn linear_percentiles_are_those_of_numpy() {
    let found = Percentiles::of([50.0, 15.0, 40.0, 20.0, 35.0].map(ms), PercentileRule::Linear).unwrap();
    let expected = Percentiles { mean: ms(32.0), p50: ms(35.0), p90: ms(46.0), p95: ms(48.0), p99: ms(49.6) };
    assert!(near_all(found, expected), "{found:?}");
}

#[test]
fn counts_beyond_counting_stay_within_the_samples() {
    let found = Percentiles::weighted([(ms(1.0), u64::MAX), (ms(2.0), u64::MAX)], PercentileRule::Linear).unwrap();
    assert_eq!((found.mean, found.p50), (ms(1.5), ms(1.0)));
    assert!(found.p99 <= ms(2.0));
}

#[test]
fn what_answers_of_one_token_count_as() {
    // One answer of one token beside one of 11 at 10 ms.
    let requests = [request(200.0, 0.0, 1), request(200.0, 10.0, 11)];
    let slo = Slo::default().with_tpot(ms(20.0));
    let of = |tool| summarise(&requests, tool, &slo, second());
    let mean = |found: Option<Percentiles>| found.unwrap().mean;

    // vllm/benchmarks/serve.py: left out of `tpots`, 0 in `all_tpots`, so it is good.
    let vllm = of(Convention::Vllm).unwrap();
    assert!(near(mean(vllm.tpot), ms(10.0)));
    assert_eq!(vllm.goodput.unwrap().share, 1.0);
    // inter_token_latency_metric.py raises NoMetricValue, good_request_count_metric.py then says no.
    let aiperf = of(Convention::AiPerf).unwrap();
    assert!(near(mean(aiperf.itl), ms(10.0)));
    assert_eq!((aiperf.goodput.unwrap().share, aiperf.attainment.tpot), (0.5, Some(0.5)));
    // goodput.py: undetermined, left out of the share; the rate counts one good request.
    let guidellm = of(Convention::GuideLlm).unwrap().goodput.unwrap();
    assert_eq!((guidellm.share, guidellm.rate.as_requests_per_second()), (1.0, 1.0));
    // structs.py: tpot 0 if there is one token, and the mean is over both.
    assert!(near(mean(of(Convention::DistServe).unwrap().tpot), ms(5.0)));
    // logging.cc: an error.
    let refused = MetricsError::SingleToken { index: 0, convention: Convention::MlPerf };
    assert_eq!(of(Convention::MlPerf), Err(refused));
}

/// GuideLLM judges no request that lacks a limited metric, "even if another objective is already breached" (goodput.py), so that all limits
/// together may be met by a larger share than one of them.
#[test]
fn guidellm_leaves_out_what_it_cannot_judge() {
    let requests = [request(900.0, 0.0, 1), request(200.0, 10.0, 11)];
    let slo = Slo::ttft_tpot(ms(450.0), ms(20.0));
    let report = summarise(&requests, Convention::GuideLlm, &slo, second()).unwrap();
    assert_eq!((report.goodput.unwrap().share, report.attainment.ttft), (1.0, Some(0.5)));
    let nothing = summarise(&requests[..1], Convention::GuideLlm, &slo, second()).unwrap();
    assert_eq!(nothing.goodput, None);
}

// vllm/benchmarks/serve.py: good if `slo >= metric` for all of them. The times are binary fractions of a second, so that they are exact.
#[test]
fn a_request_at_its_limits_is_good() {
    let seconds = Seconds::from_seconds;
    let times = [RequestTimes::new(seconds(0.0), seconds(0.25), seconds(0.75), 9)];
    let slo = Slo::ttft_tpot(seconds(0.25), seconds(0.0625)).with_itl(seconds(0.0625)).with_e2e(seconds(0.75));
    let share = |slo: Slo| goodput(&times, Convention::Vllm, &slo, second()).unwrap().unwrap().share;
    assert_eq!(share(slo), 1.0);
    let less = |limit: f64| seconds(limit - 1e-9);
    let tighter =
        [slo.with_ttft(less(0.25)), slo.with_tpot(less(0.0625)), slo.with_itl(less(0.0625)), slo.with_e2e(less(0.75))];
    assert_eq!(tighter.map(share), [0.0; 4]);
}

#[test]
fn mlperf_tests_metrics_one_by_one() {
    // 1 % of 200 requests are late for the first token, another 1 % too slow: each share is met, both together are not.
    let mut requests = vec![request(300.0, 30.0, 101); 200];
    requests[0] = request(500.0, 30.0, 101);
    requests[1] = request(300.0, 50.0, 101);
    let limits = named_slo("mlperf/llama2-70b/interactive").unwrap();
    let report = summarise(&requests, Convention::MlPerf, &limits.slo, second()).unwrap();
    assert_eq!((report.attainment.ttft, report.attainment.tpot), (Some(0.995), Some(0.995)));
    assert_eq!(report.goodput, None);
    assert!(
        (goodput(&requests, Convention::MlPerf, &limits.slo, second()).unwrap().unwrap().share - 0.99).abs() < 1e-12
    );
    assert_eq!(limits.breaches(&report), Ok(vec![]));

    // LoadGen reads sorted[floor(0.99 * 200)] = sorted[198]: two late ones are enough to fail.
    requests[2] = request(460.0, 30.0, 101);
    let report = summarise(&requests, Convention::MlPerf, &limits.slo, second()).unwrap();
    let breaches = limits.breaches(&report).unwrap();
    assert_eq!(breaches.len(), 1);
    assert_eq!(breaches[0].to_string(), "TTFT is 460 ms, limit 450 ms");
    // A tool that reports no TPOT cannot show that the limit on it was met.
    let aiperf = summarise(&requests, Convention::AiPerf, &limits.slo, second()).unwrap();
    assert!(limits.breaches(&aiperf).unwrap().iter().any(|breach| breach.found.is_none()));
}

#[test]
fn waiting_at_the_client_counts_for_mlperf_only() {
    let held = RequestTimes::new(ms(100.0), ms(300.0), ms(400.0), 11).with_arrival(ms(0.0));
    for tool in Convention::ALL {
        let expected = match tool {
            Convention::MlPerf => Some(ms(300.0)),
            Convention::LlamaBench => None,
            _ => Some(ms(200.0)),
        };
        assert_eq!(tool.ttft(&held).is_some(), expected.is_some(), "{tool}");
        assert!(tool.ttft(&held).is_none_or(|ttft| near(ttft, expected.unwrap())), "{tool}");
    }
}

#[test]
fn gaps_of_pieces_are_pooled() {
    // 3 tokens at once stall the stream; one gap of 100 ms, four of 10.
    let gaps = Chunks::from_gaps([10.0, 10.0, 100.0, 10.0, 10.0].map(ms));
    assert_eq!(gaps.count(), 6);
    let stalled = RequestTimes::new(ms(0.0), ms(50.0), ms(190.0), 8).with_chunks(gaps);
    let itl = summarise(&[stalled], Convention::Vllm, &Slo::default(), second()).unwrap().itl.unwrap();
    assert!(near(itl.mean, ms(28.0)) && near(itl.p50, ms(10.0)) && near(itl.p99, ms(96.4)), "{itl:?}");
}

// llama-bench.cpp, `avg` and `stdev`: 90 and 110 tok/s are 100 and sqrt(200) = 14.14.
#[test]
fn llama_bench_has_mean_and_deviation() {
    let runs = [90.0, 110.0].map(|rate| request(10.0, 1000.0 / rate, 101));
    let report = summarise(&runs, Convention::LlamaBench, &Slo::default(), second()).unwrap();
    let rate = report.stream_tps.unwrap();
    assert_eq!((rate.mean.to_string(), rate.deviation.unwrap().to_string()), ("100 tok/s".into(), "14.1 tok/s".into()));
    assert_eq!((report.ttft, report.tpot, report.itl, report.e2e, report.goodput), (None, None, None, None, None));
}

#[test]
fn times_that_are_none_are_refused() {
    let of = |request: RequestTimes| summarise(&[request], Convention::Vllm, &Slo::default(), second()).unwrap_err();
    let backwards = of(RequestTimes::new(ms(10.0), ms(5.0), ms(20.0), 2));
    assert_eq!(backwards.to_string(), "request 0: the first token at 0.005 s comes before the sending at 0.01 s");
    assert!(matches!(of(request(1.0, 1.0, 2).with_arrival(ms(1.0))), MetricsError::OutOfOrder { .. }));
    assert!(matches!(of(request(f64::NAN, 1.0, 2)), MetricsError::NotADuration { .. }));
    assert!(matches!(of(request(1.0, f64::INFINITY, 2)), MetricsError::NotADuration { .. }));
    assert!(matches!(of(RequestTimes::new(ms(0.0), ms(1.0), ms(1.0), 0)), MetricsError::NoTokens { index: 0 }));
    assert!(matches!(of(RequestTimes::new(ms(0.0), ms(1.0), ms(2.0), 1)), MetricsError::OneTokenTwice { .. }));
    assert!(matches!(of(request(1.0, 1.0, 2).with_chunks(Chunks::Even(3))), MetricsError::Chunks { chunks: 3, .. }));
    assert!(matches!(of(request(1.0, 1.0, 2).with_chunks(Chunks::Even(0))), MetricsError::Chunks { chunks: 0, .. }));
    let gaps = Chunks::from_gaps([ms(2.0)]);
    assert!(matches!(of(request(1.0, 1.0, 2).with_chunks(gaps)), MetricsError::GapsDoNotAddUp { .. }));
    let negative = Chunks::from_gaps([ms(-1.0), ms(3.0)]);
    assert!(matches!(of(request(1.0, 1.0, 3).with_chunks(negative)), MetricsError::NotADuration { .. }));
}

#[test]
fn durations_that_are_none_are_refused() {
    for seconds in [0.0, -1.0, f64::NAN, f64::INFINITY, 5e-324] {
        let duration = Seconds::from_seconds(seconds);
        let found = summarise(&[request(1.0, 1.0, 100)], Convention::Vllm, &Slo::default(), duration);
        assert!(matches!(found, Err(MetricsError::NoDuration { .. })), "{seconds}");
    }
    assert_eq!(Percentiles::of([], PercentileRule::Linear), Err(MetricsError::NoSamples));
    assert!(Percentiles::of([ms(f64::MAX), ms(f64::INFINITY)], PercentileRule::Linear).is_err());
    let huge = Seconds::from_seconds(f64::MAX);
    assert!(Percentiles::of([huge, huge], PercentileRule::Linear).is_err());
    assert!(Percentiles::from_quantiles(ms(1.0), |_| ms(f64::NAN)).is_err());
}

#[test]
fn no_requests_are_an_empty_report() {
    let report = summarise(&[], Convention::MlPerf, &Slo::ttft_tpot(ms(1.0), ms(1.0)), second()).unwrap();
    assert_eq!((report.ttft, report.tpot, report.attainment), (None, None, Attainment::default()));
    let none = LoadSummary::measured(3, &[], Convention::Vllm, &Slo::default(), second(), 1).unwrap();
    assert_eq!(none.goodput, Some(Goodput::default()));
    let more = LoadSummary::measured(0, &[request(1.0, 1.0, 2)], Convention::Vllm, &Slo::default(), second(), 1);
    assert_eq!(more, Err(MetricsError::MoreThanSent { completed: 1, requests: 0 }));
    let nowhere = LoadSummary::measured(1, &[request(1.0, 1.0, 2)], Convention::Vllm, &Slo::default(), second(), 0);
    assert_eq!(nowhere, Err(MetricsError::NoDevices));
}

#[test]
fn the_summary_as_json_has_these_keys_in_this_order() {
    let mut summary =
        LoadSummary::measured(1, &[request(200.0, 10.0, 100)], Convention::Vllm, &Slo::default(), second(), 2).unwrap();
    summary.rho = Some(f64::NAN);
    summary.mean_batch = Some(1.0);
    assert_eq!(
        summary.to_json(),
        concat!(
            r#"{"requests":1,"completed":1,"stable":true,"rho":null,"#,
            r#""ttft_ms":{"mean":200.0,"p50":200.0,"p90":200.0,"p95":200.0,"p99":200.0},"#,
            r#""tpot_ms":{"mean":10.0,"p50":10.0,"p90":10.0,"p95":10.0,"p99":10.0},"#,
            r#""itl_ms":{"mean":10.0,"p50":10.0,"p90":10.0,"p95":10.0,"p99":10.0},"#,
            r#""e2e_ms":{"mean":1190.0,"p50":1190.0,"p90":1190.0,"p95":1190.0,"p99":1190.0},"#,
            r#""output_tps_total":100.0,"output_tps_per_device":50.0,"goodput_rate":1.0,"goodput_share":1.0,"#,
            r#""mean_batch":1.0,"kv_utilization":null}"#
        )
    );
}

#[test]
fn percentiles_are_read_and_written_in_milliseconds() {
    let found = Percentiles::constant(ms(12.5));
    let json = serde_json::to_string(&found).unwrap();
    assert_eq!(json, r#"{"mean":12.5,"p50":12.5,"p90":12.5,"p95":12.5,"p99":12.5}"#);
    assert_eq!(serde_json::from_str::<Percentiles>(&json).unwrap(), found);
    assert!(serde_json::from_str::<Percentiles>(&json.replace("12.5", "-1.0")).is_err());
    assert_eq!((found.at(0.95), found.at(0.5), found.at(0.42)), (Some(ms(12.5)), Some(ms(12.5)), None));
}

#[test]
fn the_summary_as_a_table() {
    let mut summary =
        LoadSummary::measured(2, &[request(200.0, 10.0, 100)], Convention::AiPerf, &Slo::default(), second(), 2)
            .unwrap();
    summary.rho = Some(0.5);
    summary.mean_batch = Some(1.25);
    let expected = "\
stable, load 0.50 of capacity, 1 of 2 requests completed
            mean       p50       p90       p95       p99
TTFT      200 ms    200 ms    200 ms    200 ms    200 ms
TPOT           -         -         -         -         -
ITL      10.0 ms   10.0 ms   10.0 ms   10.0 ms   10.0 ms
E2E       1.19 s    1.19 s    1.19 s    1.19 s    1.19 s
output 100 tok/s in total, 50.0 tok/s per device
goodput 1.00 req/s, 50.0 % of requests
mean batch 1.2, cache - full";
    assert_eq!(summary.to_string(), expected);
    assert!(LoadSummary::default().to_string().starts_with("UNSTABLE"));
}

#[test]
fn names_are_forgiving_and_mistakes_are_helped() {
    for tool in Convention::ALL {
        assert_eq!(Convention::named(&tool.name().to_uppercase()), Ok(tool));
    }
    let unknown = Convention::named("guidelm").unwrap_err().to_string();
    assert!(unknown.contains("did you mean `GuideLLM`?"), "{unknown}");
    assert_eq!(named_slo("MLPerf/Llama2 70B/server").unwrap().name, "mlperf/llama2-70b/server");
    assert!(matches!(response_limit("nothing like it"), Err(MetricsError::UnknownName { nearest: None, .. })));
    assert!(queries_needed(1.0, 0.99, 0.01).is_err() && queries_needed(0.9, f64::NAN, 0.01).is_err());
}

#[test]
fn every_published_limit_has_a_source_and_a_name_of_its_own() {
    let slos = named_slos().unwrap();
    let mut names: Vec<&str> = slos.iter().map(|slo| slo.name.as_str()).collect();
    names.extend(response_limits().unwrap().iter().map(|limit| limit.name.as_str()));
    assert!(slos.iter().all(|slo| !slo.slo.is_empty() && !slo.sources.is_empty()));
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}
