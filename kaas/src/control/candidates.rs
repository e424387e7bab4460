//! The names of objects of the control cluster, which a shell completes.

use clap_complete::engine::ArgValueCandidates;

use super::prompt::candidates;
use super::{Control, ControlClusterArgs, NamespaceArgs, ResourcePath, name, text};

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
        let (control, namespace) = NamespaceArgs::given(words).open()?;
        names(&control, ResourcePath::within(plural, &namespace))
    })
}

/// Objects without a namespace.
fn of_cluster(plural: &'static str) -> ArgValueCandidates {
    candidates(move |words| names(&ControlClusterArgs::given(words).open()?, ResourcePath::anywhere(plural)))
}

fn names(control: &Control, of: ResourcePath<'_>) -> anyhow::Result<Vec<String>> {
    // A shell runs what a completed line contains, so other names are left out.
    Ok(control.list(of)?.iter().filter_map(|object| name(text(object, "/metadata/name")).ok()).collect())
}
