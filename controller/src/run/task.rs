//! A task for one reconcile. A long one does not delay others, and a panic fails this one only.

use kube::runtime::controller::Action;
use tokio::task::JoinSet;

use crate::context::ReconcileError;

/// Runs work in a separate task, which ends when the future is dropped.
pub async fn alone(
    work: impl Future<Output = Result<Action, ReconcileError>> + Send + 'static,
) -> Result<Action, ReconcileError> {
    // A set aborts its tasks when it is dropped.
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
    async fn a_panic_fails_its_object_only() {
        assert!(alone(async { Ok(Action::await_change()) }).await.is_ok());
        let trouble = alone(async { panic!("a bug") }).await.unwrap_err();
        assert!(trouble.to_string().starts_with("reconciling broke off"), "{trouble}");
    }

    #[tokio::test]
    async fn work_ends_when_its_future_is_dropped() {
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
