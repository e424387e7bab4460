//! Prepares a node for the shutdown of its VM: yield the virtual IP, move etcd's leadership, drain. For a swap it then writes
//! to the disk which image may take it. Each step looks first, so a second run completes the first. A failed or cancelled
//! preparation is undone.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use contract::codes;
use contract::swap::{Losses, Rejection, Stage};

use super::adopt;
use super::context::SwapContext;
use super::evacuate::{Evacuation, uncordon};
use super::preparation_record::Purpose;
use super::quorum;
use crate::cluster::virtual_ip;
use crate::host::command::Runner;
use crate::host::disk::{Identity, Swap};

const POLL: Duration = Duration::from_millis(250);

pub(super) struct PreparationTask<'w> {
    pub(super) context: &'w SwapContext,
    pub(super) purpose: &'w Purpose,
    pub(super) cancelled: &'w AtomicBool,
    pub(super) runner: &'w dyn Runner,
    /// How long etcd may take to be healthy again once the pods have moved. One late answer is no reason to drain again.
    pub(super) settling: Duration,
}

/// Called with each stage, at the end with [`Stage::Prepared`], and with the drain's losses once they are known. Returns
/// whether to continue.
pub(super) type Tell<'t> = &'t mut dyn FnMut(Stage, &Losses) -> anyhow::Result<bool>;

impl PreparationTask<'_> {
    /// Prepares the node. False if it was cancelled. The caller then undoes it, as after an error. A [`Rejection`] has
    /// its own code.
    pub(super) fn run(&self, tell: Tell<'_>) -> anyhow::Result<bool> {
        let Self { context, purpose, cancelled, runner, .. } = *self;
        let id = purpose.id();
        // The others must see it before anything changes: of two nodes that begin at once, one gives way.
        context.announce(|| Some(id)).with_context(|| format!("telling the cluster of {purpose}"))?;
        self.nobody_else()?;
        let leave = Evacuation { context, id, drain_seconds: purpose.drain_seconds(), cancelled, runner };
        let nothing = Losses::default();
        if !tell(Stage::Yielding, &nothing)?
            || !leave.yield_address()?
            || !tell(Stage::MovingLeader, &nothing)?
            || !leave.move_leader()?
            || !tell(Stage::Draining, &nothing)?
        {
            return Ok(false);
        }
        leave.cordon()?;
        let losses = leave.losses()?;
        if !tell(Stage::Draining, &losses)? || !leave.drain()? || !self.quorum_stands()? {
            return Ok(false);
        }
        match purpose {
            Purpose::Swap(request) => {
                let swap = Swap {
                    id,
                    from: context.own.clone(),
                    to: Some(request.to.clone()),
                    released: None,
                    forced: false,
                    publisher: request.publisher.clone(),
                };
                context.set_swap(Some(swap))?;
                let version = &request.to.version;
                context.note(&format!("{purpose} is prepared: a VM of image {version} may take the disk"));
            }
            Purpose::Evacuation(_) => context.note(&format!("{purpose} is done: this VM may be shut down")),
        }
        tell(Stage::Prepared, &losses)
    }

    /// Checks etcd once more, because a drain may have lasted hours. False if it was cancelled in the meantime.
    fn quorum_stands(&self) -> anyhow::Result<bool> {
        let until = Instant::now() + self.settling;
        loop {
            match quorum::look(self.context) {
                Ok(()) => return Ok(true),
                Err(_) if self.cancelled.load(Ordering::SeqCst) => return Ok(false),
                Err(reason) if Instant::now() >= until => {
                    return Err(Rejection::of(&codes::SWAP_QUORUM, reason).into());
                }
                Err(_) => thread::sleep(POLL),
            }
        }
    }

    fn nobody_else(&self) -> anyhow::Result<()> {
        let others = self.context.others_under_way().context("looking for other nodes' swaps")?;
        match others.first() {
            Some(other) => {
                Err(Rejection::of(&codes::SWAP_ANOTHER, format!("{other} is being swapped as well: it goes first"))
                    .into())
            }
            None => Ok(()),
        }
    }

    /// Undoes the preparation of a purpose that is given up, except the announcement. Parts that are undone already
    /// stay so. After an error calling it again continues.
    pub(super) fn undo(context: &SwapContext, runner: &dyn Runner) -> anyhow::Result<()> {
        Self::put_back(context)?;
        uncordon(context, runner).map(drop)
    }

    /// The part of [`PreparationTask::undo`] on this node alone. Maintenance, too, undoes the part in the cluster while
    /// no swap is under way.
    pub(super) fn put_back(context: &SwapContext) -> anyhow::Result<()> {
        virtual_ip::enable(&context.root).context("letting the virtual IP come back")?;
        let Identity { disk, swap, .. } = context.identity()?;
        // If this VM has not taken the disk, the swap on it is not this VM's to withdraw.
        if adopt::is_taken(&context.root, disk) && swap.is_some_and(|swap| swap.from.is(&context.own)) {
            context.set_swap(None)?;
        }
        Ok(())
    }
}
