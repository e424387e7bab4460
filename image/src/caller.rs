//! The user that the builder works for. Root trees need root, but compilers do not: under sudo they run as the user
//! who called it. Their files in that user's directories then stay that user's. Results in the cache, packages and
//! OVAs are root's.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, lchown};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use nix::libc;

/// The user who called sudo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    pub user: u32,
    pub group: u32,
}

impl Caller {
    /// The user who called sudo, if this process is root and uses that user's home directory rather than root's.
    pub fn of_environment() -> Option<Self> {
        if !nix::unistd::geteuid().is_root() {
            return None;
        }
        let home = std::env::var_os("HOME")?;
        let owner = std::fs::metadata(home).ok()?.uid();
        Self::of(std::env::var_os("SUDO_UID"), std::env::var_os("SUDO_GID"), owner)
    }

    /// `owner` is the owner of the home directory.
    fn of(user: Option<OsString>, group: Option<OsString>, owner: u32) -> Option<Self> {
        let number = |id: Option<OsString>| id?.to_str()?.parse().ok();
        let caller = Self { user: number(user)?, group: number(group)? };
        (caller.user == owner && caller.user != 0).then_some(caller)
    }

    /// Command prefix that makes root run a command as this user.
    pub fn prefix(self) -> [String; 6] {
        let Self { user, group } = self;
        // setpriv is in util-linux, as unshare and nsenter.
        ["setpriv", &format!("--reuid={user}"), &format!("--regid={group}"), "--init-groups", "--inh-caps=-all", "--"]
            .map(str::to_owned)
    }

    /// Changes the owner of a file, or of a directory with its content, to this user. Fails for a link. After an error,
    /// part of it may have the new owner.
    pub fn give(self, directory: &Path) -> Result<()> {
        let giving = || format!("giving {} to user {}", directory.display(), self.user);
        let metadata = std::fs::symlink_metadata(directory).with_context(giving)?;
        if metadata.is_symlink() {
            // A link's target may be any file of root's.
            let error = anyhow!("it is a link: put what it points at in its place, or XDG_CACHE_HOME there");
            return Err(error.context(giving()));
        }
        if metadata.uid() == self.user {
            return Ok(());
        }
        // The directory itself is last: its owner shows whether all of it was changed.
        for entry in walkdir::WalkDir::new(directory).contents_first(true).follow_root_links(false) {
            lchown(entry.with_context(giving)?.path(), Some(self.user), Some(self.group)).with_context(giving)?;
        }
        Ok(())
    }
}

/// Gives a directory or file that a compiler writes to the user who called sudo, if there is one.
pub fn lend(directory: &Path) -> Result<()> {
    Caller::of_environment().map_or(Ok(()), |caller| caller.give(directory))
}

/// Copies a program out of a directory that was lent to a compiler. Other users cannot change the copy later. Links
/// are not followed: as root, the copy could read files that the user may not.
///
/// # Errors
/// When the program is missing or no file, or the copy cannot be written. The copy must not exist yet.
pub fn take(program: &Path, place: &Path) -> Result<()> {
    let mut options = OpenOptions::new();
    // Without O_NONBLOCK, open(2) of a pipe would wait for a writer.
    let from = options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(program);
    let mut from = from.with_context(|| format!("opening {}", program.display()))?;
    if !from.metadata().with_context(|| format!("reading {}", program.display()))?.is_file() {
        bail!("{} is no file", program.display());
    }
    let to = OpenOptions::new().write(true).create_new(true).mode(0o755).open(place);
    let mut to = to.with_context(|| format!("making {}", place.display()))?;
    std::io::copy(&mut from, &mut to).with_context(|| format!("copying {}", program.display()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(user: &str, group: &str, owner: u32) -> Option<Caller> {
        Caller::of(Some(user.into()), Some(group.into()), owner)
    }

    #[test]
    fn the_caller_of_sudo_must_own_home() {
        assert_eq!(of("1000", "100", 1000), Some(Caller { user: 1000, group: 100 }));
        assert_eq!(of("1000", "100", 0), None, "sudo has set HOME to root's");
        assert_eq!(of("0", "0", 0), None);
        assert_eq!(of("anna", "100", 1000), None);
        assert_eq!(Caller::of(None, None, 1000), None);
    }

    #[test]
    fn files_that_root_left_change_their_owner() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("below")).unwrap();
        std::fs::write(directory.path().join("below/file"), "").unwrap();
        let alone = tempfile::NamedTempFile::new().unwrap();
        std::os::unix::fs::symlink("/etc/passwd", directory.path().join("link")).unwrap();
        let own = nix::unistd::geteuid().as_raw();
        // Only root can change the owner. Any user can "give" files to themselves.
        let user = if own == 0 { 4321 } else { own };
        let caller = Caller { user, group: nix::unistd::getegid().as_raw() };
        caller.give(directory.path()).unwrap();
        caller.give(alone.path()).unwrap();
        assert_eq!(std::fs::metadata(alone.path()).unwrap().uid(), user);
        for entry in walkdir::WalkDir::new(directory.path()) {
            let entry = entry.unwrap();
            assert_eq!(std::fs::symlink_metadata(entry.path()).unwrap().uid(), user, "{}", entry.path().display());
        }
        assert_ne!(std::fs::metadata("/etc/passwd").unwrap().uid(), 4321);
    }

    #[test]
    fn links_instead_of_directories_are_not_followed() {
        let above = tempfile::tempdir().unwrap();
        let (target, link) = (above.path().join("target"), above.path().join("link"));
        std::fs::create_dir(&target).unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        let nobody = Caller { user: 65534, group: 65534 };
        let error = format!("{:#}", nobody.give(&link).unwrap_err());
        assert!(error.contains("it is a link"), "{error}");
        assert_ne!(std::fs::metadata(&target).unwrap().uid(), 65534);
    }

    #[test]
    fn programs_are_copied_and_links_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::write(at("made"), "program").unwrap();
        take(&at("made"), &at("kept")).unwrap();
        std::fs::write(at("made"), "changed").unwrap();
        assert_eq!(std::fs::read_to_string(at("kept")).unwrap(), "program");
        assert_eq!(std::fs::metadata(at("kept")).unwrap().mode() & 0o777, 0o755);
        std::os::unix::fs::symlink("/etc/passwd", at("link")).unwrap();
        assert!(take(&at("link"), &at("of a link")).is_err());
        assert!(take(directory.path(), &at("of a directory")).unwrap_err().to_string().ends_with("is no file"));
        std::os::unix::fs::symlink(at("elsewhere"), at("waiting")).unwrap();
        assert!(take(&at("made"), &at("waiting")).is_err(), "written through a link");
    }
}
