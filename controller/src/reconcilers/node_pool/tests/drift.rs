//! The database of the control cluster is turned back, and VMs of workers are not: none is deleted, powered off or made twice, and nobody
//! has their names and addresses.

use fleet::hypervisor::Vm;
use k8s_openapi::api::core::v1::Secret;

use super::*;
use crate::decisions::claimed;
use crate::objects::{ADOPT, Claimant, IPPool, PoolAddress, Purpose, set};
use crate::reconcilers::tenant_cluster::tests::{Mortal, reconcile as reconcile_cluster};

/// All objects at one moment.
type Snapshot = std::collections::BTreeMap<(String, String, String), Value>;

impl Pooled {
    /// A pool of two workers, of which the database knows the first one alone, and which is to have so many.
    async fn with_a_newer_worker(wanted: u32) -> Self {
        let mut pooled = Self::settled(1).await;
        let before = pooled.0.api.snapshot();
        pooled.scale(2);
        pooled.until("two", |it| it.is_settled(2)).await;
        pooled.turned_back(before);
        pooled.scale(wanted);
        pooled
    }

    /// The database is as it was once, and another controller leads.
    fn turned_back(&mut self, to: Snapshot) {
        self.0.api.restore(to);
        self.0.term = Term::unlimited("controller after a restore");
    }

    /// All VMs as they are, and how often something was changed.
    fn as_they_are(&self) -> (Vec<Vm>, usize) {
        let state = self.0.place.lock();
        (state.vms.iter().map(|(vm, ..)| vm.clone()).collect(), state.changes.len())
    }

    /// A person has VMs taken as they are.
    fn adopt(&self) {
        let mut cluster: TenantCluster = serde_json::from_value(self.0.api.object("tenantclusters")).unwrap();
        cluster.metadata.annotations.get_or_insert_default().insert(ADOPT.to_owned(), "shop".to_owned());
        self.0.api.put(&cluster);
    }

    fn has_drifted(&self) -> bool {
        self.condition("Ready") == "AdoptionRequired"
    }

    fn words(&self) -> String {
        let status = self.there().status.unwrap_or_default();
        let ready = status.conditions.iter().find(|it| it.about == "Ready").map(|it| it.message.clone());
        ready.unwrap_or_default()
    }
}

#[tokio::test(start_paused = true)]
async fn workers_that_were_added_since_are_named_and_none_takes_their_names_or_addresses() {
    let pooled = Pooled::with_a_newer_worker(3).await;
    let (there, objects) =
        (pooled.as_they_are(), (pooled.0.api.names("machines"), pooled.0.api.names("pooladdresses")));
    pooled.for_seconds(1800).await;
    let added = pooled.0.place.vms()["shop-general-w2"];
    assert!(pooled.has_drifted() && pooled.words().contains(&added.to_string()), "{}", pooled.words());
    assert_eq!(pooled.as_they_are(), there);
    assert_eq!((pooled.0.api.names("machines"), pooled.0.api.names("pooladdresses")), objects);
    // Nor does anybody go who is known.
    pooled.0.api.remove::<Machine>(Some("team-blue"), "shop-general-w1");
    pooled.scale(0);
    pooled.for_seconds(600).await;
    assert!(pooled.has_drifted());
    assert_eq!(pooled.as_they_are(), there);
    // A person has removed it: all else goes on.
    pooled.0.place.lose("shop-general-w2");
    pooled.scale(1);
    pooled.until("one", |it| it.is_settled(1)).await;
    pooled.is_consistent("one");
}

/// Whoever acts looks for himself, and may see what the look before has not.
#[tokio::test(start_paused = true)]
async fn where_the_first_look_at_workers_fails_nothing_is_done_by_the_next_one() {
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

/// It has a Machine and its address again; and as nobody knows what it was made of, another one takes its place.
#[tokio::test(start_paused = true)]
async fn a_worker_that_a_person_has_adopted_is_its_pools_again() {
    let pooled = Pooled::with_a_newer_worker(2).await;
    pooled.until("drifted", Pooled::has_drifted).await;
    let (there, vm) = (pooled.as_they_are(), pooled.0.place.vms()["shop-general-w2"]);
    let has = pooled.0.place.lock().forms["shop-general-w2"]["address"].trim_end_matches("/24").to_owned();
    // Somebody else was given its address meanwhile.
    let (kind, namespace, name) = ("Machine".to_owned(), "team-red".to_owned(), "bank-cp1".to_owned());
    let uid = "0f5e2a30-7c1b-4d7e-9a55-0d6a1c5b7e21".to_owned();
    let other = Claimant { kind, namespace, name, uid, purpose: Purpose::Node, index: 0 };
    let other = claimed("blue-nodes", has.parse().unwrap(), other);
    pooled.0.api.put(&other);
    pooled.adopt();
    pooled.reconcile().await.unwrap();
    let words = pooled.words();
    assert!(pooled.has_drifted() && words.contains("not adopted yet"), "{words}");
    let is_told = words.contains("now taken by a claimant in another namespace");
    assert!(is_told && !words.contains("bank-cp1"), "{words}");
    assert!(pooled.0.api.named("machines", "shop-general-w2").is_none());
    pooled.0.reconcile().await.unwrap();
    let asked = || !pooled.0.api.object("tenantclusters")["metadata"]["annotations"][ADOPT].is_null();
    assert!(asked(), "it stays asked for");
    pooled.0.api.remove::<PoolAddress>(None, other.metadata.name.as_deref().unwrap());
    pooled.reconcile().await.unwrap();
    let machine = pooled.0.api.named("machines", "shop-general-w2").unwrap();
    let (status, uid) = (&machine["status"], machine["metadata"]["uid"].clone());
    assert_eq!(
        (&status["vms"][0]["uuid"], &status["journal"]["stamp"]),
        (&vm.to_string().into(), &vm.to_string().into())
    );
    assert_eq!((&status["phase"], &status["journal"]["address"]), (&"Running".into(), &has.as_str().into()));
    let address: PoolAddress = pooled.0.api.read(None, other.metadata.name.as_deref().unwrap()).unwrap();
    assert_eq!(Value::from(address.spec.claimant.uid), uid);
    assert_eq!(pooled.as_they_are(), there);
    let are = |it: &Pooled| it.is_settled(2) && it.workers() == ["shop-general-w1", "shop-general-w3"];
    pooled.until("another one takes its place", are).await;
    pooled.is_consistent("another one has taken its place");
    pooled.0.reconcile().await.unwrap();
    assert!(!asked(), "it is noted");
}

/// Whoever rules the cluster writes what he likes into its Nodes.
#[tokio::test(start_paused = true)]
async fn a_worker_that_is_adopted_has_the_address_that_its_vm_was_given_if_its_pool_gives_it_out() {
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
    let words = pooled.words();
    assert!(pooled.has_drifted() && words.contains(&has) && words.contains("does not give out"), "{words}");
    assert!(pooled.0.api.named("machines", "shop-general-w2").is_none());
    pooled.0.api.put(&addresses);
    pooled.reconcile().await.unwrap();
    let machine = pooled.0.api.named("machines", "shop-general-w2").unwrap();
    assert_eq!(machine["status"]["journal"]["address"], has);
    assert!(!pooled.0.api.names("pooladdresses").contains(&"blue-nodes-192-168-10-90".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn what_a_person_says_of_newer_vms_stays_said_while_nobody_can_look_at_a_pool() {
    let pooled = Pooled::settled(1).await;
    pooled.0.place.lock().silences = 1;
    pooled.reconcile().await.unwrap();
    assert_eq!(pooled.condition("Ready"), "NotReached");
    pooled.adopt();
    let asked = || !pooled.0.api.object("tenantclusters")["metadata"]["annotations"][ADOPT].is_null();
    pooled.0.reconcile().await.unwrap();
    assert!(asked());
    pooled.reconcile().await.unwrap();
    pooled.0.reconcile().await.unwrap();
    assert!(!asked() && pooled.is_settled(1));
}

/// Its status is restored as well, and says that all is well.
#[tokio::test(start_paused = true)]
async fn what_a_person_says_stays_said_until_each_pool_was_looked_at_after_the_restore() {
    let pooled = Pooled::with_a_newer_worker(2).await;
    assert!(!pooled.has_drifted(), "it is of before");
    pooled.adopt();
    let asked = || !pooled.0.api.object("tenantclusters")["metadata"]["annotations"][ADOPT].is_null();
    pooled.0.reconcile().await.unwrap();
    assert!(asked(), "its workers are not adopted");
    pooled.until("adopted", |it| it.0.api.named("machines", "shop-general-w2").is_some()).await;
    pooled.until("settled", |it| it.is_settled(2)).await;
    pooled.0.reconcile().await.unwrap();
    assert!(!asked(), "it is noted");
}

/// Who says that there is no kubeconfig yet, or no class, has listed no VM.
#[tokio::test(start_paused = true)]
async fn what_a_person_says_stays_said_and_tells_which_pool_nobody_could_look_at() {
    for lacks_class in [true, false] {
        let pooled = Pooled::with_a_newer_worker(2).await;
        let class: VMClass = pooled.0.api.read(None, "small").unwrap();
        let expected = if lacks_class {
            pooled.0.api.remove::<VMClass>(None, "small");
            "Unfit"
        } else {
            pooled.0.api.remove::<Secret>(Some("team-blue"), "shop-kubeconfig");
            "ClusterNotReady"
        };
        pooled.reconcile().await.unwrap();
        assert_eq!(pooled.condition("Ready"), expected);
        pooled.adopt();
        let asked = || !pooled.0.api.object("tenantclusters")["metadata"]["annotations"][ADOPT].is_null();
        // By the first look it has a kubeconfig again.
        pooled.0.reconcile().await.unwrap();
        pooled.0.reconcile().await.unwrap();
        let (_, _, words) = pooled.0.condition("Progressing");
        assert!(asked() && words.contains("NodePool shop-general") && words.contains(expected), "{words}");
        if lacks_class {
            assert!(words.contains("there is no VMClass small"), "{words}");
            pooled.0.api.put(&class);
        }
        pooled.until("adopted", |it| it.0.api.named("machines", "shop-general-w2").is_some()).await;
        pooled.until("settled", |it| it.is_settled(2)).await;
        pooled.0.reconcile().await.unwrap();
        assert!(!asked(), "it is noted");
    }
}

/// What is listed of it is of before, and says that all is well.
#[tokio::test(start_paused = true)]
async fn what_a_person_says_stays_said_for_a_pool_that_is_looked_at_while_it_is_listed() {
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

/// It would stay given, and be heard when nobody thinks of it.
#[tokio::test(start_paused = true)]
async fn no_word_to_adopt_stays_for_a_pool_that_has_no_room_for_its_first_worker_or_is_one_too_many() {
    let pooled = Pooled::new(2).await;
    pooled.limited(3);
    pooled.until("held", |it| it.condition("Ready") == "CapacityMissing").await;
    let asked = || !pooled.0.api.object("tenantclusters")["metadata"]["annotations"][ADOPT].is_null();
    pooled.adopt();
    pooled.0.reconcile().await.unwrap();
    assert!(asked(), "nobody has looked at it");
    pooled.reconcile().await.unwrap();
    pooled.0.reconcile().await.unwrap();
    assert!(!asked() && pooled.workers().is_empty() && pooled.condition("Ready") == "CapacityMissing");
    // Others are older.
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
        // At first it is noted that it is kept.
        for _ in 0..2 {
            reconcile(&older, api, place, (term, clock)).await.unwrap();
        }
    }
    pooled.until("one too many", |it| it.condition("Ready") == "TooMany").await;
    pooled.adopt();
    pooled.0.reconcile().await.unwrap();
    assert!(!asked());
    // One of them goes: it is none too many any more, whatever it says, and is looked at next.
    api.remove::<NodePool>(Some("team-blue"), "shop-older0");
    let goes: NodePool = api.read(Some("team-blue"), "shop-older0").unwrap();
    reconcile(&goes, api, place, (term, clock)).await.unwrap();
    pooled.adopt();
    pooled.0.reconcile().await.unwrap();
    assert!(asked() && pooled.condition("Ready") == "TooMany");
    pooled.reconcile().await.unwrap();
    pooled.0.reconcile().await.unwrap();
    assert!(!asked() && pooled.condition("Ready") == "CapacityMissing");
}

/// What is written is cut off at its end.
#[tokio::test(start_paused = true)]
async fn what_a_person_says_names_all_pools_that_it_waits_for_however_much_these_have_to_say() {
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

/// Whoever has seen it before it was deleted lets it go all the same.
#[tokio::test(start_paused = true)]
async fn a_pool_that_has_gone_is_forgotten() {
    let pooled = Pooled::settled(1).await;
    pooled.scale(0);
    let has_no_machine = |it: &Pooled| it.0.api.names("machines").iter().all(|name| !name.contains("-w"));
    pooled.until("none", |it| it.is_settled(0) && has_no_machine(it)).await;
    let World { api, place, clock, term, .. } = &pooled.0;
    let known = pooled.there();
    let (uid, generation) = (known.metadata.uid.clone().unwrap(), known.metadata.generation.unwrap_or_default());
    // Its status is written last.
    pooled.reconcile().await.unwrap();
    assert!(term.observed_generations().have(&uid, generation));
    api.remove::<NodePool>(Some("team-blue"), "shop-general");
    reconcile(&known, api, place, (term, clock)).await.unwrap();
    assert!(api.names("nodepools").is_empty() && !term.observed_generations().have(&uid, generation));
}

#[tokio::test(start_paused = true)]
async fn no_time_of_an_illness_passes_while_workers_are_newer_than_the_database() {
    let mut pooled = Pooled::settled(2).await;
    let before = pooled.0.api.snapshot();
    pooled.scale(3);
    pooled.until("three", |it| it.is_settled(3)).await;
    pooled.turned_back(before);
    pooled.0.place.lock().unready.insert("shop-general-w1".to_owned());
    pooled.for_seconds(900).await;
    let since = || pooled.0.api.named("machines", "shop-general-w1").unwrap()["status"]["unhealthySince"].clone();
    assert!(pooled.has_drifted() && since().is_null(), "{}", since());
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_was_replaced_since_is_not_replaced_once_more() {
    let mut pooled = Pooled::settled(2).await;
    let before = pooled.0.api.snapshot();
    pooled.0.api.remove::<Machine>(Some("team-blue"), "shop-general-w1");
    pooled.until("anew", |it| it.is_settled(2) && !it.workers().contains(&"shop-general-w1".to_owned())).await;
    pooled.turned_back(before);
    let there = pooled.as_they_are();
    pooled.for_seconds(1800).await;
    let added = pooled.0.place.vms()["shop-general-w3"];
    assert!(pooled.has_drifted() && pooled.words().contains(&added.to_string()), "{}", pooled.words());
    assert_eq!(pooled.as_they_are(), there);
}

/// There is nothing that nobody knows: what the pool lacks is made.
#[tokio::test(start_paused = true)]
async fn where_a_worker_was_removed_since_the_others_stay_and_another_one_comes() {
    let mut pooled = Pooled::settled(2).await;
    let before = pooled.0.api.snapshot();
    pooled.scale(1);
    pooled.until("one", |it| it.is_settled(1)).await;
    pooled.turned_back(before);
    let first = pooled.0.place.vms()["shop-general-w1"];
    pooled.until("two", |it| it.is_settled(2) && it.workers().contains(&"shop-general-w3".to_owned())).await;
    assert_eq!(pooled.0.place.vms()["shop-general-w1"], first);
    pooled.is_consistent("two");
}

/// One that is known as begun alone, and serves, would be taken for half a VM.
#[tokio::test(start_paused = true)]
async fn in_a_database_of_while_workers_were_made_none_of_them_is_removed_or_made_twice() {
    let calls = {
        let pooled = Pooled::new(2).await;
        let mortal = Mortal::new(&pooled.0.api, None);
        assert!(!pooled.until_death(&mortal, |it| it.is_settled(2)).await);
        mortal.calls()
    };
    let (mut drifted, tried) = (0, drawn("databases of while workers were made", (0..calls).collect()));
    // Of a few that are drawn none may be one of those that have drifted.
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
            // What was begun was made anew after the death: that is another story.
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

/// It is nobody's, and no newer worker's: what the pool lacks is made.
#[tokio::test(start_paused = true)]
async fn a_vm_that_was_given_up_since_is_no_drift_and_stays_as_it_is() {
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
