//! The name of another object.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::shapes;

/// An object by its name. Its kind and its namespace follow from the field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Reference {
    /// Name of the object.
    #[schemars(schema_with = "shapes::name")]
    pub name: String,
}

impl Reference {
    pub fn to(name: impl Into<String>) -> Self {
        Self { name: name.into() }
    }
}
