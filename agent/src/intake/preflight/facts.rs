//! Reads the VM's resources. Unknown facts are left out, because they are no reason to stop.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use contract::role::Role;

use super::Clock;
use crate::host::files;
use crate::host::platform::Platform;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    pub processors: Option<usize>,
    /// Memory that the kernel manages, in bytes.
    pub memory: Option<u64>,
    /// The data disk's size in bytes.
    pub data_disk: Option<u64>,
    pub clock: Clock,
    /// Whether the node is new: its data disk is blank.
    pub blank: bool,
    /// The node's role, if known. Otherwise the image's first role, until the form is read.
    pub role: Role,
}

impl Facts {
    /// Reads the facts. `data_disk` is the chosen disk's size in bytes, `blank` whether it has no data of a cluster.
    pub fn of(platform: &Platform, data_disk: Option<u64>, blank: bool, role: Role) -> Self {
        Self {
            processors: read(platform, "/sys/devices/system/cpu/online").and_then(|text| count(&text)),
            memory: platform.memory(),
            data_disk,
            clock: Clock::of(platform.root()),
            blank,
            role,
        }
    }
}

impl Clock {
    pub fn of(root: &Path) -> Self {
        // All files of an image have the date of the package lists that it was built from.
        let description = fs::metadata(files::below(root, contract::image::PATH));
        let image = description.and_then(|description| description.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
        Self { now: SystemTime::now(), image }
    }
}

fn read(platform: &Platform, path: &str) -> Option<String> {
    fs::read_to_string(platform.path(path)).ok()
}

/// The kernel's lists of processors have the form `0-3,8` (cpu-lists, admin-guide/cputopology).
fn count(list: &str) -> Option<usize> {
    list.trim()
        .split(',')
        .map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
            Some(last.checked_sub(first)? + 1)
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_and_memory_are_read_from_the_kernel() {
        let directory = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = directory.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("sys/devices/system/cpu/online", "0-3,8\n");
        write("proc/meminfo", "MemTotal:        2048000 kB\nMemFree:  1 kB\n");
        write("usr/lib/kaas/image.json", "{}");
        let platform = Platform::detect(directory.path()).unwrap();
        let facts = Facts::of(&platform, Some(1), true, Role::ControlPlane);
        assert_eq!((facts.processors, facts.memory), (Some(5), Some(2_048_000 << 10)));
        assert!(facts.clock.implausible().is_none(), "{facts:?}");
    }

    #[test]
    fn unreadable_facts_are_unknown() {
        assert_eq!((count(""), count("0-"), count("3-1")), (None, None, None));
        let directory = tempfile::tempdir().unwrap();
        let facts = Facts::of(&Platform::detect(directory.path()).unwrap(), None, false, Role::ControlPlane);
        assert_eq!((facts.processors, facts.memory), (None, None));
    }
}
