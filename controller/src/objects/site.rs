//! What a place has for the nodes of a cluster: the same words as the OVF form has.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::reference::Reference;
use super::shapes;

/// What the nodes of a cluster are told of their site when they are made. What is changed here is told to workers that are made from
/// then on, and not to nodes that are there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Site {
    /// Names or IPv4 addresses of time servers. Without one, nodes follow the clock of their host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "shapes::hosts", example = ["ntp.example.com"])]
    pub ntp_servers: Vec<String>,
    /// DNS servers, in place of those that the IPPool or a DHCP server names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "shapes::addresses", example = ["192.168.10.2"])]
    pub dns_servers: Vec<String>,
    /// Domains that are tried after short names, in place of those that the IPPool or a DHCP server names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "shapes::domains", example = ["example.com"])]
    pub search_domains: Vec<String>,
    /// Proxies for what nodes fetch from outside. The cluster itself needs none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<Proxy>,
    /// Certificate authorities to trust besides the public ones, in PEM.
    #[serde(default, rename = "extraCACertificates", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::pem")]
    pub extra_ca_certificates: Option<String>,
    /// A registry from which container images are pulled that the appliance does not carry. The cluster itself needs none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::url", example = &"https://registry.example.com")]
    pub registry_mirror: Option<String>,
    /// Public keys that may log in as `admin` over SSH, each a line of `authorized_keys` without options. Without any, SSH is off.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "shapes::ssh_keys")]
    pub ssh_authorized_keys: Vec<String>,
    /// The Secret of the cluster's namespace with `console-password-hash`: the hash of the password of `admin` on consoles, as
    /// `mkpasswd -m yescrypt` makes it. Without it, consoles show status only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub console_password_ref: Option<Reference>,
    /// Networks from which SSH and the nodes' endpoint (port 9441) are reached. Without any, both are open to all.
    #[serde(default, rename = "adminCIDRs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "shapes::networks", example = ["192.168.10.0/24"])]
    pub admin_cidrs: Vec<String>,
}

/// Proxies. One that asks for a password is not supported: VMs' forms are no place for one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Proxy {
    /// For `http://` addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::url", example = &"http://proxy.example.com:3128")]
    pub http: Option<String>,
    /// For `https://` addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::url", example = &"http://proxy.example.com:3128")]
    pub https: Option<String>,
    /// Hosts, domains and IPv4 ranges that are reached without a proxy. The cluster's own addresses always are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "shapes::exclusions", example = [".example.com"])]
    pub no_proxy: Vec<String>,
}
