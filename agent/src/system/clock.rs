//! The last known time, saved on the data disk. An earlier time than this floor cannot be right. Therefore a VM with a
//! lost hardware clock does not start in the past, where its own certificates are not valid yet.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use contract::codes;
use contract::finding::{Finding, Findings};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_settime};

use crate::host::files;
use crate::host::platform::Platform;
use crate::intake::preflight::{Clock, show};

/// An empty file. Its modification time is the floor.
pub const FLOOR: &str = "/data/kaas/clock";

/// A hardware clock counts whole seconds, and drifts while the VM is off.
const TOLERANCE: Duration = Duration::from_secs(60);

/// The floor below `root` (`/` outside of tests). `None` if the image's date shows that it is wrong.
fn floor(root: &Path, image: SystemTime) -> Option<SystemTime> {
    let kept = fs::metadata(place(root)).and_then(|file| file.modified()).ok()?;
    Clock { now: kept, image }.implausible().is_none().then_some(kept)
}

/// The earliest plausible time below `root`: the last known one, or the date of the `image`.
pub fn earliest(root: &Path, image: SystemTime) -> SystemTime {
    floor(root, image).unwrap_or(image)
}

fn place(root: &Path) -> std::path::PathBuf {
    files::below(root, FLOOR)
}

/// Sets a clock that is behind to the floor, with a warning. A clock that the node may not set stays, with the same
/// warning.
pub fn raise(platform: &Platform) -> Findings {
    raise_with(platform, Clock::of(platform.root()), &|time| {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).map_err(io::Error::other)?;
        Ok(clock_settime(ClockId::CLOCK_REALTIME, TimeSpec::from_duration(since))?)
    })
}

fn raise_with(platform: &Platform, clock: Clock, set: &dyn Fn(SystemTime) -> io::Result<()>) -> Findings {
    let Some(floor) = floor(platform.root(), clock.image).filter(|floor| clock.now + TOLERANCE < *floor) else {
        return Findings::default();
    };
    let done = if !platform.sets_clock() {
        "the clock is the host's and stays".to_owned()
    } else {
        match set(floor) {
            Ok(()) => "it was set to that".to_owned(),
            Err(error) => format!("setting it to that failed: {error}"),
        }
    };
    codes::CLOCK_BEHIND
        .finding(
            "clock",
            format!("at power-on it said {}, but this node has seen {}: {done}", show(clock.now), show(floor)),
            "Set the clock of the hypervisor's host, or give time servers",
        )
        .into()
}

/// Saves the time if it is plausible. A time before the floor is saved only if a time server confirms it. True if
/// saved.
pub fn keep(root: &Path, clock: Clock, vouched: bool) -> anyhow::Result<bool> {
    if clock.implausible().is_some() || (!vouched && floor(root, clock.image).is_some_and(|floor| clock.now < floor)) {
        return Ok(false);
    }
    let place = place(root);
    // A node without a data disk cannot save it.
    if !place.parent().is_some_and(Path::is_dir) {
        return Ok(false);
    }
    files::write_atomically(&place, b"", 0o644).with_context(|| format!("writing {}", place.display()))?;
    Ok(true)
}

/// The finding about an implausible clock. It is an error if it `stops` the forming of a cluster.
pub fn judge(clock: Clock, stops: bool) -> Option<Finding> {
    let finding = clock.implausible()?;
    Some(if stops { finding } else { finding.softened() })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs::File;

    use super::*;
    use contract::platform::CONTAINER_FILE;
    use contract::platform::Container;

    fn day(number: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(number * 24 * 60 * 60)
    }

    fn kept(root: &Path, time: SystemTime) {
        fs::create_dir_all(root.join("data/kaas")).unwrap();
        File::create(place(root)).unwrap().set_modified(time).unwrap();
    }

    /// The time that the clock was set to, and the findings.
    fn raised(root: &Path, now: SystemTime) -> (Option<SystemTime>, Findings) {
        let set = Cell::new(None);
        let platform = Platform::detect(root).unwrap();
        let clock = Clock { now, image: day(19_900) };
        let findings = raise_with(&platform, clock, &|time| {
            set.set(Some(time));
            Ok(())
        });
        (set.get(), findings)
    }

    #[test]
    fn clock_behind_the_last_known_time_is_set() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(raised(root.path(), day(3)), (None, Findings::default()), "nothing is known yet");
        assert_eq!(earliest(root.path(), day(19_900)), day(19_900));
        kept(root.path(), day(20_000));
        assert_eq!(earliest(root.path(), day(19_900)), day(20_000));
        let (set, findings) = raised(root.path(), day(3));
        assert_eq!(set, Some(day(20_000)));
        assert!(findings.to_string().contains("clock.behind") && !findings.has_errors(), "{findings}");
        assert_eq!(raised(root.path(), day(20_000) - Duration::from_secs(30)).0, None);
        assert_eq!(raised(root.path(), day(20_001)).0, None);
    }

    #[test]
    fn implausible_floor_is_ignored() {
        let root = tempfile::tempdir().unwrap();
        for time in [day(40_000), day(3)] {
            kept(root.path(), time);
            assert_eq!(earliest(root.path(), day(19_900)), day(19_900));
            assert_eq!(raised(root.path(), day(20_000)), (None, Findings::default()));
        }
    }

    #[test]
    fn containers_clock_is_reported_and_not_set() {
        let root = tempfile::tempdir().unwrap();
        let file = files::below(root.path(), CONTAINER_FILE);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        let container = Container {
            cdrom: None,
            data_disks: vec![],
            bios_uuid: uuid::Uuid::nil(),
            dmi: None,
            cgroup_root: None,
            fail_cgroup_v1: true,
            restrict_oom_score_adj: false,
            fingerprints: None,
            statement: None,
        };
        fs::write(file, serde_json::to_string(&container).unwrap()).unwrap();
        kept(root.path(), day(20_000));
        let (set, findings) = raised(root.path(), day(19_950));
        assert_eq!(set, None);
        assert!(findings.to_string().contains("the clock is the host's and stays"), "{findings}");
    }

    #[test]
    fn earlier_time_is_saved_only_if_confirmed() {
        let root = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let (before, after) = (now - Duration::from_secs(86_400), now + Duration::from_secs(86_400));
        let image = now - 2 * Duration::from_secs(86_400);
        assert!(!keep(root.path(), Clock { now, image }, true).unwrap(), "there is no data disk");
        fs::create_dir_all(root.path().join("data/kaas")).unwrap();
        assert!(!keep(root.path(), Clock { now, image: after }, true).unwrap());
        assert!(keep(root.path(), Clock { now, image }, false).unwrap());
        assert!(floor(root.path(), image).is_some_and(|floor| floor > before));
        kept(root.path(), after);
        assert!(!keep(root.path(), Clock { now, image }, false).unwrap());
        assert_eq!(floor(root.path(), image), Some(after));
        assert!(keep(root.path(), Clock { now, image }, true).unwrap());
        assert!(floor(root.path(), image).is_some_and(|floor| floor < after));
    }
}
