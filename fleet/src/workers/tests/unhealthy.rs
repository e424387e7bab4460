//! Members that are unhealthy.

use super::fake::{Fault, World};
use super::stories::codes;
use crate::hypervisor::PowerState;
use crate::workers::{Goal, State};

/// The names of unhealthy workers.
async fn unhealthy(world: &World) -> Vec<String> {
    let workers = world.status().await.unwrap().unwrap().workers;
    workers.into_iter().filter(|worker| worker.unhealthy).map(|worker| worker.name).collect()
}

#[tokio::test(start_paused = true)]
async fn a_stopped_or_unready_worker_is_unhealthy() {
    let world = World::with(3).await;
    assert_eq!(unhealthy(&world).await, [""; 0]);
    let cordon = |name: &str| {
        for node in world.lock().nodes.iter_mut().filter(|node| node.name == name) {
            node.cordoned = true;
        }
    };
    cordon("t-w1");
    assert_eq!(unhealthy(&world).await, [""; 0], "a person wants no further pods there");
    let status = world.status().await.unwrap().unwrap();
    assert!(status.workers[0].ready && !status.workers[0].available);
    world.lock().silence("t-w1");
    world.lock().lose_vm("t-w2");
    assert_eq!(unhealthy(&world).await, ["t-w1", "t-w2"]);
    world.lock().lose_power("t-w3");
    // Kubernetes takes a while to notice that.
    world.lock().nodes.iter_mut().filter(|node| node.name == "t-w3").for_each(|node| node.ready = true);
    assert_eq!(unhealthy(&world).await, ["t-w1", "t-w2", "t-w3"]);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_state_is_not_unhealthy() {
    let world = World::with(3).await;
    let vm = |name: &str, change: &dyn Fn(&mut crate::hypervisor::Vm)| {
        let mut state = world.lock();
        let own =
            state.machines.iter_mut().find(|machine| machine.vm.uuid().as_u128() != 0xb01 && machine.vm.name == name);
        change(&mut own.unwrap().vm);
    };
    vm("t-w1", &|vm| vm.power = PowerState::Unknown);
    vm("t-w2", &|vm| vm.stamp = None);
    assert_eq!(unhealthy(&world).await, [""; 0]);
    // Out of sight, and Ready.
    let all = std::mem::take(&mut world.lock().machines);
    assert_eq!(unhealthy(&world).await, [""; 0]);
    world.lock().machines = all;
    world.lock().cut = true;
    assert_eq!(unhealthy(&world).await, [""; 0], "nobody says anything of it");
    world.lock().cut = false;
    world.lock().silence("t-w1");
    world.lock().silence("t-w2");
    assert_eq!(unhealthy(&world).await, ["t-w1"], "one whose VM is stamped as somebody else's is left alone");
}

#[tokio::test(start_paused = true)]
async fn a_lost_worker_stays_for_its_controller() {
    let world = World::with(2).await;
    let mut kept = world.kept().await.unwrap();
    kept.pool.keeps_lost = true;
    world.keep(kept).await;
    world.lock().lose_vm("t-w1");
    let (arrived, status) = world.give(Goal::Continue).await.arrived();
    assert_eq!(codes(&arrived), ["workers.vm-gone"]);
    assert_eq!((status.workers.len(), status.workers[0].state, world.own().len()), (2, State::Running, 1));
    // Its controller removes it, and another one replaces it.
    let mut kept = world.kept().await.unwrap();
    let now = world.now();
    kept.machines[0].leave(now, crate::upgrade::Reason::new("workers.unhealthy", "it was not Ready for 300 s"));
    world.keep(kept).await;
    assert_eq!(world.give(Goal::Continue).await.done().available, 2);
    assert_eq!(world.own(), ["t-w2", "t-w3"]);
}

/// A snapshot of the storage was taken into its folder, and the worker itself was moved out of it.
#[tokio::test(start_paused = true)]
async fn a_stopped_copy_makes_no_worker_unhealthy() {
    let world = World::with(2).await;
    let id = world.lock().copy_vm("t-w1").reference.id.clone();
    let own = id.trim_end_matches("-copy").to_owned();
    world.lock().away.insert(own.clone());
    assert_eq!(unhealthy(&world).await, [""; 0]);
    let (arrived, status) = world.give(Goal::GoOn).await.arrived();
    assert_eq!((codes(&arrived), status.workers[0].state), (vec!["workers.vm-odd"], State::Running));
    assert_eq!(status.workers[0].power, Some(PowerState::Off), "it is not gone");
    // An unknown state is not unhealthy either, and the others are still read.
    world.set_fault(None);
    world.status().await.unwrap();
    let asked = world.lock().calls.iter().position(|(name, _)| *name == "with_bios_uuid");
    world.set_fault(Some((asked.expect("it is asked for copies") + 1, Fault::Fails)));
    let status = world.status().await.unwrap().unwrap();
    assert!(status.looked && status.workers.iter().all(|worker| !worker.unhealthy), "{status:?}");
    assert!(status.workers[1].available, "{status:?}");
    world.set_fault(None);
    // A VM that is off as well does not prove that a worker runs.
    world.lock().machines.iter_mut().filter(|machine| machine.vm.reference.id == own).for_each(|machine| {
        machine.vm.power = PowerState::Off;
    });
    assert_eq!(unhealthy(&world).await, ["t-w1"]);
}

/// A copy of it elsewhere may be on a host that does not answer: its own node decides.
#[tokio::test(start_paused = true)]
async fn a_copy_elsewhere_hides_no_unhealthy_worker() {
    let world = World::with(2).await;
    {
        let mut state = world.lock();
        let copy = state.copy_vm("t-w1");
        copy.power = PowerState::Unknown;
        let id = copy.reference.id.clone();
        state.away.insert(id);
        state.lose_power("t-w1");
    }
    world.set_fault(None);
    assert_eq!(unhealthy(&world).await, ["t-w1"]);
    assert!(world.lock().calls.iter().all(|(name, _)| *name != "with_bios_uuid"), "a look asks for it");
}
