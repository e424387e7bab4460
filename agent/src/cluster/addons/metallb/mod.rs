//! Virtual IPs of services: MetalLB in layer 2. A speaker on a worker answers for an address; speakers that hear no more of
//! one another take over within seconds. The objects follow upstream's (`config/native`), but for these:
//!
//! - No webhook: the pool is the appliance's, and one that somebody adds is judged when it is used.
//! - Speakers run on workers alone: Kubernetes leaves control nodes out of load balancing by a label.
//! - A speaker names no ports, since those of pods in the host's network are let in for everybody. The firewall lets in
//!   memberlist's between nodes, and metrics are on loopback.
//! - The key of memberlist is made by the controller, in the cluster.

mod rights;

use contract::image;
use contract::ports::{MEMBERLIST, SPEAKER_METRICS};
use contract::properties::AddressRange;
use serde_json::{Value, json};

use super::objects::{confined, deployment, on_control_nodes, privileged_namespace};
use crate::cluster::pod_network::desired::{DEVICE, PODS};

/// The kinds of objects that MetalLB knows, in the image.
pub(super) const KINDS: &str = "/usr/lib/kaas/add-ons/metallb-kinds.yaml";
/// The container image of the controller.
pub(super) const CONTROLLER_IMAGE: &str = "metallb-controller";
/// The container image of speakers.
pub(super) const SPEAKER_IMAGE: &str = "metallb-speaker";
const NAMESPACE: &str = "metallb-system";
const CONTROLLER: &str = "controller";
const SPEAKER: &str = "speaker";
/// The appliance's pool, and that it is announced in layer 2.
const POOL: &str = "kaas";
/// The Secret with memberlist's key, which the controller makes.
const KEY: &str = "memberlist";
/// Where speakers see it.
const KEY_MOUNTED: &str = "/etc/ml_secret_key";
/// Of the devices at which nothing is announced.
const DEVICES: &str = "metallb-excludel2";

pub(super) fn objects(addresses: &[AddressRange]) -> Vec<Value> {
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let home = |name: &str| json!({"name": name, "namespace": NAMESPACE});
    let mut objects = vec![privileged_namespace(NAMESPACE)];
    objects.extend(rights::controller(NAMESPACE, CONTROLLER, KEY));
    objects.extend(rights::speaker(NAMESPACE, SPEAKER));
    objects.extend([
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": home(DEVICES),
            "data": {"excludel2.yaml": json!({"announcedInterfacesToExclude": excluded()}).to_string()},
        }),
        deployment(CONTROLLER, NAMESPACE, &labels(CONTROLLER), &controller()),
        json!({
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": home(SPEAKER),
            "spec": {
                "revisionHistoryLimit": 2,
                "selector": {"matchLabels": labels(SPEAKER)},
                "template": {"metadata": {"labels": labels(SPEAKER)}, "spec": speaker()},
            },
        }),
        json!({
            "apiVersion": "metallb.io/v1beta1",
            "kind": "IPAddressPool",
            "metadata": home(POOL),
            "spec": {"addresses": addresses, "autoAssign": true},
        }),
        json!({
            "apiVersion": "metallb.io/v1beta1",
            "kind": "L2Advertisement",
            "metadata": home(POOL),
            "spec": {"ipAddressPools": [POOL]},
        }),
    ]);
    objects
}

fn labels(component: &str) -> Value {
    json!({"app": "metallb", "component": component})
}

/// Devices of pods and of the node itself, as regular expressions.
fn excluded() -> Vec<String> {
    let exact = |name: &str| format!("^{}$", name.replace('.', "\\."));
    vec![exact("lo"), exact(DEVICE), format!("^{}", PODS.replace('*', ".*"))]
}

fn field(name: &str, path: &str) -> Value {
    json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}})
}

fn probe(probe: &Value) -> Value {
    json!({"httpGet": probe, "initialDelaySeconds": 10, "periodSeconds": 10, "failureThreshold": 3})
}

fn controller() -> Value {
    let alive = probe(&json!({"path": "/metrics", "port": SPEAKER_METRICS}));
    let container = json!({
        "name": CONTROLLER,
        "image": image::reference(CONTROLLER_IMAGE, image::CARRIED),
        "imagePullPolicy": "IfNotPresent",
        "args": [format!("--port={SPEAKER_METRICS}"), "--log-level=info", "--webhook-mode=disabled"],
        "env": [
            {"name": "METALLB_ML_SECRET_NAME", "value": KEY},
            {"name": "METALLB_DEPLOYMENT", "value": CONTROLLER},
        ],
        "resources": {"requests": {"cpu": "20m", "memory": "50Mi"}, "limits": {"memory": "200Mi"}},
        "ports": [{"containerPort": SPEAKER_METRICS, "name": "monitoring", "protocol": "TCP"}],
        "livenessProbe": alive,
        "readinessProbe": alive,
        "securityContext": confined(),
    });
    on_control_nodes(CONTROLLER, &container, &json!([]))
}

/// It answers for addresses in the node's own network, as root: what it may do beyond that is to send raw packets.
fn speaker() -> Value {
    let alive = probe(&json!({"host": "127.0.0.1", "path": "/metrics", "port": SPEAKER_METRICS}));
    let mut may = confined();
    may["capabilities"]["add"] = json!(["NET_RAW"]);
    json!({
        "priorityClassName": "system-node-critical",
        "serviceAccountName": SPEAKER,
        "hostNetwork": true,
        "dnsPolicy": "ClusterFirstWithHostNet",
        "terminationGracePeriodSeconds": 2,
        // Edge nodes are tainted, and answer for the addresses of services.
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{
            "matchExpressions": [{"key": "node-role.kubernetes.io/control-plane", "operator": "DoesNotExist"}],
        }]}}},
        "containers": [{
            "name": SPEAKER,
            "image": image::reference(SPEAKER_IMAGE, image::CARRIED),
            "imagePullPolicy": "IfNotPresent",
            "args": [format!("--port={SPEAKER_METRICS}"), "--log-level=info"],
            "env": [
                field("METALLB_NODE_NAME", "spec.nodeName"),
                field("METALLB_POD_NAME", "metadata.name"),
                {"name": "METALLB_HOST", "value": "127.0.0.1"},
                field("METALLB_ML_BIND_ADDR", "status.podIP"),
                {"name": "METALLB_ML_BIND_PORT", "value": MEMBERLIST.to_string()},
                {"name": "METALLB_ML_LABELS", "value": format!("app=metallb,component={SPEAKER}")},
                {"name": "METALLB_ML_SECRET_KEY_PATH", "value": KEY_MOUNTED},
            ],
            "resources": {"requests": {"cpu": "20m", "memory": "50Mi"}, "limits": {"memory": "200Mi"}},
            "livenessProbe": alive,
            "readinessProbe": alive,
            "securityContext": may,
            "volumeMounts": [
                {"name": "key", "mountPath": KEY_MOUNTED, "readOnly": true},
                {"name": "devices", "mountPath": "/etc/metallb", "readOnly": true},
            ],
        }],
        "volumes": [
            {"name": "key", "secret": {"secretName": KEY, "defaultMode": 0o400}},
            {"name": "devices", "configMap": {"name": DEVICES}},
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_port_of_a_speaker_is_opened_for_everybody() {
        let pod = speaker();
        assert!(pod["containers"][0].get("ports").is_none() && pod["hostNetwork"] == true);
    }

    #[test]
    fn nothing_is_announced_to_pods() {
        assert_eq!(excluded(), ["^lo$", "^kaas\\.vxlan$", "^veth.*"]);
    }
}
