//! JSON Schemas of the commands' outputs for scripts, and of the answers of a node's endpoint. They come from the types that are
//! written.

use contract::configure::{ConfigureRefusal, Configured};
use contract::deployer::Issued;
use contract::node::Node;
use contract::swap::Rejection;
use fleet::control_plane::DeployStatus;
use fleet::upgrade::{AbandonedUnread, KubernetesPlan, Plan, Preview, UnreadPreview, UpgradeStatus};
use fleet::vcenter::probe::Report;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::control::deployment;
use super::{backup, cluster, explain, ova, recovery_key, support, upgrade, version};
use crate::control::{DryRunReport, WaitReport};
use crate::output::{ObjectList, object, objects};

pub struct OutputSchema {
    /// Name of the file, without its extension.
    pub name: &'static str,
    /// The commands with this output, each with its mode: `--dry-run`, or an optional argument. Empty for answers of a node's
    /// endpoint.
    pub commands: &'static [&'static str],
    pub schema: Schema,
}

/// All schemas, in the order of their names.
pub fn schemas() -> Vec<OutputSchema> {
    vec![
        of::<cluster::ClusterWithPools<'_>>("cluster", &["cluster get NAME"]),
        list("cluster-list", &["cluster get"], "Clusters", "clusters"),
        of::<cluster::ObjectTree>("cluster-tree", &["cluster describe"]),
        of::<upgrade::AdoptedVms>("control-adopt", &["control adopt", "control adopt --dry-run"]),
        of::<backup::PulledSnapshot>("control-backup", &["control backup"]),
        of::<upgrade::RenewedNodes>("control-certificate", &["control certificate renew"]),
        of::<deployment::DeletionPlan>("control-deletion", &["control delete --dry-run"]),
        of::<deployment::Outcome<'_>>("control-outcome", &["control create", "control delete", "control replace-node"]),
        of::<deployment::Plan>("control-plan", &["control create --dry-run"]),
        of::<deployment::ReplacementPlan>("control-replacement", &["control replace-node --dry-run"]),
        of::<DeployStatus>("control-status", &["control status"]),
        of::<DryRunReport>(
            "dry-run",
            &[
                "cluster delete --dry-run",
                "cluster replace-node --dry-run",
                "cluster upgrade --dry-run",
                "image delete --dry-run",
                "pool delete --dry-run",
                "pool scale --dry-run",
                "tenant delete --dry-run",
            ],
        ),
        of::<Configured>("endpoint-configure", &[]),
        of::<ConfigureRefusal>("endpoint-configure-refusal", &[]),
        of::<Issued>("endpoint-deployer", &[]),
        of::<Node>("endpoint-node", &[]),
        of::<Rejection>("endpoint-rejection", &[]),
        of::<explain::Explanations>("explain", &["explain", "explain CODE"]),
        list("image-list", &["image list"], "Images", "images"),
        of::<cluster::WrittenKubeconfig>("kubeconfig", &["cluster kubeconfig", "control kubeconfig"]),
        of::<ObjectList<'_>>(
            "object-list",
            &[
                "cluster create --dry-run",
                "image push --dry-run",
                "pool create --dry-run",
                "provider create --dry-run",
                "tenant create --dry-run",
            ],
        ),
        of::<ova::ConvertedDisk>("ova-disk", &["ova pack", "ova unpack"]),
        of::<ova::Facts<'_>>("ova-inspect", &["ova inspect"]),
        of::<ova::VerifiedOva<'_>>("ova-verify", &["ova verify"]),
        list("pool-list", &["pool list"], "Pools", "pools"),
        OutputSchema {
            name: "provider",
            commands: &["provider get NAME"],
            schema: object(&mut SchemaGenerator::default()),
        },
        list("provider-list", &["provider get"], "Providers", "providers"),
        of::<Report>("provider-probe", &["provider probe"]),
        of::<recovery_key::NewKey>("recovery-key-new", &["recovery-key new"]),
        of::<recovery_key::OpenedKeys>("recovery-key-open", &["recovery-key open"]),
        of::<support::Report>("support", &["support"]),
        OutputSchema { name: "tenant", commands: &["tenant get"], schema: object(&mut SchemaGenerator::default()) },
        list("tenant-list", &["tenant list"], "Tenants", "tenants"),
        of::<AbandonedUnread>("upgrade-abandoned-unread", &["control upgrade abandon"]),
        of::<upgrade::UpgradedKubernetes>("upgrade-kubernetes", &["control upgrade kubernetes"]),
        of::<KubernetesPlan>("upgrade-kubernetes-plan", &["control upgrade kubernetes --dry-run"]),
        of::<Plan>("upgrade-plan", &["control upgrade apply --dry-run", "control upgrade plan"]),
        of::<Preview>(
            "upgrade-preview",
            &[
                "control upgrade abandon --dry-run",
                "control upgrade commit --dry-run",
                "control upgrade resume --dry-run",
                "control upgrade rollback --dry-run",
            ],
        ),
        of::<UnreadPreview>("upgrade-preview-unread", &["control upgrade abandon --dry-run"]),
        of::<UpgradeStatus>(
            "upgrade-status",
            &[
                "control upgrade abandon",
                "control upgrade apply",
                "control upgrade commit",
                "control upgrade resume",
                "control upgrade rollback",
                "control upgrade status",
            ],
        ),
        of::<version::Versions>("version", &["version"]),
        of::<WaitReport>(
            "wait",
            &[
                "cluster adopt",
                "cluster create",
                "cluster delete",
                "cluster replace-node",
                "cluster upgrade",
                "image delete",
                "image push",
                "pool create",
                "pool delete",
                "pool scale",
                "pool scale WORKERS",
                "provider create",
                "tenant create",
                "tenant delete",
            ],
        ),
    ]
}

fn of<T: JsonSchema>(name: &'static str, commands: &'static [&'static str]) -> OutputSchema {
    let generator = SchemaSettings::default().for_serialize().into_generator();
    OutputSchema { name, commands, schema: generator.into_root_schema_for::<T>() }
}

/// Objects of one kind, as the list `key` of one object.
fn list(name: &'static str, commands: &'static [&'static str], title: &str, key: &str) -> OutputSchema {
    let command = if commands[0].ends_with(" list") { "`list`" } else { "`get` without a name" };
    let schema = json_schema!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        "description": format!("The output of {command}."),
        "type": "object",
        "properties": {key: objects(&mut SchemaGenerator::default())},
        "required": [key],
    });
    OutputSchema { name, commands, schema }
}

#[cfg(test)]
pub mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::commands::{leaves, program};

    /// Checks an output against the schema of this name.
    #[track_caller]
    pub fn fits(name: &str, output: &impl serde::Serialize) {
        let all = schemas();
        let schema = all.iter().find(|schema| schema.name == name).unwrap_or_else(|| panic!("{name} has no schema"));
        let output = serde_json::to_value(output).unwrap();
        assert_eq!(testbed::off_schema(&output, schema.schema.as_value()), [""; 0], "{name}: {output:#}");
    }

    /// The modes of a command that differ in their output. Empty for a command without the option `--output`.
    fn modes(words: &str, command: &clap::Command) -> Vec<String> {
        let option = |name: &str| command.get_arguments().find(|argument| argument.get_long() == Some(name));
        if option("output").is_none() {
            return Vec::new();
        }
        let mut modes = vec![words.to_owned()];
        modes.extend(option("dry-run").map(|_| format!("{words} --dry-run")));
        // A file may replace the name of an object to create.
        if option("file").is_none() {
            let optional = command.get_positionals().filter(|argument| !argument.is_required_set());
            modes.extend(optional.map(|argument| format!("{words} {}", argument.get_id().as_str().to_uppercase())));
        }
        modes
    }

    #[test]
    fn each_mode_with_output_has_a_schema() {
        let all = schemas();
        let described: BTreeSet<String> =
            all.iter().flat_map(|schema| schema.commands).map(|mode| (*mode).to_owned()).collect();
        let program = program();
        let leaves = leaves(&program);
        let modes = leaves.iter().flat_map(|(words, command)| modes(words.strip_prefix("kaas ").unwrap(), command));
        assert_eq!(described, modes.collect());
    }

    #[test]
    fn names_are_unique_and_sorted() {
        let names: Vec<&str> = schemas().iter().map(|schema| schema.name).collect();
        assert!(names.is_sorted_by(|one, other| one < other), "{names:?}");
    }

    #[test]
    fn schema_lists_required_fields() {
        let all = schemas();
        let version = all.iter().find(|schema| schema.name == "version").unwrap().schema.as_value();
        assert_eq!(version["required"], serde_json::json!(["version", "objects"]));
        assert_eq!(version["properties"]["version"]["type"], "string");
    }
}
