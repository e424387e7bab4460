//! Whom the builder works for. Trees take root, compilers do not: under sudo they run as the user who called it, so that
//! what they keep in that user's folders stays that user's, and the next build without sudo finds nothing of root's there.

use std::ffi::OsString;
use std::os::unix::fs::{MetadataExt, lchown};
use std::path::Path;

use anyhow::{Context, Result};

/// The user who called sudo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// User ID.
    pub user: u32,
    /// Group ID.
    pub group: u32,
}

impl Caller {
    /// The user who called sudo, if this process is root, and works with that user's home folder rather than root's.
    pub fn of_environment() -> Option<Self> {
        if !nix::unistd::geteuid().is_root() {
            return None;
        }
        let home = std::env::var_os("HOME")?;
        let owner = std::fs::metadata(home).ok()?.uid();
        Self::of(std::env::var_os("SUDO_UID"), std::env::var_os("SUDO_GID"), owner)
    }

    /// `owner` is the user whose the home folder is.
    fn of(user: Option<OsString>, group: Option<OsString>, owner: u32) -> Option<Self> {
        let number = |id: Option<OsString>| id?.to_str()?.parse().ok();
        let caller = Self { user: number(user)?, group: number(group)? };
        (caller.user == owner && caller.user != 0).then_some(caller)
    }

    /// What is put before a command that root starts, to run it as this user.
    pub fn prefix(self) -> [String; 6] {
        let Self { user, group } = self;
        // The package of unshare and nsenter has it.
        ["setpriv", &format!("--reuid={user}"), &format!("--regid={group}"), "--init-groups", "--inh-caps=-all", "--"]
            .map(str::to_owned)
    }

    /// Makes a folder, and what is in it, this user's, unless it is already.
    ///
    /// # Errors
    /// When the folder is not there or cannot be given away; part of it may have been then.
    pub fn give(self, folder: &Path) -> Result<()> {
        let giving = || format!("giving {} to user {}", folder.display(), self.user);
        if std::fs::metadata(folder).with_context(giving)?.uid() == self.user {
            return Ok(());
        }
        // The folder comes last: its owner tells whether all of it was given.
        for entry in walkdir::WalkDir::new(folder).contents_first(true) {
            lchown(entry.with_context(giving)?.path(), Some(self.user), Some(self.group)).with_context(giving)?;
        }
        Ok(())
    }
}

/// Makes a folder that a compiler writes to the calling user's, if there is one.
///
/// # Errors
/// As [`Caller::give`].
pub fn lend(folder: &Path) -> Result<()> {
    Caller::of_environment().map_or(Ok(()), |caller| caller.give(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(user: &str, group: &str, owner: u32) -> Option<Caller> {
        Caller::of(Some(user.into()), Some(group.into()), owner)
    }

    #[test]
    fn who_called_sudo_counts_when_the_home_folder_is_theirs() {
        assert_eq!(of("1000", "100", 1000), Some(Caller { user: 1000, group: 100 }));
        assert_eq!(of("1000", "100", 0), None, "sudo has set HOME to root's");
        assert_eq!(of("0", "0", 0), None);
        assert_eq!(of("anna", "100", 1000), None);
        assert_eq!(Caller::of(None, None, 1000), None);
    }

    #[test]
    fn what_root_left_in_a_folder_is_given_away() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("below")).unwrap();
        std::fs::write(folder.path().join("below/file"), "").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join("link")).unwrap();
        let own = nix::unistd::geteuid().as_raw();
        // Only root can give to somebody else; anybody can "give" what is theirs already.
        let user = if own == 0 { 4321 } else { own };
        Caller { user, group: nix::unistd::getegid().as_raw() }.give(folder.path()).unwrap();
        for entry in walkdir::WalkDir::new(folder.path()) {
            let entry = entry.unwrap();
            assert_eq!(std::fs::symlink_metadata(entry.path()).unwrap().uid(), user, "{}", entry.path().display());
        }
        assert_ne!(std::fs::metadata("/etc/passwd").unwrap().uid(), 4321);
    }
}
