//! Volumes on the data disks of workers.

use contract::local_volumes::{CLASS, LABEL, PROVISIONER as PROVISIONER_NAME};
use contract::paths;
use serde_json::Value;

use super::manifest;

pub(super) const PROVISIONER: &str = "local-path-provisioner";
/// The container image of the pod that the provisioner starts on a volume's node.
pub(super) const HELPER: &str = "local-path-helper";

pub(super) fn objects() -> Vec<Value> {
    manifest::objects(
        include_str!("local_volumes.yaml"),
        [
            ("PROVISIONER", PROVISIONER_NAME.into()),
            ("CLASS", CLASS.into()),
            ("LABEL", LABEL.into()),
            ("DIRECTORY", paths::LOCAL_VOLUMES.into()),
        ],
    )
}
