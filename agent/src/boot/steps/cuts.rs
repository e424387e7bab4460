//! Complete boots of a node, each step by the product's own [`StepContext::run`]. The power is cut after each write of
//! forming, and the node starts again. It always becomes the only node of the cluster that it decided on.
//!
//! Other tests have nodes of three whose peers are away or lost, and nodes that must not start etcd or must stay off
//! the network.
//!
//! Only programs, services and other machines are fakes, in a network namespace with the node's address. Steps that
//! require a machine's disks and adapters are left out ([`of_the_machine`]). [`crate::host::disk`] tests a power cut at
//! each write of the data disk's preparation, and [`crate::cluster::rendezvous`] tests three nodes that meet.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use contract::bios_uuid::BiosUuid;
use contract::image::ImageFacts;
use contract::platform::{CONTAINER_FILE, Container};
use contract::ports;
use contract::secret::Secret;
use serde_json::{Value, json};
use tempfile::TempDir;
use uuid::Uuid;

use super::{StepContext, StepError};
use crate::boot::plan::{self, Disk as Found, Goal, NodeStorage, Observed, Step};
use crate::cluster::certificates::revocation_list::RevocationList;
use crate::cluster::etcd;
use crate::cluster::etcd::client::EtcdClient;
use crate::cluster::etcd::fake::FakeEtcd;
use crate::cluster::etcd::restore::RestoreRecord;
use crate::cluster::join_window::{self, JoinWindows};
use crate::cluster::kubernetes::PKI;
use crate::cluster::kubernetes::kubeadm::fake::FakeKubeadm;
use crate::cluster::pki::{self, CertificateAuthorities};
use crate::cluster::records::Records;
use crate::cluster::rendezvous::{Membership, Proof, Rendezvous, RendezvousRecord, Settings};
use crate::host::command::{self, Command, Host, Runner};
use crate::host::disk::{self, DataDisk, Disk, DiskState, Identity, Slots};
use crate::host::fake_server;
use crate::host::fake_systemd::FakeSystemd;
use crate::host::files::{self, power};
use crate::host::fixture::Namespace;
use crate::host::platform::Platform;
use crate::intake::config::fixture::{image, one_node, three_nodes};
use crate::intake::config::{Config, ControlPlane};
use crate::node::context::NodeContext;
use crate::status::{Reporter, Status};
use crate::upgrade::swap::node_record::NodeRecord;

/// How long a test waits for an event that must happen.
const LIMIT: Duration = Duration::from_secs(600);

/// File below a machine's root with the output of `ctr images check`.
pub(super) const IMAGES: &str = "images";

/// Steps that require a machine: its adapters and users, its disks, and a payload of container images.
fn of_the_machine(step: &Step) -> bool {
    matches!(step, Step::Network | Step::MountDataDisk { .. } | Step::Access | Step::Images)
}

/// Runs a test in a namespace that has the addresses of three nodes.
pub(super) fn in_a_namespace(name: &str, test: impl FnOnce() + Send + 'static) {
    let namespace = Namespace::new(name);
    namespace.ip("link set lo up");
    for number in 1..=3 {
        namespace.ip(&format!("address add 10.0.0.1{number}/32 dev lo"));
    }
    namespace.run(test);
}

/// A machine below a directory, with its fakes.
pub(super) struct Machine {
    directory: TempDir,
    config: ControlPlane,
    secret: Secret,
    image: ImageFacts,
    pub(super) etcd: FakeEtcd,
    /// Whether the API reports the node as ready.
    pub(super) ready: Arc<AtomicBool>,
    /// Whether the API has the Node object. A restarted kubelet registers it.
    pub(super) registered: Arc<AtomicBool>,
    /// Whether etcd reports that it is healthy.
    pub(super) healthy: Arc<AtomicBool>,
    /// The beginning of commands that fail.
    pub(super) broken: Option<&'static str>,
}

impl Machine {
    pub(super) fn new(mut config: ControlPlane) -> Self {
        config.node.interfaces[0].gateway = None;
        // In memory, if possible: the test flushes thousands of writes.
        let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let root = directory.path();
        let container = Container {
            cdrom: None,
            data_disks: Vec::new(),
            bios_uuid: disk::fixture::OWN.orders()[0],
            dmi: None,
            cgroup_root: None,
            fail_cgroup_v1: true,
            restrict_oom_score_adj: false,
            fingerprints: None,
            statement: None,
        };
        lay(root, CONTAINER_FILE, &serde_json::to_vec(&container).unwrap());
        // The file's date is the image's.
        lay(root, contract::image::PATH, b"");
        let node = config.control_node().unwrap().clone();
        let pki = files::below(root, PKI);
        fs::create_dir_all(&pki).unwrap();
        let healthy = Arc::new(AtomicBool::new(true));
        serve_health(Arc::clone(&healthy));
        let ready = Arc::new(AtomicBool::new(true));
        let registered = Arc::new(AtomicBool::new(true));
        serve_api(node.address, &pki.join("apiserver"), Arc::clone(&ready), Arc::clone(&registered));
        let etcd = FakeEtcd::start_one(&node, &pki);
        let secret = Secret::new("n7Q-vX2p-Lr9w-Tz4k-Hb8m-Cs5d".to_owned());
        let image = image();
        let machine = Self { directory, config, secret, image, etcd, ready, registered, healthy, broken: None };
        machine.lay_blank();
        machine
    }

    pub(super) fn root(&self) -> &Path {
        self.directory.path()
    }

    /// The configuration as the node stores it.
    fn whole(&self) -> Config {
        Config::ControlPlane(self.config.clone())
    }

    fn disk(&self) -> PathBuf {
        self.root().join("disk")
    }

    /// Gives the machine a data disk that was just prepared, and an empty cluster.
    fn lay_blank(&self) {
        for used in ["data", "etc", "var", "run/kaas"] {
            // A watcher of a former node may write once more.
            while fs::remove_dir_all(self.root().join(used)).is_err_and(|error| error.raw_os_error() == Some(39)) {}
        }
        for made in ["data/kaas", "etc", "var/lib/etcd", "run/kaas"] {
            fs::create_dir_all(self.root().join(made)).unwrap();
        }
        File::create(self.disk()).unwrap().set_len(disk::MINIMUM_SIZE).unwrap();
        disk::slots::write(&self.disk(), &disk::fixture::identity()).unwrap();
        self.etcd.begin_anew();
    }

    fn records(&self) -> Records {
        Records::new(self.root())
    }

    fn cluster(&self) -> Option<Uuid> {
        self.records().rendezvous().unwrap().state().cluster()
    }

    fn identity(&self) -> Identity {
        Slots::read(&self.disk()).unwrap().newest().unwrap().clone()
    }

    /// The cluster's CA, which must never change once it exists.
    fn authority(&self) -> Option<String> {
        fs::read_to_string(files::below(self.root(), PKI).join("ca.crt")).ok()
    }

    /// Starts another node's etcd member, which a node of a cluster of three asks about its data disk.
    fn another_answers(&self, name: &str) {
        let nodes = &self.config.cluster.control_nodes;
        let (node, now) = (nodes.iter().find(|node| node.name == name).unwrap(), SystemTime::now());
        let pki = self.root().join("another");
        CertificateAuthorities::read(&files::below(self.root(), PKI)).unwrap().ensure(&pki).unwrap();
        pki::ensure_member(node, &pki, now).unwrap();
        self.etcd.serve(node, 2, &pki);
    }

    /// One boot, from the decision to the last step.
    pub(super) fn boot(&self) -> anyhow::Result<(Goal, StepContext)> {
        let mut context = self.decide()?;
        for step in steps(&context) {
            take(&mut context, &step)?;
        }
        Ok((context.plan.goal, context))
    }

    /// A boot up to the decision. State in memory is lost before.
    pub(super) fn decide(&self) -> anyhow::Result<StepContext> {
        self.decide_with(&FakeSystemd::new(self.root()))
    }

    /// The same with the given systemd.
    pub(super) fn decide_with(&self, systemd: &FakeSystemd) -> anyhow::Result<StepContext> {
        for entry in fs::read_dir(self.root().join("run/kaas"))? {
            let path = entry?.path();
            let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
        }
        let (records, platform) = (self.records(), Platform::detect(self.root())?);
        let config = records.config()?.unwrap_or_else(|| self.whole());
        let progress = records.progress()?;
        let observed = Observed {
            image: self.image.clone(),
            storage: NodeStorage::DataDisk(Found::Ours(self.disk())),
            progress,
            rendezvous_closed: matches!(records.rendezvous()?, RendezvousRecord::Closed { .. }),
            upgrading: None,
            volumes: None,
        };
        let plan = plan::decide(&config, &observed).map_err(|finding| anyhow::anyhow!("{}", finding.seen))?;
        let disk = Disk { path: self.disk(), size: disk::MINIMUM_SIZE, sector: 512, read_only: false };
        let data_disk = DataDisk::Ours { disk, identity: self.identity() };
        let reporter = Reporter::new(self.root(), Status::default());
        let registered = Arc::clone(&self.registered);
        let programs = Box::new(Programs { root: self.root().to_owned(), broken: self.broken, registered });
        let host = (systemd.bus(), programs as _);
        let node = NodeContext::new(platform, self.image.clone(), config, data_disk, reporter, host);
        let secret = match records.config()? {
            Some(_) => records.secret()?,
            None => Some(self.secret.clone()),
        };
        let mut context = StepContext::new(node, secret, progress, plan);
        context.identity = Some(self.identity());
        Ok(context)
    }
}

/// The steps of the plan that these tests run.
pub(super) fn steps(context: &StepContext) -> Vec<Step> {
    context.plan.steps.iter().filter(|step| !of_the_machine(step)).cloned().collect()
}

/// Runs a step as the boot flow does, but does not repeat it after a failure.
pub(super) fn take(context: &mut StepContext, step: &Step) -> anyhow::Result<()> {
    let until = Instant::now() + LIMIT;
    loop {
        match context.run(step) {
            Ok(_) => return Ok(()),
            // A program that another test starts holds the former socket between fork and exec.
            Err(StepError::Failed(error)) if format!("{error:#}").contains("in use") && Instant::now() < until => {
                thread::yield_now();
            }
            Err(StepError::Failed(error)) => return Err(error.context(step.title())),
            Err(other) => anyhow::bail!("{step}: {other:?}"),
        }
    }
}

fn lay(root: &Path, path: &str, content: &[u8]) {
    let path = files::below(root, path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

/// Serves etcd's own health endpoint.
fn serve_health(healthy: Arc<AtomicBool>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, ports::ETCD_METRICS)).unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.read(&mut [0; 1024]);
            let status = if healthy.load(Ordering::SeqCst) { "200 OK" } else { "503 Service Unavailable" };
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}");
            let _ = stream.write_all(answer.as_bytes());
        }
    });
}

/// Serves the API: whether it has the node, and whether that is ready.
fn serve_api(address: Ipv4Addr, base: &Path, ready: Arc<AtomicBool>, registered: Arc<AtomicBool>) {
    let answer = move |path: &str, _: &Value| match path.split('?').next().unwrap_or_default() {
        "/readyz" => (200, json!("ok")),
        "/api/v1/nodes/node1" if !registered.load(Ordering::SeqCst) => (404, json!({})),
        "/api/v1/nodes" | "/api/v1/nodes/node1" => {
            let says = if ready.load(Ordering::SeqCst) { "True" } else { "False" };
            let status = json!({"conditions": [{"type": "Ready", "status": says}]});
            let node = json!({"metadata": {"name": "node1"}, "status": status});
            (200, if path.ends_with("node1") { node } else { json!({"items": [node]}) })
        }
        other => panic!("{other} is not asked of the API here"),
    };
    fake_server::serve(SocketAddr::from((address, ports::API)), base, Box::new(answer));
}

/// The host's programs. A fake kubeadm writes its files, and the other programs succeed.
struct Programs {
    root: PathBuf,
    broken: Option<&'static str>,
    registered: Arc<AtomicBool>,
}

impl Runner for Programs {
    fn run(&self, command: &Command) -> Result<Vec<u8>, command::Error> {
        let line = command.to_string();
        if self.broken.is_some_and(|broken| line.starts_with(broken)) {
            return Host.run(&Command::new("false"));
        }
        match line.split_once("kubeadm init phase ") {
            Some((_, phase)) if phase.starts_with("upload-config") || phase.starts_with("mark-control-plane") => {
                Ok(Vec::new())
            }
            Some(_) => FakeKubeadm::new(&self.root).run(command),
            None if line == "systemctl try-restart kubelet.service" => {
                self.registered.store(true, Ordering::SeqCst);
                Ok(Vec::new())
            }
            None if line == "ctr oci spec" => Ok(br#"{"process": {"capabilities": {}}}"#.to_vec()),
            None if line == "ctr plugins list" => Ok(b"io.containerd.grpc.v1 cri linux/amd64 ok".to_vec()),
            None if line.ends_with(" images check") => Ok(fs::read(self.root.join(IMAGES)).unwrap_or_default()),
            None => Ok(Vec::new()),
        }
    }

    /// Only images are passed on standard input, and the machine has no layers.
    fn run_fed(&self, command: &Command, _: command::Feed<'_>) -> Result<Vec<u8>, command::Error> {
        self.run(command)
    }
}

#[test]
fn node_forms_its_cluster_despite_power_cuts() {
    in_a_namespace("cuts", || {
        let machine = Machine::new(one_node());
        let mut things = 0;
        loop {
            machine.lay_blank();
            let (first, cut) = power::with(things, || machine.boot().map(|(goal, _)| goal));
            let (cluster, authority) = (machine.cluster(), machine.authority());
            if !cut {
                first.unwrap();
            }
            // The power is cut again after the same number of writes, then the boot completes.
            let _ = power::with(things, || machine.boot().map(drop));
            machine.boot().unwrap_or_else(|error| panic!("after {things} things: {error:#}"));
            let records = machine.records();
            assert!(matches!(records.rendezvous().unwrap(), RendezvousRecord::Closed { .. }), "after {things} things");
            assert!(records.progress().unwrap().formed && records.secret().unwrap().is_none(), "after {things} things");
            assert_eq!(machine.identity().state, DiskState::Formed, "after {things} things");
            for (before, after) in [
                (cluster.map(|one| one.to_string()), machine.cluster().map(|one| one.to_string())),
                (authority, machine.authority()),
            ] {
                assert!(before.is_none() || before == after, "after {things} things: {before:?} became {after:?}");
            }
            // The state is stable: a further boot only resumes.
            assert_eq!(machine.boot().unwrap().0, Goal::Resume);
            if !cut {
                break;
            }
            things += 1;
        }
        assert!(things > 60, "only {things} things were saved");
    });
}

/// Another control-plane node, for the rendezvous.
struct Other {
    disk: Arc<Mutex<RendezvousRecord>>,
    open: Rendezvous,
}

impl Other {
    fn start(machine: &Machine, name: &str) -> Self {
        let mut config = machine.config.clone();
        let node = config.cluster.control_nodes.iter().find(|node| node.name == name).unwrap().clone();
        config.node.name = node.name;
        config.node.interfaces[0].address = ipnet::Ipv4Net::new(node.address, 24).unwrap().into();
        let disk = Arc::new(Mutex::new(RendezvousRecord::Unformed));
        let kept = Arc::clone(&disk);
        let keep = Box::new(move |record: &RendezvousRecord| {
            *kept.lock().unwrap() = record.clone();
            Ok(())
        });
        let image = format!("{} {} with Kubernetes 1.36.3", machine.image.name, machine.image.version);
        let settings =
            Settings { pace: Duration::from_millis(20), ..Settings::new(config, Proof::of(&machine.secret), image) };
        let open = Rendezvous::open(settings, RendezvousRecord::Unformed, keep).unwrap();
        Self { disk, open }
    }

    /// Meets the others until it has its keys.
    fn fetch(&self) {
        let until = Instant::now() + LIMIT;
        let mut patient = |report: &crate::cluster::rendezvous::Report| match Instant::now() < until {
            true => ControlFlow::Continue(()),
            false => panic!("still {report}"),
        };
        self.open.meet(&mut patient).unwrap();
    }

    /// Meets the others until the first node refuses to hand out keys.
    fn is_refused(&self) {
        let until = Instant::now() + LIMIT;
        let met = self.open.meet(&mut |report| {
            assert!(Instant::now() < until, "still {report}");
            let is_over = report.to_string().contains("the hour for joining is over");
            if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert!(met.is_err(), "it has its keys");
    }

    fn state(&self) -> Membership {
        self.disk.lock().unwrap().state()
    }
}

#[test]
fn first_node_works_and_keeps_absent_nodes_keys() {
    in_a_namespace("late", || {
        let machine = Machine::new(three_nodes());
        let (second, third) = (Other::start(&machine, "node2"), Other::start(&machine, "node3"));
        thread::scope(|scope| {
            scope.spawn(|| second.fetch());
            // The third node announces itself and is stopped before it has its keys.
            let (goal, context) = machine.boot().unwrap();
            assert_eq!(goal, Goal::Form);
            assert!(context.node.take_rendezvous().is_some());
        });
        assert_eq!(third.state(), Membership::Unformed);
        let records = machine.records();
        assert!(records.progress().unwrap().formed && machine.etcd.standing("node1").is_some());
        assert_eq!(machine.identity().state, DiskState::Formed);
        assert_eq!(records.rendezvous().unwrap().awaited(), ["node2", "node3"]);
        assert!(records.secret().unwrap().is_some());
        assert!(records.entry::<JoinWindows>().unwrap().unwrap().left("node3").is_some(), "its hour has begun");
        // Its hour is over.
        records.forget::<JoinWindows>().unwrap();

        // The same after a restart, before etcd starts: the third node may be needed for the quorum.
        machine.another_answers("node2");
        let until = Instant::now() + LIMIT;
        let open = loop {
            let (goal, context) = machine.boot().unwrap();
            assert_eq!(goal, Goal::Resume);
            match context.node.take_rendezvous() {
                Some(open) => break open,
                // The port may have been in use, as in `take`.
                None => assert!(Instant::now() < until, "the rendezvous is not open"),
            }
        };
        third.is_refused();
        JoinWindows::begin_again(&records, "node3", join_window::uptime().unwrap()).unwrap();
        third.fetch();
        assert_eq!(third.state().cluster(), machine.cluster());
        drop(open);

        // Without the secret no node can be met, but the node works.
        records.erase_secret().unwrap();
        assert_eq!(machine.boot().unwrap().0, Goal::Resume);
    });
}

/// A member of three that has its keys, while the first node that handed them out is lost.
pub(super) fn member() -> (Machine, Uuid) {
    let mut config = three_nodes();
    config.cluster.control_nodes.rotate_left(1);
    assert_eq!(config.cluster.control_nodes[0].name, "node2");
    let (machine, now) = (Machine::new(config), SystemTime::now());
    let decided = RendezvousRecord::decide(&machine.config.cluster, "node2", now).unwrap();
    let RendezvousRecord::First { bundles, cluster, .. } = decided else { panic!("it has not decided") };
    let bundle = bundles["node1"].clone();
    let node = machine.config.control_node().unwrap();
    bundle.ensure(node, &files::below(machine.root(), PKI), now).unwrap();
    machine.records().save_config(&machine.whole(), &machine.secret).unwrap();
    let record = RendezvousRecord::Member { bundle: Box::new(bundle), admitted: false };
    machine.records().save_rendezvous(&record).unwrap();
    (machine, cluster)
}

#[test]
fn member_joins_after_loss_of_first_node() {
    in_a_namespace("lost", || {
        let (machine, cluster) = member();
        assert_eq!(machine.boot().unwrap().0, Goal::Form);
        let records = machine.records();
        assert_eq!(records.rendezvous().unwrap(), RendezvousRecord::Closed { cluster });
        assert!(records.progress().unwrap().formed && records.secret().unwrap().is_none());
        assert!(machine.etcd.standing("node1").is_some(), "its join is on record");
        machine.another_answers("node3");
        assert_eq!(machine.boot().unwrap().0, Goal::Resume);
    });
}

#[test]
fn replaced_member_starts_no_etcd() {
    in_a_namespace("replaced", || {
        let (machine, _) = member();
        machine.another_answers("node3");
        let own = NodeRecord::of_disk(&machine.identity(), "build", &machine.records()).unwrap();
        let replaced = NodeRecord { disk: Uuid::from_u128(99), ..own };
        let (node, pki) = (machine.config.control_node().unwrap(), files::below(machine.root(), PKI));
        let etcd = EtcdClient::new(node, &pki, Duration::from_secs(60)).unwrap();
        etcd.put("/kaas/nodes/node1", &serde_json::to_vec(&replaced).unwrap()).unwrap();
        let refused = machine.boot().map(|(goal, _)| goal).unwrap_err().to_string();
        assert!(refused.contains("disk.superseded") && refused.contains("replace-member node1"), "{refused}");
        assert!(!files::below(machine.root(), "/var/lib/etcd/member").exists());
    });
}

#[test]
fn copied_data_disk_starts_no_etcd() {
    in_a_namespace("cloned", || {
        let (machine, _) = member();
        machine.another_answers("node3");
        let own = NodeRecord::of_disk(&machine.identity(), "build", &machine.records()).unwrap();
        assert!(own.holder.is_some());
        let cloned = NodeRecord { holder: Some(BiosUuid::from_u128(98)), ..own };
        let (node, pki) = (machine.config.control_node().unwrap(), files::below(machine.root(), PKI));
        let etcd = EtcdClient::new(node, &pki, Duration::from_secs(60)).unwrap();
        etcd.put("/kaas/nodes/node1", &serde_json::to_vec(&cloned).unwrap()).unwrap();
        let refused = machine.boot().map(|(goal, _)| goal).unwrap_err().to_string();
        assert!(refused.contains("disk.cloned"), "{refused}");
        assert!(!files::below(machine.root(), "/var/lib/etcd/member").exists());
    });
}

#[test]
fn restarted_node_learns_revoked_certificates_from_etcd() {
    in_a_namespace("revoked", || {
        let machine = Machine::new(one_node());
        machine.boot().unwrap();
        machine.etcd.set("/kaas/revoked/user/anna", "revoked");
        let mut context = machine.decide().unwrap();
        let steps = steps(&context);
        let etcd = steps.iter().position(|step| *step == Step::Etcd).unwrap();
        steps[..=etcd].iter().try_for_each(|step| take(&mut context, step)).unwrap();
        let list = machine.records().entry::<RevocationList>().unwrap().unwrap();
        assert_eq!(serde_json::to_value(list).unwrap(), json!({"names": ["user/anna"]}));
    });
}

#[test]
fn member_without_data_starts_no_etcd() {
    in_a_namespace("gone", || {
        let machine = Machine::new(one_node());
        machine.boot().unwrap();
        let member = files::below(machine.root(), "/var/lib/etcd/member");
        fs::remove_dir_all(&member).unwrap();
        let refused = machine.boot().map(|(goal, _)| goal).unwrap_err().to_string();
        assert!(
            refused.contains("etcd.data-lost") && refused.contains("`kaas-agent replace-member node1`"),
            "{refused}"
        );
        assert!(!member.exists(), "a blank one was started");
    });
}

#[test]
fn data_of_another_etcd_version_are_refused_unchanged() {
    in_a_namespace("minor", || {
        let machine = Machine::new(one_node());
        machine.boot().unwrap();
        let note = r#"{"version": "3.5.24"}"#;
        lay(machine.root(), "/data/kaas/etcd-version.json", note.as_bytes());
        let refused = machine.boot().map(|(goal, _)| goal).unwrap_err().to_string();
        assert!(
            refused.contains("etcd.other-minor") && refused.contains("etcd 3.5.24 has used them last"),
            "{refused}"
        );
        let left = fs::read_to_string(machine.root().join("data/kaas/etcd-version.json")).unwrap();
        assert_eq!(left, note, "the data pass for those of the image's own etcd");
        assert!(!files::below(machine.root(), etcd::CONFIGURATION).exists(), "etcd was about to start");
    });
}

#[test]
fn interrupted_restore_continues_with_the_restored_data() {
    in_a_namespace("halfway", || {
        let machine = Machine::new(one_node());
        machine.boot().unwrap();
        // The old data are moved away, and the new ones are not in place yet.
        let data = files::below(machine.root(), etcd::DATA);
        fs::rename(data.join("member"), data.join("member.before-restore-2026-11-21T14:30:05Z")).unwrap();
        let restored = RestoreRecord {
            token: "restored-1".into(),
            members: vec!["node1".into()],
            at: "2026-11-21T14:30:05Z".into(),
        };
        fs::create_dir_all(data.join("member.restored/wal")).unwrap();
        fs::write(data.join("member.restored/restored.json"), serde_json::to_vec(&restored).unwrap()).unwrap();
        assert_eq!(machine.boot().unwrap().0, Goal::Resume);
        assert!(data.join("member/restored.json").exists() && !data.join("member.restored").exists());
        assert_eq!(machine.records().entry::<RestoreRecord>().unwrap(), Some(restored));
        let configuration = fs::read_to_string(files::below(machine.root(), etcd::CONFIGURATION)).unwrap();
        assert!(configuration.contains("restored-1"), "{configuration}");
    });
}

#[test]
fn member_without_answers_waits_before_starting_etcd() {
    in_a_namespace("silent", || {
        let (machine, _) = member();
        assert_eq!(machine.boot().unwrap().0, Goal::Form);
        let waits = machine.boot().map(|(goal, _)| goal).unwrap_err().to_string();
        assert!(
            waits.contains("waiting for another control-plane node, which knows whether this data disk"),
            "{waits}"
        );
        assert!(!files::below(machine.root(), etcd::CONFIGURATION).exists(), "etcd was about to start");

        // The wait ends after the limit, and not before.
        let mut context = machine.decide().unwrap();
        let limit = context.node.config.timeout(super::etcd::ANSWERING);
        for (waited, starts) in [(limit / 2, false), (limit, true)] {
            context.unanswered = Instant::now().checked_sub(waited);
            let done = steps(&context).iter().try_for_each(|step| take(&mut context, step));
            assert_eq!(done.is_ok(), starts, "after {} s: {done:?}", waited.as_secs());
        }
        assert!(files::below(machine.root(), etcd::CONFIGURATION).exists());
    });
}

#[test]
fn node_without_firewall_stays_off_the_network() {
    in_a_namespace("open", || {
        let mut machine = Machine::new(one_node());
        machine.broken = Some("nft");
        let refused = machine.boot().map(|(goal, _)| goal).unwrap_err().to_string();
        assert!(refused.contains("firewall.failed"), "{refused}");
        // The test has no adapters, but their step comes after the firewall's, and so do the steps that form a node.
        let config = machine.whole();
        let observed = Observed {
            image: machine.image.clone(),
            storage: NodeStorage::DataDisk(Found::Ours(machine.disk())),
            progress: machine.records().progress().unwrap(),
            rendezvous_closed: false,
            upgrading: None,
            volumes: None,
        };
        let steps = plan::decide(&config, &observed).unwrap().steps;
        let at = |wanted: fn(&Step) -> bool| steps.iter().position(wanted).unwrap();
        assert!(at(|step| matches!(step, Step::Firewall)) < at(|step| matches!(step, Step::Network)));
        assert_eq!((machine.cluster(), machine.authority()), (None, None));

        machine.broken = None;
        assert_eq!(machine.boot().unwrap().0, Goal::Form, "it is tried again");
    });
}
