//! The database of the control cluster is restored, and VMs of workers are newer. None is deleted, powered off or created twice.
//! Their names and addresses are not reused.

use fleet::hypervisor::Vm;

use super::*;
use crate::decisions::claimed;
use crate::objects::{ADOPT, Claimant, IPPool, PoolAddress, Purpose, set};
use crate::reconcilers::tenant_cluster::tests::{Mortal, reconcile as reconcile_cluster};

type Snapshot = std::collections::BTreeMap<(String, String, String), Value>;

impl Pooled {
    /// A pool with two workers, of which the database has only the first one. `wanted` is the number of replicas.
    async fn with_a_newer_worker(wanted: u32) -> Self {
        let mut pooled = Self::settled(1).await;
        let before = pooled.0.api.snapshot();
        pooled.scales(2).await;
        pooled.turned_back(before);
        pooled.scale(wanted);
        pooled
    }

    /// Restores the database, and another controller leads.
    fn turned_back(&mut self, to: Snapshot) {
        self.0.api.restore(to);
        self.0.term = Term::unlimited("controller after a restore");
    }

    /// All VMs, and the number of changes.
    fn as_they_are(&self) -> (Vec<Vm>, usize) {
        let state = self.0.place.lock();
        (state.vms.iter().map(|(vm, ..)| vm.clone()).collect(), state.changes.len())
    }

    /// Requests the adoption, as the operator would.
    fn adopt(&self) {
        let mut cluster = self.cluster();
        cluster.metadata.annotations.get_or_insert_default().insert(ADOPT.to_owned(), "shop".to_owned());
        self.0.api.put(&cluster);
    }

    fn has_drifted(&self) -> bool {
        self.condition("Ready") == "AdoptionRequired"
    }

    fn is_asked(&self) -> bool {
        !self.0.api.object("tenantclusters")["metadata"]["annotations"][ADOPT].is_null()
    }
}

#[tokio::test(start_paused = true)]
async fn newer_workers_keep_names_and_addresses() {
    let pooled = Pooled::with_a_newer_worker(3).await;
    let objects = || (pooled.0.api.names("machines"), pooled.0.api.names("pooladdresses"));
    let (there, before) = (pooled.as_they_are(), objects());
    pooled.for_seconds(1800).await;
    let added = pooled.0.place.vms()["shop-general-w2"];
    pooled.says("Ready", "AdoptionRequired", &added.to_string());
    assert_eq!(pooled.as_they_are(), there);
    assert_eq!(objects(), before);
    // Known workers are not removed either.
    pooled.0.api.remove::<Machine>(Some("team-blue"), "shop-general-w1");
    pooled.scale(0);
    pooled.for_seconds(600).await;
    assert!(pooled.has_drifted());
    assert_eq!(pooled.as_they_are(), there);
    // The operator has removed the VM: the pool continues.
    pooled.0.place.lose("shop-general-w2");
    pooled.scales(1).await;
    pooled.is_consistent("one");
}

/// Each round looks again, and may see more than the look before.
#[tokio::test(start_paused = true)]
async fn a_failed_first_look_changes_nothing() {
    let pooled = Pooled::with_a_newer_worker(3).await;
    let (there, machines) = (pooled.as_they_are(), pooled.0.api.names("machines"));
    for _ in 0..4 {
        pooled.0.place.lock().silences = 1;
        pooled.reconcile().await.unwrap();
        assert_eq!(pooled.0.place.lock().silences, 0, "it was looked at");
        assert_eq!(pooled.condition("Ready"), "NotReached", "nobody looks once more to act on it");
        assert_eq!((pooled.as_they_are(), pooled.0.api.names("machines")), (there.clone(), machines.clone()));
        tokio::time::sleep(Duration::from_secs(30)).await;
    }
    pooled.reconcile().await.unwrap();
    assert!(pooled.has_drifted());
}

/// It has a Machine and its address again. Its origin is unknown, so another worker replaces it.
#[tokio::test(start_paused = true)]
async fn an_adopted_worker_belongs_to_its_pool() {
    let pooled = Pooled::with_a_newer_worker(2).await;
    pooled.until("drifted", Pooled::has_drifted).await;
    let (there, vm) = (pooled.as_they_are(), pooled.0.place.vms()["shop-general-w2"]);
    let has = pooled.0.place.lock().forms["shop-general-w2"]["address"].trim_end_matches("/24").to_owned();
    // Another claimant has its address now.
    let (kind, namespace, name) = ("Machine".to_owned(), "team-red".to_owned(), "bank-cp1".to_owned());
    let uid = "0f5e2a30-7c1b-4d7e-9a55-0d6a1c5b7e21".to_owned();
    let other = Claimant { kind, namespace, name, uid, purpose: Purpose::Node, index: 0 };
    let other = claimed("blue-nodes", has.parse().unwrap(), other);
    pooled.0.api.put(&other);
    pooled.adopt();
    pooled.reconcile().await.unwrap();
    let words = pooled.message("Ready");
    assert!(pooled.has_drifted() && words.contains("not adopted yet"), "{words}");
    let is_told = words.contains("now taken by a claimant in another namespace");
    assert!(is_told && !words.contains("bank-cp1"), "{words}");
    assert!(pooled.0.api.named("machines", "shop-general-w2").is_none());
    pooled.0.reconcile().await.unwrap();
    assert!(pooled.is_asked(), "it stays asked for");
    pooled.0.api.remove::<PoolAddress>(None, other.metadata.name.as_deref().unwrap());
    pooled.reconcile().await.unwrap();
    let machine = pooled.0.api.named("machines", "shop-general-w2").unwrap();
    let (status, uid) = (&machine["status"], machine["metadata"]["uid"].clone());
    assert_eq!(status["vms"][0]["uuid"], vm.to_string());
    assert_eq!(status["journal"]["stamp"], vm.to_string());
    assert_eq!((&status["phase"], &status["journal"]["address"]), (&"Running".into(), &has.as_str().into()));
    let address: PoolAddress = pooled.0.api.read(None, other.metadata.name.as_deref().unwrap()).unwrap();
    assert_eq!(Value::from(address.spec.claimant.uid), uid);
    assert_eq!(pooled.as_they_are(), there);
    let are = |it: &Pooled| it.is_settled(2) && it.workers() == ["shop-general-w1", "shop-general-w3"];
    pooled.until("another one takes its place", are).await;
    pooled.is_consistent("another one has taken its place");
    pooled.0.reconcile().await.unwrap();
    assert!(!pooled.is_asked(), "it is noted");
}

/// The tenant can write any address into Nodes.
#[tokio::test(start_paused = true)]
async fn an_adopted_worker_keeps_its_given_address() {
    let pooled = Pooled::with_a_newer_worker(2).await;
    pooled.until("drifted", Pooled::has_drifted).await;
    let has = pooled.0.place.lock().forms["shop-general-w2"]["address"].trim_end_matches("/24").to_owned();
    pooled.0.place.lock().written.insert("shop-general-w2".to_owned(), [192, 168, 10, 90].into());
    let addresses: IPPool = pooled.0.api.read(None, "blue-nodes").unwrap();
    let mut reserving = addresses.clone();
    reserving.spec.reserved.push(has.clone());
    pooled.0.api.put(&reserving);
    pooled.adopt();
    pooled.reconcile().await.unwrap();
    let words = pooled.message("Ready");
    assert!(pooled.has_drifted() && words.contains(&has) && words.contains("does not give out"), "{words}");
    assert!(pooled.0.api.named("machines", "shop-general-w2").is_none());
    pooled.0.api.put(&addresses);
    pooled.reconcile().await.unwrap();
    let machine = pooled.0.api.named("machines", "shop-general-w2").unwrap();
    assert_eq!(machine["status"]["journal"]["address"], has);
    assert!(!pooled.0.api.names("pooladdresses").contains(&"192-168-10-90".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_request_stays_while_looks_fail() {
    let pooled = Pooled::settled(1).await;
    pooled.0.place.lock().silences = 1;
    pooled.reconcile().await.unwrap();
    assert_eq!(pooled.condition("Ready"), "NotReached");
    pooled.adopt();
    pooled.0.reconcile().await.unwrap();
    assert!(pooled.is_asked());
    pooled.reconcile().await.unwrap();
    pooled.0.reconcile().await.unwrap();
    assert!(!pooled.is_asked() && pooled.is_settled(1));
}

/// Its restored status says that all workers are ready.
#[tokio::test(start_paused = true)]
async fn a_request_stays_until_all_pools_were_seen() {
    let pooled = Pooled::with_a_newer_worker(2).await;
    assert!(!pooled.has_drifted(), "it is of before");
    pooled.adopt();
    pooled.0.reconcile().await.unwrap();
    assert!(pooled.is_asked(), "its workers are not adopted");
    pooled.until("adopted", |it| it.0.api.named("machines", "shop-general-w2").is_some()).await;
    pooled.until("settled", |it| it.is_settled(2)).await;
    pooled.0.reconcile().await.unwrap();
    assert!(!pooled.is_asked(), "it is noted");
}

/// A pool without kubeconfig or class has listed no VMs.
#[tokio::test(start_paused = true)]
async fn a_request_names_the_pools_without_a_look() {
    for lacks_class in [true, false] {
        let pooled = Pooled::with_a_newer_worker(2).await;
        let class: VMClass = pooled.0.api.read(None, "small").unwrap();
        let expected = if lacks_class {
            pooled.0.api.remove::<VMClass>(None, "small");
            "Unfit"
        } else {
            pooled.0.put_own_kubeconfig(None);
            "ClusterNotReady"
        };
        pooled.reconcile().await.unwrap();
        assert_eq!(pooled.condition("Ready"), expected);
        pooled.adopt();
        // The first look restores the kubeconfig.
        pooled.0.reconcile().await.unwrap();
        pooled.0.reconcile().await.unwrap();
        let (_, _, words) = pooled.0.condition("Progressing");
        assert!(pooled.is_asked() && words.contains("NodePool shop-general") && words.contains(expected), "{words}");
        if lacks_class {
            assert!(words.contains("there is no VMClass small"), "{words}");
            pooled.0.api.put(&class);
        }
        pooled.until("adopted", |it| it.0.api.named("machines", "shop-general-w2").is_some()).await;
        pooled.until("settled", |it| it.is_settled(2)).await;
        pooled.0.reconcile().await.unwrap();
        assert!(!pooled.is_asked(), "it is noted");
    }
}

/// Its listed status is from before the restore, and says that all workers are ready.
#[tokio::test(start_paused = true)]
async fn a_request_awaits_a_concurrent_look() {
    let mut pooled = Pooled::with_a_newer_worker(2).await;
    pooled.adopt();
    let (api, listed) = (pooled.0.api.clone(), pooled.there());
    let (uid, generation) = (listed.metadata.uid.clone().unwrap(), listed.metadata.generation.unwrap_or_default());
    let mut drifted = listed.clone();
    let conditions = &mut drifted.status.get_or_insert_default().conditions;
    set(conditions, NodePoolReason::AdoptionRequired, "", generation, &pooled.0.clock.time());
    let mut calls = 0;
    loop {
        pooled.0.term = Term::unlimited("controller after a restore");
        api.put(&listed);
        let World { place, clock, term, cluster, .. } = &pooled.0;
        let slow = Mortal::new(&api, Some((calls, false)));
        let mut goes = Box::pin(reconcile_cluster(cluster, &slow, place, (term, clock)));
        let is_slow = tokio::select! {
            biased;
            () = slow.died.notified() => true,
            _ = &mut goes => false,
        };
        if !is_slow {
            break;
        }
        api.put(&drifted);
        term.looked_at(&uid, generation);
        slow.lives_on.notify_one();
        let _ = goes.await;
        let is_asked = !api.object("tenantclusters")["metadata"]["annotations"][ADOPT].is_null();
        assert!(is_asked, "after call {calls}");
        calls += 1;
    }
    assert!(calls > 5, "{calls}");
}

/// An open request would take effect later, when the operator no longer expects it.
#[tokio::test(start_paused = true)]
async fn a_request_does_not_await_pools_without_workers() {
    let pooled = Pooled::new(2).await;
    pooled.limited(3);
    pooled.until("held", |it| it.condition("Ready") == "CapacityMissing").await;
    pooled.adopt();
    pooled.0.reconcile().await.unwrap();
    assert!(pooled.is_asked(), "the pool was never read");
    pooled.reconcile().await.unwrap();
    pooled.0.reconcile().await.unwrap();
    assert!(!pooled.is_asked() && pooled.workers().is_empty() && pooled.condition("Ready") == "CapacityMissing");
    // Other pools are older.
    let mut youngest = pooled.there();
    youngest.metadata.creation_timestamp = Some(pooled.0.clock.time());
    pooled.0.api.put(&youngest);
    pooled.scale(3);
    let World { api, place, clock, term, .. } = &pooled.0;
    for number in 0..16 {
        let mut older = pool(0);
        older.metadata.name = Some(format!("shop-older{number}"));
        api.put(&older);
        let older: NodePool = api.read(Some("team-blue"), &older.name_any()).unwrap();
        // The first reconcile adds the finalizer.
        for _ in 0..2 {
            reconcile(&older, api, place, (term, clock)).await.unwrap();
        }
    }
    pooled.until("one too many", |it| it.condition("Ready") == "TooMany").await;
    pooled.adopt();
    pooled.0.reconcile().await.unwrap();
    assert!(!pooled.is_asked());
    // An older pool is deleted, so this one is no longer too many, and is looked at next.
    api.remove::<NodePool>(Some("team-blue"), "shop-older0");
    let goes: NodePool = api.read(Some("team-blue"), "shop-older0").unwrap();
    reconcile(&goes, api, place, (term, clock)).await.unwrap();
    pooled.adopt();
    pooled.0.reconcile().await.unwrap();
    assert!(pooled.is_asked() && pooled.condition("Ready") == "TooMany");
    pooled.reconcile().await.unwrap();
    pooled.0.reconcile().await.unwrap();
    assert!(!pooled.is_asked() && pooled.condition("Ready") == "CapacityMissing");
}

/// The end of a long message is cut.
#[tokio::test(start_paused = true)]
async fn a_request_names_all_pools_despite_long_reasons() {
    let pooled = Pooled::settled(1).await;
    let names: Vec<String> = (0..12).map(|number| format!("shop-other{number}")).collect();
    for name in &names {
        let mut other = pool(1);
        other.metadata.name = Some(name.clone());
        let status = other.status.get_or_insert_default();
        set(&mut status.conditions, NodePoolReason::Unfit, &"x".repeat(900), 1, &pooled.0.clock.time());
        pooled.0.api.put(&other);
    }
    pooled.adopt();
    pooled.0.reconcile().await.unwrap();
    let (_, _, words) = pooled.0.condition("Progressing");
    let first = words.find("Unfit").unwrap_or_else(|| panic!("{words}"));
    for named in names.iter().map(String::as_str).chain([ADOPT]) {
        assert!(words.find(named).is_some_and(|at| at < first), "{named}: {words}");
    }
    let told = words.find("and 9 more)").unwrap_or_else(|| panic!("{words}"));
    let said = &words[..told];
    assert!(names.iter().filter(|name| said.contains(&format!("{name}: "))).count() == 3, "{words}");
    assert!(words.len() > told + "and 9 more)".len(), "there is room for all else: {words}");
}

/// A caller that saw the pool before its deletion forgets it too.
#[tokio::test(start_paused = true)]
async fn a_deleted_pool_is_forgotten() {
    let pooled = Pooled::settled(1).await;
    pooled.scale(0);
    let has_no_machine = |it: &Pooled| it.0.api.names("machines").iter().all(|name| !name.contains("-w"));
    pooled.until("none", |it| it.is_settled(0) && has_no_machine(it)).await;
    let World { api, place, clock, term, .. } = &pooled.0;
    let known = pooled.there();
    let (uid, generation) = (known.metadata.uid.clone().unwrap(), known.metadata.generation.unwrap_or_default());
    // The status is written last.
    pooled.reconcile().await.unwrap();
    assert!(term.observed_generations().have(&uid, generation));
    api.remove::<NodePool>(Some("team-blue"), "shop-general");
    reconcile(&known, api, place, (term, clock)).await.unwrap();
    assert!(api.names("nodepools").is_empty() && !term.observed_generations().have(&uid, generation));
}

#[tokio::test(start_paused = true)]
async fn unhealthy_time_does_not_count_during_drift() {
    let mut pooled = Pooled::settled(2).await;
    let before = pooled.0.api.snapshot();
    pooled.scales(3).await;
    pooled.turned_back(before);
    pooled.0.place.lock().unready.insert("shop-general-w1".to_owned());
    pooled.for_seconds(900).await;
    assert!(pooled.has_drifted());
    assert_eq!(pooled.unhealthy_since("shop-general-w1"), Value::Null);
}

#[tokio::test(start_paused = true)]
async fn a_replaced_worker_is_not_replaced_again() {
    let mut pooled = Pooled::settled(2).await;
    let before = pooled.0.api.snapshot();
    pooled.0.api.remove::<Machine>(Some("team-blue"), "shop-general-w1");
    pooled.until("created again", |it| it.is_settled(2) && !it.workers().contains(&"shop-general-w1".to_owned())).await;
    pooled.turned_back(before);
    let there = pooled.as_they_are();
    pooled.for_seconds(1800).await;
    let added = pooled.0.place.vms()["shop-general-w3"];
    pooled.says("Ready", "AdoptionRequired", &added.to_string());
    assert_eq!(pooled.as_they_are(), there);
}

/// All VMs are known: the pool creates the missing worker.
#[tokio::test(start_paused = true)]
async fn a_removed_worker_is_replaced_after_a_restore() {
    let mut pooled = Pooled::settled(2).await;
    let before = pooled.0.api.snapshot();
    pooled.scales(1).await;
    pooled.turned_back(before);
    let first = pooled.0.place.vms()["shop-general-w1"];
    pooled.until("two", |it| it.is_settled(2) && it.workers().contains(&"shop-general-w3".to_owned())).await;
    assert_eq!(pooled.0.place.vms()["shop-general-w1"], first);
    pooled.is_consistent("two");
}

/// A worker whose record says only that it was begun, and which serves, could be taken for an incomplete VM.
#[tokio::test(start_paused = true)]
async fn a_restore_during_creation_duplicates_no_worker() {
    let calls = {
        let pooled = Pooled::new(2).await;
        let mortal = Mortal::new(&pooled.0.api, None);
        assert!(!pooled.until_death(&mortal, |it| it.is_settled(2)).await);
        mortal.calls()
    };
    let (mut drifted, tried) = (0, drawn("databases of while workers were made", (0..calls).collect()));
    // In a small draw there may be no point with newer VMs.
    let are_all = tried.len() == calls;
    for call in tried {
        let mut pooled = Pooled::new(2).await;
        let mortal = Mortal::new(&pooled.0.api, Some((call, true)));
        pooled.until_death(&mortal, |it| it.is_settled(2)).await;
        let before = pooled.0.api.snapshot();
        pooled.0.term = Term::unlimited("controller two");
        pooled.until("two", |it| it.is_settled(2)).await;
        let (there, names) = (pooled.as_they_are(), pooled.workers());
        if names != ["shop-general-w1", "shop-general-w2"] {
            // The creation was repeated after the death, which is not this test.
            continue;
        }
        pooled.turned_back(before);
        pooled.for_seconds(300).await;
        assert!(pooled.has_drifted() || pooled.is_settled(2), "{call}: {:#}", pooled.0.api.object("nodepools"));
        assert_eq!(pooled.as_they_are(), there, "{call}");
        if !pooled.has_drifted() {
            continue;
        }
        drifted += 1;
        pooled.adopt();
        let what = format!("adopted: {call}");
        pooled.until(&what, |it| it.is_settled(2) && it.condition("UpToDate") == "Current").await;
        let (machines, addresses) = (pooled.0.api.names("machines"), pooled.0.api.names("pooladdresses"));
        assert_eq!(addresses.len(), machines.len() + 3, "{call}");
    }
    assert!(drifted > 0 || !are_all);
}

/// It belongs to no pool and is not newer: the pool creates the missing worker.
#[tokio::test(start_paused = true)]
async fn a_kept_vm_is_not_newer() {
    let mut pooled = Pooled::settled(2).await;
    pooled.keeps("shop-general-w2");
    let before = pooled.0.api.snapshot();
    pooled.scale(1);
    pooled.until("one", |it| it.is_whole(1)).await;
    let kept = pooled.kept();
    assert_eq!(kept.len(), 1);
    pooled.turned_back(before);
    pooled.reconcile().await.unwrap();
    let machine: Machine = pooled.0.api.read(Some("team-blue"), "shop-general-w2").unwrap();
    let told = machine.status.unwrap().conditions.into_iter().find(|it| it.about == "VMReady").unwrap();
    assert!(!pooled.has_drifted() && told.reason == "Kept", "{told:?}");
    pooled.until("two", |it| it.is_whole(2) && it.workers().contains(&"shop-general-w3".to_owned())).await;
    assert_eq!(pooled.kept(), kept);
    pooled.is_consistent("two");
}
