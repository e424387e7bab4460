//! Cleanup that the former owner does not wait for, such as ending a lease of a dropped caller. The module knows
//! nothing of the resources.

use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tokio::task::JoinSet;

#[derive(Default)]
pub(super) struct Returns(Mutex<JoinSet<()>>);

impl Returns {
    /// Starts cleanup in the background. Outside a Tokio runtime, nothing is done.
    pub(super) fn begin(&self, work: impl Future<Output = ()> + Send + 'static) {
        if let Ok(runtime) = Handle::try_current() {
            let mut set = self.set();
            while set.try_join_next().is_some() {}
            set.spawn_on(work, &runtime);
        }
    }

    /// Waits until all cleanup is done. If the wait is dropped, the cleanup continues.
    pub(super) async fn done(&self) {
        poll_fn(|context| self.poll(context)).await;
    }

    fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut set = self.set();
        loop {
            match set.poll_join_next(context) {
                Poll::Ready(Some(_)) => {}
                Poll::Ready(None) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn set(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
