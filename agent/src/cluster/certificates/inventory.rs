//! All certificates of a node, and when each expires.

use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cluster::kubernetes::{api, kubelet, proxy};
use crate::cluster::pki;
use crate::cluster::pod_network;
use crate::host::files;

/// In seconds.
const DAY: i64 = 24 * 60 * 60;

/// A certificate, as monitoring and administrators see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Certificate {
    /// A stable name: kubeadm's, if kubeadm has one.
    pub name: String,
    /// The end of its validity, in seconds since 1970 (UTC).
    pub ends: i64,
    /// The start of its validity, in seconds since 1970 (UTC).
    pub begins: i64,
}

impl Certificate {
    /// Whole days from `now` until it expires. Negative once it has expired.
    pub fn days_left(&self, now: SystemTime) -> i64 {
        let now = now.duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX));
        self.ends.saturating_sub(now).div_euclid(DAY)
    }

    pub fn is_early(&self, now: SystemTime) -> bool {
        let now = now.duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX));
        self.begins > now
    }

    /// The end in words, such as `ends in 20 days`.
    pub fn end(&self, now: SystemTime) -> String {
        match self.days_left(now) {
            -1 => "ended less than a day ago".to_owned(),
            days if days < 0 => format!("ended {} days ago", -1 - days),
            0 => "ends within a day".to_owned(),
            days => format!("ends in {days} days"),
        }
    }
}

/// Names and files: certificates in PEM, and kubeconfigs that hold one.
const PLACES: &[(&str, &str)] = &[
    ("ca", "/etc/kubernetes/pki/ca.crt"),
    ("front-proxy-ca", "/etc/kubernetes/pki/front-proxy-ca.crt"),
    ("etcd-ca", "/etc/kubernetes/pki/etcd/ca.crt"),
    ("etcd-server", "/etc/kubernetes/pki/etcd/server.crt"),
    ("etcd-peer", "/etc/kubernetes/pki/etcd/peer.crt"),
    ("etcd-healthcheck-client", "/etc/kubernetes/pki/etcd/healthcheck-client.crt"),
    ("apiserver", "/etc/kubernetes/pki/apiserver.crt"),
    ("apiserver-etcd-client", "/etc/kubernetes/pki/apiserver-etcd-client.crt"),
    ("apiserver-kubelet-client", "/etc/kubernetes/pki/apiserver-kubelet-client.crt"),
    ("front-proxy-client", "/etc/kubernetes/pki/front-proxy-client.crt"),
    ("admin.conf", "/etc/kubernetes/admin.conf"),
    ("controller-manager.conf", "/etc/kubernetes/controller-manager.conf"),
    ("scheduler.conf", "/etc/kubernetes/scheduler.conf"),
    ("kubelet.conf", kubelet::KUBECONFIG),
    ("kubelet-serving", "/var/lib/kubelet/pki/kubelet.crt"),
    (KUBELETS[0], kubelet::CLIENT),
    (KUBELETS[1], "/var/lib/kubelet/pki/kubelet-server-current.pem"),
    ("kaas-agent.conf", api::KUBECONFIG),
    ("kube-proxy.conf", proxy::KUBECONFIG),
    ("pod-network.conf", pod_network::KUBECONFIG),
    (API, "/etc/kubernetes/pki/kaas-api.pem"),
    ("kaas-endpoint", "/etc/kubernetes/pki/kaas-endpoint.crt"),
];

/// The certificates that the kubelet gets from the cluster: the second one on workers only.
const KUBELETS: [&str; 2] = ["kubelet-client", "kubelet-server"];

/// The name of the operator's own certificate of the API. The operator renews it.
pub const API: &str = "api";

/// The names of the CAs. They are not renewed.
pub const CA_NAMES: [&str; 3] = ["ca", "front-proxy-ca", "etcd-ca"];

/// Whether the agent renews the certificate of this name. The kubelet renews its rotating ones itself, and starts from
/// `kubelet.conf` if its client certificate has expired.
pub(super) fn is_ours(name: &str) -> bool {
    !CA_NAMES.contains(&name) && name != API && !KUBELETS.contains(&name)
}

pub(super) fn ours() -> impl Iterator<Item = &'static str> {
    PLACES.iter().filter(|(name, _)| is_ours(name)).map(|(_, path)| *path)
}

/// The certificates of `root` that exist and can be read, in a fixed order.
pub fn inventory(root: &Path) -> Vec<Certificate> {
    let read = |(name, path): &(&str, &str)| {
        let text = fs::read_to_string(files::below(root, path)).ok()?;
        let own = pki::validity(&text);
        let (begins, ends) =
            own.or_else(|_| pki::embedded(&text).and_then(|pair| pki::validity(&pair.certificate))).ok()?;
        let seconds = |time: SystemTime| i64::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_secs()).ok();
        Some(Certificate { name: (*name).to_owned(), ends: seconds(ends)?, begins: seconds(begins)? })
    };
    PLACES.iter().filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::cluster::kubernetes::kubelet;
    use crate::cluster::pki::CertificateAuthorities;
    use crate::node::endpoint;

    #[test]
    fn inventory_lists_valid_certificates_with_their_end() {
        let root = tempfile::tempdir().unwrap();
        let now = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        assert_eq!(inventory(root.path()), []);
        let authorities = CertificateAuthorities::make(now).unwrap();
        authorities.ensure(&root.path().join("etc/kubernetes/pki")).unwrap();
        let kubeconfig = files::below(root.path(), api::KUBECONFIG);
        pki::ensure_kubeconfig(&kubeconfig, "https://10.0.0.11:6443", &api::leaf(), &authorities, now).unwrap();
        fs::write(root.path().join("etc/kubernetes/admin.conf"), "").unwrap();
        let listed = inventory(root.path());
        let names: Vec<&str> = listed.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["ca", "front-proxy-ca", "etcd-ca", "kaas-agent.conf"]);
        assert_eq!(listed[0].ends, 1_800_000_000 + 3650 * 86_400);
        assert_eq!(listed[3].ends, 1_800_000_000 + 365 * 86_400);
        assert_eq!((listed[3].begins, listed[3].is_early(now)), (listed[0].begins, false));
        assert!(listed[3].is_early(now - Duration::from_secs(400 * 86_400)));
    }

    #[test]
    fn end_is_described_in_days() {
        let now = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let end = |seconds: i64| Certificate { name: "ca".into(), ends: 1_800_000_000 + seconds, begins: 0 }.end(now);
        assert_eq!(end(3 * DAY + 1), "ends in 3 days");
        assert_eq!(end(DAY - 1), "ends within a day");
        assert_eq!(end(-1), "ended less than a day ago");
        assert_eq!(end(-DAY - 1), "ended 1 days ago");
    }

    #[test]
    fn table_has_the_files_of_other_modules() {
        for base in [kubelet::SERVING, endpoint::CERTIFICATE] {
            assert!(PLACES.iter().any(|(_, path)| *path == format!("{base}.crt")), "{base}");
        }
        assert!(PLACES.iter().all(|(_, path)| path.starts_with('/')));
    }
}
