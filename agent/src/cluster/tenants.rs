//! The directory of the snapshots that the controller of tenant clusters takes of their stores. It is on the data disk,
//! so it outlives the controller's pods and an image swap of this node. Only the pods' user may read it. Knows nothing
//! of its content.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown};
use std::path::Path;

use anyhow::Context as _;
use contract::paths;

use crate::host::files;

/// The user and group of the controller's pods.
pub const USER: u32 = 65534;
/// Only the owner may read it: each snapshot holds all data of a tenant cluster.
const MODE: u32 = 0o700;

/// Creates the directory, and gives it to the controller's user. Returns whether anything changed.
pub fn ensure(root: &Path) -> anyhow::Result<bool> {
    let directory = files::below(root, paths::TENANTS);
    lay(&directory).with_context(|| format!("laying {}", directory.display()))
}

fn lay(directory: &Path) -> io::Result<bool> {
    let mut changed = match DirBuilder::new().mode(MODE).create(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
        made => made.map(|()| true)?,
    };
    let seen = fs::symlink_metadata(directory)?;
    if !seen.is_dir() {
        return Err(io::Error::other("it is no directory"));
    }
    if (seen.uid(), seen.gid()) != (USER, USER) {
        chown(directory, Some(USER), Some(USER))?;
        changed = true;
    }
    if seen.permissions().mode() & 0o7777 != MODE {
        fs::set_permissions(directory, Permissions::from_mode(MODE))?;
        changed = true;
    }
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_is_the_controllers_and_keeps_its_content() {
        assert!(nix::unistd::geteuid().is_root(), "this test gives a directory to another user, which needs root");
        let root = tempfile::tempdir().unwrap();
        let directory = files::below(root.path(), paths::TENANTS);
        fs::create_dir_all(directory.parent().unwrap()).unwrap();
        assert!(ensure(root.path()).unwrap());
        assert!(!ensure(root.path()).unwrap(), "it is laid already");
        fs::write(directory.join("kept.db"), "a store").unwrap();
        // After an interruption, or a change by the operator.
        chown(&directory, Some(0), Some(0)).unwrap();
        fs::set_permissions(&directory, Permissions::from_mode(0o755)).unwrap();
        assert!(ensure(root.path()).unwrap());
        let seen = fs::metadata(&directory).unwrap();
        assert_eq!((seen.uid(), seen.gid(), seen.mode() & 0o7777), (USER, USER, MODE));
        assert!(directory.join("kept.db").exists());
        fs::remove_dir_all(&directory).unwrap();
        fs::write(&directory, "").unwrap();
        assert!(format!("{:#}", ensure(root.path()).unwrap_err()).contains("no directory"));
    }
}
