//! A cluster's API over HTTPS.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant, UNIX_EPOCH};

use anyhow::Context as _;
use async_trait::async_trait;
use contract::worker_records::AdmittedWorker;
use contract::{join_token, worker_records};
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::cluster::{Cluster, ClusterChange, Evicted, NodeSeen, PodSeen};
use super::token::Token;
use crate::nodes::{Answer, Answered, Client, Method, told};

/// How many objects one request asks for.
const PAGE: usize = 100;
/// The most objects of a list: as many nodes as Kubernetes supports ("Considerations for large clusters"), and more than a node
/// has pods or volumes. Root in a tenant cluster controls what its API returns.
const MOST: usize = 5000;
/// The most pages of a list: one for each object.
const PAGES: usize = MOST;
/// How long reading a list may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// The most causes that are reported for a blocked eviction: as many budgets as one pod usually has. A server that names more may
/// be malicious.
const CAUSES: usize = 3;
/// The annotation of a pod that its kubelet runs from a file.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// The label of nodes without traffic from load balancers, so that others answer for the addresses of services (Kubernetes,
/// "Well-Known Labels").
const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// The statuses of MetalLB's speakers: the services whose addresses they answer for (MetalLB, "ServiceL2Status"), with the label
/// `metallb.io/node`.
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
        let path = format!("{ANNOUNCEMENTS}?labelSelector=metallb.io%2Fnode%3D{node}&limit={PAGE}");
        let answer = self.ask_api(Method::GET, &path, None).await?;
        announced(&answer, node)
    }

    async fn let_in(&self, nodes: &[&NodeSeen]) -> anyhow::Result<BTreeMap<String, String>> {
        let answer = self.ask_api(Method::GET, &worker_records::path(), None).await?;
        let_in(&answer, nodes)
    }

    async fn change(&self, change: ClusterChange<'_>) -> anyhow::Result<()> {
        let of_node = |node: &NodeSeen| format!("/api/v1/nodes/{}", node.name);
        let (method, path, body, good): (_, _, _, &[u16]) = match change {
            ClusterChange::AddToken(token) => {
                (Method::POST, join_token::SECRETS.to_owned(), Some(secret(token)), &[201, 409])
            }
            ClusterChange::RemoveToken(id) => (Method::DELETE, join_token::path(id), None, &[200, 202, 404]),
            ClusterChange::Cordon(node) => (Method::PATCH, of_node(node), Some(leave(node)), &[200]),
            ClusterChange::DeleteNode(node) => {
                let body = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": node.uid}});
                // 409: another node of its name exists now.
                (Method::DELETE, of_node(node), Some(body), &[200, 202, 404, 409])
            }
            // 404: no worker is recorded yet.
            ClusterChange::ReleaseName(name) => {
                (Method::PATCH, worker_records::path(), Some(json!({"data": {name: null}})), &[200, 404])
            }
        };
        expect(&self.ask_api(method, &path, body.as_ref()).await?, good)
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
}

fn expect(answer: &Answer, good: &[u16]) -> anyhow::Result<()> {
    if good.contains(&answer.status) {
        return Ok(());
    }
    Err(Answered::by("the API server", answer).into())
}

/// Reads the objects of a list, page by page (Kubernetes API concepts, "Retrieving large results sets in chunks"). A client in
/// the cluster may write objects that make a page too long: such objects are requested one by one. An endless list is an error.
async fn listed<T: Send>(
    client: &Client,
    path: &str,
    seen: impl Fn(&Value) -> Option<T> + Send + Sync,
) -> anyhow::Result<Vec<T>> {
    let joint = if path.contains('?') { '&' } else { '?' };
    let (mut all, mut from, mut singles) = (Vec::new(), String::new(), 0);
    let (begun, mut before) = (Instant::now(), BTreeSet::new());
    for _ in 0..PAGES {
        if begun.elapsed() > PATIENCE {
            return Err(endless(path, &format!("it was not read within {} s", PATIENCE.as_secs())));
        }
        let limit = if singles > 0 { 1 } else { PAGE };
        let answer = match client.ask_api(Method::GET, &format!("{path}{joint}limit={limit}{from}"), None).await {
            Err(error) if singles == 0 && is_too_long(&error) => {
                singles = PAGE;
                continue;
            }
            answer => answer?,
        };
        singles = singles.saturating_sub(1);
        expect(&answer, &[200])?;
        let list: Value = answer.json()?;
        all.extend(list["items"].as_array().into_iter().flatten().filter_map(&seen));
        if all.len() > MOST {
            return Err(endless(path, &format!("more than {MOST} of its objects count")));
        }
        match next(&answer)? {
            Some(next) if !before.insert(<[u8; 32]>::from(Sha256::digest(&next))) => {
                return Err(endless(path, "a page leads back to one before it"));
            }
            Some(next) => from = format!("&continue={next}"),
            None => return Ok(all),
        }
    }
    Err(endless(path, &format!("it has more than {PAGES} pages")))
}

/// The error of a list that does not end, although the server answers.
fn endless(path: &str, why: &str) -> anyhow::Error {
    Answered::with(format!("the list {path} is left: {why}")).into()
}

fn is_too_long(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Answered>().is_some_and(|answered| answered.too_long)
}

/// The start of the next page of a list, encoded for a URL. It may be longer than texts that are shown.
fn next(answer: &Answer) -> anyhow::Result<Option<String>> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Page {
        metadata: Metadata,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Metadata {
        r#continue: String,
    }
    let Page { metadata } = serde_json::from_slice(&answer.body).context("reading where the next page begins")?;
    // Kubernetes uses base64, URL-safe or not.
    let next = metadata.r#continue.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
    let plain = next.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.~%".contains(&byte));
    anyhow::ensure!(plain, "the list says in strange characters where its next page begins");
    Ok(Some(next).filter(|next| !next.is_empty()))
}

/// The services of a list of announcements. 404: MetalLB is not installed.
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

/// The keys that are recorded for these nodes. 404: nothing is recorded yet.
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

/// The result of an eviction. 429 is a PodDisruptionBudget, 500 several of them for one pod. 409 is another pod of its name. A
/// denial of a webhook has 403, or another code of its choice (Kubernetes, "Dynamic Admission Control"). 401 is about the client.
fn evicted(answer: &Answer) -> anyhow::Result<Evicted> {
    match answer.status {
        200 | 201 | 202 | 404 | 409 => Ok(Evicted::Going),
        400 | 402..=499 | 500 => {
            let said: Value = answer.json().unwrap_or_default();
            let words = told(&answer.reason());
            let causes = said["details"]["causes"].as_array().into_iter().flatten();
            let causes = causes.filter_map(|cause| cause["message"].as_str()).take(CAUSES);
            Ok(Evicted::Blocked([words.as_str()].into_iter().chain(causes).collect::<Vec<_>>().join(" ")))
        }
        _ => expect(answer, &[]).map(|()| Evicted::Going),
    }
}

/// The patch that cordons a node. It also lets others answer for the addresses of services while the node still forwards
/// requests. It has the UID: another node of the same name stays as it is.
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

/// The pod, if it has to move.
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

/// The claim of a volume that is a directory or a disk of this node, if it is claimed.
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
            // With it no client joins as another node.
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
mod tests;
