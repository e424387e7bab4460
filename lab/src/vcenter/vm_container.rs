//! The parts of a machine's body, decided from the vCenter's request. Pure, except for the lengths of files.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::super::container::{Disk as ContainerDisk, SystemContainer};
use super::super::disk::FileId;
use super::super::network::Adapter;
use super::super::plan::port;
use super::super::process::ProcessId;
use super::networks::bridge;
use super::protocol::{Disk, Machine, Nic};

/// The stored record of a body. Any later command can end it and release what it uses on the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmContainer {
    /// Its name on this host.
    pub key: String,
    /// The machine's name in the inventory.
    pub name: String,
    /// BIOS UUID.
    pub uuid: Uuid,
    /// Whether its `product_uuid` has the same order of bytes as the BIOS UUID.
    #[serde(default)]
    pub in_order_uuid: bool,
    pub tree: PathBuf,
    /// The file of its system disk. The machine exists as long as the file.
    pub system: FileId,
    pub nics: Vec<VmNic>,
    pub disks: Vec<VmDisk>,
    pub cdrom: Option<PathBuf>,
    /// The process of the body while it is on.
    pub process: Option<ProcessId>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmNic {
    /// The machine's key of the adapter.
    pub key: i32,
    pub mac: String,
    pub bridge: String,
    /// Whether it is connected at power-on.
    pub connected: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmDisk {
    /// Path at power-on.
    pub path: PathBuf,
    pub file: FileId,
}

impl VmContainer {
    /// The body as the container engine runs it.
    pub fn container(&self) -> SystemContainer {
        let adapter =
            |nic: &VmNic| Adapter { mac: nic.mac.clone(), bridge: nic.bridge.clone(), connected: nic.connected };
        let disk = |disk: &VmDisk| ContainerDisk { path: disk.path.clone(), file: Some(disk.file) };
        SystemContainer {
            name: self.key.clone(),
            uuid: self.uuid,
            in_order_uuid: self.in_order_uuid,
            tree: self.tree.clone(),
            port: self.key.clone(),
            adapters: self.nics.iter().map(adapter).collect(),
            disks: self.disks.iter().map(disk).collect(),
            cdrom: self.cdrom.clone(),
            process: self.process.clone(),
        }
    }

    /// Index of the adapter with this key.
    pub fn place_of(&self, key: i32) -> Option<usize> {
        self.nics.iter().position(|nic| nic.key == key)
    }
}

/// The UUID of a machine, from its text, and its body's name.
pub fn identity(machine: &str) -> anyhow::Result<(Uuid, String)> {
    let uuid = Uuid::parse_str(machine).with_context(|| format!("the BIOS UUID {machine:?}"))?;
    Ok((uuid, port(uuid)))
}

/// Disks in the order in which a guest finds them.
pub fn in_order(disks: &[Disk]) -> Vec<&Disk> {
    let mut disks: Vec<_> = disks.iter().collect();
    disks.sort_by_key(|disk| (disk.bus, disk.unit));
    disks
}

/// The file with the content of a disk: its own, or if that is empty the nearest parent that is not. `length` returns
/// a file's length in bytes.
pub fn content(disk: &Disk, length: impl Fn(&Path) -> anyhow::Result<u64>) -> anyhow::Result<&Path> {
    for file in &disk.files {
        if length(file)? > 0 {
            return Ok(file);
        }
    }
    bail!("there is nothing in a disk of {} bytes", disk.capacity)
}

/// The source of the OVF environment.
#[derive(Debug, PartialEq, Eq)]
pub enum Form<'a> {
    /// This document, on a CD-ROM. A guest in vSphere reads it from `guestinfo.ovfEnv`.
    Document(&'a str),
    /// This image, which is in a drive of the machine.
    Image(&'a Path),
    None,
}

/// The OVF environment of a machine. A system container has no guestinfo to read.
pub fn form(machine: &Machine) -> Form<'_> {
    match (machine.guestinfo.get("ovfEnv").filter(|text| !text.is_empty()), machine.cdroms.first()) {
        (Some(document), _) => Form::Document(document),
        (None, Some(image)) => Form::Image(image),
        (None, None) => Form::None,
    }
}

/// The adapters of a machine, in their order.
pub fn adapters(nics: &[Nic]) -> anyhow::Result<Vec<VmNic>> {
    let adapter = |nic: &Nic| {
        let pairs: Vec<&str> = nic.mac.split(':').collect();
        let is_pair = |pair: &&str| pair.len() == 2 && pair.chars().all(|digit| digit.is_ascii_hexdigit());
        ensure!(pairs.len() == 6 && pairs.iter().all(is_pair), "{:?} is no MAC address", nic.mac);
        let mac = nic.mac.to_ascii_lowercase();
        Ok(VmNic { key: nic.key, mac, bridge: bridge(&nic.network), connected: nic.connected })
    };
    nics.iter().map(adapter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(bus: i32, unit: i32, files: &[&str]) -> Disk {
        Disk { capacity: 1 << 30, files: files.iter().map(PathBuf::from).collect(), bus, unit }
    }

    fn machine() -> Machine {
        Machine {
            vm: "420f1a2b-3c4d-4000-8000-000000000001".to_owned(),
            run: "r".to_owned(),
            name: "Node 1".to_owned(),
            disks: Vec::new(),
            nics: Vec::new(),
            cdroms: Vec::new(),
            guestinfo: [].into(),
            in_order_uuid: false,
        }
    }

    #[test]
    fn uuids_identify_machines_and_places_order_disks() {
        let (uuid, key) = identity(&machine().vm).unwrap();
        assert_eq!((uuid.to_string(), key.as_str()), (machine().vm, "v420f1a2b3c4d"));
        identity("Node 1").unwrap_err();
        let disks = [disk(1, 0, &["c"]), disk(0, 1, &["b"]), disk(0, 0, &["a"])];
        let order: Vec<_> = in_order(&disks).into_iter().map(|disk| disk.files[0].to_str().unwrap()).collect();
        assert_eq!(order, ["a", "b", "c"]);
    }

    #[test]
    fn an_empty_clone_has_its_parents_content() {
        let length = |empty: &'static [&str]| {
            move |file: &Path| match file.to_str().unwrap() {
                "gone" => bail!("no such file"),
                name => Ok(if empty.contains(&name) { 0 } else { 1 << 30 }),
            }
        };
        let clone = disk(0, 0, &["own", "parent", "base"]);
        assert_eq!(content(&clone, length(&[])).unwrap(), Path::new("own"));
        assert_eq!(content(&clone, length(&["own"])).unwrap(), Path::new("parent"));
        assert_eq!(content(&clone, length(&["own", "parent"])).unwrap(), Path::new("base"));
        content(&clone, length(&["own", "parent", "base"])).unwrap_err();
        content(&disk(0, 0, &["gone", "base"]), length(&[])).unwrap_err();
    }

    #[test]
    fn guestinfo_has_priority_over_the_drives_image() {
        let mut machine = machine();
        assert_eq!(form(&machine), Form::None);
        machine.cdroms = vec!["/d/form.iso".into(), "/d/other.iso".into()];
        machine.guestinfo = [("ovfEnv".to_owned(), String::new())].into();
        assert_eq!(form(&machine), Form::Image(Path::new("/d/form.iso")));
        machine.guestinfo = [("ovfEnv".to_owned(), "<Environment/>".to_owned())].into();
        assert_eq!(form(&machine), Form::Document("<Environment/>"));
    }

    #[test]
    fn adapters_keep_order_addresses_and_networks() {
        let nic = |key, mac: &str, network: &str| Nic {
            key,
            mac: mac.to_owned(),
            network: network.to_owned(),
            connected: key != 4001,
        };
        let nics = [nic(4001, "00:50:56:AA:00:01", "DC0_DVPG0"), nic(4000, "00:50:56:aa:00:02", "VM Network")];
        let made = adapters(&nics).unwrap();
        let seen = made.iter().map(|nic| (nic.key, nic.mac.as_str(), nic.connected));
        assert_eq!(seen.collect::<Vec<_>>(), [(4001, "00:50:56:aa:00:01", false), (4000, "00:50:56:aa:00:02", true)]);
        assert_eq!(made[1].bridge, bridge("VM Network"));
        assert_ne!(made[0].bridge, made[1].bridge);
        for wrong in ["", "00:50:56:aa:00", "00:50:56:aa:00:02 master x", "0:50:56:aa:00:022"] {
            adapters(&[nic(1, wrong, "n")]).unwrap_err();
        }
    }
}
