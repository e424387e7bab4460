//! Elects one of several controllers as the leader: the holder of a Lease. It works while it can renew the Lease. Its term ends
//! by the clock, before another candidate may take the Lease. If the former leader did not release it, the next one also waits
//! until the last request of that one has arrived or failed. The first leader of all does not wait. A mark distinguishes it: a
//! ConfigMap that is created before the first election and never deleted. A candidate that has seen the Lease, or has led, is
//! never the first. This room does not know the work.

mod lease;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use fleet::lease::MARGIN;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use self::lease::{ElectionStep, NAME, ObservedLease, PreviousHolder};
use crate::objects::SYSTEM;
use crate::reach::{Collection, Failure, Objects};
use crate::term::{Clock, Term, TermEnded};

pub use self::lease::LEASE;

/// The interval of renewals by a leader, and of looks by a candidate.
const INTERVAL: Duration = Duration::from_secs(2);
/// How long a controller of another build leaves the Lease to others. They look every few seconds, and a restart takes less than
/// that.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often a leader creates the mark, in case it was deleted.
const MARKING: Duration = Duration::from_secs(60);
/// The limit of one request. A term has time for several.
const LIMIT: Duration = Duration::from_secs(4);
/// The limit for releasing the Lease. The grace period of the process needs this time in addition to that for the work.
const GIVING: Duration = Duration::from_secs(12);

/// How long a controller of a build leaves an expired Lease to others. `marked` is the build whose definitions of kinds the
/// cluster has. During an upgrade of the control cluster that build leads as long as a node runs it.
pub fn patience(build: &str, marked: &str) -> Duration {
    if build == marked { Duration::ZERO } else { PATIENCE }
}

pub struct Candidate {
    objects: Arc<dyn Objects>,
    clock: Clock,
    identity: String,
    patience: Duration,
    /// Whether the program has led in this process before.
    has_led: bool,
    /// True once this process was asked to end.
    stopping: watch::Receiver<bool>,
    of: Collection,
}

#[derive(Default)]
struct CandidateState {
    /// The Lease, once it was seen.
    seen: Option<ObservedLease>,
    /// Whether it has created or found the mark.
    has_marked: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Made,
    There,
    /// It could not be created, or the answer was lost. There may have been another leader.
    NotHad,
}

/// A won election: the term, and the Lease as it was written.
struct Elected {
    term: Term,
    lease: Lease,
    before: PreviousHolder,
}

impl Candidate {
    /// A candidate with this unique name, which takes the Lease after it was unchanged for `patience`.
    pub fn new(objects: Arc<dyn Objects>, clock: Clock, identity: &str, patience: Duration) -> Self {
        let of = Collection::of::<Lease>(Some(SYSTEM));
        // Without a sender the value never changes.
        let (_, stopping) = watch::channel(false);
        Self { objects, clock, identity: identity.to_owned(), patience, has_led: false, stopping, of }
    }

    /// Sets whether the program may have led in this process before: then it is not the first leader of all.
    pub fn having_led(self, has_led: bool) -> Self {
        Self { has_led, ..self }
    }

    /// Sets what asks this process to end. It ends a candidacy, never a term: the work has to end by itself.
    pub fn until(self, stopping: watch::Receiver<bool>) -> Self {
        Self { stopping, ..self }
    }

    /// Waits for the election, runs the work, and gives the Lease back when the work has ended. If this process is asked to end before
    /// the election, it returns without work. If the term ends first, it drops the work.
    pub async fn lead<W: Future<Output = ()>>(&self, work: impl FnOnce(Term) -> W) -> Result<(), TermEnded> {
        let Some(Elected { term, mut lease, before }) = self.elected().await else { return Ok(()) };
        let wait = match before {
            PreviousHolder::Nobody | PreviousHolder::Released => Duration::ZERO,
            PreviousHolder::Silent => MARGIN,
        };
        log::info!("{} leads from in {} s on", self.identity, wait.as_secs());
        let working = async {
            sleep(wait).await;
            work(term.clone()).await;
        };
        // The work is not polled again after the term.
        let done = tokio::select! {
            biased;
            () = self.renews(&term, &mut lease) => false,
            () = working => true,
        };
        term.ensure_active().inspect_err(|_| log::warn!("{} leads no longer", self.identity))?;
        term.end();
        if done {
            self.gives_back(lease).await;
        }
        Ok(())
    }

    /// Waits for the election. `None` if this process is asked to end first. An attempt that has begun is completed: its last
    /// request may have taken the Lease, which only the answer shows.
    async fn elected(&self) -> Option<Elected> {
        let (mut known, mut stopping) = (CandidateState::default(), self.stopping.clone());
        while !*stopping.borrow() {
            match self.tries(&mut known).await {
                Ok(Some(elected)) => return Some(elected),
                Ok(None) => {}
                Err(failure) => log::info!("asking who leads: {failure}"),
            }
            tokio::select! {
                () = sleep(INTERVAL) => {}
                Ok(_) = stopping.wait_for(|asked| *asked) => {}
            }
        }
        None
    }

    async fn tries(&self, known: &mut CandidateState) -> Result<Option<Elected>, Failure> {
        let lease = match self.asked(self.objects.get(&self.of, NAME)).await {
            Ok(lease) => lease,
            Err(Failure::Missing) => return self.makes(known).await,
            Err(failure) => return Err(failure),
        };
        let lease: Lease = read(lease)?;
        let now = self.clock.now();
        let noted = ObservedLease::noted(known.seen.take(), &lease, now);
        let next = noted.next(&self.identity, now, self.patience);
        known.seen = Some(noted);
        // The mark may be missing: it was deleted.
        if !known.has_marked || next != ElectionStep::Wait {
            // A candidate that takes an existing Lease is never the first. It does not wait for the mark, and creates it later.
            self.marks_once(known).await;
        }
        let ElectionStep::Take(before) = next else { return Ok(None) };
        let taken = lease::taken(&lease, &self.identity, self.clock.time().0);
        // The requests before are not part of the term.
        let begun = self.clock.now();
        match self.asked(self.objects.replace(&self.of, &value(&taken)?)).await {
            Ok(lease) => {
                let term = Term::elected(&self.identity, self.clock.clone(), begun);
                Ok(Some(Elected { term, lease: read(lease)?, before }))
            }
            // Another candidate took it first.
            Err(Failure::Changed) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Creates a missing Lease. A candidate that created the mark, and has neither seen the Lease nor led, holds it at once:
    /// there was no leader before. Another candidate would wait longer than this term, which counts from before the mark. Any
    /// other candidate creates it with an unknown holder, as if a leader of a deleted Lease had renewed it just now.
    async fn makes(&self, known: &mut CandidateState) -> Result<Option<Elected>, Failure> {
        let begun = self.clock.now();
        let mark = self.marks_once(known).await;
        let is_first = mark == Mark::Made && known.seen.is_none() && !self.has_led && self.patience.is_zero();
        let holder = if is_first { self.identity.as_str() } else { lease::UNKNOWN };
        let made = lease::new(holder, self.clock.time().0);
        let made = self.asked(self.objects.create(&self.of, &value(&made)?)).await?;
        if !is_first {
            return Ok(None);
        }
        let term = Term::elected(&self.identity, self.clock.clone(), begun);
        Ok(Some(Elected { term, lease: read(made)?, before: PreviousHolder::Nobody }))
    }

    /// Creates the mark. [`Mark::Made`] for one candidate only, unless the mark is deleted. During an upgrade of the control
    /// cluster a leader may lack the right: it comes with the objects of its version.
    async fn marks(&self) -> Result<Mark, Failure> {
        let of = Collection::of::<ConfigMap>(Some(SYSTEM));
        match self.asked(self.objects.create(&of, &value(&lease::mark())?)).await {
            Ok(_) => Ok(Mark::Made),
            Err(Failure::Exists) => Ok(Mark::There),
            Err(Failure::Refused(words)) => {
                log::info!("the ConfigMap {} is not created, so no leader is the first: {words}", lease::MARK);
                Ok(Mark::NotHad)
            }
            Err(failure) => Err(failure),
        }
    }

    /// As `marks`, for a candidate. Without the mark it can still lead: an admission webhook for ConfigMaps that is down may
    /// prevent the mark for long.
    async fn marks_once(&self, known: &mut CandidateState) -> Mark {
        match self.marks().await {
            Ok(mark) => {
                known.has_marked = true;
                mark
            }
            Err(failure) => {
                log::info!("creating the ConfigMap {}, without which no leader is the first: {failure}", lease::MARK);
                Mark::NotHad
            }
        }
    }

    /// Creates the mark periodically, in case it was deleted or could not be created before.
    async fn keeps_marked(&self) {
        loop {
            sleep(MARKING).await;
            if let Err(failure) = self.marks().await {
                log::info!("making the ConfigMap {}: {failure}", lease::MARK);
            }
        }
    }

    /// Renews a term until it is over. A renewal whose answer was lost does not count.
    async fn renews(&self, term: &Term, lease: &mut Lease) {
        let renewing = async {
            loop {
                sleep(INTERVAL).await;
                let begun = self.clock.now();
                match self.renewed(lease).await {
                    Ok(true) => {
                        if term.renew(begun).is_err() {
                            return;
                        }
                    }
                    Ok(false) => {
                        log::warn!("the Lease is another's");
                        return term.end();
                    }
                    Err(failure) => log::warn!("renewing the Lease: {failure}"),
                }
            }
        };
        tokio::select! {
            () = renewing => {}
            () = self.keeps_marked() => {}
            () = term.ended() => {}
        }
    }

    /// Renews the Lease. False if it has another holder.
    async fn renewed(&self, lease: &mut Lease) -> Result<bool, Failure> {
        let renewed = lease::renewed(lease, self.clock.time().0);
        match self.asked(self.objects.replace(&self.of, &value(&renewed)?)).await {
            Ok(written) => {
                *lease = read(written)?;
                Ok(true)
            }
            // Changed by an own request whose answer was lost, by the operator, or by another leader.
            Err(Failure::Changed) => {
                let now: Lease = read(self.asked(self.objects.get(&self.of, NAME)).await?)?;
                if !lease::is_held_by(&now, &self.identity) {
                    return Ok(false);
                }
                *lease = now;
                Err(Failure::Changed)
            }
            Err(Failure::Missing) => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    /// Releases the Lease. A lost answer is tried again, within [`GIVING`].
    async fn gives_back(&self, lease: Lease) {
        let mut last = Some(lease);
        let giving = async {
            loop {
                match self.given_back(last.take()).await {
                    Ok(()) => return,
                    // A request whose answer was not awaited renewed it.
                    Err(Failure::Changed) => {}
                    Err(failure) => {
                        log::info!("giving the Lease back: {failure}");
                        sleep(INTERVAL).await;
                    }
                }
            }
        };
        if timeout(GIVING, giving).await.is_err() {
            log::warn!("the Lease is not given back: another one takes it in {} s", LEASE.as_secs());
        }
    }

    /// Releases the Lease as it was last written, or as it is now. A Lease of another holder, or a deleted one, stays as it is.
    async fn given_back(&self, last: Option<Lease>) -> Result<(), Failure> {
        let held = match last {
            Some(lease) => lease,
            None => match self.asked(self.objects.get(&self.of, NAME)).await {
                Err(Failure::Missing) => return Ok(()),
                found => read(found?)?,
            },
        };
        if !lease::is_held_by(&held, &self.identity) {
            return Ok(());
        }
        self.asked(self.objects.replace(&self.of, &value(&lease::released(&held))?)).await.map(drop)
    }

    async fn asked<T>(&self, asked: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        let late = |_| Failure::Unknown(anyhow::anyhow!("no answer within {} s", LIMIT.as_secs()));
        timeout(LIMIT, asked).await.unwrap_or_else(|elapsed| Err(late(elapsed)))
    }
}

fn value(object: &impl Serialize) -> Result<serde_json::Value, Failure> {
    serde_json::to_value(object).map_err(|error| Failure::Unknown(error.into()))
}

fn read(lease: serde_json::Value) -> Result<Lease, Failure> {
    serde_json::from_value(lease).map_err(|error| Failure::Unknown(error.into()))
}
