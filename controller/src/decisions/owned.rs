//! Labels, owners, finalizers and Secret names that mark a cluster's objects as the controller's own.

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;

use crate::objects::{
    GROUP, Operation, OperationKind, OperationSpec, PlannedStep, Reference, SYSTEM, TenantCluster, VERSION,
};

/// The label of a cluster's objects. They are found by it.
pub const CLUSTER: &str = "kaas.local/cluster";
/// The field of NodePools and Operations by which those of a cluster are found. It cannot change, while labels can be edited.
pub const CLUSTER_REF: &str = ".spec.clusterRef.name";
/// The label of a NodePool's Machines. They are found by it.
pub const NODE_POOL: &str = "kaas.local/pool";
/// Keeps a NodePool until its workers are deleted.
pub const POOL_FINALIZER: &str = "kaas.local/pool";
/// Keeps a TenantCluster until all its parts are deleted.
pub const CLUSTER_FINALIZER: &str = "kaas.local/cluster";
/// Keeps a Machine until its VM is proved deleted.
pub const MACHINE_FINALIZER: &str = "kaas.local/machine";

/// The ConfigMap of `kaas-system` that lists the namespaces with clusters. The policy `namespace-in-use` reads it.
pub const NAMESPACES_IN_USE: &str = "kaas-namespaces-in-use";

/// The key of a cluster in [`NAMESPACES_IN_USE`]: its namespace, a dot, and its UID. The name of a namespace has no dot.
pub fn namespace_entry(cluster: &TenantCluster) -> String {
    format!("{}.{}", cluster.namespace().unwrap_or_default(), cluster.uid().unwrap_or_default())
}

/// An Operation of a cluster, without images, sizes and versions.
pub fn operation_of(cluster: &TenantCluster, name: &str, kind: OperationKind, steps: Vec<PlannedStep>) -> Operation {
    let spec = OperationSpec {
        cluster_ref: Reference::to(cluster.name_any()),
        kind,
        from_image: None,
        to_image: None,
        from_size: None,
        to_size: None,
        to_class: None,
        from_version: None,
        to_version: None,
        cluster_generation: cluster.metadata.generation.unwrap_or(1),
        steps,
        plan: None,
    };
    let mut operation = Operation::new(name, spec);
    operation.metadata.namespace = cluster.namespace();
    operation.metadata.labels = Some([(CLUSTER.to_owned(), cluster.name_any())].into());
    operation
}

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

/// The name of the Secret with a cluster's kubeconfig. Cluster API uses the same name.
pub fn kubeconfig_secret(cluster: &str) -> String {
    format!("{cluster}-kubeconfig")
}

/// The name of the Secret in `kaas-system` with a cluster's keys: its UID, which no later cluster has.
pub fn keys_secret(cluster: &TenantCluster) -> String {
    cluster.metadata.uid.clone().unwrap_or_default()
}

/// The name of the Secret in the cluster's namespace in which earlier versions kept its keys.
pub fn former_keys_secret(cluster: &str) -> String {
    format!("{cluster}-deployer")
}

/// The type of the Secret with a cluster's kubeconfig. Cluster API uses the same type.
pub const KUBECONFIG_TYPE: &str = "cluster.x-k8s.io/secret";
/// The type of the Secret with a cluster's keys. The policy `controller-secrets` allows it.
pub const KEYS_TYPE: &str = "kaas.local/cluster-keys";
/// The type of the Secret in which earlier versions kept a cluster's keys.
pub const FORMER_KEYS_TYPE: &str = "Opaque";
/// The type of Secrets that a spec names. Kubernetes lets no client change the type of a Secret.
pub const INPUT_TYPE: &str = "kaas.local/cluster-input";

/// Whether a Secret has a cluster's keys.
pub fn is_keys_secret(secret: &Secret, cluster: &TenantCluster) -> bool {
    secret.namespace().as_deref() == Some(SYSTEM)
        && secret.name_any() == keys_secret(cluster)
        && secret.type_.as_deref() == Some(KEYS_TYPE)
}

/// Whether a Secret in the cluster's namespace was created for this cluster. A former cluster of the same name or a user may have
/// created another one. The policy `controller-secrets` forbids a controller to change such a Secret too.
pub fn is_own_secret(secret: &Secret, cluster: &TenantCluster) -> bool {
    let (name, group) = (cluster.name_any(), format!("{GROUP}/"));
    let is_cluster = |owner: &OwnerReference| {
        Some(&owner.uid) == cluster.metadata.uid.as_ref()
            && (owner.kind.as_str(), &owner.name) == ("TenantCluster", &name)
            && owner.api_version.starts_with(&group)
    };
    let types = [(former_keys_secret(&name), FORMER_KEYS_TYPE), (kubeconfig_secret(&name), KUBECONFIG_TYPE)];
    let is_of_type =
        |(name, type_): (String, &str)| secret.name_any() == name && secret.type_.as_deref() == Some(type_);
    secret.owner_references().iter().any(is_cluster) && types.into_iter().any(is_of_type)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decisions::fixture::cluster;

    #[test]
    fn own_secret_needs_owner_name_and_type() {
        let cluster = cluster();
        let own = || {
            let mut secret = Secret { type_: Some(FORMER_KEYS_TYPE.to_owned()), ..Secret::default() };
            secret.metadata.name = Some("shop-deployer".to_owned());
            secret.metadata.owner_references = Some(vec![owner(&cluster)]);
            secret
        };
        assert!(is_own_secret(&own(), &cluster));
        let with = |change: &dyn Fn(&mut Secret)| {
            let mut secret = own();
            change(&mut secret);
            is_own_secret(&secret, &cluster)
        };
        let owned = |change: fn(&mut OwnerReference)| {
            with(&|secret| secret.metadata.owner_references.iter_mut().flatten().for_each(change))
        };
        assert!(!with(&|secret| secret.metadata.owner_references = None));
        assert!(!with(&|secret| secret.metadata.name = Some("shop-kubeconfig".to_owned())), "it is of another type");
        assert!(!with(&|secret| secret.metadata.name = Some("bank-deployer".to_owned())));
        assert!(!with(&|secret| secret.type_ = Some("kubernetes.io/service-account-token".to_owned())));
        assert!(!owned(|owner| owner.uid = "another one".to_owned()));
        assert!(!owned(|owner| owner.kind = "NodePool".to_owned()));
        assert!(!owned(|owner| owner.name = "bank".to_owned()));
        assert!(!owned(|owner| owner.api_version = "v1".to_owned()));
    }
}
