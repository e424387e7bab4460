//! The order of image versions: Semantic Versioning 2.0.0, section 11. Knows
//! nothing of what a version holds.

use semver::Version;

/// Whether `version` is older than `other`. Of versions that cannot be compared
/// each counts as older than the other, unless they are equal.
pub fn is_older(version: &str, other: &str) -> bool {
    if version == other {
        return false;
    }
    match (Version::parse(version), Version::parse(other)) {
        // What follows a plus sign does not count (section 10).
        (Ok(one), Ok(two)) => one.cmp_precedence(&two).is_lt(),
        _ => true,
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
