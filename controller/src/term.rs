//! For how long this process may change anything: the term of a leader. It is renewed by whoever holds the Lease, and ends by the
//! clock alone when it is not; and with it what this process has begun. Knows nothing of Leases.

mod clock;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fleet::control_plane::Unfinished;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tokio::sync::Notify;
use uuid::Uuid;

pub use self::clock::Clock;

/// How long after the beginning of its last renewal a term ends. Nothing that changes something is begun then.
pub const TERM: Duration = Duration::from_secs(10);

/// How the names of controllers begin, by which a hold of one is told from that of a command.
const NAMED: &str = "controller ";

/// The name of a controller that has just started on a node: no other one has it, nor a later one there.
pub fn identity(node: &str) -> String {
    format!("{NAMED}{node} {}", &Uuid::new_v4().simple().to_string()[..12])
}

/// Whether somebody is a controller, by the name.
pub fn is_controller(who: &str) -> bool {
    who.starts_with(NAMED)
}

/// The term of a leader. Clones are of the same one.
#[derive(Clone)]
pub struct Term(Arc<Inner>);

struct Inner {
    identity: String,
    /// None of a process that nobody else is elected beside: its term does not end by the clock.
    elected: Option<Clock>,
    state: Mutex<State>,
    changed: Notify,
    unfinished: Unfinished,
    /// The generations of objects that were looked at in it to the end, by their UIDs.
    looked: Mutex<BTreeMap<String, i64>>,
    /// What time it was when it began; none where it does not end by the clock.
    began: Option<Time>,
}

struct State {
    /// When the request was begun by which it was renewed last.
    renewed: Duration,
    /// Whether what lasts is to end where it can be gone on with.
    closing: bool,
    ended: bool,
}

/// Which objects were looked at in a term to the end, until it was asked.
pub struct ObservedGenerations(BTreeMap<String, i64>);

impl ObservedGenerations {
    /// Whether an object was looked at as this generation of it is: what it says of itself may be of before a database was turned back.
    pub fn have(&self, uid: &str, generation: i64) -> bool {
        self.0.get(uid).is_some_and(|looked| *looked >= generation)
    }
}

/// The term of this process is over: it changes nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this controller does not lead any more, or cannot say so in time")]
pub struct TermEnded;

impl Term {
    /// Of a leader that was elected by a request that was begun at this time of its clock.
    pub fn elected(identity: &str, clock: Clock, begun: Duration) -> Self {
        Self::new(identity, Some(clock), begun)
    }

    /// Of a process that nobody else is elected beside, such as a test. It lasts until it is ended.
    pub fn unlimited(identity: &str) -> Self {
        Self::new(identity, None, Duration::ZERO)
    }

    fn new(identity: &str, elected: Option<Clock>, renewed: Duration) -> Self {
        let state = Mutex::new(State { renewed, closing: false, ended: false });
        let (identity, changed, began) = (identity.to_owned(), Notify::new(), elected.as_ref().map(Clock::time));
        let (unfinished, looked) = (Unfinished::default(), Mutex::default());
        Self(Arc::new(Inner { identity, elected, state, changed, unfinished, looked, began }))
    }

    /// Who leads: no other process has this name, nor has a later one of the same controller.
    pub fn identity(&self) -> &str {
        &self.0.identity
    }

    /// Whether a time that somebody has noted is of before this term: nobody knows what was between. The database may have been turned back
    /// to it since.
    pub fn is_after(&self, time: &Time) -> bool {
        self.0.began.as_ref().is_some_and(|began| time < began)
    }

    /// The VMs of control nodes whose Machines were made in it, and that it has not powered on.
    pub fn unfinished(&self) -> &Unfinished {
        &self.0.unfinished
    }

    /// Notes that an object of this UID was looked at to the end, as this generation of it is.
    pub fn looked_at(&self, uid: &str, generation: i64) {
        self.looked().insert(uid.to_owned(), generation);
    }

    /// Forgets an object that goes.
    pub fn forgets(&self, uid: &str) {
        self.looked().remove(uid);
    }

    /// Which objects were looked at until now. It is asked before they are read: what one says of itself then is of this term.
    pub fn observed_generations(&self) -> ObservedGenerations {
        ObservedGenerations(self.looked().clone())
    }

    fn looked(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, i64>> {
        self.0.looked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether anything may be changed now. It is asked right before each request that changes something.
    ///
    /// # Errors
    /// The term is over, and stays so.
    pub fn ensure_active(&self) -> Result<(), TermEnded> {
        match self.left() {
            Some(_) => Ok(()),
            None => Err(TermEnded),
        }
    }

    /// Whether all other controllers are known to have ended: this one was elected, which comes after that, and its term lasts.
    pub fn is_alone(&self) -> bool {
        self.0.elected.is_some() && self.ensure_active().is_ok()
    }

    /// Returns once the term is over.
    pub async fn ended(&self) {
        loop {
            let changed = self.0.changed.notified();
            match self.left() {
                None => return,
                // What it is renewed by in the meantime is seen afterwards.
                Some(Some(left)) => tokio::select! {
                    () = tokio::time::sleep(left) => {}
                    () = changed => {}
                },
                Some(None) => changed.await,
            }
        }
    }

    /// Renews it, by a request that was begun at this time of its clock.
    ///
    /// # Errors
    /// It was over before the answer came.
    pub fn renew(&self, begun: Duration) -> Result<(), TermEnded> {
        self.ensure_active()?;
        let mut state = self.state();
        state.renewed = state.renewed.max(begun);
        Ok(())
    }

    /// Asks all that lasts to end where it can be gone on with, so that the Lease can be given back: what is begun may go on meanwhile.
    pub fn close(&self) {
        self.state().closing = true;
        self.0.changed.notify_waiters();
    }

    /// Whether all that lasts is to end.
    pub fn is_closing(&self) -> bool {
        let state = self.state();
        state.closing || state.ended
    }

    /// Returns once all that lasts is to end.
    pub async fn closing(&self) {
        loop {
            let changed = self.0.changed.notified();
            if self.is_closing() {
                return;
            }
            changed.await;
        }
    }

    /// Ends it: for whoever has lost the Lease, or is about to give it back.
    pub fn end(&self) {
        self.state().ended = true;
        self.0.changed.notify_waiters();
    }

    /// How much of it is left: none if it is over, and no number if it does not end by the clock.
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
    async fn a_term_ends_ten_seconds_after_its_last_renewal_was_begun() {
        let clock = Clock::of_tests();
        let term = Term::elected("one", clock.clone(), clock.now());
        let ended = tokio::spawn({
            let term = term.clone();
            async move { term.ended().await }
        });
        tokio::time::sleep(Duration::from_secs(9)).await;
        let begun = clock.now();
        // The answer comes late: it counts from the question.
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
    async fn a_term_that_is_ended_is_over_at_once_for_all_clones() {
        for term in [Term::elected("one", Clock::of_tests(), Duration::ZERO), Term::unlimited("one")] {
            let other = term.clone();
            let ended = tokio::spawn(async move { other.ended().await });
            tokio::task::yield_now().await;
            term.end();
            ended.await.unwrap();
            assert_eq!(term.ensure_active(), Err(TermEnded));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_noted_before_a_term_began_is_of_before() {
        let clock = Clock::of_tests();
        let before = clock.time();
        tokio::time::sleep(Duration::from_secs(5)).await;
        let term = Term::elected("one", clock.clone(), clock.now());
        assert!(term.is_after(&before) && !term.is_after(&clock.time()));
        assert!(!Term::unlimited("two").is_after(&before));
    }

    #[test]
    fn what_was_looked_at_counts_in_the_same_term_until_it_is_changed_or_goes() {
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
    async fn what_lasts_hears_of_it_before_a_term_is_over() {
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
    async fn who_was_not_elected_knows_nothing_of_others() {
        let term = Term::unlimited("one");
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert!(term.ensure_active().is_ok() && !term.is_alone());
    }
}
