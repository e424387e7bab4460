//! Prepares a node for the shutdown of its VM: yield the virtual IP, move
//! etcd's leadership, drain, write to the disk who may take it. Each step looks first, so
//! that doing all of it again completes it; what fails or is cancelled is undone.

use std::sync::atomic::AtomicBool;

use anyhow::{Context as _, bail};
use contract::swap::{Request, Stage};
use uuid::Uuid;

use super::adopt;
use super::context::SwapContext;
use super::evacuate::{Evacuation, uncordon};
use crate::cluster::virtual_address;
use crate::host::command::Runner;
use crate::host::disk::Identity;
use crate::host::disk::ownership::Swap;

/// The preparation of one swap.
pub(super) struct Work<'w> {
    pub(super) context: &'w SwapContext,
    pub(super) request: &'w Request,
    pub(super) cancelled: &'w AtomicBool,
    pub(super) runner: &'w dyn Runner,
}

impl Work<'_> {
    /// Prepares the swap. `tell` is told each stage, [`Stage::Prepared`] at the end, and says whether
    /// to go on. False if it was cancelled: everything is as before then.
    ///
    /// # Errors
    /// What failed; it was undone as far as that is possible.
    pub(super) fn run(&self, tell: &mut dyn FnMut(Stage) -> anyhow::Result<bool>) -> anyhow::Result<bool> {
        let done = self.steps(tell);
        match done {
            Ok(true) => Ok(true),
            other => {
                let undone = Self::undo(self.context, self.request.id, self.runner);
                let done = other?;
                undone.map(|()| done)
            }
        }
    }

    fn steps(&self, tell: &mut dyn FnMut(Stage) -> anyhow::Result<bool>) -> anyhow::Result<bool> {
        // The others must see it before anything changes: of two nodes that begin at once one gives way.
        self.context.announcer.tell(Some(self.request.id)).context("telling the cluster of the swap")?;
        self.nobody_else()?;
        let Request { id, to, publisher, drain_seconds, .. } = self.request;
        let Self { context, cancelled, runner, .. } = *self;
        let leave = Evacuation { context, id: *id, drain_seconds: *drain_seconds, cancelled, runner };
        for stage in [Stage::Yielding, Stage::MovingLeader, Stage::Draining] {
            if !tell(stage)? {
                return Ok(false);
            }
            let done = match stage {
                Stage::Yielding => leave.yield_address()?,
                Stage::MovingLeader => leave.move_leader()?,
                _ => leave.drain()?,
            };
            if !done {
                return Ok(false);
            }
        }
        let swap = Swap {
            id: *id,
            from: self.context.own.clone(),
            to: Some(to.clone()),
            released: None,
            forced: false,
            publisher: publisher.clone(),
        };
        self.context.set_swap(Some(swap))?;
        self.context.note(&format!("the swap {id} is prepared: a VM of image {} may take the disk", to.version));
        tell(Stage::Prepared)
    }

    fn nobody_else(&self) -> anyhow::Result<()> {
        let others = self.context.others_under_way().context("looking for other nodes' swaps")?;
        match others.first() {
            Some(other) => bail!("{other} is being swapped as well: it goes first"),
            None => Ok(()),
        }
    }

    /// Undoes what a swap that is not to happen has done; what is undone already stays so.
    ///
    /// # Errors
    /// What could not be undone; doing it again goes on.
    pub(super) fn undo(context: &SwapContext, id: Uuid, runner: &dyn Runner) -> anyhow::Result<()> {
        Self::put_back(context)?;
        uncordon(context, runner)?;
        context.announcer.tell(None).context("telling the cluster that the swap is off")?;
        context.note(&format!("the swap {id} is withdrawn"));
        Ok(())
    }

    /// The part of [`Work::undo`] that is on this node alone. What is in the cluster is undone by
    /// maintenance, too, while no swap is under way.
    ///
    /// # Errors
    /// The file system's or the disk's.
    pub(super) fn put_back(context: &SwapContext) -> anyhow::Result<()> {
        virtual_address::hold_back(&context.root, false).context("letting the virtual IP come back")?;
        let Identity { disk, swap, .. } = context.identity()?;
        // What stood on the disk before this VM took it is not this VM's to withdraw.
        if adopt::is_taken(&context.root, disk) && swap.is_some_and(|swap| swap.from.is(&context.own)) {
            context.set_swap(None)?;
        }
        Ok(())
    }
}
