//! Renews all of a node's certificates when an operator has asked for it, and waits until the control plane uses the new ones.
//! See [`crate::cluster::certificates::renew`].

use std::time::SystemTime;

use anyhow::{Context as _, bail};
use contract::finding::Findings;

use super::{certificates, endpoint};
use crate::cluster::REQUEST;
use crate::cluster::certificates::renew::{Renewal, Stage};
use crate::cluster::certificates::renewal;
use crate::cluster::kubernetes::api::Api;
use crate::cluster::kubernetes::kubeadm;
use crate::node::context::NodeContext;

pub(super) fn look(node: &NodeContext) -> anyhow::Result<Findings> {
    let Some(renewal) = node.records.entry::<Renewal>()?.filter(|renewal| renewal.stage != Stage::Done) else {
        return Ok(Findings::default());
    };
    // The node is about to leave, or its control plane restarts anyway.
    if node.endpoint.swaps().under_way().is_some() {
        return Ok(Findings::default());
    }
    if renewal.stage == Stage::Asked {
        log::info!("this node's certificates are renewed, as an operator has asked");
        renewal::all_now(node.root(), node.control_plane()?, node.runner(), SystemTime::now())?;
        // The next steps may fail. They are tried again with these certificates.
        node.records.update_entry(&Renewal { stage: Stage::Renewed, ..renewal })?;
    }
    endpoint::look(node)?;
    certificates::look(node)?;
    // The API server here restarts. Until it answers and all components have restarted, that is a finding.
    let waiting = restarting(node).context("looking whether the control plane runs with the new certificates")?;
    if let Some(waiting) = waiting {
        bail!("{waiting}");
    }
    node.records.update_entry(&Renewal { stage: Stage::Done, ..renewal })?;
    Ok(Findings::default())
}

/// The components that do not run with the new certificates yet. `None` if all do.
fn restarting(node: &NodeContext) -> anyhow::Result<Option<String>> {
    let config = node.control_plane()?;
    // The agent's own user reads only nodes.
    let api = Api::as_administrator(config.address(), node.root(), config.timeout(REQUEST))?;
    api.restarting(&config.node.name, &kubeadm::marks(node.root()))
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use contract::ports;
    use serde_json::{Value, json};
    use uuid::Uuid;

    use super::*;
    use crate::cluster::certificates::renew;
    use crate::cluster::kubernetes::kubeadm::configuration::MARK;
    use crate::cluster::kubernetes::kubeadm::fake::FakeKubeadm;
    use crate::cluster::kubernetes::{PKI, api};
    use crate::cluster::pki;
    use crate::host::command::{self, Command, Host, Runner};
    use crate::host::fake_server;
    use crate::host::files;
    use crate::host::fixture::Namespace;
    use crate::intake::config::fixture::three_nodes;
    use crate::intake::config::{Config, ControlPlane};
    use crate::node::fixture;

    /// kubeadm that makes no manifests while it is broken.
    struct Programs {
        kubeadm: FakeKubeadm,
        broken: Arc<AtomicBool>,
    }

    impl Runner for Programs {
        fn run(&self, command: &Command) -> Result<Vec<u8>, command::Error> {
            let is_broken = self.broken.load(Ordering::SeqCst) && command.to_string().contains("control-plane");
            if is_broken { Host.run(&Command::new("false")) } else { self.kubeadm.run(command) }
        }
    }

    /// An API server with the product's rights: the agent's own user reads no pods. Its pods have the certificates on the disk
    /// once they have `restarted`.
    fn serve(config: &ControlPlane, root: &Path, restarted: Arc<AtomicBool>) {
        let own = root.to_owned();
        let answer = move |user: &str, path: &str, _: &Value| {
            assert!(path.starts_with("/api/v1/namespaces/kube-system/pods?"), "{path} is not asked of the API here");
            if user == api::USER {
                return (403, json!({"message": format!("User {user} cannot list resource pods")}));
            }
            let pods = kubeadm::marks(&own).into_iter().map(|(component, mark)| {
                let mark = if restarted.load(Ordering::SeqCst) { mark } else { "old".to_owned() };
                json!({"metadata": {"labels": {"component": component}, "annotations": {MARK: mark}},
                    "status": {"conditions": [{"type": "Ready", "status": "True"}]}})
            });
            (200, json!({"items": pods.collect::<Vec<_>>()}))
        };
        let (address, pki) = (SocketAddr::from((config.address(), ports::API)), files::below(root, PKI));
        fake_server::serve_users(address, &pki.join("apiserver"), &pki.join("ca.crt"), Box::new(answer));
    }

    #[test]
    fn renewal_runs_once_until_the_control_plane_restarts() {
        let namespace = Namespace::new("renewal");
        namespace.ip("link set lo up");
        namespace.ip("address add 10.0.0.11/32 dev lo");
        namespace.run(|| {
            let (directory, config, now) = (tempfile::tempdir().unwrap(), three_nodes(), SystemTime::now());
            let (root, id) = (directory.path(), Uuid::from_u128(1));
            std::fs::create_dir_all(root.join("data/kaas")).unwrap();
            let [broken, restarted] = [true, false].map(|is| Arc::new(AtomicBool::new(is)));
            let kubeadm = FakeKubeadm::new(root);
            pki::ensure_member(config.control_node().unwrap(), &files::below(root, PKI), now).unwrap();
            renewal::kubernetes(root, &config, &kubeadm, false, now).unwrap();
            serve(&config, root, Arc::clone(&restarted));
            let programs = Programs { kubeadm, broken: Arc::clone(&broken) };
            let node = fixture::with_runner(root, Config::ControlPlane(config), Box::new(programs));
            let stage = || node.records.entry::<Renewal>().unwrap().unwrap().stage;
            let peer = || std::fs::read(files::below(root, PKI).join("etcd/peer.crt")).unwrap();

            let before = peer();
            assert!(!renew::ask(&node.records, id).unwrap());
            look(&node).unwrap_err();
            let renewed = peer();
            assert!(renewed != before && stage() == Stage::Renewed);
            look(&node).unwrap_err();
            assert!(peer() == renewed, "they are made again and again");
            broken.store(false, Ordering::SeqCst);
            let waiting = look(&node).unwrap_err().to_string();
            assert!(waiting.contains("does not run with the new certificates yet"), "{waiting}");
            assert_eq!(stage(), Stage::Renewed);
            restarted.store(true, Ordering::SeqCst);
            look(&node).unwrap();
            assert!(renew::ask(&node.records, id).unwrap());
        });
    }
}
