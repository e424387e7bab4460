//! Converts failures of the API for the caller. A call's permit is the API's fence.

use std::pin::Pin;

use async_trait::async_trait;
use vsphere::Outcome;

use crate::hypervisor::{Error, ErrorKind, Fence, Result};

/// A call's permit, asked before each request that changes something.
#[async_trait]
impl<'a> vsphere::Fence for &'a (dyn Fence + 'a) {
    async fn still(&self) -> std::result::Result<(), Box<dyn std::error::Error + Send + Sync>> {
        Fence::still(*self).await.map_err(Into::into)
    }
}

/// A look whose result says whether an object may still be deleted.
pub(super) type Looked<'l> = Pin<Box<dyn Future<Output = Result<()>> + Send + 'l>>;

/// A call's permit with a last look at an object that is deleted for good. Such a request may wait for others, for
/// hours, and it names no version of the settings. The permit is asked last, because the permitted request begins at
/// once. Notes are written before the look, so that the look is no older than one answer of the permit.
pub(super) struct LastLook<'a, 'l> {
    pub(super) permit: &'a dyn Fence,
    /// Called before each request.
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
            // The permit's own error, unchanged.
            vsphere::Error::Stopped(reason) => match reason.downcast::<Self>() {
                Ok(own) => *own,
                Err(other) => Self::new(kind, anyhow::anyhow!(other)),
            },
            error => Self::new(kind, error),
        }
    }
}

/// An error after a request of the call has created something: "nothing happened" is no longer true.
pub(super) fn after_it_began(error: impl Into<Error>) -> Error {
    let error = error.into();
    match error.kind {
        ErrorKind::Fenced => error,
        _ => Error::new(ErrorKind::InDoubt, error.source),
    }
}

/// A lookup failed: nothing was changed.
pub(super) fn looking(error: anyhow::Error) -> Error {
    match error.downcast::<vsphere::Error>() {
        Ok(error) => error.into(),
        Err(error) => Error::refused(format!("{error:#}")),
    }
}

/// A VM has changed since it was read.
pub(super) fn changed(words: String) -> Error {
    Error::new(ErrorKind::Changed, anyhow::anyhow!(words))
}

/// It is not possible now: time or the operator may change that.
pub(super) fn not_now(words: String) -> Error {
    Error::transient(anyhow::anyhow!(words))
}

/// Logs that an optional setting was refused, and continues. [`ErrorKind::Fenced`] is returned.
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
    fn error_of_the_permit_is_returned_unchanged() {
        for kind in [ErrorKind::Fenced, ErrorKind::Transient, ErrorKind::InDoubt] {
            let own = Error::new(kind, anyhow::anyhow!("another command has taken over"));
            let told = Error::from(vsphere::Error::Stopped(own.into()));
            assert_eq!((told.kind, told.to_string().as_str()), (kind, "another command has taken over"));
        }
        let other = vsphere::Error::Stopped("of another guard".into());
        assert_eq!(Error::from(other).kind, ErrorKind::Fenced);
    }

    #[test]
    fn begun_call_is_in_doubt_unless_fenced() {
        for (kind, told) in [
            (ErrorKind::Transient, ErrorKind::InDoubt),
            (ErrorKind::NotFound, ErrorKind::InDoubt),
            (ErrorKind::Fenced, ErrorKind::Fenced),
        ] {
            assert_eq!(after_it_began(Error::new(kind, anyhow::anyhow!("no answer"))).kind, told);
        }
    }
}
