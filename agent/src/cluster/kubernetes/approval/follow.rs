//! Follows which workers the cluster has: notes those that were there before anything was, which Node object is whose, and whose is
//! gone. Says which nodes nobody has let in.

use std::time::SystemTime;

use anyhow::Context as _;
use contract::codes;
use contract::finding::Findings;

use super::node::Node;
use super::records::freeing;
use super::{APPROVED, NODES, joining, named, told};
use crate::cluster::kubernetes::api::Api;
use crate::intake::config::ControlPlane;

impl Api {
    /// Follows which workers there are, and begins to note them once control nodes `may`, which all of them do from then on.
    ///
    /// # Errors
    /// The API does not answer.
    pub fn follow_workers(&self, config: &ControlPlane, may: bool, now: SystemTime) -> anyhow::Result<Findings> {
        let Some(mut records) = self.worker_records()? else {
            if may {
                self.begin_worker_records()?;
            }
            return Ok(Findings::default());
        };
        let adopting = records.are_to_be_completed(now);
        let joining = match adopting {
            true => self.joining()?,
            false => Vec::new(),
        };
        let nodes: Vec<Node> = self.list(NODES).context("listing the nodes")?;
        let mut changes = records.followed(&nodes, now);
        if adopting {
            changes.extend(records.adopted(&nodes, &joining, config, now));
        }
        if (adopting || !changes.is_empty()) && !self.note_workers(&mut records, changes, adopting)? {
            return Ok(Findings::default());
        }
        if !records.are_complete() {
            return Ok(Findings::default());
        }
        let strange: Vec<String> = nodes
            .iter()
            .filter(|node| !node.is_control(config))
            .filter_map(|node| Some(told(&format!("{}: {}", node.name(), records.of(node).err()?))))
            .collect();
        let mut findings = Findings::default();
        if !strange.is_empty() {
            let action =
                "Delete it: `kubectl delete node`. If it is to be part of the cluster, make its VM anew with a join token";
            findings.push(codes::WORKER_UNKNOWN.finding("the cluster's nodes", named(&strange), action));
        }
        let held: Vec<String> = records.held(now).map(told).collect();
        if !held.is_empty() {
            let action = format!(
                "Give workers other names: who has that certificate would be the same node. If you know that its VM was yours and is \
                 gone, free the name: {}",
                freeing("NAME")
            );
            findings.push(codes::WORKER_NAME_HELD.finding("the names of workers", named(&held), action));
        }
        Ok(findings)
    }

    /// The nodes that were let in lately.
    fn joining(&self) -> anyhow::Result<Vec<String>> {
        let mut all = self.requests(joining::SIGNER)?;
        all.retain(|one| one.status.conditions.iter().any(|condition| condition.kind == APPROVED));
        Ok(all.iter().filter_map(|one| joining::node_of(&one.spec)).collect())
    }
}
