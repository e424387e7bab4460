//! The QEMU engine: the VM of the OVA, with firmware, kernel image, verity and disks. Uses KVM if it runs guests, and
//! emulation otherwise.

pub(super) mod machine;
mod probe;
mod qmp;
mod ssh;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail};
use contract::deployer::Fingerprints;
use contract::platform::Dmi;
use contract::statement::Statement;
use serde_json::json;

use super::engine::Engine;
use super::engine_record::{EngineRecord, Hardware};
use super::host::run;
use super::network::Network;
use super::process::{ProcessId, start};
use super::records::{LabDirectory, VmRecord};
use super::tools::Tools;
use super::wait::{obtain, until};
use machine::Machine;
use qmp::Qmp;

pub use probe::{Kvm, emulation_runs_guests};

/// OVMF, Debian's firmware for VMs.
const FIRMWARE: &str = "usr/share/OVMF/OVMF_CODE_4M.fd";
const VARIABLES: &str = "usr/share/OVMF/OVMF_VARS_4M.fd";
/// How long a pressed key is held, in milliseconds.
const HELD: u32 = 10;
const QEMU: &str = "qemu-system-x86_64";

pub struct VirtualMachines {
    /// The lab's directory.
    pub directory: LabDirectory,
    pub network: Network,
    /// The tools tree, with QEMU and firmware.
    pub tools: Tools,
}

impl VirtualMachines {
    fn control(&self, vm: &VmRecord) -> PathBuf {
        self.directory.vm(&vm.name).join("qmp")
    }

    /// QEMU and its bubblewrap process. Both have the VM's control socket in their arguments, so they are found even
    /// if a killed command did not record them.
    fn processes(&self, vm: &VmRecord) -> Vec<ProcessId> {
        ProcessId::with_argument(&machine::control_argument(&self.control(vm)))
    }

    /// The VM's overlay of the OVA's system disk.
    fn ensure_system_disk(&self, vm: &VmRecord) -> anyhow::Result<PathBuf> {
        let layer = self.directory.vm(&vm.name).join("system.qcow2");
        if !layer.exists() {
            let mut create = self.tools.command("qemu-img", &self.directories(vm));
            create.args(["create", "-q", "-f", "qcow2", "-F", "raw", "-b"]).arg(vm.source.system_disk()?).arg(&layer);
            run(&mut create).context("making the system disk")?;
        }
        Ok(layer)
    }

    fn ensure_variables(&self, vm: &VmRecord) -> anyhow::Result<PathBuf> {
        let variables = self.directory.vm(&vm.name).join("firmware.vars");
        if !variables.exists() {
            copy_whole(&self.tools.file(VARIABLES)?, &variables).context("copying the firmware's variables")?;
        }
        Ok(variables)
    }

    /// Directories of the host that QEMU can access.
    fn directories<'a>(&'a self, vm: &'a VmRecord) -> Vec<&'a Path> {
        let mut directories = vec![self.directory.path()];
        directories.extend(vm.source.directories());
        directories
    }
}

/// Copies a file atomically: an interruption leaves no part of it.
fn copy_whole(from: &Path, to: &Path) -> std::io::Result<()> {
    let new = to.with_extension("new");
    fs::copy(from, &new)?;
    fs::rename(&new, to)
}

impl Engine for VirtualMachines {
    fn start(&self, vm: &VmRecord) -> anyhow::Result<ProcessId> {
        let EngineRecord::Qemu { kvm, hardware } = vm.engine else { bail!("{} is a system container", vm.name) };
        let (system_disk, variables) = (self.ensure_system_disk(vm)?, self.ensure_variables(vm)?);
        let data_disks: Vec<_> = vm.disks.iter().map(|disk| (*disk, self.directory.disk(*disk))).collect();
        let kernel_image = match hardware {
            Hardware::Quick => None,
            Hardware::Vsphere => Some(vm.source.kernel_image()?),
        };
        let (cdrom, control, console) =
            (self.directory.cdrom(&vm.name), self.control(vm), self.directory.console(&vm.name));
        if vm.has_nic {
            self.network.add_tap_port(&vm.port, vm.nic_connected)?;
        }
        let arguments = machine::arguments(&Machine {
            name: &vm.name,
            dmi: &Dmi::of_vmware(vm.uuid.into(), vm.in_order_uuid),
            kvm,
            processors: vm.processors,
            memory: vm.memory,
            firmware: Path::new("/").join(FIRMWARE).as_path(),
            variables: &variables,
            system_disk: &system_disk,
            kernel_image: kernel_image.as_deref(),
            data_disks: &data_disks,
            cdrom: vm.cdrom_inserted.then_some(cdrom.as_path()),
            nic: vm.has_nic.then_some((&vm.port, &vm.mac)),
            console: &console,
            terminal: &self.directory.terminal(&vm.name),
            control: &control,
            hardware,
        });
        let inside = self.tools.command(QEMU, &self.directories(vm));
        let mut command = self.network.command(&inside.get_program().to_string_lossy(), inside.get_args());
        let log = self.directory.vm(&vm.name).join("qemu.log");
        let starter = start(command.args(arguments), fs::File::create(&log)?)?;
        let what = format!("{} to run and answer", vm.name);
        obtain(&what, Duration::from_secs(60), || {
            if !starter.is_running() {
                return Ok(Some(None));
            }
            // bubblewrap is the parent of QEMU and ends with it.
            let qemu = starter.children().into_iter().next();
            Ok(Qmp::connect(&control).is_ok().then_some(qemu).filter(Option::is_some))
        })?
        .ok_or_else(|| anyhow::anyhow!("QEMU ended: {}", fs::read_to_string(&log).unwrap_or_default().trim()))
    }

    /// Always `true`: only the guest knows whether it handles its power button.
    fn ask_to_shut_down(&self, vm: &VmRecord) -> anyhow::Result<bool> {
        if self.is_on(vm) {
            Qmp::connect(&self.control(vm))?.execute("system_powerdown", json!({}))?;
        }
        Ok(true)
    }

    fn cut(&self, vm: &VmRecord) -> anyhow::Result<()> {
        self.processes(vm).iter().try_for_each(ProcessId::kill)
    }

    fn is_on(&self, vm: &VmRecord) -> bool {
        !self.processes(vm).is_empty()
    }

    fn release(&self, vm: &VmRecord) -> anyhow::Result<()> {
        // The kernel takes the TAP interface from a process a little after its end.
        let what = format!("the network interface of {} to be let go", vm.name);
        until(&what, Duration::from_secs(10), || self.network.remove_port(&vm.port).map(|()| true))?;
        let control = self.control(vm);
        if control.exists() {
            fs::remove_file(control)?;
        }
        Ok(())
    }

    fn eject_cdrom(&self, vm: &VmRecord) -> anyhow::Result<()> {
        Qmp::connect(&self.control(vm))?.execute("eject", json!({ "id": machine::CDROM, "force": true }))?;
        Ok(())
    }

    fn insert_cdrom(&self, vm: &VmRecord) -> anyhow::Result<()> {
        let iso = self.directory.cdrom(&vm.name);
        let medium = json!({ "id": machine::CDROM, "filename": iso, "format": "raw", "force": true, "read-only-mode": "read-only" });
        Qmp::connect(&self.control(vm))?.execute("blockdev-change-medium", medium)?;
        Ok(())
    }

    fn enlarge_disk(&self, vm: &VmRecord, number: usize) -> anyhow::Result<()> {
        let size = fs::metadata(self.directory.disk(vm.disks[number]))?.len();
        let larger = json!({ "device": machine::data_drive(number), "size": size });
        Qmp::connect(&self.control(vm))?.execute("block_resize", larger)?;
        Ok(())
    }

    fn press(&self, vm: &VmRecord, keys: &[&str]) -> anyhow::Result<()> {
        let keys: Vec<_> = keys.iter().map(|key| json!({ "type": "qcode", "data": key })).collect();
        Qmp::connect(&self.control(vm))?.execute("send-key", json!({ "keys": keys, "hold-time": HELD }))?;
        Ok(())
    }

    /// QEMU has no guestinfo: the node prints its fingerprints on its console, where only root in the guest can
    /// write.
    fn fingerprints(&self, vm: &VmRecord) -> anyhow::Result<Option<Fingerprints>> {
        Ok(Fingerprints::last_said(&self.directory.console_text(&vm.name)?))
    }

    /// The node prints its statement on its console, as its fingerprints.
    fn statement(&self, vm: &VmRecord) -> anyhow::Result<Option<Statement>> {
        Ok(Statement::last_said(&self.directory.console_text(&vm.name)?))
    }

    fn command_inside(&self, vm: &VmRecord, by: &[&str], arguments: &[&str]) -> anyhow::Result<Command> {
        let Some(address) = &vm.address else {
            bail!(
                "{} has no address by which it can be reached: its form was not filled in, or nothing is leased to it",
                vm.name
            )
        };
        let arguments = ssh::arguments(&self.directory.ssh_key(), address, arguments);
        let line = [by, &["ssh"]].concat();
        let mut command = self.network.command(line[0], &line[1..]);
        command.args(arguments);
        Ok(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_copied_completely_or_not_at_all() {
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (directory.path().join("from"), directory.path().join("firmware.vars"));
        fs::write(&from, "variables").unwrap();
        // A copy to the final name would fail here: the copy must begin under another name.
        let new = directory.path().join("firmware.new");
        fs::create_dir(&new).unwrap();
        assert!(copy_whole(&from, &to).is_err());
        assert!(!to.exists());
        // The next copy replaces an interrupted one.
        fs::remove_dir(&new).unwrap();
        fs::write(&new, "vari").unwrap();
        copy_whole(&from, &to).unwrap();
        assert_eq!(fs::read_to_string(&to).unwrap(), "variables");
        assert!(!new.exists());
    }
}
