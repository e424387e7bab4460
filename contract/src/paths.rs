//! The table of written paths, with the storage of each. The code that mounts the data disk and the documentation both use it.

/// The mount point of the data partition.
pub const DATA: &str = "/data";

/// A worker's counterpart of a data disk, on the scratch partition. It is mounted on [`DATA`].
pub const KEPT: &str = "/var/lib/kaas";

/// The agent's records on the data disk: configuration, secret, plan, state.
pub const RECORDS: &str = "/data/kaas";

/// Snapshots of the cluster's store, on the data disk.
pub const SNAPSHOTS: &str = "/data/snapshots";

/// Snapshots of tenants' stores from before their upgrades, on the data disk of a control cluster's control-plane node.
pub const TENANTS: &str = "/data/tenants";

/// SSH host keys, on the data disk.
pub const SSH_HOST_KEYS: &str = "/data/ssh";

/// The mount point of a worker's data disk, if it has one: the directories of local volumes.
pub const LOCAL_VOLUMES: &str = "/data/local-volumes";

/// etcd's store.
const ETCD: &str = "/var/lib/etcd";

/// The API server's audit log.
pub const AUDIT: &str = "/var/log/kubernetes";

/// The storage of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// Memory: lost at power-off and written again at each boot.
    Memory,
    /// The scratch partition of this VM's system disk: survives a reboot, but not an image swap.
    Scratch,
    /// The data disk: survives an image swap.
    Data(Data),
}

/// How a path gets to the data disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// The data partition's root, or a directory that is used directly.
    Direct,
    /// This directory of the data partition is bind-mounted on the path.
    Bind {
        /// Its name below [`DATA`].
        directory: &'static str,
        /// Its permission bits.
        mode: u32,
    },
    /// In the identity slots, outside any file system.
    Identity,
}

/// A path that is written.
#[derive(Clone, Copy, Debug)]
pub struct WritablePath {
    /// The path. A directory includes everything below it that is not listed itself.
    pub path: &'static str,
    /// The storage.
    pub place: Storage,
    /// The content, and the reason for this storage.
    pub why: &'static str,
}

const fn bind(path: &'static str, directory: &'static str, mode: u32, why: &'static str) -> WritablePath {
    WritablePath { path, place: Storage::Data(Data::Bind { directory, mode }), why }
}

const fn kept(path: &'static str, place: Storage, why: &'static str) -> WritablePath {
    WritablePath { path, place, why }
}

/// All paths that are written on a node.
pub const TABLE: &[WritablePath] = &[
    kept(DATA, Storage::Data(Data::Direct), "the data partition"),
    kept(RECORDS, Storage::Data(Data::Direct), "the agent's records: configuration, secret, plan, state"),
    kept(SNAPSHOTS, Storage::Data(Data::Direct), "snapshots of the cluster's store, for root alone"),
    kept(
        TENANTS,
        Storage::Data(Data::Direct),
        "snapshots of tenants' stores from before their upgrades, on control-plane nodes of the control cluster, \
         for its controller alone",
    ),
    kept(SSH_HOST_KEYS, Storage::Data(Data::Direct), "SSH host keys: clients keep trusting the node after a swap"),
    kept(
        LOCAL_VOLUMES,
        Storage::Data(Data::Direct),
        "a worker's data disk, if it has one, mounted here: volumes of the class `local`",
    ),
    kept("/etc/machine-id", Storage::Data(Data::Identity), "the node's identity; laid before the system starts"),
    kept("/etc/hostname", Storage::Data(Data::Identity), "the node's name; laid before the system starts"),
    bind(ETCD, "etcd", 0o700, "the etcd member: all of the cluster's state"),
    bind("/etc/kubernetes", "kubernetes", 0o755, "certificate authorities, certificates and kubeconfigs of the node"),
    bind("/var/lib/kubelet/pki", "kubelet-pki", 0o700, "the kubelet's client and serving certificates"),
    bind(AUDIT, "audit", 0o700, "the audit log of the API server, on control-plane nodes"),
    kept("/etc", Storage::Memory, "an overlay over the image's /etc, written again at each boot from the data disk"),
    kept("/run", Storage::Memory, "sockets and state of this boot; /run/kaas is the agent's"),
    kept("/tmp", Storage::Memory, "temporary files"),
    kept("/var", Storage::Scratch, "logs and caches: nothing here has to outlive the VM"),
    kept("/var/lib/containerd", Storage::Scratch, "unpacked container images, laid again from the image after a swap"),
    kept("/var/lib/kubelet", Storage::Scratch, "pod directories and checkpoints of running pods"),
    kept("/var/lib/cni", Storage::Scratch, "what CNI plugins did for the pods that run here"),
    kept(
        KEPT,
        Storage::Scratch,
        "a worker's, in place of a data disk: what it needs until its VM is gone, mounted on /data",
    ),
    kept("/var/log", Storage::Scratch, "the journal and container logs, all capped"),
];

/// The bind mounts from the data partition: directory, mode and mount point, in the order in which they are mounted.
pub fn binds() -> impl Iterator<Item = (&'static str, u32, &'static str)> {
    TABLE.iter().filter_map(|written| match written.place {
        Storage::Data(Data::Bind { directory, mode }) => Some((directory, mode, written.path)),
        _ => None,
    })
}

/// The same for a worker, which has no etcd and no API server.
pub fn binds_of_workers() -> impl Iterator<Item = (&'static str, u32, &'static str)> {
    binds().filter(|(.., point)| ![ETCD, AUDIT].contains(point))
}

/// The table for the documentation.
pub fn markdown() -> String {
    let mut text = String::from("| Path | Kept | What for |\n| --- | --- | --- |\n");
    for written in TABLE {
        let place = match written.place {
            Storage::Memory => "memory".to_owned(),
            Storage::Scratch => "scratch (system disk)".to_owned(),
            Storage::Data(Data::Direct) => "data disk".to_owned(),
            Storage::Data(Data::Bind { directory, .. }) => format!("data disk, `{DATA}/{directory}`"),
            Storage::Data(Data::Identity) => "data disk, identity slots".to_owned(),
        };
        text.push_str(&format!("| `{}` | {place} | {} |\n", written.path, written.why));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn paths_and_directories_are_unique() {
        let paths: BTreeSet<_> = TABLE.iter().map(|written| written.path).collect();
        assert_eq!(paths.len(), TABLE.len());
        let directories: BTreeSet<_> = binds().map(|(directory, ..)| directory).collect();
        assert_eq!(directories.len(), binds().count());
        // A bind mount must not be hidden by a later one above it.
        let points: Vec<_> = binds().map(|(.., point)| point).collect();
        for (index, point) in points.iter().enumerate() {
            assert!(points[index + 1..].iter().all(|later| !point.starts_with(&format!("{later}/"))));
        }
    }

    #[test]
    fn the_documentation_names_place_and_directory() {
        let text = markdown();
        assert!(text.contains("| `/var/lib/etcd` | data disk, `/data/etcd` | the etcd member"), "{text}");
        assert_eq!(text.lines().count(), TABLE.len() + 2);
    }
}
