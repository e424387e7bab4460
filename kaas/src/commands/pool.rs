//! `kaas pool …`: the workers of tenant clusters, as NodePools of the control cluster. Each command writes objects that kubectl
//! could write as well, and waits for the controller. It can be interrupted at any time.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::{bail, ensure};
use clap::{Args, Subcommand};
use controller::objects::{GROUP, VERSION};
use serde_json::{Value, json};

use super::cluster::{Wait, require_cluster};
use crate::confirm::announced;
use crate::control::{
    Cell, Change, Control, DryRunReport, Look, NamespaceArgs, Rejected, ResourcePath, WaitArgs, WaitResult, Waiter,
    age, candidates, lines, name, read, table, text,
};
use crate::output::{Output, number_of};
use crate::styled::Text;

/// Commands on pools of workers.
#[derive(Subcommand)]
pub enum Pool {
    /// Add a pool of workers to a cluster, and wait until they are Ready
    #[command(after_help = "Example: `kaas pool create shop-build --cluster shop --worker-class large --workers 2`")]
    Create(Create),
    /// List the pools of workers
    #[command(after_help = "Example: `kaas pool list --cluster shop`")]
    List(List),
    /// Change the number of a pool's workers, or remove workers by their names
    #[command(after_help = "Example: `kaas pool scale shop-build --remove shop-build-w2`")]
    Scale(Scale),
    /// Delete a pool with the VMs and disks of its workers, after a confirmation
    #[command(after_help = "Example: `kaas pool delete shop-build`")]
    Delete(Delete),
}

#[derive(Args)]
pub struct Create {
    /// Name of the pool, unless `--file` is given. It begins with the name of the cluster and a dash
    #[arg(value_parser = name, required_unless_present = "file")]
    name: Option<String>,
    /// YAML file with one NodePool. docs/reference/objects.md has the fields
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["name", "cluster", "worker_class", "workers", "zone"])]
    file: Option<PathBuf>,
    /// Cluster of the workers
    #[arg(long, value_parser = name, required_unless_present = "file", add = candidates::clusters())]
    cluster: Option<String>,
    /// VMClass of the workers
    #[arg(
        long,
        value_name = "CLASS",
        value_parser = name,
        required_unless_present = "file",
        add = candidates::vm_classes()
    )]
    worker_class: Option<String>,
    /// Number of workers. Default: 1
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(0..=1000))]
    workers: Option<u32>,
    /// Zone for workers. Give the option once for each zone. Default: all zones of the Provider
    #[arg(long, value_parser = name)]
    zone: Vec<String>,
    /// Only let the API server check the pool. With `--output yaml`, print it
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    within: NamespaceArgs,
    #[command(flatten)]
    until: WaitArgs,
}

#[derive(Args)]
pub struct List {
    /// Only list the pools of this cluster
    #[arg(long, value_parser = name, add = candidates::clusters())]
    cluster: Option<String>,
    /// List the pools of all namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    within: NamespaceArgs,
}

#[derive(Args)]
pub struct Scale {
    /// Name of the pool
    #[arg(value_parser = name, add = candidates::pools())]
    name: String,
    /// Wanted number of workers, unless `--remove` is given
    #[arg(
        value_parser = clap::value_parser!(u32).range(0..=1000),
        required_unless_present = "remove",
        conflicts_with = "remove"
    )]
    workers: Option<u32>,
    /// Worker that is drained and removed. The wanted number becomes one less for each. Give the option once for each worker
    #[arg(long, value_name = "NODE", value_parser = name)]
    remove: Vec<String>,
    /// Only print what would change. The API server checks the request
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    within: NamespaceArgs,
    #[command(flatten)]
    until: WaitArgs,
}

#[derive(Args)]
pub struct Delete {
    /// Name of the pool
    #[arg(value_parser = name, add = candidates::pools())]
    name: String,
    /// Name of the pool, as the confirmation. Without it, the command asks for the name
    #[arg(long, value_name = "POOL")]
    confirm: Option<String>,
    /// Only print what would be deleted, without a confirmation. The API server checks the request
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    within: NamespaceArgs,
    #[command(flatten)]
    until: WaitArgs,
}

/// Runs one of the commands. Exit statuses: 0 if the wanted state is reached, 3 if nothing has changed within the wait limit, 4
/// if the operator must act.
pub fn run(command: &Pool) -> anyhow::Result<ExitCode> {
    match command {
        Pool::Create(arguments) => create(arguments),
        Pool::List(arguments) => list(arguments),
        Pool::Scale(arguments) => scale(arguments),
        Pool::Delete(arguments) => delete(arguments),
    }
}

fn pools(namespace: &str) -> ResourcePath<'_> {
    ResourcePath::within("nodepools", namespace)
}

/// An existing pool. Fails if it is missing.
fn require_pool(control: &Control, namespace: &str, name: &str) -> anyhow::Result<Value> {
    let missing = || Rejected::because(format!("there is no pool {name} in the namespace {namespace}"));
    Ok(control.get(pools(namespace), name)?.ok_or_else(missing)?)
}

/// Creates the pool, or continues to wait for one with the same values.
fn create(arguments: &Create) -> anyhow::Result<ExitCode> {
    let Create { dry_run, within, until, .. } = arguments;
    let (control, namespace) = within.open()?;
    let object = arguments.object(&namespace)?;
    let [namespace, name, cluster] =
        ["/metadata/namespace", "/metadata/name", "/spec/clusterRef/name"].map(|pointer| text(&object, pointer));
    let workers = number_of(object["spec"]["replicas"].as_u64().unwrap_or(1), "worker");
    require_cluster(&control, namespace, cluster)?;
    let there = control.get(pools(namespace), name)?;
    if let Some(there) = &there {
        if !there["metadata"]["deletionTimestamp"].is_null() {
            bail!("the pool {name} is being deleted: wait until it is gone");
        }
        for (field, value) in object["spec"].as_object().into_iter().flatten() {
            let is = &there["spec"][field.as_str()];
            ensure!(is == value, "the pool {name} exists, and its {field} is {is}, not {value}");
        }
    }
    if there.is_none() {
        control.apply(pools(namespace), &object, *dry_run)?;
    }
    if *dry_run {
        let text = || format!("the API server accepts the pool {name} of {workers}");
        return until.output.objects(&[&object], text);
    }
    let taken = format!("the pool {name} of {workers} is requested");
    Wait { control: &control, namespace, name: cluster, until, follows: false }
        .until(&taken, |known| known.is_made(&[name]))
}

impl Create {
    /// The NodePool of the options or of the file. `namespace` is used if the file names none.
    fn object(&self, namespace: &str) -> anyhow::Result<Value> {
        let Some(file) = &self.file else {
            let Self { name, cluster, worker_class, workers, zone, .. } = self;
            let mut spec = json!({
                "clusterRef": {"name": cluster},
                "replicas": workers.unwrap_or(1),
                "vmClass": worker_class,
            });
            if !zone.is_empty() {
                spec["zones"] = zone.clone().into();
            }
            return Ok(json!({
                "apiVersion": format!("{GROUP}/{VERSION}"),
                "kind": "NodePool",
                "metadata": {"name": name, "namespace": namespace},
                "spec": spec,
            }));
        };
        let mut objects = read(file, &["NodePool"], "`kaas cluster create` creates clusters with their pools")?;
        ensure!(objects.len() == 1, "the file has {} NodePools: give one", objects.len());
        let mut object = objects.remove(0);
        if text(&object, "/metadata/namespace").is_empty() {
            object["metadata"]["namespace"] = namespace.into();
        }
        // Both become parts of an address.
        for pointer in ["/metadata/namespace", "/spec/clusterRef/name"] {
            let part = text(&object, pointer);
            name(part).map_err(|wrong| anyhow::anyhow!("{pointer} of the NodePool is {part:?}: {wrong}"))?;
        }
        Ok(object)
    }
}

fn list(arguments: &List) -> anyhow::Result<ExitCode> {
    let List { cluster, all_namespaces, output, within } = arguments;
    let (control, namespace) = within.open()?;
    let namespace = (!all_namespaces).then_some(namespace.as_str());
    let mut pools = control.list(ResourcePath { plural: "nodepools", namespace })?;
    pools.retain(|pool| cluster.as_deref().is_none_or(|cluster| text(pool, "/spec/clusterRef/name") == cluster));
    output.result(&json!({"pools": pools}), || listed(&pools, SystemTime::now()))
}

/// Pools, one a line, with the columns that kubectl shows.
fn listed(pools: &[Value], now: SystemTime) -> Text {
    let head = ["NAMESPACE", "NAME", "CLUSTER", "REPLICAS", "READY", "UPDATED", "CLASS", "AGE"];
    let row = |pool: &Value| {
        let cell = |pointer: &str| Cell::text(text(pool, pointer));
        [
            cell("/metadata/namespace"),
            cell("/metadata/name"),
            cell("/spec/clusterRef/name"),
            Cell::number(&pool["spec"]["replicas"]),
            Cell::number(&pool["status"]["readyReplicas"]),
            Cell::number(&pool["status"]["updatedReplicas"]),
            cell("/spec/vmClass"),
            Cell::text(&age(pool, now)),
        ]
    };
    table(head, pools.iter().map(row))
}

fn scale(arguments: &Scale) -> anyhow::Result<ExitCode> {
    let Scale { name, workers, remove, dry_run, within, until } = arguments;
    let (control, namespace) = within.open()?;
    let namespace = namespace.as_str();
    let pool = require_pool(&control, namespace, name)?;
    let cluster = text(&pool, "/spec/clusterRef/name");
    require_cluster(&control, namespace, cluster)?;
    let (workers, part, below, fields) = match *workers {
        Some(workers) => (workers, json!({"spec": {"replicas": workers}}), "/scale", &[".spec.replicas"][..]),
        None => {
            let machines = control.list(ResourcePath::within("machines", namespace))?;
            let (workers, part) = removal(&pool, &machines, remove)?;
            (workers, part, "", &[".spec.replicas", ".spec.removeFirst"][..])
        }
    };
    control.patch(pools(namespace), name, below, &part, *dry_run)?;
    if *dry_run {
        let changes: Vec<Change<'_>> = fields.iter().map(|field| Change::of(field, &pool, &part)).collect();
        return DryRunReport::default().changes("NodePool", &pool, &changes).report(until.output);
    }
    let taken = format!("the pool {name} is to have {}", number_of(workers.into(), "worker"));
    Wait { control: &control, namespace, name: cluster, until, follows: false }
        .until(&taken, |known| known.is_scaled(name, workers))
}

/// The wanted number without the named workers, and the change of both fields. The API server refuses it if the pool has changed
/// since it was read. If the command runs again, it counts no worker twice.
fn removal(pool: &Value, machines: &[Value], remove: &[String]) -> anyhow::Result<(u32, Value)> {
    let name = text(pool, "/metadata/name");
    let listed = pool["spec"]["removeFirst"].as_array().into_iter().flatten();
    let mut named: Vec<&str> = listed.filter_map(Value::as_str).collect();
    let workers: BTreeMap<&str, bool> = machines
        .iter()
        .filter(|machine| text(machine, "/spec/poolRef/name") == name)
        .map(|machine| {
            let is_deleted = !machine["metadata"]["deletionTimestamp"].is_null();
            (text(machine, "/metadata/name"), !is_deleted && text(machine, "/status/phase") != "Deleting")
        })
        .collect();
    let remove: BTreeSet<&str> = remove.iter().map(String::as_str).collect();
    let unknown: Vec<&str> =
        remove.iter().copied().filter(|one| !workers.contains_key(one) && !named.contains(one)).collect();
    if !unknown.is_empty() {
        let there: Vec<&str> = workers.into_keys().collect();
        return Err(Rejected::because(format!(
            "the pool {name} has no worker {}. Nothing was changed. Its workers: {}",
            unknown.join(", "),
            if there.is_empty() { "none".to_owned() } else { there.join(", ") }
        ))
        .into());
    }
    let mut wanted = pool["spec"]["replicas"].as_u64().and_then(|count| u32::try_from(count).ok()).unwrap_or(1);
    let staying = workers.values().filter(|stays| **stays).count();
    // An earlier run has lowered the number for these.
    let mut counted = staying.saturating_sub(wanted as usize);
    for one in &remove {
        if named.contains(one) {
            if workers.get(one) != Some(&true) {
                continue;
            }
            if counted > 0 {
                counted -= 1;
                continue;
            }
        } else {
            named.push(one);
        }
        wanted = wanted.saturating_sub(1);
    }
    // Names of workers that are gone have no effect.
    named.retain(|one| workers.contains_key(one) || remove.contains(one));
    let seen = &pool["metadata"]["resourceVersion"];
    let part = json!({"metadata": {"resourceVersion": seen}, "spec": {"replicas": wanted, "removeFirst": named}});
    Ok((wanted, part))
}

/// Deletes the object and waits until it is gone. If the wait ends early, the deletion continues.
fn delete(arguments: &Delete) -> anyhow::Result<ExitCode> {
    let Delete { name, confirm, dry_run, within, until } = arguments;
    let (control, namespace) = within.open()?;
    let namespace = namespace.as_str();
    let pool = require_pool(&control, namespace, name)?;
    let uid = text(&pool, "/metadata/uid");
    if *dry_run {
        control.delete(pools(namespace), name, uid, true)?;
        let mut machines = control.list(ResourcePath::within("machines", namespace))?;
        machines.retain(|machine| text(machine, "/spec/poolRef/name") == name);
        return DryRunReport::default().deletes("NodePool", [&pool]).deletes("Machine", &machines).report(until.output);
    }
    let going = format!(
        "The pool {name} of the cluster {} in the namespace {namespace} is deleted: its workers with their VMs and all data on \
         their disks. This cannot be undone.\nThe control cluster is {}.",
        text(&pool, "/spec/clusterRef/name"),
        control.place()
    );
    announced("pool", name, confirm.as_deref(), &going, until.output)?;
    control.delete(pools(namespace), name, uid, false)?;
    Waiter::new(until).until_gone(&format!("the pool {name}"), || {
        let pool = control.get(pools(namespace), name)?.filter(|pool| text(pool, "/metadata/uid") == uid);
        let progress = WaitResult::Pending;
        Ok(pool.map(|pool| Look { lines: lines(&pool), progress, object: json!({"pool": pool}) }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(replicas: u32, named: &[&str]) -> Value {
        json!({"metadata": {"name": "shop-a", "resourceVersion": "7"}, "spec": {"replicas": replicas, "removeFirst": named}})
    }

    fn machines(phases: &[&str]) -> Vec<Value> {
        let machine = |(number, phase): (usize, &&str)| {
            let name = format!("shop-a-w{number}");
            json!({"metadata": {"name": name}, "spec": {"poolRef": {"name": "shop-a"}}, "status": {"phase": phase}})
        };
        (1..).zip(phases).map(machine).collect()
    }

    fn removed(pool: &Value, machines: &[Value], remove: &[&str]) -> (u32, Value) {
        let remove: Vec<String> = remove.iter().map(|name| (*name).to_owned()).collect();
        let (wanted, part) = removal(pool, machines, &remove).unwrap();
        assert_eq!((&part["metadata"]["resourceVersion"], &part["spec"]["replicas"]), (&json!("7"), &json!(wanted)));
        (wanted, part["spec"]["removeFirst"].clone())
    }

    #[test]
    fn named_workers_are_counted_once() {
        let three = machines(&["Running"; 3]);
        let (w1, both) = (json!(["shop-a-w1"]), json!(["shop-a-w1", "shop-a-w2"]));
        assert_eq!(removed(&pool(3, &[]), &three, &["shop-a-w1"]), (2, w1.clone()));
        assert_eq!(removed(&pool(3, &[]), &three, &["shop-a-w2", "shop-a-w1", "shop-a-w2"]), (1, both.clone()));
        // The same command again, before the worker leaves, while it leaves and after that.
        let named = pool(2, &["shop-a-w1"]);
        assert_eq!(removed(&named, &three, &["shop-a-w1"]), (2, w1.clone()));
        assert_eq!(removed(&named, &machines(&["Deleting", "Running", "Running"]), &["shop-a-w1"]), (2, w1.clone()));
        assert_eq!(removed(&named, &three[1..], &["shop-a-w1"]), (2, w1.clone()));
        assert_eq!(removed(&named, &three, &["shop-a-w1", "shop-a-w2"]), (1, both));
        // The pool was scaled back before the worker left.
        assert_eq!(removed(&pool(3, &["shop-a-w1"]), &three, &["shop-a-w1"]), (2, w1));
        // Names of workers that are gone are left out.
        assert_eq!(removed(&named, &three[1..], &["shop-a-w3"]), (1, json!(["shop-a-w3"])));
    }

    #[test]
    fn unknown_worker_is_one_error() {
        let mut machines = machines(&["Running", "Running"]);
        machines.push(json!({"metadata": {"name": "shop-cp1"}, "spec": {}}));
        let remove = ["shop-cp1", "shop-a-w2", "shop-b-w1"].map(str::to_owned);
        let refused = removal(&pool(2, &[]), &machines, &remove).unwrap_err();
        let words =
            "the pool shop-a has no worker shop-b-w1, shop-cp1. Nothing was changed. Its workers: shop-a-w1, shop-a-w2";
        assert!(refused.is::<Rejected>() && refused.to_string() == words, "{refused}");
    }
}
