//! The order of image versions: Semantic Versioning 2.0.0, section 11. Knows
//! nothing of what a version holds.

use semver::{Prerelease, Version, VersionReq};

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

/// Whether an image that says so may take the place of one of this version. A pre-release counts as the release
/// that it comes before: [`VersionReq`] itself takes none that it does not name.
pub fn allows(upgrades_from: &VersionReq, version: &str) -> bool {
    Version::parse(version).is_ok_and(|version| upgrades_from.matches(&Version { pre: Prerelease::EMPTY, ..version }))
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
    fn an_image_says_of_which_ones_it_may_take_the_place() {
        let from = |text: &str| VersionReq::parse(text).unwrap();
        for (text, version, expected) in [
            (">=0.1.0", "0.1.0", true),
            (">=0.1.0", "0.1.0-rc.1", true),
            (">=0.1.0", "0.0.9", false),
            (">=0.1.0, <1.0.0", "0.10.3+abc", true),
            (">=0.1.0, <1.0.0", "1.0.0", false),
            ("1.2", "1.9.0", true),
            ("*", "7.0.0-alpha", true),
            ("*", "latest", false),
        ] {
            assert_eq!(allows(&from(text), version), expected, "{text} {version}");
        }
    }

    #[test]
    fn a_build_does_not_count_and_nonsense_is_never_newer() {
        assert!(!is_older("1.0.0+abc", "1.0.0+def") && !is_older("1.0.0", "1.0.0+def"));
        assert!(is_older("latest", "1.0.0") && is_older("1.0.0", "latest") && !is_older("latest", "latest"));
    }
}
