//! The command line of systemd-nspawn. Everything about it that is not plain
//! has its reason here.

use std::path::{Path, PathBuf};
use std::process::Command;

use uuid::Uuid;

use super::super::host::program;
use super::cgroup::Cgroup;

/// A container to be started.
pub struct Container<'a> {
    /// Name, unique on the host.
    pub name: &'a str,
    /// Machine UUID.
    pub uuid: Uuid,
    /// Root tree, read-only.
    pub tree: &'a Path,
    /// Network namespace that it lives in.
    pub namespace: &'a Path,
    /// File system image of its /var …
    pub scratch: &'a Path,
    /// … and the directory to mount it at, outside.
    pub scratch_place: &'a Path,
    /// Seen inside as /run/host/kaas.
    pub shared: &'a Path,
    /// Block devices it sees, by the same path.
    pub disks: &'a [PathBuf],
    /// The cgroup that holds it and its supervisor.
    pub cgroup: &'a Cgroup,
}

/// Mounts the scratch file system, enters every cgroup whose door is named
/// before `--`, then becomes the program after it. A process has to be in its
/// cgroups before it is systemd-nspawn, which builds the guest's view of them
/// from its own; and a mount that only it and the guest see goes when they do.
const BEGIN: &str = r#"set -e; mount -t ext4 -o loop,nodev,nosuid,errors=remount-ro "$1" "$2"; shift 2
while [ "$1" != -- ]; do echo $$ > "$1"; shift; done; shift; exec "$@""#;

/// The command that is the container's supervisor.
pub fn command(container: &Container<'_>) -> Command {
    let mut command = program("unshare", ["--mount", "--propagation", "slave", "/bin/sh", "-c", BEGIN, "sh"]);
    command.arg(container.scratch).arg(container.scratch_place);
    command.args(container.cgroup.doors()).args(["--", "systemd-nspawn"]);
    // kube-proxy and the pod network set net.* inside; it is the namespace's own.
    command.env("SYSTEMD_NSPAWN_API_VFS_WRITABLE", "network");
    command.args([
        "--quiet",
        "--read-only",
        // No machined and no systemd of the host is needed: neither may be there.
        "--register=no",
        "--keep-unit",
        // Kubernetes, containerd and runc need what root has, in the host's user namespace …
        "--capability=all",
        "--private-users=no",
        // … and two groups of calls that nspawn keeps away by default.
        "--system-call-filter=@keyring bpf",
        // kubelet watches it for processes killed when memory ran out.
        "--bind=/dev/kmsg",
        "--resolv-conf=off",
        "--timezone=off",
        "--link-journal=no",
        // A terminal that the guest can only write to.
        "--console=read-only",
        // What systemd takes for "power off", on SIGTERM to the supervisor.
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
    // There is no initrd: the agent does its early work, then becomes systemd.
    command.args(["/usr/bin/kaas-agent", "early", "--root", "/", "--exec", "/usr/lib/systemd/systemd"]);
    command
}
