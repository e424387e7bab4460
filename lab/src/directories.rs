//! The user's directories for labs.

use std::path::PathBuf;

use anyhow::Context;

/// Directory of the user's labs. Each lab has a subdirectory with its name.
pub fn state_directory() -> anyhow::Result<PathBuf> {
    Ok(user_directory("XDG_STATE_HOME", ".local/state")?.join("kaas/lab"))
}

/// Directory of the user's unpacked OVAs. They can be created again.
pub fn cache_directory() -> anyhow::Result<PathBuf> {
    Ok(user_directory("XDG_CACHE_HOME", ".cache")?.join("kaas/lab"))
}

fn user_directory(variable: &str, below_home: &str) -> anyhow::Result<PathBuf> {
    if let Some(set) = std::env::var_os(variable).filter(|set| !set.is_empty()) {
        return Ok(PathBuf::from(set));
    }
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
    let home = home.with_context(|| format!("neither {variable} nor HOME is set"))?;
    Ok(PathBuf::from(home).join(below_home))
}
