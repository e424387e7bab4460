//! Errands: duties that take longer than the watch over the node may wait. Each
//! is prepared in passing and then done on a thread of its own, one at a time of
//! each kind. Ends with the process; what was cut off is begun again.

use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use contract::finding::Findings;

use super::job::{Job, Told, failed};
use super::{addons, admission, etcd, snapshots, swap};
use crate::node::context::NodeContext;

/// An errand that recurs.
struct Errand {
    /// What it looks after.
    what: &'static str,
    /// The pause before the first time, and after each.
    every: Duration,
    /// Quick: gives the job, if there is anything to do.
    prepare: fn(&NodeContext) -> anyhow::Result<Option<Job>>,
}

const ERRANDS: &[Errand] = &[
    Errand { what: "snapshots of etcd", every: Duration::from_secs(60), prepare: snapshots::prepare },
    Errand { what: "etcd", every: Duration::from_secs(120), prepare: etcd::prepare },
    Errand { what: "the cluster's record of this node", every: Duration::from_secs(60), prepare: swap::prepare },
    Errand { what: "the add-ons", every: Duration::from_secs(60), prepare: addons::prepare },
    Errand { what: "the cordon of a swap", every: Duration::from_secs(5), prepare: swap::uncordon },
    Errand { what: "the upgrade of Kubernetes", every: Duration::from_secs(2), prepare: swap::upgrade },
    Errand { what: "the node that is replaced", every: Duration::from_secs(5), prepare: admission::prepare },
];

/// All errands and how they stand.
pub(super) struct Errands(Vec<Under>);

struct Under {
    errand: &'static Errand,
    due: Instant,
    told: Told,
    way: Option<JoinHandle<anyhow::Result<Findings>>>,
}

impl Errands {
    pub(super) fn begin(now: Instant) -> Self {
        let under =
            |errand: &'static Errand| Under { errand, due: now + errand.every, told: Told::default(), way: None };
        Self(ERRANDS.iter().map(under).collect())
    }

    /// Begins what is due and takes back what is done. Says whether there is news.
    pub(super) fn look(&mut self, node: &NodeContext, now: Instant) -> bool {
        let mut news = false;
        for under in &mut self.0 {
            under.look(now, || (under.errand.prepare)(node));
            news |= under.told.news();
        }
        news
    }

    pub(super) fn findings(&self) -> Findings {
        let mut all = Findings::default();
        for under in &self.0 {
            all.extend(under.told.findings());
        }
        all
    }
}

impl Under {
    fn look(&mut self, now: Instant, prepare: impl FnOnce() -> anyhow::Result<Option<Job>>) {
        if let Some(way) = self.way.take_if(|way| way.is_finished()) {
            let done = way.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            self.told.say(done.unwrap_or_else(|error| failed(self.errand.what, &error)));
            self.due = now + self.errand.every;
        }
        if self.way.is_some() || self.due > now {
            return;
        }
        self.due = now + self.errand.every;
        let begun = prepare().and_then(|job| {
            let Some(job) = job else { return Ok(None) };
            let told = self.told.clone();
            Ok(Some(thread::Builder::new().name("errand".to_owned()).spawn(move || job(&told))?))
        });
        match begun {
            Ok(None) => self.told.say(Findings::default()),
            Ok(way) => self.way = way,
            Err(error) => self.told.say(failed(self.errand.what, &error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    fn under() -> Under {
        Under { errand: &ERRANDS[0], due: Instant::now(), told: Told::default(), way: None }
    }

    #[test]
    fn an_errand_is_not_begun_again_while_it_is_under_way() {
        let mut under = under();
        let (end, ended) = mpsc::channel::<()>();
        let now = Instant::now();
        under.look(now, || {
            Ok(Some(Box::new(move |told: &Told| {
                told.say(failed("this", &anyhow::anyhow!("under way")));
                ended.recv().unwrap();
                anyhow::bail!("the end")
            })))
        });
        under.look(now + Duration::from_secs(3600), || panic!("begun twice"));
        end.send(()).unwrap();
        while under.way.as_ref().is_some_and(|way| !way.is_finished()) {
            thread::yield_now();
        }
        under.look(now, || panic!("begun too early"));
        assert!(under.told.findings().to_string().contains("the end"));
        assert!(under.told.news() && !under.told.news());
        under.look(now + ERRANDS[0].every, || Ok(None));
        assert!(under.told.findings().is_empty() && under.told.news());
    }

    #[test]
    fn an_errand_that_cannot_be_prepared_is_named() {
        let mut under = under();
        under.look(Instant::now(), || anyhow::bail!("no credentials"));
        let said = under.told.findings().to_string();
        assert!(said.contains("snapshots of etcd: looking after it failed: no credentials"), "{said}");
    }
}
