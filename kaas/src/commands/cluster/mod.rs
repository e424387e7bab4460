//! `kaas cluster …`: tenant clusters as objects of the control cluster. Each command writes objects that kubectl could write as
//! well, and waits for the controller. It can be interrupted at any time.

mod arguments;
mod cluster_objects;
mod cluster_state;
mod describe;
mod kubeconfig;
mod reapply;
mod replace;
mod words;
mod worker_rollout;

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::{Context, bail, ensure};
use clap::Subcommand;
use controller::objects::{ADOPT, CONFIRM_DELETE, DO};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

use self::arguments::{Adopt, Create, Delete, Describe, Get, Kubeconfig, OperationRequest, ReplaceNode, Upgrade};
use self::cluster_objects::{ClusterObjects, keys};
use self::cluster_state::{ClusterState, may_be_tried_again};
pub use self::describe::ObjectTree;
pub use self::kubeconfig::WrittenKubeconfig;
use self::reapply::check_reapply;
use crate::confirm::announced;
use crate::control::{Change, Control, DryRunReport, Look, Rejected, ResourcePath, WaitArgs, WaitResult, Waiter, text};
use crate::output::{number_of, object, objects};

/// Commands on tenant clusters.
#[derive(Subcommand)]
pub enum Cluster {
    /// Create a cluster from options or a file, or continue its creation, and wait until it is Ready
    #[command(
        after_help = "Example: `kaas cluster create shop --provider dc1 --kubernetes 1.37 --network tenants --endpoint 192.168.10.10`"
    )]
    Create(Box<Create>),
    /// List clusters, or show the state of one
    #[command(after_help = "Example: `kaas cluster get shop --namespace team-blue`")]
    Get(Get),
    /// Show the objects of a cluster as a tree, with their conditions
    ///
    /// The tree has the conditions that do not hold. SEVERITY is Error if the operator must act.
    #[command(after_help = "Example: `kaas cluster describe shop --namespace team-blue`")]
    Describe(Describe),
    /// Upgrade a cluster to another image or to the next minor version of Kubernetes, or control the current upgrade
    ///
    /// The command waits for the control-plane nodes. After the commit it also waits for the workers, which follow.
    #[command(after_help = "Example: `kaas cluster upgrade shop --image kaas-tenant-0.2.0`")]
    Upgrade(Upgrade),
    /// Write the kubeconfig of a cluster's administrator to a file
    #[command(after_help = "Example: `kaas cluster kubeconfig shop --to-file shop.kubeconfig`")]
    Kubeconfig(Kubeconfig),
    /// Adopt VMs of a cluster that are newer than the restored database of the control cluster
    ///
    /// Until then the cluster or a pool is `AdoptionRequired`, and the controller changes nothing.
    #[command(after_help = "Example: `kaas cluster adopt shop`")]
    Adopt(Adopt),
    /// Replace a lost control-plane node of a cluster by a new VM, after a confirmation
    ///
    /// The controller replaces one of three nodes by itself, 15 minutes after its VM is proved gone or off without its data disk.
    /// The command does not wait for that.
    #[command(after_help = "Example: `kaas cluster replace-node shop shop-cp2`")]
    ReplaceNode(ReplaceNode),
    /// Delete a cluster with its VMs and their disks, after a confirmation
    #[command(after_help = "Example: `kaas cluster delete shop`")]
    Delete(Delete),
}

/// Runs one of the commands. Exit statuses: 0 if the wanted state is reached, 3 if nothing has changed within the wait limit, 4
/// if the operator must act.
pub fn run(command: Cluster) -> anyhow::Result<ExitCode> {
    match command {
        Cluster::Create(arguments) => create(&arguments),
        Cluster::Get(arguments) => get(&arguments),
        Cluster::Describe(arguments) => describe::describe(&arguments),
        Cluster::Upgrade(arguments) => upgrade(&arguments),
        Cluster::Kubeconfig(arguments) => kubeconfig::write(&arguments),
        Cluster::Adopt(arguments) => adopt(&arguments),
        Cluster::ReplaceNode(arguments) => replace::replace_node(&arguments),
        Cluster::Delete(arguments) => delete(&arguments),
    }
}

/// A wait for a state of a cluster.
pub(super) struct Wait<'a> {
    pub(super) control: &'a Control,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) until: &'a WaitArgs,
    /// Whether the wait includes workers that follow.
    pub(super) follows: bool,
}

impl Wait<'_> {
    /// Waits, unless the command line excludes it, and reports the result.
    pub(super) fn until(&self, taken: &str, come: impl Fn(&ClusterState) -> WaitResult) -> anyhow::Result<ExitCode> {
        let Self { control, namespace, name, until, follows } = self;
        let look = || {
            let mut known = require_cluster(control, namespace, name)?;
            if *follows {
                known.look_at_workers(control, namespace)?;
            }
            Ok(Look { lines: known.lines(), progress: come(&known), object: known.object() })
        };
        Waiter::new(until).run(taken, look)
    }
}

/// An existing cluster. Fails if it is missing.
pub(super) fn require_cluster(control: &Control, namespace: &str, name: &str) -> anyhow::Result<ClusterState> {
    Ok(ClusterState::look(control, namespace, name)?.ok_or_else(|| not_found(namespace, name))?)
}

fn not_found(namespace: &str, name: &str) -> Rejected {
    Rejected::because(format!("there is no cluster {name} in the namespace {namespace}"))
}

/// The public keys of a file. Empty without a file.
fn ssh_keys(file: Option<&Path>) -> anyhow::Result<Vec<String>> {
    let Some(file) = file else { return Ok(Vec::new()) };
    let text = fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    let keys = keys(&text);
    ensure!(!keys.is_empty(), "{} has no SSH key: it is to have public keys, a line each", file.display());
    Ok(keys)
}

fn create(arguments: &Create) -> anyhow::Result<ExitCode> {
    let until = &arguments.until;
    let (control, namespace) = arguments.within.open()?;
    let wanted = match (&arguments.file, &arguments.name) {
        (Some(file), _) => ClusterObjects::read(file, &namespace)?,
        (None, name) => {
            let name = name.as_deref().context("give a name, or a file")?;
            ClusterObjects::from_arguments(
                name,
                &namespace,
                &arguments.said,
                &ssh_keys(arguments.said.ssh_keys.as_deref())?,
            )
        }
    };
    let (name, namespace) = (wanted.name(), wanted.namespace());
    let [clusters, pools] = ["tenantclusters", "nodepools"].map(|plural| ResourcePath::within(plural, namespace));
    if control.get(clusters, name)?.is_some_and(|there| !there["metadata"]["deletionTimestamp"].is_null()) {
        bail!("the cluster {name} is being deleted: wait until it is gone");
    }
    // All objects are checked before the first one is written. Each replaced field is reported once.
    let apply = |of: ResourcePath<'_>, object: &Value, dry_run: bool| {
        let is_told = dry_run == arguments.dry_run;
        let tell = |words: &str| {
            if is_told {
                until.output.tell(words);
            }
        };
        let may = |name: &str, changes: &[Change<'_>]| check_reapply(name, changes, tell);
        control.apply_again(of, object, dry_run, &may)
    };
    apply(clusters, &wanted.cluster, true)?;
    for pool in &wanted.pools {
        apply(pools, pool, true)?;
    }
    if arguments.dry_run {
        let objects: Vec<&Value> = std::iter::once(&wanted.cluster).chain(&wanted.pools).collect();
        let text = || format!("the API server accepts the cluster {name} with {}", counted(wanted.pools.len()));
        return until.output.objects(&objects, text);
    }
    apply(clusters, &wanted.cluster, false)?;
    for pool in &wanted.pools {
        apply(pools, pool, false)?;
    }
    let taken = format!("the cluster {name} with {} is asked for", counted(wanted.pools.len()));
    let of_command: Vec<&str> = wanted.pools.iter().map(|pool| text(pool, "/metadata/name")).collect();
    Wait { control: &control, namespace, name, until, follows: false }.until(&taken, |known| known.is_made(&of_command))
}

fn counted(pools: usize) -> String {
    match pools {
        0 => "no pools".to_owned(),
        1 => "one pool".to_owned(),
        several => format!("{several} pools"),
    }
}

/// The output of `get` with a name.
#[derive(Serialize, JsonSchema)]
pub struct ClusterWithPools<'a> {
    #[schemars(schema_with = "object")]
    cluster: &'a Value,
    #[schemars(schema_with = "objects")]
    pools: &'a [Value],
    /// The current Operation, or the last one.
    #[schemars(with = "Option<Map<String, Value>>")]
    operation: Option<&'a Value>,
}

fn get(arguments: &Get) -> anyhow::Result<ExitCode> {
    let (control, namespace) = arguments.within.open()?;
    let now = SystemTime::now();
    let Some(name) = &arguments.name else {
        let namespace = (!arguments.all_namespaces).then_some(namespace.as_str());
        let clusters = control.list(ResourcePath { plural: "tenantclusters", namespace })?;
        return arguments.output.result(&json!({"clusters": clusters}), || words::clusters(&clusters, now));
    };
    let known = require_cluster(&control, &namespace, name)?;
    let ClusterState { cluster, pools, operation, .. } = &known;
    let report = ClusterWithPools { cluster, pools, operation: operation.as_ref() };
    arguments.output.result(&report, || words::cluster(&known, now))
}

fn upgrade(arguments: &Upgrade) -> anyhow::Result<ExitCode> {
    let Upgrade { name, image, kubernetes, asks, dry_run, within, until } = arguments;
    let (control, namespace) = within.open()?;
    let namespace = namespace.as_str();
    let known = require_cluster(&control, namespace, name)?;
    let wait = Wait { control: &control, namespace, name, until, follows: true };
    if let Some(asks) = asks {
        return ask_of_operation(&wait, &known, *asks, *dry_run);
    }
    let mut part = json!({"metadata": {"uid": known.cluster["metadata"]["uid"]}, "spec": {}});
    let mut to = Vec::new();
    for (field, value) in [("image", image), ("version", kubernetes)] {
        if let Some(value) = value {
            part["spec"][field] = value.as_str().into();
            to.push(if field == "version" { format!("Kubernetes {value}") } else { value.clone() });
        }
    }
    ensure!(!to.is_empty(), "name a target: --image, --kubernetes, or --do for the upgrade that is under way");
    control.patch(ResourcePath::within("tenantclusters", namespace), name, "", &part, *dry_run)?;
    if *dry_run {
        let fields = [image.as_ref().map(|_| ".spec.image"), kubernetes.as_ref().map(|_| ".spec.version")];
        let changes: Vec<Change<'_>> =
            fields.into_iter().flatten().map(|field| Change::of(field, &known.cluster, &part)).collect();
        return DryRunReport::default().changes("TenantCluster", &known.cluster, &changes).report(until.output);
    }
    wait.until(&format!("the cluster {name} is to run {}", to.join(" and ")), ClusterState::is_changed)
}

/// Sends a request to the current Operation. `resume` also repeats the last one, if it was rolled back or abandoned.
fn ask_of_operation(
    wait: &Wait<'_>,
    known: &ClusterState,
    asks: OperationRequest,
    dry_run: bool,
) -> anyhow::Result<ExitCode> {
    let operation = known.operation.as_ref().with_context(|| format!("nothing is under way for {}", wait.name))?;
    let name = text(operation, "/metadata/name");
    let outcome = text(operation, "/status/outcome");
    let is_again = asks == OperationRequest::Resume && may_be_tried_again(operation);
    ensure!(outcome.is_empty() || is_again, "nothing is under way for {}: {name} has ended: {outcome}", wait.name);
    let part = json!({"metadata": {"uid": operation["metadata"]["uid"], "annotations": {DO: asks.word()}}});
    wait.control.patch(ResourcePath::within("operations", wait.namespace), name, "", &part, dry_run)?;
    if dry_run {
        let [old, new] = [operation, &part].map(|object| &object["metadata"]["annotations"][DO]);
        let change = Change { field: &format!(".metadata.annotations[{DO:?}]"), old, new };
        return DryRunReport::default().changes("Operation", operation, &[change]).report(wait.until.output);
    }
    let follow = match asks {
        OperationRequest::Commit if !wait.until.wait => "; once it is committed the workers follow",
        _ => "",
    };
    let taken = format!("{name} is asked to {}{follow}", asks.word());
    wait.until(&taken, |known| if is_again { known.is_done_again(name, DO) } else { known.has_done(name, DO) })
}

/// The conditions, which are reported during the wait, have the reasons that block the adoption.
fn adopt(arguments: &Adopt) -> anyhow::Result<ExitCode> {
    let Adopt { name, within, until } = arguments;
    let (control, namespace) = within.open()?;
    let namespace = namespace.as_str();
    let known = require_cluster(&control, namespace, name)?;
    let part = json!({"metadata": {"uid": known.cluster["metadata"]["uid"], "annotations": {ADOPT: name}}});
    control.patch(ResourcePath::within("tenantclusters", namespace), name, "", &part, false)?;
    let taken = format!("VMs of the cluster {name} that are newer than the database are to be adopted");
    Wait { control: &control, namespace, name, until, follows: false }.until(&taken, |known| known.is_adopted(ADOPT))
}

/// After a failure the cluster is unchanged, or it is confirmed and the deletion is unknown. The same command continues.
fn delete(arguments: &Delete) -> anyhow::Result<ExitCode> {
    let Delete { name, confirm, dry_run, within, until } = arguments;
    let (control, namespace) = within.open()?;
    let namespace = namespace.as_str();
    let known = require_cluster(&control, namespace, name)?;
    let uid = text(&known.cluster, "/metadata/uid");
    let clusters = ResourcePath::within("tenantclusters", namespace);
    let note = |value: Value| {
        let part = json!({"metadata": {"uid": uid, "annotations": {CONFIRM_DELETE: value}}});
        control.patch(clusters, name, "", &part, *dry_run)
    };
    if *dry_run {
        // The API server rejects a deletion without the confirmation, so only the confirmation can be checked.
        note(name.as_str().into())?;
        let objects = ObjectTree::read(&control, namespace, name)?.ok_or_else(|| not_found(namespace, name))?;
        return objects.deletion().report(until.output);
    }
    let going = going(&known, namespace, control.place());
    announced("cluster", name, confirm.as_deref(), &going, until.output)?;
    note(name.as_str().into())?;
    if let Err(error) = control.delete(clusters, name, uid, false) {
        // Otherwise a later deletion by mistake would need no confirmation.
        if error.is::<Rejected>() {
            note(Value::Null).context("taking the confirmation back")?;
        }
        return Err(error);
    }
    Waiter::new(until).until_gone(&format!("the cluster {name}"), || {
        let known = ClusterState::look(&control, namespace, name)?;
        let known = known.filter(|known| text(&known.cluster, "/metadata/uid") == uid);
        Ok(known.map(|known| Look { lines: known.lines(), progress: known.is_leaving(), object: known.object() }))
    })
}

/// The text that names what is deleted.
fn going(known: &ClusterState, namespace: &str, place: &str) -> String {
    let name = known.name();
    let workers: u64 = known.pools.iter().filter_map(|pool| pool["status"]["replicas"].as_u64()).sum();
    let nodes = known.cluster["status"]["controlPlane"]["replicas"].as_u64().unwrap_or_default();
    let (nodes, workers) = (number_of(nodes, "control-plane node"), number_of(workers, "worker"));
    format!(
        "The cluster {name} in the namespace {namespace} is deleted: {nodes} and {workers} with their VMs \
         and all data on their disks, and its addresses and kubeconfig. This cannot be undone.\nThe control cluster is {place}."
    )
}
