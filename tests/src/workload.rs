//! A workload that needs no image beyond those that every node has: CoreDNS, for its health page, is the server. The client
//! is the node's kubectl, for its plain HTTP, in the network of a pod and with the pod's resolvers.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::json;

use crate::scenario::Scenario;

/// Asks a server for its page from a pod's place in the network: the pod's name, the server.
const CLIENT: &str = r#"
pod=$(crictl pods --quiet --state ready --name "^$1\$")
pid=$(crictl inspectp --output go-template --template '{{.info.pid}}' "$pod")
cat "/proc/$pid/root/etc/resolv.conf" >"/run/$1"
export CLIENT="/run/$1" SERVER="$2"
exec nsenter --net="/proc/$pid/ns/net" unshare --mount sh -ec '
    mount --bind "$CLIENT" /etc/resolv.conf
    exec kubectl --server="$SERVER" --request-timeout=20s get --raw /health'
"#;

/// A server and the ways to reach it.
pub struct Workload<'a> {
    scenario: &'a Scenario,
    /// Waits are this long.
    limit: Duration,
}

impl<'a> Workload<'a> {
    /// Starts the server on a node and waits until it is ready.
    pub fn start(scenario: &'a Scenario, node: &str, limit: Duration) -> Self {
        let workload = Self { scenario, limit };
        scenario.apply(&json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web"},
            "data": {"Corefile": ".:5353 {\n    health :8080\n}\n"},
        }));
        scenario.apply(&json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
            "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]},
        }));
        scenario.apply(&json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
            "spec": {
                "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": {
                    "nodeSelector": {"kubernetes.io/hostname": node},
                    "containers": [{
                        "name": "web", "image": scenario.carried(node, "coredns"), "imagePullPolicy": "Never",
                        "args": ["-conf", "/etc/web/Corefile"],
                        "readinessProbe": {"httpGet": {"path": "/health", "port": 8080}, "periodSeconds": 2},
                        "volumeMounts": [{"name": "web", "mountPath": "/etc/web"}],
                    }],
                    "volumes": [{"name": "web", "configMap": {"name": "web"}}],
                }},
            },
        }));
        scenario.wait("the server's pod to be ready", limit, || {
            let ready = ["get", "deployment", "web", "--output=jsonpath={.status.availableReplicas}"];
            Ok(scenario.lab().kubectl(&ready)? == "1")
        });
        workload
    }

    /// Ends the server, and starts it on another node.
    #[must_use]
    pub fn moved_to(self, node: &str) -> Self {
        self.scenario.kubectl(&["delete", "deployment", "web", "--cascade=foreground"]);
        Self::start(self.scenario, node, self.limit)
    }

    /// The server's pod address.
    pub fn pod_address(&self) -> String {
        let pod = ["get", "pod", "--selector=app=web", "--output=jsonpath={.items[0].status.podIP}"];
        self.scenario.kubectl(&pod)
    }

    pub fn node(&self) -> String {
        let pod = ["get", "pod", "--selector=app=web", "--output=jsonpath={.items[0].spec.nodeName}"];
        self.scenario.kubectl(&pod)
    }

    /// Makes the service one with a port on each node, and says which.
    pub fn node_port(&self) -> u16 {
        self.scenario.kubectl(&["patch", "service", "web", r#"--patch={"spec": {"type": "NodePort"}}"#]);
        let port = self.scenario.kubectl(&["get", "service", "web", "--output=jsonpath={.spec.ports[0].nodePort}"]);
        port.parse().unwrap_or_else(|_| panic!("the service has the port {port:?}"))
    }

    /// Runs a pod on a node that reaches the server by the service's name.
    pub fn is_reached_by_name_from(&self, node: &str) {
        self.is_reached(node, "by-name", "http://web.default.svc.cluster.local");
    }

    /// Runs a pod on a node that reaches the server's pod by its address.
    pub fn is_reached_by_address_from(&self, node: &str) {
        self.is_reached(node, "by-address", &format!("http://{}:8080", self.pod_address()));
    }

    fn is_reached(&self, node: &str, how: &str, server: &str) {
        static CLIENTS: AtomicU32 = AtomicU32::new(0);
        let name = format!("client-{node}-{how}-{}", CLIENTS.fetch_add(1, Ordering::SeqCst));
        self.scenario.apply(&json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {
                "nodeName": node,
                "automountServiceAccountToken": false,
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "client", "image": self.scenario.carried(node, "pause"), "imagePullPolicy": "Never"}],
            },
        }));
        self.scenario.wait(&format!("a pod on {node} to reach {server}"), self.limit, || {
            let vm = self.scenario.vm_of(node);
            let said =
                self.scenario.lab().run_inside(&vm, &["sh", "-ec", CLIENT, "client", &name, server], self.limit)?;
            Ok(said.trim() == "OK")
        });
        self.scenario.kubectl(&["delete", "pod", &name, "--wait=false"]);
    }
}
