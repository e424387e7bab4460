//! For tests: a machine in a temporary directory. Its disks are files, or loop devices if the kernel takes part.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use contract::bios_uuid::BiosUuid;
use contract::platform::CONTAINER_FILE;
use contract::platform::Container;
use contract::swap::VmImage;
use nix::fcntl::{FallocateFlags, fallocate};
use tempfile::TempDir;
use uuid::Uuid;

use super::{DataDisk, DiskState, Examination, Identity, MINIMUM_SIZE, MachineId, Owner, examine};
use crate::host::command::{self, Host, Runner};
use crate::host::disk::ownership::Claimant;
use crate::host::files;
use crate::host::platform::Platform;

/// Its two byte orders differ.
pub(crate) const OWN: BiosUuid = BiosUuid::from_u128(0x420f_1a2b_0003_4000_8000_0000_0000_0420);

pub(crate) struct Machine {
    pub(crate) directory: TempDir,
    disks: Vec<PathBuf>,
    pub(crate) uuid: BiosUuid,
}

impl Machine {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("disks")).unwrap();
        symlink("/sys", directory.path().join("sys")).unwrap();
        symlink("/dev", directory.path().join("dev")).unwrap();
        Self { directory, disks: Vec::new(), uuid: OWN }
    }

    pub(crate) fn add(&mut self, name: &str) -> PathBuf {
        self.add_sized(name, MINIMUM_SIZE)
    }

    pub(crate) fn add_sized(&mut self, name: &str, size: u64) -> PathBuf {
        let path = self.directory.path().join("disks").join(name);
        File::create(&path).unwrap().set_len(size).unwrap();
        self.disks.push(Path::new("/disks").join(name));
        path
    }

    pub(crate) fn add_device(&mut self, device: &Path) {
        self.disks.push(device.to_owned());
    }

    pub(crate) fn platform(&self) -> Platform {
        let container = Container {
            cdrom: None,
            data_disks: self.disks.clone(),
            bios_uuid: self.uuid.orders()[0],
            dmi: None,
            cgroup_root: None,
            fail_cgroup_v1: true,
            restrict_oom_score_adj: false,
            fingerprints: None,
            statement: None,
        };
        let file = files::below(self.directory.path(), CONTAINER_FILE);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, serde_json::to_vec(&container).unwrap()).unwrap();
        Platform::detect(self.directory.path()).unwrap()
    }

    /// This machine with the image of [`owner`].
    pub(crate) fn own(&self) -> VmImage {
        VmImage { vm: Some(self.uuid), version: owner().image_version, build: "build".into() }
    }

    pub(crate) fn claimant(&self) -> Claimant {
        Claimant { own: self.own(), publisher: None, upgrades_from: None }
    }

    pub(crate) fn examine(&self) -> Examination {
        examine(&self.platform(), &self.claimant(), self.directory.path(), &Host).unwrap()
    }

    pub(crate) fn verdict(&self) -> (&'static str, Vec<String>) {
        let examination = self.examine();
        let codes = examination.findings.iter().map(|finding| finding.code.clone()).collect();
        (name(&examination.data_disk), codes)
    }
}

pub(crate) fn name(data_disk: &DataDisk) -> &'static str {
    match data_disk {
        DataDisk::Absent => "absent",
        DataDisk::Blank { .. } => "blank",
        DataDisk::Interrupted { .. } => "interrupted",
        DataDisk::Ours { .. } => "ours",
        DataDisk::HeldElsewhere { .. } => "held elsewhere",
        DataDisk::Foreign { .. } => "foreign",
        DataDisk::Ambiguous => "ambiguous",
    }
}

pub(crate) fn owner() -> Owner {
    Owner {
        cluster: "alpha".into(),
        node: "cp-1".into(),
        image_version: "0.1.0".into(),
        machine_id: "0123456789abcdef0123456789abcdef".parse::<MachineId>().unwrap(),
        local_volumes: None,
    }
}

/// The identity of a disk held by [`OWN`], of a node that belongs to no cluster yet.
pub(crate) fn identity() -> Identity {
    let Owner { cluster, node, image_version, machine_id, local_volumes } = owner();
    Identity {
        disk: Uuid::from_u128(1),
        cluster_id: None,
        cluster,
        node: node.clone(),
        member: node.clone(),
        image_version,
        generation: 1,
        holder: Some(OWN),
        machine_id,
        host_name: node,
        state: DiskState::Unformed,
        publisher: None,
        swap: None,
        local_volumes,
    }
}

pub(crate) fn put(disk: &Path, place: u64, bytes: &[u8]) {
    OpenOptions::new().write(true).open(disk).unwrap().write_all_at(bytes, place).unwrap();
}

/// Zeroes ranges of a file by punching holes, as blkdiscard zeroes those of a block device.
pub(crate) struct Holes;

impl Runner for Holes {
    fn run(&self, command: &command::Command) -> Result<Vec<u8>, command::Error> {
        let line = command.to_string();
        let words: Vec<&str> = line.split(' ').collect();
        let ["blkdiscard", "--zeroout", offset, length, disk] = words[..] else { return Host.run(command) };
        let number = |word: &str| word.split_once('=').unwrap().1.parse::<i64>().unwrap();
        let file = OpenOptions::new().write(true).open(disk).unwrap();
        let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        fallocate(&file, flags, number(offset), number(length)).unwrap();
        Ok(Vec::new())
    }
}

pub(crate) fn alone() {
    use nix::mount::{MsFlags, mount};
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).unwrap();
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>).unwrap();
}

/// Waits while the file system is busy: a process that another test starts has each open file until it executes its
/// program.
pub(crate) fn unmount(point: &Path) {
    use nix::mount::{MntFlags, umount2};
    crate::host::fixture::eventually("unmounting", || match umount2(point, MntFlags::empty()) {
        Err(nix::Error::EBUSY) => false,
        result => {
            result.unwrap();
            true
        }
    });
}

pub(crate) fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A loop device, detached when dropped.
pub(crate) struct Loop {
    pub(crate) device: PathBuf,
}

impl Loop {
    pub(crate) fn new(file: &Path) -> Self {
        assert!(
            nix::unistd::geteuid().is_root() && Path::new("/dev/loop-control").exists(),
            "this test needs root and loop devices: run it where the continuous integration runs"
        );
        let device = run("losetup", &["--find", "--show", file.to_str().unwrap()]);
        Self { device: device.into() }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // Some kernels keep the partitions of a detached device.
        let _ = Command::new("partx").arg("--delete").arg(&self.device).output();
        let detached = Command::new("losetup").arg("--detach").arg(&self.device).status();
        if !detached.is_ok_and(|status| status.success()) {
            eprintln!("{} could not be detached", self.device.display());
        }
    }
}
