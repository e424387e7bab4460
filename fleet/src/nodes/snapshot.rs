//! Pulls a new snapshot of the cluster's store from a node.

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use reqwest::{Response, StatusCode};
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use super::{Client, told};
use crate::files;
use crate::lease::SpaceQuota;

/// The pause between two requests while the node takes the snapshot.
const PACE: Duration = Duration::from_secs(1);

impl Client {
    /// Requests a snapshot of a node, and keeps it in `output`, readable by its owner only. The output exists complete and
    /// verified, or not at all. Returns its size in bytes.
    ///
    /// # Errors
    /// If the node cannot be reached or trusted, or refuses. If taking and sending it exceeds `limit`, or its announced size
    /// exceeds `room`. If the received data is not the sent data.
    pub async fn pull_snapshot(
        &self,
        node: Ipv4Addr,
        port: u16,
        output: &Path,
        room: &SpaceQuota,
        limit: Duration,
    ) -> anyhow::Result<u64> {
        let address = format!("https://{}/v1/snapshot", SocketAddr::from((node, port)));
        let (http, output, room) = (self.http.clone(), output.to_owned(), room.clone());
        let pulled = self.run(async move {
            let pulled = tokio::time::timeout(limit, pull(&http, &address, &output, &room)).await;
            pulled.unwrap_or_else(|_| bail!("the snapshot is not here after {} s", limit.as_secs()))
        });
        pulled.await.with_context(|| format!("pulling a snapshot from {node}"))
    }
}

/// Repeats the request until the snapshot arrives.
async fn pull(http: &reqwest::Client, address: &str, output: &Path, room: &SpaceQuota) -> anyhow::Result<u64> {
    loop {
        let answer = http.get(address).send().await?;
        match answer.status() {
            StatusCode::OK => return keep(answer, output, room).await,
            StatusCode::ACCEPTED => tokio::time::sleep(PACE).await,
            status => bail!("the node answers {status}: {}", words(answer).await),
        }
    }
}

/// The beginning of a response, for messages.
async fn words(mut answer: Response) -> String {
    let mut body = Vec::new();
    while let Ok(Some(part)) = answer.chunk().await {
        body.extend_from_slice(&part);
        if body.len() > WORDS {
            break;
        }
    }
    told(&String::from_utf8_lossy(&body))
}

/// How much of a refusal is read, in bytes.
const WORDS: usize = 4096;

/// The largest snapshot, in bytes: twice what etcd's maintainers advise for a store.
const LARGEST: u64 = 16 << 30;

/// How many parts of a response wait to be written.
const AHEAD: usize = 8;

/// Writes the response next to its final path, verifies it, and renames it.
async fn keep(answer: Response, output: &Path, room: &SpaceQuota) -> anyhow::Result<u64> {
    let promised = answer.content_length().context("the node does not say how long the snapshot is")?;
    let digest = answer.headers().get("repr-digest").and_then(|digest| digest.to_str().ok()).unwrap_or_default();
    let digest = digest.strip_prefix("sha-256=:").and_then(|rest| rest.strip_suffix(':'));
    let digest = digest.context("the node does not say which SHA-256 the snapshot has")?.to_owned();
    let kept: anyhow::Result<u64> = async {
        if promised > LARGEST {
            bail!("the snapshot has {promised} bytes; more than {LARGEST} is no store of etcd");
        }
        let (place, room) = (output.to_owned(), room.clone());
        let made = spawn_blocking(move || {
            room.take(promised, || {
                let file = files::create(&place)?;
                reserve(&file, promised)?;
                Ok(file)
            })
        });
        // The room is taken until the file has its name, and counts by it.
        let (file, _taken) = made.await.context("the thread that makes it has ended")??;
        let (file, sum) = written(answer, promised, file).await?;
        if BASE64_STANDARD.encode(sum.finalize()) != digest {
            bail!("the snapshot's SHA-256 is not the one that the node reported");
        }
        spawn_blocking(move || file.commit()).await.context("the thread that flushes it has ended")??;
        Ok(promised)
    }
    .await;
    kept.with_context(|| format!("keeping {}", output.display()))
}

/// Takes the room before any data arrives, so that others see the remaining space. If the file system cannot do that, the file is
/// written without.
fn reserve(file: &impl AsFd, bytes: u64) -> io::Result<()> {
    let bytes = i64::try_from(bytes).map_err(io::Error::other)?;
    // An empty range is refused.
    if bytes == 0 {
        return Ok(());
    }
    match fallocate(file, FallocateFlags::empty(), 0, bytes) {
        Err(Errno::EOPNOTSUPP | Errno::ENOSYS) => Ok(()),
        taken => Ok(taken?),
    }
}

/// Writes the announced bytes of a response, and computes their sum. Runs on a blocking thread, because a disk may be slow.
async fn written<W: Write + Send + 'static>(
    mut answer: Response,
    promised: u64,
    mut file: W,
) -> anyhow::Result<(W, Sha256)> {
    let (parts, mut taken) = mpsc::channel::<Vec<u8>>(AHEAD);
    let writing = spawn_blocking(move || {
        let mut sum = Sha256::new();
        while let Some(part) = taken.blocking_recv() {
            file.write_all(&part)?;
            sum.update(&part);
        }
        io::Result::Ok((file, sum))
    });
    let mut size = 0;
    while let Some(part) = answer.chunk().await? {
        size += part.len() as u64;
        if size > promised {
            bail!("the snapshot has {promised} bytes, and more came");
        }
        // The writer has ended, and reports the reason itself.
        if parts.send(part.to_vec()).await.is_err() {
            break;
        }
    }
    drop(parts);
    let written = writing.await.context("the thread that writes it has ended")??;
    if size != promised {
        bail!("the snapshot has {promised} bytes, and {size} came");
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Read as _;
    use std::net::TcpListener;

    use crate::lease::{Budget, LatestSnapshot, Promised, Snapshots as _};

    /// The result of a response with this header and body, with room for 7 bytes.
    fn kept(header: &str, body: &str, output: &Path) -> anyhow::Result<u64> {
        let budget = Budget { most: 7, part: 100, share: 100, reserve: 0 };
        let directory = output.parent().unwrap().to_owned();
        let room = LatestSnapshot::at(directory, budget, Promised::default(), "cp1").room();
        answered(header, body, async |answer| keep(answer, output, &room).await)
    }

    /// A directory in one that has no other entry.
    fn alone() -> (tempfile::TempDir, std::path::PathBuf) {
        let shared = tempfile::tempdir().unwrap();
        let directory = shared.path().join("team.shop");
        fs::create_dir(&directory).unwrap();
        (shared, directory)
    }

    /// The result of `done` for a response with this header and body, in a runtime of one thread.
    fn answered<T>(
        header: &str,
        body: &str,
        done: impl AsyncFnOnce(Response) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}/", listener.local_addr().unwrap());
        let answer = format!("HTTP/1.1 200 OK\r\nConnection: close\r\n{header}\r\n{body}");
        let serving = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 1024]).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let kept = runtime.block_on(async {
            let answer = reqwest::Client::builder().no_proxy().build()?.get(address).send().await?;
            done(answer).await
        });
        serving.join().unwrap();
        kept
    }

    /// A server that sends `first`, and then `more` until the client disconnects. Returns the client's result within `limit`.
    fn pulled(first: &str, more: &'static str, limit: Duration) -> Option<String> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}/", listener.local_addr().unwrap());
        let first = first.to_owned();
        let serving = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 1024]).unwrap();
            let mut said = stream.write_all(first.as_bytes());
            let mut count = 0_u64;
            while said.is_ok() && count < 64 << 20 {
                said = stream.write_all(more.as_bytes());
                count += more.len() as u64;
            }
            count
        });
        let directory = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let error = runtime.block_on(async {
            let http = reqwest::Client::builder().no_proxy().build().unwrap();
            let output = directory.path().join("s.db");
            let pulled = tokio::time::timeout(limit, pull(&http, &address, &output, &SpaceQuota::unbounded())).await;
            pulled.ok().map(|pulled| format!("{:#}", pulled.unwrap_err()))
        });
        drop(runtime);
        assert!(serving.join().unwrap() < 64 << 20, "all of it was read");
        error
    }

    #[test]
    fn an_endless_refusal_is_cut() {
        let refusal = "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\n\r\nno\u{1b}[2Jt now ";
        let error = pulled(refusal, "and so on and so on and so on ", Duration::from_secs(30)).expect("an answer");
        assert!(error.starts_with("the node answers 503 Service Unavailable: no [2Jt now and so on"), "{error}");
        assert!(error.len() < 600);
    }

    #[test]
    fn a_cut_or_altered_snapshot_is_not_kept() {
        let (_shared, directory) = alone();
        let output = directory.join("s.db");
        let digest = "Repr-Digest: sha-256=:TBNxem9gT9Qm4t1hqLut8mZi/y18DV2kyNd/WaOcKC4=:\r\n";
        let length = "Content-Length: 7\r\n";
        let wrong = "Repr-Digest: sha-256=:AAAA:\r\n";
        for (header, body) in [
            (format!("{digest}{length}"), "a sto"),
            (format!("{wrong}{length}"), "a store"),
            (length.to_owned(), "a store"),
            (digest.to_owned(), "a store"),
        ] {
            assert!(kept(&header, body, &output).is_err(), "{header}{body}");
            assert_eq!(fs::read_dir(&directory).unwrap().count(), 0, "{header}{body}");
        }
        assert_eq!(kept(&format!("{digest}{length}"), "a store", &output).unwrap(), 7);
        assert_eq!(fs::read_to_string(&output).unwrap(), "a store");
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(fs::metadata(&output).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_snapshot_beyond_the_room_is_refused() {
        let (_shared, directory) = alone();
        let output = directory.join("s.db");
        let digest = "Repr-Digest: sha-256=:TBNxem9gT9Qm4t1hqLut8mZi/y18DV2kyNd/WaOcKC4=:\r\n";
        let header = format!("{digest}Content-Length: 8\r\n");
        let error = format!("{:#}", kept(&header, "a store", &output).unwrap_err());
        assert!(error.contains("8 bytes, and there is room for 7"), "{error}");
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
    }

    /// A disk that writes nothing before another task had a turn.
    struct Slow(std::sync::mpsc::Receiver<()>);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.recv_timeout(Duration::from_secs(20)).map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn other_tasks_run_while_a_slow_disk_writes() {
        let (turn, waits) = std::sync::mpsc::channel();
        let written = answered("Content-Length: 7\r\n", "a store", async move |answer| {
            // A turn for each part that the response may have.
            let other = tokio::spawn(async move { (0..7).try_for_each(|_| turn.send(())) });
            let written = written(answer, 7, Slow(waits)).await.map(drop);
            other.await??;
            written
        });
        written.unwrap();
    }
}
