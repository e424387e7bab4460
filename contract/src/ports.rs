//! The TCP ports of a control node.

/// The Kubernetes API, on each control node and on the virtual address.
pub const API: u16 = 6443;

/// The node's endpoint: status, metrics, swaps.
pub const NODE: u16 = 9441;

/// etcd, for its clients.
pub const ETCD_CLIENT: u16 = 2379;

/// etcd, for its other members.
pub const ETCD_PEER: u16 = 2380;

/// etcd's health without a client certificate, on loopback alone.
pub const ETCD_METRICS: u16 = 2381;

/// The rendezvous, until the cluster is complete.
pub const RENDEZVOUS: u16 = 9443;

/// The kubelet, for the Kubernetes API.
pub const KUBELET: u16 = 10250;

/// The kubelet's health, on loopback alone.
pub const KUBELET_HEALTH: u16 = 10248;

/// kube-proxy's health, on loopback alone.
pub const PROXY_HEALTH: u16 = 10256;

/// kube-proxy's metrics, on loopback alone.
pub const PROXY_METRICS: u16 = 10249;
