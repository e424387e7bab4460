//! The build identifier: 32 hexadecimal digits by which a VM and an OVA are
//! known to be of the same image. It comes from the content of the image alone, so
//! equal inputs give equal identifiers, wherever they are built.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};
use semver::VersionReq;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::cache::{Cache, Key, Stage, file_digest, hex};
use crate::progress::Progress;
use crate::tree::Tree;

const STAGE: Stage = Stage { name: "identifier", keep: 4 };

/// How many digits it has: half of a SHA-256.
const DIGITS: usize = 32;

/// What an image is made of.
pub struct Content<'c> {
    /// Its root, without the description that the identifier is written to.
    pub tree: &'c Tree,
    /// The kernel.
    pub vmlinuz: &'c Path,
    /// The kernel's parameters.
    pub parameters: &'c [String],
    /// The description, without the identifier.
    pub facts: &'c Value,
    /// The time of everything in it, seconds since 1970.
    pub epoch: u64,
}

/// The identifier of an image of this content, computed or found computed.
///
/// # Errors
/// When something cannot be read.
pub fn of(content: &Content<'_>, cache: &Cache, progress: &Progress) -> Result<String> {
    let &Content { tree, vmlinuz, parameters, facts, epoch } = content;
    let (parameters, facts) = (parameters.join(" "), facts.to_string());
    let key = tree.add_to_key(Key::of(include_str!("identifier.rs")).recipe(include_str!("tree.rs")), cache)?;
    let key = key.text("kernel", cache.name_of(vmlinuz)?).text("parameters", &parameters).text("facts", &facts);
    let key = key.text("epoch", epoch.to_string()).finish();
    let place = cache.stage(STAGE, &key, progress, |folder| {
        let mut root = Sum(Sha256::new());
        tree.write_tar(&mut root, epoch).context("reading the image's root")?;
        let whole = Key::of("image").text("root", hex(&root.0.finalize())).text("kernel", file_digest(vmlinuz)?);
        let whole = whole.text("parameters", &parameters).text("facts", &facts).finish();
        fs::write(folder.join("identifier"), &whole.as_str()[..DIGITS]).context("noting the build identifier")
    })?;
    let build = fs::read_to_string(place.join("identifier")).context("reading the build identifier")?;
    if build.len() != DIGITS {
        bail!("the cache gave the build identifier {build:?}");
    }
    Ok(build)
}

/// The version with the build and of which versions it may take the place, as the OVF descriptor's `FullVersion` has
/// it, a free text (DSP0243 2.1.1, 9.5.2): `0.2.0+0123… (upgrades from >=0.1.0)`. Whoever swaps images reads it there.
pub fn full_version(version: &str, build: &str, upgrades_from: Option<&VersionReq>) -> String {
    let from = upgrades_from.map(|from| format!(" (upgrades from {from})")).unwrap_or_default();
    format!("{version}+{build}{from}")
}

/// Takes what is written into a digest.
struct Sum(Sha256);

impl Write for Sum {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identify(folder: &Path, text: &str, parameter: &str, version: &str) -> String {
        let vmlinuz = folder.join("vmlinuz");
        fs::write(&vmlinuz, "kernel").unwrap();
        let mut tree = Tree::default();
        tree.text("usr/lib/file", text);
        let (parameters, facts) = ([parameter.to_owned()], serde_json::json!({ "version": version }));
        let content = Content { tree: &tree, vmlinuz: &vmlinuz, parameters: &parameters, facts: &facts, epoch: 7 };
        of(&content, &Cache::at(&folder.join("cache")).unwrap(), &Progress::silent()).unwrap()
    }

    #[test]
    fn equal_content_has_one_identifier_and_any_difference_another() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let first = identify(here.path(), "a", "quiet", "1.0.0");
        assert!(first.len() == 32 && first.bytes().all(|byte| byte.is_ascii_hexdigit()), "{first}");
        assert_eq!(first, identify(there.path(), "a", "quiet", "1.0.0"));
        for (text, parameter, version) in [("b", "quiet", "1.0.0"), ("a", "loud", "1.0.0"), ("a", "quiet", "1.0.1")] {
            assert_ne!(first, identify(here.path(), text, parameter, version), "{text} {parameter} {version}");
        }
    }

    #[test]
    fn the_full_version_is_version_and_build() {
        assert_eq!(full_version("0.1.0", "0123", None), "0.1.0+0123");
        let from = VersionReq::parse(">=0.1.0, <1.0.0").unwrap();
        assert_eq!(full_version("0.2.0", "0123", Some(&from)), "0.2.0+0123 (upgrades from >=0.1.0, <1.0.0)");
    }
}
