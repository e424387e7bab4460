//! Requests that are not SOAP: files of datastores, with the same session.

use reqwest::RequestBuilder;
use reqwest::header::{COOKIE, HeaderValue};
use url::Url;

use super::Client;
use crate::connection::{Failed, failed};
use crate::error::{Error, Result};
use crate::guard::Fence;

/// The most bytes that are read of the answer to a written file. The status alone decides.
const SAID: usize = 64 << 10;

/// The action on a file.
pub(crate) enum Transfer<'a> {
    /// Reads it, at most this number of bytes.
    Get(usize),
    /// Writes the whole file, and replaces an existing one.
    Put(Vec<u8>, &'a dyn Fence),
}

impl Client {
    /// Reads or writes a file. Returns the bytes that were read.
    pub(crate) async fn transfer(&self, url: &Url, transfer: &Transfer<'_>) -> Result<Vec<u8>> {
        let attempt = || match transfer {
            Transfer::Get(_) => format!("reading {}", url.path()),
            Transfer::Put(..) => format!("writing {}", url.path()),
        };
        let mut logins = 0;
        loop {
            let ticket = self.inner.session.ticket(&self.inner.wire).await?;
            let (slot, request, most) = match transfer {
                Transfer::Get(most) => {
                    let request = self.http().get(url.clone()).timeout(self.settings().look_limit);
                    (self.inner.wire.any_slot().await, request, *most)
                }
                Transfer::Put(bytes, guard) => {
                    let slot = self.permitted(*guard).await?;
                    let request = self.http().put(url.clone()).timeout(self.settings().change_limit);
                    (slot, request.body(bytes.clone()), SAID)
                }
            };
            let cookie = ticket.cookie.as_deref().and_then(|cookie| HeaderValue::from_str(cookie).ok());
            let request = match cookie {
                Some(cookie) => request.header(COOKIE, cookie),
                None => request,
            };
            let lost = |reason: String| match transfer {
                Transfer::Get(_) => Error::unanswered(attempt(), reason),
                Transfer::Put(..) => Error::in_doubt(attempt(), reason),
            };
            let (status, read) = match slot.hears(moved(request, most)).await {
                Ok(moved) => moved,
                Err(Failed::Unreached(reason)) => return Err(Error::Unreached { attempt: attempt(), reason }),
                Err(Failed::Lost(reason)) => return Err(lost(reason)),
            };
            let words = format!("vCenter answers with HTTP status {status}");
            return match (status, transfer) {
                // The status decides about a written file.
                (200..=299, Transfer::Put(..)) => Ok(read.unwrap_or_default()),
                (200..=299, Transfer::Get(_)) => read.map_err(lost),
                (401, _) if logins == 0 => {
                    logins += 1;
                    drop(slot);
                    self.inner.session.renew(&self.inner.wire, &ticket).await?;
                    continue;
                }
                (404, _) => Err(Error::not_found(attempt(), "there is no such file or directory")),
                // The request was rejected, so nothing was written.
                (400..=499, _) => Err(Error::unanswered(attempt(), words)),
                _ => Err(lost(words)),
            };
        }
    }
}

/// Sends a request. Returns the status, and the content of an existing file (at most `most` bytes) or the reason why it
/// was not read.
async fn moved(
    request: RequestBuilder,
    most: usize,
) -> std::result::Result<(u16, std::result::Result<Vec<u8>, String>), Failed> {
    let mut answer = request.send().await.map_err(failed)?;
    let status = answer.status();
    let mut read = Vec::new();
    while status.is_success() {
        match answer.chunk().await {
            Ok(Some(part)) if read.len() + part.len() > most => {
                return Ok((status.as_u16(), Err(format!("it is longer than {most} bytes"))));
            }
            Ok(Some(part)) => read.extend_from_slice(&part),
            Ok(None) => break,
            Err(error) => return Ok((status.as_u16(), Err(error.without_url().to_string()))),
        }
    }
    Ok((status.as_u16(), Ok(read)))
}
