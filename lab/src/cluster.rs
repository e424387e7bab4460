//! A lab as a Kubernetes cluster: creates it, observes it, runs kubectl. Knows the interfaces that VMs offer to any
//! client, but not how they run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use contract::deployer::PrivateKey;
use contract::statement::Statement;
use fleet::lease::Lease;

use super::deployment_lease::with_lease_at;
use super::host::run;
use super::plan::{LabSpec, plan};
use super::records::{LabDirectory, VmRecord};
use super::wait::until;
use super::{EngineRecord, Lab, LeaseRequest, NodeSize, Record, Source, empty_lab, name_on_host};

/// How long a node may report an error and then continue without help: a CD-ROM drive or a disk can appear late.
const SECOND_THOUGHTS: Duration = Duration::from_secs(20);

/// A cluster to create.
#[derive(Clone, Debug)]
pub struct Up {
    /// `import_cluster` fills in the SSH key and the deployer's key.
    pub spec: LabSpec,
    /// Runs the first VMs.
    pub engine: EngineRecord,
    /// Runs replacements: VMs of an upgrade and VMs that are made by hand.
    pub replacements: EngineRecord,
    /// Runs the workers of a tenant.
    pub workers: EngineRecord,
    /// Image of the VMs.
    pub source: Source,
    /// Directory of the tools tree.
    pub tools: PathBuf,
    /// Size of each VM.
    pub size: NodeSize,
    /// Lab whose network it shares, as a tenant. `None` for a control cluster, which has its own network.
    pub beside: Option<String>,
}

impl Lab {
    /// Creates a lab with all VMs of the cluster, powered off.
    ///
    /// # Errors
    /// When another command creates it or has created it, or the host refuses. The parts that exist by then are removed.
    pub fn import_cluster(state: &Path, up: Up, asking: &LeaseRequest<'_>) -> anyhow::Result<Self> {
        let directory = LabDirectory::of(state, &up.spec.name)?;
        directory.is_no_vcenter()?;
        // A second command that finds the incomplete lab neither continues nor removes it. Its error names the
        // command that creates the lab.
        with_lease_at(&directory.upgrades(), asking, async |hold| {
            directory.is_free()?;
            Self::import_held(state, up, hold).await
        })
    }

    async fn import_held(state: &Path, mut up: Up, hold: &Lease<'_>) -> anyhow::Result<Self> {
        // Until the record exists, no other command takes the same place on the network.
        let host = up.beside.as_deref().map(|host| Self::open(state, host)).transpose()?;
        let _lock = host.as_ref().map(|host| host.directory.lock()).transpose()?;
        let beside = host.as_ref().map(Self::as_host).transpose()?;
        up.spec.tenant = host.as_ref().map(Self::free_place).transpose()?;
        let keys = tempfile::tempdir()?;
        up.spec.ssh_key = empty_lab::draw_ssh_key(keys.path())?;
        let deployer = PrivateKey::draw().context("drawing the deployer's key")?;
        up.spec.deployer_key = Some(deployer.public()?.to_string());
        let secret = format!("{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple());
        let mut plan = plan(&up.spec, &secret)?;
        if let Some(tenant) = &plan.tenant {
            let own = up.source.tenant_properties(&tenant.services)?;
            for node in &mut plan.nodes {
                // A value of the spec has priority over the lab's own.
                let wished = std::mem::replace(&mut node.properties, own.clone());
                node.properties.extend(wished);
            }
        }
        let Up { engine, replacements, workers, source, tools, size, .. } = up;
        let name_on_host = name_on_host(&plan.name);
        let record = Record {
            engine,
            replacements: Some(replacements),
            workers: Some(workers),
            source,
            tools,
            plan,
            name_on_host,
            deployment: uuid::Uuid::new_v4(),
            beside,
        };
        let lab = Self::furnished(state, record, &keys, &deployer)?;
        lab.filled(hold, async |lab, node| lab.import_node(node, size)).await
    }

    /// Path of the image's kubectl, which runs on this machine.
    ///
    /// # Errors
    /// When the image has none.
    pub fn kubectl_program(&self) -> anyhow::Result<PathBuf> {
        let minors = self.record.source.tree().join("usr/lib/kubernetes");
        let mut found: Vec<PathBuf> = fs::read_dir(&minors)
            .with_context(|| format!("looking for kubectl in {}", minors.display()))?
            .flatten()
            .map(|minor| minor.path().join("kubectl"))
            .filter(|path| path.exists())
            .collect();
        found.sort();
        found.pop().with_context(|| format!("there is no kubectl in {}", minors.display()))
    }

    /// kubectl on the lab's network, as administrator of the cluster.
    ///
    /// # Errors
    /// When there is no kubeconfig yet.
    pub fn kubectl_command(&self) -> anyhow::Result<Command> {
        let mut command = self.network.command("env", ["--", "KUBECACHEDIR=/nonexistent"]);
        command.arg(format!("KUBECONFIG={}", self.kubeconfig()?.display()));
        command.arg(self.kubectl_program()?);
        Ok(command)
    }

    /// Runs kubectl and returns what it printed.
    ///
    /// # Errors
    /// When it fails or takes longer than a minute.
    pub fn kubectl(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let mut command = self.kubectl_command()?;
        run(command.arg("--request-timeout=60s").args(arguments))
    }

    /// A program on the lab's network, where the operator's workstation would be.
    pub fn outside<A: AsRef<std::ffi::OsStr>>(&self, name: &str, arguments: impl IntoIterator<Item = A>) -> Command {
        self.network.command(name, arguments)
    }

    /// Names of the Ready nodes.
    ///
    /// # Errors
    /// When the API does not answer.
    pub fn ready_nodes(&self) -> anyhow::Result<Vec<String>> {
        let text = self.kubectl(&["get", "nodes", "--output=json"])?;
        let list: serde_json::Value = serde_json::from_str(&text).context("reading the list of nodes")?;
        let is_ready = |node: &serde_json::Value| {
            let conditions = node["status"]["conditions"].as_array();
            conditions.is_some_and(|all| all.iter().any(|one| one["type"] == "Ready" && one["status"] == "True"))
        };
        let nodes = list["items"].as_array().context("a list of nodes without items")?;
        let ready = nodes.iter().filter(|node| is_ready(node)).filter_map(|node| node["metadata"]["name"].as_str());
        Ok(ready.map(str::to_owned).collect())
    }

    /// Waits until every planned node is Ready, as the API reports it.
    ///
    /// # Errors
    /// When they are not after `limit`, or when nodes keep reporting errors that the operator must correct.
    pub fn wait_until_ready(&self, limit: Duration) -> anyhow::Result<()> {
        let nodes = &self.record.plan.nodes;
        let mut refused = Vec::new();
        let mut since = Instant::now();
        until(&format!("{} nodes to be Ready", nodes.len()), limit, || {
            let said = self.refusals();
            if said != refused {
                since = Instant::now();
                refused = said;
            }
            if !refused.is_empty() && since.elapsed() > SECOND_THOUGHTS {
                return Ok(true);
            }
            let ready = self.ready_nodes()?;
            Ok(nodes.iter().all(|node| ready.contains(&node.name)))
        })?;
        if refused.is_empty() { Ok(()) } else { bail!("{}", refused.join("\n")) }
    }

    /// Errors of all stopped nodes, each line with the node's name.
    fn refusals(&self) -> Vec<String> {
        let refusals =
            |vm: &str| self.refusals_of(vm).into_iter().map(|said| format!("{vm}: {said}")).collect::<Vec<_>>();
        self.record.plan.nodes.iter().flat_map(|node| refusals(&node.name)).collect()
    }

    /// Errors of a stopped node, which the operator must correct.
    pub fn refusals_of(&self, vm: &str) -> Vec<String> {
        standing_errors(&self.console_text(vm).unwrap_or_default())
    }

    /// The statement that a VM shows through the lab.
    pub(super) fn said(&self, vm: &VmRecord) -> anyhow::Result<Option<Statement>> {
        self.engines.of(vm).statement(vm)
    }

    /// The status that a node's agent writes for programs.
    ///
    /// # Errors
    /// When the node cannot be entered or its agent has written no status yet.
    pub fn status(&self, vm: &str) -> anyhow::Result<serde_json::Value> {
        let text = self.run_inside(vm, &["cat", "/run/kaas/status.json"], Duration::from_secs(60))?;
        serde_json::from_str(&text).with_context(|| format!("reading the status of {vm}"))
    }

    /// Collects evidence about a lab that failed: console logs, each node's journal, pod logs and the state of
    /// Kubernetes. Returns the paths of the files.
    pub fn keep_evidence(&self) -> Vec<PathBuf> {
        let mut kept: Vec<PathBuf> = self.vms().unwrap_or_default().iter().map(|vm| self.console(vm)).collect();
        // Skips evidence that is not available.
        let mut keep = |path: PathBuf, text: anyhow::Result<String>| {
            if let Ok(text) = text
                && fs::write(&path, text).is_ok()
            {
                kept.push(path);
            }
        };
        for vm in self.vms().unwrap_or_default() {
            let directory = self.directory.vm(&vm);
            let journal = ["journalctl", "--no-pager", "--boot", "--output=short-precise"];
            keep(directory.join("journal.log"), self.run_inside(&vm, &journal, Duration::from_secs(60)));
            let pods = ["sh", "-c", "tail -n 40 /var/log/pods/*/*/*.log"];
            keep(directory.join("containers.log"), self.run_inside(&vm, &pods, Duration::from_secs(60)));
        }
        let directory = self.directory.path();
        keep(directory.join("pods.txt"), self.kubectl(&["get", "pods", "--all-namespaces", "--output=wide"]));
        keep(directory.join("describe.txt"), self.kubectl(&["describe", "nodes,pods", "--all-namespaces"]));
        keep(directory.join("events.txt"), self.kubectl(&["get", "events", "--all-namespaces"]));
        kept
    }
}

/// The last errors on a node's console, if the node has stopped because of them.
fn standing_errors(console: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let mut stopped = false;
    for line in console.lines().filter_map(|line| line.trim_end().split_once("kaas: ").map(|(_, said)| said)) {
        if let Some(error) = line.strip_prefix("error ") {
            errors.push(error.to_owned());
        } else if !line.starts_with("warning ") {
            stopped = line.starts_with("stopped: ");
            errors.clear();
        }
    }
    if stopped { errors } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_stay_until_the_node_continues() {
        let stopped = "kaas: looking at disks\r\nkaas: stopped: 2 problems must be corrected\r\n\
            kaas: error disk.absent: no disk\r\nkaas: warning w: x\r\n[  1.0] kaas: error b: c\r\n";
        assert_eq!(standing_errors(stopped), ["disk.absent: no disk", "b: c"]);
        assert!(standing_errors(&format!("{stopped}kaas: starting etcd (3/20)\r\n")).is_empty());
    }
}
