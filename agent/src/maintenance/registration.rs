//! Makes sure that the cluster has the Node object of this control-plane node, with role and taints. The kubelet registers only
//! at its start, so a deleted object would not come back. It is created again before Kubernetes deletes the node's pods:
//! `PodGC` waits 40 s. A deleted object of a worker means that the worker was removed.

use std::path::Path;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use contract::codes;
use contract::finding::Findings;

use super::job::Job;
use crate::cluster::REQUEST;
use crate::cluster::kubernetes::api::Api;
use crate::cluster::kubernetes::kubeadm::Kubeadm;
use crate::cluster::kubernetes::{kubelet, sandboxes};
use crate::cluster::pod_network::cni;
use crate::host::command::{Runner, SlowHost};
use crate::intake::config::ControlPlane;
use crate::node::context::{NodeContext, RegistrationState};

/// How many looks in a row must miss the object.
const LOOKS: u32 = 2;

/// The shortest time between two restarts of the kubelet.
const RESTART: Duration = Duration::from_secs(5 * 60);

pub(super) fn prepare(node: &NodeContext) -> anyhow::Result<Option<Job>> {
    let serves = node.reporter.status().health.is_some_and(|health| health.api);
    // A node that leaves stops its kubelet.
    if !serves || node.endpoint.swaps().under_way().is_some() {
        return Ok(None);
    }
    let (config, root, memory) = (node.control_plane()?.clone(), node.root().to_owned(), node.registration.clone());
    Ok(Some(Box::new(move |_| {
        let api = Api::as_administrator(config.address(), &root, config.timeout(REQUEST))?;
        let mut memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
        let runner = SlowHost(config.timeout_factor);
        Look { api: &api, config: &config, root: &root, runner: &runner, now: Instant::now() }.take(&mut memory)
    })))
}

struct Look<'a> {
    api: &'a Api,
    config: &'a ControlPlane,
    root: &'a Path,
    runner: &'a dyn Runner,
    now: Instant,
}

impl Look<'_> {
    fn take(&self, memory: &mut RegistrationState) -> anyhow::Result<Findings> {
        let (name, role) = (&self.config.node.name, self.config.role);
        let Some(node) = self.api.registered(name)? else {
            memory.missing += 1;
            let mut seen = format!("the cluster has no Node object \"{name}\": Kubernetes takes this node for removed");
            if memory.missing >= LOOKS {
                match self.api.register(name, role, cni::range(self.root)) {
                    Ok(()) => {
                        log::warn!("the Node object of this node was deleted: it was created again");
                        *memory = RegistrationState { missing: 0, restart: true, ..*memory };
                    }
                    Err(error) => seen = format!("{seen}. Creating it failed: {error:#}"),
                }
            }
            let action = "Wait a minute: the node creates it. If this stays, the audit log of the API server says who deletes it";
            return Ok(codes::NODE_NOT_REGISTERED.finding("node", seen, action).into());
        };
        memory.missing = 0;
        // A kubelet that starts earlier refuses its static pods: the object has no capacity yet.
        if node.is_reported() {
            self.restart_kubelet(memory)?;
        }
        if !node.is_marked(role) {
            log::warn!("the Node object of this node had lost its role or its taints: they are set again");
            Kubeadm::new(self.root, self.runner).mark()?;
        }
        let range = cni::range(self.root).filter(|range| node.range() == Some(*range));
        if let Some(range) = range.filter(|range| memory.range != Some(*range)) {
            let stopped = sandboxes::stop_outside(self.runner, range)?;
            if !stopped.is_empty() {
                log::warn!("this node has the pod range {range} now; restarted: {}", stopped.join(", "));
            }
            memory.range = Some(range);
        }
        Ok(Findings::default())
    }

    /// Restarts the kubelet so that it uses the new object, unless it was stopped or was restarted within five minutes.
    fn restart_kubelet(&self, memory: &mut RegistrationState) -> anyhow::Result<()> {
        let lately = memory.restarted.is_some_and(|restarted| self.now.duration_since(restarted) < RESTART);
        if memory.restart && !lately {
            memory.restarted = Some(self.now);
            kubelet::try_restart(self.runner)?;
            memory.restart = false;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::{Arc, Mutex};
    use std::time::SystemTime;

    use contract::ports;
    use serde_json::{Value, json};

    use super::*;
    use crate::cluster::kubernetes::fake_api::FakeApi;
    use crate::cluster::kubernetes::sandboxes::tests::Runtime;
    use crate::cluster::pki::{self, CertificateAuthorities};
    use crate::host::fake_server;
    use crate::host::fixture::Namespace;
    use crate::intake::config::fixture::{in_a_tenant, three_nodes};

    type Nodes = Arc<Mutex<Vec<Value>>>;

    /// A cluster in a namespace whose nodes are these, and the node below a directory.
    fn in_a_cluster(name: &str, test: impl FnOnce(&Path, &Nodes) + Send + 'static) {
        let namespace = Namespace::new(name);
        namespace.ip("link set lo up");
        namespace.ip("address add 10.0.0.11/32 dev lo");
        namespace.run(move || {
            let (root, nodes) = (tempfile::tempdir().unwrap(), Nodes::default());
            let pki = root.path().join("etc/kubernetes/pki");
            let node = three_nodes().control_node().unwrap().clone();
            CertificateAuthorities::make(SystemTime::now()).unwrap().ensure(&pki).unwrap();
            pki::ensure_member(&node, &pki, SystemTime::now()).unwrap();
            FakeApi::lay_kubeconfig(root.path(), &pki);
            let all = nodes.clone();
            let answer = move |path: &str, body: &Value| answer(&all, path, body);
            let address = SocketAddr::from((node.address, ports::API));
            fake_server::serve(address, &pki.join("etcd/server"), Box::new(answer));
            test(root.path(), &nodes);
        });
    }

    fn answer(nodes: &Nodes, path: &str, body: &Value) -> (u16, Value) {
        let mut nodes = nodes.lock().unwrap();
        let path = path.split('?').next().unwrap_or_default();
        match path.strip_prefix("/api/v1/nodes").unwrap() {
            "" if body.is_object() => {
                nodes.push(body.clone());
                (201, body.clone())
            }
            "" => (200, json!({"items": *nodes})),
            name => match nodes.iter().find(|node| node["metadata"]["name"] == name[1..]) {
                Some(node) => (200, node.clone()),
                None => (404, json!({})),
            },
        }
    }

    /// Looks so many seconds after the first look. Returns the findings' codes and the commands.
    struct Task<'a> {
        root: &'a Path,
        config: ControlPlane,
        runtime: Runtime,
        memory: RegistrationState,
        begun: Instant,
    }

    impl<'a> Task<'a> {
        fn of(
            root: &'a Path,
            config: ControlPlane,
            sandboxes: Vec<(&'static str, &'static str, &'static str)>,
        ) -> Self {
            let runtime = Runtime(sandboxes, Mutex::default());
            Self { root, config, runtime, memory: RegistrationState::default(), begun: Instant::now() }
        }

        fn look(&mut self, second: u64) -> (Vec<String>, Vec<String>) {
            let api = Api::as_administrator(self.config.address(), self.root, Duration::from_secs(60)).unwrap();
            let now = self.begun + Duration::from_secs(second);
            let look = Look { api: &api, config: &self.config, root: self.root, runner: &self.runtime, now };
            let findings = look.take(&mut self.memory).unwrap();
            let codes = findings.iter().map(|finding| finding.code.clone()).collect();
            (codes, std::mem::take(&mut self.runtime.1.lock().unwrap()))
        }
    }

    fn lay_range(root: &Path, range: &str) {
        let path = root.join(cni::PATH);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, cni::conflist(range.parse().unwrap(), 1450)).unwrap();
    }

    /// The kubelet reports the state of the newest node.
    fn report(nodes: &Nodes) {
        nodes.lock().unwrap().last_mut().unwrap()["status"]["allocatable"]["pods"] = json!("110");
    }

    fn other(range: &str) -> Value {
        json!({"metadata": {"name": "node2"}, "spec": {"podCIDR": range}})
    }

    const RESTARTED: &str = "systemctl try-restart kubelet.service";

    #[test]
    fn a_deleted_node_comes_back_with_its_range() {
        in_a_cluster("back", |root, nodes| {
            nodes.lock().unwrap().push(other("10.244.1.0/24"));
            lay_range(root, "10.244.0.0/24");
            let mut task = Task::of(root, in_a_tenant(three_nodes()), Vec::new());
            let missing = || vec!["node.not-registered".to_owned()];
            assert_eq!(task.look(0), (missing(), vec![]), "the first look only notes it");
            assert_eq!(task.look(10), (missing(), vec![]));
            assert_eq!(task.look(12), (vec![], vec![]), "a kubelet that starts now refuses its static pods");
            report(nodes);
            assert_eq!(task.look(15), (vec![], vec![RESTARTED.to_owned()]));
            let made = nodes.lock().unwrap().pop().unwrap();
            assert_eq!(made["spec"]["podCIDR"], "10.244.0.0/24");
            assert_eq!(made["spec"]["taints"][0]["effect"], "NoSchedule");
            assert_eq!(made["metadata"]["labels"]["node-role.kubernetes.io/control-plane"], "");

            // Deleted again at once: the object is created again, and the kubelet is restarted after five minutes.
            assert_eq!((task.look(20), task.look(30)), ((missing(), vec![]), (missing(), vec![])));
            assert_eq!(nodes.lock().unwrap().len(), 2);
            report(nodes);
            assert_eq!(task.look(40), (vec![], vec![]));
            assert_eq!(task.look(316), (vec![], vec![RESTARTED.to_owned()]));
            assert_eq!(task.look(700), (vec![], vec![]));
        });
    }

    #[test]
    fn range_of_another_node_is_left_alone() {
        in_a_cluster("range", |root, nodes| {
            nodes.lock().unwrap().push(other("10.244.0.0/24"));
            lay_range(root, "10.244.0.0/24");
            let sandboxes = vec![("a", "web", "10.244.0.5"), ("b", "api", ""), ("c", "new", "10.244.7.2")];
            let mut task = Task::of(root, three_nodes(), sandboxes);
            task.look(0);
            task.look(10);
            assert!(nodes.lock().unwrap()[1]["spec"]["podCIDR"].is_null());
            // The cluster gives it another range, which the pod network writes.
            nodes.lock().unwrap()[1]["spec"]["podCIDR"] = json!("10.244.7.0/24");
            assert_eq!(task.look(20), (vec![], vec![]), "new sandboxes would still be of the former range");
            lay_range(root, "10.244.7.0/24");
            assert_eq!(task.look(30), (vec![], vec!["crictl stopp a".to_owned()]));
            assert_eq!(task.look(40), (vec![], vec![]), "they are looked at once");
        });
    }

    #[test]
    fn missing_role_is_set_again() {
        in_a_cluster("role", |root, nodes| {
            nodes.lock().unwrap().push(json!({"metadata": {"name": "node1"}}));
            let mut task = Task::of(root, three_nodes(), Vec::new());
            let (found, ran) = task.look(0);
            assert!(found.is_empty() && ran.len() == 1 && ran[0].contains("mark-control-plane"), "{ran:?}");
        });
    }
}
