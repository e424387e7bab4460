//! What a failure of the API means for whoever has called, and the permit of a call as the API's guard.

use std::pin::Pin;

use async_trait::async_trait;
use vsphere::Outcome;

use crate::hypervisor::{Error, ErrorKind, Fence, Result};

/// A call's permit, asked before each request that changes something.
pub(super) struct Asking<'a>(pub(super) &'a dyn Fence);

#[async_trait]
impl vsphere::Fence for Asking<'_> {
    async fn still(&self) -> std::result::Result<(), Box<dyn std::error::Error + Send + Sync>> {
        self.0.still().await.map_err(Into::into)
    }
}

/// A look whose outcome says whether something may still go.
pub(super) type Looked<'l> = Pin<Box<dyn Future<Output = Result<()>> + Send + 'l>>;

/// A call's permit, and a last look at what goes for good: before such a request others may be waited for, for hours, and no version of
/// settings is named in it. The permit is asked last, for what it permits is begun at once; what is to be noted before is noted before the
/// look, so that this is no older than one answer of whoever permits.
pub(super) struct LastLook<'a, 'l> {
    pub(super) permit: &'a dyn Fence,
    /// Made anew before each request.
    pub(super) look: &'a (dyn Fn() -> Looked<'l> + Send + Sync),
}

#[async_trait]
impl vsphere::Fence for LastLook<'_, '_> {
    async fn still(&self) -> std::result::Result<(), Box<dyn std::error::Error + Send + Sync>> {
        self.permit.prepare().await?;
        (self.look)().await?;
        self.permit.still().await.map_err(Into::into)
    }
}

impl From<vsphere::Error> for Error {
    fn from(error: vsphere::Error) -> Self {
        let kind = match error.outcome() {
            Outcome::Transient => ErrorKind::Transient,
            Outcome::Changed => ErrorKind::Changed,
            Outcome::InDoubt => ErrorKind::InDoubt,
            Outcome::Refused => ErrorKind::Refused,
            Outcome::Denied => ErrorKind::Denied,
            Outcome::NotFound => ErrorKind::NotFound,
            Outcome::Stopped => ErrorKind::Fenced,
        };
        match error {
            // The permit's own error, as it is.
            vsphere::Error::Stopped(reason) => match reason.downcast::<Self>() {
                Ok(own) => *own,
                Err(other) => Self::new(kind, anyhow::anyhow!(other)),
            },
            error => Self::new(kind, error),
        }
    }
}

/// The same after a request of the call has made something: that it made nothing is not true any more.
pub(super) fn after_it_began(error: impl Into<Error>) -> Error {
    let error = error.into();
    match error.kind {
        ErrorKind::Fenced => error,
        _ => Error::new(ErrorKind::InDoubt, error.source),
    }
}

/// Something could not be found on the way: nothing was changed.
pub(super) fn looking(error: anyhow::Error) -> Error {
    match error.downcast::<vsphere::Error>() {
        Ok(error) => error.into(),
        Err(error) => Error::refused(format!("{error:#}")),
    }
}

/// A VM is not as it was seen.
pub(super) fn changed(words: String) -> Error {
    Error::new(ErrorKind::Changed, anyhow::anyhow!(words))
}

/// It cannot be now: a person or time may mend it.
pub(super) fn not_now(words: String) -> Error {
    Error::transient(anyhow::anyhow!(words))
}

/// A wish that is not granted stops nothing; who may change nothing more is told.
pub(super) fn granted(wish: Result<()>, what: &str) -> Result<()> {
    match wish {
        Err(Error { kind: ErrorKind::Fenced, source }) => Err(Error { kind: ErrorKind::Fenced, source }),
        Err(error) => {
            log::warn!("vCenter does not take {what}: {error}");
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_permits_own_error_comes_back_as_it_is() {
        for kind in [ErrorKind::Fenced, ErrorKind::Transient, ErrorKind::InDoubt] {
            let own = Error::new(kind, anyhow::anyhow!("somebody else has taken over"));
            let told = Error::from(vsphere::Error::Stopped(own.into()));
            assert_eq!((told.kind, told.to_string().as_str()), (kind, "somebody else has taken over"));
        }
        let other = vsphere::Error::Stopped("of another guard".into());
        assert_eq!(Error::from(other).kind, ErrorKind::Fenced);
    }

    #[test]
    fn what_was_begun_is_in_doubt_unless_somebody_else_may_go_on() {
        for (kind, told) in [
            (ErrorKind::Transient, ErrorKind::InDoubt),
            (ErrorKind::NotFound, ErrorKind::InDoubt),
            (ErrorKind::Fenced, ErrorKind::Fenced),
        ] {
            assert_eq!(after_it_began(Error::new(kind, anyhow::anyhow!("no answer"))).kind, told);
        }
    }
}
