//! Changes of a node's properties over its endpoint: `POST /v1/configure`. With the query [`DRY_RUN`] the node only checks them.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::finding::Findings;

/// The path of the route.
pub const PATH: &str = "/v1/configure";

/// The query of a request that only checks the change.
pub const DRY_RUN: &str = "dryRun";

/// The largest accepted body, in bytes.
pub const LARGEST: usize = 1 << 20;

/// The body: properties that are changed together, or not at all. An empty value removes a property, or restores its default.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Properties {
    /// Their values by key.
    pub properties: BTreeMap<String, String>,
}

/// Values may be secrets.
impl fmt::Debug for Properties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.properties.keys()).finish()
    }
}

/// The answer to a change that is possible.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Configured {
    /// The values that the node has now of the requested properties. After a dry run these are the present ones. The value of an
    /// unset property is empty.
    pub properties: BTreeMap<String, String>,
    /// Keys of the properties that have changed. After a dry run: that would change.
    pub changed: Vec<String>,
    /// Whether the node works with its saved properties: the agent has read them and has done all its steps. The agent restarts
    /// after a change, and this is false for some seconds.
    pub applied: bool,
    /// Warnings about all properties of the node.
    #[serde(default)]
    pub findings: Findings,
}

/// Values may be secrets.
impl fmt::Debug for Configured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { properties, changed, applied, findings } = self;
        let keys: Vec<&String> = properties.keys().collect();
        write!(f, "Configured {{ {keys:?}, changed: {changed:?}, applied: {applied}, {findings:?} }}")
    }
}

/// The answer to a change that is not possible, with status 409. Nothing was changed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConfigureRefusal {
    /// The stable code of the first error.
    pub code: String,
    /// All errors in words, with their remedies.
    pub reason: String,
    /// The values that the node has of the requested properties. The value of an unset property is empty.
    #[serde(default)]
    pub properties: BTreeMap<String, String>,
    /// The findings about the requested properties.
    #[serde(default)]
    pub findings: Findings,
}

/// Values may be secrets.
impl fmt::Debug for ConfigureRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConfigureRefusal {{ {}: {} }}", self.code, self.reason)
    }
}
