//! The platform of this node: a virtual machine or, in the lab, a system container. Only this module knows the limits
//! of a container. It does not depend on clusters, configuration or the content of disks.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use contract::bios_uuid::BiosUuid;
use contract::platform::{CONTAINER_FILE, Container, Dmi};
use uuid::Uuid;

use crate::host::files;

/// The variable in which the kernel image reports where it was loaded from: systemd-stub(7), in the vendor namespace of
/// the Boot Loader Interface.
const LOADED_FROM: &str = "/sys/firmware/efi/efivars/LoaderDevicePartUUID-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f";

#[derive(Clone, Debug, PartialEq, Eq)]
enum Carrier {
    Machine { vmware: bool },
    Container(Box<Container>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Platform {
    root: PathBuf,
    carrier: Carrier,
    bios_uuid: Option<BiosUuid>,
}

impl Platform {
    /// Detects the platform of the system whose `/sys`, `/dev` and `/run` are below `root` (`/` outside of tests).
    ///
    /// # Errors
    /// The container engine's file exists but cannot be read or understood.
    pub fn detect(root: &Path) -> anyhow::Result<Self> {
        let path = files::below(root, CONTAINER_FILE);
        let (carrier, dmi) = match fs::read(&path) {
            Ok(text) => {
                let container: Container = serde_json::from_slice(&text)
                    .map_err(|error| anyhow::anyhow!("reading the platform from {}: {error}", path.display()))?;
                let dmi = container.dmi.clone();
                let dmi = dmi.unwrap_or(Dmi { product_uuid: container.bios_uuid.to_string(), ..Dmi::default() });
                (Carrier::Container(Box::new(container)), dmi)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let shown = |name: &str| {
                    let text = fs::read_to_string(files::below(root, "/sys/class/dmi/id").join(name));
                    text.map(|text| text.trim().to_owned()).unwrap_or_default()
                };
                let dmi = Dmi {
                    sys_vendor: shown("sys_vendor"),
                    product_serial: shown("product_serial"),
                    product_uuid: shown("product_uuid"),
                };
                (Carrier::Machine { vmware: dmi.is_vmware() }, dmi)
            }
            Err(error) => anyhow::bail!("reading the platform from {}: {error}", path.display()),
        };
        let (bios_uuid, doubt) = dmi.bios_uuid();
        if let Some(doubt) = doubt {
            log::warn!("the BIOS UUID is read from product_uuid, because {doubt} ({:?})", dmi.product_serial);
        }
        Ok(Self { root: root.to_owned(), carrier, bios_uuid })
    }

    /// The directory that contains `/sys`, `/dev`, `/run` and `/data`.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// An absolute `path` of the running system.
    pub fn path(&self, path: &str) -> PathBuf {
        files::below(&self.root, path)
    }

    /// Whether this is a system container, without its own kernel, modules and firmware.
    pub fn is_container(&self) -> bool {
        matches!(self.carrier, Carrier::Container(_))
    }

    /// Whether the node may set the clock. A container's clock is its host's.
    pub fn sets_clock(&self) -> bool {
        !self.is_container()
    }

    /// Whether the firmware's vendor is VMware. The backdoor code also checks the processor before it calls the
    /// hypervisor.
    pub fn is_vmware(&self) -> bool {
        matches!(self.carrier, Carrier::Machine { vmware: true })
    }

    /// The UUID that identifies this VM among its clones and successors. `None` if the hypervisor gives none.
    pub fn bios_uuid(&self) -> Option<BiosUuid> {
        self.bios_uuid
    }

    /// Devices that may have an ISO with the OVF environment: the optical drives in the kernel's order, or the
    /// container engine's image.
    ///
    /// # Errors
    /// `/sys` cannot be listed.
    pub fn environment_media(&self) -> io::Result<Vec<PathBuf>> {
        match &self.carrier {
            Carrier::Container(container) => {
                // The engine may insert a medium while the node runs.
                let cdrom = match Self::detect(&self.root) {
                    Ok(Self { carrier: Carrier::Container(now), .. }) => now.cdrom,
                    _ => container.cdrom.clone(),
                };
                Ok(cdrom.iter().map(|path| self.device(path)).collect())
            }
            Carrier::Machine { .. } => {
                let mut drives = self.block_devices()?;
                drives.retain(|name| name.starts_with("sr"));
                Ok(drives.iter().map(|name| self.path("/dev").join(name)).collect())
            }
        }
    }

    /// The ejectable ones of [`Platform::environment_media`]. A container has no drive.
    ///
    /// # Errors
    /// `/sys` cannot be listed.
    pub fn ejectable_media(&self) -> io::Result<Vec<PathBuf>> {
        if self.is_container() { Ok(Vec::new()) } else { self.environment_media() }
    }

    /// Disks that may be the data disk, in name order. They appear some time after the kernel has started.
    ///
    /// The disk with `system_root`, the disk that the kernel was loaded from, optical drives, removable media and
    /// software devices are left out.
    ///
    /// # Errors
    /// `/sys` cannot be listed.
    pub fn data_disk_candidates(&self, system_root: &Path) -> io::Result<Vec<PathBuf>> {
        match &self.carrier {
            Carrier::Container(container) => Ok(container.data_disks.iter().map(|path| self.device(path)).collect()),
            Carrier::Machine { .. } => {
                let mut system = self.disks_below(fs::metadata(system_root)?.dev());
                system.extend(self.loaded_from());
                let mut disks = self.block_devices()?;
                disks.retain(|name| !system.contains(name) && self.is_plain_disk(name));
                Ok(disks.iter().map(|name| self.path("/dev").join(name)).collect())
            }
        }
    }

    /// The kubelet's cgroup root, if it does not have the complete hierarchy.
    pub fn cgroup_root(&self) -> Option<&str> {
        match &self.carrier {
            Carrier::Container(container) => container.cgroup_root.as_deref(),
            Carrier::Machine { .. } => None,
        }
    }

    /// Memory that the kernel manages, in bytes. `None` if the kernel does not report it.
    pub fn memory(&self) -> Option<u64> {
        // proc_meminfo(5): `MemTotal:       16384 kB`, where kB are KiB.
        let text = fs::read_to_string(self.path("/proc/meminfo")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
    }

    /// The kubelet's `failCgroupV1`.
    pub fn fail_cgroup_v1(&self) -> bool {
        match &self.carrier {
            Carrier::Container(container) => container.fail_cgroup_v1,
            Carrier::Machine { .. } => true,
        }
    }

    /// containerd's `restrict_oom_score_adj`.
    pub fn restrict_oom_score_adj(&self) -> bool {
        match &self.carrier {
            Carrier::Container(container) => container.restrict_oom_score_adj,
            Carrier::Machine { .. } => false,
        }
    }

    /// The directory of a block device in `/sys`, by its device node.
    pub fn sys_block(&self, device: &Path) -> PathBuf {
        // By-id links are followed, because sysfs has kernel names only.
        let device = device.canonicalize().unwrap_or_else(|_| device.to_owned());
        self.path("/sys/class/block").join(device.file_name().unwrap_or_default())
    }

    /// The file for the node's fingerprints that a container engine reads. `None` without an engine.
    pub fn fingerprints_file(&self) -> Option<PathBuf> {
        match &self.carrier {
            Carrier::Container(container) => container.fingerprints.as_deref().map(|path| self.device(path)),
            Carrier::Machine { .. } => None,
        }
    }

    /// The file for the node's statement that a container engine reads. `None` as above.
    pub fn statement_file(&self) -> Option<PathBuf> {
        match &self.carrier {
            Carrier::Container(container) => container.statement.as_deref().map(|path| self.device(path)),
            Carrier::Machine { .. } => None,
        }
    }

    fn device(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    fn block_devices(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.path("/sys/class/block"))? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        // sdb before sdaa: the kernel's own order of naming.
        names.sort_by(|a, b| a.len().cmp(&b.len()).then_with(|| a.cmp(b)));
        Ok(names)
    }

    fn is_plain_disk(&self, name: &str) -> bool {
        let directory = self.path("/sys/class/block").join(name);
        let number = |attribute: &str| -> u64 {
            fs::read_to_string(directory.join(attribute)).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
        };
        let made_by_hardware = directory.join("device").exists();
        let whole = !directory.join("partition").exists();
        made_by_hardware && whole && !name.starts_with("sr") && number("removable") == 0 && number("size") > 0
    }

    /// The disk with the EFI system partition that the kernel image came from. Usually this is the system disk, but
    /// another one if the firmware cannot read that.
    fn loaded_from(&self) -> Option<String> {
        // UEFI 2.10, 8.2: four bytes of attributes, as efivarfs shows them, then here UTF-16 with a final zero.
        let variable = fs::read(self.path(LOADED_FROM)).ok()?;
        let units: Vec<u16> =
            variable.get(4..)?.chunks_exact(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]])).collect();
        let text = String::from_utf16(&units).ok()?;
        let partition = Uuid::parse_str(text.trim_end_matches('\0')).ok()?;
        let node = self.path("/dev/disk/by-partuuid").join(partition.to_string()).canonicalize().ok()?;
        let directory = self.path("/sys/class/block").join(node.file_name()?).canonicalize().ok()?;
        Some(directory.parent()?.file_name()?.to_string_lossy().into_owned())
    }

    /// The disks below a file system with this device number: through dm-verity and partitions down to whole disks.
    fn disks_below(&self, device: u64) -> BTreeSet<String> {
        let number = format!("{}:{}", nix::sys::stat::major(device), nix::sys::stat::minor(device));
        let mut found = BTreeSet::new();
        let mut open: Vec<PathBuf> = self.path("/sys/dev/block").join(number).canonicalize().into_iter().collect();
        while let Some(directory) = open.pop() {
            let carriers: Vec<PathBuf> = fs::read_dir(directory.join("slaves"))
                .into_iter()
                .flatten()
                .flatten()
                .filter_map(|entry| entry.path().canonicalize().ok())
                .collect();
            if !carriers.is_empty() {
                open.extend(carriers);
            } else if directory.join("partition").exists() {
                open.extend(directory.parent().map(Path::to_owned));
            } else if let Some(name) = directory.file_name() {
                found.insert(name.to_string_lossy().into_owned());
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::files::below;
    use std::os::unix::fs::symlink;

    fn write(root: &Path, path: &str, content: &str) {
        let path = below(root, path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// A disk as sysfs shows it: class/block/NAME links into devices/….
    fn disk(root: &Path, name: &str, size: u64, removable: u8) {
        let directory = format!("/sys/devices/pci0/{name}");
        write(root, &format!("{directory}/size"), &size.to_string());
        write(root, &format!("{directory}/removable"), &removable.to_string());
        fs::create_dir_all(below(root, format!("{directory}/device"))).unwrap();
        class(root, name, &directory);
    }

    fn class(root: &Path, name: &str, directory: &str) {
        fs::create_dir_all(below(root, "/sys/class/block")).unwrap();
        symlink(below(root, directory), below(root, format!("/sys/class/block/{name}"))).unwrap();
    }

    #[test]
    fn candidates_exclude_system_disk_and_special_devices() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        for name in ["sda", "sdb", "sdaa"] {
            disk(root, name, 1 << 20, 0);
        }
        disk(root, "sdc", 1 << 20, 1);
        disk(root, "sdd", 0, 0);
        disk(root, "sr0", 1 << 10, 0);
        write(root, "/sys/devices/virtual/loop0/size", "8");
        class(root, "loop0", "/sys/devices/virtual/loop0");
        write(root, "/sys/devices/pci0/sda/sda2/partition", "2");
        fs::create_dir_all(below(root, "/sys/devices/pci0/sda/sda2/device")).unwrap();
        class(root, "sda2", "/sys/devices/pci0/sda/sda2");
        // The verity device with the file system of this directory.
        let slaves = below(root, "/sys/devices/virtual/dm-0/slaves");
        fs::create_dir_all(&slaves).unwrap();
        symlink(below(root, "/sys/devices/pci0/sda/sda2"), slaves.join("sda2")).unwrap();
        let device = fs::metadata(root).unwrap().dev();
        let number = format!("{}:{}", nix::sys::stat::major(device), nix::sys::stat::minor(device));
        fs::create_dir_all(below(root, "/sys/dev/block")).unwrap();
        symlink(below(root, "/sys/devices/virtual/dm-0"), below(root, "/sys/dev/block").join(number)).unwrap();

        let platform = Platform::detect(root).unwrap();
        assert!(!platform.is_container());
        assert_eq!(platform.data_disk_candidates(root).unwrap(), [root.join("dev/sdb"), root.join("dev/sdaa")]);
        assert_eq!(platform.environment_media().unwrap(), [root.join("dev/sr0")]);
    }

    #[test]
    fn disk_with_the_loaded_kernel_is_no_candidate() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        for name in ["sda", "sdb"] {
            disk(root, name, 1 << 20, 0);
        }
        write(root, "/sys/devices/pci0/sda/sda1/partition", "1");
        class(root, "sda1", "/sys/devices/pci0/sda/sda1");
        write(root, "/dev/sda1", "");
        let partition = "0c0ffee0-0000-4000-8000-000000000001";
        fs::create_dir_all(below(root, "/dev/disk/by-partuuid")).unwrap();
        symlink(below(root, "/dev/sda1"), below(root, "/dev/disk/by-partuuid").join(partition)).unwrap();
        let platform = Platform::detect(root).unwrap();
        assert_eq!(platform.data_disk_candidates(root).unwrap().len(), 2);

        let text = format!("{}\0", partition.to_uppercase());
        let mut variable = vec![6, 0, 0, 0];
        variable.extend(text.encode_utf16().flat_map(u16::to_le_bytes));
        write(root, LOADED_FROM, "");
        fs::write(below(root, LOADED_FROM), variable).unwrap();
        assert_eq!(platform.data_disk_candidates(root).unwrap(), [root.join("dev/sdb")]);
    }

    #[test]
    fn machine_is_detected_by_its_firmware() {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path(), "/sys/class/dmi/id/sys_vendor", "VMware, Inc.\n");
        write(directory.path(), "/sys/class/dmi/id/product_uuid", "420f1a2b-0000-4000-8000-000000000001\n");
        let platform = Platform::detect(directory.path()).unwrap();
        assert!(platform.is_vmware());
        assert_eq!(platform.bios_uuid().unwrap().to_string(), "420f1a2b-0000-4000-8000-000000000001");
        write(directory.path(), "/sys/class/dmi/id/product_uuid", "00000000-0000-0000-0000-000000000000\n");
        assert_eq!(Platform::detect(directory.path()).unwrap().bios_uuid(), None);
    }

    #[test]
    fn vmware_guest_reads_its_serial_number() {
        let directory = tempfile::tempdir().unwrap();
        let vm = BiosUuid::from_u128(0x420f_1a2b_0003_4000_8000_0000_0000_0001);
        for dmi in [Dmi::of_vmware(vm, false), Dmi::of_vmware(vm, true)] {
            for (name, shown) in [
                ("sys_vendor", &dmi.sys_vendor),
                ("product_serial", &dmi.product_serial),
                ("product_uuid", &dmi.product_uuid),
            ] {
                write(directory.path(), &format!("/sys/class/dmi/id/{name}"), &format!("{shown}\n"));
            }
            let read = Platform::detect(directory.path()).unwrap().bios_uuid().unwrap();
            assert_eq!(read.to_string(), "420f1a2b-0003-4000-8000-000000000001");
        }
    }

    /// The file that the lab writes, also without the firmware's data.
    #[test]
    fn container_reads_the_serial_number_like_a_vm() {
        let directory = tempfile::tempdir().unwrap();
        let vm = BiosUuid::from_u128(0x420f_1a2b_0003_4000_8000_0000_0000_0001);
        let dmi = serde_json::to_value(Dmi::of_vmware(vm, false)).unwrap();
        let bios_uuid = vm.swapped().to_string();
        for (dmi, read) in [(dmi, vm), (serde_json::Value::Null, vm.swapped())] {
            let file = serde_json::json!({"cdrom": null, "data_disks": [], "bios_uuid": bios_uuid, "dmi": dmi});
            write(directory.path(), CONTAINER_FILE, &file.to_string());
            let platform = Platform::detect(directory.path()).unwrap();
            assert_eq!(platform.bios_uuid().unwrap().to_string(), read.to_string());
            assert!(platform.is_container() && !platform.is_vmware());
        }
    }

    #[test]
    fn container_has_its_configured_values() {
        let directory = tempfile::tempdir().unwrap();
        let container = Container {
            cdrom: Some("/run/host/kaas/cdrom.iso".into()),
            data_disks: vec!["/dev/loop7".into()],
            bios_uuid: Uuid::from_u128(7),
            dmi: None,
            cgroup_root: Some("/kaas-lab/node1".into()),
            fail_cgroup_v1: false,
            restrict_oom_score_adj: true,
            fingerprints: Some("/run/host/kaas/fingerprints.json".into()),
            statement: Some("/run/host/kaas/statement.json".into()),
        };
        write(directory.path(), CONTAINER_FILE, &serde_json::to_string(&container).unwrap());
        let platform = Platform::detect(directory.path()).unwrap();
        assert!(platform.is_container() && !platform.fail_cgroup_v1() && platform.restrict_oom_score_adj());
        assert_eq!(platform.cgroup_root(), Some("/kaas-lab/node1"));
        let file = directory.path().join("run/host/kaas/fingerprints.json");
        assert_eq!(platform.fingerprints_file(), Some(file));
        let file = directory.path().join("run/host/kaas/statement.json");
        assert_eq!(platform.statement_file(), Some(file));
        assert_eq!(platform.data_disk_candidates(directory.path()).unwrap(), [directory.path().join("dev/loop7")]);
        assert_eq!(platform.environment_media().unwrap(), [directory.path().join("run/host/kaas/cdrom.iso")]);

        // A medium is removed and inserted while the node runs.
        for cdrom in [None, Some("/run/host/kaas/other.iso".into())] {
            let container = Container { cdrom, ..container.clone() };
            write(directory.path(), CONTAINER_FILE, &serde_json::to_string(&container).unwrap());
            let now: Vec<_> =
                container.cdrom.iter().map(|path| files::below(directory.path(), path.to_str().unwrap())).collect();
            assert_eq!(platform.environment_media().unwrap(), now);
        }

        write(directory.path(), CONTAINER_FILE, "{\"data_disks\": 1}");
        let error = Platform::detect(directory.path()).unwrap_err().to_string();
        assert!(error.contains("platform.json"), "{error}");
    }
}
