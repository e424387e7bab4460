//! The order of image versions: Semantic Versioning 2.0.0, section 11. Independent of the content of a version.

use semver::{Prerelease, Version, VersionReq};

/// Whether `version` is older than `other`. Two different versions that cannot be compared each count as older than the other.
pub fn is_older(version: &str, other: &str) -> bool {
    if version == other {
        return false;
    }
    match (Version::parse(version), Version::parse(other)) {
        // The part after a plus sign does not count (section 10).
        (Ok(one), Ok(two)) => one.cmp_precedence(&two).is_lt(),
        _ => true,
    }
}

/// Whether an image with this requirement may replace one of this version. A pre-release counts as the release that it
/// precedes: [`VersionReq`] itself matches none that it does not name.
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
    fn requirement_decides_which_images_may_be_replaced() {
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
    fn build_identifiers_do_not_count() {
        assert!(!is_older("1.0.0+abc", "1.0.0+def") && !is_older("1.0.0", "1.0.0+def"));
        assert!(is_older("latest", "1.0.0") && is_older("1.0.0", "latest") && !is_older("latest", "latest"));
    }
}
