//! Upkeep of the store: alarms, its size, and the return of unused space of its database. Each node maintains its own
//! member when it is its turn, so that only one of them is busy at a time. The leader's node handles alarms, which
//! concern all members.

use contract::codes;
use contract::finding::Findings;
use contract::properties::ControlNode;

use super::client::{Alarm, EtcdClient, Status};

/// The least number of unused bytes for a defragmentation.
const WORTH: u64 = 256 << 20;

/// A share of the quota, in percent. Above it the agent reports a finding, and does not lift an alarm.
const FULL: u64 = 80;

pub type ObservedMember<'a> = (&'a ControlNode, Member);

/// A member as seen from another node.
#[derive(Clone, Debug)]
pub enum Member {
    /// It answers: its own report.
    Answers(Box<Status>),
    /// It listens and does not answer, for example during a defragmentation.
    Busy,
    /// It does not even listen, and may never come back.
    Away,
}

impl Member {
    /// The state by a member's answer, or by whether it at least `listens`.
    pub fn of(said: Option<Status>, listens: impl FnOnce() -> bool) -> Self {
        match said {
            Some(status) => Self::Answers(Box::new(status)),
            None if listens() => Self::Busy,
            None => Self::Away,
        }
    }

    fn status(&self) -> Option<&Status> {
        match self {
            Self::Answers(status) => Some(status),
            Self::Busy | Self::Away => None,
        }
    }
}

/// The next task of a node, at most one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    Idle,
    /// Defragment this node's member. The API server here has no other one.
    Defragment,
    /// Lift the alarms of members that are out of space: there is space again.
    Lift,
}

/// Whether a defragmentation of the member pays: more than half of its database and enough bytes are unused. A member
/// that is out of space needs every byte.
fn pays(status: &Status, out_of_space: bool) -> bool {
    let unused = status.db_size.saturating_sub(status.db_size_in_use);
    if out_of_space {
        return full(status) && unused * 10 > status.db_size;
    }
    unused > WORTH && unused * 2 > status.db_size
}

/// Whether this node has to check all members: it leads, or its own member needs a defragmentation.
pub fn concerns_all(own: &Status, alarms: &[Alarm]) -> bool {
    own.is_leader() || pays(own, is_out_of_space(alarms))
}

/// Whether the copy that a defragmentation makes fits into `free` bytes of the data disk.
pub fn copy_fits(own: &Status, free: u64) -> bool {
    own.db_size_in_use < free
}

fn is_out_of_space(alarms: &[Alarm]) -> bool {
    alarms.iter().any(|alarm| alarm.kind == NOSPACE)
}

fn full(status: &Status) -> bool {
    status.db_size_quota > 0 && status.db_size > status.db_size_quota / 100 * FULL
}

/// Decides for the node whose member is `own`. The leader comes last.
///
/// All members must be healthy, and none may be in a defragmentation. When out of space, the present members with a
/// vote continue without the others. Writes are refused anyway, and the missing members may never come back. A member
/// that comes back full raises the alarm again, and has its turn.
pub fn decide(seen: &[ObservedMember<'_>], own: &Status, alarms: &[Alarm]) -> Task {
    let out_of_space = is_out_of_space(alarms);
    let is_well =
        |status: &&Status| status.has_leader() && !status.is_learner && (out_of_space || status.errors.is_empty());
    let well: Vec<&Status> = seen.iter().filter_map(|(_, member)| member.status()).filter(is_well).collect();
    let is_own = |status: &Status| status.header.member_id == own.header.member_id;
    let are_enough = match out_of_space {
        true => well.iter().any(|status| is_own(status)) && !seen.iter().any(|(_, it)| matches!(it, Member::Busy)),
        false => well.len() == seen.len(),
    };
    if !are_enough || alarms.iter().any(|alarm| alarm.kind == CORRUPT) {
        return Task::Idle;
    }
    match well.iter().filter(|status| pays(status, out_of_space)).min_by_key(|status| status.is_leader()) {
        Some(next) if is_own(next) => Task::Defragment,
        None if own.is_leader() && out_of_space && !well.iter().any(|status| full(status)) => Task::Lift,
        _ => Task::Idle,
    }
}

/// Writes are refused: the database has reached its quota.
pub const NOSPACE: &str = "NOSPACE";
/// The members' data differ.
pub const CORRUPT: &str = "CORRUPT";

pub fn is_corrupt(status: &Status) -> bool {
    status.errors.iter().any(|error| error.contains(CORRUPT))
}

pub fn findings(seen: &[ObservedMember<'_>], alarms: &[Alarm]) -> Findings {
    let mut findings = Findings::default();
    let name = |member: u64| {
        let named = seen.iter().find(|(_, it)| it.status().is_some_and(|status| status.header.member_id == member));
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
             the alarm when all members that answer are below 80 % of the quota. If all are needed, enlarge the data disks and \
             restart the nodes one after the other: the quota follows the disk",
        ));
    }
    let corrupt = of(CORRUPT);
    if alarms.iter().any(|alarm| alarm.kind == CORRUPT && alarm.member == 0) {
        findings.push(codes::ETCD_CORRUPT.finding(
            "etcd",
            "etcd has found that its members' data differ, does not know which are right, and refuses writes",
            "Choose a snapshot from before this finding (`kaas-agent snapshot list`) and restore the cluster from it with \
             `kaas-agent restore`",
        ));
    } else if !corrupt.is_empty() {
        findings.push(codes::ETCD_CORRUPT.finding(
            corrupt.join(", "),
            "etcd has found that the data of this member differ from those of the others, and refuses writes",
            "Power this node off. On another control-plane node, run `kaas-agent replace-member` with this node's name",
        ));
    }
    for (node, member) in seen {
        let Some(status) = member.status().filter(|status| full(status) && out_of_space.is_empty()) else { continue };
        let (size, quota, used) = (status.db_size >> 20, status.db_size_quota >> 20, status.db_size_in_use >> 20);
        findings.push(codes::ETCD_NEARLY_FULL.finding(
            &node.name,
            format!("etcd's database has {size} MiB of {quota} MiB, {used} MiB of them in use"),
            "Delete objects that are not needed: at the quota etcd refuses writes. Unused space is released \
             automatically",
        ));
    }
    findings
}

/// After an error the agent decides again later.
pub fn lift(own: &EtcdClient, alarms: &[Alarm]) -> anyhow::Result<()> {
    for alarm in alarms.iter().filter(|alarm| alarm.kind == NOSPACE) {
        own.disarm(alarm)?;
    }
    log::info!("etcd has space again: its alarm was lifted");
    Ok(())
}

/// Compacts a full store: it refuses Kubernetes' own compaction, which is a write.
pub fn forget_history(own: &EtcdClient, status: &Status, alarms: &[Alarm]) {
    if !status.is_leader() || !alarms.iter().any(|alarm| alarm.kind == NOSPACE) {
        return;
    }
    // etcd also refuses if that history was discarded before.
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

    /// The decision of each node. All nodes see the same.
    fn each(nodes: &[ControlNode], statuses: &[Status; 3], alarms: &[Alarm]) -> [Task; 3] {
        let all = statuses.clone().map(answers);
        [0, 1, 2].map(|own| decide(&seen(nodes, &all), &statuses[own], alarms))
    }

    fn seen<'a>(nodes: &'a [ControlNode], members: &[Member]) -> Vec<ObservedMember<'a>> {
        nodes.iter().zip(members.iter().cloned()).collect()
    }

    fn answers(status: Status) -> Member {
        Member::Answers(Box::new(status))
    }

    /// A member of a full store. The second member raised the alarm.
    fn alarmed((member, size, used): (u64, u64, u64)) -> Status {
        Status { errors: vec!["memberID:2 alarm:NOSPACE ".into()], ..status(member, size, used) }
    }

    fn no_space() -> [Alarm; 1] {
        [Alarm { member: 2, kind: NOSPACE.into() }]
    }

    #[test]
    fn followers_come_before_the_leader_if_it_pays() {
        let nodes = nodes();
        let (full, lean) = ([1000, 400], [1000, 600]);
        let decided = |sizes: [[u64; 2]; 3]| {
            let statuses = [0, 1, 2].map(|at| status(at as u64 + 1, sizes[at][0], sizes[at][1]));
            each(&nodes, &statuses, &[])
        };
        assert_eq!(decided([full, full, full]), [Task::Idle, Task::Defragment, Task::Idle]);
        assert_eq!(decided([full, lean, full]), [Task::Idle, Task::Idle, Task::Defragment]);
        assert_eq!(decided([full, lean, lean]), [Task::Defragment, Task::Idle, Task::Idle]);
        assert_eq!(decided([lean, lean, lean]), [Task::Idle; 3]);
        // More than half, but little: not worth the pause.
        assert_eq!(decided([lean, [200, 10], lean]), [Task::Idle; 3]);
    }

    #[test]
    fn copy_needs_room_for_used_bytes_only() {
        let own = status(1, 4000, 1500);
        assert!(copy_fits(&own, 1501 * MIB) && !copy_fits(&own, 1500 * MIB));
    }

    #[test]
    fn follower_with_nothing_to_gain_asks_no_member() {
        let alarms = no_space();
        assert!(concerns_all(&status(1, 100, 90), &[]) && concerns_all(&status(2, 1000, 400), &[]));
        assert!(!concerns_all(&status(2, 1000, 900), &[]) && !concerns_all(&status(2, 1000, 900), &alarms));
        assert!(concerns_all(&status(2, 4000, 3000), &alarms));
    }

    #[test]
    fn away_unhealthy_or_learning_member_prevents_defragmentation() {
        let nodes = nodes();
        let full = |member| answers(status(member, 1000, 400));
        let own = status(2, 1000, 400);
        let ill = answers(Status { errors: vec!["etcdserver: no leader".into()], ..status(3, 1000, 400) });
        let learner = answers(Status { is_learner: true, ..status(3, 1000, 400) });
        for third in [Member::Away, Member::Busy, ill, learner] {
            assert_eq!(decide(&seen(&nodes, &[full(1), full(2), third]), &own, &[]), Task::Idle);
        }
        let all = [full(1), full(2), full(3)];
        assert_eq!(decide(&seen(&nodes, &all), &own, &[]), Task::Defragment);
        let corrupt = [Alarm { member: 2, kind: CORRUPT.into() }];
        assert_eq!(decide(&seen(&nodes, &all), &own, &corrupt), Task::Idle);
    }

    #[test]
    fn full_store_is_defragmented_member_by_member() {
        let nodes = nodes();
        let (full, small) = ((4000, 3000), (3000, 3000));
        let decided = |sizes: [(u64, u64); 3]| {
            let statuses = [0, 1, 2].map(|at| alarmed((at as u64 + 1, sizes[at].0, sizes[at].1)));
            each(&nodes, &statuses, &no_space())
        };
        assert_eq!(decided([full, full, small]), [Task::Idle, Task::Defragment, Task::Idle]);
        assert_eq!(decided([full, small, small]), [Task::Defragment, Task::Idle, Task::Idle]);
        assert_eq!(decided([small, small, small]), [Task::Lift, Task::Idle, Task::Idle]);
        // All of it is in use: only the operator can help.
        assert_eq!(decided([(4000, 3999); 3]), [Task::Idle; 3]);
    }

    #[test]
    fn full_store_does_not_wait_for_missing_members() {
        let nodes = nodes();
        let (full, small) = ((4000, 3000), (3000, 3000));
        let decided = |sizes: [(u64, u64); 2], third: &Member| {
            let statuses = [0, 1].map(|at| alarmed((at as u64 + 1, sizes[at].0, sizes[at].1)));
            let [one, two] = statuses.clone().map(answers);
            let all = seen(&nodes, &[one, two, third.clone()]);
            statuses.map(|own| decide(&all, &own, &no_space()))
        };
        let third = alarmed((3, 4000, 3000));
        let (cut_off, learner) = (Status { leader: 0, ..third.clone() }, Status { is_learner: true, ..third });
        for gone in [Member::Away, answers(cut_off.clone()), answers(learner)] {
            assert_eq!(decided([full, full], &gone), [Task::Idle, Task::Defragment], "{gone:?}");
            assert_eq!(decided([full, small], &gone), [Task::Defragment, Task::Idle], "{gone:?}");
            assert_eq!(decided([small, small], &gone), [Task::Lift, Task::Idle], "{gone:?}");
        }
        // That member has its turn now, and the others have theirs afterwards.
        assert_eq!(decided([full, full], &Member::Busy), [Task::Idle; 2]);
        assert_eq!(decided([small, small], &Member::Busy), [Task::Idle; 2]);
        // A member without a leader does nothing.
        let alone = seen(&nodes, &[Member::Away, Member::Away, answers(cut_off.clone())]);
        assert_eq!(decide(&alone, &cut_off, &no_space()), Task::Idle);
    }

    #[test]
    fn silent_member_that_listens_is_busy() {
        assert!(matches!(Member::of(None, || true), Member::Busy));
        assert!(matches!(Member::of(None, || false), Member::Away));
        assert!(matches!(Member::of(Some(status(1, 2, 1)), || panic!("it has answered")), Member::Answers(_)));
    }

    #[test]
    fn findings_name_the_node_and_what_to_do() {
        let nodes = nodes();
        let alarms = [Alarm { member: 2, kind: NOSPACE.into() }, Alarm { member: 77, kind: CORRUPT.into() }];
        let statuses = [answers(status(1, 3900, 3800)), answers(status(2, 100, 50)), Member::Away];
        insta::assert_snapshot!(findings(&seen(&nodes, &statuses), &alarms));
        insta::assert_snapshot!(findings(&seen(&nodes, &statuses), &[]));
        let all = [Alarm { member: 0, kind: CORRUPT.into() }];
        let said = findings(&[], &all).to_string();
        assert!(said.contains("restore the cluster") && !said.contains("replace-member"), "{said}");
    }
}
