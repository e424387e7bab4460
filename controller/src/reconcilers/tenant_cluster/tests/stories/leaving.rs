//! Deletion of a cluster, whatever exists of the objects that it names.

use std::collections::BTreeSet;

use super::*;
use crate::decisions::{NAMESPACES_IN_USE, namespace_entry};
use crate::reach::in_memory::Heard;

#[tokio::test(start_paused = true)]
async fn a_deleted_cluster_leaves_foreign_objects_only() {
    let world = World::ready().await;
    let volume = DiskRef { uuid: Uuid::from_u128(0xf0), path: "[ds] volume.vmdk".to_owned() };
    world.place.lock().disks.insert(volume.uuid, false);
    world.place.change("shop-cp1", |vm| {
        let kind = DiskKind::Foreign;
        vm.disks.push(Disk { reference: volume.clone(), kind, parent: None, controller: "c".to_owned() });
    });
    world.is_deleted("it was deleted").await;
    assert!(world.place.lock().disks.contains_key(&volume.uuid), "a volume stays");
}

#[tokio::test(start_paused = true)]
async fn pools_of_another_cluster_stay() {
    let world = World::new();
    let spec = serde_json::json!({"clusterRef": {"name": "shop-2"}, "vmClass": "medium", "replicas": 3});
    let mut other = NodePool::new("shop-2-general", serde_json::from_value(spec).unwrap());
    other.metadata.namespace = Some("team-blue".to_owned());
    world.api.put(&other);
    world.until("ready", World::is_ready).await;
    assert_eq!(world.status()["nodes"]["desired"].as_i64().unwrap_or_default(), 0, "{}", world.status());
    world.is_deleted("another one has a pool").await;
    let there: NodePool = world.api.read(Some("team-blue"), "shop-2-general").unwrap();
    assert!(there.metadata.deletion_timestamp.is_none());
}

#[tokio::test(start_paused = true)]
async fn workers_are_removed_before_the_control_plane() {
    let world = World::ready().await;
    let spec = serde_json::json!({"clusterRef": {"name": "shop"}, "vmClass": "medium", "replicas": 0});
    let mut pool = NodePool::new("shop-general", serde_json::from_value(spec).unwrap());
    (pool.metadata.namespace, pool.metadata.finalizers) = (Some("team-blue".to_owned()), Some(vec!["a".to_owned()]));
    world.api.put(&pool);
    world.delete();
    world.reconcile().await.unwrap();
    assert_eq!(world.condition("Progressing").1, "Deleting");
    assert!(world.condition("Ready").2.contains("shop-general"), "{:?}", world.condition("Ready"));
    assert_eq!(world.place.vms().len(), 3);
    pool.metadata.finalizers = None;
    pool.metadata.deletion_timestamp = Some(crate::decisions::fixture::now());
    world.api.put(&pool);
    world.goes("its pool went first").await;
}

#[tokio::test(start_paused = true)]
async fn deletion_needs_no_image_class_or_key() {
    let world = World::ready().await;
    world.api.remove::<crate::objects::NodeImage>(None, "kaas-tenant-0.2.0");
    world.api.remove::<crate::objects::IPPool>(None, "blue-nodes");
    world.api.remove::<VMClass>(None, "medium");
    world.remove_keys();
    world.reconcile().await.unwrap();
    assert_eq!(world.condition("Progressing").1, "Blocked", "nodes know nobody by another key");
    world.is_deleted("little was left of what it names").await;
}

#[tokio::test(start_paused = true)]
async fn deletion_before_the_begin_needs_no_vcenter() {
    let world = World::new();
    world.place.lock().is_away = true;
    world.reconcile().await.unwrap();
    assert_eq!(world.api.names("machines").len(), 3);
    world.is_deleted("nothing was begun").await;
}

#[tokio::test(start_paused = true)]
async fn deletion_waits_for_the_vcenter() {
    let world = World::ready().await;
    world.place.lock().is_away = true;
    world.reconcile().await.unwrap();
    assert!(world.is_ready(), "{:?}", world.condition("Ready"));
    world.delete();
    world.reconciles(5, 60).await;
    assert!(!world.is_gone() && world.api.names("pooladdresses").len() == 6, "addresses stay with their VMs");
    assert_eq!(world.condition("Progressing").1, "Deleting", "it may answer in a moment");
    assert!(world.condition("Ready").2.contains("does not answer"), "{:?}", world.condition("Ready"));
    world.place.lock().is_away = false;
    world.goes("it came back").await;
}

/// The condition says that the operator has to act.
#[tokio::test(start_paused = true)]
async fn deletion_without_a_provider_waits_for_the_operator() {
    let world = World::ready().await;
    world.api.remove::<crate::objects::Provider>(None, "dc1");
    assert_eq!(world.api.names("providers"), [""; 0]);
    world.delete();
    world.until("stuck", |it| it.condition("Progressing").1 == "Blocked").await;
    world.says("Ready", "Deleting", "make it again");
    assert_eq!(world.place.vms().len(), 3);
    world.api.put(&crate::decisions::fixture::provider());
    world.goes("it was made again").await;
}

/// It is unknown whether a VM uses them.
#[tokio::test(start_paused = true)]
async fn without_a_provider_addresses_are_kept_with_remedy() {
    let world = World::new();
    let mut calls = 0;
    while world.api.names("pooladdresses").is_empty() {
        calls += 1;
        let _ = world.reconcile_at(&Mortal::new(&world.api, Some((calls, true)))).await;
        assert!(calls < 1000, "it has never an address");
    }
    assert!(world.status()["deployment"].is_null(), "nothing was begun");
    let held = world.api.names("pooladdresses").len();
    world.api.remove::<crate::objects::Provider>(None, "dc1");
    world.until("told", |world| world.condition("Ready").2.contains("delete the TenantCluster")).await;
    let words = world.condition("Preflight").2;
    assert!(words.contains("there is no Provider dc1") && words.contains("addresses stay until"), "{words}");
    assert!(words.contains("only if no VM of it runs in the vCenter"), "{words}");
    assert_eq!(world.api.names("pooladdresses").len(), held);
    world.is_deleted("they were given back").await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_cannot_form_can_be_deleted() {
    let world = World::new();
    world.place.lock().is_ill = true;
    world.reconciles(4, 30).await;
    assert_eq!(world.condition("Ready").1, "Provisioning");
    world.says("ControlPlaneReady", "Forming", "deploy.forming");
    world.is_deleted("it never formed").await;
}

/// Finding 2 of controller.md. A controller may die after each write: the policy `namespace-in-use` then reads this list.
#[tokio::test(start_paused = true)]
async fn namespace_is_listed_while_keys_exist() {
    let world = World::new();
    let mut heard = world.api.watched();
    world.until("ready", World::is_ready).await;
    world.is_deleted("it was ready").await;
    let (mut secrets, mut listed, mut moments) = (BTreeSet::new(), false, 0);
    while let Ok(Heard { plural, object, is_there }) = heard.try_recv() {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        match plural.as_str() {
            "secrets" if is_there => {
                secrets.insert(name);
            }
            "secrets" => {
                secrets.remove(&name);
            }
            "configmaps" if name == NAMESPACES_IN_USE => {
                listed = is_there && object["data"][namespace_entry(&world.cluster)] == "shop";
            }
            _ => {}
        }
        assert!(listed || secrets.is_empty(), "{secrets:?} at {object}");
        moments += usize::from(!secrets.is_empty());
    }
    assert!(moments > 10 && secrets.is_empty() && !listed, "{moments} {secrets:?} {listed}");
}
