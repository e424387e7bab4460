//! What all labs of this machine share, whoever's they are.

use std::fs::{File, Permissions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::time::Duration;

use anyhow::Context;

use super::wait::until;

/// Held while something that labs share is made or removed.
const LOCK: &str = "/run/kaas-lab.lock";

/// For how long another command may hold it before it counts as being in the way.
const HELD: Duration = Duration::from_secs(60);

/// Keeps other labs from making or removing what all labs of this machine share, while the returned file is open.
///
/// # Errors
/// When the file cannot be made, or another command does not let go of it.
pub fn lock() -> anyhow::Result<File> {
    let open = || -> std::io::Result<File> {
        // Whoever can open it can hold it.
        let file = File::options().create(true).truncate(false).write(true).mode(0o600).open(LOCK)?;
        file.set_permissions(Permissions::from_mode(0o600))?;
        Ok(file)
    };
    let file = open().with_context(|| format!("opening {LOCK}"))?;
    until(&format!("{LOCK}, which another lab's command holds"), HELD, || Ok(file.try_lock().is_ok()))?;
    Ok(file)
}
