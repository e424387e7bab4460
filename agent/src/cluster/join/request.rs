//! The request for the certificate by which the cluster knows a node: the kubelet's own (Kubernetes, "TLS
//! bootstrapping"). The agent makes it, so that a refusal is reported. A control-plane node approves it
//! ([`crate::cluster::kubernetes::approval`]), and the cluster's controllers sign it.

use std::fs;
use std::io;

use anyhow::Context as _;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use contract::codes;
use contract::secret::Secret;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData};
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::{Error, JoinContext, refused_token};
use crate::cluster::kubernetes::answer;
use crate::cluster::pki::{self, CertificateWithKey};
use crate::host::files;
use crate::host::hex;
use crate::host::https::Client;

/// The key of the requested certificate, until the worker has the certificate.
pub(super) const KEY: &str = "/etc/kubernetes/kubelet-join.key";

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// `certificates.k8s.io/v1`, `CertificateSigningRequest`.
#[derive(Deserialize)]
struct Request {
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
struct Status {
    #[serde(default)]
    conditions: Vec<Condition>,
    certificate: Option<String>,
}

#[derive(Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    message: String,
}

pub(super) fn certificate(
    joining: &JoinContext<'_>,
    client: &Client,
    known: bool,
) -> Result<CertificateWithKey, Error> {
    let key = key(joining)?;
    let own = &joining.worker.node.name;
    // The key is part of the name, so the request is found again after an interruption.
    let digest = Sha256::digest(key.subject_public_key_info());
    let name = format!("kaas-{own}-{}", hex::lower(&digest[..8]));
    let asked = client.post(REQUESTS, &object(&name, own, &key)?);
    let asked = joining.found(asked, "signs no certificates")?;
    match asked.code {
        // 409: it was requested before.
        201 | 409 => {}
        401 => return Err(refused_token("the API server no longer accepts it").into()),
        403 => return Err(refused_token("it gives no right to ask for a certificate").into()),
        _ => return Err(Error::Waiting(format!("waiting for the cluster: {}", answer::refused(&asked)))),
    }
    let answer = joining.told(client, &format!("{REQUESTS}/{name}"))?;
    let request: Request =
        serde_json::from_slice(&answer.body).context("understanding the request for a certificate")?;
    if let Some(no) = request.status.conditions.iter().find(|one| ["Denied", "Failed"].contains(&one.kind.as_str())) {
        // The next request uses another key.
        forget(joining).context("forgetting the denied key")?;
        let seen = format!("the request {name} is {}: {}", no.kind.to_lowercase(), no.message);
        let action = "Ask the operator of the cluster; the worker asks again";
        return Err(codes::JOIN_DENIED.finding("the worker's certificate", seen, action).into());
    }
    let Some(encoded) = request.status.certificate else {
        let mut what = format!(
            "waiting for the cluster to sign the worker's certificate: request {name}. If it stays so, its control-plane nodes \
             say why (worker.not-approved)"
        );
        if known {
            what.push_str(&format!(
                "; it has a node {own} already: unless the token names {own}, delete that on a control-plane node with kubectl \
                 delete node {own}"
            ));
        }
        return Err(Error::Waiting(what));
    };
    let decoded = BASE64_STANDARD.decode(encoded).context("decoding the worker's certificate")?;
    let certificate = String::from_utf8(decoded).context("reading the worker's certificate")?;
    Ok(CertificateWithKey { certificate, key: Secret::new(key.serialize_pem()) })
}

/// Identifies the key of the requested certificate.
pub(super) fn digits(joining: &JoinContext<'_>) -> anyhow::Result<String> {
    Ok(pki::digits(&key(joining)?.subject_public_key_info()))
}

/// Removes the key: it is in use elsewhere, or no longer needed.
pub(super) fn forget(joining: &JoinContext<'_>) -> io::Result<bool> {
    files::remove(&files::below(joining.root, KEY))
}

fn key(joining: &JoinContext<'_>) -> anyhow::Result<KeyPair> {
    let path = files::below(joining.root, KEY);
    if let Ok(text) = fs::read_to_string(&path).map(Zeroizing::new)
        && let Ok(key) = KeyPair::from_pem(&text)
    {
        return Ok(key);
    }
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).context("making the worker's key")?;
    files::write_atomically(&path, Zeroizing::new(key.serialize_pem()).as_bytes(), 0o600)
        .context("saving the worker's key")?;
    Ok(key)
}

/// The request of the kubelet of a node. Control-plane nodes approve only these usages and this subject.
pub(in crate::cluster) fn object(name: &str, node: &str, key: &KeyPair) -> anyhow::Result<Value> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(DnType::CommonName, format!("system:node:{node}"));
    let request = params.serialize_request(key).and_then(|request| request.pem()).context("making the request")?;
    Ok(json!({
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {
            "request": BASE64_STANDARD.encode(request),
            "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
            "usages": ["digital signature", "client auth"],
        },
    }))
}
