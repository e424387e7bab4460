//! Obstacles that do not pass by themselves: a final refusal of the hypervisor, a missing privilege, a copy of a VM, an
//! absent store. The command ends soon, says why, and is continued.

use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::command::{Given, PAUSE_LIMIT, end, give, give_with};
use super::failing::{call_of, turns, world};
use super::fake::fault::{At, Fault};
use super::fake::{Ill, stamp};
use crate::hypervisor::ErrorKind;
use crate::upgrade::{Mode, Outcome, Request, RunOutcome};

fn lasting(call: usize, kind: ErrorKind) -> Option<At> {
    Some(At { call, fault: Fault::Error(kind), lasting: true })
}

#[tokio::test(start_paused = true)]
async fn final_refusal_is_retried_once_then_ends() {
    let import = call_of("import", Request::Resume, Ill::Well).await;
    for (kind, code) in [
        (ErrorKind::Refused, "hypervisor.refused"),
        (ErrorKind::Denied, "hypervisor.denied"),
        (ErrorKind::NotFound, "hypervisor.not-found"),
    ] {
        let world = world(1, Mode::Rolling, Ill::Well).await;
        let began = Instant::now();
        let reason = give_with(&world, Request::Resume, None, lasting(import, kind)).await.paused();
        assert!(reason.ends_with(&format!("[{code}]")), "{reason}");
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
        let names: Vec<&str> = world.calls().iter().map(|call| call.name).collect();
        let tries: Vec<usize> = (0..names.len()).filter(|at| names[*at] == "import").collect();
        assert_eq!(tries.len(), 2, "{kind:?}");
        assert!(names[tries[0]..tries[1]].contains(&"settle"), "{names:?}");
        assert_eq!(end(&world, Request::Resume).await, Outcome::Upgraded);
    }
}

#[tokio::test(start_paused = true)]
async fn transient_obstacle_is_waited_for() {
    let import = call_of("import", Request::Resume, Ill::Well).await;
    let world = world(1, Mode::Rolling, Ill::Well).await;
    let began = Instant::now();
    let reason = give_with(&world, Request::Resume, None, lasting(import, ErrorKind::Transient)).await.paused();
    assert!(reason.ends_with("[hypervisor.transient]"), "{reason}");
    assert!(began.elapsed() >= PAUSE_LIMIT);
}

#[tokio::test(start_paused = true)]
async fn missing_privilege_rolls_no_node_back() {
    for name in ["attach", "power_on"] {
        let call = call_of(name, Request::Resume, Ill::Well).await;
        let world = world(1, Mode::Rolling, Ill::Well).await;
        let reason = give_with(&world, Request::Resume, None, lasting(call, ErrorKind::Denied)).await.paused();
        assert!(reason.ends_with("[hypervisor.denied]"), "{reason}");
        assert!(turns(&world).await.is_empty(), "{name}: the way back needs it as well");
        assert_eq!(end(&world, Request::Resume).await, Outcome::Upgraded);
    }
}

#[tokio::test(start_paused = true)]
async fn absent_store_pauses_and_resuming_goes_on() {
    for (name, number) in [("store.journal", 4), ("store.exists", 9)] {
        let twin = world(1, Mode::Rolling, Ill::Well).await;
        give(&twin, Request::Resume).await.arrived();
        let calls = twin.calls();
        let of_name = calls.iter().enumerate().filter(|(_, call)| call.name == name);
        let call = of_name.map(|(place, _)| place + 1).nth(number).expect("a call");
        let world = world(1, Mode::Rolling, Ill::Well).await;
        let given = give_with(&world, Request::Resume, None, lasting(call, ErrorKind::Transient)).await;
        let (RunOutcome::Paused(reason), status) = given.arrived() else { panic!("{name}") };
        assert_eq!(reason.code, "store.unavailable", "{reason}");
        assert_eq!(status.paused, Some(reason), "what could not be written down is said");
        assert_eq!(end(&world, Request::Resume).await, Outcome::Upgraded);
    }
}

#[tokio::test(start_paused = true)]
async fn copy_of_a_new_vm_is_not_removed() {
    let import = call_of("import", Request::Resume, Ill::Well).await;
    let world = world(1, Mode::Rolling, Ill::Well).await;
    // It is not noted that the VM is whole.
    let at = At { call: import, fault: Fault::CutAfter, lasting: false };
    assert!(matches!(give_with(&world, Request::Resume, None, Some(at)).await, Given::Killed));
    let (swap, half) = (world.plan_of_journal().await.nodes[0].swap, world.new_vm("cp1").uuid());
    // A BIOS UUID of a copy tells it from the VM, unless both have the same one.
    for (uuid, codes) in [(Uuid::from_u128(0xc1), "[upgrade.vm-left]"), (half, "[upgrade.vm-copied]")] {
        world.add_own("clone", uuid, |machine| machine.vm.stamp = stamp("cp1", Some(swap)));
        for verb in [Request::Resume, Request::Rollback] {
            let reason = give(&world, verb).await.paused();
            let names = reason.contains("clone (") && (uuid != half || reason.contains("cp1-bbbbbbb ("));
            assert!(names && reason.ends_with(codes), "{verb:?}: {reason}");
            assert_eq!(world.called("destroy"), 0);
        }
        if uuid != half {
            world.lock().machines.pop();
        }
    }
    world.lock().machines.pop();
    assert_eq!(end(&world, Request::Resume).await, Outcome::RolledBack);
}
