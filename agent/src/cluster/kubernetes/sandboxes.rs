//! The sandboxes of a node's pods and their addresses, through `crictl`.

use std::net::Ipv4Addr;

use anyhow::Context as _;
use ipnet::Ipv4Net;
use serde_json::Value;

use crate::host::command::{Command, Runner};

/// Stops the sandboxes with addresses that are not of `range`. The kubelet makes them again, with addresses of the
/// range that the CNI configuration has. Returns the names of their pods. After an error calling again completes it.
pub fn stop_outside(runner: &dyn Runner, range: Ipv4Net) -> anyhow::Result<Vec<String>> {
    let list = ask(runner, ["pods", "--state=ready", "--output=json"]).context("listing the sandboxes of pods")?;
    let mut stopped = Vec::new();
    for sandbox in list["items"].as_array().into_iter().flatten() {
        let word = |pointer: &str| sandbox.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let id = word("/id");
        let inspected = ask(runner, ["inspectp", "--output=json", id]);
        let inspected = inspected.with_context(|| format!("looking at the sandbox {id}"))?;
        // A sandbox in the network of the node has no address.
        let address = inspected["status"]["network"]["ip"].as_str().and_then(|ip| ip.parse::<Ipv4Addr>().ok());
        if address.is_some_and(|address| !range.contains(&address)) {
            let name = format!("{}/{}", word("/metadata/namespace"), word("/metadata/name"));
            let stop = Command::new("crictl").args(["stopp", id]);
            runner.run(&stop).with_context(|| format!("stopping {name}"))?;
            stopped.push(name);
        }
    }
    Ok(stopped)
}

fn ask(runner: &dyn Runner, arguments: [&str; 3]) -> anyhow::Result<Value> {
    Ok(serde_json::from_slice(&runner.run(&Command::new("crictl").args(arguments))?)?)
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
