//! Kubernetes' own parts on a node: their configurations, and how kubeadm makes certificates and manifests.
//!
//! kubeadm's phases are run one by one, the same on each node. A node that has the CAs signs its own certificates.
//! Therefore no other node is needed, no token expires, and each phase can be run again after a power cut.

pub(in crate::cluster) mod addresses;
pub mod answer;
pub mod api;
pub mod api_server;
pub mod approval;
pub mod containerd;
#[cfg(test)]
pub(crate) mod fake_api;
pub mod kubeadm;
pub mod kubelet;
mod network_policies;
pub mod objects;
pub(in crate::cluster) mod pages;
pub mod pods;
pub mod proxy;
pub mod registration;
pub mod rollout;
pub mod sandboxes;
pub mod upgrade;

/// Go's names of the suites of TLS 1.2 with forward secrecy. Those of TLS 1.3 cannot be chosen.
pub const CIPHER_SUITES: [&str; 6] = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
];

/// The programs of this cluster's minor version: a link that is created at each boot.
pub const PROGRAMS: &str = "/run/kaas/kubernetes";
/// The image's programs of all minor versions.
pub const MINORS: &str = "/usr/lib/kubernetes";
/// Certificates, keys and kubeconfigs. A directory of the data disk is mounted there.
pub const DIRECTORY: &str = "/etc/kubernetes";
pub const PKI: &str = "/etc/kubernetes/pki";
/// The certificate of the cluster's CA, which all nodes have.
pub const CA_CERTIFICATE: &str = "/etc/kubernetes/pki/ca.crt";
/// The manifests of the static pods, made again at each boot.
pub const MANIFESTS: &str = "/etc/kubernetes/manifests";
/// A kubeconfig of the administrators' group, for this node's own use: a binding gives it its rights.
pub const ADMINISTRATOR: &str = "/etc/kubernetes/admin.conf";
/// A kubeconfig of the group `system:masters`, which no rules bind. It exists while the cluster gets its first rights.
pub const SUPER_ADMINISTRATOR: &str = "/etc/kubernetes/super-admin.conf";
pub const RUNTIME: &str = "unix:///run/containerd/containerd.sock";
pub const NODES: &str = "system:nodes";
/// The DNS domain of services.
pub const DOMAIN: &str = "cluster.local";
/// The directory of volume plugins. The usual one is below the read-only /usr.
pub const VOLUME_PLUGINS: &str = "/var/lib/kubelet/volume-plugins";

#[cfg(test)]
mod tests;
