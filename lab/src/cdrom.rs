//! The CD-ROM with a VM's OVF environment: an ISO 9660 image with `ovf-env.xml` at its root (DSP0243 1.1.0, section
//! 11.2).

use std::fs;
use std::path::Path;

use anyhow::Context;

use super::host::run;
use super::tools::Tools;

/// Writes the image. Replaces an existing one.
pub fn burn(tools: &Tools, environment: &[u8], iso: &Path) -> anyhow::Result<()> {
    let place = iso.parent().context("a CD-ROM without a directory")?;
    let directory = tempfile::tempdir_in(place).context("making the CD-ROM")?;
    fs::write(directory.path().join("ovf-env.xml"), environment)?;
    if iso.exists() {
        fs::remove_file(iso)?;
    }
    let mut xorriso = tools.command("xorriso", &[place]);
    xorriso.args(["-as", "mkisofs", "-quiet", "-J", "-R", "-V", "OVF ENV", "-o"]).arg(iso).arg(directory.path());
    run(&mut xorriso).context("making the CD-ROM with the OVF environment")?;
    Ok(())
}
