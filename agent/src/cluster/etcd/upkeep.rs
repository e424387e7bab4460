//! What the store needs now and then: alarms, its size, and giving back what its
//! database does not use. The leader's node sees to all members, so that only one
//! of them is busy at a time.

use contract::codes;
use contract::finding::Findings;
use contract::properties::ControlNode;

use super::client::{Alarm, EtcdClient, Status};

/// Defragmentation pays from this many unused bytes on …
const WORTH: u64 = 256 << 20;

/// Above this share of the quota, in percent, a person is told, and an alarm is not lifted.
const FULL: u64 = 80;

/// A control node and what its member says of itself, if it answers.
pub type Seen<'a> = (&'a ControlNode, Option<Status>);

/// What is to be done, at most one thing at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task<'a> {
    /// Nothing is due.
    Rest,
    /// Defragment this node's member.
    Defragment(&'a ControlNode),
    /// Lift the alarms of members that are out of space: there is space again.
    Lift,
}

/// Whether defragmenting the member pays: more than half of its database and
/// enough bytes are unused. A member that is out of space needs every one.
fn pays(status: &Status, out_of_space: bool) -> bool {
    let unused = status.db_size.saturating_sub(status.db_size_in_use);
    if out_of_space {
        return full(status) && unused * 10 > status.db_size;
    }
    unused > WORTH && unused * 2 > status.db_size
}

fn full(status: &Status) -> bool {
    status.db_size_quota > 0 && status.db_size > status.db_size_quota / 100 * FULL
}

/// Decides. Only with all members well, the leader's own last, and by nobody but
/// the leader's node.
pub fn decide<'a>(seen: &[Seen<'a>], own: &Status, alarms: &[Alarm]) -> Task<'a> {
    let out_of_space = alarms.iter().any(|alarm| alarm.kind == NOSPACE);
    let well = |status: &Status| {
        let errors = if out_of_space { 0 } else { status.errors.len() };
        status.has_leader() && !status.is_learner && errors == 0
    };
    let all: Option<Vec<(&ControlNode, &Status)>> =
        seen.iter().map(|(node, status)| status.as_ref().filter(|status| well(status)).map(|s| (*node, s))).collect();
    let Some(all) = all.filter(|_| own.is_leader() && !alarms.iter().any(|alarm| alarm.kind == CORRUPT)) else {
        return Task::Rest;
    };
    let mut wanting: Vec<_> = all.iter().filter(|(_, status)| pays(status, out_of_space)).collect();
    wanting.sort_by_key(|(_, status)| status.is_leader());
    match wanting.first() {
        Some((node, _)) => Task::Defragment(node),
        None if out_of_space && !all.iter().any(|(_, status)| full(status)) => Task::Lift,
        None => Task::Rest,
    }
}

/// Writes are refused: the database has reached its quota.
pub const NOSPACE: &str = "NOSPACE";
/// The members' data differ.
pub const CORRUPT: &str = "CORRUPT";

/// What a person should know.
pub fn findings(seen: &[Seen<'_>], alarms: &[Alarm]) -> Findings {
    let mut findings = Findings::default();
    let name = |member: u64| {
        let named = seen.iter().find(|(_, status)| status.as_ref().is_some_and(|s| s.header.member_id == member));
        named.map_or_else(|| format!("member {member:x}"), |(node, _)| node.name.clone())
    };
    let of = |kind: &str| -> Vec<String> {
        alarms.iter().filter(|alarm| alarm.kind == kind).map(|alarm| name(alarm.member)).collect()
    };
    let out_of_space = of(NOSPACE);
    if !out_of_space.is_empty() {
        findings.push(codes::ETCD_NOSPACE.finding(
            out_of_space.join(", "),
            "etcd has reached its quota and refuses writes",
            "Delete objects that are not needed: deleting still works. The agent compacts and defragments, and lifts \
             the alarm when all members are below 80 % of the quota",
        ));
    }
    let corrupt = of(CORRUPT);
    if !corrupt.is_empty() {
        findings.push(codes::ETCD_CORRUPT.finding(
            corrupt.join(", "),
            "etcd has found that its members' data differ, and refuses writes",
            "Power this node off and replace it from a healthy one with `kaas-agent replace-member`, or restore the \
             cluster from a snapshot",
        ));
    }
    for (node, status) in seen {
        let Some(status) = status.as_ref().filter(|status| full(status) && out_of_space.is_empty()) else { continue };
        let (size, quota, used) = (status.db_size >> 20, status.db_size_quota >> 20, status.db_size_in_use >> 20);
        findings.push(codes::ETCD_NEARLY_FULL.finding(
            &node.name,
            format!("etcd's database has {size} MiB of {quota} MiB, {used} MiB of them in use"),
            "Delete objects that are not needed: at the quota etcd refuses writes. What is not in use is given back by \
             itself",
        ));
    }
    findings
}

/// Does what was decided; `own` is the member on this node, `of` finds a node's.
///
/// # Errors
/// etcd's refusals; nothing is lost then, and it is decided again later.
pub fn carry_out(
    task: &Task<'_>,
    own: &EtcdClient,
    alarms: &[Alarm],
    of: impl Fn(&ControlNode) -> anyhow::Result<EtcdClient>,
) -> anyhow::Result<()> {
    match task {
        Task::Rest => {}
        Task::Defragment(node) => {
            log::info!("defragmenting etcd's database on {}", node.name);
            of(node)?.defragment()?;
        }
        Task::Lift => {
            for alarm in alarms.iter().filter(|alarm| alarm.kind == NOSPACE) {
                own.disarm(alarm)?;
            }
            log::info!("etcd has space again: its alarm was lifted");
        }
    }
    Ok(())
}

/// A full store refuses Kubernetes' own compaction, which is a write: forgets
/// the history in its place.
pub fn forget_history(own: &EtcdClient, status: &Status, alarms: &[Alarm]) {
    if !status.is_leader() || !alarms.iter().any(|alarm| alarm.kind == NOSPACE) {
        return;
    }
    // Refused as well when that was forgotten before.
    if let Err(error) = own.compact(status.header.revision) {
        log::info!("compacting etcd to revision {}: {error:#}", status.header.revision);
    }
}

#[cfg(test)]
mod tests {
    use super::super::client::Header;
    use super::*;
    use crate::intake::config::fixture::three_nodes;

    const MIB: u64 = 1 << 20;

    fn status(member: u64, size: u64, used: u64) -> Status {
        Status {
            header: Header { cluster_id: 9, member_id: member, revision: 50_000 },
            db_size: size * MIB,
            db_size_in_use: used * MIB,
            db_size_quota: 4096 * MIB,
            leader: 1,
            ..Status::default()
        }
    }

    fn nodes() -> Vec<ControlNode> {
        three_nodes().cluster.control_nodes.clone()
    }

    fn seen<'a>(nodes: &'a [ControlNode], statuses: &[Option<Status>]) -> Vec<Seen<'a>> {
        nodes.iter().zip(statuses.iter().cloned()).collect()
    }

    #[test]
    fn followers_come_before_the_leader_and_only_where_it_pays() {
        let nodes = nodes();
        let (full, lean) = ([1000, 400], [1000, 600]);
        let of = |member, [size, used]: [u64; 2]| Some(status(member, size, used));
        let own = status(1, 1000, 400);
        let decided = |statuses: [Option<Status>; 3]| decide(&seen(&nodes, &statuses), &own, &[]);
        assert_eq!(decided([of(1, full), of(2, full), of(3, full)]), Task::Defragment(&nodes[1]));
        assert_eq!(decided([of(1, full), of(2, lean), of(3, full)]), Task::Defragment(&nodes[2]));
        assert_eq!(decided([of(1, full), of(2, lean), of(3, lean)]), Task::Defragment(&nodes[0]));
        assert_eq!(decided([of(1, lean), of(2, lean), of(3, lean)]), Task::Rest);
        // More than half, but little: not worth the pause.
        assert_eq!(decided([of(1, lean), of(2, [200, 10]), of(3, lean)]), Task::Rest);
    }

    #[test]
    fn nothing_is_defragmented_while_a_member_is_away_ill_or_learning_or_by_a_follower() {
        let nodes = nodes();
        let full = |member| Some(status(member, 1000, 400));
        let own = status(1, 1000, 400);
        let ill = Some(Status { errors: vec!["etcdserver: no leader".into()], ..status(3, 1000, 400) });
        let learner = Some(Status { is_learner: true, ..status(3, 1000, 400) });
        for third in [None, ill, learner] {
            assert_eq!(decide(&seen(&nodes, &[full(1), full(2), third]), &own, &[]), Task::Rest);
        }
        let all = [full(1), full(2), full(3)];
        assert_eq!(decide(&seen(&nodes, &all), &status(2, 1000, 400), &[]), Task::Rest);
        let corrupt = [Alarm { member: 2, kind: CORRUPT.into() }];
        assert_eq!(decide(&seen(&nodes, &all), &own, &corrupt), Task::Rest);
    }

    #[test]
    fn a_full_store_is_emptied_member_by_member_and_then_serves_again() {
        let nodes = nodes();
        let alarms = [Alarm { member: 2, kind: NOSPACE.into() }];
        let alarmed = |member, size, used| {
            Some(Status { errors: vec!["memberID:2 alarm:NOSPACE ".into()], ..status(member, size, used) })
        };
        let own = status(1, 4000, 3000);
        let decided = |statuses: &[Option<Status>]| decide(&seen(&nodes, statuses), &own, &alarms);
        let (full, small) = ((4000, 3000), (3000, 3000));
        let of = |member, (size, used)| alarmed(member, size, used);
        assert_eq!(decided(&[of(1, full), of(2, full), of(3, small)]), Task::Defragment(&nodes[1]));
        assert_eq!(decided(&[of(1, full), of(2, small), of(3, small)]), Task::Defragment(&nodes[0]));
        assert_eq!(decided(&[of(1, small), of(2, small), of(3, small)]), Task::Lift);
        // All of it is in use: only a person can help.
        let crammed = (4000, 3999);
        assert_eq!(decided(&[of(1, crammed), of(2, crammed), of(3, crammed)]), Task::Rest);
    }

    #[test]
    fn findings_name_the_node_and_what_to_do() {
        let nodes = nodes();
        let alarms = [Alarm { member: 2, kind: NOSPACE.into() }, Alarm { member: 77, kind: CORRUPT.into() }];
        let statuses = [Some(status(1, 3900, 3800)), Some(status(2, 100, 50)), None];
        insta::assert_snapshot!(findings(&seen(&nodes, &statuses), &alarms));
        insta::assert_snapshot!(findings(&seen(&nodes, &statuses), &[]));
    }
}
