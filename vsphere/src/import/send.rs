//! Sends an OVA's files to the target host.

use std::io::Read;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use aws_lc_rs::digest::{Context as Hasher, SHA256};
use futures_core::Stream;
use reqwest::Body;
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE};
use tokio::sync::mpsc;
use url::Url;

use super::lease::{Lease, Target};
use super::package::Package;
use super::plan::{Plan, Wanted};
use crate::changes::{Changes, Sent};
use crate::connection::{Failed, Pin as CertificatePin, failed, upload_client};
use crate::error::{Error, Result};
use crate::method::LEASE_PROGRESS;
use crate::reference::MoRef;
use crate::soap::Element;

/// The size in bytes of the pieces that are read and sent.
const PIECE: usize = 256 << 10;
/// The number of pieces that wait to be sent.
const AHEAD: usize = 4;
const CHANGED: &str = "it is not what the manifest says: the OVA was changed or is damaged";
/// The interval in which the guard is asked.
const ASKED: Duration = Duration::from_secs(2);

impl Changes<'_> {
    /// Sends all files of a plan while the lease is kept alive. Returns the VM. The guard is asked before each file and
    /// during the upload.
    pub(super) async fn fill(&self, lease: &Lease, plan: &Plan, package: &Arc<Package>) -> Result<MoRef> {
        let ready = lease.ready(plan).await?;
        let sent = Arc::new(AtomicU64::new(0));
        let total = plan.files.iter().map(|file| file.size).sum::<u64>();
        let sending = async {
            for (file, target) in plan.files.iter().zip(&ready.targets) {
                self.guard.still().await.map_err(Error::Stopped)?;
                self.send(file, target, package, &sent).await?;
            }
            Ok::<(), Error>(())
        };
        // In parallel, so that a vCenter without answers and a slow guard do not delay each other.
        tokio::select! {
            sent = sending => sent?,
            error = self.watch(&sent, total) => return Err(error),
            error = self.keep(lease, &sent, total) => return Err(error),
        }
        if let Some(upload) = self.upload {
            upload(Sent { bytes: total, total });
        }
        Ok(ready.vm)
    }

    /// Asks the guard, and checks that bytes are sent. Returns the first error.
    async fn watch(&self, sent: &AtomicU64, total: u64) -> Error {
        let settings = self.client.settings();
        let (mut moved, mut last) = (Instant::now(), 0);
        loop {
            tokio::time::sleep(ASKED.min(settings.lease_interval)).await;
            if let Err(reason) = self.guard.still().await {
                return Error::Stopped(reason);
            }
            let now = sent.load(Ordering::Relaxed);
            // All bytes are reported at the end.
            if let Some(upload) = self.upload.filter(|_| now < total) {
                upload(Sent { bytes: now, total });
            }
            if now != last {
                (moved, last) = (Instant::now(), now);
            } else if moved.elapsed() >= settings.stall {
                let reason =
                    format!("nothing was taken for {} s, after {now} of {total} bytes", settings.stall.as_secs());
                return Error::unanswered("uploading disks", reason);
            }
        }
    }

    /// Keeps a lease alive. Returns when it has ended. Calls follow one another, even if vCenter does not answer: each
    /// keeps its slot until its answer, and the lease lasts minutes.
    async fn keep(&self, lease: &Lease, sent: &AtomicU64, total: u64) -> Error {
        let lease = match lease.reference() {
            Ok(lease) => lease,
            Err(error) => return error,
        };
        loop {
            tokio::time::sleep(self.client.settings().lease_interval).await;
            // 100 would mean that the upload has ended.
            let percent = Sent { bytes: sent.load(Ordering::Relaxed), total }.percent().min(99);
            let said = self.client.call(LEASE_PROGRESS, lease, vec![Element::text("percent", percent)]).await;
            match said {
                Err(error @ Error::Fault { .. }) => return error,
                // The next call may arrive.
                Err(error) => log::debug!("telling the progress of an import: {error}"),
                Ok(_) => {}
            }
        }
    }

    async fn send(&self, file: &Wanted, target: &Target, package: &Arc<Package>, sent: &Arc<AtomicU64>) -> Result<()> {
        let server = self.client.server();
        let url = place(&target.url, server)
            .map_err(|reason| Error::unanswered(format!("uploading {}", file.name), reason))?;
        let attempt = || format!("uploading {} to {}", file.name, url.host_str().unwrap_or_default());
        let http = match CertificatePin::parse(&target.thumbprint) {
            Some(pin) if url.scheme() == "https" => upload_client(pin)?,
            _ => self.client.uploads().clone(),
        };
        let damaged = Arc::new(OnceLock::new());
        let body = Body::wrap_stream(pieces(file.clone(), package.clone(), sent.clone(), damaged.clone()));
        // Disks are filled, other files are created (as in ovftool).
        let request = if file.is_made {
            http.put(url.clone()).header("Overwrite", "t")
        } else {
            http.post(url.clone()).header(CONTENT_TYPE, "application/x-vnd.vmware-streamVmdk")
        };
        let answer = request.header(CONTENT_LENGTH, file.size).body(body).send().await;
        if let Some(reason) = damaged.get() {
            return Err(Error::refused(attempt(), reason));
        }
        match answer.map_err(failed) {
            Ok(answer) if answer.status().is_success() => Ok(()),
            Ok(answer) => Err(Error::unanswered(
                attempt(),
                format!("the host answers with HTTP status {}", answer.status().as_u16()),
            )),
            Err(Failed::Unreached(reason) | Failed::Lost(reason)) => Err(Error::unanswered(attempt(), reason)),
        }
    }
}

/// The target in a lease. "*" means the server of the request (`HttpNfcLeaseDeviceUrl.url`).
fn place(said: &str, server: &Url) -> std::result::Result<Url, String> {
    let said = said.replacen("://*", &format!("://{}", server.host_str().unwrap_or_default()), 1);
    let url = Url::parse(&said).map_err(|error| format!("vCenter names the place {said:?}: {error}"))?;
    if url.scheme() == "https" || url.scheme() == server.scheme() {
        Ok(url)
    } else {
        Err(format!("vCenter names the place {said:?}, which is not https"))
    }
}

/// The bytes of a file. The last piece follows only if the digest is that of the manifest, so another file never
/// arrives complete.
fn pieces(file: Wanted, package: Arc<Package>, sent: Arc<AtomicU64>, damaged: Arc<OnceLock<String>>) -> Pieces {
    let (to, from) = mpsc::channel(AHEAD);
    tokio::task::spawn_blocking(move || {
        let refuse = |reason: String| {
            let error = std::io::Error::other(reason.clone());
            let _ = damaged.set(reason);
            let _ = to.blocking_send(Err(error));
        };
        let mut reader = match package.archive.member(&file.name) {
            Ok((_, reader)) => reader,
            Err(error) => return refuse(error.to_string()),
        };
        let (mut hasher, mut left) = (Hasher::new(&SHA256), file.size);
        // An empty file has no piece to hold back.
        if left == 0 && file.digest != ova::Sha256::of(b"") {
            return refuse(CHANGED.to_owned());
        }
        while left > 0 {
            let mut piece = vec![0; PIECE.min(usize::try_from(left).unwrap_or(PIECE))];
            if let Err(error) = reader.read_exact(&mut piece) {
                return refuse(format!("reading it: {error}"));
            }
            hasher.update(&piece);
            left -= piece.len() as u64;
            if left == 0 && hasher.clone().finish().as_ref() != file.digest.0 {
                return refuse(CHANGED.to_owned());
            }
            // The receiver was dropped.
            if to.blocking_send(Ok(piece)).is_err() {
                return;
            }
        }
    });
    Pieces { from, sent }
}

struct Pieces {
    from: mpsc::Receiver<std::io::Result<Vec<u8>>>,
    sent: Arc<AtomicU64>,
}

impl Stream for Pieces {
    type Item = std::io::Result<Vec<u8>>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = self.from.poll_recv(context);
        if let Poll::Ready(Some(Ok(piece))) = &next {
            self.sent.fetch_add(piece.len() as u64, Ordering::Relaxed);
        }
        next
    }
}
