//! Tests whether KVM runs guests here. /dev/kvm can be open and still hang every guest, or every guest that
//! leaves real mode in its firmware. Only a guest that has come through the firmware is proof.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::Context;

use super::super::tools::Tools;
use super::{FIRMWARE, VARIABLES};

/// The probe guest's program: writes 0x10 to port 0xf4, where QEMU's debug device ends the VM with status 0x10 × 2 +
/// 1. Halts otherwise.
const PROGRAM: [u8; 7] = [0xb0, 0x10, 0xe6, 0xf4, 0xf4, 0xeb, 0xfd];
const PROOF: i32 = 33;
/// A guest is through its firmware in two seconds, even emulated.
const LIMIT: Duration = Duration::from_secs(20);
/// On a busy machine, a guest can take longer: one failed guest is tried once more.
const SECOND_LIMIT: Duration = Duration::from_secs(60);
/// Some broken KVM ran one guest and hung the next.
const GUESTS: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kvm {
    /// /dev/kvm is missing, or closed to this user.
    Absent,
    /// It is open, but does not run guests reliably.
    RunsNone,
    Runs,
}

impl Kvm {
    /// Tests whether guests run under KVM here.
    pub fn probe(tools: &Tools) -> anyhow::Result<Self> {
        if fs::File::options().read(true).write(true).open("/dev/kvm").is_err() {
            return Ok(Self::Absent);
        }
        let runs = run(GUESTS, |limit| runs_guest(tools, "kvm", "host", limit).context("probing KVM"))?;
        Ok(if runs { Self::Runs } else { Self::RunsNone })
    }

    pub fn runs_guests(self) -> bool {
        self == Self::Runs
    }
}

/// Whether this number of guests runs in a row, within the limit. One of them may use the longer limit.
fn run(guests: usize, mut runs: impl FnMut(Duration) -> anyhow::Result<bool>) -> anyhow::Result<bool> {
    let mut spare = true;
    for _ in 0..guests {
        let run = runs(LIMIT)? || (std::mem::take(&mut spare) && runs(SECOND_LIMIT)?);
        if !run {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a guest runs within `limit` with emulated processors. It does on any host, so this tests the probe itself.
pub fn emulation_runs_guests(tools: &Tools, limit: Duration) -> anyhow::Result<bool> {
    runs_guest(tools, "tcg", "max", limit).context("probing emulation")
}

fn runs_guest(tools: &Tools, accelerator: &str, processor: &str, limit: Duration) -> anyhow::Result<bool> {
    let directory = tempfile::tempdir()?;
    let (program, variables) = (directory.path().join("probe.efi"), directory.path().join("variables"));
    fs::write(&program, efi_program())?;
    fs::copy(tools.file(VARIABLES)?, &variables).context("copying the firmware's variables")?;
    let mut command = tools.short_command("qemu-system-x86_64", &[directory.path()]);
    // Machine, processor and firmware are those of the lab's VMs.
    command.args(["-accel", accelerator, "-machine", "q35,vmport=off", "-cpu", processor, "-smp", "2", "-m", "256"]);
    command.args(["-nodefaults", "-display", "none", "-no-reboot", "-device", "isa-debug-exit,iobase=0xf4,iosize=4"]);
    let firmware = Path::new("/").join(FIRMWARE);
    command.arg("-drive").arg(format!("if=pflash,format=raw,unit=0,readonly=on,file={}", firmware.display()));
    command.arg("-drive").arg(format!("if=pflash,format=raw,unit=1,file={}", variables.display()));
    command.arg("-kernel").arg(&program);
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().context("starting QEMU")?;
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.code() == Some(PROOF));
        }
        if started.elapsed() > limit {
            // bubblewrap ends QEMU, if the kernel can. The probe does not wait for that.
            child.kill()?;
            child.wait()?;
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The program as an EFI application: a PE32+ image for x86-64 with one section (PE Format, "COFF File Header",
/// "Optional Header", "Section Table"; UEFI 2.10, section 2.1.1).
fn efi_program() -> Vec<u8> {
    const HEADERS: u32 = 0x200;
    const CODE: u32 = 0x1000;
    let mut image = Vec::new();
    let mut put = |bytes: &[u8]| image.extend_from_slice(bytes);
    // The DOS header: its magic, and at 0x3c the offset of the PE header.
    put(b"MZ");
    put(&[0; 0x3a]);
    put(&0x40_u32.to_le_bytes());
    put(b"PE\0\0");
    for half in [0x8664_u16, 1] {
        put(&half.to_le_bytes());
    }
    put(&[0; 12]);
    // Size of the optional header, and flags: executable, no line numbers, large addresses.
    for half in [0xf0_u16, 0x26] {
        put(&half.to_le_bytes());
    }
    put(&0x20b_u16.to_le_bytes());
    put(&[0; 2]);
    // Sizes of code and data, entry point, base of code.
    for word in [HEADERS, 0, 0, CODE, CODE] {
        put(&word.to_le_bytes());
    }
    put(&0x40_0000_u64.to_le_bytes());
    // Alignment in memory and in the file, versions, sizes of the image and the headers, checksum.
    for word in [CODE, HEADERS, 0, 0, 0, 0, 2 * CODE, HEADERS, 0] {
        put(&word.to_le_bytes());
    }
    // An EFI application.
    for half in [10_u16, 0] {
        put(&half.to_le_bytes());
    }
    put(&[0; 4 * 8]);
    for word in [0_u32, 16] {
        put(&word.to_le_bytes());
    }
    put(&[0; 16 * 8]);
    put(b".text\0\0\0");
    for word in [CODE, CODE, HEADERS, HEADERS, 0, 0, 0, 0x6000_0020] {
        put(&word.to_le_bytes());
    }
    image.resize(HEADERS as usize, 0);
    image.extend_from_slice(&PROGRAM);
    // QEMU takes the first kilobytes of the file for Linux's setup code.
    image.resize(16 << 10, 0);
    image
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs guests that give these answers in turn. Returns the result and the limits that were used.
    fn tried(answers: &[bool]) -> (bool, Vec<Duration>) {
        let mut limits = Vec::new();
        let runs = run(3, |limit| {
            limits.push(limit);
            Ok(answers[limits.len() - 1])
        });
        (runs.unwrap(), limits)
    }

    #[test]
    fn one_guest_may_use_the_longer_limit() {
        assert_eq!(tried(&[true, true, true]), (true, vec![LIMIT; 3]));
        assert_eq!(tried(&[true, false, true, true]), (true, vec![LIMIT, LIMIT, SECOND_LIMIT, LIMIT]));
    }

    #[test]
    fn hanging_guests_are_not_tried_forever() {
        assert_eq!(tried(&[false, false]), (false, vec![LIMIT, SECOND_LIMIT]));
        assert_eq!(tried(&[false, true, false]), (false, vec![LIMIT, SECOND_LIMIT, LIMIT]));
    }
}
