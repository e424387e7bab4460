//! The nodes' HTTPS endpoints, asked with openssl from inside another node, because nodes have no other client.

use std::net::Ipv4Addr;

use crate::scenario::Scenario;

/// Where [`issue`] puts a credential in a VM: in memory.
pub const CREDENTIAL: &str = "/run/scenario.pem";

/// Issues a credential on a node, for use from that node.
pub fn issue(scenario: &Scenario, vm: &str, purpose: &str) {
    let purpose = format!("--purpose={purpose}");
    let file = format!("--file={CREDENTIAL}");
    scenario.inside(vm, &["kaas-agent", "kubeconfig", "--name=scenario", &purpose, "--valid-days=1", "--pem", &file]);
}

/// The address of a control-plane node.
pub fn address(scenario: &Scenario, vm: &str) -> Ipv4Addr {
    let plan = scenario.lab().plan();
    plan.nodes.iter().find(|node| node.name == vm).expect("a planned node").address
}

/// The answer of the endpoint of `of` to a request from `vm`, header included. The
/// server must be the cluster's; the client shows what [`issue`] has put there.
pub fn ask(scenario: &Scenario, vm: &str, of: &str, path: &str, credential: bool) -> String {
    let server = address(scenario, of);
    let client = if credential { format!("-cert {CREDENTIAL} -key {CREDENTIAL}") } else { String::new() };
    let command = format!(
        "printf 'GET {path} HTTP/1.0\\r\\n\\r\\n' | openssl s_client -quiet -verify_return_error -verify_ip {server} \
         -CAfile /etc/kubernetes/pki/ca.crt {client} -connect {server}:9441 2>/dev/null || true"
    );
    scenario.inside(vm, &["sh", "-c", &command])
}
