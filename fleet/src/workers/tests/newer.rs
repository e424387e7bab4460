//! VMs that are newer than the record of their pool.

use uuid::Uuid;

use super::fake::{DEPLOYMENT, World, pool, vm};
use super::stories::codes;
use crate::hypervisor::{PowerState, Stamp, Vm};
use crate::workers::{Goal, Inventory, Pool, RunOutcome, State, Wait, WorkerRecord, next};

fn machine(number: u64) -> WorkerRecord {
    let id = Uuid::from_u128(number.into());
    let pool = Pool { last_index: number, ..pool(3) };
    WorkerRecord {
        allocated_uuid: Some(id),
        bios_uuid: Some(id),
        state: State::Running,
        ..WorkerRecord::new(&pool, id, None, 0)
    }
}

/// A VM that is stamped as a Machine's, of this BIOS UUID.
fn vm_of(machine: &WorkerRecord, uuid: u128) -> Vm {
    Vm { power: PowerState::On, ..vm(&machine.name, Uuid::from_u128(uuid), Some(machine.stamp(DEPLOYMENT))) }
}

fn newer(machines: &[WorkerRecord], vms: Vec<Vm>) -> Vec<u128> {
    let seen = Inventory { vms, ..Inventory::default() };
    seen.newer(machines).into_iter().map(|vm| vm.uuid().as_u128()).collect()
}

#[test]
fn the_vm_of_an_unknown_worker_is_newer() {
    let (first, second) = (machine(1), machine(2));
    let vms = || vec![vm_of(&first, 1), vm_of(&second, 2)];
    assert_eq!(newer(&[first.clone(), second.clone()], vms()), [0; 0]);
    assert_eq!(newer(std::slice::from_ref(&first), vms()), [2]);
    let off = Vm { power: PowerState::Off, ..vm_of(&second, 2) };
    assert_eq!(newer(std::slice::from_ref(&first), vec![off]), [2], "its worker may be shut down");
    // A name that was given again since.
    let again = WorkerRecord { name: second.name.clone(), ..machine(7) };
    assert_eq!(newer(&[first.clone(), again], vms()), [2]);
    let copy = vm_of(&second, 9);
    assert_eq!(newer(&[first.clone(), second.clone()], [vms(), vec![copy]].concat()), [0; 0], "a copy is no newer one");
    let stamp = Stamp { deployment: DEPLOYMENT, node: "other".to_owned(), swap: None };
    let restamped = Vm { stamp: Some(stamp), ..vm_of(&second, 2) };
    assert_eq!(newer(&[first, second], vec![restamped]), [0; 0], "that is another thing to see to");
}

/// Such a VM would be taken for incomplete, and created again.
#[test]
fn a_begun_vm_that_is_on_is_newer() {
    let begun = WorkerRecord { bios_uuid: None, state: State::Provisioning, ..machine(1) };
    let on = vm_of(&begun, 1);
    assert_eq!(newer(std::slice::from_ref(&begun), vec![Vm { power: PowerState::Off, ..on.clone() }]), [0; 0]);
    assert_eq!(newer(std::slice::from_ref(&begun), vec![on.clone()]), [1]);
    let with = |power| vec![Vm { power, ..on.clone() }];
    assert_eq!(newer(std::slice::from_ref(&begun), with(PowerState::Suspended)), [1]);
    assert_eq!(newer(std::slice::from_ref(&begun), with(PowerState::Unknown)), [0; 0], "its host does not answer");
    let unknown = Inventory { vms: with(PowerState::Unknown), ..Inventory::default() };
    let next = next(&pool(1), std::slice::from_ref(&begun), &unknown);
    assert!(next.actions.is_empty(), "it may be on: {next:?}");
    let says = |wait: &Wait| ["remove the worker", "at most 2 VMs"].iter().all(|it| wait.reason.words.contains(it));
    let is_told = |wait: &Wait| wait.lasting && says(wait);
    assert!(next.waits.iter().any(is_told), "nobody else sees to it: {next:?}");
    let whole = WorkerRecord { bios_uuid: begun.allocated_uuid, ..begun };
    assert_eq!(newer(&[whole], vec![on]), [0; 0], "it was powered on, and that was not noted");
}

/// An earlier inventory does not show what exists when an action runs.
#[tokio::test(start_paused = true)]
async fn an_older_record_stops_all_actions() {
    let world = World::with(1).await;
    world.lock().leave_vm("t-w2");
    world.lock().restorable = true;
    let (arrived, status) = world.give(Goal::Add(1)).await.arrived();
    assert!(matches!(arrived, RunOutcome::Paused(_)), "{arrived:?}");
    assert_eq!((codes(&arrived), status.available), (vec!["workers.vm-newer"], 1));
    assert_eq!(world.own(), ["t-w1", "t-w2"]);
}
