//! Why a step is not done.

use std::time::Duration;

use contract::finding::{Finding, Findings};

/// Why a step is not done, which decides how it goes on.
#[derive(Debug)]
pub enum StepError {
    /// Nothing is wrong here: something outside of the step has to happen
    /// first. Looked for again soon.
    Waiting(String),
    /// A person must mend something. Tried again now and then.
    Refused(Findings),
    /// Something failed. Tried again, less and less often.
    Failed(anyhow::Error),
}

impl StepError {
    /// How long to wait before the step is tried for the `attempt`th time again.
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
    fn failures_are_tried_less_and_less_often_but_never_given_up() {
        let failed = StepError::Failed(anyhow::anyhow!("no"));
        assert_eq!(failed.pause(0), Duration::from_secs(1));
        assert_eq!(failed.pause(3), Duration::from_secs(8));
        assert_eq!(failed.pause(1000), Duration::from_secs(32));
        assert!(StepError::Waiting(String::new()).pause(1000) <= Duration::from_secs(2));
    }
}
