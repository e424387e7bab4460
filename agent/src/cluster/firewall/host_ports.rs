//! The ports that pods in the host's network request. Pods in a separate network are not included: the CNI plugin
//! forwards their host ports.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostPorts(BTreeSet<(u16, Transport)>);

/// A transport protocol with ports, in the words of nft(8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Transport {
    Tcp,
    Udp,
    Sctp,
}

/// The part of a pod with its host ports, as `GET /api/v1/pods` lists it (Kubernetes API reference, `Pod` v1). In the
/// host's network each port of a container is a host port: the API server sets it.
#[derive(Deserialize)]
pub struct Pod {
    spec: Spec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default)]
    host_network: bool,
    #[serde(default)]
    containers: Vec<Container>,
    #[serde(default)]
    init_containers: Vec<Container>,
}

#[derive(Deserialize)]
struct Container {
    #[serde(default)]
    ports: Vec<Port>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Port {
    #[serde(default)]
    host_port: u16,
    #[serde(default = "tcp")]
    protocol: String,
}

fn tcp() -> String {
    "TCP".to_owned()
}

impl HostPorts {
    pub fn of_pods(pods: Vec<Pod>) -> Self {
        let specs = pods.into_iter().map(|pod| pod.spec).filter(|spec| spec.host_network);
        let ports = specs.flat_map(|spec| spec.containers.into_iter().chain(spec.init_containers));
        let ports = ports.flat_map(|container| container.ports).filter(|port| port.host_port != 0);
        Self(ports.filter_map(|port| Some((port.host_port, protocol(&port.protocol)?))).collect())
    }

    /// Each port with its protocol, in the words of nft(8).
    pub(super) fn iter(&self) -> impl Iterator<Item = (&'static str, u16)> {
        self.0.iter().map(|(port, protocol)| {
            let keyword = match protocol {
                Transport::Tcp => "tcp",
                Transport::Udp => "udp",
                Transport::Sctp => "sctp",
            };
            (keyword, *port)
        })
    }
}

fn protocol(name: &str) -> Option<Transport> {
    match name {
        "TCP" => Some(Transport::Tcp),
        "UDP" => Some(Transport::Udp),
        "SCTP" => Some(Transport::Sctp),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pods_in_the_hosts_network_open_their_ports() {
        let pods = json!([
            {"spec": {"hostNetwork": true, "containers": [
                {"ports": [{"containerPort": 80, "hostPort": 80}, {"hostPort": 53, "protocol": "UDP"}]}, {}]}},
            {"spec": {"hostNetwork": true, "containers": [], "initContainers": [{"ports": [{"hostPort": 9000}]}]}},
            {"spec": {"containers": [{"ports": [{"hostPort": 8080}]}]}},
            {"spec": {"hostNetwork": true, "containers": [{"ports": [{"containerPort": 7}]}]}},
        ]);
        let ports = HostPorts::of_pods(serde_json::from_value(pods).unwrap());
        assert_eq!(ports.iter().collect::<Vec<_>>(), [("udp", 53), ("tcp", 80), ("tcp", 9000)]);
    }
}
