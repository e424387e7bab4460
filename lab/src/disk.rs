//! Data disks of a lab: sparse files, and the loop devices that show them to
//! system containers.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::host::{program, run};

/// Makes a blank disk of `capacity` bytes.
///
/// # Errors
/// When the file exists or cannot be made.
pub fn create(path: &Path, capacity: u64) -> anyhow::Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).open(path);
    file.and_then(|file| file.set_len(capacity)).with_context(|| format!("making the disk {}", path.display()))
}

/// Shows a disk as a loop device and returns the device.
///
/// # Errors
/// When no loop device can be had.
pub fn attach(path: &Path) -> anyhow::Result<PathBuf> {
    let mut losetup = program("losetup", ["--find", "--show"]);
    let device = run(losetup.arg(path))?.trim().to_owned();
    // Whoever used the device before may have left its partitions behind.
    forget_partitions(&device)?;
    Ok(PathBuf::from(device))
}

/// Takes every loop device of a disk away, its partitions' devices first:
/// they would outlive the device.
///
/// # Errors
/// When the device is in use.
pub fn release(path: &Path) -> anyhow::Result<()> {
    let devices = run(program("losetup", ["--noheadings", "--output", "NAME", "--associated"]).arg(path))?;
    for device in devices.split_ascii_whitespace() {
        forget_partitions(device)?;
        run(&mut program("losetup", ["--detach", device]))?;
    }
    Ok(())
}

fn forget_partitions(device: &str) -> anyhow::Result<()> {
    let directory = Path::new("/sys/class/block").join(device.trim_start_matches("/dev/"));
    let entries = std::fs::read_dir(&directory).with_context(|| format!("reading {}", directory.display()))?;
    if entries.flatten().any(|entry| entry.path().join("partition").exists()) {
        run(&mut program("partx", ["--delete", device]))?;
    }
    Ok(())
}
