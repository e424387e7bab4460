//! Plans for what can be found at power-on.

use std::path::PathBuf;

use contract::role::Role;

use super::*;
use crate::intake::config::fixture::{image, in_a_tenant, one_node, three_nodes};

fn decide(config: &ControlPlane, observed: &Observed) -> Result<Plan, Finding> {
    super::decide(&Config::ControlPlane(config.clone()), observed)
}

fn first_boot() -> Observed {
    Observed {
        image: image(),
        disk: Disk::Fresh(PathBuf::from("/dev/sdb")),
        progress: Progress::default(),
        rendezvous_closed: false,
        upgrading: None,
    }
}

fn resumed() -> Observed {
    Observed {
        disk: Disk::Ours(PathBuf::from("/dev/sdb")),
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
fn a_formed_node_never_forms_nor_prepares_a_disk() {
    let plan = decide(&three_nodes(), &resumed()).unwrap();
    assert_eq!(plan.goal, Goal::Resume);
    let forming = [Step::SaveConfiguration, Step::Meet, Step::Register, Step::Complete, Step::Finish];
    assert!(plan.steps.iter().all(|step| !forming.contains(step) && !matches!(step, Step::PrepareDataDisk { .. })));
}

#[test]
fn an_upgrade_of_kubernetes_ends_once_the_configuration_names_the_new_minor() {
    let upgrading = |to: &str| Observed { upgrading: Some(to.into()), ..resumed() };
    let ended = decide(&three_nodes(), &upgrading("1.36")).unwrap();
    assert!(ended.upgrades());
    assert_eq!(ended.steps.last(), Some(&Step::EndUpgrade { version: "1.36.3".into() }));
    // Cut off before that: the node goes on with the minor that it has.
    let mut before = three_nodes();
    before.cluster.kubernetes_minor = "1.35".into();
    let plan = decide(&before, &upgrading("1.36")).unwrap();
    assert!(
        !plan.upgrades() && plan.steps.contains(&Step::Programs { minor: "1.35".into(), version: "1.35.4".into() })
    );
}

#[test]
fn one_node_without_a_virtual_address_runs_no_vrrp() {
    let plan = decide(&one_node(), &first_boot()).unwrap();
    assert!(!plan.steps.contains(&Step::VirtualAddress));
}

#[test]
fn a_cut_while_forming_decides_the_same_without_preparing_the_disk_again() {
    let mut begun = decide(&three_nodes(), &first_boot()).unwrap();
    begun.steps.retain(|step| !matches!(step, Step::PrepareDataDisk { .. }));
    for progress in [
        Progress::default(),
        Progress { etcd: true, ..Progress::default() },
        Progress { etcd: true, credentials: true, formed: false },
    ] {
        let disk = Disk::Ours(PathBuf::from("/dev/sdb"));
        let again = decide(&three_nodes(), &Observed { disk, progress, ..first_boot() }).unwrap();
        assert_eq!(again.steps, begun.steps);
    }
}

#[test]
fn an_image_without_the_clusters_minor_is_refused() {
    let mut config = three_nodes();
    config.cluster.kubernetes_minor = "1.34".into();
    let finding = decide(&config, &resumed()).unwrap_err();
    assert_eq!(finding.code, "kubernetes.not-in-image");
    assert!(finding.seen.contains("1.34") && finding.seen.contains("1.36 and 1.35"), "{finding}");
}

#[test]
fn a_disk_of_another_role_is_refused() {
    let config = in_a_tenant(three_nodes());
    let finding = decide(&config, &resumed()).unwrap_err();
    assert_eq!(finding.code, "role.other");
    assert!(finding.seen.contains("a node of the control cluster") && finding.seen.contains("tenant"), "{finding}");
}

#[test]
fn tenant_control_nodes_boot_as_those_of_the_control_cluster_do() {
    let config = in_a_tenant(three_nodes());
    for mut observed in [first_boot(), resumed()] {
        let expected = decide(&three_nodes(), &observed).unwrap();
        observed.image.roles = Role::TenantControlPlane.into();
        assert_eq!(decide(&config, &observed).unwrap(), expected);
    }
}
