//! The observed state at one moment.

use std::collections::{BTreeMap, BTreeSet};

use contract::statement::{Phase, Statement, asks_for_token};
use uuid::Uuid;

use super::cluster::{NodeSeen, PodSeen};
use super::pool::Pool;
use super::reason;
use super::wait::Wait;
use super::worker_record::{State, WorkerRecord};
use crate::engine::Reason;
use crate::hypervisor::{PowerState, Vm};

/// VMs, nodes and pods at one moment. If a place could not be read, there is no inventory, and nothing is decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// Seconds of Unix time.
    pub now: u64,
    /// VMs that carry the pool's stamp, and VMs with the BIOS UUID of a worker, whatever they carry.
    pub vms: Vec<Vm>,
    /// The nodes of the cluster.
    pub nodes: Vec<NodeSeen>,
    /// The pods that have to move from nodes that leave, by node.
    pub pods: BTreeMap<String, Vec<PodSeen>>,
    /// Claims of volumes that would be lost with a node that leaves, by node.
    pub claims: BTreeMap<String, Vec<String>>,
    /// Services whose addresses nodes that leave answer for, by node.
    pub announced: BTreeMap<String, Vec<String>>,
    /// Workers whose VMs are gone. They were not found for a minute, were removed for good, or were disowned and are off.
    pub gone: BTreeSet<String>,
    /// Why VMs that are not shown may still run, by worker.
    pub unproved: BTreeMap<String, String>,
    /// The names of disowned VMs, by worker. They are no longer managed, and count as gone as long as they are off and on no
    /// network.
    pub kept: BTreeMap<String, String>,
    /// Workers without a recorded VM, whose BIOS UUID a VM with another deployment's stamp has.
    pub taken: BTreeSet<String>,
    /// Replicas of VMs that are or were removed, by worker, for messages. They are off, elsewhere, and stay.
    pub left: BTreeMap<String, Vec<String>>,
    /// Why VMs are not changed, by worker. A member's node is Ready and its VM does not run: the VM may be a copy of one that
    /// runs elsewhere. Or a copy of a leaving VM may run, or holds a disk of it.
    pub doubtful: BTreeMap<String, Wait>,
    /// The statements of VMs that are on, by worker, if it is no member or its node is not Ready.
    pub said: BTreeMap<String, Statement>,
    /// Why VMs could not be asked for that, by worker.
    pub unheard: BTreeMap<String, String>,
    /// The keys that control-plane nodes admitted last, by worker, if it is no member and its node is Ready.
    pub let_in: BTreeMap<String, String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observed<'a> {
    Nothing,
    Vm(&'a Vm),
    /// More than one, or one with another stamp or identity than recorded, or a possible copy. It is not changed.
    Odd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node<'a> {
    Absent,
    Own(&'a NodeSeen),
    /// A node of its name that runs on another machine. It is not changed.
    Foreign,
}

/// The owner of a node that looks like a worker's own. The node itself reports what it runs on. A client that has read the VM's
/// properties and identity reports the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// The VM's, by its statement: the admitted key is its own.
    Its,
    /// Another client's: another key was admitted.
    Another,
    /// The VM has not reported it.
    Unsaid,
}

/// The owner of a node. Compares the key of the VM's former request, its present statement, and the key that control-plane nodes
/// admitted last. An earlier image reports no key, and some keys are not recorded, such as those from before control-plane nodes
/// recorded them. Then the VM's statement that it has joined counts.
pub fn whose(before: Option<&str>, said: Option<&Statement>, let_in: Option<&str>) -> Whose {
    let own: Vec<&str> = before.into_iter().chain(said.and_then(|said| said.key.as_deref())).collect();
    match let_in {
        Some(key) if own.contains(&key) => Whose::Its,
        Some(_) if !own.is_empty() => Whose::Another,
        _ if said.is_some_and(|said| said.phase == Phase::Done) => Whose::Its,
        _ => Whose::Unsaid,
    }
}

impl<'a> Node<'a> {
    /// The worker's own node, if it has one.
    pub fn own(self) -> Option<&'a NodeSeen> {
        if let Self::Own(node) = self { Some(node) } else { None }
    }
}

impl Inventory {
    pub fn vm(&self, machine: &WorkerRecord) -> Observed<'_> {
        let mut own = self.vms.iter().filter(|vm| machine.owns(vm));
        let (first, second) = (own.next(), own.next());
        let unstamped = |vm: &Vm| machine.noted() == Some(vm.uuid()) && !machine.owns(vm);
        if second.is_some() || self.vms.iter().any(unstamped) || self.doubtful.contains_key(&machine.name) {
            return Observed::Odd;
        }
        match first {
            None if self.taken.contains(&machine.name) => Observed::Odd,
            None => Observed::Nothing,
            Some(vm) if machine.noted().is_some_and(|noted| noted != vm.uuid()) => Observed::Odd,
            Some(vm) => Observed::Vm(vm),
        }
    }

    /// Whether a worker is Ready and takes pods.
    pub fn is_available(&self, machine: &WorkerRecord) -> bool {
        let runs = matches!(self.vm(machine), Observed::Vm(vm) if vm.power == PowerState::On);
        let takes_pods = matches!(self.node(machine), Node::Own(node) if !node.cordoned);
        machine.state == State::Running && runs && takes_pods && self.is_ready(machine)
    }

    /// Whether a member is unhealthy: its node is not Ready, or its VM does not run. A cordoned node is the operator's choice. An
    /// unknown state of a VM does not count, and a VM that was copied is not changed.
    pub fn is_unhealthy(&self, machine: &WorkerRecord) -> bool {
        let is_ill = match self.vm(machine) {
            Observed::Odd => false,
            Observed::Nothing => !self.node_is_ready(machine),
            Observed::Vm(vm) => match vm.power {
                PowerState::Off | PowerState::Suspended => true,
                PowerState::On | PowerState::Unknown => !self.is_ready(machine),
            },
        };
        machine.state == State::Running && is_ill
    }

    /// Whether a worker's node is Ready. A report from before its VM was powered on again does not count. Kubernetes takes most
    /// of a minute to notice a silent node.
    pub fn is_ready(&self, machine: &WorkerRecord) -> bool {
        matches!(self.node(machine), Node::Own(node) if node.ready && machine.last_heartbeat.as_ref() != Some(&node.heard))
    }

    /// Whether a worker differs from what the pool wants now. A worker that has joined counts by the version that its kubelet ran
    /// then.
    ///
    /// During an upgrade of the control-plane nodes that version may be older than wanted, or newer, which is harmless. It stays
    /// the same for the life of its VM: root on it controls what its node reports later. A worker that has not joined takes the
    /// newest minor version when it joins.
    pub fn is_outdated(&self, pool: &Pool, machine: &WorkerRecord) -> bool {
        let (wanted, made) = (&pool.template, &machine.template);
        match machine.state {
            State::Provisioning | State::Joining => !wanted.makes_like(made),
            State::Running | State::Rejoining | State::Failed | State::Deleting => wanted.outdates(made),
        }
    }

    /// Whether a worker's VM is not seen while its node is Ready, or only since a moment ago. It was moved out of sight, was just
    /// removed, or the hypervisor omits it. It is not taken for gone.
    pub fn is_hidden(&self, machine: &WorkerRecord) -> bool {
        let is_noted = machine.reason.as_ref().is_some_and(|why| why.code == reason::VM_GONE);
        let is_gone = is_noted || self.gone.contains(&machine.name);
        self.is_missing(machine) && (self.node_is_ready(machine) || !is_gone)
    }

    /// Whether a worker had a VM that is not seen. A disowned one existed, whatever is recorded.
    pub(super) fn is_missing(&self, machine: &WorkerRecord) -> bool {
        let had = machine.bios_uuid.is_some() || self.kept.contains_key(&machine.name);
        had && matches!(self.vm(machine), Observed::Nothing)
    }

    /// Whether a worker's node reports that it is ready, even if the report is old.
    pub(super) fn node_is_ready(&self, machine: &WorkerRecord) -> bool {
        // Also if the record is older than its VM.
        let is_own = |node: &NodeSeen| machine.noted().is_some_and(|vm| self.runs_in(node, vm));
        self.nodes.iter().any(|node| node.name == machine.name && node.ready && is_own(node))
    }

    /// The statement of a worker's VM. A statement of another VM, or for another token, does not count.
    pub fn said(&self, machine: &WorkerRecord) -> Option<&Statement> {
        let said = self.said.get(&machine.name)?;
        let of_it = machine.bios_uuid.is_some_and(|vm| said.machine == Some(vm.into()));
        let of_its_token = machine.token.is_none() || said.token.is_none() || said.token == machine.token;
        (of_it && of_its_token).then_some(said)
    }

    /// The finding of a worker's VM, in its own words and with its own code.
    pub fn trouble(&self, machine: &WorkerRecord) -> Option<Reason> {
        let said = self.said(machine)?;
        Some(Reason::new(said.code.as_deref()?, &said.words))
    }

    /// Whether a worker's VM waits for the certificate that it has requested, and has no finding.
    pub fn waits(&self, machine: &WorkerRecord) -> bool {
        self.said(machine).is_some_and(|said| said.phase == Phase::Waiting && said.key.is_some() && said.code.is_none())
    }

    /// Whether a worker's VM has reported more than once a refusal that waiting does not resolve. An API server that has just
    /// started may not know a token yet.
    pub fn refuses(&self, machine: &WorkerRecord) -> bool {
        let refuses = |said: &Statement| said.phase == Phase::Refused && said.lasting;
        self.said(machine).is_some_and(|said| refuses(said) && said.times > machine.timeout_factor.max(1))
    }

    /// The owner of a worker's node, by the statement of its VM.
    pub fn whose(&self, machine: &WorkerRecord) -> Whose {
        whose(machine.key.as_deref(), self.said(machine), self.let_in.get(&machine.name).map(String::as_str))
    }

    /// The key that decides who owns a worker's node, if its VM has used it with the last token that it was given.
    pub(super) fn key_of_its_token<'a>(&'a self, machine: &'a WorkerRecord) -> Option<&'a str> {
        let said = self.said(machine).and_then(|said| said.key.as_deref());
        machine.token.as_ref().and(machine.key.as_deref().or(said))
    }

    /// The key with which a worker's VM asks to join, if it is new and no pod can have reported it. No kubelet has reported under
    /// the node's name since the VM was given its token.
    pub fn early_key(&self, machine: &WorkerRecord) -> Option<&str> {
        let said = self.said(machine).filter(|said| machine.token.is_some() && said.token == machine.token)?;
        let key = said.key.as_deref().filter(|key| machine.key.as_deref() != Some(*key))?;
        (!self.was_heard(machine)).then_some(key)
    }

    /// Whether a worker's kubelet has reported since its VM was powered on to join.
    fn was_heard(&self, machine: &WorkerRecord) -> bool {
        match self.node(machine) {
            Node::Own(node) => node.heard != machine.last_heartbeat.clone().unwrap_or_default(),
            Node::Absent | Node::Foreign => false,
        }
    }

    /// Why a worker's VM will not join, by its refusal since it was powered on. Once its kubelet has reported, programs of pods
    /// may write it, and it has joined anyway. A VM that asks for the token that it was given has not read its properties yet.
    pub fn refusal(&self, machine: &WorkerRecord) -> Option<Reason> {
        let is_of_now = self.said(machine)?.at >= machine.since;
        let why = self.trouble(machine).filter(|why| !asks_for_token(&why.code))?;
        (self.refuses(machine) && is_of_now && !self.was_heard(machine)).then_some(why)
    }

    /// The replicas of a worker's VM that stay, for messages.
    pub(super) fn left(&self, machine: &WorkerRecord) -> &[String] {
        self.left.get(&machine.name).map(Vec::as_slice).unwrap_or_default()
    }

    pub fn node(&self, machine: &WorkerRecord) -> Node<'_> {
        let Some(node) = self.nodes.iter().find(|node| node.name == machine.name) else { return Node::Absent };
        // A worker's kubelet reports it with the object: a node without it is not ours.
        let is_own = machine.bios_uuid.is_some_and(|vm| self.runs_in(node, vm));
        if is_own { Node::Own(node) } else { Node::Foreign }
    }

    /// Whether a node runs in this VM. If both orders of the BIOS UUID that it reports name a VM, it is taken for neither's.
    fn runs_in(&self, node: &NodeSeen, vm: Uuid) -> bool {
        let is_another = |other: &Vm| other.uuid() != vm && node.runs_in(other.uuid());
        node.runs_in(vm) && !self.vms.iter().any(is_another)
    }
}
