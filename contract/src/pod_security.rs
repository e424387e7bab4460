//! The limits of pods in namespaces that set none themselves: Kubernetes' Pod Security Standards.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A level of the Pod Security Standards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PodSecurity {
    /// Nothing is refused.
    Privileged,
    /// Pods that can take over the node are refused: host paths, host namespaces, privileged containers.
    Baseline,
    /// Pods that are not hardened are refused, too.
    Restricted,
}

impl PodSecurity {
    /// All levels, from the widest to the narrowest.
    pub const ALL: [Self; 3] = [Self::Privileged, Self::Baseline, Self::Restricted];

    /// The name in forms, in records and in Kubernetes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Privileged => "privileged",
            Self::Baseline => "baseline",
            Self::Restricted => "restricted",
        }
    }
}

impl fmt::Display for PodSecurity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No level has this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no such level")]
pub struct UnknownLevel;

impl FromStr for PodSecurity {
    type Err = UnknownLevel;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|level| level.name() == text).ok_or(UnknownLevel)
    }
}
