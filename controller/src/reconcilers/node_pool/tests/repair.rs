//! Workers that fall ill.

use fleet::hypervisor::PowerState;

use super::*;

/// Until another worker takes the place of an ill one: as pools have it that say nothing.
const AFTER: Duration = Duration::from_secs(300);

impl Pooled {
    /// A pool whose workers have joined.
    pub(super) async fn settled(replicas: u32) -> Self {
        let pooled = Self::new(replicas).await;
        pooled.until("settled", |it| it.is_settled(replicas.into())).await;
        pooled
    }

    /// A worker's node says nothing any more.
    fn silences(&self, name: &str) {
        self.0.place.lock().unready.insert(name.to_owned());
    }

    fn phase(&self, name: &str) -> String {
        let machine = self.0.api.named("machines", name).unwrap_or_else(|| panic!("there is no Machine {name}"));
        machine["status"]["phase"].as_str().unwrap().to_owned()
    }

    /// So many workers, whole: each with its Machine, and none that was lost.
    pub(super) fn is_whole(&self, replicas: i64) -> bool {
        self.is_settled(replicas) && self.0.api.names("machines").len() as i64 == 3 + replicas
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_is_off_gone_or_says_nothing_is_repaired_after_its_time() {
    type Ill<'a> = (&'a str, &'a dyn Fn(&Pooled));
    let ills: [Ill<'_>; 3] = [
        ("off", &|it| it.0.place.change("shop-general-w1", |vm| vm.power = PowerState::Off)),
        ("gone", &|it| it.0.place.lose("shop-general-w1")),
        ("silent", &|it| it.silences("shop-general-w1")),
    ];
    for (what, falls_ill) in ills {
        let pooled = Pooled::settled(2).await;
        falls_ill(&pooled);
        let begun = Instant::now();
        while begun.elapsed() < AFTER - Duration::from_secs(100) {
            pooled.reconcile().await.unwrap();
            assert_eq!(pooled.phase("shop-general-w1"), "Running", "{what}: it may come back");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(pooled.condition("Repairable"), "FewUnhealthy", "{what}");
        pooled.until(what, |it| it.is_whole(2)).await;
        assert!(begun.elapsed() >= AFTER, "{what}: {:?}", begun.elapsed());
        assert_eq!(pooled.workers(), ["shop-general-w2", "shop-general-w3"], "{what}");
        pooled.is_consistent(what);
    }
}

#[tokio::test(start_paused = true)]
async fn who_recovers_in_time_or_takes_no_pods_by_a_persons_wish_stays() {
    let pooled = Pooled::settled(2).await;
    for _ in 0..4 {
        pooled.silences("shop-general-w1");
        pooled.for_seconds(150).await;
        pooled.0.place.lock().unready.clear();
        pooled.until("well again", |it| it.is_settled(2)).await;
    }
    pooled.0.place.lock().cordoned.insert("shop-general-w2".to_owned());
    pooled.for_seconds(1200).await;
    assert_eq!(pooled.workers(), ["shop-general-w1", "shop-general-w2"]);
    // The time of its illness begins with that, and not when it was cordoned.
    pooled.silences("shop-general-w2");
    pooled.for_seconds(100).await;
    assert_eq!(pooled.phase("shop-general-w2"), "Running");
}

#[tokio::test(start_paused = true)]
async fn where_all_are_ill_nothing_is_done_and_with_few_it_goes_on() {
    let pooled = Pooled::settled(3).await;
    for name in pooled.workers() {
        pooled.silences(&name);
    }
    let vms = pooled.0.place.vms();
    pooled.for_seconds(3600).await;
    assert_eq!(pooled.condition("Repairable"), "TooManyUnhealthy");
    assert_eq!(pooled.0.place.vms(), vms);
    assert!(pooled.workers().iter().all(|name| pooled.phase(name) == "Running"));
    pooled.0.place.lock().unready.retain(|name| name == "shop-general-w2");
    pooled.until("repaired", |it| it.is_whole(3)).await;
    assert_eq!(pooled.workers(), ["shop-general-w1", "shop-general-w3", "shop-general-w4"]);
    assert_eq!(pooled.condition("Repairable"), "FewUnhealthy");
}

/// VMs that nobody sees all at once, such as those of an account that lost a right, with nodes that say nothing either.
#[tokio::test(start_paused = true)]
async fn vms_that_are_all_gone_are_not_made_anew_before_somebody_has_looked() {
    let pooled = Pooled::settled(3).await;
    for name in pooled.workers() {
        pooled.0.place.lose(&name);
    }
    pooled.for_seconds(3600).await;
    assert_eq!((pooled.condition("Repairable").as_str(), pooled.workers().len()), ("TooManyUnhealthy", 0));
    // A person wants them made anew.
    for name in ["shop-general-w1", "shop-general-w2", "shop-general-w3"] {
        pooled.0.api.remove::<Machine>(Some("team-blue"), name);
    }
    pooled.until("anew", |it| it.is_whole(3)).await;
}

#[tokio::test(start_paused = true)]
async fn while_nobody_answers_nobody_is_ill_and_the_time_begins_anew() {
    let pooled = Pooled::settled(3).await;
    let away: [&dyn Fn(bool); 2] =
        [&|away| pooled.0.place.lock().is_away = away, &|away| pooled.0.place.lock().is_silent = away];
    for goes_away in away {
        pooled.silences("shop-general-w1");
        pooled.for_seconds(100).await;
        goes_away(true);
        pooled.for_seconds(3600).await;
        assert_eq!(pooled.phase("shop-general-w1"), "Running");
        assert_eq!(pooled.condition("Ready"), "NotReached");
        goes_away(false);
        pooled.for_seconds(100).await;
        assert_eq!(pooled.phase("shop-general-w1"), "Running", "it was seen for moments");
        pooled.0.place.lock().unready.clear();
        pooled.until("well again", |it| it.is_settled(3)).await;
    }
    assert_eq!(pooled.workers(), ["shop-general-w1", "shop-general-w2", "shop-general-w3"]);
}

#[tokio::test(start_paused = true)]
async fn where_repair_is_off_or_the_cluster_paused_nothing_is_repaired() {
    let pooled = Pooled::settled(2).await;
    pooled.want(|pool| pool.repair.after_seconds = 0);
    pooled.0.place.lose("shop-general-w1");
    pooled.for_seconds(1800).await;
    assert_eq!(
        (pooled.condition("Repairable").as_str(), pooled.phase("shop-general-w1").as_str()),
        ("RepairOff", "Running")
    );
    let mut cluster: TenantCluster = serde_json::from_value(pooled.0.api.object("tenantclusters")).unwrap();
    cluster.spec.paused = true;
    pooled.0.api.put(&cluster);
    pooled.want(|pool| pool.repair.after_seconds = 300);
    pooled.for_seconds(1800).await;
    assert_eq!(pooled.phase("shop-general-w1"), "Running");
    cluster = serde_json::from_value(pooled.0.api.object("tenantclusters")).unwrap();
    cluster.spec.paused = false;
    pooled.0.api.put(&cluster);
    // It was off for longer than it may be, and has its time to come back.
    pooled.for_seconds(100).await;
    assert_eq!(pooled.phase("shop-general-w1"), "Running");
    pooled.until("repaired", |it| it.is_whole(2)).await;
}

/// Who goes on after a lost answer, or in the place of a controller that has died, repairs once, and makes no VM a second time.
#[tokio::test(start_paused = true)]
async fn a_lost_answer_repairs_nobody_twice() {
    async fn story(pooled: &Pooled, what: &str) {
        pooled.0.place.change("shop-general-w1", |vm| vm.power = PowerState::Off);
        pooled.until(what, |it| it.is_whole(2) && !it.workers().contains(&"shop-general-w1".to_owned())).await;
        assert!(pooled.workers().contains(&"shop-general-w2".to_owned()), "{what}: a good one has gone");
        pooled.is_consistent(what);
    }
    let begun = || Pooled::settled(2);
    let (calls, changes) = with_lost_answers("answers while a worker is repaired", begun, story).await;
    assert!(calls > 100 && changes >= 3, "{calls} {changes}");
    with_vm_faults(changes, begun, story).await;
}

/// A database that was turned back has the times of then.
#[tokio::test(start_paused = true)]
async fn how_long_a_worker_was_ill_before_this_term_does_not_count() {
    let mut pooled = Pooled::settled(2).await;
    pooled.silences("shop-general-w1");
    pooled.reconcile().await.unwrap();
    let since =
        |it: &Pooled| it.0.api.named("machines", "shop-general-w1").unwrap()["status"]["unhealthySince"].clone();
    let before = since(&pooled);
    assert!(before.is_string(), "{before}");
    tokio::time::sleep(2 * AFTER).await;
    let clock = pooled.0.clock.clone();
    pooled.0.term = Term::elected("controller after a restore", clock.clone(), clock.now());
    // It is not renewed, and ends while rounds are gone.
    let _ = pooled.reconcile().await;
    assert_eq!(pooled.phase("shop-general-w1"), "Running");
    pooled.0.term = Term::unlimited("controller two");
    pooled.until("repaired", |it| it.is_whole(2) && !it.workers().contains(&"shop-general-w1".to_owned())).await;
}

/// Nor does it stay noted of a worker that is well, or at which nobody can look.
#[tokio::test(start_paused = true)]
async fn a_time_of_before_this_term_is_taken_away() {
    for is_silent in [false, true] {
        let mut pooled = Pooled::settled(2).await;
        pooled.silences("shop-general-w1");
        pooled.reconcile().await.unwrap();
        let since =
            |it: &Pooled| it.0.api.named("machines", "shop-general-w1").unwrap()["status"]["unhealthySince"].clone();
        assert!(since(&pooled).is_string(), "{}", since(&pooled));
        tokio::time::sleep(Duration::from_secs(60)).await;
        let clock = pooled.0.clock.clone();
        pooled.0.term = Term::elected("controller two", clock.clone(), clock.now());
        pooled.0.place.lock().unready.clear();
        pooled.0.place.lock().silences = usize::from(is_silent);
        pooled.reconcile().await.unwrap();
        assert_eq!(pooled.condition("Ready"), if is_silent { "NotReached" } else { "AllReady" });
        assert!(since(&pooled).is_null(), "{}", since(&pooled));
    }
}
