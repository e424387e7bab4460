//! What a node says of itself to whoever plans and watches a swap. Looks at the
//! disk and asks the members; changes nothing.

use std::time::Duration;

use contract::node::{Etcd, Kubernetes, Member, Node, RunningImage, VirtualAddress};
use contract::swap::SwapState;

use super::context::SwapContext;
use super::good;
use crate::cluster::etcd::client::EtcdClient;
use crate::cluster::etcd::replace;
use crate::cluster::kubernetes::upgrade;
use crate::cluster::virtual_address;
use crate::host::at_once;

/// How long a member may take to answer, times the timeout factor.
const ASKING: Duration = Duration::from_secs(3);

/// The node as it is now, with the swap that is under way.
///
/// # Errors
/// The data disk's identity cannot be read.
pub fn node(context: &SwapContext, swap: Option<SwapState>) -> anyhow::Result<Node> {
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
            carried: image.kubernetes.iter().map(|release| release.version.clone()).collect(),
        },
        etcd: etcd(context),
        virtual_address: config
            .cluster
            .virtual_address
            .map(|address| VirtualAddress { address, held: virtual_address::held(address) }),
        ready: context.reporter.status().is_ready(),
        good: good::read(&context.root),
        swap,
    })
}

/// The own member and how the others are, asked all at once; none if the own one does not answer.
fn etcd(context: &SwapContext) -> Option<Etcd> {
    let timeout = context.config.timeout(ASKING);
    let ask = |node| EtcdClient::new(node, &context.pki, timeout);
    let own = ask(&context.announcer.node).ok()?;
    let status = own.status().ok()?;
    // Without a quorum there is no list, but the own member is still told of.
    let members = own.members().unwrap_or_default();
    let healthy = |member: &crate::cluster::etcd::client::Member| {
        let node = context.config.cluster.control_nodes.iter().find(|node| replace::is(member, node));
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
