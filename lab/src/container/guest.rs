//! Access to a running container: its first process, the kernel interfaces that it may change, and programs inside.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail};

use super::super::host::{program, run as run_program};
use super::super::process::ProcessId;
use super::super::wait::until;

/// The number of SIGRTMIN+4, which means "power off" to systemd (systemd(1)), with glibc's SIGRTMIN of 34.
pub const POWER_OFF: u32 = 38;

/// Kernel settings that kubelet changes. A container gets copies: a lab must not change its host.
const KERNEL_SETTINGS: [&str; 4] = ["vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops"];

/// The guest's first process, after it has executed the image's own program. Waits a minute at most.
pub fn leader(supervisor: &ProcessId) -> anyhow::Result<ProcessId> {
    let mut ended = false;
    let mut found = None;
    until("the container's first process", Duration::from_secs(60), || {
        ended = !supervisor.is_running();
        found = leader_now(supervisor);
        Ok(ended || found.is_some())
    })?;
    match found {
        Some(leader) => Ok(leader),
        None => bail!("systemd-nspawn ended"),
    }
}

/// The guest's first process, if it already runs.
pub fn leader_now(supervisor: &ProcessId) -> Option<ProcessId> {
    supervisor.children().into_iter().find(|child| {
        let process = Path::new("/proc").join(child.number().to_string());
        let status = fs::read_to_string(process.join("status")).unwrap_or_default();
        let first = status.lines().find_map(|line| line.strip_prefix("NSpid:")).is_some_and(|numbers| {
            let numbers: Vec<_> = numbers.split_ascii_whitespace().collect();
            numbers.len() > 1 && numbers.last() == Some(&"1")
        });
        // Until then, the process is still systemd-nspawn.
        let program = fs::read_link(process.join("exe")).unwrap_or_default();
        first && program.file_name().is_some_and(|name| name != "systemd-nspawn")
    })
}

/// Copies the host's kernel settings to a directory that the guest sees.
pub fn copy_kernel_settings(shared: &Path) -> anyhow::Result<()> {
    let copies = shared.join("kernel");
    fs::create_dir_all(&copies)?;
    for setting in KERNEL_SETTINGS {
        let value = fs::read(Path::new("/proc/sys").join(setting)).with_context(|| format!("reading {setting}"))?;
        fs::write(copies.join(setting.replace('/', ".")), value)?;
    }
    Ok(())
}

/// Makes the guest's cgroups writable (v1: nspawn mounts them read-only) and gives it its copies of the kernel
/// settings.
pub fn give_kernel_interfaces(leader: &ProcessId, shared: &str) -> anyhow::Result<()> {
    let mountinfo = fs::read_to_string(format!("/proc/{}/mountinfo", leader.number()))?;
    let mount = |arguments: &[&str]| {
        let mut nsenter = program("nsenter", [&format!("--target={}", leader.number()), "--mount", "--root", "mount"]);
        run_program(nsenter.args(arguments))
    };
    for line in mountinfo.lines().filter(|line| line.contains(" - cgroup ")) {
        let path = line.split(' ').nth(4).context("an odd line in mountinfo")?;
        mount(&["-o", "remount,bind,rw", path])?;
    }
    for setting in KERNEL_SETTINGS {
        let copy = format!("{shared}/kernel/{}", setting.replace('/', "."));
        mount(&["--bind", &copy, &format!("/proc/sys/{setting}")])?;
    }
    Ok(())
}

/// Discards unwritten data of the guest's data file systems, as a power cut does. If only its processes were killed,
/// the kernel would flush all data.
pub fn lose_unwritten(leader: &ProcessId) -> anyhow::Result<()> {
    // EXT4_IOC_SHUTDOWN with EXT4_GOING_FLAGS_NOLOGFLUSH (linux/fs/ext4/ext4.h). perl is on every Debian host and can
    // make this call.
    const SHUT_DOWN: &str =
        r#"open(my $d, "<", $ARGV[0]) or die "$!"; my $f = pack("L", 2); ioctl($d, 0x8004587d, $f) or die "$!""#;
    let Ok(mountinfo) = fs::read_to_string(format!("/proc/{}/mountinfo", leader.number())) else { return Ok(()) };
    let mut seen = Vec::new();
    for line in mountinfo.lines() {
        let (before, after) = line.split_once(" - ").context("an odd line in mountinfo")?;
        let (kind, source) = after.split_once(' ').context("an odd line in mountinfo")?;
        let source = source.split(' ').next().unwrap_or_default();
        let fields: Vec<_> = before.split(' ').collect();
        if kind == "ext4" && source.starts_with("/dev/loop") && fields.get(3) == Some(&"/") && !seen.contains(&source) {
            seen.push(source);
            let path = format!("/proc/{}/root{}", leader.number(), fields[4]);
            run_program(&mut program("perl", ["-e", SHUT_DOWN, &path]))
                .with_context(|| format!("cutting {source} off"))?;
        }
    }
    Ok(())
}

/// The guest's host name, read with a program of the host.
pub fn host_name(leader: &ProcessId) -> anyhow::Result<String> {
    let target = format!("--target={}", leader.number());
    Ok(run_program(&mut program("nsenter", [&target, "--uts", "--", "uname", "-n"]))?.trim().to_owned())
}

/// A program inside, started through the program `by` outside if that is not empty.
pub fn command(leader: &ProcessId, by: &[&str], arguments: &[&str]) -> Command {
    let target = format!("--target={}", leader.number());
    let enter = ["nsenter", &target, "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root", "--wd", "--"];
    let line = [by, &enter, arguments].concat();
    let mut command = Command::new(line[0]);
    command.args(&line[1..]);
    command.env_clear().env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_and_exit_status_are_the_programs_own() {
        let own = ProcessId::of(std::process::id().cast_signed()).unwrap();
        let script = "printf 'out\\000\\377'; echo failed >&2; exit 3";
        for by in [&[][..], &["timeout", "60"]] {
            let said = command(&own, by, &["sh", "-c", script]).output().unwrap();
            assert_eq!(said.status.code(), Some(3), "{said:?}");
            assert_eq!((said.stdout.as_slice(), said.stderr.as_slice()), (&b"out\0\xff"[..], &b"failed\n"[..]));
        }
    }
}
