//! A Kubernetes minor version.

use std::fmt;
use std::str::FromStr;

/// Such as 1.36; in the order of releases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Minor {
    major: u32,
    minor: u32,
}

impl Minor {
    /// The one that comes after it: Kubernetes is upgraded one minor at a time
    /// (version skew policy, "Supported component upgrade order").
    pub fn next(self) -> Self {
        Self { minor: self.minor + 1, ..self }
    }
}

/// The newest of some minors, by number; what is no minor is older than all.
pub fn newest<'a>(minors: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    minors.into_iter().max_by_key(|minor| minor.parse::<Minor>().ok())
}

impl FromStr for Minor {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (major, minor) = text.split_once('.').ok_or(())?;
        Ok(Self { major: major.parse().map_err(drop)?, minor: minor.parse().map_err(drop)? })
    }
}

impl fmt::Display for Minor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minors_are_ordered_by_number() {
        let minor = |text: &str| text.parse::<Minor>().unwrap();
        assert!(minor("1.9") < minor("1.10"));
        assert_eq!(minor("1.35").next().to_string(), "1.36");
        for text in ["1", "1.x", "1.36.3", "v1.36", ""] {
            assert!(text.parse::<Minor>().is_err(), "{text}");
        }
        assert_eq!(newest(["1.9", "1.36", "1.35"]), Some("1.36"));
        assert_eq!(newest([]), None);
    }
}
