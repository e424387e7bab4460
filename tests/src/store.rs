//! etcd's members, asked and told from inside a node.

use serde_json::Value;

use crate::scenario::{ALL, MOMENT, Scenario};

/// etcdctl with a node's credentials for its own member.
pub const ETCDCTL: [&str; 7] = [
    "etcdctl",
    "--endpoints=https://127.0.0.1:2379",
    // A busy machine under emulation takes its time.
    "--dial-timeout=60s",
    "--command-timeout=60s",
    "--cacert=/etc/kubernetes/pki/etcd/ca.crt",
    "--cert=/etc/kubernetes/pki/apiserver-etcd-client.crt",
    "--key=/etc/kubernetes/pki/apiserver-etcd-client.key",
];

/// Prints, in a node's shell, what of its files it must keep through any swap: machine ID, name, certificates, host keys.
pub const KEPT: &str = "cat /etc/machine-id /etc/hostname
    sha256sum /etc/kubernetes/pki/*.crt /etc/kubernetes/pki/etcd/*.crt /data/ssh/*.pub
    sha256sum $(readlink -f /var/lib/kubelet/pki/kubelet-client-current.pem)";

/// The members in what `etcdctl member list` prints, sorted.
pub fn members(listed: &str) -> Vec<String> {
    let mut members: Vec<String> = listed.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect();
    members.sort();
    members
}

/// The output of etcdctl in a VM, from the member there.
pub fn etcdctl(scenario: &Scenario, vm: &str, arguments: &[&str]) -> String {
    scenario.inside(vm, &[&ETCDCTL, arguments].concat())
}

/// The status of a node's member: its identity, and the leader's.
fn status(scenario: &Scenario, node: &str) -> anyhow::Result<(u64, u64)> {
    let asked = [&ETCDCTL[..], &["endpoint", "status", "--write-out=json"]].concat();
    let said: Value = serde_json::from_str(&scenario.lab().run_inside(node, &asked, MOMENT)?)?;
    let status = &said[0]["Status"];
    let number = |value: &Value| value.as_u64().filter(|number| *number != 0);
    number(&status["header"]["member_id"])
        .zip(number(&status["leader"]))
        .ok_or_else(|| anyhow::anyhow!("{node} sees no leader: {said}"))
}

/// The node of a cluster of three whose member leads.
pub fn leader(scenario: &Scenario) -> &'static str {
    let leads = |node: &&str| status(scenario, node).is_ok_and(|(own, leader)| own == leader);
    scenario.obtain("etcd to have a leader", MOMENT, || Ok(ALL.into_iter().find(leads)))
}

/// Makes a node's member the leader.
pub fn lead(scenario: &Scenario, node: &str) {
    scenario.wait(&format!("{node} to lead etcd"), MOMENT, || {
        let (own, leader_now) = status(scenario, node)?;
        if own != leader_now {
            let identity = format!("{own:x}");
            let _ = etcdctl(scenario, leader(scenario), &["move-leader", &identity]);
        }
        Ok(own == leader_now)
    });
}

impl Scenario {
    /// Identities of the etcd members, as a node's own member sees them, sorted.
    pub fn etcd_members(&self, vm: &str) -> Vec<String> {
        members(&etcdctl(self, vm, &["member", "list"]))
    }

    /// The data that a VM's node must keep through any swap: machine ID, certificates, host keys, etcd's members.
    pub fn kept(&self, vm: &str) -> (String, Vec<String>) {
        (self.inside(vm, &["sh", "-ec", KEPT]), self.etcd_members(vm))
    }
}
