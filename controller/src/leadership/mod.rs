//! Who of several controllers leads: the one that holds a Lease. It works for as long as it can renew that: its term ends by the
//! clock, before the Lease can be another's. Whoever follows somebody that was not heard any more waits besides until the last
//! request of that one has arrived or failed. Nobody waits for a leader that never was: by a mark that is made before the first one is
//! elected, and stays, a Lease that was removed is told from one that was never there. Who has seen the Lease, or has led, is never the
//! first, whatever was removed. Knows nothing of the work.

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

/// So often a leader renews its lease, and a candidate looks.
const INTERVAL: Duration = Duration::from_secs(2);
/// How long a controller of a build that is not to lead leaves the Lease to others: they look every few seconds, and one that
/// starts anew is there by then.
const PATIENCE: Duration = Duration::from_secs(60);
/// So often a leader makes the mark, which is no news where nobody has removed it.
const MARKING: Duration = Duration::from_secs(60);
/// How long one request of either may take: a term has room for several.
const LIMIT: Duration = Duration::from_secs(4);
/// How long giving the Lease back may take: who has asked this process to end leaves it that much besides what its work may take.
const GIVING: Duration = Duration::from_secs(12);

/// For how long a Lease that nobody renews is left to others by a controller of a build, where one build is marked as that of the
/// cluster: while the images of nodes are swapped, the build leads that the cluster's kinds were made by, as long as it is there.
pub fn patience(build: &str, marked: &str) -> Duration {
    if build == marked { Duration::ZERO } else { PATIENCE }
}

/// One of those of whom one leads.
pub struct Candidate {
    objects: Arc<dyn Objects>,
    clock: Clock,
    identity: String,
    patience: Duration,
    /// Whether its program has led in this process before.
    has_led: bool,
    /// True once this process is asked to end.
    stopping: watch::Receiver<bool>,
    of: Collection,
}

#[derive(Default)]
struct CandidateState {
    /// The Lease, once it was there.
    seen: Option<ObservedLease>,
    /// Whether it has looked for the mark, and was answered.
    has_marked: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    /// It was not there, and is.
    Made,
    /// It was there.
    There,
    /// It is not to be had, or nobody knows whether it was made here: somebody may have led who has not made it either.
    NotHad,
}

/// Who was elected, with what was written for that.
struct Elected {
    term: Term,
    lease: Lease,
    before: PreviousHolder,
}

impl Candidate {
    /// Who has this name, which nobody else has, at an API server, and stands for a Lease that others have left alone for so long.
    pub fn new(objects: Arc<dyn Objects>, clock: Clock, identity: &str, patience: Duration) -> Self {
        let of = Collection::of::<Lease>(Some(SYSTEM));
        // Without a sender the value never changes.
        let (_, stopping) = watch::channel(false);
        Self { objects, clock, identity: identity.to_owned(), patience, has_led: false, stopping, of }
    }

    /// The same one, whose program may have led in this process before: it is not the first of all.
    pub fn having_led(self, has_led: bool) -> Self {
        Self { has_led, ..self }
    }

    /// Sets what asks this process to end. It ends a candidacy, never a term: the work has to end by itself.
    pub fn until(self, stopping: watch::Receiver<bool>) -> Self {
        Self { stopping, ..self }
    }

    /// Waits for the election, runs the work, and gives the Lease back when the work has ended. If this process is asked to end before
    /// the election, it returns without work. If the term ends first, it drops the work.
    ///
    /// # Errors
    /// The term has ended, and the work is not done.
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
        // What is over is not worked on once more.
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

    /// Waits for the election; none if this process is asked to end before. A try that has begun is waited for: its last request may have
    /// taken the Lease, which nothing but its answer says.
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
        // Of a version that made no mark, or of one that is restored; or somebody has removed it.
        if !known.has_marked || next != ElectionStep::Wait {
            // Who takes a Lease that is there is never the first: it waits for no mark, and makes it once it can.
            self.marks_once(known).await;
        }
        let ElectionStep::Take(before) = next else { return Ok(None) };
        let taken = lease::taken(&lease, &self.identity, self.clock.time().0);
        // What was asked before takes nothing from the term.
        let begun = self.clock.now();
        match self.asked(self.objects.replace(&self.of, &value(&taken)?)).await {
            Ok(lease) => {
                let term = Term::elected(&self.identity, self.clock.clone(), begun);
                Ok(Some(Elected { term, lease: read(lease)?, before }))
            }
            // Somebody else was faster.
            Err(Failure::Changed) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Makes the Lease where there is none. Who has made the mark, and has neither seen the Lease nor led, holds it at once: nobody was
    /// elected before, and whoever may be meanwhile waits longer than this term lasts, which counts from before the mark. Else somebody may
    /// have led by a Lease that was removed: it is as if that one had renewed it just now.
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

    /// Makes the mark: [`Mark::Made`] for one alone as long as it stays. While the images of nodes are swapped a leader may not have the
    /// right to: it comes with the kinds of its version.
    async fn marks(&self) -> Result<Mark, Failure> {
        let of = Collection::of::<ConfigMap>(Some(SYSTEM));
        match self.asked(self.objects.create(&of, &value(&lease::mark())?)).await {
            Ok(_) => Ok(Mark::Made),
            Err(Failure::Exists) => Ok(Mark::There),
            Err(Failure::Refused(words)) => {
                log::info!("the ConfigMap {} is not made, and nobody is the first to lead: {words}", lease::MARK);
                Ok(Mark::NotHad)
            }
            Err(failure) => Err(failure),
        }
    }

    /// The same of a candidate. Nobody stays without a leader for want of the mark: an admission webhook that is asked about ConfigMaps, and
    /// is down, may keep it from being made for long.
    async fn marks_once(&self, known: &mut CandidateState) -> Mark {
        match self.marks().await {
            Ok(mark) => {
                known.has_marked = true;
                mark
            }
            Err(failure) => {
                log::info!(
                    "making the ConfigMap {}, without which nobody is the first to lead: {failure}",
                    lease::MARK
                );
                Mark::NotHad
            }
        }
    }

    /// Makes the mark again and again: somebody may remove it, or it could not be made.
    async fn keeps_marked(&self) {
        loop {
            sleep(MARKING).await;
            if let Err(failure) = self.marks().await {
                log::info!("making the ConfigMap {}: {failure}", lease::MARK);
            }
        }
    }

    /// Renews a term until it is over. Of an answer that is lost nobody knows whether it was renewed: it counts as not.
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

    /// Renews the Lease: true if it is still this one's.
    async fn renewed(&self, lease: &mut Lease) -> Result<bool, Failure> {
        let renewed = lease::renewed(lease, self.clock.time().0);
        match self.asked(self.objects.replace(&self.of, &value(&renewed)?)).await {
            Ok(written) => {
                *lease = read(written)?;
                Ok(true)
            }
            // By itself, if an answer was lost, by a person, or by who has taken it.
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

    /// Gives the Lease back, however often an answer is lost, for as long as there is time for that.
    async fn gives_back(&self, lease: Lease) {
        let mut last = Some(lease);
        let giving = async {
            loop {
                match self.given_back(last.take()).await {
                    Ok(()) => return,
                    // It was renewed by a request whose answer was not waited for.
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

    /// Gives the Lease back as it was written last, or as it is now. One that is another's by now, or was removed, is left alone.
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
