//! Mounts the data partition and binds its directories to the paths of the table in [`contract::paths`]. Formats
//! nothing.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use contract::codes;
use contract::finding::Finding;
use contract::paths;
use nix::mount::{MntFlags, MsFlags};
use nix::sys::statvfs::statvfs;

use super::device::{self, Disk};
use super::grow;
use super::identity::Identity;
use super::layout;
use super::slots::{self, Slots};
use crate::host::command::{Command, Error, LONG, Runner};
use crate::host::platform::Platform;

/// With less free space than this, in bytes, no write is certain to succeed.
const FULL: u64 = 16 << 20;

struct Mounting {
    point: PathBuf,
    flags: MsFlags,
    /// The finding's action for a file system that cannot be repaired.
    salvage: &'static str,
}

/// Mounts the data disk and its bind mounts, unless they are mounted. Before that it repairs a damaged slot, and grows
/// the partition of a disk that has grown. The disk's owner does not change. Returns the identity that is on the disk
/// now. After an error, earlier mounts remain.
pub fn mount(disk: &Disk, identity: &Identity, platform: &Platform, runner: &dyn Runner) -> Result<Identity, Finding> {
    let name = disk.path.display().to_string();
    let data = platform.path(paths::DATA);
    let mounting = Mounting {
        point: data.clone(),
        flags: MsFlags::MS_NODEV | MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC | MsFlags::MS_NOATIME,
        salvage: "Keep the disk; restore the node from the cluster's other nodes or from a snapshot",
    };
    let (identity, _) = mount_partition(disk, identity, &mounting, platform, runner)?;
    let free = room(&data, &name)?;
    if free.0 < FULL {
        return Err(codes::DISK_FULL.finding(
            name,
            format!("{} MiB of {} MiB are free", free.0 >> 20, free.1 >> 20),
            "Enlarge the data disk, then power the VM off and on",
        ));
    }
    for (directory, mode, point) in paths::binds() {
        let (source, target) = (data.join(directory), platform.path(point));
        bind(&source, mode, &target)
            .map_err(|error| failed(&name, &format!("binding {directory} to {}", target.display()), error))?;
    }
    Ok(identity)
}

/// As [`mount()`]. A full disk is mounted too, because only the pods that filled it can free space. True if it was not
/// mounted before. After an error an earlier mount remains.
pub fn mount_volumes(
    disk: &Disk,
    identity: &Identity,
    platform: &Platform,
    runner: &dyn Runner,
) -> Result<bool, Finding> {
    let name = disk.path.display().to_string();
    let point = platform.path(paths::LOCAL_VOLUMES);
    let mounting = Mounting {
        point: point.clone(),
        // Pods run programs that they store there.
        flags: MsFlags::MS_NODEV | MsFlags::MS_NOSUID,
        salvage: "Keep the disk, and copy from it what can be read; then reset this worker, or remove it and let another one \
                  join: its volumes are lost with it",
    };
    let (_, mounted) = mount_partition(disk, identity, &mounting, platform, runner)?;
    room(&point, &name)?;
    // Each volume is writable for any pod's user. The parent directory belongs to root, who creates the volumes.
    fs::set_permissions(&point, Permissions::from_mode(0o700))
        .map_err(|error| failed(&name, &format!("closing {}", point.display()), error))?;
    Ok(mounted)
}

/// Mounts the data partition. Returns the identity that is on the disk now, and whether the partition was not mounted
/// before.
fn mount_partition(
    disk: &Disk,
    identity: &Identity,
    mounting: &Mounting,
    platform: &Platform,
    runner: &dyn Runner,
) -> Result<(Identity, bool), Finding> {
    let name = disk.path.display().to_string();
    let point = &mounting.point;
    let mounted = is_mounted(point).map_err(|error| failed(&name, "reading the mounts", error))?;
    let identity = keep_identity(disk, identity).map_err(|error| failed(&name, "writing its identity", error))?;
    if mounted {
        return Ok((identity, false));
    }
    // Maintenance reports a partition that is smaller than its disk.
    let range = grow::table(disk, identity.disk, runner)
        .or_else(|error| {
            log::warn!("{name}: {error}");
            layout::check_table(&disk.path, identity.disk, disk.size, runner)
        })
        .map_err(|error| failed(&name, "finding its data partition", error))?;
    let node = device::partition(&disk.path, layout::DATA_NUMBER, &range, platform, runner)
        .map_err(|error| failed(&name, "reaching its data partition", format!("{error:#}")))?;
    check(&node, &name, mounting.salvage, runner)?;
    fs::create_dir_all(point).map_err(|error| failed(&name, "making the mount point", error))?;
    nix::mount::mount(Some(&node), point, Some("ext4"), mounting.flags, Some("errors=remount-ro")).map_err(
        |error| match error {
            nix::Error::EROFS | nix::Error::EACCES => read_only(&name),
            error => failed(&name, &format!("mounting {} on {}", node.display(), point.display()), error),
        },
    )?;
    if let Err(error) = grow::file_system(&node, range.end - range.start, runner) {
        log::warn!("{name}: {error}");
    }
    Ok((identity, true))
}

/// Unmounts the mounts of [`mount()`] in reverse order, until one is in use. Skips those that are not mounted.
pub fn unmount(platform: &Platform) -> anyhow::Result<()> {
    let mut points: Vec<PathBuf> = paths::binds().map(|(.., point)| platform.path(point)).collect();
    points.insert(0, platform.path(paths::DATA));
    for point in points.iter().rev() {
        if is_mounted(point)? {
            nix::mount::umount2(point, MntFlags::UMOUNT_NOFOLLOW)
                .map_err(|error| anyhow::anyhow!("unmounting {}: {error}", point.display()))?;
        }
    }
    Ok(())
}

fn failed(disk: &str, attempt: &str, error: impl std::fmt::Display) -> Finding {
    codes::DISK_FAILED.finding(
        disk,
        format!("{attempt}: {error}"),
        "Check the storage behind the disk, then power the VM off and on",
    )
}

fn read_only(disk: &str) -> Finding {
    codes::DISK_READ_ONLY.finding(
        disk,
        "the data disk refuses writes",
        "Make the disk writable in the hypervisor, then power the VM off and on",
    )
}

/// An image swap may have been prepared after the examination, so the identity is read again.
fn keep_identity(disk: &Disk, identity: &Identity) -> io::Result<Identity> {
    let slots = Slots::read(&disk.path)?;
    let newest = slots.newest().filter(|newest| newest.disk == identity.disk).unwrap_or(identity).clone();
    if !slots.is_redundant() {
        slots::write(&disk.path, &newest)?;
    }
    Ok(newest)
}

/// Replays the journal and makes safe repairs (e2fsck(8): status 1 means repaired, 4 and more that errors remain).
fn check(node: &Path, disk: &str, salvage: &str, runner: &dyn Runner) -> Result<(), Finding> {
    match runner.run(&Command::new("e2fsck").arg("-p").arg(node).within(LONG)) {
        Ok(_) => Ok(()),
        Err(Error::Failed { status, tail, .. }) => match status.code() {
            Some(1 | 2) => {
                log::warn!("the file system of {disk} was repaired: {tail}");
                Ok(())
            }
            _ => Err(codes::DISK_DAMAGED.finding(
                disk,
                format!("its file system cannot be repaired safely: {tail}"),
                salvage,
            )),
        },
        Err(error) => Err(failed(disk, "checking its file system", error)),
    }
}

/// The free space and the size of the file system, in bytes. Maintenance reports a disk that is filling up.
fn room(data: &Path, disk: &str) -> Result<(u64, u64), Finding> {
    let space = statvfs(data).map_err(|error| failed(disk, "measuring its free space", error))?;
    if space.flags().contains(nix::sys::statvfs::FsFlags::ST_RDONLY) {
        return Err(read_only(disk));
    }
    let block = space.fragment_size();
    Ok((space.blocks_available() * block, space.blocks() * block))
}

fn bind(source: &Path, mode: u32, target: &Path) -> io::Result<()> {
    if is_mounted(target)? {
        return Ok(());
    }
    if !source.exists() {
        DirBuilder::new().mode(mode).create(source)?;
    }
    fs::create_dir_all(target)?;
    nix::mount::mount(Some(source), target, None::<&str>, MsFlags::MS_BIND, None::<&str>)?;
    Ok(())
}

/// Whether a file system is mounted on exactly this path.
pub(crate) fn is_mounted(point: &Path) -> io::Result<bool> {
    source(point).map(|source| source.is_some())
}

/// The source of the mount on exactly this path, which for a disk is the path of its device.
pub(super) fn source(point: &Path) -> io::Result<Option<PathBuf>> {
    let point = match point.canonicalize() {
        Ok(point) => point,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    // For this thread, because each thread may have its mount namespace.
    let mounts = fs::read_to_string("/proc/thread-self/mountinfo")?;
    Ok(source_in(&mounts, &point))
}

/// The source of the last mount on a path, which hides the earlier ones. The source is the second field after the
/// separator, because the number of fields before it varies (proc_pid_mountinfo(5)).
fn source_in(mounts: &str, point: &Path) -> Option<PathBuf> {
    let at_point = |line: &&str| line.split(' ').nth(4).is_some_and(|field| Path::new(&unescape(field)) == point);
    let line = mounts.lines().rev().find(at_point)?;
    let (_, of_file_system) = line.split_once(" - ")?;
    of_file_system.split(' ').nth(1).map(|source| unescape(source).into())
}

/// proc_pid_mountinfo(5): blank, tab, newline and backslash are written in octal.
fn unescape(field: &str) -> String {
    let escapes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    escapes.iter().fold(field.to_owned(), |text, (escape, plain)| text.replace(escape, plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_mount_gives_the_source() {
        let mounts = "1 0 8:1 / / rw - erofs /dev/mapper/root ro\n\
            2 1 8:2 / /a\\040b rw shared:1 master:2 - ext4 /dev/hidden rw\n\
            3 1 8:3 / /a\\040b rw shared:1 - ext4 /dev/disk/by-label/c\\040d rw\n";
        let source = |point: &str| source_in(mounts, Path::new(point));
        assert_eq!(source("/").unwrap(), Path::new("/dev/mapper/root"));
        assert_eq!(source("/a b").unwrap(), Path::new("/dev/disk/by-label/c d"));
        assert_eq!(source("/a"), None);
    }
}
