//! How many workloads of the appliance's add-ons run in a cluster. Knows nothing of the choice of add-ons.

use anyhow::ensure;
use serde_json::Value;

use super::{Client, Method};

/// The label on all objects of an add-on, with its name: that of the property that chooses it (`agent`, `cluster::addons`).
const LABEL: &str = "kaas.local/add-on";

/// How many workloads of a kind are requested: all add-ons have fewer.
const MOST: usize = 100;

/// How many pods a workload should have, and how many of them run.
type Counts = fn(&Value) -> (u64, u64);

/// A Deployment or a DaemonSet of an add-on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddOnSeen {
    /// The add-on: the name of the property that chooses it.
    pub add_on: String,
    /// Namespace and name of the workload.
    pub workload: String,
    /// How many pods of it should run.
    pub wanted: u64,
    /// How many of them run, if its controller has observed the present generation.
    pub running: u64,
}

impl Client {
    /// The workloads of the cluster's add-ons.
    pub async fn add_ons(&self) -> anyhow::Result<Vec<AddOnSeen>> {
        let mut all = Vec::new();
        let kinds: [(&str, Counts); 2] = [("deployments", deployment), ("daemonsets", daemon_set)];
        for (plural, counts) in kinds {
            let label = LABEL.replace('/', "%2F");
            let path = format!("/apis/apps/v1/{plural}?labelSelector={label}&limit={MOST}");
            let answer = self.ask_api(Method::GET, &path, None).await?;
            ensure!(answer.status == 200, "the API server answered {}", answer.refusal());
            let list: Value = answer.json()?;
            all.extend(list["items"].as_array().into_iter().flatten().filter_map(|object| workload(object, counts)));
        }
        Ok(all)
    }
}

/// The state of a workload, by the counts of its kind.
fn workload(object: &Value, counts: Counts) -> Option<AddOnSeen> {
    let metadata = &object["metadata"];
    let (wanted, running) = counts(object);
    // The status of an earlier generation says nothing of the present one.
    let is_seen = number(&object["status"]["observedGeneration"]) >= number(&metadata["generation"]);
    Some(AddOnSeen {
        add_on: metadata["labels"][LABEL].as_str()?.to_owned(),
        workload: format!("{}/{}", metadata["namespace"].as_str()?, metadata["name"].as_str()?),
        wanted: if is_seen { wanted } else { wanted.max(1) },
        running: if is_seen { running } else { 0 },
    })
}

fn deployment(object: &Value) -> (u64, u64) {
    (number(&object["spec"]["replicas"]), number(&object["status"]["availableReplicas"]))
}

fn daemon_set(object: &Value) -> (u64, u64) {
    (number(&object["status"]["desiredNumberScheduled"]), number(&object["status"]["numberAvailable"]))
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn status_of_an_earlier_generation_does_not_count() {
        let metadata =
            json!({"namespace": "kube-system", "name": "coredns", "generation": 2, "labels": {LABEL: "cluster-dns"}});
        let of = |status: Value| json!({"metadata": metadata, "spec": {"replicas": 2}, "status": status});
        let seen = |wanted, running| {
            let (add_on, workload) = ("cluster-dns".to_owned(), "kube-system/coredns".to_owned());
            Some(AddOnSeen { add_on, workload, wanted, running })
        };
        let running = of(json!({"observedGeneration": 2, "availableReplicas": 1}));
        assert_eq!(workload(&running, deployment), seen(2, 1));
        let of_before = of(json!({"observedGeneration": 1, "availableReplicas": 2}));
        assert_eq!(workload(&of_before, deployment), seen(2, 0));
        let nowhere = of(json!({"observedGeneration": 2}));
        assert_eq!(workload(&nowhere, daemon_set), seen(0, 0), "no node is one for it");
        assert_eq!(workload(&of(json!({})), daemon_set), seen(1, 0), "no controller has observed it yet");
        let everywhere = of(json!({"observedGeneration": 2, "desiredNumberScheduled": 3, "numberAvailable": 3}));
        assert_eq!(workload(&everywhere, daemon_set), seen(3, 3));
        assert_eq!(workload(&json!({"metadata": {"namespace": "a", "name": "b"}}), deployment), None);
    }
}
