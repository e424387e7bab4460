//! The permissions and limits of a Provider, for the workers of a pool.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_pool_without_room_makes_no_calls() {
    let pooled = Pooled::new(2).await;
    pooled.limited(3);
    pooled.until("held", |it| it.condition("Ready") == "CapacityMissing").await;
    let opened = pooled.0.place.lock().opened;
    pooled.reconcile().await.unwrap();
    assert_eq!(pooled.0.place.lock().opened, opened);
    pooled.limited(5);
    pooled.until("two", |it| it.is_settled(2)).await;
}

#[tokio::test(start_paused = true)]
async fn a_pool_grows_within_its_providers_limits() {
    let pooled = Pooled::new(9).await;
    pooled.limited(5);
    pooled.until("held", |it| it.condition("Ready") == "CapacityMissing" && it.ready() == 2).await;
    assert_eq!(pooled.workers(), ["shop-general-w1", "shop-general-w2"]);
    pooled.reconcile().await.unwrap();
    pooled.says("Ready", "CapacityMissing", "may have 5 nodes: 5 are taken, and 7 wanted");
    pooled.is_consistent("two of nine");
    // A removed worker leaves room for its replacement.
    pooled.0.api.remove::<Machine>(Some("team-blue"), "shop-general-w1");
    pooled.until("created again", |it| it.workers() == ["shop-general-w2", "shop-general-w3"] && it.ready() == 2).await;
    pooled.is_consistent("created again");
    pooled.scales(1).await;
    pooled.scale(3);
    pooled.limited(6);
    pooled.until("three", |it| it.is_settled(3)).await;
    // A lower limit removes no worker.
    pooled.limited(2);
    pooled.reconciles(3, 60).await;
    assert!(pooled.is_settled(3));
}

/// All Machines of all clusters, which are not read at each look.
#[tokio::test(start_paused = true)]
async fn other_clusters_are_read_for_new_workers_only() {
    async fn calls(pooled: &Pooled) -> usize {
        let before = pooled.0.api.calls();
        pooled.reconcile().await.unwrap();
        pooled.0.api.calls() - before
    }
    let pooled = Pooled::settled(2).await;
    pooled.reconcile().await.unwrap();
    let without = calls(&pooled).await;
    pooled.limited(5);
    assert_eq!(calls(&pooled).await, without);
    pooled.scale(3);
    pooled.until("held", |it| it.condition("Ready") == "CapacityMissing").await;
    assert!(calls(&pooled).await > without);
    assert_eq!(pooled.workers().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn workers_are_replaced_within_the_limits() {
    let pooled = Pooled::new(2).await;
    pooled.limited(5);
    pooled.until("two", |it| it.is_settled(2)).await;
    pooled.want(|pool| drop(pool.labels.insert("example.com/tier".to_owned(), "front".to_owned())));
    pooled.reconciles(4, 60).await;
    pooled.says("UpToDate", "Replacing", "may have 5 nodes");
    assert_eq!(pooled.workers(), ["shop-general-w1", "shop-general-w2"], "there is no room for a third one");
    pooled.want(|pool| pool.rollout.max_unavailable = 1);
    let is_anew = |it: &Pooled| it.is_settled(2) && it.condition("UpToDate") == "Current";
    pooled.until("replaced one after the other", is_anew).await;
    pooled.is_consistent("replaced");
}

/// The limit of addresses for endpoints and Services does not apply to workers.
#[tokio::test(start_paused = true)]
async fn limits_of_service_addresses_do_not_affect_workers() {
    let pooled = Pooled::settled(2).await;
    // Its cluster has three such addresses.
    let mut addresses = crate::decisions::fixture::pool();
    addresses.spec.vips_per_namespace = Some(1);
    pooled.0.api.put(&addresses);
    pooled.0.place.lose("shop-general-w1");
    let is_repaired = |it: &Pooled| it.is_whole(2) && it.workers() == ["shop-general-w2", "shop-general-w3"];
    pooled.until("repaired", is_repaired).await;
    let before = pooled.workers();
    pooled.want(|pool| drop(pool.labels.insert("example.com/tier".to_owned(), "front".to_owned())));
    let is_anew = |it: &Pooled| it.is_whole(2) && it.workers().iter().all(|name| !before.contains(name));
    pooled.until("rolled out", is_anew).await;
    pooled.scale(3);
    pooled.until("grown", |it| it.is_whole(3)).await;
    pooled.is_consistent("grown");
}

#[tokio::test(start_paused = true)]
async fn concurrent_pools_share_the_room() {
    let pooled = Pooled::new(2).await;
    pooled.limited(5);
    let mut other = pool(2);
    other.metadata.name = Some("shop-other".to_owned());
    pooled.0.api.put(&other);
    let World { api, place, clock, term, .. } = &pooled.0;
    let work = PoolReconciler(Reconciler { objects: api, places: place, term, clock, is_marked: true });
    for _ in 0..6 {
        let _ = tokio::join!(pooled.reconcile(), work.reconcile(&other));
        assert!(pooled.workers().len() <= 2, "{:?}", pooled.workers());
        tokio::time::sleep(Duration::from_secs(30)).await;
    }
    assert_eq!((pooled.workers().len(), pooled.0.api.names("machines").len()), (2, 5));
    pooled.is_consistent("two of four");
}

#[tokio::test(start_paused = true)]
async fn a_forbidden_namespace_keeps_its_workers() {
    let pooled = Pooled::settled(2).await;
    pooled.provider(|provider| provider.spec.allowed_namespaces.names.clear());
    pooled.reconcile().await.unwrap();
    assert!(pooled.is_settled(2));
    pooled.scale(4);
    pooled.until("held", |it| it.condition("Ready") == "NamespaceNotAllowed").await;
    assert!(pooled.message("Ready").contains("team-blue"), "{}", pooled.message("Ready"));
    pooled.0.api.remove::<Machine>(Some("team-blue"), "shop-general-w1");
    pooled.until("one", |it| it.workers() == ["shop-general-w2"]).await;
    pooled.reconciles(3, 60).await;
    assert_eq!(pooled.workers(), ["shop-general-w2"], "whom somebody deletes is not made anew");
    pooled.scales(1).await;
    pooled.provider(|_| ());
    pooled.scales(2).await;
}

/// Finding 7 of controller.md: the range holds three control-plane nodes and one worker.
#[tokio::test(start_paused = true)]
async fn pool_stops_at_the_range_of_pods() {
    let pooled = Pooled::settled(1).await;
    let mut cluster = pooled.cluster();
    cluster.spec.network.pods = "10.240.0.0/22".to_owned();
    pooled.0.api.put(&cluster);
    pooled.scale(3);
    pooled.until("held", |it| it.condition("Ready") == "PodRangeExhausted").await;
    assert!(pooled.message("Ready").contains("room for 4 nodes with a /24 each"), "{}", pooled.message("Ready"));
    pooled.reconciles(3, 60).await;
    assert_eq!(pooled.workers().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn pool_waits_for_free_capacity() {
    let pooled = Pooled::settled(1).await;
    let room = json!({"name": "a", "freeMemoryMiB": 4095});
    pooled.provider(|provider| {
        provider.status.as_mut().unwrap().zones = vec![serde_json::from_value(room).unwrap()];
    });
    pooled.scale(3);
    pooled.until("held", |it| it.condition("Ready") == "CapacityMissing").await;
    pooled.says("Ready", "CapacityMissing", "the zone a has 4095 MiB of free memory: 4096 are wanted");
    pooled.reconciles(3, 60).await;
    assert_eq!(pooled.workers().len(), 1);
    pooled.provider(|_| ());
    pooled.until("grown", |it| it.is_whole(3)).await;
}

/// Finding 4 of controller.md.
#[tokio::test(start_paused = true)]
async fn overlapping_pool_gives_workers_no_address() {
    let pooled = Pooled::settled(1).await;
    let mut other = crate::decisions::fixture::pool();
    other.metadata.name = Some("other".to_owned());
    pooled.0.api.put(&other);
    pooled.scale(3);
    pooled.until("held", |it| it.condition("Ready") == "Unfit").await;
    assert!(pooled.message("Ready").contains("in other pools as well: other"), "{}", pooled.message("Ready"));
    pooled.reconciles(3, 60).await;
    assert_eq!(pooled.workers().len(), 1, "the existing worker stays");
    pooled.0.api.remove::<crate::objects::IPPool>(None, "other");
    pooled.until("grown", |it| it.is_whole(3)).await;
}

/// Since the check other clusters may have used the room, or the Provider may have changed.
#[tokio::test(start_paused = true)]
async fn each_worker_is_checked_against_the_current_provider() {
    let pooled = Pooled::new(0).await;
    let (there, permits) = (pooled.there(), crate::decisions::fixture::provider());
    let mut like = Machine::new("", crate::objects::fixture::worker());
    (like.metadata.namespace, like.spec.cluster_ref.name) = (Some("team-blue".to_owned()), "shop".to_owned());
    let addresses = crate::decisions::fixture::pool();
    let World { api, term, .. } = &pooled.0;
    let store = |judged| PoolStore::new(api, &there, term, &like, Some(&addresses)).within(judged, &[]);
    let (machines, held) = (api.names("machines"), api.names("pooladdresses"));
    let refused = async |name: &str, words: &str| {
        let why = store(&permits).draw(1, name, None).await.unwrap_err().to_string();
        assert!(why.contains(words), "{why}");
        assert_eq!((api.names("machines"), api.names("pooladdresses")), (machines.clone(), held.clone()));
    };
    pooled.limited(3);
    refused("shop-general-w1", "may have 3 nodes: 3 are taken, and 1 wanted").await;
    pooled.provider(|provider| provider.spec.allowed_namespaces.names.clear());
    refused("shop-general-w2", "team-blue").await;
    // The namespace was forbidden from the beginning: the new worker is a replacement.
    let mut forbids = permits.clone();
    forbids.spec.allowed_namespaces.names.clear();
    store(&forbids).draw(1, "shop-general-w3", None).await.unwrap();
    pooled.limited(5);
    store(&permits).draw(1, "shop-general-w4", None).await.unwrap();
    assert_eq!(api.names("machines").len(), 5);
}

// Finding 16 of controller.md: a quota holds while several pools of a Tenant grow at once.
#[tokio::test(start_paused = true)]
async fn concurrent_pools_stay_within_the_quota() {
    let pooled = Pooled::new(2).await;
    let mut team = crate::decisions::fixture::tenant("blue", &["team-blue"], &["blue"]);
    team.spec.quota = Some(crate::objects::Quota { nodes: Some(5), ..Default::default() });
    team.spec.allow.ip_pools = vec!["blue-nodes".to_owned()];
    pooled.0.api.put(&team);
    let mut other = pool(2);
    other.metadata.name = Some("shop-other".to_owned());
    pooled.0.api.put(&other);
    let World { api, place, clock, term, .. } = &pooled.0;
    // The leader's ledger, as the controller has it.
    let fenced = crate::reach::Fenced::new(std::sync::Arc::new(api.clone()), term.clone());
    let work = PoolReconciler(Reconciler { objects: &fenced, places: place, term, clock, is_marked: true });
    let read = |name: &str| api.read::<NodePool>(Some("team-blue"), name).unwrap();
    for _ in 0..6 {
        let (first, other) = (read("shop-general"), read("shop-other"));
        let (one, two) = tokio::join!(work.reconcile(&first), work.reconcile(&other));
        assert!(one.is_ok() && two.is_ok(), "{one:?} {two:?}");
        assert!(pooled.0.api.names("machines").len() <= 5, "{:?}", pooled.0.api.names("machines"));
        tokio::time::sleep(Duration::from_secs(30)).await;
    }
    assert_eq!(pooled.0.api.names("machines").len(), 5, "three control-plane nodes and two of four workers");
    let conditions = ["shop-general", "shop-other"].map(|name| read(name).status.unwrap_or_default().conditions);
    let says =
        |words: &str| conditions.iter().flatten().any(|it| it.reason == "QuotaExceeded" && it.message.contains(words));
    assert!(says("the Tenant blue may have 5 nodes"), "{conditions:?}");
}
