//! Plans for the states that a node can have at power-on.

use std::path::PathBuf;

use contract::role::Role;

use super::*;
use crate::intake::config::fixture::{image, in_a_tenant, joined, one_node, three_nodes, worker};

fn decide(config: &ControlPlane, observed: &Observed) -> Result<Plan, Finding> {
    super::decide(&Config::ControlPlane(config.clone()), observed)
}

fn first_boot() -> Observed {
    Observed {
        image: image(),
        storage: NodeStorage::DataDisk(Disk::Fresh(PathBuf::from("/dev/sdb"))),
        progress: Progress::default(),
        rendezvous_closed: false,
        upgrading: None,
        volumes: None,
    }
}

fn resumed() -> Observed {
    Observed {
        storage: NodeStorage::DataDisk(Disk::Ours(PathBuf::from("/dev/sdb"))),
        progress: Progress { etcd: true, credentials: true, formed: true },
        rendezvous_closed: true,
        ..first_boot()
    }
}

#[test]
fn the_first_boot() {
    insta::assert_snapshot!(serde_json::to_string_pretty(&decide(&three_nodes(), &first_boot()).unwrap()).unwrap());
}

#[test]
fn a_later_boot() {
    insta::assert_snapshot!(serde_json::to_string_pretty(&decide(&three_nodes(), &resumed()).unwrap()).unwrap());
}

#[test]
fn formed_node_neither_forms_nor_prepares_a_disk() {
    let plan = decide(&three_nodes(), &resumed()).unwrap();
    assert_eq!(plan.goal, Goal::Resume);
    let forming = [Step::SaveConfiguration, Step::Meet, Step::Register, Step::Complete, Step::Finish];
    assert!(plan.steps.iter().all(|step| !forming.contains(step) && !matches!(step, Step::PrepareDataDisk { .. })));
}

#[test]
fn upgrade_ends_with_the_configured_new_version() {
    let upgrading = |to: &str| Observed { upgrading: Some(to.into()), ..resumed() };
    let ended = decide(&three_nodes(), &upgrading("1.36")).unwrap();
    assert!(ended.upgrades());
    assert_eq!(ended.steps.last(), Some(&Step::EndUpgrade { version: "1.36.3".into() }));
    // If the upgrade was interrupted before that, the node keeps its minor version.
    let mut before = three_nodes();
    before.cluster.kubernetes_minor = "1.35".into();
    let plan = decide(&before, &upgrading("1.36")).unwrap();
    assert!(
        !plan.upgrades() && plan.steps.contains(&Step::Programs { minor: "1.35".into(), version: "1.35.4".into() })
    );
}

#[test]
fn node_without_virtual_ip_runs_no_vrrp() {
    let plan = decide(&one_node(), &first_boot()).unwrap();
    assert!(!plan.steps.contains(&Step::VirtualAddress));
}

#[test]
fn interrupted_forming_does_not_prepare_the_disk_again() {
    let mut begun = decide(&three_nodes(), &first_boot()).unwrap();
    begun.steps.retain(|step| !matches!(step, Step::PrepareDataDisk { .. }));
    for progress in [
        Progress::default(),
        Progress { etcd: true, ..Progress::default() },
        Progress { etcd: true, credentials: true, formed: false },
    ] {
        let keeping = NodeStorage::DataDisk(Disk::Ours(PathBuf::from("/dev/sdb")));
        let again = decide(&three_nodes(), &Observed { storage: keeping, progress, ..first_boot() }).unwrap();
        assert_eq!(again.steps, begun.steps);
    }
}

#[test]
fn image_without_the_clusters_kubernetes_is_refused() {
    let mut config = three_nodes();
    config.cluster.kubernetes_minor = "1.34".into();
    let finding = decide(&config, &resumed()).unwrap_err();
    assert_eq!(finding.code, "kubernetes.not-in-image");
    assert!(finding.seen.contains("1.34") && finding.seen.contains("1.36 and 1.35"), "{finding}");
}

#[test]
fn disk_of_another_role_is_refused() {
    let config = in_a_tenant(three_nodes());
    let finding = decide(&config, &resumed()).unwrap_err();
    assert_eq!(finding.code, "role.other");
    assert!(finding.seen.contains("a node of the control cluster") && finding.seen.contains("tenant"), "{finding}");
}

#[test]
fn tenant_and_control_cluster_nodes_boot_alike() {
    let config = in_a_tenant(three_nodes());
    for mut observed in [first_boot(), resumed()] {
        let expected = decide(&three_nodes(), &observed).unwrap();
        observed.image.roles = Role::TenantControlPlane.into();
        assert_eq!(decide(&config, &observed).unwrap(), expected);
    }
}

/// The input of a worker at power-on.
fn of_worker(joined: bool) -> Observed {
    let mut image = image();
    image.roles = Role::Worker.into();
    let progress = Progress { formed: joined, ..Progress::default() };
    Observed { image, storage: NodeStorage::Scratch, progress, ..first_boot() }
}

#[test]
fn the_first_boot_of_a_worker() {
    let plan = super::decide(&Config::Worker(worker()), &of_worker(false)).unwrap();
    insta::assert_snapshot!(serde_json::to_string_pretty(&plan).unwrap());
}

#[test]
fn joined_worker_runs_no_control_plane_step() {
    let plan = super::decide(&Config::Worker(joined()), &of_worker(true)).unwrap();
    assert_eq!((plan.goal, plan.data_disk()), (Goal::Resume, None));
    let of_control_nodes =
        [Step::Meet, Step::Etcd, Step::Manifests, Step::VirtualAddress, Step::Register, Step::Finish];
    assert!(plan.steps.iter().all(|step| !of_control_nodes.contains(step)));
    assert!(plan.steps.contains(&Step::Join), "whether it still belongs to its cluster is looked at");
    assert!(!plan.steps.contains(&Step::SaveConfiguration));
    let place = |wanted: &Step| plan.steps.iter().rposition(|step| step == wanted).unwrap();
    assert!(place(&Step::Join) < place(&Step::Firewall), "what the cluster has said counts at once");
}

#[test]
fn worker_mounts_volumes_between_join_and_pods() {
    for (joined, config) in [(false, worker()), (true, joined())] {
        for disk in [Disk::Fresh("/dev/sdb".into()), Disk::Ours("/dev/sdb".into())] {
            let without = super::decide(&Config::Worker(config.clone()), &of_worker(joined)).unwrap();
            let observed = Observed { volumes: Some(disk), ..of_worker(joined) };
            let mut plan = super::decide(&Config::Worker(config.clone()), &observed).unwrap();
            assert_eq!((plan.data_disk(), plan.volumes_disk()), (None, Some(Path::new("/dev/sdb"))));
            let place = |wanted: &Step| plan.steps.iter().position(|step| step == wanted).unwrap();
            let mounts = Step::LocalVolumes { disk: "/dev/sdb".into() };
            assert!(place(&Step::Join) < place(&mounts) && place(&mounts) < place(&Step::Runtime));
            plan.steps.retain(|step| *step != mounts);
            assert_eq!(plan.steps, without.steps, "nothing else differs");
        }
    }
}

#[test]
fn data_disk_is_for_control_plane_nodes_only() {
    let disk = NodeStorage::DataDisk(Disk::Ours(PathBuf::from("/dev/sdb")));
    let finding =
        super::decide(&Config::Worker(worker()), &Observed { storage: disk, ..of_worker(false) }).unwrap_err();
    assert_eq!(finding.code, "disk.beside-worker");
    let finding = decide(&three_nodes(), &Observed { storage: NodeStorage::Scratch, ..first_boot() }).unwrap_err();
    assert_eq!(finding.code, "disk.absent");
}

#[test]
fn worker_image_without_clusters_kubernetes_is_refused() {
    let mut config = joined();
    config.cluster.learned.as_mut().unwrap().kubernetes_minor = "1.30".to_owned();
    let finding = super::decide(&Config::Worker(config), &of_worker(true)).unwrap_err();
    assert_eq!(finding.code, "kubernetes.not-in-image");
}
