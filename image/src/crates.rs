//! The crates that are linked into our programs, with their licence texts.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::licences::{self, LicensedPart};
use crate::process::Tool;
use crate::progress::Progress;

/// The target of the image's programs.
const TARGET: &str = "x86_64-unknown-linux-gnu";

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
    /// None for the workspace's own.
    source: Option<String>,
    manifest_path: PathBuf,
}

/// The crates from registries that packages of a workspace depend on, at all levels and with the workspace's features.
/// Dependencies of builds and tests are left out. The build has already downloaded the crates.
pub fn of(workspace: &Path, packages: &[&str], progress: &Progress) -> Result<Vec<LicensedPart>> {
    let running = progress.begin("licences crates");
    let cargo = |command: &str| Tool::as_caller("cargo").current_dir(workspace).args([command, "--locked"]);
    let tree = cargo("tree").args(["--workspace", "--edges", "normal", "--no-dedupe", "--prefix", "depth"]);
    let tree = tree.args(["--target", TARGET]).output(progress).context("asking Cargo for the linked crates")?;
    let linked = linked(&String::from_utf8_lossy(&tree), packages);
    let all = cargo("metadata").args(["--format-version", "1", "--filter-platform", TARGET]).output(progress);
    let all: Metadata =
        serde_json::from_slice(&all.context("asking Cargo for all crates")?).context("understanding cargo metadata")?;
    let mut found = Vec::new();
    for Package { name, version, license, source, manifest_path } in all.packages {
        if source.is_none() || !linked.contains(&format!("{name} v{version}")) {
            continue;
        }
        let directory = manifest_path.parent().with_context(|| format!("{name} has no directory"))?;
        // Older manifests give alternatives as `MIT/Apache-2.0`.
        let licence = license.map(|licence| licence.replace('/', " OR "));
        found.push(LicensedPart { texts: licences::of_directory(directory)?, name, version, licence });
    }
    running.done();
    Ok(found)
}

/// The crates in the trees of packages, such as `serde v1.0.0`. A line has depth, name, version and remarks:
/// `1serde_derive v1.0.0 (proc-macro)`.
fn linked(trees: &str, packages: &[&str]) -> BTreeSet<String> {
    let (mut linked, mut is_wanted) = (BTreeSet::new(), false);
    for line in trees.lines() {
        let mut words = line.trim_start_matches(|c: char| c.is_ascii_digit()).split(' ');
        let (Some(name), Some(version)) = (words.next(), words.next()) else { continue };
        if line.starts_with('0') {
            is_wanted = packages.contains(&name);
        }
        if is_wanted {
            linked.insert(format!("{name} {version}"));
        }
    }
    linked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_of_other_packages_are_left_out() {
        let trees = "0a v0.1.0 (/a)\n1x v1.0.0\n10y v2.0.0 (proc-macro)\n\n0b v0.1.0 (/b)\n1z v1.0.0\n";
        assert_eq!(linked(trees, &["a"]).into_iter().collect::<Vec<_>>(), ["a v0.1.0", "x v1.0.0", "y v2.0.0"]);
    }

    #[test]
    fn crates_of_the_agent_have_their_licences() {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let found = of(workspace, &["agent"], &Progress::silent()).unwrap();
        let find = |name: &str| found.iter().find(|part| part.name == name);
        let serde = find("serde").unwrap();
        assert_eq!((serde.licence.as_deref(), serde.texts.len()), (Some("MIT OR Apache-2.0"), 2));
        assert!(find("agent").is_none() && find("proptest").is_none(), "own crates and those of tests are not linked");
    }
}
