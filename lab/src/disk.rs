//! Data disks of a lab: sparse files, and loop devices for system containers.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use nix::sys::stat::{major, minor};
use serde::{Deserialize, Serialize};

use super::host::{program, run};

/// Creates a blank disk of `capacity` bytes. Fails if the file exists.
pub fn create(path: &Path, capacity: u64) -> anyhow::Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).open(path);
    file.and_then(|file| file.set_len(capacity)).with_context(|| format!("making the disk {}", path.display()))
}

/// Copies a disk, completely or not at all. Holes stay holes. An error can leave a file with the extension `new`, which
/// the next call replaces.
pub fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    let new = to.with_extension("new");
    // A killed command's `cp` may still write. This creates another file.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("removing {}", new.display()));
        }
        _ => {}
    }
    run(program("cp", ["--sparse=always", "--reflink=auto"]).arg(from).arg(&new))?;
    fs::rename(&new, to).with_context(|| format!("writing {}", to.display()))
}

/// Attaches a disk to a loop device and returns the device's path.
pub fn attach(path: &Path) -> anyhow::Result<PathBuf> {
    let mut losetup = program("losetup", ["--find", "--show"]);
    let device = run(losetup.arg(path))?.trim().to_owned();
    // The device's former user may have left its partitions.
    forget_partitions(&device)?;
    Ok(PathBuf::from(device))
}

/// Enlarges a disk to `capacity` bytes. Fails if it is not smaller.
pub fn enlarge(path: &Path, capacity: u64) -> anyhow::Result<()> {
    let enlarge = || {
        let file = OpenOptions::new().write(true).open(path)?;
        let present = file.metadata()?.len();
        ensure!(present < capacity, "it has {present} bytes already, and is never made smaller");
        Ok(file.set_len(capacity)?)
    };
    enlarge().with_context(|| format!("making the disk {} larger", path.display()))
}

/// Updates the size of a disk's loop devices.
pub fn show_size(path: &Path) -> anyhow::Result<()> {
    devices(path)?.iter().try_for_each(|device| run(&mut program("losetup", ["--set-capacity", device])).map(drop))
}

/// Identity of a file of this host, whatever its name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    pub fn of(path: &Path) -> anyhow::Result<Self> {
        let metadata = std::fs::metadata(path).with_context(|| format!("looking at {}", path.display()))?;
        Ok(Self { device: metadata.dev(), inode: metadata.ino() })
    }
}

/// The output of `losetup --json`.
#[derive(Deserialize)]
struct LoopDevices {
    loopdevices: Vec<LoopDevice>,
}

#[derive(Deserialize)]
struct LoopDevice {
    name: String,
    #[serde(rename = "back-ino")]
    inode: u64,
    /// As `major:minor`, with spaces around.
    #[serde(rename = "back-maj:min")]
    device: String,
}

fn devices_of(file: FileId) -> anyhow::Result<Vec<String>> {
    let text = run(&mut program("losetup", ["--list", "--json", "--output", "NAME,BACK-INO,BACK-MAJ:MIN"]))?;
    // The output can be empty if no device exists.
    let all = match text.trim() {
        "" => Vec::new(),
        text => serde_json::from_str::<LoopDevices>(text).context("reading losetup's list")?.loopdevices,
    };
    let device = format!("{}:{}", major(file.device), minor(file.device));
    let is_its = |found: &LoopDevice| found.inode == file.inode && found.device.trim() == device;
    Ok(all.into_iter().filter(is_its).map(|found| found.name).collect())
}

/// As [`release`], for a file that may have been renamed or unlinked.
pub fn release_file(file: FileId) -> anyhow::Result<()> {
    devices_of(file)?.iter().try_for_each(|device| detach(device))
}

/// Detaches every loop device of a disk. Removes its partitions' devices first: they would outlive the loop device.
/// Fails if the device is in use.
pub fn release(path: &Path) -> anyhow::Result<()> {
    devices(path)?.iter().try_for_each(|device| detach(device))
}

fn detach(device: &str) -> anyhow::Result<()> {
    forget_partitions(device)?;
    run(&mut program("losetup", ["--detach", device])).map(drop)
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renamed_disk_is_detached() {
        let directory = tempfile::tempdir().unwrap();
        let [before, after, other] = ["before.raw", "after.raw", "other.raw"].map(|name| directory.path().join(name));
        create(&before, 1 << 20).unwrap();
        create(&other, 1 << 20).unwrap();
        let (file, other) = (FileId::of(&before).unwrap(), FileId::of(&other).unwrap());
        let device = attach(&before).unwrap();
        std::fs::rename(&before, &after).unwrap();
        assert_eq!(devices_of(file).unwrap(), [device.display().to_string()]);
        assert_eq!(devices_of(other).unwrap(), [""; 0]);
        std::fs::remove_file(&after).unwrap();
        release_file(file).unwrap();
        assert_eq!(devices_of(file).unwrap(), [""; 0]);
        release_file(file).unwrap();
    }
}
