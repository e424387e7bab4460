//! Reads the parts of a bundle from a control cluster. A part that cannot be read becomes an error of the bundle. No Secret and no
//! ConfigMap is read. All texts are redacted.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddrV4};

use anyhow::Context;
use controller::objects::{GROUP, SYSTEM, VERSION, all};
use fleet::nodes::is_timeout;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use support_bundle::{Redactor, redact_object};

use crate::control::{Control, conditions, name, text};

/// The namespaces of the appliance's own pods.
const NAMESPACES: [&str; 4] = ["kube-system", SYSTEM, "metallb-system", "local-path-storage"];

/// The last lines of a log that are read, and the largest log in bytes. A client accepts at most 16 MiB.
const LOG: &str = "timestamps=true&tailLines=5000&limitBytes=8388608";

/// The bytes after which a list ends, at the end of a page. Objects take about ten times their bytes in memory, and the events of all
/// tenants are one list.
const LIST: usize = 16 << 20;

/// A part that could not be read.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Unread {
    pub part: String,
    pub reason: String,
}

/// A part of the bundle that was read.
pub struct Document {
    pub part: String,
    pub text: String,
}

/// A container's log, which is yet to be read.
#[derive(Debug, PartialEq, Eq)]
pub struct Log {
    pub part: String,
    path: String,
    /// The node of the pod. The API server asks its kubelet for the log.
    node: String,
}

/// The parts that were read so far.
pub struct Gathering<'a> {
    control: &'a Control,
    /// The port of the nodes' endpoint.
    port: u16,
    tell: &'a dyn Fn(&str),
    redactor: Redactor,
    /// Nodes that did not answer for a log in time.
    silent: BTreeSet<String>,
    /// The name of the control cluster, as its nodes report it.
    pub cluster: Option<String>,
    pub documents: Vec<Document>,
    pub logs: Vec<Log>,
    pub errors: Vec<Unread>,
}

impl<'a> Gathering<'a> {
    /// Reads all parts except the logs. `tell` is called with each part.
    pub fn new(control: &'a Control, port: u16, tell: &'a dyn Fn(&str)) -> Self {
        let mut gathering = Self {
            control,
            port,
            tell,
            redactor: Redactor::new([]),
            silent: BTreeSet::new(),
            cluster: None,
            documents: Vec::new(),
            logs: Vec::new(),
            errors: Vec::new(),
        };
        gathering.versions();
        gathering.objects();
        for (part, path) in [
            ("kubernetes/events.json", "/api/v1/events"),
            ("kubernetes/leases.json", "/apis/coordination.k8s.io/v1/leases"),
        ] {
            gathering.list(part, path);
        }
        let nodes = gathering.list("kubernetes/nodes.json", "/api/v1/nodes");
        nodes.iter().for_each(|node| gathering.node(node));
        for namespace in NAMESPACES {
            let part = format!("kubernetes/pods-{namespace}.json");
            let pods = gathering.list(&part, &format!("/api/v1/namespaces/{namespace}/pods"));
            gathering.logs.extend(pods.iter().flat_map(|pod| logs(namespace, pod)));
        }
        gathering
    }

    /// The text of a log, or why it cannot be read.
    pub fn log(&mut self, log: &Log) -> Result<String, String> {
        if self.silent.contains(&log.node) {
            return Err(format!("not read: the node {} did not answer in time for another log", log.node));
        }
        let mut is_late = false;
        let text = self.ask(&log.part, |control| {
            control.text_at(&log.path).inspect_err(|error| is_late = is_timeout(error) || is_kubelet_timeout(error))
        });
        if is_late {
            self.silent.insert(log.node.clone());
        }
        Ok(self.redactor.redact(&text?))
    }

    fn versions(&mut self) {
        let kubernetes = self.read("versions.json", |control| {
            serde_json::from_str::<Value>(&control.text_at("/version")?).context("understanding the answer")
        });
        let objects = format!("{GROUP}/{VERSION}");
        let versions = json!({"kaas": env!("CARGO_PKG_VERSION"), "objects": objects, "kubernetes": kubernetes});
        self.keep("versions.json", &versions);
    }

    /// The objects of the product's kinds, and their conditions.
    fn objects(&mut self) {
        let mut summary = String::new();
        for kind in all() {
            let names = kind.definition.spec.names;
            let path = format!("/apis/{GROUP}/{VERSION}/{}", names.plural);
            let objects = self.list(&format!("objects/{}.json", names.plural), &path);
            for object in objects.iter().filter(|object| object["status"]["conditions"].is_array()) {
                let (namespace, name) = (text(object, "/metadata/namespace"), text(object, "/metadata/name"));
                let of = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") };
                let lines = conditions(object).replace('\n', "\n  ");
                summary += &format!("{} {of}\n  {lines}\n", names.kind);
            }
        }
        let text = self.redactor.redact(&summary);
        self.documents.push(Document { part: "conditions.txt".to_owned(), text });
    }

    /// The status of a node's agent, and the name of its cluster.
    fn node(&mut self, node: &Value) {
        let port = self.port;
        let read = |control: &Control| {
            let address = address(node).context("its Node object has no internal address of IPv4")?;
            control.node_status(SocketAddrV4::new(address, port))
        };
        let Some(part) = plain_name(node).map(|name| format!("nodes/{name}.json")) else { return };
        let Some(mut status) = self.read(&part, read) else { return };
        redact_object(&mut status, &self.redactor);
        if self.cluster.is_none() {
            self.cluster = status["cluster"].as_str().and_then(|cluster| name(cluster).ok());
        }
        self.keep(&part, &status);
    }

    /// The objects of a list, which also becomes a part. Without its end if that cannot be read.
    fn list(&mut self, part: &str, path: &str) -> Vec<Value> {
        let mut objects = Vec::new();
        let read = self.read(part, |control| control.list_into(path, LIST, &mut objects));
        if read.is_none() && objects.is_empty() {
            return objects;
        }
        objects.iter_mut().for_each(|object| redact_object(object, &self.redactor));
        self.keep(part, &json!({"apiVersion": "v1", "kind": "List", "items": objects}));
        objects
    }

    fn keep(&mut self, part: &str, value: &Value) {
        let text = self.redactor.redact(&format!("{value:#}\n"));
        self.documents.push(Document { part: part.to_owned(), text });
    }

    fn read<T>(&mut self, part: &str, read: impl FnOnce(&Control) -> anyhow::Result<T>) -> Option<T> {
        let unread = |reason| Unread { part: part.to_owned(), reason };
        self.ask(part, read).map_err(|reason| self.errors.push(unread(reason))).ok()
    }

    fn ask<T>(&self, part: &str, read: impl FnOnce(&Control) -> anyhow::Result<T>) -> Result<T, String> {
        if let Some(ended) = self.control.ended() {
            return Err(ended.to_string());
        }
        (self.tell)(&format!("reading {part}"));
        read(self.control).map_err(|error| self.redactor.redact(&format!("{error:#}")))
    }
}

/// Whether the API server did not reach the kubelet in time, as Go's network errors say.
fn is_kubelet_timeout(error: &anyhow::Error) -> bool {
    format!("{error:#}").contains("i/o timeout")
}

/// The name of an object, if it is fit for a path.
fn plain_name(object: &Value) -> Option<&str> {
    Some(text(object, "/metadata/name")).filter(|text| name(text).is_ok())
}

/// The internal address of a node.
fn address(node: &Value) -> Option<Ipv4Addr> {
    let addresses = node["status"]["addresses"].as_array()?;
    let mut internal = addresses.iter().filter(|address| address["type"] == "InternalIP");
    internal.find_map(|address| address["address"].as_str()?.parse().ok())
}

/// The logs of a pod's containers: of those that have run, and of their former runs.
fn logs(namespace: &str, pod: &Value) -> Vec<Log> {
    let Some(pod_name) = plain_name(pod) else { return Vec::new() };
    let mut logs = Vec::new();
    for statuses in ["initContainerStatuses", "containerStatuses"] {
        for status in pod["status"][statuses].as_array().into_iter().flatten() {
            let Ok(container) = name(text(status, "/name")) else { continue };
            let state = &status["state"];
            let has_run = state["running"].is_object() || state["terminated"].is_object();
            let has_run_before = status["lastState"]["terminated"].is_object();
            for (has_log, suffix, query) in [(has_run, "", ""), (has_run_before, "-previous", "&previous=true")] {
                if has_log {
                    let path = format!("/api/v1/namespaces/{namespace}/pods/{pod_name}/log");
                    logs.push(Log {
                        part: format!("logs/{namespace}/{pod_name}/{container}{suffix}.txt"),
                        path: format!("{path}?container={container}&{LOG}{query}"),
                        node: text(pod, "/spec/nodeName").to_owned(),
                    });
                }
            }
        }
    }
    logs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_containers_that_ran_have_logs() {
        let statuses = json!([
            {"name": "app", "state": {"running": {}}, "lastState": {"terminated": {}}},
            {"name": "waits", "state": {"waiting": {"reason": "ImagePullBackOff"}}, "lastState": {}},
            {"name": "../odd", "state": {"running": {}}},
        ]);
        let pod = |pod: &str| json!({"metadata": {"name": pod}, "status": {"containerStatuses": statuses}});
        let parts: Vec<String> = logs("kaas-system", &pod("web")).into_iter().map(|log| log.part).collect();
        assert_eq!(parts, ["logs/kaas-system/web/app.txt", "logs/kaas-system/web/app-previous.txt"]);
        let paths: Vec<String> = logs("kaas-system", &pod("web")).into_iter().map(|log| log.path).collect();
        let begin = "/api/v1/namespaces/kaas-system/pods/web/log?container=app&";
        assert!(paths.iter().all(|path| path.starts_with(begin)) && paths[1].ends_with("&previous=true"), "{paths:?}");
        assert!(logs("kaas-system", &pod("../web")).is_empty());
    }

    #[test]
    fn node_without_internal_ipv4_has_no_address() {
        let node = |kind: &str, address: &str| json!({"status": {"addresses": [{"type": kind, "address": address}]}});
        assert_eq!(address(&node("InternalIP", "10.0.0.11")), Some(Ipv4Addr::new(10, 0, 0, 11)));
        assert_eq!(address(&node("InternalIP", "fd00::1")), None);
        assert_eq!(address(&node("Hostname", "10.0.0.11")), None);
    }
}
