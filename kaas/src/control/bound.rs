//! The end of a command that reads many things: its time is over, or the operator asks for the end. The parts that were read
//! stay.

use std::fmt;
use std::time::Instant;

use tokio::sync::watch;

/// When the requests of a command end early.
#[derive(Clone, Debug)]
pub struct Bound {
    pub deadline: Instant,
    /// Becomes true when the operator asks for the end.
    pub cancelled: watch::Receiver<bool>,
}

/// Why a request was not sent, or its answer not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Cancelled,
    Late,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cancelled => "not read: the operator has ended the command",
            Self::Late => "not read: the time of the command was over",
        })
    }
}

impl std::error::Error for Ended {}

impl Bound {
    /// Whether requests end now.
    pub(super) fn ended(&self) -> Option<Ended> {
        if *self.cancelled.borrow() {
            return Some(Ended::Cancelled);
        }
        (Instant::now() >= self.deadline).then_some(Ended::Late)
    }

    /// Waits for an answer until the end. After the end, nothing is sent.
    pub(super) async fn wait<T>(&self, asking: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
        let mut cancelled = self.cancelled.clone();
        let asked = async {
            // Without a sender, nothing more is asked for.
            if cancelled.wait_for(|asked| *asked).await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            biased;
            () = asked => Err(Ended::Cancelled.into()),
            () = tokio::time::sleep_until(self.deadline.into()) => Err(Ended::Late.into()),
            answer = asking => answer,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn bound(limit: u64, is_cancelled: bool) -> Bound {
        let (_, cancelled) = watch::channel(is_cancelled);
        Bound { deadline: Instant::now() + Duration::from_secs(limit), cancelled }
    }

    #[tokio::test]
    async fn late_and_cancelled_requests_end() {
        for (bound, expected) in [(bound(3600, true), Ended::Cancelled), (bound(0, false), Ended::Late)] {
            assert_eq!(bound.ended(), Some(expected));
            let silent = bound.wait(std::future::pending::<anyhow::Result<()>>()).await.unwrap_err();
            assert_eq!(silent.downcast_ref::<Ended>(), Some(&expected));
            let mut is_sent = false;
            let sends = async {
                is_sent = true;
                Ok(())
            };
            bound.wait(sends).await.unwrap_err();
            assert!(!is_sent);
        }
        let bound = bound(3600, false);
        assert_eq!(bound.ended(), None);
        assert_eq!(bound.wait(async { Ok(7) }).await.unwrap(), 7);
    }
}
