//! An API whose name of the cluster has changed: a kubeconfig that leads elsewhere, or a dishonest tenant. The
//! operator's word decides, for the stamp says whose the VMs are.

use uuid::Uuid;

use super::command::{begun, deployment, end, give};
use super::failing::before;
use super::fake::{Ill, World};
use crate::lease::TakeOver;
use crate::upgrade::{
    Action, Deployment, KubernetesOptions, Mode, OtherCluster, Outcome, Refusals, Request, RunOutcome, Step,
};

const OTHER: Uuid = Uuid::from_u128(0xbad);

fn told<'a>(world: &'a World) -> Deployment<'a> {
    Deployment { other_cluster: Some(OTHER), ..deployment(world, &|_| {}) }
}

#[tokio::test(start_paused = true)]
async fn operator_word_continues_an_open_upgrade() {
    for verb in [Request::Resume, Request::Rollback] {
        let world = before(3, Step::of(Action::Attach, 1)).await;
        world.lock().cluster = OTHER;
        world.fault(None);
        let refused = give_failed(&world, verb).await;
        let expected = OtherCluster { of: Uuid::from_u128(0xc0), here: OTHER };
        assert_eq!(refused.downcast_ref::<OtherCluster>(), Some(&expected), "{refused:#}");
        assert_eq!(world.called("attach") + world.called("power_on"), 0);
        // The word is for one cluster, not for any.
        world.lock().cluster = Uuid::from_u128(0xbad2);
        let gone = told(&world).go_on(verb, None, TakeOver::FromTheDead).await;
        assert!(gone.unwrap_err().is::<OtherCluster>());
        world.lock().cluster = OTHER;
        let (arrived, _) = told(&world).go_on(verb, None, TakeOver::FromTheDead).await.unwrap();
        let outcome = if verb == Request::Resume { Outcome::Upgraded } else { Outcome::RolledBack };
        assert_eq!(arrived, RunOutcome::Ended(outcome));
    }
}

async fn give_failed(world: &World, verb: Request) -> anyhow::Error {
    deployment(world, &|_| {}).go_on(verb, None, TakeOver::FromTheDead).await.unwrap_err()
}

#[tokio::test(start_paused = true)]
async fn abandoning_asks_no_node_of_another_cluster() {
    let world = before(3, Step::of(Action::Attach, 1)).await;
    let id = world_id(&world).await;
    world.lock().cluster = OTHER;
    assert!(deployment(&world, &|_| {}).abandon(id, TakeOver::FromTheDead).await.unwrap_err().is::<OtherCluster>());
    world.fault(None);
    let (arrived, status) = told(&world).abandon(id, TakeOver::FromTheDead).await.unwrap();
    assert_eq!(arrived, RunOutcome::Ended(Outcome::Abandoned));
    for name in ["cluster", "control_nodes", "facts", "commit", "cancel_swap", "cancel_evacuation"] {
        assert_eq!(world.called(name), 0, "{name}");
    }
    let notes = serde_json::to_string(&status.entries).unwrap();
    assert!(notes.contains("calls itself otherwise") && notes.contains("no VM holds its disk"), "{notes}");
}

async fn world_id(world: &World) -> Uuid {
    deployment(world, &|_| {}).status().await.unwrap().id
}

#[tokio::test(start_paused = true)]
async fn operator_word_permits_the_next_upgrade() {
    let world = begun(3, Mode::Rolling, Ill::Well).await;
    assert_eq!(give(&world, Request::Rollback).await.outcome(), Outcome::RolledBack);
    world.lock().cluster = OTHER;
    let ova = world.target.ova.clone();
    let refused = deployment(&world, &|_| {}).plan(&ova, &world.options).await.unwrap_err();
    let codes: Vec<&str> = refused.downcast_ref::<Refusals>().unwrap().0.iter().map(|one| one.code).collect();
    assert_eq!(codes, ["upgrade.other-cluster"]);
    let options =
        KubernetesOptions { to: Some("1.36".to_owned()), drain_seconds: 1, limit: std::time::Duration::from_secs(30) };
    assert!(deployment(&world, &|_| {}).plan_kubernetes(&options).await.is_err());
    told(&world).plan_kubernetes(&options).await.unwrap();
    let plan = told(&world).plan(&ova, &world.options).await.unwrap();
    assert!(plan.grounds.iter().any(|ground| ground.evidence.contains("the operator states")), "{:?}", plan.grounds);
    let (arrived, _) = told(&world).apply(&ova, &world.options, TakeOver::FromTheDead).await.unwrap();
    assert_eq!(arrived, RunOutcome::Ended(Outcome::Upgraded));
    // From now on it is the deployment's.
    assert_eq!(end(&world, Request::Commit).await, Outcome::Committed);
}

#[tokio::test(start_paused = true)]
async fn refused_plan_stops_no_running_command() {
    let world = begun(3, Mode::Rolling, Ill::Well).await;
    let alive = crate::lease::Lease::acquire(&world, "at work", TakeOver::FromTheDead, &|_| {}).await.unwrap();
    let ova = world.target.ova.clone();
    let options =
        KubernetesOptions { to: Some("1.36".to_owned()), drain_seconds: 1, limit: std::time::Duration::from_secs(30) };
    let applied = deployment(&world, &|_| {}).apply(&ova, &world.options, TakeOver::FromAnyone).await.unwrap_err();
    let kubernetes = deployment(&world, &|_| {}).upgrade_kubernetes(&options, TakeOver::FromAnyone).await.unwrap_err();
    for refused in [applied, kubernetes] {
        let codes: Vec<&str> = refused.downcast_ref::<Refusals>().unwrap().0.iter().map(|one| one.code).collect();
        assert_eq!(codes, ["upgrade.unfinished"]);
    }
    alive.confirm().await.unwrap();
}
