//! The list of namespaces with clusters: a ConfigMap. The policy `namespace-in-use` reads it, and refuses to delete these
//! namespaces. Each cluster has an entry, so one cluster's entry is written without reading the others.
//!
//! The entry exists before the cluster's first key, until only the object itself is left. While the ConfigMap is missing, the
//! policy refuses to delete any namespace. The controller therefore creates it with the entries of all clusters.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use serde_json::{Value, json};

use super::failure::Failure;
use super::kinds;
use super::objects::{Collection, Objects, lacks_kind};
use crate::decisions::{NAMESPACES_IN_USE, namespace_entry};
use crate::objects::{NodePool, SYSTEM, TenantCluster};

const DESCRIPTION: &str = "The namespaces with tenant clusters, each as NAMESPACE.UID of a cluster with the cluster's name. The policy \
                           namespace-in-use.kaas.local refuses to delete them. The controller writes this list.";

type Entries = BTreeMap<String, String>;

/// Adds the entry of a cluster.
///
/// # Errors
/// [`Failure::Exists`] if another writer has just created the ConfigMap.
pub async fn add_used_namespace(objects: &dyn Objects, cluster: &TenantCluster) -> Result<(), Failure> {
    match write_entry(objects, cluster, &json!(cluster.name_any())).await {
        Err(Failure::Missing) => correct_used_namespaces(objects).await,
        written => written,
    }
}

/// Removes the entry of a cluster of which only the object is left. A former release knows no list.
pub async fn remove_used_namespace(objects: &dyn Objects, cluster: &TenantCluster) -> Result<(), Failure> {
    match write_entry(objects, cluster, &Value::Null).await {
        Err(Failure::Missing) => Ok(()),
        Err(failure) if lacks_kind(objects, &failure) => Ok(()),
        written => written,
    }
}

async fn write_entry(objects: &dyn Objects, cluster: &TenantCluster, name: &Value) -> Result<(), Failure> {
    let key = namespace_entry(cluster);
    let part = json!({"data": {key: name}});
    objects.patch(&Collection::of::<ConfigMap>(Some(SYSTEM)), NAMESPACES_IN_USE, &part).await.map(drop)
}

/// Adds missing entries, and removes those of clusters that do not exist. Creates the ConfigMap if it is missing.
///
/// # Errors
/// [`Failure::Changed`] or [`Failure::Exists`] if another writer changed or created the ConfigMap meanwhile.
pub async fn correct_used_namespaces(objects: &dyn Objects) -> Result<(), Failure> {
    // It is read before the clusters. So the cluster of each entry was created before the list of clusters.
    let found = kinds::find::<ConfigMap>(objects, Some(SYSTEM), NAMESPACES_IN_USE).await?;
    let clusters = kinds::list_tolerant::<TenantCluster>(objects, None, None).await?.all();
    let pools = kinds::list_tolerant::<NodePool>(objects, None, None).await?.all();
    let Some(found) = found else {
        let annotations = BTreeMap::from([("kubernetes.io/description".to_owned(), DESCRIPTION.to_owned())]);
        let metadata = ObjectMeta {
            name: Some(NAMESPACES_IN_USE.to_owned()),
            namespace: Some(SYSTEM.to_owned()),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        };
        let data = Some(entries(&clusters, &pools, &Entries::new()));
        return kinds::create(objects, &ConfigMap { metadata, data, ..ConfigMap::default() }).await.map(drop);
    };
    let before = found.data.unwrap_or_default();
    let now = entries(&clusters, &pools, &before);
    let removed = before.keys().filter(|key| !now.contains_key(*key)).map(|key| (key, None));
    let added = now.iter().filter(|(key, _)| !before.contains_key(*key)).map(|(key, name)| (key, Some(name)));
    let changes: BTreeMap<&String, Option<&String>> = removed.chain(added).collect();
    if changes.is_empty() {
        return Ok(());
    }
    let part = json!({"metadata": {"resourceVersion": found.metadata.resource_version}, "data": changes});
    objects.patch(&Collection::of::<ConfigMap>(Some(SYSTEM)), NAMESPACES_IN_USE, &part).await.map(drop)
}

/// The entries of all clusters. If the finalizer of a cluster was removed by hand, its NodePools may be left with VMs: the entry
/// stays until they are gone.
fn entries(clusters: &[TenantCluster], pools: &[NodePool], before: &Entries) -> Entries {
    let own = clusters.iter().map(|cluster| (namespace_entry(cluster), cluster.name_any()));
    let has_pool = |key: &str, name: &str| {
        let namespace = key.split('.').next();
        pools.iter().any(|pool| pool.metadata.namespace.as_deref() == namespace && pool.spec.cluster_ref.name == name)
    };
    let left = before.iter().filter(|(key, name)| has_pool(key.as_str(), name.as_str()));
    own.chain(left.map(|(key, name)| (key.clone(), name.clone()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decisions::fixture::cluster;
    use crate::objects::NodePoolSpec;
    use crate::reach::in_memory::{Fault, InMemory};

    fn named(name: &str, namespace: &str) -> TenantCluster {
        let mut cluster = cluster();
        cluster.metadata.name = Some(name.to_owned());
        cluster.metadata.namespace = Some(namespace.to_owned());
        cluster.metadata.uid = Some(format!("uid-of-{name}"));
        cluster
    }

    fn listed(api: &InMemory) -> Vec<String> {
        let list = api.read::<ConfigMap>(Some(SYSTEM), NAMESPACES_IN_USE).unwrap();
        list.data.unwrap_or_default().into_keys().collect()
    }

    #[tokio::test]
    async fn missing_list_is_created_with_all_clusters() {
        let api = InMemory::default();
        let (shop, bank) = (named("shop", "team-blue"), named("bank", "team-red"));
        api.put(&shop);
        api.put(&bank);
        add_used_namespace(&api, &shop).await.unwrap();
        assert_eq!(listed(&api), ["team-blue.uid-of-shop", "team-red.uid-of-bank"]);
        remove_used_namespace(&api, &shop).await.unwrap();
        assert_eq!(listed(&api), ["team-red.uid-of-bank"]);
        add_used_namespace(&api, &shop).await.unwrap();
        assert_eq!(listed(&api).len(), 2);
        api.remove::<ConfigMap>(Some(SYSTEM), NAMESPACES_IN_USE);
        remove_used_namespace(&api, &shop).await.unwrap();
        assert!(api.names("configmaps").is_empty(), "an empty list would permit the deletion of all namespaces");
    }

    #[tokio::test]
    async fn corrections_follow_clusters_and_their_pools() {
        let api = InMemory::default();
        api.put(&named("shop", "team-blue"));
        correct_used_namespaces(&api).await.unwrap();
        api.put(&named("bank", "team-red"));
        correct_used_namespaces(&api).await.unwrap();
        assert_eq!(listed(&api), ["team-blue.uid-of-shop", "team-red.uid-of-bank"], "of an earlier version");
        let spec = json!({"clusterRef": {"name": "bank"}, "vmClass": "medium"});
        let mut pool = NodePool::new("bank-general", serde_json::from_value::<NodePoolSpec>(spec).unwrap());
        pool.metadata.namespace = Some("team-red".to_owned());
        api.put(&pool);
        // Finalizers were removed by hand.
        api.remove::<TenantCluster>(Some("team-blue"), "shop");
        api.remove::<TenantCluster>(Some("team-red"), "bank");
        correct_used_namespaces(&api).await.unwrap();
        assert_eq!(listed(&api), ["team-red.uid-of-bank"], "its pool may have VMs");
        api.remove::<NodePool>(Some("team-red"), "bank-general");
        correct_used_namespaces(&api).await.unwrap();
        assert_eq!(listed(&api), [""; 0]);
    }

    /// The correction reads before it writes, so it must not remove an entry that was added meanwhile.
    #[tokio::test]
    async fn correction_of_a_changed_list_fails() {
        let api = InMemory::default();
        correct_used_namespaces(&api).await.unwrap();
        api.put(&named("shop", "team-blue"));
        api.fails_at(3, Fault::Changed);
        assert!(matches!(correct_used_namespaces(&api).await, Err(Failure::Changed)));
        correct_used_namespaces(&api).await.unwrap();
        assert_eq!(listed(&api), ["team-blue.uid-of-shop"]);
    }
}
