//! The order of image versions: Semantic Versioning 2.0.0, section 11. Knows
//! nothing of what a version holds.

use std::cmp::Ordering;

/// Whether `version` is older than `other`. Of versions that cannot be compared
/// each counts as older than the other, unless they are equal.
pub fn is_older(version: &str, other: &str) -> bool {
    if version == other {
        return false;
    }
    match (parse(version), parse(other)) {
        (Some(one), Some(two)) => compare(&one, &two) == Ordering::Less,
        _ => true,
    }
}

/// The three numbers, and the identifiers of a pre-release.
type Version<'v> = ([u64; 3], Vec<&'v str>);

fn parse(text: &str) -> Option<Version<'_>> {
    // What follows a plus sign does not count (section 10).
    let text = text.split_once('+').map_or(text, |(text, _)| text);
    let (core, before) = text.split_once('-').map_or((text, None), |(core, before)| (core, Some(before)));
    let numbers: Vec<u64> = core.split('.').map(str::parse).collect::<Result<_, _>>().ok()?;
    Some((numbers.try_into().ok()?, before.map(|before| before.split('.').collect()).unwrap_or_default()))
}

fn compare((one, before_one): &Version<'_>, (two, before_two): &Version<'_>) -> Ordering {
    one.cmp(two).then_with(|| match (before_one.is_empty(), before_two.is_empty()) {
        (true, true) => Ordering::Equal,
        (true, false) => Ordering::Greater,
        (false, true) => Ordering::Less,
        (false, false) => {
            let pairs = before_one.iter().zip(before_two);
            let first = pairs.map(|(one, two)| identifier(one, two)).find(|order| order.is_ne());
            first.unwrap_or_else(|| before_one.len().cmp(&before_two.len()))
        }
    })
}

fn identifier(one: &str, two: &str) -> Ordering {
    match (one.parse::<u64>(), two.parse::<u64>()) {
        (Ok(one), Ok(two)) => one.cmp(&two),
        (Ok(_), Err(_)) => Ordering::Less,
        (Err(_), Ok(_)) => Ordering::Greater,
        (Err(_), Err(_)) => one.cmp(two),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_in_the_order_of_the_specification() {
        let ordered = [
            "0.9.0",
            "0.10.0",
            "1.0.0-alpha",
            "1.0.0-alpha.1",
            "1.0.0-alpha.beta",
            "1.0.0-beta",
            "1.0.0-beta.2",
            "1.0.0-beta.11",
            "1.0.0-rc.1",
            "1.0.0",
            "1.0.1",
            "2.0.0",
        ];
        for (place, one) in ordered.iter().enumerate() {
            for (other_place, other) in ordered.iter().enumerate() {
                assert_eq!(is_older(one, other), place < other_place, "{one} {other}");
            }
        }
    }

    #[test]
    fn a_build_does_not_count_and_nonsense_is_never_newer() {
        assert!(!is_older("1.0.0+abc", "1.0.0+def") && !is_older("1.0.0", "1.0.0+def"));
        assert!(is_older("latest", "1.0.0") && is_older("1.0.0", "latest") && !is_older("latest", "latest"));
    }
}
