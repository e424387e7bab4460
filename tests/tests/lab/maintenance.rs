//! Maintenance of a node on the container engine: support bundles without secrets, a full disk, and a reset.

use std::time::Duration;

use anyhow::Context as _;
use contract::properties::DEPLOYMENT_SECRET;
use scenarios::scenario::{FORMING, MOMENT, Scenario, Setting};

/// Twice the pace of a check, and some.
pub const CHECK: Duration = Duration::from_secs(180);

/// The codes of a node's findings.
fn codes(scenario: &Scenario, vm: &str) -> anyhow::Result<Vec<String>> {
    let status = scenario.lab().status(vm)?;
    let findings = status["findings"].as_array().cloned().unwrap_or_default();
    Ok(findings.iter().filter_map(|finding| finding["code"].as_str().map(str::to_owned)).collect())
}

/// Whether a node has the finding `code`.
pub fn has(scenario: &Scenario, vm: &str, code: &str) -> anyhow::Result<bool> {
    Ok(codes(scenario, vm)?.iter().any(|own| own == code))
}

/// The file that fills a data disk.
pub const FILLING: &str = "/data/filling";

/// Fills a node's data disk to so many percent.
pub fn fill(scenario: &Scenario, vm: &str, share: u32) {
    let script = format!(
        "set -- $(stat --file-system --format='%S %b %f' /data)
         wanted=$(( $1 * ($2 / 100 * {share} - ($2 - $3)) ))
         held=$(stat --format=%s {FILLING} 2>/dev/null || echo 0)
         fallocate --length $(( wanted + held )) {FILLING}"
    );
    scenario.inside(vm, &["sh", "-ec", &script]);
}

/// How much larger a disk is made, in bytes.
const MORE: u64 = 2 << 30;

/// An administrator makes a node's data disk larger, and the running node takes all of it.
pub fn a_data_disk_is_made_larger(scenario: &Scenario, vm: &str, limit: Duration) {
    let lab = scenario.lab();
    let number = |script: &str| {
        let said = lab.run_inside(vm, &["sh", "-ec", script], limit)?;
        said.trim().parse::<u64>().with_context(|| format!("{script} gave {said:?}"))
    };
    let partition = "blockdev --getsize64 $(findmnt --noheadings --output SOURCE /data)";
    let files = "set -- $(stat --file-system --format='%S %b' /data); echo $(( $1 * $2 ))";
    let before = (number(partition).unwrap(), number(files).unwrap());
    let disk = lab.disks(vm).unwrap()[0];
    let capacity = std::fs::metadata(lab.disk_file(disk)).unwrap().len() + MORE;
    lab.enlarge_disk(disk, capacity).unwrap();
    scenario
        .wait(&format!("the data partition of {vm} to be larger"), limit, || Ok(number(partition)? == before.0 + MORE));
    if may_grow_file_systems(scenario, vm) {
        let grown = before.1 + MORE / 10 * 9;
        scenario
            .wait(&format!("the file system on {vm}'s data disk to be larger"), limit, || Ok(number(files)? > grown));
    } else {
        scenario.wait("the finding of a disk that did not grow", limit, || has(scenario, vm, "disk.not-grown"));
    }
}

/// Making a mounted file system larger takes `CAP_SYS_RESOURCE` (bit 24), which every virtual machine's kernel gives and a
/// host may withhold from containers.
fn may_grow_file_systems(scenario: &Scenario, vm: &str) -> bool {
    let said = scenario.inside(vm, &["sed", "--quiet", "s/^CapEff:[[:space:]]*//p", "/proc/1/status"]);
    u64::from_str_radix(said.trim(), 16).unwrap() & 1 << 24 != 0
}

/// A node that waits for its peers still has the deployment secret. It is planted in the journal, in a
/// container's log and in a file that the bundle takes; no file of the bundle has it.
pub fn a_waiting_nodes_bundle_holds_no_planted_secret(scenario: &Scenario, node: &str) {
    let secret = scenario.properties(node)[DEPLOYMENT_SECRET].clone();
    let sh = |script: &str| scenario.inside(node, &["sh", "-ec", script]);
    sh(&format!(
        "echo 'the secret is {secret}.' | systemd-cat --identifier=planted --priority=warning
         mkdir -p /var/log/pods/default_planted_1/app
         echo 'secret: {secret}' > /var/log/pods/default_planted_1/app/0.log
         cp /run/kaas/plan.json /run/plan.json
         echo '{{\"secret\": \"{secret}\"}}' > /run/kaas/plan.json
         journalctl --flush --sync"
    ));
    gather_a_bundle(scenario, node);
    let seen = sh("cd /var/tmp/bundle
                   cat README.txt journal/warnings.txt containers/default_planted_1/app/0.log plan.json");
    assert!(seen.contains("the secret is [removed]") && seen.contains("secret: [removed]"), "{seen}");
    let found =
        sh(&format!("grep --recursive --fixed-strings --files-with-matches -e '{secret}' /var/tmp/bundle || true"));
    assert_eq!(found.trim(), "", "the deployment secret is in the bundle");
    sh("mv /run/plan.json /run/kaas/plan.json; rm -r /var/log/pods/default_planted_1 /var/tmp/bundle*");
    scenario.reached("the bundle is searched for the deployment secret");
}

/// A node of a cluster has private keys, such as those of the CAs, and the keys of Secrets. The test writes one into the log of a
/// running pod, because the kubelet removes other logs. No file of the bundle, argument list, environment or journal has a line of
/// any of them.
pub fn a_formed_nodes_bundle_holds_no_key(scenario: &Scenario, node: &str) {
    let sh = |script: &str| scenario.inside(node, &["sh", "-ec", script]);
    let lines = sh("cd /etc/kubernetes/pki
        set -- /var/log/pods/kube-system_kube-apiserver-*
        mkdir $1/planted
        cat ca.key > $1/planted/0.log
        cat *.key etcd/*.key /var/lib/kubelet/pki/*.pem | sed -n '/BEGIN.*PRIVATE KEY/,/END/p' \
            | grep --extended-regexp '^[A-Za-z0-9+/=]{40,}$' > /run/key-lines
        grep --count '' /run/key-lines
        grep --only-matching --extended-regexp '\"secret\": *\"[^\"]{40,}' encryption.json | cut --delimiter='\"' --fields=4 \
            > /run/more-lines
        grep --count '' /run/more-lines
        cat /etc/kubernetes/*.conf \
            | sed -n 's/.*client-key-data\"\\{0,1\\}: *\"\\{0,1\\}\\([A-Za-z0-9+/=]*\\).*/\\1/p' >> /run/more-lines
        grep --count '' /run/more-lines
        cat /run/more-lines >> /run/key-lines");
    let [private, of_secrets, all_more] =
        lines.lines().map(|count| count.parse::<u32>().unwrap()).collect::<Vec<_>>()[..]
    else {
        panic!("{lines}")
    };
    assert!(private > 20 && of_secrets > 0 && all_more > of_secrets, "lines of keys: {lines}");
    let shown = |where_to_look: &str| {
        let search = "grep --fixed-strings --files-with-matches --no-messages --file=/run/key-lines";
        sh(&format!("cd /; {search} {where_to_look} || true")).trim().to_owned()
    };
    assert!(shown("--recursive var/log/pods").contains("/planted/0.log"), "the search finds nothing");
    assert_eq!(shown("proc/[0-9]*/cmdline proc/[0-9]*/environ"), "", "a key is in an argument list or environment");
    let journal = "journalctl --output=cat | grep --fixed-strings --count --file=/run/key-lines || true";
    assert_eq!(sh(journal).trim(), "0", "a key is in the journal");
    gather_a_bundle(scenario, node);
    let planted = sh("cat /var/tmp/bundle/containers/kube-system_kube-apiserver-*/planted/0.log");
    assert!(planted.contains("[removed]"), "{planted}");
    let found =
        sh("grep --recursive --fixed-strings --files-with-matches --file=/run/key-lines /var/tmp/bundle || true");
    assert_eq!(found.trim(), "", "a line of a private key is in the bundle");
    let found = sh("grep --recursive --files-with-matches 'PRIVATE KEY' /var/tmp/bundle || true");
    assert_eq!(found.trim(), "", "a private key is in the bundle");
    sh("rm -r /run/key-lines /run/more-lines /var/log/pods/*/planted /var/tmp/bundle*");
    scenario.reached("bundle, journal, arguments and environments are searched for keys");
}

/// A support bundle, unpacked in the node's `/var/tmp/bundle`.
fn gather_a_bundle(scenario: &Scenario, node: &str) {
    let sh = |script: &str| scenario.inside(node, &["sh", "-ec", script]);
    let summary = sh("kaas-agent support-bundle --file /var/tmp/bundle.tar.gz --output json 2>/dev/null");
    let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
    assert!(summary["bytes"].as_u64().unwrap() < 25 << 20, "{summary}");
    sh("mkdir /var/tmp/bundle
        tar --extract --gzip --file=/var/tmp/bundle.tar.gz --directory=/var/tmp/bundle --strip-components=1");
}

pub mod long {
    use super::*;

    /// The test fills the data disk. The node reports that with the largest users, and continues. The finding ends when the disk
    /// has space again.
    pub fn full_disk_is_a_finding_until_freed() {
        let scenario = Scenario::ready_one(&Setting::one("full"));
        fill(&scenario, "cp1", 85);
        scenario.wait("the finding of a disk that is nearly full", CHECK, || has(&scenario, "cp1", "disk.nearly-full"));
        let status = scenario.lab().status("cp1").unwrap().to_string();
        assert!(status.contains("most is used by /data/filling"), "{status}");
        fill(&scenario, "cp1", 95);
        scenario.wait("the finding of a disk that is almost full", CHECK, || has(&scenario, "cp1", "disk.almost-full"));
        scenario.kubectl(&["create", "configmap", "written", "--from-literal=when=full"]);
        scenario.ready(&["cp1"], MOMENT);
        scenario.inside("cp1", &["rm", FILLING]);
        scenario.wait("the finding to go", CHECK, || {
            Ok(!has(&scenario, "cp1", "disk.nearly-full")? && !has(&scenario, "cp1", "disk.almost-full")?)
        });
    }

    /// A reset needs the name of the node, and that of the cluster, because the node is the last one. The node then forms another
    /// cluster from its OVF environment, and nothing of the former one is left.
    pub fn a_reset_node_begins_as_freshly_deployed() {
        let scenario = Scenario::ready_one(&Setting::one("reset"));
        let lab = scenario.lab();
        let identity = scenario.cluster_identity();
        let machine = scenario.inside("cp1", &["cat", "/etc/machine-id"]);
        let cluster = lab.status("cp1").unwrap()["cluster"].as_str().unwrap().to_owned();

        let refused = lab.run_inside("cp1", &["kaas-agent", "reset", "--confirm", "cp2"], MOMENT).unwrap_err();
        assert!(format!("{refused:#}").contains("this node is cp1"), "{refused:#}");
        let refused = lab.run_inside("cp1", &["kaas-agent", "reset", "--confirm", "cp1"], MOMENT).unwrap_err();
        assert!(format!("{refused:#}").contains("--confirm-end-of"), "{refused:#}");
        assert_eq!(scenario.cluster_identity(), identity);

        // The system may go down before the command has ended.
        let _ =
            lab.run_inside("cp1", &["kaas-agent", "reset", "--confirm", "cp1", "--confirm-end-of", &cluster], MOMENT);
        // A container that restarts is off then: the lab does not start it again by itself.
        scenario.soon_says("cp1", "Rebooting.");
        scenario.cut("cp1");
        scenario.power_on(&["cp1"]);
        scenario.wait("the node to begin anew", FORMING, || {
            let id = lab.run_inside("cp1", &["cat", "/etc/machine-id"], MOMENT).unwrap_or_else(|_| machine.clone());
            Ok(id != machine)
        });
        // The administrator's credentials of the old cluster open nothing: asked inside.
        scenario.wait("the node to be ready again", FORMING, || {
            Ok(lab.run_inside("cp1", &["kaas-agent", "status"], MOMENT).is_ok())
        });
        let uid = ["kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "get", "namespace", "kube-system"];
        let now = scenario.inside("cp1", &[&uid[..], &["--output=jsonpath={.metadata.uid}"]].concat());
        assert!(!now.is_empty() && now != identity, "{now} after {identity}");
        assert!(lab.kubectl(&["get", "nodes"]).is_err(), "the old cluster's credentials still open something");
        assert_eq!(scenario.etcd_members("cp1").len(), 1);
    }
}
