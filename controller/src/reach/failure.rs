//! Errors of calls to an API server.

#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error("it does not exist")]
    Missing,
    #[error("there is one of that name already")]
    Exists,
    #[error("it was changed since it was read")]
    Changed,
    #[error("the API server refuses: {0}")]
    Refused(String),
    /// The call may have been done.
    #[error("the API server does not answer")]
    Unknown(#[source] anyhow::Error),
    /// An object does not have the form of its kind, so its content is unknown. It exists.
    #[error("{words}")]
    Unreadable { namespace: Option<String>, words: String },
    /// The term has ended, so this process makes no further change. The call itself may have been done.
    #[error(transparent)]
    Ended(#[from] crate::term::TermEnded),
}

impl Failure {
    /// A copy of the error, for another caller that waited for the same call.
    pub(super) fn again(&self) -> Self {
        match self {
            Self::Missing => Self::Missing,
            Self::Exists => Self::Exists,
            Self::Changed => Self::Changed,
            Self::Refused(words) => Self::Refused(words.clone()),
            Self::Unknown(error) => Self::Unknown(anyhow::anyhow!("{error:#}")),
            Self::Unreadable { namespace, words } => {
                Self::Unreadable { namespace: namespace.clone(), words: words.clone() }
            }
            Self::Ended(ended) => Self::Ended(*ended),
        }
    }
}
