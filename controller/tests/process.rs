//! The program itself at a stand-in of an API server, which keeps Leases and has no objects of any other kind: what becomes of its process
//! when it leads no longer, and when it is asked to end.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};
use tempfile::TempDir;

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kaas-system/leases";
/// The Lease by which one leads.
const LEASE: &str = "kaas-controller";
/// What the program says before it begins anew.
const ANEW: &str = "the controller starts again";
/// What anything here may take. None takes more than seconds.
const LONGEST: Duration = Duration::from_secs(60);

/// What the stand-in keeps.
#[derive(Default)]
struct Kept {
    leases: BTreeMap<String, Value>,
    version: u64,
    /// A part of what is asked, if any, that gets no answer.
    silent: Option<&'static str>,
    /// How often the Lease was read.
    reads: usize,
    /// How often somebody has begun to watch objects of a kind.
    watches: usize,
    /// The connections that are open, by numbers in the order in which they were made, and how many were.
    open: BTreeSet<usize>,
    made: usize,
}

impl Kept {
    fn keep(&mut self, name: &str, mut lease: Value) -> (u16, Value) {
        self.version += 1;
        lease["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.leases.insert(name.to_owned(), lease.clone());
        (200, lease)
    }

    /// Who leads, or nobody.
    fn holder(&self) -> String {
        let lease = self.leases.get(LEASE).map(|lease| &lease["spec"]["holderIdentity"]);
        lease.and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    /// Gives the Lease to somebody, as nobody but a person does.
    fn give(&mut self, holder: &str) {
        let mut lease = self.leases.get(LEASE).cloned().unwrap_or_else(|| json!({"metadata": {"name": LEASE}}));
        lease["spec"]["holderIdentity"] = holder.into();
        self.keep(LEASE, lease);
    }

    fn answer(&mut self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let name = match path.strip_prefix(LEASES) {
            Some("") if method == "POST" => body["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
            Some(name) => name.trim_start_matches('/').to_owned(),
            None => String::new(),
        };
        let there = self.leases.get(&name).cloned();
        match (method, there) {
            _ if name.is_empty() => {
                (200, json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "1"}, "items": []}))
            }
            ("POST", Some(_)) => refused(409, "AlreadyExists"),
            ("POST", None) => self.keep(&name, body.clone()),
            (_, None) => refused(404, "NotFound"),
            ("PUT", Some(there)) if there["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"] => {
                refused(409, "Conflict")
            }
            ("PUT", Some(_)) => self.keep(&name, body.clone()),
            (_, Some(there)) => {
                self.reads += usize::from(name == LEASE);
                (200, there)
            }
        }
    }
}

fn refused(code: u16, reason: &str) -> (u16, Value) {
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": reason,
    });
    (code, status)
}

/// Answers one connection until it is closed (RFC 9112).
fn serve(mut stream: TcpStream, kept: &Mutex<Kept>) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let mut length = 0;
        loop {
            let mut header = String::new();
            reader.read_line(&mut header)?;
            let header = header.trim_end().to_ascii_lowercase();
            if header.is_empty() {
                break;
            }
            if let Some(value) = header.strip_prefix("content-length:") {
                length = value.trim().parse().map_err(io::Error::other)?;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let mut words = line.split(' ');
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let watches = target.contains("watch=true");
        let is_silent = {
            let mut kept = kept.lock().unwrap();
            kept.watches += usize::from(watches);
            kept.silent.is_some_and(|part| target.contains(part))
        };
        if watches || is_silent {
            // Nothing happens for as long as somebody watches, or waits for the answer.
            return reader.read_to_end(&mut Vec::new()).map(drop);
        }
        let path = target.split('?').next().unwrap_or_default();
        let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
        let (status, said) = kept.lock().unwrap().answer(method, path, &body);
        let said = said.to_string();
        let head =
            format!("HTTP/1.1 {status} Said\r\nContent-Type: application/json\r\nContent-Length: {}", said.len());
        stream.write_all(format!("{head}\r\n\r\n{said}").as_bytes())?;
    }
}

/// The stand-in, and a directory with what leads to it.
struct Bed {
    kept: Arc<Mutex<Kept>>,
    directory: TempDir,
}

impl Bed {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let bed = Self { kept: Arc::default(), directory: tempfile::tempdir().unwrap() };
        // Nobody is asked by TLS; without an authority those of this machine would be looked for.
        let key = KeyPair::generate().unwrap();
        let authority = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().self_signed(&key).unwrap();
        let file = bed.path("authority.pem");
        fs::write(&file, authority.pem()).unwrap();
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "here",
            "clusters": [{"name": "here", "cluster": {"server": server, "certificate-authority": file}}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "nobody"}}],
            "users": [{"name": "nobody", "user": {}}],
        });
        fs::write(bed.path("kubeconfig"), kubeconfig.to_string()).unwrap();
        let kept = Arc::clone(&bed.kept);
        // It ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, kept) = (stream.unwrap(), Arc::clone(&kept));
                std::thread::spawn(move || {
                    let number = {
                        let mut kept = kept.lock().unwrap();
                        let number = kept.made;
                        kept.made += 1;
                        kept.open.insert(number);
                        number
                    };
                    // Who asks may have gone.
                    let _ = serve(stream, &kept);
                    kept.lock().unwrap().open.remove(&number);
                });
            }
        });
        bed
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Begins it, with these arguments besides.
    fn begin(&self, more: &[&str]) -> Running<'_> {
        let said = fs::File::create(self.path("said")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_kaas-controller"));
        // What the test's environment says, such as of a proxy, is not for it.
        command.env_clear().args(["run", "--node=here", "--kubeconfig=kubeconfig", "--directory=kept"]).args(more);
        command.current_dir(self.directory.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        Running { bed: self, child: command.spawn().unwrap() }
    }
}

/// The program at work. It is killed with the test.
struct Running<'b> {
    bed: &'b Bed,
    child: Child,
}

impl Running<'_> {
    /// What it has said.
    fn said(&self) -> String {
        fs::read_to_string(self.bed.path("said")).unwrap()
    }

    /// Waits until something is so, while the process lives.
    #[track_caller]
    fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !is_so(self) {
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "it has ended with {ended:?} before {what}: {}", self.said());
            assert!(begun.elapsed() < LONGEST, "never {what}: {}", self.said());
            sleep(Duration::from_millis(5));
        }
    }

    /// Waits until one of its names leads that is not this one, and says which.
    #[track_caller]
    fn leads(&mut self, not: &str) -> String {
        let holds = |running: &Self| {
            let holder = running.bed.kept().holder();
            holder.starts_with("controller here ") && holder != not
        };
        self.until("it leads", holds);
        self.bed.kept().holder()
    }

    fn asks_to_end(&self) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), Signal::SIGTERM).unwrap();
    }

    #[track_caller]
    fn ends(&mut self) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(begun.elapsed() < LONGEST, "it does not end: {}", self.said());
            sleep(Duration::from_millis(5));
        }
    }

    /// What the kernel says of its process.
    fn of_kernel(&self, file: &str) -> Vec<u8> {
        fs::read(format!("/proc/{}/{file}", self.child.id())).unwrap()
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Who has lost the Lease stands for election again: in the same process, by another name, with nothing left of what it had open. It gives
/// the Lease back when it is asked to end. Whoever asks whether it is well is answered before and afterwards.
#[test]
fn who_leads_no_longer_begins_anew_in_its_process_and_leads_again() {
    let bed = Bed::start();
    // One of this process alone: no connection begins at such an address.
    let [.., third, fourth] = std::process::id().to_be_bytes();
    let health = format!("127.77.{third}.{fourth}:9442");
    let is_well = || {
        let mut stream = TcpStream::connect(&health).unwrap();
        stream.write_all(b"GET /healthz HTTP/1.1\r\n\r\n").unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        said.starts_with("HTTP/1.1 200 ")
    };
    let mut running = bed.begin(&[&format!("--health={health}")]);
    let first = running.leads("");
    assert!(is_well());
    running.until("it watches", |running| running.bed.kept().watches > 0);
    let (arguments, former) = (running.of_kernel("cmdline"), bed.kept().made);
    bed.kept().give("somebody");
    running.until("it begins anew", |running| running.said().contains(ANEW));
    running.until("what it had open is closed", |running| running.bed.kept().open.iter().all(|open| *open >= former));
    bed.kept().give("");
    let second = running.leads(&first);
    assert_ne!(first, second);
    assert!(is_well());
    assert_eq!(running.of_kernel("cmdline"), arguments);
    assert_eq!(String::from_utf8(running.of_kernel("comm")).unwrap(), "kaas-controller\n");
    assert_eq!(running.said().matches(ANEW).count(), 1, "{}", running.said());
    running.asks_to_end();
    assert!(running.ends().success(), "{}", running.said());
    assert_eq!(bed.kept().holder(), "", "{}", running.said());
}

/// Whoever removes the Lease of a leader, and the mark that there was one: what its term has begun last may still arrive.
#[test]
fn who_begins_anew_is_not_the_first_of_all() {
    let bed = Bed::start();
    let mut running = bed.begin(&[]);
    running.leads("");
    // The stand-in keeps no ConfigMap: the mark is new each time.
    bed.kept().leases.clear();
    running.until("it begins anew", |running| running.said().contains(ANEW));
    running.until("there is a Lease", |running| !running.bed.kept().holder().is_empty());
    assert_eq!(bed.kept().holder(), "nobody that is known", "{}", running.said());
}

/// It is heard whenever it is asked to end, also right when it begins anew, before it has opened anything.
#[test]
fn who_is_asked_to_end_while_it_begins_anew_or_waits_ends() {
    let bed = Bed::start();
    let mut running = bed.begin(&[]);
    running.leads("");
    bed.kept().give("somebody");
    running.until("it begins anew", |running| running.said().contains(ANEW));
    running.asks_to_end();
    assert!(running.ends().success(), "{}", running.said());
    assert_eq!(bed.kept().holder(), "somebody");

    let reads = bed.kept().reads;
    let mut waiting = bed.begin(&[]);
    waiting.until("it looks who leads", |waiting| waiting.bed.kept().reads > reads);
    waiting.asks_to_end();
    assert!(waiting.ends().success(), "{}", waiting.said());
    assert_eq!(bed.kept().holder(), "somebody");
}

/// Who is asked to end before it has seen all kinds has nothing of them under way, and gives the Lease back.
#[test]
fn who_is_asked_to_end_before_it_has_seen_all_gives_the_lease_back() {
    let bed = Bed::start();
    bed.kept().silent = Some("/ippools?");
    let mut running = bed.begin(&[]);
    running.leads("");
    running.until("it watches", |running| running.bed.kept().watches > 0);
    running.asks_to_end();
    assert!(running.ends().success(), "{}", running.said());
    assert_eq!(bed.kept().holder(), "", "{}", running.said());
}

/// What does not go away by itself ends the process, as whoever has started it expects.
#[test]
fn what_is_no_lost_lease_ends_the_process() {
    let bed = Bed::start();
    fs::write(bed.path("kubeconfig"), "nonsense: [").unwrap();
    let mut running = bed.begin(&[]);
    assert_eq!(running.ends().code(), Some(1));
    let said = running.said();
    assert!(said.starts_with("error: reading kubeconfig") && !said.contains(ANEW), "{said}");
}
