//! Data disks of a lab: sparse files, and the loop devices that show them to
//! system containers.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

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

/// Makes a disk as large as `capacity` bytes.
///
/// # Errors
/// When it is as large already, or the file cannot be changed.
pub fn enlarge(path: &Path, capacity: u64) -> anyhow::Result<()> {
    let enlarge = || {
        let file = OpenOptions::new().write(true).open(path)?;
        let present = file.metadata()?.len();
        ensure!(present < capacity, "it has {present} bytes already, and is never made smaller");
        Ok(file.set_len(capacity)?)
    };
    enlarge().with_context(|| format!("making the disk {} larger", path.display()))
}

/// Lets the loop devices of a disk have the size that it has now.
///
/// # Errors
/// When one does not take it.
pub fn show_size(path: &Path) -> anyhow::Result<()> {
    devices(path)?.iter().try_for_each(|device| run(&mut program("losetup", ["--set-capacity", device])).map(drop))
}

/// Takes every loop device of a disk away, its partitions' devices first:
/// they would outlive the device.
///
/// # Errors
/// When the device is in use.
pub fn release(path: &Path) -> anyhow::Result<()> {
    for device in devices(path)? {
        forget_partitions(&device)?;
        run(&mut program("losetup", ["--detach", &device]))?;
    }
    Ok(())
}

/// The loop devices that show a disk.
fn devices(path: &Path) -> anyhow::Result<Vec<String>> {
    let devices = run(program("losetup", ["--noheadings", "--output", "NAME", "--associated"]).arg(path))?;
    Ok(devices.split_ascii_whitespace().map(str::to_owned).collect())
}

fn forget_partitions(device: &str) -> anyhow::Result<()> {
    let directory = Path::new("/sys/class/block").join(device.trim_start_matches("/dev/"));
    let entries = std::fs::read_dir(&directory).with_context(|| format!("reading {}", directory.display()))?;
    if entries.flatten().any(|entry| entry.path().join("partition").exists()) {
        run(&mut program("partx", ["--delete", device]))?;
    }
    Ok(())
}
