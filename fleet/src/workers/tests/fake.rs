//! Workers and their cluster in the world of tests.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, bail};
use async_trait::async_trait;
use contract::bios_uuid::BiosUuid;
use contract::deployer::Fingerprint;
use contract::statement::{Phase, Statement};
use tokio::sync::watch;
use tokio::time::Instant;
use uuid::Uuid;

use crate::hypervisor::{
    Absence, Adapter, CloneRequest, CloneSettings, DiskRef, Error, ErrorKind, Fence, LastSeen, PowerState, Result,
    Size, Stamp, Vm, VmRef,
};
use crate::lease::{Lease, TakeOver};
pub use crate::testing::{DEPLOYMENT, Does, Fault, Machine, vm};
use crate::testing::{Part, data_disk, doubtful, is_ours};
use crate::workers::{
    Addresses, Changes, Cluster, ClusterChange, Discards, Evicted, Goal, Image, NodeSeen, Notice, OvaImage, Placed,
    PodSeen, Pool, PoolRecord, Records, Removal, Rollout, RunOutcome, Site, Template, Wait, Workers, WorkersStatus,
    records,
};

pub type World = crate::testing::World<WorkerNodes>;
pub type State = crate::testing::State<WorkerNodes>;
pub type Given = crate::testing::Given<RunOutcome, WorkersStatus>;

impl Given {
    pub fn done(self) -> WorkersStatus {
        let (arrived, status) = self.arrived();
        assert_eq!(arrived, RunOutcome::Done, "{status:?}");
        status
    }

    pub fn paused(self) -> Vec<Wait> {
        match self.arrived() {
            (RunOutcome::Paused(waits), _) => waits,
            other => panic!("{other:?}"),
        }
    }

    pub fn stopped(self) -> Vec<Wait> {
        match self.arrived() {
            (RunOutcome::Stopped(waits), _) => waits,
            other => panic!("{other:?}"),
        }
    }

    /// The codes of what it waits for, or of why it stopped.
    pub fn codes(self) -> Vec<String> {
        match self.arrived().0 {
            RunOutcome::Paused(waits) | RunOutcome::Stopped(waits) => {
                waits.into_iter().map(|wait| wait.reason.code).collect()
            }
            RunOutcome::Done | RunOutcome::Cancelled => Vec::new(),
        }
    }
}

/// The result of a command, and of the action so many seconds after its beginning.
pub async fn with_later<T>(
    command: impl Future<Output = Given>,
    seconds: u64,
    act: impl AsyncFnOnce() -> T,
) -> (Given, T) {
    let later = async {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        act().await
    };
    tokio::join!(command, later)
}

/// When the world begins, in seconds of Unix time.
const BEGINNING: u64 = 1_000_000;
/// How long a VM takes until it asks to join.
const ASKS: Duration = Duration::from_secs(2);
/// How long a VM takes to join.
const JOINS: Duration = Duration::from_secs(5);
/// The key of an intruder.
pub const ANOTHER: &str = "another";
/// How long a pod takes to end.
const ENDS: Duration = Duration::from_secs(3);

struct Pod {
    seen: PodSeen,
    ended: Option<Instant>,
}

#[derive(Default)]
pub struct WorkerNodes {
    /// Whether guests read their BIOS UUID in the hypervisor's order.
    pub in_order_uuids: bool,
    /// BIOS UUIDs of VMs that may run, though no look shows them.
    pub may_run: BTreeSet<Uuid>,
    pub nodes: Vec<NodeSeen>,
    pods: BTreeMap<String, Vec<Pod>>,
    pub tokens: BTreeMap<String, u64>,
    /// The keys that were admitted last, by name, as control-plane nodes have recorded them.
    pub let_in: BTreeMap<String, String>,
    /// Whether control-plane nodes record no keys: those of an earlier image do not.
    pub notes_no_keys: bool,
    /// Whether workers report no key: those of an earlier image do not.
    pub say_no_key: bool,
    /// Why the hypervisor does not show the statements of VMs.
    pub is_deaf: Option<&'static str>,
    /// Workers in whose place an intruder joins that has read the form, once that has a token and the VM is on.
    pub intruded: BTreeSet<String>,
    pub claims: BTreeMap<String, Vec<String>>,
    /// Images whose VMs never join.
    pub ill: BTreeSet<String>,
    /// Workers whose certificates have expired: only a token admits them again.
    pub expired: BTreeSet<String>,
    /// The findings of workers that are on, by VM: the code, and whether waiting does not fix it.
    pub refusing: BTreeMap<String, (&'static str, bool)>,
    /// The error of a change of a VM's properties.
    pub forms_are: Option<ErrorKind>,
    /// The timeout factor of workers. 0: none is set.
    pub timeout_factor: u32,
    /// Nodes whose pods a PodDisruptionBudget keeps.
    pub blocked: BTreeSet<String>,
    /// Pods whose eviction a webhook denies, by name.
    pub unevictable: BTreeSet<String>,
    /// Pods of which an eviction is not answered, by name.
    pub unanswered: BTreeSet<String>,
    /// Nodes on which another pod takes the place of each that goes, at once.
    pub coming_back: BTreeSet<String>,
    /// How long the API takes to list the pods of a node.
    pub listing: Duration,
    /// How long the API takes to answer an eviction.
    pub evicting: Duration,
    /// Whether no control-plane node has a VM.
    pub is_without_control: bool,
    /// Whether the API is cut off.
    pub cut: bool,
    /// Since when nodes leave the addresses of services to others, by UID.
    left: BTreeMap<String, u64>,
    /// How long others take to answer for the addresses of services in the place of one that leaves, in seconds.
    pub handing_over: u64,
    /// Version of kubelets that join.
    pub kubelet: String,
    /// Whether the API takes nodes for Ready that have just lost their power.
    pub unnoticed: bool,
    /// How long a VM takes to be made.
    pub making: Duration,
    /// The fewest workers that did their part since that was last asked.
    fewest: usize,
    /// The most VMs that there were.
    most: usize,
}

/// The digest of the image with this name.
pub fn digest(image: &str) -> String {
    Fingerprint::of(image.as_bytes()).digits()
}

pub fn template(image: &str) -> Template {
    Template {
        image: Image { digest: digest(image), name: format!("kaas-tenant {image}") },
        kubernetes: "1.36".to_owned(),
        size: Size { processors: 2, memory: 2048, data_disk: None },
        labels: BTreeMap::from([("tier".to_owned(), "web".to_owned())]),
        taints: BTreeSet::new(),
    }
}

pub fn pool(count: usize) -> Pool {
    Pool {
        name: "general".to_owned(),
        prefix: "t".to_owned(),
        count,
        template: template("one"),
        ova: "one.ova".into(),
        carries: carries(),
        addresses: Some(Addresses { first: [10, 0, 0, 20].into(), last: [10, 0, 0, 29].into(), prefix: 24 }),
        rollout: Rollout::default(),
        last_index: 0,
        powers_on: false,
        keeps_lost: false,
        failed_joins: None,
        remove_first: BTreeSet::new(),
    }
}

/// The Kubernetes versions of each image.
fn carries() -> Vec<String> {
    ["1.35", "1.36"].map(str::to_owned).to_vec()
}

pub fn replace(image: &str, changes: Changes) -> Goal {
    let ova = format!("{image}.ova").into();
    let Template { image, kubernetes, .. } = template(image);
    let image = Some(OvaImage { image, ova, carries: carries() });
    let cluster = kubernetes.parse().unwrap();
    Goal::Replace { image, cluster, kubernetes: None, changes: Box::new(changes), discards: Discards::default() }
}

/// Workers of the image that they have, in a cluster of this minor version.
pub fn raise(cluster: &str, kubernetes: Option<&str>) -> Goal {
    let Goal::Replace { changes, discards, .. } = replace("one", Changes::default()) else { unreachable!() };
    let kubernetes = kubernetes.map(|version| version.parse().unwrap());
    Goal::Replace { image: None, cluster: cluster.parse().unwrap(), kubernetes, changes, discards }
}

pub fn remove(worker: &str) -> Goal {
    Goal::Remove { worker: worker.to_owned(), discards: Discards::default() }
}

/// Volumes are deleted with their worker.
pub const VOLUMES: Discards = Discards { delete_local_volumes: true, delete_unmanaged_pods: false };
/// Unmanaged pods are deleted with their worker.
pub const PODS: Discards = Discards { delete_local_volumes: false, delete_unmanaged_pods: true };

pub fn remove_with(worker: &str, discards: Discards) -> Goal {
    Goal::Remove { worker: worker.to_owned(), discards }
}

pub fn rejoin(worker: &str) -> Goal {
    Goal::Rejoin { worker: worker.to_owned() }
}

/// The BIOS UUID that the guest of a VM reads: images up to 0.1 read `product_uuid`, whose bytes VMware swaps from hardware
/// 13 on.
fn reading(vm: Uuid, in_order: bool) -> BiosUuid {
    let vm = BiosUuid::from(vm);
    if in_order { vm } else { vm.swapped() }
}

/// The statement of a VM that has joined.
pub fn done(machine: Option<BiosUuid>) -> Statement {
    Statement {
        machine,
        phase: Phase::Done,
        code: None,
        words: "well".to_owned(),
        lasting: false,
        times: 0,
        token: None,
        key: None,
        at: 0,
    }
}

/// A worker's node that is Ready and says that it runs on this.
pub fn node_on(name: &str, provider: &str) -> NodeSeen {
    NodeSeen {
        name: name.to_owned(),
        uid: name.to_owned(),
        provider: provider.to_owned(),
        ready: true,
        cordoned: false,
        address: None,
        excluded: false,
        control: false,
        kubelet: String::new(),
        heard: String::new(),
    }
}

impl World {
    pub fn new() -> Self {
        let world = Self::with_strangers("t-w1");
        world.lock().machines[0].vm.power = PowerState::On;
        world
    }

    /// With a pool of so many workers that have joined.
    pub async fn with(count: usize) -> Self {
        let world = Self::new();
        world.give(Goal::Create(Box::new(pool(count)))).await.done();
        world.begin_counting();
        world
    }

    /// The number of the first call of this name while a second worker is added.
    pub async fn first_of_adding(call: &str) -> usize {
        let world = Self::with(1).await;
        world.set_fault(None);
        world.give(Goal::Add(1)).await.done();
        world.first_call(call)
    }

    /// With one worker. The command that adds a second one was killed at the first call of this name.
    pub async fn killed_while_adding(call: &str, fault: Fault) -> Self {
        let at = Self::first_of_adding(call).await;
        let world = Self::with(1).await;
        world.dies((at, fault), world.give(Goal::Add(1))).await;
        world
    }

    pub fn now(&self) -> u64 {
        BEGINNING + self.age().as_secs()
    }

    pub fn begin_counting(&self) {
        let mut state = self.lock();
        (state.fewest, state.most) = (usize::MAX, 0);
        state.count();
    }

    pub fn fewest(&self) -> usize {
        self.lock().fewest
    }

    pub fn most(&self) -> usize {
        self.lock().most
    }

    /// The operator removes a file of a lease.
    pub fn lose_file(&self, number: u64, file: &str) {
        self.lock().holds_mut().get_mut(&number).expect("a hold").remove(file);
    }

    pub async fn kept(&self) -> Option<PoolRecord> {
        records::read(self).await.unwrap()
    }

    /// The operator chooses what happens to a worker's VM.
    pub async fn has_removed_by(&self, worker: &str, removal: Removal) {
        let mut kept = self.kept().await.expect("a pool");
        kept.machines.iter_mut().filter(|machine| machine.name == worker).for_each(|it| it.removal = removal);
        self.keep(kept).await;
    }

    /// The VMs that were given up.
    pub fn given_up(&self) -> Vec<Vm> {
        let is_nobodys = |vm: &&Vm| vm.stamp.as_ref().is_some_and(|stamp| stamp.deployment.is_nil());
        self.lock().machines.iter().map(|machine| &machine.vm).filter(is_nobodys).cloned().collect()
    }

    /// An earlier command has noted this.
    pub async fn keep(&self, kept: PoolRecord) {
        let hold = Lease::acquire(self, "an earlier command", TakeOver::FromAnyone, &|_| {}).await.unwrap();
        Records::begin(&hold, kept).await.unwrap();
        hold.release().await;
    }

    pub async fn give(&self, wish: Goal) -> Given {
        self.give_with(wish, TakeOver::FromTheDead, watch::channel(false).1).await
    }

    /// By an operator who sees that no other command is at work.
    pub async fn give_over(&self, wish: Goal) -> Given {
        self.give_with(wish, TakeOver::FromAnyone, watch::channel(false).1).await
    }

    /// By an operator who ends the command after a minute.
    pub async fn give_for_a_minute(&self, wish: Goal) -> Given {
        let (cancel, cancelled) = watch::channel(false);
        let ended = async {
            tokio::time::sleep(Duration::from_secs(60)).await;
            cancel.send_replace(true);
        };
        tokio::join!(self.give_with(wish, TakeOver::FromTheDead, cancelled), ended).0
    }

    /// The status, without a change.
    pub async fn status(&self) -> anyhow::Result<Option<WorkersStatus>> {
        self.acting(watch::channel(false).1, async |workers| workers.status().await).await
    }

    pub async fn give_with(&self, wish: Goal, over: TakeOver, cancelled: watch::Receiver<bool>) -> Given {
        self.run(self.acting(cancelled, async |workers| workers.go(&wish, over).await)).await
    }

    pub async fn acting<T>(&self, cancelled: watch::Receiver<bool>, act: impl AsyncFnOnce(&Workers<'_>) -> T) -> T {
        let (world, clock) = (self.clone(), || self.now());
        let is_without = self.lock().is_without_control;
        let beside = (!is_without).then(|| vm("cp1", Uuid::from_u128(0xc1), None));
        let workers = Workers {
            hypervisor: &world,
            cluster: &world,
            store: &world,
            beside,
            placed: &|_| Placed::default(),
            site: self.site(),
            what: "a test",
            watch: &|notice: &Notice<'_>| log::trace!("{notice:?}"),
            clock: &clock,
            pace: Duration::from_secs(1),
            pause_limit: Duration::from_secs(1200),
            restorable: self.lock().restorable,
            cancelled,
        };
        act(&workers).await
    }

    fn site(&self) -> Site {
        let factor = Some(self.lock().timeout_factor).filter(|factor| *factor > 0);
        let factor = factor.map(|factor| ("timeout-factor".to_owned(), factor.to_string()));
        Site([("cluster-name".to_owned(), "t".to_owned())].into_iter().chain(factor).collect())
    }

    async fn ask<T: Send>(
        &self,
        name: &'static str,
        does: Does,
        act: impl FnOnce(&mut State) -> anyhow::Result<T> + Send + 'static,
    ) -> anyhow::Result<T> {
        let (now, instant) = (self.now(), Instant::now());
        self.call(name, does, move |state| {
            if state.cut {
                bail!("the API does not answer");
            }
            state.pass(now, instant);
            act(state)
        })
        .await
    }
}

impl Machine {
    /// The key that it asks to join with.
    fn key(&self) -> String {
        format!("{}of{}", self.token, self.vm.uuid().simple())
    }
}

impl State {
    fn reading(&self, vm: Uuid) -> BiosUuid {
        reading(vm, self.in_order_uuids)
    }

    /// An intruder that has read a worker's form joins in its place. The node reports that VM, is Ready, and ends no pod.
    fn intrude(&mut self, vm: &Vm, now: u64) {
        self.let_in.insert(vm.name.clone(), ANOTHER.to_owned());
        let own = self.reading(vm.uuid()).provider_id();
        match self.nodes.iter_mut().find(|node| node.provider == own) {
            Some(node) => (node.ready, node.heard) = (true, now.to_string()),
            None => self.add_node(vm.name.clone(), vm.uuid(), now),
        }
    }

    fn count(&mut self) {
        let serves = self.nodes.iter().filter(|node| node.ready && !node.cordoned).count();
        self.fewest = self.fewest.min(serves);
        self.most = self.most.max(self.machines.iter().filter(|machine| is_ours(&machine.vm)).count());
    }

    /// Time passes: VMs join, pods end.
    fn pass(&mut self, now: u64, instant: Instant) {
        let mut joined = Vec::new();
        for machine in self.machines.iter().filter(|machine| machine.vm.power == PowerState::On && machine.whole) {
            let due = machine.powered.is_some_and(|at| at + JOINS <= instant);
            let known = self.nodes.iter().any(|node| node.name == machine.vm.name);
            let good = self.tokens.get(&machine.token).is_some_and(|expires| *expires > now);
            let is_ill = self.ill.iter().any(|image| digest(image) == machine.vm.version);
            let refuses = self.refusing.contains_key(&machine.vm.name) || self.is_anothers(machine);
            if due && !known && good && !refuses && !is_ill {
                joined.push((machine.vm.name.clone(), machine.vm.uuid(), machine.key()));
            }
        }
        let intruded: BTreeSet<String> = self
            .machines
            .iter()
            .filter(|machine| self.is_anothers(machine))
            .map(|machine| machine.vm.name.clone())
            .collect();
        let in_order = self.in_order_uuids;
        let part = &mut self.part;
        for machine in &mut self.machines {
            let own = reading(machine.vm.uuid(), in_order).provider_id();
            let mut nodes = part.nodes.iter_mut();
            let is_good = part.tokens.get(&machine.token).is_some_and(|expires| *expires > now);
            let refuses = part.refusing.contains_key(&machine.vm.name) || intruded.contains(&machine.vm.name);
            let is_known = !refuses && (is_good || !part.expired.contains(&machine.vm.name));
            let runs = machine.vm.power == PowerState::On;
            let due = runs && machine.returns && machine.powered.is_some_and(|at| at + JOINS <= instant) && is_known;
            if due && let Some(node) = nodes.find(|node| node.provider == own) {
                (node.ready, machine.returns) = (true, false);
                part.expired.remove(&machine.vm.name);
                node.heard = now.to_string();
                if is_good {
                    part.let_in.insert(machine.vm.name.clone(), machine.key());
                }
            }
        }
        for (name, uuid, key) in joined {
            self.let_in.insert(name.clone(), key);
            for machine in self.machines.iter_mut().filter(|machine| machine.vm.uuid() == uuid) {
                machine.returns = false;
            }
            self.add_node(name, uuid, now);
        }
        let WorkerNodes { let_in: others, pods, .. } = &mut self.part;
        let ends = |node: &String| others.get(node).is_none_or(|key| key != ANOTHER);
        for (_, pods) in pods.iter_mut().filter(|(node, _)| ends(node)) {
            pods.retain(|pod| pod.ended.is_none_or(|at| at > instant));
        }
    }

    /// A node that is Ready, with a pod.
    fn add_node(&mut self, name: String, vm: Uuid, now: u64) {
        self.made += 1;
        let uid = format!("node-{}", self.made);
        let address = u8::try_from(self.made).ok().map(|last| [10, 9, 0, last].into());
        let pod = PodSeen {
            namespace: "web".to_owned(),
            name: format!("of-{name}"),
            uid: uid.clone(),
            ending: false,
            bare: false,
        };
        self.pods.insert(name.clone(), vec![Pod { seen: pod, ended: None }]);
        let provider = self.reading(vm).provider_id();
        let (kubelet, heard) = (self.kubelet.clone(), now.to_string());
        self.nodes.push(NodeSeen { uid, kubelet, address, heard, ..node_on(&name, &provider) });
    }

    /// Whether an intruder was admitted by a worker's name.
    fn is_anothers(&self, machine: &Machine) -> bool {
        self.let_in.get(&machine.vm.name).is_some_and(|key| key == ANOTHER)
    }

    fn has_pods(&self, node: &str) -> bool {
        self.pods.get(node).is_some_and(|pods| !pods.is_empty())
    }

    /// The statement of a VM. It tries again every 30 s.
    fn said(&self, vm: &VmRef, now: u64, instant: Instant) -> Option<Statement> {
        let machine = self.machines.iter().find(|machine| machine.vm.reference == *vm)?;
        let name = &machine.vm.name;
        let asks = instant.checked_duration_since(machine.powered? + ASKS)?.as_secs();
        let key = Some(machine.key()).filter(|_| !self.say_no_key);
        let token = Some(machine.token.clone()).filter(|token| !token.is_empty());
        let Some((code, lasting)) = self.refusing.get(name).copied() else {
            let is_well = self.let_in.get(name) == Some(&machine.key()) && !self.expired.contains(name);
            let is_done = is_well && asks >= (JOINS - ASKS).as_secs();
            let words = if is_done { "well" } else { "waiting for the cluster to sign its certificate" };
            let phase = if is_done { Phase::Done } else { Phase::Waiting };
            let (words, token, at) = (words.to_owned(), token.filter(|_| !is_done), now - asks);
            return Some(Statement { phase, words, token, key, at, ..done(Some(self.reading(vm.uuid))) });
        };
        let since = instant.checked_duration_since(machine.powered? + JOINS)?.as_secs();
        Some(Statement {
            machine: Some(self.reading(vm.uuid)),
            phase: Phase::Refused,
            code: Some(code.to_owned()),
            words: format!("{code}, in words"),
            lasting,
            times: u32::try_from(since / 30 + 1).unwrap(),
            token,
            key: None,
            at: now - since % 30,
        })
    }

    /// The services whose addresses a node answers for.
    fn announced(&self, node: &str, now: u64) -> Vec<String> {
        let node = self.nodes.iter().find(|one| one.name == node && one.ready);
        let left = node.and_then(|node| self.left.get(&node.uid));
        let still = node.is_some() && left.is_none_or(|left| now < left + self.handing_over);
        if still { vec!["web/web".to_owned()] } else { Vec::new() }
    }

    /// Checks that others have answered for the addresses of services for some seconds. Earlier, neither pods nor the node may go.
    fn leads_nothing_on(&self, node: &str, now: u64) {
        let Some(node) = self.nodes.iter().find(|one| one.name == node && one.ready) else { return };
        let last = self.left.get(&node.uid).map(|left| left + self.handing_over.min(60));
        assert!(
            last.is_some_and(|last| last + 4 <= now),
            "services are still reached by {} and it is emptied",
            node.name
        );
    }

    /// A worker's VM loses its power.
    pub fn lose_power(&mut self, name: &str) {
        let vm = &mut self.named(name).vm;
        vm.power = PowerState::Off;
        let uuid = vm.uuid();
        self.off(uuid);
    }

    /// Another VM has the BIOS UUID and the stamp of a worker's, is off and called otherwise.
    pub fn copy_vm(&mut self, name: &str) -> &mut Vm {
        let mut copy = self.named(name).clone();
        (copy.vm.power, copy.vm.name) = (PowerState::Off, format!("{name}-copy"));
        copy.vm.reference.id.push_str("-copy");
        self.machines.push(copy);
        &mut self.machines.last_mut().expect("the copy").vm
    }

    /// Another client removes a worker's VM.
    pub fn lose_vm(&mut self, name: &str) {
        self.machines.retain(|machine| !is_ours(&machine.vm) || machine.vm.name != name);
        self.silence(name);
    }

    /// A VM of the pool without a record, as a lost journal leaves it.
    pub fn leave_vm(&mut self, name: &str) {
        let stamp = Stamp { deployment: DEPLOYMENT, node: name.to_owned(), swap: Some(Uuid::from_u128(0x1ef)) };
        let vm = vm(name, Uuid::from_u128(0x1e0), Some(stamp));
        self.machines.push(Machine::of(vm));
    }

    /// Adds a pod to a worker, in front of the others.
    pub fn add_pod(&mut self, node: &str, name: &str) {
        let pods = self.pods.get_mut(node).expect("a worker with a pod");
        let seen = PodSeen { name: name.to_owned(), uid: name.to_owned(), ending: false, ..pods[0].seen.clone() };
        pods.insert(0, Pod { seen, ended: None });
    }

    /// The names of the pods of a worker.
    pub fn pods_on(&self, node: &str) -> Vec<String> {
        self.pods.get(node).into_iter().flatten().map(|pod| pod.seen.name.clone()).collect()
    }

    /// The pods of a worker lose their controller.
    pub fn bare(&mut self, node: &str) {
        for pod in self.pods.get_mut(node).into_iter().flatten() {
            pod.seen.bare = true;
        }
    }

    /// Cuts a worker off: its node no longer reports.
    pub fn silence(&mut self, node: &str) {
        self.nodes.iter_mut().find(|one| one.name == node).unwrap().ready = false;
    }

    /// A worker's certificate expires: the cluster no longer accepts it, even after a restart.
    pub fn expire(&mut self, node: &str) {
        self.silence(node);
        self.expired.insert(node.to_owned());
    }

    pub fn add_disk(&mut self, name: &str) {
        let reference = DiskRef { uuid: Uuid::from_u128(0xd), path: "volumes".to_owned() };
        self.named(name).vm.disks.push(data_disk(reference));
    }

    fn off(&mut self, vm: Uuid) {
        if self.unnoticed {
            return;
        }
        let own = self.reading(vm).provider_id();
        let WorkerNodes { let_in: others, nodes, .. } = &mut self.part;
        let is_its = |node: &NodeSeen| others.get(&node.name).is_none_or(|key| key != ANOTHER);
        for node in nodes.iter_mut().filter(|node| node.provider == own && is_its(node)) {
            node.ready = false;
        }
    }
}

#[async_trait]
impl Part for WorkerNodes {
    const IS_FIRST: bool = false;

    fn count(state: &mut State) {
        state.count();
    }

    fn powered_on(state: &mut State, vm: &Vm, age: u64) {
        let has_token = !state.named(&vm.name).token.is_empty();
        if has_token && state.intruded.remove(&vm.name) {
            state.intrude(vm, BEGINNING + age);
        }
    }

    fn receives_shut_down(state: &State, vm: &Vm, age: u64) -> bool {
        let own = state.reading(vm.uuid()).provider_id();
        let is_its = state.let_in.get(&vm.name).is_none_or(|key| key != ANOTHER);
        if let Some(node) = state.nodes.iter().find(|node| is_its && node.provider == own && node.ready) {
            assert!(!state.has_pods(&vm.name), "{vm} has pods and was to be shut down");
            state.leads_nothing_on(&node.name, BEGINNING + age);
        }
        true
    }

    fn shut_down(state: &mut State, vm: Uuid) {
        state.off(vm);
    }

    fn may_go(state: &State, vm: &Vm) {
        let own = state.reading(vm.uuid()).provider_id();
        assert!(!state.nodes.iter().any(|node| node.provider == own), "{vm} is a node and was to go");
    }

    fn set_properties(state: &mut State, vm: &Vm, properties: &BTreeMap<String, String>) -> anyhow::Result<()> {
        let token = properties["join-token"].split('.').next().unwrap_or_default().to_owned();
        assert_eq!(properties["node-name"], vm.name);
        assert!(state.tokens.contains_key(&token), "{vm} gets a token that does not exist");
        if let Some(kind) = state.forms_are {
            bail!(Error::new(kind, anyhow::anyhow!("the form stays as it is")));
        }
        let machine = state.own(vm)?;
        assert_eq!(machine.vm.power, PowerState::Off, "{vm} is on and its form was to be changed");
        machine.token = token;
        Ok(())
    }

    async fn statement(world: &World, vm: &VmRef) -> Result<Option<Statement>> {
        let (vm, now, instant) = (vm.clone(), world.now(), Instant::now());
        if let Some(why) = world.lock().is_deaf {
            return Err(Error::transient(anyhow::anyhow!(why)));
        }
        world.look("statement", move |state| state.said(&vm, now, instant)).await
    }

    async fn absence(world: &World, uuid: Uuid, _: LastSeen<'_>) -> Result<Absence> {
        world
            .look("absence", move |state| match state.may_run.contains(&uuid) {
                true => Absence::Unknown("its files are still there".to_owned()),
                false => Absence::Gone,
            })
            .await
    }

    async fn clone_vm(world: &World, request: &CloneRequest<'_>, permit: &dyn Fence) -> Result<Uuid> {
        let CloneSettings::Given { properties, .. } = request.settings else {
            panic!("a worker replaces no other one")
        };
        let (name, stamp) = (request.name.to_owned(), request.stamp.clone());
        let token = properties["join-token"].split('.').next().unwrap_or_default().to_owned();
        let image = request.image.digest.clone();
        let drawn = request.uuid;
        assert_eq!(properties["node-name"], name);
        let making = world.lock().making;
        if !making.is_zero() {
            permit.still().await?;
            tokio::time::sleep(making).await;
        }
        // A command that is killed after this leaves an incomplete VM.
        let begun = world.change("add", permit, move |state| {
            let id = stamp.swap.expect("a machine's stamp");
            let twice = state.machines.iter().filter(|machine| is_ours(&machine.vm)).any(|machine| {
                machine.vm.name == name || machine.vm.stamp.as_ref().is_some_and(|stamp| stamp.swap == Some(id))
            });
            assert!(!twice, "{name} is made twice");
            assert!(state.tokens.contains_key(&token), "{name} is made with a token that does not exist");
            state.made += 1;
            let mut vm = vm(&name, drawn, Some(stamp));
            vm.version = image;
            let adapter = |key: &str| Adapter {
                key: key.to_owned(),
                network: "n".to_owned(),
                mac: format!("m{key}"),
                connected: true,
            };
            vm.adapters = ["4000", "4001"].map(adapter).to_vec();
            let uuid = vm.uuid();
            state.machines.push(Machine { whole: false, token, ..Machine::of(vm) });
            Ok(uuid)
        });
        let uuid = begun.await?;
        world
            .change("add.end", permit, move |state| {
                state.machines.iter_mut().find(|machine| machine.vm.uuid() == uuid).expect("the incomplete VM").whole =
                    true;
                Ok(uuid)
            })
            .await
            .map_err(doubtful)
    }
}

#[async_trait]
impl Cluster for World {
    async fn nodes(&self) -> anyhow::Result<Vec<NodeSeen>> {
        self.ask("nodes", Does::Looks, |state| Ok(state.nodes.clone())).await
    }

    async fn pods(&self, node: &str) -> anyhow::Result<Vec<PodSeen>> {
        let (node, listing) = (node.to_owned(), self.lock().listing);
        tokio::time::sleep(listing).await;
        self.ask("pods", Does::Looks, move |state| {
            Ok(state.pods.get(&node).into_iter().flatten().map(|pod| pod.seen.clone()).collect())
        })
        .await
    }

    async fn local_claims(&self, nodes: &[String]) -> anyhow::Result<BTreeMap<String, Vec<String>>> {
        let nodes = nodes.to_vec();
        self.ask("claims", Does::Looks, move |state| {
            Ok(state.claims.clone().into_iter().filter(|(node, _)| nodes.contains(node)).collect())
        })
        .await
    }

    async fn announced(&self, node: &str) -> anyhow::Result<Vec<String>> {
        let (node, now) = (node.to_owned(), self.now());
        self.ask("announced", Does::Looks, move |state| Ok(state.announced(&node, now))).await
    }

    async fn let_in(&self, nodes: &[&NodeSeen]) -> anyhow::Result<BTreeMap<String, String>> {
        let names: Vec<String> = nodes.iter().map(|node| node.name.clone()).collect();
        self.ask("let_in", Does::Looks, move |state| {
            let noted = |name: &String| Some((name.clone(), state.let_in.get(name)?.clone()));
            Ok(names.iter().filter(|_| !state.notes_no_keys).filter_map(noted).collect())
        })
        .await
    }

    async fn change(&self, change: ClusterChange<'_>) -> anyhow::Result<()> {
        match change {
            ClusterChange::AddToken(token) => {
                let (id, expires) = (token.id.clone(), token.expires);
                self.ask("add_token", Does::ChangesCluster, move |state| {
                    state.tokens.insert(id, expires);
                    Ok(())
                })
                .await
            }
            ClusterChange::RemoveToken(id) => {
                let id = id.to_owned();
                self.ask("remove_token", Does::ChangesCluster, move |state| {
                    state.tokens.remove(&id);
                    Ok(())
                })
                .await
            }
            ClusterChange::Cordon(node) => {
                let (seen, now) = (node.clone(), self.now());
                self.ask("cordon", Does::ChangesCluster, move |state| {
                    let node = state.nodes.iter_mut().find(|node| node.uid == seen.uid).context("no such node")?;
                    (node.cordoned, node.excluded) = (true, true);
                    state.left.entry(seen.uid.clone()).or_insert(now);
                    Ok(())
                })
                .await
            }
            ClusterChange::DeleteNode(node) => {
                let seen = node.clone();
                self.ask("delete_node", Does::ChangesCluster, move |state| {
                    let on = |machine: &Machine| {
                        state.reading(machine.vm.uuid()).provider_id() == seen.provider
                            && machine.vm.power == PowerState::On
                    };
                    assert!(!state.machines.iter().any(on), "the node {} runs and was to be removed", seen.name);
                    state.nodes.retain(|node| node.uid != seen.uid);
                    state.pods.remove(&seen.name);
                    Ok(())
                })
                .await
            }
            ClusterChange::ReleaseName(name) => {
                let name = name.to_owned();
                self.ask("release_name", Does::ChangesCluster, move |state| {
                    let own: BTreeSet<String> =
                        state.machines.iter().map(|machine| state.reading(machine.vm.uuid()).provider_id()).collect();
                    let node = state.nodes.iter().find(|node| node.name == name);
                    assert!(
                        node.is_none_or(|node| !own.contains(&node.provider)),
                        "{name} is a node and was to be released"
                    );
                    let own = |machine: &Machine| is_ours(&machine.vm) && machine.vm.name == name;
                    assert!(!state.machines.iter().any(own), "{name} has a VM and was to be released");
                    state.let_in.remove(&name);
                    Ok(())
                })
                .await
            }
        }
    }

    async fn evict(&self, pod: &PodSeen) -> anyhow::Result<Evicted> {
        let evicting = self.lock().evicting;
        tokio::time::sleep(evicting).await;
        let (seen, ends, now) = (pod.clone(), Instant::now() + ENDS, self.now());
        self.ask("evict", Does::ChangesCluster, move |state| {
            let node = state.pods.iter().find(|(_, pods)| pods.iter().any(|pod| pod.seen.uid == seen.uid));
            let Some(node) = node.map(|(node, _)| node.clone()) else { return Ok(Evicted::Going) };
            state.leads_nothing_on(&node, now);
            if state.blocked.contains(&node) {
                return Ok(Evicted::Blocked("its disruption budget".to_owned()));
            }
            if state.unanswered.contains(&seen.name) {
                bail!("no answer for {}", seen.name);
            }
            if state.unevictable.contains(&seen.name) {
                return Ok(Evicted::Blocked("a webhook denies it".to_owned()));
            }
            for pod in state.pods.get_mut(&node).into_iter().flatten().filter(|pod| pod.seen.uid == seen.uid) {
                (pod.seen.ending, pod.ended) = (true, pod.ended.or(Some(ends)));
            }
            if state.coming_back.contains(&node) {
                state.made += 1;
                let name = format!("{}-{}", seen.name.split('-').next().unwrap_or_default(), state.made);
                state.add_pod(&node, &name);
            }
            Ok(Evicted::Going)
        })
        .await
    }
}
