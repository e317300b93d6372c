//! Durations as people type them: `500ms`, `30s`, `1h30m`, `0`.

use std::time::Duration;

/// Longer spans are typing errors, and sums of shorter ones cannot overflow anything.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Units and their nanoseconds.
const UNITS: [(&str, u64); 9] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60 * 1_000_000_000),
    ("h", 3_600 * 1_000_000_000),
    ("d", 86_400 * 1_000_000_000),
    ("w", 604_800 * 1_000_000_000),
];

/// Reads one or more `<digits>[.<digits>]<unit>`, or `0`. Fits clap's `value_parser`.
///
/// # Errors
/// What is wrong with the text, for the person who typed it.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let (mut total, mut rest) = (Duration::ZERO, text);
    loop {
        let (nanos, after) = part(rest).ok_or(
            "expected numbers with units, such as 500ms, 30s or 1h30m (ns us ms s m h d w)",
        )?;
        total = nanos
            .and_then(|nanos| total.checked_add(Duration::from_nanos(nanos)))
            .filter(|total| *total <= LONGEST)
            .ok_or("longer than 100 years")?;
        if after.is_empty() {
            return Ok(total);
        }
        rest = after;
    }
}

/// The nanoseconds of the first part, or `None` inside if they are too many, and the rest.
fn part(text: &str) -> Option<(Option<u64>, &str)> {
    let (whole, rest) = digits(text)?;
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(rest) => digits(rest)?,
        None => ("", rest),
    };
    let end = rest
        .find(|c: char| c.is_ascii_digit())
        .unwrap_or(rest.len());
    let (word, rest) = rest.split_at(end);
    let (_, unit) = UNITS.iter().find(|(name, _)| *name == word)?;
    Some((nanos(whole, fraction, *unit), rest))
}

fn digits(text: &str) -> Option<(&str, &str)> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

fn nanos(whole: &str, fraction: &str, unit: u64) -> Option<u64> {
    let mut total = whole.parse::<u64>().ok()?.checked_mul(unit)?;
    // Digit by digit, so that no number of decimals can overflow; parts of a nanosecond are cut.
    let (mut numerator, mut scale) = (0_u128, 1_u128);
    for digit in fraction.bytes().take(18) {
        numerator = numerator * 10 + u128::from(digit - b'0');
        scale *= 10;
    }
    total = total.checked_add(u64::try_from(numerator * u128::from(unit) / scale).ok()?)?;
    Some(total)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_people_type_is_read() {
        for (text, micros) in [
            ("0", 0),
            ("0s", 0),
            ("1000ns", 1),
            ("3us", 3),
            ("3µs", 3),
            ("500ms", 500_000),
            ("0.5s", 500_000),
            ("30s", 30_000_000),
            ("5m", 300_000_000),
            ("1h30m", 5_400_000_000),
            ("1.5h", 5_400_000_000),
            ("7d", 604_800_000_000),
            ("1w", 604_800_000_000),
            ("1s1s", 2_000_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_micros(micros)), "{text}");
        }
    }

    #[test]
    fn everything_else_is_refused() {
        for text in [
            "", "5", "00", "s", "5mins", "-5s", "+5s", "5 s", " 5s", "5s ", ".5s", "5.s", "1e3s",
            "1,5s", "5S", "1h30", "٣s",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        for text in [
            "37000d",
            "99999999999999999999s",
            "5000000000h",
            "5000w5000w",
        ] {
            assert_eq!(parse(text), Err("longer than 100 years".into()), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in "[0-9.nsuµmhdw]{0,30}|.*") {
            let _ = parse(&text);
        }

        #[test]
        fn parts_add_up(h in 0_u64..1000, m in 0_u64..1000, ms in 0_u64..1_000_000) {
            let expected = Duration::from_millis(((h * 60) + m) * 60_000 + ms);
            prop_assert_eq!(parse(&format!("{h}h{m}m{ms}ms")), Ok(expected));
        }

        #[test]
        fn decimals_are_exact_to_the_nanosecond(s in 0_u64..1_000_000, ns in 0_u32..1_000_000_000) {
            prop_assert_eq!(parse(&format!("{s}.{ns:09}s")), Ok(Duration::new(s, ns)));
        }
    }
}
