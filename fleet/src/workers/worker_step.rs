//! Decides what comes next for one worker, from its record and the inventory.

use std::fmt::Write;

use contract::minor::Minor;
use contract::statement::Phase;

use super::action::Action;
use super::cluster::{NodeSeen, PodSeen};
use super::inventory::{Inventory, Node, Observed, Whose};
use super::pool::Pool;
use super::reason;
use super::removal::Removal;
use super::token_remedy;
use super::wait::Wait;
use super::worker_record::{State, WorkerRecord};
use crate::engine::Reason;
use crate::hypervisor::{PowerState, Vm};

/// How long a kubelet may take to create its node once it has its certificate, in seconds.
const LAST_MOMENT: u64 = 60;

/// How long a node forwards requests after other nodes have taken over its addresses of services, in seconds. For requests in
/// progress, and clients that have not learnt it yet.
const HANDED_OVER: u64 = 5;

/// How many pods that have not moved are named.
pub(super) const NAMED: usize = 3;

/// How long other nodes may take to take over these addresses, in seconds. If there is no other node, none does.
const HANDING_OVER: u64 = 60;

pub(super) enum Step {
    /// Nothing to do.
    Idle,
    Run(Action),
    /// Run the action. The wait lasts until it has succeeded.
    RunThenWait(Action, Wait),
    /// Wait for something outside.
    Wait(Wait),
}

/// The next step of a worker. `missed` says whether another one is created for it once it is gone.
pub(super) fn step(pool: &Pool, machine: &WorkerRecord, seen: &Inventory, missed: &dyn Fn() -> bool) -> Step {
    let found = match seen.vm(machine) {
        Observed::Odd => {
            if let Some(wait) = seen.doubtful.get(&machine.name) {
                return Step::Wait(wait.clone());
            }
            let words = "its VM exists twice, or has another stamp";
            return Step::Wait(Wait::lasting(machine, reason::VM_ODD, words));
        }
        Observed::Nothing => None,
        Observed::Vm(vm) => Some(vm),
    };
    if seen.is_hidden(machine) {
        let ready = "its VM is not seen, and its node is Ready";
        let now = "its VM is not seen: it counts as gone after a minute, if its settings file is gone too";
        let mut words = if seen.node_is_ready(machine) { ready } else { now }.to_owned();
        if let Some(why) = seen.unproved.get(&machine.name) {
            "its VM is not seen, and may run: ".clone_into(&mut words);
            words += why;
        }
        if let Some(name) = seen.kept.get(&machine.name) {
            write!(
                words,
                ". It was abandoned, and is named {name} now, which runs, is on a network or exists twice: power it off"
            )
            .ok();
        }
        return Step::Wait(Wait::passing(machine, reason::VM_UNSEEN, words));
    }
    match machine.state {
        State::Provisioning => new(pool, machine, found, seen, missed),
        State::Joining => joining(pool, machine, found, seen),
        State::Running => member(pool, machine, found, seen),
        State::Rejoining => returning(pool, machine, found, seen),
        State::Failed => failed(machine, found),
        State::Deleting => leaving(pool, machine, found, seen, missed),
    }
}

fn name(machine: &WorkerRecord) -> String {
    machine.name.clone()
}

/// A VM from an interrupted import is not trusted to be complete. A VM whose token is about to expire cannot join. Another worker
/// is created under another name. A client that has read the token in its properties may have been admitted, and would be the
/// same node to Kubernetes for a year.
fn new(pool: &Pool, machine: &WorkerRecord, vm: Option<&Vm>, seen: &Inventory, missed: &dyn Fn() -> bool) -> Step {
    let is_whole = machine.bios_uuid.is_some();
    match vm {
        // A VM that is on was powered on by a former command, and may have joined since.
        Some(vm) if is_whole && vm.power == PowerState::On && !is_too_late(machine, seen) => {
            Step::Run(Action::PowerOn(name(machine)))
        }
        Some(vm) if is_whole && vm.power != PowerState::On && machine.has_time(pool, seen.now) => powered(machine, vm),
        // It may be on, and have joined, if the record was restored. Its host may never answer again.
        Some(vm) if !is_whole && vm.power == PowerState::Unknown => {
            let words = format!(
                "its VM is {}, and no record shows that it is complete: it is kept, because it may have joined. If its host \
                 does not come back, remove the worker. {}",
                vm.power,
                place(pool, missed())
            );
            Step::Wait(Wait::lasting(machine, reason::VM_STATE, words))
        }
        // The record is older than that. Another VM would have its BIOS UUID.
        None if seen.kept.contains_key(&machine.name) => {
            let words = "its VM was abandoned already, and is kept: another worker is created";
            Step::Run(Action::Leave(name(machine), Reason::new(reason::GIVEN_UP, words)))
        }
        None if machine.token.is_none() => Step::Run(Action::CloneVm(name(machine))),
        None if !is_whole => Step::Run(Action::RemoveToken(name(machine))),
        Some(_) | None => {
            let words = "it is created again: its VM is incomplete, or its token leaves no time to join";
            Step::Run(Action::Leave(name(machine), Reason::new(reason::GIVEN_UP, words)))
        }
    }
}

fn powered(machine: &WorkerRecord, vm: &Vm) -> Step {
    match vm.power {
        PowerState::Off => Step::Run(Action::PowerOn(name(machine))),
        _ => odd_power(machine, vm),
    }
}

fn odd_power(machine: &WorkerRecord, vm: &Vm) -> Step {
    Step::Wait(Wait::passing(machine, reason::VM_STATE, format!("its VM is {}", vm.power)))
}

fn joining(pool: &Pool, machine: &WorkerRecord, vm: Option<&Vm>, seen: &Inventory) -> Step {
    let fail = |code: &str, words: String| fails(machine, Reason::new(code, words));
    let Some(vm) = vm else { return fail(reason::VM_GONE, "its VM is gone before it has joined".to_owned()) };
    let (node, limit) = (seen.node(machine), machine.join_seconds(pool));
    // With its own code, if it reports one.
    let late = |words: String| match seen.trouble(machine) {
        Some(own) => fail(&own.code, format!("{words}: {}", own.words)),
        None if machine.has_joined() && seen.waits(machine) => {
            let why = "its VM waits for its certificate. If control-plane nodes hold its name for another client \
                       (worker.name-held), another token does not help: remove the worker";
            fail(reason::NOT_JOINED, format!("{words}: {why}"))
        }
        None => fail(reason::NOT_JOINED, words),
    };
    // A worker that has reported a refusal is not awaited.
    if let Some(why) = seen.refusal(machine).filter(|_| !seen.is_ready(machine)) {
        return fails(machine, why);
    }
    if let Some(key) = seen.early_key(machine) {
        return Step::Run(Action::Hear(name(machine), key.to_owned()));
    }
    let unproved = seen.is_ready(machine).then(|| unproved(machine, seen)).flatten();
    if let Some(step) = unproved.as_ref().and_then(|why| suspect(machine, seen, why)) {
        return step;
    }
    match node {
        Node::Absent if is_too_late(machine, seen) => {
            return late("its token has ended, and it has not joined".to_owned());
        }
        Node::Own(node) if seen.is_ready(machine) && unproved.is_none() => {
            if !is_older(node, machine) {
                return Step::Run(Action::Joined(name(machine)));
            }
            let words = format!("it runs Kubernetes {}, and {} is wanted", node.kubelet, machine.template.kubernetes);
            return fail(reason::SKEW, words);
        }
        _ if seen.now.saturating_sub(machine.since) <= limit => {}
        Node::Foreign => {
            let words = "a node of its name runs on something else. Unless it was made on purpose, a client has this worker's \
                         token: remove the worker, and delete that node, which control-plane nodes then report as unknown";
            return fail(reason::NAME_IN_USE, words.to_owned());
        }
        Node::Own(_) => {
            let not_ready = || late(format!("it has joined, and is not Ready after {limit} s"));
            return unproved.map_or_else(not_ready, |why| fails(machine, why));
        }
        Node::Absent => return late(format!("it has not joined after {limit} s")),
    }
    match vm.power {
        PowerState::Off => Step::Run(Action::PowerOn(name(machine))),
        PowerState::On => Step::Wait(match (unproved, seen.trouble(machine)) {
            (Some(why), _) => Wait::passing(machine, &why.code, &why.words),
            (None, Some(own)) => Wait::passing(machine, &own.code, format!("it has not joined yet: {}", own.words)),
            (None, None) => Wait::passing(machine, reason::JOINING, "it has not joined yet"),
        }),
        _ => odd_power(machine, vm),
    }
}

/// Records that it did not join. The reason is also reported to status calls: a command may come much later, or never.
fn fails(machine: &WorkerRecord, why: Reason) -> Step {
    let wait = Wait::lasting(machine, &why.code, &why.words);
    Step::RunThenWait(Action::Fail(name(machine), why), wait)
}

/// Records that another client has joined in place of a worker that should join again, because its removal may come before its
/// failure. Its key was reported since it was given its last token: no earlier record has it.
fn suspect(machine: &WorkerRecord, seen: &Inventory, why: &Reason) -> Option<Step> {
    let is_news = why.code == reason::NAME_IN_USE && machine.has_joined() && !machine.is_anothers();
    let key = seen.key_of_its_token(machine).filter(|_| is_news)?;
    let wait = Wait::passing(machine, &why.code, &why.words);
    Some(Step::RunThenWait(Action::Suspect(name(machine), key.to_owned()), wait))
}

/// Why a Ready node that reports the worker's VM is not taken for the worker, unless its VM has reported the same. A client that
/// could read the token in its properties could also read its identity, and create that node.
fn unproved(machine: &WorkerRecord, seen: &Inventory) -> Option<Reason> {
    let words = match seen.whose(machine) {
        Whose::Its => return None,
        // Without a token the record may be older than the key, as after a restore.
        Whose::Another if !machine.is_anothers() && seen.key_of_its_token(machine).is_none() => {
            let words = "its node was admitted with another key than its VM's, which is of no token that it has now: another client \
                         has joined by its name, or the cluster was restored to before that key. To be rid of both, remove the \
                         worker";
            return Some(Reason::new(reason::UNPROVED, words));
        }
        Whose::Another => {
            let words = "its node was admitted with another key than its VM's: another client has joined by its name and its \
                         token. Remove the worker, and that node goes with it";
            return Some(Reason::new(reason::NAME_IN_USE, words));
        }
        Whose::Unsaid => match (seen.said(machine), seen.unheard.get(&machine.name)) {
            (Some(said), _) => format!("it reports: {}", said.words),
            (None, Some(error)) => format!("it could not be asked: {error}"),
            (None, None) => {
                "it reports nothing. Where the hypervisor shows its console alone (QEMU), one of an earlier image never \
                             does: have it made from another image"
                    .to_owned()
            }
        },
    };
    let words = format!("its node is Ready, and its VM has not reported that it has joined: {words}");
    Some(Reason::new(reason::UNPROVED, words))
}

/// Whether its token has expired without a node: it can no longer be admitted. If it got its certificate at the last moment, its
/// node follows soon.
fn is_too_late(machine: &WorkerRecord, seen: &Inventory) -> bool {
    matches!(seen.node(machine), Node::Absent) && seen.now >= machine.expires.saturating_add(LAST_MOMENT)
}

/// Whether a node runs an older minor version than was wanted of it. The next worker would as well.
fn is_older(node: &NodeSeen, machine: &WorkerRecord) -> bool {
    let (runs, wanted) = (node.minor(), machine.template.kubernetes.parse::<Minor>().ok());
    runs.zip(wanted).is_some_and(|(runs, wanted)| runs < wanted)
}

/// Decides for a member: its VM should run, and its node be Ready.
fn member(pool: &Pool, machine: &WorkerRecord, vm: Option<&Vm>, seen: &Inventory) -> Step {
    if machine.token.is_some() {
        return Step::Run(Action::RemoveToken(name(machine)));
    }
    let Some(vm) = vm else {
        let gone = "its VM is gone";
        return match pool.keeps_lost {
            true => Step::Wait(Wait::passing(machine, reason::VM_GONE, gone)),
            false => Step::Run(Action::Leave(name(machine), Reason::new(reason::VM_GONE, gone))),
        };
    };
    let late = is_late(pool, machine, seen);
    match vm.power {
        PowerState::On => {}
        PowerState::Off if pool.powers_on && !late => {
            let wait = Wait::passing(machine, reason::VM_STATE, "its VM is off");
            return Step::RunThenWait(Action::PowerOn(name(machine)), wait);
        }
        PowerState::Off => {
            let words = "its VM is off: resuming powers it on";
            return Step::Wait(Wait::lasting(machine, reason::VM_STATE, words));
        }
        _ => return odd_power(machine, vm),
    }
    let words = match seen.node(machine) {
        Node::Own(_) if seen.is_ready(machine) => return Step::Idle,
        Node::Own(_) => match seen.trouble(machine) {
            Some(own) => return Step::Wait(not_ready(machine, seen, &own, late)),
            None => "its node is not Ready",
        },
        Node::Absent => match seen.trouble(machine).filter(|own| token_remedy::token_mends(machine, &own.code)) {
            Some(own) => return Step::Wait(not_ready(machine, seen, &own, late)),
            None => "its node is gone, and comes back only with a new VM: remove the worker",
        },
        Node::Foreign => "a node of its name runs on something else",
    };
    Step::Wait(Wait { lasting: late, ..Wait::passing(machine, reason::NOT_READY, words) })
}

/// Why the node of a member is not Ready, or gone, by its VM's statement. The reader decides: nothing is done for it.
fn not_ready(machine: &WorkerRecord, seen: &Inventory, own: &Reason, late: bool) -> Wait {
    let token = token_remedy::token_mends(machine, &own.code);
    let is_gone = matches!(seen.node(machine), Node::Absent);
    let mends = match (token, is_gone) {
        (false, _) => "",
        (true, false) => ". A new token fixes it",
        // Root on it can also write a finding that asks for a token.
        (true, true) => {
            ". If it was deleted to be rid of this worker, remove the worker; if it is to stay, a new token fixes it"
        }
    };
    let words = format!("its node is {}: {}{mends}", if is_gone { "gone" } else { "not Ready" }, own.words);
    Wait { lasting: late || seen.refuses(machine), token, ..Wait::passing(machine, &own.code, words) }
}

/// Decides for a former member that should join again, with a new token in its properties at its next power-on. The properties
/// may have a token of an interrupted attempt: it is removed, and another one is created.
fn returning(pool: &Pool, machine: &WorkerRecord, vm: Option<&Vm>, seen: &Inventory) -> Step {
    let Some(vm) = vm else {
        return Step::Run(Action::Leave(name(machine), Reason::new(reason::VM_GONE, "its VM is gone")));
    };
    match vm.power {
        // It is Ready: it was repaired in another way, or had already joined again when this was requested once more.
        PowerState::On if seen.is_ready(machine) => match unproved(machine, seen) {
            None => Step::Run(Action::Joined(name(machine))),
            Some(why) => match suspect(machine, seen, &why) {
                Some(step) => step,
                None if is_late(pool, machine, seen) => fails(machine, why),
                None => Step::Wait(Wait::passing(machine, &why.code, &why.words)),
            },
        },
        // It reports what it needs once it has started: until then that is unknown.
        PowerState::Off if is_without_node(machine, seen) && !is_late(pool, machine, seen) => {
            Step::Run(Action::PowerOn(name(machine)))
        }
        PowerState::On
            if is_without_node(machine, seen) && !is_late(pool, machine, seen) && !has_looked(machine, seen) =>
        {
            let words = "its node was removed, and its VM has not reported yet whether it needs a token";
            Step::Wait(Wait::passing(machine, reason::NOT_READY, words))
        }
        // With a valid certificate it takes no token, and does not create a node again. If it was powered off for its token, it
        // had no valid one, or its node was removed since then.
        PowerState::On | PowerState::Off if is_without_node(machine, seen) => {
            let words = "its node was removed, and comes back only with a new VM: remove the worker";
            fails(machine, Reason::new(reason::NOT_READY, words))
        }
        PowerState::On => Step::Run(Action::PowerOff(name(machine))),
        PowerState::Off if machine.token.is_some() => Step::Run(Action::RemoveToken(name(machine))),
        PowerState::Off => Step::Run(Action::Invite(name(machine))),
        _ => odd_power(machine, vm),
    }
}

/// Whether its node was removed, and a new token does not bring it back: it asks for none.
fn is_without_node(machine: &WorkerRecord, seen: &Inventory) -> bool {
    let asks = || seen.trouble(machine).is_some_and(|why| token_remedy::token_mends(machine, &why.code));
    matches!(seen.node(machine), Node::Absent) && !machine.was_powered_on && !asks()
}

/// Whether its VM has reported a result since it was powered on.
fn has_looked(machine: &WorkerRecord, seen: &Inventory) -> bool {
    seen.said(machine).is_some_and(|said| matches!(said.phase, Phase::Done | Phase::Refused))
}

fn is_late(pool: &Pool, machine: &WorkerRecord, seen: &Inventory) -> bool {
    seen.now.saturating_sub(machine.since) > machine.join_seconds(pool)
}

/// It stays as it is. Its VM returns to its state from before the request to join again.
fn failed(machine: &WorkerRecord, vm: Option<&Vm>) -> Step {
    if machine.token.is_some() {
        return Step::Run(Action::RemoveToken(name(machine)));
    }
    match vm {
        Some(vm) if machine.was_powered_on && vm.power == PowerState::Off => Step::Run(Action::PowerOn(name(machine))),
        _ => Step::Idle,
    }
}

/// Nothing that runs is forced to end. The node object is removed only once the VM is proved off: from then on Kubernetes starts
/// the pods of an unreachable node elsewhere.
fn leaving(pool: &Pool, machine: &WorkerRecord, vm: Option<&Vm>, seen: &Inventory, missed: &dyn Fn() -> bool) -> Step {
    if machine.token.is_some() {
        // Another client in its place shows only as long as it has its token.
        let unproved = seen.is_ready(machine).then(|| unproved(machine, seen)).flatten();
        let suspect = unproved.and_then(|why| suspect(machine, seen, &why));
        return suspect.unwrap_or_else(|| Step::Run(Action::RemoveToken(name(machine))));
    }
    let node = seen.node(machine).own();
    // Volumes of a removed node still exist as long as its VM does.
    let volumes = kept_volumes(machine, seen).filter(|_| vm.is_some() || node.is_some());
    if let Some(wait) = volumes {
        return Step::Wait(wait);
    }
    match (vm, node) {
        (Some(vm), _) if !matches!(vm.power, PowerState::Off | PowerState::On) => {
            kept_place(pool, machine, vm, seen, missed())
        }
        // A client in its place moves no pods, and ends none: the pods of that node are started elsewhere without it. For a
        // member the record alone does not prove that: it may be older than the key, if the store was restored.
        (Some(vm), Some(_))
            if vm.power == PowerState::On
                && seen.whose(machine) == Whose::Another
                && (machine.is_anothers() || !machine.has_joined()) =>
        {
            Step::Run(Action::PowerOff(name(machine)))
        }
        (Some(vm), Some(_)) if vm.power == PowerState::On => empty(pool, machine, seen),
        (Some(vm), None) if vm.power == PowerState::On => Step::Run(Action::PowerOff(name(machine))),
        // Its pods have ended with a VM that is gone. A VM that is off can still be powered on to get them back.
        (vm, Some(_)) => match vm.and_then(|_| bare_pods(machine, seen)) {
            Some(wait) => Step::Wait(wait),
            None => Step::Run(Action::DeleteNode(name(machine))),
        },
        (Some(vm), None) => removed(machine, vm),
        (None, None) => Step::Run(Action::Forget(name(machine), seen.left(machine).to_vec())),
    }
}

/// The message for a leaving worker whose VM cannot be shut down. It is never taken for off: its pods may run.
fn kept_place(pool: &Pool, machine: &WorkerRecord, vm: &Vm, seen: &Inventory, missed: bool) -> Step {
    let mends = match vm.power {
        PowerState::Suspended => "resume it, or power it off",
        _ => {
            "power its host on, or connect it again. If that host is lost for good, see that it is off, and remove this VM from \
             the hypervisor"
        }
    };
    let words = format!("it is to go, and its VM is {}: {mends}. {}", vm.power, place(pool, missed));
    let late = seen.now.saturating_sub(machine.since) > pool.rollout.drain_seconds;
    Step::Wait(Wait { lasting: late, ..Wait::passing(machine, reason::VM_STATE, words) })
}

/// The message about the place that an existing VM keeps, and when another worker takes it, if any does.
fn place(pool: &Pool, missed: bool) -> String {
    let Pool { count, rollout, .. } = pool;
    let another = match missed {
        true => ". Another one is made once there is room; a larger maxSurge makes room at once",
        false => "",
    };
    format!(
        "Until its VM is gone that counts: of {count} workers with maxSurge {} there are at most {} VMs{another}",
        rollout.max_surge,
        count + rollout.max_surge
    )
}

/// Drains a node that runs, and then shuts its VM down.
fn empty(pool: &Pool, machine: &WorkerRecord, seen: &Inventory) -> Step {
    if let Some(wait) = bare_pods(machine, seen) {
        return Step::Wait(wait);
    }
    let pods = pods(machine, seen);
    let Node::Own(node) = seen.node(machine) else { return Step::Idle };
    // The operator may have cordoned it, while services still use it.
    let cordoned = machine.cordoned.filter(|_| node.cordoned && node.excluded);
    let Some(cordoned) = cordoned else { return Step::Run(Action::Cordon(name(machine))) };
    if node.ready
        && let Some(step) = hands_over(machine, seen, cordoned)
    {
        return step;
    }
    // A silent node never reports that a pod has ended: Kubernetes has given up those that are ending.
    let remaining: Vec<&PodSeen> = pods.iter().filter(|pod| !pod.ending || node.ready).collect();
    if remaining.is_empty() {
        return Step::Run(Action::PowerOff(name(machine)));
    }
    let words = format!("not moved away from it yet: {}{}", some_of(&remaining), what_ends_it(machine, seen));
    let late = seen.now.saturating_sub(machine.since) > pool.rollout.drain_seconds;
    let wait = Wait { lasting: late, ..Wait::passing(machine, reason::DRAINING, words) };
    if pods.iter().any(|pod| !pod.ending) {
        Step::RunThenWait(Action::Drain(name(machine)), wait)
    } else {
        Step::Wait(wait)
    }
}

/// The advice for a drain that may never end by itself. Empty if there is no such doubt. A client in its place ends no pods. It
/// looks the same as a worker that cannot prove itself, or a member whose record is older than its key.
pub(super) fn what_ends_it(machine: &WorkerRecord, seen: &Inventory) -> String {
    if !seen.node_is_ready(machine) {
        return String::new();
    }
    let why = match seen.whose(machine) {
        Whose::Another => "Its node was admitted with another key than its VM's",
        Whose::Unsaid if machine.is_anothers() => "Another client was seen to have joined in its place",
        Whose::Unsaid if !machine.has_joined() => "Its VM has never reported that this node is its own",
        Whose::Its | Whose::Unsaid => return String::new(),
    };
    format!(". {why}: if the pods do not end, cut that VM's power, and they are started elsewhere")
}

/// The first pods by name, and whether they are ending. One that stays so is stuck, and one that comes back tolerates the cordon.
fn some_of(pods: &[&PodSeen]) -> String {
    let told = |pod: &&PodSeen| if pod.ending { format!("{} (is ending)", pod.full_name()) } else { pod.full_name() };
    let more = pods.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    pods.iter().take(NAMED).map(told).collect::<Vec<_>>().join(", ") + &more
}

/// The step before any pod leaves a node that answers for addresses of services, so that the requests that it forwards end
/// normally.
fn hands_over(machine: &WorkerRecord, seen: &Inventory, cordoned: u64) -> Option<Step> {
    let waits = |words: &str| Some(Step::Wait(Wait::passing(machine, reason::DRAINING, words)));
    if let Some(since) = machine.handed_over.filter(|since| *since >= cordoned) {
        let words = "it leads on the last requests to addresses of services";
        return if seen.now < since.saturating_add(HANDED_OVER) { waits(words) } else { None };
    }
    let announced = seen.announced.get(&machine.name).map(Vec::as_slice).unwrap_or_default();
    if announced.is_empty() || seen.now >= cordoned.saturating_add(HANDING_OVER) {
        return Some(Step::Run(Action::HandOver(name(machine))));
    }
    waits(&format!("other nodes take over its addresses of services: {}", announced.join(", ")))
}

/// The wait for volumes that would be lost with the node, unless that was permitted.
fn kept_volumes(machine: &WorkerRecord, seen: &Inventory) -> Option<Wait> {
    let claims = seen.claims.get(&machine.name).filter(|claims| !claims.is_empty())?;
    if machine.drain.delete_local_volumes {
        return None;
    }
    let words = format!("volumes of {} are kept on it and nowhere else", claims.join(", "));
    Some(Wait::lasting(machine, reason::LOCAL_VOLUMES, words))
}

/// The wait for pods that are not started elsewhere, unless their loss was permitted.
fn bare_pods(machine: &WorkerRecord, seen: &Inventory) -> Option<Wait> {
    let bare: Vec<_> =
        pods(machine, seen).iter().filter(|pod| pod.bare && !pod.ending).map(PodSeen::full_name).collect();
    if bare.is_empty() || machine.drain.delete_unmanaged_pods {
        return None;
    }
    let words = format!("{} would not start elsewhere: they have no controller", bare.join(", "));
    Some(Wait::lasting(machine, reason::BARE_PODS, words))
}

fn pods<'s>(machine: &WorkerRecord, seen: &'s Inventory) -> &'s [PodSeen] {
    seen.pods.get(&machine.name).map(Vec::as_slice).unwrap_or_default()
}

/// Removes a VM that is off, or disowns it. Its data disks are not removed, and stay on a VM that is kept. An incomplete VM is
/// removed.
fn removed(machine: &WorkerRecord, vm: &Vm) -> Step {
    if vm.power != PowerState::Off {
        return odd_power(machine, vm);
    }
    if machine.removal == Removal::Keep && machine.bios_uuid.is_some() {
        return match vm.adapters.iter().find(|adapter| adapter.connected) {
            Some(adapter) => Step::Run(Action::Disconnect(name(machine), adapter.key.clone())),
            None => Step::Run(Action::Release(name(machine), machine.name_of_kept(vm))),
        };
    }
    match vm.data_disks().next() {
        Some(disk) => Step::Run(Action::Detach(name(machine), disk.reference.clone())),
        None => Step::Run(Action::Destroy(name(machine))),
    }
}
