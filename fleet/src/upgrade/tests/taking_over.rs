//! Two machines of operators and one cluster: who goes on, and with which journal.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::crash::directory;
use super::fake::{CutAt, Ill, World, lease_of, new, options};
use crate::upgrade::{Command, Direction, Mode, Nodes, Outcome};

fn command<'a>(world: &'a World, directory: &'a std::path::Path) -> Command<'a> {
    Command { hypervisor: world, nodes: world, directory, say: &|_| {}, pace: Duration::from_millis(1) }
}

/// An upgrade that was killed at a call, its lock still held.
fn killed(world: &World, directory: &std::path::Path, call: usize) {
    world.cut_at(Some(CutAt { call, after: true }));
    let given =
        catch_unwind(AssertUnwindSafe(|| command(world, directory).apply(&world.target.ova, &options(Mode::Rolling))));
    assert!(given.is_err(), "it was not interrupted");
    world.cut_at(None);
    // Unwinding gives the lock back; a kill does not.
    let version = world.lease().unwrap().unwrap().version;
    world.put_lease(crate::upgrade::Lease { version, ..lease_of("first.machine", Duration::ZERO) });
}

#[test]
fn another_machine_goes_on_once_the_lock_has_ended() {
    let world = World::of(3, Mode::Rolling, Ill::Well);
    let (first, second) = (directory(), directory());
    killed(&world, first.path(), 60);
    let error = command(&world, second.path()).resume(None).unwrap_err().to_string();
    assert!(error.contains("first.machine, is at work"), "{error}");
    world.put_lease(lease_of("first.machine", Duration::from_secs(61)));
    let state = command(&world, second.path()).resume(None).unwrap();
    assert_eq!(state.outcome, Some(Outcome::Upgraded));
    world.all_run(&new(), false);
    // The first machine sees it, and can take its turn.
    assert_eq!(command(&world, first.path()).status().unwrap().outcome, Some(Outcome::Upgraded));
    let seen = command(&world, first.path()).commit().unwrap();
    assert_eq!((seen.direction, seen.outcome), (Direction::Commit, Some(Outcome::Committed)));
    world.all_run(&new(), true);
    assert_eq!(world.lease().unwrap().unwrap().holder, None);
}

#[test]
fn a_second_upgrade_is_refused_until_the_first_is_committed() {
    let world = World::of(3, Mode::Rolling, Ill::Well);
    let (first, second) = (directory(), directory());
    let state = command(&world, first.path()).apply(&world.target.ova, &options(Mode::Rolling)).unwrap();
    assert_eq!((state.outcome, state.next.clone()), (Some(Outcome::Upgraded), None));
    let error =
        command(&world, second.path()).plan(&world.target.ova, &options(Mode::Rolling)).unwrap_err().to_string();
    assert!(error.contains("upgrade.uncommitted") && error.contains("upgrade.swap-open"), "{error}");
    command(&world, second.path()).commit().unwrap();
    let error =
        command(&world, second.path()).plan(&world.target.ova, &options(Mode::Rolling)).unwrap_err().to_string();
    assert!(error.contains("upgrade.nothing-to-do"), "{error}");
    let error = command(&world, first.path()).rollback().unwrap_err().to_string();
    assert!(error.contains("there is no way back"), "{error}");
}

#[test]
fn the_status_is_seen_from_anywhere() {
    let world = World::of(3, Mode::Rolling, Ill::Well);
    let (first, second) = (directory(), directory());
    let none = command(&world, first.path()).status().unwrap_err().to_string();
    assert!(none.contains("there is no upgrade"), "{none}");
    killed(&world, first.path(), 60);
    let (here, there) =
        (command(&world, first.path()).status().unwrap(), command(&world, second.path()).status().unwrap());
    assert!(here.done > 0 && here.next.is_some() && here.outcome.is_none());
    assert_eq!(here.locked_by.as_deref(), Some("first.machine"));
    assert_eq!((here.id, here.done), (there.id, there.done));
}

#[test]
fn a_journal_of_another_cluster_is_not_gone_on_with() {
    let world = World::of(3, Mode::Rolling, Ill::Well);
    let here = directory();
    let plan = crate::upgrade::Plan { cluster: uuid::Uuid::from_u128(0xdead), ..world.plan() };
    drop(crate::upgrade::journal::Journal::begin(here.path(), plan).unwrap());
    for given in [command(&world, here.path()).resume(None), command(&world, here.path()).commit()] {
        let error = given.unwrap_err().to_string();
        assert!(error.contains("is of cluster 00000000-0000-0000-0000-00000000dead"), "{error}");
    }
    assert_eq!(world.lease().unwrap(), None);
}
