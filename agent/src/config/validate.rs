//! From an OVF environment to a [`Config`]: every property is read, then all
//! are checked against each other, and all findings are reported together.
//! Nothing is looked up and nothing is changed.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::SystemTime;

use ipnet::Ipv4Net;

use super::{Cluster, Config, ControlNode, Interface, Node, Proxy, Route, checks};
use crate::codes;
use crate::environment::Document;
use crate::environment::document::Adapter;
use crate::finding::Findings;
use crate::image::ImageFacts;
use crate::properties::{self, Value};
use crate::secret::Secret;

/// What an OVF environment that is in order gives.
#[derive(Debug)]
pub struct Intake {
    /// The configuration.
    pub config: Config,
    /// The deployment secret: until the cluster has formed.
    pub secret: Secret,
    /// What is worth knowing, but stops nothing.
    pub warnings: Findings,
}

/// The values whose form is right; what is missing or wrong is none.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub name: Option<String>,
    pub address: Option<Ipv4Net>,
    pub gateway: Option<Ipv4Addr>,
    pub data_address: Option<Ipv4Net>,
    pub routes: Vec<Route>,
    pub dns_servers: Vec<Ipv4Addr>,
    pub search_domains: Vec<String>,
    pub ntp_servers: Vec<String>,
    pub cluster_name: Option<String>,
    pub control_nodes: Option<Vec<ControlNode>>,
    pub virtual_address: Option<Ipv4Addr>,
    pub secret: Option<Secret>,
    pub kubernetes_minor: Option<String>,
    pub pod_range: Option<Ipv4Net>,
    pub service_range: Option<Ipv4Net>,
    pub ssh_authorized_keys: Vec<String>,
    pub console_password_hash: Option<String>,
    pub http_proxy: Option<String>,
    pub https_proxy: Option<String>,
    pub proxy_exclusions: Vec<String>,
    pub extra_ca_certificates: Vec<String>,
    pub registry_mirror: Option<String>,
    pub snapshot_target: Option<Secret>,
    pub vxlan_port: Option<u16>,
    pub patience: Option<u32>,
    /// Keys of properties that are given, but wrong.
    pub wrong: BTreeSet<&'static str>,
}

/// Validates an environment for a VM of this image. `now` judges certificates,
/// with warnings only, since the clock may be wrong.
///
/// # Errors
/// All findings, when one of them is an error.
pub fn validate(document: &Document, image: &ImageFacts, now: SystemTime) -> Result<Intake, Findings> {
    let (config, secret, warnings) = judge(document, image, now, Need::Secret)?;
    match secret {
        Some(secret) => Ok(Intake { config, secret, warnings }),
        None => unreachable!("the deployment secret is missing without a finding"),
    }
}

/// Validates like [`validate`] for a node whose cluster has formed: the
/// deployment secret was erased and is not asked for.
///
/// # Errors
/// As [`validate`].
pub fn validate_formed(
    document: &Document,
    image: &ImageFacts,
    now: SystemTime,
) -> Result<(Config, Findings), Findings> {
    judge(document, image, now, Need::NoSecret).map(|(config, _, warnings)| (config, warnings))
}

/// Whether the deployment secret is needed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    Secret,
    NoSecret,
}

fn judge(
    document: &Document,
    image: &ImageFacts,
    now: SystemTime,
    need: Need,
) -> Result<(Config, Option<Secret>, Findings), Findings> {
    let (draft, mut findings) = read(document, need);
    findings.extend(document.unknown());
    findings.extend(checks::all(&draft, image, now));
    if findings.has_errors() {
        return Err(findings);
    }
    match finish(draft, document.adapters(), image) {
        Some((config, secret)) => Ok((config, secret, findings)),
        // Every value that `finish` needs is either there or has a finding of its own.
        None => unreachable!("a required property is missing without a finding"),
    }
}

fn read(document: &Document, need: Need) -> (Draft, Findings) {
    let mut form = Form { document, need, findings: Findings::default(), wrong: BTreeSet::new() };
    let mut draft = Draft {
        name: form.value(properties::NODE_NAME),
        address: form.value(properties::ADDRESS),
        gateway: form.value(properties::GATEWAY),
        data_address: form.value(properties::DATA_ADDRESS),
        routes: form.list(properties::ROUTES),
        dns_servers: form.list(properties::DNS_SERVERS),
        search_domains: form.list(properties::SEARCH_DOMAINS),
        ntp_servers: form.list(properties::NTP_SERVERS),
        cluster_name: form.value(properties::CLUSTER_NAME),
        control_nodes: form.value(properties::CONTROL_NODES),
        virtual_address: form.value(properties::VIRTUAL_ADDRESS),
        secret: form.value(properties::DEPLOYMENT_SECRET),
        kubernetes_minor: form.value(properties::KUBERNETES_VERSION),
        pod_range: form.value(properties::POD_RANGE),
        service_range: form.value(properties::SERVICE_RANGE),
        ssh_authorized_keys: form.list(properties::SSH_AUTHORIZED_KEYS),
        console_password_hash: form.value(properties::CONSOLE_PASSWORD_HASH),
        http_proxy: form.value(properties::HTTP_PROXY),
        https_proxy: form.value(properties::HTTPS_PROXY),
        proxy_exclusions: form.list(properties::PROXY_EXCLUSIONS),
        extra_ca_certificates: form.list(properties::EXTRA_CA_CERTIFICATES),
        registry_mirror: form.value(properties::REGISTRY_MIRROR),
        snapshot_target: form.value(properties::SNAPSHOT_TARGET),
        vxlan_port: form.value::<u32>(properties::VXLAN_PORT).and_then(|port| u16::try_from(port).ok()),
        patience: form.value(properties::PATIENCE),
        wrong: BTreeSet::new(),
    };
    draft.wrong = form.wrong;
    (draft, form.findings)
}

/// Reads values of the table out of a document.
struct Form<'a> {
    document: &'a Document,
    need: Need,
    findings: Findings,
    wrong: BTreeSet<&'static str>,
}

impl Form<'_> {
    /// The value of a property or its default; a finding when it is wrong, or
    /// missing and required.
    fn value<T: TryFrom<Value, Error = Value>>(&mut self, key: &'static str) -> Option<T> {
        let property = properties::find(key).expect("a key of the table");
        let text = match self.document.value(property) {
            Ok(text) => text,
            Err(finding) => {
                self.wrong.insert(key);
                self.findings.push(finding);
                return None;
            }
        };
        let Some(text) = text.filter(|text| !text.trim().is_empty()).or(property.default) else {
            if property.required && !(key == properties::DEPLOYMENT_SECRET && self.need == Need::NoSecret) {
                self.findings.push(codes::PROPERTY_MISSING.finding(
                    key,
                    format!("\"{}\" is not set", property.label),
                    format!("Give it in the OVF properties: {}", property.kind.documentation()),
                ));
            }
            return None;
        };
        match property.parse(text) {
            Ok(value) => Some(T::try_from(value).expect("the type of the table's kind")),
            Err(findings) => {
                self.wrong.insert(key);
                self.findings.extend(findings);
                None
            }
        }
    }

    /// A list, each entry once.
    fn list<T: PartialEq>(&mut self, key: &'static str) -> Vec<T>
    where
        Vec<T>: TryFrom<Value, Error = Value>,
    {
        let mut entries: Vec<T> = Vec::new();
        for (index, entry) in self.value::<Vec<T>>(key).unwrap_or_default().into_iter().enumerate() {
            if !entries.contains(&entry) {
                entries.push(entry);
                continue;
            }
            self.findings.push(codes::PROPERTY_REPEATED.finding(
                key,
                format!("entry {} is there already", index + 1),
                "Give each entry once",
            ));
        }
        entries
    }
}

/// The configuration from values that have passed all checks.
fn finish(draft: Draft, adapters: &[Adapter], image: &ImageFacts) -> Option<(Config, Option<Secret>)> {
    // The first adapter is the cluster's, the second the data network's.
    let mut adapters = adapters.iter().cloned();
    let mut interface = |address: Ipv4Net, gateway: Option<Ipv4Addr>| {
        let (mac, network) = adapters.next().map_or((None, None), |adapter| (adapter.mac, adapter.network));
        Interface { mac, network, address, gateway }
    };
    let mut interfaces = vec![interface(draft.address?, draft.gateway)];
    interfaces.extend(draft.data_address.map(|address| interface(address, None)));
    let proxy = (draft.http_proxy.is_some() || draft.https_proxy.is_some()).then_some(Proxy {
        http: draft.http_proxy,
        https: draft.https_proxy,
        exclusions: draft.proxy_exclusions,
    });
    let config = Config {
        cluster: Cluster {
            name: draft.cluster_name?,
            control_nodes: draft.control_nodes?,
            virtual_address: draft.virtual_address,
            pod_range: draft.pod_range?,
            service_range: draft.service_range?,
            vxlan_port: draft.vxlan_port?,
            kubernetes_minor: draft.kubernetes_minor.or_else(|| image.newest_minor().map(str::to_owned))?,
        },
        node: Node {
            name: draft.name?,
            interfaces,
            routes: draft.routes,
            dns_servers: draft.dns_servers,
            search_domains: draft.search_domains,
            ntp_servers: draft.ntp_servers,
            ssh_authorized_keys: draft.ssh_authorized_keys,
            console_password_hash: draft.console_password_hash,
            proxy,
            extra_ca_certificates: draft.extra_ca_certificates,
            registry_mirror: draft.registry_mirror,
            snapshot_target: draft.snapshot_target,
        },
        patience: draft.patience?,
    };
    Some((config, draft.secret))
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
