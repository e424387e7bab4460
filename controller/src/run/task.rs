//! A task for one reconcile: what it takes long for holds up nobody, and where it panics it has failed, alone.

use kube::runtime::controller::Action;
use tokio::task::JoinSet;

use crate::context::ReconcileError;

/// Does work in a task of its own, which ends with whoever waits for it.
///
/// # Errors
/// Those of the work; or that it has panicked.
pub async fn alone(
    work: impl Future<Output = Result<Action, ReconcileError>> + Send + 'static,
) -> Result<Action, ReconcileError> {
    // A set ends its tasks when it is dropped.
    let mut task = JoinSet::new();
    task.spawn(work);
    match task.join_next().await {
        Some(Ok(done)) => done,
        Some(Err(error)) => Err(ReconcileError::Other(anyhow::Error::new(error).context("reconciling broke off"))),
        None => Err(ReconcileError::Other(anyhow::anyhow!("reconciling was not begun"))),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_panic_is_a_trouble_of_its_object_alone() {
        assert!(alone(async { Ok(Action::await_change()) }).await.is_ok());
        let trouble = alone(async { panic!("a bug") }).await.unwrap_err();
        assert!(trouble.to_string().starts_with("reconciling broke off"), "{trouble}");
    }

    #[tokio::test]
    async fn work_ends_with_whoever_waits_for_it() {
        let (begun, is_begun) = oneshot::channel();
        let held = Arc::new(());
        let kept = Arc::clone(&held);
        let work = alone(async move {
            let _kept = kept;
            begun.send(()).unwrap();
            std::future::pending().await
        });
        tokio::select! {
            _ = work => panic!("it ends by itself"),
            begun = is_begun => begun.unwrap(),
        }
        while Arc::strong_count(&held) > 1 {
            tokio::task::yield_now().await;
        }
    }
}
