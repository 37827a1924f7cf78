//! Dates of traces.

const NANOSECONDS: i128 = 1_000_000_000;

/// Nanoseconds from 1970 to a date like `2023-11-16 18:15:46.6805900` or `2024-05-10T00:00:00.009930+00:00`; digits beyond nanoseconds are
/// dropped.
pub(super) fn parse(text: &str) -> Option<i128> {
    let text = text.trim();
    let (date, clock) = text.split_once([' ', 'T'])?;
    let mut parts = date.splitn(3, '-');
    let (year, month, day) = (number(parts.next()?, 4)?, number(parts.next()?, 2)?, number(parts.next()?, 2)?);
    let (clock, offset) = match clock.find(['+', '-', 'Z']) {
        Some(at) => (&clock[..at], offset_minutes(&clock[at..])?),
        None => (clock, 0),
    };
    let (clock, fraction) = clock.split_once('.').map_or((clock, None), |(clock, fraction)| (clock, Some(fraction)));
    let mut parts = clock.splitn(3, ':');
    let (hour, minute, second) = (number(parts.next()?, 2)?, number(parts.next()?, 2)?, number(parts.next()?, 2)?);
    let in_range = day >= 1 && day <= days_in_month(year, month)? && hour < 24 && minute < 60 && second <= 60;
    let seconds = days_from_1970(year, month, day) * 86_400 + hour * 3600 + (minute - offset) * 60 + second;
    in_range.then_some(i128::from(seconds) * NANOSECONDS + fraction.map_or(Some(0), nanoseconds)?)
}

fn number(digits: &str, length: usize) -> Option<i64> {
    (digits.len() == length && digits.bytes().all(|byte| byte.is_ascii_digit())).then(|| digits.parse().ok())?
}

fn nanoseconds(digits: &str) -> Option<i128> {
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let padded: String = digits.chars().chain(std::iter::repeat('0')).take(9).collect();
    padded.parse().ok()
}

fn offset_minutes(text: &str) -> Option<i64> {
    if text == "Z" {
        return Some(0);
    }
    let sign = if text.starts_with('-') { -1 } else { 1 };
    let (hours, minutes) = text.get(1..)?.split_once(':')?;
    Some(sign * (60 * number(hours, 2)? + number(minutes, 2)?))
}

fn days_in_month(year: i64, month: i64) -> Option<i64> {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => Some(31),
        4 | 6 | 9 | 11 => Some(30),
        2 => Some(if leap { 29 } else { 28 }),
        _ => None,
    }
}

/// Days from 1970-01-01, counted in years that begin in March so that the leap day is the last one.
fn days_from_1970(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    365 * year + leap_days + (153 * month + 2) / 5 + day - 719_469
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_date_command() {
        // date -u -d '2023-11-16 18:15:46' +%s; date -u -d '2024-02-29 23:59:59' +%s; date -u -d '1969-12-31 00:00:00' +%s
        assert_eq!(parse("2023-11-16 18:15:46.6805900"), Some(1_700_158_546_680_590_000));
        assert_eq!(parse("2024-02-29T23:59:59Z"), Some(1_709_251_199_000_000_000));
        assert_eq!(parse("1969-12-31 00:00:00"), Some(-86_400_000_000_000));
        assert_eq!(parse("2024-05-10 02:00:00.009930+02:00"), parse("2024-05-10 00:00:00.00993"));
        assert_eq!(parse("2024-05-09 20:30:00-03:30"), parse("2024-05-10 00:00:00+00:00"));
    }

    #[test]
    fn what_is_no_date_is_refused() {
        for text in [
            "",
            " ",
            "2023-11-16",
            "2023-02-29 00:00:00",
            "2023-13-01 00:00:00",
            "2023-11-16 24:00:00",
            "2023-11-16 18:15",
            "x",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(parse("2023-11-16 18:15:46."), None);
        assert_eq!(parse("2023-11-16 18:15:46+2"), None);
        assert_eq!(parse("2023-11-16 18:15:4é"), None);
    }
}
