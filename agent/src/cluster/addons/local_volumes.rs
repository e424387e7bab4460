//! Volumes on the data disks of workers: local-path-provisioner, with a helper of the appliance's own in place of a shell.
//! The objects follow upstream's (`deploy/local-path-storage.yaml`).

use contract::image;
use contract::local_volumes::{CLASS, LABEL, PROVISIONER as PROVISIONER_NAME};
use contract::paths;
use serde_json::{Value, json};

use super::objects::{Account, confined, deployment, on_control_nodes, policy, privileged_namespace, rule};

/// The container image of the provisioner.
pub(super) const PROVISIONER: &str = "local-path-provisioner";
/// The container image of what it starts on a volume's node.
pub(super) const HELPER: &str = "local-path-helper";
const NAMESPACE: &str = "local-path-storage";
/// Of what the provisioner reads.
const CONFIGURATION: &str = "local-path-config";
/// Where its pod sees that.
const MOUNTED: &str = "/configuration";

pub(super) fn objects() -> Vec<Value> {
    let labels = json!({"app": PROVISIONER});
    let all = "get,list,watch,create,patch,update,delete";
    let account = Account {
        name: PROVISIONER,
        namespace: NAMESPACE,
        cluster_role: PROVISIONER,
        everywhere: json!([
            rule("", "nodes,persistentvolumeclaims", "get,list,watch"),
            rule("", "persistentvolumes", all),
            rule("", "events", "create,patch"),
            rule("storage.k8s.io", "storageclasses", "get,list,watch"),
        ]),
        // The pods of the helper, and what they say.
        at_home: Some(json!([rule("", "pods", all), rule("", "pods/log,configmaps", "get")])),
    };
    let mut objects = vec![privileged_namespace(NAMESPACE)];
    objects.extend(policies());
    objects.extend(account.objects());
    objects.extend([
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": CONFIGURATION, "namespace": NAMESPACE},
            "data": {"config.json": configuration().to_string(), "helperPod.yaml": helper().to_string()},
        }),
        deployment(PROVISIONER, NAMESPACE, &labels, &pod()),
        json!({
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            // `local` volumes are not made by the kubelet where their directory is missing, as `hostPath` ones are.
            "metadata": {"name": CLASS, "annotations": {"defaultVolumeType": "local"}},
            "provisioner": PROVISIONER_NAME,
            "reclaimPolicy": "Delete",
            // The pod's node decides, and only one with a data disk for it is taken.
            "volumeBindingMode": "WaitForFirstConsumer",
            "allowedTopologies": [{"matchLabelExpressions": [{"key": LABEL, "values": ["true"]}]}],
        }),
    ]);
    objects
}

/// Close two weaknesses of the provisioner, of which no later version is served. A StorageClass chooses the directory of a volume
/// (CVE-2025-62878), and the ConfigMap has the whole pod that the provisioner starts on a node (CVE-2026-44543).
fn policies() -> Vec<Value> {
    let pattern = format!(
        "object.provisioner != '{PROVISIONER_NAME}' || !has(object.parameters) || !('pathPattern' in object.parameters)"
    );
    let may_anyway =
        format!("authorizer.group('').resource('pods').namespace('{NAMESPACE}').check('create').allowed()");
    let classes = ("storage.k8s.io", "storageclasses", ["CREATE"].as_slice());
    let maps = ("", "configmaps", ["CREATE", "UPDATE"].as_slice());
    let paths = policy("kaas-local-volume-paths", "Fail", classes, &[(&pattern, CHOSEN)]);
    let mut pods = policy("kaas-local-volume-pods", "Fail", maps, &[(&may_anyway, GIVEN)]);
    let judged = &mut pods[0]["spec"]["matchConstraints"];
    judged["namespaceSelector"] = json!({"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}});
    // Kubernetes keeps a ConfigMap of its own in each namespace.
    judged["resourceRules"][0]["resourceNames"] = json!([CONFIGURATION]);
    [paths, pods].into_iter().flatten().collect()
}

const CHOSEN: &str = "the parameter pathPattern is refused: the appliance names the directory of each local volume";
const GIVEN: &str =
    "a pod template is in this ConfigMap: only a user who may create pods in this namespace may write it";

/// On every node the same directory: which nodes there are is the class's to say.
fn configuration() -> Value {
    json!({
        "cmdTimeoutSeconds": 120,
        "nodePathMap": [{"node": "DEFAULT_PATH_FOR_NON_LISTED_NODES", "paths": [paths::LOCAL_VOLUMES]}],
        "setupCommand": format!("/{HELPER}"),
        "teardownCommand": format!("/{HELPER}"),
    })
}

/// The pod that makes or removes a directory. It is root, whom the directory of all volumes belongs to, and has what it takes
/// to remove the files of others.
fn helper() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "helper-pod"},
        "spec": {
            "priorityClassName": "system-node-critical",
            "automountServiceAccountToken": false,
            "containers": [{
                "name": "helper-pod",
                "image": image::reference(HELPER, image::CARRIED),
                "imagePullPolicy": "IfNotPresent",
                "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "64Mi"}},
                "securityContext": {
                    "allowPrivilegeEscalation": false,
                    "capabilities": {"add": ["DAC_OVERRIDE"], "drop": ["ALL"]},
                    "readOnlyRootFilesystem": true,
                    "runAsUser": 0,
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
            }],
        },
    })
}

fn pod() -> Value {
    let container = json!({
        "name": PROVISIONER,
        "image": image::reference(PROVISIONER, image::CARRIED),
        "imagePullPolicy": "IfNotPresent",
        "args": [
            "start",
            format!("--config={MOUNTED}/config.json"),
            format!("--configmap-name={CONFIGURATION}"),
            format!("--helper-image={}", image::reference(HELPER, image::CARRIED)),
            format!("--provisioner-name={PROVISIONER_NAME}"),
            format!("--service-account-name={PROVISIONER}"),
        ],
        "env": [
            {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
            {"name": "CONFIG_MOUNT_PATH", "value": MOUNTED},
        ],
        "resources": {"requests": {"cpu": "20m", "memory": "40Mi"}, "limits": {"memory": "200Mi"}},
        "securityContext": confined(),
        "volumeMounts": [{"name": "configuration", "mountPath": MOUNTED, "readOnly": true}],
    });
    on_control_nodes(PROVISIONER, &container, &json!([{"name": "configuration", "configMap": {"name": CONFIGURATION}}]))
}
