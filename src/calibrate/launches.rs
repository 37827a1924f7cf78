//! Settings that published benchmarks were launched with and that their rows do not state.

use super::measurement::Measurement;
use std::sync::LazyLock;

/// A setting that is known from a launch script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Launched {
    /// Format of the cache.
    Cache,
    /// Most tokens in a step.
    StepTokens,
    /// Mean decode steps until a prompt is taken.
    WaitSteps,
    /// Requests before those that were measured.
    WarmUp,
}

impl Launched {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "kv" => Self::Cache,
            "step-tokens" => Self::StepTokens,
            "wait-steps" => Self::WaitSteps,
            "warm-up" => Self::WarmUp,
            _ => return None,
        })
    }
}

/// The value of a setting in the benchmark that a row belongs to, as the script says it.
pub(super) fn launched(row: &Measurement, setting: Launched) -> Option<&'static str> {
    LAUNCHES.iter().rfind(|launch| launch.setting == setting && launch.holds(row)).map(|launch| launch.value)
}

/// All that is known of the benchmark that a row belongs to.
pub(super) fn all(row: &Measurement) -> impl Iterator<Item = (&'static str, &'static str)> {
    [
        ("kv", Launched::Cache),
        ("step-tokens", Launched::StepTokens),
        ("wait-steps", Launched::WaitSteps),
        ("warm-up", Launched::WarmUp),
    ]
    .into_iter()
    .filter_map(|(name, setting)| launched(row, setting).map(|value| (name, value)))
}

/// A line of the table.
struct Launch {
    conditions: [&'static str; 11],
    setting: Launched,
    value: &'static str,
}

static LAUNCHES: LazyLock<Vec<Launch>> = LazyLock::new(|| {
    let lines = include_str!("launches.csv").lines().filter(|line| !line.starts_with('#')).skip(1);
    lines
        .filter_map(|line| {
            let cells: [&'static str; 13] = line.split(',').collect::<Vec<_>>().try_into().ok()?;
            let [conditions @ .., setting, value] = cells;
            Some(Launch { conditions, setting: Launched::named(setting)?, value })
        })
        .collect()
});

impl Launch {
    fn holds(&self, row: &Measurement) -> bool {
        let [source, engine, device, model, format, layout, input, output, concurrency, from, until] = self.conditions;
        let date = row.date.as_deref().unwrap_or_default();
        let layout_holds = match layout.split_once(['<', '>']) {
            Some(("tp", _)) => within(&layout[2..], Some(f64::from(row.tp.max(row.ep)))),
            _ => layout == "*",
        };
        row.source == source
            && row.engine == engine
            && (device == "*" || row.device.starts_with(device))
            && (model == "*" || row.model == model)
            && (format == "*" || row.weight_format == format)
            && layout_holds
            && within(input, row.input_tokens)
            && within(output, row.output_tokens)
            && within(concurrency, row.concurrency)
            && (from.is_empty() || date >= from)
            && (until.is_empty() || (date < until && !date.is_empty()))
    }
}

/// Whether a number meets `*`, `<8`, `>=16` or `64..256`.
fn within(bound: &str, number: Option<f64>) -> bool {
    if bound == "*" {
        return true;
    }
    let Some(number) = number else { return false };
    let parsed = |text: &str| text.parse::<f64>().unwrap_or(f64::NAN);
    if let Some(limit) = bound.strip_prefix(">=") {
        number >= parsed(limit)
    } else if let Some(limit) = bound.strip_prefix('<') {
        number < parsed(limit)
    } else if let Some((low, high)) = bound.split_once("..") {
        number >= parsed(low) && number < parsed(high)
    } else {
        number == parsed(bound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_read() {
        let lines = include_str!("launches.csv").lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        assert_eq!(LAUNCHES.len() + 1, lines.count());
        for launch in LAUNCHES.iter() {
            for bound in &launch.conditions[6..9] {
                let text = bound.trim_start_matches(['<', '>', '=']);
                assert!(*bound == "*" || text.split("..").all(|part| part.parse::<f64>().is_ok()), "{bound}");
            }
        }
    }

    #[test]
    fn bounds_hold_where_they_say() {
        assert!(within("*", None) && within("<8", Some(7.0)) && !within("<8", Some(8.0)) && !within("<8", None));
        assert!(within(">=16", Some(16.0)) && within("64..256", Some(64.0)) && !within("64..256", Some(256.0)));
    }
}
