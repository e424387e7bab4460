//! The user's directories that labs are kept in.

use std::path::{Path, PathBuf};

use anyhow::Context;

/// The folder that holds the user's labs, each in a folder of its name.
///
/// # Errors
/// When the user has no home folder.
pub fn state_folder() -> anyhow::Result<PathBuf> {
    Ok(user_folder("XDG_STATE_HOME", ".local/state")?.join("kaas/lab"))
}

/// The user's folder that the lab's root trees are kept in; they can be made again.
///
/// # Errors
/// When the user has no home folder.
pub fn cache_folder() -> anyhow::Result<PathBuf> {
    Ok(user_folder("XDG_CACHE_HOME", ".cache")?.join("kaas/lab"))
}

fn user_folder(variable: &str, below_home: &str) -> anyhow::Result<PathBuf> {
    if let Some(set) = std::env::var_os(variable).filter(|set| !set.is_empty()) {
        return Ok(PathBuf::from(set));
    }
    let home = std::env::var_os("HOME").with_context(|| format!("neither {variable} nor HOME is set"))?;
    Ok(Path::new(&home).join(below_home))
}
