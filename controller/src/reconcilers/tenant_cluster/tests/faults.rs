//! Calls fail, answers are lost, and controllers die. In the end the state is the declared one, each VM was created once, and
//! nothing is lost or left.

use std::time::Duration;

use super::World;
use super::api::Mortal;
use super::place;
use crate::reach::in_memory::Fault;
use crate::reconcilers::points::drawn;
use crate::term::Term;

/// From the object to a ready cluster, and to its deletion. The disk of an incomplete VM of a dead controller is kept and
/// recorded.
async fn story(world: &World, what: &str, deaths: usize) {
    world.until(&format!("ready: {what}"), World::is_ready).await;
    world.is_whole(what);
    let left = world.left();
    assert!(left.len() <= deaths, "{what}: {left:?}");
    world.delete();
    world.until(&format!("gone: {what}"), World::is_gone).await;
    world.is_clean_but(what, &left);
}

#[tokio::test(start_paused = true)]
async fn lost_answers_of_the_api_server_are_harmless() {
    let world = World::new();
    story(&world, "nothing goes wrong", 0).await;
    let calls = world.api.calls();
    assert!(calls > 300, "{calls}");
    let of_call = |call| [Fault::NotDone, Fault::Done, Fault::Changed].map(|fault| (call, fault));
    for (call, fault) in drawn("answers of the API server", (0..calls).flat_map(of_call).collect()) {
        let world = World::new();
        world.api.fails_at(call, fault);
        story(&world, &format!("{fault:?} at call {call}"), 0).await;
    }
}

#[tokio::test(start_paused = true)]
async fn faults_of_the_vcenter_are_harmless() {
    let world = World::new();
    story(&world, "nothing goes wrong", 0).await;
    let changes = world.place.lock().changes.len();
    assert!(changes >= 15, "{changes}");
    for call in 0..changes {
        for fault in [place::Fault::Fails, place::Fault::Lost] {
            let world = World::new();
            world.place.lock().fault = Some((call, fault));
            story(&world, &format!("{fault:?} at change {call}"), 0).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn another_controller_continues_after_any_death() {
    let calls = {
        let world = World::new();
        let mortal = Mortal::new(&world.api, None);
        for _ in 0..60 {
            let _ = world.reconcile_at(&mortal).await;
            tokio::time::sleep(Duration::from_secs(15)).await;
            if world.is_gone() {
                break;
            }
            if world.is_ready() {
                world.delete();
            }
        }
        world.is_clean("nobody died");
        mortal.calls()
    };
    assert!(calls > 300, "{calls}");
    let of_call = |call| [true, false].map(|before| (call, before));
    for (call, before) in drawn("deaths of a controller", (0..calls).flat_map(of_call).collect()) {
        let what = format!("a death {} call {call}", if before { "before" } else { "after" });
        let mut world = World::new();
        let mortal = Mortal::new(&world.api, Some((call, before)));
        let mut was_ready = false;
        for _ in 0..60 {
            if world.reconcile_at(&mortal).await.is_none() {
                break;
            }
            tokio::time::sleep(Duration::from_secs(15)).await;
            if world.is_gone() {
                break;
            }
            if world.is_ready() {
                was_ready = true;
                world.delete();
            }
        }
        world.term = Term::unlimited("controller two");
        if was_ready {
            world.until(&format!("gone: {what}"), World::is_gone).await;
            world.is_clean(&what);
        } else {
            story(&world, &what, 1).await;
        }
    }
}

/// A world in which a controller died after it created the Machines, before it recorded VMs.
async fn with_machines_alone() -> World {
    for call in 0..300 {
        let world = World::new();
        let mortal = Mortal::new(&world.api, Some((call, true)));
        while world.reconcile_at(&mortal).await.is_some() {
            tokio::time::sleep(Duration::from_secs(15)).await;
        }
        if world.api.names("machines").len() == 3 && world.status()["deployment"].is_null() {
            assert!(world.place.lock().changes.is_empty(), "a VM was made before it was noted");
            return world;
        }
    }
    panic!("no controller dies there");
}

/// The database may have been restored to that moment: a VM of that Machine may exist, and may have served.
#[tokio::test(start_paused = true)]
async fn only_the_same_controller_removes_an_incomplete_disk() {
    for is_another in [false, true] {
        let mut world = with_machines_alone().await;
        if is_another {
            world.term = Term::unlimited("controller two");
        }
        world.place.lock().fault = Some((0, place::Fault::Lost));
        world.until("ready", World::is_ready).await;
        assert_eq!(world.place.lock().changes[0], "add");
        assert_eq!(world.left().len(), usize::from(is_another), "another controller: {is_another}");
    }
}
