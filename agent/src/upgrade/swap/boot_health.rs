//! Whether this boot was marked healthy. Only then can a swap be committed.

use std::fs;
use std::io;
use std::path::Path;

use contract::node::HealthySince;

use crate::host::files;

pub const UNIT: &str = "kaas-mark-good.service";

/// The mark, which lasts as long as this boot.
pub const HEALTHY_FILE: &str = "/run/kaas/good.json";

/// Since when this boot counts as healthy. `None` if it does not.
pub fn read(root: &Path) -> Option<HealthySince> {
    serde_json::from_slice(&fs::read(files::below(root, HEALTHY_FILE)).ok()?).ok()
}

/// Removes the mark of this boot. It must be earned again once [`UNIT`] is started again.
pub fn forget(root: &Path) -> io::Result<()> {
    files::remove(&files::below(root, HEALTHY_FILE)).map(drop)
}
