//! How what the controller makes for a cluster is known as its own: labels, owners, finalizers, names of Secrets.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::objects::{GROUP, TenantCluster, VERSION};

/// The label by which a cluster's objects are found.
pub const CLUSTER: &str = "kaas.local/cluster";
/// The label by which a NodePool's Machines are found.
pub const NODE_POOL: &str = "kaas.local/pool";
/// Keeps a NodePool until its workers are gone.
pub const POOL_FINALIZER: &str = "kaas.local/pool";
/// Keeps a TenantCluster until nothing of it is left.
pub const CLUSTER_FINALIZER: &str = "kaas.local/cluster";
/// Keeps a Machine until its VM is proved gone.
pub const MACHINE_FINALIZER: &str = "kaas.local/machine";

/// A cluster as the owner of what is made for it.
pub fn owner(cluster: &TenantCluster) -> OwnerReference {
    OwnerReference {
        api_version: format!("{GROUP}/{VERSION}"),
        kind: "TenantCluster".to_owned(),
        name: cluster.metadata.name.clone().unwrap_or_default(),
        uid: cluster.metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// The name of the Secret with a cluster's kubeconfig, as Cluster API has it.
pub fn kubeconfig_secret(cluster: &str) -> String {
    format!("{cluster}-kubeconfig")
}

/// The name of the Secret with what nodes prove themselves with.
pub fn keys_secret(cluster: &str) -> String {
    format!("{cluster}-deployer")
}
