//! The crates that are linked into our programs, with their licence texts.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::licences::{self, Licensed};
use crate::process::Tool;
use crate::progress::Progress;

/// The target of the image's programs.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// The crates from registries that packages of a workspace depend on, at all levels and with the workspace's features:
/// those of the build and of tests are left out. Cargo has them from the build.
///
/// # Errors
/// When Cargo does not know one, or a licence text cannot be read.
pub fn of(workspace: &Path, packages: &[&str], progress: &Progress) -> Result<Vec<Licensed>> {
    let running = progress.begin("licences crates");
    let tool = Tool::as_caller("cargo").current_dir(workspace);
    let said = tool
        .args(["metadata", "--locked", "--format-version", "1", "--filter-platform", TARGET])
        .output(progress)
        .context("asking Cargo for the crates")?;
    let metadata: Value = serde_json::from_slice(&said).context("understanding cargo metadata")?;
    let lock = workspace.join("Cargo.lock");
    let lock: toml::Table = std::fs::read_to_string(&lock)
        .with_context(|| format!("reading {}", lock.display()))?
        .parse()
        .context("understanding Cargo.lock")?;
    let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut checksums = BTreeMap::new();
    for package in lock.get("package").and_then(|all| all.as_array()).into_iter().flatten() {
        let text = |key: &str| package.get(key).and_then(|value| value.as_str()).map(str::to_owned);
        checksums.insert((text("name"), text("version")), text("checksum"));
    }
    let nodes: BTreeMap<String, Value> =
        list(&metadata["resolve"]["nodes"]).into_iter().map(|node| (text(&node, "id"), node)).collect();
    let all: BTreeMap<String, Value> =
        list(&metadata["packages"]).into_iter().map(|package| (text(&package, "id"), package)).collect();
    let is_wanted = |package: &Value| package["source"].is_null() && packages.contains(&text(package, "name").as_str());
    let mut next: Vec<String> =
        all.iter().filter(|(_, package)| is_wanted(package)).map(|(id, _)| id.clone()).collect();
    let mut seen = BTreeSet::new();
    while let Some(id) = next.pop() {
        if !seen.insert(id.clone()) {
            continue;
        }
        let node = nodes.get(&id).with_context(|| format!("cargo metadata does not resolve {id}"))?;
        let is_linked = |dependency: &Value| list(&dependency["dep_kinds"]).iter().any(|kind| kind["kind"].is_null());
        next.extend(
            list(&node["deps"])
                .iter()
                .filter(|dependency| is_linked(dependency))
                .map(|dependency| text(dependency, "pkg")),
        );
    }
    let mut found = Vec::new();
    for package in seen.iter().filter_map(|id| all.get(id)).filter(|package| !package["source"].is_null()) {
        let (name, version) = (text(package, "name"), text(package, "version"));
        let manifest = text(package, "manifest_path");
        let directory = Path::new(&manifest).parent().with_context(|| format!("{name} has no directory"))?;
        let sum = checksums.get(&(Some(name.clone()), Some(version.clone()))).cloned().flatten();
        let licence = package["license"].as_str().map(|licence| licence.replace('/', " OR "));
        found.push(licences::of_directory(directory, &name, &version, licence, sum)?);
    }
    running.done();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_of_the_agent_come_with_their_sums() {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let found = of(workspace, &["agent"], &Progress::silent()).unwrap();
        let find = |name: &str| found.iter().find(|part| part.name == name);
        let serde = find("serde").unwrap();
        assert!(serde.sum.as_ref().unwrap().len() == 64 && serde.texts.len() == 2, "{serde:?}");
        assert_eq!(serde.licence.as_deref(), Some("MIT OR Apache-2.0"));
        assert!(find("agent").is_none() && find("proptest").is_none(), "own crates and those of tests are not linked");
    }
}
