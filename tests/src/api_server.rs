//! An API server of the image under test with its etcd, and nothing else of a cluster. Both run in a separate network
//! namespace, and end with the value.

use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, SystemTime};

use agent::cluster::pki::{CertificateAuthorities, Leaf, ensure_kubeconfig};
use anyhow::{Context, anyhow, ensure};
use contract::properties::ControlNode;
use fleet::nodes::{Answer, Client, Method};
use lab::obtain;
use nix::sched::{CloneFlags, setns};
use serde_json::Value;
use tempfile::TempDir;

/// How long both may take to start, next to a scenario on a slow machine.
const STARTING: Duration = Duration::from_secs(240);

pub struct ApiServer {
    client: Client,
    kubectl: PathBuf,
    // In the order in which they end: both write into the directory.
    server: Process,
    etcd: Process,
    directory: TempDir,
    namespace: Namespace,
}

/// A process that ends with the value.
struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Why it has ended, with the tail of its output.
    fn ended(&self, how: ExitStatus) -> anyhow::Error {
        let said = fs::read_to_string(&self.log).unwrap_or_default();
        let tail = said.char_indices().rev().nth(2000).map_or(0, |(at, _)| at);
        anyhow!("{}: {how}: {}", self.log.display(), &said[tail..])
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A network namespace with a loopback interface, which goes with the value.
struct Namespace(String);

impl Namespace {
    fn new(name: &str) -> anyhow::Result<Self> {
        let namespace = Self(format!("kaas-scenario-{name}"));
        if namespace.path().exists() {
            // An interrupted run has left it: no other one is under way.
            ip(&format!("netns delete {}", namespace.0))?;
        }
        ip(&format!("netns add {}", namespace.0))?;
        ip(&format!("-n {} link set lo up", namespace.0))?;
        Ok(namespace)
    }

    fn path(&self) -> PathBuf {
        Path::new("/run/netns").join(&self.0)
    }

    /// A program in it, which ends with its caller.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0, "setpriv", "--pdeathsig=KILL"]).arg(program).stdin(Stdio::null());
        command
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if let Err(error) = ip(&format!("netns delete {}", self.0)) {
            eprintln!("removing the namespace {}: {error:#}", self.0);
        }
    }
}

impl ApiServer {
    /// Starts those of a root tree, with its newest Kubernetes. No other one has this name. An error has the tail of
    /// their output.
    pub fn start(tree: &Path, name: &str) -> anyhow::Result<Self> {
        let directory = tempfile::tempdir()?;
        let namespace = Namespace::new(name)?;
        let (pki, now) = (directory.path().join("pki"), SystemTime::now());
        let authorities = CertificateAuthorities::make(now)?;
        authorities.ensure(&pki)?;
        let node = ControlNode { name: "api".to_owned(), address: Ipv4Addr::LOCALHOST };
        Leaf::etcd_server(&node).ensure(&authorities.kubernetes, &pki.join("server"), now)?;
        let (server, admin) = ("https://127.0.0.1:6443", directory.path().join("admin.conf"));
        let group = Some("system:masters".to_owned());
        ensure_kubeconfig(&admin, server, &Leaf { group, ..Leaf::client("admin") }, &authorities, now)?;

        let etcd = namespace.start(&tree.join("usr/bin/etcd"), &directory, |command| {
            command.arg("--data-dir").arg(directory.path().join("etcd"));
            // Nothing of it outlives the test.
            command.arg("--unsafe-no-fsync");
        })?;
        let kubernetes = newest(&tree.join("usr/lib/kubernetes"))?;
        let file = |option: &str, name: &str| format!("--{option}={}", pki.join(name).display());
        let api_server = namespace.start(&kubernetes.join("kube-apiserver"), &directory, |command| {
            command.args([
                "--etcd-servers=http://127.0.0.1:2379",
                "--bind-address=127.0.0.1",
                "--advertise-address=127.0.0.1",
                "--secure-port=6443",
                "--endpoint-reconciler-type=none",
                "--authorization-mode=RBAC",
                "--service-cluster-ip-range=10.96.0.0/16",
                "--service-account-issuer=https://127.0.0.1:6443",
                &file("service-account-key-file", "sa.pub"),
                &file("service-account-signing-key-file", "sa.key"),
                &file("client-ca-file", "ca.crt"),
                &file("tls-cert-file", "server.crt"),
                &file("tls-private-key-file", "server.key"),
            ]);
        })?;
        let client = Client::from_inside(&admin, namespace.path())?;
        let mut started =
            Self { client, kubectl: kubernetes.join("kubectl"), directory, server: api_server, etcd, namespace };
        started.wait_until_ready()?;
        Ok(started)
    }

    fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        let Self { client, server, etcd, .. } = self;
        // A process that has ended will never be ready.
        obtain("the API server to be ready", STARTING, || {
            for process in [&mut *etcd, &mut *server] {
                if let Some(ended) = process.child.try_wait()? {
                    return Ok(Some(Err(process.ended(ended))));
                }
            }
            let answer = client.wait(client.ask_api(Method::GET, "/readyz", None))?;
            ensure!(answer.status == 200, "it says {}", answer.words());
            Ok(Some(Ok(())))
        })?
    }

    /// A client with an administrator's rights.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Sends a request as an administrator. A part of an object is patched over the existing object (RFC 7386).
    pub fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<Answer> {
        self.client.wait(self.client.ask_api(method, path, body)).with_context(|| format!("asking for {path}"))
    }

    /// The answer to a request. Fails if the server does not understand or refuses it.
    pub fn read(&self, path: &str) -> anyhow::Result<Value> {
        let answer = self.ask(Method::GET, path, None)?;
        ensure!(answer.status == 200, "{path}: {} {}", answer.status, answer.words());
        Ok(serde_json::from_slice(&answer.body)?)
    }

    /// Does work in the API server's network namespace, on a separate thread, with an administrator's kubeconfig.
    pub fn inside<T: Send>(&self, work: impl FnOnce(&Path) -> T + Send) -> anyhow::Result<T> {
        let (namespace, admin) = (self.namespace.path(), self.directory.path().join("admin.conf"));
        let inside = || {
            setns(File::open(&namespace)?, CloneFlags::CLONE_NEWNET)?;
            Ok(work(&admin))
        };
        std::thread::scope(|scope| match scope.spawn(inside).join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    }

    /// The output of kubectl, which has `input` on its standard input.
    pub fn kubectl(&self, arguments: &[&str], input: &str) -> anyhow::Result<String> {
        let file = self.directory.path().join("input");
        fs::write(&file, input)?;
        let mut command = self.namespace.command(&self.kubectl);
        command.env("KUBECACHEDIR", self.directory.path().join("cache")).stdin(File::open(file)?);
        command.arg(format!("--kubeconfig={}", self.directory.path().join("admin.conf").display())).args(arguments);
        let output = command.output().context("starting kubectl")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "kubectl {}: {}: {said}", arguments.join(" "), output.status);
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

impl Namespace {
    fn start(&self, program: &Path, directory: &TempDir, with: impl FnOnce(&mut Command)) -> anyhow::Result<Process> {
        let name = program.file_name().and_then(|name| name.to_str()).context("a program's name")?;
        let log = directory.path().join(format!("{name}.log"));
        let mut command = self.command(program);
        with(&mut command);
        let said = File::create(&log)?;
        let child = command.stdout(said.try_clone()?).stderr(said).current_dir(directory.path()).spawn();
        Ok(Process { child: child.with_context(|| format!("starting {}", program.display()))?, log })
    }
}

/// The directory of the newest minor version in a tree.
fn newest(minors: &Path) -> anyhow::Result<PathBuf> {
    let names = fs::read_dir(minors).with_context(|| format!("looking for Kubernetes in {}", minors.display()))?;
    let names: Vec<String> = names.filter_map(|name| name.ok()?.file_name().into_string().ok()).collect();
    let newest = contract::minor::newest(names.iter().map(String::as_str));
    newest.map(|minor| minors.join(minor)).with_context(|| format!("there is no Kubernetes in {}", minors.display()))
}

/// `ip` with arguments separated by spaces.
fn ip(arguments: &str) -> anyhow::Result<()> {
    let output = Command::new("ip").args(arguments.split(' ')).output().context("starting ip")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ip {arguments}: {}: {}", output.status, said.trim());
    Ok(())
}
