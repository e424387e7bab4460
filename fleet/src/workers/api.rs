//! A cluster's API, asked over HTTPS.

use std::time::{Duration, UNIX_EPOCH};

use async_trait::async_trait;
use serde_json::{Value, json};

use super::cluster::{Cluster, Evicted, NodeSeen, PodSeen};
use super::token::Token;
use crate::node::{Answer, Answered, Client, Method};

const SECRETS: &str = "/api/v1/namespaces/kube-system/secrets";
/// What a pod has that its kubelet runs from a file.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// The group that kubeadm lets ask for a kubelet's certificate.
const GROUP: &str = "system:bootstrappers:kubeadm:default-node-token";

#[async_trait]
impl Cluster for Client {
    async fn nodes(&self) -> anyhow::Result<Vec<NodeSeen>> {
        Ok(listed(&self.ask_api(Method::GET, "/api/v1/nodes", None).await?)?.iter().map(node).collect())
    }

    async fn pods(&self, node: &str) -> anyhow::Result<Vec<PodSeen>> {
        let path = format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{node}");
        Ok(listed(&self.ask_api(Method::GET, &path, None).await?)?.iter().filter_map(moving).collect())
    }

    async fn local_claims(&self, node: &str) -> anyhow::Result<Vec<String>> {
        let volumes = listed(&self.ask_api(Method::GET, "/api/v1/persistentvolumes", None).await?)?;
        Ok(volumes.iter().filter_map(|volume| claim_kept_on(volume, node)).collect())
    }

    async fn add_token(&self, token: &Token) -> anyhow::Result<()> {
        let answer = self.ask_api(Method::POST, SECRETS, Some(&secret(token))).await?;
        expect(&answer, &[201, 409])
    }

    async fn remove_token(&self, id: &str) -> anyhow::Result<()> {
        let answer = self.ask_api(Method::DELETE, &format!("{SECRETS}/bootstrap-token-{id}"), None).await?;
        expect(&answer, &[200, 202, 404])
    }

    async fn cordon(&self, node: &NodeSeen) -> anyhow::Result<()> {
        let answer = self.ask_api(Method::PATCH, &format!("/api/v1/nodes/{}", node.name), Some(&leave(node))).await?;
        expect(&answer, &[200])
    }

    async fn evict(&self, pod: &PodSeen) -> anyhow::Result<Evicted> {
        let path = format!("/api/v1/namespaces/{}/pods/{}/eviction", pod.namespace, pod.name);
        let body = json!({
            "apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": {"preconditions": {"uid": pod.uid}},
        });
        let answer = self.ask_api(Method::POST, &path, Some(&body)).await?;
        evicted(&answer)
    }

    async fn delete_node(&self, node: &NodeSeen) -> anyhow::Result<()> {
        let body = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": node.uid}});
        let answer = self.ask_api(Method::DELETE, &format!("/api/v1/nodes/{}", node.name), Some(&body)).await?;
        // 409: another one of its name is there by now.
        expect(&answer, &[200, 202, 404, 409])
    }
}

fn expect(answer: &Answer, good: &[u16]) -> anyhow::Result<()> {
    if good.contains(&answer.status) {
        return Ok(());
    }
    Err(Answered::with(format!("the answer is {}: {}", answer.status, answer.words())).into())
}

fn listed(answer: &Answer) -> anyhow::Result<Vec<Value>> {
    expect(answer, &[200])?;
    let list: Value = answer.json()?;
    Ok(list["items"].as_array().cloned().unwrap_or_default())
}

/// What became of an eviction. 429 is a PodDisruptionBudget, 500 several of them for one pod; 409 another pod of its name.
fn evicted(answer: &Answer) -> anyhow::Result<Evicted> {
    match answer.status {
        200 | 201 | 202 | 404 | 409 => Ok(Evicted::Going),
        429 | 500 => {
            let said: Value = answer.json().unwrap_or_default();
            let words = said["message"].as_str().map_or_else(|| answer.words(), str::to_owned);
            let causes = said["details"]["causes"].as_array().into_iter().flatten();
            let causes = causes.filter_map(|cause| cause["message"].as_str());
            Ok(Evicted::Blocked([words.as_str()].into_iter().chain(causes).collect::<Vec<_>>().join(" ")))
        }
        _ => expect(answer, &[]).map(|()| Evicted::Going),
    }
}

/// What makes a node take no new pods, and lets others answer for the addresses of services while it still leads requests
/// on (Kubernetes, "Well-Known Labels"). With its UID: another node of the same name stays as it is.
fn leave(node: &NodeSeen) -> Value {
    let labels = json!({"node.kubernetes.io/exclude-from-external-load-balancers": ""});
    json!({"metadata": {"uid": node.uid, "labels": labels}, "spec": {"unschedulable": true}})
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn node(node: &Value) -> NodeSeen {
    let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
    let mut addresses = node["status"]["addresses"].as_array().into_iter().flatten();
    let internal = addresses.find(|address| address["type"] == "InternalIP");
    let ready = conditions.into_iter().any(|one| one["type"] == "Ready" && one["status"] == "True");
    NodeSeen {
        name: text(&node["metadata"]["name"]),
        uid: text(&node["metadata"]["uid"]),
        provider: text(&node["spec"]["providerID"]),
        ready,
        cordoned: node["spec"]["unschedulable"] == true,
        address: internal.and_then(|internal| internal["address"].as_str()?.parse().ok()),
    }
}

/// A pod that has to move away, if it is one.
fn moving(pod: &Value) -> Option<PodSeen> {
    let metadata = &pod["metadata"];
    let mut owners = metadata["ownerReferences"].as_array().into_iter().flatten();
    let of_its_node = owners.any(|owner| owner["kind"] == "DaemonSet" && owner["controller"] == true);
    let is_static = metadata["annotations"].get(MIRROR).is_some();
    let ended = pod["status"]["phase"] == "Succeeded" || pod["status"]["phase"] == "Failed";
    (!of_its_node && !is_static && !ended).then(|| PodSeen {
        namespace: text(&metadata["namespace"]),
        name: text(&metadata["name"]),
        uid: text(&metadata["uid"]),
        ending: !metadata["deletionTimestamp"].is_null(),
    })
}

/// The claim of a volume that is a directory or a disk of this node, if it is one and claimed.
fn claim_kept_on(volume: &Value, node: &str) -> Option<String> {
    let spec = &volume["spec"];
    let is_local = !spec["local"].is_null() || !spec["hostPath"].is_null();
    let terms = spec["nodeAffinity"]["required"]["nodeSelectorTerms"].as_array().into_iter().flatten();
    let mut expressions = terms.flat_map(|term| term["matchExpressions"].as_array().into_iter().flatten());
    let names_it = |values: &Value| values.as_array().is_some_and(|values| values.iter().any(|value| value == node));
    let on_it = expressions.any(|one| one["key"] == "kubernetes.io/hostname" && names_it(&one["values"]));
    let claim = &spec["claimRef"];
    (is_local && on_it && volume["status"]["phase"] == "Bound")
        .then(|| format!("{}/{}", text(&claim["namespace"]), text(&claim["name"])))
}

/// The Secret of a token (Kubernetes, "Authenticating with Bootstrap Tokens").
fn secret(token: &Token) -> Value {
    let expires = UNIX_EPOCH + Duration::from_secs(token.expires);
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
        "metadata": {"name": format!("bootstrap-token-{}", token.id), "namespace": "kube-system"},
        "stringData": {
            "token-id": token.id,
            "token-secret": token.secret.expose(),
            "description": format!("for the worker {} to join", token.machine),
            "expiration": humantime::format_rfc3339_seconds(expires).to_string(),
            "usage-bootstrap-authentication": "true",
            "usage-bootstrap-signing": "true",
            "auth-extra-groups": GROUP,
        },
    })
}

#[cfg(test)]
#[path = "tests/api.rs"]
mod tests;
