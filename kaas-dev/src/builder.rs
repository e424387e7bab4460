//! The parts of the image builder that several commands use: its cache, its tools tree and its sources of packages.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use image::cache::Cache;
use image::debian::sources::Settings;
use image::progress::Progress;
use image::tools::ToolsTree;
use nix::sys::stat::{Mode, umask};

/// The sources of Debian packages. By default, those of this host.
#[derive(Args, Clone)]
pub struct Sources {
    /// Mirror of Debian's release and updates
    #[arg(long, env = "KAAS_DEBIAN_MIRROR", value_name = "URL")]
    mirror: Option<String>,
    /// Mirror of Debian's security updates
    #[arg(long, env = "KAAS_DEBIAN_SECURITY_MIRROR", value_name = "URL")]
    security_mirror: Option<String>,
    /// Keyring to check the archive's indexes with
    #[arg(long, env = "KAAS_DEBIAN_KEYRING", value_name = "FILE")]
    keyring: Option<PathBuf>,
}

impl From<Sources> for Settings {
    fn from(sources: Sources) -> Self {
        Self { mirror: sources.mirror, security_mirror: sources.security_mirror, keyring: sources.keyring }
    }
}

/// Sets a umask with which all users can read the cache, whatever the caller's shell sets. After sudo, compilers run as the
/// user who called it, and each tree has its own users.
pub fn share() {
    umask(Mode::S_IWGRP | Mode::S_IWOTH);
}

/// The user's cache. It keeps files that a lab uses.
pub fn cache() -> Result<Cache> {
    Cache::of_user(lab::tools_in_use)
}

/// The tools tree of this program's build. It is created if it is missing.
pub fn tools_tree(settings: &Settings) -> Result<ToolsTree> {
    share();
    image::tools::check_host(&[])?;
    image::tools::ensure(settings, &cache()?, &Progress::on_stderr())
}
