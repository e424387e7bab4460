//! Whether this boot has shown itself good: a swap is committed only after it.

use std::fs;
use std::io;
use std::path::Path;

use contract::node::HealthySince;

use crate::host::files;

/// The systemd unit that notes it.
pub const UNIT: &str = "kaas-mark-good.service";

/// Where it is noted, for as long as this boot lasts.
pub const HEALTHY_FILE: &str = "/run/kaas/good.json";

/// Since when this boot has counted as good, if it does.
pub fn read(root: &Path) -> Option<HealthySince> {
    serde_json::from_slice(&fs::read(files::below(root, HEALTHY_FILE)).ok()?).ok()
}

/// Forgets that this boot was good: it must show so again, once [`UNIT`] is started again.
///
/// # Errors
/// The file system's.
pub fn forget(root: &Path) -> io::Result<()> {
    files::remove(&files::below(root, HEALTHY_FILE)).map(drop)
}
