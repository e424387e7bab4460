//! Follows which workers the cluster has. Records workers that joined before the first record, the Node object of each worker,
//! and its removal. Reports nodes that were not admitted, held names, and nodes that chose the addresses of their pods.

use std::collections::BTreeMap;
use std::time::SystemTime;

use anyhow::Context as _;
use contract::codes::{self, Code};
use contract::finding::Findings;
use contract::join_token;

use super::node::{Node, strange_ranges};
use super::records::{Changes, WorkerRecord, WorkerRecords, freeing};
use super::{APPROVED, NODES, Request, joining, named, told};
use crate::cluster::kubernetes::api::Api;
use crate::intake::config::ControlPlane;

const DELETE: &str =
    "Delete it: `kubectl delete node`. If it is to be part of the cluster, create its VM again with a join token";

impl Api {
    /// Follows which workers exist, and begins their records.
    ///
    /// # Errors
    /// The API does not answer, or refuses.
    pub fn follow_workers(&self, config: &ControlPlane, now: SystemTime) -> anyhow::Result<Findings> {
        let mut records = self.worker_records()?;
        let adopting = records.as_ref().is_some_and(|records| records.are_to_be_completed(now));
        let nodes: Vec<Node> = self.list(NODES).context("listing the nodes")?;
        let joining = match adopting {
            true => self.joining(&nodes, now)?,
            false => BTreeMap::new(),
        };
        let mut findings = ranges(&nodes, config);
        let Some(records) = &mut records else {
            self.begin_worker_records()?;
            return Ok(findings);
        };
        let mut changes = records.followed(&nodes, now);
        if adopting {
            changes.extend(records.adopted(&nodes, &joining, config, now));
            self.delete_used_tokens(&nodes, &joining, &changes)?;
        }
        if (adopting || !changes.is_empty()) && !self.note_workers(records, changes, adopting)? {
            return Ok(findings);
        }
        if records.are_complete() {
            findings.extend(strangers(&nodes, records, config));
            findings.extend(held(records, now));
        }
        Ok(findings)
    }

    /// Deletes the tokens of single workers that have joined and whose key is not recorded. Otherwise such a token would admit
    /// another key when the worker restarts. A worker that is not Ready may still wait for its certificate.
    fn delete_used_tokens(
        &self,
        nodes: &[Node],
        joining: &BTreeMap<String, WorkerRecord>,
        changes: &Changes,
    ) -> anyhow::Result<()> {
        for node in nodes.iter().filter(|node| node.is_ready()) {
            let holds_nothing = |record: &WorkerRecord| record.token.is_none() && record.key.is_none();
            let is_adopted = changes.get(node.name()).is_some_and(|noted| noted.as_ref().is_some_and(holds_nothing));
            let asked = joining.get(node.name()).filter(|_| is_adopted);
            if let Some(used) = asked.and_then(|asked| asked.token.as_ref()) {
                self.delete(&join_token::path(used)).context("deleting the token of a worker that has joined")?;
            }
        }
        Ok(())
    }

    /// The records of nodes that were admitted lately. Of two nodes with one name, the later one is recorded, with the dispute.
    /// If the earlier one had another token that has expired, there is no dispute: the worker joined again, or its VM was
    /// created again.
    pub(super) fn joining(&self, nodes: &[Node], now: SystemTime) -> anyhow::Result<BTreeMap<String, WorkerRecord>> {
        let is_approved = |one: &Request| one.status.conditions.iter().any(|condition| condition.kind == APPROVED);
        let mut all = self.requests(joining::SIGNER, is_approved)?;
        all.sort_by(|one, other| one.metadata.creation_timestamp.cmp(&other.metadata.creation_timestamp));
        let mut tokens: BTreeMap<&str, Option<joining::Token>> = BTreeMap::new();
        let mut records: BTreeMap<String, WorkerRecord> = BTreeMap::new();
        let mut last_tokens: BTreeMap<String, &str> = BTreeMap::new();
        for Request { spec, .. } in &all {
            let (Some(name), Some(id), Ok(asked)) =
                (joining::node_of(spec), joining::token_of(spec), spec.asked(&joining::USAGES))
            else {
                continue;
            };
            if !tokens.contains_key(id) {
                tokens.insert(id, joining::Token::find(self, id)?);
            }
            let is_its_own = tokens[id].as_ref().is_some_and(|token| token.node().is_some());
            let own = is_its_own.then(|| id.to_owned());
            let known = nodes.iter().find(|node| node.name() == name);
            let record = WorkerRecord::of_key(asked.key, own, known, now);
            let last_token = last_tokens.insert(name.clone(), id);
            let is_open = last_token.is_some_and(|last| last == id || tokens[last].is_some());
            let is_other = |before: &WorkerRecord| before.let_in != record.let_in && is_open;
            let is_disputed = records.get(&name).is_some_and(|before| before.is_disputed || is_other(before));
            let record = known.map_or_else(|| record.clone(), |node| record.with(node));
            records.insert(name, WorkerRecord { is_disputed, ..record });
        }
        Ok(records)
    }
}

/// Names nodes that chose the addresses of their pods.
fn ranges(nodes: &[Node], config: &ControlPlane) -> Findings {
    let strange = strange_ranges(nodes, config.cluster.pod_cidr, config.cluster.node_prefix);
    let strange: Vec<String> = strange.iter().map(|strange| told(strange)).collect();
    finding(&codes::NODE_POD_RANGE, "the ranges of pods", &strange, DELETE)
}

/// Names nodes that were not admitted.
fn strangers(nodes: &[Node], records: &WorkerRecords, config: &ControlPlane) -> Findings {
    let strange: Vec<String> = nodes
        .iter()
        .filter(|node| !node.is_control(config))
        .filter_map(|node| Some(told(&format!("{}: {}", node.name(), records.record_of(node).err()?))))
        .collect();
    finding(&codes::WORKER_UNKNOWN, "the cluster's nodes", &strange, DELETE)
}

/// Lists held names, and nodes whose certificate another client may have.
fn held(records: &WorkerRecords, now: SystemTime) -> Findings {
    let told_of = |names: Vec<String>| -> Vec<String> { names.iter().map(|name| told(name)).collect() };
    let action = format!(
        "Give workers other names: the holder of that certificate would be the same node. If you know that its VM was yours \
         and is gone, free the name: {}",
        freeing("NAME")
    );
    let mut findings = finding(&codes::WORKER_NAME_HELD, "the names of workers", &told_of(records.held(now)), &action);
    // Freeing the name of one of these would end the renewal of a node that runs.
    let action = "Another client may have a certificate with that name, and would be the same node: remove that worker \
                  (remove-worker; or drain it, delete its node and destroy its VM), and create one with another name";
    let doubtful = told_of(records.doubtful(now));
    findings.extend(finding(&codes::WORKER_NAME_HELD, "nodes that another client may be", &doubtful, action));
    findings
}

fn finding(code: &Code, subject: &str, seen: &[String], action: &str) -> Findings {
    match seen {
        [] => Findings::default(),
        seen => code.finding(subject, named(seen), action).into(),
    }
}
