//! Configures the API server beyond kubeadm's choice: admission, anonymous requests, the audit log and the encryption of Secrets.
//! Makes its arguments, and names the paths of the host that its pod sees.

pub mod admission;
pub mod audit;
pub mod authentication;
pub mod encryption_configuration;

use std::io;
use std::path::Path;

use contract::pod_security::PodSecurity;
use serde_json::{Value, json};

use crate::host::files;

/// The directory of the configurations of admission and authentication, and of the audit policy.
const DIRECTORY: &str = "/run/kaas/kube-apiserver";

/// Lays the configurations of admission and authentication, and the audit policy. Says whether one changed. The API server
/// reads them when it starts.
///
/// # Errors
/// The file system's; laying again completes it.
pub fn lay(root: &Path, level: PodSecurity) -> io::Result<bool> {
    let mut changed = false;
    for (path, content) in [
        (admission::CONFIGURATION, admission::configuration(level)),
        (authentication::CONFIGURATION, authentication::configuration()),
        (audit::POLICY, audit::policy()),
    ] {
        changed |= files::ensure_content(&files::below(root, path), format!("{content:#}\n").as_bytes(), 0o600)?;
    }
    Ok(changed)
}

/// All arguments: names and values.
pub fn arguments() -> Vec<(&'static str, String)> {
    let encryption = encryption_configuration::arguments();
    [admission::arguments(), authentication::arguments(), audit::arguments(), encryption].concat()
}

/// The mounts of the host's directories for these (`HostPathMount` of `kubeadm.k8s.io/v1beta4`).
pub fn volumes() -> Value {
    json!([
        {"name": "kaas-policy", "hostPath": DIRECTORY, "mountPath": DIRECTORY, "readOnly": true, "pathType": "Directory"},
        {"name": "kaas-audit", "hostPath": audit::LOGS, "mountPath": audit::LOGS, "pathType": "Directory"},
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::kubernetes::PKI;
    use std::fs;

    #[test]
    fn the_level_is_enforced_outside_kube_system() {
        let root = tempfile::tempdir().unwrap();
        assert!(lay(root.path(), PodSecurity::Baseline).unwrap());
        assert!(!lay(root.path(), PodSecurity::Baseline).unwrap());
        let read = || -> Value {
            serde_json::from_slice(&fs::read(files::below(root.path(), admission::CONFIGURATION)).unwrap()).unwrap()
        };
        let configuration = &read()["plugins"][0]["configuration"];
        assert_eq!(configuration["defaults"]["enforce"], "baseline");
        assert_eq!(configuration["exemptions"]["namespaces"], json!(["kube-system"]));
        assert!(lay(root.path(), PodSecurity::Restricted).unwrap());
        assert_eq!(read()["plugins"][0]["configuration"]["defaults"]["enforce"], "restricted");

        let arguments = arguments();
        let number =
            |name: &str| -> u32 { arguments.iter().find(|(known, _)| *known == name).unwrap().1.parse().unwrap() };
        // Zero would mean "without a limit".
        assert!((1..=200).contains(&number("audit-log-maxsize")));
        assert!(number("audit-log-maxage") > 0 && number("audit-log-maxbackup") > 0);
        // Each file that is named is below a directory that the pod sees.
        for (name, path) in arguments.iter().filter(|(_, value)| value.starts_with('/') && !value.starts_with(PKI)) {
            let seen = |volume: &Value| path.starts_with(volume["mountPath"].as_str().unwrap());
            assert!(volumes().as_array().unwrap().iter().any(seen), "{name}: {path}");
        }
    }
}
