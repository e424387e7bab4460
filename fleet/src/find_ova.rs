//! Finds the OVA in a directory.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// Name of the control cluster's appliance, from its image.
const CONTROL_PLANE: &str = "kaas-control-plane";

/// A directory without an OVA.
#[derive(Debug, thiserror::Error)]
#[error("there is no OVA in {}", .0.display())]
pub struct NoOva(PathBuf);

/// The OVA of a control cluster's node: the file `path`, the only OVA in the directory, or the only one with the
/// builder's name.
pub fn find_ova(path: &Path) -> anyhow::Result<PathBuf> {
    find_ova_of(path, CONTROL_PLANE)
}

/// As [`find_ova`], for the appliance of this name: of several OVAs the one called `NAME-VERSION.ova`.
pub fn find_ova_of(path: &Path, appliance: &str) -> anyhow::Result<PathBuf> {
    if path.is_file() {
        return Ok(path.to_owned());
    }
    let entries = fs::read_dir(path).with_context(|| format!("looking for an OVA in {}", path.display()))?;
    let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    found.retain(|path| path.extension().is_some_and(|extension| extension == "ova"));
    if found.len() > 1 {
        let is_version = |rest: &str| rest.starts_with(|first: char| first.is_ascii_digit());
        let is_named = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            name.strip_prefix(appliance).and_then(|rest| rest.strip_prefix('-')).is_some_and(is_version)
        };
        let named: Vec<PathBuf> = found.iter().filter(|path| is_named(path)).cloned().collect();
        if named.len() == 1 {
            found = named;
        }
    }
    match found.as_slice() {
        [one] => Ok(one.clone()),
        [] => Err(NoOva(path.to_owned()).into()),
        _ => bail!("there are several OVAs in {}; name one of them", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(path: PathBuf) -> String {
        path.file_name().unwrap().to_str().unwrap().to_owned()
    }

    #[test]
    fn the_appliances_ova_is_found_among_several() {
        let directory = tempfile::tempdir().unwrap();
        let found =
            |appliance: &str| find_ova_of(directory.path(), appliance).map(name).map_err(|error| error.to_string());
        let add = |name: &str| fs::write(directory.path().join(name), "").unwrap();
        assert!(found("kaas-tenant").unwrap_err().starts_with("there is no OVA in "));
        add("renamed.ova");
        assert_eq!(found("kaas-tenant").unwrap(), "renamed.ova");
        add("kaas-control-plane-0.1.0.ova");
        add("kaas-tenant-0.1.0.ova");
        add("kaas-tenant-notes-0.1.0.ova");
        assert_eq!(found("kaas-tenant").unwrap(), "kaas-tenant-0.1.0.ova");
        let control = find_ova(directory.path()).unwrap();
        assert!(control.ends_with("kaas-control-plane-0.1.0.ova"));
        assert_eq!(find_ova(&control).unwrap(), control);
        add("kaas-tenant-0.2.0.ova");
        assert!(found("kaas-tenant").unwrap_err().starts_with("there are several OVAs in "));
    }
}
