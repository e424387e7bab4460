//! Several clusters: who gets addresses and room.

use super::*;

/// Another cluster on the same API server and in the same place.
fn neighbour(world: &World, mut cluster: TenantCluster, number: u128) -> World {
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

fn reasons(world: &World) -> Vec<String> {
    let (namespace, name) = (world.cluster.namespace(), world.cluster.name_any());
    let seen: TenantCluster = world.api.read(namespace.as_deref(), &name).unwrap();
    seen.status.unwrap_or_default().conditions.into_iter().map(|condition| condition.reason).collect()
}

/// Reconciles two clusters concurrently, as a controller does.
async fn both(one: &World, other: &World) {
    for _ in 0..10 {
        let (first, second) = tokio::join!(one.reconcile(), other.reconcile());
        first.unwrap();
        second.unwrap();
        tokio::time::sleep(Duration::from_secs(30)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn two_clusters_never_share_an_address() {
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
        let other = neighbour(&world, other, 77);
        both(&world, &other).await;
        let said = [reasons(&world), reasons(&other)];
        let is = |reason: &str| said.iter().filter(|it| it.iter().any(|said| said == reason)).count();
        assert_eq!((is("AddressesMissing"), is("Available")), (1, 1), "{what}: {said:?}");
        let machines = world.api.names("machines");
        assert_eq!(machines.len(), 3, "{what}: who cannot have it makes nothing: {machines:?}");
    }
}

/// Even if the pool does not reserve them.
#[tokio::test(start_paused = true)]
async fn addresses_of_control_cluster_and_vcenters_are_excluded() {
    for of in ["node", "vCenter by address", "vCenter by name"] {
        let mut world = World::new();
        if of == "node" {
            let node = json!({"metadata": {"name": "cp1"}, "status": {"addresses": [
                {"type": "Hostname", "address": "cp1"}, {"type": "InternalIP", "address": "192.168.10.95"},
            ]}});
            world.api.put_value(&crate::reach::Collection::of::<Node>(None), node);
        } else {
            let mut provider = crate::decisions::fixture::provider();
            provider.metadata.name = Some("dc2".to_owned());
            if of == "vCenter by name" {
                provider.status.get_or_insert_default().server_addresses = vec!["192.168.10.95".to_owned()];
            } else {
                provider.spec.vsphere.as_mut().unwrap().server = "192.168.10.95:443".to_owned();
            }
            world.api.put(&provider);
        }
        world.cluster.spec.network.endpoint.address = Some("192.168.10.95".to_owned());
        world.api.put(&world.cluster);
        world.reconcile().await.unwrap();
        world.says("Preflight", "AddressesMissing", "192.168.10.95 is reserved");
        assert!(world.api.names("machines").is_empty() && world.api.names("pooladdresses").is_empty());
    }
}

/// These addresses count for no limit.
#[tokio::test(start_paused = true)]
async fn a_blocked_cluster_holds_no_addresses() {
    let mut world = World::new();
    // With its nodes it needs all addresses of the pool.
    world.cluster.spec.network.service_vips =
        Some(ServiceVips { ranges: None, pool_ref: Some(Reference::to("blue-nodes")), count: Some(7) });
    world.api.put(&world.cluster);
    world.place.lock().lacks_template = true;
    world.reconciles(10, 60).await;
    assert_eq!(world.condition("Preflight").1, "ImageUnsuitable");
    assert_eq!(world.api.names("pooladdresses"), [""; 0]);
    // A foreign Secret with the name of its keys.
    let name = ObjectMeta {
        name: Some(crate::decisions::fixture::UID.to_owned()),
        namespace: Some(crate::objects::SYSTEM.to_owned()),
        ..ObjectMeta::default()
    };
    world.api.put(&Secret { metadata: name, ..Secret::default() });
    world.place.lock().lacks_template = false;
    world.reconcile().await.unwrap();
    assert!(reasons(&world).iter().any(|reason| reason == "SecretMissing"), "{:?}", reasons(&world));
    let other = neighbour(&world, crate::decisions::fixture::cluster(), 77);
    both(&world, &other).await;
    assert!(reasons(&world).iter().any(|reason| reason == "AddressesMissing"), "{:?}", reasons(&world));
    assert!(reasons(&other).iter().any(|reason| reason == "Available"), "{:?}", reasons(&other));
    assert_eq!(world.api.names("pooladdresses").len(), 6, "all are the other one's");
}

/// Controllers die until the cluster has this number of addresses, which it claims one by one.
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

/// The cluster has begun to claim, and is then paused, or could never continue.
#[tokio::test(start_paused = true)]
async fn a_cluster_that_stops_early_releases_addresses() {
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
        world.reconciles(2, 0).await;
        has_reason(&world, reason);
        assert_eq!(held_by(&world), (0, 0), "{reason}");
        assert_eq!(world.api.names("pooladdresses"), [""; 0], "{reason}");
    }
    // An unknown state may pass soon.
    let world = World::new();
    has_addresses(&world, 3).await;
    world.place.lock().is_away = true;
    world.reconciles(2, 0).await;
    assert_eq!((world.condition("Preflight").0.as_str(), held_by(&world)), ("Unknown", (3, 3)));
}

/// Each has claimed a part of what it needs, and the rest is enough for neither.
#[tokio::test(start_paused = true)]
async fn the_older_of_two_clusters_gets_the_addresses() {
    let mut world = World::new();
    let four = Some(ServiceVips { ranges: None, pool_ref: Some(Reference::to("blue-nodes")), count: Some(4) });
    world.cluster.spec.network.service_vips = four;
    world.api.put(&world.cluster);
    let mut other = world.cluster.clone();
    other.spec.network.endpoint.address = Some("192.168.10.11".to_owned());
    let other = neighbour(&world, other, 77);
    for one in [&world, &other] {
        // The endpoint and the nodes.
        has_addresses(one, 4).await;
    }
    // Both have seen four free addresses, and each got a different one of them.
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
    has_reason(&world, "Available");
    has_reason(&other, "AddressesMissing");
    assert_eq!((held_by(&other), held_by(&world)), ((0, 0), (3, 8)), "who waits holds nothing");
    world.delete();
    both(&world, &other).await;
    has_reason(&other, "Available");
}

#[tokio::test(start_paused = true)]
async fn reserved_addresses_are_never_used() {
    for address in ["192.168.10.95", "192.168.10.25", "192.168.10.2", "192.168.10.1"] {
        let mut world = World::new();
        let mut pool = crate::decisions::fixture::pool();
        pool.spec.reserved = vec!["192.168.10.95".to_owned(), "192.168.10.25".to_owned()];
        world.api.put(&pool);
        world.cluster.spec.network.endpoint.address = Some(address.to_owned());
        world.api.put(&world.cluster);
        world.reconcile().await.unwrap();
        world.says("Preflight", "AddressesMissing", address);
        assert!(world.api.names("machines").is_empty() && world.api.names("pooladdresses").is_empty());
    }
}

/// A Provider with room for this number of nodes.
fn limited(world: &World, nodes: u32) {
    let mut provider = crate::decisions::fixture::provider();
    provider.spec.limits = Some(Limits { nodes: Some(nodes), processors: None, memory_mib: None });
    world.api.put(&provider);
}

fn has_reason(world: &World, reason: &str) {
    assert!(reasons(world).iter().any(|said| said == reason), "not {reason}: {:?}", reasons(world));
}

/// The numbers of Machines and addresses of a cluster.
fn held_by(world: &World) -> (usize, usize) {
    let name = world.cluster.name_any();
    let machines = world.api.names("machines").into_iter().filter(|it| it.starts_with(&name)).count();
    let of = crate::reach::Collection::of::<crate::objects::PoolAddress>(None);
    let all = futures_util::FutureExt::now_or_never(crate::reach::Objects::list(&world.api, &of, None));
    let is_own = |it: &&serde_json::Value| {
        it["spec"]["claimant"]["name"].as_str().is_some_and(|claimant| claimant.starts_with(&name))
    };
    (machines, all.unwrap().unwrap().iter().filter(is_own).count())
}

/// Controllers die until the cluster has its Machines and addresses, and no VM.
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
async fn the_older_of_two_clusters_gets_the_room() {
    let world = World::new();
    let mut other = world.cluster.clone();
    other.spec.network.endpoint.address = Some("192.168.10.11".to_owned());
    let other = neighbour(&world, other, 77);
    for one in [&world, &other] {
        has_all_before_its_first_vm(one).await;
    }
    limited(&world, 5);
    both(&other, &world).await;
    has_reason(&world, "Available");
    has_reason(&other, "CapacityMissing");
    assert_eq!((held_by(&other), world.place.vms().len()), ((0, 0), 3), "who waits holds nothing");
    world.delete();
    both(&world, &other).await;
    has_reason(&other, "Available");
}

#[tokio::test(start_paused = true)]
async fn a_too_large_cluster_does_not_block_others() {
    let world = World::new();
    let mut large = world.cluster.clone();
    large.spec.network.endpoint.address = Some("192.168.10.11".to_owned());
    large.spec.control_plane.vm_class = "medium".to_owned();
    let large = neighbour(&world, large, 77);
    let mut provider = crate::decisions::fixture::provider();
    provider.spec.limits = Some(Limits { nodes: None, processors: None, memory_mib: Some(3 * 16384 - 1) });
    world.api.put(&provider);
    large.reconcile().await.unwrap();
    has_reason(&large, "CapacityMissing");
    assert_eq!(held_by(&large), (0, 0));
    both(&large, &world).await;
    has_reason(&world, "Available");
    has_reason(&large, "CapacityMissing");
    assert_eq!(held_by(&large), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_cluster_uses_its_own_networks_pool() {
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
    world.says("Preflight", "RangesOverlap", "192.168.20.5");
    assert_eq!(held_by(&world), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn changes_before_the_first_vm_release_addresses() {
    let mut world = World::new();
    has_all_before_its_first_vm(&world).await;
    world.place.lock().is_away = true;
    let there = world.api.object("tenantclusters");
    world.cluster = serde_json::from_value(there).unwrap();
    world.cluster.spec.network.service_vips = None;
    world.api.put(&world.cluster);
    world.reconcile().await.unwrap();
    assert_eq!(held_by(&world), (3, 6), "nobody can tell whether somebody is there who has them");
    world.place.lock().is_away = false;
    world.until("ready", World::is_ready).await;
    assert_eq!(held_by(&world), (3, 4));
}

/// The database is restored to before the first VM, and the VMs exist.
#[tokio::test(start_paused = true)]
async fn unrecorded_vms_stop_claims_and_releases() {
    let mut world = World::new();
    has_addresses(&world, 3).await;
    let before = world.api.snapshot();
    world.until("ready", World::is_ready).await;
    world.api.restore(before);
    world.term = crate::term::Term::unlimited("controller after a restore");
    let held = held_by(&world);
    for is_away in [true, false] {
        world.place.lock().is_away = is_away;
        for is_paused in [false, true] {
            let mut cluster: TenantCluster = serde_json::from_value(world.api.object("tenantclusters")).unwrap();
            cluster.spec.paused = is_paused;
            world.api.put(&cluster);
            world.reconcile().await.unwrap();
            assert_eq!(held_by(&world), held, "away {is_away}, paused {is_paused}");
        }
    }
    has_reason(&world, "AdoptionRequired");
}

#[tokio::test(start_paused = true)]
async fn cluster_waits_for_free_capacity() {
    let world = World::new();
    let mut provider = crate::decisions::fixture::provider();
    let room = serde_json::from_value(json!({"name": "a", "freeMemoryMiB": 1})).unwrap();
    provider.status.as_mut().unwrap().zones = vec![room];
    world.api.put(&provider);
    world.reconcile().await.unwrap();
    has_reason(&world, "CapacityMissing");
    assert_eq!((held_by(&world), world.place.vms().len()), ((0, 0), 0));
    world.api.put(&crate::decisions::fixture::provider());
    world.until("ready", World::is_ready).await;
}

/// Findings 3, 16 and 25 of controller.md: clusters of a team with a network, a quota and a Catalog. Another team names its network,
/// and a second cluster exceeds the quota until the first one is deleted.
#[tokio::test(start_paused = true)]
async fn tenants_cluster_is_created_within_its_quota() {
    use crate::decisions::fixture::tenant;
    use crate::reconcilers::tenant::reconcile;
    use crate::reconcilers::tests::{context, settled};
    let world = World::new();
    let mut blue = tenant("blue", &["team-blue"], &["blue"]);
    blue.spec.quota = Some(Quota { clusters: Some(1), nodes: Some(3), addresses: Some(6), ..Quota::default() });
    blue.spec.allow.ip_pools = vec!["blue-nodes".to_owned()];
    blue.spec.admins.users = vec!["anna".to_owned()];
    world.api.put(&blue);
    world.api.put(&tenant("red", &["team-red"], &["leased"]));
    let context = context(&world.api);
    let catalog = async || -> Catalog {
        settled::<Tenant, _>(&world.api, &context, (None, "blue"), reconcile).await;
        world.api.read(Some("team-blue"), "blue").unwrap()
    };
    let listed = catalog().await.spec;
    assert_eq!(listed.providers[0].networks, ["blue"]);
    assert_eq!(listed.ip_pools, ["blue-nodes"]);
    assert_eq!((listed.quota.nodes, listed.used.clusters), (Some(3), 0));
    let like = |namespace: &str, endpoint: &str| {
        let mut cluster = world.cluster.clone();
        cluster.metadata.namespace = Some(namespace.to_owned());
        cluster.spec.network.endpoint.address = Some(endpoint.to_owned());
        cluster
    };
    let red = neighbour(&world, like("team-red", "192.168.10.11"), 77);
    both(&world, &red).await;
    has_reason(&world, "Available");
    has_reason(&red, "NamespaceNotAllowed");
    assert_eq!(held_by(&red), (0, 0));
    let used = catalog().await.spec.used;
    assert_eq!((used.clusters, used.nodes, used.addresses), (1, 3, 6));
    assert_eq!(world.api.named("rolebindings", "shop-kubeconfig").unwrap()["subjects"][0]["name"], "anna");
    let second = neighbour(&world, like("team-blue", "192.168.10.12"), 78);
    both(&world, &second).await;
    has_reason(&second, "QuotaExceeded");
    assert_eq!((held_by(&second), held_by(&world)), ((0, 0), (3, 6)));
    assert_eq!(catalog().await.spec.used, used);
    world.delete();
    both(&world, &second).await;
    has_reason(&second, "Available");
    assert_eq!(catalog().await.spec.used, used, "the second one has the quota now");
}

/// Finding 4 of controller.md: two pools have the same range, and two clusters are created at once.
#[tokio::test(start_paused = true)]
async fn overlapping_pools_give_two_clusters_nothing() {
    let world = World::new();
    let mut other = crate::decisions::fixture::pool();
    other.metadata.name = Some("other".to_owned());
    world.api.put(&other);
    let mut second = world.cluster.clone();
    second.spec.network.endpoint.address = Some("192.168.10.11".to_owned());
    second.spec.network.service_vips =
        Some(ServiceVips { ranges: None, pool_ref: Some(Reference::to("other")), count: Some(2) });
    let second = neighbour(&world, second, 77);
    both(&world, &second).await;
    for one in [&world, &second] {
        has_reason(one, "AddressesMissing");
        assert_eq!(held_by(one), (0, 0));
    }
    assert!(world.place.vms().is_empty());
    world.api.remove::<crate::objects::IPPool>(None, "other");
    both(&world, &second).await;
    has_reason(&world, "Available");
    has_reason(&second, "ReferenceMissing");
}

/// Finding 3 of controller.md: the endpoint or the addresses of Services contain the virtual IP of the control cluster.
#[tokio::test(start_paused = true)]
async fn virtual_ip_of_the_control_cluster_is_reserved() {
    use crate::reach::{ControlCluster, Fenced};
    for is_endpoint in [true, false] {
        let mut world = World::new();
        let network = &mut world.cluster.spec.network;
        if is_endpoint {
            network.endpoint.address = Some("192.168.10.95".to_owned());
        } else {
            let range = AddressRange { first: "192.168.10.94".to_owned(), last: "192.168.10.96".to_owned() };
            network.service_vips = Some(ServiceVips { ranges: Some(vec![range]), pool_ref: None, count: None });
        }
        world.api.put(&world.cluster);
        let own = ControlCluster { virtual_address: Some([192, 168, 10, 95].into()), has_former_kinds: false };
        let objects = Fenced::new(std::sync::Arc::new(world.api.clone()), world.term.clone()).of(own);
        let World { place, term, clock, .. } = &world;
        let work = Reconciler { objects: &objects, places: place, term, clock, is_marked: true };
        work.reconcile(&world.cluster).await.unwrap();
        has_reason(&world, "AddressesMissing");
        assert_eq!(held_by(&world).1, 0);
    }
}
