//! Nodes with files that a power cut has damaged: files that can be created again are, and others are reported.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use contract::image;
use contract::payload::{Descriptor, IMAGE_NAME, Index};

use super::cuts::{IMAGES, Machine, in_a_namespace, member, steps, take};
use super::{StepContext, StepError};
use crate::boot::plan::Step;
use crate::cluster::addons;
use crate::cluster::etcd;
use crate::cluster::kubernetes::{containerd, kubeadm, kubelet};
use crate::cluster::payload;
use crate::host::fake_systemd::FakeSystemd;
use crate::host::files;
use crate::host::services::FAILED_STARTS;
use crate::intake::config::fixture::one_node;

/// Damages containerd's database so that it cannot start.
fn damage_containerd(machine: &Machine, systemd: &FakeSystemd) -> PathBuf {
    let database = files::below(machine.root(), "/var/lib/containerd/io.containerd.metadata.v1.bolt/meta.db");
    files::write_atomically(&database, b"damaged", 0o644).unwrap();
    systemd.end_at_each_start(containerd::UNIT, &database);
    database
}

/// Starts the kubelet: from then on pods may run.
fn begin_pods(machine: &Machine) {
    files::write_atomically(&files::below(machine.root(), kubelet::CONFIGURATION), b"", 0o644).unwrap();
}

/// The findings that a step is refused with.
fn refusal(context: &mut StepContext, step: &Step) -> String {
    match context.run(step) {
        Err(StepError::Refused(findings)) => findings.to_string(),
        other => panic!("{step}: {other:?}"),
    }
}

#[test]
fn damaged_containerd_is_recreated_once() {
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

        // It does not help, and is not done again until the next power-on.
        damage_containerd(&machine, &systemd);
        let refused = refusal(&mut context, &Step::Runtime);
        assert!(refused.contains("runtime.failed") && database.exists(), "{refused}");
        let mut context = machine.decide_with(&systemd).unwrap();
        take(&mut context, &Step::Runtime).unwrap_err();
        assert!(!database.exists());
    });
}

/// Gives a machine a payload whose index has all images of a node. Returns the output of `ctr images check` after
/// containerd has loaded them.
fn lay_images(machine: &Machine, context: &StepContext) -> String {
    let node = &context.node;
    let version = format!("v{}", node.kubernetes_version().unwrap());
    let mut names: Vec<String> = kubeadm::COMPONENTS.iter().map(|name| image::reference(name, &version)).collect();
    names.push(image::reference("pause", &format!("v{}", node.image.pause)));
    let parts = addons::images(node.control_plane().unwrap(), &node.image);
    names.extend(parts.iter().map(|part| image::reference(part, "v1")));
    let digest = format!("sha256:{}", "0".repeat(64));
    let descriptor = |name: &String| Descriptor {
        media_type: String::new(),
        digest: digest.clone(),
        size: 1,
        platform: None,
        annotations: [(IMAGE_NAME.to_owned(), name.clone())].into(),
    };
    let index = Index { schema_version: 2, media_type: None, manifests: names.iter().map(descriptor).collect() };
    let path = machine.root().join(payload::DIRECTORY).join("index.json");
    files::write_atomically(&path, &serde_json::to_vec(&index).unwrap(), 0o644).unwrap();
    names.extend(parts.iter().map(|part| image::reference(part, image::CARRIED)));
    names.iter().map(|name| format!("{name} type {digest} complete (1/1) 1 B/1 B true\n")).collect()
}

/// As with a damaged snapshot database, which containerd opens at the first request.
#[test]
fn containerd_that_loads_no_images_is_recreated() {
    in_a_namespace("images", || {
        let machine = Machine::new(one_node());
        let mut context = machine.decide().unwrap();
        let (images, printed) = (lay_images(&machine, &context), machine.root().join(IMAGES));
        let database = "/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/metadata.db";
        let database = files::below(machine.root(), database);
        let fail = |context: &mut StepContext, times: u32| {
            for _ in 0..times {
                let failed = context.run(&Step::Images);
                assert!(matches!(failed, Err(StepError::Failed(_))), "{failed:?}");
            }
        };
        let damage = || files::write_atomically(&database, b"damaged", 0o600).unwrap();
        damage();
        fail(&mut context, FAILED_STARTS - 1);
        fs::write(&printed, images).unwrap();
        take(&mut context, &Step::Images).unwrap();
        fs::remove_file(&printed).unwrap();
        fail(&mut context, FAILED_STARTS);
        assert!(database.exists(), "a success does not reset the count");
        let waits = take(&mut context, &Step::Images).unwrap_err().to_string();
        assert!(waits.contains("starts without what it kept"), "{waits}");
        assert!(!database.exists());

        // Pods may run, because containerd serves them.
        begin_pods(&machine);
        damage();
        fail(&mut context, FAILED_STARTS + 1);
        assert!(database.exists());
    });
}

#[test]
fn containerd_data_stay_while_pods_may_run() {
    in_a_namespace("pods", || {
        let mut machine = Machine::new(one_node());
        machine.broken = Some("ctr plugins list");
        let systemd = FakeSystemd::new(machine.root());
        let mut context = machine.decide_with(&systemd).unwrap();
        begin_pods(&machine);
        let database = damage_containerd(&machine, &systemd);
        let refused = refusal(&mut context, &Step::Runtime);
        assert!(refused.contains("runtime.failed") && refused.contains("Restart the VM"), "{refused}");
        assert!(database.exists());
    });
}

/// systemd counts failures since the last manual start of a unit: these may be months apart.
#[test]
fn containerd_that_serves_pods_has_not_failed() {
    in_a_namespace("serves", || {
        let machine = Machine::new(one_node());
        let systemd = FakeSystemd::new(machine.root());
        let mut context = machine.decide_with(&systemd).unwrap();
        begin_pods(&machine);
        fs::remove_file(damage_containerd(&machine, &systemd)).unwrap();
        take(&mut context, &Step::Runtime).unwrap();
    });
}

#[test]
fn interrupted_removal_is_completed() {
    in_a_namespace("removal", || {
        let machine = Machine::new(one_node());
        let mut context = machine.decide().unwrap();
        let left = files::below(machine.root(), containerd::DAMAGED);
        fs::create_dir_all(left.join("io.containerd.content.v1.content")).unwrap();
        take(&mut context, &Step::Runtime).unwrap();
        assert!(!left.exists());
    });
}

#[test]
fn damaged_member_is_reported_with_its_command() {
    let without_a_quorum = "If no quorum is left, restore a snapshot (docs: Restore after the quorum was lost)";
    for (name, is_alone, commands) in [
        ("damaged", false, ["On another control-plane node: `kaas-agent replace-member node1`", without_a_quorum]),
        ("alone", true, ["`kaas-agent snapshot list`", "`kaas-agent restore FILE --confirm lab --alone`"]),
    ] {
        in_a_namespace(name, move || {
            let machine = if is_alone { Machine::new(one_node()) } else { member().0 };
            if is_alone {
                machine.boot().unwrap();
            }
            let systemd = FakeSystemd::new(machine.root());
            let mut context = machine.decide_with(&systemd).unwrap();
            let is_etcd = |step: &Step| matches!(step, Step::Etcd);
            let all = steps(&context);
            let until = all.iter().position(is_etcd).unwrap();
            for step in &all[..until] {
                take(&mut context, step).unwrap();
            }
            let data = files::below(machine.root(), etcd::DATA).join("member");
            systemd.end_at_each_start(etcd::UNIT, &data);
            take(&mut context, &Step::Etcd).unwrap();
            machine.healthy.store(false, Ordering::SeqCst);
            let refused = refusal(&mut context, &Step::Etcd);
            assert!(refused.contains("etcd.damaged"), "{refused}");
            assert!(commands.iter().all(|command| refused.contains(command)), "{refused}");
        });
    }
}

#[test]
fn restarted_node_reports_differing_member_data() {
    in_a_namespace("corrupt", || {
        let machine = Machine::new(one_node());
        machine.boot().unwrap();
        let mut context = machine.decide().unwrap();
        let all = steps(&context);
        let until = all.iter().position(|step| matches!(step, Step::Etcd)).unwrap();
        for step in &all[..until] {
            take(&mut context, step).unwrap();
        }
        machine.healthy.store(false, Ordering::SeqCst);
        machine.etcd.raise(0, etcd::upkeep::CORRUPT);
        let refused = refusal(&mut context, &Step::Etcd);
        assert!(refused.contains("etcd.corrupt") && refused.contains("`kaas-agent restore`"), "{refused}");
    });
}
