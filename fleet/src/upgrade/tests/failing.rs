//! Images that are unhealthy, and clusters that are not as they were when the plan was made.

use std::sync::Mutex;

use super::command::{Given, begin, begun, deployment, end, entries, give, give_with};
use super::fake::fault::{At, Fault};
use super::fake::{Ill, World, new, old, old_vm};
use crate::hypervisor::{ErrorKind, PowerState, Vm};
use crate::lease::TakeOver;
use crate::upgrade::entry::{Direction, Event};
use crate::upgrade::{Action, Mode, Notice, OnFailure, Outcome, Request, RunOutcome, Step};

pub async fn world(nodes: usize, mode: Mode, ill: Ill) -> World {
    begun(nodes, mode, ill).await
}

/// A world that a command has brought up to right before this step.
pub async fn before(nodes: usize, step: Step) -> World {
    let world = world(nodes, Mode::Rolling, Ill::Well).await;
    stop_before(&world, Request::Resume, step).await;
    world
}

/// Gives a command, and kills it when it has noted that it begins a step.
pub async fn stop_before(world: &World, verb: Request, step: Step) {
    let entry = serde_json::to_string(&Event::Begun {
        step,
        disk: None,
        vm: None,
        copy: None,
        datastore: None,
        settings: None,
    })
    .unwrap();
    // Some entries also name the disk that they take away, or the VM that they make.
    world.lock().faults.kill_after_entry = Some(entry.trim_matches(['{', '}']).to_owned());
    assert!(matches!(give(world, verb).await, Given::Killed), "{step:?} is never begun");
}

pub async fn turns(world: &World) -> Vec<(Direction, Option<usize>, String)> {
    let turn = |event| match event {
        Event::DirectionChanged { direction, only, reason, .. } => Some((direction, only, reason.to_string())),
        _ => None,
    };
    entries(world).await.into_iter().filter_map(|entry| turn(entry.event)).collect()
}

#[tokio::test(start_paused = true)]
async fn unhealthy_image_rolls_all_back_with_a_reason() {
    for mode in [Mode::Rolling, Mode::AllAtOnce] {
        for (ill, why) in [
            (Ill::NeverGood, "it is not healthy yet"),
            (Ill::Silent, "no answer"),
            (Ill::NoEtcd, "its etcd does not answer"),
            (Ill::NoStart, "the firmware finds nothing to start"),
            (Ill::Hangs, "it is not healthy yet"),
            (Ill::OtherMember, "it is etcd's member ff"),
        ] {
            let world = world(3, mode, ill).await;
            assert_eq!(end(&world, Request::Resume).await, Outcome::RolledBack, "{ill:?}");
            let turned = turns(&world).await;
            let [(Direction::Back, None, reason)] = turned.as_slice() else { panic!("{turned:?}") };
            assert!(reason.contains(why), "{mode:?} {ill:?}: {reason}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn rolling_takes_one_away_at_once_takes_all() {
    for (mode, away) in [(Mode::Rolling, 1), (Mode::AllAtOnce, 3)] {
        let world = world(3, mode, Ill::Well).await;
        for (verb, outcome) in [(Request::Resume, Outcome::Upgraded), (Request::Rollback, Outcome::RolledBack)] {
            assert_eq!(end(&world, verb).await, outcome);
            assert_eq!(world.most_away(), away);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn snapshot_is_kept_and_commit_removes_old_vms() {
    let world = world(3, Mode::Rolling, Ill::Well).await;
    end(&world, Request::Resume).await;
    let snapshot = format!("before-{}.db", uuid::Uuid::from_u128(0x1d));
    assert_eq!(world.store().files[&snapshot], b"a store");
    assert_eq!(end(&world, Request::Commit).await, Outcome::Committed);
}

/// Upgrades the first node of three, and makes the image unhealthy for the next one.
async fn second_is_ill(on_failure: OnFailure) -> World {
    let mut world = World::of(3, Mode::Rolling, Ill::Well);
    world.options.on_failure = on_failure;
    begin(&world).await;
    stop_before(&world, Request::Resume, Step::of(Action::CloneVm, 1)).await;
    world.lock().ill = Ill::NoStart;
    world
}

#[tokio::test(start_paused = true)]
async fn only_the_failing_node_goes_back() {
    let world = second_is_ill(OnFailure::Node).await;
    let (arrived, status) = give(&world, Request::Resume).await.arrived();
    assert_eq!(arrived, RunOutcome::NodeIsBack(1));
    assert!(status.waits_for_a_person && status.reason.unwrap().words.contains("cp3: "));
    let images: Vec<String> = world.images().into_iter().map(|(_, version)| version).collect();
    assert_eq!(images, [old().version, new().version, old().version], "cp2 stays where it is");
    // It is tried again, and fails again.
    assert_eq!(give(&world, Request::Resume).await.arrived().0, RunOutcome::NodeIsBack(1));
    world.lock().ill = Ill::Well;
    assert_eq!(end(&world, Request::Resume).await, Outcome::Upgraded);
    assert_eq!(end(&world, Request::Rollback).await, Outcome::RolledBack);
}

#[tokio::test(start_paused = true)]
async fn rollback_after_one_node_takes_all_back() {
    let world = second_is_ill(OnFailure::Node).await;
    assert_eq!(give(&world, Request::Resume).await.arrived().0, RunOutcome::NodeIsBack(1));
    assert_eq!(end(&world, Request::Rollback).await, Outcome::RolledBack);
}

#[tokio::test(start_paused = true)]
async fn on_failure_all_takes_all_nodes_back() {
    let world = second_is_ill(OnFailure::All).await;
    assert_eq!(end(&world, Request::Resume).await, Outcome::RolledBack);
}

#[tokio::test(start_paused = true)]
async fn blocked_drain_pauses_and_keeps_upgraded_nodes() {
    let world = before(3, Step::of(Action::CloneVm, 1)).await;
    world.lock().stuck = Some("cp3");
    give(&world, Request::Resume).await.pauses(&["cp3 gave up: a PodDisruptionBudget keeps web/a [drain.blocked]"]);
    assert!(turns(&world).await.is_empty());
    assert_eq!(world.images()[1], ("cp2", new().version));
    assert_eq!(world.called("shut_down"), 0);
    world.lock().stuck = None;
    assert_eq!(end(&world, Request::Resume).await, Outcome::Upgraded);
}

#[tokio::test(start_paused = true)]
async fn node_unhealthy_before_shutdown_blocks_it() {
    for verb in [Request::Resume, Request::Rollback] {
        let world = before(3, Step::of(Action::ShutDown, 0)).await;
        world.lock().sick.insert("cp1");
        give(&world, Request::Resume).await.pauses(&["cp1"]);
        assert_eq!((world.called("shut_down"), world.called("cut_power")), (0, 0));
        assert!(turns(&world).await.is_empty(), "a node that was not stopped needs no way back");
        // The rollback does not stop it either while another one is unhealthy.
        if verb == Request::Rollback {
            let given = give(&world, Request::Rollback).await;
            assert_eq!((world.called("shut_down"), world.called("cut_power")), (0, 0), "{given:?}");
        }
        world.lock().sick.clear();
        let outcome = if verb == Request::Resume { Outcome::Upgraded } else { Outcome::RolledBack };
        assert_eq!(end(&world, verb).await, outcome);
    }
}

#[tokio::test(start_paused = true)]
async fn short_or_empty_member_list_is_not_healthy() {
    for shown in [2, 0] {
        let world = before(3, Step::of(Action::ShutDown, 0)).await;
        world.lock().members_shown = Some(shown);
        let reason = give(&world, Request::Resume).await.paused();
        assert!(reason.contains(&format!("etcd has {shown} members")), "{reason}");
        assert_eq!(world.called("shut_down"), 0);
        world.lock().members_shown = None;
        assert_eq!(end(&world, Request::Resume).await, Outcome::Upgraded);
    }
}

#[tokio::test(start_paused = true)]
async fn node_recovering_within_the_pause_continues() {
    let world = before(3, Step::of(Action::ShutDown, 0)).await;
    world.lock().sick.insert("cp1");
    let mended = async {
        tokio::time::sleep(std::time::Duration::from_secs(200)).await;
        world.lock().sick.clear();
    };
    let (given, ()) = tokio::join!(give(&world, Request::Resume), mended);
    assert_eq!(given.outcome(), Outcome::Upgraded);
}

/// The number of the first call of this name.
pub async fn call_of(name: &str, verb: Request, ill: Ill) -> usize {
    let world = world(1, Mode::Rolling, ill).await;
    give(&world, verb).await.arrived();
    world.calls().iter().position(|call| call.name == name).expect("a call") + 1
}

#[tokio::test(start_paused = true)]
async fn power_is_cut_only_at_the_limit() {
    let call = call_of("shut_down", Request::Resume, Ill::Well).await;
    for kind in [
        ErrorKind::InDoubt,
        ErrorKind::Transient,
        ErrorKind::Changed,
        ErrorKind::Refused,
        ErrorKind::Denied,
        ErrorKind::NotFound,
    ] {
        let world = world(1, Mode::Rolling, Ill::Well).await;
        let at = At { call, fault: Fault::Error(kind), lasting: true };
        give_with(&world, Request::Resume, None, Some(at)).await.paused();
        assert!(world.called("shut_down") > 1 && world.called("cut_power") == 0, "{kind:?}");
        assert_eq!(world.old_vm("cp1").power, PowerState::On);
        assert_eq!(end(&world, Request::Resume).await, Outcome::Upgraded);
    }
    let hangs = world(1, Mode::Rolling, Ill::Hangs).await;
    give(&hangs, Request::Resume).await.arrived();
    assert_eq!(hangs.called("cut_power"), 1);
}

#[tokio::test(start_paused = true)]
async fn lasting_error_rolls_an_away_node_back() {
    // A full datastore, or a final error: no node is away yet.
    let import = call_of("import", Request::Resume, Ill::Well).await;
    for kind in [ErrorKind::Transient, ErrorKind::Refused] {
        let at = At { call: import, fault: Fault::Error(kind), lasting: true };
        let paused = world(1, Mode::Rolling, Ill::Well).await;
        give_with(&paused, Request::Resume, None, Some(at)).await.paused();
        assert!(turns(&paused).await.is_empty());
        assert_eq!(end(&paused, Request::Resume).await, Outcome::Upgraded);
    }
    // A vCenter that is restarted is no reason to go back.
    let attach = call_of("attach", Request::Resume, Ill::Well).await;
    for (fault, lasting, outcome) in [
        (ErrorKind::Transient, false, Outcome::Upgraded),
        (ErrorKind::InDoubt, false, Outcome::Upgraded),
        (ErrorKind::Denied, false, Outcome::Upgraded),
        (ErrorKind::Refused, false, Outcome::RolledBack),
        (ErrorKind::NotFound, false, Outcome::RolledBack),
    ] {
        let world = world(1, Mode::Rolling, Ill::Well).await;
        let at = At { call: attach, fault: Fault::Error(fault), lasting };
        let given = give_with(&world, Request::Resume, None, Some(at)).await;
        assert_eq!(given.outcome(), outcome, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn vm_suspended_or_in_unknown_state_is_left() {
    for power in [PowerState::Suspended, PowerState::Unknown] {
        let world = before(3, Step::of(Action::ShutDown, 0)).await;
        world.change_vm(old_vm("cp2"), |machine| machine.vm.power = power);
        let reason = give(&world, Request::Resume).await.paused();
        assert!(reason.contains(&power.to_string()), "{reason}");
        assert_eq!(world.called("shut_down") + world.called("cut_power"), 0);
        world.change_vm(old_vm("cp2"), |machine| machine.vm.power = PowerState::On);
        assert_eq!(end(&world, Request::Resume).await, Outcome::Upgraded);
    }
}

#[tokio::test(start_paused = true)]
async fn rollback_evacuates_a_healthy_new_vm() {
    let world = world(3, Mode::Rolling, Ill::Well).await;
    end(&world, Request::Resume).await;
    assert_eq!(give(&world, Request::Rollback).await.outcome(), Outcome::RolledBack);
    let names: Vec<&str> = world.calls().iter().map(|call| call.name).collect();
    let places = |name| (0..names.len()).filter(|place| names[*place] == name).collect::<Vec<_>>();
    let (evacuated, stopped) = (places("evacuate"), places("shut_down"));
    assert_eq!((evacuated.len(), stopped.len()), (6, 3), "begun and done, for each node");
    assert!(evacuated.chunks(2).zip(&stopped).all(|(pair, stopped)| pair[1] < *stopped));
}

#[tokio::test(start_paused = true)]
async fn drain_losses_are_named_in_both_directions() {
    let world = world(3, Mode::Rolling, Ill::Well).await;
    let said = Mutex::new(Vec::new());
    let watch = |notice: &Notice<'_>| {
        if let Notice::Losses { node, words } = notice {
            let asked = ["begin_swap", "evacuate"].map(|call| world.called(call));
            said.lock().unwrap().push((asked, (*node).to_owned(), (*words).to_owned()));
        }
    };
    let going = async |verb| deployment(&world, &watch).go_on(verb, None, TakeOver::FromTheDead).await.unwrap();
    world.lock().losses = contract::swap::Losses { bare_pods: vec!["web/debug".to_owned()], empty_dirs: Vec::new() };
    going(Request::Resume).await;
    let forward = std::mem::take(&mut *said.lock().unwrap());
    going(Request::Rollback).await;
    let back = said.into_inner().unwrap();
    let words = "when it is drained, these pods have no controller and are deleted: web/debug";
    for (way, call) in [(&forward, 0), (&back, 1)] {
        let mut nodes: Vec<&str> = way.iter().map(|(_, node, _)| &**node).collect();
        nodes.sort_unstable();
        assert_eq!(nodes, ["cp1", "cp2", "cp3"]);
        assert!(way.iter().all(|(.., said)| said == words), "{way:?}");
        // Each is asked twice: it begins, and is done.
        assert_eq!(way.iter().map(|(asked, ..)| asked[call]).collect::<Vec<_>>(), [0, 2, 4]);
    }
}

#[tokio::test(start_paused = true)]
async fn only_adapters_that_were_connected_are_connected_again() {
    let world = World::of(1, Mode::Rolling, Ill::NeverGood);
    world.change_vm(old_vm("cp1"), |machine| {
        let mut third = machine.vm.adapters[0].clone();
        third.key = "4002".to_owned();
        machine.vm.adapters.push(third);
    });
    begin(&world).await;
    assert_eq!(give(&world, Request::Resume).await.outcome(), Outcome::RolledBack);
    let state: Vec<bool> = world.old_vm("cp1").adapters.iter().map(|adapter| adapter.connected).collect();
    assert_eq!(state, [true, false, true]);
}

#[tokio::test(start_paused = true)]
async fn powered_on_vm_stops_only_with_healthy_others() {
    let is_connected = |vm: &Vm| vm.adapters[0].connected;
    // A command was killed when the old VM of cp2 was off, an operator has powered it on, and another node fails.
    let world = before(3, Step::of(Action::Fence, 0)).await;
    let id = world.old_vm("cp2").reference.id;
    world.lock().boot(&id);
    world.lock().sick.insert("cp3");
    give(&world, Request::Resume).await.paused();
    let turned = turns(&world).await;
    assert!(turned[0].2.contains("cp2 ") && turned[0].2.contains("is on, and must be off"), "{turned:?}");
    assert_eq!((world.called("connect"), world.called("shut_down")), (0, 0));
    assert!(is_connected(&world.old_vm("cp2")));
    world.lock().sick.clear();
    assert_eq!(end(&world, Request::Resume).await, Outcome::RolledBack);
    // The same of a new one, in a rollback.
    let world = self::world(3, Mode::Rolling, Ill::Well).await;
    assert_eq!(end(&world, Request::Resume).await, Outcome::Upgraded);
    stop_before(&world, Request::Rollback, Step::of(Action::FenceNew, 2)).await;
    let node = world.plan_of_journal().await.nodes[2].name.clone();
    let id = world.new_vm(&node).reference.id;
    world.lock().boot(&id);
    give(&world, Request::Resume).await.pauses(&["is on, and must be off", "[upgrade.vm-state]"]);
    assert_eq!(world.called("connect"), 0);
    assert!(is_connected(&world.new_vm(&node)));
    world.lock().shut_down(&id);
    assert_eq!(end(&world, Request::Resume).await, Outcome::RolledBack);
}

#[tokio::test(start_paused = true)]
async fn moved_disk_is_found_by_its_journaled_path() {
    for ill in [Ill::Well, Ill::NeverGood] {
        for call in [None, Some("detach"), Some("attach")] {
            let world = world(1, Mode::Rolling, ill).await;
            world.move_disk("cp1");
            if let Some(name) = call {
                let call = call_of(name, Request::Resume, ill).await;
                let at = At { call, fault: Fault::CutAfter, lasting: false };
                assert!(matches!(give_with(&world, Request::Resume, None, Some(at)).await, Given::Killed));
            }
            let outcome = if ill == Ill::Well { Outcome::Upgraded } else { Outcome::RolledBack };
            assert_eq!(end(&world, Request::Resume).await, outcome, "{call:?}");
            let noted = entries(&world).await.into_iter().find_map(|entry| match entry.event {
                Event::Begun { disk: Some(disk), .. } => Some(disk.path),
                _ => None,
            });
            assert_eq!(noted.as_deref(), Some("[datastore2] cp1/data.vmdk"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn disk_in_a_snapshot_is_not_detached() {
    let world = before(1, Step::of(Action::Fence, 0)).await;
    world.change_vm(old_vm("cp1"), |machine| {
        machine.vm.disks[1].parent = Some("[datastore1] cp1/data-base.vmdk".to_owned());
    });
    // A backup's ends by itself.
    give(&world, Request::Resume).await.pauses(&["made by a snapshot", "[upgrade.vm-snapshot]"]);
    assert_eq!(world.called("detach"), 0);
    assert!(turns(&world).await.is_empty(), "the old image would do no better");
    world.change_vm(old_vm("cp1"), |machine| machine.vm.disks[1].parent = None);
    assert_eq!(end(&world, Request::Resume).await, Outcome::Upgraded);
}

#[tokio::test(start_paused = true)]
async fn upgrade_can_be_abandoned_at_every_entry() {
    for verb in [Request::Resume, Request::Rollback] {
        let (mut abandoned, mut ended) = (0, 0);
        for number in 1.. {
            let world = world(3, Mode::Rolling, Ill::Well).await;
            if verb == Request::Rollback {
                end(&world, Request::Resume).await;
            }
            world.fault(None);
            let call = {
                let calls = calls_of(&world, verb).await;
                let notes = calls.iter().enumerate().filter(|(_, name)| **name == "store.journal");
                notes.map(|(place, _)| place + 1).nth(number)
            };
            let Some(call) = call else { break };
            let at = At { call, fault: Fault::CutAfter, lasting: false };
            assert!(matches!(give_with(&world, verb, None, Some(at)).await, Given::Killed));
            let before = entries(&world).await.len();
            let given = give(&world, Request::Abandon).await;
            if let Given::Failed(error) = &given {
                assert!(error.to_string().contains("has ended"), "{error}");
                ended += 1;
                continue;
            }
            assert_eq!(given.outcome(), Outcome::Abandoned);
            abandoned += 1;
            // If all nodes do their part, nothing of it blocks the next one.
            if world.images().len() == 3 {
                let refusals = super::stamp::refusals(&world).await;
                let allowed = ["upgrade.vm-name", "upgrade.nothing-to-do"];
                assert!(refusals.iter().all(|code| allowed.contains(code)), "{verb:?} entry {before}: {refusals:?}");
                let state = world.lock();
                assert!(["cp1", "cp2", "cp3"].iter().all(|node| !state.is_cordoned(node)), "{verb:?} entry {before}");
            }
        }
        println!("abandoned after {verb:?} at {abandoned} entries; {ended} times it had ended");
        assert!(abandoned > 40, "{verb:?}: {abandoned} {ended}");
    }
}

/// The calls that a command makes in a world like this one.
async fn calls_of(world: &World, verb: Request) -> Vec<&'static str> {
    let twin = World::of(world.lock().nodes.len(), world.options.mode, Ill::Well);
    begin(&twin).await;
    if verb != Request::Resume {
        end(&twin, Request::Resume).await;
    }
    give(&twin, verb).await.arrived();
    twin.calls().iter().map(|call| call.name).collect()
}

/// Earlier requests have not settled when a command continues. The step that comes next is tried again, and is still
/// noted as begun. The rollback uses that.
#[tokio::test(start_paused = true)]
async fn step_that_waited_to_settle_is_rolled_back() {
    let killed = async |call| {
        let world = world(1, Mode::Rolling, Ill::NeverGood).await;
        let at = At { call, fault: Fault::CutBefore, lasting: false };
        matches!(give_with(&world, Request::Resume, None, Some(at)).await, Given::Killed).then_some(world)
    };
    for call in 1.. {
        let Some(world) = killed(call).await else {
            assert!(call > 50, "only {call} calls");
            return;
        };
        give(&world, Request::Resume).await;
        let settles = world.lock().faults.calls.iter().position(|call| call.name == "settle");
        // Killed right before its last entry, it has nothing more to do.
        let Some(settles) = settles else { continue };
        let world = killed(call).await.expect("the same again");
        let at = At { call: settles + 1, fault: Fault::Error(ErrorKind::Transient), lasting: false };
        let given = give_with(&world, Request::Resume, None, Some(at)).await;
        assert_eq!(given.outcome(), Outcome::RolledBack, "killed at call {call}");
        world.all_run(&old(), false).await;
    }
}
