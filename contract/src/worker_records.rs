//! Where control nodes note which workers they have let in, and who frees a name there finds it. What is noted of each is theirs.

/// The name of the ConfigMap. Its keys are names of nodes.
pub const NAME: &str = "kaas-worker-records";

/// Where ConfigMaps of its namespace are.
pub const CONFIG_MAPS: &str = "/api/v1/namespaces/kube-system/configmaps";

/// Where it is.
pub fn path() -> String {
    format!("{CONFIG_MAPS}/{NAME}")
}
