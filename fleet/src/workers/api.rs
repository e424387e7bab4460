//! A cluster's API, asked over HTTPS.

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::Context as _;
use async_trait::async_trait;
use contract::worker_records::AdmittedWorker;
use contract::{join_token, worker_records};
use kube_rest::{Limits, ListReader, Page, Status};
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::cluster::{Cluster, Evicted, NodeSeen, PodSeen};
use super::token::Token;
use crate::nodes::{Answer, Answered, Client, Method};

/// Bounds of a list. Its server may be hostile: root in a tenant cluster decides what the API answers.
const LIMITS: Limits = Limits { page: 100, pages: MOST, time: Duration::from_secs(120) };
/// How many objects of a list to keep: as many nodes as Kubernetes supports ("Considerations for large clusters"). A node has fewer
/// pods and volumes.
const MOST: usize = 5000;
/// How many causes of a blocked eviction to keep. One pod seldom has more budgets.
const CAUSES: usize = 3;
/// The annotation of pods that the kubelet runs from a file.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// The label of nodes that others answer for at the addresses of services (Kubernetes, "Well-Known Labels").
const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// The services whose addresses each speaker of MetalLB announces (MetalLB, "ServiceL2Status"). The label is `metallb.io/node`.
const ANNOUNCEMENTS: &str = "/apis/metallb.io/v1beta1/servicel2statuses";
/// The label of control-plane nodes.
const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

#[async_trait]
impl Cluster for Client {
    async fn nodes(&self) -> anyhow::Result<Vec<NodeSeen>> {
        listed(self, "/api/v1/nodes", |one| Some(node(one))).await
    }

    async fn pods(&self, node: &str) -> anyhow::Result<Vec<PodSeen>> {
        let path = format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{node}");
        listed(self, &path, moving).await
    }

    async fn local_claims(&self, nodes: &[String]) -> anyhow::Result<BTreeMap<String, Vec<String>>> {
        let mut claims = BTreeMap::<String, Vec<String>>::new();
        if nodes.is_empty() {
            return Ok(claims);
        }
        let kept = |volume: &Value| nodes.iter().find_map(|node| Some((node.clone(), claim_kept_on(volume, node)?)));
        for (node, claim) in listed(self, "/api/v1/persistentvolumes", kept).await? {
            claims.entry(node).or_default().push(claim);
        }
        Ok(claims)
    }

    async fn announced(&self, node: &str) -> anyhow::Result<Vec<String>> {
        let path = format!("{ANNOUNCEMENTS}?labelSelector=metallb.io%2Fnode%3D{node}&limit={}", LIMITS.page);
        let answer = self.ask_api(Method::GET, &path, None).await?;
        announced(&answer, node)
    }

    async fn let_in(&self, nodes: &[&NodeSeen]) -> anyhow::Result<BTreeMap<String, String>> {
        let answer = self.ask_api(Method::GET, &worker_records::path(), None).await?;
        let_in(&answer, nodes)
    }

    async fn add_token(&self, token: &Token) -> anyhow::Result<()> {
        let answer = self.ask_api(Method::POST, join_token::SECRETS, Some(&secret(token))).await?;
        expect(&answer, &[201, 409])
    }

    async fn remove_token(&self, id: &str) -> anyhow::Result<()> {
        let answer = self.ask_api(Method::DELETE, &join_token::path(id), None).await?;
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
        // 409: the name belongs to another node now.
        expect(&answer, &[200, 202, 404, 409])
    }

    async fn release_name(&self, name: &str) -> anyhow::Result<()> {
        let none = json!({"data": {name: null}});
        let answer = self.ask_api(Method::PATCH, &worker_records::path(), Some(&none)).await?;
        // 404: there is no record yet.
        expect(&answer, &[200, 404])
    }
}

fn expect(answer: &Answer, good: &[u16]) -> anyhow::Result<()> {
    if good.contains(&answer.status) {
        return Ok(());
    }
    Err(Answered::with(format!("the answer is {}: {}", answer.status, answer.words())).into())
}

/// Reads a list, and keeps of each object what `seen` returns. Root in the cluster can make pages too long: their objects are
/// asked for one by one.
async fn listed<T: Send>(
    client: &Client,
    path: &str,
    seen: impl Fn(&Value) -> Option<T> + Send + Sync,
) -> anyhow::Result<Vec<T>> {
    let (mut list, mut all) = (ListReader::new(path, LIMITS), Vec::new());
    loop {
        let answer = match client.ask_api(Method::GET, &list.request().map_err(endless)?, None).await {
            Err(error) if is_too_long(&error) && list.split() => continue,
            answer => answer?,
        };
        expect(&answer, &[200])?;
        let page: Value = answer.json()?;
        all.extend(page["items"].as_array().into_iter().flatten().filter_map(&seen));
        if all.len() > MOST {
            return Err(endless(list.endless(&format!("more than {MOST} of its objects count"))));
        }
        // Texts of an answer are cut, and a token may be longer.
        let token: Page<IgnoredAny> =
            serde_json::from_slice(&answer.body).context("reading where the next page begins")?;
        if !list.advance(&token).map_err(endless)? {
            return Ok(all);
        }
    }
}

/// The server answers, but not with a list that ends.
fn endless(error: anyhow::Error) -> anyhow::Error {
    Answered::with(error.to_string()).into()
}

fn is_too_long(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Answered>().is_some_and(|answered| answered.too_long)
}

/// The services of a list of announcements. 404: there is no MetalLB.
fn announced(answer: &Answer, node: &str) -> anyhow::Result<Vec<String>> {
    if answer.status == 404 {
        return Ok(Vec::new());
    }
    expect(answer, &[200])?;
    let list: Value = answer.json()?;
    let all = list["items"].as_array().into_iter().flatten().map(|one| &one["status"]);
    let own = all.filter(|status| status["node"] == node);
    Ok(own.map(|status| format!("{}/{}", text(&status["serviceNamespace"]), text(&status["serviceName"]))).collect())
}

/// The keys that are noted for these nodes. 404: nothing is noted yet.
fn let_in(answer: &Answer, nodes: &[&NodeSeen]) -> anyhow::Result<BTreeMap<String, String>> {
    if answer.status == 404 {
        return Ok(BTreeMap::new());
    }
    expect(answer, &[200])?;
    let noted: Value = answer.json()?;
    let key = |node: &NodeSeen| {
        let noted = AdmittedWorker::read(noted["data"][&node.name].as_str()?)?;
        noted.key_of(&node.uid).map(str::to_owned)
    };
    Ok(nodes.iter().filter_map(|node| Some((node.name.clone(), key(node)?))).collect())
}

/// The result of an eviction. 429 is a PodDisruptionBudget, 500 several of them for one pod; 409 another pod of its name. A webhook
/// denies with 403 or a code of its choice (Kubernetes, "Dynamic Admission Control"). 401 concerns the client.
fn evicted(answer: &Answer) -> anyhow::Result<Evicted> {
    match answer.status {
        200 | 201 | 202 | 404 | 409 => Ok(Evicted::Going),
        400 | 402..=499 | 500 => {
            let Status { message, details, .. } = answer.json().unwrap_or_default();
            let words = message.unwrap_or_else(|| answer.words());
            let causes = details.causes.into_iter().map(|cause| cause.message).take(CAUSES);
            Ok(Evicted::Blocked([words].into_iter().chain(causes).collect::<Vec<_>>().join(" ")))
        }
        _ => expect(answer, &[]).map(|()| Evicted::Going),
    }
}

/// A patch after which a node takes no new pods, and other nodes announce the addresses of services while it still forwards
/// requests. Its UID protects another node of the same name.
fn leave(node: &NodeSeen) -> Value {
    let labels = json!({EXCLUDED: ""});
    json!({"metadata": {"uid": node.uid, "labels": labels}, "spec": {"unschedulable": true}})
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn node(node: &Value) -> NodeSeen {
    let mut conditions = node["status"]["conditions"].as_array().into_iter().flatten();
    let mut addresses = node["status"]["addresses"].as_array().into_iter().flatten();
    let internal = addresses.find(|address| address["type"] == "InternalIP");
    let ready = conditions.find(|one| one["type"] == "Ready").unwrap_or(&Value::Null);
    NodeSeen {
        name: text(&node["metadata"]["name"]),
        uid: text(&node["metadata"]["uid"]),
        provider: text(&node["spec"]["providerID"]),
        ready: ready["status"] == "True",
        cordoned: node["spec"]["unschedulable"] == true,
        address: internal.and_then(|internal| internal["address"].as_str()?.parse().ok()),
        excluded: node["metadata"]["labels"].get(EXCLUDED).is_some(),
        control: node["metadata"]["labels"].get(CONTROL_PLANE).is_some(),
        kubelet: text(&node["status"]["nodeInfo"]["kubeletVersion"]),
        heard: text(&ready["lastHeartbeatTime"]),
    }
}

/// A pod that has to move away, if it is one.
fn moving(pod: &Value) -> Option<PodSeen> {
    let metadata = &pod["metadata"];
    let mut owners = metadata["ownerReferences"].as_array().into_iter().flatten();
    let controller = owners.find(|owner| owner["controller"] == true);
    let of_its_node = controller.is_some_and(|owner| owner["kind"] == "DaemonSet");
    let is_static = metadata["annotations"].get(MIRROR).is_some();
    let ended = pod["status"]["phase"] == "Succeeded" || pod["status"]["phase"] == "Failed";
    (!of_its_node && !is_static && !ended).then(|| PodSeen {
        namespace: text(&metadata["namespace"]),
        name: text(&metadata["name"]),
        uid: text(&metadata["uid"]),
        ending: !metadata["deletionTimestamp"].is_null(),
        bare: controller.is_none(),
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
        "metadata": {
            "name": join_token::secret(&token.id), "namespace": "kube-system",
            // It binds the token to the node.
            "annotations": {join_token::NODE: token.machine},
        },
        "stringData": {
            "token-id": token.id,
            "token-secret": token.secret.expose(),
            "description": format!("for the worker {} to join", token.machine),
            "expiration": humantime::format_rfc3339_seconds(expires).to_string(),
            "usage-bootstrap-authentication": "true",
            "usage-bootstrap-signing": "true",
            "auth-extra-groups": join_token::GROUP,
        },
    })
}

#[cfg(test)]
#[path = "tests/api.rs"]
mod tests;
