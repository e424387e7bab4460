//! Settings of a site for the nodes of a cluster: the same words as in the OVF form.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::reference::Reference;
use super::shapes;

/// The settings of their site that nodes have. A change reaches running nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Site {
    /// Host names or IPv4 addresses of time servers. Without one, nodes follow the clock of their host.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "shapes::hosts", example = ["ntp.example.com"])]
    pub ntp_servers: Vec<String>,
    /// DNS servers. They replace those of the IPPool or of a DHCP server.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "shapes::addresses", example = ["192.168.10.2"])]
    pub dns_servers: Vec<String>,
    /// Domains that are tried after short names. They replace those of the IPPool or of a DHCP server.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "shapes::domains", example = ["example.com"])]
    pub search_domains: Vec<String>,
    /// Proxies for downloads from outside. The cluster itself needs none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy: Option<Proxy>,
    /// CAs to trust in addition to the public ones, in PEM.
    #[serde(rename = "extraCACertificates", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::pem")]
    pub extra_ca_certificates: Option<String>,
    /// A registry for container images that the appliance does not carry. The cluster itself needs none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::url", example = &"https://registry.example.com")]
    pub registry_mirror: Option<String>,
    /// Public keys that may log in as `admin` over SSH. Each is a line of `authorized_keys` without options. Without any, SSH is
    /// off.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "shapes::ssh_keys")]
    pub ssh_authorized_keys: Vec<String>,
    /// The Secret of the cluster's namespace with `console-password-hash`: the hash of the password of `admin` on consoles, as
    /// `mkpasswd -m yescrypt` makes it. Without it, consoles show status only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub console_password_ref: Option<Reference>,
    /// Networks that can reach SSH and the nodes' endpoint (port 9441). Without any, both are open to all. The controller adds the
    /// addresses of the control cluster's nodes.
    #[serde(rename = "adminCIDRs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "shapes::networks", example = ["192.168.10.0/24"])]
    pub admin_cidrs: Vec<String>,
}

/// Proxies. A proxy with a password is not supported: OVF properties are not secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Proxy {
    /// For `http://` addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::url", example = &"http://proxy.example.com:3128")]
    pub http: Option<String>,
    /// For `https://` addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::url", example = &"http://proxy.example.com:3128")]
    pub https: Option<String>,
    /// Hosts, domains and IPv4 ranges that are reached without a proxy. The cluster's own addresses always are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "shapes::exclusions", example = [".example.com"])]
    pub no_proxy: Vec<String>,
}
