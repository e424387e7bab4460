//! A minor version of Kubernetes or etcd.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A minor version, such as 1.36, ordered by release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct Minor {
    major: u32,
    minor: u32,
}

/// How many minor versions a kubelet may be older than an API server (Kubernetes, "Version Skew Policy", "kubelet").
const BEHIND: usize = 3;

/// A text that is no minor version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a minor version is two numbers with a dot between them, such as 1.36")]
pub struct ParseMinorError;

impl Minor {
    /// The minor version of a version such as `3.6.16`. `None` if the text is no version.
    pub fn of(version: &str) -> Option<Self> {
        let (major, rest) = version.split_once('.')?;
        let (minor, _) = rest.split_once('.')?;
        format!("{major}.{minor}").parse().ok()
    }

    /// The next minor version. Kubernetes is upgraded one minor version at a time (version skew policy, "Supported component
    /// upgrade order").
    pub fn next(self) -> Self {
        Self { minor: self.minor + 1, ..self }
    }

    /// Whether a kubelet of this minor version may use an API server of another one: it is not newer, and not too old.
    pub fn may_speak_to(self, server: Self) -> bool {
        std::iter::successors(Some(self), |minor| Some(minor.next())).take(BEHIND + 1).any(|minor| minor == server)
    }
}

/// The newest minor version, by number. Other texts count as older than all.
pub fn newest<'a>(minors: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    minors.into_iter().max_by_key(|minor| minor.parse::<Minor>().ok())
}

impl FromStr for Minor {
    type Err = ParseMinorError;

    fn from_str(text: &str) -> Result<Self, ParseMinorError> {
        let number = |text: &str| match text.bytes().all(|byte| byte.is_ascii_digit()) {
            true => text.parse().map_err(|_| ParseMinorError),
            false => Err(ParseMinorError),
        };
        let (major, minor) = text.split_once('.').ok_or(ParseMinorError)?;
        Ok(Self { major: number(major)?, minor: number(minor)? })
    }
}

impl TryFrom<String> for Minor {
    type Error = ParseMinorError;

    fn try_from(text: String) -> Result<Self, ParseMinorError> {
        text.parse()
    }
}

impl From<Minor> for String {
    fn from(minor: Minor) -> Self {
        minor.to_string()
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
    fn minor_versions_are_ordered_by_number() {
        let minor = |text: &str| text.parse::<Minor>().unwrap();
        assert!(minor("1.9") < minor("1.10"));
        assert_eq!(minor("1.35").next().to_string(), "1.36");
        for text in ["1", "1.x", "1.36.3", "v1.36", "1.+36", ""] {
            assert!(text.parse::<Minor>().is_err(), "{text}");
        }
        assert_eq!((Minor::of("3.6.16"), Minor::of("3.6.16-rc.0")), (Some(minor("3.6")), Some(minor("3.6"))));
        for text in ["3.6", "v3.6.16", "3.x.16", "new", ""] {
            assert_eq!(Minor::of(text), None, "{text}");
        }
        assert_eq!(newest(["1.9", "1.36", "1.35"]), Some("1.36"));
        assert_eq!(newest([]), None);
    }
}
