//! Guests that cannot be asked to shut down: whatever may be at work is left to a person.

use super::command::{begin, end, give};
use super::fake::{Ill, World, new, old, old_vm};
use crate::hypervisor::PowerState;
use crate::upgrade::{Mode, Outcome, Request};

#[tokio::test(start_paused = true)]
async fn an_old_vm_that_cannot_be_asked_pauses_the_upgrade_until_a_person_has_shut_it_down() {
    for mode in [Mode::Rolling, Mode::AllAtOnce] {
        let world = World::of(1, mode, Ill::Well);
        begin(&world).await;
        world.lock().unaskable = Some(old());
        let reason = give(&world, Request::Resume).await.paused();
        assert!(reason.contains("cannot be asked to shut down") && reason.contains("by hand"), "{reason}");
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
    let world = World::of(3, Mode::Rolling, Ill::Well);
    begin(&world).await;
    world.lock().unaskable = Some(old());
    give(&world, Request::Resume).await.paused();
    world.lock().unaskable = None;
    assert_eq!(end(&world, Request::Resume).await, Outcome::Upgraded);
}

#[tokio::test(start_paused = true)]
async fn a_new_vm_that_answers_and_cannot_be_asked_is_left_to_a_person_on_the_way_back_too() {
    let world = World::of(1, Mode::Rolling, Ill::NeverGood);
    begin(&world).await;
    world.lock().unaskable = Some(new());
    let reason = give(&world, Request::Resume).await.paused();
    assert!(reason.contains("cannot be asked to shut down"), "{reason}");
    assert_eq!(world.called("cut_power"), 0);
    world.lock().unaskable = None;
    assert_eq!(end(&world, Request::Resume).await, Outcome::RolledBack);
}

#[tokio::test(start_paused = true)]
async fn the_power_of_a_new_vm_that_neither_answers_nor_can_be_asked_is_cut_and_its_node_goes_back() {
    let world = World::of(1, Mode::Rolling, Ill::Silent);
    begin(&world).await;
    world.lock().unaskable = Some(new());
    assert_eq!(give(&world, Request::Resume).await.outcome(), Outcome::RolledBack);
    assert_eq!(world.called("cut_power"), 1);
    assert_eq!(end(&world, Request::Resume).await, Outcome::RolledBack);
}

#[tokio::test(start_paused = true)]
async fn all_at_once_an_image_that_does_not_boot_is_turned_back_by_itself() {
    for nodes in [1, 3] {
        let world = World::of(nodes, Mode::AllAtOnce, Ill::Silent);
        begin(&world).await;
        world.lock().unaskable = Some(new());
        assert_eq!(give(&world, Request::Resume).await.outcome(), Outcome::RolledBack);
        assert_eq!(world.called("cut_power"), nodes);
        assert_eq!(end(&world, Request::Resume).await, Outcome::RolledBack);
    }
}
