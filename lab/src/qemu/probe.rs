//! Finds out whether KVM runs guests here. /dev/kvm may be there, open, and
//! still hang every guest: only a guest that did something is proof.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::Context;

use super::super::process::ProcessId;
use super::super::tools::Tools;

/// The probe guest's whole program: writes 0x10 to the port 0xf4, where QEMU's
/// debug device ends the VM with status 0x10 × 2 + 1; halts if it goes on.
const PROGRAM: [u8; 7] = [0xb0, 0x10, 0xe6, 0xf4, 0xf4, 0xeb, 0xfd];
const PROOF: i32 = 33;
/// A guest that runs is through its firmware in well under a second.
const LIMIT: Duration = Duration::from_secs(10);
/// Broken KVM has been seen to run one guest and hang the next.
const GUESTS: usize = 3;

/// Whether guests run under KVM.
///
/// # Errors
/// When QEMU cannot be started at all.
pub fn kvm_runs_guests(tools: &Tools) -> anyhow::Result<bool> {
    if fs::File::options().read(true).write(true).open("/dev/kvm").is_err() {
        return Ok(false);
    }
    for _ in 0..GUESTS {
        if !runs_guest(tools, "kvm", "host").context("probing KVM")? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn runs_guest(tools: &Tools, accelerator: &str, processor: &str) -> anyhow::Result<bool> {
    let folder = tempfile::tempdir()?;
    let image = folder.path().join("probe");
    fs::write(&image, boot_disk())?;
    let mut command = tools.command("qemu-system-x86_64", &[folder.path()]);
    // The machine and processor are those of the lab's VMs.
    command.args(["-accel", accelerator, "-machine", "q35", "-cpu", processor, "-smp", "2", "-m", "64"]);
    command.args(["-nodefaults", "-display", "none", "-no-reboot", "-device", "isa-debug-exit,iobase=0xf4,iosize=4"]);
    command.args(["-device", "ide-hd,bus=ide.0,drive=probe", "-drive"]);
    command.arg(format!("file={},format=raw,if=none,id=probe", image.display()));
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().context("starting QEMU")?;
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.code() == Some(PROOF));
        }
        if started.elapsed() > LIMIT {
            // bubblewrap ends with the QEMU that it has started.
            for guest in ProcessId::of(child.id() as i32).iter().flat_map(ProcessId::children) {
                guest.kill()?;
            }
            child.wait()?;
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A disk whose first sector a PC's firmware loads and runs. The firmware passes
/// over disks that are much smaller.
fn boot_disk() -> Vec<u8> {
    let mut disk = vec![0; 1 << 20];
    disk[..PROGRAM.len()].copy_from_slice(&PROGRAM);
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    disk
}
