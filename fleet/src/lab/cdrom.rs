//! The CD-ROM through which a VM gets its OVF environment: an ISO 9660 image
//! with `ovf-env.xml` at its root (DSP0243 1.1.0, section 11.2).

use std::fs;
use std::path::Path;

use anyhow::Context;

use super::host::{program, run};

/// Writes the image; one that is there is replaced.
///
/// # Errors
/// When xorriso is missing or fails.
pub fn burn(environment: &[u8], iso: &Path) -> anyhow::Result<()> {
    let folder = tempfile::tempdir().context("making the CD-ROM")?;
    fs::write(folder.path().join("ovf-env.xml"), environment)?;
    if iso.exists() {
        fs::remove_file(iso)?;
    }
    let mut xorriso = program("xorriso", ["-as", "mkisofs", "-quiet", "-J", "-R", "-V", "OVF ENV", "-o"]);
    run(xorriso.arg(iso).arg(folder.path())).context("making the CD-ROM with the OVF environment")?;
    Ok(())
}
