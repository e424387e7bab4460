//! A worker's credentials: one certificate, the kubelet's, which the kubelet renews. Other clients of the API on the
//! node use the same one. The cluster gives nodes the rights for that.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use anyhow::Context as _;
use contract::ports;
use rcgen::{KeyPair, PublicKeyData as _};
use zeroize::Zeroizing;

use super::{JoinContext, discovery, request};
use crate::cluster::kubernetes::{CA_CERTIFICATE, api, kubelet, proxy};
use crate::cluster::pki::{self, CertificateWithKey};
use crate::cluster::pod_network;
use crate::host::files;
use crate::intake::config::Worker;

/// The kubeconfigs of the other programs that use the kubelet's certificate.
const USERS: [&str; 3] = [api::KUBECONFIG, proxy::KUBECONFIG, pod_network::KUBECONFIG];

/// Whether a worker belongs to its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerMembership {
    NotJoined,
    /// It has joined, and its certificate is valid.
    Member,
    /// It had joined, and its certificate expired at this time.
    Expired(SystemTime),
}

/// The membership of the worker below `root` in its cluster.
pub fn worker_membership(root: &Path, worker: &Worker, now: SystemTime) -> WorkerMembership {
    let authority = fs::read_to_string(files::below(root, CA_CERTIFICATE)).ok();
    let pinned = authority.and_then(|text| discovery::hash_of(&text)).as_ref() == Some(&worker.cluster.ca_hash);
    let joined = pinned && worker.cluster.learned.is_some();
    match newest(root, now).and_then(|pair| pki::expiry(&pair.certificate).ok()).filter(|_| joined) {
        None => WorkerMembership::NotJoined,
        Some(ends) if ends <= now => WorkerMembership::Expired(ends),
        Some(_) => WorkerMembership::Member,
    }
}

/// Writes the files that a worker has from its cluster. The kubelet's credentials come last: they show that it has
/// joined. After an error another attempt to join completes it.
pub fn lay(joining: &JoinContext<'_>, authority: &str, own: &CertificateWithKey) -> anyhow::Result<()> {
    let (root, worker) = (joining.root, joining.worker);
    let authority_file = files::below(root, CA_CERTIFICATE);
    if let Some(directory) = authority_file.parent() {
        fs::create_dir_all(directory)?;
    }
    files::write_atomically(&authority_file, authority.as_bytes(), 0o644)?;
    for path in USERS {
        let text = kubeconfig(worker, authority, own);
        files::write_atomically(&files::below(root, path), text.as_bytes(), 0o600)?;
    }
    // The kubelet would continue with its certificates of a former membership.
    kubelet::forget_certificates(root, "kubelet").context("removing the kubelet's former certificates")?;
    let text = kubeconfig(worker, authority, own);
    files::write_atomically(&files::below(root, kubelet::KUBECONFIG), text.as_bytes(), 0o600)?;
    request::forget(joining)?;
    Ok(())
}

/// Gives the other programs the certificate that the kubelet has renewed. Returns whether it was new.
pub fn renew(root: &Path, worker: &Worker, now: SystemTime) -> anyhow::Result<bool> {
    let authority = fs::read_to_string(files::below(root, CA_CERTIFICATE)).context("reading the cluster's CA")?;
    let own = newest(root, now).context("this worker has no certificate")?;
    let text = kubeconfig(worker, &authority, &own);
    let mut changed = false;
    for path in USERS {
        changed |= files::ensure_content(&files::below(root, path), text.as_bytes(), 0o600)?;
    }
    Ok(changed)
}

/// Identifies the key with which the worker has joined. A renewal by the kubelet does not change it. `None` if the
/// worker has not joined.
pub fn key(root: &Path) -> Option<String> {
    let key = KeyPair::from_pem(kubelet::kubeconfig_credentials(root)?.key.expose()).ok()?;
    Some(pki::digits(&key.subject_public_key_info()))
}

pub fn end(root: &Path, now: SystemTime) -> Option<SystemTime> {
    pki::expiry(&newest(root, now)?.certificate).ok()
}

/// The certificate that expires last: the one with which the worker joined, or a usable one that the kubelet has
/// renewed. `None` if the worker has not joined.
fn newest(root: &Path, now: SystemTime) -> Option<CertificateWithKey> {
    let first = kubelet::kubeconfig_credentials(root)?;
    let end = |pair: &CertificateWithKey| pki::expiry(&pair.certificate).ok();
    // A power cut may have damaged the last one.
    let renewed = kubelet::renewed(root, kubelet::CLIENTS, now).into_iter().map(|(_, pair)| pair);
    [first].into_iter().chain(renewed).max_by_key(end)
}

fn kubeconfig(worker: &Worker, authority: &str, own: &CertificateWithKey) -> Zeroizing<String> {
    let server = format!("https://{}:{}", worker.cluster.api_address, ports::API);
    let user = format!("system:node:{}", worker.node.name);
    pki::kubeconfig(server, authority.to_owned(), own.clone()).render(&user)
}
