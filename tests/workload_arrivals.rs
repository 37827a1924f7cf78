//! Arrivals: rates, variation of gaps, schedules, and whole workloads.

use llm_roofline::units::{RequestsPerSecond, Seconds};
use llm_roofline::workload::{
    Arrivals, Lengths, RampUp, RateSchedule, RateSection, RequestClass, ScheduleEnd, Sessions, SharedPrefix, Workload,
    WorkloadError,
};

fn rate(value: f64) -> RequestsPerSecond {
    RequestsPerSecond::from_requests_per_second(value)
}

fn seconds(value: f64) -> Seconds {
    Seconds::from_seconds(value)
}

fn close(value: f64, expected: f64, relative: f64) {
    assert!((value - expected).abs() <= relative * expected.abs(), "{value}, expected {expected}");
}

#[test]
fn rates_and_variation_by_formula() {
    let bursts = Arrivals::bursts(8, seconds(2.0)).unwrap();
    assert_eq!(bursts.mean_rate(), Some(rate(4.0)));
    // Of eight gaps seven are 0 and one is 2 s: mean 1/4 s, mean square 1/2 s^2, so ca2 = 8 - 1.
    assert_eq!(bursts.gap_variation(), Some(7.0));
    assert_eq!(Arrivals::uniform(rate(3.0)).unwrap().gap_variation(), Some(0.0));
    assert_eq!(Arrivals::gamma(rate(3.0), 4.0).unwrap().gap_variation(), Some(0.25));
    let closed = Arrivals::closed_loop(3).unwrap();
    assert_eq!((closed.mean_rate(), closed.gap_variation(), closed.is_open()), (None, None, false));
    assert_eq!(Arrivals::all_at_once(10).unwrap().peak_rate(), None);
}

#[test]
fn impossible_arrivals_are_refused() {
    for value in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(
            matches!(Arrivals::poisson(rate(value)), Err(WorkloadError::OutOfRange { what: "request rate", .. })),
            "{value}"
        );
        assert!(Arrivals::gamma(rate(1.0), value).is_err());
        assert!(Arrivals::bursts(1, seconds(value)).is_err());
    }
    assert!(
        Arrivals::bursts(0, seconds(1.0)).is_err()
            && Arrivals::closed_loop(0).is_err()
            && Arrivals::all_at_once(0).is_err()
    );
    assert!(Arrivals::closed_loop_with(1, seconds(-1.0), None).is_err());
    assert!(Arrivals::closed_loop_with(1, seconds(1.0), Some(seconds(f64::NAN))).is_err());
    assert_eq!(
        Arrivals::all_at_once(1).unwrap().at_rate(rate(1.0)).unwrap_err().to_string(),
        "requests that all come at once have no rate that could be set"
    );
}

#[test]
fn ramps_of_vllm_grow_with_requests() {
    // vllm/benchmarks/serve.py, `_get_current_request_rate`: with linear ramp-up the gap of request i is 1 / (a + (b - a) i/(N - 1)).
    // 2 to 10 req/s over 4000 requests: the sum of gaps tends to N ln(b/a)/(b - a) = 500 ln 5 = 804.7 s.
    let linear = RateSchedule::ramp_up(RampUp::Linear, rate(2.0), rate(10.0), 4000).unwrap();
    close(linear.requests(), 4000.0, 1e-12);
    close(linear.duration().as_seconds(), 500.0 * 5_f64.ln(), 1e-4);
    // Exponential: N (1/a - 1/b) / ln(b/a) = 4000 * 0.4 / ln 5.
    let exponential = RateSchedule::ramp_up(RampUp::Exponential, rate(2.0), rate(10.0), 4000).unwrap();
    close(exponential.duration().as_seconds(), 1600.0 / 5_f64.ln(), 1e-4);
    assert_eq!((linear.peak_rate(), linear.rate_at(Seconds::ZERO)), (rate(10.0), rate(2.0)));
    let gaps: f64 = (0..4000).map(|i| 1.0 / (2.0 + 8.0 * f64::from(i) / 3999.0)).sum();
    close(linear.duration().as_seconds(), gaps, 1e-3);
}

#[test]
fn schedules_repeat_hold_or_stop() {
    let steps = [(seconds(10.0), rate(1.0)), (seconds(30.0), rate(5.0))];
    let with = |end| RateSchedule::steps(&steps, end).unwrap();
    close(with(ScheduleEnd::Repeat).mean_rate().as_requests_per_second(), 4.0, 1e-15);
    assert_eq!(with(ScheduleEnd::Hold).mean_rate(), rate(5.0));
    assert_eq!(
        [5.0, 15.0, 45.0].map(|t| with(ScheduleEnd::Repeat).rate_at(seconds(t))),
        [rate(1.0), rate(5.0), rate(1.0)]
    );
    assert_eq!([39.0, 100.0].map(|t| with(ScheduleEnd::Stop).rate_at(seconds(t))), [rate(5.0), rate(0.0)]);
    let ramp = RateSchedule::ramp(rate(0.0), rate(8.0), seconds(4.0)).unwrap();
    assert_eq!([1.0, 4.0, 9.0].map(|t| ramp.rate_at(seconds(t))), [rate(2.0), rate(8.0), rate(8.0)]);
    assert!(RateSchedule::steps(&[(seconds(1.0), rate(0.0))], ScheduleEnd::Repeat).is_err());
    assert!(RateSchedule::new(vec![RateSection::constant(seconds(0.0), rate(1.0))], ScheduleEnd::Stop).is_err());
    let ending_idle = [(seconds(1.0), rate(1.0)), (seconds(1.0), rate(0.0))];
    assert!(RateSchedule::steps(&ending_idle, ScheduleEnd::Hold).is_err());
    assert!(RateSchedule::day_curve(rate(1.0), rate(2.5), seconds(10.0)).is_err());
}

#[test]
fn another_rate_keeps_the_pattern() {
    let day = RateSchedule::day_curve(rate(10.0), rate(18.0), seconds(86_400.0)).unwrap().with_burstiness(0.5).unwrap();
    let twice = Arrivals::schedule(day).at_rate(rate(20.0)).unwrap();
    close(twice.mean_rate().unwrap().as_requests_per_second(), 20.0, 1e-12);
    close(twice.peak_rate().unwrap().as_requests_per_second(), 36.0, 1e-12);
    assert_eq!(twice.gap_variation(), Some(2.0));
    assert_eq!(Arrivals::bursts(4, seconds(1.0)).unwrap().at_rate(rate(8.0)), Arrivals::bursts(4, seconds(0.5)));
}

#[test]
fn arrivals_and_workloads_survive_text() {
    let lengths = Lengths::fixed(100, 10).unwrap();
    let arrivals = [
        Arrivals::poisson(rate(1.5)).unwrap(),
        Arrivals::gamma(rate(2.0), 0.25).unwrap(),
        Arrivals::uniform(rate(2.0)).unwrap(),
        Arrivals::bursts(3, seconds(2.0)).unwrap(),
        Arrivals::schedule(RateSchedule::ramp(rate(1.0), rate(8.0), seconds(4.0)).unwrap()),
        Arrivals::closed_loop_with(8, seconds(1.5), Some(seconds(10.0))).unwrap(),
        Arrivals::closed_loop_with(8, seconds(1.5), None).unwrap().with_random_thinking(),
        Arrivals::all_at_once(1000).unwrap(),
    ];
    for arrivals in arrivals {
        let workload = Workload::new(arrivals, lengths.clone())
            .with_prefix(SharedPrefix::fixed(50, 0.5).unwrap())
            .with_classes(vec![
                RequestClass::new("chat", 0.75, lengths.clone()),
                RequestClass::new("batch", 0.25, Lengths::fixed(500, 5).unwrap()).with_priority(10),
            ])
            .unwrap()
            .with_max_concurrency(64)
            .unwrap();
        let text = serde_json::to_string(&workload).unwrap();
        assert_eq!(serde_json::from_str::<Workload>(&text).unwrap(), workload, "{text}");
    }
    let text = r#"{"arrivals": {"poisson": {"rate": "0 req/s"}}, "lengths": {"fixed": {"prompt": 1, "output": 1}}}"#;
    assert!(serde_json::from_str::<Workload>(text).unwrap_err().to_string().contains("above 10^-12"));
    let text = r#"{"arrivals": {"poisson": {"rate": "1 req/s"}}, "length": {"fixed": {"prompt": 1, "output": 1}}}"#;
    assert!(serde_json::from_str::<Workload>(text).unwrap_err().to_string().contains("unknown field `length`"));
}

#[test]
fn classes_make_up_the_whole() {
    let workload = Workload::closed_loop(32, Lengths::fixed(1, 1).unwrap()).unwrap();
    let class = |share, prompt| RequestClass::new("class", share, Lengths::fixed(prompt, 10).unwrap());
    let error = workload.clone().with_classes(vec![class(0.5, 10), class(0.4, 20)]).unwrap_err();
    assert_eq!(error, WorkloadError::Shares { sum: 0.9 });
    assert!(workload.clone().with_classes(vec![class(1.5, 10), class(-0.5, 20)]).is_err());
    let classes = workload.with_classes(vec![class(0.5, 100), class(0.5, 300)]).unwrap();
    assert_eq!((classes.lengths().moments().prompt, classes.max_concurrency()), (200.0, Some(32)));
    assert!(Workload::offline(0, Lengths::fixed(1, 1).unwrap()).is_err());
}

#[test]
fn cached_tokens_never_cover_a_whole_prompt() {
    for prefix in [
        SharedPrefix::fixed(1000, 1.0).unwrap(),
        SharedPrefix::share(1.0).unwrap(),
        Sessions::new(3, 5, 1, 10).unwrap().prefix(1.0).unwrap(),
    ] {
        for prompt in [1.0, 2.0, 999.0, 1000.0, 1001.0] {
            let cached = prefix.cached_tokens(prompt);
            assert!((0.0..=prompt - 1.0).contains(&cached), "{prefix:?} {prompt}: {cached}");
        }
    }
    assert!(SharedPrefix::share(1.1).is_err() && SharedPrefix::fixed(1, f64::NAN).is_err());
    assert!(Sessions::new(0, 1, 1, 1).is_err() && Sessions::new(100_000, u64::MAX, 1, 1).is_err());
    let workload = Workload::poisson(rate(2.0), Lengths::fixed(1000, 10).unwrap())
        .unwrap()
        .with_prefix(SharedPrefix::share(0.3).unwrap());
    close(workload.offered_uncached_tokens().unwrap().as_tokens_per_second(), 1400.0, 1e-12);
}

#[cfg(feature = "random")]
mod random {
    use super::*;

    fn times(arrivals: &Arrivals, count: usize) -> Vec<f64> {
        arrivals.times(11).unwrap().take(count).map(Seconds::as_seconds).collect()
    }

    /// Mean rate and squared coefficient of variation of the gaps.
    fn measured(times: &[f64]) -> (f64, f64) {
        let gaps: Vec<f64> = std::iter::once(times[0]).chain(times.windows(2).map(|pair| pair[1] - pair[0])).collect();
        let count = gaps.len() as f64;
        let mean = gaps.iter().sum::<f64>() / count;
        (1.0 / mean, gaps.iter().map(|gap| (gap / mean - 1.0).powi(2)).sum::<f64>() / count)
    }

    #[test]
    fn times_have_the_rate_and_the_variation() {
        for arrivals in [
            Arrivals::poisson(rate(5.0)).unwrap(),
            Arrivals::gamma(rate(5.0), 0.5).unwrap(),
            Arrivals::gamma(rate(5.0), 8.0).unwrap(),
            Arrivals::uniform(rate(5.0)).unwrap(),
            Arrivals::bursts(10, seconds(2.0)).unwrap(),
        ] {
            let (rate, variation) = measured(&times(&arrivals, 200_000));
            // The mean of n gaps has the relative error sqrt(ca2 / n): 0.003 for the burstiest random one.
            close(rate, 5.0, 0.015);
            let expected = arrivals.gap_variation().unwrap();
            assert!((variation - expected).abs() < 0.06 * expected + 1e-9, "{arrivals:?}: {variation}");
        }
    }

    #[test]
    fn schedules_send_what_they_say() {
        // A ramp from 0 to 20 req/s in 100 s has the mean 1000 requests, 250 of them in the first half.
        let section = RateSection { duration: seconds(100.0), from: rate(0.0), to: rate(20.0) };
        let ramp = RateSchedule::new(vec![section; 100], ScheduleEnd::Stop).unwrap();
        let all = times(&Arrivals::schedule(ramp), 1_000_000);
        // Poisson: the deviation of 100,000 is 316, that of the 25,000 in the first halves 158.
        close(all.len() as f64, 100_000.0, 0.0127);
        close(all.iter().filter(|time| *time % 100.0 < 50.0).count() as f64, 25_000.0, 0.0253);
        assert!(all.is_sorted() && all[all.len() - 1] <= 10_000.0);

        let hold = Arrivals::schedule(RateSchedule::ramp(rate(100.0), rate(1.0), seconds(10.0)).unwrap());
        let late: Vec<f64> =
            times(&hold, 20_000).into_iter().filter(|time| *time > 10.0).map(|time| time - 10.0).collect();
        close(measured(&late).0, 1.0, 0.04);

        let idle =
            RateSchedule::steps(&[(seconds(1.0), rate(10.0)), (seconds(9.0), rate(0.0))], ScheduleEnd::Repeat).unwrap();
        let on_and_off = times(&Arrivals::schedule(idle), 10_000);
        assert!(on_and_off.iter().all(|time| time % 10.0 <= 1.0 + 1e-9));
        close(measured(&on_and_off).0, 1.0, 0.05);
    }

    #[test]
    fn equal_gaps_of_a_schedule_are_deterministic() {
        // With the steadiest gaps, request k of a ramp 2t comes at sqrt(k).
        let ramp = RateSchedule::new(
            vec![RateSection { duration: seconds(100.0), from: rate(0.0), to: rate(200.0) }],
            ScheduleEnd::Stop,
        );
        let steady = ramp.unwrap().with_burstiness(1e9).unwrap();
        for (index, time) in times(&Arrivals::schedule(steady), 1000).into_iter().enumerate() {
            close(time, (index as f64 + 1.0).sqrt(), 1e-3);
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_requests() {
        let workload = Workload::poisson(rate(3.0), Lengths::pairs(vec![(10, 1), (20, 2), (30, 3)]).unwrap())
            .unwrap()
            .with_prefix(SharedPrefix::fixed(5, 0.5).unwrap());
        let trace = workload.trace(2000, 3).unwrap();
        assert_eq!(trace, workload.trace(2000, 3).unwrap());
        assert_ne!(trace, workload.trace(2000, 4).unwrap());
        let hits = trace.requests().iter().filter(|request| request.cached_tokens == 5).count();
        // Half of 2000, with a deviation of 22.
        assert!((890..1110).contains(&hits), "{hits}");
        assert!(trace.requests().iter().all(|request| matches!(request.cached_tokens, 0 | 5)));
        let closed = Workload::closed_loop(4, Lengths::fixed(1, 1).unwrap()).unwrap();
        assert!(matches!(closed.trace(10, 1), Err(WorkloadError::NoTimes { .. })));
        assert_eq!(
            Workload::offline(7, Lengths::fixed(1, 1).unwrap()).unwrap().trace(10, 1).unwrap().requests().len(),
            7
        );
    }

    #[test]
    fn classes_are_drawn_by_share() {
        use rand::SeedableRng;
        let class = |share, prompt| RequestClass::new("class", share, Lengths::fixed(prompt, 10).unwrap());
        let workload = Workload::closed_loop(1, Lengths::fixed(1, 1).unwrap()).unwrap();
        let workload = workload.with_classes(vec![class(0.2, 100), class(0.8, 300)]).unwrap();
        let mut rng = rand_pcg::Pcg64Mcg::seed_from_u64(5);
        let drawn: Vec<_> = (0..10_000).map(|_| workload.sample(&mut rng)).collect();
        assert!(drawn.iter().all(|request| request.prompt_tokens == [100, 300][request.class]));
        // 2000 of 10,000, with a deviation of 40.
        assert!((1800..2200).contains(&drawn.iter().filter(|request| request.class == 0).count()));
    }
}
