//! The output of a control-plane node that admits a blank one: `kaas-agent replace-member --output json`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The grant with which a lost node's replacement joins.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplacementGrant {
    /// The node's name.
    pub node: String,
    /// Its deployment secret, valid once, for this node.
    pub code: String,
    /// The end of its validity, in RFC 3339.
    pub expires: String,
    /// The members' common properties. The replacement is admitted only with the same values.
    pub properties: BTreeMap<String, String>,
}
