//! The settings that a tenant cluster's control-plane nodes publish for workers: a ConfigMap. Holders of a bootstrap
//! token may read it, and nodes that have joined. Therefore workers are not configured with the cluster's settings
//! again.

use anyhow::Context as _;
use contract::properties::ControlNode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::host::https::Answer;
use crate::intake::config::{Cluster, ClusterNetwork};

/// The ConfigMap's name, in the namespace `kube-system`.
pub const NAME: &str = "kaas-workers";

pub(super) const PATH: &str = "/api/v1/namespaces/kube-system/configmaps/kaas-workers";

/// The key of the settings in the ConfigMap.
const KEY: &str = "cluster.json";

/// The settings. Fields may be added, with a default. None may be removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishedCluster {
    pub cluster: String,
    pub network: ClusterNetwork,
    pub control_nodes: Vec<ControlNode>,
}

impl PublishedCluster {
    pub fn of(cluster: &Cluster) -> Self {
        Self { cluster: cluster.name.clone(), network: cluster.network(), control_nodes: cluster.control_nodes.clone() }
    }

    pub fn object(&self) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": NAME, "namespace": "kube-system"},
            "data": {KEY: json!(self).to_string()},
        })
    }

    pub(super) fn read(answer: &Answer) -> anyhow::Result<Self> {
        let object: Value = serde_json::from_slice(&answer.body).context("understanding what the cluster says")?;
        let text = object["data"][KEY].as_str().with_context(|| format!("the ConfigMap {NAME} has no {KEY}"))?;
        serde_json::from_str(text).with_context(|| format!("understanding the ConfigMap {NAME}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intake::config::fixture::three_nodes;

    #[test]
    fn published_settings_are_read_without_later_fields() {
        let published = PublishedCluster::of(&three_nodes().cluster);
        let mut object = published.object();
        let answer = |object: &Value| Answer { code: 200, body: object.to_string().into_bytes() };
        assert_eq!(PublishedCluster::read(&answer(&object)).unwrap(), published);
        let text = object["data"][KEY].as_str().unwrap().replacen('{', "{\"later\": 1, ", 1);
        object["data"][KEY] = json!(text);
        assert_eq!(PublishedCluster::read(&answer(&object)).unwrap(), published);
        assert!(PATH.ends_with(NAME));
        assert!(PublishedCluster::read(&answer(&json!({}))).is_err());
    }
}
