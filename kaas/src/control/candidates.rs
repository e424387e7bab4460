//! The names of objects of the control cluster, which a shell completes.

use clap_complete::engine::ArgValueCandidates;
use serde_json::Value;

use super::prompt::candidates;
use super::{ControlClusterArgs, NamespaceArgs, ResourcePath, name, text};

pub fn clusters() -> ArgValueCandidates {
    of_namespace("tenantclusters")
}

pub fn pools() -> ArgValueCandidates {
    of_namespace("nodepools")
}

pub fn providers() -> ArgValueCandidates {
    of_cluster("providers")
}

pub fn tenants() -> ArgValueCandidates {
    of_cluster("tenants")
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

pub fn namespaces() -> ArgValueCandidates {
    candidates(|words| Ok(names(&ControlClusterArgs::given(words).open()?.list_at("/api/v1/namespaces")?)))
}

/// Objects of the namespace that the command line names.
fn of_namespace(plural: &'static str) -> ArgValueCandidates {
    candidates(move |words| {
        let (control, namespace) = NamespaceArgs::given(words).open()?;
        Ok(names(&control.list(ResourcePath::within(plural, &namespace))?))
    })
}

/// Objects without a namespace.
fn of_cluster(plural: &'static str) -> ArgValueCandidates {
    candidates(move |words| Ok(names(&ControlClusterArgs::given(words).open()?.list(ResourcePath::anywhere(plural))?)))
}

fn names(objects: &[Value]) -> Vec<String> {
    // A shell runs what a completed line contains, so other names are left out.
    objects.iter().filter_map(|object| name(text(object, "/metadata/name")).ok()).collect()
}
