//! Several commands in a row, each with a fault. An operator who changes decisions gives them, among VMs of other
//! deployments.

use proptest::prelude::*;

use super::command::{Given, begin, end, give, give_with, is_nameless, wait};
use super::fake::fault::{At, CallKind, Fault};
use super::fake::operator::{STRANGERS, Stranger};
use super::fake::{Ill, World};
use super::package;
use super::stamp::refusals;
use crate::hypervisor::PowerState;
use crate::upgrade::{Mode, OnFailure, Outcome, Request, RunOutcome};

fn any_fault() -> impl Strategy<Value = Option<At>> {
    let faults = prop_oneof![
        3 => prop::sample::select(CallKind::Change.faults()),
        1 => Just(Fault::CutAfter),
    ];
    let at = (1..400_usize, faults, prop::bool::weighted(0.3)).prop_map(|(call, fault, lasting)| At {
        call,
        fault,
        lasting: lasting && !fault.kills(),
    });
    prop::option::weighted(0.9, at)
}

fn any_ill() -> impl Strategy<Value = Ill> {
    prop_oneof![
        6 => Just(Ill::Well), 1 => Just(Ill::NeverGood), 1 => Just(Ill::Silent), 1 => Just(Ill::NoEtcd),
        1 => Just(Ill::NoStart), 1 => Just(Ill::Hangs), 1 => Just(Ill::OtherMember)
    ]
}

fn any_verb() -> impl Strategy<Value = Request> {
    prop_oneof![4 => Just(Request::Resume), 2 => Just(Request::Rollback), 1 => Just(Request::Commit)]
}

fn any_stranger() -> impl Strategy<Value = (usize, Stranger, PowerState)> {
    let power = prop_oneof![Just(PowerState::On), Just(PowerState::Off), Just(PowerState::Unknown)];
    (0..3_usize, prop::sample::select(STRANGERS.to_vec()), power)
}

#[derive(Clone, Debug)]
struct Story {
    nodes: usize,
    mode: Mode,
    ill: Ill,
    on_failure: OnFailure,
    strangers: Vec<(usize, Stranger, PowerState)>,
    commands: Vec<(Option<At>, Request)>,
    /// After so many commands the image is healthy.
    well_after: usize,
}

fn any_story() -> impl Strategy<Value = Story> {
    (
        prop_oneof![Just(1_usize), Just(3)],
        prop_oneof![2 => Just(Mode::Rolling), 1 => Just(Mode::AllAtOnce)],
        any_ill(),
        prop_oneof![Just(OnFailure::Node), Just(OnFailure::All)],
        prop::collection::vec(any_stranger(), 0..6),
        prop::collection::vec((any_fault(), any_verb()), 0..7),
        0..8_usize,
    )
        .prop_map(|(nodes, mode, ill, on_failure, strangers, commands, well_after)| Story {
            nodes,
            mode,
            ill,
            on_failure,
            strangers,
            commands,
            well_after,
        })
}

/// Tells the story up to its last command.
async fn tell(story: &Story) -> World {
    let mut world = World::of(story.nodes, story.mode, story.ill);
    world.options.on_failure = story.on_failure;
    let plan = world.plan().await;
    begin(&world).await;
    for (node, stranger, power) in &story.strangers {
        world.add_stranger(&plan, node % story.nodes, *stranger, *power);
    }
    for (number, (at, verb)) in story.commands.iter().enumerate() {
        if number == story.well_after {
            world.lock().ill = Ill::Well;
        }
        give_with(&world, *verb, None, *at).await;
    }
    world
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_story_ends_at_a_defined_end(
        story in any_story(),
        last in prop_oneof![Just(Request::Resume), Just(Request::Rollback)],
    ) {
        let _ova = package::shared();
        wait(async {
            let world = tell(&story).await;
            world.lock().ill = Ill::Well;
            let committing = matches!(give(&world, Request::Commit).await, Given::Arrived(RunOutcome::Ended(Outcome::Committed), _));
            let outcome = if committing { end(&world, Request::Resume).await } else { end(&world, last).await };
            let expected = match (committing, last) {
                (true, _) => outcome == Outcome::Committed,
                (false, Request::Rollback) => outcome == Outcome::RolledBack,
                (false, _) => matches!(outcome, Outcome::Upgraded | Outcome::RolledBack),
            };
            assert!(expected, "{outcome:?}");
            assert!(story.mode == Mode::AllAtOnce || world.most_away() <= 1);
        });
    }

    #[test]
    fn abandoning_anywhere_touches_no_foreign_vm(story in any_story()) {
        let _ova = package::shared();
        wait(async {
            let world = tell(&story).await;
            world.lock().ill = Ill::Well;
            let given = give(&world, Request::Abandon).await;
            match given {
                // Committed, rolled back or abandoned already.
                Given::Failed(error) => assert!(error.to_string().contains("ended"), "{error:#}"),
                given => assert_eq!(given.outcome(), Outcome::Abandoned),
            }
            world.strangers_are_untouched();
            // A cluster whose nodes all do their part can be upgraded again.
            world.lock().machines.retain(|machine| machine.ours);
            if world.images().len() == story.nodes && !is_nameless(&world).await {
                let refusals = refusals(&world).await;
                let allowed = ["upgrade.vm-name", "upgrade.nothing-to-do"];
                assert!(refusals.iter().all(|code| allowed.contains(code)), "{refusals:?}");
            }
        });
    }
}
