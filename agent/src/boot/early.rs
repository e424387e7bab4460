//! The stage before the system starts. It makes `/etc` writable in memory and writes the data disk's machine ID and
//! host name there, before PID 1 of the system reads them. In a VM it runs in the initrd. In a system container it is
//! the first program and becomes the system's PID 1.
//!
//! It formats nothing, decides nothing and never stops the boot. Without an identity the machine ID is random, and the
//! first boot then keeps it. If the image has a worker role, the machine ID is derived from the VM's UUID.

use std::convert::Infallible;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use contract::codes;
use contract::finding::Findings;
use contract::image::ImageFacts;
use nix::mount::MsFlags;
use serde::{Deserialize, Serialize};

use crate::host::disk::ownership::{Claimant, may_take};
use crate::host::disk::{DiskState, Identity, MachineId, Slots};
use crate::host::files::{self, write_atomically};
use crate::host::image;
use crate::host::platform::Platform;

/// File with the outcome, below the host's root.
pub const REPORT: &str = "/run/kaas/early.json";

/// How long a VM waits for a disk other than the system disk.
const LIMIT: Duration = Duration::from_secs(10);
/// The wait ends when no further disk has appeared for this long.
const SETTLED: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(50);

/// Options of `kaas-agent early`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Where the system's root file system is mounted
    #[arg(long, default_value = "/")]
    pub root: PathBuf,
    /// Become this program afterwards
    #[arg(long)]
    pub exec: Option<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    pub machine_id: MachineId,
    /// The host name from the data disk.
    pub host_name: Option<String>,
    /// The disk that gave both. Without one, the machine ID is random or derived from the VM's UUID.
    pub disk: Option<PathBuf>,
    pub findings: Findings,
}

/// Runs the stage. Errors are written to standard error, and the boot continues.
pub fn command(options: &Options) -> anyhow::Result<()> {
    let report = run(Path::new("/"), &options.root);
    for finding in report.findings.iter() {
        eprintln!("kaas-agent: {finding}");
    }
    match &options.exec {
        Some(program) => become_program(program).map(|never| match never {}),
        None => Ok(()),
    }
}

/// Mounts `/etc` of the system at `root`. `host` is where `/sys`, `/dev` and `/run` are.
pub fn run(host: &Path, root: &Path) -> Report {
    let mut findings = Findings::default();
    let mut trouble = |subject: &str, error: anyhow::Error| {
        findings.push(codes::EARLY_FAILED.finding(
            subject,
            format!("{error:#}"),
            "The boot continues with another machine ID; look at the log of the early stage",
        ));
    };
    let (mut found, mut fresh) = (None, MachineId::random());
    match Platform::detect(host) {
        Ok(platform) => {
            if platform.is_container()
                && let Err(error) = make_cgroups_writable()
            {
                trouble("cgroups", error);
            }
            let image = image::read(root).map_err(|error| trouble("image", error)).ok();
            // A worker has no data disk that would give it the same machine ID at each boot.
            if let (Some(image), Some(machine)) = (&image, platform.bios_uuid())
                && image.roles.iter().any(|role| !role.has_data_disk())
            {
                fresh = MachineId::of_machine(machine);
            }
            match find_identity(&platform, image.as_ref(), root) {
                Ok(identity) => found = identity,
                Err(error) => trouble("data disk", error),
            }
        }
        Err(error) => trouble("platform", error),
    }
    let machine_id = found.as_ref().map_or_else(|| fresh, |(_, identity)| identity.machine_id);
    let host_name = found.as_ref().map(|(_, identity)| identity.host_name.clone());
    if let Err(error) = lay_etc(host, root).and_then(|()| write_names(root, machine_id, host_name.as_deref())) {
        trouble("/etc", error);
    }
    let report = Report { machine_id, host_name, disk: found.map(|(disk, _)| disk), findings };
    let file = files::below(host, REPORT);
    let saved = serde_json::to_vec_pretty(&report).map_err(io::Error::from);
    if let Err(error) = saved.and_then(|text| write_atomically(&file, &text, 0o644)) {
        eprintln!("kaas-agent: saving {}: {error}", file.display());
    }
    report
}

/// Finds the only identity that this machine may use. `None` if another VM holds the disk. Several data disks are an
/// error. The first boot reports what is wrong with the disks.
fn find_identity(
    platform: &Platform,
    image: Option<&ImageFacts>,
    root: &Path,
) -> anyhow::Result<Option<(PathBuf, Identity)>> {
    let started = Instant::now();
    let mut disks = Vec::new();
    let mut changed = started;
    loop {
        let now = platform.data_disk_candidates(root).context("listing the disks")?;
        if now != disks {
            (disks, changed) = (now, Instant::now());
        }
        let mut identities: Vec<_> = disks.iter().filter_map(|disk| identity_of(disk, platform, image)).collect();
        match identities.len() {
            0 => {}
            1 => return Ok(identities.pop()),
            several => anyhow::bail!("{several} data disks are attached"),
        }
        let settled = !disks.is_empty() && changed.elapsed() >= SETTLED;
        if platform.is_container() || settled || started.elapsed() >= LIMIT {
            return Ok(None);
        }
        std::thread::sleep(POLL);
    }
}

/// An unreadable disk counts as a disk without identity here.
fn identity_of(disk: &Path, platform: &Platform, image: Option<&ImageFacts>) -> Option<(PathBuf, Identity)> {
    let slots = Slots::read(disk).ok()?;
    // A node whose disk is to be erased starts as a new node. A worker's disk with local volumes gives no identity.
    let lasting = |identity: &&Identity| {
        slots.later().is_none() && identity.state != DiskState::Erasing && identity.local_volumes.is_none()
    };
    let identity = slots.newest().filter(lasting)?;
    let ours = match image {
        Some(image) => may_take(identity, &Claimant::of(platform, image)).is_ok(),
        None => identity.holder == platform.bios_uuid(),
    };
    ours.then(|| (disk.to_owned(), identity.clone()))
}

/// Mounts an overlay on `/etc` with its upper layer in `/run`, unless it is mounted.
fn lay_etc(host: &Path, root: &Path) -> anyhow::Result<()> {
    let etc = root.join("etc");
    let (upper, work) = (host.join("run/kaas/etc/upper"), host.join("run/kaas/etc/work"));
    if work.exists() && crate::host::disk::is_mounted(&etc)? {
        return Ok(());
    }
    for directory in [&upper, &work] {
        fs::create_dir_all(directory).with_context(|| format!("making {}", directory.display()))?;
    }
    let options = format!("lowerdir={},upperdir={},workdir={}", etc.display(), upper.display(), work.display());
    let flags = MsFlags::MS_NODEV | MsFlags::MS_NOSUID;
    nix::mount::mount(Some("overlay"), &etc, Some("overlay"), flags, Some(options.as_str()))
        .with_context(|| format!("laying an overlay on {}", etc.display()))
}

fn write_names(root: &Path, machine_id: MachineId, host_name: Option<&str>) -> anyhow::Result<()> {
    let write = |path: &str, text: String, mode| {
        write_atomically(&root.join(path), text.as_bytes(), mode).with_context(|| format!("writing /{path}"))
    };
    // systemd.unit(5), ConditionNeedsUpdate=: the image is up to date. Without this file each boot would create users
    // and caches again.
    write("etc/.updated", String::new(), 0o644)?;
    write("etc/machine-id", format!("{machine_id}\n"), 0o444)?;
    host_name.map_or(Ok(()), |name| write("etc/hostname", format!("{name}\n"), 0o644))
}

/// A container engine mounts cgroup v1 hierarchies read-only. The kubelet and containerd create their groups below
/// them.
fn make_cgroups_writable() -> anyhow::Result<()> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").context("reading the mounts")?;
    for (point, flags) in read_only_cgroups(&mounts) {
        nix::mount::mount(None::<&str>, point, None::<&str>, flags, None::<&str>)
            .with_context(|| format!("making {point} writable"))?;
    }
    Ok(())
}

/// Mount points and the flags that make them writable (proc_pid_mountinfo(5):
/// field 5 is the mount point, 6 its options, the file system follows `-`).
fn read_only_cgroups(mounts: &str) -> impl Iterator<Item = (&str, MsFlags)> {
    mounts.lines().filter_map(|line| {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(4);
        let (point, options) = (fields.next()?, fields.next()?);
        let has = |name: &str| options.split(',').any(|option| option == name);
        if !file_system.starts_with("cgroup") || !has("ro") {
            return None;
        }
        let keep = [
            ("nosuid", MsFlags::MS_NOSUID),
            ("nodev", MsFlags::MS_NODEV),
            ("noexec", MsFlags::MS_NOEXEC),
            ("noatime", MsFlags::MS_NOATIME),
        ];
        let kept = keep.iter().filter(|(name, _)| has(name)).map(|(_, flag)| *flag);
        Some((point, kept.fold(MsFlags::MS_REMOUNT | MsFlags::MS_BIND, |flags, flag| flags | flag)))
    })
}

fn become_program(program: &Path) -> anyhow::Result<Infallible> {
    let path = CString::new(program.as_os_str().as_bytes()).context("the program's path")?;
    nix::unistd::execv(&path, &[&path]).with_context(|| format!("starting {}", program.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::disk::fixture::{self, Machine};
    use crate::host::disk::{layout, slots};
    use nix::sched::{CloneFlags, unshare};
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    /// A system whose changes to `/etc` only this thread sees.
    fn system(machine: &Machine) -> PathBuf {
        unshare(CloneFlags::CLONE_NEWNS).expect("this test needs root");
        nix::mount::mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)
            .unwrap();
        let root = machine.directory.path().join("sysroot");
        fs::create_dir_all(root.join("etc")).unwrap();
        fs::write(root.join("etc/machine-id"), "uninitialized\n").unwrap();
        fs::write(root.join("etc/hostname"), "kaas\n").unwrap();
        let image = crate::host::files::below(&root, contract::image::PATH);
        fs::create_dir_all(image.parent().unwrap()).unwrap();
        fs::write(image, serde_json::to_vec(&crate::intake::config::fixture::image()).unwrap()).unwrap();
        let run = machine.directory.path().join("run");
        fs::create_dir_all(&run).unwrap();
        nix::mount::mount(Some("tmpfs"), &run, Some("tmpfs"), MsFlags::empty(), None::<&str>).unwrap();
        machine.platform();
        root
    }

    fn identify(disk: &Path, holder: contract::bios_uuid::BiosUuid) -> Identity {
        let identity = Identity { holder: Some(holder), ..fixture::identity() };
        slots::write(disk, &identity).unwrap();
        identity
    }

    fn read(root: &Path, name: &str) -> String {
        fs::read_to_string(root.join("etc").join(name)).unwrap()
    }

    #[test]
    fn identity_is_written_before_the_system_starts() {
        let mut machine = Machine::new();
        let disk = machine.add("data");
        let identity = identify(&disk, machine.uuid);
        let root = system(&machine);
        let report = run(machine.directory.path(), &root);
        assert_eq!((report.disk.as_deref(), report.findings.is_empty()), (Some(disk.as_path()), true));
        assert_eq!(read(&root, "machine-id"), format!("{}\n", identity.machine_id));
        assert_eq!(read(&root, "hostname"), "cp-1\n");
        let saved: Report =
            serde_json::from_slice(&fs::read(machine.directory.path().join("run/kaas/early.json")).unwrap()).unwrap();
        assert_eq!(saved, report);
        // The image's own file is unchanged.
        nix::mount::umount(&root.join("etc")).unwrap();
        assert_eq!(read(&root, "machine-id"), "uninitialized\n");
    }

    #[test]
    fn unusable_disk_gives_a_random_machine_id() {
        let spoils: [fn(&mut Machine); 6] = [
            |_| {},
            |machine| drop(machine.add("blank")),
            |machine| {
                let disk = machine.add("elsewhere");
                identify(&disk, contract::bios_uuid::BiosUuid::from_u128(3));
            },
            |machine| {
                let disk = machine.add("damaged");
                identify(&disk, machine.uuid);
                let file = File::options().write(true).open(disk).unwrap();
                file.write_all_at(b"!", layout::IDENTITY_B + 80).unwrap();
            },
            |machine| {
                let disk = machine.add("volumes");
                let local_volumes = Some(crate::host::disk::LocalVolumes { ca_hash: "sha256:ours".to_owned() });
                let identity = Identity { holder: Some(machine.uuid), local_volumes, ..fixture::identity() };
                slots::write(&disk, &identity).unwrap();
            },
            |machine| machine.add_device(Path::new("/disks/missing")),
        ];
        let mut ids = std::collections::BTreeSet::new();
        for spoil in spoils {
            let mut machine = Machine::new();
            spoil(&mut machine);
            let root = system(&machine);
            let report = run(machine.directory.path(), &root);
            assert_eq!(report.disk, None);
            assert_eq!(read(&root, "machine-id"), format!("{}\n", report.machine_id));
            assert_eq!(read(&root, "hostname"), "kaas\n");
            ids.insert(report.machine_id.to_string());
        }
        assert_eq!(ids.len(), spoils.len());
    }

    #[test]
    fn possible_worker_keeps_its_machine_id_across_boots() {
        let machine = Machine::new();
        let ids: Vec<_> = (0..2)
            .map(|_| {
                let root = system(&machine);
                let mut image = crate::intake::config::fixture::image();
                image.roles = contract::role::Role::Worker.into();
                fs::write(files::below(&root, contract::image::PATH), serde_json::to_vec(&image).unwrap()).unwrap();
                run(machine.directory.path(), &root).machine_id
            })
            .collect();
        assert_eq!(ids, [MachineId::of_machine(machine.uuid); 2]);
    }

    #[test]
    fn errors_are_reported_and_the_boot_continues() {
        let mut machine = Machine::new();
        for name in ["one", "two"] {
            let disk = machine.add(name);
            identify(&disk, machine.uuid);
        }
        let root = system(&machine);
        fs::remove_dir_all(root.join("etc")).unwrap();
        let report = run(machine.directory.path(), &root);
        let said = report.findings.to_string();
        assert!(said.contains("2 data disks are attached") && said.contains("overlay on"), "{said}");
        assert!(report.findings.iter().all(|finding| finding.code == "early.failed"), "{said}");
    }

    #[test]
    fn only_read_only_cgroups_are_made_writable() {
        let mounts = "\
            30 29 0:26 / /sys/fs/cgroup ro,nosuid shared:4 - tmpfs tmpfs ro\n\
            31 30 0:27 /n /sys/fs/cgroup/cpu ro,nosuid,nodev,noexec,relatime shared:5 - cgroup cgroup rw,cpu\n\
            32 30 0:28 /n /sys/fs/cgroup/systemd rw,nosuid shared:6 - cgroup cgroup rw\n\
            33 1 0:4 / /proc ro - proc proc rw\n";
        let flags =
            MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        assert_eq!(read_only_cgroups(mounts).collect::<Vec<_>>(), [("/sys/fs/cgroup/cpu", flags)]);
    }
}
