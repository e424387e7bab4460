//! Abandons an upgrade of which nothing can be read, not even its plan. Names what is seen, for the operator.

use std::net::Ipv4Addr;

use anyhow::bail;
use contract::swap::Stage;

use super::abandoned_unread::AbandonedUnread;
use super::act::{held, withdrawn};
use super::deployment::Deployment;
use super::guarded_nodes::GuardedNodes;
use super::nodes::{NodeRequest, Nodes};
use super::notice::Notice;
use super::offline_nodes::OfflineNodes;
use super::preview::UnreadPreview;
use super::reason;
use super::salvage::{self, Damaged, Last};
use crate::cancel::{Cancelled, unless_cancelled};
use crate::engine::{GuardedHypervisor, Reason};
use crate::hypervisor::Vm;
use crate::lease::{Lease, TakeOver};
use crate::nodes::clean;
use crate::timestamp;

/// The state of an upgrade of which nothing can be read.
enum Unread {
    Damaged(Damaged),
    /// A command before this one has ended it.
    Ended(AbandonedUnread),
}

impl Deployment<'_> {
    /// Ends the upgrade whose journal is that of the lease `number`, and of which nothing can be read. Its VMs stay as
    /// they are and are named. Of nodes that answer from one of them, swaps that are prepared are withdrawn. Of a cluster
    /// that calls itself otherwise no node is asked. Where a command before this one has ended it, that end is the answer.
    ///
    /// # Errors
    /// When the journal or its plan can be read, or another lease's is the damaged one. When another command holds the
    /// deployment. When the end cannot be noted: it may then be run again.
    pub async fn abandon_unread(&self, number: u64, over: TakeOver) -> anyhow::Result<AbandonedUnread> {
        if let Unread::Ended(end) = unless_cancelled(&self.cancelled, self.unread(number)).await?? {
            return Ok(end);
        }
        let hold = self.take(over).await?;
        let gone = async {
            // Until now others could end it.
            let damage = match unless_cancelled(&self.cancelled, self.unread(number)).await?? {
                Unread::Damaged(damage) => damage,
                Unread::Ended(end) => return Ok(end),
            };
            let words = format!("asked for by the operator, with a journal of which nothing can be read: {damage}");
            let notes = self.look_at_all(&hold, false).await?;
            for note in &notes {
                self.tell(&Notice::Done { note });
            }
            let reason = Reason::new(reason::ASKED, words);
            let end = AbandonedUnread { at: timestamp::now(), lease: hold.number(), unread: number, reason, notes };
            end.write(&hold).await?;
            Ok(end)
        }
        .await;
        hold.release().await;
        gone
    }

    /// The dry run of [`Self::abandon_unread`]. Nodes are asked for their state only.
    pub async fn preview_unread(&self, number: u64, over: TakeOver) -> anyhow::Result<UnreadPreview> {
        match unless_cancelled(&self.cancelled, self.unread(number)).await?? {
            Unread::Ended(end) => Ok(UnreadPreview::new(number, true, end.notes)),
            Unread::Damaged(_) => {
                unless_cancelled(&self.cancelled, self.may_be_taken(over)).await??;
                let notes = self.look_at_all(&Lease::unacquired(), true).await?;
                Ok(UnreadPreview::new(number, false, notes))
            }
        }
    }

    /// Why nothing can be read of the journal of this lease, or how that upgrade has ended.
    async fn unread(&self, number: u64) -> anyhow::Result<Unread> {
        let damage: Damaged = match salvage::last(self.store).await {
            Ok(Last::Unread(end)) if end.unread == number => return Ok(Unread::Ended(end)),
            Ok(Last::Nothing | Last::Unread(_)) => bail!("there is no upgrade of this deployment"),
            Ok(Last::Entries(_)) => {
                bail!("the journal can be read: the upgrade is named by its identifier; nothing was changed")
            }
            Err(error) => error.downcast()?,
        };
        if let Some(plan) = &damage.plan {
            bail!("{damage}; its plan can be read: the upgrade is {}; nothing was changed", plan.id);
        }
        if damage.hold != number {
            bail!("{damage}; that is lease {}, not {number}; nothing was changed", damage.hold);
        }
        Ok(Unread::Damaged(damage))
    }

    /// Names all VMs and nodes of the deployment, and withdraws prepared swaps. Does nothing if it is asked to end
    /// before. A dry run only names the swaps, and does not wait for earlier requests.
    async fn look_at_all(&self, hold: &Lease<'_>, dry_run: bool) -> Result<Vec<String>, Cancelled> {
        let hypervisor = GuardedHypervisor::new(self.hypervisor, hold, Some(&self.cancelled));
        let unasked = OfflineNodes::of_another_cluster();
        let nodes: &dyn Nodes = if self.other_cluster.is_some() { &unasked } else { self.nodes };
        let nodes = GuardedNodes::new(nodes, hold);
        let mut notes = Vec::new();
        if !dry_run && let Err(error) = hypervisor.settled().await? {
            notes.push(format!("an earlier request may still run: {:#}", error.source));
        }
        let vms = unless_cancelled(&self.cancelled, hypervisor.vms()).await?.unwrap_or_else(|error| {
            notes.push(format!("which VMs there are is not known: {:#}", error.source));
            Vec::new()
        });
        notes.extend(vms.iter().map(seen));
        match unless_cancelled(&self.cancelled, nodes.control_nodes()).await? {
            Ok(all) => {
                for (name, address) in all {
                    if *self.cancelled.borrow() {
                        return Err(Cancelled);
                    }
                    notes.push(format!("{name}: {}", asked(&nodes, &vms, address, dry_run).await));
                }
            }
            Err(error) => notes.push(format!("no node is asked, for where they are is not known: {error:#}")),
        }
        Ok(notes.iter().map(|note| clean(note)).collect())
    }
}

/// A VM as it is, in words.
fn seen(vm: &Vm) -> String {
    let (power, held) = (vm.power, held(vm));
    if held.is_empty() {
        return format!("the VM {vm} is {power} and holds no data disk");
    }
    format!("the VM {vm} is {power} and holds the disk {}: never remove it with that", held.join(", "))
}

/// The state of a node that runs in one of these VMs, and the result for a swap that it has prepared. A node in another
/// VM belongs to another cluster.
async fn asked(nodes: &GuardedNodes<'_>, vms: &[Vm], address: Ipv4Addr, dry_run: bool) -> String {
    let facts = match nodes.facts(address).await {
        Ok(facts) => facts,
        Err(error) => return format!("it does not answer and is not changed: {error:#}"),
    };
    let runs = facts.image.build();
    if !vms.iter().any(|vm| vm.is_named(facts.holder)) {
        return format!("it runs {runs} in no VM of this deployment that is seen, and is asked for nothing");
    }
    let mut told = match facts.swap {
        None => format!("it runs {runs}; no swap of it is open"),
        Some(swap) if swap.stage == Stage::Taken => {
            format!("it runs {runs}; its swap {} stays open, for it is on its new image", swap.id)
        }
        Some(swap) if dry_run => format!("it runs {runs}; its swap {} would be withdrawn", swap.id),
        Some(swap) => {
            let asked = nodes.request(address, NodeRequest::CancelSwap(swap.id)).await;
            format!("it runs {runs}; {}", withdrawn(&format!("its swap {}", swap.id), asked))
        }
    };
    if let Some(evacuation) = facts.evacuation {
        told += &format!("; it was asked to move its work away ({})", evacuation.id);
    }
    told
}

#[cfg(test)]
mod tests;
