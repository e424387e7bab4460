//! The encryption of Secrets: each minute the node follows the record of keys, and a cluster that an earlier image has formed
//! begins to encrypt once all nodes run one image that can, for good. See [`crate::cluster::encryption`].

use std::time::SystemTime;

use anyhow::Context as _;
use contract::finding::Findings;

use super::job::Job;
use crate::cluster::encryption::drive::{Laid, Node};
use crate::host::command::{Host, Runner};
use crate::node::context::NodeContext;
use crate::upgrade::swap::context::SwapContext;
use crate::upgrade::swap::node_record;

pub(super) fn prepare(node: &NodeContext) -> anyhow::Result<Option<Job>> {
    let manager = node.endpoint.swaps().clone();
    let Some(context) = manager.context().filter(|context| context.reporter.status().is_ready()) else {
        return Ok(None);
    };
    Ok(Some(Box::new(move |_| look(&context, manager.state().is_some(), &Host, SystemTime::now()))))
}

fn look(context: &SwapContext, swap_open: bool, runner: &dyn Runner, now: SystemTime) -> anyhow::Result<Findings> {
    let etcd = context.etcd()?;
    let node = Node { root: &context.root, config: &context.config, etcd: &etcd, runner };
    match node.lay(now)? {
        Err(finding) => Ok(finding.into()),
        Ok(Laid::Clear { .. }) => {
            // The former image would not read a single Secret: nobody may go back to it any more.
            if !swap_open && etcd.status()?.is_leader() {
                let known = node_record::list(&etcd).context("looking what the other nodes run")?;
                if node_record::settled(&context.config, &known, &context.image.build) {
                    node.begin(now)?;
                    context.note("all nodes run one image that encrypts Secrets, for good: encrypting them begins");
                }
            }
            Ok(Findings::default())
        }
        Ok(Laid::Keys { readable, .. }) => {
            node.tell(&readable)?;
            let mut findings = Findings::default();
            for finding in [node.drive(&readable, now)?, node.without_recovery()].into_iter().flatten() {
                findings.push(finding);
            }
            Ok(findings)
        }
    }
}

#[cfg(test)]
#[path = "encryption_tests.rs"]
mod tests;
