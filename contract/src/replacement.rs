//! A control-plane node admits a blank one: the output of `kaas-agent replace-member --output json`, and the answer of
//! `POST /v1/replace-member`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The path of the route. Each answer has a new code, and the former one is void.
pub const PATH: &str = "/v1/replace-member";

/// The body of `POST /v1/replace-member`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The lost node's name in the list of control-plane nodes.
    pub node: String,
}

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
