//! The Lease by which a cluster knows who upgrades it.

use std::time::{Duration, SystemTime};

use anyhow::Context;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The lock as the cluster keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Who holds it: a journal and the machine that it is written on.
    pub holder: Option<String>,
    /// For how long it holds after it was renewed.
    pub duration: Duration,
    /// When it was renewed last, by the holder's clock.
    pub renewed: SystemTime,
    /// What the API calls this state of the object; none if there is no object yet.
    pub version: Option<String>,
}

impl Lease {
    /// Whether somebody holds it at this time.
    pub fn is_held(&self, now: SystemTime) -> bool {
        self.holder.is_some() && now < self.renewed + self.duration
    }

    /// Reads the API's object (coordination.k8s.io/v1).
    pub(super) fn from_object(object: &Value) -> anyhow::Result<Self> {
        let spec = &object["spec"];
        let renewed = spec["renewTime"].as_str().map_or(Ok(SystemTime::UNIX_EPOCH), humantime::parse_rfc3339);
        Ok(Self {
            holder: spec["holderIdentity"].as_str().filter(|holder| !holder.is_empty()).map(str::to_owned),
            duration: Duration::from_secs(spec["leaseDurationSeconds"].as_u64().unwrap_or_default()),
            renewed: renewed.context("reading when it was renewed")?,
            version: object["metadata"]["resourceVersion"].as_str().map(str::to_owned),
        })
    }

    /// The API's object.
    pub(super) fn to_object(&self) -> Value {
        let mut metadata = json!({"name": "kaas-upgrade", "namespace": "kube-system"});
        if let Some(version) = &self.version {
            metadata["resourceVersion"] = version.clone().into();
        }
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata,
            "spec": {
                "holderIdentity": self.holder.clone().unwrap_or_default(),
                "leaseDurationSeconds": self.duration.as_secs(),
                "renewTime": humantime::format_rfc3339_micros(self.renewed).to_string(),
            },
        })
    }
}
