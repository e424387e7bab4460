//! The sandboxes of a node's pods and their addresses, through `crictl`.

use std::net::Ipv4Addr;

use anyhow::Context as _;
use ipnet::Ipv4Net;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::host::command::{Command, Runner};

/// A sandbox that runs, as `crictl pods` lists it.
#[derive(Deserialize)]
struct Sandbox {
    id: String,
    metadata: Pod,
}

#[derive(Deserialize)]
struct Pod {
    namespace: String,
    name: String,
}

fn running(runner: &dyn Runner) -> anyhow::Result<Vec<Sandbox>> {
    #[derive(Deserialize)]
    struct List {
        #[serde(default)]
        items: Vec<Sandbox>,
    }
    let list: List = ask(runner, Command::new("crictl").args(["pods", "--state=ready", "--output=json"]))
        .context("listing the sandboxes of pods")?;
    Ok(list.items)
}

/// Stops the sandboxes with addresses that are not of `range`. The kubelet makes them again, with addresses of the range that the CNI
/// configuration has. Returns the names of their pods.
///
/// # Errors
/// The first of crictl's; calling again completes it.
pub fn stop_outside(runner: &dyn Runner, range: Ipv4Net) -> anyhow::Result<Vec<String>> {
    let mut stopped = Vec::new();
    for sandbox in running(runner)? {
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
}
