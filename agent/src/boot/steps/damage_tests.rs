//! Nodes that a power cut has left with damaged files: what can be made again is, and what cannot is named.

use std::fs;
use std::path::PathBuf;

use super::cuts::{Machine, in_a_namespace, take};
use super::{StepContext, StepError};
use crate::boot::plan::Step;
use crate::cluster::kubernetes::{containerd, kubelet};
use crate::host::fake_systemd::FakeSystemd;
use crate::host::files;
use crate::intake::config::fixture::one_node;

/// What containerd cannot start with.
fn damage_containerd(machine: &Machine, systemd: &FakeSystemd) -> PathBuf {
    let database = files::below(machine.root(), "/var/lib/containerd/io.containerd.metadata.v1.bolt/meta.db");
    files::write_atomically(&database, b"damaged", 0o644).unwrap();
    systemd.end_at_each_start(containerd::UNIT, &database);
    database
}

/// What a step refuses to go on for.
fn refusal(context: &mut StepContext, step: &Step) -> String {
    match context.run(step) {
        Err(StepError::Refused(findings)) => findings.to_string(),
        other => panic!("{step}: {other:?}"),
    }
}

#[test]
fn a_damaged_containerd_starts_over_once() {
    in_a_namespace("runtime", || {
        let machine = Machine::new(one_node());
        let systemd = FakeSystemd::new(machine.root());
        let mut context = machine.decide_with(&systemd).unwrap();
        let database = damage_containerd(&machine, &systemd);
        let waits = take(&mut context, &Step::Runtime).unwrap_err().to_string();
        assert!(waits.contains("starts without what it kept"), "{waits}");
        assert!(!database.exists() && !files::below(machine.root(), containerd::DAMAGED).exists());
        take(&mut context, &Step::Runtime).unwrap();
        let told = containerd::recreated(machine.root()).unwrap();
        assert_eq!(told.code, "runtime.recreated");

        // It does not help: no second time until the next power-on.
        damage_containerd(&machine, &systemd);
        let refused = refusal(&mut context, &Step::Runtime);
        assert!(refused.contains("runtime.failed") && database.exists(), "{refused}");
        let mut context = machine.decide_with(&systemd).unwrap();
        take(&mut context, &Step::Runtime).unwrap_err();
        assert!(!database.exists());
    });
}

#[test]
fn what_containerd_keeps_stays_while_pods_may_run() {
    in_a_namespace("pods", || {
        let machine = Machine::new(one_node());
        let systemd = FakeSystemd::new(machine.root());
        let mut context = machine.decide_with(&systemd).unwrap();
        files::write_atomically(&files::below(machine.root(), kubelet::CONFIGURATION), b"", 0o644).unwrap();
        let database = damage_containerd(&machine, &systemd);
        let refused = refusal(&mut context, &Step::Runtime);
        assert!(refused.contains("runtime.failed") && refused.contains("Restart the VM"), "{refused}");
        assert!(database.exists());
    });
}

#[test]
fn a_removal_that_was_cut_off_is_done_again() {
    in_a_namespace("removal", || {
        let machine = Machine::new(one_node());
        let mut context = machine.decide().unwrap();
        let left = files::below(machine.root(), containerd::DAMAGED);
        fs::create_dir_all(left.join("io.containerd.content.v1.content")).unwrap();
        take(&mut context, &Step::Runtime).unwrap();
        assert!(!left.exists());
    });
}
