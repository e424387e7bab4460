//! The contract between the storage class for volumes on workers' data disks and the programs that manage such volumes.

/// The name of the storage class. It is not the default: a claim that names no class must not get a volume that is lost with
/// its node.
pub const CLASS: &str = "local";

/// The label, with the value `true`, of nodes that have a data disk for such volumes. Volumes are made only on these.
pub const LABEL: &str = "kaas.local/local-volumes";

/// The class's provisioner. Each of its volumes names it in the annotation `pv.kubernetes.io/provisioned-by`.
pub const PROVISIONER: &str = "rancher.io/local-path";
