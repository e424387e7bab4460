//! Prepares a node for the shutdown of its VM: yield the virtual address, move
//! etcd's leadership, drain, write to the disk who may take it. Each step looks first, so
//! that doing all of it again completes it; what fails or is cancelled is undone.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use uuid::Uuid;

use super::desk::Site;
use super::holder::Swap;
use super::wire::{Request, Stage};
use crate::command::{Host, Runner};
use crate::etcd::gateway::Gateway;
use crate::kubernetes::api;
use crate::records::Cordon;
use crate::virtual_address;

/// How long the address and the leadership may take to move, before patience.
const MOVING: Duration = Duration::from_secs(20);
/// How long a member may take to answer, before patience.
const ASKING: Duration = Duration::from_secs(5);
/// So long kubectl drains before it is seen whether the swap was cancelled.
const TURN: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(250);

/// The preparation of one swap.
pub(super) struct Work<'w> {
    pub(super) site: &'w Site,
    pub(super) request: &'w Request,
    pub(super) cancelled: &'w AtomicBool,
    pub(super) runner: &'w dyn Runner,
}

impl Work<'_> {
    /// Prepares the swap. False if it was cancelled: everything is as before then.
    ///
    /// # Errors
    /// What failed; it was undone as far as that is possible.
    pub(super) fn run(&self, tell: &mut dyn FnMut(Stage) -> anyhow::Result<()>) -> anyhow::Result<bool> {
        let done = self.steps(tell);
        match done {
            Ok(true) => Ok(true),
            other => {
                let undone = Self::undo(self.site, self.request.id);
                let done = other?;
                undone.map(|()| done)
            }
        }
    }

    fn steps(&self, tell: &mut dyn FnMut(Stage) -> anyhow::Result<()>) -> anyhow::Result<bool> {
        // The others must see it before anything changes: of two nodes that begin at once one gives way.
        self.site.teller.tell(Some(self.request.id)).context("telling the cluster of the swap")?;
        self.nobody_else()?;
        for stage in [Stage::Yielding, Stage::MovingLeader, Stage::Draining] {
            tell(stage)?;
            if self.is_cancelled() {
                return Ok(false);
            }
            let done = match stage {
                Stage::Yielding => self.yield_address()?,
                Stage::MovingLeader => self.move_leader()?,
                _ => self.drain()?,
            };
            if !done {
                return Ok(false);
            }
        }
        let Request { id, to, .. } = self.request;
        let swap = Swap { id: *id, from: self.site.own.clone(), to: Some(to.clone()), released: None, forced: false };
        self.site.set_swap(Some(swap))?;
        self.site.note(&format!("the swap {id} is prepared: a VM of image {} may take the disk", to.version));
        Ok(!self.is_cancelled())
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::SeqCst)
    }

    fn nobody_else(&self) -> anyhow::Result<()> {
        let site = self.site;
        let own = &site.config.node.name;
        let etcd = Gateway::new(&site.teller.node, &site.pki, site.config.patiently(ASKING))?;
        let known = super::standing::list(&etcd).context("looking for other nodes' swaps")?;
        match known.iter().find(|(name, standing)| name != own && standing.swap.is_some()) {
            Some((other, _)) => bail!("{other} is being swapped as well: it goes first"),
            None => Ok(()),
        }
    }

    /// Waits until something holds. False if it was cancelled meanwhile.
    fn until(&self, what: &str, limit: Duration, mut holds: impl FnMut() -> bool) -> anyhow::Result<bool> {
        let until = Instant::now() + limit;
        while !holds() {
            if self.is_cancelled() {
                return Ok(false);
            }
            if Instant::now() > until {
                bail!("{what} after {} s", limit.as_secs());
            }
            thread::sleep(POLL);
        }
        Ok(true)
    }

    fn yield_address(&self) -> anyhow::Result<bool> {
        let config = &self.site.config;
        let Some(address) = config.cluster.virtual_address else { return Ok(true) };
        if config.peers().next().is_none() {
            return Ok(true);
        }
        virtual_address::hold_back(&self.site.root, true).context("yielding the virtual address")?;
        let limit = config.patiently(MOVING);
        self.until(&format!("this node still holds {address}"), limit, || !virtual_address::held(address))
    }

    fn move_leader(&self) -> anyhow::Result<bool> {
        let config = &self.site.config;
        let ask = |node| Gateway::new(node, &self.site.pki, config.patiently(ASKING));
        let own = ask(&self.site.teller.node)?;
        if config.peers().next().is_none() || !own.status()?.is_leader() {
            return Ok(true);
        }
        // The one that has applied most has least to catch up with.
        let candidates = config.peers().filter_map(|peer| {
            let status = ask(peer).and_then(|etcd| etcd.status()).ok()?;
            (!status.is_learner && status.has_leader()).then_some((status.raft_applied_index, status.header.member_id))
        });
        let (_, next) = candidates.max().context("no other member can take etcd's leadership")?;
        own.move_leader(next)?;
        let is_leader = || own.status().is_ok_and(|status| status.is_leader());
        self.until("this node still leads etcd", config.patiently(MOVING), || !is_leader())
    }

    fn drain(&self) -> anyhow::Result<bool> {
        let (site, node) = (self.site, &self.site.config.node.name);
        let records = site.records();
        if records.cordon()?.is_none() {
            let said = self.kubectl(&["get", "node", node, "--output=jsonpath={.spec.unschedulable}"])?;
            // Who cordoned it before us uncordons it, too.
            if said.trim() != "true" {
                records.save_cordon(Cordon { swap: self.request.id })?;
                self.kubectl(&["cordon", node])?;
            }
        }
        let until = Instant::now() + Duration::from_secs(self.request.drain_seconds);
        loop {
            let turn = TURN.min(until.saturating_duration_since(Instant::now())).max(Duration::from_secs(1));
            let timeout = format!("--timeout={}s", turn.as_secs().max(1));
            let drain = ["drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", &timeout];
            match self.kubectl(&drain) {
                Ok(_) => return Ok(true),
                Err(_) if self.is_cancelled() => return Ok(false),
                Err(error) if Instant::now() >= until => {
                    return Err(error).with_context(|| {
                        format!("draining {node}: pods are still there after {} s", self.request.drain_seconds)
                    });
                }
                Err(error) => log::info!("draining {node}: {error:#}"),
            }
            if self.is_cancelled() {
                return Ok(false);
            }
            thread::sleep(POLL);
        }
    }

    fn kubectl(&self, arguments: &[&str]) -> anyhow::Result<String> {
        kubectl(self.site, self.runner, arguments)
    }

    /// Undoes what a swap that is not to happen has done; what is undone already stays so.
    ///
    /// # Errors
    /// What could not be undone; doing it again goes on.
    pub(super) fn undo(site: &Site, id: Uuid) -> anyhow::Result<()> {
        virtual_address::hold_back(&site.root, false).context("letting the virtual address come back")?;
        let withdrawn = site.identity()?.swap.is_some_and(|swap| swap.id == id && swap.from.is(&site.own));
        if withdrawn {
            site.set_swap(None)?;
        }
        uncordon(site, &Host)?;
        site.teller.tell(None).context("telling the cluster that the swap is off")?;
        site.note(&format!("the swap {id} is withdrawn"));
        Ok(())
    }
}

/// Lets pods come back to the node, if a swap has cordoned it. Says whether one had.
///
/// # Errors
/// The API does not take it; it is tried again.
pub fn uncordon(site: &Site, runner: &dyn Runner) -> anyhow::Result<bool> {
    let records = site.records();
    if records.cordon()?.is_none() {
        return Ok(false);
    }
    kubectl(site, runner, &["uncordon", &site.config.node.name])?;
    records.forget_cordon()?;
    Ok(true)
}

fn kubectl(site: &Site, runner: &dyn Runner, arguments: &[&str]) -> anyhow::Result<String> {
    let command = api::kubectl(site.config.address()).args(arguments);
    Ok(String::from_utf8_lossy(&runner.run(&command)?).into_owned())
}
