//! The operator's command, given to a scenario's lab, and what must be the same
//! before and after an upgrade.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lab::until;
use serde_json::Value;

use crate::places::{kaas_dev, named_ova};
use crate::scenario::{MOMENT, Scenario};

/// Three nodes, each shut down, booted and watched until it is good, times the timeout factor.
pub const SWAPPING: Duration = Duration::from_secs(1200);

/// How long an emulated node may take to become healthy, in seconds. The node takes 330 s if it has two processors
/// alone. While another scenario ran, it took longer than the default of 900 s.
const EMULATED_GATE: &str = "2400s";

/// The exit status of a command that waits (docs/reference/exit-statuses.md).
const PAUSED: i32 = 3;

/// An upgrade of the control-plane nodes of a scenario's cluster to an OVA.
pub struct Upgrade<'a> {
    scenario: &'a Scenario,
    ova: PathBuf,
}

impl<'a> Upgrade<'a> {
    /// As [`Self::to`], for the OVA under test.
    pub fn of(scenario: &'a Scenario) -> Self {
        Self::to(scenario, scenario.lab().find_ova(&named_ova()).unwrap_or_else(|error| panic!("{error:#}")))
    }

    /// An upgrade to this OVA, once every node is healthy.
    pub fn to(scenario: &'a Scenario, ova: PathBuf) -> Self {
        let upgrade = Self { scenario, ova };
        upgrade.wait_until_healthy();
        upgrade
    }

    /// Waits until every boot counts as healthy.
    pub fn wait_until_healthy(&self) {
        let limit = self.patiently(MOMENT);
        for node in self.nodes() {
            self.scenario.wait(&format!("{node} to be found good"), limit, || {
                let vm = self.scenario.vm_of(node);
                Ok(self.scenario.lab().run_inside(&vm, &["test", "-e", "/run/kaas/good.json"], limit).is_ok())
            });
        }
    }

    /// `kaas-dev control upgrade VERB`. Plan and apply get the OVA.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(kaas_dev());
        command.args(["control", "upgrade"]).args(arguments).args(["--lab", self.scenario.lab().name()]);
        if ["plan", "apply"].contains(&arguments[0]) {
            command.arg("--ova").arg(&self.ova);
            if self.scenario.lab().replacements().is_emulated() {
                command.args(["--gate-timeout", EMULATED_GATE]);
            }
        }
        command
    }

    pub fn run(&self, arguments: &[&str]) -> String {
        let started = Instant::now();
        let (said, failed, success) = self.ended(arguments);
        assert!(success, "kaas-dev control upgrade {}: {failed}\n{said}", arguments.join(" "));
        self.scenario.reached(&format!(
            "kaas-dev control upgrade {} took {} s",
            arguments.join(" "),
            started.elapsed().as_secs()
        ));
        said
    }

    /// How it is refused, or what it says of its failure.
    pub fn fails(&self, arguments: &[&str]) -> String {
        let (said, failed, success) = self.ended(arguments);
        assert!(!success, "kaas-dev control upgrade {} did not fail: {said}", arguments.join(" "));
        failed
    }

    /// For what it waits.
    pub fn pauses(&self, arguments: &[&str]) -> String {
        let (said, why, status) = self.ended_with(arguments);
        assert_eq!(status, Some(PAUSED), "kaas-dev control upgrade {}: {why}\n{said}", arguments.join(" "));
        why
    }

    fn ended(&self, arguments: &[&str]) -> (String, String, bool) {
        let (said, failed, status) = self.ended_with(arguments);
        (said, failed, status == Some(0))
    }

    fn ended_with(&self, arguments: &[&str]) -> (String, String, Option<i32>) {
        let ended = self.command(arguments).output().unwrap_or_else(|error| panic!("starting kaas: {error}"));
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        (text(ended.stdout), text(ended.stderr), ended.status.code())
    }

    /// Begins it; what it says is collected.
    pub fn begin(&self, arguments: &[&str]) -> Child {
        let begun = self.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        begun.unwrap_or_else(|error| panic!("starting kaas: {error}"))
    }

    /// Gives a command and kills it after so many further entries of its journal. Says whether it was
    /// still at work then.
    pub fn killed(&self, arguments: &[&str], further: usize) -> bool {
        let journal = self.scenario.lab().upgrades();
        let before = entries(&journal);
        let mut child = self.begin(arguments);
        let mut ended = false;
        let next = until("the next entries of the journal", self.patiently(SWAPPING), || {
            ended = child.try_wait()?.is_some();
            Ok(ended || entries(&journal) >= before + further)
        });
        next.unwrap_or_else(|error| panic!("{error:#}"));
        if !ended {
            child.kill().unwrap_or_else(|error| panic!("killing kaas: {error}"));
        }
        let output = child.wait_with_output().unwrap_or_else(|error| panic!("waiting for kaas: {error}"));
        if ended {
            let failed = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "kaas-dev control upgrade {}: {failed}", arguments.join(" "));
            return false;
        }
        self.scenario.reached(&format!(
            "kaas-dev control upgrade {} is killed after {} entries",
            arguments[0],
            entries(&journal)
        ));
        true
    }

    /// Waits until the commands until now have written so many entries of the journal.
    pub fn has_written(&self, count: usize) {
        let journal = self.scenario.lab().upgrades();
        let written = until("entries of the journal", self.patiently(SWAPPING), || Ok(entries(&journal) >= count));
        written.unwrap_or_else(|error| panic!("{error:#}"));
    }

    /// The journals of all holds, by the numbers of the holds.
    pub fn journals(&self) -> BTreeMap<String, String> {
        journals(&self.scenario.lab().upgrades())
    }

    /// The nodes in the order in which they are swapped.
    pub fn order(&self) -> Vec<String> {
        let status: Value = serde_json::from_str(&self.run(&["status", "--output", "json"])).expect("a status");
        let nodes = status["plan"]["nodes"].as_array().expect("a plan with nodes");
        nodes.iter().map(|node| node["name"].as_str().expect("a name").to_owned()).collect()
    }

    /// `kaas-dev control adopt`, confirmed.
    pub fn adopt(&self) {
        let mut adopt = Command::new(kaas_dev());
        adopt.args(["control", "adopt", "--yes", "--lab", self.scenario.lab().name()]);
        let ended = adopt.output().unwrap_or_else(|error| panic!("starting kaas: {error}"));
        let (said, failed) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
        assert!(ended.status.success(), "kaas-dev control adopt: {said}\n{failed}");
        self.scenario.reached(said.trim());
    }

    /// The data that all nodes must keep through any swap.
    pub fn kept(&self) -> BTreeMap<String, (String, Vec<String>)> {
        let of = |node: &str| (node.to_owned(), self.scenario.kept(&self.scenario.vm_of(node)));
        self.nodes().into_iter().map(of).collect()
    }

    /// The versions of the kubelets, as the cluster knows them: the same on all nodes.
    pub fn kubernetes(&self) -> String {
        let versions = "--output=jsonpath={range .items[*]}{.status.nodeInfo.kubeletVersion}{\"\\n\"}{end}";
        let said = self.scenario.kubectl(&["get", "nodes", versions]);
        let mut versions: Vec<&str> = said.lines().collect();
        versions.dedup();
        versions.join(" ")
    }

    /// Whether every node runs in its first VM, and no other VM is left.
    pub fn is_all_back(&self) -> bool {
        self.scenario.lab().vms().is_ok_and(|vms| vms == self.nodes())
    }

    /// The new VM of some node, once it runs and can be entered.
    pub fn first_new_vm(&self) -> String {
        let (lab, nodes) = (self.scenario.lab(), self.nodes());
        self.scenario.obtain("a new VM to run", self.patiently(SWAPPING), || {
            let new = lab.vms()?.into_iter().filter(|vm| !nodes.contains(&vm.as_str()));
            let entered = |vm: &String| lab.run_inside(vm, &["systemctl", "is-active", "dbus.service"], MOMENT).is_ok();
            Ok(new.into_iter().find(entered))
        })
    }

    fn nodes(&self) -> Vec<&str> {
        self.scenario.lab().plan().nodes.iter().map(|node| node.name.as_str()).collect()
    }

    /// A wait on slow machines.
    pub fn patiently(&self, usual: Duration) -> Duration {
        let lab = self.scenario.lab();
        usual * lab.engine().timeout_factor().max(lab.replacements().timeout_factor())
    }
}

/// The journals of all holds below a directory, by the numbers of the holds.
pub fn journals(upgrades: &Path) -> BTreeMap<String, String> {
    let holds = fs::read_dir(upgrades).expect("the directory of the holds").flatten();
    let read = |hold: fs::DirEntry| {
        let texts = files(&hold.path()).into_iter().map(|file| fs::read_to_string(file).expect("a journal's file"));
        let text: String = texts.collect();
        (!text.is_empty()).then(|| (hold.file_name().to_string_lossy().into_owned(), text))
    };
    holds.filter_map(read).collect()
}

/// The files of a hold's journal: what it began with, then each entry. None if it has not begun one.
fn files(hold: &Path) -> Vec<PathBuf> {
    let there = fs::read_dir(hold).into_iter().flatten().flatten().map(|file| file.path());
    let begun = hold.join("journal.jsonl");
    let mut added: Vec<PathBuf> =
        there.filter(|file| file.extension().is_some_and(|kind| kind == "json") && is_journal(file)).collect();
    added.sort();
    if begun.exists() { [vec![begun], added].concat() } else { Vec::new() }
}

fn is_journal(file: &Path) -> bool {
    file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("journal-"))
}

/// The number of entries in the journal of the last command that has one: the numbers of leases have leading zeros. The
/// first file has a separate line before the entries.
pub fn entries(upgrades: &Path) -> usize {
    let holds = fs::read_dir(upgrades).into_iter().flatten().flatten();
    let last = holds.map(|hold| hold.path()).filter(|hold| hold.join("journal.jsonl").exists()).max();
    let lines = |file: &PathBuf| fs::read_to_string(file).map_or(0, |text| text.lines().count());
    last.map_or(0, |hold| files(&hold).iter().map(lines).sum::<usize>().saturating_sub(1))
}
