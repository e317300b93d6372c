//! Durations as people write them: `"30s"`, `"1h30m"`, `"1.5h"`, `"0"`.

use std::time::Duration;

/// Longest duration a key takes: a hundred years.
const LONGEST: Duration = Duration::from_secs(36_525 * 24 * 3600);

const UNITS: [(&str, u64); 9] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
    ("w", 604_800_000_000_000),
];

/// Reads a duration, or says what is wrong with it.
pub(crate) fn parse(text: &str) -> Result<Duration, &'static str> {
    const SHAPE: &str =
        "expected numbers with a unit, such as \"30s\" or \"1h30m\" (ns us ms s m h d w)";
    const TOO_LONG: &str = "longer than 100 years";
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    if text.is_empty() {
        return Err(SHAPE);
    }
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let (part, after) = part(rest).ok_or(SHAPE)?;
        total = part
            .and_then(|part| total.checked_add(part))
            .ok_or(TOO_LONG)?;
        rest = after;
    }
    if total > LONGEST {
        Err(TOO_LONG)
    } else {
        Ok(total)
    }
}

/// One `<digits>[.<digits>]<unit>` and what follows it. The inner `None` is a number beyond all
/// bounds.
fn part(text: &str) -> Option<(Option<Duration>, &str)> {
    let (whole, rest) = digits(text)?;
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(rest) => digits(rest)?,
        None => ("", rest),
    };
    let end = rest
        .find(|c: char| c.is_ascii_digit())
        .unwrap_or(rest.len());
    let (unit, after) = rest.split_at(end);
    let (_, nanos) = UNITS.iter().find(|(name, _)| *name == unit)?;
    Some((value(whole, fraction, *nanos), after))
}

fn digits(text: &str) -> Option<(&str, &str)> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

fn value(whole: &str, fraction: &str, nanos: u64) -> Option<Duration> {
    let whole = whole.parse::<u64>().ok()?.checked_mul(nanos)?;
    // A week has 15 digits of nanoseconds: what stands behind the 15th place cannot matter.
    let fraction = &fraction[..fraction.len().min(15)];
    let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    let part = u128::from(fraction.parse::<u64>().unwrap_or(0)) * u128::from(nanos) / scale;
    whole
        .checked_add(u64::try_from(part).ok()?)
        .map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_follow_the_grammar() {
        for (text, millis) in [
            ("0", 0),
            ("0s", 0),
            ("7d", 604_800_000),
            ("1h30m", 5_400_000),
            ("1.5h", 5_400_000),
            ("1w", 604_800_000),
            ("250ms", 250),
            ("0.5s", 500),
            ("1000us1000µs", 2),
            ("1000000ns", 1),
            ("100.000000000000000000001s", 100_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn everything_else_is_refused() {
        for text in [
            "", "5", "5mins", "-5s", "+5s", "5 s", " 5s", "5s ", "s", ".5s", "5.s", "1,5s", "1e3s",
            "00",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        for text in [
            "101000d",
            "99999999999999999999w",
            "18446744073709551615ns18446744073709551615ns",
        ] {
            assert_eq!(parse(text), Err("longer than 100 years"), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_is_too_strange(text in "[0-9.nsuµmhdw]{0,40}|.*") {
            let _ = parse(&text);
        }

        #[test]
        fn whole_seconds_are_read_exactly(seconds in 0_u64..3_000_000_000) {
            prop_assert_eq!(parse(&format!("{seconds}s")), Ok(Duration::from_secs(seconds)));
        }
    }
}
