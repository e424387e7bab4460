//! The sandboxes of a node's pods, through `crictl`: their addresses and their copies of the resolvers.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::Context as _;
use ipnet::Ipv4Net;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::host::command::{Command, Runner};
use crate::host::files;

/// Where containerd keeps the files of each sandbox (its plugin `io.containerd.grpc.v1.cri`).
const DIRECTORY: &str = "/var/lib/containerd/io.containerd.grpc.v1.cri/sandboxes";

/// The kubelet's stand-in where a node has no resolvers (`k8s.io/kubernetes/pkg/kubelet/network/dns`).
const NONE: &str = "127.0.0.1";

/// A pod has no more resolvers (`MaxDNSNameservers` of `k8s.io/kubernetes/pkg/apis/core/validation`).
const RESOLVERS: usize = 3;

/// A sandbox that runs, as `crictl pods` lists it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Sandbox {
    id: String,
    pub metadata: Pod,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Pod {
    pub namespace: String,
    pub name: String,
}

/// Those that run and have all of these labels.
pub fn running(runner: &dyn Runner, labels: &[&str]) -> anyhow::Result<Vec<Sandbox>> {
    #[derive(Deserialize)]
    struct List {
        #[serde(default)]
        items: Vec<Sandbox>,
    }
    let labels = labels.iter().map(|label| format!("--label={label}"));
    let list: List = ask(runner, Command::new("crictl").args(["pods", "--state=ready", "--output=json"]).args(labels))
        .context("listing the sandboxes of pods")?;
    Ok(list.items)
}

/// Stops the sandboxes with addresses that are not of `range`. The kubelet makes them again, with addresses of the range that the CNI
/// configuration has. Returns the names of their pods. Stops the others too when one cannot be stopped.
///
/// # Errors
/// The first of crictl's; calling again completes it.
pub fn stop_outside(runner: &dyn Runner, range: Ipv4Net) -> anyhow::Result<Vec<String>> {
    let mut stopped = Vec::new();
    for sandbox in running(runner, &[])? {
        // A sandbox in the network of the node has no address.
        if address(runner, &sandbox)?.is_some_and(|address| !range.contains(&address)) {
            let name = format!("{}/{}", sandbox.metadata.namespace, sandbox.metadata.name);
            runner
                .run(&Command::new("crictl").arg("stopp").arg(&sandbox.id))
                .with_context(|| format!("stopping {name}"))?;
            stopped.push(name);
        }
    }
    Ok(stopped)
}

fn address(runner: &dyn Runner, sandbox: &Sandbox) -> anyhow::Result<Option<Ipv4Addr>> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Inspected {
        status: Status,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Status {
        network: Option<Network>,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Network {
        ip: String,
    }
    let inspected: Inspected = ask(runner, Command::new("crictl").args(["inspectp", "--output=json"]).arg(&sandbox.id))
        .with_context(|| format!("looking at the sandbox {}", sandbox.id))?;
    Ok(inspected.status.network.and_then(|network| network.ip.parse().ok()))
}

/// The resolvers that a pod gets now that has those of its node: of the file `kubelet` names, below `root`.
pub fn resolvers(root: &Path, file: &str) -> anyhow::Result<Vec<String>> {
    if file.is_empty() {
        return Ok(vec![NONE.to_owned()]);
    }
    let text = fs::read_to_string(files::below(root, file)).with_context(|| format!("reading {file}"))?;
    Ok(nameservers(&text))
}

impl Sandbox {
    /// Whether the pod has other resolvers than these.
    ///
    /// # Errors
    /// Its copy cannot be read.
    pub fn has_others(&self, root: &Path, resolvers: &[String]) -> anyhow::Result<bool> {
        let copy = files::below(root, DIRECTORY).join(&self.id).join("resolv.conf");
        let text = fs::read_to_string(&copy).with_context(|| format!("reading {}", copy.display()))?;
        Ok(nameservers(&text) != resolvers)
    }
}

/// resolv.conf(5), `nameserver`.
fn nameservers(text: &str) -> Vec<String> {
    let servers = text.lines().filter_map(|line| line.trim().strip_prefix("nameserver"));
    servers.filter_map(|rest| rest.split_whitespace().next()).take(RESOLVERS).map(str::to_owned).collect()
}

fn ask<T: DeserializeOwned>(runner: &dyn Runner, command: Command) -> anyhow::Result<T> {
    Ok(serde_json::from_slice(&runner.run(&command)?)?)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::host::command;

    /// A runtime with these sandboxes: ID, name of the pod, address.
    pub(crate) struct Runtime(
        pub(crate) Vec<(&'static str, &'static str, &'static str)>,
        pub(crate) Mutex<Vec<String>>,
    );

    impl Runner for Runtime {
        fn run(&self, command: &Command) -> Result<Vec<u8>, command::Error> {
            let line = command.to_string();
            let last = line.rsplit(' ').next().unwrap_or_default();
            let answer = if line.starts_with("crictl pods ") {
                let items = self.0.iter().map(
                    |(id, name, _)| serde_json::json!({"id": id, "metadata": {"namespace": "kube-system", "name": name}}),
                );
                serde_json::json!({"items": items.collect::<Vec<_>>()})
            } else if line.starts_with("crictl inspectp ") {
                let of = self.0.iter().find(|(id, ..)| *id == last).unwrap();
                serde_json::json!({"status": {"id": last, "network": {"additionalIps": [], "ip": of.2}}})
            } else {
                self.1.lock().unwrap().push(line);
                serde_json::Value::Null
            };
            Ok(answer.to_string().into_bytes())
        }
    }

    #[test]
    fn only_sandboxes_outside_the_range_are_stopped() {
        let sandboxes = vec![("a", "inside", "10.244.7.5"), ("b", "outside", "10.244.0.9"), ("c", "host", "")];
        let runtime = Runtime(sandboxes, Mutex::default());
        let stopped = stop_outside(&runtime, "10.244.7.0/24".parse().unwrap()).unwrap();
        assert_eq!(stopped, ["kube-system/outside"]);
        assert_eq!(*runtime.1.lock().unwrap(), ["crictl stopp b"]);
    }

    #[test]
    fn a_pod_with_the_former_resolvers_is_found() {
        let root = tempfile::tempdir().unwrap();
        let lay = |path: &str, text: &str| {
            files::write_atomically(&files::below(root.path(), path), text.as_bytes(), 0o644).unwrap();
        };
        let sandbox =
            &running(&Runtime(vec![("a", "coredns", "")], Mutex::default()), &["k8s-app=kube-dns"]).unwrap()[0];
        lay("/resolv.conf", "# Written.\nnameserver 10.0.0.2\nnameserver 10.0.0.3\nsearch .\n");
        let now = resolvers(root.path(), "/resolv.conf").unwrap();
        assert_eq!(now, ["10.0.0.2", "10.0.0.3"]);
        assert!(sandbox.has_others(root.path(), &now).is_err(), "there is no copy");
        for (copy, others) in [
            ("search .\nnameserver 10.0.0.2\nnameserver 10.0.0.3\n", false),
            ("nameserver 10.0.0.2\n", true),
            ("nameserver 127.0.0.1\n", true),
        ] {
            lay(&format!("{DIRECTORY}/a/resolv.conf"), copy);
            assert_eq!(sandbox.has_others(root.path(), &now).unwrap(), others, "{copy}");
        }
        // No resolvers any more: the copy has the kubelet's stand-in.
        let none = resolvers(root.path(), "").unwrap();
        assert!(!sandbox.has_others(root.path(), &none).unwrap());
        let many = "nameserver 1.1.1.1\nnameserver 2.2.2.2\nnameserver 3.3.3.3\nnameserver 4.4.4.4\n";
        assert_eq!(nameservers(many).len(), 3, "the kubelet leaves the fourth out");
    }
}
