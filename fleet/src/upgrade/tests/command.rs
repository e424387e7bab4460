//! Commands as an operator gives them, which may be killed.

use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::watch;

use super::fake::fault::At;
use super::fake::{Ill, World, new, old};
use crate::lease::{Lease, LeaseState, TakeOver, standing};
use crate::upgrade::{Deployment, Entry, Journal, Mode, Notice, Outcome, Request, RunOutcome, UpgradeStatus, journal};

/// How long a run waits in the fakes' time.
pub const PAUSE_LIMIT: Duration = Duration::from_secs(300);

/// Does work in a separate time, without waiting.
pub fn wait<T>(work: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().start_paused(true).build().unwrap().block_on(work)
}

/// The result of a command.
pub type Given = crate::testing::Given<RunOutcome, UpgradeStatus>;

impl Given {
    /// Why it paused, with the code.
    pub fn paused(self) -> String {
        match self.arrived().0 {
            RunOutcome::Paused(reason) => reason.to_string(),
            other => panic!("{other:?}"),
        }
    }

    /// Checks that it paused: the words of its reason, and the code in brackets at its end.
    pub fn pauses(self, parts: &[&str]) {
        let reason = self.paused();
        for part in parts {
            let is_said = if part.starts_with('[') { reason.ends_with(part) } else { reason.contains(part) };
            assert!(is_said, "{part} is not in {reason}");
        }
    }

    pub fn outcome(self) -> Outcome {
        match self.arrived().0 {
            RunOutcome::Ended(outcome) => outcome,
            other => panic!("{other:?}"),
        }
    }
}

pub fn deployment<'a>(world: &'a World, watch: &'a (dyn Fn(&Notice<'_>) + Sync)) -> Deployment<'a> {
    Deployment {
        hypervisor: world,
        nodes: world,
        store: world,
        snapshots: world,
        what: "a test",
        watch,
        pace: Duration::from_secs(1),
        pause_limit: PAUSE_LIMIT,
        other_cluster: None,
        cancelled: watch::channel(false).1,
    }
}

/// Plans, and is killed right after that.
pub async fn begin(world: &World) {
    let plan = world.plan().await;
    let hold = Lease::acquire(world, "a test", TakeOver::FromTheDead, &|_| {}).await.unwrap();
    Journal::begin(&hold, plan).await.unwrap();
    hold.release().await;
}

/// A cluster whose upgrade is planned.
pub async fn begun(nodes: usize, mode: Mode, ill: Ill) -> World {
    let world = World::of(nodes, mode, ill);
    begin(&world).await;
    world
}

/// Whether a command that was killed before it had written its name holds the deployment. For other commands, it may be
/// alive.
pub async fn is_nameless(world: &World) -> bool {
    world.fault(None);
    matches!(standing(world).await, Ok(LeaseState::Held(held)) if held.holder.is_none())
}

/// From whom an operator takes the deployment over after a look at its status.
pub async fn over(world: &World) -> TakeOver {
    if is_nameless(world).await { TakeOver::FromAnyone } else { TakeOver::FromTheDead }
}

/// Gives a command with a fault at one call.
pub async fn give_with(world: &World, verb: Request, ova: Option<PathBuf>, at: Option<At>) -> Given {
    give_within(world, verb, ova, at, PAUSE_LIMIT).await
}

/// The same, with another pause limit.
pub async fn give_within(
    world: &World,
    verb: Request,
    ova: Option<PathBuf>,
    at: Option<At>,
    pause_limit: Duration,
) -> Given {
    let over = over(world).await;
    world.fault(at);
    let deployment = Deployment { pause_limit, ..deployment(world, &|_| {}) };
    let given = tokio::select! {
        biased;
        gone = deployment.go_on(verb, ova, over) => Some(gone),
        () = world.killed() => None,
    };
    match given {
        Some(Ok((arrived, status))) => Given::Arrived(arrived, Box::new(status)),
        Some(Err(error)) => Given::Failed(error),
        None => Given::Killed,
    }
}

pub async fn give(world: &World, verb: Request) -> Given {
    give_with(world, verb, None, None).await
}

/// Gives a command that has to come to an end, at which everything is as it has to be. If it only ends the rollback of
/// one node, it is given once more.
pub async fn end(world: &World, verb: Request) -> Outcome {
    let mut given = give(world, verb).await;
    if matches!(given, Given::Arrived(RunOutcome::NodeIsBack(_), _)) {
        world.strangers_are_untouched();
        given = give(world, verb).await;
    }
    let (arrived, status) = given.arrived();
    let RunOutcome::Ended(outcome) = arrived else { panic!("{arrived:?}") };
    world.copies_are_named(&status);
    let image = if outcome == Outcome::RolledBack { old() } else { new() };
    world.all_run(&image, outcome == Outcome::Committed).await;
    outcome
}

pub async fn entries(world: &World) -> Vec<Entry> {
    crate::upgrade::entry::parse(&journal::last(world).await.unwrap().unwrap()).unwrap()
}
