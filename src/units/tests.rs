use super::*;
use proptest::prelude::*;

#[test]
fn text_is_read_to_the_nearest_float() {
    assert_eq!("3.35 TB/s".parse::<BytesPerSecond>().unwrap().as_bytes_per_second(), 3.35e12);
    assert_eq!("989 TFLOP/s".parse::<FlopsPerSecond>().unwrap().as_tflops_per_second(), 989.0);
    assert_eq!("5.2 us".parse::<Seconds>().unwrap().as_seconds(), 5.2e-6);
    assert_eq!("5.2us".parse::<Seconds>().unwrap().as_seconds(), 5.2e-6);
    assert_eq!("1.5e3 ms".parse::<Seconds>().unwrap().as_seconds(), 1.5);
}

#[test]
fn whole_numbers_of_a_unit_are_the_same_as_their_text() {
    for (micros, text) in [(5.0, "5 us"), (7.0, "7 us"), (250.0, "250 us")] {
        assert_eq!(Seconds::from_micros(micros), text.parse().unwrap());
    }
    assert_eq!(Seconds::from_millis(35.0).as_millis(), 35.0);
    assert_eq!(Bytes::from_gib(80.0), "80 GiB".parse().unwrap());
}

#[test]
fn decimal_and_binary_prefixes_differ() {
    let (decimal, binary): (Bytes, Bytes) = ("80 GB".parse().unwrap(), "80 GiB".parse().unwrap());
    assert_eq!(decimal.as_bytes(), 80e9);
    assert_eq!(binary.as_bytes(), 80.0 * 1024.0 * 1024.0 * 1024.0);
}

#[test]
fn errors_name_what_was_expected() {
    let error = |text: &str| text.parse::<BytesPerSecond>().unwrap_err();
    assert!(matches!(error("3.35"), UnitError::MissingUnit { .. }));
    assert!(error("3.35").to_string().contains("TB/s"));
    assert!(matches!(error("400 Gb/s"), UnitError::UnknownUnit { .. }));
    assert!(error("400 Gb/s").to_string().contains("bits are not accepted"));
    assert!(error("400 Gbit/s").to_string().contains("divide by 8"));
    assert!(error("400 Gbps").to_string().contains("divide by 8"));
    assert!(matches!(error("fast"), UnitError::NotANumber { .. }));
    assert!(matches!(error("-1 GB/s"), UnitError::OutOfRange { .. }));
    assert!(matches!(error("NaN GB/s"), UnitError::OutOfRange { .. }));
    assert!(matches!(error("inf GB/s"), UnitError::OutOfRange { .. }));
    assert!(matches!(error("1e999 GB/s"), UnitError::OutOfRange { .. }));
    assert!(matches!("80 GB/s".parse::<Bytes>().unwrap_err(), UnitError::UnknownUnit { .. }));
}

#[test]
fn display_picks_a_sensible_unit() {
    assert_eq!(Seconds::from_millis(35.0).to_string(), "35.0 ms");
    assert_eq!(Seconds::from_seconds(2.5e-7).to_string(), "250 ns");
    assert_eq!(Bytes::from_gb(80.0).to_string(), "80.0 GB");
    assert_eq!(Bytes::ZERO.to_string(), "0.00 B");
    assert_eq!(Seconds::from_millis(999.96).to_string(), "1.00 s");
    assert_eq!(Seconds::from_millis(999.9).to_string(), "999.9 ms");
    assert_eq!(format!("{:.3}", Seconds::from_seconds(1.23456)), "1.235 s");
    assert_eq!(format!("{:>10}", Bytes::from_gb(80.0)), "   80.0 GB");
}

#[test]
fn quotients_have_the_right_dimension() {
    let time: Seconds = Bytes::from_gb(35.0) / BytesPerSecond::from_gb_per_second(1000.0);
    assert_eq!(time.as_seconds(), 0.035);
    let ridge = FlopsPerSecond::from_tflops_per_second(312.0) / BytesPerSecond::from_tb_per_second(1.5);
    assert_eq!(ridge.as_flops_per_byte(), 208.0); // Chen (kipply), Transformer Inference Arithmetic, 2022
}

#[test]
fn money_and_energy_per_token() {
    assert_eq!((UsdPerHour::from_usd_per_hour(2.0) * Seconds::from_seconds(1800.0)).as_usd(), 1.0);
    assert_eq!((Usd::from_usd(1.0) / UsdPerHour::from_usd_per_hour(2.0)).as_seconds(), 1800.0);
    // A thousand tokens a second are 3.6 million an hour.
    let price = UsdPerHour::from_usd_per_hour(3.6) / TokensPerSecond::from_tokens_per_second(1000.0);
    assert!((price.as_usd_per_million_tokens() - 1.0).abs() < 1e-12);
    assert_eq!(price.of_tokens(2e6).as_usd(), 2.0 * price.as_usd_per_million_tokens());
    let energy = Watts::from_watts(700.0) / TokensPerSecond::from_tokens_per_second(100.0);
    assert_eq!((energy.as_joules_per_token(), energy.to_string()), (7.0, "7.00 J/tok".into()));
    assert!((JoulesPerToken::from_joules_per_token(3.6).as_kwh_per_million_tokens() - 1.0).abs() < 1e-12);
}

proptest! {
    #[test]
    fn written_text_reads_back_equal(value in 0f64..1e18, small in 1e-12f64..1.0) {
        for number in [value, small, value * small] {
            let bytes = Bytes::from_bytes(number);
            let text = toml::Value::try_from(bytes).unwrap();
            prop_assert_eq!(text.as_str().unwrap().parse::<Bytes>().unwrap(), bytes);
            let seconds = Seconds::from_seconds(number);
            let text = toml::Value::try_from(seconds).unwrap();
            prop_assert_eq!(text.as_str().unwrap().parse::<Seconds>().unwrap(), seconds);
        }
    }

    #[test]
    fn parsing_never_panics(text in ".{0,40}") {
        let _ = text.parse::<Bytes>();
        let _ = text.parse::<FlopsPerSecond>();
    }
}
