//! Physical quantities as newtypes over `f64`: a number that cannot lose its unit.
//!
//! Every type stores its base unit (byte, second, FLOP, ...). Constructors and getters name the unit they speak, only
//! meaningful operators exist (`Bytes / BytesPerSecond` is `Seconds`; `Flops + Bytes` does not compile), and text is
//! read and written with the unit spelled out, decimal and binary prefixes kept apart.
//!
//! ```
//! use llm_roofline::units::{Bytes, BytesPerSecond};
//!
//! let weights: Bytes = "35 GB".parse()?;
//! let bandwidth: BytesPerSecond = "1000 GB/s".parse()?;
//! assert_eq!((weights / bandwidth).to_string(), "35.0 ms");
//! assert_eq!("80 GiB".parse::<Bytes>()?.as_gb(), 85.899345920);
//! assert!("80 Gb".parse::<Bytes>().is_err()); // gigabits are not an amount of memory here
//! # Ok::<(), llm_roofline::units::UnitError>(())
//! ```

mod text;

use text::Unit;
pub use text::UnitError;

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, Sub, SubAssign};
use std::str::FromStr;

/// Declares one quantity: its base unit, its named units and their text forms. A named unit is `times / per` base units: both are whole,
/// so that one rounding is enough.
macro_rules! quantity {
    (
        $(#[$meta:meta])*
        $name:ident, $what:literal, base $base_from:ident / $base_as:ident,
        named { $($(#[$unit_meta:meta])* $from:ident / $as_:ident = $times:literal / $per:literal;)* },
        text { $($symbol:literal => $scale:expr),* $(,)? },
        show { $($shown:literal),* $(,)? }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
        #[repr(transparent)]
        pub struct $name(f64);

        impl $name {
            /// Nothing of it.
            pub const ZERO: Self = Self(0.0);
            const UNITS: &'static [Unit] = &[$(Unit { symbol: $symbol, scale: $scale }),*];
            const SHOWN: &'static [&'static str] = &[$($shown),*];

            #[doc = concat!("Makes ", $what, " from a number in the base unit.")]
            pub const fn $base_from(value: f64) -> Self {
                Self(value)
            }

            /// The number in the base unit.
            pub const fn $base_as(self) -> f64 {
                self.0
            }

            $(
                $(#[$unit_meta])*
                #[doc = concat!("Makes ", $what, " from a number in the unit that the name says.")]
                pub const fn $from(value: f64) -> Self {
                    Self(value * $times / $per)
                }

                /// The number in the unit that the name says.
                pub const fn $as_(self) -> f64 {
                    self.0 * $per / $times
                }
            )*

            /// The larger of the two.
            #[must_use]
            pub const fn max(self, other: Self) -> Self {
                if self.0 >= other.0 { self } else { other }
            }

            /// The smaller of the two.
            #[must_use]
            pub const fn min(self, other: Self) -> Self {
                if self.0 <= other.0 { self } else { other }
            }

            /// Whether the number is neither NaN nor infinite.
            pub const fn is_finite(self) -> bool {
                self.0.is_finite()
            }
        }

        impl Add for $name {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0 + other.0)
            }
        }

        impl AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                self.0 += other.0;
            }
        }

        impl Sub for $name {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                Self(self.0 - other.0)
            }
        }

        impl SubAssign for $name {
            fn sub_assign(&mut self, other: Self) {
                self.0 -= other.0;
            }
        }

        impl Mul<f64> for $name {
            type Output = Self;
            fn mul(self, factor: f64) -> Self {
                Self(self.0 * factor)
            }
        }

        impl Mul<$name> for f64 {
            type Output = $name;
            fn mul(self, quantity: $name) -> $name {
                $name(self * quantity.0)
            }
        }

        impl Div<f64> for $name {
            type Output = Self;
            fn div(self, divisor: f64) -> Self {
                Self(self.0 / divisor)
            }
        }

        impl Div for $name {
            type Output = f64;
            fn div(self, other: Self) -> f64 {
                self.0 / other.0
            }
        }

        impl Sum for $name {
            fn sum<I: Iterator<Item = Self>>(quantities: I) -> Self {
                // The standard sum of nothing is -0.
                Self(quantities.fold(0.0, |sum, quantity| sum + quantity.0))
            }
        }

        impl FromStr for $name {
            type Err = UnitError;
            fn from_str(text: &str) -> Result<Self, UnitError> {
                text::parse(text, $what, Self::UNITS).map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                text::pad(f, &text::show(self.0, f.precision(), Self::UNITS, Self::SHOWN))
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&text::write(self.0, Self::UNITS, Self::SHOWN))
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str> as serde::Deserialize>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

/// Declares `$left / $right = $out`, and the other quotient and the two products that follow from it.
macro_rules! quotient {
    ($left:ident / $right:ident = $out:ident) => {
        impl Div<$right> for $left {
            type Output = $out;
            fn div(self, divisor: $right) -> $out {
                $out(self.0 / divisor.0)
            }
        }
        impl Div<$out> for $left {
            type Output = $right;
            fn div(self, divisor: $out) -> $right {
                $right(self.0 / divisor.0)
            }
        }
        impl Mul<$right> for $out {
            type Output = $left;
            fn mul(self, factor: $right) -> $left {
                $left(self.0 * factor.0)
            }
        }
        impl Mul<$out> for $right {
            type Output = $left;
            fn mul(self, factor: $out) -> $left {
                $left(self.0 * factor.0)
            }
        }
    };
}

use text::Scale::{Binary, Decimal, Times};

quantity! {
    /// An amount of data. Decimal prefixes (`GB`) are powers of 1000, binary ones (`GiB`) powers of 1024.
    Bytes, "an amount of data", base from_bytes / as_bytes,
    named {
        from_kb / as_kb = 1e3 / 1.0;
        from_mb / as_mb = 1e6 / 1.0;
        from_gb / as_gb = 1e9 / 1.0;
        from_tb / as_tb = 1e12 / 1.0;
        from_kib / as_kib = 1024.0 / 1.0;
        from_mib / as_mib = 1_048_576.0 / 1.0;
        from_gib / as_gib = 1_073_741_824.0 / 1.0;
    },
    text {
        "B" => Decimal(0), "kB" => Decimal(3), "KB" => Decimal(3), "MB" => Decimal(6), "GB" => Decimal(9), "TB" => Decimal(12),
        "PB" => Decimal(15), "KiB" => Binary(10), "MiB" => Binary(20), "GiB" => Binary(30), "TiB" => Binary(40),
    },
    show { "B", "kB", "MB", "GB", "TB", "PB" }
}

quantity! {
    /// A rate of data movement, always per direction for links.
    BytesPerSecond, "a bandwidth", base from_bytes_per_second / as_bytes_per_second,
    named {
        from_gb_per_second / as_gb_per_second = 1e9 / 1.0;
        from_tb_per_second / as_tb_per_second = 1e12 / 1.0;
    },
    text {
        "B/s" => Decimal(0), "kB/s" => Decimal(3), "MB/s" => Decimal(6), "GB/s" => Decimal(9), "TB/s" => Decimal(12),
        "PB/s" => Decimal(15), "MiB/s" => Binary(20), "GiB/s" => Binary(30), "TiB/s" => Binary(40),
    },
    show { "B/s", "kB/s", "MB/s", "GB/s", "TB/s", "PB/s" }
}

quantity! {
    /// A number of floating-point (or integer) operations; a multiply-add counts as two.
    Flops, "a number of operations", base from_flops / as_flops,
    named {
        from_gflops / as_gflops = 1e9 / 1.0;
        from_tflops / as_tflops = 1e12 / 1.0;
    },
    text {
        "FLOP" => Decimal(0), "kFLOP" => Decimal(3), "MFLOP" => Decimal(6), "GFLOP" => Decimal(9), "TFLOP" => Decimal(12),
        "PFLOP" => Decimal(15), "EFLOP" => Decimal(18),
    },
    show { "FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP" }
}

quantity! {
    /// A rate of arithmetic, dense (never with sparsity). Integer rates may be written `TOP/s`.
    FlopsPerSecond, "a rate of arithmetic", base from_flops_per_second / as_flops_per_second,
    named {
        from_gflops_per_second / as_gflops_per_second = 1e9 / 1.0;
        from_tflops_per_second / as_tflops_per_second = 1e12 / 1.0;
    },
    text {
        "FLOP/s" => Decimal(0), "GFLOP/s" => Decimal(9), "TFLOP/s" => Decimal(12), "PFLOP/s" => Decimal(15),
        "TFLOPS" => Decimal(12), "PFLOPS" => Decimal(15), "TOP/s" => Decimal(12), "TOPS" => Decimal(12), "POP/s" => Decimal(15),
    },
    show { "FLOP/s", "GFLOP/s", "TFLOP/s", "PFLOP/s" }
}

quantity! {
    /// A duration.
    Seconds, "a duration", base from_seconds / as_seconds,
    named {
        from_millis / as_millis = 1.0 / 1e3;
        from_micros / as_micros = 1.0 / 1e6;
        from_nanos / as_nanos = 1.0 / 1e9;
    },
    text {
        "s" => Decimal(0), "ms" => Decimal(-3), "us" => Decimal(-6), "µs" => Decimal(-6), "ns" => Decimal(-9),
        "min" => Times(60.0), "h" => Times(3600.0), "d" => Times(86400.0),
    },
    show { "ns", "us", "ms", "s" }
}

quantity! {
    /// Electrical power.
    Watts, "a power", base from_watts / as_watts,
    named { from_kilowatts / as_kilowatts = 1e3 / 1.0; },
    text { "W" => Decimal(0), "mW" => Decimal(-3), "kW" => Decimal(3), "MW" => Decimal(6) },
    show { "W", "kW", "MW" }
}

quantity! {
    /// An amount of energy.
    Joules, "an energy", base from_joules / as_joules,
    named { from_watt_hours / as_watt_hours = 3600.0 / 1.0; },
    text { "J" => Decimal(0), "kJ" => Decimal(3), "MJ" => Decimal(6), "Wh" => Times(3600.0), "kWh" => Times(3_600_000.0) },
    show { "J", "kJ", "MJ" }
}

quantity! {
    /// Arithmetic intensity: operations per byte moved.
    FlopsPerByte, "an arithmetic intensity", base from_flops_per_byte / as_flops_per_byte,
    named {},
    text { "FLOP/B" => Decimal(0), "kFLOP/B" => Decimal(3) },
    show { "FLOP/B", "kFLOP/B" }
}

quantity! {
    /// A rate of tokens. The name of the field or method that holds one says per what (stream, device, or in total).
    TokensPerSecond, "a token rate", base from_tokens_per_second / as_tokens_per_second,
    named {},
    text { "tok/s" => Decimal(0), "ktok/s" => Decimal(3), "Mtok/s" => Decimal(6) },
    show { "tok/s", "ktok/s", "Mtok/s" }
}

quantity! {
    /// A rate of requests: arrivals or completions.
    RequestsPerSecond, "a request rate", base from_requests_per_second / as_requests_per_second,
    named { from_requests_per_minute / as_requests_per_minute = 1.0 / 60.0; },
    text { "req/s" => Decimal(0), "kreq/s" => Decimal(3), "req/min" => Times(1.0 / 60.0) },
    show { "req/s", "kreq/s" }
}

quantity! {
    /// A price of use in US dollars per device and hour.
    UsdPerHour, "a price per hour", base from_usd_per_hour / as_usd_per_hour,
    named {},
    text { "USD/h" => Decimal(0), "$/h" => Decimal(0) },
    show { "USD/h" }
}

quantity! {
    /// An amount of money in US dollars.
    Usd, "an amount of money", base from_usd / as_usd,
    named {},
    text { "USD" => Decimal(0), "$" => Decimal(0) },
    show { "USD" }
}

quantity! {
    /// A price of tokens in US dollars per million. The name of the field or method that holds one says which tokens.
    UsdPerMillionTokens, "a price of tokens", base from_usd_per_million_tokens / as_usd_per_million_tokens,
    named {},
    text { "USD/Mtok" => Decimal(0), "$/Mtok" => Decimal(0) },
    show { "USD/Mtok" }
}

quantity! {
    /// Energy per token.
    JoulesPerToken, "an energy per token", base from_joules_per_token / as_joules_per_token,
    named { from_kwh_per_million_tokens / as_kwh_per_million_tokens = 3.6 / 1.0; },
    text { "J/tok" => Decimal(0), "mJ/tok" => Decimal(-3), "kJ/tok" => Decimal(3), "kWh/Mtok" => Times(3.6) },
    show { "mJ/tok", "J/tok", "kJ/tok" }
}

quotient!(Bytes / BytesPerSecond = Seconds);
quotient!(Flops / FlopsPerSecond = Seconds);
quotient!(Joules / Watts = Seconds);
quotient!(Watts / TokensPerSecond = JoulesPerToken);

impl Div<Bytes> for Flops {
    type Output = FlopsPerByte;
    fn div(self, bytes: Bytes) -> FlopsPerByte {
        FlopsPerByte(self.0 / bytes.0)
    }
}

impl Div<BytesPerSecond> for FlopsPerSecond {
    type Output = FlopsPerByte;
    fn div(self, bandwidth: BytesPerSecond) -> FlopsPerByte {
        FlopsPerByte(self.0 / bandwidth.0)
    }
}

impl Mul<BytesPerSecond> for FlopsPerByte {
    type Output = FlopsPerSecond;
    fn mul(self, bandwidth: BytesPerSecond) -> FlopsPerSecond {
        FlopsPerSecond(self.0 * bandwidth.0)
    }
}

impl Mul<Seconds> for UsdPerHour {
    type Output = Usd;
    fn mul(self, time: Seconds) -> Usd {
        Usd(self.0 * time.0 / 3600.0)
    }
}

impl Div<UsdPerHour> for Usd {
    type Output = Seconds;
    fn div(self, price: UsdPerHour) -> Seconds {
        Seconds(self.0 / price.0 * 3600.0)
    }
}

impl Div<TokensPerSecond> for UsdPerHour {
    type Output = UsdPerMillionTokens;
    /// What a million tokens cost of something that makes so many per second: `price / (3600 rate) * 10^6`.
    fn div(self, rate: TokensPerSecond) -> UsdPerMillionTokens {
        UsdPerMillionTokens(self.0 / 3600.0 / rate.0 * 1e6)
    }
}

impl UsdPerMillionTokens {
    /// What so many tokens cost.
    pub const fn of_tokens(self, tokens: f64) -> Usd {
        Usd(self.0 * tokens / 1e6)
    }
}

impl RequestsPerSecond {
    /// The mean time from one request to the next.
    pub const fn interval(self) -> Seconds {
        Seconds(1.0 / self.0)
    }

    /// Tokens per second if every request has so many, on average.
    pub const fn token_rate(self, tokens_per_request: f64) -> TokensPerSecond {
        TokensPerSecond(self.0 * tokens_per_request)
    }

    /// How many requests come, on average, in this time.
    pub const fn requests_in(self, time: Seconds) -> f64 {
        self.0 * time.0
    }
}

impl Seconds {
    /// How many tokens per second one token every so long is.
    pub const fn token_rate(self) -> TokensPerSecond {
        TokensPerSecond(1.0 / self.0)
    }
}

#[cfg(test)]
mod tests;
