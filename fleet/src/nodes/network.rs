//! The thread of a client's connections. A network namespace belongs to a thread: requests from inside one run there, and the
//! rest of the process stays in its own.

use std::fs::File;
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;

use anyhow::Context;
use nix::sched::{CloneFlags, setns};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

/// Ends with its last user.
pub struct Network {
    tasks: Handle,
    /// Dropped with this, it ends the thread.
    _end: oneshot::Sender<()>,
}

impl Network {
    /// Starts the thread, in a namespace if one is given.
    pub fn start(namespace: Option<PathBuf>) -> anyhow::Result<Self> {
        let (end, ended) = oneshot::channel::<()>();
        let (started, starting) = mpsc::channel();
        let work = move || {
            let enter = || -> anyhow::Result<tokio::runtime::Runtime> {
                if let Some(namespace) = &namespace {
                    let file = File::open(namespace).with_context(|| format!("finding the network {namespace:?}"))?;
                    setns(file, CloneFlags::CLONE_NEWNET).with_context(|| format!("entering {namespace:?}"))?;
                }
                Ok(Builder::new_current_thread().enable_all().build()?)
            };
            match enter() {
                Ok(runtime) => {
                    // The thread that started it may have ended already.
                    let _ = started.send(Ok(runtime.handle().clone()));
                    let _ = runtime.block_on(ended);
                }
                Err(error) => {
                    let _ = started.send(Err(error));
                }
            }
        };
        thread::Builder::new().name("https".to_owned()).spawn(work).context("starting a thread for connections")?;
        let tasks = starting.recv().context("the thread for connections has ended")??;
        Ok(Self { tasks, _end: end })
    }

    /// Runs work on the thread. If the caller stops waiting, the work ends.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = anyhow::Result<T>> + Send + 'static,
    ) -> anyhow::Result<T> {
        let mut tasks = JoinSet::new();
        tasks.spawn_on(work, &self.tasks);
        tasks.join_next().await.context("a task")?.context("the thread for connections has ended")?
    }

    /// Waits for work that its caller has begun.
    pub fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        self.tasks.block_on(work)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn work_ends_if_its_caller_stops_waiting() {
        let network = Network::start(None).unwrap();
        let (holding, mut dropped) = oneshot::channel::<()>();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let waited = runtime.block_on(async {
            let work = network.run(async move {
                let _holding = holding;
                std::future::pending::<anyhow::Result<()>>().await
            });
            tokio::time::timeout(Duration::from_millis(50), work).await.is_err()
        });
        assert!(waited);
        let ended = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(5), &mut dropped).await });
        assert!(ended.is_ok_and(|holder| holder.is_err()), "the work goes on");
    }
}
