//! Whole numbers, spans of time, versions, true and false.

use super::super::value::{Period, Problem};
use super::quoted;
use crate::codes;

/// A whole number from `lowest` to `highest`.
pub fn integer(text: &str, lowest: u32, highest: u32) -> Result<u32, Problem> {
    let action = || format!("Give a whole number from {lowest} to {highest}");
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits {
        return Err(Problem::new(
            &codes::PROPERTY_MALFORMED,
            format!("{} is not a whole number", quoted(text)),
            action(),
        ));
    }
    // Digits alone fail to parse only when there are too many of them.
    match text.parse::<u32>() {
        Ok(number) if (lowest..=highest).contains(&number) => Ok(number),
        _ => Err(Problem::new(
            &codes::PROPERTY_OUT_OF_RANGE,
            format!("{} is not within {lowest} to {highest}", quoted(text)),
            action(),
        )),
    }
}

/// Whole minutes, hours or days, such as `30m`, `6h` or `1d`, from `shortest` to `longest`.
pub fn period(text: &str, shortest: Period, longest: Period) -> Result<Period, Problem> {
    let action = || format!("Give whole minutes, hours or days, such as 30m, 6h or 1d, from {shortest} to {longest}");
    let parts = || {
        let (count, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
        let of: fn(u16) -> Period = match unit {
            "m" => Period::minutes,
            "h" => Period::hours,
            "d" => Period::days,
            _ => return None,
        };
        // One way to write each: a zero before it could be meant as anything.
        let is_count = !count.is_empty() && !count.starts_with('0') && count.bytes().all(|byte| byte.is_ascii_digit());
        is_count.then_some((count, of))
    };
    let Some((count, of)) = parts() else {
        return Err(Problem::new(
            &codes::PROPERTY_MALFORMED,
            format!("{} is no whole number of minutes, hours or days", quoted(text)),
            action(),
        ));
    };
    // Digits alone fail to parse only when there are too many of them.
    match count.parse::<u16>().map(of) {
        Ok(period) if (shortest..=longest).contains(&period) => Ok(period),
        _ => Err(Problem::new(
            &codes::PROPERTY_OUT_OF_RANGE,
            format!("{} is not within {shortest} to {longest}", quoted(text)),
            action(),
        )),
    }
}

/// True or false; import tools write them in either case.
pub fn switch(text: &str) -> Result<bool, Problem> {
    match text.to_ascii_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(Problem::new(
            &codes::PROPERTY_MALFORMED,
            format!("{} is neither true nor false", quoted(text)),
            "Give true or false",
        )),
    }
}

/// A Kubernetes minor such as `1.36`; a leading `v` is dropped.
pub fn kubernetes_minor(text: &str) -> Result<String, Problem> {
    let number = |part: &str| {
        (part.len() <= 4 && (part == "0" || !part.starts_with('0'))).then(|| part.parse::<u16>().ok()).flatten()
    };
    let plain = text.strip_prefix('v').unwrap_or(text);
    match plain.split_once('.').and_then(|(major, minor)| Some((number(major)?, number(minor)?))) {
        Some((major, minor)) => Ok(format!("{major}.{minor}")),
        None => Err(Problem::new(
            &codes::PROPERTY_MALFORMED,
            format!("{} is not a Kubernetes minor version", quoted(text)),
            "Give major and minor only, such as 1.36, or leave the property empty",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_keep_to_their_range() {
        assert_eq!(integer("20", 1, 20), Ok(20));
        for (text, code) in [
            ("0", "property.out-of-range"),
            ("21", "property.out-of-range"),
            ("99999999999999999999", "property.out-of-range"),
            ("-1", "property.malformed"),
            ("1.5", "property.malformed"),
            ("+3", "property.malformed"),
            ("True", "property.malformed"),
            ("\u{661}", "property.malformed"),
        ] {
            assert_eq!(integer(text, 1, 20).unwrap_err().code.code, code, "{text}");
        }
    }

    #[test]
    fn spans_have_a_unit_and_a_range() {
        let read = |text: &str| period(text, Period::minutes(15), Period::days(7));
        for (text, minutes, shown) in [
            ("15m", 15, "15m"),
            ("90m", 90, "90m"),
            ("360m", 360, "6h"),
            ("6h", 360, "6h"),
            ("24h", 1440, "1d"),
            ("168h", 10080, "7d"),
            ("10080m", 10080, "7d"),
            ("7d", 10080, "7d"),
        ] {
            let period = read(text).unwrap();
            assert_eq!((period, period.to_string().as_str()), (Period::minutes(minutes), shown), "{text}");
            assert_eq!(period.duration().as_secs(), u64::from(minutes) * 60, "{text}");
        }
        for (text, code) in [
            ("14m", "property.out-of-range"),
            ("10081m", "property.out-of-range"),
            ("169h", "property.out-of-range"),
            ("8d", "property.out-of-range"),
            ("99999999999999999999m", "property.out-of-range"),
            ("0h", "property.malformed"),
            ("06h", "property.malformed"),
            ("6", "property.malformed"),
            ("h", "property.malformed"),
            ("", "property.malformed"),
            ("-6h", "property.malformed"),
            ("+6h", "property.malformed"),
            ("1.5h", "property.malformed"),
            ("6 h", "property.malformed"),
            ("6H", "property.malformed"),
            ("1h30m", "property.malformed"),
            ("900s", "property.malformed"),
            ("1w", "property.malformed"),
            ("6\u{445}", "property.malformed"),
            ("\u{666}h", "property.malformed"),
        ] {
            assert_eq!(read(text).unwrap_err().code.code, code, "{text}");
        }
        let problem = read("5m").unwrap_err();
        assert_eq!(problem.seen, "\"5m\" is not within 15m to 7d");
        assert_eq!(problem.action, "Give whole minutes, hours or days, such as 30m, 6h or 1d, from 15m to 7d");
    }

    #[test]
    fn a_switch_is_true_or_false() {
        for (text, value) in [("true", true), ("True", true), ("FALSE", false)] {
            assert_eq!(switch(text), Ok(value));
        }
        for text in ["yes", "1", "", "off"] {
            assert_eq!(switch(text).unwrap_err().code.code, "property.malformed", "{text}");
        }
    }

    #[test]
    fn minor_versions_have_two_numbers() {
        assert_eq!(kubernetes_minor("v1.36").as_deref(), Ok("1.36"));
        for text in ["1", "1.36.3", "1.", "one.two", "1.036", "1.99999", ""] {
            assert!(kubernetes_minor(text).is_err(), "{text}");
        }
    }
}
