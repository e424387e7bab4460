//! `Tenant`: records which namespaces it holds, and reports what is missing. Lays a Catalog and the bindings of its people in each
//! of them (`namespaces.rs`). A Tenant with clusters is not deleted: its networks would be open to others.

mod namespaces;

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use kube::runtime::controller::Action;

use super::{IN_USE, tenants, tolerant};
use crate::context::{Attempt, Context, ReconcileError};
use crate::decisions::{Offer, joined, missing_names, namespaces_of};
use crate::objects::{IPPool, NodeImage, Provider, Tenant, TenantCluster, TenantReason, TenantStatus, VMClass, set};
use crate::reach::kinds::full_name;
use crate::reach::{Objects, kinds};

/// How often the use in Catalogs is renewed.
const RENEWED: Duration = Duration::from_secs(60);

/// Adds the finalizer and writes the status and the Catalogs. Removes the finalizer once no cluster is in the Tenant's namespaces.
pub async fn reconcile(tenant: Arc<Tenant>, context: Arc<Context>) -> Result<Action, ReconcileError> {
    let objects = &*context.objects;
    let is_leaving = tenant.metadata.deletion_timestamp.is_some();
    if !is_leaving && kinds::add_finalizer(objects, &*tenant, IN_USE).await.attempting("keeping the Tenant")? {
        // The write reconciles it again.
        return Ok(Action::await_change());
    }
    let all = tenants(objects).await?;
    let (held, taken) = namespaces_of(&all, &tenant);
    let user = if is_leaving { user(objects, &held).await? } else { None };
    if is_leaving && user.is_none() {
        kinds::remove_finalizer(objects, &*tenant, IN_USE).await.attempting("letting the Tenant go")?;
        return Ok(Action::await_change());
    }
    let offer = offer(objects).await?;
    let missing = missing_names(&tenant, &offer);
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
    (now.observed_generation, now.namespaces) = (generation, held.clone());
    let noted = kinds::note::<Tenant, TenantStatus>(objects, &tenant, before.as_ref(), &now).await;
    noted.attempting("noting the state of the Tenant")?;
    // The namespaces are held before anything is laid in them.
    namespaces::lay(objects, &tenant, &held, (&all[..], &offer)).await?;
    Ok(Action::requeue(RENEWED))
}

/// A cluster in one of these namespaces.
async fn user(objects: &dyn Objects, namespaces: &[String]) -> Result<Option<String>, ReconcileError> {
    let clusters = tolerant::<TenantCluster>(objects).await?.all();
    let of_namespaces =
        |cluster: &&TenantCluster| cluster.namespace().is_some_and(|namespace| namespaces.contains(&namespace));
    Ok(clusters.iter().find(of_namespaces).map(full_name))
}

async fn offer(objects: &dyn Objects) -> Result<Offer, ReconcileError> {
    Ok(Offer {
        providers: tolerant::<Provider>(objects).await?.all(),
        pools: tolerant::<IPPool>(objects).await?.all(),
        classes: tolerant::<VMClass>(objects).await?.all(),
        images: tolerant::<NodeImage>(objects).await?.all(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decisions::fixture::{cluster, pool, provider, tenant};
    use crate::objects::Catalog;
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
    async fn held_namespaces_have_a_catalog_and_bindings() {
        let api = InMemory::default();
        api.put(&provider());
        api.put(&pool());
        api.put(&cluster());
        let mut team = tenant("blue", &["team-blue", "team-other"], &["blue"]);
        team.spec.admins.users = vec!["anna".to_owned()];
        team.spec.users.groups = vec!["blue".to_owned()];
        api.put(&team);
        reconciled(&api, "blue").await;
        assert_eq!(api.names("catalogs"), ["blue", "blue"]);
        let all = ["kaas-tenant-admins", "kaas-tenant-users", "shop-kubeconfig"];
        assert_eq!(api.names("rolebindings")[..3], all, "of the namespace with a cluster");
        assert_eq!(api.names("rolebindings")[3..], all[..2]);
        let binding = api.named("rolebindings", "shop-kubeconfig").unwrap();
        assert_eq!(
            (&binding["roleRef"]["kind"], &binding["roleRef"]["name"]),
            (&"Role".into(), &"shop-kubeconfig".into())
        );
        assert_eq!(binding["subjects"][0]["name"], "anna");
        let catalog = api.read::<Catalog>(Some("team-blue"), "blue").unwrap();
        assert_eq!(binding["metadata"]["ownerReferences"][0]["uid"].as_str(), catalog.metadata.uid.as_deref());
        assert_eq!(catalog.spec.used.clusters, 0, "no VM of it was begun");
        // A namespace that is given up, and an admin who leaves.
        let mut team = api.read::<Tenant>(None, "blue").unwrap();
        team.spec.namespaces = vec!["team-blue".to_owned()];
        team.spec.admins.users.clear();
        api.put(&team);
        reconciled(&api, "blue").await;
        assert_eq!(api.names("catalogs").len(), 1, "its bindings go with it");
        assert_eq!(api.named("rolebindings", "shop-kubeconfig").unwrap()["subjects"], serde_json::json!([]));
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
