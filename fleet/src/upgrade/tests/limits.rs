//! How long a node waits before it goes back, whatever the pause limit. Time without a look does not count.

use std::time::Duration;

use uuid::Uuid;

use super::command::{PAUSE_LIMIT, end, give, give_within};
use super::failing::{before, call_of, turns, world};
use super::fake::fault::{At, Fault};
use super::fake::{Ill, World, data, disk, old_vm};
use crate::hypervisor::ErrorKind;
use crate::upgrade::{Action, Mode, Outcome, Request, RunOutcome, Step};

const SHORT: Duration = Duration::from_secs(10);

#[tokio::test(start_paused = true)]
async fn absent_hypervisor_rolls_no_node_back() {
    for name in ["attach", "power_on"] {
        let call = call_of(name, Request::Resume, Ill::Well).await;
        for kind in [ErrorKind::Transient, ErrorKind::Changed, ErrorKind::InDoubt] {
            for limit in [Duration::ZERO, SHORT, PAUSE_LIMIT] {
                let world = world(1, Mode::Rolling, Ill::Well).await;
                let at = Some(At { call, fault: Fault::Error(kind), lasting: true });
                let reason = give_within(&world, Request::Resume, None, at, limit).await.paused();
                assert!(reason.contains("[hypervisor."), "{reason}");
                assert!(turns(&world).await.is_empty(), "{name}: the way back needs it as well");
                assert_eq!(end(&world, Request::Resume).await, Outcome::Upgraded);
            }
        }
    }
}

/// A node that is away while another VM holds its disk.
async fn held_elsewhere() -> World {
    let world = before(1, Step::of(Action::Attach, 0)).await;
    world.add_own("stray", Uuid::from_u128(0x57), |machine| machine.vm.disks.push(data(disk("cp1"))));
    world
}

#[tokio::test(start_paused = true)]
async fn counted_time_continues_after_a_short_pause_limit() {
    let world = held_elsewhere().await;
    let mut paused = 0;
    while turns(&world).await.is_empty() {
        let given = give_within(&world, Request::Resume, None, None, SHORT).await;
        assert!(matches!(given.arrived().0, RunOutcome::Paused(_)));
        paused += 1;
        assert!(paused < 20, "it never turns");
    }
    assert!(paused > 10, "it turns after {paused} times {SHORT:?}; the gate's time is 120 s");
}

#[tokio::test(start_paused = true)]
async fn long_pause_limit_still_rolls_back_at_gate() {
    let world = held_elsewhere().await;
    give(&world, Request::Resume).await.paused();
    assert_eq!(turns(&world).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn time_of_a_stopped_command_does_not_count() {
    let world = held_elsewhere().await;
    let hour = Duration::from_secs(3600);
    let stopped = async {
        tokio::time::sleep(Duration::from_secs(20)).await;
        tokio::time::advance(hour).await;
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert!(turns(&world).await.is_empty());
        world.lock().machines.pop();
    };
    let (given, ()) = tokio::join!(give_within(&world, Request::Resume, None, None, 2 * hour), stopped);
    assert_eq!(given.outcome(), Outcome::Upgraded);
}

#[tokio::test(start_paused = true)]
async fn disk_moved_away_and_back_is_found() {
    let world = before(1, Step::of(Action::Fence, 0)).await;
    let backup = |parent: Option<&str>| {
        world.change_vm(old_vm("cp1"), |machine| machine.vm.disks[1].parent = parent.map(ToOwned::to_owned));
    };
    backup(Some("[datastore1] cp1/data-base.vmdk"));
    give(&world, Request::Resume).await.paused();
    world.move_disk("cp1");
    give(&world, Request::Resume).await.paused();
    backup(None);
    world.move_disk_to("cp1", "datastore1");
    assert_eq!(end(&world, Request::Resume).await, Outcome::Upgraded);
}
