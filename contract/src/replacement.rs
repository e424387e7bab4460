//! What a control node says that lets a blank one in: `kaas-agent replace-member --output json`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How a lost node's replacement gets in.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplacementGrant {
    /// The node's name.
    pub node: String,
    /// Its deployment secret: good once, for this node.
    pub code: String,
    /// Until then, as RFC 3339 has it.
    pub expires: String,
    /// What the members agree on now, as properties: the replacement is let in with the same values alone. None of images
    /// of before, which do not say it.
    #[serde(default)]
    pub properties: BTreeMap<String, String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_image_of_before_says_is_understood() {
        let before = r#"{"node": "cp1", "code": "c", "expires": "2026-01-01T00:00:00Z"}"#;
        assert!(serde_json::from_str::<ReplacementGrant>(before).unwrap().properties.is_empty());
    }
}
