//! Nodes whose boot waits: the maintenance that runs in the meantime, and the tasks that do not.

use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use super::ClockWatch;
use super::control_plane::UNREGISTERED;
use super::cuts::{Machine, in_a_namespace, steps, take};
use crate::boot::plan::Step;
use crate::boot::run;
use crate::cluster::etcd::{guard, snapshot};
use crate::host::files;
use crate::host::fixture::{SmallFileSystem, eventually, small_file_system};
use crate::intake::config::fixture::one_node;
use crate::maintenance::{Maintenance, Prerequisite};

/// Gives the data disk little room, and snapshots of three days.
fn fill(machine: &Machine) -> SmallFileSystem {
    let disk = small_file_system(&machine.root().join("data"));
    fs::create_dir_all(machine.root().join("data/kaas")).unwrap();
    fs::create_dir(snapshot::directory(machine.root())).unwrap();
    plant(machine.root(), 10..13);
    disk
}

/// Creates snapshots of these days of a month.
fn plant(root: &Path, days: Range<u32>) {
    for day in days {
        fs::write(snapshot::directory(root).join(format!("c-202001{day}T000000Z.db")), "").unwrap();
    }
}

/// The days of the remaining snapshots.
fn planted(root: &Path) -> Vec<String> {
    snapshot::list(root, SystemTime::now()).unwrap().iter().map(|one| one.taken[8..10].to_owned()).collect()
}

#[test]
fn full_data_disk_has_room_before_etcd_starts() {
    in_a_namespace("room", || {
        let machine = Machine::new(one_node());
        let _disk = fill(&machine);
        machine.boot().unwrap();
        assert_eq!(planted(machine.root()), ["12"], "the newest one stays, and no other");
    });
}

#[test]
fn etcd_does_not_start_during_a_restore() {
    in_a_namespace("restoring", || {
        let machine = Machine::new(one_node());
        let lock = guard::lock(machine.root()).unwrap();
        let waits = machine.boot().map(|(goal, _)| goal).unwrap_err().to_string();
        assert!(waits.contains("waiting for the end of a restore"), "{waits}");
        assert!(!files::below(machine.root(), "/var/lib/etcd/member").exists());
        drop(lock);
        // A program that another test starts holds the lock between fork and exec.
        eventually("etcd's start", || machine.boot().is_ok());
    });
}

#[test]
fn maintenance_runs_while_the_node_is_unready() {
    in_a_namespace("unready", || {
        let machine = Machine::new(one_node());
        let _disk = fill(&machine);
        machine.ready.store(false, Ordering::SeqCst);
        let (root, ready) = (machine.root().to_owned(), Arc::clone(&machine.ready));
        // Kubernetes reports the node as ready after that was seen.
        let watching = thread::spawn(move || {
            eventually("room", || planted(&root) == ["12"]);
            plant(&root, 20..23);
            eventually("room while the node waits", || planted(&root) == ["22"]);
            ready.store(true, Ordering::SeqCst);
        });
        let mut context = machine.decide().unwrap();
        let (mut maintenance, reporter) = (Maintenance::default(), context.node.reporter.clone());
        maintenance.begin(context.node.config.role(), Prerequisite::DataDisk, Instant::now());
        let steps = steps(&context);
        run::run_steps(&mut context, &steps, &mut maintenance, &reporter);
        watching.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        assert!(maintenance.has_begun("etcd") && maintenance.has_begun("snapshots of etcd"));
        assert!(!maintenance.has_begun("the add-ons"), "that needs a node that works");
    });
}

/// The kubelet registers only at its start.
#[test]
fn deleted_node_is_registered_again_during_the_boot() {
    in_a_namespace("deleted", || {
        let machine = Machine::new(one_node());
        let mut context = machine.decide().unwrap();
        let all = steps(&context);
        let waits = all.iter().position(|step| *step == Step::NodeReady).unwrap();
        for step in &all[..waits] {
            take(&mut context, step).unwrap();
        }
        machine.registered.store(false, Ordering::SeqCst);
        for _ in 0..UNREGISTERED {
            let waits = take(&mut context, &Step::NodeReady).unwrap_err().to_string();
            assert!(waits.contains("not registered yet"), "{waits}");
        }
        take(&mut context, &Step::NodeReady).unwrap();
    });
}

/// How far the test's clock is ahead, in seconds.
static AHEAD: AtomicU64 = AtomicU64::new(0);

fn clock() -> (SystemTime, Instant) {
    let ahead = Duration::from_secs(AHEAD.load(Ordering::SeqCst));
    (SystemTime::now() + ahead, Instant::now())
}

#[test]
fn clock_change_is_detected_in_both_directions() {
    static STEP: AtomicU64 = AtomicU64::new(0);
    let mut clock = ClockWatch::new(|| {
        let step = Duration::from_secs(STEP.load(Ordering::SeqCst));
        (SystemTime::now() + step, Instant::now())
    });
    for (ahead, was_set) in [(0, false), (40, false), (400, true), (400, false), (0, true), (0, false)] {
        STEP.store(ahead, Ordering::SeqCst);
        assert_eq!(clock.was_set(), was_set, "{ahead} s ahead");
    }
}

/// Three nodes that boot with a clock that is ahead would otherwise wait for each other forever.
#[test]
fn waiting_node_renews_certificates_after_clock_change() {
    in_a_namespace("clock", || {
        let machine = Machine::new(one_node());
        machine.ready.store(false, Ordering::SeqCst);
        let (root, ready) = (machine.root().to_owned(), Arc::clone(&machine.ready));
        let mut context = machine.decide().unwrap();
        context.clock = ClockWatch::new(clock);
        let reporter = context.node.reporter.clone();
        let waiting = reporter.clone();
        let watching = thread::spawn(move || {
            let is_waiting =
                || waiting.status().work.is_some_and(|work| work.waiting.is_some() && work.step.contains("ready"));
            eventually("a node that waits", is_waiting);
            let made = ["/etc/kubernetes/pki/etcd/peer.crt", "/etc/kubernetes/scheduler.conf"];
            let made = made.map(|path| files::below(&root, path));
            for path in &made {
                fs::remove_file(path).unwrap();
            }
            AHEAD.store(3600, Ordering::SeqCst);
            eventually("its certificates", || made.iter().all(|path| path.exists()));
            ready.store(true, Ordering::SeqCst);
        });
        let steps = steps(&context);
        run::run_steps(&mut context, &steps, &mut Maintenance::default(), &reporter);
        watching.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}
