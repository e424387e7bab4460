//! Why an API server has not done something, or nobody knows whether it has.

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// There is no such object.
    #[error("it is not there")]
    Missing,
    /// There is one of that name already.
    #[error("there is one of that name already")]
    Exists,
    /// It was changed since it was read.
    #[error("it was changed since it was read")]
    Changed,
    /// The API server does not take it.
    #[error("the API server refuses: {0}")]
    Refused(String),
    /// Nobody knows whether it was done.
    #[error("the API server does not answer")]
    Unknown(#[source] anyhow::Error),
    /// This process may change nothing more. What was asked for just before may have been done.
    #[error(transparent)]
    Ended(#[from] crate::term::TermEnded),
}

impl Failure {
    /// The same, for one more who has waited for what failed.
    pub(super) fn again(&self) -> Self {
        match self {
            Self::Missing => Self::Missing,
            Self::Exists => Self::Exists,
            Self::Changed => Self::Changed,
            Self::Refused(words) => Self::Refused(words.clone()),
            Self::Unknown(error) => Self::Unknown(anyhow::anyhow!("{error:#}")),
            Self::Ended(ended) => Self::Ended(*ended),
        }
    }
}
