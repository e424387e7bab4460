//! Repair of unhealthy workers.

use fleet::hypervisor::PowerState;

use super::*;

/// The default time before an unhealthy worker is replaced.
const AFTER: Duration = Duration::from_secs(300);

impl Pooled {
    /// A pool whose workers have joined.
    pub(super) async fn settled(replicas: u32) -> Self {
        let pooled = Self::new(replicas).await;
        pooled.until("settled", |it| it.is_settled(replicas.into())).await;
        pooled
    }

    /// The node of a worker stops reporting.
    fn silences(&self, name: &str) {
        self.0.place.lock().unready.insert(name.to_owned());
    }

    fn phase(&self, name: &str) -> String {
        let machine = self.0.api.named("machines", name).unwrap_or_else(|| panic!("there is no Machine {name}"));
        machine["status"]["phase"].as_str().unwrap().to_owned()
    }

    pub(super) fn unhealthy_since(&self, name: &str) -> Value {
        self.0.api.named("machines", name).unwrap()["status"]["unhealthySince"].clone()
    }

    /// Whether there is this number of workers, each with its Machine, and no other Machine.
    pub(super) fn is_whole(&self, replicas: i64) -> bool {
        self.is_settled(replicas) && self.0.api.names("machines").len() as i64 == 3 + replicas
    }
}

#[tokio::test(start_paused = true)]
async fn an_unhealthy_worker_is_repaired_after_its_time() {
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
async fn recovered_and_cordoned_workers_stay() {
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
    // The unhealthy time begins now, not with the cordon.
    pooled.silences("shop-general-w2");
    pooled.for_seconds(100).await;
    assert_eq!(pooled.phase("shop-general-w2"), "Running");
}

#[tokio::test(start_paused = true)]
async fn repair_stops_while_all_are_unhealthy() {
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

/// All VMs disappear at once, as for an account that lost a privilege, and their nodes do not report.
#[tokio::test(start_paused = true)]
async fn missing_vms_of_all_workers_are_not_replaced() {
    let pooled = Pooled::settled(3).await;
    for name in pooled.workers() {
        pooled.0.place.lose(&name);
    }
    pooled.for_seconds(3600).await;
    assert_eq!((pooled.condition("Repairable").as_str(), pooled.workers().len()), ("TooManyUnhealthy", 0));
    // The operator wants them replaced.
    for name in ["shop-general-w1", "shop-general-w2", "shop-general-w3"] {
        pooled.0.api.remove::<Machine>(Some("team-blue"), name);
    }
    pooled.until("created again", |it| it.is_whole(3)).await;
}

#[tokio::test(start_paused = true)]
async fn an_outage_restarts_the_unhealthy_time() {
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
async fn without_repair_or_paused_nothing_is_repaired() {
    let pooled = Pooled::settled(2).await;
    pooled.want(|pool| pool.repair.after_seconds = 0);
    pooled.0.place.lose("shop-general-w1");
    pooled.for_seconds(1800).await;
    assert_eq!(pooled.condition("Repairable"), "RepairOff");
    assert_eq!(pooled.phase("shop-general-w1"), "Running");
    pooled.pause(true);
    pooled.want(|pool| pool.repair.after_seconds = 300);
    pooled.for_seconds(1800).await;
    assert_eq!(pooled.phase("shop-general-w1"), "Running");
    pooled.pause(false);
    // It was off for longer than the limit, and gets its time to return.
    pooled.for_seconds(100).await;
    assert_eq!(pooled.phase("shop-general-w1"), "Running");
    pooled.until("repaired", |it| it.is_whole(2)).await;
}

/// After a lost answer, or the death of a controller, a worker is repaired once, and no VM is created twice.
#[tokio::test(start_paused = true)]
async fn a_lost_answer_repairs_no_worker_twice() {
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

/// A restored database has old times.
#[tokio::test(start_paused = true)]
async fn unhealthy_time_before_the_term_does_not_count() {
    let mut pooled = Pooled::settled(2).await;
    pooled.silences("shop-general-w1");
    pooled.reconcile().await.unwrap();
    let before = pooled.unhealthy_since("shop-general-w1");
    assert!(before.is_string(), "{before}");
    tokio::time::sleep(2 * AFTER).await;
    let clock = pooled.0.clock.clone();
    pooled.0.term = Term::elected("controller after a restore", clock.clone(), clock.now());
    // The time is not renewed, and its end comes during the rounds.
    let _ = pooled.reconcile().await;
    assert_eq!(pooled.phase("shop-general-w1"), "Running");
    pooled.0.term = Term::unlimited("controller two");
    pooled.until("repaired", |it| it.is_whole(2) && !it.workers().contains(&"shop-general-w1".to_owned())).await;
}

/// Finding 22 of controller.md: a new leader goes on with the time.
#[tokio::test(start_paused = true)]
async fn a_new_leader_keeps_the_unhealthy_time() {
    for (is_silent, is_ill) in [(false, false), (true, false), (false, true)] {
        let mut pooled = Pooled::settled(2).await;
        pooled.silences("shop-general-w1");
        pooled.reconcile().await.unwrap();
        let before = pooled.unhealthy_since("shop-general-w1");
        assert!(before.is_string(), "{before}");
        tokio::time::sleep(Duration::from_secs(60)).await;
        let clock = pooled.0.clock.clone();
        pooled.0.term = Term::elected("controller two", clock.clone(), clock.now());
        if !is_ill {
            pooled.0.place.lock().unready.clear();
        }
        pooled.0.place.lock().silences = usize::from(is_silent);
        // An unhealthy worker is looked at again and again, until it is due or its leader's term ends.
        let _ = pooled.reconcile().await;
        let now = pooled.unhealthy_since("shop-general-w1");
        // A healthy worker has no time, and a failed look changes nothing.
        assert_eq!(now, if is_silent || is_ill { before } else { Value::Null }, "silent {is_silent}, ill {is_ill}");
    }
}

/// Finding 22 of controller.md: a vCenter or an API that is away for moments, again and again, and each time another leader.
#[tokio::test(start_paused = true)]
async fn short_failures_do_not_restart_the_unhealthy_time() {
    type Fails<'a> = &'a dyn Fn(&Pooled, bool);
    let fails: [Fails<'_>; 2] = [&|pooled, is_away| pooled.0.place.lock().is_away = is_away, &|pooled, is_away| {
        pooled.0.place.lock().silences = if is_away { 3 } else { 0 }
    }];
    for (number, fails) in fails.into_iter().enumerate() {
        let mut pooled = Pooled::settled(2).await;
        pooled.silences("shop-general-w1");
        let begun = Instant::now();
        while pooled.workers().contains(&"shop-general-w1".to_owned()) && begun.elapsed() < 3 * AFTER {
            pooled.for_seconds(60).await;
            fails(&pooled, true);
            pooled.for_seconds(60).await;
            fails(&pooled, false);
            pooled.0.term = Term::unlimited("the next controller");
        }
        pooled.until("repaired", |it| it.is_whole(2) && !it.workers().contains(&"shop-general-w1".to_owned())).await;
        assert!(begun.elapsed() < 3 * AFTER, "failure {number}: {:?}", begun.elapsed());
    }
}

/// Finding 10 of controller.md: a failed look writes no zero.
#[tokio::test(start_paused = true)]
async fn a_failed_look_keeps_the_numbers() {
    let pooled = Pooled::settled(2).await;
    let numbers = || {
        let status = pooled.0.api.named("nodepools", "shop-general").unwrap()["status"].clone();
        ["replicas", "readyReplicas", "updatedReplicas"].map(|field| status[field].clone())
    };
    let away: [&dyn Fn(bool); 2] =
        [&|away| pooled.0.place.lock().is_away = away, &|away| pooled.0.place.lock().is_silent = away];
    for goes_away in away {
        goes_away(true);
        pooled.reconcile().await.unwrap();
        assert_eq!(pooled.condition("Ready"), "NotReached");
        assert_eq!(numbers(), [2, 2, 2].map(Value::from));
        // Its cluster is not worse for that: an unknown state is no False.
        pooled.0.reconcile().await.unwrap();
        assert_ne!(pooled.0.condition("Ready").0, "False", "{:?}", pooled.0.condition("Ready"));
        goes_away(false);
        pooled.0.reconcile().await.unwrap();
        assert!(pooled.0.is_ready(), "{:?}", pooled.0.condition("Ready"));
        pooled.until("as before", |it| it.is_settled(2)).await;
    }
}
