//! `kaas cluster replace-node`: asks the controller to replace a lost control-plane node, and waits.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use controller::objects::{HOST_IS_OFF, REPLACE_NODE};
use serde_json::json;

use super::arguments::ReplaceNode;
use super::require_cluster;
use crate::confirm::announced;
use crate::control::{Change, DryRunReport, Look, ResourcePath, Waiter};

/// How long the controller may take to hear a request. Until then the conditions may be older than the request.
const HEARD: Duration = Duration::from_secs(90);

pub(super) fn replace_node(arguments: &ReplaceNode) -> anyhow::Result<ExitCode> {
    let ReplaceNode { name, node, host_is_off, confirm, dry_run, within, until } = arguments;
    let (control, namespace) = within.open()?;
    let namespace = namespace.as_str();
    let look = || {
        let mut known = require_cluster(&control, namespace, name)?;
        known.look_at_replacement(&control, namespace)?;
        anyhow::Ok(known)
    };
    let known = look()?;
    let clusters = ResourcePath::within("tenantclusters", namespace);
    let mut annotations = json!({REPLACE_NODE: node});
    if let Some(host) = host_is_off {
        annotations[HOST_IS_OFF] = host.as_str().into();
    }
    let part = json!({"metadata": {"uid": known.cluster["metadata"]["uid"], "annotations": annotations}});
    if *dry_run {
        control.patch(clusters, name, "", &part, true)?;
        let [old, new] = [&known.cluster, &part].map(|object| &object["metadata"]["annotations"]);
        let named = [REPLACE_NODE, HOST_IS_OFF].map(|it| (it, format!(".metadata.annotations[{it:?}]")));
        let given = named.iter().filter(|(it, _)| !new[*it].is_null());
        let changes: Vec<Change<'_>> =
            given.map(|(it, field)| Change { field, old: &old[*it], new: &new[*it] }).collect();
        return DryRunReport::default().changes("TenantCluster", &known.cluster, &changes).report(until.output);
    }
    let going = format!(
        "The control-plane node {node} of the cluster {name} in the namespace {namespace} gets another VM, if its VM is proved off or \
         gone. The other nodes remove the lost one first. If its former VM returns, it is disconnected and powered off; its data disk \
         stays.\nThe control cluster is {}.",
        control.place()
    );
    announced("node", node, confirm.as_deref(), &going, until.output)?;
    let before = known.ended_replacement();
    control.patch(clusters, name, "", &part, false)?;
    let asked = Instant::now();
    let taken = format!("the node {node} of the cluster {name} is to be replaced");
    Waiter::new(until).run(&taken, || {
        let known = look()?;
        let progress = known.is_replaced(node, before, asked.elapsed() >= HEARD);
        Ok(Look { lines: known.lines(), progress, object: known.object() })
    })
}
