//! The operator's requests to an existing upgrade, and whether it has gone too far for them.

use std::collections::BTreeSet;

use anyhow::{anyhow, bail};
use uuid::Uuid;

use super::context::{MOMENT, StepContext};
use super::entry::{Direction, Entry, Outcome};
use super::journal::Journal;
use super::order::Order;
use super::plan::Plan;
use super::progress::{Next, Progress};
use super::reason;
use super::run::{Run, RunOutcome, ended};
use super::step_error::{Obstacle, StepError, Wait};
use crate::engine::Reason;

/// The request with which an upgrade is continued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    Resume,
    /// Give every node its old VM back. Each time, the health of nodes is looked at: unhealthy ones come first.
    Rollback,
    /// The same, all off and all on, whatever the nodes say.
    RollbackAtOnce,
    Commit,
    /// End it where it is.
    Abandon,
    /// End a plan of which nothing was begun, for another one to take its place. Not asked for by an operator.
    Withdraw,
}

/// A change of direction that a request asks for.
pub(super) struct Turn {
    pub(super) direction: Direction,
    /// In which order nodes go back.
    pub(super) order: Order,
    /// The nodes that a rollback leaves out, in addition to those that it leaves out already.
    pub(super) gone: BTreeSet<usize>,
    pub(super) reason: Reason,
}

impl StepContext<'_> {
    /// The turn that a request asks for. `None` if the upgrade continues in its direction. Changes nothing.
    pub(super) async fn turn_of(
        &self,
        plan: &Plan,
        progress: &Progress,
        verb: Request,
    ) -> Result<Option<Turn>, StepError> {
        let back = matches!(progress.next(plan), Next::NodeIsBack(_));
        let direction = match (verb, progress.direction, progress.outcome) {
            (Request::Resume, Direction::Back, None) if back => Direction::Forward,
            (Request::Rollback | Request::RollbackAtOnce, Direction::Forward | Direction::Commit, _) => Direction::Back,
            (Request::Rollback | Request::RollbackAtOnce, Direction::Back, None) => Direction::Back,
            (Request::Commit, Direction::Forward, Some(Outcome::Upgraded)) => Direction::Commit,
            (Request::Abandon, direction, _) if direction != Direction::Abandon => Direction::Abandon,
            (Request::Withdraw, Direction::Forward, None) => Direction::Back,
            _ => return Ok(None),
        };
        // All go back already: the order may have to change.
        let turns = direction != Direction::Back || progress.direction != Direction::Back || progress.only.is_some();
        let mut gone = BTreeSet::new();
        if direction == Direction::Back && turns {
            let open = || async {
                self.left_out(plan, progress, None).await.map_err(|trouble| match trouble {
                    StepError::Cannot(Obstacle { reason, passes: true, .. }) => Wait::NotYet(reason),
                    trouble => Wait::End(trouble),
                })
            };
            match self.wait("the hypervisor to report whether the old VMs exist", MOMENT, open).await {
                Ok(of_nothing_is_left) => gone = of_nothing_is_left,
                Err(StepError::Cannot(Obstacle { reason, .. })) => {
                    return Err(StepError::Stop(anyhow!("{reason}; nothing was changed")));
                }
                Err(trouble) => return Err(trouble),
            }
        }
        let order = match verb {
            Request::Rollback => self.order_back(plan, progress).await?,
            Request::RollbackAtOnce => Order::AtOnce,
            _ => Order::LastFirst,
        };
        if !turns && !progress.is_other_order(plan, &order) {
            return Ok(None);
        }
        let reason = match verb {
            Request::Withdraw => Reason::new(reason::WITHDRAWN, "it had not started, and another plan replaces it"),
            _ => Reason::new(reason::ASKED, "asked for by the operator"),
        };
        Ok(Some(Turn { direction, order, gone, reason }))
    }
}

impl Run<'_> {
    /// Turns the journal the way that a verb asks for, before it is gone. Says where the run has arrived if the
    /// journal could not be written.
    ///
    /// # Errors
    /// When the upgrade has gone too far for the verb, or another command has taken over.
    pub async fn ask(&self, journal: &mut Journal<'_>, verb: Request) -> anyhow::Result<Option<RunOutcome>> {
        permits(verb, None, journal.plan(), journal.entries())?;
        let turn = self.context.turn_of(journal.plan(), &journal.progress(), verb).await;
        let turned = match turn {
            Ok(None) => Ok(()),
            Ok(Some(Turn { direction: Direction::Back, order, gone, reason })) => {
                self.turn_back(journal, (None, order), gone, reason).await
            }
            Ok(Some(Turn { direction, reason, .. })) => self.turn(journal, direction, reason).await,
            Err(trouble) => Err(trouble),
        };
        match turned {
            Ok(()) => Ok(None),
            Err(trouble) => ended(trouble).map(Some),
        }
    }
}

/// Refuses requests that come too late for an upgrade, and another upgrade than the named one.
pub(super) fn permits(verb: Request, id: Option<Uuid>, plan: &Plan, entries: &[Entry]) -> anyhow::Result<()> {
    if let Some(id) = id.filter(|id| *id != plan.id) {
        bail!("the upgrade is {}, not {id}; nothing was changed", plan.id);
    }
    let progress = Progress::of(plan, entries);
    match (verb, progress.direction, progress.outcome) {
        (_, Direction::Abandon, Some(_)) => bail!("the upgrade was abandoned"),
        (Request::Abandon, _, Some(outcome)) if outcome != Outcome::Upgraded => bail!("the upgrade has ended"),
        (Request::Rollback | Request::RollbackAtOnce, Direction::Commit, _) if progress.is_final() => {
            bail!("it is being committed or is: no rollback is possible, only restoring the snapshot")
        }
        (Request::Rollback | Request::RollbackAtOnce | Request::Commit, Direction::Abandon, None) => {
            bail!("it is being abandoned")
        }
        (Request::Withdraw, ..) if !progress.is_untouched() => bail!("it has begun: roll it back or abandon it"),
        (Request::Commit, Direction::Back, _) => bail!("it went back: there is nothing to commit"),
        (Request::Commit, Direction::Forward, None) => bail!("it is not at its end: there is nothing to commit yet"),
        _ => Ok(()),
    }
}
