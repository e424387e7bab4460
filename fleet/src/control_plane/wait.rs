//! Why something is not done yet.

use schemars::JsonSchema;
use serde::Serialize;

use crate::engine::Reason;

/// A condition before the run continues.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Wait {
    /// The node that it is about. `None` for the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    #[serde(flatten)]
    pub reason: Reason,
    /// Whether the operator must act: waiting does not help.
    #[serde(skip)]
    pub lasting: bool,
}

impl Wait {
    /// The wait may end by itself.
    pub(super) fn passing(node: &str, code: &str, words: impl std::fmt::Display) -> Self {
        Self { node: Some(node.to_owned()), reason: Reason::new(code, words), lasting: false }
    }

    /// The operator must act.
    pub(super) fn lasting(node: &str, code: &str, words: impl std::fmt::Display) -> Self {
        Self { lasting: true, ..Self::passing(node, code, words) }
    }
}

impl std::fmt::Display for Wait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.node {
            Some(node) => write!(f, "{node}: {}", self.reason),
            None => self.reason.fmt(f),
        }
    }
}
