//! Everyday care: duties that recur as long as the node runs, each at its own
//! pace. A duty looks, acts only where something is due, and says in findings
//! what a person should know. Knows nothing of what a duty does.

mod addons;
mod admission;
mod certificates;
mod clock;
mod data_disk;
mod endpoint;
mod errand;
mod etcd;
mod job;
mod runtime;
mod snapshots;
mod space;
mod surroundings;
mod swap;

use std::time::{Duration, Instant};

use contract::finding::Findings;
use errand::Errands;
use job::failed;

use crate::node::context::NodeContext;

/// Something that recurs.
struct Duty {
    /// What it looks after, as in `looking after the container runtime`.
    what: &'static str,
    /// The pause between two looks, and before the first one.
    every: Duration,
    look: fn(&NodeContext) -> anyhow::Result<Findings>,
}

const MINUTE: Duration = Duration::from_secs(60);

const DUTIES: &[Duty] = &[
    Duty { what: "the container runtime", every: MINUTE, look: runtime::look },
    Duty { what: "the certificates", every: Duration::from_secs(600), look: certificates::look },
    Duty { what: "the status endpoint", every: MINUTE, look: endpoint::look },
    Duty { what: SURROUNDINGS, every: MINUTE, look: surroundings::look },
    Duty { what: "the size of the data disk", every: MINUTE, look: data_disk::look },
    Duty { what: "the room on the disks", every: MINUTE, look: space::look },
    Duty { what: "the clock", every: MINUTE, look: clock::look },
];

/// The duty that the boot flow has done for the first time.
const SURROUNDINGS: &str = "the network around";

/// When each duty is due, and what the last look at it has found.
pub struct Care {
    duties: Vec<(&'static Duty, Instant, Findings)>,
    errands: Errands,
}

impl Care {
    /// Begins now: the first look at each thing comes after its pause.
    pub fn begin(now: Instant) -> Self {
        let duties = DUTIES.iter().map(|duty| (duty, now + duty.every, Findings::default())).collect();
        Self { duties, errands: Errands::begin(now) }
    }

    /// Takes over what the boot flow has found of the network and the clock,
    /// until they are looked at again.
    pub fn remember(&mut self, passing: &Findings) {
        for (_, _, found) in self.duties.iter_mut().filter(|(duty, ..)| duty.what == SURROUNDINGS) {
            found.clone_from(passing);
        }
    }

    /// Does what is due. Says whether anything was.
    pub fn look(&mut self, node: &NodeContext, now: Instant) -> bool {
        let mut looked = self.errands.look(node, now);
        for (duty, due, found) in &mut self.duties {
            if *due <= now {
                *found = (duty.look)(node).unwrap_or_else(|error| failed(duty.what, &error));
                *due = now + duty.every;
                looked = true;
            }
        }
        looked
    }

    /// What the last look at everything has found.
    pub fn findings(&self) -> Findings {
        let mut all = Findings::default();
        for (.., found) in &self.duties {
            all.extend(found.clone());
        }
        all.extend(self.errands.findings());
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::finding::Finding;

    #[test]
    fn a_failing_duty_becomes_a_finding_that_names_it() {
        let findings = failed(DUTIES[0].what, &anyhow::anyhow!("no answer").context("asking"));
        assert!(findings.to_string().contains("the container runtime: looking after it failed: asking: no answer"));
        assert!(!findings.has_errors());
    }

    #[test]
    fn nothing_is_due_at_once() {
        let now = Instant::now();
        let care = Care::begin(now);
        assert!(care.duties.iter().all(|(duty, due, _)| *due == now + duty.every && !duty.every.is_zero()));
        assert!(care.findings().is_empty());
    }

    #[test]
    fn what_the_boot_flow_found_stands_until_the_next_look() {
        let mut care = Care::begin(Instant::now());
        let passing = Findings::from(Finding::warning("gateway.no-answer", "gateway", "no answer", "Correct it"));
        care.remember(&passing);
        assert_eq!(care.findings(), passing);
    }
}
