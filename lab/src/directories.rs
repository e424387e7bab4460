//! The user's directories that labs are kept in.

use std::path::PathBuf;

use anyhow::Context;
use nix::unistd::{Uid, User};

/// The directory that holds the user's labs, each in a directory of its name.
///
/// # Errors
/// When the user has no home directory.
pub fn state_directory() -> anyhow::Result<PathBuf> {
    Ok(user_directory("XDG_STATE_HOME", ".local/state")?.join("kaas/lab"))
}

/// The user's directory that the lab's root trees are kept in; they can be made again.
///
/// # Errors
/// When the user has no home directory.
pub fn cache_directory() -> anyhow::Result<PathBuf> {
    Ok(user_directory("XDG_CACHE_HOME", ".cache")?.join("kaas/lab"))
}

fn user_directory(variable: &str, below_home: &str) -> anyhow::Result<PathBuf> {
    if let Some(set) = std::env::var_os(variable).filter(|set| !set.is_empty()) {
        return Ok(PathBuf::from(set));
    }
    let home = std::env::var_os("HOME").with_context(|| format!("neither {variable} nor HOME is set"))?;
    let behind_sudo = std::env::var("SUDO_UID").ok();
    Ok(home_of_caller(PathBuf::from(home), behind_sudo.as_deref()).join(below_home))
}

/// The home of whoever ran the command. sudo gives root's home, or leaves the caller's: what `make` has made as the
/// caller is found either way.
fn home_of_caller(home: PathBuf, behind_sudo: Option<&str>) -> PathBuf {
    let home_of = |user: Uid| User::from_uid(user).ok().flatten().map(|user| user.dir);
    let caller = behind_sudo.and_then(|user| user.parse().ok()).map(Uid::from_raw);
    match caller.and_then(home_of) {
        Some(callers) if home_of(Uid::from_raw(0)).as_ref() == Some(&home) => callers,
        _ => home,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_belongs_to_the_caller_is_found_behind_sudo_too() {
        let home_of = |user: u32| User::from_uid(Uid::from_raw(user)).unwrap().unwrap().dir;
        // Debian's user 2, bin, has a home that is not root's.
        assert_eq!(home_of_caller(home_of(0), Some("2")), home_of(2));
        assert_eq!(home_of_caller(home_of(0), None), home_of(0));
        assert_eq!(home_of_caller(home_of(0), Some("no number")), home_of(0));
        let kept = PathBuf::from("/home/kept-by-sudo");
        assert_eq!(home_of_caller(kept.clone(), Some("2")), kept);
    }
}
