//! The description of an image, and the names of the container images in it.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use semver::{Version, VersionReq};
use serde::{Deserialize, Serialize};

use crate::minor::{self, Minor};
use crate::role::Roles;

/// The file in which the image builder writes the description.
pub const PATH: &str = "/usr/lib/kaas/image.json";

/// The directory of the objects that the image's programs bring into a cluster.
const ADD_ONS: &str = "/usr/lib/kaas/add-ons";

/// The path of the kinds of objects of one of the image's programs, as a list (`v1`, `List`) in JSON. The API server must know
/// them first.
pub fn kinds_of(program: &str) -> String {
    format!("{ADD_ONS}/{program}-kinds.json")
}

/// The path of the other objects that the program needs in a cluster, in the same form: its rights, and policies.
pub fn objects_of(program: &str) -> String {
    format!("{ADD_ONS}/{program}-objects.json")
}

/// The registry name of the container images in the image. It is never contacted.
pub const REPOSITORY: &str = "kaas.local";

/// The tag of a container image of the version that the node's own image contains. The cluster's objects name it, so they fit
/// every node while nodes change to another image.
pub const CARRIED: &str = "carried";

/// The image of this VM. If an environment is checked elsewhere, the image that it is meant for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageFacts {
    /// Name of the appliance.
    pub name: String,
    /// Its version.
    pub version: String,
    /// 32 hexadecimal digits that depend on its content.
    pub build: String,
    /// The possible roles of its VMs in a cluster.
    #[serde(flatten)]
    pub roles: Roles,
    /// The signer's name. `None` for a development image.
    pub publisher: Option<String>,
    /// The versions that it may replace. `None` for all that are not newer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrades_from: Option<VersionReq>,
    /// The Kubernetes releases in it, one of each minor version.
    pub kubernetes: Vec<KubernetesRelease>,
    /// Version of etcd, without the leading v.
    pub etcd: String,
    /// Version of CoreDNS, without the leading v.
    pub coredns: String,
    /// Version of the pause container, without the leading v.
    pub pause: String,
    /// The programs of this project in it, by the names of their container images.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<String>,
}

/// One Kubernetes release of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KubernetesRelease {
    /// Such as `1.36`.
    pub minor: String,
    /// Such as `1.36.3`.
    pub version: String,
}

/// The whole content of [`PATH`]: fields that programs read, and fields for people and scanners.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Description {
    /// The fields that programs read.
    #[serde(flatten)]
    pub facts: ImageFacts,
    /// The compilers that made the image's programs.
    pub compilers: Compilers,
    /// The parts whose version is not verified, because they come from files.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unchecked_versions: Vec<String>,
    /// The versions of all other parts, by name.
    #[serde(flatten)]
    pub parts: BTreeMap<String, String>,
}

/// Compilers, each with its own version text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Compilers {
    /// The version of Go, if a part was built with it.
    pub go: Option<String>,
    /// The output of `rustc --version`.
    pub rust: String,
    /// The first line of the output of `cc --version`.
    pub cc: String,
}

impl ImageFacts {
    /// The release of this minor version.
    pub fn kubernetes(&self, minor: &str) -> Option<&KubernetesRelease> {
        self.kubernetes.iter().find(|release| release.minor == minor)
    }

    /// The newest minor version: the default with which a cluster forms.
    pub fn newest_minor(&self) -> Option<&str> {
        minor::newest(self.kubernetes.iter().map(|release| release.minor.as_str()))
    }

    /// The minor version of its etcd. `None` if its version has none.
    pub fn etcd_minor(&self) -> Option<Minor> {
        Minor::of(&self.etcd)
    }

    /// The version text of its OVA.
    pub fn full_version(&self) -> FullVersion {
        FullVersion {
            version: self.version.clone(),
            build: self.build.clone(),
            etcd: self.etcd_minor(),
            upgrades_from: self.upgrades_from.clone(),
        }
    }

    /// Whether it contains a program of this project as a container image.
    pub fn carries(&self, program: &str) -> bool {
        self.programs.iter().any(|carried| carried == program)
    }

    /// Name, version and publisher in one line, for status.
    pub fn title(&self) -> String {
        let publisher = self.publisher.as_deref().unwrap_or("development image");
        format!("{} {} ({publisher})", self.name, self.version)
    }
}

/// How many hexadecimal digits a build identifier has.
pub const BUILD_DIGITS: usize = 32;

/// The facts of an image in an OVF descriptor's `FullVersion`, a free text (DSP0243 2.1.1, 9.5.2):
/// `0.2.0+0123… (etcd 3.6) (upgrades from >=0.1.0)`. Image swaps read it there, before anything is imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FullVersion {
    /// The image's version.
    pub version: String,
    /// Its build identifier.
    pub build: String,
    /// The minor version of its etcd. `None` for early images, which do not say it.
    pub etcd: Option<Minor>,
    /// The versions that it may replace. `None` for all that are not newer.
    pub upgrades_from: Option<VersionReq>,
}

/// Why a text is no [`FullVersion`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseFullVersionError {
    /// It does not begin with version and build.
    #[error("{0:?} does not begin with a version, a plus sign and the {BUILD_DIGITS} hexadecimal digits of a build")]
    Build(String),
    /// The etcd part has no minor version.
    #[error("{0:?} does not say which minor version of etcd the image runs")]
    Etcd(String),
    /// The part about other images names no versions.
    #[error("{0:?} does not say clearly of which versions the image may take the place")]
    UpgradesFrom(String),
    /// It has unknown parts, or another form.
    #[error("{0:?} says more than this program understands")]
    More(String),
}

impl fmt::Display for FullVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.version, self.build)?;
        if let Some(etcd) = self.etcd {
            write!(f, " (etcd {etcd})")?;
        }
        match &self.upgrades_from {
            Some(from) => write!(f, " (upgrades from {from})"),
            None => Ok(()),
        }
    }
}

/// Strict: the text decides whether an image may be swapped in. The parser understands all of it, or rejects it.
impl FromStr for FullVersion {
    type Err = ParseFullVersionError;

    fn from_str(text: &str) -> Result<Self, ParseFullVersionError> {
        let (image, rest) = text.split_at(text.find(' ').unwrap_or(text.len()));
        let hexadecimal = |build: &str| build.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
        let (version, build) = image
            .split_once('+')
            .filter(|(version, build)| {
                Version::parse(version).is_ok() && build.len() == BUILD_DIGITS && hexadecimal(build)
            })
            .ok_or_else(|| ParseFullVersionError::Build(text.to_owned()))?;
        let (etcd, rest) = part(rest, "etcd", || ParseFullVersionError::Etcd(text.to_owned()))?;
        let (upgrades_from, rest) =
            part(rest, "upgrades from", || ParseFullVersionError::UpgradesFrom(text.to_owned()))?;
        let read = Self { version: version.to_owned(), build: build.to_owned(), etcd, upgrades_from };
        match rest.is_empty() && read.to_string() == text {
            true => Ok(read),
            false => Err(ParseFullVersionError::More(text.to_owned())),
        }
    }
}

/// The value in ` (NAME VALUE)` at the beginning of `text`, and the rest.
fn part<'t, T: FromStr, E>(text: &'t str, name: &str, wrong: impl Fn() -> E) -> Result<(Option<T>, &'t str), E> {
    let Some(value) = text.strip_prefix(&format!(" ({name} ")) else { return Ok((None, text)) };
    let (value, rest) = value.split_once(')').ok_or_else(&wrong)?;
    Ok((Some(value.parse().map_err(|_| wrong())?), rest))
}

/// The reference of one of the appliance's container images.
pub fn reference(name: &str, tag: &str) -> String {
    format!("{REPOSITORY}/{name}:{tag}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::role::Role;

    #[test]
    fn newest_minor_version_is_found_by_number() {
        let facts: ImageFacts = serde_json::from_str(
            r#"{"name":"kaas-control-plane","version":"0.1.0","build":"0123456789abcdef0123456789abcdef",
                "role":"control-plane","publisher":null,"kubernetes":[{"minor":"1.9","version":"1.9.1"},{"minor":"1.36","version":"1.36.3"}],
                "etcd":"3.6.16","coredns":"1.15.0","pause":"3.10"}"#,
        )
        .unwrap();
        assert_eq!(facts.roles, Role::ControlPlane.into());
        assert_eq!(facts.newest_minor(), Some("1.36"));
        assert_eq!(facts.kubernetes("1.9").unwrap().version, "1.9.1");
        assert_eq!(facts.kubernetes("1.35"), None);
        assert_eq!(facts.title(), "kaas-control-plane 0.1.0 (development image)");
        assert_eq!(facts.full_version().to_string(), "0.1.0+0123456789abcdef0123456789abcdef (etcd 3.6)");
    }

    const BUILD: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn full_version_is_read_as_written() {
        let full = |etcd: Option<&str>, from: Option<&str>| FullVersion {
            version: "0.2.0-rc.1".into(),
            build: BUILD.into(),
            etcd: etcd.map(|etcd| etcd.parse().unwrap()),
            upgrades_from: from.map(|from| from.parse().unwrap()),
        };
        let table = [
            (full(None, None), ""),
            (full(Some("3.6"), None), " (etcd 3.6)"),
            (full(None, Some(">=0.1.0")), " (upgrades from >=0.1.0)"),
            (full(Some("3.6"), Some(">=0.1.0, <1.0.0")), " (etcd 3.6) (upgrades from >=0.1.0, <1.0.0)"),
        ];
        for (full, rest) in table {
            let text = format!("0.2.0-rc.1+{BUILD}{rest}");
            assert_eq!(full.to_string(), text);
            assert_eq!(text.parse(), Ok(full));
        }
    }

    #[test]
    fn full_version_with_unknown_parts_is_refused() {
        type Wrong = fn(String) -> ParseFullVersionError;
        let table: [(&[&str], Wrong); 4] = [
            (
                &[
                    "",
                    "0.2.0",
                    "0.2.0 (development image)",
                    "0.2.0+0123",
                    "0.2.0+0123456789ABCDEF0123456789abcdef",
                    "0.2.0+0123456789abcdef0123456789abcdef0",
                    "two+0123456789abcdef0123456789abcdef",
                    "0.2.0+x+0123456789abcdef0123456789abcdef",
                ],
                ParseFullVersionError::Build,
            ),
            (&["B (etcd 3.6", "B (etcd three)", "B (etcd 3.6.16)", "B (etcd )"], ParseFullVersionError::Etcd),
            (&["B (upgrades from >=0.1.0", "B (upgrades from whatever)"], ParseFullVersionError::UpgradesFrom),
            (
                &[
                    "B ",
                    "B (etcd)",
                    "B (signed)",
                    "B (etcd 3.6) (etcd 3.6)",
                    "B (upgrades from >=0.1.0) (etcd 3.6)",
                    "B  (etcd 3.6)",
                    "B (etcd 03.6)",
                    "B (etcd 3.6) and more",
                ],
                ParseFullVersionError::More,
            ),
        ];
        for (texts, wrong) in table {
            for text in texts {
                let text = text.replace('B', &format!("0.2.0+{BUILD}"));
                assert_eq!(text.parse::<FullVersion>(), Err(wrong(text.clone())), "{text}");
            }
        }
    }
}
