//! New VMs of another size, with another image and with the same.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::command::{Given, give, give_with};
use super::fake::fault::{At, Fault};
use super::fake::{Ill, NODES, SMALL, World, disk};
use super::stamp::refusals;
use crate::hypervisor::{PowerState, VmSize};
use crate::lease::{Lease, TakeOver};
use crate::upgrade::{Journal, LastUpgrade, Mode, Outcome, Progress, Request, RunOutcome, plan};

const LARGE: VmSize = VmSize { processors: 4, memory: 16384 };

/// Plans an upgrade with a new name, and is killed right after that.
async fn begin(world: &World) {
    let plan = plan(&world.inventory().await, &world.target, &world.options, Uuid::new_v4());
    let plan = plan.unwrap_or_else(|refusals| panic!("{refusals}"));
    let hold = Lease::acquire(world, "a test", TakeOver::FromTheDead, &|_| {}).await.unwrap();
    Journal::begin(&hold, plan).await.unwrap();
    hold.release().await;
}

/// A cluster whose last upgrade, to the new image, is committed.
async fn committed(nodes: usize) -> World {
    let world = World::of(nodes, Mode::Rolling, Ill::Well);
    begin(&world).await;
    assert_eq!(give(&world, Request::Resume).await.outcome(), Outcome::Upgraded);
    assert_eq!(give(&world, Request::Commit).await.outcome(), Outcome::Committed);
    world
}

/// Panics unless each node runs in a VM of this size, with its disk, and each has so many VMs.
fn run_in(world: &World, size: VmSize, each: usize, what: &str) {
    let state = world.lock();
    let own: Vec<_> = state.machines.iter().filter(|machine| machine.ours).collect();
    assert_eq!(own.len(), each * state.nodes.len(), "{what}: {own:#?}");
    for machine in own {
        let runs = machine.vm.power == PowerState::On;
        assert_eq!(runs, machine.vm.size == Some(size), "{what}");
        assert_eq!(machine.vm.data_disks().count(), usize::from(runs), "{what}");
    }
    assert!(NODES[..state.nodes.len()].iter().all(|node| state.is_served(node)), "{what}");
    assert!(state.nodes.len() == 1 || state.most_away <= 1, "{what}");
}

const ENDS: [(Request, Outcome, VmSize); 2] =
    [(Request::Commit, Outcome::Committed, LARGE), (Request::Rollback, Outcome::RolledBack, SMALL)];

/// Nodes get larger VMs, and the upgrade ends.
async fn grows(world: &mut World, (last, outcome, size): (Request, Outcome, VmSize)) {
    world.options.size = Some(LARGE);
    begin(world).await;
    assert_eq!(give(world, Request::Resume).await.outcome(), Outcome::Upgraded);
    run_in(world, LARGE, 2, "there");
    assert_eq!(give(world, last).await.outcome(), outcome);
    run_in(world, size, 1, "at its end");
}

#[tokio::test(start_paused = true)]
async fn rollback_restores_the_former_vm_size() {
    for end in ENDS {
        grows(&mut World::of(3, Mode::Rolling, Ill::Well), end).await;
    }
}

#[tokio::test(start_paused = true)]
async fn same_image_swap_to_other_size_rolls_back() {
    for end in ENDS {
        let mut world = committed(3).await;
        for same in [None, Some(SMALL)] {
            world.options.size = same;
            assert_eq!(refusals(&world).await, ["upgrade.nothing-to-do"], "{same:?}");
        }
        grows(&mut world, end).await;
        // And from there to the other one: no name blocks it.
        world.options.size = Some(if end.2 == LARGE { SMALL } else { LARGE });
        begin(&world).await;
        assert_eq!(give(&world, Request::Resume).await.outcome(), Outcome::Upgraded);
        assert_eq!(give(&world, Request::Commit).await.outcome(), Outcome::Committed);
        run_in(&world, world.options.size.unwrap(), 1, "at the next one's end");
    }
}

/// The image does not tell then which of its VMs a node runs in.
#[tokio::test(start_paused = true)]
async fn killed_resize_of_same_image_is_continued() {
    for verb in [Request::Resume, Request::Rollback] {
        for call in (1..).step_by(2) {
            let mut world = committed(1).await;
            world.options.size = Some(LARGE);
            begin(&world).await;
            let at = At { call, fault: Fault::CutAfter, lasting: false };
            if !matches!(give_with(&world, Request::Resume, None, Some(at)).await, Given::Killed) {
                assert!(call > 20, "{call} calls");
                break;
            }
            let outcome = give(&world, verb).await.outcome();
            let (expected, size, each) = match verb {
                Request::Rollback => (Outcome::RolledBack, SMALL, 1),
                _ => (Outcome::Upgraded, LARGE, 2),
            };
            assert_eq!(outcome, expected, "cut after call {call}");
            run_in(&world, size, each, &format!("cut after call {call}"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn node_in_former_vm_is_not_called_swapped() {
    let mut world = committed(3).await;
    world.options.size = Some(LARGE);
    begin(&world).await;
    let (_, status) = give(&world, Request::Abandon).await.arrived();
    let notes = format!("{:?}", status);
    assert!(notes.contains("stays as it is") && !notes.contains("its swap is final"), "{notes}");
    run_in(&world, SMALL, 1, "nothing has moved");
}

/// A deletion and a look at VMs that are off know VMs by the last upgrade alone, not by the one before it.
#[tokio::test(start_paused = true)]
async fn partial_resize_knows_vms_of_earlier_upgrades() {
    let mut world = committed(3).await;
    let alone = world.new_vm("cp2").uuid();
    world.change_vm(alone, |machine| machine.vm.size = Some(LARGE));
    world.options.size = Some(LARGE);
    begin(&world).await;
    let planned: BTreeSet<String> = world.plan_of_journal().await.nodes.into_iter().map(|node| node.name).collect();
    assert_eq!(planned, BTreeSet::from(["cp1", "cp3"].map(str::to_owned)));
    for (verb, outcome) in [(Request::Resume, Outcome::Upgraded), (Request::Commit, Outcome::Committed)] {
        assert_eq!(give(&world, verb).await.outcome(), outcome);
        let last = LastUpgrade::find(&world).await.unwrap();
        let noted = last.noted().unwrap();
        let own = world.lock().machines.iter().filter(|it| it.ours).map(|it| it.vm.uuid()).collect::<BTreeSet<_>>();
        assert!(own.contains(&alone) && own.is_subset(&noted.vms), "{outcome:?}: {own:?} {noted:?}");
        let disks: BTreeSet<Uuid> = noted.disks.iter().map(|disk| disk.uuid).collect();
        assert_eq!(disks, BTreeSet::from(NODES.map(|node| disk(node).uuid)), "{outcome:?}");
    }
}

/// A planner that plans again tells its own withdrawal from an operator's rollback.
#[tokio::test(start_paused = true)]
async fn only_a_plan_without_progress_is_withdrawn() {
    let mut world = committed(3).await;
    world.options.size = Some(LARGE);
    for (verb, code) in [(Request::Withdraw, "upgrade.withdrawn"), (Request::Rollback, "upgrade.asked")] {
        begin(&world).await;
        let (arrived, status) = give(&world, verb).await.arrived();
        assert_eq!(arrived, RunOutcome::Ended(Outcome::RolledBack), "{verb:?}");
        assert_eq!(status.reason.as_ref().unwrap().code, code);
        let progress = Progress::of(&status.plan, &status.entries);
        assert_eq!(progress.is_withdrawn(), verb == Request::Withdraw, "{verb:?}");
        run_in(&world, SMALL, 1, "nothing has moved");
    }
    begin(&world).await;
    assert_eq!(give(&world, Request::Resume).await.outcome(), Outcome::Upgraded);
    let refused = give(&world, Request::Withdraw).await;
    assert!(matches!(&refused, Given::Failed(error) if error.to_string().contains("it has begun")), "{refused:?}");
    run_in(&world, LARGE, 2, "it stays");
}
