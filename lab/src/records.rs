//! The files of a lab: one directory, with JSON records that are written atomically.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use fleet::hypervisor::Stamp;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::engine_record::EngineRecord;
use super::process::ProcessId;
use super::source::Source;
use super::wait::until;

/// The line between two power-ons in a console log.
pub const POWER_ON: &str = "\n======== power on ========\n";
/// How long another command may hold the lab's lock before this one gives up.
const AT_WORK: Duration = Duration::from_secs(60);

#[derive(Clone, Debug)]
pub struct LabDirectory {
    path: PathBuf,
}

/// The stored record of a VM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmRecord {
    /// Name in the inventory.
    pub name: String,
    pub source: Source,
    /// Its engine.
    pub engine: EngineRecord,
    /// BIOS UUID.
    pub uuid: Uuid,
    /// Whether its `product_uuid` has the same order of bytes as the BIOS UUID.
    pub in_order_uuid: bool,
    /// Its stamp. `None` if it was created by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stamp: Option<Stamp>,
    pub mac: String,
    /// Name of its port on the lab's network.
    pub port: String,
    /// Static address of the guest, from its properties.
    pub address: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_dhcp: bool,
    /// Its reserved address in DHCP. `None` for any address of its tenant's range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved: Option<Ipv4Addr>,
    /// Memory in MiB.
    pub memory: u32,
    pub processors: u32,
    /// Data disks in the order in which they were attached.
    pub disks: Vec<Uuid>,
    pub has_nic: bool,
    pub nic_connected: bool,
    /// Whether the CD-ROM with the OVF environment is in the drive.
    pub cdrom_inserted: bool,
    /// Labels of the OVF properties that need a value and have none.
    pub unconfigured: Vec<String>,
    /// The process of the VM while it is on.
    pub process: Option<ProcessId>,
}

/// The part of a lab's record that marks a tenant.
#[derive(Deserialize)]
struct Made {
    #[serde(default)]
    beside: Option<IgnoredAny>,
}

impl LabDirectory {
    /// The directory of the lab `name` below `state`. Creates nothing.
    pub fn of(state: &Path, name: &str) -> anyhow::Result<Self> {
        check_name("the lab's name", name, LONGEST_LAB)?;
        Ok(Self { path: state.join(name) })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The lab's record. Written first, removed last.
    pub fn record(&self) -> PathBuf {
        self.path.join("lab.json")
    }

    /// The record of a vCenter, if the directory is not a lab's. Written first, removed last.
    pub fn vcenter(&self) -> PathBuf {
        self.path.join("vcenter.json")
    }

    /// Checks that no lab and no vCenter has this name. Two commands may create it at the same time, so the error's
    /// advice never removes it.
    pub fn is_free(&self) -> anyhow::Result<()> {
        let name = self.name();
        self.is_no_vcenter()?;
        if !is_there(&self.record())? {
            return Ok(());
        }
        if load::<Made>(&self.record())?.beside.is_some() {
            bail!("there is a tenant {name} already: `kaas-dev lab tenant up --name {name}` continues it");
        }
        if self.is_left_over()? {
            bail!("the lab {name} is partly removed: `kaas-dev lab down --name {name}` removes the rest");
        }
        bail!(
            "there is a lab {name} already: `kaas-dev lab status --name {name}` shows which of its VMs are off, and `kaas-dev lab on VM \
             --name {name}` powers one on"
        )
    }

    /// The file that marks the removal of the lab. Created before the first file is removed. If a VM starts before
    /// any VM was removed, the file is removed again.
    pub fn removal_mark(&self) -> PathBuf {
        self.path.join("going")
    }

    /// Whether the removal mark exists.
    pub fn is_noted_to_go(&self) -> anyhow::Result<bool> {
        is_there(&self.removal_mark())
    }

    pub fn cancel_removal(&self) -> anyhow::Result<()> {
        let going = self.removal_mark();
        match fs::remove_file(&going) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("removing {}", going.display()))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Whether the lab's removal was interrupted: the removal mark exists. A full disk has no room for the mark: then disks
    /// exist without a VM.
    pub fn is_left_over(&self) -> anyhow::Result<bool> {
        if self.is_noted_to_go()? {
            return Ok(!self.vms()?.is_empty() || self.has_disks()?);
        }
        for name in self.vms()? {
            if self.recall_vm(&name)?.is_some() {
                return Ok(false);
            }
        }
        self.has_disks()
    }

    pub fn has_disks(&self) -> anyhow::Result<bool> {
        Ok(!self.disk_lengths()?.is_empty())
    }

    /// Lengths of its data disks, in bytes.
    pub fn disk_lengths(&self) -> anyhow::Result<Vec<u64>> {
        let disks = self.path().join("disks");
        let entries = match fs::read_dir(&disks) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.with_context(|| format!("reading {}", disks.display()))?,
        };
        entries.map(|entry| Ok(entry?.metadata()?.len())).collect()
    }

    pub fn is_no_vcenter(&self) -> anyhow::Result<()> {
        let name = self.name();
        if is_there(&self.vcenter())? {
            bail!("there is a vCenter {name} already: `kaas-dev lab vcenter status --name {name}` describes it");
        }
        Ok(())
    }

    pub fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// The lock file of commands that change the lab.
    pub fn lock_file(&self) -> PathBuf {
        self.path.join("lock")
    }

    /// Directory of its deployment's lease.
    pub fn upgrades(&self) -> PathBuf {
        self.path.join("upgrades")
    }

    pub fn vm(&self, vm: &str) -> PathBuf {
        self.path.join("vms").join(vm)
    }

    /// A VM's record. Without it, the VM does not exist.
    pub fn vm_record(&self, vm: &str) -> PathBuf {
        self.vm(vm).join("vm.json")
    }

    /// The socket of a virtual machine's second serial port.
    pub fn terminal(&self, vm: &str) -> PathBuf {
        self.vm(vm).join("terminal")
    }

    /// A VM's console log, of all its power-ons.
    pub fn console(&self, vm: &str) -> PathBuf {
        self.vm(vm).join("console.log")
    }

    /// The CD-ROM with a VM's OVF environment.
    pub fn cdrom(&self, vm: &str) -> PathBuf {
        self.vm(vm).join("ovf-env.iso")
    }

    /// The OVF environment of a VM's import.
    pub fn environment(&self, vm: &str) -> PathBuf {
        self.vm(vm).join("ovf-env.xml")
    }

    pub fn disk(&self, disk: Uuid) -> PathBuf {
        self.path.join("disks").join(format!("{disk}.raw"))
    }

    /// Key pair of the lab's operator, for SSH as `admin`.
    pub fn ssh_key(&self) -> PathBuf {
        self.path.join("ssh-key")
    }

    /// The private key of the lab's deployer.
    pub fn deployer_key(&self) -> PathBuf {
        self.path.join("deployer-key.pem")
    }

    /// Writes the line of a power-on to a VM's console log.
    pub fn mark_power_on(&self, vm: &str) -> anyhow::Result<()> {
        self.open_console(vm)?.write_all(POWER_ON.as_bytes()).with_context(|| format!("writing {vm}'s console log"))
    }

    /// A VM's console output since its last power-on. Fails if it was never on.
    pub fn console_text(&self, vm: &str) -> anyhow::Result<String> {
        let path = self.console(vm);
        let text = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        let text = String::from_utf8_lossy(&text).into_owned();
        Ok(text.rsplit(POWER_ON).next().unwrap_or_default().to_owned())
    }

    /// The last lines of that, for an error.
    pub fn last_words(&self, vm: &str) -> String {
        let text = self.console_text(vm).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(10)..].join("\n")
    }

    /// Opens a VM's console log to append to it.
    pub fn open_console(&self, vm: &str) -> anyhow::Result<File> {
        let path = self.console(vm);
        File::options().create(true).append(true).open(&path).with_context(|| format!("opening {}", path.display()))
    }

    pub fn save_vm(&self, vm: &VmRecord) -> anyhow::Result<()> {
        save(&self.vm_record(&vm.name), vm)
    }

    pub fn load_vm(&self, vm: &str) -> anyhow::Result<VmRecord> {
        load(&self.vm_record(vm)).with_context(|| format!("this lab has no VM {vm}"))
    }

    /// Reads a VM's record, if it exists. A crash can leave a directory without one. Fails on an unreadable record: the
    /// VM's disks are unknown.
    pub fn recall_vm(&self, vm: &str) -> anyhow::Result<Option<VmRecord>> {
        let path = self.vm_record(vm);
        if path.try_exists().with_context(|| format!("looking for {}", path.display()))? {
            load(&path).map(Some)
        } else {
            Ok(None)
        }
    }

    /// The names of all VMs' directories, sorted.
    pub fn vms(&self) -> anyhow::Result<Vec<String>> {
        let entries = match fs::read_dir(self.path.join("vms")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.with_context(|| format!("reading {}", self.path.display()))?,
        };
        let mut names = Vec::new();
        for entry in entries {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    }

    pub fn holder(&self, disk: Uuid) -> anyhow::Result<Option<String>> {
        for vm in self.vms()? {
            if self.recall_vm(&vm)?.is_some_and(|record| record.disks.contains(&disk)) {
                return Ok(Some(vm));
            }
        }
        Ok(None)
    }

    /// The disks that no VM holds. The disks of removed VMs are kept.
    pub fn unattached_disks(&self) -> anyhow::Result<Vec<Uuid>> {
        let mut disks: Vec<Uuid> = match fs::read_dir(self.path.join("disks")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            entries => {
                let names = entries?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
                let names = names.collect::<io::Result<Vec<_>>>()?;
                names.iter().filter_map(|name| name.strip_suffix(".raw")?.parse().ok()).collect()
            }
        };
        for vm in self.vms()? {
            let held = self.recall_vm(&vm)?.map(|record| record.disks).unwrap_or_default();
            disks.retain(|disk| !held.contains(disk));
        }
        disks.sort();
        Ok(disks)
    }

    /// Locks the lab while the returned file is open. Waits for a command that holds the lock, at most a minute.
    pub fn lock(&self) -> anyhow::Result<File> {
        self.lock_within(AT_WORK)
    }

    /// As [`LabDirectory::lock`], with another limit.
    pub fn lock_within(&self, limit: Duration) -> anyhow::Result<File> {
        fs::create_dir_all(&self.path).with_context(|| format!("making {}", self.path.display()))?;
        let file = File::options().create(true).truncate(false).write(true).open(self.lock_file())?;
        let locked = until("another command to end", limit, || Ok(file.try_lock().is_ok()));
        locked
            .map_err(|_| anyhow!("another command uses the lab in {}; wait until it has ended", self.path.display()))?;
        Ok(file)
    }
}

/// Longest name of a lab, in characters.
pub const LONGEST_LAB: usize = 15;
/// Longest name of a VM when it is created. A tenant's VM has the lab's name and a number.
pub const LONGEST_VM: usize = 24;
/// Longest name of a VM's replacement: a hyphen and seven digits of its image's build are appended. With a lab's name
/// on this machine, that is still a valid name of a system container (64 characters).
pub const LONGEST_REPLACEMENT: usize = LONGEST_VM + 8;

/// Checks a name of a container, namespace, cgroup and file: a DNS label of at most `longest` characters.
pub fn check_name(what: &str, name: &str, longest: usize) -> anyhow::Result<()> {
    let label = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_label = name.chars().all(label) && !name.starts_with('-') && !name.ends_with('-');
    if name.is_empty() || name.len() > longest || !is_label {
        bail!("{what} is {name:?}; use 1 to {longest} lower-case letters, digits and inner hyphens");
    }
    Ok(())
}

/// Writes a record atomically.
pub fn save(path: &Path, record: &impl Serialize) -> anyhow::Result<()> {
    save_text(path, &serde_json::to_string_pretty(record)?)
}

/// Writes a text atomically, readable by its owner only.
pub fn save_text(path: &Path, text: &str) -> anyhow::Result<()> {
    fleet::files::write(path, text)
}

fn is_there(path: &Path) -> anyhow::Result<bool> {
    path.try_exists().with_context(|| format!("looking for {}", path.display()))
}

pub fn load<T: DeserializeOwned>(path: &Path) -> anyhow::Result<T> {
    let text = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("reading {}", path.display()))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A system container with a data disk that was never on.
    pub(crate) fn vm(name: &str) -> VmRecord {
        VmRecord {
            name: name.to_owned(),
            source: Source::Tree { tree: "/tree".into() },
            engine: EngineRecord::Container,
            uuid: Uuid::from_u128(1),
            in_order_uuid: false,
            stamp: Some(Stamp { deployment: Uuid::from_u128(2), node: name.to_owned(), swap: None }),
            mac: "00:50:56:00:00:01".to_owned(),
            port: "v0123456789ab".to_owned(),
            address: None,
            by_dhcp: true,
            reserved: None,
            memory: 2048,
            processors: 2,
            disks: vec![Uuid::from_u128(7)],
            has_nic: true,
            nic_connected: true,
            cdrom_inserted: true,
            unconfigured: Vec::new(),
            process: None,
        }
    }

    #[test]
    fn names_are_labels_of_a_limited_length() {
        for good in ["a", "node-1", "fifteen-letters"] {
            check_name("it", good, LONGEST_LAB).unwrap();
        }
        for bad in ["", "Node", "a.b", "-a", "a-", "sixteen-letters-", "a/b", "sixteen-lettersx"] {
            check_name("it", bad, LONGEST_LAB).unwrap_err();
        }
        check_name("it", "sixteen-lettersx", LONGEST_VM).unwrap();
    }

    #[test]
    fn a_saved_vm_loads_and_holds_its_disk() {
        let state = tempfile::tempdir().unwrap();
        let directory = LabDirectory::of(state.path(), "x").unwrap();
        let (vm, disk) = (vm("node1"), Uuid::from_u128(7));
        directory.save_vm(&vm).unwrap();
        assert_eq!(directory.load_vm("node1").unwrap(), vm);
        assert_eq!(directory.vms().unwrap(), ["node1"]);
        assert_eq!(directory.holder(disk).unwrap().as_deref(), Some("node1"));
        assert_eq!(directory.holder(Uuid::from_u128(8)).unwrap(), None);
    }

    #[test]
    fn two_commands_do_not_share_a_lab() {
        let state = tempfile::tempdir().unwrap();
        let directory = LabDirectory::of(state.path(), "x").unwrap();
        let held = directory.lock().unwrap();
        assert!(directory.lock_within(Duration::ZERO).unwrap_err().to_string().contains("another command"));
        drop(held);
        directory.lock().unwrap();
    }
}
