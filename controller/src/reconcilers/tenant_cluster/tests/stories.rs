//! The life of a cluster, as the operator sees it.

mod leaving;
mod neighbours;

use std::time::Duration;

use contract::kubeconfig::Kubeconfig;
use fleet::hypervisor::{Disk, DiskKind, DiskRef, PowerState};
use k8s_openapi::api::core::v1::{Node, Secret};
use kube::ResourceExt;
use kube::api::ObjectMeta;
use serde_json::{Value, json};
use uuid::Uuid;

use super::super::Reconciler;
use super::{Mortal, World};
use crate::objects::{
    AddressRange, Catalog, Limits, Machine, NodePool, ProviderReason, Quota, Reference, ServiceVips, Tenant,
    TenantCluster, TenantClusterReason, VMClass, set,
};
use crate::term::Term;

#[tokio::test(start_paused = true)]
async fn a_cluster_is_created_and_writes_its_kubeconfig() {
    let world = World::ready().await;
    world.is_whole("it is ready");
    let status = world.status();
    assert_eq!(status["resolved"]["endpoint"], "192.168.10.10");
    assert_eq!((&status["controlPlane"]["ready"], &status["kubernetes"]), (&3.into(), &"1.36".into()));
    assert_eq!(status["version"], "1.36.2");
    for (about, reason) in [
        ("Preflight", "Passed"),
        ("ControlPlaneReady", "AllReady"),
        ("NodesReady", "AllReady"),
        ("Progressing", "Idle"),
    ] {
        assert_eq!(world.condition(about).1, reason, "{about}");
    }
    // Each VM has the UID of its Machine, and is in its Machine's zone.
    let (vms, placements) = (world.place.vms(), world.place.placements());
    for name in world.api.names("machines") {
        let of = crate::reach::Collection::of::<Machine>(Some("team-blue"));
        let machine = crate::reach::Objects::get(&world.api, &of, &name).await.unwrap();
        assert_eq!(machine["metadata"]["uid"], vms[&name].to_string(), "{name}");
        assert_eq!(machine["status"]["phase"], "Running");
        assert_eq!(machine["status"]["vms"][0]["uuid"], vms[&name].to_string());
        let datastore = if machine["spec"]["zone"] == "b" { "vsan-2" } else { "vsan-1" };
        assert_eq!(placements[&name].datastore.as_deref(), Some(datastore));
    }
    let kubeconfig = world.secret("shop-kubeconfig");
    assert_eq!(kubeconfig.type_.as_deref(), Some("cluster.x-k8s.io/secret"));
    assert_eq!(kubeconfig.metadata.labels.unwrap()["cluster.x-k8s.io/cluster-name"], "shop");
    let text = String::from_utf8(kubeconfig.data.unwrap()["value"].0.clone()).unwrap();
    assert!(text.contains("https://192.168.10.2"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn looks_at_a_ready_cluster_write_nothing() {
    let world = World::ready().await;
    world.reconcile().await.unwrap();
    let (before, changes) = (world.api.object("tenantclusters"), world.place.lock().changes.len());
    let (leases, given) = (world.api.names("leases"), world.place.lock().given);
    world.reconciles(10, 60).await;
    assert_eq!(world.api.object("tenantclusters"), before);
    assert_eq!((world.api.names("leases"), world.place.lock().changes.len()), (leases, changes));
    assert_eq!(world.place.lock().given, given, "finding 23 of controller.md: a look issues no certificate");
}

/// Without the finalizer the object would be deleted, and its VMs would stay.
#[tokio::test(start_paused = true)]
async fn a_removed_finalizer_is_added_again() {
    let world = World::ready().await;
    let read = || world.api.read::<TenantCluster>(Some("team-blue"), "shop").unwrap();
    let kept = read().metadata.finalizers;
    assert!(kept.is_some());
    let mut bare = read();
    bare.metadata.finalizers = None;
    world.api.put(&bare);
    world.reconcile().await.unwrap();
    assert_eq!(read().metadata.finalizers, kept);
    world.is_deleted("its VMs went first").await;
}

/// Repeated deletions of a Secret that is being deleted change nothing, and cost the same each time.
#[tokio::test(start_paused = true)]
async fn a_foreign_finalizer_does_not_delay_a_cluster() {
    let world = World::ready().await;
    let mut kept = world.secret("shop-kubeconfig");
    kept.metadata.finalizers = Some(vec!["x.example/y".to_owned()]);
    world.api.put(&kept);
    world.delete();
    world.until("gone", World::is_gone).await;
    assert_eq!(world.api.names("secrets"), ["shop-kubeconfig"]);
    assert!(world.place.vms().is_empty() && world.api.names("machines").is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_kubeconfig_is_renewed_before_it_expires() {
    let world = World::ready().await;
    let (own, first) = (world.own_kubeconfig(), world.kubeconfig());
    tokio::time::sleep(Duration::from_secs(11 * 3600)).await;
    world.reconcile().await.unwrap();
    assert_eq!(world.own_kubeconfig(), own);
    tokio::time::sleep(Duration::from_secs(3600 + 60)).await;
    world.reconcile().await.unwrap();
    assert_ne!(world.own_kubeconfig(), own);
    tokio::time::sleep(Duration::from_secs(70 * 3600)).await;
    world.reconcile().await.unwrap();
    assert_eq!(world.kubeconfig(), first, "users' one is valid for a week");
    tokio::time::sleep(Duration::from_secs(3 * 3600)).await;
    world.reconcile().await.unwrap();
    let second = world.kubeconfig();
    assert_ne!(second, first);
    // Its user stays, and is bound once: a removed binding is not made again.
    let user = |text: &str| Kubeconfig::parse(text).unwrap().user().unwrap();
    assert_eq!(user(&second), user(&first));
    assert_eq!(world.place.lock().administrators.iter().collect::<Vec<_>>(), [&user(&first)]);
    world.is_whole("it was renewed");
}

/// Finding 6 of controller.md: vCenter is away for four days.
#[tokio::test(start_paused = true)]
async fn a_cluster_serves_and_renews_without_vcenter() {
    let world = World::ready().await;
    world.reconcile().await.unwrap();
    let (own, first) = (world.own_kubeconfig(), world.kubeconfig());
    world.place.lock().is_away = true;
    for _ in 0..96 {
        world.reconcile().await.unwrap();
        assert!(world.is_ready(), "{:?}", world.condition("Ready"));
        assert_eq!(world.condition("ControlPlaneReady").1, "AllReady");
        world.says("Preflight", "ProviderNotReached", "does not answer");
        assert_eq!(world.status()["controlPlane"]["ready"], 3);
        tokio::time::sleep(Duration::from_secs(3600)).await;
    }
    assert!(world.own_kubeconfig() != own && world.kubeconfig() != first);
    // Without an answer of either, nothing is known, and the numbers stay.
    world.place.lock().is_silent = true;
    world.reconcile().await.unwrap();
    for about in ["ControlPlaneReady", "Ready"] {
        assert_eq!(world.condition(about).0, "Unknown", "{about}");
    }
    assert_eq!(world.status()["controlPlane"]["ready"], 3);
    world.place.lock().is_away = false;
    world.place.lock().is_silent = false;
    world.until("as before", |it| it.condition("Preflight").1 == "Passed").await;
}

/// Finding 12 of controller.md.
#[tokio::test(start_paused = true)]
async fn a_paused_cluster_renews_its_kubeconfig() {
    let world = World::ready().await;
    let mut paused: TenantCluster = serde_json::from_value(world.api.object("tenantclusters")).unwrap();
    paused.spec.paused = true;
    world.api.put(&paused);
    let (own, first) = (world.own_kubeconfig(), world.kubeconfig());
    tokio::time::sleep(Duration::from_secs(8 * 24 * 3600)).await;
    // Both have expired, and no node gives another one.
    world.place.lock().is_ill = true;
    world.reconcile().await.unwrap();
    assert!(world.own_kubeconfig() == own && world.kubeconfig() == first);
    assert!(!world.is_ready(), "{:?}", world.condition("Ready"));
    world.place.lock().is_ill = false;
    world.reconcile().await.unwrap();
    assert!(world.own_kubeconfig() != own && world.kubeconfig() != first);
    assert!(world.is_ready() && world.condition("Progressing").1 == "Paused");
}

// Finding 1 of controller.md: a tenant who reads the kubeconfig gets no key of the deployer.
#[tokio::test(start_paused = true)]
async fn the_kubeconfig_for_users_has_its_own_user() {
    let world = World::ready().await;
    let given = Kubeconfig::parse(&world.kubeconfig()).unwrap();
    assert!(given.user().unwrap().starts_with("kaas:kubeconfig:"));
    let data = world.keys().data.unwrap();
    assert_eq!(data.keys().collect::<Vec<_>>(), ["deployment-secret", "key.pem", "kubeconfig"]);
    let (pem, own) = (String::from_utf8(data["key.pem"].0.clone()).unwrap(), world.own_kubeconfig());
    assert!(given.key.expose() != pem && !world.kubeconfig().contains(pem.trim()));
    assert_ne!(Kubeconfig::parse(&own).unwrap().key.expose(), given.key.expose());
    let role = world.api.object("roles");
    assert_eq!(role["metadata"]["name"], "shop-kubeconfig");
    let rule =
        json!({"apiGroups": [""], "resourceNames": ["shop-kubeconfig"], "resources": ["secrets"], "verbs": ["get"]});
    assert_eq!(role["rules"], json!([rule]));
    // A removed Secret is written again, for another user.
    world.api.remove::<k8s_openapi::api::core::v1::Secret>(Some("team-blue"), "shop-kubeconfig");
    world.reconcile().await.unwrap();
    assert_ne!(Kubeconfig::parse(&world.kubeconfig()).unwrap().user(), given.user());
}

/// Finding 7 of controller.md: the image does not know `nodePrefix` 25. Its nodes would take a /24 each.
#[tokio::test(start_paused = true)]
async fn image_without_node_prefix_refuses_25() {
    for prefix in [24, 25] {
        let mut world = World::new();
        world.place.lock().unknown_property = Some(contract::properties::NODE_PREFIX);
        world.cluster.spec.network.node_prefix = prefix;
        world.api.put(&world.cluster);
        if prefix == 24 {
            world.until("ready", World::is_ready).await;
            continue;
        }
        world.reconciles(4, 60).await;
        world.says("Progressing", "Blocked", "no property node-prefix");
        assert!(world.place.vms().is_empty() && !world.is_ready());
        world.is_deleted("it has no VM").await;
    }
}

#[tokio::test(start_paused = true)]
async fn unsigned_certificates_stop_no_cluster() {
    let world = World::new();
    world.place.lock().signs_nothing = true;
    world.reconciles(20, 15).await;
    assert_eq!(world.place.vms().len(), 3);
    assert!(!world.is_ready(), "users have no kubeconfig");
    world.place.lock().signs_nothing = false;
    world.until("ready", World::is_ready).await;
}

/// A user who may write Secrets in the namespace cannot make the controller call other servers.
#[tokio::test(start_paused = true)]
async fn a_foreign_kubeconfig_is_replaced_without_use() {
    let world = World::ready().await;
    let own = Kubeconfig::parse(&world.kubeconfig()).unwrap();
    let other = rcgen::CertificateParams::new(Vec::new()).unwrap();
    let other = other.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().pem();
    let served_by = |server: &str| Kubeconfig { server: server.to_owned(), ..own.clone() };
    let foreign = [
        served_by("https://10.0.0.5:6443"),
        served_by("https://10.0.0.5/rest/x?"),
        served_by("https://192.168.10.20:2379"),
        served_by("https://192.168.10.20:6443/x?"),
        served_by("https://192.168.10.20:6443@10.0.0.5:6443"),
        served_by("https://localhost:6443"),
        Kubeconfig { authority: other.clone(), ..own.clone() },
        Kubeconfig { authority: [other.as_str(), &own.authority].concat(), ..own.clone() },
        Kubeconfig { authority: String::new(), ..own.clone() },
        // The certificate of another CA, with the cluster's own server and CA.
        Kubeconfig { certificate: other, ..own.clone() },
    ];
    let texts = foreign.map(|foreign| foreign.render("deployer").to_string());
    // With these fields a client runs a program, or calls through another server.
    let beyond = [
        ("/users/0/user", "exec", json!({"command": "sh"})),
        ("/clusters/0/cluster", "proxy-url", json!("http://10.0.0.5")),
    ];
    let beyond = beyond.map(|(of, field, value)| {
        let mut text: Value = serde_json::from_str(&own.render("deployer")).unwrap();
        text.pointer_mut(of).unwrap()[field] = value;
        text.to_string()
    });
    for text in texts.into_iter().chain(beyond).chain(["x".to_owned(), String::new()]) {
        world.put_kubeconfig(&text);
        world.reconcile().await.unwrap();
        assert!(!world.place.lock().asked_by.contains(&text), "{text}");
        let anew = world.kubeconfig();
        assert_ne!(anew, text);
        assert_eq!(Kubeconfig::parse(&anew).unwrap().authority, own.authority);
        assert!(world.is_ready());
    }
    // A kubeconfig for the cluster's endpoint stays. The controller uses its own.
    let text = served_by("https://192.168.10.10:6443").render("deployer").to_string();
    world.put_kubeconfig(&text);
    world.reconcile().await.unwrap();
    assert_eq!(world.kubeconfig(), text);
    assert!(!world.place.lock().asked_by.contains(&text));
}

#[tokio::test(start_paused = true)]
async fn only_a_paused_cluster_leaves_nodes_off() {
    let world = World::ready().await;
    let mut paused = world.cluster.clone();
    paused.spec.paused = true;
    let put = |cluster: &TenantCluster| {
        let mut cluster = cluster.clone();
        let there = world.api.object("tenantclusters");
        cluster.status = serde_json::from_value(there["status"].clone()).unwrap();
        cluster.metadata = serde_json::from_value(there["metadata"].clone()).unwrap();
        world.api.put(&cluster);
    };
    put(&paused);
    world.place.change("shop-cp2", |vm| vm.power = PowerState::Off);
    world.reconcile().await.unwrap();
    assert_eq!(world.condition("Progressing").1, "Paused");
    world.says("ControlPlaneReady", "Degraded", "shop-cp2: its VM is off");
    assert!(world.is_ready(), "the others serve");
    put(&world.cluster);
    world.until("all are on", |world| world.condition("ControlPlaneReady").1 == "AllReady").await;
}

/// Work under way ends if it is no longer wanted.
#[tokio::test(start_paused = true)]
async fn a_forming_cluster_is_deleted_immediately() {
    let world = World::new();
    world.place.lock().is_ill = true;
    let deleted = || {
        assert_eq!(world.place.vms().len(), 3);
        world.delete();
    };
    let took = world.reconciles_with(30, deleted).await;
    assert!(world.is_gone() && took < Duration::from_secs(60), "{took:?}");
    world.is_clean("it was deleted while it formed");
}

#[tokio::test(start_paused = true)]
async fn a_closing_controller_leaves_work_to_the_next() {
    let mut world = World::new();
    world.place.lock().is_ill = true;
    let took = world.reconciles_with(30, || world.term.close()).await;
    assert!(took < Duration::from_secs(40), "{took:?}");
    assert_eq!(world.place.vms().len(), 3);
    world.place.lock().is_ill = false;
    world.term = Term::unlimited("controller two");
    world.until("ready", World::is_ready).await;
    world.is_whole("another one has gone on");
}

#[tokio::test(start_paused = true)]
async fn a_closing_controller_does_not_cut_power() {
    let mut world = World::ready().await;
    world.place.lock().is_slow = true;
    world.delete();
    let took = world.reconciles_with(10, || world.term.close()).await;
    assert!(took < Duration::from_secs(30), "{took:?}");
    assert!(!world.place.lock().changes.contains(&"cut_power"));
    assert_eq!(world.place.vms().len(), 3);
    // The next controller waits as long as guests may take, and no longer.
    world.term = Term::unlimited("controller two");
    world.goes("another one has gone on").await;
}

#[tokio::test(start_paused = true)]
async fn obstacles_are_in_preflight_before_any_creation() {
    let world = World::new();
    let mut provider = crate::decisions::fixture::provider();
    let conditions = &mut provider.status.as_mut().unwrap().conditions;
    set(conditions, ProviderReason::NotReady, "the password is refused", 1, &crate::decisions::fixture::now());
    world.api.put(&provider);
    world.reconcile().await.unwrap();
    let (status, reason, words) = world.condition("Preflight");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "ProviderNotReady"), "{words}");
    assert_eq!(world.condition("Ready").1, "NotReady");
    assert!(world.api.names("machines").is_empty() && world.place.vms().is_empty());
    // The obstacle passes: the same object continues.
    world.api.put(&crate::decisions::fixture::provider());
    world.place.lock().lacks_template = true;
    world.reconcile().await.unwrap();
    world.says("Preflight", "ImageUnsuitable", "push the OVA");
    assert_eq!(world.api.names("secrets"), [""; 0], "no key is drawn before all else is there");
    world.place.lock().lacks_template = false;
    world.place.lock().is_away = true;
    world.reconcile().await.unwrap();
    assert_eq!(world.condition("Preflight").0, "Unknown", "{:?}", world.condition("Preflight"));
    world.place.lock().is_away = false;
    world.until("ready", World::is_ready).await;
    world.is_whole("what was in the way is gone");
}

#[tokio::test(start_paused = true)]
async fn conditions_have_the_generation_that_was_judged() {
    let world = World::ready().await;
    let judged: TenantCluster = serde_json::from_value(world.api.object("tenantclusters")).unwrap();
    let mut newer = judged.clone();
    newer.spec.image = Some("another".to_owned());
    world.api.put(&newer);
    let objects = Mortal::new(&world.api, None);
    let (places, is_marked) = (&world.place, true);
    let work = Reconciler { objects: &objects, places, term: &world.term, clock: &world.clock, is_marked };
    work.note(&judged, &[(TenantClusterReason::Current, "of before".to_owned())], |_| ()).await.unwrap();
    let seen: TenantCluster = serde_json::from_value(world.api.object("tenantclusters")).unwrap();
    assert!(seen.metadata.generation > judged.metadata.generation, "it is of another spec by now");
    let status = seen.status.unwrap();
    assert!(status.conditions.iter().any(|condition| condition.message == "of before"));
    let of_before = judged.metadata.generation.unwrap();
    assert!(status.conditions.iter().all(|condition| condition.observed_generation == of_before), "{status:?}");
}

#[tokio::test(start_paused = true)]
async fn another_controller_continues_after_a_term() {
    let mut world = World::new();
    world.place.lock().is_ill = true;
    let term = world.term.clone();
    let ends = async {
        tokio::time::sleep(Duration::from_secs(20)).await;
        term.end();
    };
    let (done, ()) = tokio::join!(world.reconcile(), ends);
    assert!(matches!(done, Err(crate::context::ReconcileError::Ended(_))), "{done:?}");
    world.term = crate::term::Term::unlimited("controller two");
    world.place.lock().is_ill = false;
    world.until("ready", World::is_ready).await;
    world.is_whole("another one went on");
}

#[tokio::test(start_paused = true)]
async fn a_foreign_secret_of_that_name_stays() {
    let world = World::new();
    let mut secret = k8s_openapi::api::core::v1::Secret::default();
    (secret.metadata.name, secret.metadata.namespace) =
        (Some(crate::decisions::fixture::UID.to_owned()), Some(crate::objects::SYSTEM.to_owned()));
    world.api.put(&secret);
    world.reconcile().await.unwrap();
    world.says("Preflight", "SecretMissing", "was not made for this cluster");
    assert!(world.place.vms().is_empty());
}

/// Kubernetes writes tokens into Secrets of some types: an owner reference does not make a Secret the cluster's own.
#[tokio::test(start_paused = true)]
async fn an_owned_secret_of_another_type_stays() {
    let world = World::ready().await;
    let mut other = world.secret("shop-kubeconfig");
    other.type_ = Some("kubernetes.io/service-account-token".to_owned());
    world.api.put(&other);
    world.reconcile().await.unwrap();
    world.says("Progressing", "Blocked", "was not made for this cluster");
    // Kubernetes deletes it with its owner, and it does not delay the deletion.
    world.delete();
    world.until("gone", World::is_gone).await;
    assert_eq!(world.api.names("secrets"), ["shop-kubeconfig"]);
    assert_eq!(world.secret("shop-kubeconfig").type_, other.type_);
}
