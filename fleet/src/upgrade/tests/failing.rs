//! Images that are broken on purpose, and nodes that refuse.

use std::time::Duration;

use super::crash::{Cut, Verb, begin, give};
use super::fake::{Ill, World, new, old};
use crate::upgrade::{Event, Journal, Mode, Outcome, Run};

fn reason(directory: &std::path::Path) -> String {
    let journal = Journal::open(directory).unwrap().unwrap();
    let turned = journal.entries().iter().find_map(|entry| match &entry.event {
        Event::DirectionChanged { reason, .. } => Some(reason.clone()),
        _ => None,
    });
    turned.unwrap_or_default()
}

#[test]
fn an_image_that_is_ill_makes_everything_go_back_by_itself_and_says_why() {
    for mode in [Mode::Rolling, Mode::AllAtOnce] {
        for (ill, why) in [
            (Ill::NeverGood, "it was not found good yet"),
            (Ill::Silent, "no answer"),
            (Ill::NoEtcd, "its etcd does not answer"),
            (Ill::NoStart, "the firmware finds nothing to start"),
            (Ill::Hangs, "it was not found good yet"),
            (Ill::OtherMember, "it is etcd's member ff"),
        ] {
            let world = World::of(3, mode, ill);
            let directory = begin(&world);
            let outcome = give(&world, directory.path(), Verb::Resume, Cut::Never).unwrap().unwrap();
            assert_eq!(outcome, Outcome::RolledBack, "{ill:?}");
            world.all_run(&old(), false);
            let reason = reason(directory.path());
            assert!(reason.contains(why), "{mode:?} {ill:?}: {reason}");
        }
    }
}

#[test]
fn one_node_at_a_time_is_away_or_all_are() {
    for (mode, away) in [(Mode::Rolling, 1), (Mode::AllAtOnce, 3)] {
        let world = World::of(3, mode, Ill::Well);
        let directory = begin(&world);
        assert_eq!(give(&world, directory.path(), Verb::Resume, Cut::Never).unwrap().unwrap(), Outcome::Upgraded);
        world.all_run(&new(), false);
        assert_eq!(world.most_away(), away);
        assert_eq!(give(&world, directory.path(), Verb::Rollback, Cut::Never).unwrap().unwrap(), Outcome::RolledBack);
        world.all_run(&old(), false);
        assert_eq!(world.most_away(), away);
    }
}

#[test]
fn a_snapshot_is_kept_and_a_commit_removes_the_old_vms() {
    let world = World::of(3, Mode::Rolling, Ill::Well);
    let directory = begin(&world);
    give(&world, directory.path(), Verb::Resume, Cut::Never).unwrap().unwrap();
    let snapshot = directory.path().join(format!("before-{}.db", world_plan_id(directory.path())));
    assert_eq!(std::fs::read_to_string(snapshot).unwrap(), "a store");
    assert_eq!(give(&world, directory.path(), Verb::Commit, Cut::Never).unwrap().unwrap(), Outcome::Committed);
    world.all_run(&new(), true);
}

fn world_plan_id(directory: &std::path::Path) -> uuid::Uuid {
    Journal::open(directory).unwrap().unwrap().plan().id
}

#[test]
fn a_command_that_has_lost_the_lock_does_nothing_more() {
    let world = World::of(3, Mode::Rolling, Ill::Well);
    let directory = begin(&world);
    let mut journal = Journal::open(directory.path()).unwrap().unwrap();
    let checks = std::cell::Cell::new(0);
    let run = Run {
        hypervisor: &world,
        nodes: &world,
        directory: directory.path(),
        ova: None,
        say: &|_| {},
        still_ours: &|| {
            checks.set(checks.get() + 1);
            if checks.get() > 20 { anyhow::bail!("two has taken this upgrade over") } else { Ok(()) }
        },
        pace: Duration::ZERO,
        away_until: std::cell::Cell::new(None),
        noted: &|_| Ok(()),
    };
    let error = format!("{:#}", run.go(&mut journal).unwrap_err());
    assert!(error.contains("two has taken"), "{error}");
    let turned = journal.entries().iter().any(|entry| matches!(entry.event, Event::DirectionChanged { .. }));
    assert!(!turned, "a lost lock is no reason to go back");
}
