//! A client outside a cluster that goes on requesting a page, and counts what is not answered.

use std::fmt;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context as _;
use nix::sched::{CloneFlags, setns};

use crate::scenario::Scenario;

/// The pause between two requests.
const PACE: Duration = Duration::from_millis(200);
/// How long one may take.
const LIMIT: Duration = Duration::from_secs(2);
/// This number of answers in a row shows that the page is served.
const STEADY: usize = 5;
/// How long it may take to come.
const COMING: Duration = Duration::from_secs(240);
const REQUEST: &[u8] = b"GET /health HTTP/1.0\r\n\r\n";

pub struct Requests {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<RequestStats>,
}

/// The results of its requests.
#[derive(Clone, Debug, Default)]
pub struct RequestStats {
    pub answered: usize,
    pub failed: usize,
    /// The longest time without an answer.
    pub longest_gap: Duration,
    /// When and why requests failed, and when the page's address came to another device, as lines for people.
    pub events: Vec<String>,
}

/// The most events that are listed.
const EVENTS: usize = 40;

impl RequestStats {
    /// Notes what happened so long after the beginning.
    fn happened(&mut self, after: Duration, what: impl fmt::Display) {
        if self.events.len() < EVENTS {
            // As journals have it, in UTC.
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs() % 86_400;
            let (hour, minute, second) = (now / 3600, now / 60 % 60, now % 60);
            let after = after.as_secs_f64();
            self.events.push(format!("after {after:.1} s, at {hour:02}:{minute:02}:{second:02}: {what}"));
        }
    }
}

impl fmt::Display for RequestStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { answered, failed, longest_gap, events } = self;
        write!(f, "{answered} requests answered, {failed} failed, longest gap {:.1} s", longest_gap.as_secs_f64())?;
        events.iter().try_for_each(|event| write!(f, "\n    {event}"))
    }
}

impl Requests {
    /// Begins, from inside a network namespace: the page has answered [`STEADY`] times in a row before this returns.
    pub fn start(namespace: PathBuf, page: SocketAddr) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let (steady, is_steady) = mpsc::channel();
        let thread = thread::spawn(move || {
            let file = File::open(&namespace).unwrap_or_else(|error| panic!("{}: {error}", namespace.display()));
            setns(file, CloneFlags::CLONE_NEWNET).expect("entering the lab's network");
            let (began, mut in_a_row) = (Instant::now(), 0);
            while in_a_row < STEADY {
                assert!(began.elapsed() < COMING, "{page} does not answer");
                in_a_row = if matches!(requested(page), Ok(true)) { in_a_row + 1 } else { 0 };
                thread::sleep(PACE);
            }
            steady.send(()).expect("the scenario's thread");
            let (mut figures, mut last, began) = (RequestStats::default(), Instant::now(), Instant::now());
            let mut device = device_of(page);
            while !stopped.load(Ordering::Relaxed) {
                let asked = Instant::now();
                let why = match requested(page) {
                    Ok(true) => None,
                    Ok(false) => Some("the page does not say that all is well".to_owned()),
                    Err(error) => Some(format!("{error:#}")),
                };
                if let Some(why) = why {
                    figures.failed += 1;
                    let (at, took) = (asked - began, asked.elapsed().as_millis());
                    figures.happened(at, format!("failed after {took} ms, {why}; the address was at {device}"));
                } else {
                    figures.answered += 1;
                    figures.longest_gap = figures.longest_gap.max(last.elapsed());
                    last = Instant::now();
                }
                let now = device_of(page);
                if now != device {
                    figures.happened(began.elapsed(), format!("the address is at {now}, and was at {device}"));
                    device = now;
                }
                thread::sleep(PACE);
            }
            figures.longest_gap = figures.longest_gap.max(last.elapsed());
            figures
        });
        is_steady.recv().unwrap_or_else(|_| panic!("{page} has not answered {STEADY} times in a row"));
        Self { stop, thread }
    }

    /// Ends, and says what became of the requests.
    pub fn end(self) -> RequestStats {
        self.stop.store(true, Ordering::Relaxed);
        let figures = self.thread.join().expect("the client's thread");
        assert!(figures.answered > 0, "nothing was ever answered: {figures}");
        figures
    }
}

/// Requests a page from inside a network namespace while something is done, and says what became of the requests by `reached`.
pub fn while_requested_in(
    namespace: PathBuf,
    page: SocketAddr,
    what: &str,
    reached: impl FnOnce(&str),
    act: impl FnOnce(),
) -> RequestStats {
    let requests = Requests::start(namespace, page);
    let began = Instant::now();
    act();
    let figures = requests.end();
    reached(&format!("{what}, {} s: {figures}", began.elapsed().as_secs()));
    figures
}

/// The same in a scenario's lab.
pub fn while_requested(scenario: &Scenario, page: SocketAddr, what: &str, act: impl FnOnce()) -> RequestStats {
    while_requested_in(scenario.lab().network_namespace(), page, what, |said| scenario.reached(said), act)
}

/// The MAC address that this network has for the page's address; proc(5), `/proc/net/arp`.
fn device_of(page: SocketAddr) -> String {
    let table = fs::read_to_string("/proc/thread-self/net/arp").unwrap_or_default();
    let address = page.ip().to_string();
    let mut lines = table.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    let own = lines.find(|line| line.first() == Some(&address.as_str()));
    own.and_then(|line| line.get(3).map(|mac| (*mac).to_owned())).unwrap_or_else(|| "no device".to_owned())
}

/// Whether the page answers with status 200. An error says how far the request came.
fn requested(page: SocketAddr) -> anyhow::Result<bool> {
    let mut stream = TcpStream::connect_timeout(&page, LIMIT).context("connecting")?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.write_all(REQUEST).context("asking")?;
    let mut answer = Vec::new();
    stream.take(4096).read_to_end(&mut answer).with_context(|| format!("reading, after {} bytes", answer.len()))?;
    Ok(String::from_utf8_lossy(&answer).lines().next().is_some_and(|line| line.contains(" 200 ")))
}
