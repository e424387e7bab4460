//! The pods of a node as its drain sees them: which ones it moves, what it deletes for good, and what keeps one from
//! leaving. The rules are those of `kubectl drain` (`k8s.io/kubectl/pkg/drain`, `filters.go`), which does the work.

use anyhow::Context as _;
use contract::swap::Losses;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::answer::{reason, refused};
use super::api::Api;
use super::kubeadm::configuration::MARK;

/// Selects pods whose containers may still run.
const NOT_ENDED: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// The annotation of a pod that a kubelet runs from a file.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// A pod that a drain has to move, not one of those that stay or have ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    namespace: String,
    name: String,
    /// No controller creates it again.
    bare: bool,
    /// The data in its `emptyDir` volumes goes with it.
    empty_dir: bool,
    /// It was asked to end.
    ending: bool,
}

impl Pod {
    fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// The pods and data that a drain of these pods deletes for good.
pub fn losses(pods: &[Pod]) -> Losses {
    let names = |lost: fn(&Pod) -> bool| pods.iter().filter(|pod| lost(pod)).map(Pod::full_name).collect();
    Losses { bare_pods: names(|pod| pod.bare), empty_dirs: names(|pod| pod.empty_dir) }
}

/// Why pods are still on a node whose time for draining is over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DrainBlockers {
    /// Those that may not be evicted, each with the API server's reason, which names the budget.
    pub blocked: Vec<String>,
    /// Those that were asked to end and have not.
    pub ending: Vec<String>,
}

impl Api {
    /// Whether a node is cordoned.
    ///
    /// # Errors
    /// The API does not answer, or has no such node.
    pub fn cordoned(&self, node: &str) -> anyhow::Result<bool> {
        let path = format!("/api/v1/nodes/{node}");
        let node: Value = self.read(&path).with_context(|| format!("asking for the node {node}"))?;
        Ok(node["spec"]["unschedulable"].as_bool().unwrap_or_default())
    }

    /// The pods that a drain of a node has to move.
    ///
    /// # Errors
    /// The API does not answer, or not with a list of pods.
    pub fn pods_to_move(&self, node: &str) -> anyhow::Result<Vec<Pod>> {
        let path = format!("/api/v1/pods?fieldSelector=spec.nodeName={node},{NOT_ENDED}");
        let items: Vec<Item> = self.list(&path).with_context(|| format!("listing the pods of {node}"))?;
        let moved = items.into_iter().filter(|item| !item.stays());
        Ok(moved.map(Pod::from).collect())
    }

    /// The pods of a node that are in its own network and have not ended, as far as they matter to who asks.
    ///
    /// # Errors
    /// The API does not answer, or not with lists of pods.
    pub fn pods_in_the_network_of<T: DeserializeOwned>(&self, node: &str) -> anyhow::Result<Vec<T>> {
        let listed = self.list(&in_the_network_of(node));
        listed.with_context(|| format!("listing the pods in the network of {node}"))
    }

    /// Which of the control plane's pods on a node do not run with these credentials yet, if any: each component with its mark.
    ///
    /// # Errors
    /// The API does not answer, or not with a list of pods.
    pub fn restarting(&self, node: &str, marks: &[(&str, String)]) -> anyhow::Result<Option<String>> {
        let path = format!(
            "/api/v1/namespaces/kube-system/pods?labelSelector=tier%3Dcontrol-plane&fieldSelector=spec.nodeName={node}"
        );
        let pods: Vec<Value> =
            self.list(&path).with_context(|| format!("listing the control plane's pods of {node}"))?;
        Ok(restarting(&pods, marks))
    }

    /// Why the pods stay. The API server is asked to evict each that was not, without doing it: it alone knows what a
    /// budget allows.
    pub fn drain_blockers(&self, pods: &[Pod]) -> anyhow::Result<DrainBlockers> {
        let mut stay = DrainBlockers::default();
        for pod in pods {
            let refusal = if pod.ending { None } else { self.refusal_to_evict(pod)? };
            match refusal {
                Some(why) => stay.blocked.push(format!("{} ({why})", pod.full_name())),
                None => stay.ending.push(pod.full_name()),
            }
        }
        Ok(stay)
    }

    fn refusal_to_evict(&self, pod: &Pod) -> anyhow::Result<Option<String>> {
        let Pod { namespace, name, .. } = pod;
        let eviction = json!({
            "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"dryRun": ["All"]},
        });
        let answer = self.post(&format!("/api/v1/namespaces/{namespace}/pods/{name}/eviction"), &eviction)?;
        match answer.code {
            200 | 201 | 404 => Ok(None),
            // 403: an admission webhook's word; 500: more than one budget covers the pod.
            403 | 429 | 500 => Ok(Some(reason(&answer))),
            _ => Err(refused(&answer).context(format!("asking whether {namespace}/{name} may be evicted"))),
        }
    }
}

fn restarting(pods: &[Value], marks: &[(&str, String)]) -> Option<String> {
    let runs = |component: &str, mark: &str| {
        pods.iter().any(|pod| {
            let conditions = pod["status"]["conditions"].as_array();
            pod["metadata"]["labels"]["component"] == component
                && pod["metadata"]["annotations"][MARK] == mark
                && conditions.is_some_and(|all| all.iter().any(|one| one["type"] == "Ready" && one["status"] == "True"))
        })
    };
    let waiting = marks.iter().find(|(component, mark)| !runs(component, mark))?;
    Some(format!("{} does not run with the new certificates yet", waiting.0))
}

fn in_the_network_of(node: &str) -> String {
    format!("/api/v1/pods?fieldSelector=spec.nodeName={node},spec.hostNetwork=true,{NOT_ENDED}")
}

#[derive(Deserialize)]
struct Item {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    namespace: String,
    name: String,
    #[serde(default)]
    annotations: serde_json::Map<String, Value>,
    #[serde(default)]
    owner_references: Vec<Owner>,
    #[serde(default)]
    deletion_timestamp: Option<String>,
}

#[derive(Deserialize)]
struct Owner {
    kind: String,
    #[serde(default)]
    controller: bool,
}

#[derive(Default, Deserialize)]
struct Spec {
    #[serde(default)]
    volumes: Vec<serde_json::Map<String, Value>>,
}

impl Item {
    fn controller(&self) -> Option<&Owner> {
        self.metadata.owner_references.iter().find(|owner| owner.controller)
    }

    /// Pods of DaemonSets and of the kubelet's files stay on their node.
    fn stays(&self) -> bool {
        self.metadata.annotations.contains_key(MIRROR)
            || self.controller().is_some_and(|owner| owner.kind == "DaemonSet")
    }
}

impl From<Item> for Pod {
    fn from(item: Item) -> Self {
        Self {
            bare: item.controller().is_none(),
            empty_dir: item.spec.volumes.iter().any(|volume| volume.contains_key("emptyDir")),
            ending: item.metadata.deletion_timestamp.is_some(),
            namespace: item.metadata.namespace,
            name: item.metadata.name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(items: &Value) -> Vec<Item> {
        serde_json::from_value(items.clone()).unwrap()
    }

    fn owned(kind: &str) -> Value {
        json!([{"kind": kind, "controller": true}])
    }

    #[test]
    fn a_drain_names_lost_pods_and_data() {
        let scratch = json!([{"name": "data", "configMap": {}}, {"name": "tmp", "emptyDir": {"medium": "Memory"}}]);
        let all = items(&json!([
            {"metadata": {"namespace": "a", "name": "bare"}},
            {"metadata": {"namespace": "a", "name": "owned-by-nothing-that-controls",
                "ownerReferences": [{"kind": "Widget"}]}},
            {"metadata": {"namespace": "a", "name": "web", "ownerReferences": owned("ReplicaSet")}},
            {"metadata": {"namespace": "a", "name": "cache", "ownerReferences": owned("ReplicaSet")},
                "spec": {"volumes": scratch}},
            {"metadata": {"namespace": "a", "name": "agent", "ownerReferences": owned("DaemonSet")},
                "spec": {"volumes": scratch}},
            {"metadata": {"namespace": "kube-system", "name": "kube-apiserver-cp1", "ownerReferences": owned("Node"),
                "annotations": {MIRROR: "x"}}, "spec": {"volumes": scratch}},
        ]));
        let moved: Vec<Pod> = all.into_iter().filter(|item| !item.stays()).map(Pod::from).collect();
        assert_eq!(
            moved.iter().map(Pod::full_name).collect::<Vec<_>>(),
            ["a/bare", "a/owned-by-nothing-that-controls", "a/web", "a/cache"]
        );
        let Losses { bare_pods, empty_dirs } = losses(&moved);
        assert_eq!(bare_pods, ["a/bare", "a/owned-by-nothing-that-controls"]);
        assert_eq!(empty_dirs, ["a/cache"]);
    }

    #[test]
    fn restarted_pods_are_ready_with_their_mark() {
        let pod = |component: &str, mark: &str, ready: &str| {
            json!({"metadata": {"labels": {"component": component}, "annotations": {MARK: mark}},
                "status": {"conditions": [{"type": "Ready", "status": ready}]}})
        };
        let marks = [("kube-apiserver", "new".to_owned()), ("kube-scheduler", "same".to_owned())];
        let waits = |pods: &[Value]| restarting(pods, &marks);
        let both = [pod("kube-scheduler", "same", "True"), pod("kube-apiserver", "new", "True")];
        assert_eq!(waits(&both), None);
        let waiting = Some("kube-apiserver does not run with the new certificates yet".to_owned());
        for first in [pod("kube-apiserver", "old", "True"), pod("kube-apiserver", "new", "False")] {
            assert_eq!(waits(&[both[0].clone(), first]), waiting);
        }
        assert_eq!(waits(&both[..1]), waiting);
    }

    #[test]
    fn ended_pods_keep_no_port_open() {
        let selector = "spec.nodeName=cp1,spec.hostNetwork=true,status.phase!=Succeeded,status.phase!=Failed";
        assert_eq!(in_the_network_of("cp1"), format!("/api/v1/pods?fieldSelector={selector}"));
    }
}
