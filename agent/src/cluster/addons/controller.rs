//! The controller of tenant clusters, on control nodes of the control cluster: a pod on each, of which one leads by a Lease. Its
//! kinds, its rights and its policies are files of the image, which the controller's own program has printed.
//!
//! Each pod runs the program of its node's image and asks its own node's API server, so that none waits for the virtual IP or for
//! a node that is cut off. It knows by which build the cluster's kinds were made, and by which its node's image was.

use contract::image;
use contract::paths;
use contract::ports;
use serde_json::{Value, json};

use super::objects::{confined, on_control_nodes};
use super::{BUILD, dns_servers};
use crate::intake::config::Node;

/// The container image, and the program of this project that it is of.
pub(super) const IMAGE: &str = "controller";
/// What its objects are called, also those that the image has: its account among them.
pub const NAME: &str = "kaas-controller";
/// The namespace of that account.
pub const NAMESPACE: &str = "kaas-system";
/// The authorities that the node trusts, those of its properties included: vCenters prove themselves by these.
const AUTHORITIES: &str = "/etc/ssl/certs";
/// Seconds: it ends what is under way, and gives the Lease back.
pub const GRACE: u32 = 45;

/// Its pods, with the DNS servers of `node`. `mark` is the build that the cluster's kinds are of.
pub(super) fn objects(mark: &str, node: &Node) -> Vec<Value> {
    let labels = json!({"app": NAME});
    vec![json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": {
            "revisionHistoryLimit": 2,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels, "annotations": {BUILD: mark}}, "spec": pod(node)},
        },
    })]
}

fn field(name: &str, path: &str) -> Value {
    json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}})
}

fn pod(node: &Node) -> Value {
    let alive = json!({
        "httpGet": {"host": "127.0.0.1", "path": "/healthz", "port": ports::CONTROLLER_HEALTH},
        "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 3,
    });
    let container = json!({
        "name": NAME,
        "image": image::reference(IMAGE, image::CARRIED),
        "imagePullPolicy": "IfNotPresent",
        "args": [
            "run",
            "--node=$(NODE_NAME)",
            format!("--health=127.0.0.1:{}", ports::CONTROLLER_HEALTH),
            format!("--image={}", image::PATH),
            "--marked=$(MARKED_BUILD)",
            format!("--directory={}", paths::TENANTS),
        ],
        "env": [
            field("NODE_NAME", "spec.nodeName"),
            field("MARKED_BUILD", &format!("metadata.annotations['{BUILD}']")),
            field("KUBERNETES_SERVICE_HOST", "status.hostIP"),
            {"name": "KUBERNETES_SERVICE_PORT", "value": ports::API.to_string()},
            {"name": "SSL_CERT_FILE", "value": format!("{AUTHORITIES}/ca-certificates.crt")},
        ],
        // Only who leads keeps what there is of thousands of machines in mind.
        "resources": {"requests": {"cpu": "20m", "memory": "64Mi"}, "limits": {"memory": "1Gi"}},
        "livenessProbe": alive,
        "readinessProbe": alive,
        "securityContext": confined(),
        "volumeMounts": [
            {"name": "authorities", "mountPath": AUTHORITIES, "readOnly": true},
            {"name": "image", "mountPath": image::PATH, "readOnly": true},
            // Under the node's own path, by which people are told where a snapshot is.
            {"name": "kept", "mountPath": paths::TENANTS},
        ],
    });
    let volumes = json!([
        {"name": "authorities", "hostPath": {"path": AUTHORITIES, "type": "Directory"}},
        {"name": "image", "hostPath": {"path": image::PATH, "type": "File"}},
        // The snapshot of a tenant's store from before its upgrade is the way back: it outlives pods, and swaps of this node. The agent
        // makes the directory, and the pod waits for that.
        {"name": "kept", "hostPath": {"path": paths::TENANTS, "type": "Directory"}},
    ]);
    let mut pod = on_control_nodes(NAME, &container, &volumes);
    pod["hostNetwork"] = true.into();
    // Not cluster DNS: vCenters are not in the cluster, and its DNS may not run yet. Kubernetes wants a server with `None`.
    let servers = dns_servers(node);
    pod["dnsPolicy"] = if servers.is_empty() { "Default" } else { "None" }.into();
    if !servers.is_empty() {
        pod["dnsConfig"] = json!({"nameservers": servers, "searches": node.search_domains});
    }
    pod["enableServiceLinks"] = false.into();
    pod["terminationGracePeriodSeconds"] = GRACE.into();
    // Whatever a control node is tainted with, somebody has to look after tenants.
    pod["tolerations"] = json!([{"operator": "Exists"}]);
    pod
}
