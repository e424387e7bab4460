//! `kaas tenant …`: the teams that use tenant clusters, for the operator of the platform. Each command writes objects that kubectl
//! could write as well.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::{Context, ensure};
use clap::{Args, Subcommand};
use controller::objects::TenantReason;
use serde_json::{Value, json};

use crate::confirm::announced;
use crate::control::{
    self, Cell, Control, ControlClusterArgs, DryRunReport, ListArgs, Look, Rejected, ResourcePath, WaitArgs,
    WaitResult, Waiter, age, candidates, conditions, lines, name, read, table, text,
};
use crate::output::{Output, result};
use crate::styled::Text;

/// Commands on Tenants
#[derive(Subcommand)]
pub enum Tenant {
    /// Create or change a Tenant, and wait until it is in effect
    #[command(after_help = "Example: `kaas tenant create --file tenant.yaml`")]
    Create(Create),
    /// Show a Tenant with its quota and use
    #[command(after_help = "Example: `kaas tenant get blue`")]
    Get(Get),
    /// List the Tenants
    #[command(after_help = "Example: `kaas tenant list`")]
    List(ListArgs),
    /// Delete a Tenant without clusters, after a confirmation. Its networks and pools are then open to other namespaces
    #[command(after_help = "Example: `kaas tenant delete blue`")]
    Delete(Delete),
}

#[derive(Args)]
pub struct Create {
    /// YAML file with one Tenant. docs/reference/objects.md has the fields
    #[arg(short, long, value_name = "FILE", required_unless_present = "example")]
    file: Option<PathBuf>,
    /// Print an example of the file, and do nothing else
    #[arg(long, exclusive = true)]
    example: bool,
    /// Only let the API server check the Tenant. With `--output yaml`, print it
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    at: ControlClusterArgs,
    #[command(flatten)]
    until: WaitArgs,
}

#[derive(Args)]
pub struct Get {
    /// Name of the Tenant
    #[arg(value_parser = name, add = candidates::tenants())]
    name: String,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    at: ControlClusterArgs,
}

#[derive(Args)]
pub struct Delete {
    /// Name of the Tenant
    #[arg(value_parser = name, add = candidates::tenants())]
    name: String,
    /// Name of the Tenant, as the confirmation. Without it, the command asks for the name
    #[arg(long, value_name = "TENANT")]
    confirm: Option<String>,
    /// Only print what would be deleted, without a confirmation. The API server checks the request
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    at: ControlClusterArgs,
    #[command(flatten)]
    until: WaitArgs,
}

const TENANTS: ResourcePath<'static> = ResourcePath::anywhere("tenants");
const EXAMPLE: &str = include_str!("example.yaml");

/// Runs one of the commands. Exit statuses: 0 if the wanted state is reached, 3 if nothing has changed within the wait limit, 4
/// if the operator must act.
pub fn run(command: &Tenant) -> anyhow::Result<ExitCode> {
    match command {
        Tenant::Create(arguments) => create(arguments),
        Tenant::Get(arguments) => get(arguments),
        Tenant::List(arguments) => list(arguments),
        Tenant::Delete(arguments) => delete(arguments),
    }
}

fn require_tenant(control: &Control, name: &str) -> anyhow::Result<Value> {
    let missing = || Rejected::because(format!("there is no Tenant {name}"));
    Ok(control.get(TENANTS, name)?.ok_or_else(missing)?)
}

fn create(arguments: &Create) -> anyhow::Result<ExitCode> {
    let Create { file, example, dry_run, at, until } = arguments;
    if *example {
        return result(EXAMPLE).map(|()| ExitCode::SUCCESS);
    }
    let file = file.as_deref().context("give the Tenant with --file")?;
    let mut objects = read(file, &["Tenant"], "apply others with `kubectl apply --server-side`")?;
    ensure!(objects.len() == 1, "the file has {} Tenants: give one", objects.len());
    let object = objects.remove(0);
    let name = text(&object, "/metadata/name");
    let control = at.open()?;
    control.apply(TENANTS, &object, *dry_run)?;
    if *dry_run {
        let text = || format!("the API server accepts the Tenant {name}");
        return until.output.objects(&[&object], text);
    }
    Waiter::new(until).run(&format!("the Tenant {name} is requested"), || {
        let tenant = require_tenant(&control, name)?;
        Ok(Look { lines: lines(&tenant), progress: wait_result(&tenant), object: json!({"tenant": tenant}) })
    })
}

fn get(arguments: &Get) -> anyhow::Result<ExitCode> {
    let control = arguments.at.open()?;
    let tenant = require_tenant(&control, &arguments.name)?;
    let catalogs = control.list(ResourcePath::anywhere("catalogs"))?;
    let catalog = catalogs.iter().find(|catalog| text(catalog, "/spec/tenant") == arguments.name);
    arguments.output.result(&tenant, || {
        let mut shown = listed(std::slice::from_ref(&tenant), SystemTime::now());
        shown.append("\n\n");
        shown.append(used(&tenant, catalog));
        shown.append(format!("\n\n{}", conditions(&tenant)));
        shown
    })
}

/// The quota of a Tenant, and its use by one of its Catalogs, which all have the same.
fn used(tenant: &Value, catalog: Option<&Value>) -> Text {
    let row = |(field, shown): (&str, &str)| {
        let used = catalog.map_or(&Value::Null, |catalog| &catalog["spec"]["used"][field]);
        [Cell::text(shown), Cell::number(used), Cell::number(&tenant["spec"]["quota"][field])]
    };
    let all = [
        ("clusters", "clusters"),
        ("nodes", "nodes"),
        ("processors", "processors"),
        ("memoryMiB", "memory MiB"),
        ("addresses", "addresses"),
    ];
    table(["RESOURCE", "USED", "QUOTA"], all.into_iter().map(row))
}

fn list(arguments: &ListArgs) -> anyhow::Result<ExitCode> {
    let tenants = arguments.at.open()?.list(TENANTS)?;
    arguments.output.result(&json!({"tenants": tenants}), || listed(&tenants, SystemTime::now()))
}

fn listed(tenants: &[Value], now: SystemTime) -> Text {
    let row = |tenant: &Value| {
        let namespaces = tenant["spec"]["namespaces"].as_array().into_iter().flatten().filter_map(Value::as_str);
        [
            Cell::text(text(tenant, "/metadata/name")),
            Cell::status(tenant, "Ready"),
            Cell::text(&namespaces.collect::<Vec<_>>().join(",")),
            Cell::text(&age(tenant, now)),
        ]
    };
    table(["NAME", "READY", "NAMESPACES", "AGE"], tenants.iter().map(row))
}

/// Deletes the object and waits until it is gone. The controller keeps a Tenant that has clusters.
fn delete(arguments: &Delete) -> anyhow::Result<ExitCode> {
    let Delete { name, confirm, dry_run, at, until } = arguments;
    let control = at.open()?;
    let tenant = require_tenant(&control, name)?;
    let uid = text(&tenant, "/metadata/uid");
    if *dry_run {
        control.delete(TENANTS, name, uid, true)?;
        return DryRunReport::default().deletes("Tenant", [&tenant]).report(until.output);
    }
    let going = format!(
        "The Tenant {name} is deleted: its people lose their access, and its networks and pools are open to other namespaces.\n\
         The control cluster is {}.",
        control.place()
    );
    announced("Tenant", name, confirm.as_deref(), &going, until.output)?;
    control.delete(TENANTS, name, uid, false)?;
    Waiter::new(until).until_gone(&format!("the Tenant {name}"), || {
        let tenant = control.get(TENANTS, name)?.filter(|tenant| text(tenant, "/metadata/uid") == uid);
        Ok(tenant.map(|tenant| {
            // It waits for its clusters, which only people delete.
            let progress = match wait_result(&tenant) {
                stopped @ WaitResult::Stopped(_) => stopped,
                _ => WaitResult::Pending,
            };
            Look { lines: lines(&tenant), progress, object: json!({"tenant": tenant}) }
        }))
    })
}

/// Whether the Tenant is in effect.
fn wait_result(tenant: &Value) -> WaitResult {
    let there = format!("the Tenant {} is in effect", text(tenant, "/metadata/name"));
    control::wait_result::<TenantReason>(tenant, &["Ready"], there)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn example_is_a_valid_tenant() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tenant.yaml");
        std::fs::write(&path, EXAMPLE).unwrap();
        let tenant = read(&path, &["Tenant"], "").unwrap().remove(0);
        let tenant: controller::objects::Tenant = serde_json::from_value(tenant).unwrap();
        assert_eq!(tenant.spec.quota.and_then(|quota| quota.nodes), Some(50));
    }

    #[test]
    fn quota_is_shown_with_its_use() {
        let tenant = json!({"metadata": {"name": "blue"}, "spec": {"quota": {"nodes": 50}}});
        let catalog = json!({"spec": {"tenant": "blue", "used": {"nodes": 7, "clusters": 1}}});
        let shown = used(&tenant, Some(&catalog)).to_string();
        let nodes = shown.lines().find(|line| line.starts_with("nodes")).unwrap();
        assert_eq!(nodes.split_whitespace().collect::<Vec<_>>(), ["nodes", "7", "50"]);
    }
}
