//! `kaas image …`: the images of tenant nodes, as NodeImages of a control cluster.

mod push;

use std::process::ExitCode;
use std::time::SystemTime;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::confirm::announced;
use crate::control::{
    Cell, Control, ControlClusterArgs, DryRunReport, ListArgs, Look, NODE_IMAGES, Rejected, ResourcePath, WaitArgs,
    WaitResult, Waiter, age, candidates, name, table, text,
};
use crate::styled::Text;

/// Commands on images of tenant nodes.
#[derive(Subcommand)]
pub enum Image {
    /// Verify an OVA of tenant nodes and import it to the vCenter of a Provider, as a NodeImage for clusters
    #[command(after_help = "Example: `kaas image push kaas-tenant-0.2.0.ova --provider dc1 --publisher publisher.pem`")]
    Push(push::Push),
    /// List the NodeImages of a control cluster
    #[command(after_help = "Example: `kaas image list`")]
    List(ListArgs),
    /// Delete a NodeImage once no cluster uses it. Its templates stay in the vCenter
    #[command(after_help = "Example: `kaas image delete kaas-tenant-0.1.0`")]
    Delete(Delete),
}

#[derive(Args)]
pub struct Delete {
    /// Name of the NodeImage
    #[arg(value_parser = name, add = candidates::images())]
    name: String,
    /// Name of the NodeImage, as the confirmation. Without it, the command asks for the name
    #[arg(long, value_name = "IMAGE")]
    confirm: Option<String>,
    /// Only print what would be deleted, without a confirmation. The API server checks the request
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    at: ControlClusterArgs,
    #[command(flatten)]
    until: WaitArgs,
}

/// Runs one of the commands. Exit statuses: 0 if it is done, 3 if nothing has changed within the wait limit, 4 if the operator
/// must act.
pub fn run(command: &Image) -> anyhow::Result<ExitCode> {
    match command {
        Image::Push(arguments) => push::push(arguments),
        Image::List(arguments) => list(arguments),
        Image::Delete(arguments) => delete(arguments),
    }
}

fn list(arguments: &ListArgs) -> anyhow::Result<ExitCode> {
    let images = arguments.at.open()?.list(NODE_IMAGES)?;
    arguments.output.result(&json!({"images": images}), || listed(&images, SystemTime::now()))
}

/// Images, one a line, with the columns that kubectl shows.
fn listed(images: &[Value], now: SystemTime) -> Text {
    let row = |image: &Value| {
        let minors = image["status"]["kubernetes"].as_array().into_iter().flatten().filter_map(Value::as_str);
        [
            Cell::text(text(image, "/metadata/name")),
            Cell::text(text(image, "/status/version")),
            Cell::text(&minors.collect::<Vec<_>>().join(",")),
            Cell::text(text(image, "/status/phase")),
            Cell::status(image, "Ready"),
            Cell::status(image, "Compatible"),
            Cell::text(&age(image, now)),
        ]
    };
    table(["NAME", "VERSION", "KUBERNETES", "LIFECYCLE", "READY", "COMPATIBLE", "AGE"], images.iter().map(row))
}

/// Deletes the object and waits until it is gone. If the wait ends early, the deletion continues.
fn delete(arguments: &Delete) -> anyhow::Result<ExitCode> {
    let Delete { name, confirm, dry_run, at, until } = arguments;
    let control = at.open()?;
    let missing = || Rejected::because(format!("there is no NodeImage {name}"));
    let image = control.get(NODE_IMAGES, name)?.ok_or_else(missing)?;
    let uid = text(&image, "/metadata/uid");
    if *dry_run {
        control.delete(NODE_IMAGES, name, uid, true)?;
        return DryRunReport::default().deletes("NodeImage", [&image]).report(until.output);
    }
    let going = format!(
        "The NodeImage {name} is deleted. Its templates stay in the vCenter.\nThe control cluster is {}.",
        control.place()
    );
    announced("NodeImage", name, confirm.as_deref(), &going, until.output)?;
    control.delete(NODE_IMAGES, name, uid, false)?;
    Waiter::new(until).until_gone(&format!("the NodeImage {name}"), || {
        let image = control.get(NODE_IMAGES, name)?.filter(|image| text(image, "/metadata/uid") == uid);
        let Some(image) = image else { return Ok(None) };
        let lines = users(&control, name)?;
        Ok(Some(Look { lines, progress: WaitResult::Pending, object: json!({"image": image}) }))
    })
}

/// The clusters that use an image, each with its line for the operator.
fn users(control: &Control, name: &str) -> anyhow::Result<Vec<(String, String)>> {
    let clusters = control.list(ResourcePath::anywhere("tenantclusters"))?;
    let uses =
        |cluster: &&Value| [text(cluster, "/spec/image"), text(cluster, "/status/resolved/image")].contains(&name);
    let line = |cluster: &Value| {
        let of = format!("{}/{}", text(cluster, "/metadata/namespace"), text(cluster, "/metadata/name"));
        let line = format!("waiting: the cluster {of} uses {name}");
        (of, line)
    };
    Ok(clusters.iter().filter(uses).map(line).collect())
}
