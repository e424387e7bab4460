//! Requests beside SOAP: files of datastores, under the same session.

use reqwest::RequestBuilder;
use reqwest::header::{COOKIE, HeaderValue};
use url::Url;

use super::Client;
use crate::connection::{Failed, failed};
use crate::error::{Error, Result};
use crate::guard::Fence;

/// No more is read of what is said of a file that was written, in bytes: its status says all.
const SAID: usize = 64 << 10;

/// What becomes of a file.
pub(crate) enum Transfer<'a> {
    /// It is read, at most so many bytes.
    Get(usize),
    /// It is written whole, in place of one that is there.
    Put(Vec<u8>, &'a dyn Fence),
}

impl Client {
    /// Moves a file; returns what was read.
    pub(crate) async fn transfer(&self, url: &Url, transfer: &Transfer<'_>) -> Result<Vec<u8>> {
        let attempt = || match transfer {
            Transfer::Get(_) => format!("reading {}", url.path()),
            Transfer::Put(..) => format!("writing {}", url.path()),
        };
        let mut logins = 0;
        loop {
            let ticket = self.inner.session.ticket(&self.inner.wire).await?;
            let (place, request, most) = match transfer {
                Transfer::Get(most) => {
                    let request = self.http().get(url.clone()).timeout(self.settings().look_limit);
                    (self.inner.wire.any_place().await, request, *most)
                }
                Transfer::Put(bytes, guard) => {
                    let place = self.permitted(*guard).await?;
                    let request = self.http().put(url.clone()).timeout(self.settings().change_limit);
                    (place, request.body(bytes.clone()), SAID)
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
            let (status, read) = match place.hears(moved(request, most)).await {
                Ok(moved) => moved,
                Err(Failed::Unreached(reason)) => return Err(Error::Unreached { attempt: attempt(), reason }),
                Err(Failed::Lost(reason)) => return Err(lost(reason)),
            };
            let words = format!("vCenter answers with HTTP status {status}");
            return match (status, transfer) {
                // What it says of a file that was written is its status.
                (200..=299, Transfer::Put(..)) => Ok(read.unwrap_or_default()),
                (200..=299, Transfer::Get(_)) => read.map_err(lost),
                (401, _) if logins == 0 => {
                    logins += 1;
                    drop(place);
                    self.inner.session.renew(&self.inner.wire, &ticket).await?;
                    continue;
                }
                (404, _) => Err(Error::not_found(attempt(), "there is no such file or directory")),
                // It is refused: nothing was written.
                (400..=499, _) => Err(Error::unanswered(attempt(), words)),
                _ => Err(lost(words)),
            };
        }
    }
}

/// Sends a request; the status, and of a file that is there what is read, at most so many bytes, or why it is not.
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
