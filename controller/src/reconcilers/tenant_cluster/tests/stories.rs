//! What a person sees.

use std::time::Duration;

use contract::kubeconfig::Kubeconfig;
use fleet::hypervisor::{Disk, DiskKind, DiskRef, PowerState};
use k8s_openapi::api::core::v1::{Node, Secret};
use kube::ResourceExt;
use kube::api::ObjectMeta;
use serde_json::json;
use uuid::Uuid;

use super::super::Work;
use super::{Mortal, World};
use crate::objects::{
    AddressRange, Limits, Machine, NodePool, ProviderReason, Reference, ServiceVips, TenantCluster,
    TenantClusterReason, VMClass, set,
};
use crate::term::Term;

#[tokio::test(start_paused = true)]
async fn a_cluster_is_made_of_its_object_and_hands_its_kubeconfig_over() {
    let world = World::new();
    world.until("ready", World::is_ready).await;
    world.is_whole("it is ready");
    let status = world.status();
    assert_eq!(status["resolved"]["endpoint"], "192.168.10.10");
    assert_eq!((&status["controlPlane"]["ready"], &status["kubernetes"]), (&3.into(), &"1.36".into()));
    assert_eq!(status["version"], "1.36.2");
    for (about, reason) in [
        ("Preflight", "Possible"),
        ("ControlPlaneReady", "AllReady"),
        ("NodesReady", "AllReady"),
        ("Progressing", "Settled"),
    ] {
        assert_eq!(world.condition(about).1, reason, "{about}");
    }
    // Each VM is its Machine's, in its Machine's zone.
    let (vms, placements) = (world.place.vms(), world.place.placements());
    for name in world.api.names("machines") {
        let of = crate::reach::Collection::of::<Machine>(Some("team-blue"));
        let machine = crate::reach::Objects::get(&world.api, &of, &name).await.unwrap();
        assert_eq!(machine["metadata"]["uid"], vms[&name].to_string(), "{name}");
        assert_eq!(
            (&machine["status"]["phase"], &machine["status"]["vms"][0]["uuid"]),
            (&"Member".into(), &vms[&name].to_string().into())
        );
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
async fn a_cluster_that_is_ready_is_looked_at_and_nothing_is_written() {
    let world = World::new();
    world.until("ready", World::is_ready).await;
    world.reconcile().await.unwrap();
    let (before, changes) = (world.api.object("tenantclusters"), world.place.lock().changes.len());
    let (leases, given) = (world.api.names("leases"), world.place.lock().given);
    for _ in 0..10 {
        world.reconcile().await.unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
    assert_eq!(world.api.object("tenantclusters"), before);
    assert_eq!((world.api.names("leases"), world.place.lock().changes.len()), (leases, changes));
    assert!(world.place.lock().given > given, "it is asked how it is");
}

/// Who takes it off would have the object go, and its VMs stay.
#[tokio::test(start_paused = true)]
async fn a_finalizer_that_was_taken_off_is_put_on_again() {
    let world = World::new();
    world.until("ready", World::is_ready).await;
    let read = || world.api.read::<TenantCluster>(Some("team-blue"), "shop").unwrap();
    let kept = read().metadata.finalizers;
    assert!(kept.is_some());
    let mut bare = read();
    bare.metadata.finalizers = None;
    world.api.put(&bare);
    world.reconcile().await.unwrap();
    assert_eq!(read().metadata.finalizers, kept);
    world.delete();
    world.until("gone", World::is_gone).await;
    world.is_clean("its VMs went first");
}

/// Asking again what is going already changes nothing, and costs as much each time.
#[tokio::test(start_paused = true)]
async fn a_secret_that_somebody_else_keeps_holds_no_cluster_up() {
    let world = World::new();
    world.until("ready", World::is_ready).await;
    let mut kept = world.secret("shop-kubeconfig");
    kept.metadata.finalizers = Some(vec!["x.example/y".to_owned()]);
    world.api.put(&kept);
    world.delete();
    world.until("gone", World::is_gone).await;
    assert_eq!(world.api.names("secrets"), ["shop-kubeconfig"]);
    assert!(world.place.vms().is_empty() && world.api.names("machines").is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_kubeconfig_is_renewed_before_it_ends() {
    let world = World::new();
    world.until("ready", World::is_ready).await;
    let first = world.secret("shop-kubeconfig").data;
    tokio::time::sleep(Duration::from_secs(11 * 3600)).await;
    world.reconcile().await.unwrap();
    assert_eq!(world.secret("shop-kubeconfig").data, first);
    tokio::time::sleep(Duration::from_secs(3600 + 60)).await;
    world.reconcile().await.unwrap();
    assert_ne!(world.secret("shop-kubeconfig").data, first);
    world.is_whole("it was renewed");
}

/// Whoever may write Secrets beside a cluster has the controller ask nobody but the cluster.
#[tokio::test(start_paused = true)]
async fn a_kubeconfig_that_leads_elsewhere_is_never_gone_by_and_is_written_anew() {
    let world = World::new();
    world.until("ready", World::is_ready).await;
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
    ];
    let texts = foreign.map(|foreign| foreign.render("deployer").to_string());
    for text in texts.into_iter().chain(["x".to_owned(), String::new()]) {
        world.put_kubeconfig(&text);
        world.reconcile().await.unwrap();
        assert!(!world.place.lock().asked_by.contains(&text), "{text}");
        let anew = world.kubeconfig();
        assert_ne!(anew, text);
        assert_eq!(Kubeconfig::parse(&anew).unwrap().authority, own.authority);
        assert!(world.is_ready());
    }
    // One that is the cluster's own, by its endpoint, stays.
    let text = served_by("https://192.168.10.10:6443").render("deployer").to_string();
    world.put_kubeconfig(&text);
    world.reconcile().await.unwrap();
    assert_eq!(world.kubeconfig(), text);
    assert!(world.place.lock().asked_by.contains(&text));
}

#[tokio::test(start_paused = true)]
async fn a_control_node_that_is_off_is_powered_on_unless_the_cluster_is_paused() {
    let world = World::new();
    world.until("ready", World::is_ready).await;
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
    let (_, reason, words) = world.condition("ControlPlaneReady");
    assert!(reason == "Degraded" && words.contains("shop-cp2: its VM is off"), "{reason}: {words}");
    assert!(world.is_ready(), "the others serve");
    put(&world.cluster);
    world.until("all are on", |world| world.condition("ControlPlaneReady").1 == "AllReady").await;
}

/// What is under way waits no longer for what nobody wants any more.
#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_deleted_while_it_forms_goes_at_once() {
    let world = World::new();
    world.place.lock().is_ill = true;
    let begun = tokio::time::Instant::now();
    let deleted = async {
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert_eq!(world.place.vms().len(), 3);
        world.delete();
    };
    let (done, ()) = tokio::join!(world.reconcile(), deleted);
    done.unwrap();
    assert!(world.is_gone() && begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    world.is_clean("it was deleted while it formed");
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_is_to_end_waits_for_nothing_and_the_next_one_goes_on() {
    let mut world = World::new();
    world.place.lock().is_ill = true;
    let begun = tokio::time::Instant::now();
    let closed = async {
        tokio::time::sleep(Duration::from_secs(30)).await;
        world.term.close();
    };
    let (done, ()) = tokio::join!(world.reconcile(), closed);
    done.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
    assert_eq!(world.place.vms().len(), 3);
    world.place.lock().is_ill = false;
    world.term = Term::unlimited("controller two");
    world.until("ready", World::is_ready).await;
    world.is_whole("another one has gone on");
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_is_to_end_waits_for_no_guest_that_shuts_down_and_cuts_no_power_for_it() {
    let mut world = World::new();
    world.until("ready", World::is_ready).await;
    world.place.lock().is_slow = true;
    world.delete();
    let begun = tokio::time::Instant::now();
    let closed = async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        world.term.close();
    };
    let (done, ()) = tokio::join!(world.reconcile(), closed);
    done.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    assert!(!world.place.lock().changes.contains(&"cut_power"));
    assert_eq!(world.place.vms().len(), 3);
    // Whoever comes next waits as long as guests may take, and no longer.
    world.term = Term::unlimited("controller two");
    world.until("gone", World::is_gone).await;
    world.is_clean("another one has gone on");
}

#[tokio::test(start_paused = true)]
async fn what_is_in_the_way_stands_in_preflight_and_nothing_is_made() {
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
    // It passes: the same object goes on.
    world.api.put(&crate::decisions::fixture::provider());
    world.place.lock().lacks_template = true;
    world.reconcile().await.unwrap();
    let (_, reason, words) = world.condition("Preflight");
    assert!(reason == "ImageUnsuitable" && words.contains("push the OVA"), "{reason} {words}");
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
async fn what_was_judged_by_a_spec_is_not_said_of_a_newer_one() {
    let world = World::new();
    world.until("ready", World::is_ready).await;
    let judged: TenantCluster = serde_json::from_value(world.api.object("tenantclusters")).unwrap();
    let mut newer = judged.clone();
    newer.spec.image = Some("another".to_owned());
    world.api.put(&newer);
    let objects = Mortal::new(&world.api, None);
    let (places, is_marked) = (&world.place, true);
    let work = Work { objects: &objects, places, term: &world.term, clock: &world.clock, is_marked };
    work.note(&judged, &[(TenantClusterReason::Current, "of before".to_owned())], |_| ()).await.unwrap();
    let seen: TenantCluster = serde_json::from_value(world.api.object("tenantclusters")).unwrap();
    assert!(seen.metadata.generation > judged.metadata.generation, "it is of another spec by now");
    let status = seen.status.unwrap();
    assert!(status.conditions.iter().any(|condition| condition.message == "of before"));
    let of_before = judged.metadata.generation.unwrap();
    assert!(status.conditions.iter().all(|condition| condition.observed_generation == of_before), "{status:?}");
}

/// Another cluster at the same API server and in the same place.
fn beside(world: &World, mut cluster: TenantCluster, number: u128) -> World {
    let name = format!("bank{number}");
    (cluster.metadata.name, cluster.metadata.uid) = (Some(name), Some(Uuid::from_u128(number).to_string()));
    world.api.put(&cluster);
    World {
        cluster,
        api: world.api.clone(),
        place: world.place.clone(),
        clock: world.clock.clone(),
        term: world.term.clone(),
        is_marked: world.is_marked,
    }
}

/// The reasons of a cluster's conditions.
fn reasons(world: &World) -> Vec<String> {
    let (namespace, name) = (world.cluster.namespace(), world.cluster.name_any());
    let seen: TenantCluster = world.api.read(namespace.as_deref(), &name).unwrap();
    seen.status.unwrap_or_default().conditions.into_iter().map(|condition| condition.reason).collect()
}

/// Two clusters at work at the same time, as a controller has them.
async fn both(one: &World, other: &World) {
    for _ in 0..10 {
        let (first, second) = tokio::join!(one.reconcile(), other.reconcile());
        first.unwrap();
        second.unwrap();
        tokio::time::sleep(Duration::from_secs(30)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn two_clusters_never_have_the_same_address() {
    type Names<'a> = &'a dyn Fn(&mut TenantCluster);
    let endpoint = |cluster: &mut TenantCluster, address: &str| {
        cluster.spec.network.endpoint.address = Some(address.to_owned());
    };
    let vips = |cluster: &mut TenantCluster, first: &str, last: &str| {
        let range = AddressRange { first: first.to_owned(), last: last.to_owned() };
        cluster.spec.network.service_vips =
            Some(ServiceVips { ranges: Some(vec![range]), pool_ref: None, count: None });
    };
    let elsewhere = |cluster: &mut TenantCluster| cluster.metadata.namespace = Some("team-red".to_owned());
    let cases: [(&str, Names<'_>, Names<'_>); 4] = [
        ("a pool gives it to nodes", &|it| endpoint(it, "192.168.10.25"), &|it| endpoint(it, "192.168.10.25")),
        ("beside all ranges", &|it| endpoint(it, "192.168.10.95"), &|it| endpoint(it, "192.168.10.95")),
        ("another one's Services", &|it| endpoint(it, "192.168.10.95"), &|it| {
            elsewhere(it);
            endpoint(it, "192.168.10.90");
            vips(it, "192.168.10.94", "192.168.10.96");
        }),
        ("Services of both", &|it| vips(it, "192.168.10.90", "192.168.10.95"), &|it| {
            elsewhere(it);
            endpoint(it, "192.168.10.89");
            vips(it, "192.168.10.95", "192.168.10.99");
        }),
    ];
    for (what, of_one, of_other) in cases {
        let mut world = World::new();
        let mut provider = crate::decisions::fixture::provider();
        provider.spec.allowed_namespaces.names.push("team-red".to_owned());
        world.api.put(&provider);
        let mut other = world.cluster.clone();
        of_one(&mut world.cluster);
        world.api.put(&world.cluster);
        of_other(&mut other);
        let other = beside(&world, other, 77);
        both(&world, &other).await;
        let said = [reasons(&world), reasons(&other)];
        let is = |reason: &str| said.iter().filter(|it| it.iter().any(|said| said == reason)).count();
        assert_eq!((is("AddressesMissing"), is("Serves")), (1, 1), "{what}: {said:?}");
        let machines = world.api.names("machines");
        assert_eq!(machines.len(), 3, "{what}: who cannot have it makes nothing: {machines:?}");
    }
}

/// Also where nobody has reserved them.
#[tokio::test(start_paused = true)]
async fn the_addresses_of_the_control_clusters_nodes_and_of_vcenters_are_no_clusters() {
    for of_node in [true, false] {
        let mut world = World::new();
        if of_node {
            let node = json!({"metadata": {"name": "cp1"}, "status": {"addresses": [
                {"type": "Hostname", "address": "cp1"}, {"type": "InternalIP", "address": "192.168.10.95"},
            ]}});
            world.api.put_value(&crate::reach::Collection::of::<Node>(None), node);
        } else {
            let mut provider = crate::decisions::fixture::provider();
            provider.metadata.name = Some("dc2".to_owned());
            provider.spec.vsphere.as_mut().unwrap().server = "192.168.10.95".to_owned();
            world.api.put(&provider);
        }
        world.cluster.spec.network.endpoint.address = Some("192.168.10.95".to_owned());
        world.api.put(&world.cluster);
        world.reconcile().await.unwrap();
        let (_, reason, words) = world.condition("Preflight");
        assert!(reason == "AddressesMissing" && words.contains("192.168.10.95 is reserved"), "{reason} {words}");
        assert!(world.api.names("machines").is_empty() && world.api.names("ipaddresses").is_empty());
    }
}

/// Addresses are counted by no limit.
#[tokio::test(start_paused = true)]
async fn a_cluster_with_something_in_its_way_has_no_addresses_that_others_could_have() {
    let mut world = World::new();
    // With its nodes' all that the pool has.
    world.cluster.spec.network.service_vips =
        Some(ServiceVips { ranges: None, pool_ref: Some(Reference::to("blue-nodes")), count: Some(7) });
    world.api.put(&world.cluster);
    world.place.lock().lacks_template = true;
    for _ in 0..10 {
        world.reconcile().await.unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
    assert_eq!(world.condition("Preflight").1, "ImageUnsuitable");
    assert_eq!(world.api.names("ipaddresses"), [""; 0]);
    // A Secret that a person has put in the place of its own.
    let name = ObjectMeta {
        name: Some("shop-deployer".to_owned()),
        namespace: Some("team-blue".to_owned()),
        ..ObjectMeta::default()
    };
    world.api.put(&Secret { metadata: name, ..Secret::default() });
    world.place.lock().lacks_template = false;
    world.reconcile().await.unwrap();
    assert!(reasons(&world).iter().any(|reason| reason == "SecretMissing"), "{:?}", reasons(&world));
    let other = beside(&world, crate::decisions::fixture::cluster(), 77);
    both(&world, &other).await;
    assert!(reasons(&world).iter().any(|reason| reason == "AddressesMissing"), "{:?}", reasons(&world));
    assert!(reasons(&other).iter().any(|reason| reason == "Serves"), "{:?}", reasons(&other));
    assert_eq!(world.api.names("ipaddresses").len(), 6, "all are the other one's");
}

/// Has controllers die until the cluster has so many addresses, which it claims one by one.
async fn has_addresses(world: &World, count: usize) {
    while held_by(world).1 < count {
        let before = held_by(world);
        for calls in 0..100 {
            let _ = world.reconcile_at(&Mortal::new(&world.api, Some((calls, false)))).await;
            if held_by(world) != before {
                break;
            }
        }
        assert_ne!(held_by(world), before, "it goes no further");
    }
    assert_eq!((held_by(world).1, world.place.vms().len()), (count, 0));
}

/// One that has begun to claim, and that somebody then has stand still, or that never could go on.
#[tokio::test(start_paused = true)]
async fn who_goes_no_further_before_his_first_vm_gives_back_what_he_has() {
    type Stops<'a> = &'a dyn Fn(&World);
    let edit = |world: &World, edit: &dyn Fn(&mut TenantCluster)| {
        let mut cluster: TenantCluster = serde_json::from_value(world.api.object("tenantclusters")).unwrap();
        edit(&mut cluster);
        world.api.put(&cluster);
    };
    let cases: [(&str, Stops<'_>); 4] = [
        ("Paused", &|world| edit(world, &|it| it.spec.paused = true)),
        ("ReferenceMissing", &|world| {
            edit(world, &|it| it.spec.control_plane.vm_class = "of-nobody".to_owned());
        }),
        ("NamespaceNotAllowed", &|world| {
            let mut provider = crate::decisions::fixture::provider();
            provider.spec.allowed_namespaces.names.clear();
            world.api.put(&provider);
        }),
        ("AddressesMissing", &|world| {
            edit(world, &|it| it.spec.network.endpoint.address = Some("192.168.10.1".to_owned()));
        }),
    ];
    for (reason, stops) in cases {
        let world = World::new();
        has_addresses(&world, 3).await;
        stops(&world);
        for _ in 0..2 {
            world.reconcile().await.unwrap();
        }
        assert!(is_so(&world, reason), "{reason}: {:?}", reasons(&world));
        assert_eq!(held_by(&world), (0, 0), "{reason}");
        assert_eq!(world.api.names("ipaddresses"), [""; 0], "{reason}");
    }
    // What is not known may be well in a moment.
    let world = World::new();
    has_addresses(&world, 3).await;
    world.place.lock().is_away = true;
    for _ in 0..2 {
        world.reconcile().await.unwrap();
    }
    assert_eq!((world.condition("Preflight").0.as_str(), held_by(&world)), ("Unknown", (3, 6)));
}

/// Each has taken a part of what it needs, and what is left suffices for neither.
#[tokio::test(start_paused = true)]
async fn of_two_clusters_that_take_each_others_addresses_the_first_one_has_them_and_the_other_comes_after() {
    let mut world = World::new();
    let four = Some(ServiceVips { ranges: None, pool_ref: Some(Reference::to("blue-nodes")), count: Some(4) });
    world.cluster.spec.network.service_vips = four;
    world.api.put(&world.cluster);
    let mut other = world.cluster.clone();
    other.spec.network.endpoint.address = Some("192.168.10.11".to_owned());
    let other = beside(&world, other, 77);
    for one in [&world, &other] {
        // The endpoint and the nodes.
        has_addresses(one, 4).await;
    }
    // Both have seen four that are free, and each has had another one of them.
    for (one, last) in [(&world, 26), (&other, 27)] {
        let seen: TenantCluster = one.api.read(one.cluster.namespace().as_deref(), &one.cluster.name_any()).unwrap();
        let claimant = crate::objects::Claimant {
            kind: "TenantCluster".to_owned(),
            namespace: "team-blue".to_owned(),
            name: seen.name_any(),
            uid: seen.uid().unwrap(),
            purpose: crate::objects::Purpose::ServiceVip,
            index: 0,
        };
        let address = std::net::Ipv4Addr::new(192, 168, 10, last);
        world.api.put(&crate::decisions::claimed("blue-nodes", address, claimant));
    }
    both(&other, &world).await;
    assert!(
        is_so(&world, "Serves") && is_so(&other, "AddressesMissing"),
        "{:?} {:?}",
        reasons(&world),
        reasons(&other)
    );
    assert_eq!((held_by(&other), held_by(&world)), ((0, 0), (3, 8)), "who waits holds nothing");
    world.delete();
    both(&world, &other).await;
    assert!(is_so(&other, "Serves"), "{:?}", reasons(&other));
}

#[tokio::test(start_paused = true)]
async fn what_a_pool_reserves_is_no_clusters() {
    for address in ["192.168.10.95", "192.168.10.25", "192.168.10.2", "192.168.10.1"] {
        let mut world = World::new();
        let mut pool = crate::decisions::fixture::pool();
        pool.spec.reserved = vec!["192.168.10.95".to_owned(), "192.168.10.25".to_owned()];
        world.api.put(&pool);
        world.cluster.spec.network.endpoint.address = Some(address.to_owned());
        world.api.put(&world.cluster);
        world.reconcile().await.unwrap();
        let (_, reason, words) = world.condition("Preflight");
        assert!(reason == "AddressesMissing" && words.contains(address), "{reason} {words}");
        assert!(world.api.names("machines").is_empty() && world.api.names("ipaddresses").is_empty());
    }
}

/// The Provider with room for so many nodes.
fn limited(world: &World, nodes: u32) {
    let mut provider = crate::decisions::fixture::provider();
    provider.spec.limits = Some(Limits { nodes: Some(nodes), processors: None, memory_mib: None });
    world.api.put(&provider);
}

fn is_so(world: &World, reason: &str) -> bool {
    reasons(world).iter().any(|said| said == reason)
}

/// So many of its Machines and addresses, by the cluster's name.
fn held_by(world: &World) -> (usize, usize) {
    let name = world.cluster.name_any();
    let machines = world.api.names("machines").into_iter().filter(|it| it.starts_with(&name)).count();
    let of = crate::reach::Collection::of::<crate::objects::IPAddress>(None);
    let all = futures_util::FutureExt::now_or_never(crate::reach::Objects::list(&world.api, &of, None));
    let is_own = |it: &&serde_json::Value| {
        it["spec"]["claimant"]["name"].as_str().is_some_and(|claimant| claimant.starts_with(&name))
    };
    (machines, all.unwrap().unwrap().iter().filter(is_own).count())
}

/// Has controllers die until the cluster has its Machines and addresses, and no VM.
async fn has_all_before_its_first_vm(world: &World) {
    for calls in 0..100 {
        let _ = world.reconcile_at(&Mortal::new(&world.api, Some((calls, false)))).await;
        if held_by(world) == (3, 6) {
            break;
        }
    }
    assert_eq!((held_by(world), world.place.vms().len()), ((3, 6), 0));
}

#[tokio::test(start_paused = true)]
async fn where_there_is_room_for_one_of_two_the_first_one_has_it_and_the_other_comes_after() {
    let world = World::new();
    let mut other = world.cluster.clone();
    other.spec.network.endpoint.address = Some("192.168.10.11".to_owned());
    let other = beside(&world, other, 77);
    for one in [&world, &other] {
        has_all_before_its_first_vm(one).await;
    }
    limited(&world, 5);
    both(&other, &world).await;
    assert!(is_so(&world, "Serves") && is_so(&other, "CapacityMissing"), "{:?} {:?}", reasons(&world), reasons(&other));
    assert_eq!((held_by(&other), world.place.vms().len()), ((0, 0), 3), "who waits holds nothing");
    world.delete();
    both(&world, &other).await;
    assert!(is_so(&other, "Serves"), "{:?}", reasons(&other));
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_too_large_makes_nothing_and_keeps_nobody_out() {
    let world = World::new();
    let mut large = world.cluster.clone();
    large.spec.network.endpoint.address = Some("192.168.10.11".to_owned());
    large.spec.control_plane.vm_class = "medium".to_owned();
    let large = beside(&world, large, 77);
    let mut provider = crate::decisions::fixture::provider();
    provider.spec.limits = Some(Limits { nodes: None, processors: None, memory_mib: Some(3 * 16384 - 1) });
    world.api.put(&provider);
    large.reconcile().await.unwrap();
    assert!(is_so(&large, "CapacityMissing") && held_by(&large) == (0, 0), "{:?}", reasons(&large));
    both(&large, &world).await;
    assert!(is_so(&world, "Serves") && is_so(&large, "CapacityMissing"), "{:?} {:?}", reasons(&world), reasons(&large));
    assert_eq!(held_by(&large), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_cluster_takes_no_addresses_of_another_networks_pool() {
    let mut world = World::new();
    let mut other = crate::decisions::fixture::pool();
    other.metadata.name = Some("green".to_owned());
    (other.spec.subnet, other.spec.gateway) = ("192.168.20.0/24".to_owned(), None);
    (other.spec.ranges[0].first, other.spec.ranges[0].last) = ("192.168.20.5".to_owned(), "192.168.20.9".to_owned());
    world.api.put(&other);
    let pool_ref = Some(Reference::to("green"));
    world.cluster.spec.network.service_vips = Some(ServiceVips { ranges: None, pool_ref, count: Some(5) });
    world.api.put(&world.cluster);
    world.reconcile().await.unwrap();
    let (_, reason, words) = world.condition("Preflight");
    assert!(reason == "RangesOverlap" && words.contains("192.168.20.5"), "{reason} {words}");
    assert_eq!(held_by(&world), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn what_is_named_otherwise_before_the_first_vm_is_given_back() {
    let mut world = World::new();
    has_all_before_its_first_vm(&world).await;
    world.place.lock().is_away = true;
    let there = world.api.object("tenantclusters");
    world.cluster = serde_json::from_value(there).unwrap();
    world.cluster.spec.network.service_vips = None;
    world.api.put(&world.cluster);
    world.reconcile().await.unwrap();
    assert_eq!(held_by(&world), (3, 4));
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_deleted_leaves_nothing_but_what_was_never_its_own() {
    let world = World::new();
    world.until("ready", World::is_ready).await;
    let volume = DiskRef { uuid: Uuid::from_u128(0xf0), path: "[ds] volume.vmdk".to_owned() };
    world.place.lock().disks.insert(volume.uuid, false);
    world.place.change("shop-cp1", |vm| {
        let kind = DiskKind::Foreign;
        vm.disks.push(Disk { reference: volume.clone(), kind, parent: None, controller: "c".to_owned() });
    });
    world.delete();
    world.until("gone", World::is_gone).await;
    world.is_clean("it was deleted");
    assert!(world.place.lock().disks.contains_key(&volume.uuid), "a volume stays");
}

#[tokio::test(start_paused = true)]
async fn pools_of_another_cluster_beside_it_are_none_of_its() {
    let world = World::new();
    let spec = serde_json::json!({"clusterRef": {"name": "shop-2"}, "vmClass": "medium", "replicas": 3});
    let mut other = NodePool::new("shop-2-general", serde_json::from_value(spec).unwrap());
    other.metadata.namespace = Some("team-blue".to_owned());
    world.api.put(&other);
    world.until("ready", World::is_ready).await;
    assert_eq!(world.status()["nodes"]["wanted"].as_i64().unwrap_or_default(), 0, "{}", world.status());
    world.delete();
    world.until("gone", World::is_gone).await;
    world.is_clean("another one has a pool");
    let there: NodePool = world.api.read(Some("team-blue"), "shop-2-general").unwrap();
    assert!(there.metadata.deletion_timestamp.is_none());
}

#[tokio::test(start_paused = true)]
async fn workers_go_before_control_nodes() {
    let world = World::new();
    world.until("ready", World::is_ready).await;
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
    world.until("gone", World::is_gone).await;
    world.is_clean("its pool went first");
}

#[tokio::test(start_paused = true)]
async fn a_cluster_is_deleted_without_its_image_its_class_its_pool_and_its_key() {
    let world = World::new();
    world.until("ready", World::is_ready).await;
    world.api.remove::<crate::objects::NodeImage>(None, "kaas-tenant-0.2.0");
    world.api.remove::<crate::objects::IPPool>(None, "blue-nodes");
    world.api.remove::<VMClass>(None, "medium");
    world.api.remove::<k8s_openapi::api::core::v1::Secret>(Some("team-blue"), "shop-deployer");
    world.reconcile().await.unwrap();
    assert_eq!(world.condition("Progressing").1, "Stuck", "nodes know nobody by another key");
    world.delete();
    world.until("gone", World::is_gone).await;
    world.is_clean("little was left of what it names");
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_never_began_is_deleted_while_the_vcenter_is_away() {
    let world = World::new();
    world.place.lock().is_away = true;
    world.reconcile().await.unwrap();
    assert_eq!(world.api.names("machines").len(), 3);
    world.delete();
    world.until("gone", World::is_gone).await;
    world.is_clean("nothing was begun");
}

#[tokio::test(start_paused = true)]
async fn a_cluster_whose_vcenter_is_away_is_not_known_and_its_deletion_waits() {
    let world = World::new();
    world.until("ready", World::is_ready).await;
    world.place.lock().is_away = true;
    world.reconcile().await.unwrap();
    assert_eq!(world.condition("Ready").0, "Unknown", "{:?}", world.condition("Ready"));
    world.delete();
    for _ in 0..5 {
        world.reconcile().await.unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
    assert!(!world.is_gone() && world.api.names("ipaddresses").len() == 6, "addresses stay with their VMs");
    assert_eq!(world.condition("Progressing").1, "Deleting", "it may answer in a moment");
    assert!(world.condition("Ready").2.contains("does not answer"), "{:?}", world.condition("Ready"));
    world.place.lock().is_away = false;
    world.until("gone", World::is_gone).await;
    world.is_clean("it came back");
}

/// Whoever waits for its end is told that he waits for himself.
#[tokio::test(start_paused = true)]
async fn a_cluster_whose_provider_is_gone_says_that_its_deletion_waits_for_a_person() {
    let world = World::new();
    world.until("ready", World::is_ready).await;
    world.api.remove::<crate::objects::Provider>(None, "dc1");
    assert_eq!(world.api.names("providers"), [""; 0]);
    world.delete();
    world.until("stuck", |it| it.condition("Progressing").1 == "Stuck").await;
    let (_, reason, words) = world.condition("Ready");
    assert!(reason == "Leaving" && words.contains("make it again"), "{reason} {words}");
    assert_eq!(world.place.vms().len(), 3);
    world.api.put(&crate::decisions::fixture::provider());
    world.until("gone", World::is_gone).await;
    world.is_clean("it was made again");
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_does_not_form_says_so_and_can_be_deleted() {
    let world = World::new();
    world.place.lock().is_ill = true;
    for _ in 0..4 {
        world.reconcile().await.unwrap();
        tokio::time::sleep(Duration::from_secs(30)).await;
    }
    assert_eq!(
        (world.condition("Ready").1, world.condition("ControlPlaneReady").1),
        ("Making".to_owned(), "Forming".to_owned())
    );
    assert!(
        world.condition("ControlPlaneReady").2.contains("deploy.forming"),
        "{:?}",
        world.condition("ControlPlaneReady")
    );
    world.delete();
    world.until("gone", World::is_gone).await;
    world.is_clean("it never formed");
}

#[tokio::test(start_paused = true)]
async fn a_term_that_ends_stops_all_work_and_another_controller_goes_on() {
    let mut world = World::new();
    world.place.lock().is_ill = true;
    let term = world.term.clone();
    let ends = async {
        tokio::time::sleep(Duration::from_secs(20)).await;
        term.end();
    };
    let (done, ()) = tokio::join!(world.reconcile(), ends);
    assert!(matches!(done, Err(crate::context::Trouble::Ended(_))), "{done:?}");
    world.term = crate::term::Term::unlimited("controller two");
    world.place.lock().is_ill = false;
    world.until("ready", World::is_ready).await;
    world.is_whole("another one went on");
}

#[tokio::test(start_paused = true)]
async fn a_secret_of_the_same_name_is_not_taken_for_the_clusters_own() {
    let world = World::new();
    let mut secret = k8s_openapi::api::core::v1::Secret::default();
    (secret.metadata.name, secret.metadata.namespace) =
        (Some("shop-deployer".to_owned()), Some("team-blue".to_owned()));
    world.api.put(&secret);
    world.reconcile().await.unwrap();
    let (_, reason, words) = world.condition("Preflight");
    assert!(reason == "SecretMissing" && words.contains("was not made for this cluster"), "{reason} {words}");
    assert!(world.place.vms().is_empty());
}

/// Kubernetes puts tokens into Secrets of some types: a Secret is not the cluster's own because it says so.
#[tokio::test(start_paused = true)]
async fn a_secret_that_names_the_cluster_as_its_owner_and_is_of_another_type_stays_as_it_is() {
    let world = World::new();
    world.until("ready", World::is_ready).await;
    let mut other = world.secret("shop-kubeconfig");
    other.type_ = Some("kubernetes.io/service-account-token".to_owned());
    world.api.put(&other);
    world.reconcile().await.unwrap();
    let (_, reason, words) = world.condition("Progressing");
    assert!(reason == "Stuck" && words.contains("was not made for this cluster"), "{reason} {words}");
    // It goes with its owner, by Kubernetes' own doing, and holds nothing up.
    world.delete();
    world.until("gone", World::is_gone).await;
    assert_eq!(world.api.names("secrets"), ["shop-kubeconfig"]);
    assert_eq!(world.secret("shop-kubeconfig").type_, other.type_);
}
