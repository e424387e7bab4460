//! The options for the sources of Debian packages.

use std::path::PathBuf;

use clap::Args;
use image::debian::sources::Settings;

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
