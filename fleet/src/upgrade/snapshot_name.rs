//! The name of a snapshot of a cluster's store that is kept before the cluster is changed. A continued run finds it by
//! that, and so does the check whether it is still needed.

use uuid::Uuid;

/// Before a swap of control-plane nodes, by the name of its plan.
pub fn before_swap(plan: Uuid) -> String {
    format!("before-{plan}.db")
}

/// Before Kubernetes is raised to this minor version.
pub fn before_kubernetes(to: &str) -> String {
    format!("before-kubernetes-{to}.db")
}
