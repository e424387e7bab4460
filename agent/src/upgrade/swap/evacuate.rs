//! How a node leaves its work to the others for a while: virtual IP, etcd's leadership, pods. Each part looks first, so a
//! second call completes the first. A part ends early, with `false`, when the purpose was cancelled.

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use contract::codes::{self, Code};
use contract::swap::{Losses, Rejection};
use uuid::Uuid;

use super::context::SwapContext;
use crate::cluster::etcd::client::EtcdClient;
use crate::cluster::kubernetes::api::{self, Api};
use crate::cluster::kubernetes::pods::{self, DrainBlockers};
use crate::cluster::records::Cordon;
use crate::cluster::virtual_ip;
use crate::host::command::Runner;

/// How long the virtual IP and the leadership may take to move, times the timeout factor.
const MOVING: Duration = Duration::from_secs(20);
/// How long a member may take to answer, times the timeout factor.
const ASKING: Duration = Duration::from_secs(5);
/// How long kubectl drains before the next check for a cancellation.
const TURN: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(250);

pub struct Evacuation<'l> {
    pub context: &'l SwapContext,
    /// The identifier of the swap or evacuation, recorded with the cordon.
    pub id: Uuid,
    /// How long a drain may take, in seconds.
    pub drain_seconds: u64,
    pub cancelled: &'l AtomicBool,
    pub runner: &'l dyn Runner,
}

impl Evacuation<'_> {
    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::SeqCst)
    }

    /// Waits until a condition holds. False if it was cancelled in the meantime.
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

    /// Gives the virtual IP to another node, until [`virtual_ip::enable`] or a restart of the VM.
    pub fn yield_address(&self) -> anyhow::Result<bool> {
        let config = &self.context.config;
        let Some(address) = config.cluster.virtual_address else { return Ok(true) };
        if config.peers().next().is_none() {
            return Ok(true);
        }
        virtual_ip::disable(&self.context.root, address).context("yielding the virtual IP")?;
        let limit = config.timeout(MOVING);
        self.until(&format!("this node still holds {address}"), limit, || virtual_ip::is_released(address))
    }

    /// Moves etcd's leadership to another member.
    pub fn move_leader(&self) -> anyhow::Result<bool> {
        let config = &self.context.config;
        let ask = |node| EtcdClient::new(node, &self.context.pki, config.timeout(ASKING));
        let own = ask(&self.context.announcer.node)?;
        if config.peers().next().is_none() || !own.status()?.is_leader() {
            return Ok(true);
        }
        // The member that has applied most needs the least time to catch up.
        let candidates = config.peers().filter_map(|peer| {
            let status = ask(peer).and_then(|etcd| etcd.status()).ok()?;
            (!status.is_learner && status.has_leader()).then_some((status.raft_applied_index, status.header.member_id))
        });
        let (_, next) = candidates.max().context("no other member can take etcd's leadership")?;
        own.move_leader(next)?;
        let follows = || own.status().is_ok_and(|status| status.has_leader() && !status.is_leader());
        self.until("this node still leads etcd", config.timeout(MOVING), follows)
    }

    /// Keeps new pods away. Records first that this agent cordoned the node.
    pub fn cordon(&self) -> anyhow::Result<()> {
        let (context, node) = (self.context, &self.context.config.node.name);
        let _turn = context.announcement_lock.take();
        let records = context.records();
        let noted = records.entry::<Cordon>()?;
        let mut ours = noted.is_some();
        if !ours {
            let said = self.kubectl(&["get", "node", node, "--output=jsonpath={.spec.unschedulable}"])?;
            // If the operator cordoned the node before, the operator uncordons it.
            ours = said.trim() != "true";
        }
        if ours {
            let cordon = Cordon { swap: self.id };
            if noted != Some(cordon) {
                records.begin_entry(&cordon)?;
            }
            self.kubectl(&["cordon", node])?;
        }
        Ok(())
    }

    /// The pods and data that [`Evacuation::drain`] will delete for good, once the node is cordoned. They are recorded on the
    /// data disk.
    pub fn losses(&self) -> anyhow::Result<Losses> {
        let (config, node) = (&self.context.config, &self.context.config.node.name);
        let until = Instant::now() + config.timeout(MOVING);
        let pods = loop {
            match self.api().and_then(|api| api.pods_to_move(node)) {
                Ok(pods) => break pods,
                // One slow answer is no reason to give up.
                Err(error) if self.is_cancelled() || Instant::now() >= until => return Err(error),
                Err(error) => log::info!("{error:#}"),
            }
            thread::sleep(POLL);
        };
        let losses = pods::losses(&pods);
        if !losses.is_empty() {
            self.context.note(&format!("{node} is drained: {losses}"));
        }
        Ok(losses)
    }

    /// Evicts the pods. Pods that no controller recreates are deleted; [`Evacuation::losses`] names them before. If
    /// pods remain, a [`Rejection`] names them, the reason, and whether a disruption budget blocks them.
    pub fn drain(&self) -> anyhow::Result<bool> {
        let node = &self.context.config.node.name;
        let until = Instant::now() + Duration::from_secs(self.drain_seconds);
        loop {
            let turn = TURN.min(until.saturating_duration_since(Instant::now())).max(Duration::from_secs(1));
            let timeout = format!("--timeout={}s", turn.as_secs().max(1));
            let drain = ["drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", &timeout];
            match self.kubectl(&drain) {
                Ok(_) => return Ok(true),
                Err(_) if self.is_cancelled() => return Ok(false),
                Err(error) if Instant::now() >= until => return Err(self.why_not_drained(error)),
                Err(error) => log::info!("draining {node}: {error:#}"),
            }
            if self.is_cancelled() {
                return Ok(false);
            }
            thread::sleep(POLL);
        }
    }

    /// The reason why pods remain, from the API server. kubectl's own `error` if the API server gives none.
    fn why_not_drained(&self, error: anyhow::Error) -> anyhow::Error {
        let (node, seconds) = (&self.context.config.node.name, self.drain_seconds);
        let ask = |api: Api| api.drain_blockers(&api.pods_to_move(node)?);
        let stay = self.api().and_then(ask).unwrap_or_else(|unknown| {
            log::warn!("which pods stay on {node} cannot be known: {unknown:#}");
            DrainBlockers::default()
        });
        let refused = match stay {
            DrainBlockers { blocked, .. } if !blocked.is_empty() => Rejection::of(
                &codes::DRAIN_BLOCKED,
                format!("draining {node}: these pods may not be evicted after {seconds} s: {}", blocked.join(", ")),
            ),
            DrainBlockers { ending, .. } if !ending.is_empty() => Rejection::of(
                &codes::DRAIN_UNFINISHED,
                format!("draining {node}: these pods have not ended after {seconds} s: {}", ending.join(", ")),
            ),
            _ => return error.context(format!("draining {node}: it did not end within {seconds} s")),
        };
        refused.into()
    }

    fn api(&self) -> anyhow::Result<Api> {
        let config = &self.context.config;
        Api::as_administrator(config.address(), &self.context.root, config.timeout(ASKING))
    }

    fn kubectl(&self, arguments: &[&str]) -> anyhow::Result<String> {
        kubectl(self.context, self.runner, arguments)
    }
}

/// Uncordons the node if a swap has cordoned it. Returns whether one had. After an error maintenance tries again.
pub fn uncordon(context: &SwapContext, runner: &dyn Runner) -> anyhow::Result<bool> {
    uncordon_unless(context, runner, || false)
}

/// As [`uncordon`], unless the node `leaves` its work again. That is checked under the lock.
pub fn uncordon_unless(
    context: &SwapContext,
    runner: &dyn Runner,
    leaves: impl FnOnce() -> bool,
) -> anyhow::Result<bool> {
    let _turn = context.announcement_lock.take();
    let records = context.records();
    if leaves() || records.entry::<Cordon>()?.is_none() {
        return Ok(false);
    }
    kubectl(context, runner, &["uncordon", &context.config.node.name])?;
    records.forget::<Cordon>()?;
    Ok(true)
}

/// The reason of a failure. The code is that of a [`Rejection`] in the error, or else `otherwise`.
pub fn failure(error: &anyhow::Error, otherwise: &Code) -> Rejection {
    let refused = |cause: &(dyn Error + 'static)| cause.downcast_ref::<Rejection>().cloned();
    let words: Vec<String> =
        error.chain().map(|cause| refused(cause).map_or_else(|| cause.to_string(), |refused| refused.reason)).collect();
    let code = error.chain().find_map(refused).map_or_else(|| otherwise.code.to_owned(), |refused| refused.code);
    Rejection { code, reason: words.join(": ") }
}

fn kubectl(context: &SwapContext, runner: &dyn Runner, arguments: &[&str]) -> anyhow::Result<String> {
    let command = api::kubectl(context.config.address()).args(arguments);
    Ok(String::from_utf8_lossy(&runner.run(&command)?).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_has_the_code_of_its_cause() {
        let plain = anyhow::anyhow!("no route").context("asking");
        assert_eq!(failure(&plain, &codes::SWAP_FAILED).to_string(), "asking: no route [swap.failed]");
        let blocked = anyhow::Error::from(Rejection::of(&codes::DRAIN_BLOCKED, "web/a stays")).context("leaving");
        assert_eq!(failure(&blocked, &codes::SWAP_FAILED).to_string(), "leaving: web/a stays [drain.blocked]");
    }
}
