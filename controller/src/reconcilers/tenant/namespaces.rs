//! The objects of a Tenant in its namespaces: a Catalog, and RoleBindings for its people. The Catalog owns the bindings and the
//! Tenant the Catalogs, so Kubernetes removes the bindings of a namespace that the Tenant gives up.

use kube::ResourceExt;
use serde_json::{Value, json};

use crate::context::{Attempt, ReconcileError};
use crate::decisions::{Access, Offer, Scope, catalog, kubeconfig_secret};
use crate::documents::{RBAC, TENANT_EDIT, TENANT_VIEW};
use crate::objects::{Catalog, GROUP, People, Tenant, VERSION};
use crate::reach::{Collection, Failure, Objects, kinds};

/// The RoleBindings of a Tenant's people.
const ADMINS: &str = "kaas-tenant-admins";
const USERS: &str = "kaas-tenant-users";

/// Writes the Catalog and the bindings in each namespace that a Tenant holds, and deletes the Catalogs in others.
pub(super) async fn lay(
    objects: &dyn Objects,
    tenant: &Tenant,
    held: &[String],
    (tenants, offer): (&[Tenant], &Offer),
) -> Result<(), ReconcileError> {
    let there = kinds::list::<Catalog>(objects, None, None).await.attempting("listing Catalogs")?;
    let own: Vec<Catalog> = there.into_iter().filter(|catalog| catalog.spec.tenant == tenant.name_any()).collect();
    let is_held = |catalog: &Catalog| catalog.namespace().is_some_and(|namespace| held.contains(&namespace));
    for left in own.iter().filter(|catalog| !is_held(catalog)) {
        kinds::delete(objects, left).await.attempting("deleting the Catalog of a namespace that was given up")?;
    }
    if held.is_empty() {
        return Ok(());
    }
    let inventory = objects.inventory().await.attempting("looking at what clusters have")?;
    let used = inventory.used(Scope::Namespaces(held), |_| true);
    for namespace in held {
        let spec = catalog(tenant, &Access::of(tenants, namespace), offer, used);
        let mut wanted = Catalog::new(&tenant.name_any(), spec);
        wanted.metadata.namespace = Some(namespace.clone());
        wanted.metadata.owner_references = Some(vec![kube::Resource::owner_ref(tenant, &()).unwrap_or_default()]);
        let found = own.iter().find(|catalog| catalog.namespace().as_ref() == Some(namespace));
        // A namespace that does not exist yet gets it once it exists.
        let Some(laid) = laid(objects, found, wanted).await? else { continue };
        let people = [(ADMINS, TENANT_EDIT, &tenant.spec.admins), (USERS, TENANT_VIEW, &tenant.spec.users)];
        for (name, role, people) in people {
            bind(objects, &laid, name, ("ClusterRole", role), people).await?;
        }
        let clusters = inventory.clusters.iter().chain(&inventory.unread);
        for cluster in clusters.filter(|cluster| cluster.namespace().as_ref() == Some(namespace)) {
            let name = kubeconfig_secret(&cluster.name_any());
            bind(objects, &laid, &name, ("Role", &name), &tenant.spec.admins).await?;
        }
    }
    Ok(())
}

/// Writes a Catalog. `None` if its namespace does not exist, or is being deleted.
async fn laid(
    objects: &dyn Objects,
    found: Option<&Catalog>,
    wanted: Catalog,
) -> Result<Option<Catalog>, ReconcileError> {
    const ATTEMPT: &str = "writing a Catalog";
    let Some(found) = found else {
        return match kinds::create(objects, &wanted).await {
            Ok(made) => Ok(Some(made)),
            Err(Failure::Missing) => Ok(None),
            // A namespace that is being deleted takes no object. Other namespaces of the Tenant do not wait for it.
            Err(Failure::Refused(words)) => {
                log::warn!("no Catalog {} is made: {words}", kinds::full_name(&wanted));
                Ok(None)
            }
            Err(failure) => Err(failure).attempting(ATTEMPT),
        };
    };
    if found.spec != wanted.spec {
        let object = Catalog { spec: wanted.spec, ..found.clone() };
        let object = serde_json::to_value(&object).map_err(anyhow::Error::from)?;
        let of = Collection::of::<Catalog>(found.namespace().as_deref());
        objects.replace(&of, &object).await.attempting(ATTEMPT)?;
    }
    Ok(Some(found.clone()))
}

/// Binds a role to people, or changes the people of a binding. A binding that another client made stays as it is.
async fn bind(
    objects: &dyn Objects,
    owner: &Catalog,
    name: &str,
    (kind, role): (&str, &str),
    people: &People,
) -> Result<(), ReconcileError> {
    let of = Collection {
        version: format!("{RBAC}/v1").into(),
        plural: "rolebindings".into(),
        namespace: owner.namespace(),
    };
    let subjects = subjects(people);
    match objects.get(&of, name).await {
        Ok(there) => {
            let owners = there["metadata"]["ownerReferences"].as_array().into_iter().flatten();
            let is_own = owners.into_iter().any(|one| one["uid"].as_str() == owner.metadata.uid.as_deref());
            let has = there["subjects"].as_array().cloned().unwrap_or_default();
            if is_own && has != subjects {
                let version = &there["metadata"]["resourceVersion"];
                let part = json!({"metadata": {"resourceVersion": version}, "subjects": subjects});
                objects.patch(&of, name, &part).await.attempting("changing a RoleBinding")?;
            }
            Ok(())
        }
        Err(Failure::Missing) if subjects.is_empty() => Ok(()),
        Err(Failure::Missing) => {
            let owner = json!({
                "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "Catalog", "name": owner.name_any(),
                "uid": owner.metadata.uid,
            });
            let binding = json!({
                "apiVersion": of.version, "kind": "RoleBinding",
                "metadata": {"name": name, "namespace": of.namespace, "ownerReferences": [owner]},
                "roleRef": {"apiGroup": RBAC, "kind": kind, "name": role},
                "subjects": subjects,
            });
            match objects.create(&of, &binding).await {
                // The Role of a kubeconfig is made with its Secret. An API server binds no Role that does not exist.
                Err(Failure::Missing | Failure::Refused(_)) if kind == "Role" => {
                    log::debug!("{name} is bound once its Role exists");
                    Ok(())
                }
                Err(failure) => Err(failure).attempting("making a RoleBinding"),
                Ok(_) => Ok(()),
            }
        }
        Err(failure) => Err(failure).attempting("reading a RoleBinding"),
    }
}

/// People as subjects of a binding.
fn subjects(people: &People) -> Vec<Value> {
    let subject = |kind: &str, name: &String| json!({"apiGroup": RBAC, "kind": kind, "name": name});
    let users = people.users.iter().map(|name| subject("User", name));
    users.chain(people.groups.iter().map(|name| subject("Group", name))).collect()
}
