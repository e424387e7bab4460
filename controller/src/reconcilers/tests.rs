//! Reconcilers on an API server in memory.

use std::sync::Arc;

use kube::ResourceExt;
use kube::api::ObjectMeta;
use kube::runtime::controller::Action;
use serde_json::json;

use super::*;
use crate::context::{Context, ReconcileError};
use crate::decisions::claimed;
use crate::objects::fixture::worker;
use crate::objects::{
    AddressRange, Claimant, IPPool, IPPoolSpec, Lifecycle, LifecyclePhase, Machine, NodeImage, NodeImageSpec,
    PoolAddress, Purpose, TenantCluster, TenantClusterStatus, VMClass, VMClassSpec,
};
use crate::reach::in_memory::{Fault, InMemory};
use crate::reach::kinds::Kind;
use crate::reach::providers::Providers;
use crate::term::{Clock, Term};

pub(crate) fn context(api: &InMemory) -> Arc<Context> {
    let (objects, term, clock) = (Arc::new(api.clone()), Term::unlimited("controller of a test"), Clock::of_tests());
    let providers = Providers::new(objects.clone(), term.clone(), clock.clone());
    Arc::new(Context { objects, providers, term, clock, is_marked: true })
}

pub(crate) async fn now<K: Kind>(api: &InMemory, namespace: Option<&str>, name: &str) -> Option<K> {
    api.read(namespace, name)
}

/// Reconciles an object until nothing changes, as its watch would. A failure is tried again.
pub(crate) async fn settled<K, F>(
    api: &InMemory,
    context: &Arc<Context>,
    (namespace, name): (Option<&str>, &str),
    reconcile: impl Fn(Arc<K>, Arc<Context>) -> F,
) -> Option<Action>
where
    K: Kind,
    F: Future<Output = Result<Action, ReconcileError>>,
{
    let mut last = None;
    for _ in 0..20 {
        let Some(object) = api.read::<K>(namespace, name) else { return last };
        let before = object.resource_version();
        let done = reconcile(Arc::new(object), Arc::clone(context)).await;
        let is_same = api.read::<K>(namespace, name).is_some_and(|now| now.resource_version() == before);
        if let Ok(action) = done {
            last = Some(action);
            if is_same {
                return last;
            }
        }
    }
    panic!("{name} does not come to rest");
}

fn pool(name: &str, first: &str, last: &str) -> IPPool {
    let range = AddressRange { first: first.to_owned(), last: last.to_owned() };
    let spec = IPPoolSpec {
        subnet: "10.0.0.0/24".to_owned(),
        ranges: vec![range],
        reserved: Vec::new(),
        vips_per_namespace: None,
        gateway: None,
        dns_servers: Vec::new(),
        search_domains: Vec::new(),
    };
    IPPool::new(name, spec)
}

fn machine(name: &str) -> Machine {
    let metadata =
        ObjectMeta { name: Some(name.to_owned()), namespace: Some("team-blue".to_owned()), ..ObjectMeta::default() };
    Machine { metadata, ..Machine::new(name, worker()) }
}

fn claimant(kind: &str, name: &str, uid: &str) -> Claimant {
    let text = str::to_owned;
    let purpose = if kind == "Machine" { Purpose::Node } else { Purpose::Endpoint };
    Claimant { kind: text(kind), namespace: text("team-blue"), name: text(name), uid: text(uid), purpose, index: 0 }
}

pub(crate) fn cluster(name: &str, image: &str, class: &str) -> TenantCluster {
    let object = json!({
        "apiVersion": "kaas.local/v1alpha1", "kind": "TenantCluster",
        "metadata": {"name": name, "namespace": "team-blue"},
        "spec": {
            "providerRef": {"name": "dc1"}, "version": "1.36", "image": image,
            "controlPlane": {"replicas": 1, "vmClass": class},
            "network": {"name": "blue", "endpoint": {"address": "10.0.0.5"}},
            "site": {},
        },
    });
    serde_json::from_value(object).unwrap()
}

pub(crate) fn standing<K: Kind>(object: &K, condition: &str) -> (String, String) {
    let value = serde_json::to_value(object).unwrap();
    let conditions = value["status"]["conditions"].as_array().unwrap();
    let found = conditions.iter().find(|one| one["type"] == condition).unwrap_or_else(|| panic!("no {condition}"));
    (found["reason"].as_str().unwrap().to_owned(), found["message"].as_str().unwrap().to_owned())
}

/// A pool whose addresses are claimed and released, with a fault at each call.
#[tokio::test(start_paused = true)]
async fn a_pool_stays_until_its_last_address_goes() {
    for fault in [None, Some(Fault::NotDone), Some(Fault::Done), Some(Fault::Changed)] {
        for call in 0..12 {
            let (api, what) = (InMemory::default(), format!("{fault:?} at call {call}"));
            let context = context(&api);
            api.put(&pool("p", "10.0.0.10", "10.0.0.11"));
            if let Some(fault) = fault {
                api.fails_at(call, fault);
            }
            settled(&api, &context, (None, "p"), ip_pool::reconcile).await;
            let seen: IPPool = now(&api, None, "p").await.unwrap();
            assert_eq!(
                standing(&seen, "Ready"),
                ("AddressesFree".to_owned(), "2 of 2 addresses are free".to_owned()),
                "{what}"
            );
            api.put(&claimed("p", "10.0.0.10".parse().unwrap(), claimant("Machine", "m1", "u1")));
            // An address of another pool.
            api.put(&claimed("q", "10.0.0.77".parse().unwrap(), claimant("Machine", "m2", "u2")));
            settled(&api, &context, (None, "p"), ip_pool::reconcile).await;
            let seen: IPPool = now(&api, None, "p").await.unwrap();
            let status = seen.status.as_ref().unwrap();
            assert_eq!((status.total, status.used, status.observed_generation), (2, 1, 1), "{what}");
            api.remove::<IPPool>(None, "p");
            settled(&api, &context, (None, "p"), ip_pool::reconcile).await;
            assert!(now::<IPPool>(&api, None, "p").await.is_some(), "{what}: an address of it is in use");
            api.remove::<PoolAddress>(None, "10-0-0-10");
            settled(&api, &context, (None, "p"), ip_pool::reconcile).await;
            assert!(now::<IPPool>(&api, None, "p").await.is_none(), "{what}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_overlapping_or_invalid_pool_reports_it() {
    let api = InMemory::default();
    let context = context(&api);
    let mut object = serde_json::to_value(pool("p", "10.0.0.10", "10.0.0.20")).unwrap();
    object["status"] = json!({"later": "kept", "total": 99});
    api.put_value(&crate::reach::Collection::of::<IPPool>(None), object);
    api.put(&pool("q", "10.0.0.20", "10.0.0.30"));
    settled(&api, &context, (None, "p"), ip_pool::reconcile).await;
    let seen: IPPool = now(&api, None, "p").await.unwrap();
    assert_eq!(standing(&seen, "Ready").0, "Overlaps");
    assert_eq!(api.object("ippools")["status"]["later"], "kept");
    let mut unread = api.named("ippools", "q").unwrap();
    unread["status"] = json!({"conditions": "none"});
    api.put_value(&crate::reach::Collection::of::<IPPool>(None), unread.clone());
    settled(&api, &context, (None, "p"), ip_pool::reconcile).await;
    assert_eq!(standing(&now::<IPPool>(&api, None, "p").await.unwrap(), "Ready").0, "Overlaps");
    unread["status"] = json!({});
    api.put_value(&crate::reach::Collection::of::<IPPool>(None), unread);
    let mut broken: IPPool = now(&api, None, "q").await.unwrap();
    broken.spec.ranges[0].last = "x".to_owned();
    api.put(&broken);
    settled(&api, &context, (None, "p"), ip_pool::reconcile).await;
    let seen: IPPool = now(&api, None, "p").await.unwrap();
    assert_eq!(standing(&seen, "Ready").0, "NotCounted");
}

#[tokio::test(start_paused = true)]
async fn an_address_is_released_after_its_claimant_only() {
    let api = InMemory::default();
    let context = context(&api);
    let uid = api.put(&machine("shop-w1"))["metadata"]["uid"].as_str().unwrap().to_owned();
    let address = claimed("p", "10.0.0.10".parse().unwrap(), claimant("Machine", "shop-w1", &uid));
    let mut unlabelled = address.clone();
    unlabelled.metadata.labels = None;
    api.put(&unlabelled);
    let name = "10-0-0-10";
    settled(&api, &context, (None, name), pool_address::reconcile).await;
    let seen: PoolAddress = now(&api, None, name).await.unwrap();
    assert_eq!(seen.labels().get("kaas.local/pool").map(String::as_str), Some("p"));
    assert_eq!(seen.labels().get("kaas.local/claimant"), Some(&uid));
    // Each call fails once, with each fault.
    for fault in [Fault::NotDone, Fault::Done, Fault::Changed] {
        for call in 0..4 {
            api.fails_at(call, fault);
            settled(&api, &context, (None, name), pool_address::reconcile).await;
            assert!(now::<PoolAddress>(&api, None, name).await.is_some(), "{fault:?} at call {call}");
        }
    }
    api.is_away(true);
    let failed = pool_address::reconcile(Arc::new(seen), Arc::clone(&context)).await;
    assert!(failed.is_err(), "{failed:?}");
    api.is_away(false);
    // A cluster with the Machine's name is a different claimant. A claimant of an unknown kind is not gone.
    for (kind, address) in [("VirtualMachine", "10.0.0.11"), ("Machine", "10.0.0.12")] {
        api.put(&claimed("p", address.parse().unwrap(), claimant(kind, "shop-w1", "another")));
    }
    settled(&api, &context, (None, "10-0-0-11"), pool_address::reconcile).await;
    assert!(now::<PoolAddress>(&api, None, "10-0-0-11").await.is_some());
    settled(&api, &context, (None, "10-0-0-12"), pool_address::reconcile).await;
    assert!(
        now::<PoolAddress>(&api, None, "10-0-0-12").await.is_none(),
        "another machine of that name has no right to it"
    );
    api.remove::<Machine>(Some("team-blue"), "shop-w1");
    settled(&api, &context, (None, name), pool_address::reconcile).await;
    assert!(now::<PoolAddress>(&api, None, name).await.is_none());
}

/// Finding 4 of controller.md: an object of an earlier release is replaced by one with the address's name. A fault at each call
/// leaves the address claimed.
#[tokio::test(start_paused = true)]
async fn former_name_is_replaced_and_address_stays_claimed() {
    for fault in [None, Some(Fault::NotDone), Some(Fault::Done)] {
        for call in 0..6 {
            let api = InMemory::default();
            let context = context(&api);
            let uid = api.put(&machine("shop-w1"))["metadata"]["uid"].as_str().unwrap().to_owned();
            let mut former = claimed("p", "10.0.0.10".parse().unwrap(), claimant("Machine", "shop-w1", &uid));
            former.metadata.name = Some("p-10-0-0-10".to_owned());
            former.spec.named = true;
            api.put(&former);
            if let Some(fault) = fault {
                api.fails_at(call, fault);
            }
            settled(&api, &context, (None, "p-10-0-0-10"), pool_address::reconcile).await;
            assert_eq!(api.names("pooladdresses"), ["10-0-0-10"], "{fault:?} at call {call}");
            let seen: PoolAddress = now(&api, None, "10-0-0-10").await.unwrap();
            assert_eq!((seen.spec, seen.metadata.labels), (former.spec, former.metadata.labels));
        }
    }
}

/// Two objects of one address, from before: neither is deleted.
#[tokio::test(start_paused = true)]
async fn former_name_stays_if_another_has_the_address() {
    let api = InMemory::default();
    let context = context(&api);
    let uid = |name: &str| api.put(&machine(name))["metadata"]["uid"].as_str().unwrap().to_owned();
    let (one, other) = (uid("shop-w1"), uid("shop-w2"));
    let mut former = claimed("p", "10.0.0.10".parse().unwrap(), claimant("Machine", "shop-w1", &one));
    former.metadata.name = Some("p-10-0-0-10".to_owned());
    api.put(&former);
    api.put(&claimed("q", "10.0.0.10".parse().unwrap(), claimant("Machine", "shop-w2", &other)));
    settled(&api, &context, (None, "p-10-0-0-10"), pool_address::reconcile).await;
    assert_eq!(api.names("pooladdresses"), ["10-0-0-10", "p-10-0-0-10"]);
}

/// The address that was read is gone, and another claimant has claimed it since.
#[tokio::test(start_paused = true)]
async fn a_stale_address_releases_no_new_one() {
    let api = InMemory::default();
    let context = context(&api);
    api.put(&claimed("p", "10.0.0.10".parse().unwrap(), claimant("Machine", "shop-w1", "gone")));
    let stale: PoolAddress = now(&api, None, "10-0-0-10").await.unwrap();
    api.remove::<PoolAddress>(None, "10-0-0-10");
    let cluster = api.put(&cluster("shop", "i", "auto"));
    let uid = cluster["metadata"]["uid"].as_str().unwrap();
    api.put(&claimed("p", "10.0.0.10".parse().unwrap(), claimant("TenantCluster", "shop", uid)));
    let given = pool_address::reconcile(Arc::new(stale), Arc::clone(&context)).await;
    assert!(given.unwrap_err().is_race());
    settled(&api, &context, (None, "10-0-0-10"), pool_address::reconcile).await;
    assert!(now::<PoolAddress>(&api, None, "10-0-0-10").await.is_some());
}

#[tokio::test(start_paused = true)]
async fn used_classes_and_images_are_not_deleted() {
    let api = InMemory::default();
    let context = context(&api);
    let spec = VMClassSpec { processors: 4, memory_mib: 8192, data_disk_gib: None };
    api.put(&VMClass::new("medium", spec));
    let digest = format!("sha256:{}", "0a".repeat(32));
    api.put(&NodeImage::new("i1", NodeImageSpec { digest, publisher: None, lifecycle: Vec::new() }));
    api.put(&cluster("shop", "i1", "medium"));
    for _ in 0..2 {
        settled(&api, &context, (None, "medium"), vm_class::reconcile).await;
        settled(&api, &context, (None, "i1"), node_image::reconcile).await;
        assert!(
            now::<VMClass>(&api, None, "medium").await.is_some() && now::<NodeImage>(&api, None, "i1").await.is_some()
        );
        api.remove::<VMClass>(None, "medium");
        api.remove::<NodeImage>(None, "i1");
    }
    api.remove::<TenantCluster>(Some("team-blue"), "shop");
    settled(&api, &context, (None, "medium"), vm_class::reconcile).await;
    settled(&api, &context, (None, "i1"), node_image::reconcile).await;
    assert!(now::<VMClass>(&api, None, "medium").await.is_none() && now::<NodeImage>(&api, None, "i1").await.is_none());
}

/// A Provider that allows no namespace, with a VMClass and a NodeImage.
fn put_references(api: &InMemory) -> Provider {
    let mut provider = crate::decisions::fixture::provider();
    provider.spec.allowed_namespaces.names.clear();
    // Tests resolve no name.
    provider.spec.vsphere.as_mut().unwrap().server = "192.0.2.1".to_owned();
    api.put(&provider);
    let spec = VMClassSpec { processors: 4, memory_mib: 8192, data_disk_gib: None };
    api.put(&VMClass::new("medium", spec));
    let digest = format!("sha256:{}", "0a".repeat(32));
    api.put(&NodeImage::new("i1", NodeImageSpec { digest, publisher: None, lifecycle: Vec::new() }));
    provider
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_object_stops_only_its_users() {
    let api = InMemory::default();
    let context = context(&api);
    put_references(&api);
    for _ in 0..2 {
        settled(&api, &context, (None, "medium"), vm_class::reconcile).await;
        settled(&api, &context, (None, "i1"), node_image::reconcile).await;
        settled(&api, &context, (None, "dc1"), provider::reconcile).await;
    }
    // Its status says what it uses in addition to its spec, and whether it was begun.
    let of = crate::reach::Collection::of::<TenantCluster>(Some("team-blue"));
    let set_status = |status: serde_json::Value| {
        let mut shop = serde_json::to_value(cluster("shop", "i2", "large")).unwrap();
        shop["status"] = status;
        api.put_value(&of, shop)["metadata"]["uid"].as_str().unwrap().to_owned()
    };
    let uid = set_status(json!({"conditions": "none"}));
    api.put(&claimed("p", "10.0.0.10".parse().unwrap(), claimant("TenantCluster", "shop", &uid)));
    api.remove::<VMClass>(None, "medium");
    api.remove::<NodeImage>(None, "i1");
    api.remove::<Provider>(None, "dc1");
    settled(&api, &context, (None, "dc1"), provider::reconcile).await;
    let provider = now::<Provider>(&api, None, "dc1").await.unwrap();
    assert_eq!(provider.status.unwrap().clusters, 1, "it may be begun");
    let class = Arc::new(now::<VMClass>(&api, None, "medium").await.unwrap());
    let image = Arc::new(now::<NodeImage>(&api, None, "i1").await.unwrap());
    let address = Arc::new(now::<PoolAddress>(&api, None, "10-0-0-10").await.unwrap());
    for failed in [
        vm_class::reconcile(class, Arc::clone(&context)).await,
        node_image::reconcile(image, Arc::clone(&context)).await,
        pool_address::reconcile(address, Arc::clone(&context)).await,
    ] {
        let words = failed.unwrap_err().to_string();
        assert!(words.contains("the TenantCluster team-blue/shop cannot be read: "), "{words}");
    }
    set_status(json!({}));
    settled(&api, &context, (None, "medium"), vm_class::reconcile).await;
    settled(&api, &context, (None, "i1"), node_image::reconcile).await;
    settled(&api, &context, (None, "dc1"), provider::reconcile).await;
    settled(&api, &context, (None, "10-0-0-10"), pool_address::reconcile).await;
    let left = ["vmclasses", "nodeimages", "providers", "pooladdresses"].map(|kind| api.names(kind).len());
    assert_eq!(left, [0, 0, 0, 1]);
}

/// Any tenant can create such a cluster.
#[tokio::test(start_paused = true)]
async fn clusters_of_forbidden_namespaces_keep_nothing_before_beginning() {
    for is_begun in [false, true] {
        let api = InMemory::default();
        let context = context(&api);
        let provider = put_references(&api);
        let mut cluster = cluster("shop", "i1", "medium");
        cluster.spec.provider_ref.name = provider.name_any();
        if is_begun {
            let deployment =
                serde_json::from_value(json!({"cluster": "shop", "lifecycle": "Active", "image": {"name": "a"}}))
                    .unwrap();
            let status = TenantClusterStatus { deployment: Some(deployment), ..TenantClusterStatus::default() };
            cluster.status = Some(status);
        }
        api.put(&cluster);
        for _ in 0..2 {
            settled(&api, &context, (None, "medium"), vm_class::reconcile).await;
            settled(&api, &context, (None, "i1"), node_image::reconcile).await;
            api.remove::<VMClass>(None, "medium");
            api.remove::<NodeImage>(None, "i1");
        }
        settled(&api, &context, (None, "medium"), vm_class::reconcile).await;
        settled(&api, &context, (None, "i1"), node_image::reconcile).await;
        assert_eq!(now::<VMClass>(&api, None, "medium").await.is_some(), is_begun);
        assert_eq!(now::<NodeImage>(&api, None, "i1").await.is_some(), is_begun);
    }
}

/// Only time passes: the object does not change.
#[tokio::test(start_paused = true)]
async fn an_image_enters_its_next_phase_in_time() {
    let api = InMemory::default();
    let context = context(&api);
    let from = |phase, seconds: i64| {
        let start = context.clock.time().0.as_second();
        let from = k8s_openapi::jiff::Timestamp::from_second(start + seconds).unwrap();
        Lifecycle { phase, from: k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(from) }
    };
    let lifecycle = vec![from(LifecyclePhase::Supported, 100), from(LifecyclePhase::Expired, 5000)];
    let digest = format!("sha256:{}", "0a".repeat(32));
    api.put(&NodeImage::new("i1", NodeImageSpec { digest, publisher: None, lifecycle }));
    let again = settled(&api, &context, (None, "i1"), node_image::reconcile).await;
    assert_eq!(again, Some(Action::requeue(Duration::from_secs(100))), "when the next one begins");
    let seen: NodeImage = now(&api, None, "i1").await.unwrap();
    assert_eq!(seen.status.as_ref().unwrap().phase, Some(LifecyclePhase::Preview));
    assert_eq!(standing(&seen, "Ready").0, "NotAsked");
    tokio::time::sleep(Duration::from_secs(100)).await;
    let again = settled(&api, &context, (None, "i1"), node_image::reconcile).await;
    assert_eq!(again, Some(Action::requeue(NOW_AND_THEN)), "the next one is far away");
    let seen: NodeImage = now(&api, None, "i1").await.unwrap();
    assert_eq!(seen.status.as_ref().unwrap().phase, Some(LifecyclePhase::Supported));
    tokio::time::sleep(Duration::from_secs(4900)).await;
    settled(&api, &context, (None, "i1"), node_image::reconcile).await;
    let seen: NodeImage = now(&api, None, "i1").await.unwrap();
    assert_eq!(standing(&seen, "Ready").0, "Expired");
}
