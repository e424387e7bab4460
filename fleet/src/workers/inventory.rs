//! What is there, looked at once.

use std::collections::{BTreeMap, BTreeSet};

use contract::statement::{Phase, Statement, asks_for_token};
use uuid::Uuid;

use super::cluster::{NodeSeen, PodSeen};
use super::pool::Pool;
use super::reason;
use super::wait::Wait;
use super::worker_record::{State, WorkerRecord};
use crate::hypervisor::{PowerState, Vm};
use crate::upgrade::Reason;

/// VMs, nodes and pods at one moment. A place that could not be looked at is no part of it: then nothing is decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// Seconds of Unix time.
    pub now: u64,
    /// The VMs that carry the pool's stamp, and those that are the workers' by BIOS UUID, whatever they carry.
    pub vms: Vec<Vm>,
    /// The nodes of the cluster.
    pub nodes: Vec<NodeSeen>,
    /// What has to move away from nodes that leave, by node.
    pub pods: BTreeMap<String, Vec<PodSeen>>,
    /// Claims of volumes that would be lost with a node that leaves, by node.
    pub claims: BTreeMap<String, Vec<String>>,
    /// Services whose addresses nodes that leave answer for, by node.
    pub announced: BTreeMap<String, Vec<String>>,
    /// Machines whose VMs are gone: no look of the last minute has found them, or they were removed for good, or given
    /// up and are off.
    pub gone: BTreeSet<String>,
    /// Why VMs that are not shown may run all the same, by machine.
    pub unproved: BTreeMap<String, String>,
    /// The VMs that were given up for machines, by machine: their names. They are nobody's, and count as gone as long as they are off and on
    /// no network.
    pub kept: BTreeMap<String, String>,
    /// Machines of which no VM is noted as made, and whose BIOS UUID a VM has that is stamped as another deployment's.
    pub taken: BTreeSet<String>,
    /// Replicas of VMs that go, or have gone, by machine, for people: they are off, elsewhere, and stay.
    pub left: BTreeMap<String, Vec<String>>,
    /// Why VMs are left alone, by machine: that of a member whose node is Ready does not run, and may be a copy of one that does, elsewhere; or a
    /// copy of one that goes may run, or holds a disk of it.
    pub doubtful: BTreeMap<String, Wait>,
    /// What VMs that are on say of themselves, by machine, where it is no member or its node is not Ready.
    pub said: BTreeMap<String, Statement>,
    /// Why VMs could not be asked that, by machine.
    pub unheard: BTreeMap<String, String>,
    /// The keys that control nodes have let in last, by machine, where it is no member and its node is Ready.
    pub let_in: BTreeMap<String, String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observed<'a> {
    Nothing,
    Vm(&'a Vm),
    /// More than one, or one whose stamp or identity is not what was noted, or that may be a copy. It is left alone.
    Odd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node<'a> {
    Absent,
    Own(&'a NodeSeen),
    /// A node of its name that runs on something else. It is left alone.
    Foreign,
}

/// Whose a node is that looks like a machine's own. What it runs on, it says itself, and who has read the VM's form and identity
/// says the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// The VM's, as that says: the key that was let in is its own.
    Its,
    /// Somebody else's: another key was let in.
    Another,
    /// The VM has not said.
    Unsaid,
}

/// Whose a node is, by the key with which its VM had asked to join before, by what that says now, and by the key that control nodes have let
/// in last. One of an earlier image says no key, and of some keys nothing is noted, as where control nodes had not begun to: then that it
/// has done all that makes it a node.
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
    /// The machine's own, if it has one.
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

    /// Whether a worker does its part, and takes pods.
    pub fn is_available(&self, machine: &WorkerRecord) -> bool {
        let runs = matches!(self.vm(machine), Observed::Vm(vm) if vm.power == PowerState::On);
        let takes_pods = matches!(self.node(machine), Node::Own(node) if !node.cordoned);
        machine.state == State::Running && runs && takes_pods && self.is_ready(machine)
    }

    /// Whether one that has joined does not do its part: its node is not Ready, or its VM does not run. That it takes no pods is a
    /// person's wish, and what nobody can tell of a VM is no illness. One whose VM was copied is left alone.
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

    /// Whether a machine's node is Ready. What it had said before its VM was powered on again is no word of that: Kubernetes
    /// takes most of a minute to see that a node says nothing.
    pub fn is_ready(&self, machine: &WorkerRecord) -> bool {
        matches!(self.node(machine), Node::Own(node) if node.ready && machine.last_heartbeat.as_ref() != Some(&node.heard))
    }

    /// Whether a worker is not made as the pool wants it now. One that has joined counts by what its kubelet ran then: between
    /// two minors of its control nodes that may be older than was wanted, or newer, which is no harm. It is the same for the life
    /// of its VM; what its node says later, root on it may have written. One that has not joined takes the newest minor when it
    /// does.
    pub fn is_outdated(&self, pool: &Pool, machine: &WorkerRecord) -> bool {
        let (wanted, made) = (&pool.template, &machine.template);
        match machine.state {
            State::Provisioning | State::Joining => !wanted.makes_like(made),
            State::Running | State::Rejoining | State::Failed | State::Deleting => wanted.outdates(made),
        }
    }

    /// Whether nothing is seen of a machine's VM while its node says that it runs, or for a moment only: it was moved out of
    /// sight, or went just now, or the hypervisor has left it out. Nobody takes it for gone.
    pub fn is_hidden(&self, machine: &WorkerRecord) -> bool {
        let is_noted = machine.reason.as_ref().is_some_and(|why| why.code == reason::VM_GONE);
        let is_gone = is_noted || self.gone.contains(&machine.name);
        self.is_missing(machine) && (self.node_is_ready(machine) || !is_gone)
    }

    /// Whether a machine had a VM of which nothing is seen. One that was given up was there, whatever is noted.
    pub(super) fn is_missing(&self, machine: &WorkerRecord) -> bool {
        let had = machine.bios_uuid.is_some() || self.kept.contains_key(&machine.name);
        had && matches!(self.vm(machine), Observed::Nothing)
    }

    /// Whether a machine's node says that it is ready, be that an old word.
    pub(super) fn node_is_ready(&self, machine: &WorkerRecord) -> bool {
        // Also where what is kept is older than its VM.
        let is_own = |node: &NodeSeen| machine.noted().is_some_and(|vm| self.runs_in(node, vm));
        self.nodes.iter().any(|node| node.name == machine.name && node.ready && is_own(node))
    }

    /// What a machine's VM says of itself. What another VM has said, or the same one of another token, says nothing of it.
    pub fn said(&self, machine: &WorkerRecord) -> Option<&Statement> {
        let said = self.said.get(&machine.name)?;
        let of_it = machine.bios_uuid.is_some_and(|vm| said.machine == Some(vm.into()));
        let of_its_token = machine.token.is_none() || said.token.is_none() || said.token == machine.token;
        (of_it && of_its_token).then_some(said)
    }

    /// What a machine's VM says stands in its way, in its own words and with its own code.
    pub fn trouble(&self, machine: &WorkerRecord) -> Option<Reason> {
        let said = self.said(machine)?;
        Some(Reason::new(said.code.as_deref()?, &said.words))
    }

    /// Whether a machine's VM waits for the certificate that it has asked for, and has no trouble of its own.
    pub fn waits(&self, machine: &WorkerRecord) -> bool {
        self.said(machine).is_some_and(|said| said.phase == Phase::Waiting && said.key.is_some() && said.code.is_none())
    }

    /// Whether a machine's VM refuses what waiting does not mend, and has done so more than once: an API server that has just
    /// started may know no token yet.
    pub fn refuses(&self, machine: &WorkerRecord) -> bool {
        let refuses = |said: &Statement| said.phase == Phase::Refused && said.lasting;
        self.said(machine).is_some_and(|said| refuses(said) && said.times > machine.timeout_factor.max(1))
    }

    /// Whose a machine's node is, by what its VM says.
    pub fn whose(&self, machine: &WorkerRecord) -> Whose {
        whose(machine.key.as_deref(), self.said(machine), self.let_in.get(&machine.name).map(String::as_str))
    }

    /// The key by which it is judged whose a machine's node is, where its VM has asked with it by the token that it was given last.
    pub(super) fn key_of_its_token<'a>(&'a self, machine: &'a WorkerRecord) -> Option<&'a str> {
        let said = self.said(machine).and_then(|said| said.key.as_deref());
        machine.token.as_ref().and(machine.key.as_deref().or(said))
    }

    /// The key with which a machine's VM asks to join, where that is news and no pod can have said it: nobody was heard by the
    /// node's name since the VM was given its token.
    pub fn early_key(&self, machine: &WorkerRecord) -> Option<&str> {
        let said = self.said(machine).filter(|said| machine.token.is_some() && said.token == machine.token)?;
        let key = said.key.as_deref().filter(|key| machine.key.as_deref() != Some(*key))?;
        (!self.was_heard(machine)).then_some(key)
    }

    /// Whether a machine's kubelet was heard since its VM was powered on to join.
    fn was_heard(&self, machine: &WorkerRecord) -> bool {
        match self.node(machine) {
            Node::Own(node) => node.heard != machine.last_heartbeat.clone().unwrap_or_default(),
            Node::Absent | Node::Foreign => false,
        }
    }

    /// Why a machine's VM will not join, as it refuses since it was powered on. Once its kubelet was heard, programs of pods may
    /// say it, and it has joined anyway. One that asks for the token that it was given has not seen its form yet.
    pub fn refusal(&self, machine: &WorkerRecord) -> Option<Reason> {
        let is_of_now = self.said(machine)?.at >= machine.since;
        let why = self.trouble(machine).filter(|why| !asks_for_token(&why.code))?;
        (self.refuses(machine) && is_of_now && !self.was_heard(machine)).then_some(why)
    }

    /// The replicas of a machine's VM that stay, for people.
    pub(super) fn left(&self, machine: &WorkerRecord) -> &[String] {
        self.left.get(&machine.name).map(Vec::as_slice).unwrap_or_default()
    }

    pub fn node(&self, machine: &WorkerRecord) -> Node<'_> {
        let Some(node) = self.nodes.iter().find(|node| node.name == machine.name) else { return Node::Absent };
        // A worker's kubelet says it when it makes the object: one without it is none of ours.
        let is_own = machine.bios_uuid.is_some_and(|vm| self.runs_in(node, vm));
        if is_own { Node::Own(node) } else { Node::Foreign }
    }

    /// Whether a node runs in this VM. If both orders of the BIOS UUID that it reports name a VM, it is taken for neither's.
    fn runs_in(&self, node: &NodeSeen, vm: Uuid) -> bool {
        let is_another = |other: &Vm| other.uuid() != vm && node.runs_in(other.uuid());
        node.runs_in(vm) && !self.vms.iter().any(is_another)
    }
}
