//! The forms of values: for each kind its OVF type, its documentation and its parser.

use super::parse::{addresses, certificates, join, keys, labels, names, numbers, password, routes, secret, ssh, urls};
use super::value::{Period, Problem, Value};
use crate::pod_security::PodSecurity;
use crate::role::Roles;

/// The longest text that is accepted for a value of one line, in characters.
const LONG: u32 = 4096;

/// The kind of a property's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A DNS label (RFC 1123, section 2.1), lower-case.
    DnsLabel,
    /// An IPv4 address with the prefix length of its subnet.
    AddressWithPrefix,
    /// The same, or the word for an address by DHCP.
    AddressOrDhcp,
    /// An IPv4 address of a host.
    Address,
    /// IPv4 addresses of hosts.
    AddressList,
    /// IPv4 networks, or single addresses.
    NetworkList,
    /// Ranges of IPv4 addresses of hosts, from a first to a last one, or networks.
    AddressRanges,
    /// `network via gateway` entries.
    Routes,
    /// DNS domains.
    DomainList,
    /// DNS names or IPv4 addresses.
    HostList,
    /// `name=address` entries.
    ControlNodes,
    /// A network, by its first address and prefix length.
    Range {
        /// Shortest prefix length allowed: the largest network.
        shortest: u8,
        /// Longest prefix length allowed: the smallest network.
        longest: u8,
    },
    /// A port number up to 65535.
    Port {
        /// Lowest port allowed.
        lowest: u16,
    },
    /// A whole number.
    Integer {
        /// Lowest number allowed.
        lowest: u8,
        /// Highest number allowed.
        highest: u8,
    },
    /// Whole minutes, hours or days.
    Period {
        /// Shortest span allowed.
        shortest: Period,
        /// Longest span allowed.
        longest: Period,
    },
    /// A secret of at least 128 bits; see [`secret::judge`].
    Secret,
    /// Public keys in `authorized_keys` format, without options.
    SshKeys,
    /// A crypt(5) hash.
    PasswordHash,
    /// An http:// or https:// URL.
    Url {
        /// Whether it may contain a user name and password.
        credentials: bool,
    },
    /// The http:// or https:// URL of a directory, which may hold user name and password.
    DirectoryUrl,
    /// Hosts, domains and ranges that a proxy is not asked for.
    ExclusionList,
    /// CA certificates in PEM.
    Certificates,
    /// A minor version of Kubernetes that the image carries.
    KubernetesMinor,
    /// A role that VMs of the image may have.
    Role,
    /// A level of the Pod Security Standards.
    PodSecurity,
    /// True or false.
    Switch,
    /// The operator's public key, to which encryption keys are sealed.
    RecoveryKey,
    /// The deployer's public key, ECDSA P-256.
    DeployerKey,
    /// A bootstrap token of Kubernetes.
    JoinToken,
    /// The hash of a CA's public key, as kubeadm writes it.
    AuthorityHash,
    /// `key=value` entries.
    Labels,
    /// `key=value:Effect` entries.
    Taints,
}

impl Kind {
    /// Whether every value is a secret.
    pub fn is_secret(self) -> bool {
        matches!(self, Self::Secret | Self::PasswordHash | Self::JoinToken)
    }

    /// Whether values are secrets or may contain one: the OVF names such a property a password, so that vCenter does not show its
    /// value.
    pub fn may_hold_secret(self) -> bool {
        self.is_secret() || matches!(self, Self::Url { credentials: true } | Self::DirectoryUrl)
    }

    /// The value of `ovf:type` (DSP0243 1.1.0, section 9.5.1, table 6).
    pub fn ovf_type(self) -> &'static str {
        match self {
            Self::Port { .. } => "uint16",
            Self::Integer { .. } => "uint8",
            Self::Switch => "boolean",
            _ => "string",
        }
    }

    /// The value of `ovf:qualifiers` (DSP0243 1.1.0, section 9.5.1, table 7).
    /// `roles` and `minors` are those of the image.
    ///
    /// They never have a minimum length: with one, vCenter's form and its power-on refuse an empty value. A VM that takes
    /// over a node's data disk needs no values. The agent sees the disk and reports what is missing. Some import tools
    /// also misread `MinLen(0)`.
    pub fn ovf_qualifiers(self, roles: &Roles, minors: &[String]) -> Option<String> {
        let one_of = |values: Vec<String>| {
            let values: Vec<String> = values.into_iter().map(|value| format!("\"{value}\"")).collect();
            (!values.is_empty()).then(|| format!("ValueMap{{{}}}", values.join(",")))
        };
        let longest = match self {
            Self::KubernetesMinor => return one_of(minors.to_vec()),
            Self::Role => return one_of(roles.iter().map(|role| role.to_string()).collect()),
            Self::PodSecurity => return one_of(PodSecurity::ALL.map(|level| level.to_string()).to_vec()),
            Self::DnsLabel => 63,
            // As many minutes as there are in a week.
            Self::Period { .. } => 6,
            Self::Address => 15,
            Self::AddressWithPrefix | Self::AddressOrDhcp | Self::Range { .. } => 18,
            Self::Secret => secret::LONGEST as u32,
            Self::JoinToken => join::TOKEN_LENGTH as u32,
            Self::AuthorityHash => join::HASH_LENGTH as u32,
            Self::Labels
            | Self::Taints
            | Self::AddressList
            | Self::NetworkList
            | Self::AddressRanges
            | Self::Routes
            | Self::DomainList
            | Self::HostList
            | Self::ControlNodes
            | Self::ExclusionList => LONG,
            Self::Url { .. } | Self::DirectoryUrl | Self::RecoveryKey | Self::DeployerKey => LONG / 2,
            _ => return None,
        };
        Some(format!("MaxLen({longest})"))
    }

    /// The line of the reference: form, units and range.
    pub fn documentation(self) -> String {
        match self {
            Self::DnsLabel => "1 to 63 lower-case letters, digits and dashes".into(),
            Self::AddressWithPrefix => "IPv4 address/prefix length, /8 to /30".into(),
            Self::AddressOrDhcp => format!("IPv4 address/prefix length, /8 to /30, or `{}`", addresses::DHCP),
            Self::Address => "IPv4 address".into(),
            Self::AddressList => "IPv4 addresses, separated by commas or spaces".into(),
            Self::NetworkList => {
                "IPv4 networks, /8 to /32, by their first address, or single addresses, separated by commas or spaces"
                    .into()
            }
            Self::Routes => "`network via gateway`, IPv4, networks /8 to /32, separated by commas".into(),
            Self::DomainList => "DNS domains, separated by commas or spaces".into(),
            Self::HostList => "DNS names or IPv4 addresses, separated by commas or spaces".into(),
            Self::ControlNodes => "name=address, one or three of them, separated by commas or spaces".into(),
            Self::Range { shortest, longest } => {
                format!("IPv4 range, first address/prefix length, /{shortest} to /{longest}")
            }
            Self::Port { lowest } => format!("port number, {lowest} to 65535"),
            Self::Integer { lowest, highest } => format!("whole number, {lowest} to {highest}"),
            Self::Period { shortest, longest } => {
                format!("whole minutes, hours or days, `{shortest}` to `{longest}`")
            }
            Self::Secret => format!(
                "text of at least 128 bits (32 hexadecimal digits or 22 base64 characters, random), at most {} characters",
                secret::LONGEST
            ),
            Self::SshKeys => {
                "`authorized_keys` lines without options, separated by `\\n`, or the file in base64; Ed25519, \
                              ECDSA, RSA from 2048 bits, and security keys"
                    .into()
            }
            Self::PasswordHash => "crypt(5) hash: yescrypt, gost-yescrypt, scrypt, bcrypt, SHA-512 or SHA-256".into(),
            Self::Url { credentials: true } => {
                "http:// or https:// URL with host and port, may hold user:password@".into()
            }
            Self::Url { credentials: false } => "http:// or https:// URL".into(),
            Self::DirectoryUrl => "http:// or https:// URL of a directory, may hold user:password@".into(),
            Self::ExclusionList => {
                "host names, `.domains`, IPv4 addresses and ranges, separated by commas or spaces".into()
            }
            Self::Certificates => "PEM with line ends as `\\n`, or base64 of a PEM or DER file".into(),
            Self::KubernetesMinor => "a minor version of Kubernetes in the image".into(),
            Self::Role => "a role of the image".into(),
            Self::RecoveryKey => {
                "X25519 public key: base64 in one line as `kaas recovery-key new` prints it, or PEM with line ends as `\\n`"
                    .into()
            }
            Self::DeployerKey => {
                "public key of ECDSA P-256: PEM with line ends as `\\n`, its inside in one line, or base64 of a PEM file. Two are \
                 separated by a comma"
                    .into()
            }
            Self::JoinToken => "bootstrap token: 6 lower-case letters or digits, a dot, and 16 more".into(),
            Self::AuthorityHash => "`sha256:` and 64 hexadecimal digits".into(),
            Self::Labels => "key=value, a key with an optional prefix before a slash, separated by commas or spaces".into(),
            Self::Taints => {
                "key=value:Effect or key:Effect, separated by commas or spaces; NoSchedule, PreferNoSchedule or NoExecute"
                    .into()
            }
            Self::PodSecurity => PodSecurity::ALL.map(|level| format!("`{level}`")).join(", "),
            Self::AddressRanges => {
                "ranges of IPv4 addresses as first-last, networks by their first address, /16 to /32, or single addresses, \
                 separated by commas or spaces"
                    .into()
            }
            Self::Switch => "`true`, `false`".into(),
        }
    }

    /// Reads a value. It does not check whether the image carries a minor version of Kubernetes.
    ///
    /// # Errors
    /// Everything that is wrong with it; at least one problem.
    pub fn parse(self, text: &str) -> Result<Value, Vec<Problem>> {
        match self {
            Self::DnsLabel => Ok(Value::Text(names::label(text)?)),
            Self::AddressWithPrefix => Ok(Value::Network(addresses::address_with_prefix(text)?)),
            Self::AddressOrDhcp => Ok(Value::AddressSource(addresses::address_or_dhcp(text)?)),
            Self::Address => Ok(Value::Address(addresses::host_address(text)?)),
            Self::AddressList => names::list(text, addresses::host_address).map(Value::Addresses),
            Self::NetworkList => names::list(text, addresses::network).map(Value::Networks),
            Self::Routes => routes::routes(text).map(Value::Routes),
            Self::DomainList => names::list(text, names::domain).map(Value::Texts),
            Self::HostList => names::list(text, names::host).map(Value::Texts),
            Self::ControlNodes => names::list(text, names::control_node).map(Value::ControlNodes),
            Self::Range { shortest, longest } => Ok(Value::Network(addresses::range(text, shortest, longest)?)),
            Self::Port { lowest } => Ok(Value::Number(numbers::integer(text, lowest.into(), u16::MAX.into())?)),
            Self::Integer { lowest, highest } => {
                Ok(Value::Number(numbers::integer(text, lowest.into(), highest.into())?))
            }
            Self::Period { shortest, longest } => Ok(Value::Period(numbers::period(text, shortest, longest)?)),
            Self::Secret => Ok(Value::Secret(secret::secret(text)?)),
            Self::SshKeys => ssh::keys(text).map(Value::Texts),
            Self::PasswordHash => Ok(Value::Text(password::hash(text)?)),
            Self::Url { credentials } => Ok(Value::Text(urls::url(text, credentials)?)),
            Self::DirectoryUrl => Ok(Value::Secret(urls::directory(text)?)),
            Self::ExclusionList => names::list(text, names::exclusion).map(Value::Texts),
            Self::Certificates => certificates::authorities(text).map(Value::Texts),
            Self::KubernetesMinor => Ok(Value::Text(numbers::kubernetes_minor(text)?)),
            Self::Role => Ok(Value::Role(names::role(text)?)),
            Self::RecoveryKey => Ok(Value::Text(keys::recovery(text)?)),
            Self::DeployerKey => Ok(Value::Text(keys::deployer(text)?)),
            Self::JoinToken => Ok(Value::Secret(join::token(text)?)),
            Self::AuthorityHash => Ok(Value::Text(join::authority_hash(text)?)),
            Self::Labels => labels::labels(text).map(Value::Labels),
            Self::Taints => labels::taints(text).map(Value::Taints),
            Self::PodSecurity => Ok(Value::PodSecurity(names::pod_security(text)?)),
            Self::AddressRanges => names::list(text, addresses::address_range).map(Value::AddressRanges),
            Self::Switch => Ok(Value::Switch(numbers::switch(text)?)),
        }
    }
}
