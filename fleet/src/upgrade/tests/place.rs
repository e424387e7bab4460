//! Journals that forbid an upgrade: another deployment's, or that its cluster is being destroyed.

use std::time::Duration;

use uuid::Uuid;

use super::command::{begun, deployment, end, give};
use super::failing::before;
use super::fake::{DEPLOYMENT, Ill, World, old_vm};
use crate::control_plane::OtherDeployment;
use crate::lease::TakeOver;
use crate::upgrade::{Action, ClusterSeen, KubernetesOptions, LastUpgrade, Mode, Outcome, Request, RunOutcome, Step};

const OTHER: Uuid = Uuid::from_u128(0xbad);

/// The note of `kaas control create` and `kaas control delete`, in the last lease.
fn note(world: &World, deployment: Uuid, goal: &str) {
    note_with(world, deployment, goal, None);
}

/// The same with the upgrade that was the last one of a cluster which is gone.
fn note_with(world: &World, deployment: Uuid, goal: &str, upgrade: Option<Uuid>) {
    let noted = serde_json::json!({
        "cluster": "control", "id": deployment, "lifecycle": goal, "image": {"name": "kaas"}, "nodes": [],
        "upgrade": upgrade,
    });
    put(world, &noted);
}

fn put(world: &World, noted: &serde_json::Value) {
    let mut state = world.lock();
    let released = || [("released".to_owned(), String::new())].into();
    let last = state.store.holds.keys().next_back().copied().unwrap_or(1);
    let files = state.store.holds.entry(last).or_insert_with(released);
    files.insert("deploy-000001.json".to_owned(), crate::journals::record_text(noted).unwrap());
}

/// The note of `kaas control create` once it has created a node's VM, in the last lease.
fn note_begun(world: &World, formed: bool) {
    let node = serde_json::json!({"name": "cp1", "address": "10.0.0.11", "settingsHash": "", "biosUUID": old_vm("cp1"), "everPoweredOn": true});
    let noted = serde_json::json!({
        "cluster": "control", "id": DEPLOYMENT, "lifecycle": "Active", "image": {"name": "kaas"}, "nodes": [node],
        "formed": formed,
    });
    put(world, &noted);
}

fn kubernetes() -> KubernetesOptions {
    KubernetesOptions { to: None, drain_seconds: 1, limit: Duration::from_secs(30) }
}

/// Its `kaas control create` was killed when all nodes were Ready, and before that was noted.
#[tokio::test(start_paused = true)]
async fn unformed_cluster_only_continues_a_begun_upgrade() {
    let world = World::of(1, Mode::Rolling, Ill::Well);
    note_begun(&world, false);
    let apply =
        async || deployment(&world, &|_| {}).apply(&world.target.ova, &world.options, TakeOver::FromTheDead).await;
    let plan = async || deployment(&world, &|_| {}).plan(&world.target.ova, &world.options).await;
    for refused in [plan().await.map(drop).unwrap_err(), apply().await.map(drop).unwrap_err()] {
        let words = refused.to_string();
        assert!(words.contains("no record shows that the cluster control has formed"), "{words}");
    }
    assert_eq!(world.store().holds.len(), 1, "nobody was stopped for it");
    note_begun(&world, true);
    plan().await.unwrap();
    // An upgrade that has begun can go on and be rolled back.
    let world = before(1, Step::of(Action::Attach, 0)).await;
    note_begun(&world, false);
    assert_eq!(end(&world, Request::Resume).await, Outcome::Upgraded);
    assert_eq!(end(&world, Request::Rollback).await, Outcome::RolledBack);
    // Once it is committed, `kaas control create` cannot continue, and the next upgrade does not make that worse.
    let world = before(1, Step::of(Action::Attach, 0)).await;
    note_begun(&world, false);
    assert_eq!(end(&world, Request::Resume).await, Outcome::Upgraded);
    assert_eq!(end(&world, Request::Commit).await, Outcome::Committed);
    if let Err(error) = deployment(&world, &|_| {}).plan(&world.target.ova, &world.options).await {
        assert!(!error.to_string().contains("no record shows"), "{error:#}");
    }
}

/// The error of each command, of which none begins anything here.
async fn begins_nothing(world: &World) -> Vec<anyhow::Error> {
    let deployment = deployment(world, &|_| {});
    let (ova, options, over) = (&world.target.ova, &world.options, TakeOver::FromTheDead);
    vec![
        deployment.plan(ova, options).await.unwrap_err(),
        deployment.apply(ova, options, over).await.unwrap_err(),
        deployment.plan_kubernetes(&kubernetes()).await.unwrap_err(),
        deployment.upgrade_kubernetes(&kubernetes(), over).await.unwrap_err(),
    ]
}

#[tokio::test(start_paused = true)]
async fn upgrade_of_a_deleted_cluster_can_only_end() {
    let world = before(3, Step::of(Action::Attach, 1)).await;
    note(&world, DEPLOYMENT, "Deleting");
    let seen = world.lock().machines.clone();
    for verb in [Request::Resume, Request::Rollback, Request::RollbackAtOnce, Request::Commit] {
        give(&world, verb).await.fails("the cluster control is being deleted");
    }
    let adopts = deployment(&world, &|_| {}).adoptable().await.unwrap_err();
    for refused in begins_nothing(&world).await.into_iter().chain([adopts]) {
        assert!(refused.to_string().contains("the cluster control is being deleted"), "{refused:#}");
    }
    assert_eq!(world.lock().machines, seen);
    let status = deployment(&world, &|_| {}).status().await.unwrap();
    let abandoned = deployment(&world, &|_| {}).abandon(status.id, TakeOver::FromTheDead).await.unwrap();
    assert_eq!(abandoned.0, RunOutcome::Ended(Outcome::Abandoned));
    // One that is gone blocks nothing.
    let world = before(3, Step::of(Action::Attach, 1)).await;
    note(&world, DEPLOYMENT, "Deleted");
    assert_eq!(end(&world, Request::Resume).await, Outcome::Upgraded);
}

#[tokio::test(start_paused = true)]
async fn upgrade_ended_with_its_cluster_blocks_no_other() {
    let world = before(3, Step::of(Action::Attach, 1)).await;
    let id = deployment(&world, &|_| {}).status().await.unwrap().id;
    let earlier = async || ClusterSeen::take(&world, &world, None).await.unwrap().earlier.map(|earlier| earlier.id);
    assert_eq!(earlier().await, Some(id));
    for goal in ["Deleted", "Active"] {
        note_with(&world, DEPLOYMENT, goal, Some(id));
        assert_eq!(earlier().await, None, "{goal}");
        let seen = world.lock().machines.clone();
        for verb in [Request::Resume, Request::Rollback, Request::RollbackAtOnce, Request::Commit] {
            give(&world, verb).await.fails("has ended with its cluster");
        }
        assert_eq!(world.lock().machines, seen);
    }
    // Another one's note says nothing of it.
    note_with(&world, DEPLOYMENT, "Active", Some(OTHER));
    assert_eq!(earlier().await, Some(id));
    note_with(&world, DEPLOYMENT, "Active", Some(id));
    let abandoned = deployment(&world, &|_| {}).abandon(id, TakeOver::FromTheDead).await.unwrap();
    assert_eq!(abandoned.0, RunOutcome::Ended(Outcome::Abandoned));
}

#[tokio::test(start_paused = true)]
async fn foreign_journal_is_refused_by_each_command() {
    let is_named = |refused: &anyhow::Error, whose: &str| {
        let other: &OtherDeployment = refused.downcast_ref().unwrap_or_else(|| panic!("{refused:#}"));
        assert_eq!((other.noted, other.here, other.whose.as_str()), (OTHER, DEPLOYMENT, whose));
    };
    // Begun by that deployment.
    let world = World::of(3, Mode::Rolling, Ill::Well);
    note(&world, OTHER, "Active");
    for refused in begins_nothing(&world).await {
        is_named(&refused, "that of the cluster control");
    }
    let refused = deployment(&world, &|_| {}).adoptable().await.unwrap_err();
    is_named(&refused, "that of the cluster control");
    // An upgrade alone.
    let world = begun(3, Mode::Rolling, Ill::Well).await;
    for text in world.lock().store.holds.values_mut().flat_map(|files| files.values_mut()) {
        *text = text.replace(&DEPLOYMENT.to_string(), &OTHER.to_string());
    }
    assert_eq!(LastUpgrade::find(&world).await.unwrap().noted().unwrap().deployment, OTHER);
    for refused in begins_nothing(&world).await {
        is_named(&refused, "that of an upgrade");
    }
    let deployment = deployment(&world, &|_| {});
    is_named(&deployment.adoptable().await.unwrap_err(), "that of an upgrade");
    is_named(&deployment.go_on(Request::Resume, None, TakeOver::FromTheDead).await.unwrap_err(), "that of an upgrade");
}
