//! One world in memory for tests: a hypervisor with VMs and disks, and a store of leases. Each call can fail. Calls that
//! must never happen panic. A [`Part`] adds the guests: those of a control plane, or of a pool of workers.

mod fault;
mod hypervisor;
mod store;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use anyhow::{Context, bail};
use async_trait::async_trait;
use contract::deployer::Fingerprints;
use contract::statement::Statement;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use tokio::sync::Notify;
use tokio::time::Instant;
use uuid::Uuid;

pub use self::fault::{Does, Fault, Lost};
pub use self::hypervisor::doubtful;
use crate::hypervisor::{
    Absence, CloneRequest, Disk, DiskKind, DiskRef, Error, ErrorKind, Fence, LastSeen, PowerState, Result, Stamp, Vm,
    VmRef,
};

pub const DEPLOYMENT: Uuid = Uuid::from_u128(0xaa);

/// Checks the JSON of an output against the schema of its type. `kaas` publishes the schema under this name.
#[track_caller]
pub fn fits<T: Serialize + JsonSchema>(name: &str, output: &T) {
    let schema = SchemaSettings::default().for_serialize().into_generator().into_root_schema_for::<T>();
    let output = serde_json::to_value(output).unwrap();
    assert_eq!(testbed::off_schema(&output, schema.as_value()), [""; 0], "{name}: {output:#}");
}

type Effect<P> = Box<dyn FnOnce(&mut State<P>) + Send>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    pub vm: Vm,
    pub whole: bool,
    pub powered: Option<Instant>,
    /// The join token of a worker.
    pub token: String,
    /// Whether it was powered on, and its node already exists.
    pub returns: bool,
}

impl Machine {
    pub fn of(vm: Vm) -> Self {
        Self { vm, whole: true, powered: None, token: String::new(), returns: false }
    }
}

/// The guests of the world, and the calls that differ between them.
#[async_trait]
pub trait Part: Default + Send + Sync + Sized + 'static {
    /// Whether VMs are created in an empty place, with data disks. If not, another VM shows the place, and the template exists.
    const IS_FIRST: bool;

    /// Runs after the effect of each call.
    fn count(_: &mut State<Self>) {}

    /// Runs after a file was written.
    fn written(_: &mut State<Self>, _: &str) {}

    fn powered_on(_: &mut State<Self>, _: &Vm, _now: u64) {}

    /// Whether the guest receives a request to shut down.
    fn receives_shut_down(_: &State<Self>, _: &Vm, _now: u64) -> bool {
        true
    }

    fn shut_down(_: &mut State<Self>, _: Uuid) {}

    /// Checks that a VM may be destroyed or disowned.
    fn may_go(_: &State<Self>, _: &Vm) {}

    fn set_properties(_: &mut State<Self>, vm: &Vm, _: &BTreeMap<String, String>) -> anyhow::Result<()> {
        panic!("the properties of {vm} were to be changed")
    }

    async fn absence(world: &World<Self>, uuid: Uuid, seen: LastSeen<'_>) -> Result<Absence>;

    async fn fingerprints(_: &World<Self>, _: &VmRef) -> Result<Option<Fingerprints>> {
        Ok(None)
    }

    async fn statement(_: &World<Self>, _: &VmRef) -> Result<Option<Statement>> {
        Ok(None)
    }

    async fn clone_vm(world: &World<Self>, request: &CloneRequest<'_>, permit: &dyn Fence) -> Result<Uuid>;
}

#[derive(Default)]
pub struct State<P: Part> {
    pub part: P,
    /// Whether the record may be restored.
    pub restorable: bool,
    pub machines: Vec<Machine>,
    /// All data disks, and whether each was ever written to.
    pub disks: BTreeMap<Uuid, bool>,
    /// The places of disks that were moved since they were created.
    pub moved: BTreeMap<Uuid, String>,
    /// The image where VMs are placed, and whether it is complete.
    pub template: Option<bool>,
    holds: BTreeMap<u64, BTreeMap<String, String>>,
    pub calls: Vec<(&'static str, Does)>,
    fault: Option<(usize, Fault)>,
    late: Vec<Effect<P>>,
    pub made: u128,
    /// Whether disks that were written to may be removed.
    pub removes_used: bool,
    /// Whether the hypervisor refuses to remove any.
    pub disks_stay: bool,
    /// Whether disks are outside the directories of the cluster's nodes.
    pub disks_elsewhere: bool,
    /// Whether another account's removal of some disk still runs.
    pub others_remove: bool,
    /// Whether this is unknown.
    pub removals_unsaid: bool,
    /// Whether all of them are locked, so that none can be removed now.
    pub disks_locked: bool,
    /// Whether the store no longer reports whether a lease exists.
    pub store_hangs: bool,
    /// The call from which on it does not.
    pub hangs_from: Option<&'static str>,
    /// How often that was asked meanwhile.
    pub asked_in_vain: usize,
    /// Whether the list of leases hangs.
    pub listing_hangs: bool,
    /// The call of the hypervisor that only reads, and hangs before it is permitted anything.
    pub hangs: Option<&'static str>,
    /// Whether it was called.
    pub hung: bool,
    /// Whether the list of VMs hangs.
    pub inventory_hangs: bool,
    /// Whether the placement takes no VMs now.
    pub no_place: bool,
    /// The call of the hypervisor that is lost on its way, and how often yet: nothing happens, and no error reports it.
    pub lost: Option<(&'static str, usize)>,
    /// Whether VMs go off again as soon as they are on.
    pub goes_off: bool,
    /// Whether the hypervisor refuses to power VMs on.
    pub stay_off: bool,
    /// IDs of VMs that were moved out of the searched folders.
    pub away: BTreeSet<String>,
    /// IDs of VMs whose host does not respond.
    pub cut_off: BTreeSet<String>,
    /// The BIOS UUID of VMs of which one cannot be read.
    pub unreadable: Option<Uuid>,
}

/// The fields of the part are fields of the state.
impl<P: Part> std::ops::Deref for State<P> {
    type Target = P;

    fn deref(&self) -> &P {
        &self.part
    }
}

impl<P: Part> std::ops::DerefMut for State<P> {
    fn deref_mut(&mut self) -> &mut P {
        &mut self.part
    }
}

/// Clones share one world.
pub struct World<P: Part> {
    state: Arc<Mutex<State<P>>>,
    died: Arc<Notify>,
    began: Instant,
}

impl<P: Part> Clone for World<P> {
    fn clone(&self) -> Self {
        Self { state: self.state.clone(), died: self.died.clone(), began: self.began }
    }
}

/// The result of a command.
#[derive(Debug)]
pub enum Given<O, S> {
    Killed,
    Failed(anyhow::Error),
    Arrived(O, Box<S>),
}

impl<O: Debug, S: Debug> Given<O, S> {
    pub fn arrived(self) -> (O, S) {
        match self {
            Self::Arrived(arrived, status) => (arrived, *status),
            other => panic!("{other:?}"),
        }
    }

    pub fn failed(self) -> String {
        match self {
            Self::Failed(error) => format!("{error:#}"),
            other => panic!("{other:?}"),
        }
    }

    /// Checks that it failed, with these words.
    pub fn fails(self, words: &str) {
        let error = self.failed();
        assert!(error.contains(words), "{error}");
    }
}

pub fn vm(name: &str, uuid: Uuid, stamp: Option<Stamp>) -> Vm {
    Vm {
        reference: VmRef { uuid, id: format!("vm-{name}-{uuid}") },
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

pub fn data_disk(reference: DiskRef) -> Disk {
    Disk { reference, kind: DiskKind::Data, parent: None, controller: "c".to_owned() }
}

pub fn is_ours(vm: &Vm) -> bool {
    vm.stamp.as_ref().is_some_and(|stamp| stamp.deployment == DEPLOYMENT)
}

impl<P: Part> World<P> {
    /// A place with VMs of others. The name of one looks like that of the first node.
    pub fn with_strangers(node: &str) -> Self {
        let world = Self { state: Arc::default(), died: Arc::default(), began: Instant::now() };
        let stamp = Stamp { deployment: Uuid::from_u128(0xbad), node: node.to_owned(), swap: None };
        let strangers = [vm(node, Uuid::from_u128(0xb01), Some(stamp)), vm("by-hand", Uuid::from_u128(0xb02), None)];
        world.lock().machines = strangers.map(Machine::of).to_vec();
        world
    }

    pub fn lock(&self) -> MutexGuard<'_, State<P>> {
        self.state.lock().unwrap()
    }

    /// How long the world has existed.
    pub fn age(&self) -> Duration {
        self.began.elapsed()
    }

    /// Sets the fault at this call, counted from 1 from now on.
    pub fn set_fault(&self, fault: Option<(usize, Fault)>) {
        let mut state = self.lock();
        state.calls.clear();
        state.fault = fault;
    }

    /// How often a call of this name was made.
    pub fn called(&self, name: &str) -> usize {
        self.lock().calls.iter().filter(|(call, _)| *call == name).count()
    }

    /// The number of the first call of this name, counted from 1.
    pub fn first_call(&self, name: &str) -> usize {
        self.lock().calls.iter().position(|(call, _)| *call == name).expect("such a call") + 1
    }

    /// The names of the deployment's VMs.
    pub fn own(&self) -> Vec<String> {
        let state = self.lock();
        let own = state.machines.iter().filter(|machine| is_ours(&machine.vm));
        let mut names: Vec<String> = own.map(|machine| machine.vm.name.clone()).collect();
        names.sort();
        names
    }

    /// The result of a command that may be killed.
    pub async fn run<O, S>(&self, command: impl Future<Output = anyhow::Result<(O, S)>>) -> Given<O, S> {
        tokio::select! {
            biased;
            () = self.died.notified() => Given::Killed,
            ended = command => match ended {
                Ok((arrived, status)) => Given::Arrived(arrived, Box::new(status)),
                Err(error) => Given::Failed(error),
            },
        }
    }

    /// Gives a command, which must be killed by this fault.
    pub async fn dies<O: Debug, S: Debug>(&self, fault: (usize, Fault), command: impl Future<Output = Given<O, S>>) {
        self.set_fault(Some(fault));
        let given = command.await;
        assert!(matches!(given, Given::Killed), "{given:?}");
        self.set_fault(None);
    }

    async fn die(&self) -> ! {
        self.died.notify_one();
        std::future::pending().await
    }

    /// Counts a call, and applies its fault to the call's effect.
    pub async fn call<T: Send>(
        &self,
        name: &'static str,
        does: Does,
        act: impl FnOnce(&mut State<P>) -> anyhow::Result<T> + Send + 'static,
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
            P::count(&mut state);
            done
        };
        match fault {
            Some(Fault::KilledAfter) => self.die().await,
            Some(Fault::Lost) => bail!(Lost),
            _ => done,
        }
    }
}

impl<P: Part> State<P> {
    /// The files of all leases.
    pub fn holds(&self) -> &BTreeMap<u64, BTreeMap<String, String>> {
        &self.holds
    }

    pub fn holds_mut(&mut self) -> &mut BTreeMap<u64, BTreeMap<String, String>> {
        &mut self.holds
    }

    /// A VM of the deployment that is unchanged since it was seen.
    pub fn own(&mut self, seen: &Vm) -> anyhow::Result<&mut Machine> {
        assert!(is_ours(seen), "{seen} is not the deployment's and was to be changed");
        let found = self.machines.iter_mut().find(|machine| machine.vm.reference == seen.reference);
        let machine = found.context(Error::not_found("no such VM"))?;
        if machine.vm != *seen {
            bail!(Error::new(ErrorKind::Changed, anyhow::anyhow!("it has changed")));
        }
        Ok(machine)
    }

    /// The deployment's VM of this name.
    pub fn named(&mut self, name: &str) -> &mut Machine {
        let own = self.machines.iter_mut().find(|machine| is_ours(&machine.vm) && machine.vm.name == name);
        own.expect("its VM")
    }

    /// Whether a disk is at this place.
    fn has(&self, disk: &DiskRef) -> bool {
        self.disks.contains_key(&disk.uuid) && self.moved.get(&disk.uuid).is_none_or(|path| *path == disk.path)
    }
}
