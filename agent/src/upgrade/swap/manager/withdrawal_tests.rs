//! Requests during a withdrawal: another swap, the same withdrawal again, and maintenance. Programs are stand-ins; etcd's
//! members and the API answer over real TLS.

use std::sync::mpsc;
use std::thread;

use super::cuts::{Cluster, ID};
use super::tests::{Nothing, request};
use super::*;
use crate::cluster::records::Cordon;
use crate::host::command::{Command, Error};

/// How long a test waits for an immediate event.
const SOON: Duration = Duration::from_secs(10);

const NEXT: Uuid = Uuid::from_u128(4);

/// An API that refuses everything.
struct Refuses;

impl Runner for Refuses {
    fn run(&self, command: &Command) -> Result<Vec<u8>, Error> {
        Err(Error::Start { command: command.to_string(), source: std::io::Error::other("no answer") })
    }
}

fn swap(id: Uuid) -> Purpose {
    Purpose::Swap(request(id.as_u128()))
}

#[test]
fn no_preparation_begins_during_a_withdrawal() {
    let cluster = Cluster::new();
    let (rig, manager) = cluster.started(None);
    rig.kubernetes.on_drain(|| false);
    rig.prepare(&manager);
    assert_eq!(manager.state().map(|swap| swap.stage), Some(Stage::Failed));
    // The failed preparation could not uncordon the node.
    rig.context.records().begin_entry(&Cordon { swap: ID }).unwrap();
    let (asked, (tell, told)) = (manager.clone(), mpsc::channel());
    rig.kubernetes.on_uncordon(move || {
        for id in [NEXT, ID] {
            tell.send(asked.leave_if(swap(id), |_| panic!("{id} is judged"))).unwrap();
        }
    });
    assert_eq!(manager.cancel(ID, &rig.kubernetes), Ok(true));
    for refused in told.try_iter().collect::<Vec<_>>() {
        assert_eq!(refused.unwrap_err().code, "swap.another");
    }
    rig.goes_on_as_before(&manager, "withdrawn");
    rig.kubernetes.on_drain(|| true);
    rig.leave(&manager, swap(NEXT));
    // The former preparation's end does not forget the new one, or call it failed.
    manager.lock().forget(&rig.context, ID).unwrap();
    gave_up(&mut manager.lock(), &rig.context, ID, &not_open()).unwrap();
    let state = manager.state().unwrap();
    assert_eq!((state.id, state.stage, state.error), (NEXT, Stage::Prepared, None));
    assert_eq!(cluster.etcd.standing("node1").unwrap()["swap"], NEXT.to_string());
}

#[test]
fn second_withdrawal_waits_for_the_first() {
    let cluster = Cluster::new();
    let (rig, manager) = cluster.started(None);
    rig.prepare(&manager);
    rig.is_prepared(&manager, "at first");
    let (asked, (tell, told)) = (manager.clone(), mpsc::channel());
    let (seen, all) = mpsc::channel();
    rig.kubernetes.on_uncordon(move || {
        let (asked, tell) = (asked.clone(), tell.clone());
        // In a separate thread: otherwise a withdrawal that uncordons again would wait for the first one's lock.
        thread::spawn(move || tell.send(asked.cancel(ID, &Nothing)));
        seen.send(told.recv_timeout(SOON)).unwrap();
    });
    assert_eq!(manager.cancel(ID, &rig.kubernetes), Ok(true));
    assert_eq!(all.try_iter().collect::<Vec<_>>(), [Ok(Ok(false))]);
    assert_eq!(manager.cancel(ID, &rig.kubernetes), Ok(true), "nothing is left of it");
    rig.goes_on_as_before(&manager, "withdrawn");
    rig.leave(&manager, swap(NEXT));
    assert_eq!(manager.under_way(), Some(NEXT));
}

#[test]
fn failed_withdrawal_blocks_no_other_request() {
    let cluster = Cluster::new();
    let (rig, manager) = cluster.started(None);
    rig.prepare(&manager);
    let refused = manager.cancel(ID, &Refuses).unwrap_err();
    assert_eq!(refused.code, "swap.failed", "{refused}");
    assert_eq!(manager.state().map(|swap| swap.stage), Some(Stage::Failed));
    assert_eq!(manager.lock().repeated(&swap(NEXT)), Ok(None));
    assert_eq!(manager.cancel(ID, &rig.kubernetes), Ok(true));
    rig.goes_on_as_before(&manager, "withdrawn");
}

#[test]
fn maintenance_does_not_announce_an_undone_preparation() {
    let cluster = Cluster::new();
    let (rig, manager) = cluster.started(None);
    rig.prepare(&manager);
    assert_eq!(cluster.etcd.standing("node1").unwrap()["swap"], ID.to_string());
    manager.undo(&rig.context, &swap(ID), &rig.kubernetes).unwrap();
    // Maintenance has waited for the lock, and the withdrawn preparation is not forgotten yet.
    rig.maintain(&manager);
    let told = cluster.etcd.standing("node1").unwrap();
    assert!(told.get("swap").is_none(), "{told}");
    assert_eq!(manager.cancel(ID, &rig.kubernetes), Ok(true));
    rig.goes_on_as_before(&manager, "withdrawn");
}
