//! Whole numbers, versions, true and false.

use super::super::value::Problem;
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
    fn a_switch_is_true_or_false() {
        for (text, value) in [("true", true), ("True", true), ("FALSE", false)] {
            assert_eq!(switch(text), Ok(value));
        }
        for text in ["yes", "1", "", "off"] {
            assert_eq!(switch(text).unwrap_err().code.code, "property.malformed", "{text}");
        }
    }

    #[test]
    fn minors_have_two_numbers() {
        assert_eq!(kubernetes_minor("v1.36").as_deref(), Ok("1.36"));
        for text in ["1", "1.36.3", "1.", "one.two", "1.036", "1.99999", ""] {
            assert!(kubernetes_minor(text).is_err(), "{text}");
        }
    }
}
