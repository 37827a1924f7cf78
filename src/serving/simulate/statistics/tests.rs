//! Whole runs: queues with one server, and made-up series.

use super::batches::MOST_BATCHES;
use super::*;
use crate::units::Seconds;
use crate::workload::Slo;

/// Knuth's MMIX generator.
struct Random(u64);

impl Random {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * self.uniform().ln()
    }
}

fn settings() -> RecorderSettings {
    RecorderSettings { open: true, devices: 1, kv_blocks: 1, ..RecorderSettings::default() }
}

/// A queue with one server whose answers take a second in the mean, at a load of `rho`; the end of the run is that of the last answer.
fn queue(recorder: &mut Recorder, rho: f64, requests: u64, seed: u64) -> Totals {
    let mut random = Random(seed);
    let (mut arrival, mut free) = (0.0, 0.0_f64);
    let mut running = std::collections::VecDeque::new();
    let mut totals = Totals::default();
    for id in 0..requests {
        arrival += random.exponential(1.0 / rho);
        while running.front().is_some_and(|&end| end <= arrival) {
            running.pop_front();
            totals.completed += 1;
            totals.output_tokens += 10;
        }
        if recorder.needs_mark(id) {
            recorder.mark(id, Totals { time_s: arrival, available_s: arrival, ..totals });
        }
        let start = free.max(arrival);
        free = start + random.exponential(1.0);
        running.push_back(free);
        totals.arrived += 1;
        let seconds = Seconds::from_seconds;
        recorder.completed(&CompletedRequest {
            id,
            output_tokens: 10,
            arrival: seconds(arrival),
            admitted: seconds(start),
            first_token: seconds(start),
            last_token: seconds(free),
            ..CompletedRequest::default()
        });
    }
    totals.completed = totals.arrived;
    totals.output_tokens = 10 * totals.arrived;
    Totals { time_s: free, available_s: free, ..totals }
}

fn queued(settings: RecorderSettings, rho: f64, requests: u64, seed: u64) -> Statistics {
    let mut recorder = Recorder::new(settings);
    let end = queue(&mut recorder, rho, requests, seed);
    recorder.finish(end)
}

#[test]
fn stable_queues_are_not_growing_and_overloaded_ones_are() {
    for seed in 1..=20 {
        for rho in [0.5, 0.8, 0.95] {
            for requests in [2000, 20_000] {
                let found = queued(settings(), rho, requests, seed).backlog;
                assert!(!matches!(found, Backlog::Growing { .. }), "{rho} {requests} {seed}: {found:?}");
            }
        }
        assert_eq!(queued(settings(), 0.5, 20_000, seed).backlog, Backlog::Steady);
        for rho in [1.1, 1.5] {
            match queued(settings(), rho, 20_000, seed).backlog {
                Backlog::Growing { requests_per_second } => {
                    assert!((requests_per_second / (rho - 1.0) - 1.0).abs() < 0.5, "{requests_per_second}");
                }
                other => panic!("{rho} {seed}: {other:?}"),
            }
        }
        assert!(matches!(queued(settings(), 1.5, 1000, seed).backlog, Backlog::Growing { .. }), "{seed}");
        assert!(!matches!(queued(settings(), 0.8, 150, seed).backlog, Backlog::Growing { .. }), "{seed}");
    }
}

#[test]
fn closed_loops_are_steady_by_construction() {
    let closed = RecorderSettings { open: false, ..settings() };
    assert_eq!(queued(closed, 1.5, 2000, 1).backlog, Backlog::Steady);
}

/// Mean and 99th percentile of the time in the system of an M/M/1 queue: exponential with mean `1 / (1 - rho)`.
#[test]
fn intervals_of_a_queue_cover_what_theory_says() {
    let rho: f64 = 0.7;
    let mean = 1.0 / (1.0 - rho);
    let p99 = mean * 100.0_f64.ln();
    let covers = |of: Estimate<Seconds>, truth: f64| {
        (of.low().unwrap().as_seconds()..=of.high().unwrap().as_seconds()).contains(&truth)
    };
    let (mut means, mut p99s) = (0, 0);
    for seed in 1..=200 {
        let e2e = queued(settings(), rho, 20_000, seed * 7919).e2e.unwrap();
        means += u32::from(covers(e2e.mean, mean));
        p99s += u32::from(covers(e2e.p99, p99));
    }
    assert!(means >= 170, "{means} of 200 means");
    assert!(p99s >= 160, "{p99s} of 200 percentiles");
}

#[test]
fn nothing_is_lost_in_batches_and_memory_stays_bounded() {
    let keep = RecorderSettings { warm_up: WarmUp::None, keep_requests: true, open: false, ..settings() };
    let mut recorder = Recorder::new(keep);
    let end = queue(&mut recorder, 0.9, 30_000, 3);
    let batches = recorder.batches.all();
    assert!((MOST_BATCHES / 2..=MOST_BATCHES).contains(&batches.len()), "{}", batches.len());
    assert!(batches.iter().all(|batch| batch.e2e.held_bins() < 20 * 128));
    let found = recorder.finish(end);
    assert_eq!((found.counted, found.left_out_at_start, found.left_out_at_end), (30_000, 0, 0));
    let e2e = found.e2e.unwrap();
    let requests = found.requests.unwrap();
    assert_eq!((e2e.histogram.count(), requests.len()), (30_000, 30_000));
    let mean = requests.iter().map(|request| request.e2e().as_seconds()).sum::<f64>() / 30_000.0;
    assert!((e2e.mean.value.as_seconds() / mean - 1.0).abs() < 1e-9);
    assert_eq!(found.window, end.duration());
    assert!((found.output_tps_total.as_tokens_per_second() - 300_000.0 / end.time_s).abs() < 1e-9);
}

#[test]
fn what_is_left_out_is_in_no_number() {
    let cut = RecorderSettings { warm_up: WarmUp::Requests(1000), tail: 500, ..settings() };
    let found = queued(cut, 0.8, 10_000, 5);
    let size = 256; // 10,000 requests in 40 batches
    assert_eq!(found.left_out_at_start, 1000_u64.next_multiple_of(size));
    assert_eq!(found.left_out_at_end, 10_000 - 9500 / size * size);
    assert_eq!(found.counted + found.left_out_at_start + found.left_out_at_end, 10_000);
    assert_eq!(found.e2e.unwrap().histogram.count(), found.counted);
    assert_eq!(found.goodput.requests, found.counted);
    assert!((found.request_rate.as_requests_per_second() / 0.8 - 1.0).abs() < 0.05);
}

#[test]
fn if_everything_would_go_nothing_does() {
    for (warm_up, tail) in [(WarmUp::Requests(u64::MAX), 0), (WarmUp::None, u64::MAX), (WarmUp::Requests(90), 50)] {
        let found = queued(RecorderSettings { warm_up, tail, ..settings() }, 0.5, 100, 1);
        assert!(found.counted > 0, "{warm_up:?} {tail}");
    }
}

#[test]
fn a_slow_start_is_left_out() {
    let mut recorder = Recorder::new(settings());
    let mut random = Random(11);
    for id in 0..8000 {
        let arrival = Seconds::from_seconds(id as f64);
        if recorder.needs_mark(id) {
            recorder.mark(id, Totals { time_s: id as f64, arrived: id, completed: id, ..Totals::default() });
        }
        let e2e = 10.0 + random.uniform() + 50.0 * (-(id as f64) / 300.0).exp();
        let last_token = arrival + Seconds::from_seconds(e2e);
        recorder.completed(&CompletedRequest { id, arrival, last_token, output_tokens: 1, ..Default::default() });
    }
    let found = recorder.finish(Totals { time_s: 8010.0, arrived: 8000, completed: 8000, ..Totals::default() });
    assert!((900..=4000).contains(&found.left_out_at_start), "{}", found.left_out_at_start);
    let mean = found.e2e.unwrap().mean.value.as_seconds();
    assert!((mean - 10.5).abs() < 0.1, "{mean}");
    assert_eq!(found.tpot, None); // answers of one token
}

#[test]
fn requests_at_once_have_no_warm_up() {
    let mut recorder = Recorder::new(RecorderSettings { open: false, ..settings() });
    for id in 0..1000 {
        if recorder.needs_mark(id) {
            recorder.mark(id, Totals { arrived: id, ..Totals::default() });
        }
        let last_token = Seconds::from_seconds(1.0 + id as f64);
        recorder.completed(&CompletedRequest { id, last_token, output_tokens: 5, ..CompletedRequest::default() });
    }
    let found = recorder.finish(Totals { time_s: 1001.0, arrived: 1000, completed: 1000, ..Totals::default() });
    assert_eq!((found.counted, found.window), (1000, Seconds::from_seconds(1001.0)));
    assert_eq!(found.backlog, Backlog::Steady);
}

#[test]
fn good_requests_are_told_by_the_limits_of_their_class() {
    let limit = |seconds: f64| Slo::default().with_e2e(Seconds::from_seconds(seconds));
    let slos = vec![limit(1.0), limit(2.0)];
    let mut recorder = Recorder::new(RecorderSettings { slos, warm_up: WarmUp::None, open: false, ..settings() });
    for id in 0..400 {
        if recorder.needs_mark(id) {
            recorder.mark(id, Totals { time_s: id as f64 / 10.0, arrived: id, ..Totals::default() });
        }
        // The quarter of class 7 belongs to the last class; a half of all takes 1.5 s.
        let class = if id % 4 == 0 { 7 } else { 0 };
        let last_token = Seconds::from_seconds(if id % 8 < 4 { 0.5 } else { 1.5 });
        recorder.completed(&CompletedRequest { id, class, last_token, output_tokens: 2, ..Default::default() });
    }
    let found = recorder.finish(Totals { time_s: 40.0, arrived: 400, completed: 400, ..Totals::default() });
    let shares: Vec<_> = found.classes.iter().map(|class| (class.requests, class.share.value)).collect();
    assert_eq!(shares, [(300, 0.5), (100, 1.0)]);
    assert_eq!((found.goodput.requests, found.goodput.share.value), (400, 0.625));
    assert!((found.goodput.rate.as_requests_per_second() - 6.25).abs() < 1e-9);
    let by_class: f64 = found.classes.iter().map(|class| class.rate.as_requests_per_second()).sum();
    assert!((by_class - 6.25).abs() < 1e-9);
    assert_eq!(found.goodput.share.half_width, Some(0.0)); // every section is the same
}

#[test]
fn tails_become_known() {
    let mut known = Vec::new();
    for requests in [500, 2000, 200_000] {
        let mut recorder = Recorder::new(settings());
        queue(&mut recorder, 0.3, requests, 9);
        known.push((recorder.p99_known_within(0.1), recorder.p99_known_within(1e-4)));
    }
    assert_eq!(known, [(false, false), (false, false), (true, false)]);
}

#[test]
fn runs_combine_in_order() {
    let runs: Vec<Statistics> = (1..=5).map(|seed| queued(settings(), 0.7, 5000, seed)).collect();
    let all = Statistics::combined(&runs);
    assert_eq!(all.counted, runs.iter().map(|run| run.counted).sum::<u64>());
    let e2e = all.e2e.as_ref().unwrap();
    assert_eq!(e2e.histogram.count(), all.counted);
    // Means weighted with the requests of each run.
    let weighted: f64 =
        runs.iter().map(|run| run.e2e.as_ref().unwrap().mean.value.as_seconds() * run.counted as f64).sum();
    assert!((e2e.mean.value.as_seconds() - weighted / all.counted as f64).abs() < 1e-9);
    assert!(e2e.mean.half_width.unwrap() > Seconds::ZERO);
    assert_eq!(all.backlog, Backlog::Steady);
    assert!((all.window - runs.iter().map(|run| run.window).sum()).as_seconds().abs() < 1e-6);
    assert_eq!(Statistics::combined(&runs), all);
    assert_eq!(Statistics::combined(&runs[..1]), runs[0]);
    assert_eq!(Statistics::combined(&[]).e2e, None);
}

#[test]
fn averages_are_those_of_the_window() {
    let mut recorder = Recorder::new(RecorderSettings { devices: 4, kv_blocks: 100, ..settings() });
    recorder.mark(0, Totals::default());
    recorder.gap(0.01, 3);
    recorder.gaps(0.02, 1e-6, 10, 2);
    recorder.sample(Totals { time_s: 4.0, ..Totals::default() });
    // Two replicas over 10 s, one of them busy.
    let found = recorder.finish(Totals {
        time_s: 10.0,
        running: 60.0,
        waiting: 5.0,
        kv_blocks: 500.0,
        busy_s: 10.0,
        available_s: 20.0,
        steps: 7,
        arrived: 3,
        completed: 2,
        output_tokens: 400,
        prompt_tokens: 300,
        cached_tokens: 100,
        preemptions: 1,
    });
    assert_eq!((found.mean_batch, found.mean_waiting), (3.0, 0.5));
    assert_eq!((found.kv_utilization, found.utilization, found.prefix_hit_rate), (0.25, 0.5, 0.25));
    assert_eq!(
        (found.output_tps_total.to_string(), found.output_tps_per_device.to_string()),
        ("40.0 tok/s".into(), "10.0 tok/s".into())
    );
    assert_eq!((found.preemptions, found.steps, found.timeline.len()), (1, 7, 2));
    assert_eq!(found.itl.as_ref().unwrap().histogram.count(), 23);
    assert_eq!(found.itl.unwrap().mean.half_width, None);
    assert_eq!((found.e2e, found.goodput.share.half_width), (None, None));
}

#[test]
fn an_unmarked_or_empty_run_is_no_error() {
    let empty = Recorder::new(settings());
    assert!(!empty.p99_known_within(0.02));
    assert_eq!(empty.finish(Totals::default()).counted, 0);
    let mut unmarked = Recorder::new(RecorderSettings::default());
    unmarked.completed(&CompletedRequest { id: u64::MAX, ..CompletedRequest::default() });
    unmarked.mark(u64::MAX, Totals::default());
    unmarked.gap(f64::NAN, 1);
    assert_eq!(unmarked.finish(Totals::default()).counted, 1);
}
