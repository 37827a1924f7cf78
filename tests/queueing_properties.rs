//! What holds for every queue: limits that formulas share, monotony, inverses, refused numbers.

use llm_roofline::numeric::{
    NumericError, Tolerance, find_root, find_root_above, fit_line, largest_where, smallest_where,
};
use llm_roofline::queueing::{
    BatchQueue, BatchTime, BirthDeath, ClosedNetwork, Gg1, LimitedBatchQueue, Md1, Mdc, Mg1, Mgc, Mm1, Mmc, MphC,
    ProcessorSharing, QueueError, Service, Station, Tail, TwoPhase, WaitFormula, erlang_b, erlang_c,
    mean_sojourn_in_stages, mean_sojourn_on_replicas, mean_sojourn_sped_up, servers_with_absence,
};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

fn cases(cases: u32) -> ProptestConfig {
    let file = FileFailurePersistence::Direct("tests/queueing_properties.proptest-regressions");
    ProptestConfig { cases, failure_persistence: Some(Box::new(file)), ..ProptestConfig::default() }
}

fn close(a: f64, b: f64, tolerance: f64) -> bool {
    (a - b).abs() <= tolerance * a.abs().max(b.abs())
}

/// Up to rounding.
fn at_most(a: f64, b: f64) -> bool {
    a <= b * (1.0 + 1e-9) + 1e-13
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn erlang_c_lies_between_erlang_b_and_one_and_grows_with_load(servers in 1..3000_u64, rho in 0.01..0.999_f64, less in 0.1..1.0_f64) {
        let load = rho * servers as f64;
        let (lost, waiting) = (erlang_b(servers, load).unwrap(), erlang_c(servers, load).unwrap());
        prop_assert!(lost <= waiting && (0.0..=1.0).contains(&waiting) && lost >= 0.0);
        prop_assert!(erlang_c(servers, load * less).unwrap() <= waiting);
        prop_assert!(erlang_b(servers, load * less).unwrap() <= lost);
        // One more server, by the recursion of textbooks.
        let next = load * lost / ((servers + 1) as f64 + load * lost);
        prop_assert!(close(erlang_b(servers + 1, load).unwrap(), next, 1e-11) || next < 1e-290, "{} {next}", lost);
    }

    #[test]
    fn constant_services_wait_half_as_long(rho in 0.0..0.9999_f64, unit in 1e-3..1e3_f64, t in 0.0..60.0_f64) {
        let (constant, exponential) = (Md1::new(rho / unit, unit).unwrap(), Mm1::new(rho / unit, unit).unwrap());
        prop_assert!(close(2.0 * constant.mean_wait(), exponential.mean_wait(), 1e-12));
        prop_assert!(at_most(constant.wait_exceeds(t * unit).unwrap(), exponential.wait_exceeds(t * unit).unwrap()));
    }

    #[test]
    fn the_distribution_of_md1_has_its_moments(rho in 0.01..0.98_f64) {
        // The mean is the integral of P(W > t), the second moment that of 2 t P(W > t): Simpson's rule within each service, where the function is smooth.
        let queue = Md1::new(rho, 1.0).unwrap();
        let exceeds = |t: f64| queue.wait_exceeds(t).unwrap();
        let (mut mean, mut second) = (0.0, 0.0);
        const STEPS: u32 = 16;
        let h = 1.0 / f64::from(STEPS);
        for service in 0..(40.0 / (1.0 - rho)) as u32 {
            for step in 0..STEPS {
                let t = f64::from(service) + f64::from(step) * h;
                // Up to the end of the service from below.
                let end = (t + h).next_down();
                let at = [exceeds(t), exceeds(t + h / 2.0), exceeds(end)];
                mean += h / 6.0 * (at[0] + 4.0 * at[1] + at[2]);
                second += h / 3.0 * (t * at[0] + 4.0 * (t + h / 2.0) * at[1] + (t + h) * at[2]);
            }
        }
        let exact = Mg1::new(rho, Service::constant(1.0).unwrap()).unwrap();
        prop_assert!(close(mean, queue.mean_wait(), 1e-6), "{mean} {}", queue.mean_wait());
        prop_assert!(close(second, exact.wait_second_moment().unwrap(), 1e-6), "{second}");
    }

    #[test]
    fn quantiles_invert_distributions(rho in 0.05..0.9995_f64, q in 0.0..0.9999_f64, servers in 1..200_u64) {
        let beyond = 1.0 - q;
        let constant = Md1::new(rho, 1.0).unwrap();
        let several = Mmc::new(rho * servers as f64, 1.0, servers).unwrap();
        let single = Mm1::new(rho, 1.0).unwrap();
        let waits = [
            (constant.wait_quantile(q), constant.wait_exceeds(constant.wait_quantile(q).unwrap())),
            (several.wait_quantile(q), several.wait_exceeds(several.wait_quantile(q).unwrap())),
            (single.wait_quantile(q), single.wait_exceeds(single.wait_quantile(q).unwrap())),
        ];
        for (quantile, exceeds) in waits {
            let (quantile, exceeds) = (quantile.unwrap(), exceeds.unwrap());
            prop_assert!(close(exceeds, beyond, 1e-9) || quantile == 0.0 && exceeds <= beyond, "{quantile} {exceeds}");
        }
        let sojourns = [
            single.sojourn_exceeds(single.sojourn_quantile(q).unwrap()),
            several.sojourn_exceeds(several.sojourn_quantile(q).unwrap()),
        ];
        for exceeds in sojourns {
            prop_assert!(close(exceeds.unwrap(), beyond, 1e-9));
        }
    }

    #[test]
    fn distributions_fall(rho in 0.01..0.9999_f64, servers in 1..100_u64, a in 0.0..200.0_f64, b in 0.0..200.0_f64) {
        let (sooner, later) = (a.min(b), a.max(b));
        let constant = Md1::new(rho, 1.0).unwrap();
        prop_assert!(constant.wait_exceeds(later).unwrap() <= constant.wait_exceeds(sooner).unwrap() * (1.0 + 1e-12));
        prop_assert!(constant.wait_exceeds(0.0).unwrap() <= rho * (1.0 + 1e-12));
        let several = Mmc::new(rho * servers as f64, 1.0, servers).unwrap();
        prop_assert!(several.wait_exceeds(later).unwrap() <= several.wait_exceeds(sooner).unwrap());
        prop_assert!(at_most(several.sojourn_exceeds(later).unwrap(), several.sojourn_exceeds(sooner).unwrap()));
        prop_assert!(several.wait_exceeds(sooner).unwrap() <= several.sojourn_exceeds(sooner).unwrap() * (1.0 + 1e-12));
    }

    #[test]
    fn one_server_is_one_server(rho in 0.001..0.999_f64, scv in 0.0..20.0_f64, unit in 1e-3..1e3_f64) {
        let (rate, service) = (rho / unit, Service::gamma(unit, scv).unwrap());
        let exact = Mg1::new(rate, service).unwrap().mean_wait();
        let several = Mgc::new(rate, service, 1).unwrap();
        for formula in [WaitFormula::AllenCunneen, WaitFormula::Kimura, WaitFormula::Sakasegawa] {
            prop_assert!(close(several.mean_wait_by(formula).unwrap(), exact, 1e-9), "{formula:?}");
        }
        prop_assert!(close(Gg1::new(rate, 1.0, service).unwrap().mean_wait(), exact, 1e-9));
        prop_assert!(close(Mdc::new(rate, unit, 1).unwrap().mean_wait(), Md1::new(rate, unit).unwrap().mean_wait(), 1e-12));
        if scv >= 0.5 {
            prop_assert!(close(MphC::new(rate, TwoPhase::with_scv(unit, scv).unwrap(), 1).unwrap().mean_wait(), exact, 1e-7));
        }
        let shared = ProcessorSharing::new(rate, unit).unwrap();
        let exponential = Mm1::new(rate, unit).unwrap();
        prop_assert!(close(shared.mean_sojourn(), exponential.mean_sojourn(), 1e-12));
    }

    #[test]
    fn kimura_lies_between_constant_and_exponential(rho in 0.05..0.995_f64, servers in 2..200_u64, scv in 0.0..1.0_f64) {
        let rate = rho * servers as f64;
        let queue = Mgc::new(rate, Service::with_scv(1.0, scv).unwrap(), servers).unwrap();
        let (constant, exponential) = (Mdc::new(rate, 1.0, servers).unwrap().mean_wait(), queue.exponential().mean_wait());
        let wait = queue.mean_wait_by(WaitFormula::Kimura).unwrap();
        prop_assert!(at_most(constant, wait) && at_most(wait, exponential), "{constant} {wait} {exponential}");
        // A common queue of constant services waits at least half as long as one of exponential ones.
        prop_assert!(at_most(exponential, 2.0 * constant));
        let ends = [0.0, 1.0].map(|scv| Mgc::new(rate, Service::with_scv(1.0, scv).unwrap(), servers).unwrap().mean_wait().unwrap());
        prop_assert!(close(ends[0], constant, 1e-9) && close(ends[1], exponential, 1e-9));
    }

    #[test]
    fn waits_do_not_exceed_kingmans_bound(rho in 0.05..0.999_f64, ca in 0.0..10.0_f64, cs in 0.0..10.0_f64) {
        let queue = Gg1::new(rho, ca, Service::with_scv(1.0, cs).unwrap()).unwrap();
        prop_assert!(at_most(queue.mean_wait(), queue.mean_wait_bound()));
    }

    #[test]
    fn constant_rates_are_mmc(servers in 1..60_usize, rho in 0.05..0.97_f64, unit in 1e-3..1e3_f64) {
        let rate = rho * servers as f64 / unit;
        let exact = Mmc::new(rate, unit, servers as u64).unwrap();
        let chain = BirthDeath::new(rate, |n| n.min(servers) as f64 / unit, None).unwrap();
        let chain = chain.with_slots(servers).unwrap();
        // In closed form, state by state, and with so many places that none is ever missed.
        let roomy = BirthDeath::new(rate, |n| n.min(servers) as f64 / unit, Some(3000)).unwrap().with_slots(servers).unwrap();
        let states = chain.solve().unwrap();
        for summary in [chain.summary().unwrap(), *states.summary(), roomy.summary().unwrap()] {
            prop_assert!(close(summary.mean_in_queue, exact.mean_queue(), 1e-7) || exact.mean_queue() < 1e-8, "{summary:?}");
            prop_assert!(close(summary.mean_in_service, exact.offered_load(), 1e-9));
            prop_assert!(close(summary.probability_full, exact.probability_of_waiting(), 1e-9));
            prop_assert!(close(summary.mean_sojourn(), exact.mean_sojourn(), 1e-9));
            prop_assert!(close(summary.throughput, rate, 1e-12) && summary.tail < 1e-14 && summary.blocking < 1e-12);
        }
    }

    #[test]
    fn a_loss_system_is_erlang_b(servers in 1..500_usize, load in 0.01..600.0_f64) {
        let chain = BirthDeath::new(load, |n| n as f64, Some(servers)).unwrap();
        let (summary, exact) = (chain.summary().unwrap(), erlang_b(servers as u64, load).unwrap());
        prop_assert!(close(summary.blocking, exact, 1e-9) || exact < 1e-250);
        prop_assert!(close(summary.throughput, load * (1.0 - exact), 1e-9));
    }

    #[test]
    fn stored_states_have_the_moments_of_the_summary(capacity in 1..400_usize, load in 0.01..3.0_f64, slots in 1..40_usize, fixed in 0.0..20.0_f64) {
        let rate = |n: usize| { let busy = n.min(slots) as f64; busy / (busy + fixed) };
        let chain = BirthDeath::new(load, rate, Some(capacity)).unwrap().with_slots(slots).unwrap();
        let states = chain.solve_into(vec![7.0; 3]).unwrap();
        let (p, summary) = (states.probabilities(), chain.summary().unwrap());
        prop_assert!(p.len() <= capacity + 1 && close(p.iter().sum(), 1.0, 1e-12));
        let mean: f64 = p.iter().enumerate().map(|(n, p)| n as f64 * p).sum();
        let variance: f64 = p.iter().enumerate().map(|(n, p)| (n as f64 - mean).powi(2) * p).sum();
        prop_assert!(close(mean, summary.mean_number, 1e-10) && (variance - summary.variance).abs() < 1e-9 * (1.0 + mean * mean));
        // What enters leaves.
        let leaving: f64 = p.iter().enumerate().skip(1).map(|(n, p)| rate(n) * p).sum();
        prop_assert!(close(leaving, summary.throughput, 1e-9));
        let median = states.quantile(0.5).unwrap();
        prop_assert!(states.exceeds(median) <= 0.5 + 1e-12 && (median == 0 || states.exceeds(median - 1) >= 0.5 - 1e-12));
    }

    #[test]
    fn mean_value_analysis_respects_its_bounds(demands in prop::collection::vec(0.01..3.0_f64, 1..6), think in 0.0..20.0_f64, delay in 0.01..5.0_f64, n in 1..200_u64) {
        let mut stations: Vec<Station> = demands.into_iter().map(Station::Queue).collect();
        stations.push(Station::Delay(delay));
        let network = ClosedNetwork::new(think, &stations).unwrap();
        let solution = network.solve(n).unwrap();
        let (wide, narrow) = (network.asymptotic_bounds(n).unwrap(), network.balanced_job_bounds(n).unwrap());
        let x = solution.throughput;
        prop_assert!(at_most(wide.low, narrow.low) && at_most(narrow.low, x), "{wide:?} {narrow:?} {x}");
        prop_assert!(at_most(x, narrow.high) && at_most(narrow.high, wide.high), "{wide:?} {narrow:?} {x}");
        prop_assert!(close(solution.numbers.iter().sum::<f64>() + x * think, n as f64, 1e-9));
        prop_assert!(x <= network.solve(n + 1).unwrap().throughput * (1.0 + 1e-12));
    }

    #[test]
    fn closed_chains_are_mean_value_analysis(n in 1..150_usize, service in 0.01..2.0_f64, think in 0.1..50.0_f64) {
        let exact = ClosedNetwork::new(think, &[Station::Queue(service)]).unwrap().solve(n as u64).unwrap();
        let chain = BirthDeath::closed(n, think, |_| 1.0 / service).unwrap().summary().unwrap();
        prop_assert!(close(chain.throughput, exact.throughput, 1e-9));
        prop_assert!(close(chain.mean_number, exact.numbers[0], 1e-8));
        prop_assert_eq!(chain.blocking, 0.0);
    }

    #[test]
    fn batches_have_their_bound_and_grow_with_load(job in 0.0..2.0_f64, fixed in 0.0..3.0_f64, rho in 0.01..0.99_f64) {
        let time = BatchTime::new(job + 0.01, fixed).unwrap();
        let at = |rho: f64| BatchQueue::new(rho / time.per_job(), time).unwrap();
        let queue = at(rho);
        prop_assert!(at_most(queue.mean_sojourn(), queue.mean_sojourn_bound()));
        prop_assert!(queue.mean_sojourn() >= time.of(1) * (1.0 - 1e-12));
        prop_assert!(at_most(at(rho * 0.9).mean_sojourn(), queue.mean_sojourn()) && at_most(at(rho * 0.9).mean_batch(), queue.mean_batch()));
        // Jobs leave as fast as they come: a cycle of one batch and, if nobody came, a pause lasts as long as its jobs take to arrive.
        prop_assert!((0.0..=1.0).contains(&queue.utilization()));
        prop_assert!(queue.batch_second_moment() >= queue.mean_batch().powi(2) * (1.0 - 1e-9));
    }
}

proptest! {
    #![proptest_config(cases(64))]

    #[test]
    fn batches_with_a_limit(job in 0.0..2.0_f64, fixed in 0.0..3.0_f64, load in 0.05..0.97_f64, largest in 1..40_u64) {
        let time = BatchTime::new(job + 0.01, fixed).unwrap();
        let rate = load * largest as f64 / time.of(largest);
        let queue = LimitedBatchQueue::new(rate, time, largest).unwrap();
        prop_assert!(close(queue.load(), load, 1e-12));
        prop_assert!((1.0 - 1e-9..=largest as f64 + 1e-9).contains(&queue.mean_batch()), "{queue:?}");
        prop_assert!((0.0..=1.0 + 1e-12).contains(&queue.utilization()) && (0.0..=1.0 + 1e-12).contains(&queue.share_of_full_batches()));
        // Jobs per unit of working time are those of the mean batch: tau is a line.
        let served = queue.utilization() * queue.mean_batch() / (time.per_job() * queue.mean_batch() + time.per_batch());
        prop_assert!(close(served, rate, 1e-7), "{served} {rate}");
        // A larger limit saves fixed times (though jobs may wait for one another longer), and a huge one is none.
        let larger = LimitedBatchQueue::new(rate, time, largest + 3).unwrap();
        prop_assert!(at_most(larger.utilization(), queue.utilization()) && at_most(queue.mean_batch(), larger.mean_batch()), "{larger:?} {queue:?}");
        if rate * time.per_job() < 0.9 {
            let endless = BatchQueue::new(rate, time).unwrap();
            let roomy = (3.0 * endless.mean_batch()) as u64 + 60;
            let limited = LimitedBatchQueue::new(rate, time, roomy).unwrap();
            prop_assert!(close(limited.mean_sojourn(), endless.mean_sojourn(), 1e-6), "{limited:?} {endless:?}");
            prop_assert!(close(limited.mean_batch(), endless.mean_batch(), 1e-6));
        }
    }

    #[test]
    fn batches_of_one_are_md1(rho in 0.05..0.97_f64, fixed in 0.01..1.0_f64) {
        let time = BatchTime::new(1.0 - fixed, fixed).unwrap();
        let queue = LimitedBatchQueue::new(rho, time, 1).unwrap();
        prop_assert!(close(queue.mean_sojourn(), Md1::new(rho, 1.0).unwrap().mean_sojourn(), 1e-8));
        prop_assert!(close(queue.utilization(), rho, 1e-8));
    }

    #[test]
    fn phases_of_an_exponential_are_mmc(rho in 0.05..0.99_f64, servers in 1..30_u64, scv in 0.5..8.0_f64) {
        let rate = rho * servers as f64;
        let exact = Mmc::new(rate, 1.0, servers).unwrap();
        let queue = |scv| MphC::new(rate, TwoPhase::with_scv(1.0, scv).unwrap(), servers).unwrap();
        prop_assert!(close(queue(1.0).mean_wait(), exact.mean_wait(), 1e-8));
        prop_assert!(close(queue(1.0).probability_of_waiting(), exact.probability_of_waiting(), 1e-8));
        let wait = queue(scv).mean_wait();
        let (low, high) = if scv < 1.0 { (wait, exact.mean_wait()) } else { (exact.mean_wait(), wait) };
        prop_assert!(at_most(low, high));
    }

    #[test]
    fn tails_have_their_moments(positive in 0.05..1.0_f64, mean in 0.01..100.0_f64, scv in 0.05..5.0_f64, q in 0.0..0.9999_f64) {
        // Moments of those that are not zero, and of all.
        let of_all = positive * mean;
        let variance = positive * (scv + 1.0) * mean * mean - of_all * of_all;
        for tail in [Tail::gamma(positive, of_all, variance).unwrap(), Tail::log_normal(positive, of_all, variance).unwrap(), Tail::exponential(positive, of_all).unwrap()] {
            let quantile = tail.quantile(q).unwrap();
            prop_assert!(quantile == 0.0 || close(tail.exceeds(quantile).unwrap(), 1.0 - q, 1e-7), "{tail:?}");
            prop_assert!(close(tail.mean(), of_all, 1e-12));
            // The mean of quantiles at evenly spaced levels misses only the far tail.
            let levels = 4000;
            let sum: f64 = (0..levels).map(|k| tail.quantile((f64::from(k) + 0.5) / f64::from(levels)).unwrap()).sum();
            prop_assert!(close(sum / f64::from(levels), of_all, 0.03), "{} {of_all}", sum / f64::from(levels));
        }
        // Gamma of SCV 1 is exponential.
        let exponential = Tail::exponential(positive, of_all).unwrap();
        let gamma = Tail::gamma(positive, of_all, of_all * of_all * (2.0 / positive - 1.0)).unwrap();
        prop_assert!(close(gamma.quantile(q).unwrap(), exponential.quantile(q).unwrap(), 1e-9) || q < 1.0 - positive + 1e-9);
    }

    #[test]
    fn the_fewest_servers_are_the_fewest(load in 0.1..300.0_f64, time in 0.0..0.5_f64, level in 0.5..0.999_f64) {
        let queue = Mmc::with_service_level(load, 1.0, time, level).unwrap();
        prop_assert!(queue.service_level(time).unwrap() >= level);
        let fewer = Mmc::new(load, 1.0, queue.servers() - 1);
        prop_assert!(fewer.is_err() || fewer.unwrap().service_level(time).unwrap() < level);
        let quick = Mmc::with_mean_wait(load, 1.0, time).unwrap();
        prop_assert!(quick.mean_wait() <= time);
        let fewer = Mmc::new(load, 1.0, quick.servers() - 1);
        prop_assert!(fewer.is_err() || fewer.unwrap().mean_wait() > time);
    }

    #[test]
    fn roots_are_found(root in -1e6..1e6_f64, left in 0.1..1e6_f64, right in 0.1..1e6_f64, power in 0..4) {
        let f = |x: f64| { let d: f64 = x - root; d * d.abs().powi(power) };
        let found = find_root(f, root - left, root + right, Tolerance { relative: 1e-12, absolute: 1e-9 }).unwrap();
        prop_assert!((found - root).abs() <= 1e-9 + 1e-11 * root.abs(), "{found}");
        let above = find_root_above(f, root - left, 0.1, Tolerance { relative: 1e-12, absolute: 1e-9 }).unwrap();
        prop_assert!((above - root).abs() <= 1e-9 + 1e-11 * root.abs());
    }

    #[test]
    fn integers_are_found(low in 0..1000_u64, length in 0..100_000_u64, share in 0.0..1.2_f64) {
        let (high, limit) = (low + length, low + (share * length as f64) as u64);
        prop_assert_eq!(largest_where(low, high, |n| n <= limit), Some(limit.min(high)));
        prop_assert_eq!(smallest_where(low, high, |n| n >= limit), (limit <= high).then_some(limit));
    }
}

/// Numbers of any kind, ordinary ones often.
fn any_number() -> impl Strategy<Value = f64> {
    prop_oneof![3 => 0.0..2.0_f64, 1 => any::<f64>(), 1 => (-110.0..110.0_f64).prop_map(|e| 10_f64.powf(e)), 1 => prop::sample::select(vec![0.0, 1.0, -1.0, f64::NAN, f64::INFINITY, f64::MIN_POSITIVE, 5e-324])]
}

/// Numbers of an answer.
fn finite(values: &[f64]) -> bool {
    values.iter().all(|value| value.is_finite() && *value >= 0.0)
}

proptest! {
    #![proptest_config(cases(4000))]

    #[test]
    fn whatever_comes_in_nothing_but_finite_numbers_come_out(a in any_number(), b in any_number(), c in any_number(), q in any_number(), n in 0..40_u64) {
        if let Ok(queue) = Mm1::new(a, b) {
            prop_assert!(finite(&[queue.mean_wait(), queue.mean_sojourn(), queue.mean_number(), queue.probability_of(n)]));
            for answer in [queue.wait_quantile(q), queue.sojourn_quantile(q), queue.wait_exceeds(c), queue.sojourn_exceeds(c)].into_iter().flatten() {
                prop_assert!(finite(&[answer]), "{queue:?} {answer}");
            }
        }
        if let Ok(queue) = Md1::new(a, b) {
            prop_assert!(finite(&[queue.mean_wait(), queue.mean_sojourn(), queue.mean_number()]));
            for answer in [queue.wait_quantile(q), queue.sojourn_quantile(q), queue.wait_exceeds(c)].into_iter().flatten() {
                prop_assert!(finite(&[answer]), "{queue:?} {answer}");
            }
        }
        for service in [Service::constant(b), Service::exponential(b), Service::gamma(b, c), Service::log_normal(b, c), Service::with_scv(b, c), Service::from_moments(b, c, Some(q))].into_iter().flatten() {
            prop_assert!(finite(&[service.mean(), service.second_moment(), service.third_moment().unwrap_or(0.0), service.scv(), service.mean_residual()]));
            if let Ok(queue) = Mg1::new(a, service) {
                prop_assert!(finite(&[queue.mean_wait(), queue.mean_number(), queue.mean_wait_with_vacations(&service), queue.wait_second_moment().unwrap_or(0.0)]));
                for tail in [queue.exponential_tail(), queue.gamma_tail()].into_iter().flatten() {
                    prop_assert!(finite(&[tail.quantile(q).unwrap_or(0.0), tail.exceeds(c).unwrap_or(0.0), tail.mean()]), "{queue:?} {tail:?}");
                }
            }
            if let Ok(queue) = Gg1::new(a, q, service) {
                prop_assert!(finite(&[queue.mean_wait(), queue.mean_wait_bound(), queue.mean_sojourn()]), "{queue:?}");
            }
            if let Ok(queue) = Mgc::new(a, service, n) {
                for formula in [WaitFormula::AllenCunneen, WaitFormula::Kimura, WaitFormula::Sakasegawa] {
                    prop_assert!(finite(&[queue.mean_wait_by(formula).unwrap()]), "{queue:?} {formula:?}");
                }
            }
        }
        if let Ok(queue) = Mmc::new(a, b, n) {
            prop_assert!(finite(&[queue.mean_wait(), queue.mean_sojourn(), queue.mean_queue(), queue.mean_number(), queue.load()]));
            for answer in [queue.wait_quantile(q), queue.sojourn_quantile(q), queue.wait_exceeds(c), queue.sojourn_exceeds(c)].into_iter().flatten() {
                prop_assert!(finite(&[answer]), "{queue:?} {answer}");
            }
        }
        if let Ok(queue) = Mdc::new(a, b, n) {
            prop_assert!(finite(&[queue.mean_wait(), queue.mean_sojourn(), queue.mean_wait_cosmetatos()]), "{queue:?}");
        }
        if let Ok(Ok(queue)) = TwoPhase::with_scv(b, c).map(|service| MphC::new(a, service, n.min(8))) {
            prop_assert!(finite(&[queue.mean_wait(), queue.probability_of_waiting()]), "{queue:?}");
        }
        if let Ok(queue) = ProcessorSharing::new(a, b) {
            prop_assert!(finite(&[queue.mean_sojourn(), queue.mean_number(), queue.probability_of(n), queue.mean_sojourn_of(c).unwrap_or(0.0)]));
        }
        for tail in [Tail::exponential(a, b), Tail::gamma(a, b, c), Tail::log_normal(a, b, c)].into_iter().flatten() {
            prop_assert!(finite(&[tail.quantile(q).unwrap_or(0.0), tail.exceeds(c).unwrap_or(0.0), tail.mean()]), "{tail:?}");
        }
        for answer in [erlang_b(n, a), erlang_c(n, a), mean_sojourn_in_stages(a, b, n), mean_sojourn_on_replicas(a, b, n), mean_sojourn_sped_up(a, b, c), servers_with_absence(n, a).map(|n| n as f64)].into_iter().flatten() {
            prop_assert!(finite(&[answer]));
        }
        for capacity in [None, Some(n as usize)] {
            if let Ok(chain) = BirthDeath::new(a, |present| if present > 4 { b } else { c }, capacity) {
                let summary = chain.with_slots(5).unwrap().summary();
                if let Ok(s) = summary {
                    prop_assert!(finite(&[s.mean_number, s.variance, s.mean_in_queue, s.throughput, s.blocking, s.tail]), "{s:?}");
                }
            }
        }
        if let Ok(Ok(s)) = BirthDeath::closed(n as usize, a, |_| b).map(|chain| chain.summary()) {
            prop_assert!(finite(&[s.mean_number, s.variance, s.throughput, s.mean_in_service]), "{s:?}");
        }
        if let Ok(time) = BatchTime::new(b, c) {
            if let Ok(queue) = BatchQueue::new(a, time) {
                prop_assert!(finite(&[queue.mean_sojourn(), queue.mean_sojourn_bound(), queue.mean_batch(), queue.utilization()]), "{queue:?}");
            }
            if let Ok(queue) = LimitedBatchQueue::new(a, time, n) {
                prop_assert!(finite(&[queue.mean_sojourn(), queue.mean_batch(), queue.utilization()]), "{queue:?} {time:?} {a}");
            }
        }
        if let Ok(network) = ClosedNetwork::new(a, &[Station::Queue(b), Station::Delay(c)])
            && let Ok(solution) = network.solve(n)
        {
            let (wide, narrow) = (network.asymptotic_bounds(n).unwrap(), network.balanced_job_bounds(n).unwrap());
            prop_assert!(finite(&[solution.throughput, solution.response_time, wide.low, wide.high, narrow.low, narrow.high]), "{network:?}");
        }
        if let Ok(line) = fit_line(&[(a, b), (b, c), (c, q)]) {
            prop_assert!(line.slope.is_finite() && line.intercept.is_finite() && (0.0..=1.0).contains(&line.r_squared));
        }
        if let Ok(root) = find_root(|x| x - c, a, b, Tolerance::LOOSE) {
            prop_assert!(root >= a && root <= b);
        }
    }
}

#[test]
fn queues_that_grow_for_ever_say_so() {
    let unstable = QueueError::Unstable { rho: 1.25 };
    assert_eq!(Mm1::new(1.25, 1.0), Err(unstable));
    assert_eq!(Md1::new(1.25, 1.0), Err(unstable));
    assert_eq!(Mmc::new(2.5, 1.0, 2), Err(unstable));
    assert_eq!(Mdc::new(2.5, 1.0, 2), Err(unstable));
    assert_eq!(Mm1::new(1.0, 1.0), Err(QueueError::Unstable { rho: 1.0 }));
    let chain = BirthDeath::new(2.5, |n| n.min(2) as f64, None).unwrap();
    assert_eq!(chain.with_slots(2).unwrap().summary(), Err(unstable));
    assert!(chain.with_slots(2).unwrap().solve().is_err());
    let time = BatchTime::new(0.5, 2.0).unwrap();
    assert_eq!(BatchQueue::new(2.5, time), Err(unstable));
    assert_eq!(LimitedBatchQueue::new(2.5, time, 4), Err(QueueError::Unstable { rho: 2.5 }));
    assert!(unstable.to_string().contains("1.25"));
}

#[test]
fn refused_numbers_are_named() {
    let refused = Mm1::new(f64::NAN, 1.0).unwrap_err().to_string();
    assert!(refused.contains("arrival rate is NaN"), "{refused}");
    let refused = Mm1::new(0.5, 1.0).unwrap().wait_quantile(1.0).unwrap_err().to_string();
    assert!(refused.contains("level of the quantile is 1"), "{refused}");
    assert_eq!(
        Mg1::new(0.5, Service::with_scv(1.0, 1.0).unwrap()).unwrap().wait_second_moment(),
        Err(QueueError::NoThirdMoment)
    );
    let regular = Mgc::new(0.5, Service::exponential(1.0).unwrap(), 1).unwrap().with_arrival_scv(0.5).unwrap();
    assert_eq!(regular.mean_wait_by(WaitFormula::Kimura), Err(QueueError::NotPoisson { arrival_scv: 0.5 }));
    assert_eq!(regular.recommended(), WaitFormula::AllenCunneen);
    // No distribution has less than the square of its mean.
    assert!(Service::from_moments(2.0, 3.9, None).is_err() && Service::from_moments(2.0, 5.0, Some(12.4)).is_err());
    let stuck = BirthDeath::new(1.0, |n| if n == 3 { 0.0 } else { 1.0 }, Some(5)).unwrap().summary();
    assert_eq!(stuck, Err(QueueError::ServiceRate { state: 3, value: 0.0 }));
    assert!(matches!(find_root(|x| x, 1.0, 2.0, Tolerance::TIGHT), Err(NumericError::NoBracket { .. })));
    assert!(matches!(find_root(|x| 1.0 / x, 0.0, 2.0, Tolerance::TIGHT), Err(NumericError::NotFinite { .. })));
    assert!(matches!(find_root(|x| x, 2.0, 1.0, Tolerance::TIGHT), Err(NumericError::NoInterval { .. })));
    assert_eq!(fit_line(&[(1.0, 2.0), (1.0, 3.0)]), Err(NumericError::NoLine { points: 2, distinct: 1 }));
}

/// Vacations of constant length that never end before somebody comes: the wait is the rest of one at no load.
#[test]
fn vacations_add_their_rest() {
    let service = Service::exponential(1.0).unwrap();
    let queue = Mg1::new(1e-9, service).unwrap();
    assert!(close(queue.mean_wait_with_vacations(&Service::constant(3.0).unwrap()), 1.5, 1e-8));
    assert!(close(queue.mean_wait_with_vacations(&Service::exponential(3.0).unwrap()), 3.0, 1e-8));
}

/// Many servers: Erlang C of 10,000 at a load of 0.99 against the normal approximation of Halfin and Whitt (Operations Research 29 (1981) 567).
#[test]
fn many_servers_approach_halfin_and_whitt() {
    let servers = 1_000_000_u64;
    let beta = 1.0;
    let load = servers as f64 - beta * (servers as f64).sqrt();
    // 1 / (1 + beta Phi(beta) / phi(beta)) with Phi(1) = 0.841345 and phi(1) = 0.241971.
    let limit = 1.0 / (1.0 + 0.841_345 / 0.241_971);
    assert!(close(erlang_c(servers, load).unwrap(), limit, 2e-3));
}
