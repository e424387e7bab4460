//! A node's report for commands that plan and watch a swap. It reads the disk and asks the members. It changes nothing.

use std::time::Duration;

use contract::node::{Etcd, Kubernetes, Member, Node, Pods, RunningImage, VirtualAddress};
use contract::swap::{EvacuationState, SwapState};

use super::boot_health;
use super::context::SwapContext;
use crate::cluster::etcd::client::EtcdClient;
use crate::cluster::etcd::replace;
use crate::cluster::kubernetes::api::Api;
use crate::cluster::kubernetes::{pods, upgrade};
use crate::cluster::virtual_ip;
use crate::host::at_once;

/// How long a member may take to answer, times the timeout factor.
const ASKING: Duration = Duration::from_secs(3);

pub fn node(
    context: &SwapContext,
    swap: Option<SwapState>,
    evacuation: Option<EvacuationState>,
) -> anyhow::Result<Node> {
    let (identity, image, config) = (context.identity()?, &context.image, &context.config);
    let minor = &config.cluster.kubernetes_minor;
    let release = image.kubernetes(minor);
    Ok(Node {
        node: config.node.name.clone(),
        image: RunningImage {
            name: image.name.clone(),
            version: image.version.clone(),
            build: image.build.clone(),
            publisher: image.publisher.clone(),
        },
        pinned: identity.publisher,
        disk: identity.disk,
        holder: identity.holder,
        generation: identity.generation,
        kubernetes: Kubernetes {
            version: release.map_or_else(|| minor.clone(), |release| release.version.clone()),
            upgrade: upgrade::state(&context.records()),
            available: image.kubernetes.iter().map(|release| release.version.clone()).collect(),
        },
        etcd: etcd(context),
        virtual_address: config
            .cluster
            .virtual_address
            .map(|address| VirtualAddress { address, held: virtual_ip::held(address) }),
        ready: context.reporter.status().is_ready(),
        healthy: boot_health::read(&context.root),
        swap,
        evacuation,
        pods: Some(pods(context)),
    })
}

/// The node's pods. Fields that the API server here does not answer are `None`.
fn pods(context: &SwapContext) -> Pods {
    let (config, name) = (&context.config, &context.config.node.name);
    let Ok(api) = Api::as_administrator(config.address(), &context.root, config.timeout(ASKING)) else {
        return Pods::default();
    };
    // An API that does not answer is asked only once.
    let cordoned = api.cordoned(name).ok();
    let moved = cordoned.and_then(|_| api.pods_to_move(name).ok());
    Pods { cordoned, losses: moved.map(|moved| pods::losses(&moved)) }
}

/// This node's member and the health of the others, asked in parallel. `None` if this member does not answer, or without a
/// quorum. A caller must not take an unknown list for one without unhealthy members.
fn etcd(context: &SwapContext) -> Option<Etcd> {
    let timeout = context.config.timeout(ASKING);
    let ask = |node| EtcdClient::new(node, &context.pki, timeout);
    let own = ask(&context.announcer.node).ok()?;
    let status = own.status().ok()?;
    let members = own.members().ok()?;
    let healthy = |member: &crate::cluster::etcd::client::Member| {
        let node = context.config.cluster.control_nodes.iter().find(|node| replace::is_member_of(member, node));
        node.is_some_and(|node| ask(node).is_ok_and(|etcd| etcd.healthy()))
    };
    let members = at_once::ask(members, healthy).into_iter().map(|(member, healthy)| Member {
        name: member.name,
        id: format!("{:x}", member.id),
        learner: member.is_learner,
        healthy,
    });
    Some(Etcd {
        version: status.version.clone(),
        member: format!("{:x}", status.header.member_id),
        leader: status.is_leader(),
        applied: status.raft_applied_index,
        members: members.collect(),
    })
}
