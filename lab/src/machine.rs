//! Resources that all labs of this machine share, of all users.

use std::fs::{File, Permissions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::time::Duration;

use anyhow::Context;

use super::wait::until;

/// Locked while a shared resource is created or removed.
const LOCK: &str = "/run/kaas-lab.lock";

/// How long another command may hold the lock before this one gives up.
const HELD: Duration = Duration::from_secs(60);

/// Locks the shared resources of this machine while the returned file is open.
pub fn lock() -> anyhow::Result<File> {
    let open = || -> std::io::Result<File> {
        // Any process that can open the file can lock it.
        let file = File::options().create(true).truncate(false).write(true).mode(0o600).open(LOCK)?;
        file.set_permissions(Permissions::from_mode(0o600))?;
        Ok(file)
    };
    let file = open().with_context(|| format!("opening {LOCK}"))?;
    until(&format!("{LOCK}, which another lab's command holds"), HELD, || Ok(file.try_lock().is_ok()))?;
    Ok(file)
}
