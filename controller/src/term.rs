//! The term of a leader: how long this process may change anything. The holder of the Lease renews it. Otherwise it ends by the
//! clock alone, with all tasks of this process. Knows nothing of Leases.

mod clock;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fleet::control_plane::Unfinished;
use tokio::sync::Notify;
use uuid::Uuid;

pub use self::clock::Clock;

/// A term ends this long after its last renewal was requested. After that no change begins.
pub const TERM: Duration = Duration::from_secs(10);

/// Prefix of controllers' names. It distinguishes their leases from those of commands.
const NAMED: &str = "controller ";

/// The name of a controller that has just started on a node. Each start has another name.
pub fn identity(node: &str) -> String {
    format!("{NAMED}{node} {}", &Uuid::new_v4().simple().to_string()[..12])
}

/// Whether a name is that of a controller.
pub fn is_controller(who: &str) -> bool {
    who.starts_with(NAMED)
}

/// The term of a leader. Clones share it.
#[derive(Clone)]
pub struct Term(Arc<Inner>);

struct Inner {
    identity: String,
    /// `None` for a process without election: its term does not end by the clock.
    elected: Option<Clock>,
    state: Mutex<State>,
    changed: Notify,
    unfinished: Unfinished,
    /// The generations that were fully reconciled in this term, by the objects' UIDs.
    looked: Mutex<BTreeMap<String, i64>>,
}

struct State {
    /// When the request of the last renewal was sent.
    renewed: Duration,
    /// Whether long tasks are to stop at a point where they can be resumed.
    closing: bool,
    ended: bool,
}

/// The objects that were fully reconciled in a term so far.
pub struct ObservedGenerations(BTreeMap<String, i64>);

impl ObservedGenerations {
    /// Whether this generation of an object was reconciled in the term. Otherwise its status may come from a restored database.
    pub fn have(&self, uid: &str, generation: i64) -> bool {
        self.0.get(uid).is_some_and(|looked| *looked >= generation)
    }
}

/// The term of this process is over: it changes nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this controller no longer leads, or cannot confirm in time that it does")]
pub struct TermEnded;

impl Term {
    /// The term of a leader whose election was requested at this time of its clock.
    pub fn elected(identity: &str, clock: Clock, begun: Duration) -> Self {
        Self::new(identity, Some(clock), begun)
    }

    /// The term of a process without election, such as a test. It lasts until it is ended.
    pub fn unlimited(identity: &str) -> Self {
        Self::new(identity, None, Duration::ZERO)
    }

    fn new(identity: &str, elected: Option<Clock>, renewed: Duration) -> Self {
        let state = Mutex::new(State { renewed, closing: false, ended: false });
        let (identity, changed) = (identity.to_owned(), Notify::new());
        let (unfinished, looked) = (Unfinished::default(), Mutex::default());
        Self(Arc::new(Inner { identity, elected, state, changed, unfinished, looked }))
    }

    /// Name of the leader. Each start of a controller has another name.
    pub fn identity(&self) -> &str {
        &self.0.identity
    }

    /// The VMs of control-plane nodes whose Machines were created in this term and that it has not powered on.
    pub fn unfinished(&self) -> &Unfinished {
        &self.0.unfinished
    }

    /// Records that this generation of an object was fully reconciled.
    pub fn looked_at(&self, uid: &str, generation: i64) {
        self.looked().insert(uid.to_owned(), generation);
    }

    pub fn forgets(&self, uid: &str) {
        self.looked().remove(uid);
    }

    /// The objects that were reconciled so far. Call it before reading them: their status is then from this term.
    pub fn observed_generations(&self) -> ObservedGenerations {
        ObservedGenerations(self.looked().clone())
    }

    fn looked(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, i64>> {
        self.0.looked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a change may begin now. Call it right before each request that changes something.
    pub fn ensure_active(&self) -> Result<(), TermEnded> {
        match self.left() {
            Some(_) => Ok(()),
            None => Err(TermEnded),
        }
    }

    /// Whether all other controllers have ended: this one was elected after that, and its term lasts.
    pub fn is_alone(&self) -> bool {
        self.0.elected.is_some() && self.ensure_active().is_ok()
    }

    /// Returns once the term is over.
    pub async fn ended(&self) {
        loop {
            let changed = self.0.changed.notified();
            match self.left() {
                None => return,
                // Renewals during the wait are seen after it.
                Some(Some(left)) => tokio::select! {
                    () = tokio::time::sleep(left) => {}
                    () = changed => {}
                },
                Some(None) => changed.await,
            }
        }
    }

    /// Renews the term by a request that was sent at this time of its clock.
    pub fn renew(&self, begun: Duration) -> Result<(), TermEnded> {
        self.ensure_active()?;
        let mut state = self.state();
        state.renewed = state.renewed.max(begun);
        Ok(())
    }

    /// Asks long tasks to stop at a point where they can be resumed, so that the Lease can be released. Until then running
    /// changes continue.
    pub fn close(&self) {
        self.state().closing = true;
        self.0.changed.notify_waiters();
    }

    /// Whether long tasks are to stop.
    pub fn is_closing(&self) -> bool {
        let state = self.state();
        state.closing || state.ended
    }

    /// Returns once long tasks are to stop.
    pub async fn closing(&self) {
        loop {
            let changed = self.0.changed.notified();
            if self.is_closing() {
                return;
            }
            changed.await;
        }
    }

    /// Ends the term, after the Lease was lost or before it is released.
    pub fn end(&self) {
        self.state().ended = true;
        self.0.changed.notify_waiters();
    }

    /// The rest of the term. Outer `None`: it is over. Inner `None`: it does not end by the clock.
    fn left(&self) -> Option<Option<Duration>> {
        let mut state = self.state();
        if state.ended {
            return None;
        }
        let Some(clock) = &self.0.elected else { return Some(None) };
        let left = (state.renewed + TERM).saturating_sub(clock.now());
        if left.is_zero() {
            state.ended = true;
            return None;
        }
        Some(Some(left))
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn term_ends_ten_seconds_after_last_renewal() {
        let clock = Clock::of_tests();
        let term = Term::elected("one", clock.clone(), clock.now());
        let ended = tokio::spawn({
            let term = term.clone();
            async move { term.ended().await }
        });
        tokio::time::sleep(Duration::from_secs(9)).await;
        let begun = clock.now();
        // The response comes late: the time of the request counts.
        tokio::time::sleep(Duration::from_millis(900)).await;
        term.renew(begun).unwrap();
        tokio::time::sleep(Duration::from_millis(9000)).await;
        assert!(term.ensure_active().is_ok() && term.is_alone() && !ended.is_finished());
        tokio::time::sleep(Duration::from_millis(101)).await;
        assert_eq!(term.ensure_active(), Err(TermEnded));
        ended.await.unwrap();
        assert_eq!(term.renew(clock.now()), Err(TermEnded), "it does not begin again");
        assert!(!term.is_alone());
    }

    #[tokio::test(start_paused = true)]
    async fn ending_a_term_ends_it_for_all_clones() {
        for term in [Term::elected("one", Clock::of_tests(), Duration::ZERO), Term::unlimited("one")] {
            let other = term.clone();
            let ended = tokio::spawn(async move { other.ended().await });
            tokio::task::yield_now().await;
            term.end();
            ended.await.unwrap();
            assert_eq!(term.ensure_active(), Err(TermEnded));
        }
    }

    #[test]
    fn reconciled_generation_counts_until_changed_or_deleted() {
        let term = Term::unlimited("one");
        let before = term.observed_generations();
        term.looked_at("a", 2);
        let looks = term.observed_generations();
        assert!(looks.have("a", 2) && !looks.have("a", 3) && !looks.have("b", 1));
        assert!(!before.have("a", 1), "what was read before may say what was so before");
        assert!(!Term::unlimited("two").observed_generations().have("a", 2));
        term.forgets("a");
        assert!(!term.observed_generations().have("a", 2));
    }

    #[tokio::test(start_paused = true)]
    async fn long_tasks_are_asked_before_a_term_ends() {
        let term = Term::unlimited("one");
        let other = term.clone();
        let closing = tokio::spawn(async move { other.closing().await });
        tokio::task::yield_now().await;
        assert!(!term.is_closing() && !closing.is_finished());
        term.close();
        closing.await.unwrap();
        assert!(term.is_closing() && term.ensure_active().is_ok(), "what is begun may go on");
        let ended = Term::unlimited("two");
        ended.end();
        ended.closing().await;
    }

    #[tokio::test(start_paused = true)]
    async fn unelected_process_is_never_alone() {
        let term = Term::unlimited("one");
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert!(term.ensure_active().is_ok() && !term.is_alone());
    }
}
