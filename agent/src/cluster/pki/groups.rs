//! The groups (organizations) in client certificates that give rights on a node's endpoint.

pub const MONITORING: &str = "kaas:monitoring";

/// The groups of administrators' certificates: kubeadm's, bound to the role `cluster-admin`, and the one that the API
/// server itself knows.
pub const ADMINISTRATORS: [&str; 2] = ["kubeadm:cluster-admins", "system:masters"];
