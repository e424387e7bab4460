//! The command line of QEMU, which decides the hardware of a VM. Pure.

use std::path::{Path, PathBuf};

use contract::platform::Dmi;
use uuid::Uuid;

use super::super::engine_record::Hardware;

pub struct Machine<'a> {
    pub name: &'a str,
    /// The SMBIOS strings that the guest reads.
    pub dmi: &'a Dmi,
    /// KVM, or emulation.
    pub kvm: bool,
    pub processors: u32,
    /// Memory in MiB.
    pub memory: u32,
    /// Firmware code, read-only.
    pub firmware: &'a Path,
    /// Firmware variables of this VM.
    pub variables: &'a Path,
    /// qcow2 overlay over the OVA's system disk.
    pub system_disk: &'a Path,
    /// The image's kernel image, for [`Hardware::Vsphere`].
    pub kernel_image: Option<&'a Path>,
    /// Raw data disks with their UUIDs.
    pub data_disks: &'a [(Uuid, PathBuf)],
    /// ISO 9660 image. `None` for an empty drive.
    pub cdrom: Option<&'a Path>,
    /// TAP interface and MAC address of the network interface, if it has one.
    pub nic: Option<(&'a str, &'a str)>,
    /// Log of the first serial port, which is the system console.
    pub console: &'a Path,
    /// Socket of the second serial port, a terminal.
    pub terminal: &'a Path,
    /// Socket of the machine protocol (QMP).
    pub control: &'a Path,
    pub hardware: Hardware,
}

/// QEMU's name for the CD-ROM drive.
pub const CDROM: &str = "cdrom";

/// QEMU's name for the file of a data disk.
pub fn data_drive(number: usize) -> String {
    format!("data{number}")
}

/// The argument with a VM's control socket. It identifies the VM's processes.
pub fn control_argument(socket: &Path) -> String {
    format!("unix:{},server=on,wait=off", socket.display())
}

pub fn arguments(machine: &Machine<'_>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut add = |option: &str, value: String| all.extend([format!("-{option}"), value]);
    add("name", machine.name.to_owned());
    // QEMU writes the first three groups little-endian, as SMBIOS 2.6 requires: Linux shows this text. A comma is
    // doubled (QEMU's qemu-option). The vendor alone does not make it a VMware guest: the agent, systemd and the
    // kernel ask the processor first, whose hypervisor is QEMU or KVM.
    add("uuid", machine.dmi.product_uuid.clone());
    let vendor = machine.dmi.sys_vendor.replace(',', ",,");
    add("smbios", format!("type=1,manufacturer={vendor},serial={}", machine.dmi.product_serial));
    add("machine", "q35,vmport=off".to_owned());
    if machine.kvm {
        add("accel", "kvm".to_owned());
        add("cpu", "host".to_owned());
    } else {
        add("accel", "tcg,thread=multi,tb-size=512".to_owned());
        add("cpu", "max".to_owned());
        // Emulated timers cost half of an idle guest's time. The stub adds this to the kernel image's own command
        // line (systemd-stub(7)).
        add("smbios", "type=11,value=io.systemd.stub.kernel-cmdline-extra=highres=off mitigations=off".to_owned());
    }
    add("smp", machine.processors.to_string());
    add("m", machine.memory.to_string());
    add("display", "none".to_owned());
    add("drive", format!("if=pflash,format=raw,unit=0,readonly=on,file={}", machine.firmware.display()));
    add("drive", format!("if=pflash,format=raw,unit=1,file={}", machine.variables.display()));
    add("device", "virtio-rng-pci".to_owned());

    // A power cut ends QEMU, but not its host. The host's memory then has the guest's writes, so no flush is needed.
    // A full disk of the host becomes an error of the guest's disk, which the guest prints on its console. Otherwise
    // QEMU would stop the VM silently, and a wait would end without a cause.
    let cache = "cache=unsafe,discard=unmap,werror=report,rerror=report";
    add("drive", format!("if=none,id=system,format=qcow2,{cache},file={}", machine.system_disk.display()));
    add("device", "pvscsi,id=scsi".to_owned());
    match machine.hardware {
        Hardware::Quick => add("device", "nvme,drive=system,serial=system,bootindex=1".to_owned()),
        Hardware::Vsphere => add("device", "scsi-hd,bus=scsi.0,scsi-id=0,drive=system".to_owned()),
    }
    if let Some(kernel_image) = machine.kernel_image {
        add("kernel", kernel_image.display().to_string());
    }
    for (number, (uuid, file)) in machine.data_disks.iter().enumerate() {
        let drive = data_drive(number);
        add("drive", format!("if=none,id={drive},format=raw,{cache},file={}", file.display()));
        // Otherwise the serial number would also be the device's identifier, which is short.
        let serial = uuid.simple().to_string();
        let (target, identifier) = (number + 1, &serial[..20]);
        add(
            "device",
            format!("scsi-hd,bus=scsi.0,scsi-id={target},drive={drive},serial={serial},device_id={identifier}"),
        );
    }

    let medium = machine.cdrom.map(|iso| format!(",format=raw,file={}", iso.display())).unwrap_or_default();
    add("drive", format!("if=none,id=iso,media=cdrom,readonly=on{medium}"));
    add("device", format!("ide-cd,bus=ide.0,drive=iso,id={CDROM}"));

    let nic = match machine.hardware {
        Hardware::Quick => "virtio-net-pci,romfile=",
        Hardware::Vsphere => "vmxnet3,romfile=",
    };
    if let Some((tap, mac)) = machine.nic {
        add("netdev", format!("tap,id=net,ifname={tap},script=no,downscript=no"));
        add("device", format!("{nic},netdev=net,mac={mac}"));
    }

    add("chardev", format!("file,id=console,append=on,path={}", machine.console.display()));
    add("serial", "chardev:console".to_owned());
    add("chardev", format!("socket,id=terminal,path={},server=on,wait=off", machine.terminal.display()));
    add("serial", "chardev:terminal".to_owned());
    add("qmp", control_argument(machine.control));
    all.extend(["-nodefaults".to_owned(), "-no-user-config".to_owned()]);
    all
}

#[cfg(test)]
mod tests {
    use contract::bios_uuid::BiosUuid;

    use super::*;

    fn machine<'a>(dmi: &'a Dmi, disks: &'a [(Uuid, PathBuf)], hardware: Hardware) -> Machine<'a> {
        Machine {
            name: "cp1",
            dmi,
            kvm: false,
            processors: 1,
            memory: 2048,
            firmware: Path::new("/f/code"),
            variables: Path::new("/v/vars"),
            system_disk: Path::new("/v/system"),
            kernel_image: (hardware == Hardware::Vsphere).then_some(Path::new("/v/uki")),
            data_disks: disks,
            cdrom: None,
            nic: Some(("cp1", "00:50:56:00:00:01")),
            console: Path::new("/v/console"),
            terminal: Path::new("/v/terminal"),
            control: Path::new("/v/qmp"),
            hardware,
        }
    }

    fn dmi(in_order: bool) -> Dmi {
        Dmi::of_vmware(BiosUuid::from_u128(0x420e_3f74_ea84_f9a2_7736_6106_bb5d_bf6b), in_order)
    }

    #[test]
    fn firmware_shows_vmwares_strings() {
        let serial = "type=1,manufacturer=VMware,, Inc.,serial=VMware-42 0e 3f 74 ea 84 f9 a2-77 36 61 06 bb 5d bf 6b";
        for (in_order, uuid) in
            [(false, "743f0e42-84ea-a2f9-7736-6106bb5dbf6b"), (true, "420e3f74-ea84-f9a2-7736-6106bb5dbf6b")]
        {
            let all = arguments(&machine(&dmi(in_order), &[], Hardware::Quick));
            assert!(all.windows(2).any(|pair| pair == ["-smbios", serial]), "{all:?}");
            assert!(all.windows(2).any(|pair| pair == ["-uuid", uuid]), "{all:?}");
        }
    }

    #[test]
    fn a_data_disk_shows_its_uuid() {
        let disks = [(Uuid::from_u128(7), PathBuf::from("/d/7"))];
        let all = arguments(&machine(&dmi(false), &disks, Hardware::Quick)).join(" ");
        assert!(all.contains("scsi-id=1,drive=data0,serial=00000000000000000000000000000007"), "{all}");
    }

    #[test]
    fn disk_errors_of_the_host_reach_the_guest() {
        let disks = [(Uuid::from_u128(7), PathBuf::from("/d/7"))];
        for hardware in [Hardware::Quick, Hardware::Vsphere] {
            let all = arguments(&machine(&dmi(false), &disks, hardware));
            let written: Vec<_> = all.iter().filter(|argument| argument.contains("cache=unsafe")).collect();
            assert_eq!(written.len(), 2, "{written:?}");
            assert!(written.iter().all(|drive| drive.contains(",werror=report,rerror=report,")), "{written:?}");
        }
    }

    #[test]
    fn vsphere_hardware_boots_from_pvscsi_and_kernel_image() {
        let all = arguments(&machine(&dmi(false), &[], Hardware::Vsphere)).join(" ");
        assert!(all.contains("scsi-hd,bus=scsi.0,scsi-id=0,drive=system"), "{all}");
        assert!(all.contains("-kernel /v/uki") && all.contains("vmxnet3") && !all.contains("nvme"), "{all}");
    }
}
