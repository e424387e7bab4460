//! Kubernetes' own parts on a node: what each of them is told, and
//! how kubeadm makes certificates and manifests.
//!
//! kubeadm's phases are run one by one, the same on each node: a node that
//! holds the authorities signs its own certificates, so that nothing has to be
//! asked of another node, no token expires, and each phase can be run again
//! after a power cut.

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

/// Go's names of the suites of TLS 1.2 that keep former sessions secret; those of TLS 1.3 cannot be chosen.
pub const CIPHER_SUITES: [&str; 6] = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
];

/// The programs of this cluster's minor: a link that is laid at each boot.
pub const PROGRAMS: &str = "/run/kaas/kubernetes";
/// Where the image keeps the programs of all its minors.
pub const MINORS: &str = "/usr/lib/kubernetes";
/// Certificates, keys and kubeconfigs: a directory of the data disk is mounted there.
pub const DIRECTORY: &str = "/etc/kubernetes";
/// The cluster's certificates and keys.
pub const PKI: &str = "/etc/kubernetes/pki";
/// The certificate of the cluster's authority, which all nodes have.
pub const CA_CERTIFICATE: &str = "/etc/kubernetes/pki/ca.crt";
/// The manifests of the static pods, made again at each boot.
pub const MANIFESTS: &str = "/etc/kubernetes/manifests";
/// A kubeconfig of the administrators' group, for this node's own use: a binding gives it its rights.
pub const ADMINISTRATOR: &str = "/etc/kubernetes/admin.conf";
/// A kubeconfig of the group `system:masters`, which no access rules bind: there while the cluster gets its first rights.
pub const SUPER_ADMINISTRATOR: &str = "/etc/kubernetes/super-admin.conf";
/// The container runtime's socket.
pub const RUNTIME: &str = "unix:///run/containerd/containerd.sock";
/// The group of nodes.
pub const NODES: &str = "system:nodes";
/// The DNS domain of services.
pub const DOMAIN: &str = "cluster.local";
/// Where volume plugins are looked for: the usual place is below the read-only /usr.
pub const VOLUME_PLUGINS: &str = "/var/lib/kubelet/volume-plugins";

#[cfg(test)]
mod tests;
