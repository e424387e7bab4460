//! The services that read credentials or settings of the site when they start. They must start again when those change.
//! Kubernetes' own services must also start again if their programs are of another minor version. The content with which
//! each was started is recorded in memory (`/run`).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::cluster::kubernetes::{PROGRAMS, containerd, kubelet, proxy};
use crate::cluster::pod_network;
use crate::host::files;
use crate::system;

const DIRECTORY: &str = "run/kaas/credentials";

/// A unit and the files of its start. Static pods are handled differently: see
/// [`crate::cluster::kubernetes::kubeadm::marks`].
struct Reader {
    unit: &'static str,
    /// Files that it reads at its start.
    credentials: &'static [&'static str],
    /// Further files that it reads at its start, if the node has them.
    optional: &'static [&'static str],
    is_kubernetes: bool,
}

const READERS: [Reader; 4] = [
    Reader {
        unit: containerd::UNIT,
        credentials: &[],
        optional: &[system::trust::BUNDLE, system::proxy::FILE],
        is_kubernetes: false,
    },
    Reader {
        unit: kubelet::UNIT,
        credentials: &[kubelet::KUBECONFIG],
        // A worker's kubelet requests its own from the cluster.
        optional: &["/var/lib/kubelet/pki/kubelet.crt"],
        is_kubernetes: true,
    },
    Reader { unit: proxy::UNIT, credentials: &[proxy::KUBECONFIG], optional: &[], is_kubernetes: true },
    Reader { unit: pod_network::UNIT, credentials: &[pod_network::KUBECONFIG], optional: &[], is_kubernetes: false },
];

pub fn units() -> impl Iterator<Item = &'static str> {
    READERS.iter().map(|reader| reader.unit)
}

/// Whether a unit's credentials differ from those of its last start since power-on. True if it was not started at all.
pub fn needs_restart(root: &Path, unit: &str) -> io::Result<bool> {
    let present = digest(root, unit)?;
    Ok(fs::read(note_of(root, unit)).map_or(true, |noted| noted != present))
}

pub fn mark_restarted(root: &Path, unit: &str) -> io::Result<()> {
    files::ensure_content(&note_of(root, unit), &digest(root, unit)?, 0o600).map(drop)
}

fn note_of(root: &Path, unit: &str) -> PathBuf {
    root.join(DIRECTORY).join(unit)
}

fn digest(root: &Path, unit: &str) -> io::Result<Vec<u8>> {
    let mut hash = Sha256::new();
    for reader in READERS.iter().filter(|reader| reader.unit == unit) {
        if reader.is_kubernetes
            && let Ok(programs) = fs::read_link(files::below(root, PROGRAMS))
        {
            hash.update(programs.as_os_str().as_encoded_bytes());
        }
        for path in reader.credentials {
            hash.update(fs::read(files::below(root, path))?);
        }
        for path in reader.optional {
            match fs::read(files::below(root, path)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                content => {
                    hash.update(path);
                    hash.update(content?);
                }
            }
        }
    }
    Ok(hash.finalize().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_needs_restart_until_it_has_present_credentials() {
        let root = tempfile::tempdir().unwrap();
        let kubeconfig = files::below(root.path(), proxy::KUBECONFIG);
        assert!(needs_restart(root.path(), proxy::UNIT).is_err(), "no credentials yet");
        files::write_atomically(&kubeconfig, b"first", 0o600).unwrap();
        assert!(needs_restart(root.path(), proxy::UNIT).unwrap());
        mark_restarted(root.path(), proxy::UNIT).unwrap();
        assert!(!needs_restart(root.path(), proxy::UNIT).unwrap());
        files::write_atomically(&kubeconfig, b"second", 0o600).unwrap();
        assert!(needs_restart(root.path(), proxy::UNIT).unwrap());
        assert_eq!(units().count(), 4);
    }
}
