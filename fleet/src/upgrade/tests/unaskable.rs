//! Guests that cannot be asked to shut down: a VM that may be at work is left to the operator.

use super::command::{begun, end, give};
use super::fake::{Ill, new, old, old_vm};
use crate::hypervisor::PowerState;
use crate::upgrade::{Mode, Outcome, Request};

#[tokio::test(start_paused = true)]
async fn unaskable_old_vm_pauses_until_shut_down() {
    for mode in [Mode::Rolling, Mode::AllAtOnce] {
        let world = begun(1, mode, Ill::Well).await;
        world.lock().unaskable = Some(old());
        give(&world, Request::Resume).await.pauses(&["cannot be asked to shut down", "by hand"]);
        assert_eq!(world.called("cut_power"), 0);
        assert_eq!(world.old_vm("cp1").power, PowerState::On);
        {
            let mut state = world.lock();
            let id = state.machines.iter().find(|machine| machine.vm.uuid() == old_vm("cp1")).unwrap();
            let id = id.vm.reference.id.clone();
            assert!(state.shut_down(&id));
        }
        assert_eq!(end(&world, Request::Resume).await, Outcome::Upgraded);
        assert_eq!(world.called("cut_power"), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn tools_that_come_up_meanwhile_are_enough() {
    let world = begun(3, Mode::Rolling, Ill::Well).await;
    world.lock().unaskable = Some(old());
    give(&world, Request::Resume).await.paused();
    world.lock().unaskable = None;
    assert_eq!(end(&world, Request::Resume).await, Outcome::Upgraded);
}

#[tokio::test(start_paused = true)]
async fn unaskable_new_vm_pauses_the_rollback() {
    let world = begun(1, Mode::Rolling, Ill::NeverGood).await;
    world.lock().unaskable = Some(new());
    give(&world, Request::Resume).await.pauses(&["cannot be asked to shut down"]);
    assert_eq!(world.called("cut_power"), 0);
    world.lock().unaskable = None;
    assert_eq!(end(&world, Request::Resume).await, Outcome::RolledBack);
}

#[tokio::test(start_paused = true)]
async fn silent_unaskable_new_vm_is_powered_off() {
    let world = begun(1, Mode::Rolling, Ill::Silent).await;
    world.lock().unaskable = Some(new());
    assert_eq!(give(&world, Request::Resume).await.outcome(), Outcome::RolledBack);
    assert_eq!(world.called("cut_power"), 1);
    assert_eq!(end(&world, Request::Resume).await, Outcome::RolledBack);
}

#[tokio::test(start_paused = true)]
async fn at_once_image_that_never_boots_rolls_back() {
    for nodes in [1, 3] {
        let world = begun(nodes, Mode::AllAtOnce, Ill::Silent).await;
        world.lock().unaskable = Some(new());
        assert_eq!(give(&world, Request::Resume).await.outcome(), Outcome::RolledBack);
        assert_eq!(world.called("cut_power"), nodes);
        assert_eq!(end(&world, Request::Resume).await, Outcome::RolledBack);
    }
}
