//! Replacement of outdated workers.

use super::*;
use crate::decisions::fixture::image;

const NEWER: &str = "kaas-tenant-0.3.0";

impl Pooled {
    /// The control-plane nodes run a newer image: the state after the commit of an upgrade.
    pub(super) fn commits(&self) {
        let digest = self.has_newer();
        let mut cluster = self.cluster();
        cluster.spec.image = Some(NEWER.to_owned());
        let resolved = cluster.status.as_mut().unwrap().resolved.as_mut().unwrap();
        (resolved.image, resolved.digest) = (Some(NEWER.to_owned()), Some(digest));
        self.0.api.put(&cluster);
    }

    /// Creates a newer image, and returns its digest.
    fn has_newer(&self) -> String {
        let mut newer = image(NEWER, "0.3.0");
        newer.spec.digest = format!("sha256:{}", "0c".repeat(32));
        self.0.api.put(&newer);
        newer.spec.digest
    }

    fn images(&self) -> Vec<String> {
        let of = |name: &String| {
            let machine = self.0.api.named("machines", name).unwrap();
            machine["spec"]["image"]["name"].as_str().unwrap().to_owned()
        };
        self.workers().iter().map(of).collect()
    }

    pub(super) fn is_updated(&self, replicas: i64) -> bool {
        let status = self.0.api.object("nodepools")["status"].clone();
        let resolved = self.cluster().status.unwrap().resolved.unwrap().image;
        let are_of_it = self.images().into_iter().all(|image| Some(image) == resolved);
        let all = are_of_it && self.is_settled(replicas) && self.0.api.names("machines").len() as i64 == 3 + replicas;
        all && self.condition("UpToDate") == "Current" && status["updatedReplicas"] == replicas
    }

    /// Runs work, and returns the fewest schedulable workers and the most VMs during it.
    async fn watched(&self, does: impl Future<Output = ()>) -> (usize, usize) {
        let (mut fewest, mut most) = (usize::MAX, 0);
        tokio::pin!(does);
        loop {
            (fewest, most) = (fewest.min(self.0.place.serving()), most.max(self.workers().len()));
            tokio::select! {
                () = &mut does => return (fewest, most),
                () = tokio::time::sleep(Duration::from_millis(500)) => {}
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn workers_follow_the_committed_image() {
    let pooled = Pooled::settled(3).await;
    // The operator names the image, and the control-plane nodes are swapped, without a commit.
    pooled.has_newer();
    let mut cluster = pooled.cluster();
    cluster.spec.image = Some(NEWER.to_owned());
    pooled.0.api.put(&cluster);
    pooled.for_seconds(1800).await;
    assert_eq!(pooled.workers(), ["shop-general-w1", "shop-general-w2", "shop-general-w3"]);
    assert_eq!(pooled.condition("UpToDate"), "AwaitingControlPlane");
    assert_eq!(pooled.condition("Ready"), "AllReady");
    pooled.commits();
    let (fewest, most) = pooled.watched(pooled.until("updated", |it| it.is_updated(3))).await;
    assert_eq!((fewest, most), (3, 4), "one more, and never one less");
    assert_eq!(pooled.workers(), ["shop-general-w4", "shop-general-w5", "shop-general-w6"]);
    assert_eq!(pooled.images(), [NEWER; 3]);
    pooled.is_consistent("updated");
}

#[tokio::test(start_paused = true)]
async fn without_surge_the_allowed_number_is_missing() {
    let pooled = Pooled::settled(4).await;
    pooled.want(|pool| (pool.rollout.max_surge, pool.rollout.max_unavailable) = (0, 2));
    pooled.commits();
    let (fewest, most) = pooled.watched(pooled.until("updated", |it| it.is_updated(4))).await;
    assert_eq!((fewest, most), (2, 4));
    assert_eq!(pooled.images(), [NEWER; 4]);
}

#[tokio::test(start_paused = true)]
async fn class_labels_and_taints_replace_workers() {
    let pooled = Pooled::settled(1).await;
    let changes: [(&str, &dyn Fn()); 3] = [
        ("label", &|| pooled.want(|pool| drop(pool.labels.insert("example.com/tier".to_owned(), "edge".to_owned())))),
        ("taint", &|| {
            let taint = json!({"key": "edge", "value": "true", "effect": "NoSchedule"});
            pooled.want(|pool| pool.taints = vec![serde_json::from_value(taint).unwrap()]);
        }),
        ("class", &|| {
            let class = serde_json::from_value(json!({"processors": 4, "memoryMiB": 4096})).unwrap();
            pooled.0.api.put(&VMClass::new("small", class));
        }),
    ];
    for (number, (what, change)) in (1..).zip(changes) {
        // A paused rollout waits.
        pooled.want(|pool| pool.rollout.paused = true);
        change();
        pooled.for_seconds(600).await;
        assert_eq!(pooled.workers(), [format!("shop-general-w{number}")], "{what}");
        assert_eq!(pooled.condition("UpToDate"), "Paused", "{what}");
        pooled.want(|pool| pool.rollout.paused = false);
        pooled.until(what, |it| it.is_updated(1)).await;
        assert_eq!(pooled.workers(), [format!("shop-general-w{}", number + 1)], "{what}");
    }
    let form = pooled.0.place.lock().forms["shop-general-w4"].clone();
    assert_eq!(form["node-labels"], "example.com/tier=edge,topology.kubernetes.io/zone=b");
    assert_eq!(form["node-taints"], "edge=true:NoSchedule");
}

#[tokio::test(start_paused = true)]
async fn scaling_during_a_rollout_ends_with_new_workers() {
    for (wanted, floor) in [(4, 3), (1, 1)] {
        let pooled = Pooled::settled(3).await;
        pooled.commits();
        let scaled = async {
            tokio::time::sleep(Duration::from_secs(70)).await;
            assert!(pooled.images().iter().any(|image| image == NEWER), "it has begun");
            pooled.scale(wanted);
        };
        let updated = async {
            tokio::join!(pooled.until("begun", |it| it.there().spec.replicas == wanted), scaled);
            pooled.until("updated", |it| it.is_updated(wanted.into())).await;
        };
        let (fewest, _) = pooled.watched(updated).await;
        assert!(fewest >= floor, "{fewest}");
        assert!(pooled.images().iter().all(|image| image == NEWER));
        pooled.is_consistent("scaled");
    }
}

#[tokio::test(start_paused = true)]
async fn deletion_during_a_rollout_leaves_nothing() {
    let pooled = Pooled::settled(3).await;
    pooled.commits();
    let deleted = async {
        tokio::time::sleep(Duration::from_secs(70)).await;
        pooled.0.api.remove::<NodePool>(Some("team-blue"), "shop-general");
    };
    tokio::join!(pooled.until("told to go", |it| it.there().metadata.deletion_timestamp.is_some()), deleted);
    pooled.until("gone", |it| it.0.api.names("nodepools").is_empty()).await;
    assert!(pooled.workers().is_empty());
    assert_eq!((pooled.0.api.names("machines").len(), pooled.0.api.names("pooladdresses").len()), (3, 6));
}

#[tokio::test(start_paused = true)]
async fn an_unhealthy_worker_counts_as_missing() {
    let pooled = Pooled::settled(3).await;
    pooled.0.place.lock().unready.insert("shop-general-w2".to_owned());
    pooled.commits();
    let (fewest, _) = pooled.watched(pooled.until("updated", |it| it.is_updated(3))).await;
    assert_eq!(fewest, 2, "those that were well and no others");
    assert_eq!(pooled.images(), [NEWER; 3]);
}

/// After a lost answer each worker is replaced once, and never more are missing than allowed.
#[tokio::test(start_paused = true)]
async fn a_lost_answer_replaces_no_worker_twice() {
    async fn story(pooled: &Pooled, what: &str) {
        pooled.commits();
        let (fewest, most) = pooled.watched(pooled.until(what, |it| it.is_updated(2))).await;
        assert!(fewest == 2 && most == 3, "{what}: {fewest} {most}");
        assert_eq!(pooled.images(), [NEWER; 2], "{what}");
        pooled.is_consistent(what);
    }
    let (calls, _) = with_lost_answers("answers while workers are replaced", || Pooled::settled(2), story).await;
    assert!(calls > 100, "{calls}");
}

#[tokio::test(start_paused = true)]
async fn workers_and_replacements_spread_over_zones() {
    let pooled = Pooled::settled(4).await;
    let zones = || {
        let placements = pooled.0.place.placements();
        let of = |name: &String| {
            let machine = pooled.0.api.named("machines", name).unwrap();
            let (zone, form) = (machine["spec"]["zone"].clone(), pooled.0.place.lock().forms[name].clone());
            let zone = zone.as_str().unwrap().to_owned();
            assert_eq!(form["node-labels"], format!("topology.kubernetes.io/zone={zone}"));
            let datastore = if zone == "a" { "vsan-1" } else { "vsan-2" };
            assert_eq!(placements[name].datastore.as_deref(), Some(datastore), "{name}");
            zone
        };
        pooled.workers().iter().map(of).collect::<Vec<_>>()
    };
    let even = |mut zones: Vec<String>| {
        zones.sort();
        zones == ["a", "a", "b", "b"]
    };
    assert!(even(zones()), "{:?}", zones());
    pooled.commits();
    pooled.until("updated", |it| it.is_updated(4)).await;
    assert!(even(zones()), "{:?}", zones());
    // Existing workers stay where they are. New ones are in the pool's present zones.
    pooled.want(|pool| (pool.zones, pool.replicas) = (vec!["b".to_owned()], 5));
    pooled.until("five", |it| it.is_updated(5)).await;
    let mut all = zones();
    all.sort();
    assert_eq!(all, ["a", "a", "b", "b", "b"]);
}

/// A removed worker would get no replacement.
#[tokio::test(start_paused = true)]
async fn beyond_the_limits_no_worker_is_replaced() {
    let pooled = Pooled::new(2).await;
    pooled.limited(5);
    pooled.until("two", |it| it.is_settled(2)).await;
    pooled.limited(4);
    pooled.want(|pool| {
        pool.labels.insert("example.com/tier".to_owned(), "front".to_owned());
        pool.rollout.max_unavailable = 1;
    });
    let (fewest, most) = pooled.watched(pooled.for_seconds(600)).await;
    assert_eq!((fewest, most), (2, 2));
    assert!(pooled.is_settled(2));
    assert_eq!(pooled.workers(), ["shop-general-w1", "shop-general-w2"]);
    pooled.says("UpToDate", "Replacing", "may have 4 nodes");
    pooled.0.place.lock().unready.insert("shop-general-w1".to_owned());
    pooled.for_seconds(1200).await;
    assert_eq!(pooled.workers(), ["shop-general-w1", "shop-general-w2"], "it may come back");
    pooled.says("Repairable", "CapacityMissing", "may have 4 nodes");
    pooled.0.place.lock().unready.clear();
    pooled.limited(5);
    let is_anew = |it: &Pooled| it.is_settled(2) && it.condition("UpToDate") == "Current";
    let (fewest, _) = pooled.watched(pooled.until("replaced once there is room", is_anew)).await;
    assert_eq!(fewest, 1);
}

/// No worker is outdated: only an unhealthy one would be replaced.
#[tokio::test(start_paused = true)]
async fn beyond_the_limits_no_worker_is_repaired() {
    let pooled = Pooled::new(2).await;
    pooled.limited(5);
    pooled.until("two", |it| it.is_settled(2)).await;
    pooled.limited(4);
    pooled.0.place.lock().unready.insert("shop-general-w1".to_owned());
    let (_, most) = pooled.watched(pooled.for_seconds(1200)).await;
    assert_eq!(most, 2);
    assert_eq!(pooled.workers(), ["shop-general-w1", "shop-general-w2"], "it may come back");
    pooled.says("Repairable", "CapacityMissing", "may have 4 nodes");
    // With room it is repaired.
    pooled.limited(5);
    pooled.until("repaired", |it| it.is_whole(2) && !it.workers().contains(&"shop-general-w1".to_owned())).await;
    assert!(pooled.workers().contains(&"shop-general-w2".to_owned()));
    pooled.is_consistent("repaired");
}

#[tokio::test(start_paused = true)]
async fn lost_room_removes_only_the_leaving_worker() {
    let pooled = Pooled::new(2).await;
    pooled.limited(5);
    pooled.until("two", |it| it.is_settled(2)).await;
    pooled.sticks_to("shop-general-w1", false);
    pooled.want(|pool| {
        pool.labels.insert("example.com/tier".to_owned(), "front".to_owned());
        pool.rollout.max_unavailable = 1;
    });
    pooled.until("one leaves", |it| it.condition("UpToDate") == "DrainBlocked").await;
    pooled.limited(4);
    pooled.0.place.lock().stuck.clear();
    let (fewest, _) = pooled.watched(pooled.for_seconds(1200)).await;
    assert_eq!(fewest, 1, "the other one serves");
    assert_eq!(pooled.workers(), ["shop-general-w2"]);
    assert_eq!(pooled.condition("Ready"), "CapacityMissing");
    pooled.limited(5);
    let is_anew = |it: &Pooled| it.is_settled(2) && it.condition("UpToDate") == "Current";
    pooled.until("whole again", is_anew).await;
    pooled.is_consistent("whole again");
}
