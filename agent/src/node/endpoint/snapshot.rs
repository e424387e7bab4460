//! A fresh snapshot of the cluster's store, for administrators.
//!
//! No answer may wait for a snapshot. The first request starts it, and 202 means that the client should ask again. A finished
//! snapshot is sent with its SHA-256 in the field `Repr-Digest` (RFC 9530, section 3).

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context as _;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hyper::StatusCode;
use hyper::header::{CONTENT_DISPOSITION, HeaderName, HeaderValue, RETRY_AFTER};

use super::EndpointContext;
use super::answer::{self, Answer};
use crate::cluster::etcd::command;
use crate::cluster::records::Records;
use crate::host::command::Host;
use crate::host::files;

/// How long a snapshot counts as fresh. A client that asked for it comes within seconds.
const FRESH: Duration = Duration::from_secs(60);

const DIGEST: HeaderName = HeaderName::from_static("repr-digest");

#[derive(Default)]
pub(crate) struct SnapshotTaker(Mutex<Latest>);

#[derive(Default)]
enum Latest {
    #[default]
    Idle,
    Making(JoinHandle<anyhow::Result<FinishedSnapshot>>),
    Made(FinishedSnapshot, Instant),
}

struct FinishedSnapshot {
    path: PathBuf,
    sum: [u8; 32],
}

pub(super) fn answer(context: &EndpointContext) -> Answer {
    context.snapshots.answer(|| {
        let root = context.root.clone();
        Box::new(move || make(&root))
    })
}

type Work = Box<dyn FnOnce() -> anyhow::Result<FinishedSnapshot> + Send>;

impl SnapshotTaker {
    fn answer(&self, work: impl FnOnce() -> Work) -> Answer {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *state = match std::mem::take(&mut *state) {
            Latest::Making(way) if way.is_finished() => match way.join() {
                Ok(Ok(made)) => Latest::Made(made, Instant::now()),
                Ok(Err(error)) => return failed(&error),
                Err(_) => return failed(&anyhow::anyhow!("it ended by a defect; see the journal")),
            },
            Latest::Made(_, at) if at.elapsed() > FRESH => Latest::Idle,
            other => other,
        };
        if let Latest::Made(made, _) = &*state {
            return send(made).unwrap_or_else(|error| failed(&error));
        }
        if matches!(*state, Latest::Idle) {
            match thread::Builder::new().name("snapshot".to_owned()).spawn(work()) {
                Ok(way) => *state = Latest::Making(way),
                Err(error) => return failed(&error.into()),
            }
        }
        let mut answer = answer::line(StatusCode::ACCEPTED, "a snapshot is being taken; ask again in a moment");
        answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        answer
    }
}

fn failed(error: &anyhow::Error) -> Answer {
    answer::line(StatusCode::SERVICE_UNAVAILABLE, &format!("no snapshot could be taken: {error:#}"))
}

fn send(made: &FinishedSnapshot) -> anyhow::Result<Answer> {
    let mut answer = answer::file(File::open(&made.path)?, "application/octet-stream")?;
    let name = made.path.file_name().unwrap_or_default().to_string_lossy();
    let digest = format!("sha-256=:{}:", BASE64_STANDARD.encode(made.sum));
    let headers = answer.headers_mut();
    headers.insert(CONTENT_DISPOSITION, HeaderValue::from_str(&format!("attachment; filename=\"{name}\""))?);
    headers.insert(DIGEST, HeaderValue::from_str(&digest)?);
    Ok(answer)
}

fn make(root: &Path) -> anyhow::Result<FinishedSnapshot> {
    let config = Records::new(root).config()?.context("this node has no configuration yet")?;
    let (snapshot, _) = command::take(root, config.control_plane()?, &Host, SystemTime::now())?;
    Ok(FinishedSnapshot { sum: files::sha256(&snapshot.path)?, path: snapshot.path })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn until_done(taker: &SnapshotTaker) {
        while let Latest::Making(way) = &*taker.0.lock().unwrap()
            && !way.is_finished()
        {
            thread::yield_now();
        }
    }

    #[test]
    fn later_request_gets_the_snapshot_with_its_checksum() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("c-20261121T143005Z.db");
        std::fs::write(&path, "a store").unwrap();
        let taker = SnapshotTaker::default();
        let work = || -> Work {
            let path = path.clone();
            Box::new(move || Ok(FinishedSnapshot { sum: files::sha256(&path)?, path }))
        };
        let begun = taker.answer(work);
        assert_eq!(begun.status(), StatusCode::ACCEPTED);
        assert_eq!(begun.headers()[RETRY_AFTER], "1");
        until_done(&taker);
        // The next request gets the same snapshot.
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let sent = runtime.block_on(async { taker.answer(|| panic!("made again")) });
        assert_eq!(sent.status(), StatusCode::OK);
        assert_eq!(sent.headers()[CONTENT_DISPOSITION], "attachment; filename=\"c-20261121T143005Z.db\"");
        // printf 'a store' | openssl dgst -sha256 -binary | base64
        assert_eq!(sent.headers()[DIGEST], "sha-256=:TBNxem9gT9Qm4t1hqLut8mZi/y18DV2kyNd/WaOcKC4=:");
    }

    #[test]
    fn failure_is_reported_once() {
        let taker = SnapshotTaker::default();
        taker.answer(|| Box::new(|| anyhow::bail!("etcd does not answer")));
        until_done(&taker);
        assert_eq!(taker.answer(|| panic!("not yet")).status(), StatusCode::SERVICE_UNAVAILABLE);
        let again = taker.answer(|| Box::new(|| anyhow::bail!("still")));
        assert_eq!(again.status(), StatusCode::ACCEPTED);
        until_done(&taker);
    }
}
