//! The client certificate of a worker, requested with a join token. Kubernetes' own approver would give the holder of a token
//! the certificate of any node. Here a token admits a node that does not exist yet, or the node that its Secret names. It never
//! admits a node that is at work.

use std::collections::BTreeMap;

use anyhow::Context as _;
use contract::join_token;
use serde::Deserialize;

use super::node::{Node, reserved_name};
use super::{Refusal, Spec};
use crate::cluster::kubernetes::NODES;
use crate::cluster::kubernetes::api::Api;
use crate::intake::config::ControlPlane;

/// The signer of such a certificate.
pub(super) const SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";

/// The uses of such a certificate.
pub(super) const USAGES: [&str; 3] = ["digital signature", "key encipherment", "client auth"];

/// An existing token: Kubernetes deletes it when it expires.
#[derive(Deserialize)]
pub(super) struct Token {
    metadata: Metadata,
    #[serde(default)]
    data: Data,
}

/// The content of its Secret that is not secret.
#[derive(Default, Deserialize)]
struct Data {
    #[serde(default)]
    expiration: String,
}

#[derive(Deserialize)]
struct Metadata {
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

impl Token {
    /// The token of this name.
    pub fn find(api: &Api, id: &str) -> anyhow::Result<Option<Self>> {
        api.find(&join_token::path(id)).context("looking for the token that a worker joins with")
    }

    /// The only node that it is for.
    pub fn node(&self) -> Option<&str> {
        self.metadata.annotations.get(join_token::NODE).map(String::as_str)
    }
}

/// The node that a request with a token asks to be.
pub(super) fn node_of(spec: &Spec) -> Option<String> {
    token_of(spec)?;
    spec.asked(&USAGES).ok()?.common_name.strip_prefix("system:node:").map(str::to_owned)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JoiningWorker {
    /// The name of the node.
    pub name: String,
    /// The fingerprint of its key.
    pub key: String,
}

/// The name of the token that a request was made with, if it was.
pub(super) fn token_of(spec: &Spec) -> Option<&str> {
    let id = spec.username.strip_prefix("system:bootstrap:")?;
    let plain = id.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    (plain && id.len() == 6).then_some(id)
}

/// Judges a request by its token, if that still exists, and by the nodes of the cluster. Returns the admitted worker.
pub(super) fn judge(
    spec: &Spec,
    token: Option<&Token>,
    config: &ControlPlane,
    nodes: &[Node],
) -> Result<JoiningWorker, Refusal> {
    if !spec.is_of(join_token::GROUP) {
        return Err(Refusal::never("its token is not for joining"));
    }
    let token = token.ok_or_else(|| Refusal::never("its token no longer exists"))?;
    if token.data.expiration.is_empty() {
        return Err(Refusal::never(
            "its token never expires: make one that does, such as with kubeadm token create --ttl 1h",
        ));
    }
    let asked = spec.asked(&USAGES)?;
    let name = asked.common_name.strip_prefix("system:node:").filter(|_| asked.organization == NODES);
    let name = name.ok_or_else(|| Refusal::never("its subject is no node"))?;
    if !asked.names.is_empty() || !asked.addresses.is_empty() {
        return Err(Refusal::never("it names more than the node"));
    }
    if let Some(whose) = reserved_name(name, config) {
        return Err(Refusal::Never(format!("no worker has the name {name}, {whose}")));
    }
    if let Some(other) = token.node().filter(|node| *node != name) {
        return Err(Refusal::Never(format!("its token is for {other}, and it asks to be {name}")));
    }
    match nodes.iter().find(|node| node.name() == name) {
        Some(node) if node.is_ready() => Err(Refusal::Now(format!("the cluster has a node {name}, which is ready"))),
        Some(_) if token.node().is_none() => Err(Refusal::Now(format!(
            "the cluster has a node {name}: if that is gone for good, kubectl delete node {name}; if it joins again, name it \
             in the token's annotation {}",
            join_token::NODE
        ))),
        _ => Ok(JoiningWorker { name: name.to_owned(), key: asked.key.clone() }),
    }
}
