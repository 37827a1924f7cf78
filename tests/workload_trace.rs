//! Readers of public traces: figures of excerpts, errors, and text that was tampered with.

use llm_roofline::units::{RequestsPerSecond, Seconds};
use llm_roofline::workload::{Arrivals, SharedPrefix, Trace, TraceError, TraceRequest};
use proptest::prelude::*;

const AZURE_CODE: &str = include_str!("data/traces/azure_2023_code.csv");
const AZURE_CONV: &str = include_str!("data/traces/azure_2023_conv.csv");
const MOONCAKE: &str = include_str!("data/traces/mooncake_conversation.jsonl");
const VIDUR: &str = include_str!("data/traces/vidur_arxiv_summarization.csv");
const SHAREGPT: &str = include_str!("data/traces/llmservingsim_sharegpt.csv");
const LMSYS: &str = include_str!("data/traces/apex_lmsys.csv");
// The first rows of BurstGPT_1.csv (HPMLL/BurstGPT, CC-BY 4.0), then a made-up one that failed.
const BURSTGPT: &str = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n\
    5,ChatGPT,472,18,490,Conversation log\n\
    45,ChatGPT,1087,230,1317,Conversation log\n\
    118,GPT-4,417,276,693,Conversation log\n\
    120,GPT-4,300,0,300,API log\n";

fn seconds(value: f64) -> Seconds {
    Seconds::from_seconds(value)
}

fn close(value: f64, expected: f64, relative: f64) {
    assert!((value - expected).abs() <= relative * expected.abs(), "{value}, expected {expected}");
}

/// Requests, span in s, rate in req/s, ca2, sums of n, m, n^2, m^2, n m.
fn check(trace: &Trace, requests: usize, [span, rate, variation]: [f64; 3], sums: [u64; 5]) {
    let statistics = trace.arrivals();
    assert_eq!((statistics.requests, trace.requests().len()), (requests, requests));
    close(statistics.span.as_seconds(), span, 1e-9);
    close(statistics.mean_rate.unwrap().as_requests_per_second(), rate, 1e-9);
    close(statistics.gap_variation.unwrap(), variation, 1e-6);
    let moments = trace.lengths().moments();
    let means = [moments.prompt, moments.output, moments.prompt_square, moments.output_square, moments.product];
    for (mean, sum) in means.into_iter().zip(sums) {
        close(mean, sum as f64 / requests as f64, 1e-12);
    }
    assert_eq!(trace.total_tokens(), (sums[0], sums[1], 0));
}

#[test]
fn excerpts_have_the_figures_that_python_counts() {
    let code = Trace::read_azure("azure_2023_code.csv", AZURE_CODE.as_bytes()).unwrap();
    check(&code, 40, [34.284439, 1.1375423118342407, 25.23093500795138], [105353, 902, 527913067, 49368, 1555493]);
    let conv = Trace::read_azure("azure_2023_conv.csv", AZURE_CONV.as_bytes()).unwrap();
    check(&conv, 40, [24.146296, 1.6151545562101948, 1.7395134563694556], [27985, 4430, 59851057, 639222, 2770182]);
    let mooncake = Trace::read_mooncake("mooncake_conversation.jsonl", MOONCAKE.as_bytes()).unwrap();
    check(
        &mooncake,
        40,
        [21.001, 1.8570544259797153, 4.5714290009309115],
        [104931, 11245, 396632445, 4802209, 25562312],
    );
    let sharegpt = Trace::read("llmservingsim_sharegpt.csv", SHAREGPT.as_bytes()).unwrap();
    check(
        &sharegpt,
        30,
        [2.370474096, 12.233839656352018, 1.0738560777158914],
        [31636, 20395, 54026602, 14155039, 21839082],
    );
    let lmsys = Trace::read("apex_lmsys.csv", LMSYS.as_bytes()).unwrap();
    check(&lmsys, 30, [50.244100534, 0.577182190382248, 0.6707332052323056], [2041, 4997, 592149, 1451841, 336317]);
}

#[test]
fn lengths_without_times_come_at_once() {
    let trace = Trace::read_vidur("vidur_arxiv_summarization.csv", VIDUR.as_bytes()).unwrap();
    assert_eq!((trace.requests().len(), trace.total_tokens()), (20, (59430, 3933, 0)));
    assert_eq!((trace.arrivals().mean_rate, trace.arrivals().gap_variation), (None, None));
    assert_eq!(*trace.workload().unwrap().arrivals(), Arrivals::all_at_once(20).unwrap());
    assert!(trace.at_rate(RequestsPerSecond::from_requests_per_second(1.0)).is_err());
    let timed = "arrived_at,num_prefill_tokens,num_decode_tokens\n0.5,374,44\n4.75,396.0,109\n";
    assert_eq!(Trace::read_vidur("t.csv", timed.as_bytes()).unwrap().requests()[1].arrival, seconds(4.75));
}

#[test]
fn failures_are_counted() {
    let trace = Trace::read_burstgpt("BurstGPT_1.csv", BURSTGPT.as_bytes()).unwrap();
    assert_eq!((trace.requests().len(), trace.left_out()), (3, 1));
    assert_eq!(trace.requests()[0].arrival, seconds(5.0));
    assert_eq!(trace.from_first().requests()[1].arrival, seconds(40.0));
    let only_failures = "Timestamp,Request tokens,Response tokens\n5,472,0\n6,0,7\n";
    let error = Trace::read_burstgpt("t.csv", only_failures.as_bytes()).unwrap_err();
    assert_eq!(error.to_string(), "t.csv: no requests with prompt and output (2 without)");
    // The later release has two more columns.
    let later = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,a,1.5,x,10,20,30,API log\n";
    assert_eq!(Trace::read_burstgpt("t.csv", later.as_bytes()).unwrap().total_tokens(), (10, 20, 0));
}

#[test]
fn dates_of_2024_carry_a_time_zone() {
    let text = "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,2162,5\n2024-05-10 00:00:01+00:00,2399,6\n";
    let trace = Trace::read_azure("AzureLLMInferenceTrace_code_1week.csv", text.as_bytes()).unwrap();
    close(trace.requests()[1].arrival.as_seconds(), 0.99007, 1e-12);
}

#[test]
fn rows_out_of_order_are_sorted() {
    let text = "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:05,1,1\n2024-05-10 00:00:00,2,2\n2024-05-10 00:00:07,3,3\n";
    let trace = Trace::read_azure("t.csv", text.as_bytes()).unwrap();
    let times: Vec<_> =
        trace.requests().iter().map(|request| (request.arrival.as_seconds(), request.prompt_tokens)).collect();
    assert_eq!(times, [(0.0, 2), (5.0, 1), (7.0, 3)]);
}

#[test]
fn a_prefix_cache_finds_what_was_there() {
    let trace = Trace::read_mooncake("mooncake_conversation.jsonl", MOONCAKE.as_bytes()).unwrap();
    // Blocks reused and tokens reused with a cache of infinitely many, 80 and 40 blocks: OrderedDict in Python.
    for (capacity, blocks, tokens) in
        [(None, 52, 26_624), (Some(80), 44, 22_528), (Some(40), 39, 19_968), (Some(0), 0, 0)]
    {
        let reuse = trace.prefix_reuse(capacity);
        assert_eq!((reuse.blocks, reuse.reused_blocks, reuse.reused_tokens), (224, blocks, tokens), "{capacity:?}");
        let cached = trace.with_prefix_cache(capacity);
        assert_eq!(cached.total_tokens(), (104_931, 11_245, tokens));
    }
    close(trace.prefix_reuse(None).block_hit_rate(), 52.0 / 224.0, 1e-15);
    let workload = trace.with_prefix_cache(None).workload().unwrap();
    assert_eq!(workload.prefix().copied(), SharedPrefix::share(26_624.0 / 104_931.0).ok());
    // The whole prompt is there, but its last token is computed.
    let text = "{\"timestamp\": 0, \"input_length\": 512, \"output_length\": 1, \"hash_ids\": [7]}\n".repeat(2);
    assert_eq!(Trace::read_mooncake("t", text.as_bytes()).unwrap().prefix_reuse(None).reused_tokens, 511);
    assert_eq!(Trace::read_azure("c", AZURE_CODE.as_bytes()).unwrap().prefix_reuse(None).block_hit_rate(), 0.0);
}

#[test]
fn windows_rates_and_workloads() {
    let trace = Trace::read_azure("azure_2023_conv.csv", AZURE_CONV.as_bytes()).unwrap();
    let window = trace.window(seconds(4.0), seconds(10.0)).unwrap();
    let inside = trace.requests().iter().filter(|request| (4.0..10.0).contains(&request.arrival.as_seconds()));
    assert_eq!(window.requests().len(), inside.count());
    close(window.requests()[0].arrival.as_seconds(), 4.314579 - 4.0, 1e-6); // 18:15:50.9951690 - 18:15:46.6805900
    assert!(trace.window(seconds(1e6), seconds(2e6)).is_none() && trace.first(0).is_none());
    assert_eq!(trace.first(3).unwrap().requests().len(), 3);
    let faster = trace.at_rate(RequestsPerSecond::from_requests_per_second(8.0)).unwrap();
    close(faster.arrivals().mean_rate.unwrap().as_requests_per_second(), 8.0, 1e-12);
    close(faster.arrivals().gap_variation.unwrap(), 1.7395134563694556, 1e-6);
    assert!(trace.faster(0.0).is_err());
    let workload = trace.workload().unwrap();
    close(workload.arrivals().gap_variation().unwrap(), 1.7395134563694556, 1e-6);
    assert_eq!(workload.lengths(), trace.lengths());
    // 40 requests in five intervals of 5 s.
    let schedule = trace.rate_schedule(seconds(5.0)).unwrap();
    assert_eq!((schedule.sections().len(), schedule.requests().round()), (5, 40.0));
    assert!(trace.rate_schedule(seconds(0.0)).is_err() && trace.count_dispersion(seconds(20.0)).is_err());
}

#[test]
fn counts_of_regular_arrivals_do_not_vary() {
    let at = |time: f64| TraceRequest {
        arrival: seconds(time),
        prompt_tokens: 1,
        output_tokens: 1,
        ..TraceRequest::default()
    };
    let regular = Trace::new((0..100).map(|index| at(f64::from(index))).collect()).unwrap();
    assert_eq!(regular.count_dispersion(seconds(10.0)).unwrap(), 0.0);
    // Ten requests in every other interval: mean 5, variance 25.
    let bursts = Trace::new((0..100).map(|index| at(f64::from(index / 10 * 20))).chain([at(200.0)]).collect()).unwrap();
    assert_eq!(bursts.count_dispersion(seconds(10.0)).unwrap(), 5.0);
}

#[test]
fn errors_say_where_and_what() {
    let azure = |rows: &str| {
        Trace::read_azure("a.csv", format!("TIMESTAMP,ContextTokens,GeneratedTokens\n{rows}").as_bytes()).unwrap_err()
    };
    let error = azure("2023-11-16 18:17:03,10,20\n2023-11-16 18:17:04,10,-3\n");
    assert_eq!(
        error.to_string(),
        "a.csv, line 3, column `GeneratedTokens`: found `-3`, expected a whole number of tokens, at most 2^40"
    );
    let error = azure("yesterday,10,20\n");
    assert!(
        matches!(&error, TraceError::Field { line: 2, column, found, .. } if column == "TIMESTAMP" && found == "yesterday"),
        "{error}"
    );
    assert!(matches!(azure("2023-11-16 18:17:03,10\n"), TraceError::Malformed { line: Some(2), .. }));
    assert!(matches!(azure(""), TraceError::Empty { left_out: 0, .. }));
    assert!(matches!(azure("-5,10,20\n"), TraceError::Field { line: 2, .. }));
    assert!(matches!(azure("NaN,10,20\n"), TraceError::Field { line: 2, .. }));
    let error = Trace::read_burstgpt("b.csv", "Timestamp,Request token,Response tokens\n".as_bytes()).unwrap_err();
    assert_eq!(error.to_string(), "b.csv, line 1: no column `Request tokens` (is `Request token` meant?)");
    let error = Trace::read_burstgpt("b.csv", "a,b\n1,2\n".as_bytes()).unwrap_err();
    assert_eq!(error.to_string(), "b.csv, line 1: no column `Timestamp` among a, b");
    let error =
        Trace::read("c.csv", "arrival_at,num_prefill_tokens,num_decode_tokens\n1,2,3\n".as_bytes()).unwrap_err();
    assert!(
        matches!(&error, TraceError::MissingColumn { nearest: Some(nearest), .. } if nearest == "arrival_at"),
        "{error}"
    );
    let error =
        Trace::read_mooncake("m.jsonl", "{\"timestamp\": 0, \"input_length\": 5, \"output_length\": \"x\"}".as_bytes())
            .unwrap_err();
    assert!(error.to_string().starts_with("m.jsonl, line 1, column `output_length`: found `x`"), "{error}");
    let error = Trace::read_mooncake("m.jsonl", "\n[]\n".as_bytes()).unwrap_err();
    assert!(matches!(error, TraceError::Malformed { line: Some(2), .. }), "{error}");
    let hashes = "{\"timestamp\": 0, \"input_length\": 5, \"output_length\": 1, \"hash_ids\": [-1]}";
    assert!(matches!(Trace::read_mooncake("m", hashes.as_bytes()), Err(TraceError::Field { .. })));
}

#[test]
fn json_and_csv_are_told_apart() {
    let lines = "\u{feff}\n {\"arrival_time_ns\": 46926808, \"input_toks\": 2358, \"output_toks\": 531}\n";
    let trace = Trace::read("l.jsonl", lines.as_bytes()).unwrap();
    assert_eq!((trace.requests()[0].arrival, trace.total_tokens()), (seconds(0.046926808), (2358, 531, 0)));
    assert_eq!(Trace::read("m", MOONCAKE.as_bytes()), Trace::read_mooncake("m", MOONCAKE.as_bytes()));
    let marked = format!("\u{feff}{AZURE_CODE}");
    assert_eq!(Trace::read("a", marked.as_bytes()).unwrap(), Trace::read_azure("a", AZURE_CODE.as_bytes()).unwrap());
    assert!(Trace::read("empty", "".as_bytes()).is_err());
}

proptest! {
    /// Tampered text gives an error or a trace, and no trace with impossible requests.
    #[test]
    fn readers_never_panic(
        which in 0..5_usize, changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3_u8), 0..12)
    ) {
        let mut text = [AZURE_CODE, MOONCAKE, VIDUR, SHAREGPT, BURSTGPT][which].as_bytes().to_vec();
        for (index, byte, kind) in changes {
            let at = index.index(text.len());
            match kind {
                0 => text[at] = byte,
                1 => { text.remove(at); }
                _ => text.insert(at, b"0123456789-:., \n\"{}[]eEnN"[usize::from(byte) % 25]),
            }
        }
        let readers = [Trace::read_azure, Trace::read_mooncake, Trace::read_vidur, Trace::read_burstgpt];
        let read = readers.iter().map(|reader| reader("file", text.as_slice())).chain([Trace::read("file", text.as_slice())]);
        for trace in read.flatten() {
            prop_assert!(trace.requests().iter().all(|request| request.prompt_tokens > 0 && request.output_tokens > 0));
            prop_assert!(trace.requests().iter().all(|request| request.arrival.as_seconds() >= 0.0 && request.arrival.is_finite()));
            prop_assert!(trace.arrivals().gap_variation.is_none_or(f64::is_finite));
            prop_assert!(trace.workload().is_ok() || trace.arrivals().mean_rate.is_some());
        }
    }
}
