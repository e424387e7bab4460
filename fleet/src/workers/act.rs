//! Runs one action for a worker. A record is saved before the action that follows from it. If a call's response is lost, the next
//! inventory shows the result.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use contract::minor::Minor;
use tokio::time::Instant;
use uuid::Uuid;

use super::action::Action;
use super::cluster::{Cluster as _, ClusterChange, Evicted, NodeSeen, PodSeen};
use super::copies::not_alone;
use super::guarded_cluster::GuardedCluster;
use super::inventory::{Inventory, Node, Observed};
use super::pool::Pool;
use super::reason;
use super::records::Records;
use super::token::Token;
use super::worker_pool::Workers;
use super::worker_record::{State, WorkerRecord};
use super::worker_step::{NAMED, what_ends_it};
use crate::engine::{ActionError, Call, GuardedHypervisor, Reason, Scope};
use crate::hypervisor::{
    self, CloneRequest, CloneSettings, ImageTemplate, Networks, Placement, PowerState, SHUTTING_DOWN, ShutDown, Vm,
    doubles,
};
use crate::lease::AllocatedIds;

/// How long a round evicts the pods of one worker, plus one request. The other workers of that round wait meanwhile.
const EVICTING: Duration = Duration::from_secs(60);

/// The characters for pods that may not be evicted, and for what ends that. A reason has at most 500.
const WORDS: usize = 450;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum ActionOutcome {
    /// Something has changed.
    Changed,
    /// Nothing has, for this reason.
    Blocked(Reason),
}

pub(super) struct ActionContext<'a> {
    pub(super) workers: &'a Workers<'a>,
    pub(super) hypervisor: GuardedHypervisor<'a>,
    pub(super) cluster: GuardedCluster<'a>,
    /// By leaving worker, the pod that was evicted last, by namespace and name. Kept for one command.
    pub(super) turns: Mutex<BTreeMap<String, (String, String)>>,
}

impl<'a> ActionContext<'a> {
    /// Runs one action. If the inventory is outdated, the calls themselves refuse.
    pub(super) async fn act(
        &self,
        records: &mut Records<'_>,
        seen: &Inventory,
        action: &Action,
    ) -> Result<ActionOutcome, ActionError> {
        let Some(name) = action.machine() else {
            let Action::Add { address } = action else { return Ok(ActionOutcome::Changed) };
            let machine = self.add(records, seen, *address).await?;
            return save(records, machine).await;
        };
        let Some(machine) = records.kept().machine(name).cloned() else { return Ok(ActionOutcome::Changed) };
        if goes_by_its_vm(action)
            && let Observed::Vm(vm) = seen.vm(&machine)
        {
            self.is_alone(vm).await?;
        }
        // The inventory may be old: another worker's VM may have been created meanwhile.
        let with = |state, reason| {
            let mut entered = machine.clone();
            entered.enter(state, (self.workers.clock)(), reason);
            entered
        };
        match action {
            Action::Add { .. } => Ok(ActionOutcome::Changed),
            Action::CloneVm(_) => self.clone_vm(records, machine).await,
            Action::Invite(_) => self.invite(records, seen, machine).await,
            Action::PowerOn(_) => self.power_on(records, seen, machine).await,
            Action::Hear(_, key) => save(records, WorkerRecord { key: Some(key.clone()), ..machine }).await,
            Action::Suspect(_, key) => {
                // Its VM may report nothing when the worker is to be removed.
                let key = machine.key.clone().or_else(|| Some(key.clone()));
                save(records, WorkerRecord { key, impersonated: true, ..machine }).await
            }
            Action::Joined(_) => {
                // For a worker that joins again, this stays the first duration.
                let took = seen.now.saturating_sub(machine.since);
                let joined_seconds = machine.joined_seconds.or(Some(took));
                let mut joined = with(State::Running, None);
                (joined.joined_seconds, joined.was_powered_on, joined.impersonated) = (joined_seconds, false, false);
                // If it was impersonated under another key and did not join with that key, the key would show the same again when
                // it leaves.
                let let_in = seen.let_in.get(&machine.name);
                joined.key = joined.key.filter(|key| let_in.is_none_or(|let_in| let_in == key));
                let says = node(seen, &machine)?.minor();
                if let Some(minor) = says.filter(|minor| may_run(&records.kept().pool, &machine, *minor)) {
                    joined.template.kubernetes = minor.to_string();
                }
                save_with_failures(records, joined, |_| 0).await
            }
            Action::Fail(_, why) => {
                let failed = with(State::Failed, Some(why.clone()));
                save_failed(records, WorkerRecord { was_powered_on: false, ..failed }).await
            }
            Action::Leave(_, why) => {
                // The operator has changed the pool since: the next joins are the first ones.
                let restarts = machine.state == State::Failed && why.code != reason::GIVEN_UP;
                let leaving = with(State::Deleting, Some(why.clone()));
                save_with_failures(records, leaving, |joins| if restarts { 0 } else { joins }).await
            }
            Action::RemoveToken(_) => {
                if let Some(token) = &machine.token {
                    self.change(ClusterChange::RemoveToken(token)).await?;
                }
                save(records, WorkerRecord { token: None, ..machine }).await
            }
            Action::Cordon(_) => {
                self.change(ClusterChange::Cordon(node(seen, &machine)?)).await?;
                let cordoned = Some((self.workers.clock)());
                save(records, WorkerRecord { cordoned, ..machine }).await
            }
            Action::HandOver(_) => {
                let handed_over = Some((self.workers.clock)());
                save(records, WorkerRecord { handed_over, ..machine }).await
            }
            Action::Drain(_) => self.drain(seen, &machine).await,
            Action::PowerOff(_) => {
                if machine.state == State::Rejoining && !machine.was_powered_on {
                    save(records, WorkerRecord { was_powered_on: true, ..machine.clone() }).await?;
                }
                self.power_off(&machine, vm(seen, &machine)?).await
            }
            Action::DeleteNode(_) => {
                self.change(ClusterChange::DeleteNode(node(seen, &machine)?)).await?;
                Ok(ActionOutcome::Changed)
            }
            Action::Detach(_, disk) => {
                let vm = vm(seen, &machine)?;
                note_going(records, &machine, vm).await?;
                self.hypervisor.detach(vm, disk, &self.open(vm)?).await?;
                Ok(ActionOutcome::Changed)
            }
            Action::Destroy(_) => {
                let vm = vm(seen, &machine)?;
                note_going(records, &machine, vm).await?;
                self.hypervisor.destroy(vm, &self.open(vm)?).await?;
                Ok(ActionOutcome::Changed)
            }
            Action::Disconnect(_, adapter) => {
                let vm = vm(seen, &machine)?;
                self.hypervisor.connect(vm, adapter, false, &self.open(vm)?).await?;
                Ok(ActionOutcome::Changed)
            }
            Action::Release(_, name) => {
                let vm = vm(seen, &machine)?;
                note_going(records, &machine, vm).await?;
                self.hypervisor.disown(vm, name, &self.open(vm)?).await?;
                Ok(ActionOutcome::Changed)
            }
            Action::Forget(..) => {
                // Its VM is gone: a client that was admitted by its name is another one, whether it has made a node or not. A
                // worker that never had a token admitted no client: a node of its name existed before.
                let had_token = machine.expires > 0;
                if had_token || matches!(seen.node(&machine), Node::Absent) {
                    let released = self.cluster.change(ClusterChange::ReleaseName(&machine.name)).await;
                    let what = "freeing its name in the record of workers, where its VM is gone already";
                    released.context(what).map_err(ActionError::api)?;
                }
                records.forget(&machine.name).await.map_err(ActionError::store)?;
                Ok(ActionOutcome::Changed)
            }
        }
    }

    fn open(&self, vm: &Vm) -> hypervisor::Result<Call<'a>> {
        self.hypervisor.open(Scope::Vm(vm))
    }

    /// Refuses an action if another VM with the same BIOS UUID may run elsewhere: the VM that was seen may be a copy. Checked
    /// here, not in each round, because a drain may be blocked for days.
    async fn is_alone(&self, vm: &Vm) -> Result<(), ActionError> {
        let doubles = doubles(&*self.hypervisor, vm).await?;
        not_alone(vm, &doubles).map_or(Ok(()), |why| Err(ActionError::Refused(why)))
    }

    /// Saves the number first: a recorded name is never used again, nor that of a VM from a damaged journal.
    async fn add(
        &self,
        records: &mut Records<'_>,
        seen: &Inventory,
        address: Option<std::net::Ipv4Addr>,
    ) -> Result<WorkerRecord, ActionError> {
        let mut pool = records.kept().pool.clone();
        pool.last_index += 1;
        while seen.vms.iter().any(|vm| vm.name == pool.machine_name(pool.last_index)) {
            pool.last_index += 1;
        }
        records.save_pool(pool.clone()).await.map_err(ActionError::store)?;
        let AllocatedIds { id, vm, address } =
            records.draw(&pool.machine_name(pool.last_index), address).await.map_err(ActionError::store)?;
        Ok(WorkerRecord { allocated_uuid: vm, ..WorkerRecord::new(&pool, id, address, (self.workers.clock)()) })
    }

    /// Creates the token and the VM. If the VM is incomplete, the token has no use: it is removed, and both are created again. If
    /// the VM took so long that the token leaves no time to join, the next one would too. Then the worker fails, for the
    /// operator.
    async fn clone_vm(&self, records: &mut Records<'_>, machine: WorkerRecord) -> Result<ActionOutcome, ActionError> {
        let pool = records.kept().pool.clone();
        let none = || Reason::new(reason::NO_CONTROL_NODE, "there is no control-plane node's VM to put it next to");
        let beside = self.workers.beside.as_ref().ok_or_else(|| ActionError::Refused(none()))?;
        let placed = (self.workers.placed)(&machine.name);
        let template = match self.template(records, &machine, beside, &placed.placement).await {
            Err(ActionError::Refused(why)) => return self.refused(records, machine, why).await,
            template => template?,
        };
        let now = (self.workers.clock)();
        let timeout_factor = self.workers.site.timeout_factor();
        let token = Token::new(&machine.name, now, timeout_factor);
        let (id, expires) = (Some(token.id.clone()), token.expires);
        // A UUID from an earlier attempt is used again: no VM has it, or that VM would be removed first.
        let drawn = machine.allocated_uuid.unwrap_or_else(Uuid::new_v4);
        let noted = WorkerRecord {
            token: id,
            expires,
            timeout_factor,
            allocated_uuid: Some(drawn),
            bios_uuid: None,
            since: now,
            ..machine
        };
        save(records, noted.clone()).await?;
        self.change(ClusterChange::AddToken(&token)).await?;
        let properties = self.workers.site.properties(&pool, &noted, &token, placed.labels.clone());
        let (networks, size) = (Networks::Of(beside), &noted.template.size);
        let request = CloneRequest {
            name: &noted.name,
            uuid: drawn,
            image: &template,
            settings: CloneSettings::Given { networks, size, properties: &properties },
            stamp: noted.stamp(self.workers.hypervisor.deployment()),
            placement: &placed.placement,
        };
        let call = self.hypervisor.open(Scope::Clone(&request))?;
        match self.hypervisor.clone_vm(&request, &call).await.map_err(ActionError::from) {
            Err(ActionError::Refused(why)) => self.refused(records, noted, why).await,
            made => {
                let (made, ended) = (WorkerRecord { bios_uuid: Some(made?), ..noted }, (self.workers.clock)());
                if made.has_time(&pool, ended) {
                    return save(records, made).await;
                }
                let words = format!("its VM was made in {} s: its token leaves no time to join", ended - now);
                let why = Some(Reason::new(reason::TOO_SLOW, words));
                save_failed(records, WorkerRecord { state: State::Failed, reason: why, since: ended, ..made }).await
            }
        }
    }

    /// Creates a token for a worker that joins again, and sets it in its VM.
    async fn invite(
        &self,
        records: &mut Records<'_>,
        seen: &Inventory,
        machine: WorkerRecord,
    ) -> Result<ActionOutcome, ActionError> {
        let pool = records.kept().pool.clone();
        let token = Token::new(&machine.name, (self.workers.clock)(), machine.timeout_factor);
        let noted = WorkerRecord { token: Some(token.id.clone()), expires: token.expires, key: None, ..machine };
        save(records, noted.clone()).await?;
        self.change(ClusterChange::AddToken(&token)).await?;
        let labels = (self.workers.placed)(&noted.name).labels;
        let properties = self.workers.site.properties(&pool, &noted, &token, labels);
        let vm = vm(seen, &noted)?;
        let given = self.hypervisor.set_properties(vm, &properties, &self.open(vm)?).await.map_err(ActionError::from);
        let since = (self.workers.clock)();
        match given {
            // Another token would be refused as well. Its properties are unchanged, and so is the key that it was admitted with.
            Err(ActionError::Refused(why)) => {
                save(
                    records,
                    WorkerRecord { state: State::Failed, reason: Some(why), since, key: machine.key, ..noted },
                )
                .await
            }
            given => {
                given?;
                // A client in its place was admitted with another token than this one.
                let joining = WorkerRecord { state: State::Joining, reason: None, impersonated: false, since, ..noted };
                save(records, joining).await
            }
        }
    }

    async fn power_on(
        &self,
        records: &mut Records<'_>,
        seen: &Inventory,
        machine: WorkerRecord,
    ) -> Result<ActionOutcome, ActionError> {
        let mut noted = machine.clone();
        if machine.state == State::Provisioning {
            (noted.state, noted.reason, noted.since) = (State::Joining, None, (self.workers.clock)());
        } else if let Some(node) = seen.node(&machine).own() {
            noted.last_heartbeat = Some(node.heard.clone()).filter(|heard| !heard.is_empty());
        }
        if noted != machine {
            save(records, noted.clone()).await?;
        }
        let vm = vm(seen, &machine)?;
        if vm.power == PowerState::Off {
            self.hypervisor.power_on(vm, &self.open(vm)?).await?;
        }
        // If it is shut down from now on, it should stay off.
        if noted.was_powered_on {
            save(records, WorkerRecord { was_powered_on: false, ..noted }).await
        } else {
            Ok(ActionOutcome::Changed)
        }
    }

    async fn refused(
        &self,
        records: &mut Records<'_>,
        machine: WorkerRecord,
        why: Reason,
    ) -> Result<ActionOutcome, ActionError> {
        let why = Reason::new(reason::REFUSED, why.words);
        let since = (self.workers.clock)();
        save_failed(records, WorkerRecord { state: State::Failed, reason: Some(why), since, ..machine }).await
    }

    /// The worker's image at the placement of its VM. The pool's image can be imported there. A former image of the pool exists
    /// there, or is no longer needed.
    async fn template(
        &self,
        records: &Records<'_>,
        machine: &WorkerRecord,
        beside: &Vm,
        placement: &Placement,
    ) -> Result<ImageTemplate, ActionError> {
        let digest = &machine.template.image.digest;
        if let Some(ready) = self.hypervisor.find_template(digest, Some(beside), placement).await? {
            return Ok(ready);
        }
        let (ova, call) = (&records.kept().pool.ova, self.hypervisor.call());
        Ok(self.hypervisor.import_template(ova, digest, Some(beside), placement, &call).await?)
    }

    async fn change(&self, change: ClusterChange<'_>) -> Result<(), ActionError> {
        self.cluster.change(change).await.map_err(ActionError::api)
    }

    /// Evicts each pod, and reports which may not be evicted. If the API is slow or the command is cancelled, the rest is left
    /// for the next round, and comes first then. An error for one pod does not stop the others.
    async fn drain(&self, seen: &Inventory, machine: &WorkerRecord) -> Result<ActionOutcome, ActionError> {
        let (mut went, mut blocked, mut more) = (false, Vec::new(), 0);
        let (mut is_answered, mut unanswered) = (false, None);
        let begun = Instant::now();
        for pod in self.in_turn(seen, machine) {
            if *self.workers.cancelled.borrow() || begun.elapsed() >= EVICTING {
                break;
            }
            self.turns().insert(machine.name.clone(), (pod.namespace.clone(), pod.name.clone()));
            let words = match self.cluster.evict(pod).await.map_err(ActionError::api) {
                Ok(Evicted::Going) => {
                    (is_answered, went) = (true, true);
                    continue;
                }
                Ok(Evicted::Blocked(words)) => {
                    is_answered = true;
                    words
                }
                Err(ActionError::Later(why)) => {
                    let words = format!("it was not answered: {}", why.words);
                    unanswered.get_or_insert(ActionError::Later(why));
                    words
                }
                // This command must stop.
                Err(trouble) => return Err(trouble),
            };
            if blocked.len() < NAMED {
                blocked.push(format!("{}: {words}", pod.full_name()));
            } else {
                more += 1;
            }
        }
        if let Some(trouble) = unanswered.filter(|_| !is_answered) {
            return Err(trouble);
        }
        if went || blocked.is_empty() {
            return Ok(ActionOutcome::Changed);
        }
        let ends = what_ends_it(machine, seen);
        let words = some_of(&blocked, more, WORDS.saturating_sub(ends.chars().count())) + &ends;
        Ok(ActionOutcome::Blocked(Reason::new(reason::DRAIN_BLOCKED, words)))
    }

    /// The pods of a worker that are not ending yet, in a stable order that begins after the last evicted one. So a few slow pods
    /// do not come first in each round.
    fn in_turn<'s>(&self, seen: &'s Inventory, machine: &WorkerRecord) -> Vec<&'s PodSeen> {
        let all = seen.pods.get(&machine.name).map(Vec::as_slice).unwrap_or_default();
        let mut pods: Vec<&PodSeen> = all.iter().filter(|pod| !pod.ending).collect();
        pods.sort_by(|one, other| (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name)));
        if let Some((namespace, name)) = self.turns().get(&machine.name) {
            let asked = pods.partition_point(|pod| (&pod.namespace, &pod.name) <= (namespace, name));
            pods.rotate_left(asked);
        }
        pods
    }

    fn turns(&self) -> MutexGuard<'_, BTreeMap<String, (String, String)>> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn power_off(&self, machine: &WorkerRecord, vm: &Vm) -> Result<ActionOutcome, ActionError> {
        let (limit, cancelled) = (SHUTTING_DOWN * machine.timeout_factor, &self.workers.cancelled);
        match self.hypervisor.shut_down_unless(vm, limit).await? {
            ShutDown::Off => {}
            ShutDown::StillOn if *cancelled.borrow() => {}
            ShutDown::StillOn | ShutDown::CannotBeAsked => {
                let vm = self.hypervisor.vm(&vm.reference).await?;
                self.hypervisor.cut_power(&vm, &self.open(&vm)?).await?;
            }
        }
        Ok(ActionOutcome::Changed)
    }
}

/// Whether an action is final or starts something, and depends on what was seen of a worker's VM.
fn goes_by_its_vm(action: &Action) -> bool {
    matches!(
        action,
        Action::PowerOn(_)
            | Action::PowerOff(_)
            | Action::DeleteNode(_)
            | Action::Detach(..)
            | Action::Destroy(_)
            | Action::Disconnect(..)
            | Action::Release(..)
    )
}

/// Whether a worker may run a newer minor version than was wanted of it. Root on the worker controls what its node reports. A
/// minor version that is older, or that its image lacks, is not believed.
fn may_run(pool: &Pool, machine: &WorkerRecord, minor: Minor) -> bool {
    let is_of_pool = machine.template.image.digest == pool.template.image.digest;
    let is_newer = machine.template.kubernetes.parse::<Minor>().is_ok_and(|wanted| wanted < minor);
    is_of_pool && is_newer && pool.carries.contains(&minor.to_string())
}

/// The texts, each cut so that all fit into `room` characters, and the number of further ones.
fn some_of(blocked: &[String], more: usize, room: usize) -> String {
    let room = room / blocked.len().max(1);
    let cut: Vec<String> = blocked.iter().map(|words| words.chars().take(room).collect()).collect();
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    cut.join("; ") + &more
}

async fn save(records: &mut Records<'_>, machine: WorkerRecord) -> Result<ActionOutcome, ActionError> {
    records.save_machine(machine).await.map_err(ActionError::store)?;
    Ok(ActionOutcome::Changed)
}

/// Saves a worker that did not join, and counts it. If a controller dies between both writes of a store, one failure may count
/// twice.
async fn save_failed(records: &mut Records<'_>, machine: WorkerRecord) -> Result<ActionOutcome, ActionError> {
    let counts = u32::from(!machine.has_joined());
    save_with_failures(records, machine, |joins| joins.saturating_add(counts)).await
}

/// Saves a worker, and the number of failed joins in a row, if it changes and failed joins are retried.
async fn save_with_failures(
    records: &mut Records<'_>,
    machine: WorkerRecord,
    change: impl FnOnce(u32) -> u32,
) -> Result<ActionOutcome, ActionError> {
    let pool = &records.kept().pool;
    let failed_joins = pool.failed_joins.map(change);
    if failed_joins == pool.failed_joins {
        return save(records, machine).await;
    }
    let pool = Pool { failed_joins, ..pool.clone() };
    records.save_all(pool, vec![machine]).await.map_err(ActionError::store)?;
    Ok(ActionOutcome::Changed)
}

/// Records which VM is removed, if that is new: another one with its BIOS UUID is a known copy afterwards.
async fn note_going(records: &mut Records<'_>, machine: &WorkerRecord, vm: &Vm) -> Result<(), ActionError> {
    let noted = machine.taking_apart(vm);
    if noted != *machine {
        save(records, noted).await?;
    }
    Ok(())
}

fn vm<'s>(seen: &'s Inventory, machine: &WorkerRecord) -> Result<&'s Vm, ActionError> {
    match seen.vm(machine) {
        Observed::Vm(vm) => Ok(vm),
        Observed::Nothing | Observed::Odd => {
            Err(ActionError::Later(Reason::new(reason::VM_ODD, "its VM was not seen")))
        }
    }
}

fn node<'s>(seen: &'s Inventory, machine: &WorkerRecord) -> Result<&'s NodeSeen, ActionError> {
    let unseen = || ActionError::Later(Reason::new(reason::NAME_IN_USE, "its node was not seen"));
    seen.node(machine).own().ok_or_else(unseen)
}
