//! The state of a node without a data disk, which exists as long as its VM. It is a directory of the scratch partition. It
//! is mounted in the place of a data disk, so that higher rooms find the files in the same places.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use contract::codes;
use contract::finding::Finding;
use contract::paths;
use nix::mount::MsFlags;

use crate::host::disk::is_mounted;
use crate::host::files;
use crate::host::platform::Platform;

/// Directories that the preparation creates on a data disk, with their modes.
const MADE: [(&str, u32); 2] = [("kaas", 0o700), ("ssh", 0o700)];

/// The mark that the state must be erased at the next start.
const ERASED: &str = "erase";

const CONFIG: &str = "kaas/config.json";
const CONFIG_COPY: &str = "kaas/config-copy.json";

/// Whether an earlier boot has saved a configuration.
pub fn has_config(platform: &Platform) -> bool {
    [CONFIG, CONFIG_COPY].iter().any(|config| platform.path(paths::KEPT).join(config).exists())
}

/// Marks the state to be erased at the next start, because it is in use until then. If there is no space for a file,
/// the configuration becomes the mark. It is erased with the rest.
pub fn mark(platform: &Platform) -> io::Result<()> {
    let kept = platform.path(paths::KEPT);
    let mark = kept.join(ERASED);
    match files::write_atomically(&mark, b"", 0o600) {
        Err(error) if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => {
            files::put_in_place(&kept.join(CONFIG), &mark)
        }
        written => written,
    }
}

pub fn is_marked(platform: &Platform) -> bool {
    platform.path(paths::KEPT).join(ERASED).exists()
}

/// Erases the state, and the mark last. None of it may be mounted. After an error another call continues.
pub fn erase(platform: &Platform) -> io::Result<()> {
    let kept = platform.path(paths::KEPT);
    for entry in fs::read_dir(&kept)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        }
    }
    files::remove(&kept.join(ERASED)).map(drop)
}

/// Existing mounts stay. True if anything was mounted. After an error earlier mounts remain.
pub fn mount(platform: &Platform) -> Result<bool, Finding> {
    let (kept, data) = (platform.path(paths::KEPT), platform.path(paths::DATA));
    let failed = |attempt: String, error: io::Error| {
        codes::DISK_FAILED.finding(
            paths::KEPT,
            format!("{attempt}: {error}"),
            "Power the VM off and on; if it stays, deploy it again: a worker holds nothing that must outlive it",
        )
    };
    let mut changed = false;
    make(&kept, 0o700).map_err(|error| failed(format!("making {}", kept.display()), error))?;
    for (name, mode) in MADE {
        make(&kept.join(name), mode).map_err(|error| failed(format!("making {name}"), error))?;
    }
    let binds = paths::binds_of_workers().map(|(name, mode, point)| (kept.join(name), mode, platform.path(point)));
    for (source, mode, target) in [(kept.clone(), 0o700, data)].into_iter().chain(binds) {
        changed |= bind(&source, mode, &target)
            .map_err(|error| failed(format!("laying {} on {}", source.display(), target.display()), error))?;
    }
    Ok(changed)
}

fn make(directory: &Path, mode: u32) -> io::Result<()> {
    match DirBuilder::new().mode(mode).create(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

fn bind(source: &Path, mode: u32, target: &Path) -> io::Result<bool> {
    if is_mounted(target)? {
        return Ok(false);
    }
    make(source, mode)?;
    fs::create_dir_all(target)?;
    nix::mount::mount(Some(source), target, None::<&str>, MsFlags::MS_BIND, None::<&str>)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_is_mounted_in_a_data_disks_place() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().to_owned();
        fs::create_dir_all(path.join("var/lib/kubelet")).unwrap();
        // A separate mount namespace, which requires root.
        let kept = std::thread::spawn(move || {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).unwrap();
            nix::mount::mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)
                .unwrap();
            let platform = Platform::detect(&path).unwrap();
            assert!(!has_config(&platform));
            assert!(mount(&platform).unwrap());
            assert!(!mount(&platform).unwrap(), "it is there");
            assert!(!has_config(&platform), "nothing is configured yet");
            for (written, found) in [
                ("data/kaas/config.json", "var/lib/kaas/kaas/config.json"),
                ("etc/kubernetes/kubelet.conf", "var/lib/kaas/kubernetes/kubelet.conf"),
                ("var/lib/kubelet/pki/kubelet.key", "var/lib/kaas/kubelet-pki/kubelet.key"),
            ] {
                fs::write(path.join(written), written).unwrap();
                assert_eq!(fs::read_to_string(path.join(found)).unwrap(), written);
            }
            assert!(!path.join("var/lib/etcd").exists(), "a worker has none");
            assert!(has_config(&platform) && !is_marked(&platform));
            mark(&platform).unwrap();
            assert!(is_marked(&platform));
        });
        kept.join().unwrap();
    }

    #[test]
    fn full_state_can_be_marked_and_erased() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().to_owned();
        fs::create_dir_all(path.join("var/lib/kaas")).unwrap();
        let full = std::thread::spawn(move || {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).unwrap();
            nix::mount::mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)
                .unwrap();
            let kept = path.join("var/lib/kaas");
            // Space for two directories and a file.
            nix::mount::mount(None::<&str>, &kept, Some("tmpfs"), MsFlags::empty(), Some("nr_inodes=3")).unwrap();
            fs::create_dir(kept.join("kaas")).unwrap();
            fs::write(kept.join("kaas/config.json"), "{}").unwrap();
            fs::write(kept.join("more"), "").unwrap_err();
            let platform = Platform::detect(&path).unwrap();
            mark(&platform).unwrap();
            assert!(is_marked(&platform));
            erase(&platform).unwrap();
            assert!(!is_marked(&platform) && !has_config(&platform));
        });
        full.join().unwrap();
    }

    #[test]
    fn erasure_removes_configuration_and_mark() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("var/lib/kaas/kaas")).unwrap();
        fs::write(root.path().join("var/lib/kaas/kaas/config.json"), "{}").unwrap();
        let platform = Platform::detect(root.path()).unwrap();
        mark(&platform).unwrap();
        assert!(is_marked(&platform) && has_config(&platform));
        erase(&platform).unwrap();
        assert!(!is_marked(&platform) && !has_config(&platform));
    }
}
