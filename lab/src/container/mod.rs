//! The container engine: the image's own root tree, units and agent in a
//! system container, at native speed. What a container cannot have (firmware,
//! kernel, verity) the guest learns from `platform.json` alone.

mod cgroup;
mod guest;
mod limits;
mod nspawn;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use contract::deployer::Fingerprints;
use contract::platform::Container;
use contract::statement::Statement;
use nix::sys::signal::Signal;

use super::credentials::read_fingerprints;
use super::disk;
use super::engine::Engine;
use super::host::{program, run};
use super::machine;
use super::network::Network;
use super::process::{ProcessId, start};
use super::records::{LabDirectory, VmRecord};
use super::shown;
use super::wait::until;
use cgroup::Cgroup;
use limits::Limit;

pub use limits::HeldLimit;

/// System containers of one lab.
pub struct Containers {
    lab: String,
    directory: LabDirectory,
    network: Network,
}

/// Size of /var in bytes; only what is written takes room.
const SCRATCH: u64 = 16 << 30;
/// Where the guest sees the directory [`Containers::shared`].
const SHARED: &str = "/run/host/kaas";
/// What it shows of its cluster, in there.
const FINGERPRINTS: &str = "fingerprints.json";
/// What it says of itself, in there.
const STATEMENT: &str = "statement.json";
const CDROM: &str = "/run/host/kaas/cdrom.iso";

impl Containers {
    /// The containers of a lab.
    pub fn new(lab: &str, directory: LabDirectory, network: Network) -> Self {
        Self { lab: lab.to_owned(), directory, network }
    }

    fn cgroup(&self, vm: &VmRecord) -> anyhow::Result<Cgroup> {
        Cgroup::of_vm(&self.lab, &vm.name)
    }

    /// The scratch file system of a VM, which the first boot from an OVA would
    /// make on the system disk: of a size of its own, so that a full host is
    /// not a full node. Returns its image and where to mount it.
    fn ensure_scratch(&self, vm: &VmRecord) -> anyhow::Result<(PathBuf, PathBuf)> {
        let directory = self.directory.vm(&vm.name);
        let (image, place) = (directory.join("var.raw"), directory.join("var"));
        fs::create_dir_all(&place)?;
        if !image.exists() {
            let new = directory.join("var.new");
            let _ = fs::remove_file(&new);
            disk::create(&new, SCRATCH)?;
            run(program("mkfs.ext4", ["-q", "-m", "0", "-L", "kaas-var"]).arg(&new)).context("making /var")?;
            fs::rename(&new, &image)?;
        }
        Ok((image, place))
    }

    /// What the lab shows to the guest.
    fn shared(&self, vm: &VmRecord) -> PathBuf {
        self.directory.vm(&vm.name).join("platform")
    }

    fn cdrom(&self, vm: &VmRecord) -> PathBuf {
        self.shared(vm).join("cdrom.iso")
    }

    fn fingerprints_file(&self, vm: &VmRecord) -> PathBuf {
        self.shared(vm).join(FINGERPRINTS)
    }

    fn statement_file(&self, vm: &VmRecord) -> PathBuf {
        self.shared(vm).join(STATEMENT)
    }

    fn prepare_shared(&self, vm: &VmRecord, disks: &[PathBuf]) -> anyhow::Result<()> {
        let shared = self.shared(vm);
        fs::create_dir_all(&shared)?;
        self.eject_cdrom(vm)?;
        // What it has shown before its power-on may be another cluster's, and what it has said is past.
        for file in [self.fingerprints_file(vm), self.statement_file(vm)] {
            if file.symlink_metadata().is_ok() {
                fs::remove_file(file)?;
            }
        }
        if vm.cdrom_inserted {
            self.insert_cdrom(vm)?;
        }
        guest::copy_kernel_settings(&shared)?;
        let platform = Container {
            cdrom: Some(CDROM.into()),
            data_disks: disks.to_vec(),
            bios_uuid: vm.uuid,
            // The container has a cgroup namespace: its own cgroup is its root.
            cgroup_root: None,
            fail_cgroup_v1: !cgroup::is_legacy(),
            restrict_oom_score_adj: !may_lower_oom_score(),
            fingerprints: Some(Path::new(SHARED).join(FINGERPRINTS)),
            statement: Some(Path::new(SHARED).join(STATEMENT)),
        };
        fs::write(shared.join("platform.json"), serde_json::to_vec_pretty(&platform)?)?;
        Ok(())
    }

    /// A program inside a VM that is on, not started yet.
    ///
    /// # Errors
    /// When it is off.
    pub fn command_inside(&self, vm: &VmRecord, arguments: &[&str]) -> anyhow::Result<Command> {
        Ok(guest::command(&leader_of(vm)?, &[], arguments))
    }

    fn machine(&self, vm: &VmRecord) -> String {
        format!("kaas-{}-{}", self.lab, vm.name)
    }
}

impl Engine for Containers {
    fn start(&self, vm: &VmRecord) -> anyhow::Result<ProcessId> {
        let cgroup = self.cgroup(vm)?;
        {
            // In this order: whoever puts limits back looks for cgroups first.
            let _host = machine::lock()?;
            cgroup.create()?;
            Limit::of_host().raise()?;
        }
        self.network.add_container_port(vm.port(), vm.has_nic.then_some(&vm.mac), vm.nic_connected)?;
        let disks = vm
            .disks
            .iter()
            .map(|disk| disk::attach(&self.directory.disk(*disk)))
            .collect::<anyhow::Result<Vec<_>>>()?;
        self.prepare_shared(vm, &disks)?;
        let (scratch, scratch_place) = self.ensure_scratch(vm)?;
        let mut command = nspawn::command(&nspawn::Container {
            name: &self.machine(vm),
            uuid: vm.uuid,
            tree: &vm.source.tree(),
            namespace: &self.network.container_namespace(vm.port()),
            scratch: &scratch,
            scratch_place: &scratch_place,
            shared: &self.shared(vm),
            disks: &disks,
            cgroup: &cgroup,
        });
        let supervisor = start(&mut command, self.directory.open_console(&vm.name)?)?;
        let leader = guest::leader(&supervisor)
            .with_context(|| format!("its last words: {}", self.directory.last_words(&vm.name).trim()))?;
        guest::give_kernel_interfaces(&leader, SHARED)?;
        Ok(supervisor)
    }

    fn ask_to_shut_down(&self, vm: &VmRecord) -> anyhow::Result<bool> {
        let Some(supervisor) = &vm.process else { return Ok(true) };
        // The kernel drops a signal for a container's first process that this has not asked for.
        if guest::leader_now(supervisor).is_some_and(|leader| !leader.takes(guest::POWER_OFF)) {
            return Ok(false);
        }
        // systemd-nspawn hands it on as the signal that systemd takes for "power off".
        supervisor.signal(Signal::SIGTERM)?;
        Ok(true)
    }

    fn cut(&self, vm: &VmRecord) -> anyhow::Result<()> {
        if let Some(supervisor) = &vm.process {
            if let Some(leader) = guest::leader_now(supervisor) {
                guest::lose_unwritten(&leader)?;
                leader.kill()?;
            }
            supervisor.kill()?;
        }
        let cgroup = self.cgroup(vm)?;
        until(&format!("{} to end", vm.name), Duration::from_secs(30), || {
            cgroup.kill();
            Ok(cgroup.is_empty())
        })
    }

    fn is_on(&self, vm: &VmRecord) -> bool {
        vm.process.as_ref().is_some_and(ProcessId::is_running) || self.cgroup(vm).is_ok_and(|cgroup| !cgroup.is_empty())
    }

    fn release(&self, vm: &VmRecord) -> anyhow::Result<()> {
        self.network.remove_port(vm.port())?;
        for disk in &vm.disks {
            // The file system goes when the last process's mount namespace
            // does, which is a little later than the process.
            let file = self.directory.disk(*disk);
            until("the data disk to be let go", Duration::from_secs(30), || disk::release(&file).map(|()| true))?;
        }
        {
            let _host = machine::lock()?;
            self.cgroup(vm)?.remove()?;
            if !cgroup::any_is_there()? {
                Limit::of_host().put_back()?;
            }
        }
        for left in ["propagate", "unix-export"] {
            let left = Path::new("/run/systemd/nspawn").join(left).join(self.machine(vm));
            if left.exists() {
                fs::remove_dir(&left).with_context(|| format!("removing {}", left.display()))?;
            }
        }
        Ok(())
    }

    fn eject_cdrom(&self, vm: &VmRecord) -> anyhow::Result<()> {
        let cdrom = self.cdrom(vm);
        if cdrom.exists() {
            fs::remove_file(&cdrom)?;
        }
        Ok(())
    }

    fn insert_cdrom(&self, vm: &VmRecord) -> anyhow::Result<()> {
        let cdrom = self.cdrom(vm);
        let new = cdrom.with_extension("new");
        // The guest sees the old one or the new one, never half of it.
        let insert = || fs::copy(self.directory.cdrom(&vm.name), &new).and_then(|_| fs::rename(&new, &cdrom));
        insert().with_context(|| format!("inserting the CD-ROM of {}", vm.name))
    }

    fn enlarge_disk(&self, vm: &VmRecord, number: usize) -> anyhow::Result<()> {
        disk::show_size(&self.directory.disk(vm.disks[number]))
    }

    fn fingerprints(&self, vm: &VmRecord) -> anyhow::Result<Option<Fingerprints>> {
        read_fingerprints(&self.fingerprints_file(vm))
    }

    fn statement(&self, vm: &VmRecord) -> anyhow::Result<Option<Statement>> {
        Ok(shown::read(&self.statement_file(vm))?.and_then(|text| Statement::read(&text)))
    }

    fn run_inside(&self, vm: &VmRecord, arguments: &[&str], limit: Duration) -> anyhow::Result<String> {
        guest::run(&leader_of(vm)?, arguments, limit)
    }
}

/// The first process of a VM's guest.
fn leader_of(vm: &VmRecord) -> anyhow::Result<ProcessId> {
    vm.process.as_ref().and_then(guest::leader_now).with_context(|| format!("{} is off", vm.name))
}

/// Whether processes started here may be made less likely to be killed when
/// memory runs out: without CAP_SYS_RESOURCE (bit 24) nobody may.
fn may_lower_oom_score() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    effective.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).is_some_and(|set| set & (1 << 24) != 0)
}
