//! The command line of systemd-nspawn, with a reason for each unusual option.

use std::path::{Path, PathBuf};
use std::process::Command;

use uuid::Uuid;

use super::super::host::program;
use super::cgroup::Cgroup;

pub struct Container<'a> {
    /// Name, unique on the host.
    pub name: &'a str,
    pub uuid: Uuid,
    /// Root tree, read-only.
    pub tree: &'a Path,
    pub namespace: &'a Path,
    /// File system image of its /var …
    pub scratch: &'a Path,
    /// … and the host directory where it is mounted.
    pub scratch_place: &'a Path,
    /// Directory that the guest sees as /run/host/kaas.
    pub shared: &'a Path,
    /// Block devices that the guest sees, under the same paths.
    pub disks: &'a [PathBuf],
    /// Cgroup of the container and its supervisor.
    pub cgroup: &'a Cgroup,
}

/// Mounts the scratch file system, enters each cgroup whose `cgroup.procs` file is named before `--`, then executes
/// the program after it. A process must enter its cgroups before it becomes systemd-nspawn, which derives the guest's
/// view from its own. Only the process and the guest see the mount, so it ends with them.
const BEGIN: &str = r#"set -e; mount -t ext4 -o loop,nodev,nosuid,errors=remount-ro "$1" "$2"; shift 2
while [ "$1" != -- ]; do echo $$ > "$1"; shift; done; shift; exec "$@""#;

pub fn command(container: &Container<'_>) -> Command {
    let mut command = program("unshare", ["--mount", "--propagation", "slave", "/bin/sh", "-c", BEGIN, "sh"]);
    command.arg(container.scratch).arg(container.scratch_place);
    command.args(container.cgroup.doors()).args(["--", "systemd-nspawn"]);
    // kube-proxy and the pod network set net.* inside, which belongs to the namespace.
    command.env("SYSTEMD_NSPAWN_API_VFS_WRITABLE", "network");
    command.args([
        "--quiet",
        "--read-only",
        // Neither machined nor systemd is required on the host.
        "--register=no",
        "--keep-unit",
        // Kubernetes, containerd and runc need root's capabilities, in the host's user namespace …
        "--capability=all",
        "--private-users=no",
        // … and two groups of system calls that nspawn denies by default.
        "--system-call-filter=@keyring bpf",
        // kubelet reads it to find processes that were killed because memory ran out.
        "--bind=/dev/kmsg",
        "--resolv-conf=off",
        "--timezone=off",
        "--link-journal=no",
        // A terminal that the guest can only write to.
        "--console=read-only",
        // On SIGTERM, the supervisor sends systemd this signal, which means "power off".
        "--kill-signal=SIGRTMIN+4",
    ]);
    command.arg(format!("--machine={}", container.name));
    command.arg(format!("--uuid={}", container.uuid));
    command.arg(format!("--directory={}", container.tree.display()));
    command.arg(format!("--network-namespace-path={}", container.namespace.display()));
    command.arg(format!("--bind={}:/var", container.scratch_place.display()));
    command.arg(format!("--bind={}:/run/host/kaas", container.shared.display()));
    for disk in container.disks {
        command.arg(format!("--bind={}", disk.display()));
    }
    // There is no initrd: the agent does its early work, then executes systemd.
    command.args(["/usr/bin/kaas-agent", "early", "--root", "/", "--exec", "/usr/lib/systemd/systemd"]);
    command
}
