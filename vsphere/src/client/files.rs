//! Requests beside SOAP: files of datastores, under the same session.

use reqwest::header::{COOKIE, HeaderValue};
use url::Url;

use super::Client;
use crate::connection::{Failed, failed};
use crate::error::{Error, Result};
use crate::guard::Guard;

/// What becomes of a file.
pub(crate) enum Transfer<'a> {
    /// It is read, at most so many bytes.
    Get(usize),
    /// It is written whole, in place of one that is there.
    Put(Vec<u8>, &'a dyn Guard),
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
            let (_slot, request) = match transfer {
                Transfer::Get(_) => {
                    (self.inner.wire.any_slot().await, self.http().get(url.clone()).timeout(self.settings().look_limit))
                }
                Transfer::Put(bytes, guard) => (
                    self.permitted(*guard).await?,
                    self.http().put(url.clone()).timeout(self.settings().change_limit).body(bytes.clone()),
                ),
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
            let mut answer = match request.send().await.map_err(failed) {
                Ok(answer) => answer,
                Err(Failed::Unreached(reason)) => return Err(Error::Unreached { attempt: attempt(), reason }),
                Err(Failed::Lost(reason)) => return Err(lost(reason)),
            };
            let words = |status: u16| format!("vCenter answers with HTTP status {status}");
            match answer.status().as_u16() {
                200..=299 => {}
                401 if logins == 0 => {
                    logins += 1;
                    drop(_slot);
                    self.inner.session.renew(&self.inner.wire, &ticket).await?;
                    continue;
                }
                404 => return Err(Error::not_found(attempt(), "there is no such file or directory")),
                // It is refused: nothing was written.
                status @ 400..=499 => return Err(Error::unanswered(attempt(), words(status))),
                status => return Err(lost(words(status))),
            }
            let most = match transfer {
                Transfer::Get(most) => *most,
                Transfer::Put(..) => usize::MAX,
            };
            let mut read = Vec::new();
            loop {
                match answer.chunk().await {
                    Ok(Some(part)) if read.len() + part.len() > most => {
                        return Err(Error::unanswered(attempt(), format!("it is longer than {most} bytes")));
                    }
                    Ok(Some(part)) => read.extend_from_slice(&part),
                    Ok(None) => return Ok(read),
                    // What it said of a file that was written was its status.
                    Err(_) if matches!(transfer, Transfer::Put(..)) => return Ok(read),
                    Err(error) => return Err(lost(error.without_url().to_string())),
                }
            }
        }
    }
}
