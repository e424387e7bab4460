//! The life of one system container: what it consists of, what it uses of this host, and what it releases.
//! Independent of a lab's inventory and of its caller.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use contract::platform::{Container, Dmi};
use nix::sys::signal::Signal;
use uuid::Uuid;

use super::super::disk::{self, FileId};
use super::super::host::{program, run};
use super::super::machine;
use super::super::network::Adapter;
use super::super::process::{ProcessId, start};
use super::super::wait::until;
use super::Containers;
use super::cgroup::{self, Cgroup};
use super::limits::Limit;
use super::{guest, nspawn};

/// Size of /var in bytes. The file is sparse.
const SCRATCH: u64 = 16 << 30;
/// Path of the directory [`Containers::shared`] in the guest.
const SHARED: &str = "/run/host/kaas";
/// File in there with the fingerprints of the guest's cluster.
const FINGERPRINTS: &str = "fingerprints.json";
/// File in there with the guest's statement.
const STATEMENT: &str = "statement.json";
const CDROM: &str = "/run/host/kaas/cdrom.iso";

pub struct SystemContainer {
    /// Name in its lab, a DNS label: its directory and its cgroup have this name.
    pub name: String,
    /// BIOS UUID.
    pub uuid: Uuid,
    /// Whether its `product_uuid` has the same order of bytes as the BIOS UUID.
    pub in_order_uuid: bool,
    /// Root tree. Never written to.
    pub tree: PathBuf,
    /// Name of its ports on the lab's network.
    pub port: String,
    /// Network interfaces: eth0, eth1 and so on.
    pub adapters: Vec<Adapter>,
    /// Data disks in their order.
    pub disks: Vec<Disk>,
    /// CD-ROM image at power-on. `None` for an empty drive.
    pub cdrom: Option<PathBuf>,
    /// The supervisor's process while it is on.
    pub process: Option<ProcessId>,
}

/// A raw file that a container has as a block device.
pub struct Disk {
    /// Path at power-on.
    pub path: PathBuf,
    /// Identity of the file, if another command may rename it.
    pub file: Option<FileId>,
}

impl Containers {
    fn cgroup(&self, container: &SystemContainer) -> anyhow::Result<Cgroup> {
        Cgroup::of_vm(&self.lab, &container.name)
    }

    /// The scratch file system of a VM, which the first boot from an OVA would create on the system disk. It has a
    /// fixed size, so that a full host does not fill the node. Returns its image and its mount point.
    fn ensure_scratch(&self, name: &str) -> anyhow::Result<(PathBuf, PathBuf)> {
        let directory = self.directory.vm(name);
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

    /// Directory that the guest of this name shares with the lab.
    fn shared(&self, name: &str) -> PathBuf {
        self.directory.vm(name).join("platform")
    }

    fn cdrom(&self, name: &str) -> PathBuf {
        self.shared(name).join("cdrom.iso")
    }

    /// File with the fingerprints that the guest of this name shows.
    pub fn fingerprints_file(&self, name: &str) -> PathBuf {
        self.shared(name).join(FINGERPRINTS)
    }

    /// File with the statement of the guest of this name.
    pub fn statement_file(&self, name: &str) -> PathBuf {
        self.shared(name).join(STATEMENT)
    }

    fn prepare_shared(&self, container: &SystemContainer, disks: &[PathBuf]) -> anyhow::Result<()> {
        let name = &container.name;
        let shared = self.shared(name);
        fs::create_dir_all(&shared)?;
        self.take_cdrom_out(name)?;
        // Fingerprints and statement of an earlier power-on are outdated, and may belong to another cluster.
        for file in [self.fingerprints_file(name), self.statement_file(name)] {
            if file.symlink_metadata().is_ok() {
                fs::remove_file(file)?;
            }
        }
        if let Some(image) = &container.cdrom {
            self.put_cdrom_in(name, image)?;
        }
        guest::copy_kernel_settings(&shared)?;
        let dmi = Dmi::of_vmware(container.uuid.into(), container.in_order_uuid);
        let platform = Container {
            cdrom: Some(CDROM.into()),
            data_disks: disks.to_vec(),
            bios_uuid: dmi.product_uuid.parse()?,
            dmi: Some(dmi),
            // The container has a cgroup namespace, so its own cgroup is its root.
            cgroup_root: None,
            fail_cgroup_v1: !cgroup::is_legacy(),
            restrict_oom_score_adj: !may_lower_oom_score(),
            fingerprints: Some(Path::new(SHARED).join(FINGERPRINTS)),
            statement: Some(Path::new(SHARED).join(STATEMENT)),
        };
        fs::write(shared.join("platform.json"), serde_json::to_vec_pretty(&platform)?)?;
        Ok(())
    }

    /// Powers a container on that is off. Returns the supervisor's process. [`Containers::give_back`] cleans up after
    /// errors.
    pub fn power_on(&self, container: &SystemContainer) -> anyhow::Result<ProcessId> {
        let name = &container.name;
        let cgroup = self.cgroup(container)?;
        {
            // This order matters: a command that restores limits looks for cgroups first.
            let _host = machine::lock()?;
            cgroup.create()?;
            Limit::of_host().raise()?;
        }
        self.network.add_container_port(&container.port, &container.adapters)?;
        let disks = container.disks.iter().map(|disk| disk::attach(&disk.path)).collect::<anyhow::Result<Vec<_>>>()?;
        self.prepare_shared(container, &disks)?;
        let (scratch, scratch_place) = self.ensure_scratch(name)?;
        let mut command = nspawn::command(&nspawn::Container {
            name: &self.machine(name),
            uuid: container.uuid,
            tree: &container.tree,
            namespace: &self.network.container_namespace(&container.port),
            scratch: &scratch,
            scratch_place: &scratch_place,
            shared: &self.shared(name),
            disks: &disks,
            cgroup: &cgroup,
        });
        let supervisor = start(&mut command, self.directory.open_console(name)?)?;
        let leader = guest::leader(&supervisor)
            .with_context(|| format!("its last words: {}", self.directory.last_words(name).trim()))?;
        guest::give_kernel_interfaces(&leader, SHARED)?;
        Ok(supervisor)
    }

    /// Asks the guest to shut down. `false` if nothing in it handles such a request, perhaps not yet.
    pub fn press_power_button(&self, container: &SystemContainer) -> anyhow::Result<bool> {
        let Some(supervisor) = &container.process else { return Ok(true) };
        // The kernel discards a signal that a container's first process does not handle.
        if guest::leader_now(supervisor).is_some_and(|leader| !leader.takes(guest::POWER_OFF)) {
            return Ok(false);
        }
        // systemd-nspawn forwards it as the signal that means "power off" to systemd.
        supervisor.signal(Signal::SIGTERM)?;
        Ok(true)
    }

    /// Ends a container as a power cut does and waits until it is off, at most 30 seconds.
    pub fn cut_off(&self, container: &SystemContainer) -> anyhow::Result<()> {
        if let Some(supervisor) = &container.process {
            if let Some(leader) = guest::leader_now(supervisor) {
                guest::lose_unwritten(&leader)?;
                leader.kill()?;
            }
            supervisor.kill()?;
        }
        let cgroup = self.cgroup(container)?;
        until(&format!("{} to end", container.name), Duration::from_secs(30), || {
            cgroup.kill();
            Ok(cgroup.is_empty())
        })
    }

    /// Whether any process of a container runs.
    pub fn runs(&self, container: &SystemContainer) -> bool {
        container.process.as_ref().is_some_and(ProcessId::is_running)
            || self.cgroup(container).is_ok_and(|cgroup| !cgroup.is_empty())
    }

    /// Releases what a container that is off used on the host. Can be called at any time while it is off, also after
    /// a crash of this command.
    pub fn give_back(&self, container: &SystemContainer) -> anyhow::Result<()> {
        self.network.remove_ports(&container.port, container.adapters.len().max(1))?;
        for disk in &container.disks {
            // The file system is unmounted with the last process's mount namespace, which ends a little later than
            // the process.
            until("the data disk to be let go", Duration::from_secs(30), || {
                disk.file.map_or_else(|| disk::release(&disk.path), disk::release_file).map(|()| true)
            })?;
        }
        {
            let _host = machine::lock()?;
            self.cgroup(container)?.remove()?;
            if !cgroup::any_is_there()? {
                Limit::of_host().put_back()?;
            }
        }
        for left in ["propagate", "unix-export"] {
            let left = Path::new("/run/systemd/nspawn").join(left).join(self.machine(&container.name));
            if left.exists() {
                fs::remove_dir(&left).with_context(|| format!("removing {}", left.display()))?;
            }
        }
        Ok(())
    }

    /// Removes the CD-ROM from the drive of the guest of this name, on or off.
    pub fn take_cdrom_out(&self, name: &str) -> anyhow::Result<()> {
        let cdrom = self.cdrom(name);
        if cdrom.exists() {
            fs::remove_file(&cdrom)?;
        }
        Ok(())
    }

    /// Inserts a CD-ROM into the drive of the guest of this name. Replaces one that is in the drive.
    pub fn put_cdrom_in(&self, name: &str, image: &Path) -> anyhow::Result<()> {
        let cdrom = self.cdrom(name);
        let new = cdrom.with_extension("new");
        // Atomic for the guest: it sees the old image or the new one.
        let insert = || fs::copy(image, &new).and_then(|_| fs::rename(&new, &cdrom));
        insert().with_context(|| format!("inserting the CD-ROM of {name}"))
    }

    /// A program inside a container as root, started through the program `by` outside if that is not empty. The
    /// caller starts it.
    pub fn command_in(&self, container: &SystemContainer, by: &[&str], arguments: &[&str]) -> anyhow::Result<Command> {
        Ok(guest::command(&container.leader()?, by, arguments))
    }

    fn machine(&self, name: &str) -> String {
        format!("kaas-{}-{name}", self.lab)
    }
}

impl SystemContainer {
    fn leader(&self) -> anyhow::Result<ProcessId> {
        self.process.as_ref().and_then(guest::leader_now).with_context(|| format!("{} is off", self.name))
    }

    /// Whether its guest already handles a request to shut down.
    pub fn can_be_asked(&self) -> bool {
        self.leader().is_ok_and(|leader| leader.takes(guest::POWER_OFF))
    }

    pub fn host_name(&self) -> anyhow::Result<String> {
        guest::host_name(&self.leader()?)
    }
}

/// Whether this command may make processes less likely to be killed when memory runs out: that needs CAP_SYS_RESOURCE
/// (bit 24).
fn may_lower_oom_score() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    effective.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).is_some_and(|set| set & (1 << 24) != 0)
}
