//! A hypervisor, a cluster and a store in memory. What must never happen panics.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use anyhow::{Context, bail};
use async_trait::async_trait;
use contract::bios_uuid::BiosUuid;
use contract::deployer::Fingerprints;
use contract::statement::{Phase, Statement};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use uuid::Uuid;

use crate::hypervisor::{
    Absence, Adapter, CloneRequest, CloneSettings, DiskRef, Error, ErrorKind, Fence, Hypervisor, ImageTemplate,
    LastSeen, Placement, PowerState, Result, ShutDown, Size, Stamp, Vm, VmRef,
};
use crate::lease::{Lease, Store, TakeOver};
use crate::workers::{
    Addresses, Changes, Cluster, Discards, Evicted, Goal, Image, NodeSeen, Notice, OvaImage, Placed, PodSeen, Pool,
    PoolRecord, Records, Removal, Rollout, RunOutcome, Site, Template, Token, Workers, WorkersStatus, records,
};

pub const DEPLOYMENT: Uuid = Uuid::from_u128(0xaa);
/// When the world begins, in seconds of Unix time.
const BEGINNING: u64 = 1_000_000;
/// How long a VM takes until it asks to join.
const ASKS: Duration = Duration::from_secs(2);
/// How long a VM takes to join.
const JOINS: Duration = Duration::from_secs(5);
/// The key of who joins in another one's place.
pub const ANOTHER: &str = "another";
/// How long a pod takes to end.
const ENDS: Duration = Duration::from_secs(3);

/// What goes wrong at a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An error, and nothing happens.
    Fails,
    /// It happens, and the answer is lost.
    Lost,
    /// The answer is lost, and it happens when the hypervisor settles.
    Late,
    /// The command is killed before.
    KilledBefore,
    /// The command is killed after.
    KilledAfter,
    /// The command is killed, and it happens when the hypervisor settles.
    KilledLate,
    /// Half of a text is written, and the command is killed.
    KilledHalf,
    /// Another command takes over.
    Overtaken,
}

impl Fault {
    pub fn kills(self) -> bool {
        matches!(self, Self::KilledBefore | Self::KilledAfter | Self::KilledLate | Self::KilledHalf)
    }
}

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Does {
    Looks,
    /// Changes something of a VM.
    ChangesVm,
    /// Changes something of the cluster.
    ChangesCluster,
    Writes,
}

impl Does {
    /// All that can go wrong with it.
    pub fn faults(self) -> &'static [Fault] {
        use Fault::{Fails, KilledAfter, KilledBefore, KilledHalf, KilledLate, Late, Lost};
        match self {
            Self::Looks => &[Fails, KilledBefore],
            Self::ChangesVm => &[Fails, Lost, Late, KilledBefore, KilledAfter, KilledLate],
            Self::ChangesCluster => &[Fails, Lost, KilledBefore, KilledAfter],
            Self::Writes => &[Fails, Lost, KilledBefore, KilledAfter, KilledHalf],
        }
    }
}

type Effect = Box<dyn FnOnce(&mut State) + Send>;

struct Pod {
    seen: PodSeen,
    ended: Option<Instant>,
}

#[derive(Clone)]
pub struct Machine {
    pub vm: Vm,
    whole: bool,
    token: String,
    powered: Option<Instant>,
    /// It was powered on, and its node is there already.
    returns: bool,
}

#[derive(Default)]
pub struct State {
    /// Whether what is kept may have been turned back.
    pub restorable: bool,
    /// Whether guests read their BIOS UUID in the hypervisor's order.
    pub in_order_uuids: bool,
    pub machines: Vec<Machine>,
    /// What the hypervisor calls the VMs that lie where only a look by BIOS UUID shows them.
    pub away: BTreeSet<String>,
    /// BIOS UUIDs of VMs that may run, though no look shows them.
    pub may_run: BTreeSet<Uuid>,
    pub nodes: Vec<NodeSeen>,
    pods: BTreeMap<String, Vec<Pod>>,
    pub tokens: BTreeMap<String, u64>,
    /// With which key somebody was let in last, by name, as control nodes have noted.
    pub let_in: BTreeMap<String, String>,
    /// Whether control nodes note no keys: those of an earlier image, or before they have begun to.
    pub notes_no_keys: bool,
    /// Whether workers say no key: those of an earlier image.
    pub say_no_key: bool,
    /// Whether the store says nothing any more of whether a hold is there.
    pub store_hangs: bool,
    /// The call from which on it does.
    pub hangs_from: Option<&'static str>,
    /// How often that was asked meanwhile.
    pub asked_in_vain: usize,
    /// Why the hypervisor does not say what VMs say.
    pub is_deaf: Option<&'static str>,
    /// Workers in whose place somebody joins who has read the form, as soon as that has a token and the VM is on.
    pub intruded: BTreeSet<String>,
    pub claims: BTreeMap<String, Vec<String>>,
    holds: BTreeMap<u64, BTreeMap<String, String>>,
    pub calls: Vec<(&'static str, Does)>,
    fault: Option<(usize, Fault)>,
    late: Vec<Effect>,
    made: u128,
    /// Images whose VMs never join.
    pub ill: BTreeSet<String>,
    /// Workers whose certificates have expired: only a token lets them in again.
    pub expired: BTreeSet<String>,
    /// What workers refuse that are on, by VM: a finding's code, and whether waiting does not mend it.
    pub refusing: BTreeMap<String, (&'static str, bool)>,
    /// What the hypervisor says to whoever fills in a form anew.
    pub forms_are: Option<ErrorKind>,
    /// Whether the hypervisor refuses to power VMs on.
    pub stay_off: bool,
    /// How many times longer than usual workers are told to wait; nothing is said of it at 0.
    pub timeout_factor: u32,
    /// Nodes whose pods a PodDisruptionBudget keeps.
    pub blocked: BTreeSet<String>,
    /// Pods that a webhook lets nobody evict, by name.
    pub unevictable: BTreeSet<String>,
    /// Pods of which an eviction is not answered, by name.
    pub unanswered: BTreeSet<String>,
    /// Nodes on which another pod takes the place of each that goes, at once.
    pub coming_back: BTreeSet<String>,
    /// How long the API takes to list the pods of a node.
    pub listing: Duration,
    /// How long the API takes to answer an eviction.
    pub evicting: Duration,
    /// Whether no control node has a VM.
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

#[derive(Clone)]
pub struct World {
    state: Arc<Mutex<State>>,
    died: Arc<Notify>,
    began: Instant,
}

/// How a command ended.
#[derive(Debug)]
pub enum Given {
    Killed,
    Failed(anyhow::Error),
    Arrived(RunOutcome, Box<WorkersStatus>),
}

impl Given {
    pub fn arrived(self) -> (RunOutcome, WorkersStatus) {
        match self {
            Self::Arrived(arrived, status) => (arrived, *status),
            other => panic!("{other:?}"),
        }
    }

    pub fn done(self) -> WorkersStatus {
        let (arrived, status) = self.arrived();
        assert_eq!(arrived, RunOutcome::Done, "{status:?}");
        status
    }
}

pub fn template(image: &str) -> Template {
    Template {
        image: Image { digest: image.to_owned(), name: format!("kaas-tenant {image}") },
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
    }
}

/// What each image carries.
fn carries() -> Vec<String> {
    ["1.35", "1.36"].map(str::to_owned).to_vec()
}

pub fn replace(image: &str, changes: Changes) -> Goal {
    let Template { image, kubernetes, .. } = template(image);
    let ova = format!("{}.ova", image.digest).into();
    let image = Some(OvaImage { image, ova, carries: carries() });
    let cluster = kubernetes.parse().unwrap();
    Goal::Replace { image, cluster, kubernetes: None, changes: Box::new(changes), discards: Discards::default() }
}

/// Workers of the image that they have, in a cluster of this minor.
pub fn raise(cluster: &str, kubernetes: Option<&str>) -> Goal {
    let Goal::Replace { changes, discards, .. } = replace("one", Changes::default()) else { unreachable!() };
    let kubernetes = kubernetes.map(|minor| minor.parse().unwrap());
    Goal::Replace { image: None, cluster: cluster.parse().unwrap(), kubernetes, changes, discards }
}

pub fn remove(worker: &str) -> Goal {
    Goal::Remove { worker: worker.to_owned(), discards: Discards::default() }
}

/// The BIOS UUID that the guest of a VM reads: images up to 0.1 read `product_uuid`, whose bytes VMware swaps from hardware
/// 13 on.
fn reading(vm: Uuid, in_order: bool) -> BiosUuid {
    let vm = BiosUuid::from(vm);
    if in_order { vm } else { vm.swapped() }
}

/// What a VM says that has joined.
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

pub fn vm(name: &str, uuid: Uuid, stamp: Option<Stamp>) -> Vm {
    Vm {
        reference: VmRef { uuid, id: name.to_owned() },
        name: name.to_owned(),
        stamp,
        power: PowerState::Off,
        size: None,
        disks: Vec::new(),
        adapters: Vec::new(),
        snapshots: Vec::new(),
        tasks: Vec::new(),
        settings: None,
        version: "0".to_owned(),
    }
}

impl World {
    pub fn new() -> Self {
        let world = Self { state: Arc::default(), died: Arc::default(), began: Instant::now() };
        // Others': one looks as if it were the first worker's, in name and identity.
        let stamp = Stamp { deployment: Uuid::from_u128(0xbad), node: "t-w1".to_owned(), swap: None };
        let mut strange = vm("t-w1", Uuid::from_u128(0xb01), Some(stamp));
        strange.power = PowerState::On;
        let machine = |vm| Machine { vm, whole: true, token: String::new(), powered: None, returns: false };
        world.lock().machines = vec![machine(strange), machine(vm("by-hand", Uuid::from_u128(0xb02), None))];
        world
    }

    /// With a pool of so many workers that have joined.
    pub async fn with(count: usize) -> Self {
        let world = Self::new();
        world.give(Goal::Create(Box::new(pool(count)))).await.done();
        world.begin_counting();
        world
    }

    /// Where a call of this name is the first one while a worker is added to one.
    pub async fn first_of_adding(call: &str) -> usize {
        let world = Self::with(1).await;
        world.set_fault(None);
        world.give(Goal::Add(1)).await.done();
        world.lock().calls.iter().position(|(name, _)| *name == call).expect("such a call") + 1
    }

    /// With one worker, and a second one that is being added by a command which was killed at the first call of this name.
    pub async fn killed_while_adding(call: &str, fault: Fault) -> Self {
        let at = Self::first_of_adding(call).await;
        let world = Self::with(1).await;
        world.set_fault(Some((at, fault)));
        assert!(matches!(world.give(Goal::Add(1)).await, Given::Killed));
        world.set_fault(None);
        world
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub fn now(&self) -> u64 {
        BEGINNING + self.began.elapsed().as_secs()
    }

    /// Something goes wrong at this call from now on, counted from 1; calls are counted anew.
    pub fn set_fault(&self, fault: Option<(usize, Fault)>) {
        let mut state = self.lock();
        state.calls.clear();
        state.fault = fault;
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

    /// The pool's VMs by name.
    pub fn own(&self) -> Vec<String> {
        let state = self.lock();
        let own = state.machines.iter().filter(|machine| is_ours(&machine.vm));
        own.map(|machine| machine.vm.name.clone()).collect()
    }

    /// A person takes a file out of a hold.
    pub fn lose_file(&self, number: u64, file: &str) {
        self.lock().holds.get_mut(&number).expect("a hold").remove(file);
    }

    pub async fn kept(&self) -> Option<PoolRecord> {
        records::read(self).await.unwrap()
    }

    /// A person says what becomes of a worker's VM.
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

    /// By a person who sees that no other command is at work.
    pub async fn give_over(&self, wish: Goal) -> Given {
        self.give_with(wish, TakeOver::FromAnyone, watch::channel(false).1).await
    }

    /// By a person who ends the command after a minute.
    pub async fn give_for_a_minute(&self, wish: Goal) -> Given {
        let (cancel, cancelled) = watch::channel(false);
        let ended = async {
            tokio::time::sleep(Duration::from_secs(60)).await;
            cancel.send_replace(true);
        };
        tokio::join!(self.give_with(wish, TakeOver::FromTheDead, cancelled), ended).0
    }

    /// What is told without a change.
    pub async fn status(&self) -> anyhow::Result<Option<WorkersStatus>> {
        self.acting(watch::channel(false).1, async |workers| workers.status().await).await
    }

    pub async fn give_with(&self, wish: Goal, over: TakeOver, cancelled: watch::Receiver<bool>) -> Given {
        let gone = self.acting(cancelled, async |workers| workers.go(&wish, over).await);
        tokio::select! {
            biased;
            () = self.died.notified() => Given::Killed,
            gone = gone => match gone {
                Ok((arrived, status)) => Given::Arrived(arrived, Box::new(status)),
                Err(error) => Given::Failed(error),
            },
        }
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

    async fn die(&self) -> ! {
        self.died.notify_one();
        std::future::pending().await
    }

    /// Counts a call and lets go wrong what is to. What is done is the call's effect.
    async fn call<T: Send>(
        &self,
        name: &'static str,
        does: Does,
        act: impl FnOnce(&mut State) -> anyhow::Result<T> + Send + 'static,
    ) -> anyhow::Result<T> {
        let fault = {
            let mut state = self.lock();
            state.calls.push((name, does));
            state.store_hangs |= state.hangs_from == Some(name);
            state.fault.filter(|(at, _)| *at == state.calls.len()).map(|(_, fault)| fault)
        };
        match fault {
            Some(Fault::Fails) => bail!("it fails ({name})"),
            Some(Fault::KilledBefore | Fault::KilledHalf) => self.die().await,
            Some(fault @ (Fault::Late | Fault::KilledLate)) => {
                self.lock().late.push(Box::new(|state| drop(act(state))));
                if fault.kills() {
                    self.die().await
                }
                bail!(Lost)
            }
            Some(Fault::Overtaken) => {
                let mut state = self.lock();
                let next = state.holds.keys().next_back().map_or(1, |last| last + 1);
                state.holds.entry(next).or_default().insert("released".to_owned(), String::new());
            }
            Some(Fault::Lost | Fault::KilledAfter) | None => {}
        }
        let done = {
            let mut state = self.lock();
            let done = act(&mut state);
            state.count();
            done
        };
        match fault {
            Some(Fault::KilledAfter) => self.die().await,
            Some(Fault::Lost) => bail!(Lost),
            _ => done,
        }
    }

    /// The same of a hypervisor's call that changes something.
    async fn change<T: Send>(
        &self,
        name: &'static str,
        permit: &dyn Fence,
        act: impl FnOnce(&mut State) -> anyhow::Result<T> + Send + 'static,
    ) -> Result<T> {
        permit.still().await?;
        self.call(name, Does::ChangesVm, act).await.map_err(|error| {
            let kind = if error.is::<Lost>() { ErrorKind::InDoubt } else { ErrorKind::Transient };
            match error.downcast::<Error>() {
                Ok(told) => told,
                Err(error) => Error::new(kind, error),
            }
        })
    }

    async fn look<T: Send>(&self, name: &'static str, act: impl FnOnce(&mut State) -> T + Send + 'static) -> Result<T> {
        self.call(name, Does::Looks, |state| Ok(act(state))).await.map_err(Error::transient)
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

#[derive(Debug, thiserror::Error)]
#[error("the answer is lost")]
struct Lost;

fn is_ours(vm: &Vm) -> bool {
    vm.stamp.as_ref().is_some_and(|stamp| stamp.deployment == DEPLOYMENT)
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

    /// Somebody joins in a worker's place who has read its form: the node says that it runs on that VM, is Ready, and ends no
    /// pod.
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
            let image = machine.vm.version.as_str();
            let refuses = self.refusing.contains_key(&machine.vm.name) || self.is_anothers(machine);
            if due && !known && good && !refuses && !self.ill.contains(image) {
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
        for machine in &mut self.machines {
            let own = reading(machine.vm.uuid(), in_order).provider_id();
            let mut nodes = self.nodes.iter_mut();
            let is_good = self.tokens.get(&machine.token).is_some_and(|expires| *expires > now);
            let refuses = self.refusing.contains_key(&machine.vm.name) || intruded.contains(&machine.vm.name);
            let is_known = !refuses && (is_good || !self.expired.contains(&machine.vm.name));
            let runs = machine.vm.power == PowerState::On;
            let due = runs && machine.returns && machine.powered.is_some_and(|at| at + JOINS <= instant) && is_known;
            if due && let Some(node) = nodes.find(|node| node.provider == own) {
                (node.ready, machine.returns) = (true, false);
                self.expired.remove(&machine.vm.name);
                node.heard = now.to_string();
                if is_good {
                    self.let_in.insert(machine.vm.name.clone(), machine.key());
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
        let others = &self.let_in;
        let ends = |node: &String| others.get(node).is_none_or(|key| key != ANOTHER);
        for (_, pods) in self.pods.iter_mut().filter(|(node, _)| ends(node)) {
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
        self.nodes.push(NodeSeen {
            name,
            uid,
            provider: self.reading(vm).provider_id(),
            ready: true,
            cordoned: false,
            excluded: false,
            control: false,
            kubelet: self.kubelet.clone(),
            address,
            heard: now.to_string(),
        });
    }

    /// Whether somebody else was let in by a worker's name.
    fn is_anothers(&self, machine: &Machine) -> bool {
        self.let_in.get(&machine.vm.name).is_some_and(|key| key == ANOTHER)
    }

    fn has_pods(&self, node: &str) -> bool {
        self.pods.get(node).is_some_and(|pods| !pods.is_empty())
    }

    /// What a VM says of itself: it tries again every 30 s.
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

    /// Requests end within some seconds once others answer for the addresses of services: before that, neither pods nor the
    /// node may go.
    fn leads_nothing_on(&self, node: &str, now: u64) {
        let Some(node) = self.nodes.iter().find(|one| one.name == node && one.ready) else { return };
        let last = self.left.get(&node.uid).map(|left| left + self.handing_over.min(60));
        assert!(
            last.is_some_and(|last| last + 4 <= now),
            "services are still reached by {} and it is emptied",
            node.name
        );
    }

    /// A VM of the pool that is as it was seen.
    fn own(&mut self, seen: &Vm) -> anyhow::Result<&mut Machine> {
        assert!(is_ours(seen), "{seen} is not the pool's and was to be changed");
        let found = self.machines.iter_mut().find(|machine| machine.vm.reference == seen.reference);
        let machine = found.context(Error::not_found("no such VM"))?;
        if machine.vm != *seen {
            bail!(Error::new(ErrorKind::Changed, anyhow::anyhow!("it has changed")));
        }
        Ok(machine)
    }

    /// A worker's VM loses its power.
    pub fn lose_power(&mut self, name: &str) {
        let own = self.machines.iter_mut().find(|machine| is_ours(&machine.vm) && machine.vm.name == name);
        let vm = &mut own.expect("its VM").vm;
        vm.power = PowerState::Off;
        let uuid = vm.uuid();
        self.off(uuid);
    }

    /// Another VM has the BIOS UUID and the stamp of a worker's, is off and called otherwise.
    pub fn copy_vm(&mut self, name: &str) -> &mut Vm {
        let own = self.machines.iter().find(|machine| is_ours(&machine.vm) && machine.vm.name == name);
        let mut copy = own.expect("its VM").clone();
        (copy.vm.power, copy.vm.name) = (PowerState::Off, format!("{name}-copy"));
        copy.vm.reference.id.push_str("-copy");
        self.machines.push(copy);
        &mut self.machines.last_mut().expect("it is there").vm
    }

    /// Somebody removes a worker's VM.
    pub fn lose_vm(&mut self, name: &str) {
        self.machines.retain(|machine| !is_ours(&machine.vm) || machine.vm.name != name);
        self.silence(name);
    }

    /// A VM of the pool that no machine of it is, as a journal that was given up leaves it.
    pub fn leave_vm(&mut self, name: &str) {
        let stamp = Stamp { deployment: DEPLOYMENT, node: name.to_owned(), swap: Some(Uuid::from_u128(0x1ef)) };
        let vm = vm(name, Uuid::from_u128(0x1e0), Some(stamp));
        self.machines.push(Machine { vm, whole: true, token: String::new(), powered: None, returns: false });
    }

    /// A further pod on a worker, which comes before those that are there.
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

    /// Cuts a worker off: its node says nothing any more.
    pub fn silence(&mut self, node: &str) {
        self.nodes.iter_mut().find(|one| one.name == node).unwrap().ready = false;
    }

    /// A worker's certificate expires: the cluster knows it no more, also after it was off.
    pub fn expire(&mut self, node: &str) {
        self.silence(node);
        self.expired.insert(node.to_owned());
    }

    pub fn add_disk(&mut self, name: &str) {
        let machine = self.machines.iter_mut().find(|machine| is_ours(&machine.vm) && machine.vm.name == name);
        let reference = DiskRef { uuid: Uuid::from_u128(0xd), path: "volumes".to_owned() };
        machine.unwrap().vm.disks.push(crate::hypervisor::Disk {
            reference,
            kind: crate::hypervisor::DiskKind::Data,
            parent: None,
            controller: "c".to_owned(),
        });
    }

    fn off(&mut self, vm: Uuid) {
        if self.unnoticed {
            return;
        }
        let others = &self.let_in;
        let is_its = |node: &NodeSeen| others.get(&node.name).is_none_or(|key| key != ANOTHER);
        let own = self.reading(vm).provider_id();
        for node in self.nodes.iter_mut().filter(|node| node.provider == own && is_its(node)) {
            node.ready = false;
        }
    }
}

#[async_trait]
impl Hypervisor for World {
    fn deployment(&self) -> Uuid {
        DEPLOYMENT
    }

    async fn preflight(&self, _: &Placement) -> Result<()> {
        Ok(())
    }

    async fn vms(&self) -> Result<Vec<Vm>> {
        self.look("vms", |state| {
            let here = state.machines.iter().filter(|machine| !state.away.contains(&machine.vm.reference.id));
            here.map(|machine| machine.vm.clone()).filter(is_ours).collect()
        })
        .await
    }

    async fn vm(&self, vm: &VmRef) -> Result<Vm> {
        let wanted = vm.clone();
        let found = self.look("vm", move |state| {
            state.machines.iter().find(|machine| machine.vm.reference == wanted).map(|machine| machine.vm.clone())
        });
        found.await?.ok_or_else(|| Error::not_found("no such VM"))
    }

    /// Workers show none.
    async fn fingerprints(&self, _: &VmRef) -> Result<Option<Fingerprints>> {
        Ok(None)
    }

    async fn statement(&self, vm: &VmRef) -> Result<Option<Statement>> {
        let (vm, now, instant) = (vm.clone(), self.now(), Instant::now());
        if let Some(why) = self.lock().is_deaf {
            return Err(Error::transient(anyhow::anyhow!(why)));
        }
        self.look("statement", move |state| state.said(&vm, now, instant)).await
    }

    async fn with_bios_uuid(&self, uuid: Uuid) -> Result<Vec<Vm>> {
        self.look("with_bios_uuid", move |state| {
            let vms = state.machines.iter().map(|machine| machine.vm.clone());
            vms.filter(|vm| vm.uuid() == uuid).collect()
        })
        .await
    }

    async fn absence(&self, uuid: Uuid, _: &[&str], _: LastSeen<'_>) -> Result<Absence> {
        self.look("absence", move |state| match state.may_run.contains(&uuid) {
            true => Absence::Unknown("its files are still there".to_owned()),
            false => Absence::Gone,
        })
        .await
    }

    async fn settle(&self, permit: &dyn Fence) -> Result<()> {
        self.change("settle", permit, |state| {
            for effect in std::mem::take(&mut state.late) {
                effect(state);
            }
            Ok(())
        })
        .await
    }

    async fn stamp(&self, _: &Vm, _: &Stamp, _: &dyn Fence) -> Result<()> {
        panic!("workers are stamped from their first moment")
    }

    async fn find_template(&self, digest: &str, _: Option<&Vm>, _: &Placement) -> Result<Option<ImageTemplate>> {
        let staged = ImageTemplate { digest: digest.to_owned(), reference: digest.to_owned() };
        self.look("staged", |_| Some(staged)).await
    }

    async fn import_template(
        &self,
        _: &Path,
        _: &str,
        _: Option<&Vm>,
        _: &Placement,
        _: &dyn Fence,
    ) -> Result<ImageTemplate> {
        panic!("the image lies ready")
    }

    async fn clone_vm(&self, addition: &CloneRequest<'_>, permit: &dyn Fence) -> Result<Uuid> {
        let CloneSettings::Given { properties, .. } = addition.settings else {
            panic!("a worker replaces no other one")
        };
        let (name, stamp) = (addition.name.to_owned(), addition.stamp.clone());
        let token = properties["join-token"].split('.').next().unwrap_or_default().to_owned();
        let image = addition.image.digest.clone();
        let drawn = addition.uuid;
        assert_eq!(properties["node-name"], name);
        // Its first moment: whoever is killed now leaves half of it.
        let half = self.call("add", Does::ChangesVm, {
            let (name, stamp) = (name.clone(), stamp.clone());
            move |state| {
                let id = stamp.swap.expect("a machine's stamp");
                let twice = state.machines.iter().filter(|machine| is_ours(&machine.vm)).any(|machine| {
                    machine.vm.name == name || machine.vm.stamp.as_ref().is_some_and(|stamp| stamp.swap == Some(id))
                });
                assert!(!twice, "{name} is made twice");
                assert!(state.tokens.contains_key(&token), "{name} is made with a token that is not there");
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
                state.machines.push(Machine { vm, whole: false, token, powered: None, returns: false });
                Ok(uuid)
            }
        });
        let doubt = |error: anyhow::Error| {
            Error::new(if error.is::<Lost>() { ErrorKind::InDoubt } else { ErrorKind::Transient }, error)
        };
        permit.still().await?;
        let making = self.lock().making;
        if !making.is_zero() {
            tokio::time::sleep(making).await;
        }
        let uuid = half.await.map_err(doubt)?;
        self.change("add.end", permit, move |state| {
            state.machines.iter_mut().find(|machine| machine.vm.uuid() == uuid).expect("half a VM").whole = true;
            Ok(uuid)
        })
        .await
        .map_err(|error| {
            Error::new(
                if error.kind == ErrorKind::Fenced { ErrorKind::Fenced } else { ErrorKind::InDoubt },
                error.source,
            )
        })
    }

    async fn set_properties(&self, vm: &Vm, properties: &BTreeMap<String, String>, permit: &dyn Fence) -> Result<()> {
        let seen = vm.clone();
        let token = properties["join-token"].split('.').next().unwrap_or_default().to_owned();
        assert_eq!(properties["node-name"], seen.name);
        self.change("give", permit, move |state| {
            assert!(state.tokens.contains_key(&token), "{seen} is given a token that is not there");
            if let Some(kind) = state.forms_are {
                bail!(Error::new(kind, anyhow::anyhow!("the form stays as it is")));
            }
            let machine = state.own(&seen)?;
            assert_eq!(machine.vm.power, PowerState::Off, "{seen} is on and its form was to be changed");
            machine.token = token;
            Ok(())
        })
        .await
    }

    async fn power_on(&self, vm: &Vm, permit: &dyn Fence) -> Result<()> {
        let (seen, now, seconds) = (vm.clone(), Instant::now(), self.now());
        self.change("power_on", permit, move |state| {
            if state.stay_off {
                bail!(Error::refused("it lacks a value"));
            }
            let machine = state.own(&seen)?;
            assert!(machine.whole, "{seen} is half a VM and was to be powered on");
            assert_eq!(machine.vm.power, PowerState::Off, "{seen} is powered on twice");
            (machine.vm.power, machine.powered) = (PowerState::On, Some(now));
            machine.returns = true;
            let is_given = !machine.token.is_empty();
            if is_given && state.intruded.remove(&seen.name) {
                state.intrude(&seen, seconds);
            }
            Ok(())
        })
        .await
    }

    async fn shut_down(&self, vm: &Vm, _: Duration, permit: &dyn Fence) -> Result<ShutDown> {
        let (seen, now) = (vm.clone(), self.now());
        self.change("shut_down", permit, move |state| {
            let name = seen.name.clone();
            let own = state.reading(seen.uuid()).provider_id();
            let is_its = state.let_in.get(&name).is_none_or(|key| key != ANOTHER);
            if let Some(node) = state.nodes.iter().find(|node| is_its && node.provider == own && node.ready) {
                assert!(!state.has_pods(&name), "{seen} has pods and was to be shut down");
                state.leads_nothing_on(&node.name, now);
            }
            state.own(&seen)?.vm.power = PowerState::Off;
            state.off(seen.uuid());
            Ok(ShutDown::Off)
        })
        .await
    }

    async fn cut_power(&self, vm: &Vm, permit: &dyn Fence) -> Result<()> {
        let seen = vm.clone();
        self.change("cut_power", permit, move |state| {
            state.own(&seen)?.vm.power = PowerState::Off;
            Ok(())
        })
        .await
    }

    async fn connect(&self, vm: &Vm, adapter: &str, connected: bool, permit: &dyn Fence) -> Result<()> {
        let (seen, adapter) = (vm.clone(), adapter.to_owned());
        assert!(!connected, "nobody asks for that");
        self.change("connect", permit, move |state| {
            let machine = state.own(&seen)?;
            assert_eq!(machine.vm.power, PowerState::Off, "{seen} is on and was to be disconnected");
            machine.vm.adapters.iter_mut().filter(|it| it.key == adapter).for_each(|it| it.connected = false);
            Ok(())
        })
        .await
    }

    async fn detach(&self, vm: &Vm, disk: &DiskRef, permit: &dyn Fence) -> Result<()> {
        let (seen, disk) = (vm.clone(), disk.clone());
        self.change("detach", permit, move |state| {
            state.own(&seen)?.vm.disks.retain(|held| held.reference != disk);
            Ok(())
        })
        .await
    }

    async fn attach(&self, _: &Vm, _: &DiskRef, _: &dyn Fence) -> Result<()> {
        panic!("nobody asks for that")
    }

    async fn has_disk(&self, _: &DiskRef) -> Result<bool> {
        panic!("nobody asks for that")
    }

    async fn destroy(&self, vm: &Vm, permit: &dyn Fence) -> Result<()> {
        let seen = vm.clone();
        self.change("destroy", permit, move |state| {
            let machine = state.own(&seen)?;
            assert_eq!(machine.vm.power, PowerState::Off, "{seen} is on and was to be removed");
            assert!(machine.vm.disks.is_empty(), "a disk goes with {seen}");
            let own = state.reading(seen.uuid()).provider_id();
            assert!(!state.nodes.iter().any(|node| node.provider == own), "{seen} is a node and was to be removed");
            state.machines.retain(|machine| machine.vm.reference != seen.reference);
            Ok(())
        })
        .await
    }

    async fn disown(&self, vm: &Vm, name: &str, permit: &dyn Fence) -> Result<()> {
        let (seen, name) = (vm.clone(), name.to_owned());
        self.change("release", permit, move |state| {
            let own = state.reading(seen.uuid()).provider_id();
            assert!(!state.nodes.iter().any(|node| node.provider == own), "{seen} is a node and was to be given up");
            let machine = state.own(&seen)?;
            assert!(machine.whole, "{seen} is half a VM and was to be kept");
            assert!(
                machine.vm.power == PowerState::Off && machine.vm.is_fenced(),
                "{seen} was to be given up as it is"
            );
            (machine.vm.name, machine.vm.stamp) = (name, machine.vm.stamp.as_ref().map(Stamp::released));
            Ok(())
        })
        .await
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

    async fn add_token(&self, token: &Token) -> anyhow::Result<()> {
        let (id, expires) = (token.id.clone(), token.expires);
        self.ask("add_token", Does::ChangesCluster, move |state| {
            state.tokens.insert(id, expires);
            Ok(())
        })
        .await
    }

    async fn remove_token(&self, id: &str) -> anyhow::Result<()> {
        let id = id.to_owned();
        self.ask("remove_token", Does::ChangesCluster, move |state| {
            state.tokens.remove(&id);
            Ok(())
        })
        .await
    }

    async fn cordon(&self, node: &NodeSeen) -> anyhow::Result<()> {
        let (seen, now) = (node.clone(), self.now());
        self.ask("cordon", Does::ChangesCluster, move |state| {
            let node = state.nodes.iter_mut().find(|node| node.uid == seen.uid).context("no such node")?;
            (node.cordoned, node.excluded) = (true, true);
            state.left.entry(seen.uid.clone()).or_insert(now);
            Ok(())
        })
        .await
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
                bail!("nobody answers for {}", seen.name);
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

    async fn delete_node(&self, node: &NodeSeen) -> anyhow::Result<()> {
        let seen = node.clone();
        self.ask("delete_node", Does::ChangesCluster, move |state| {
            let on = |machine: &Machine| {
                state.reading(machine.vm.uuid()).provider_id() == seen.provider && machine.vm.power == PowerState::On
            };
            assert!(!state.machines.iter().any(on), "the node {} runs and was to be removed", seen.name);
            state.nodes.retain(|node| node.uid != seen.uid);
            state.pods.remove(&seen.name);
            Ok(())
        })
        .await
    }

    async fn release_name(&self, name: &str) -> anyhow::Result<()> {
        let name = name.to_owned();
        self.ask("release_name", Does::ChangesCluster, move |state| {
            let own: BTreeSet<String> =
                state.machines.iter().map(|machine| state.reading(machine.vm.uuid()).provider_id()).collect();
            let node = state.nodes.iter().find(|node| node.name == name);
            assert!(node.is_none_or(|node| !own.contains(&node.provider)), "{name} is a node and was to be released");
            let own = |machine: &Machine| is_ours(&machine.vm) && machine.vm.name == name;
            assert!(!state.machines.iter().any(own), "{name} has a VM and was to be released");
            state.let_in.remove(&name);
            Ok(())
        })
        .await
    }
}

#[async_trait]
impl Store for World {
    async fn numbers(&self) -> anyhow::Result<Vec<u64>> {
        self.call("store.numbers", Does::Looks, |state| Ok(state.holds.keys().copied().collect())).await
    }

    async fn exists(&self, number: u64) -> anyhow::Result<bool> {
        if self.lock().store_hangs {
            self.lock().asked_in_vain += 1;
            return std::future::pending().await;
        }
        self.call("store.exists", Does::Looks, move |state| Ok(state.holds.contains_key(&number))).await
    }

    async fn make(&self, number: u64) -> anyhow::Result<bool> {
        self.call("store.make", Does::Writes, move |state| {
            let new = !state.holds.contains_key(&number);
            state.holds.entry(number).or_default();
            Ok(new)
        })
        .await
    }

    async fn remove(&self, number: u64) -> anyhow::Result<()> {
        self.call("store.remove", Does::Writes, move |state| state.holds.remove(&number).map(drop).context("no hold"))
            .await
    }

    async fn read(&self, number: u64, file: &str) -> anyhow::Result<Option<String>> {
        let file = file.to_owned();
        self.call("store.read", Does::Looks, move |state| {
            Ok(state.holds.get(&number).and_then(|files| files.get(&file)).cloned())
        })
        .await
    }

    async fn write(&self, number: u64, file: &str, text: &str) -> anyhow::Result<()> {
        let (file, text) = (file.to_owned(), text.to_owned());
        {
            let mut state = self.lock();
            let at = state.calls.len() + 1;
            if state.fault == Some((at, Fault::KilledHalf)) {
                let half = text[..text.len() / 2].to_owned();
                state.holds.entry(number).or_default().insert(file.clone(), half);
            }
        }
        self.call("store.write", Does::Writes, move |state| {
            state.holds.get_mut(&number).context("no hold")?.insert(file, text);
            Ok(())
        })
        .await
    }

    async fn files(&self, number: u64) -> anyhow::Result<Vec<String>> {
        self.call("store.files", Does::Looks, move |state| {
            Ok(state.holds.get(&number).into_iter().flat_map(|files| files.keys().cloned()).collect())
        })
        .await
    }
}
