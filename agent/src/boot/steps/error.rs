use std::time::Duration;

use contract::finding::{Finding, Findings};

/// Why a step has not succeeded. The reason decides when it is tried again.
#[derive(Debug)]
pub enum StepError {
    /// No error: an event outside of the step must happen first. Checked again soon.
    Waiting(String),
    /// The operator must fix a problem. Tried again every 30 seconds.
    Refused(Findings),
    /// A failure. Tried again at growing intervals.
    Failed(anyhow::Error),
}

impl StepError {
    /// The pause before retry number `attempt`, counted from 0.
    pub fn pause(&self, attempt: u32) -> Duration {
        match self {
            Self::Waiting(_) => Duration::from_millis(if attempt < 20 { 500 } else { 2000 }),
            Self::Refused(_) => Duration::from_secs(30),
            Self::Failed(_) => Duration::from_secs(1 << attempt.min(5)),
        }
    }
}

impl From<anyhow::Error> for StepError {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(error)
    }
}

impl From<std::io::Error> for StepError {
    fn from(error: std::io::Error) -> Self {
        Self::Failed(error.into())
    }
}

impl From<crate::cluster::pki::Error> for StepError {
    fn from(error: crate::cluster::pki::Error) -> Self {
        Self::Failed(error.into())
    }
}

impl From<Finding> for StepError {
    fn from(finding: Finding) -> Self {
        Self::Refused(finding.into())
    }
}

impl From<Findings> for StepError {
    fn from(findings: Findings) -> Self {
        Self::Refused(findings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_retried_forever_at_growing_intervals() {
        let failed = StepError::Failed(anyhow::anyhow!("no"));
        assert_eq!(failed.pause(0), Duration::from_secs(1));
        assert_eq!(failed.pause(3), Duration::from_secs(8));
        assert_eq!(failed.pause(1000), Duration::from_secs(32));
        assert!(StepError::Waiting(String::new()).pause(1000) <= Duration::from_secs(2));
    }
}
