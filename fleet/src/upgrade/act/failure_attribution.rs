//! Attributes a node's failed health check: to the node itself, or to another one.

use std::collections::BTreeMap;
use std::time::Duration;

use contract::node::Node;
use tokio::time::Instant;

use super::failure_threshold::FailureThreshold;
use crate::engine::Reason;
use crate::upgrade::reason::{self, NODE_DIFFERS};
use crate::upgrade::refusal::NODE_SILENT;
use crate::upgrade::step_error::{StepError, Wait};

/// The health of a node, as far as another one depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    Well,
    /// It answers, and is unhealthy.
    Ill,
    Silent,
}

impl Health {
    pub(super) fn of(facts: anyhow::Result<Node>) -> Self {
        match facts {
            Ok(facts) if facts.ready && facts.healthy.is_some() && facts.etcd.is_some() => Self::Well,
            Ok(_) => Self::Ill,
            Err(_) => Self::Silent,
        }
    }
}

/// How much of the time in which a node is not healthy counts against it.
pub(super) struct FailureAttribution {
    limit: Duration,
    most: Duration,
    own: Duration,
    excused: Duration,
    last: Instant,
    pace: Duration,
    /// Which of the others did not answer.
    silent: BTreeMap<String, FailureThreshold>,
}

impl FailureAttribution {
    /// `limit` is how much may count against it, `most` how much one look may count for at most, `pace` the pause
    /// between two looks.
    pub(super) fn new(limit: Duration, most: Duration, pace: Duration) -> Self {
        let (own, excused) = (Duration::ZERO, Duration::ZERO);
        Self { limit, most, own, excused, last: Instant::now(), pace, silent: BTreeMap::new() }
    }

    pub(super) fn judge(&mut self, what: &str, lacks: Reason, others: Vec<(String, Health)>) -> Wait {
        let passed = self.last.elapsed().min(self.most);
        self.last = Instant::now();
        let (spent, excuse) = match self.excuse(&lacks, others) {
            Some(excuse) => (&mut self.excused, Some(excuse)),
            None => (&mut self.own, None),
        };
        *spent += passed;
        let ends = *spent >= self.limit;
        let waited = format!("waited {} s for {what}", spent.as_secs());
        match excuse {
            Some(why) if ends => StepError::elsewhere(&why.code.clone(), why.of(waited).words).into(),
            None if ends => StepError::refused(&lacks.code.clone(), lacks.of(waited).words).into(),
            excuse => Wait::NotYet(excuse.unwrap_or(lacks)),
        }
    }

    /// Why it is not the node's fault, if it is not.
    fn excuse(&mut self, lacks: &Reason, others: Vec<(String, Health)>) -> Option<Reason> {
        let (all, mut ill, mut silent) = (others.len(), Vec::new(), 0);
        for (name, health) in others {
            let belief = self.silent.entry(name.clone()).or_insert_with(|| FailureThreshold::at(self.pace));
            let is_silent = belief.look(health == Health::Silent);
            match health {
                Health::Ill => ill.push(format!("{name} is unhealthy")),
                Health::Silent if is_silent => {
                    silent += 1;
                    ill.push(format!("{name} does not answer"));
                }
                Health::Silent | Health::Well => {}
            }
        }
        match &*lacks.code {
            // A single node has no other node to blame.
            NODE_SILENT if all > 0 && silent == all => {
                let words = format!("no control-plane node can be reached from here: {}", lacks.words);
                Some(Reason::new(reason::UNREACHABLE, words))
            }
            // No other node can cause its own statements about itself, nor its silence.
            NODE_SILENT | NODE_DIFFERS => None,
            // It does its part; that it takes no pods is an operator's decision.
            reason::NODE_CORDONED => Some(lacks.clone()),
            _ if ill.is_empty() => None,
            _ => {
                let words = format!("{}, which is to be repaired first: {}", ill.join(" and "), lacks.words);
                Some(Reason::new(reason::OTHER_NODE, words))
            }
        }
    }
}
