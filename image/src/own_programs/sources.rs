//! The copy of the workspace's sources for Cargo's builds of images, in a directory of the cache that no other user
//! can write. Cargo treats a file that is older than its last build as unchanged. So a file is only written when its
//! content differs, whichever clone it comes from.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The packages of this project that have programs for images.
pub const PACKAGES: [&str; 2] = ["agent", "controller"];

/// The name of a package's program.
pub fn name(package: &str) -> String {
    format!("kaas-{package}")
}

/// The file with rustup's choice of the compiler.
const TOOLCHAIN: &str = "rust-toolchain.toml";

/// Makes `place` an exact copy of the workspace's manifests and members. After an error, some files may already be new.
pub fn lay_out(workspace: &Path, place: &Path) -> Result<()> {
    let mut wanted = BTreeSet::new();
    for file in ["Cargo.toml", "Cargo.lock"] {
        wanted.insert(PathBuf::from(file));
    }
    for member in members(workspace)? {
        for entry in walkdir::WalkDir::new(workspace.join(&member)) {
            let entry = entry.with_context(|| format!("reading the sources in {member}"))?;
            if !entry.file_type().is_dir() {
                wanted.insert(entry.path().strip_prefix(workspace)?.to_owned());
            }
        }
    }
    for file in &wanted {
        let content = fs::read(workspace.join(file)).with_context(|| format!("reading {}", file.display()))?;
        let copy = place.join(file);
        if fs::read(&copy).is_ok_and(|present| present == content) {
            continue;
        }
        if let Some(directory) = copy.parent() {
            fs::create_dir_all(directory).with_context(|| format!("making {}", directory.display()))?;
        }
        fs::write(&copy, content).with_context(|| format!("writing {}", copy.display()))?;
    }
    for entry in walkdir::WalkDir::new(place) {
        let entry = entry.with_context(|| format!("reading {}", place.display()))?;
        if !entry.file_type().is_dir() && !wanted.contains(entry.path().strip_prefix(place)?) {
            fs::remove_file(entry.path()).with_context(|| format!("removing {}", entry.path().display()))?;
        }
    }
    Ok(())
}

/// The workspace's version of Rust, if it sets one.
pub fn toolchain(workspace: &Path) -> Result<Option<String>> {
    let path = workspace.join(TOOLCHAIN);
    let text = match fs::read_to_string(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        text => text.with_context(|| format!("reading {}", path.display()))?,
    };
    let table: toml::Table = text.parse().with_context(|| format!("understanding {}", path.display()))?;
    let channel = table.get("toolchain").and_then(|table| table.get("channel")).and_then(toml::Value::as_str);
    Ok(Some(channel.with_context(|| format!("{} names no channel", path.display()))?.to_owned()))
}

/// The directories of the workspace's members, from its manifest.
fn members(workspace: &Path) -> Result<Vec<String>> {
    let path = workspace.join("Cargo.toml");
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let manifest: toml::Table = text.parse().with_context(|| format!("understanding {}", path.display()))?;
    let members = manifest.get("workspace").and_then(|workspace| workspace.get("members"));
    let members = members.and_then(toml::Value::as_array).context("the workspace's manifest lists no members")?;
    Ok(members.iter().filter_map(|member| member.as_str().map(str::to_owned)).collect())
}

/// The directories of the workspace's packages that `package` is built from: its own, and those of its dependencies,
/// by name.
pub fn packages(workspace: &Path, package: &str) -> Result<BTreeSet<String>> {
    let own = directories(workspace)?;
    let directory = |name: &str| own.get(name).map(String::as_str);
    let (mut found, mut left) = (BTreeSet::new(), vec![package.to_owned()]);
    while let Some(name) = left.pop() {
        let place = directory(&name).with_context(|| format!("the workspace has no package {name}"))?;
        if found.insert(place.to_owned()) {
            let manifest = manifest(&workspace.join(place))?;
            let targets =
                manifest.get("target").and_then(toml::Value::as_table).into_iter().flat_map(toml::Table::values);
            let all = std::iter::once(&manifest).chain(targets.filter_map(toml::Value::as_table));
            let tables = all.flat_map(|all| ["dependencies", "build-dependencies"].map(|table| all.get(table)));
            let names = tables.flatten().filter_map(toml::Value::as_table).flat_map(toml::Table::keys);
            left.extend(names.filter(|name| directory(name).is_some()).cloned());
        }
    }
    Ok(found)
}

/// Whether the workspace has one of [`PACKAGES`].
pub fn is_there(workspace: &Path, package: &str) -> Result<bool> {
    Ok(PACKAGES.contains(&package) && directories(workspace)?.contains_key(package))
}

/// Whether the workspace has one of [`PACKAGES`], with the program of its [`name`].
pub fn has(workspace: &Path, package: &str) -> Result<bool> {
    if !is_there(workspace, package)? {
        return Ok(false);
    }
    let manifest = manifest(&workspace.join(&directories(workspace)?[package]))?;
    let programs = manifest.get("bin").and_then(toml::Value::as_array).into_iter().flatten();
    let mut names = programs.filter_map(|program| program.get("name")?.as_str());
    Ok(names.any(|named| named == name(package)))
}

/// The directories of the workspace's packages, by name.
fn directories(workspace: &Path) -> Result<BTreeMap<String, String>> {
    let top = manifest(workspace)?;
    let own = top.get("workspace").and_then(|workspace| workspace.get("dependencies"));
    let own = own.and_then(toml::Value::as_table).context("the workspace's manifest lists no dependencies")?;
    let directory =
        |(name, entry): (&String, &toml::Value)| Some((name.clone(), entry.get("path")?.as_str()?.to_owned()));
    Ok(own.iter().filter_map(directory).collect())
}

fn manifest(directory: &Path) -> Result<toml::Table> {
    let path = directory.join("Cargo.toml");
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    text.parse().with_context(|| format!("understanding {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, SystemTime};

    #[test]
    fn a_package_is_built_from_its_dependencies() {
        let workspace = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            let file = workspace.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        let entry = |name: &str| format!("{name} = {{ path = \"{name}\" }}\n");
        let entries: String = ["agent", "contract", "formats", "lab"].map(entry).concat();
        write("Cargo.toml", &format!("[workspace.dependencies]\n{entries}serde = \"1\"\n"));
        write("agent/Cargo.toml", "[dependencies]\ncontract.workspace = true\nserde.workspace = true\n");
        write(
            "contract/Cargo.toml",
            "[target.'cfg(unix)'.build-dependencies]\nformats.workspace = true\n[dev-dependencies]\nlab = {}\n",
        );
        write("formats/Cargo.toml", "[package]\n");
        let packages = |name: &str| packages(workspace.path(), name);
        assert_eq!(Vec::from_iter(packages("agent").unwrap()), ["agent", "contract", "formats"]);
        assert!(packages("serde").is_err() && packages("lab").is_err());
    }

    #[test]
    fn only_changed_files_are_written() {
        let (workspace, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (from, to) = (workspace.path(), place.path());
        fs::write(from.join("Cargo.toml"), "[workspace]\nmembers = [\"a\"]\n").unwrap();
        fs::write(from.join("Cargo.lock"), "").unwrap();
        fs::create_dir_all(from.join("a/src")).unwrap();
        fs::create_dir_all(from.join("b")).unwrap();
        for (file, text) in [("a/src/lib.rs", "one"), ("a/src/old.rs", "old"), ("b/lib.rs", "not a member")] {
            fs::write(from.join(file), text).unwrap();
        }
        lay_out(from, to).unwrap();
        assert!(to.join("a/src/old.rs").exists() && !to.join("b").exists());

        let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
        for file in ["a/src/lib.rs", "Cargo.toml"] {
            fs::File::options().write(true).open(to.join(file)).unwrap().set_modified(long_ago).unwrap();
        }
        fs::remove_file(from.join("a/src/old.rs")).unwrap();
        fs::write(from.join("a/src/lib.rs"), "two").unwrap();
        // Older than the copy, as in a clone that was created before the last build.
        fs::File::options().write(true).open(from.join("a/src/lib.rs")).unwrap().set_modified(long_ago).unwrap();
        lay_out(from, to).unwrap();
        assert_eq!(fs::read_to_string(to.join("a/src/lib.rs")).unwrap(), "two");
        let time = |file: &str| fs::metadata(to.join(file)).unwrap().modified().unwrap();
        assert!(time("a/src/lib.rs") > long_ago && time("Cargo.toml") == long_ago);
        assert!(!to.join("a/src/old.rs").exists());
    }
}
