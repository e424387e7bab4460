//! The TCP ports of a control node that others reach it at.

/// The Kubernetes API, on each control node and on the virtual address.
pub const API: u16 = 6443;

/// The node's endpoint: status, metrics, swaps.
pub const NODE: u16 = 9441;
