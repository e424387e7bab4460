//! Where the controller of tenant clusters keeps snapshots of their stores: a directory on the data disk, which outlives its pods and an
//! image swap of this node. It is the pods' user's alone. Knows nothing of what is in it.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown};
use std::path::Path;

use anyhow::Context as _;
use contract::paths;

use crate::host::files;

/// User and group that the controller's pods run as.
pub const USER: u32 = 65534;
/// Its owner's alone: each snapshot holds what a tenant's cluster knows.
const MODE: u32 = 0o700;

/// Makes it, and gives it to the controller's user. Says whether anything changed.
///
/// # Errors
/// Any error of the file system.
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
    fn it_is_the_controllers_alone_and_what_is_in_it_stays() {
        assert!(nix::unistd::geteuid().is_root(), "this test gives a directory to another user, which needs root");
        let root = tempfile::tempdir().unwrap();
        let directory = files::below(root.path(), paths::TENANTS);
        fs::create_dir_all(directory.parent().unwrap()).unwrap();
        assert!(ensure(root.path()).unwrap());
        assert!(!ensure(root.path()).unwrap(), "it is laid already");
        fs::write(directory.join("kept.db"), "a store").unwrap();
        // Cut off in the middle, or changed by a person.
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
