//! The store on an API server in memory. Records that `fleet` writes can be read again, whichever answers are lost.

use fleet::control_plane::{self, Lifecycle, Records};
use fleet::lease::{Lease, Lost, TakeOver};
use fleet::upgrade::{Action, Journal, Outcome, Step};
use fleet::workers::Image;
use uuid::Uuid;

use super::super::fenced::Fenced;
use super::super::in_memory::{Fault, InMemory};
use super::*;
use crate::records::fixture;
use crate::term::Clock;

/// A server with the cluster of these tests.
fn served() -> InMemory {
    let api = InMemory::default();
    let cluster = json!({
        "metadata": {"name": "shop"}, "status": {"conditions": [{"type": "Ready"}], "later": "kept"},
    });
    api.put_value(&Collection::of::<TenantCluster>(Some("team-blue")), cluster);
    api
}

fn store(api: &InMemory) -> ClusterStore<'_> {
    let swap =
        Swap { from_image: "a".to_owned(), to_image: "b".to_owned(), sizes: (None, None), class: None, generation: 7 };
    ClusterStore::new(api, "team-blue", "shop", &Term::unlimited("controller-1")).beginning(swap)
}

fn kept(formed: bool) -> control_plane::DeploymentRecord {
    control_plane::DeploymentRecord {
        cluster: "shop".to_owned(),
        deployment: Some(Uuid::from_u128(1)),
        lifecycle: Lifecycle::Active,
        image: Image { digest: "0a".repeat(32), name: "kaas-tenant 0.2.0".to_owned() },
        nodes: Vec::new(),
        formed,
        ca_fingerprint: formed.then(|| format!("sha256:{}", "0b".repeat(32)).parse().unwrap()),
        deployer_fingerprint: None,
        replacement: None,
        replaced_vms: Vec::new(),
        removes_disks: false,
        adopted_vms: Vec::new(),
        upgrade: None,
        retained_disks: Vec::new(),
        disks_to_delete: Vec::new(),
        requested_disk_deletions: Vec::new(),
        copies: Vec::new(),
        deleting_vms: Vec::new(),
        places: Default::default(),
    }
}

fn plan() -> Plan {
    serde_json::from_value(fixture::plan()).unwrap()
}

fn events() -> Vec<Event> {
    let step = Step::whole(Action::Verify);
    let done = Event::Done { step, note: "whole".to_owned(), vm: None, replaced: false, copies: Vec::new() };
    vec![
        Event::Begun { step, disk: None, vm: None, copy: None, datastore: None, settings: None },
        done,
        Event::Ended { outcome: Outcome::Upgraded },
    ]
}

async fn take<'s>(store: &'s ClusterStore<'_>) -> Lease<'s> {
    // After a lost answer, the lease with the next number is acquired.
    for _ in 0..2 {
        if let Ok(hold) = Lease::acquire(store, "a test", TakeOver::FromAnyone, &|_| {}).await {
            return hold;
        }
    }
    Lease::acquire(store, "a test", TakeOver::FromAnyone, &|_| {}).await.unwrap()
}

/// Repeats a call whose answer was lost.
macro_rules! until_done {
    ($act:expr) => {
        match $act {
            Ok(done) => done,
            Err(_) => $act.unwrap(),
        }
    };
}

/// The first lease creates a cluster and begins an upgrade. The second one ends it.
async fn story(api: &InMemory) {
    let store = store(api);
    let hold = take(&store).await;
    let mut records = until_done!(Records::begin(&hold, kept(false)).await);
    until_done!(records.save(kept(true)).await);
    let mut journal = until_done!(Journal::begin(&hold, plan()).await);
    let mut events = events();
    let last = events.pop().unwrap();
    for event in events {
        until_done!(journal.append(event.clone()).await);
    }
    hold.release().await;
    let next = take(&store).await;
    let mut journal = until_done!(Journal::continued(&next).await);
    until_done!(journal.append(last.clone()).await);
    next.release().await;
}

/// Checks what the next lease reads.
async fn is_whole(api: &InMemory, what: &str) {
    let store = store(api);
    let hold = take(&store).await;
    let journal = Journal::continued(&hold).await.unwrap();
    let read: Vec<Event> = journal.entries().iter().skip(1).map(|entry| entry.event.clone()).collect();
    assert_eq!((journal.plan(), read), (&plan(), events()), "{what}");
    let authority =
        control_plane::authority(&store, Uuid::from_u128(1)).await.unwrap().map(|authority| authority.to_string());
    assert_eq!(authority, Some(format!("sha256:{}", "0b".repeat(32))), "{what}");
    let status = &api.object("tenantclusters")["status"];
    assert_eq!((&status["later"], status["conditions"][0]["type"].as_str()), (&json!("kept"), Some("Ready")), "{what}");
}

#[tokio::test(start_paused = true)]
async fn the_next_lease_reads_records_despite_lost_answers() {
    let api = served();
    story(&api).await;
    let calls = api.calls();
    is_whole(&api, "nothing went wrong").await;
    assert!(calls > 60, "{calls}");
    for call in 0..calls {
        for fault in [Fault::NotDone, Fault::Done, Fault::Changed] {
            let api = served();
            api.fails_at(call, fault);
            story(&api).await;
            is_whole(&api, &format!("{fault:?} at call {call}")).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_superseded_lease_overwrites_nothing() {
    let api = served();
    let store = store(&api);
    let first = take(&store).await;
    let records = Records::begin(&first, kept(false)).await.unwrap();
    let mut journal = Journal::begin(&first, plan()).await.unwrap();
    let second = take(&store).await;
    assert!(journal.append(events()[0].clone()).await.unwrap_err().is::<Lost>());
    let mut next = Records::begin(&second, kept(true)).await.unwrap();
    let mut continued = Journal::continued(&second).await.unwrap();
    continued.append(events()[0].clone()).await.unwrap();
    // This holder slept, and does not check its lease.
    let entry = Entry { at: 1, lease: 1, event: events()[1].clone() };
    let late = [
        (File::DEPLOYMENT, serde_json::to_string(records.kept()).unwrap()),
        ("journal-000002.json", serde_json::to_string(&entry).unwrap() + "\n"),
        (File::UPGRADE, beginning(&(serde_json::to_string(&journal.entries()[0]).unwrap() + "\n")).unwrap()),
    ];
    let before = (api.object("tenantclusters"), api.object("operations"));
    for (file, text) in late {
        assert!(store.write(1, file, &text).await.is_err(), "{file}");
    }
    assert_eq!((api.object("tenantclusters"), api.object("operations")), before);
    next.save(kept(false)).await.unwrap();
    assert_eq!(store.read(1, File::DEPLOYMENT).await.unwrap(), None, "what he had is the next one's");
}

#[tokio::test(start_paused = true)]
async fn a_record_of_another_cluster_is_rejected() {
    let api = served();
    let store = store(&api);
    let hold = take(&store).await;
    Records::begin(&hold, kept(false)).await.unwrap();
    let text = store.read(1, File::DEPLOYMENT).await.unwrap().unwrap();
    let of_another = text.replace("\"shop\"", "\"bank\"");
    let words = "status.deployment of the TenantCluster shop is the record of the cluster bank";
    let is_named = |error: anyhow::Error| assert!(error.to_string().starts_with(words), "{error:#}");
    is_named(store.write(1, File::DEPLOYMENT, &of_another).await.unwrap_err());
    let mut cluster = api.object("tenantclusters");
    cluster["status"]["deployment"]["cluster"] = json!("bank");
    api.put_value(&Collection::of::<TenantCluster>(Some("team-blue")), cluster);
    is_named(store.read(1, File::DEPLOYMENT).await.unwrap_err());
}

/// A user who may edit the steps of an Operation could also write its metadata.
#[tokio::test(start_paused = true)]
async fn a_journal_belongs_to_its_spec_cluster() {
    let api = served();
    story(&api).await;
    let of = Collection::of::<Operation>(Some("team-blue"));
    let mut own = api.object("operations");
    let mut another = own.clone();
    (another["metadata"]["name"], another["metadata"]["uid"]) = (json!("z-bank-1"), Value::Null);
    another["spec"]["clusterRef"]["name"] = json!("bank");
    api.put_value(&of, another);
    is_whole(&api, "another one has the label, and is of the same hold").await;
    let name = own["metadata"]["name"].as_str().unwrap().to_owned();
    own = api.named("operations", &name).unwrap();
    own["metadata"]["labels"] = Value::Null;
    api.put_value(&of, own);
    is_whole(&api, "its own has lost the label").await;
}

#[tokio::test(start_paused = true)]
async fn leases_have_their_clusters_name_and_expire() {
    let api = served();
    let store = store(&api);
    for _ in 0..3 {
        take(&store).await.release().await;
    }
    let of_another = ClusterStore::new(&api, "team-blue", "shop-two", &Term::unlimited("controller-1"));
    take(&of_another).await.release().await;
    let of_another = ClusterStore::new(&api, "team-red", "shop", &Term::unlimited("controller-1"));
    take(&of_another).await.release().await;
    let mut numbers = store.numbers().await.unwrap();
    numbers.sort_unstable();
    assert_eq!((numbers, of_another.numbers().await.unwrap()), (vec![1, 2, 3], vec![1]));
    assert!(!store.make(3).await.unwrap(), "the lock");
    store.remove(1).await.unwrap();
    assert!(!store.exists(1).await.unwrap() && store.exists(2).await.unwrap());
    assert!(store.write(1, "seen", "1").await.is_err(), "one that was removed is not made again");
    let mut files = store.files(2).await.unwrap();
    files.sort();
    assert_eq!(files, ["alone", "holder.json", "released"]);
    assert!(store.write(3, "pool.jsonl", "").await.is_err(), "workers' journals are elsewhere");
    let holder = store.read(3, "holder.json").await.unwrap().unwrap();
    assert!(holder.starts_with(r#"{"who":"controller-1","what":"a test","process":"#), "{holder}");
}

#[tokio::test(start_paused = true)]
async fn other_controllers_leases_end_for_a_leader_only() {
    let clock = Clock::of_tests();
    let own = "controller b 2";
    for (first, is_elected, is_taken) in [
        ("controller a 1", true, true),
        ("controller a 1", false, false),
        // An operator's command, and a task of this process that works.
        ("ann@host", true, false),
        (own, true, false),
    ] {
        let api = served();
        let before = ClusterStore::new(&api, "team-blue", "shop", &Term::unlimited(first));
        let held = Lease::acquire(&before, "a test", TakeOver::FromTheDead, &|_| {}).await.unwrap();
        let term = Term::elected(own, clock.clone(), clock.now());
        let term = if is_elected { term } else { Term::unlimited(own) };
        let store = ClusterStore::new(&api, "team-blue", "shop", &term);
        let taken = Lease::acquire(&store, "a test", TakeOver::FromTheDead, &|_| {}).await;
        assert_eq!(taken.is_ok(), is_taken, "{first} {is_elected}");
        assert_eq!(held.confirm().await.is_err(), is_taken, "{first} {is_elected}");
    }
}

#[tokio::test(start_paused = true)]
async fn after_the_term_calls_and_leases_fail() {
    let (api, term) = (served(), Term::unlimited("controller b 2"));
    let fenced = Fenced::new(std::sync::Arc::new(api.clone()), term.clone());
    let store = ClusterStore::new(&fenced, "team-blue", "shop", &term);
    let hold = Lease::acquire(&store, "a test", TakeOver::FromTheDead, &|_| {}).await.unwrap();
    hold.confirm().await.unwrap();
    let (of, cluster) = (Collection::of::<TenantCluster>(Some("team-blue")), api.object("tenantclusters"));
    term.end();
    let calls = api.calls();
    assert!(hold.confirm().await.is_err());
    let ended = |failure: Failure| assert!(matches!(failure, Failure::Ended(_)), "{failure:?}");
    ended(fenced.list(&of, None).await.unwrap_err());
    ended(fenced.in_use(None).await.unwrap_err());
    ended(fenced.get(&of, "shop").await.unwrap_err());
    ended(fenced.create(&of, &cluster).await.unwrap_err());
    ended(fenced.replace(&of, &cluster).await.unwrap_err());
    ended(fenced.replace_status(&of, &cluster).await.unwrap_err());
    ended(fenced.patch(&of, "shop", &cluster).await.unwrap_err());
    ended(fenced.patch_status(&of, "shop", &cluster).await.unwrap_err());
    ended(fenced.delete(&of, "shop").await.unwrap_err());
    ended(fenced.delete_as_read(&of, &cluster).await.unwrap_err());
    assert_eq!(api.calls(), calls);
}

/// Two runs of a measurement get the same UIDs.
#[test]
fn a_repeatable_server_repeats_unique_uids() {
    let uids = || {
        let api = InMemory::repeatable();
        let class = |name| crate::objects::VMClass::new(name, crate::decisions::fixture::class());
        ["small", "large"].map(|name| api.put(&class(name))["metadata"]["uid"].as_str().unwrap().to_owned())
    };
    let [one, other] = uids();
    assert_eq!(uids(), [one.clone(), other.clone()]);
    assert!(one != other && one[..8] != other[..8], "{one} {other}");
    assert_eq!(one.parse::<Uuid>().unwrap().get_version_num(), 4);
}
