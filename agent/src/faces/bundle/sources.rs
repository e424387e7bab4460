//! The sources of a bundle, in one table: files and programs that help to diagnose a node from afar. Secrets are not read in
//! the first place: no Secret of the cluster, no key file, no record of the rendezvous.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use contract::ports;
use flate2::read::GzDecoder;
use support_bundle::Keep;

use crate::cluster::kubernetes::{ADMINISTRATOR, PKI, PROGRAMS, api_server};
use crate::cluster::records::Records;
use crate::host::command::{Command, Runner};
use crate::host::disk::Slots;
use crate::host::files;
use crate::host::platform::Platform;
use crate::status::Status;

/// The most of one source that is read, in bytes before compression.
const LONGEST: u64 = 24 << 20;

/// How long one program may take. On a faulty node some never answer.
const PROGRAM_LIMIT: Duration = Duration::from_secs(30);

/// One file of the bundle.
pub(super) struct Source {
    pub(super) name: String,
    /// The description for the index.
    pub(super) what: String,
    /// Its part of the remaining room, relative to the weights of the sources after it.
    pub(super) weight: u64,
    /// The part that is kept if it is too large.
    pub(super) keep: Keep,
    get: Get,
}

enum Get {
    File(PathBuf),
    /// A command line.
    Program(Vec<String>),
    Made(fn(&Path) -> anyhow::Result<String>),
}

impl Source {
    /// The text, including secrets. The index gets the reason of an error.
    pub(super) fn get(&self, root: &Path, runner: &dyn Runner) -> anyhow::Result<String> {
        let bytes = match &self.get {
            Get::File(path) => tail(&files::below(root, path), self.keep)?,
            Get::Program(line) => {
                // Ctrl-C does not reach it, because it has another process group. The kernel ends it with this command.
                let program = Command::new("setpriv").arg("--pdeathsig=KILL").args(line).env("LC_ALL", "C");
                let mut output = runner.run(&program.within(PROGRAM_LIMIT))?;
                if output.len() as u64 > LONGEST {
                    match self.keep {
                        Keep::End => drop(output.drain(..output.len() - LONGEST as usize)),
                        Keep::Beginning => output.truncate(LONGEST as usize),
                    }
                }
                output
            }
            Get::Made(make) => make(root)?.into_bytes(),
        };
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// A file, or the kept part of a long one. Of a gzip file, the end of its content.
fn tail(path: &Path, keep: Keep) -> anyhow::Result<Vec<u8>> {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        if path.extension().is_some_and(|end| end == "gz") {
            let (mut content, mut bytes) = (GzDecoder::new(file), Vec::new());
            while content.by_ref().take(LONGEST).read_to_end(&mut bytes)? > 0 {
                bytes.drain(..bytes.len().saturating_sub(LONGEST as usize));
            }
            return Ok(bytes);
        }
        // Files of /proc have no length.
        let length = file.metadata()?.len();
        if keep == Keep::End && length > LONGEST {
            file.seek(SeekFrom::Start(length - LONGEST))?;
        }
        let mut bytes = Vec::new();
        file.take(LONGEST).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    read().with_context(|| format!("reading {}", path.display()))
}

const UNITS: [&str; 11] = [
    "kaas-agent",
    "etcd",
    "containerd",
    "kubelet",
    "kube-proxy",
    "kaas-pod-network",
    "kaas-virtual-address",
    "kaas-controller-end",
    "kaas-mark-good",
    "kaas-release",
    "systemd-networkd",
];

fn program(name: &str, what: &str, weight: u64, keep: Keep, line: &str) -> Source {
    let line = line.split(' ').map(str::to_owned).collect();
    Source { name: name.to_owned(), what: what.to_owned(), weight, keep, get: Get::Program(line) }
}

fn file(name: &str, what: &str, path: &str) -> Source {
    let get = Get::File(path.into());
    Source { name: name.to_owned(), what: what.to_owned(), weight: 1, keep: Keep::Beginning, get }
}

fn made(name: &str, what: &str, make: fn(&Path) -> anyhow::Result<String>) -> Source {
    Source { name: name.to_owned(), what: what.to_owned(), weight: 1, keep: Keep::Beginning, get: Get::Made(make) }
}

/// All sources of the node below `root`, the most useful first.
pub(super) fn all(root: &Path) -> Vec<Source> {
    let mut sources = vec![
        made("status.txt", "the status page", |root| Ok(Status::read(root)?.page())),
        made("findings.txt", "what is wrong, with codes", |root| Ok(Status::read(root)?.findings.to_string())),
        file("status.json", "the status for programs", "/run/kaas/status.json"),
        file("plan.json", "what was decided at this boot", "/run/kaas/plan.json"),
        file("config.json", "what this node is to be", "/data/kaas/config.json"),
        file("progress.json", "how far this node has come", "/data/kaas/progress.json"),
        file("image.json", "the running image", "/usr/lib/kaas/image.json"),
        file("os-release", "the system's release", "/etc/os-release"),
        made("disks/identity.txt", "the data disk's identity slots", identity_slots),
    ];
    sources.extend(host());
    sources.extend(cluster(root));
    for unit in UNITS {
        let (name, what) = (format!("journal/{unit}.txt"), format!("journal of {unit}"));
        let weight = if unit == "kaas-agent" { 60 } else { 40 };
        let line = format!("journalctl --unit={unit} --lines=50000 --output=short-iso-precise --no-pager");
        sources.push(program(&name, &what, weight, Keep::End, &line));
    }
    let journal = [
        ("kernel", "the kernel's messages of this boot", "--dmesg"),
        ("warnings", "all warnings and errors", "--priority=warning"),
        ("boots", "when the system was started", "--list-boots"),
    ];
    for (name, what, option) in journal {
        let line = format!("journalctl {option} --lines=20000 --output=short-iso-precise --no-pager");
        sources.push(program(&format!("journal/{name}.txt"), what, 30, Keep::End, &line));
    }
    sources.extend(audit_logs(root));
    sources.extend(container_logs(root));
    sources
}

fn host() -> Vec<Source> {
    let list = |name: &str, what: &str, line: &str| program(name, what, 4, Keep::Beginning, line);
    let mut sources = vec![
        list("system/units.txt", "systemd's units", "systemctl list-units --all --no-pager --plain --full"),
        list("system/failed.txt", "units that failed", "systemctl list-units --failed --no-pager --plain --full"),
        list("system/timers.txt", "timers", "systemctl list-timers --all --no-pager"),
        list("system/processes.txt", "processes", "ps -eo pid,ppid,user,stat,etime,time,pcpu,rss,args --sort=-rss"),
        list("system/time.txt", "clock and time servers", "chronyc -n -m tracking sources"),
        list("network/addresses.txt", "interfaces and addresses", "ip -details -statistics address"),
        list("network/routes.txt", "routes", "ip route show table all"),
        list("network/neighbours.txt", "the neighbour table", "ip neighbour"),
        list("network/forwarding.txt", "the bridges' forwarding tables", "bridge fdb show"),
        list("network/sockets.txt", "listening sockets and connections", "ss --numeric --all --tcp --udp --processes"),
        list("network/rules.txt", "nftables", "nft list ruleset"),
        list("network/names.txt", "resolvers", "resolvectl --no-pager status"),
        list("network/links.txt", "networkd's view", "networkctl --no-pager --all status"),
        list(
            "disks/disks.txt",
            "disks and partitions",
            "lsblk --output NAME,SIZE,RO,TYPE,FSTYPE,LABEL,UUID,MODEL,MOUNTPOINTS",
        ),
        list("disks/space.txt", "room on the file systems", "df --human-readable --print-type"),
        list("disks/inodes.txt", "inodes on the file systems", "df --inodes --print-type"),
    ];
    for name in ["version", "cmdline", "uptime", "loadavg", "meminfo", "cpuinfo", "modules", "mounts", "diskstats"] {
        sources.push(file(&format!("system/proc/{name}"), "from the kernel", &format!("/proc/{name}")));
    }
    for name in ["cpu", "io", "memory"] {
        let path = format!("/proc/pressure/{name}");
        sources.push(file(&format!("system/proc/pressure-{name}"), "from the kernel", &path));
    }
    sources
}

fn cluster(root: &Path) -> Vec<Source> {
    // The node's own API server, because the virtual IP may be faulty.
    let config = Records::new(root).config().ok().flatten();
    let server =
        config.map(|config| format!(" --server=https://{}:{}", config.api_address(), ports::API)).unwrap_or_default();
    let etcd = |name: &str, what: &str, words: &str| {
        let line = format!(
            "etcdctl --endpoints=https://127.0.0.1:{} --cacert={PKI}/etcd/ca.crt \
             --cert={PKI}/etcd/healthcheck-client.crt --key={PKI}/etcd/healthcheck-client.key \
             --dial-timeout=5s --command-timeout=10s {words}",
            ports::ETCD_CLIENT
        );
        program(name, what, 2, Keep::Beginning, &line)
    };
    let kubernetes = |name: &str, what: &str, words: &str| {
        let line = format!("{PROGRAMS}/kubectl --kubeconfig={ADMINISTRATOR}{server} --request-timeout=10s {words}");
        program(name, what, 8, Keep::Beginning, &line)
    };
    vec![
        etcd("etcd/members.txt", "etcd's members", "member list --write-out=table"),
        etcd("etcd/status.txt", "the members' state", "endpoint status --cluster --write-out=table"),
        etcd("etcd/alarms.txt", "etcd's alarms", "alarm list"),
        kubernetes("kubernetes/nodes.txt", "nodes", "get nodes --output=wide"),
        kubernetes("kubernetes/nodes-described.txt", "nodes in full", "describe nodes"),
        kubernetes("kubernetes/pods.txt", "pods", "get pods --all-namespaces --output=wide"),
        kubernetes("kubernetes/events.txt", "events", "get events --all-namespaces --sort-by=.lastTimestamp"),
        kubernetes("kubernetes/ready.txt", "the API server's own checks", "get --raw /readyz?verbose"),
        program(
            "kubernetes/containers.txt",
            "containers",
            4,
            Keep::Beginning,
            "ctr --namespace=k8s.io containers list",
        ),
        program("kubernetes/tasks.txt", "running containers", 4, Keep::Beginning, "ctr --namespace=k8s.io tasks list"),
    ]
}

/// The API server's audit log: the current file and the one before.
fn audit_logs(root: &Path) -> Vec<Source> {
    let directory = files::below(root, api_server::audit::LOGS);
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    // `audit.log`, and `audit-TIME.log` for older ones, which the agent compresses soon after.
    names.retain(|name| name.starts_with("audit") && name.trim_end_matches(".gz").ends_with(".log"));
    names.sort_by(|one, other| other.cmp(one));
    let source = |name: String| {
        let get = Get::File(Path::new(api_server::audit::LOGS).join(&name));
        let name = format!("kubernetes/{}", name.trim_end_matches(".gz"));
        Source { what: "who asked the API server for what".to_owned(), weight: 20, keep: Keep::End, get, name }
    };
    names.into_iter().take(2).map(source).collect()
}

/// The newest log of each container.
fn container_logs(root: &Path) -> Vec<Source> {
    let mut sources = Vec::new();
    let directories = |path: &Path| -> Vec<PathBuf> {
        let mut found: Vec<PathBuf> =
            fs::read_dir(path).into_iter().flatten().flatten().map(|one| one.path()).collect();
        found.sort();
        found
    };
    // kubelet: /var/log/pods/NAMESPACE_POD_UID/CONTAINER/RESTARTS.log. Older ones have a time after that.
    for pod in directories(&files::below(root, "/var/log/pods")) {
        for container in directories(&pod) {
            for log in directories(&container).into_iter().filter(|log| log.extension().is_some_and(|end| end == "log"))
            {
                let Ok(place) = log.strip_prefix(root) else { continue };
                let name = place.strip_prefix("var/log/pods").unwrap_or(place);
                sources.push(Source {
                    name: format!("containers/{}", name.display()),
                    what: "what a container wrote".to_owned(),
                    weight: 10,
                    keep: Keep::End,
                    get: Get::File(Path::new("/").join(place)),
                });
            }
        }
    }
    sources
}

/// Both slots of each disk that might be the data disk.
fn identity_slots(root: &Path) -> anyhow::Result<String> {
    let platform = Platform::detect(root)?;
    let mut text = String::new();
    for disk in platform.data_disk_candidates(root)? {
        let slots = Slots::read(&disk).with_context(|| format!("reading {}", disk.display()))?;
        text.push_str(&format!("{}\nA: {:#?}\nB: {:#?}\n", disk.display(), slots.a, slots.b));
    }
    Ok(text)
}
