//! Schemas of strings: pattern, length, and rules that need no other field. Knows no kind.

pub(super) use fleet::schema::{digest, ipv4, keyed, label, sentence, time, uuid, word};
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use super::rules::rule;

macro_rules! shapes {
    ($($(#[$doc:meta])* $name:ident = $schema:tt;)*) => {
        $($(#[$doc])* pub(super) fn $name(_: &mut SchemaGenerator) -> Schema { json_schema!($schema) })*
    };
}

const DOMAIN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
const CIDR: &str = r"^[0-9]{1,3}(\.[0-9]{1,3}){3}/[0-9]{1,2}$";
/// Names with `/` between them, none empty or blank at its ends.
const INVENTORY: &str = r"^[^/\[\s]([^/]*[^/\s])?(/[^/\s]([^/]*[^/\s])?)*$";

shapes! {
    /// The name of an object.
    name = {"type": "string", "minLength": 1, "maxLength": 253, "pattern": DOMAIN};
    /// A DNS domain.
    domain = {"type": "string", "minLength": 1, "maxLength": 253, "pattern": DOMAIN};
    /// A DNS name or an IPv4 address. Every address has the form of a name, so a rule rejects a malformed address.
    host = {
        "type": "string", "minLength": 1, "maxLength": 253, "pattern": DOMAIN,
        "x-kubernetes-validations": [rule(
            "!self.matches('^[0-9.]+$') || isIP(self)",
            "is neither a DNS name nor an IPv4 address"
        )]
    };
    /// A host with or without a port.
    server = {
        "type": "string", "minLength": 1, "maxLength": 259,
        "pattern": r"^[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?(:[0-9]{1,5})?$"
    };
    /// An IPv4 address that a DNS server answered.
    resolved = {"type": "string", "minLength": 7, "maxLength": 15, "pattern": r"^[0-9]{1,3}(\.[0-9]{1,3}){3}$"};
    /// The subnet of nodes.
    subnet = {
        "type": "string", "minLength": 9, "maxLength": 18, "pattern": CIDR,
        "x-kubernetes-validations": range(8, 30)
    };
    /// A network, such as one that a firewall admits.
    network = {
        "type": "string", "minLength": 9, "maxLength": 18, "pattern": CIDR,
        "x-kubernetes-validations": range(8, 32)
    };
    /// Pods' addresses: each node takes a part of it.
    pods = {
        "type": "string", "minLength": 9, "maxLength": 18, "pattern": CIDR,
        "x-kubernetes-validations": range(8, 24)
    };
    /// Services' addresses.
    services = {
        "type": "string", "minLength": 9, "maxLength": 18, "pattern": CIDR,
        "x-kubernetes-validations": range(12, 24)
    };
    /// Such digests, each under a word of the controller.
    digests = {
        "type": "object", "maxProperties": 64,
        "additionalProperties": {
            "type": "string", "minLength": 71, "maxLength": 71, "pattern": "^sha256:[0-9a-f]{64}$"
        }
    };
    /// The SHA-256 of a certificate, with colons or without.
    thumbprint = {
        "type": "string", "minLength": 64, "maxLength": 95,
        "pattern": "^([0-9A-Fa-f]{64}|[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){31})$"
    };
    /// A minor version of Kubernetes.
    minor = {"type": "string", "minLength": 3, "maxLength": 6, "pattern": r"^1\.(0|[1-9][0-9]{0,2})$"};
    /// An object of vCenter's inventory below its data center.
    inventory = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": INVENTORY};
    /// An http:// or https:// URL without a user and a password.
    url = {"type": "string", "minLength": 8, "maxLength": 1024, "pattern": r"^https?://[^\s/@]+(/[^\s@]*)?$"};
    /// An http:// or https:// URL of a directory, without a user and a password.
    directory = {"type": "string", "minLength": 9, "maxLength": 1024, "pattern": r"^https?://[^\s/@]+/([^\s@]*/)?$"};
    /// A host, domain or range that is reached without a proxy.
    exclusion = {"type": "string", "minLength": 1, "maxLength": 253, "pattern": r"^(\*?\.)?[A-Za-z0-9][-A-Za-z0-9.]*(/[0-9]{1,2})?$"};
    /// Certificates in PEM.
    pem = {
        "type": "string", "minLength": 1, "maxLength": 65536,
        "pattern": "^\\s*-----BEGIN CERTIFICATE-----[\\s\\S]*-----END CERTIFICATE-----\\s*$"
    };
    /// A line of `authorized_keys` without options.
    ssh_key = {
        "type": "string", "minLength": 32, "maxLength": 8192,
        "pattern": r"^(ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(256|384|521)|sk-ssh-ed25519@openssh\.com|sk-ecdsa-sha2-nistp256@openssh\.com) [A-Za-z0-9+/=]+( [^\n]*)?$"
    };
    /// The base64 of an X25519 key as SubjectPublicKeyInfo (RFC 8410): 12 bytes of header, 32 of key.
    recovery_key = {
        "type": "string", "minLength": 60, "maxLength": 60, "pattern": "^MCowBQYDK2VuAyEA[A-Za-z0-9+/]{43}=$"
    };
    /// An interval, from 15 minutes to 7 days. Durations in CEL have no days.
    pace = {
        "type": "string", "minLength": 2, "maxLength": 6, "pattern": "^[1-9][0-9]{0,4}[mhd]$",
        "x-kubernetes-validations": [rule(
            "!self.matches('^[1-9][0-9]{0,4}[mhd]$') || (self.endsWith('d') ? self.matches('^[1-7]d$') : \
             duration(self) >= duration('15m') && duration(self) <= duration('168h'))",
            "is not within 15m to 7d"
        )]
    };
    /// A weekly window in UTC.
    window = {
        "type": "string", "minLength": 11, "maxLength": 40,
        "pattern": "^((Mon|Tue|Wed|Thu|Fri|Sat|Sun)(,(Mon|Tue|Wed|Thu|Fri|Sat|Sun)){0,6} )?([01][0-9]|2[0-3]):[0-5][0-9]-([01][0-9]|2[0-3]):[0-5][0-9]$"
    };
    /// A label's or taint's key.
    key = {
        "type": "string", "minLength": 1, "maxLength": 317,
        "pattern": r"^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
    };
    /// A label's or taint's value.
    value = {"type": "string", "maxLength": 63, "pattern": "^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$"};
    /// The name of a worker: that of its pool, `-w` and a number.
    worker = {"type": "string", "minLength": 1, "maxLength": 63, "pattern": "^[a-z][-a-z0-9]*-w[1-9][0-9]*$"};
    /// A version, as in Semantic Versioning 2.0.0.
    version = {"type": "string", "minLength": 5, "maxLength": 64, "pattern": r"^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$"};
    /// The name of a user or a group, as the control cluster's API server knows it.
    person = {"type": "string", "minLength": 1, "maxLength": 253};
    /// JSON that the controller stores.
    kept = {"type": "object", "x-kubernetes-preserve-unknown-fields": true};
}

/// Labels of nodes: those that Kubernetes accepts and a node may set itself. CEL knows no bound of a key's length, so rules check
/// only the ends of a key.
pub(super) fn labels(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 32,
        "additionalProperties": value(generator),
        "x-kubernetes-validations": [
            rule(
                "self.all(key, size(key) <= 317 && !key.startsWith('/') && !key.endsWith('/') && size(key) > 0)",
                "has a key that is no label's: at most 63 characters, and before them a domain and a slash or nothing"
            ),
            rule(
                "self.all(key, !key.startsWith('kaas.local/') && !key.startsWith('kubernetes.io/') \
                 && !key.startsWith('node-role.kubernetes.io/') && !key.startsWith('node-restriction.kubernetes.io/'))",
                "has a key that is not a node's own to set: leave it out, and label nodes with kubectl once they have joined"
            ),
        ]
    })
}

macro_rules! lists {
    ($($(#[$doc:meta])* $name:ident = $most:literal of $entry:ident;)*) => {
        $($(#[$doc])* pub(super) fn $name(generator: &mut SchemaGenerator) -> Schema {
            json_schema!({"type": "array", "maxItems": $most, "items": $entry(generator)})
        })*
    };
}

lists! {
    /// Time servers.
    hosts = 8 of host;
    /// DNS servers.
    addresses = 8 of ipv4;
    /// Addresses of a vCenter.
    server_addresses = 16 of resolved;
    /// Search domains. Old resolvers accept at most six (resolv.conf(5)).
    domains = 6 of domain;
    /// Networks of administrators.
    networks = 32 of network;
    /// Hosts, domains and ranges that are reached without a proxy.
    exclusions = 64 of exclusion;
    /// Public keys.
    ssh_keys = 32 of ssh_key;
    /// Namespaces.
    namespaces = 256 of label;
    /// Names of objects, networks or namespaces.
    names = 64 of label;
    /// Names of images.
    image_names = 64 of name;
    /// Names of objects in a Catalog.
    catalog_names = 256 of name;
    /// Names of users or groups.
    people = 64 of person;
    /// Names of zones.
    zones = 16 of label;
    /// Names of workers.
    workers = 1000 of worker;
    /// Addresses of a pool that are not assigned.
    reserved = 64 of ipv4;
    /// Minor versions of Kubernetes.
    minors = 8 of minor;
    /// Addresses for Services of one cluster.
    service_vips = 256 of ipv4;
}

/// A network by its first address, with a prefix length from `shortest` to `longest`, of addresses that hosts can have.
fn range(shortest: u8, longest: u8) -> Value {
    let sized =
        format!("!isCIDR(self) || (cidr(self).prefixLength() >= {shortest} && cidr(self).prefixLength() <= {longest})");
    json!([
        rule(
            "isCIDR(self) && cidr(self).masked() == cidr(self)",
            "is not an IPv4 network: its first address, a slash and a prefix length, such as 10.244.0.0/16",
        ),
        rule(sized, &format!("has a prefix length that is not within {shortest} to {longest}")),
        rule(
            "!isCIDR(self) || ['0.0.0.0/8', '127.0.0.0/8', '169.254.0.0/16', '224.0.0.0/4', '240.0.0.0/4'].all(reserved, \
             !cidr(reserved).containsCIDR(cidr(self)) && !cidr(self).containsCIDR(cidr(reserved)))",
            "holds addresses that no host can have: give a private range, such as one inside 10.0.0.0/8, 172.16.0.0/12 or \
             192.168.0.0/16",
        ),
    ])
}
