//! What an image says of itself, and the names of the container images in it.

use std::collections::BTreeMap;

use semver::VersionReq;
use serde::{Deserialize, Serialize};

use crate::minor;
use crate::role::Role;

/// Where the image builder leaves the description.
pub const PATH: &str = "/usr/lib/kaas/image.json";

/// The registry name that the container images inside go by. It is never contacted.
pub const REPOSITORY: &str = "kaas.local";

/// The tag of a container image that is run in whichever version the node's own image carries: the
/// cluster's objects name it, so that they fit every node while nodes go over to another image.
pub const CARRIED: &str = "carried";

/// The image that this VM runs, or, when an environment is checked elsewhere, the
/// one that it is meant for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageFacts {
    /// Name of the appliance.
    pub name: String,
    /// Its version.
    pub version: String,
    /// 32 hexadecimal digits that come from its content: another image has others.
    pub build: String,
    /// What its VMs are in a cluster.
    pub role: Role,
    /// Who signed it; none for a development image.
    pub publisher: Option<String>,
    /// Of which images it may take the place; none for any that is not newer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrades_from: Option<VersionReq>,
    /// The Kubernetes releases that it carries, one of each minor.
    pub kubernetes: Vec<KubernetesRelease>,
    /// Version of etcd, without the leading v.
    pub etcd: String,
    /// Version of CoreDNS, without the leading v.
    pub coredns: String,
    /// Version of the pause container, without the leading v.
    pub pause: String,
}

/// One Kubernetes release of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KubernetesRelease {
    /// Such as `1.36`.
    pub minor: String,
    /// Such as `1.36.3`.
    pub version: String,
}

/// All that the image builder writes to [`PATH`]: what is read of it, and what is there for people and scanners.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Description {
    /// What is read of it.
    #[serde(flatten)]
    pub facts: ImageFacts,
    /// The compilers that made the image's programs.
    pub compilers: Compilers,
    /// The parts whose version nothing proves: they come from files.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unchecked_versions: Vec<String>,
    /// The versions of all other parts, by name.
    #[serde(flatten)]
    pub parts: BTreeMap<String, String>,
}

/// Compilers, as each names itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Compilers {
    /// The version of Go, if a part was built with it.
    pub go: Option<String>,
    /// What `rustc --version` says.
    pub rust: String,
    /// The first line of what `cc --version` says.
    pub cc: String,
}

impl ImageFacts {
    /// The release of this minor.
    pub fn kubernetes(&self, minor: &str) -> Option<&KubernetesRelease> {
        self.kubernetes.iter().find(|release| release.minor == minor)
    }

    /// The newest minor: what a cluster forms with when no other is asked for.
    pub fn newest_minor(&self) -> Option<&str> {
        minor::newest(self.kubernetes.iter().map(|release| release.minor.as_str()))
    }

    /// Name, version and publisher in one line, for status.
    pub fn title(&self) -> String {
        let publisher = self.publisher.as_deref().unwrap_or("development image");
        format!("{} {} ({publisher})", self.name, self.version)
    }
}

/// The reference of one of the container images that the appliance carries.
pub fn reference(name: &str, tag: &str) -> String {
    format!("{REPOSITORY}/{name}:{tag}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_minor_is_found_by_number() {
        let facts: ImageFacts = serde_json::from_str(
            r#"{"name":"kaas-control-plane","version":"0.1.0","build":"0123456789abcdef0123456789abcdef",
                "role":"control-plane","publisher":null,"kubernetes":[{"minor":"1.9","version":"1.9.1"},{"minor":"1.36","version":"1.36.3"}],
                "etcd":"3.6.16","coredns":"1.15.0","pause":"3.10"}"#,
        )
        .unwrap();
        assert_eq!(facts.newest_minor(), Some("1.36"));
        assert_eq!(facts.kubernetes("1.9").unwrap().version, "1.9.1");
        assert_eq!(facts.kubernetes("1.35"), None);
        assert_eq!(facts.title(), "kaas-control-plane 0.1.0 (development image)");
    }
}
