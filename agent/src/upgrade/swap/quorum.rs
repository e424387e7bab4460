//! Whether etcd keeps its quorum with this node off. Each control-plane node must have a healthy voting member, and there may
//! be no other member. An unknown state counts as unhealthy.

use std::time::Duration;

use contract::properties::ControlNode;

use super::context::SwapContext;
use crate::cluster::etcd::client::{EtcdClient, Member};
use crate::cluster::etcd::{member, replace};
use crate::host::at_once;

/// How long a member may take to answer, times the timeout factor.
const ASKING: Duration = Duration::from_secs(5);

/// Asks this node's member for the list of members, and all of them for their health. The error says in words why this
/// node's member may not leave.
pub fn look(context: &SwapContext) -> Result<(), String> {
    let (config, pki) = (&context.config, &context.pki);
    let timeout = config.timeout(ASKING);
    let own = EtcdClient::new(&context.announcer.node, pki, timeout);
    let listed = own.and_then(|own| own.members()).map_err(|error| format!("{error:#}"));
    let healthy = at_once::ask(&config.cluster.control_nodes, |node| member::healthy(node, pki, timeout));
    judge(&config.node.name, &healthy, &listed)
}

/// Decides. `healthy` has each control-plane node, and whether its member answers and is healthy.
fn judge(own: &str, healthy: &[(&ControlNode, bool)], listed: &Result<Vec<Member>, String>) -> Result<(), String> {
    let names = |wrong: &dyn Fn(&ControlNode, bool) -> bool| {
        let wrong = healthy.iter().filter(|(node, well)| wrong(node, *well));
        wrong.map(|(node, _)| node.name.as_str()).collect::<Vec<_>>()
    };
    let ill = names(&|_, well| !well);
    if ill.contains(&own) {
        return Err("this node's etcd member sees no leader or does not answer".to_owned());
    }
    if !ill.is_empty() {
        return Err(format!(
            "the etcd member of {} is not healthy: with this node off, etcd would lose its quorum",
            ill.join(" and ")
        ));
    }
    let listed = listed.as_ref().map_err(|why| format!("which members etcd has cannot be known: {why}"))?;
    let missing = names(&|node, _| !listed.iter().any(|member| replace::is_member_of(member, node)));
    if !missing.is_empty() {
        let reason = "has no etcd member: with this node off, etcd would lose its quorum; replace the lost node first";
        return Err(format!("{} {reason}", missing.join(" and ")));
    }
    let without_vote =
        names(&|node, _| listed.iter().any(|member| member.is_learner && replace::is_member_of(member, node)));
    if !without_vote.is_empty() {
        return Err(format!("the etcd member of {} has no vote yet: wait until it has", without_vote.join(" and ")));
    }
    let strange = |member: &&Member| !healthy.iter().any(|(node, _)| replace::is_member_of(member, node));
    match listed.iter().find(strange) {
        Some(member) => {
            let name = if member.name.is_empty() { member.peer_urls.join(",") } else { member.name.clone() };
            Err(format!("etcd has a member that is no control-plane node's, {name}: remove it first"))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intake::config::fixture::three_nodes;

    fn member(number: u64) -> Member {
        let peer_urls = vec![format!("https://10.0.0.1{number}:2380")];
        Member { id: number, name: format!("node{number}"), peer_urls, is_learner: false }
    }

    /// The judgement about these members, on the first of three nodes, with the members of `ill` unhealthy.
    fn judged(listed: Result<&[Member], &str>, ill: &[&str]) -> Result<(), String> {
        let config = three_nodes();
        let nodes = config.cluster.control_nodes.iter();
        let healthy: Vec<_> = nodes.map(|node| (node, !ill.contains(&node.name.as_str()))).collect();
        judge("node1", &healthy, &listed.map(<[_]>::to_vec).map_err(str::to_owned))
    }

    #[test]
    fn node_may_leave_only_with_all_members_healthy() {
        let all = [member(1), member(2), member(3)];
        assert_eq!(judged(Ok(&all), &[]), Ok(()));
        let learner = Member { is_learner: true, name: String::new(), ..member(3) };
        let strange = Member { peer_urls: vec!["https://10.0.0.99:2380".into()], name: "other".into(), ..member(9) };
        type Listed<'l> = Result<&'l [Member], &'l str>;
        let table: [(Listed<'_>, &[&str], &str); 7] = [
            (Ok(&all), &["node1", "node2"], "this node's etcd member"),
            (Ok(&all), &["node2", "node3"], "the etcd member of node2 and node3 is not healthy"),
            (Err("no quorum"), &[], "which members etcd has cannot be known: no quorum"),
            (Ok(&[]), &[], "node1 and node2 and node3 has no etcd member"),
            (Ok(&all[..2]), &[], "node3 has no etcd member"),
            (Ok(&[member(1), member(2), learner]), &[], "the etcd member of node3 has no vote yet"),
            (Ok(&[member(1), member(2), member(3), strange]), &[], "no control-plane node's, other"),
        ];
        for (listed, ill, words) in table {
            let said = judged(listed, ill).unwrap_err();
            assert!(said.contains(words), "{said}");
        }
    }
}
