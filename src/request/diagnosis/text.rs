//! A diagnosis in words.

use super::{Cause, Diagnosis, Measured, Verdict};
use crate::units::Seconds;
use std::fmt;

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Impossible => "impossible",
            Self::FasterThanExpected => "faster than expected",
            Self::Healthy => "healthy",
            Self::Slow => "slow",
            Self::Broken => "broken",
        })
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Limit => "the hardware's limit",
            Self::MatrixProducts => "+ matrix products below the peak",
            Self::Attention => "+ attention below the peak",
            Self::Elementwise => "+ norms, activations, sampling",
            Self::Launches => "+ kernel launches",
            Self::Host => "+ host between steps",
            Self::Communication => "+ communication beyond the links' limit",
        })
    }
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n{}\n", self.deployment, self.load())?;
        let low_high = (self.rate(self.predicted.high), self.rate(self.predicted.low));
        writeln!(f, "  {:<10} {:>16}   {}", "measured", self.rate(self.measured), self.measured)?;
        write!(f, "  {:<10} {:>16}   {}", "expected", self.rate(self.predicted.expected), self.predicted.expected)?;
        if self.is_prediction() {
            write!(f, "; nine of ten measurements from {} to {}", low_high.0, low_high.1)?;
        }
        writeln!(
            f,
            "\n  {:<10} {:>16}   {}; the hardware cannot be faster\n",
            "limit",
            self.rate(self.ideal),
            self.ideal
        )?;
        writeln!(f, "Verdict: {}. {}", self.verdict, self.reading())?;
        writeln!(f, "{}\n", self.utilisation())?;
        self.write_parts(f)?;
        if let Some(missing) = &self.does_not_fit {
            writeln!(f, "\nMemory: {missing}.\nAn engine that runs it nevertheless keeps a part in slower memory.")?;
        }
        self.write_suspects(f)?;
        let advice = self.advice();
        if !advice.is_empty() {
            writeln!(f, "\nWorth checking:")?;
        }
        advice.iter().try_for_each(|line| writeln!(f, "  - {line}"))
    }
}

impl Diagnosis {
    fn load(&self) -> String {
        let (batch, context) = (self.observation.batch, self.observation.context);
        match self.observation.is_prefill() {
            true => format!("prefill of {batch} x {context} prompt tokens"),
            false => format!("decode of {batch} x 1 token, {context} tokens in each cache"),
        }
    }

    /// The rate that belongs to a time, in the unit that was measured.
    fn rate(&self, time: Seconds) -> String {
        let tokens = match self.observation.measured {
            Measured::PrefillTps(_) => self.observation.context as f64 * self.observation.batch as f64,
            _ => 1.0,
        };
        let rate = tokens / time.as_seconds();
        if rate < 1000.0 { format!("{rate:.1} tok/s") } else { format!("{rate:.0} tok/s") }
    }

    fn reading(&self) -> String {
        let over = self.measured / self.predicted.expected;
        if !self.is_prediction() && self.verdict != Verdict::Impossible {
            return "The engine loses nothing, so it only says what the hardware could do; name a real one to learn what is usual.".into();
        }
        match self.verdict {
            Verdict::Impossible => format!(
                "The hardware needs {:.2} times the measured time at the least, so the measurement or its description is wrong.",
                self.fraction_of_limit()
            ),
            Verdict::FasterThanExpected => {
                format!("{:.2} times as fast as this engine usually is on this hardware.", 1.0 / over)
            }
            Verdict::Healthy => "This is what this engine usually reaches on this hardware.".into(),
            Verdict::Slow => format!("It takes {over:.2} times as long as expected: look at the settings."),
            Verdict::Broken => {
                format!("It takes {over:.1} times as long as expected: more than settings usually cost.")
            }
        }
    }

    fn utilisation(&self) -> String {
        let (reached, expected) = (100.0 * self.fraction_of_limit(), 100.0 * self.expected_fraction_of_limit());
        let utilisation = match (self.mbu, self.mfu) {
            (Some(mbu), _) => format!("MBU {:.0} %", 100.0 * mbu),
            (_, Some(mfu)) => format!("MFU {:.0} %", 100.0 * mfu),
            _ => String::new(),
        };
        let usual = if self.is_prediction() { format!(", {expected:.0} % are usual") } else { String::new() };
        format!("{reached:.0} % of the hardware's limit are reached{usual}; {utilisation}.")
    }

    /// Whether the engine says what is usual; the ideal one is a bound.
    fn is_prediction(&self) -> bool {
        self.predicted.low < self.predicted.high
    }

    fn write_parts(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Where the time goes:")?;
        let mut row = |name: &str, time: Seconds| {
            let share = 100.0 * (time / self.measured);
            let time = if time < Seconds::ZERO { format!("-{}", Seconds::ZERO - time) } else { time.to_string() };
            writeln!(f, "  {name:<42} {time:>10} {share:>5.0} %")
        };
        for (cause, time) in self.parts() {
            if time > self.measured * 0.0005 {
                row(&cause.to_string(), time)?;
            }
        }
        row("= expected", self.predicted.expected)?;
        row("+ unexplained", self.unexplained())?;
        row("= measured", self.measured)
    }

    fn write_suspects(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.suspects.is_empty() {
            return Ok(());
        }
        writeln!(f, "\nConsistent with (the same load, priced otherwise; agreement is no proof):")?;
        for suspect in &self.suspects {
            writeln!(
                f,
                "  - {}: {}, {}\n    check: {}",
                suspect.what,
                suspect.time,
                self.rate(suspect.time),
                suspect.check
            )?;
        }
        Ok(())
    }

    /// What usually stands behind such a verdict.
    fn advice(&self) -> Vec<&'static str> {
        let prefill = self.observation.is_prefill();
        let several = self.explanation.operators.iter().any(|operator| &*operator.group == "communication");
        let mut advice = match self.verdict {
            Verdict::Healthy => return Vec::new(),
            Verdict::Impossible | Verdict::FasterThanExpected if prefill => {
                vec![
                    "prefix caching: cached prompt tokens are not computed",
                    "whether all prompt tokens were counted once",
                ]
            }
            Verdict::Impossible | Verdict::FasterThanExpected => vec![
                "speculative decoding, which writes several tokens per step",
                "whether the rate is that of one stream, not of the batch",
                "model, weight format and context as described; overclocked memory",
            ],
            Verdict::Slow => vec![
                "clocks and power limit while it runs; other processes on the device",
                "context and batch as described; format of the cache",
                "the version of the engine: another profile of the catalog may describe it",
            ],
            Verdict::Broken => vec![
                "whether all layers are on the device, and which device it is",
                "memory use near the limit: drivers page to system memory without an error",
                "fallback kernels: unsupported format or architecture, debug build, missing compilation",
                "other requests at the same time; temperature and clocks",
            ],
        };
        if several && !matches!(self.verdict, Verdict::Slow | Verdict::Broken) {
            advice.push("whether layers are split between the devices, not every matrix: nothing is summed up over the links then");
        }
        if matches!(self.verdict, Verdict::Slow | Verdict::Broken) {
            advice.push(if prefill {
                "prompts short enough that launches and the host count; the size of the engine's prompt batch"
            } else {
                "whether the time of the prompt is in the measured rate"
            });
            if several {
                advice.push("links between the devices: width of the slots, peer-to-peer access");
            }
        }
        advice
    }
}
