//! JSON Schemas of the commands' outputs for scripts, and of the answers of a node's endpoint. They come from the types that are
//! written.

use contract::deployer::Issued;
use contract::node::Node;
use contract::swap::Rejection;
use fleet::control_plane::DeployStatus;
use fleet::upgrade::{KubernetesPlan, Plan, UpgradeStatus};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};

use super::{cluster, deploy, explain, image, ova, pool, provider, support, upgrade, version};
use crate::control::WaitReport;
use crate::output::{ObjectList, object};

/// The schema of an output.
pub struct OutputSchema {
    /// Name of the file, without its extension.
    pub name: &'static str,
    /// The commands with this output. Empty for answers of a node's endpoint.
    pub commands: &'static [&'static str],
    pub schema: Schema,
}

/// All schemas, in the order of their names.
pub fn schemas() -> Vec<OutputSchema> {
    vec![
        of::<cluster::ClusterWithPools<'_>>("cluster", &["kaas cluster get"]),
        of::<cluster::Clusters<'_>>("cluster-list", &["kaas cluster get"]),
        of::<cluster::ObjectTree>("cluster-tree", &["kaas cluster describe"]),
        of::<upgrade::RenewedNodes>("control-certificate", &["kaas control certificate renew"]),
        of::<deploy::Outcome<'_>>("control-outcome", &["kaas control create", "kaas control delete"]),
        of::<deploy::Plan>("control-plan", &["kaas control create"]),
        of::<DeployStatus>("control-status", &["kaas control status"]),
        of::<Issued>("endpoint-deployer", &[]),
        of::<Node>("endpoint-node", &[]),
        of::<Rejection>("endpoint-rejection", &[]),
        of::<explain::Explanations>("explain", &["kaas explain"]),
        of::<image::Images<'_>>("image-list", &["kaas image list"]),
        of::<ObjectList<'_>>(
            "object-list",
            &["kaas cluster create", "kaas image push", "kaas pool create", "kaas provider create"],
        ),
        of::<ova::Facts<'_>>("ova-inspect", &["kaas ova inspect"]),
        of::<ova::VerifiedOva<'_>>("ova-verify", &["kaas ova verify"]),
        of::<pool::Pools<'_>>("pool-list", &["kaas pool list"]),
        OutputSchema {
            name: "provider",
            commands: &["kaas provider get"],
            schema: object(&mut SchemaGenerator::default()),
        },
        of::<provider::Providers<'_>>("provider-list", &["kaas provider get"]),
        of::<support::Report>("support", &["kaas support"]),
        of::<KubernetesPlan>("upgrade-kubernetes-plan", &["kaas control upgrade kubernetes"]),
        of::<Plan>("upgrade-plan", &["kaas control upgrade plan"]),
        of::<UpgradeStatus>("upgrade-status", &["kaas control upgrade status"]),
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

    fn has_output(command: &clap::Command) -> bool {
        command.get_arguments().any(|argument| argument.get_long() == Some("output"))
    }

    #[test]
    fn each_command_with_output_has_a_schema() {
        let all = schemas();
        let described: BTreeSet<&str> = all.iter().flat_map(|schema| schema.commands).copied().collect();
        let program = program();
        let commands = leaves(&program);
        let with_output = commands.iter().filter(|(_, command)| has_output(command));
        assert_eq!(described, with_output.map(|(words, _)| words.as_str()).collect());
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
