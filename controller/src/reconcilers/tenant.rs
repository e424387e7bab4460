//! `Tenant`: records which namespaces it holds, and reports what is missing. A Tenant with clusters is not deleted: its networks
//! would be open to others.

use std::sync::Arc;

use kube::ResourceExt;
use kube::runtime::controller::Action;

use super::{IN_USE, NOW_AND_THEN, tenants, tolerant};
use crate::context::{Attempt, Context, ReconcileError};
use crate::decisions::{joined, tenant_of};
use crate::objects::{IPPool, NodeImage, Provider, Tenant, TenantCluster, TenantReason, TenantStatus, VMClass, set};
use crate::reach::kinds::full_name;
use crate::reach::{Objects, kinds};

/// Adds the finalizer and writes the status. Removes the finalizer once no cluster is in the Tenant's namespaces.
///
/// # Errors
/// A call to the API server failed.
pub async fn reconcile(tenant: Arc<Tenant>, context: Arc<Context>) -> Result<Action, ReconcileError> {
    let objects = &*context.objects;
    let is_leaving = tenant.metadata.deletion_timestamp.is_some();
    if !is_leaving && kinds::add_finalizer(objects, &*tenant, IN_USE).await.attempting("keeping the Tenant")? {
        // The write reconciles it again.
        return Ok(Action::await_change());
    }
    let all = tenants(objects).await?;
    let is_own =
        |namespace: &str| tenant_of(&all, namespace).is_some_and(|own| own.metadata.uid == tenant.metadata.uid);
    let (held, taken): (Vec<String>, Vec<String>) =
        tenant.spec.namespaces.iter().cloned().partition(|namespace| is_own(namespace));
    let user = if is_leaving { user(objects, &held).await? } else { None };
    if is_leaving && user.is_none() {
        kinds::remove_finalizer(objects, &*tenant, IN_USE).await.attempting("letting the Tenant go")?;
        return Ok(Action::await_change());
    }
    let missing = missing(objects, &tenant).await?;
    let reason = if let Some(user) = user {
        (TenantReason::TenantInUse, format!("the TenantCluster {user} exists: delete it, then the Tenant goes"))
    } else if !taken.is_empty() {
        let words = format!("another Tenant holds {}: remove the namespace from one of them", joined(&taken));
        (TenantReason::NamespaceTaken, words)
    } else if !missing.is_empty() {
        (TenantReason::AllowedMissing, format!("there is no {}", missing.join(", no ")))
    } else {
        (TenantReason::InEffect, String::new())
    };
    let before = tenant.status.clone();
    let mut now = before.clone().unwrap_or_default();
    let generation = tenant.metadata.generation.unwrap_or_default();
    set(&mut now.conditions, reason.0, &reason.1, generation, &context.clock.time());
    (now.observed_generation, now.namespaces) = (generation, held);
    let noted = kinds::note::<Tenant, TenantStatus>(objects, &tenant, before.as_ref(), &now).await;
    noted.attempting("noting the state of the Tenant")?;
    Ok(Action::requeue(NOW_AND_THEN))
}

/// A cluster in one of these namespaces.
async fn user(objects: &dyn Objects, namespaces: &[String]) -> Result<Option<String>, ReconcileError> {
    let clusters = tolerant::<TenantCluster>(objects).await?.all();
    let of_namespaces =
        |cluster: &&TenantCluster| cluster.namespace().is_some_and(|namespace| namespaces.contains(&namespace));
    Ok(clusters.iter().find(of_namespaces).map(full_name))
}

/// The objects that a Tenant names and that do not exist.
async fn missing(objects: &dyn Objects, tenant: &Tenant) -> Result<Vec<String>, ReconcileError> {
    let providers = tolerant::<Provider>(objects).await?.all();
    let allow = &tenant.spec.allow;
    let mut missing = Vec::new();
    for part in &allow.providers {
        let Some(provider) = providers.iter().find(|provider| provider.name_any() == part.name) else {
            missing.push(format!("Provider {}", part.name));
            continue;
        };
        let vsphere = provider.spec.vsphere.iter();
        let zones: Vec<&String> = vsphere.clone().flat_map(|it| &it.zones).map(|zone| &zone.name).collect();
        let networks: Vec<&String> = vsphere.flat_map(|it| &it.networks).map(|network| &network.name).collect();
        for (kind, named, there) in [("zone", &part.zones, zones), ("network", &part.networks, networks)] {
            let lacking = named.iter().filter(|name| !there.contains(name));
            missing.extend(lacking.map(|name| format!("{kind} {name} of the Provider {}", part.name)));
        }
    }
    let names = |kind: &str, named: &[String], there: Vec<String>| -> Vec<String> {
        let lacking = named.iter().filter(|name| !there.contains(name));
        lacking.map(|name| format!("{kind} {name}")).collect()
    };
    let pools = tolerant::<IPPool>(objects).await?.all();
    missing.extend(names("IPPool", &allow.ip_pools, pools.iter().map(ResourceExt::name_any).collect()));
    let classes = tolerant::<VMClass>(objects).await?.all();
    missing.extend(names("VMClass", &allow.vm_classes, classes.iter().map(ResourceExt::name_any).collect()));
    let images = tolerant::<NodeImage>(objects).await?.all();
    missing.extend(names("NodeImage", &allow.images, images.iter().map(ResourceExt::name_any).collect()));
    Ok(missing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decisions::fixture::{cluster, pool, provider, tenant};
    use crate::reach::in_memory::InMemory;
    use crate::reconcilers::tests::{context, settled};

    async fn reconciled(api: &InMemory, name: &str) -> Option<Tenant> {
        settled::<Tenant, _>(api, &context(api), (None, name), reconcile).await;
        api.read(None, name)
    }

    fn said(tenant: &Tenant) -> (String, String) {
        let condition = tenant.status.as_ref().unwrap().conditions[0].clone();
        (condition.reason, condition.message)
    }

    #[tokio::test]
    async fn a_second_claim_of_a_namespace_gets_nothing() {
        let api = InMemory::default();
        api.put(&provider());
        api.put(&tenant("red", &["team-blue"], &["blue"]));
        let red = reconciled(&api, "red").await.unwrap();
        assert_eq!(said(&red).0, "InEffect");
        // Older by its name, but later.
        api.put(&tenant("blue", &["team-blue", "team-other"], &["green"]));
        let blue = reconciled(&api, "blue").await.unwrap();
        let (reason, words) = said(&blue);
        assert_eq!(
            (reason.as_str(), blue.status.unwrap().namespaces),
            ("NamespaceTaken", vec!["team-other".to_owned()])
        );
        assert!(words.contains("another Tenant holds team-blue") && !words.contains("red"), "{words}");
        assert_eq!(reconciled(&api, "red").await.unwrap().status.unwrap().namespaces, ["team-blue"]);
        api.remove::<Tenant>(None, "red");
        assert_eq!(reconciled(&api, "red").await, None);
        let (reason, words) = said(&reconciled(&api, "blue").await.unwrap());
        assert_eq!(reason, "ReferenceMissing");
        assert!(words.contains("network green of the Provider dc1"), "{words}");
    }

    #[tokio::test]
    async fn a_tenant_with_clusters_is_not_deleted() {
        let api = InMemory::default();
        api.put(&provider());
        api.put(&pool());
        api.put(&cluster());
        api.put(&tenant("blue", &["team-blue"], &["blue"]));
        reconciled(&api, "blue").await;
        api.remove::<Tenant>(None, "blue");
        let (reason, words) = said(&reconciled(&api, "blue").await.unwrap());
        assert!(reason == "InUse" && words.contains("team-blue/shop"), "{reason}: {words}");
        api.remove::<TenantCluster>(Some("team-blue"), "shop");
        assert_eq!(reconciled(&api, "blue").await, None);
    }
}
