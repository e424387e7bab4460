//! The API server's `Status` (`k8s.io/apimachinery`, `meta/v1`).

use serde::Deserialize;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Status {
    pub code: u16,
    pub kind: String,
    pub message: Option<String>,
    pub reason: String,
    pub details: Details,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Details {
    pub name: Option<String>,
    pub causes: Vec<Cause>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Cause {
    pub reason: String,
    pub message: String,
    pub field: String,
}

impl Status {
    /// Empty if the body is no `Status`.
    pub fn read(body: &[u8]) -> Self {
        serde_json::from_slice(body).unwrap_or_default()
    }

    /// The causes, such as the budget that blocks an eviction, or else the message. Empty if there is neither.
    pub fn why(self) -> String {
        let causes: Vec<String> = self.details.causes.into_iter().map(|cause| cause.message).collect();
        if causes.is_empty() { self.message.unwrap_or_default() } else { causes.join("; ") }
    }
}
