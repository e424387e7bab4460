//! Dry runs of requests to an upgrade: they change nothing, and name the steps that the request then takes.

use uuid::Uuid;

use super::command::{deployment, end, entries, give};
use super::failing::{before, world};
use super::fake::fault::CallKind;
use super::fake::{Ill, World};
use super::lost::replaced;
use super::salvage::damage_plan;
use crate::lease::{Held, Lease, TakeOver};
use crate::upgrade::{
    Action, Event, Mode, NodeChange, Order, Outcome, Preview, Progress, Request, RunOutcome, Step, before_swap,
};

/// Three nodes on the new image, not committed.
async fn upgraded(mode: Mode) -> World {
    let world = world(3, mode, Ill::Well).await;
    assert_eq!(end(&world, Request::Resume).await, Outcome::Upgraded);
    world
}

/// Runs a dry run that changes nothing.
async fn looked<T>(world: &World, look: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let (store, published) = (world.store(), world.lock().published.clone());
    world.fault(None);
    let looked = look.await;
    let is_read = |kind| matches!(kind, CallKind::Look | CallKind::Ask | CallKind::Read);
    let changes: Vec<&str> = world.calls().iter().filter(|call| !is_read(call.kind)).map(|call| call.name).collect();
    assert_eq!(changes, [""; 0]);
    assert_eq!((world.store().holds, world.store().files), (store.holds, store.files));
    assert_eq!(world.lock().published, published);
    looked
}

async fn preview(world: &World, verb: Request) -> anyhow::Result<Preview> {
    looked(world, deployment(world, &|_| {}).preview(verb, TakeOver::FromTheDead)).await
}

/// The steps of a dry run.
fn steps(preview: &Preview) -> Vec<Step> {
    preview.steps.iter().map(|step| step.step).collect()
}

/// The steps that were done since the upgrade turned last.
async fn done_since_turn(world: &World) -> Vec<Step> {
    let mut done = Vec::new();
    for entry in entries(world).await {
        match entry.event {
            Event::DirectionChanged { .. } => done.clear(),
            Event::Done { step, .. } => done.push(step),
            _ => {}
        }
    }
    done
}

/// The changes of the nodes, with their names.
fn changes(preview: &Preview) -> Vec<(&str, NodeChange)> {
    preview.nodes.iter().map(|node| (&*node.name, node.change)).collect()
}

#[tokio::test(start_paused = true)]
async fn dry_run_names_the_steps_of_a_rollback() {
    for mode in [Mode::Rolling, Mode::AllAtOnce] {
        let world = upgraded(mode).await;
        let looked = preview(&world, Request::Rollback).await.unwrap();
        let nodes = ["cp1", "cp3", "cp2"].map(|name| (name, NodeChange::ReturnToOld));
        assert_eq!((looked.dry_run, looked.outcome, changes(&looked)), (true, None, nodes.to_vec()), "{mode:?}");
        assert_eq!(looked.takes_over_from, None);
        let first = &looked.nodes[0];
        assert_eq!((&*first.new_vm, &*first.old_vm, &first.note), ("cp1-bbbbbbb", "cp1", &None));
        assert_eq!(end(&world, Request::Rollback).await, Outcome::RolledBack);
        assert_eq!(steps(&looked), done_since_turn(&world).await, "{mode:?}");
        // It has ended: nothing is left.
        let again = preview(&world, Request::Rollback).await.unwrap();
        assert_eq!((again.outcome, again.steps.len(), again.nodes.len()), (Some(Outcome::RolledBack), 0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn dry_run_names_unhealthy_nodes_first() {
    let world = upgraded(Mode::Rolling).await;
    let plan = world.plan_of_journal().await;
    let name = ["cp1", "cp2", "cp3"].into_iter().find(|name| *name == plan.nodes[0].name).unwrap();
    world.lock().ill_nodes = Some([(name, Ill::NoEtcd)].into());
    let looked = preview(&world, Request::Rollback).await.unwrap();
    assert!(matches!(looked.order, Order::First(_)), "{:?}", looked.order);
    assert_eq!(looked.nodes[0].name, name);
    let at_once = preview(&world, Request::RollbackAtOnce).await.unwrap();
    assert_eq!(at_once.order, Order::AtOnce);
}

#[tokio::test(start_paused = true)]
async fn dry_run_of_a_rollback_counts_untouched_nodes() {
    // In the order of the plan, cp2 runs the new image, cp3 is next, and nothing was begun of cp1.
    let world = before(3, Step::of(Action::ShutDown, 1)).await;
    let looked = preview(&world, Request::Rollback).await.unwrap();
    assert_eq!(changes(&looked), [("cp3", NodeChange::ReturnToOld), ("cp2", NodeChange::ReturnToOld)]);
    let world = before(3, Step::of(Action::Prepare, 1)).await;
    let looked = preview(&world, Request::Rollback).await.unwrap();
    assert_eq!(changes(&looked), [("cp3", NodeChange::WithdrawSwap), ("cp2", NodeChange::ReturnToOld)]);
    let world = before(3, Step::of(Action::CloneVm, 1)).await;
    let looked = preview(&world, Request::Rollback).await.unwrap();
    assert_eq!(changes(&looked), [("cp3", NodeChange::RemoveNew), ("cp2", NodeChange::ReturnToOld)]);
}

#[tokio::test(start_paused = true)]
async fn dry_run_names_the_steps_of_a_commit() {
    let world = upgraded(Mode::Rolling).await;
    let looked = preview(&world, Request::Commit).await.unwrap();
    assert_eq!(changes(&looked), ["cp2", "cp3", "cp1"].map(|name| (name, NodeChange::Commit)));
    assert_eq!(looked.snapshot, Some(before_swap(looked.id)));
    assert_eq!(end(&world, Request::Commit).await, Outcome::Committed);
    assert_eq!(steps(&looked), done_since_turn(&world).await);
}

#[tokio::test(start_paused = true)]
async fn dry_run_of_a_commit_is_refused_alike() {
    let world = upgraded(Mode::Rolling).await;
    world.lock().members_shown = Some(2);
    let error = preview(&world, Request::Commit).await.unwrap_err().to_string();
    assert!(error.contains("etcd has 2 members") && error.contains("nothing was changed"), "{error}");
    let world = before(3, Step::of(Action::Attach, 1)).await;
    let error = preview(&world, Request::Commit).await.unwrap_err().to_string();
    assert!(error.contains("there is nothing to commit yet"), "{error}");
    // A kubeconfig that leads to another cluster.
    world.lock().cluster = Uuid::from_u128(0xbad);
    assert!(preview(&world, Request::Rollback).await.is_err());
}

/// Review of issue 43: it said that such a node stays in the VM that was made for its swap.
#[tokio::test(start_paused = true)]
async fn dry_run_names_replaced_nodes() {
    let mut seen = 0;
    for call in (10..220).step_by(7) {
        let Some(world) = replaced(call).await else { continue };
        if give(&world, Request::Resume).await.arrived().0 != RunOutcome::Ended(Outcome::Upgraded) {
            continue;
        }
        let plan = world.plan_of_journal().await;
        let index = plan.nodes.iter().position(|node| node.name == "cp3").unwrap();
        let is_replaced = Progress::of(&plan, &entries(&world).await).is_replaced(index);
        let expected = if is_replaced { NodeChange::Replaced } else { NodeChange::Commit };
        let looked = preview(&world, Request::Commit).await.unwrap();
        assert!(changes(&looked).contains(&("cp3", expected)), "{call}: {:?}", looked.nodes);
        seen += usize::from(is_replaced);
    }
    assert!(seen > 0);
}

#[tokio::test(start_paused = true)]
async fn dry_run_names_the_steps_of_a_resume() {
    let world = before(3, Step::of(Action::Attach, 1)).await;
    let looked = preview(&world, Request::Resume).await.unwrap();
    assert_eq!(changes(&looked), ["cp3", "cp1"].map(|name| (name, NodeChange::MoveToNew)));
    let before = done_since_turn(&world).await;
    assert_eq!(end(&world, Request::Resume).await, Outcome::Upgraded);
    assert_eq!([before, steps(&looked)].concat(), done_since_turn(&world).await);
}

#[tokio::test(start_paused = true)]
async fn dry_run_of_an_end_names_leftovers() {
    let over = TakeOver::FromTheDead;
    for is_damaged in [false, true] {
        let world = before(3, Step::of(Action::ShutDown, 1)).await;
        let plan = world.plan_of_journal().await;
        let id = plan.id;
        if is_damaged {
            damage_plan(&world);
        }
        let ended = deployment(&world, &|_| {});
        let looked = looked(&world, ended.preview_abandon(id, over)).await.unwrap();
        assert_eq!(changes(&looked), ["cp2", "cp3", "cp1"].map(|name| (name, NodeChange::Keep)));
        let notes: Vec<&str> = looked.nodes.iter().filter_map(|node| node.note.as_deref()).collect();
        assert!(notes[0].contains("its swap would be made final"), "{notes:?}");
        assert!(notes[0].contains(&world.old_vm("cp2").to_string()), "{notes:?}");
        assert!(notes[1].contains("its swap would be withdrawn"), "{notes:?}");
        let other = ended.preview_abandon(Uuid::from_u128(1), over).await.unwrap_err().to_string();
        assert!(other.contains(&format!("the upgrade is {id}")), "{other}");
        let (arrived, _) = ended.abandon(id, over).await.unwrap();
        assert_eq!(arrived, RunOutcome::Ended(Outcome::Abandoned));
    }
}

#[tokio::test(start_paused = true)]
async fn dry_run_respects_another_commands_lease() {
    let world = upgraded(Mode::Rolling).await;
    let hold = Lease::acquire(&world, "a test", TakeOver::FromTheDead, &|_| {}).await.unwrap();
    for verb in [Request::Rollback, Request::Commit, Request::Resume] {
        assert!(preview(&world, verb).await.unwrap_err().is::<Held>(), "{verb:?}");
        let over = deployment(&world, &|_| {}).preview(verb, TakeOver::FromAnyone).await;
        let over = over.unwrap();
        assert_eq!(over.id, world.plan_of_journal().await.id, "{verb:?}");
        // Review of issue 43: nothing said that another command would be stopped.
        assert!(over.takes_over_from.is_some_and(|holder| holder.contains("a test")), "{verb:?}");
    }
    hold.release().await;
    give(&world, Request::Commit).await.arrived();
}
