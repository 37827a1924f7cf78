//! Length distributions and joint lengths against closed forms, independent sums and sampling.

use llm_roofline::workload::{Empirical, LengthDistribution, LengthPoint, Lengths, WorkloadError};

/// Relative accuracy of moments that are sums over a bell curve.
const CURVE: f64 = 1e-10;

fn close(value: f64, expected: f64, relative: f64) {
    assert!((value - expected).abs() <= relative * expected.abs().max(1e-300), "{value}, expected {expected}");
}

fn weighted(points: &[LengthPoint], length: impl Fn(&LengthPoint) -> f64) -> f64 {
    points.iter().map(|point| point.weight * length(point)).sum()
}

#[test]
fn uniform_lengths_have_the_moments_of_the_textbook() {
    // Discrete uniform distribution on a..=b: mean (a + b) / 2, variance ((b - a + 1)^2 - 1) / 12.
    let lengths = LengthDistribution::uniform(10, 20).unwrap();
    close(lengths.mean(), 15.0, 1e-15);
    close(lengths.deviation(), 10_f64.sqrt(), 1e-14);
    close(lengths.mean_square(), 235.0, 1e-14);
    assert_eq!(lengths.quantile(0.0), 10);
    assert_eq!(lengths.quantile(1.0 / 11.0), 10);
    assert_eq!(lengths.quantile(0.1), 11);
    assert_eq!(lengths.quantile(0.5), 15);
    assert_eq!(lengths.quantile(1.0), 20);
    assert_eq!(lengths.quantile(f64::NAN), 20);
}

#[test]
fn bell_curves_are_rounded_and_clipped() {
    // Sums over all whole numbers of the rounded and clipped distribution in mpmath with 30 digits; mean and mean square.
    let cases: [(LengthDistribution, f64, f64); 8] = [
        (LengthDistribution::normal(300.0, 120.0, 1, 1000).unwrap(), 300.24677340376, 104382.8187487171),
        (LengthDistribution::log_normal(300.0, 120.0, 1, 1000).unwrap(), 299.94935597431, 104287.0369520348),
        (LengthDistribution::normal(300.0, 300.0, 1, 1000).unwrap(), 324.15783339767, 171041.6878648679),
        (LengthDistribution::log_normal(300.0, 300.0, 1, 1000).unwrap(), 285.81097958852, 135349.452725841),
        (LengthDistribution::normal(3.0, 1.0, 1, 6).unwrap(), 3.0062096653258, 10.08622460364866),
        (LengthDistribution::log_normal(3.0, 1.0, 1, 6).unwrap(), 2.9932082177665, 9.981911291205),
        (LengthDistribution::normal(5000.0, 3000.0, 1, 131_072).unwrap(), 5059.5274605666, 33867285.23177327),
        (LengthDistribution::log_normal(5000.0, 3000.0, 1, 131_072).unwrap(), 4999.9999957517, 33999998.85824247),
    ];
    for (lengths, mean, square) in &cases {
        close(lengths.mean(), *mean, CURVE);
        close(lengths.mean_square(), *square, CURVE);
    }
}

#[test]
fn quantiles_of_bell_curves() {
    // scipy.stats.norm.ppf([0.05, 0.5, 0.95]) = -1.6448536, 0, 1.6448536
    let normal = LengthDistribution::normal(1000.0, 100.0, 1, 10_000).unwrap();
    assert_eq!([0.05, 0.5, 0.95].map(|u| normal.quantile(u)), [836, 1000, 1164]);
    assert_eq!((normal.quantile(0.0), normal.quantile(1.0)), (1, 10_000));
    // The median of a log-normal is mean / sqrt(1 + cv^2).
    let skewed = LengthDistribution::log_normal(1000.0, 1000.0, 1, 1_000_000).unwrap();
    assert_eq!(skewed.quantile(0.5), (1000.0 / 2_f64.sqrt()).round() as u64);
}

#[test]
fn ranges_of_benchmark_clients() {
    // vLLM's random dataset: floor(1024 * 0.7) = 716, ceil(1024 * 1.3) = 1332.
    assert_eq!(LengthDistribution::uniform_ratio(1024, 0.3).unwrap().bounds(), (716, 1332));
    assert_eq!(LengthDistribution::uniform_ratio(128, 0.0).unwrap().bounds(), (128, 128));
    assert_eq!(LengthDistribution::uniform_ratio(1, 0.9).unwrap().bounds(), (1, 2));
    assert!(LengthDistribution::uniform_ratio(128, 1.0).is_err());
    // SGLang's bench_serving: randint(max(int(1024 * 0.8), 1), 1024 + 1).
    assert_eq!(LengthDistribution::uniform_below(1024, 0.8).unwrap().bounds(), (819, 1024));
    assert_eq!(LengthDistribution::uniform_below(1024, 0.0).unwrap().bounds(), (1, 1024));
    assert_eq!(LengthDistribution::uniform_below(1024, 1.0).unwrap().bounds(), (1024, 1024));
    close(LengthDistribution::uniform_below(1000, 0.0).unwrap().mean(), 500.5, 1e-15);
}

#[test]
fn empirical_lengths_from_samples_and_from_a_published_cdf() {
    let counted: LengthDistribution = Empirical::from_samples(&[7, 3, 3, 11, 300]).unwrap().into();
    close(counted.mean(), 324.0 / 5.0, 1e-14);
    close(counted.mean_square(), (49.0 + 9.0 + 9.0 + 121.0 + 90_000.0) / 5.0, 1e-14);
    assert_eq!([0.0, 0.4, 0.41, 0.6, 0.8, 0.81, 1.0].map(|u| counted.quantile(u)), [3, 3, 7, 7, 11, 300, 300]);

    let text = std::fs::read_to_string("tests/data/traces/fleetsim_azure_cdf.json").unwrap();
    let published: LengthDistribution = serde_json::from_str::<Empirical>(&text).unwrap().into();
    // Mean of the piecewise uniform distribution in exact rational arithmetic (Python fractions).
    close(published.mean(), 1627.5059251374842, 1e-12);
    assert_eq!(published.bounds(), (64, 16_384));
    assert_eq!(published.quantile(0.779847436579741), 2048);
}

#[test]
fn a_cumulative_distribution_rises_to_one() {
    let wrong = |points: &[(u64, f64)]| Empirical::from_cumulative(points.to_vec()).unwrap_err();
    assert!(matches!(wrong(&[]), WorkloadError::TooFew { .. }));
    assert!(matches!(wrong(&[(5, 0.5), (5, 1.0)]), WorkloadError::Cumulative { index: 1, .. }));
    assert!(matches!(wrong(&[(5, 0.5), (6, 0.4), (7, 1.0)]), WorkloadError::Cumulative { index: 1, .. }));
    assert!(matches!(wrong(&[(5, 0.5), (6, 0.9)]), WorkloadError::Cumulative { index: 1, .. }));
    assert!(matches!(wrong(&[(5, f64::NAN), (6, 1.0)]), WorkloadError::Cumulative { index: 0, .. }));
    assert!(matches!(wrong(&[(1 << 41, 1.0)]), WorkloadError::TooLong { .. }));
}

#[test]
fn points_are_means_of_equally_likely_classes() {
    let lengths = LengthDistribution::uniform(1, 100).unwrap();
    assert_eq!(lengths.points(4).iter().map(|point| point.round()).collect::<Vec<_>>(), [13.0, 38.0, 63.0, 88.0]);
    assert_eq!(LengthDistribution::Fixed(7).points(3).len(), 3);
    assert!(lengths.points(0).is_empty());
}

#[test]
fn lengths_of_zero_are_refused() {
    assert_eq!(Lengths::fixed(0, 1), Err(WorkloadError::TooShort { what: "prompt", tokens: 0, limit: 1 }));
    assert_eq!(Lengths::fixed(1, 0), Err(WorkloadError::TooShort { what: "output", tokens: 0, limit: 1 }));
    let from_zero = LengthDistribution::normal(10.0, 20.0, 0, 100).unwrap();
    assert!(Lengths::independent(10, from_zero).is_err());
    assert_eq!(
        Lengths::pairs(vec![(3, 4), (3, 0)]).unwrap_err().to_string(),
        "output of 0 tokens: every request has at least 1"
    );
    assert!(Lengths::pairs(Vec::new()).is_err());
    assert_eq!(
        Lengths::fixed(u64::MAX, 1),
        Err(WorkloadError::TooLong { what: "prompt", tokens: u64::MAX, limit: 1 << 40 })
    );
}

#[test]
fn pairs_keep_their_correlation() {
    let lengths = Lengths::pairs(vec![(100, 10), (200, 20), (300, 30)]).unwrap();
    close(lengths.moments().correlation(), 1.0, 1e-12);
    close(lengths.moments().product, (1000.0 + 4000.0 + 9000.0) / 3.0, 1e-14);
    close(lengths.moments().running_prompt(), 14_000.0 / 60.0, 1e-14);
    assert_eq!((lengths.points().len(), lengths.longest(), lengths.longest_total()), (3, (300, 30), 330));
    let opposed = Lengths::pairs(vec![(100, 30), (300, 10)]).unwrap();
    assert_eq!((opposed.longest(), opposed.longest_total()), ((300, 30), 310));
}

#[test]
fn independent_lengths_are_exact_in_all_second_moments() {
    let prompt = LengthDistribution::log_normal(2000.0, 4000.0, 1, 100_000).unwrap();
    let output = LengthDistribution::log_normal(200.0, 300.0, 1, 4096).unwrap();
    let lengths = Lengths::independent(prompt.clone(), output.clone()).unwrap();
    let (points, moments) = (lengths.points(), lengths.moments());
    assert_eq!(points.len(), 64);
    close(weighted(points, |_| 1.0), 1.0, 1e-12);
    close(weighted(points, |p| p.prompt), prompt.mean(), 1e-11);
    close(weighted(points, |p| p.prompt * p.prompt), prompt.mean_square(), 1e-11);
    close(weighted(points, |p| p.output * p.output), moments.output_square, 1e-11);
    close(weighted(points, |p| p.prompt * p.output), moments.product, 1e-11);
    assert!(points.iter().all(|p| p.prompt >= 1.0 && p.prompt <= 1e5 && p.output >= 1.0 && p.output <= 4096.0));
    // One side fixed: all points go to the other.
    let one_sided = Lengths::independent(prompt, 100).unwrap();
    assert!(one_sided.points().len() > 48 && one_sided.points().iter().all(|p| p.output == 100.0));
    assert!(!one_sided.is_fixed() && Lengths::independent(5, 6).unwrap().is_fixed());
}

#[test]
fn many_pairs_become_few_points() {
    // Long tails on both sides, long prompts with long answers: low-discrepancy samples of log-normals.
    let (prompt, noise) = (
        LengthDistribution::log_normal(3000.0, 9000.0, 1, 200_000).unwrap(),
        LengthDistribution::log_normal(200.0, 400.0, 1, 10_000).unwrap(),
    );
    let pairs: Vec<(u64, u64)> = (0..20_000)
        .map(|i| {
            let at = |step: f64| ((f64::from(i) + 0.5) * step).fract();
            let prompt = prompt.quantile(at(0.754_877_666_246_693));
            (prompt, noise.quantile(at(0.569_840_290_998_053)) + prompt / 10)
        })
        .collect();
    let lengths = Lengths::pairs(pairs.clone()).unwrap();
    let (points, moments) = (lengths.points(), lengths.moments());
    assert_eq!(points.len(), 64);
    let mean = pairs.iter().map(|pair| pair.0 as f64).sum::<f64>() / 20_000.0;
    close(moments.prompt, mean, 1e-12);
    close(weighted(points, |p| p.prompt), mean, 1e-9);
    close(weighted(points, |p| p.output), moments.output, 1e-9);
    close(weighted(points, |p| p.prompt * p.prompt), moments.prompt_square, 0.02);
    close(weighted(points, |p| p.output * p.output), moments.output_square, 0.02);
    close(weighted(points, |p| p.prompt * p.output), moments.product, 0.02);
}

#[test]
fn a_mixture_has_the_moments_of_its_parts() {
    let chat = Lengths::independent(LengthDistribution::uniform(10, 1000).unwrap(), 200).unwrap();
    let batch = Lengths::fixed(8000, 50).unwrap();
    let both = Lengths::mixture(vec![(3.0, chat.clone()), (1.0, batch.clone())]).unwrap();
    close(both.moments().prompt, 0.75 * 505.0 + 0.25 * 8000.0, 1e-14);
    close(both.moments().product, 0.75 * chat.moments().product + 0.25 * batch.moments().product, 1e-14);
    close(weighted(both.points(), |p| p.prompt), both.moments().prompt, 1e-9);
    close(weighted(both.points(), |p| p.prompt * p.prompt), both.moments().prompt_square, 0.02);
    assert_eq!((both.longest(), both.longest_total()), ((8000, 200), 8050));
    assert!(Lengths::mixture(vec![(0.0, chat)]).is_err() && Lengths::mixture(Vec::new()).is_err());
}

#[cfg(feature = "random")]
#[test]
fn samples_have_the_moments() {
    use rand::SeedableRng;
    let mut rng = rand_pcg::Pcg64Mcg::seed_from_u64(1);
    let observed = Empirical::from_cumulative(vec![(0, 0.0), (10, 0.3), (500, 0.9), (900, 1.0)]).unwrap();
    for lengths in [
        LengthDistribution::uniform(1, 7).unwrap(),
        LengthDistribution::normal(50.0, 60.0, 1, 120).unwrap(),
        LengthDistribution::log_normal(50.0, 60.0, 1, 200).unwrap(),
        LengthDistribution::Empirical(observed),
        LengthDistribution::Fixed(9),
    ] {
        let count = 200_000;
        let (mut sum, mut squares) = (0.0, 0.0);
        for _ in 0..count {
            let length = lengths.sample(&mut rng) as f64;
            sum += length;
            squares += length * length;
        }
        // Five standard errors of the mean; the relative error of the mean square is about twice as large.
        let error = 5.0 * lengths.deviation() / lengths.mean() / f64::from(count).sqrt() + 1e-12;
        close(sum / f64::from(count), lengths.mean(), error);
        close(squares / f64::from(count), lengths.mean_square(), 4.0 * error);
    }
    let mixture = Lengths::mixture(vec![
        (1.0, Lengths::fixed(1, 2).unwrap()),
        (3.0, Lengths::pairs(vec![(5, 6), (7, 8)]).unwrap()),
    ])
    .unwrap();
    let drawn: Vec<_> = (0..80_000).map(|_| mixture.sample(&mut rng)).collect();
    let share = |pair| drawn.iter().filter(|&&drawn| drawn == pair).count() as f64 / 80_000.0;
    // 0.25, 0.375, 0.375, with standard errors below 0.0018.
    assert!(
        (share((1, 2)) - 0.25).abs() < 0.009
            && (share((5, 6)) - 0.375).abs() < 0.009
            && (share((7, 8)) - 0.375).abs() < 0.009
    );
}

#[test]
fn lengths_survive_text() {
    for lengths in [
        Lengths::fixed(10, 20).unwrap(),
        Lengths::independent(
            LengthDistribution::normal(50.0, 6.5, 1, 120).unwrap(),
            LengthDistribution::uniform(1, 9).unwrap(),
        )
        .unwrap(),
        Lengths::pairs(vec![(1, 2), (3, 4), (3, 4)]).unwrap(),
        Lengths::mixture(vec![(0.5, Lengths::fixed(1, 2).unwrap()), (0.5, Lengths::fixed(3, 4).unwrap())]).unwrap(),
        Lengths::independent(Empirical::from_samples(&[4, 4, 9]).unwrap(), 3).unwrap(),
    ] {
        let text = serde_json::to_string(&lengths).unwrap();
        assert_eq!(serde_json::from_str::<Lengths>(&text).unwrap(), lengths, "{text}");
    }
    let error = serde_json::from_str::<Lengths>(r#"{"fixed": {"prompt": 0, "output": 5}}"#).unwrap_err().to_string();
    assert!(error.contains("at least 1"), "{error}");
    assert!(serde_json::from_str::<LengthDistribution>(r#"{"uniform": {"low": 9, "high": 5}}"#).is_err());
}
