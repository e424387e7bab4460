//! Obstacles while some nodes are off already. Also: untouched guests, which stay on.

use super::command::{end, give};
use super::failing::{before, stop_before, turns, world};
use super::fake::{Ill, NODES, World, address, old, old_vm};
use crate::upgrade::{Action, Mode, Nodes as _, Outcome, Request, RunOutcome, Step};

#[tokio::test(start_paused = true)]
async fn at_once_obstacle_at_later_shutdown_restores_all() {
    for node in [1, 2] {
        let world = world(3, Mode::AllAtOnce, Ill::Well).await;
        stop_before(&world, Request::Resume, Step::of(Action::ShutDown, node)).await;
        world.lock().unaskable = Some(old());
        assert_eq!(end_back(&world).await, Outcome::RolledBack, "{node}");
        assert_eq!(world.called("shut_down") + world.called("cut_power"), 0, "those that are on stay on");
    }
}

#[tokio::test(start_paused = true)]
async fn at_once_later_backup_blocks_the_first_shutdown() {
    let world = world(3, Mode::AllAtOnce, Ill::Well).await;
    stop_before(&world, Request::Resume, Step::of(Action::ShutDown, 0)).await;
    for node in ["cp1", "cp2", "cp3"] {
        world.change_vm(old_vm(node), |machine| machine.vm.snapshots.push("backup".to_owned()));
        let reason = give(&world, Request::Resume).await.paused();
        assert!(reason.contains(&format!("{node} (")) && reason.ends_with("[upgrade.vm-snapshot]"), "{reason}");
        assert_eq!(world.most_away(), 0);
        world.change_vm(old_vm(node), |machine| machine.vm.snapshots.clear());
    }
    assert_eq!(end(&world, Request::Resume).await, Outcome::Upgraded);
}

#[tokio::test(start_paused = true)]
async fn at_once_lasting_backup_rolls_all_back() {
    let world = world(3, Mode::AllAtOnce, Ill::Well).await;
    stop_before(&world, Request::Resume, Step::of(Action::ShutDown, 1)).await;
    let plan = world.plan_of_journal().await;
    world.change_vm(plan.nodes[1].old, |machine| machine.vm.snapshots.push("backup".to_owned()));
    assert_eq!(end(&world, Request::Resume).await, Outcome::RolledBack);
}

/// All nodes but this one run what they ran before.
async fn all_but(world: &World, gone: &str) {
    for node in NODES.into_iter().filter(|node| *node != gone) {
        let facts = world.facts(address(node)).await.unwrap_or_else(|error| panic!("{node}: {error:#}"));
        assert_eq!(facts.image.build, old().build, "{node}");
        assert!(facts.ready && facts.healthy.is_some(), "{node}");
    }
}

#[tokio::test(start_paused = true)]
async fn at_once_deleted_vm_leaves_no_others_off() {
    for action in [Action::ShutDown, Action::Fence, Action::Detach] {
        for verb in [Request::Resume, Request::Rollback] {
            let world = world(3, Mode::AllAtOnce, Ill::Well).await;
            stop_before(&world, Request::Resume, Step::of(action, 2)).await;
            gone_and_left_out(&world, verb).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn at_once_rollback_survives_a_deleted_vm() {
    for action in [Action::FenceNew, Action::AttachOld, Action::ReconnectOld, Action::PowerOnOld] {
        let world = world(3, Mode::AllAtOnce, Ill::Well).await;
        assert_eq!(end(&world, Request::Resume).await, Outcome::Upgraded);
        stop_before(&world, Request::Rollback, Step::of(action, 2)).await;
        gone_and_left_out(&world, Request::Resume).await;
    }
}

#[tokio::test(start_paused = true)]
async fn at_once_rollback_leaves_a_gone_node_out() {
    let world = world(3, Mode::Rolling, Ill::Well).await;
    assert_eq!(end(&world, Request::Resume).await, Outcome::Upgraded);
    world.lock().ill = Ill::NoEtcd;
    stop_before(&world, Request::RollbackAtOnce, Step::of(Action::AttachOld, 2)).await;
    gone_and_left_out(&world, Request::Resume).await;
}

#[tokio::test(start_paused = true)]
async fn at_once_backup_keeps_all_on_before_rollback() {
    for (mode, verb) in [(Mode::AllAtOnce, Request::Rollback), (Mode::Rolling, Request::RollbackAtOnce)] {
        let world = world(3, mode, Ill::Well).await;
        assert_eq!(end(&world, Request::Resume).await, Outcome::Upgraded);
        for node in NODES {
            let new = world.new_vm(node).uuid();
            world.change_vm(new, |machine| machine.vm.tasks.push("backup".to_owned()));
            let reason = give(&world, verb).await.paused();
            assert!(reason.ends_with("[upgrade.vm-task]"), "{reason}");
            assert!(NODES.iter().all(|node| world.lock().is_served(node)), "{node}");
            world.change_vm(new, |machine| machine.vm.tasks.clear());
        }
        // Nothing was stopped yet: without that request, nodes that were swapped one by one go back one by one.
        assert_eq!(end(&world, Request::Rollback).await, Outcome::RolledBack);
        assert_eq!(world.most_away(), if mode == Mode::Rolling { 1 } else { 3 });
    }
}

/// The last node's old VM is deleted: the others run again, and that one is named.
async fn gone_and_left_out(world: &World, verb: Request) {
    let plan = world.plan_of_journal().await;
    let gone = &plan.nodes[2];
    world.delete_vm(gone.old);
    let (arrived, status) = give(world, verb).await.arrived();
    assert_eq!(arrived, RunOutcome::Ended(Outcome::RolledBack), "{verb:?}");
    assert_eq!(status.left_out, [&*gone.name]);
    let reason = status.reason.expect("a reason").words;
    let words = format!("{} is left out, for its VM {} ({}) is gone", gone.name, gone.old_name, gone.old);
    assert!(reason.contains(&words), "{verb:?}: {reason}");
    all_but(world, &gone.name).await;
}

/// It goes back by itself, and is as it was.
async fn end_back(world: &World) -> Outcome {
    let given = give(world, Request::Resume).await;
    assert!(turns(world).await[0].2.contains("cannot be asked to shut down"));
    let asked = world.calls().iter().filter(|call| call.name == "power_on").count();
    assert!(asked > 0, "what is off is powered on");
    let outcome = given.outcome();
    world.all_run(&old(), false).await;
    outcome
}

#[tokio::test(start_paused = true)]
async fn guest_that_could_not_be_asked_stays_on() {
    let world = world(3, Mode::Rolling, Ill::Well).await;
    world.lock().unaskable = Some(old());
    give(&world, Request::Resume).await.paused();
    assert_eq!(end(&world, Request::Rollback).await, Outcome::RolledBack);
}

#[tokio::test(start_paused = true)]
async fn vm_with_snapshot_or_task_stays_on() {
    for (snapshot, code) in [(true, "[upgrade.vm-snapshot]"), (false, "[upgrade.vm-task]")] {
        let burden = move |machine: &mut super::fake::Machine, is_there: bool| {
            let list = if snapshot { &mut machine.vm.snapshots } else { &mut machine.vm.tasks };
            list.clear();
            list.extend(is_there.then(|| "backup".to_owned()));
        };
        let world = before(3, Step::of(Action::ShutDown, 0)).await;
        for (verb, outcome) in [(Request::Resume, Outcome::Upgraded), (Request::Rollback, Outcome::RolledBack)] {
            let vm = if verb == Request::Resume { old_vm("cp2") } else { world.new_vm("cp2").uuid() };
            world.change_vm(vm, |machine| burden(machine, true));
            let reason = give(&world, verb).await.paused();
            assert!(reason.ends_with(code), "{reason}");
            assert!(world.lock().is_served("cp2"), "{verb:?}");
            world.change_vm(vm, |machine| burden(machine, false));
            assert_eq!(end(&world, verb).await, outcome);
        }
    }
}
