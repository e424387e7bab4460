//! The names of objects of the control cluster, which a shell completes.

use clap_complete::engine::ArgValueCandidates;
use fleet::nodes::clean;

use super::prompt::{candidates, option};
use super::{ControlClusterArgs, ResourcePath, text};

pub fn clusters() -> ArgValueCandidates {
    of_namespace("tenantclusters")
}

pub fn pools() -> ArgValueCandidates {
    of_namespace("nodepools")
}

pub fn providers() -> ArgValueCandidates {
    of_cluster("providers")
}

pub fn images() -> ArgValueCandidates {
    of_cluster("nodeimages")
}

pub fn vm_classes() -> ArgValueCandidates {
    of_cluster("vmclasses")
}

pub fn ip_pools() -> ArgValueCandidates {
    of_cluster("ippools")
}

/// Objects of the namespace that the command line names.
fn of_namespace(plural: &'static str) -> ArgValueCandidates {
    candidates(move |words| {
        let namespace = option(words, &["--namespace", "-n"]).unwrap_or_else(|| "default".to_owned());
        names(words, ResourcePath::within(plural, &namespace))
    })
}

/// Objects without a namespace.
fn of_cluster(plural: &'static str) -> ArgValueCandidates {
    candidates(move |words| names(words, ResourcePath::anywhere(plural)))
}

fn names(words: &[String], of: ResourcePath<'_>) -> anyhow::Result<Vec<String>> {
    let objects = ControlClusterArgs::given(words).open()?.list(of)?;
    Ok(objects.iter().map(|object| clean(text(object, "/metadata/name"))).collect())
}
