//! The one lock for the whole of an upgrade: a Lease that the cluster keeps. It is
//! renewed while a command is at work; another machine may take it over once it has
//! expired, and the one that had it then stops.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};

use super::lease::Lease;
use super::nodes::Nodes;

/// For how long the lock holds without being renewed.
const DURATION: Duration = Duration::from_secs(60);

/// Takes the lock, or renews it if it is ours. One that has expired is
/// watched for `watch` first: its holder's clock may be behind.
///
/// # Errors
/// When somebody else holds it, or the API does not answer.
pub fn take(nodes: &dyn Nodes, identity: &str, watch: Duration) -> anyhow::Result<()> {
    take_watching(nodes, identity, || thread::sleep(watch))
}

/// As [`take`], with what lets time pass between the two looks at a lock that has expired.
fn take_watching(nodes: &dyn Nodes, identity: &str, watch: impl FnOnce()) -> anyhow::Result<()> {
    let lease = nodes.lease().context("looking at the cluster's lock for upgrades")?;
    let version = match lease {
        None => None,
        Some(lease) => {
            if let Some(holder) = lease.holder.as_deref().filter(|holder| *holder != identity) {
                refuse_if_held(&lease, holder)?;
                watch();
                let again = nodes.lease()?.context("the lock vanished")?;
                if again != lease {
                    bail!("another command, {holder}, is at work on this cluster's upgrade; its clock may be wrong");
                }
            }
            lease.version
        }
    };
    write(nodes, Some(identity), version).context("taking the cluster's lock for upgrades")
}

fn refuse_if_held(lease: &Lease, holder: &str) -> anyhow::Result<()> {
    let now = SystemTime::now();
    if lease.is_held(now) {
        let left = (lease.renewed + lease.duration).duration_since(now).unwrap_or_default().as_secs();
        bail!(
            "another command, {holder}, is at work on this cluster's upgrade; if it was killed, its lock ends in {left} s"
        );
    }
    Ok(())
}

fn write(nodes: &dyn Nodes, holder: Option<&str>, version: Option<String>) -> anyhow::Result<()> {
    let holder = holder.map(str::to_owned);
    nodes.write_lease(&Lease { holder, duration: DURATION, renewed: SystemTime::now(), version })
}

/// Renews the lock, or says that it is somebody else's now.
fn renew(nodes: &dyn Nodes, identity: &str) -> anyhow::Result<Option<String>> {
    let lease = nodes.lease()?;
    let holder = lease.as_ref().and_then(|lease| lease.holder.clone());
    if let Some(other) = holder.filter(|holder| holder != identity) {
        return Ok(Some(other));
    }
    write(nodes, Some(identity), lease.and_then(|lease| lease.version))?;
    Ok(None)
}

/// Keeps the lock renewed while a command is at work. That the API does not answer for
/// a while is no loss: nobody else can take the lock then either.
pub struct Keeper<'scope> {
    lost: Arc<Mutex<Option<String>>>,
    stop: Sender<()>,
    thread: ScopedJoinHandle<'scope, ()>,
}

impl<'scope> Keeper<'scope> {
    /// Begins to renew, every `interval`.
    ///
    /// # Errors
    /// When there can be no thread for it.
    pub fn start<'env>(
        scope: &'scope Scope<'scope, 'env>,
        nodes: &'env dyn Nodes,
        identity: String,
        interval: Duration,
    ) -> anyhow::Result<Self> {
        let lost = Arc::new(Mutex::new(None));
        let (stop, stopped) = mpsc::channel();
        let noted = Arc::clone(&lost);
        let keep = move || {
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(interval) {
                if let Ok(Some(other)) = renew(nodes, &identity) {
                    *noted.lock().unwrap_or_else(PoisonError::into_inner) = Some(other);
                    return;
                }
            }
            // Others need not wait for the end of the lock then; if the API does not answer, they do.
            if let Ok(Some(lease)) = nodes.lease()
                && lease.holder.as_deref() == Some(&*identity)
            {
                let _ = write(nodes, None, lease.version);
            }
        };
        let thread = thread::Builder::new().name("lock".to_owned()).spawn_scoped(scope, keep)?;
        Ok(Self { lost, stop, thread })
    }

    /// Checks that nobody has taken the lock over.
    ///
    /// # Errors
    /// When somebody has: nothing more may be done then.
    pub fn check(&self) -> anyhow::Result<()> {
        match &*self.lost.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(other) => bail!("{other} has taken this upgrade over; nothing more is done here"),
            None => Ok(()),
        }
    }

    /// Gives the lock back.
    pub fn end(self) {
        drop(self.stop);
        // It holds nothing that could panic; the lock ends by itself.
        let _ = self.thread.join();
    }
}

#[cfg(test)]
#[path = "tests/lock.rs"]
mod tests;
