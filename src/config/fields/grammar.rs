//! What single values must look like.

use std::time::Duration;

use gascity_actors::model::{AgentName, CityName};

use super::super::duration;
use super::super::keys::Kind;

pub(super) fn count(digits: &str, radix: u32, least: u64, most: u64) -> Result<u64, String> {
    match u64::from_str_radix(digits, radix) {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        Ok(number) if number > most => Err(format!("must be at most {most}")),
        Err(_) if !digits.starts_with('-') => Err(format!("must be at most {most}")),
        _ => Err(format!("must be at least {least}")),
    }
}

/// -1 stands for no limit.
pub(super) fn limit(digits: &str, radix: u32) -> Result<Option<u32>, String> {
    if digits == "-1" {
        return Ok(None);
    }
    match count(digits, radix, 0, u32::MAX.into()) {
        Ok(number) => Ok(u32::try_from(number).ok()),
        Err(_) if digits.starts_with('-') => Err("must be at least -1, which is no limit".into()),
        Err(message) => Err(message),
    }
}

pub(super) fn at_least(text: &str, least: Duration) -> Result<Duration, String> {
    match duration::parse(text) {
        Err(rule) => Err(format!("invalid duration {text:?}: {rule}")),
        Ok(duration) if duration < least && least == Duration::from_nanos(1) => {
            Err("must be more than 0".into())
        }
        Ok(duration) if duration < least => Err(format!("must be at least {least:?}")),
        Ok(duration) => Ok(duration),
    }
}

pub(super) fn text_of(kind: Kind, text: &str) -> Result<String, String> {
    if text.contains('\0') {
        return Err("must not contain NUL".into());
    }
    let problem = match kind {
        Kind::CityName => CityName::new(text).err().map(|error| error.to_string()),
        Kind::AgentName if text.contains('/') => {
            Some(format!("invalid name {text:?}: must not contain `/`"))
        }
        Kind::AgentName => AgentName::new(text)
            .err()
            .map(|error| format!("invalid name {text:?}: {}", error.rule)),
        Kind::Dir if !text.is_empty() => AgentName::new(text)
            .err()
            .map(|error| format!("invalid directory {text:?}: {}", error.rule)),
        Kind::Prefix if !is_prefix(text) => Some(format!(
            "invalid prefix {text:?}: 1 to 8 lower-case letters or digits, starting with a letter"
        )),
        Kind::Size if !is_size(text) => Some(format!(
            "invalid size {text:?}: expected a number and B, KiB, MiB or GiB"
        )),
        Kind::Percent if !is_percent(text) => {
            Some(format!("invalid share {text:?}: expected a number and %"))
        }
        Kind::Command | Kind::Path | Kind::Words | Kind::Lines(_) if text.trim().is_empty() => {
            Some("must not be empty".into())
        }
        _ => None,
    };
    problem.map_or_else(|| Ok(text.to_owned()), Err)
}

fn is_prefix(text: &str) -> bool {
    text.len() <= 8
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
}

fn is_size(text: &str) -> bool {
    let unit = ["KiB", "MiB", "GiB", "B"]
        .iter()
        .find_map(|unit| text.strip_suffix(unit));
    unit.is_some_and(|number| number.parse::<u64>().is_ok() && !number.starts_with('+'))
}

fn is_percent(text: &str) -> bool {
    let number = text.strip_suffix('%');
    number.is_some_and(|number| {
        number.parse::<u32>().is_ok_and(|n| n > 0) && !number.starts_with('+')
    })
}
