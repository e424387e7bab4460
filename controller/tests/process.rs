//! Tests of the program on a fake API server that stores Leases only. They check the process when it loses the Lease, and when it
//! is asked to end.

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
const CLUSTERS: &str = "/apis/kaas.local/v1alpha1/tenantclusters";
/// The Lease of the election.
const LEASE: &str = "kaas-controller";
/// The begin of the log line before the program is executed again.
const ANEW: &str = "the controller starts again";
/// The limit of each wait. None takes more than seconds.
const LONGEST: Duration = Duration::from_secs(60);

#[derive(Default)]
struct Kept {
    leases: BTreeMap<String, Value>,
    version: u64,
    /// The TenantClusters of all namespaces.
    clusters: Vec<Value>,
    /// The paths of all requests.
    paths: BTreeSet<String>,
    /// Requests whose target contains this get no answer.
    silent: Option<&'static str>,
    /// How often the Lease was read.
    reads: usize,
    /// How many watches were opened.
    watches: usize,
    /// The open connections, numbered in the order of their begin, and how many there were.
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

    /// The leader. Empty without a leader.
    fn holder(&self) -> String {
        let lease = self.leases.get(LEASE).map(|lease| &lease["spec"]["holderIdentity"]);
        lease.and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    /// Changes the holder of the Lease, as only an operator would.
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
        self.paths.insert(path.to_owned());
        match (method, there) {
            _ if name.is_empty() => {
                let items: &[Value] = if path == CLUSTERS { &self.clusters } else { &[] };
                (200, json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "1"}, "items": items}))
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

/// Answers the requests of one connection until it is closed (RFC 9112).
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
            // A watch reports nothing, and a silent request gets no answer.
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

/// The fake API server, and a directory with a kubeconfig for it.
struct Bed {
    kept: Arc<Mutex<Kept>>,
    directory: TempDir,
}

impl Bed {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let bed = Self { kept: Arc::default(), directory: tempfile::tempdir().unwrap() };
        // The server has no TLS. Without a CA the client would look for those of this machine.
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
                    // The client may have closed the connection.
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

    /// Starts the program with these further arguments.
    fn begin(&self, more: &[&str]) -> Running<'_> {
        let said = fs::File::create(self.path("said")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_kaas-controller"));
        // The program must not see the test's environment, such as a proxy.
        command.env_clear().args(["run", "--node=here", "--kubeconfig=kubeconfig", "--directory=kept"]).args(more);
        command.current_dir(self.directory.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        Running { bed: self, child: command.spawn().unwrap() }
    }
}

/// The running program. It is killed at the end of the test.
struct Running<'b> {
    bed: &'b Bed,
    child: Child,
}

impl Running<'_> {
    /// Its log.
    fn said(&self) -> String {
        fs::read_to_string(self.bed.path("said")).unwrap()
    }

    /// Waits for a condition, while the process runs.
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

    /// Waits until it leads with a name other than this one, and returns the name.
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

    /// The content of a file of its process in /proc.
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

/// A leader that has lost the Lease takes part in the election again: in the same process, with a new name, without its former
/// connections. It releases the Lease when it is asked to end. The health check answers before and afterwards.
#[test]
fn a_lost_lease_restarts_the_program() {
    let bed = Bed::start();
    // An address of this process only: no outgoing connection uses it.
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

/// The Lease and the mark of a leader are deleted. The last requests of its term may still arrive.
#[test]
fn a_restarted_program_is_never_the_first() {
    let bed = Bed::start();
    let mut running = bed.begin(&[]);
    running.leads("");
    // The fake API server has no ConfigMaps: the mark is new each time.
    bed.kept().leases.clear();
    running.until("it begins anew", |running| running.said().contains(ANEW));
    running.until("there is a Lease", |running| !running.bed.kept().holder().is_empty());
    assert_eq!(bed.kept().holder(), "unknown", "{}", running.said());
}

/// A signal is read at any time, also when the program is executed again and has opened nothing yet.
#[test]
fn a_signal_ends_a_restart_or_a_wait() {
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

/// Before the first lists are complete no object is under way, so the Lease is released.
#[test]
fn a_signal_before_the_lists_releases_the_lease() {
    let bed = Bed::start();
    bed.kept().silent = Some("/ippools?");
    let mut running = bed.begin(&[]);
    running.leads("");
    running.until("it watches", |running| running.bed.kept().watches > 0);
    running.asks_to_end();
    assert!(running.ends().success(), "{}", running.said());
    assert_eq!(bed.kept().holder(), "", "{}", running.said());
}

#[test]
fn an_unreadable_object_stops_no_other() {
    let bed = Bed::start();
    let cluster = |name: &str, status: Value| {
        json!({
            "apiVersion": "kaas.local/v1alpha1", "kind": "TenantCluster",
            "metadata": {"name": name, "namespace": "team-blue", "uid": name, "resourceVersion": "1"},
            "spec": {
                "providerRef": {"name": "dc1"}, "version": "1.36",
                "network": {"name": "blue", "endpoint": {"address": "192.0.2.5"}},
            },
            "status": status,
        })
    };
    bed.kept().clusters = vec![cluster("bank", json!({"conditions": "none"})), cluster("shop", json!({}))];
    let mut running = bed.begin(&[]);
    running.leads("");
    let error = "warn: TenantCluster team-blue/bank, for the 1. time: it cannot be read: ";
    running.until("it names the object", |running| running.said().contains(error));
    let shop = "/apis/kaas.local/v1alpha1/namespaces/team-blue/tenantclusters/shop";
    running.until("it reads the other one", |running| running.bed.kept().paths.contains(shop));
}

/// An error that does not go away ends the process, so that the container runtime restarts it.
#[test]
fn other_errors_end_the_process() {
    let bed = Bed::start();
    fs::write(bed.path("kubeconfig"), "nonsense: [").unwrap();
    let mut running = bed.begin(&[]);
    assert_eq!(running.ends().code(), Some(1));
    let said = running.said();
    assert!(said.starts_with("error: reading kubeconfig") && !said.contains(ANEW), "{said}");
}
