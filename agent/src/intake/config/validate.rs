//! Validates an OVF environment as a [`Config`]. All properties are parsed, then checked against each other, and all
//! findings are reported together. It has no side effects and does no lookups.

use std::net::Ipv4Addr;
use std::time::SystemTime;

use contract::finding::Findings;
use contract::form::{self, Draft, SecretNeed};
use contract::image::ImageFacts;
use contract::properties::AddressSource;
use contract::role::Role;
use contract::secret::Secret;

use super::{
    AddOns, Address, Cluster, Config, ControlPlane, Interface, JoinedCluster, Node, Proxy, Registration, Worker,
};
use crate::intake::environment::Document;
use crate::intake::environment::document::Adapter;

#[derive(Debug)]
pub struct Intake {
    pub config: Config,
    /// The role's one-time secret: the deployment secret until the cluster has formed, the join token until a worker
    /// has joined.
    pub secret: Secret,
    /// Findings that are no errors.
    pub warnings: Findings,
}

/// Validates an environment for a VM of this image. Certificates are checked against `now` with warnings only, because
/// the clock may be wrong. If one finding is an error, all of them are returned.
pub fn validate(document: &Document, image: &ImageFacts, now: SystemTime) -> Result<Intake, Findings> {
    let (config, secret, warnings) = judge(document, image, now, SecretNeed::Needed)?;
    match secret {
        Some(secret) => Ok(Intake { config, secret, warnings }),
        None => unreachable!("the one-time secret is missing without a finding"),
    }
}

/// As [`validate`], for a node that belongs to its cluster. The one-time secret was erased and is not required. A given
/// one is returned.
pub fn validate_formed(
    document: &Document,
    image: &ImageFacts,
    now: SystemTime,
) -> Result<(Config, Option<Secret>, Findings), Findings> {
    judge(document, image, now, SecretNeed::Erased)
}

fn judge(
    document: &Document,
    image: &ImageFacts,
    now: SystemTime,
    need: SecretNeed,
) -> Result<(Config, Option<Secret>, Findings), Findings> {
    let (draft, mut findings) = form::read(&|property| document.value(property), &image.roles, need);
    let minors: Vec<String> = image.kubernetes.iter().map(|release| release.minor.clone()).collect();
    findings.extend(document.unknown());
    findings.extend(form::all(&draft, &minors, now));
    if findings.has_errors() {
        return Err(findings);
    }
    match finish(draft, document.adapters(), image) {
        Some((config, secret)) => Ok((config, secret, findings)),
        // Each value that `finish` requires exists or has its own finding.
        None => unreachable!("a required property is missing without a finding"),
    }
}

fn finish(draft: Draft, adapters: &[Adapter], image: &ImageFacts) -> Option<(Config, Option<Secret>)> {
    let add_ons = AddOns::of(&draft);
    // The first adapter is the cluster's, the second the data network's.
    let mut adapters = adapters.iter().cloned();
    let mut interface = |address: Address, gateway: Option<Ipv4Addr>| {
        let (mac, network) = adapters.next().map_or((None, None), |adapter| (adapter.mac, adapter.network));
        Interface { mac, network, address, gateway }
    };
    let primary = match draft.address_source? {
        AddressSource::Static(address) => address.into(),
        AddressSource::Dhcp => Address::Dhcp { lease: None },
    };
    let mut interfaces = vec![interface(primary, draft.gateway)];
    interfaces.extend(draft.data_address.map(|address| interface(address.into(), None)));
    let proxy = (draft.http_proxy.is_some() || draft.https_proxy.is_some()).then_some(Proxy {
        http: draft.http_proxy,
        https: draft.https_proxy,
        exclusions: draft.no_proxy,
    });
    let role = draft.role?;
    let node = Node {
        name: draft.name?,
        interfaces,
        routes: draft.routes,
        dns_servers: draft.dns_servers,
        search_domains: draft.search_domains,
        ntp_servers: draft.ntp_servers,
        ssh_authorized_keys: draft.ssh_authorized_keys,
        console_password_hash: draft.console_password_hash,
        admin_networks: draft.admin_networks,
        proxy,
        extra_ca_certificates: draft.extra_ca_certificates,
        registry_mirror: draft.registry_mirror,
    };
    let (config, secret) = match role {
        Role::ControlPlane | Role::TenantControlPlane => (
            Config::ControlPlane(ControlPlane {
                role,
                cluster: Cluster {
                    name: draft.cluster_name?,
                    control_nodes: draft.control_nodes?,
                    virtual_address: draft.virtual_address,
                    pod_cidr: draft.pod_cidr?,
                    node_prefix: u8::try_from(draft.node_prefix?).ok()?,
                    service_cidr: draft.service_cidr?,
                    vxlan_port: u16::try_from(draft.vxlan_port?).ok()?,
                    kubernetes_minor: draft.kubernetes_minor.or_else(|| image.newest_minor().map(str::to_owned))?,
                    pod_security: draft.pod_security?,
                    add_ons,
                },
                node,
                snapshot_target: draft.snapshot_target,
                snapshot_every: draft.snapshot_every?,
                recovery_public_key: draft.recovery_public_key,
                deployer_public_key: draft.deployer_public_key,
                timeout_factor: draft.timeout_factor?,
            }),
            draft.secret,
        ),
        Role::Worker => (
            Config::Worker(Worker {
                cluster: JoinedCluster {
                    name: draft.cluster_name?,
                    api_address: draft.virtual_address?,
                    ca_hash: draft.authority_hash?,
                    learned: None,
                },
                node,
                registration: Registration { labels: draft.labels, taints: draft.taints, pool: draft.pool },
                timeout_factor: draft.timeout_factor?,
            }),
            draft.join_token,
        ),
    };
    Some((config, secret))
}

#[cfg(test)]
mod tests;
