//! Which nodes can be reached. A silent node may be unhealthy, or only out of this machine's sight: the other
//! control-plane nodes tell which.

use std::io;

use contract::node::Etcd;

use super::gate::others;
use crate::nodes::Answered;
use crate::upgrade::context::StepContext;
use crate::upgrade::nodes::Nodes as _;
use crate::upgrade::plan::{Plan, PlannedNode};
use crate::upgrade::progress::Progress;
use crate::upgrade::reason::UNREACHABLE;
use crate::upgrade::refusal::{MEMBER_UNHEALTHY, NODE_NOT_READY};
use crate::upgrade::step_error::{StepError, Wait};

/// The answer of a node that does not do its part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Says {
    Facts,
    /// Something else: it refuses to answer, or is not trusted. It may be at work.
    SomethingElse,
    Nothing,
}

impl Says {
    pub(super) fn of(error: &anyhow::Error) -> Self {
        let answers = error.chain().any(|cause| {
            cause.downcast_ref::<io::Error>().is_some_and(is_tls)
                || cause.is::<Answered>()
                || cause.is::<serde_json::Error>()
        });
        if answers { Self::SomethingElse } else { Self::Nothing }
    }
}

/// Whether TLS has rejected the peer's data: data that is not valid, wrapped in other errors of a connection.
fn is_tls(error: &io::Error) -> bool {
    let wrapped = error.get_ref().and_then(|inner| inner.downcast_ref::<io::Error>());
    error.kind() == io::ErrorKind::InvalidData || wrapped.is_some_and(is_tls)
}

impl StepContext<'_> {
    /// Whether the VM of a node that does not do its part may be stopped, as far as can be seen from here. Another
    /// control-plane node must say that etcd has a quorum without it. All at once, etcd has no quorum: it is enough
    /// that another one can be reached, or that none has ever come up. A single node may be stopped if it is silent, or
    /// by what it lacks.
    pub(super) async fn may_be_stopped(
        &self,
        plan: &Plan,
        node: &PlannedNode,
        says: Says,
        progress: &Progress,
    ) -> Result<(), Wait> {
        let (mut all, mut silent) = (0, 0);
        for (name, address) in others(plan, node) {
            all += 1;
            match self.nodes.facts(address).await {
                Ok(facts) => {
                    let stands = |etcd: &Etcd| stands_without(etcd, &node.member, plan.members.len());
                    if progress.is_at_once(plan) || facts.etcd.as_ref().is_some_and(stands) {
                        return Ok(());
                    }
                    log::debug!("{name} does not say that etcd has a quorum without {}", node.name);
                }
                Err(error) if Says::of(&error) == Says::SomethingElse => {}
                Err(_) => silent += 1,
            }
        }
        let name = &node.name;
        match (all, says) {
            (0, Says::SomethingElse) => {
                let words = format!("{name} answers with an error: it may be serving");
                Err(StepError::elsewhere(NODE_NOT_READY, words).into())
            }
            (0, _) => Ok(()),
            (_, Says::Nothing) if silent == all && progress.none_came_up(plan) => Ok(()),
            (_, Says::Nothing) if silent == all => {
                let words = format!(
                    "no control-plane node can be reached from here: whether {name} serves is unknown. If it does not, \
                     power its VM off by hand: then the rollback continues"
                );
                Err(Wait::not_yet(UNREACHABLE, words))
            }
            _ => {
                let words = format!("no other control-plane node reports that etcd has a quorum without {name}");
                Err(Wait::not_yet(MEMBER_UNHEALTHY, words))
            }
        }
    }
}

/// Whether a majority of etcd's members is healthy without this one.
fn stands_without(etcd: &Etcd, member: &str, expected: usize) -> bool {
    let well = etcd.members.iter().filter(|other| other.id != member && other.healthy && !other.learner).count();
    etcd.members.len() == expected && 2 * well > expected
}

#[cfg(test)]
mod tests;
