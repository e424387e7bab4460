//! What a snapshot of a cluster's store is called that is kept before the cluster is changed. Who goes on finds it by that, and so does
//! whoever judges whether it is still needed.

use uuid::Uuid;

/// Before a swap of control nodes, by the name of its plan.
pub fn before_swap(plan: Uuid) -> String {
    format!("before-{plan}.db")
}

/// Before Kubernetes is raised to this minor.
pub fn before_kubernetes(to: &str) -> String {
    format!("before-kubernetes-{to}.db")
}
