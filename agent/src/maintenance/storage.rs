//! File systems that refuse writes after their storage was away. The node reports them, and restarts once the storage answers.
//! The start repairs and mounts them, which a running node cannot.
//!
//! It runs in a separate thread from the start of the agent on. Without its disk the agent may have no plan, and a look at
//! storage that is away may block for minutes.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;
use std::{fs, io, thread};

use contract::codes;
use contract::finding::Finding;

use super::space::{DATA, Place, SCRATCH, VOLUMES};
use crate::host::bus;
use crate::host::disk::{device_answers, is_mounted, refuses_writes};
use crate::host::files;
use crate::host::platform::Platform;
use crate::host::services::Services;
use crate::status::{Reporter, since_power_on};

/// The pause between two looks.
const EVERY: Duration = Duration::from_secs(20);

/// The least time from power-on to a restart by the node itself, in seconds. It limits restarts although they cannot be recorded
/// without storage.
const BOUND: u64 = 10 * 60;

/// File systems that a node writes. If two are on one file system, only the first is checked.
const PLACES: [&Place; 3] = [&SCRATCH, &DATA, &VOLUMES];

#[derive(Debug, PartialEq, Eq)]
enum Next {
    Wait,
    BringBack,
    Restart,
}

/// Starts the thread. It runs as long as the agent.
pub fn watch(platform: Platform, reporter: Reporter) -> io::Result<()> {
    let name = "storage".to_owned();
    thread::Builder::new().name(name).spawn(move || look_for_good(&platform, &reporter)).map(drop)
}

fn look_for_good(platform: &Platform, reporter: &Reporter) {
    let mut before = false;
    loop {
        let refusing = refusing(platform.root());
        reporter.set_lasting(refusing.iter().map(|place| finding(place.name)).collect());
        let needed = refusing.iter().map(|place| place.point).chain(["/"]);
        let answers = || needed.map(|point| platform.path(point)).all(|point| device_answers(&point));
        match next(before && !refusing.is_empty(), answers, since_power_on()) {
            Next::Wait => {}
            Next::BringBack => bring_back(platform),
            Next::Restart => restart(),
        }
        before = !refusing.is_empty();
        thread::sleep(EVERY);
    }
}

/// A node restarts once all storage that its start needs answers. `lasting` means that a file system has refused writes at two
/// looks in a row. `up` is the time since power-on, in seconds.
fn next(lasting: bool, answers: impl FnOnce() -> bool, up: Option<u64>) -> Next {
    if !lasting {
        Next::Wait
    } else if !answers() {
        Next::BringBack
    } else if up.is_some_and(|up| up >= BOUND) {
        Next::Restart
    } else {
        Next::Wait
    }
}

/// Sets disks to running that Linux has set offline because they did not answer for minutes. Linux never does that without
/// help. They may answer at the next look. In a container the disks are the host's.
fn bring_back(platform: &Platform) {
    if platform.is_container() {
        return;
    }
    for disk in fs::read_dir(platform.path("/sys/block")).into_iter().flatten().flatten() {
        let state = disk.path().join("device/state");
        if fs::read_to_string(&state).is_ok_and(|state| state.trim() == "offline")
            // Linux refuses the word without a newline: `store_state_field` in drivers/scsi/scsi_sysfs.c.
            && let Err(error) = fs::write(&state, "running\n")
        {
            log::warn!("setting {} to running: {error}", state.display());
        }
    }
}

fn restart() {
    log::error!("a file system refuses writes, and its storage answers: the node restarts");
    if let Err(error) = bus::system().and_then(|bus| Services::new(&bus).reboot()) {
        log::error!("restarting the node: {error:#}");
    }
}

fn refusing(root: &Path) -> Vec<&'static Place> {
    let mut seen = BTreeSet::new();
    let mut another = |point: &Path| point.metadata().is_ok_and(|point| seen.insert(point.dev()));
    let mounted = |point: &Path| is_mounted(point).unwrap_or(false);
    let places = PLACES.into_iter().filter(|place| {
        let point = files::below(root, place.point);
        mounted(&point) && another(&point) && refuses_writes(&point)
    });
    places.collect()
}

fn finding(name: &str) -> Finding {
    codes::DISK_READ_ONLY.finding(
        name,
        "its file system refuses writes after an error of the storage",
        "The node restarts by itself once the storage answers, at most once in ten minutes. If it stays, check the storage behind \
         the disk",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_restarts_once_its_storage_answers() {
        let next = |lasting, answers, up| next(lasting, || answers, up);
        assert_eq!(next(true, true, Some(BOUND)), Next::Restart);
        assert_eq!(next(false, true, Some(BOUND)), Next::Wait, "one look may have met a passing error");
        assert_eq!(next(true, true, Some(BOUND - 1)), Next::Wait, "its last start is less than ten minutes ago");
        assert_eq!(next(true, true, None), Next::Wait, "when it started is unknown");
        assert_eq!(next(true, false, Some(BOUND)), Next::BringBack, "it cannot start from storage that is away");
    }

    #[test]
    fn offline_disks_of_a_vm_are_set_running() {
        let root = tempfile::tempdir().unwrap();
        let state = |disk: &str| root.path().join(format!("sys/block/{disk}/device/state"));
        let said = || ["sda", "sdb"].map(|disk| fs::read_to_string(state(disk)).unwrap());
        fs::create_dir_all(root.path().join("sys/block/dm-0")).unwrap();
        for (disk, content) in [("sda", "running\n"), ("sdb", "offline\n")] {
            files::write_atomically(&state(disk), content.as_bytes(), 0o644).unwrap();
        }
        let container = files::below(root.path(), contract::platform::CONTAINER_FILE);
        let content = br#"{"cdrom": null, "data_disks": [], "bios_uuid": "420f1a2b-0000-4000-8000-000000000001"}"#;
        files::write_atomically(&container, content, 0o644).unwrap();
        bring_back(&Platform::detect(root.path()).unwrap());
        assert_eq!(said(), ["running\n", "offline\n"]);
        fs::remove_file(container).unwrap();
        bring_back(&Platform::detect(root.path()).unwrap());
        assert_eq!(said(), ["running\n", "running\n"]);
    }
}
