//! Where new VMs are put.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The place of a VM. An empty field means the place of the VM that it replaces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Placement {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datastore: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_pool: Option<String>,
    /// The folder of the inventory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
}

impl Placement {
    /// Whether every field is empty.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// For "VMs are put: …".
impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            self.datastore.as_ref().map(|name| format!("on the datastore {name}")),
            self.resource_pool.as_ref().map(|name| format!("into the resource pool {name}")),
            self.folder.as_ref().map(|name| format!("into the folder {name}")),
        ];
        let given: Vec<String> = parts.into_iter().flatten().collect();
        f.write_str(&if given.is_empty() { "with the VMs that they replace".to_owned() } else { given.join(", ") })
    }
}
