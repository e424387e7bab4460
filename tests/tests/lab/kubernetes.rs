//! Upgrades Kubernetes to the next minor version on the container engine, after an image swap, while a client writes.

use std::time::Duration;

use scenarios::earlier_ova;
use scenarios::scenario::{ALL, FORMING, MOMENT, Scenario, Setting};
use scenarios::upgrade::Upgrade;
use scenarios::writer::Writer;

/// The time for a node to yield, drain and restart its control plane.
const NODE: Duration = Duration::from_secs(300);

/// Parts that no upgrade may change: machine IDs, CAs, etcd's members.
fn kept(scenario: &Scenario) -> Vec<(String, Vec<String>)> {
    let files = "cat /etc/machine-id; sha256sum /etc/kubernetes/pki/*ca.crt /etc/kubernetes/pki/etcd/ca.crt";
    let of = |node: &str| {
        let vm = scenario.vm_of(node);
        (scenario.inside(&vm, &["sh", "-ec", files]), scenario.etcd_members(&vm))
    };
    ALL.into_iter().map(of).collect()
}

/// Whether a node is being upgraded to the next minor version. An error while it does not answer.
fn is_under_way(scenario: &Scenario, node: &str) -> anyhow::Result<bool> {
    let vm = scenario.vm_of(node);
    // Nothing is to be read there before the data disk is mounted.
    let look = "mountpoint -q /data && if test -e /data/kaas/kubernetes-upgrade.json; then echo yes; fi";
    Ok(scenario.lab().run_inside(&vm, &["sh", "-ec", look], MOMENT)?.contains("yes"))
}

pub mod long {
    use super::*;

    /// Upgrades from the former minor version, one node after the other. The upgrade is refused while its conditions do not hold. It
    /// continues after a power cut of a node and a killed command. No acknowledged write is lost.
    pub fn kubernetes_upgrade_loses_nothing() {
        let setting = Setting::three("minor");
        let scenario = Scenario::prepare_from(&setting, earlier_ova::source());
        scenario.power_on(&ALL);
        scenario.all_ready(FORMING);
        let upgrade = Upgrade::of(&scenario);
        let (before, kubernetes) = (kept(&scenario), upgrade.kubernetes());
        assert!(kubernetes.starts_with("v1.36."), "{kubernetes}");

        upgrade.run(&["apply", "--all-at-once"]);
        let swapped = upgrade.kubernetes();
        // The earlier image's Kubernetes reports an earlier patch of the same minor version.
        assert!(swapped.starts_with("v1.36.") && swapped != kubernetes, "a swap keeps the minor: {swapped}");
        let why = upgrade.fails(&["kubernetes"]);
        assert!(why.contains("upgrade.uncommitted") && why.contains("upgrade.swap-open"), "{why}");
        upgrade.run(&["commit"]);
        let why = upgrade.fails(&["kubernetes", "--to", "1.38"]);
        assert!(why.contains("upgrade.kubernetes-skew"), "{why}");
        let third = scenario.vm_of("cp3");
        scenario.inside(&third, &["systemctl", "stop", "etcd.service"]);
        let why = upgrade.fails(&["kubernetes"]);
        assert!(why.contains("upgrade.member-unhealthy") && why.contains("nothing was changed"), "{why}");
        scenario.inside(&third, &["systemctl", "start", "etcd.service"]);
        scenario.wait("nothing to be in the way", NODE, || {
            Ok(upgrade.command(&["kubernetes", "--dry-run"]).output()?.status.success())
        });

        let writer = Writer::start(&scenario);
        let mut command = upgrade.begin(&["kubernetes"]);
        let first = scenario.obtain("a node to begin", NODE, || {
            Ok(ALL.into_iter().find(|node| is_under_way(&scenario, node).unwrap_or(false)))
        });
        let vm = scenario.vm_of(first);
        scenario.cut(&vm);
        scenario.reached(&format!("{first} lost its power on the way"));
        command.kill().unwrap();
        command.wait().unwrap();
        scenario.power_on(&[&vm]);
        scenario.wait(&format!("{first} to go on by itself"), NODE, || Ok(!is_under_way(&scenario, first)?));
        scenario.says(&vm, "kaas: ready", FORMING);
        // The lock of the killed command ends by itself.
        scenario.wait("the lock to end", MOMENT * 2, || {
            Ok(upgrade.command(&["kubernetes", "--dry-run"]).output()?.status.success())
        });
        upgrade.run(&["kubernetes"]);
        scenario.reached(&format!("while Kubernetes went to the next minor: {}", writer.end()));
        let now = upgrade.kubernetes();
        assert!(now.starts_with("v1.37."), "{now}");
        assert_eq!(kept(&scenario), before);
        scenario.kubectl(&["-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=180s"]);

        let vm = scenario.vm_of("cp2");
        scenario.cut(&vm);
        scenario.power_on(&[&vm]);
        scenario.says(&vm, "kaas: ready", FORMING);
        assert_eq!(upgrade.kubernetes(), now);
    }
}
