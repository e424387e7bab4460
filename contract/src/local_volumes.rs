//! What the class for volumes on data disks of workers, and who looks after such volumes, agree on.

/// The name of the storage class. It is not the default one: who asks for no class gets no volume that is lost with its node.
pub const CLASS: &str = "local";

/// The label, with the value `true`, of nodes that have a data disk for such volumes: on others none is made.
pub const LABEL: &str = "kaas.local/local-volumes";

/// The class's provisioner. Each volume that it has made names it in the annotation `pv.kubernetes.io/provisioned-by`.
pub const PROVISIONER: &str = "rancher.io/local-path";
