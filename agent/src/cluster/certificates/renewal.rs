//! Renews certificates that expire soon. The CAs on this node's data disk sign all of them. No peer is needed, so
//! expired certificates are also renewed at boot.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, ensure};
use contract::ports;

use super::inventory::{CA_NAMES, Certificate, inventory, is_ours, ours};
use crate::cluster::etcd::snapshot;
use crate::cluster::kubernetes::kubeadm::Kubeadm;
use crate::cluster::kubernetes::{ADMINISTRATOR, PKI, api, kubelet, proxy};
use crate::cluster::pki::{self, CertificateAuthorities, Leaf, RENEW_BEFORE};
use crate::cluster::pod_network;
use crate::host::command::Runner;
use crate::host::files;
use crate::intake::config::ControlPlane;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The free space that a renewal of all certificates needs, in bytes. They take a tenth of it.
const ROOM: u64 = 4 << 20;

/// Creates or renews all of Kubernetes' certificates and kubeconfigs on this node. Returns whether any was created
/// again. The file of kubeadm's configuration must exist. `complete` means that all of them have existed before. After
/// an error another call completes it.
pub fn kubernetes(
    root: &Path,
    config: &ControlPlane,
    runner: &dyn Runner,
    complete: bool,
    now: SystemTime,
) -> anyhow::Result<bool> {
    let node = config.control_node()?;
    let path = |path: &str| files::below(root, path);
    let mut changed = Kubeadm::new(root, runner).credentials(complete, now)?;
    let authorities = CertificateAuthorities::read(&path(PKI))?;
    let server = format!("https://{}:{}", config.address(), ports::API);
    changed |= pki::point_at(&path(kubelet::KUBECONFIG), &server)?;
    for (kubeconfig, leaf) in [
        (api::KUBECONFIG, api::leaf()),
        (proxy::KUBECONFIG, Leaf::kube_proxy()),
        (pod_network::KUBECONFIG, Leaf::pod_network()),
    ] {
        changed |= pki::ensure_kubeconfig(&path(kubeconfig), &server, &leaf, &authorities, now)?;
    }
    let serving = kubelet::serving_leaf(node);
    changed |= serving.ensure(&authorities.kubernetes, &path(kubelet::SERVING), now)?;
    Ok(changed)
}

/// Renews all certificates of a running node, etcd's included, if one of them is due. Returns whether any was created
/// again. A program that has read an old one at its start must then start again. An etcd member reads its own for each
/// connection.
pub fn all_if_due(root: &Path, config: &ControlPlane, runner: &dyn Runner, now: SystemTime) -> anyhow::Result<bool> {
    let present = inventory(root);
    let Some(first) = due(&present, config, now) else { return Ok(false) };
    log::info!("the certificate {first} ends soon or is not valid yet: this node's certificates are renewed");
    let node = config.control_node()?;
    let etcd = pki::ensure_member(node, &files::below(root, PKI), now)?;
    Ok(kubernetes(root, config, runner, true, now)? || etcd)
}

/// Creates all certificates of a running node again, etcd's included, however long they are still valid. A program that
/// has read an old one must then start again. Without room all certificates stay. After another error the next call, or
/// the next boot, creates the missing ones.
pub fn all_now(root: &Path, config: &ControlPlane, runner: &dyn Runner, now: SystemTime) -> anyhow::Result<()> {
    let (free, _) = snapshot::room(&files::below(root, PKI)).context("looking at the free space")?;
    ensure!(free >= ROOM, "the data disk has no room for new certificates, so the old ones stay: free space on it");
    let former = fs::read_to_string(files::below(root, ADMINISTRATOR)).unwrap_or_default();
    if let Ok(serial) = pki::embedded(&former).and_then(|former| pki::serial(&former.certificate)) {
        log::info!("the certificate of the former admin.conf has the serial number {serial}");
    }
    for path in ours() {
        files::remove(&files::below(root, path)).with_context(|| format!("removing {path}"))?;
    }
    kubelet::forget_certificates(root, kubelet::CLIENTS).context("removing the kubelet's former certificates")?;
    // etcd and the API server read these for each connection.
    pki::ensure_member(config.control_node()?, &files::below(root, PKI), now)?;
    kubernetes(root, config, runner, false, now).map(drop)
}

/// The first of the agent's certificates that is due, if any. Control-plane nodes are formed together, so their
/// certificates expire together. Each node begins a day before the next one, so that their control planes do not
/// restart at once.
fn due<'a>(certificates: &'a [Certificate], config: &ControlPlane, now: SystemTime) -> Option<&'a str> {
    let nodes = &config.cluster.control_nodes;
    let position = nodes.iter().position(|node| node.name == config.node.name).unwrap_or_default();
    let days = u32::try_from(position).unwrap_or_default();
    let limit = (now + RENEW_BEFORE).checked_sub(DAY * days).unwrap_or(now);
    let limit = limit.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let ours = || certificates.iter().filter(|one| is_ours(&one.name));
    // New certificates begin with their CA.
    let authority = certificates.iter().filter(|one| CA_NAMES.contains(&one.name.as_str())).map(|one| one.begins);
    let authority = authority.max().unwrap_or_default();
    let early = ours().find(|one| one.is_early(now) && one.begins > authority);
    let ends = ours().min_by_key(|one| one.ends).filter(|one| u64::try_from(one.ends).unwrap_or(0) < limit);
    early.or(ends).map(|one| one.name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::kubernetes::kubeadm::fake::FakeKubeadm;
    use crate::host::fixture::small_file_system;
    use crate::intake::config::fixture::three_nodes;
    use std::thread;

    #[test]
    fn nodes_renew_on_different_days_and_cas_never() {
        let now = UNIX_EPOCH + DAY * 20_000;
        let end = |name: &str, days: i64| Certificate { name: name.into(), ends: (20_000 + days) * 86_400, begins: 0 };
        let mut config = three_nodes();
        let listed = [end("ca", 1), end("kubelet-client", 1), end("etcd-peer", 300), end("scheduler.conf", 89)];
        assert_eq!(due(&listed, &config, now), Some("scheduler.conf"));
        config.node.name = "node2".into();
        assert_eq!(due(&listed, &config, now), None, "a day later than the first node");
        assert_eq!(due(&listed, &config, now + DAY), Some("scheduler.conf"));
        config.node.name = "node3".into();
        assert_eq!(due(&listed, &config, now + DAY), None);
        assert_eq!(due(&listed, &config, now + DAY * 400), Some("scheduler.conf"), "long expired");
        assert_eq!(due(&[], &config, now), None);
    }

    #[test]
    fn requested_renewal_replaces_all_certificates_but_cas() {
        let (root, config, now) = (tempfile::tempdir().unwrap(), three_nodes(), SystemTime::now());
        let (fake, pki) = (FakeKubeadm::new(root.path()), files::below(root.path(), PKI));
        pki::ensure_member(config.control_node().unwrap(), &pki, now).unwrap();
        kubernetes(root.path(), &config, &fake, false, now).unwrap();
        let kubelets = files::below(root.path(), kubelet::CLIENT);
        let rotated = kubelets.with_file_name("kubelet-client-2026-01-01-00-00-00.pem");
        for path in [&kubelets, &rotated] {
            files::write_atomically(path, b"rotated", 0o600).unwrap();
        }
        let read = |path: &str| fs::read(files::below(root.path(), path)).ok();
        let (before, authority): (Vec<_>, _) = (ours().map(read).collect(), read("/etc/kubernetes/pki/ca.crt"));
        all_now(root.path(), &config, &fake, now).unwrap();
        for (path, before) in ours().zip(before) {
            // The endpoint creates its own when it opens.
            assert_eq!(read(path).is_some(), before.is_some(), "{path}");
            assert!(before.is_none() || read(path) != before, "{path} is the old one");
        }
        assert_eq!(read("/etc/kubernetes/pki/ca.crt"), authority);
        assert!(!kubelets.exists() && !rotated.exists(), "the kubelet asks for another one");
    }

    #[test]
    fn full_disk_keeps_all_old_certificates() {
        let test = || {
            let (root, config, now) = (tempfile::tempdir().unwrap(), three_nodes(), SystemTime::now());
            let _disk = small_file_system(&files::below(root.path(), "/etc/kubernetes"));
            let (fake, pki) = (FakeKubeadm::new(root.path()), files::below(root.path(), PKI));
            pki::ensure_member(config.control_node().unwrap(), &pki, now).unwrap();
            kubernetes(root.path(), &config, &fake, false, now).unwrap();
            let all = || ours().map(|path| fs::read(files::below(root.path(), path)).ok()).collect::<Vec<_>>();
            let before = all();
            fs::write(pki.join("full"), vec![1; 62 << 20]).unwrap();
            let error = all_now(root.path(), &config, &fake, now).unwrap_err().to_string();
            assert!(error.contains("no room for new certificates"), "{error}");
            assert!(all() == before, "an old certificate is gone");
        };
        thread::spawn(test).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }

    #[test]
    fn certificates_from_a_clock_ahead_are_due() {
        let now = UNIX_EPOCH + DAY * 20_000;
        let with = |name: &str, begins: i64| Certificate {
            name: name.into(),
            ends: 21_000 * 86_400,
            begins: (20_000 + begins) * 86_400,
        };
        let config = three_nodes();
        let of = |authority: i64, peer: i64| {
            let listed = [with("ca", authority), with("etcd-peer", peer), with("kubelet-client", peer)];
            due(&listed, &config, now).map(str::to_owned)
        };
        assert_eq!(of(-400, 2).as_deref(), Some("etcd-peer"));
        assert_eq!(of(-400, -1), None);
        assert_eq!(of(2, 2), None, "a new one would begin with the authority as well");
    }
}
