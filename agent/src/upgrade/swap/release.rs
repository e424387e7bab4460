//! Releases the data disk at a clean shutdown, so that another VM may take it. A swap by hand then only needs "power off,
//! detach, attach, power on". A power cut releases nothing.
//!
//! It runs after every program that writes to the data disk has stopped, and before the disk is unmounted. From then on the
//! disk is read-only for programs that still have it open.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use contract::paths;
use contract::swap::VmImage;
use nix::mount::MsFlags;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use uuid::Uuid;

use crate::host::disk::ownership::{self, own_use};
use crate::host::disk::{Identity, Slots, is_mounted, slots};
use crate::host::image;
use crate::host::platform::Platform;

/// How long to wait for programs that still write to the disk.
const WRITER_LIMIT: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(200);

/// Releases the disk if this VM holds a cluster's disk, and prints that. After an error it stays this VM's.
pub fn command(root: &Path) -> anyhow::Result<()> {
    let platform = Platform::detect(root)?;
    let own = own_use(&platform, &image::read(root)?);
    let Some((disk, released)) = find(&platform, &own)? else {
        println!("there is no data disk to release");
        return Ok(());
    };
    let data = platform.path(paths::DATA);
    if is_mounted(&data)? {
        end_pods(&platform.path("/proc"));
        make_read_only(&data, WRITER_LIMIT).context("the data disk stays this VM's")?;
    }
    slots::write(&disk, &released).with_context(|| format!("releasing {}", disk.display()))?;
    println!("the data disk {} of node {} is released: another VM may take it over", disk.display(), released.node);
    Ok(())
}

/// Ends the processes of pods that still run. In a VM systemd has ended all of them by their scopes. The pods of a node in a
/// container have no scopes, and its API server writes its audit log to the data disk.
fn end_pods(proc: &Path) {
    // Without a cgroup namespace the groups of a node's container come first, and the container may be a pod itself.
    let depth = |process: &Path| {
        let groups = fs::read_to_string(process.join("cgroup")).unwrap_or_default();
        groups.matches("/kubepods").count()
    };
    let own = depth(&proc.join("self"));
    for entry in fs::read_dir(proc).into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // A process that has ended in the meantime has no cgroup file.
        if depth(&entry.path()) > own
            && let Err(error) = kill(Pid::from_raw(pid), Signal::SIGKILL)
        {
            println!("the process {pid} of a pod cannot be ended: {error}");
        }
    }
}

/// The disk that this VM may release, with its identity after the release.
fn find(platform: &Platform, own: &VmImage) -> anyhow::Result<Option<(PathBuf, Identity)>> {
    let disks = platform.data_disk_candidates(platform.root()).context("listing the disks")?;
    let mut found: Vec<_> = disks
        .into_iter()
        .filter_map(|disk| {
            let slots = Slots::read(&disk).ok()?;
            let released = ownership::released(slots.newest()?, own, Uuid::new_v4())?;
            Some((disk, released))
        })
        .collect();
    anyhow::ensure!(found.len() < 2, "{} data disks are attached: none is released", found.len());
    Ok(found.pop())
}

/// Makes the file system read-only wherever it is mounted, which also flushes it. Waits at most `timeout` for programs that
/// still write.
fn make_read_only(data: &Path, timeout: Duration) -> anyhow::Result<()> {
    let kept = MsFlags::MS_NODEV | MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC | MsFlags::MS_NOATIME;
    let until = Instant::now() + timeout;
    loop {
        let flags = MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY | kept;
        match nix::mount::mount(None::<&str>, data, None::<&str>, flags, None::<&str>) {
            Ok(()) => return Ok(()),
            // A file is still open for writing.
            Err(nix::Error::EBUSY) if Instant::now() < until => thread::sleep(POLL),
            Err(error) => return Err(error).with_context(|| format!("making {} read-only", data.display())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::command::Host;
    use crate::host::disk::fixture::{Loop, Machine, alone, owner};
    use crate::host::disk::{DataDisk, DiskState, MINIMUM_SIZE, mount, prepare, unmount};
    use crate::upgrade::swap::adopt;
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::Command;

    /// A machine with a prepared disk that belongs to a cluster.
    fn machine() -> (Machine, Loop) {
        alone();
        let mut machine = Machine::new();
        let file = machine.directory.path().join("disk.img");
        std::fs::File::create(&file).unwrap().set_len(MINIMUM_SIZE).unwrap();
        let device = Loop::new(&file);
        machine.add_device(&device.device);
        let target = machine.examine().data_disk.target().unwrap();
        let (disk, identity) = prepare(&target, &owner(), &machine.platform(), &Host).unwrap();
        slots::write(&disk.path, &Identity { state: DiskState::Formed, ..identity }).unwrap();
        let image = crate::host::files::below(machine.directory.path(), contract::image::PATH);
        std::fs::create_dir_all(image.parent().unwrap()).unwrap();
        std::fs::write(image, serde_json::to_vec(&crate::intake::config::fixture::image()).unwrap()).unwrap();
        (machine, device)
    }

    /// A boot as far as the disk is concerned.
    fn mounted(machine: &Machine) -> Identity {
        let DataDisk::Ours { disk, identity } = machine.examine().data_disk else { panic!("not ours") };
        mount(&disk, &identity, &machine.platform(), &Host).unwrap();
        std::fs::create_dir_all(crate::host::files::below(machine.directory.path(), paths::RECORDS)).unwrap();
        adopt::take(machine.directory.path(), &disk.path, &machine.claimant()).unwrap()
    }

    fn power_off(machine: &Machine) {
        unmount(&machine.platform()).unwrap();
        let memory = crate::host::files::below(machine.directory.path(), "/run/kaas");
        std::fs::remove_dir_all(memory).unwrap();
    }

    #[test]
    fn released_disk_is_taken_by_the_next_vm() {
        let (mut machine, device) = machine();
        mounted(&machine);
        command(machine.directory.path()).unwrap();
        let data = machine.platform().path(paths::DATA);
        let refused = std::fs::write(data.join("late"), "").unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
        let slots = Slots::read(&device.device).unwrap();
        let released = slots.newest().unwrap();
        assert_eq!((released.holder, released.generation), (None, 1));
        power_off(&machine);

        machine.uuid = contract::bios_uuid::BiosUuid::from_u128(77);
        let taken = mounted(&machine);
        assert_eq!((taken.holder, taken.generation), (Some(machine.uuid), 2));
        // A second boot takes nothing twice.
        assert_eq!(mounted(&machine), taken);
        unmount(&machine.platform()).unwrap();
    }

    #[test]
    fn mounted_disk_of_another_vm_is_not_released() {
        let (mut machine, device) = machine();
        machine.uuid = contract::bios_uuid::BiosUuid::from_u128(77);
        // Writes the machine's current state to its file.
        machine.platform();
        let before = Slots::read(&device.device).unwrap();
        command(machine.directory.path()).unwrap();
        assert_eq!(Slots::read(&device.device).unwrap(), before);
    }

    #[test]
    fn disk_with_open_files_is_not_released() {
        let (machine, device) = machine();
        mounted(&machine);
        let data = machine.platform().path(paths::DATA);
        let open = std::fs::File::create(data.join("open")).unwrap();
        let error = make_read_only(&data, Duration::ZERO).unwrap_err();
        assert!(format!("{error:#}").contains("read-only"), "{error:#}");
        assert_eq!(Slots::read(&device.device).unwrap().newest().unwrap().holder, Some(machine.uuid));
        drop(open);
        unmount(&machine.platform()).unwrap();
    }

    #[test]
    fn without_a_disk_there_is_nothing_to_release() {
        let machine = Machine::new();
        assert!(find(&machine.platform(), &machine.own()).unwrap().is_none());
    }
    #[test]
    fn pods_without_scopes_end_before_the_release() {
        // A node with a cgroup namespace, one without, and one without that is a pod itself.
        for node in ["", "/lab/node1", "/kubepods/burstable/pod9/lab/node1"] {
            let proc = tempfile::tempdir().unwrap();
            let [mut pod, mut other] = [0, 1].map(|_| Command::new("sleep").arg("600").spawn().unwrap());
            let [of_pod, of_other] = [pod.id(), other.id()].map(|id| id.to_string());
            for (process, group) in [
                (of_pod.as_str(), "kubepods/burstable/pod1/2"),
                (of_other.as_str(), "system.slice/etcd.service"),
                ("self", "system.slice/kaas-release.service"),
            ] {
                let directory = proc.path().join(process);
                fs::create_dir(&directory).unwrap();
                fs::write(directory.join("cgroup"), format!("0::{node}/{group}\n")).unwrap();
            }
            fs::create_dir(proc.path().join("sys")).unwrap();
            end_pods(proc.path());
            // If end_pods had killed it, its signal would be SIGKILL.
            kill(Pid::from_raw(of_other.parse().unwrap()), Signal::SIGTERM).unwrap();
            assert_eq!(other.wait().unwrap().signal(), Some(15), "{node}: etcd was ended");
            assert!(!pod.wait().unwrap().success(), "{node}");
        }
    }
}
