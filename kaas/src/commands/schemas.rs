//! JSON Schemas of the commands' outputs for scripts, and of the answers of a node's endpoint. They come from the types that are
//! written.

use contract::deployer::Issued;
use contract::node::Node;
use contract::swap::Rejection;
use fleet::control_plane::DeployStatus;
use fleet::upgrade::{AbandonedUnread, KubernetesPlan, Plan, UpgradeStatus};
use fleet::vcenter::probe::Report;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};

use super::{backup, cluster, deploy, explain, image, ova, pool, provider, recovery_key, support, upgrade, version};
use crate::control::{DryRunReport, WaitReport};
use crate::output::{ObjectList, object};

/// The schema of an output.
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
        of::<cluster::ClusterWithPools<'_>>("cluster", &["kaas cluster get NAME"]),
        of::<cluster::Clusters<'_>>("cluster-list", &["kaas cluster get"]),
        of::<cluster::ObjectTree>("cluster-tree", &["kaas cluster describe"]),
        of::<upgrade::AdoptedVms>("control-adopt", &["kaas control adopt", "kaas control adopt --dry-run"]),
        of::<backup::PulledSnapshot>("control-backup", &["kaas control backup"]),
        of::<upgrade::RenewedNodes>("control-certificate", &["kaas control certificate renew"]),
        of::<deploy::DeletionPlan>("control-deletion", &["kaas control delete --dry-run"]),
        of::<deploy::Outcome<'_>>("control-outcome", &["kaas control create", "kaas control delete"]),
        of::<deploy::Plan>("control-plan", &["kaas control create --dry-run"]),
        of::<DeployStatus>("control-status", &["kaas control status"]),
        of::<DryRunReport>(
            "dry-run",
            &[
                "kaas cluster delete --dry-run",
                "kaas cluster upgrade --dry-run",
                "kaas image delete --dry-run",
                "kaas pool delete --dry-run",
                "kaas pool scale --dry-run",
            ],
        ),
        of::<Issued>("endpoint-deployer", &[]),
        of::<Node>("endpoint-node", &[]),
        of::<Rejection>("endpoint-rejection", &[]),
        of::<explain::Explanations>("explain", &["kaas explain", "kaas explain CODE"]),
        of::<image::Images<'_>>("image-list", &["kaas image list"]),
        of::<cluster::WrittenKubeconfig>("kubeconfig", &["kaas cluster kubeconfig", "kaas control kubeconfig"]),
        of::<ObjectList<'_>>(
            "object-list",
            &[
                "kaas cluster create --dry-run",
                "kaas image push --dry-run",
                "kaas pool create --dry-run",
                "kaas provider create --dry-run",
            ],
        ),
        of::<ova::ConvertedDisk>("ova-disk", &["kaas ova pack", "kaas ova unpack"]),
        of::<ova::Facts<'_>>("ova-inspect", &["kaas ova inspect"]),
        of::<ova::VerifiedOva<'_>>("ova-verify", &["kaas ova verify"]),
        of::<pool::Pools<'_>>("pool-list", &["kaas pool list"]),
        OutputSchema {
            name: "provider",
            commands: &["kaas provider get NAME"],
            schema: object(&mut SchemaGenerator::default()),
        },
        of::<provider::Providers<'_>>("provider-list", &["kaas provider get"]),
        of::<Report>("provider-probe", &["kaas provider probe"]),
        of::<recovery_key::NewKey>("recovery-key-new", &["kaas recovery-key new"]),
        of::<recovery_key::OpenedKeys>("recovery-key-open", &["kaas recovery-key open"]),
        of::<support::Report>("support", &["kaas support"]),
        of::<AbandonedUnread>("upgrade-abandoned-unread", &["kaas control upgrade abandon"]),
        of::<upgrade::UpgradedKubernetes>("upgrade-kubernetes", &["kaas control upgrade kubernetes"]),
        of::<KubernetesPlan>("upgrade-kubernetes-plan", &["kaas control upgrade kubernetes --dry-run"]),
        of::<Plan>("upgrade-plan", &["kaas control upgrade plan"]),
        of::<UpgradeStatus>(
            "upgrade-status",
            &[
                "kaas control upgrade abandon",
                "kaas control upgrade apply",
                "kaas control upgrade commit",
                "kaas control upgrade resume",
                "kaas control upgrade rollback",
                "kaas control upgrade status",
            ],
        ),
        of::<version::Versions>("version", &["kaas version"]),
        of::<WaitReport>(
            "wait",
            &[
                "kaas cluster adopt",
                "kaas cluster create",
                "kaas cluster delete",
                "kaas cluster upgrade",
                "kaas image delete",
                "kaas image push",
                "kaas pool create",
                "kaas pool delete",
                "kaas pool scale",
                "kaas provider create",
            ],
        ),
    ]
}

fn of<T: JsonSchema>(name: &'static str, commands: &'static [&'static str]) -> OutputSchema {
    let generator = SchemaSettings::default().for_serialize().into_generator();
    OutputSchema { name, commands, schema: generator.into_root_schema_for::<T>() }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::commands::{leaves, program};

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
    fn each_mode_of_a_command_with_output_has_a_schema() {
        let all = schemas();
        let described: BTreeSet<String> =
            all.iter().flat_map(|schema| schema.commands).map(|mode| (*mode).to_owned()).collect();
        let program = program();
        let modes = leaves(&program).into_iter().flat_map(|(words, command)| modes(&words, command));
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
