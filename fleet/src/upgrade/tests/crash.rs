//! A command that is interrupted anywhere: whoever goes on brings everything to
//! one of the two ends.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use tempfile::TempDir;

use super::fake::{Broken, CutAt, Ill, World, new, old};
use crate::upgrade::entry::standing;
use crate::upgrade::{Direction, Journal, Mode, Moment, Outcome, Run};

/// What a person does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Resume,
    Rollback,
    Commit,
}

/// Where a command is interrupted.
#[derive(Clone, Copy, Debug)]
pub enum Cut {
    Never,
    /// Around the n-th entry of the journal.
    Entry(usize, Moment),
    /// At the n-th call to hypervisor or nodes.
    Call(CutAt),
}

/// A directory in memory where there is one: thousands of flushes follow.
pub fn directory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Gives a command; nothing when it was interrupted.
pub fn give(world: &World, directory: &Path, verb: Verb, cut: Cut) -> Option<anyhow::Result<Outcome>> {
    let entries = Cell::new(0);
    world.cut_at(match cut {
        Cut::Call(at) => Some(at),
        _ => None,
    });
    let noted = |moment: Moment| {
        if moment == Moment::Before {
            entries.set(entries.get() + 1);
        }
        if let Cut::Entry(number, at) = cut
            && (number, at) == (entries.get(), moment)
        {
            resume_unwind(Box::new(Broken));
        }
        Ok(())
    };
    let run = Run {
        hypervisor: world,
        nodes: world,
        directory,
        ova: None,
        say: &|_| {},
        still_ours: &|| Ok(()),
        pace: Duration::ZERO,
        away_until: std::cell::Cell::new(None),
        noted: &noted,
    };
    let given = catch_unwind(AssertUnwindSafe(|| {
        let mut journal = Journal::open(directory)?.expect("a journal");
        match (verb, standing(journal.entries())) {
            (Verb::Rollback, (Direction::Forward, _)) => run.turn(&mut journal, Direction::Back, "asked for")?,
            (Verb::Commit, (Direction::Forward, Some(Outcome::Upgraded))) => {
                run.turn(&mut journal, Direction::Commit, "asked for")?
            }
            _ => {}
        }
        run.go(&mut journal)
    }));
    world.cut_at(None);
    match given {
        Ok(result) => Some(result),
        Err(panic) if is_broken(&*panic) => None,
        Err(panic) => resume_unwind(panic),
    }
}

fn is_broken(panic: &(dyn Any + Send)) -> bool {
    panic.is::<Broken>()
}

pub fn begin(world: &World) -> TempDir {
    let directory = directory();
    drop(Journal::begin(directory.path(), world.plan()).unwrap());
    directory
}

fn ended(world: &World, directory: &Path, verb: Verb) -> Outcome {
    let outcome = give(world, directory, verb, Cut::Never).expect("not interrupted").unwrap();
    let image = if outcome == Outcome::RolledBack { old() } else { new() };
    world.all_run(&image, outcome == Outcome::Committed);
    outcome
}

/// Breaks a command off at every place; `prepare` brings the upgrade to where it is given.
fn everywhere(nodes: usize, mode: Mode, ill: Ill, verb: Verb, then: Verb, cuts: impl Fn(usize) -> [Cut; 2]) -> usize {
    for number in 1.. {
        for cut in cuts(number) {
            let world = World::of(nodes, mode, ill);
            let directory = begin(&world);
            if verb != Verb::Resume {
                ended(&world, directory.path(), Verb::Resume);
            }
            if give(&world, directory.path(), verb, cut).is_some() {
                assert!(number > 5, "only {number} places");
                return number;
            }
            let outcome = ended(&world, directory.path(), then);
            let expected = match (then, ill) {
                (Verb::Rollback, _) => Outcome::RolledBack,
                (Verb::Resume, _) if verb == Verb::Rollback => Outcome::RolledBack,
                (Verb::Resume, Ill::Well) if verb == Verb::Resume => Outcome::Upgraded,
                (Verb::Resume, _) if verb == Verb::Resume => Outcome::RolledBack,
                // Before the first entry of the commit, going on leaves the upgrade as it was.
                (Verb::Resume, _) if outcome == Outcome::Upgraded && matches!(cut, Cut::Entry(1, Moment::Before)) => {
                    continue;
                }
                _ => Outcome::Committed,
            };
            assert_eq!(outcome, expected, "{cut:?}");
        }
    }
    unreachable!("a command has an end")
}

fn entries(number: usize) -> [Cut; 2] {
    [Cut::Entry(number, Moment::Before), Cut::Entry(number, Moment::After)]
}

fn calls(number: usize) -> [Cut; 2] {
    [false, true].map(|after| Cut::Call(CutAt { call: number, after }))
}

#[test]
fn broken_off_around_every_entry_it_is_gone_on_with() {
    let places = everywhere(3, Mode::Rolling, Ill::Well, Verb::Resume, Verb::Resume, entries);
    // A step is two entries; the last is the end.
    assert_eq!(places, 2 * (2 + 3 * 8) + 1 + 1);
    everywhere(1, Mode::Rolling, Ill::Well, Verb::Resume, Verb::Resume, entries);
    everywhere(3, Mode::AllAtOnce, Ill::Well, Verb::Resume, Verb::Resume, entries);
}

#[test]
fn broken_off_around_every_entry_it_is_rolled_back() {
    everywhere(3, Mode::Rolling, Ill::Well, Verb::Resume, Verb::Rollback, entries);
    everywhere(1, Mode::Rolling, Ill::Well, Verb::Resume, Verb::Rollback, entries);
    everywhere(3, Mode::AllAtOnce, Ill::Well, Verb::Resume, Verb::Rollback, entries);
}

#[test]
fn broken_off_at_every_call_it_is_gone_on_with_or_rolled_back() {
    for mode in [Mode::Rolling, Mode::AllAtOnce] {
        everywhere(3, mode, Ill::Well, Verb::Resume, Verb::Resume, calls);
        everywhere(3, mode, Ill::Well, Verb::Resume, Verb::Rollback, calls);
    }
}

#[test]
fn a_rollback_that_is_broken_off_ends_rolled_back() {
    for mode in [Mode::Rolling, Mode::AllAtOnce] {
        for cuts in [entries as fn(usize) -> [Cut; 2], calls] {
            everywhere(3, mode, Ill::Well, Verb::Rollback, Verb::Rollback, cuts);
        }
    }
    for ill in [Ill::NeverGood, Ill::Silent, Ill::NoEtcd, Ill::NoStart, Ill::Hangs] {
        everywhere(3, Mode::Rolling, ill, Verb::Resume, Verb::Resume, entries);
    }
    everywhere(3, Mode::Rolling, Ill::Hangs, Verb::Resume, Verb::Resume, calls);
}

#[test]
fn a_commit_that_is_broken_off_ends_committed() {
    for cuts in [entries as fn(usize) -> [Cut; 2], calls] {
        everywhere(3, Mode::Rolling, Ill::Well, Verb::Commit, Verb::Commit, cuts);
        everywhere(3, Mode::Rolling, Ill::Well, Verb::Commit, Verb::Resume, cuts);
    }
}

fn any_cut() -> impl Strategy<Value = Cut> {
    let entry = (1..80_usize, prop::bool::ANY)
        .prop_map(|(number, after)| Cut::Entry(number, if after { Moment::After } else { Moment::Before }));
    let call = (1..200_usize, prop::bool::ANY).prop_map(|(call, after)| Cut::Call(CutAt { call, after }));
    prop_oneof![entry, call]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Several cuts in a row, and a person who changes his mind.
    #[test]
    fn whatever_is_cut_and_said_it_ends_at_one_of_the_ends(
        nodes in prop_oneof![Just(1_usize), Just(3)],
        mode in prop_oneof![Just(Mode::Rolling), Just(Mode::AllAtOnce)],
        ill in prop_oneof![4 => Just(Ill::Well), 1 => Just(Ill::NeverGood), 1 => Just(Ill::Silent), 1 => Just(Ill::NoEtcd),
            1 => Just(Ill::NoStart), 1 => Just(Ill::Hangs), 1 => Just(Ill::OtherMember)],
        story in prop::collection::vec(
            (any_cut(), prop_oneof![3 => Just(Verb::Resume), 1 => Just(Verb::Rollback), 1 => Just(Verb::Commit)]), 0..7),
        last in prop_oneof![Just(Verb::Resume), Just(Verb::Rollback)],
    ) {
        let world = World::of(nodes, mode, ill);
        let directory = begin(&world);
        for (cut, verb) in story {
            give(&world, directory.path(), verb, cut);
        }
        let outcome = ended(&world, directory.path(), last);
        if ill != Ill::Well {
            prop_assert_eq!(outcome, Outcome::RolledBack);
        }
        if mode == Mode::Rolling {
            prop_assert!(world.most_away() <= 1);
        }
    }
}
