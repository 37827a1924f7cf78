//! What holds for all lengths and arrivals.

use llm_roofline::units::{RequestsPerSecond, Seconds};
use llm_roofline::workload::{Arrivals, Empirical, LengthDistribution, LengthPoint, Lengths, SharedPrefix};
use proptest::prelude::*;

fn bounds() -> impl Strategy<Value = (u64, u64)> {
    (1..3000_u64, 0..200_000_u64).prop_map(|(low, more)| (low, low + more))
}

fn distribution() -> impl Strategy<Value = LengthDistribution> {
    prop_oneof![
        (1..100_000_u64).prop_map(LengthDistribution::Fixed),
        bounds().prop_map(|(low, high)| LengthDistribution::uniform(low, high).unwrap()),
        (-100.0..20_000.0, 0.01..30_000.0, bounds())
            .prop_map(|(mean, deviation, (low, high))| LengthDistribution::normal(mean, deviation, low, high).unwrap()),
        (0.1..20_000.0, 0.01..5.0, bounds()).prop_map(|(mean, cv, (low, high))| LengthDistribution::log_normal(
            mean,
            mean * cv,
            low,
            high
        )
        .unwrap()),
        prop::collection::vec(1..50_000_u64, 1..300)
            .prop_map(|samples| LengthDistribution::from(Empirical::from_samples(&samples).unwrap())),
    ]
}

fn weighted(points: &[LengthPoint], length: impl Fn(&LengthPoint) -> f64) -> f64 {
    points.iter().map(|point| point.weight * length(point)).sum()
}

fn near(value: f64, expected: f64, relative: f64) -> bool {
    (value - expected).abs() <= relative * expected.abs()
}

proptest! {
    #[test]
    fn moments_lie_within_the_bounds(lengths in distribution()) {
        let (low, high) = lengths.bounds();
        let (mean, square) = (lengths.mean(), lengths.mean_square());
        prop_assert!(mean >= low as f64 * (1.0 - 1e-12) && mean <= high as f64 * (1.0 + 1e-12));
        prop_assert!(square >= mean * mean * (1.0 - 1e-12) && square <= (high as f64).powi(2) * (1.0 + 1e-12));
        let points = lengths.points(10);
        prop_assert!(points.is_sorted_by(|a, b| *a <= b * (1.0 + 1e-12)));
        prop_assert!(near(points.iter().sum::<f64>() / points.len() as f64, mean, 1e-9));
    }

    #[test]
    fn quantiles_rise_from_bound_to_bound(lengths in distribution(), mut shares in prop::collection::vec(0.0..1.0, 1..20)) {
        let (low, high) = lengths.bounds();
        shares.sort_by(f64::total_cmp);
        let quantiles: Vec<u64> = shares.iter().map(|share| lengths.quantile(*share)).collect();
        prop_assert!(quantiles.is_sorted() && quantiles.iter().all(|length| (low..=high).contains(length)));
        prop_assert_eq!((lengths.quantile(0.0), lengths.quantile(1.0)), (low, high));
    }

    /// The mean of the quantiles at the middles of many equal shares tends to the mean.
    #[test]
    fn quantiles_and_moments_agree(lengths in distribution()) {
        let count = 4000;
        let at = |index: i32| lengths.quantile((f64::from(index) + 0.5) / f64::from(count)) as f64;
        let mean = (0..count).map(at).sum::<f64>() / f64::from(count);
        // A share of 1/count is at the wrong end of a range of at most 202,999 tokens.
        let (low, high) = lengths.bounds();
        let error = (high - low) as f64 / f64::from(count) + 0.5;
        prop_assert!((mean - lengths.mean()).abs() <= error, "{} {}", mean, lengths.mean());
    }

    #[test]
    fn points_of_independent_lengths_keep_all_second_moments(prompt in distribution(), output in distribution()) {
        let lengths = Lengths::independent(prompt.clone(), output.clone()).unwrap();
        let (points, moments) = (lengths.points(), lengths.moments());
        prop_assert!(points.len() <= 64);
        prop_assert!(near(weighted(points, |_| 1.0), 1.0, 1e-9));
        prop_assert!(near(weighted(points, |p| p.prompt), moments.prompt, 1e-9));
        prop_assert!(near(weighted(points, |p| p.output), moments.output, 1e-9));
        prop_assert!(near(weighted(points, |p| p.prompt * p.prompt), moments.prompt_square, 1e-9));
        prop_assert!(near(weighted(points, |p| p.output * p.output), moments.output_square, 1e-9));
        prop_assert!(near(weighted(points, |p| p.prompt * p.output), moments.product, 1e-9));
        let ((low, high), (shortest, longest)) = (prompt.bounds(), output.bounds());
        let within = |value: f64, low: u64, high: u64| value >= low as f64 * (1.0 - 1e-9) && value <= high as f64 * (1.0 + 1e-9);
        prop_assert!(points.iter().all(|p| within(p.prompt, low, high) && within(p.output, shortest, longest)));
        prop_assert!(points.iter().all(|p| p.weight > 0.0));
    }

    #[test]
    fn points_of_pairs_keep_means_and_nearly_second_moments(
        prompts in distribution(), outputs in distribution(), count in 1..3000_u32, share in 0.0..1.0
    ) {
        let at = |index: u32, step: f64| ((f64::from(index) + 0.5) * step).fract();
        let pair = |index| {
            let first = at(index, 0.754_877_666_246_693);
            // Some of the outputs follow their prompts.
            let second = if at(index, 0.618_033_988_749_895) < share { first } else { at(index, 0.569_840_290_998_053) };
            (prompts.quantile(first), outputs.quantile(second))
        };
        let lengths = Lengths::pairs((0..count).map(pair).collect()).unwrap();
        let (points, moments) = (lengths.points(), lengths.moments());
        prop_assert!(points.len() <= 64);
        prop_assert!(near(weighted(points, |_| 1.0), 1.0, 1e-9));
        prop_assert!(near(weighted(points, |p| p.prompt), moments.prompt, 1e-9));
        prop_assert!(near(weighted(points, |p| p.output), moments.output, 1e-9));
        prop_assert!(near(weighted(points, |p| p.prompt * p.prompt), moments.prompt_square, 0.02));
        prop_assert!(near(weighted(points, |p| p.output * p.output), moments.output_square, 0.02));
        prop_assert!(near(weighted(points, |p| p.prompt * p.output), moments.product, 0.02));
        prop_assert!(moments.running_output() >= moments.output * (1.0 - 1e-12)); // length bias
    }

    #[test]
    fn any_numbers_give_an_error_or_finite_answers(a in any::<f64>(), b in any::<f64>(), low in any::<u64>(), high in any::<u64>()) {
        for lengths in [LengthDistribution::normal(a, b, low, high), LengthDistribution::log_normal(a, b, low, high)].into_iter().flatten() {
            prop_assert!(lengths.mean().is_finite() && lengths.mean_square().is_finite());
            prop_assert!((low..=high).contains(&lengths.quantile(0.3)));
        }
        for arrivals in [
            Arrivals::gamma(RequestsPerSecond::from_requests_per_second(a), b),
            Arrivals::bursts(low, Seconds::from_seconds(a)),
            Arrivals::closed_loop_with(low, Seconds::from_seconds(a), Some(Seconds::from_seconds(b))),
        ].into_iter().flatten() {
            prop_assert!(arrivals.mean_rate().is_none_or(|rate| rate.is_finite()));
            prop_assert!(arrivals.gap_variation().is_none_or(f64::is_finite));
        }
        if let Ok(prefix) = SharedPrefix::fixed(low, a) {
            prop_assert!(prefix.cached_tokens(100.0) <= 99.0);
        }
    }
}
