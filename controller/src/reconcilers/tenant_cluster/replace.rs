//! Replaces a lost control-plane node by a new VM. [`crate::decisions::ReplacementInputs`] decides whether that begins, `fleet` does
//! it. The record of the deployment is its journal; an Operation shows it.

use std::collections::BTreeMap;

use contract::configure::Properties;
use fleet::control_plane::{DeployStatus, Goal, Replacement, RunOutcome};
use fleet::nodes::ConfigureAnswer;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use serde_json::Value;
use tokio::sync::{Mutex, MutexGuard};
use uuid::Uuid;

use super::begin::node_settings;
use super::fleet_run::DeployResult;
use super::own_nodes::{ClusterAccess, nodes};
use super::{Round, STUCK, StepOutcome, WAITING};
use crate::context::{Attempt, ReconcileError};
use crate::decisions::{
    CLUSTER_REF, ClusterCondition, ReplacementInputs, ReplacementStep, held_message, joined, lost_node, noted,
    operation_of,
};
use crate::objects::{
    HOST_IS_OFF, JournalEntry, NodeRepair, Operation, OperationKind, OperationReason, OperationStatus, PlannedStep,
    REPLACE_NODE, Reason as _, TenantCluster, TenantClusterReason,
};
use crate::reach::kinds;
use crate::reconcilers::tolerant;

/// One cluster at a time counts the others that replace a node, and creates the Operation that counts for the others.
static COUNTING: Mutex<()> = Mutex::const_new(());

/// How long a replacement delays those of other clusters, in seconds. One that has not ended then waits for its own operator.
const DELAYS: i64 = 24 * 60 * 60;

/// The steps of a plan.
const STEPS: [&str; 4] = ["admit", "clone-vm", "power-on", "join"];

pub(super) enum LostNodeResult {
    /// No node is lost.
    None,
    /// A run has ended.
    Ran(StepOutcome),
    /// It waits. Nothing else changes meanwhile.
    Says(ClusterCondition),
    /// Nothing is done about it now, as the message says. Other changes continue.
    Held(String),
}

impl Round<'_> {
    /// Replaces a lost node, or says what that waits for. A replacement that has begun continues in any case, unless the cluster
    /// is paused.
    pub(super) async fn replace_lost(&self, seen: &DeployStatus) -> Result<LostNodeResult, ReconcileError> {
        let cluster = self.cluster;
        if let Some(open) = &self.record()?.replacement {
            if cluster.spec.paused {
                let words = format!("the cluster is paused, and the replacement of {} continues afterwards", open.node);
                return Ok(LostNodeResult::Says((TenantClusterReason::NodeLost, words)));
            }
            let is_asked = cluster.annotations().get(REPLACE_NODE) == Some(&open.node);
            return self.run_replacement(&open.node, None, is_asked, None).await;
        }
        let before = cluster.status.as_ref().and_then(|status| status.node_repair.as_ref());
        let Some(lost) = lost_node(cluster, seen) else {
            self.is_back(before).await?;
            return Ok(LostNodeResult::None);
        };
        let held = self.replacement_held().await?;
        let proof = match self.power_proof(&lost.name).await? {
            Ok(proof) => proof,
            // A look that fails proves nothing, and takes nothing back.
            Err(error) => {
                let words = format!("whether the VM of {} runs is unknown, and is asked again: {error:#}", lost.name);
                return Ok(match held {
                    Some(held) => LostNodeResult::Held(format!("{words}. It is not replaced now: {held}")),
                    None if before.is_none_or(|before| before.node.is_none()) => LostNodeResult::None,
                    None => LostNodeResult::Says((TenantClusterReason::NodeLost, words)),
                });
            }
        };
        if let Some(held) = held {
            let words = held_message(&lost, &proof, &held);
            return Ok(words.map_or(LostNodeResult::None, LostNodeResult::Held));
        }
        let now = self.clock.time();
        let repair = noted(before, &lost, &proof, cluster.spec.control_plane.repair.after_seconds, &now);
        let is_noted = before.is_some_and(|before| before.node.is_some());
        if before != Some(&repair) && (is_noted || repair.proved_since.is_some() || repair.host.is_some()) {
            self.note_repair(|noted| noted.clone_from(&repair)).await?;
        }
        // The operator may confirm only a host that was named before.
        let was_named = before.is_some_and(|before| before.host.is_some() && before.host == repair.host);
        let incapable = self.incapable(&lost.name).await?;
        let counting = COUNTING.lock().await;
        let clusters = self.clusters_of_provider().await?;
        let inputs =
            ReplacementInputs { cluster, lost: &lost, seen, proof: &proof, noted: &repair, clusters, now: &now };
        let host_is_off = match inputs.next() {
            ReplacementStep::Nothing => return Ok(LostNodeResult::None),
            ReplacementStep::Waits(words) => return Ok(LostNodeResult::Says((TenantClusterReason::NodeLost, words))),
            ReplacementStep::Asks(words) => {
                return Ok(LostNodeResult::Says((TenantClusterReason::NodeLostAwaitingOperator, words)));
            }
            ReplacementStep::Begin { host_is_off: Some(_) } if !was_named => {
                return Ok(LostNodeResult::Ran(StepOutcome::RequeueNow));
            }
            ReplacementStep::Begin { host_is_off } => host_is_off,
        };
        if let Some(doing) = incapable {
            return Ok(LostNodeResult::Says(doing));
        }
        self.note_repair(|repair| {
            repair.started = Some(now.clone());
            if !lost.is_asked {
                repair.last_automatic = Some(now.clone());
            }
        })
        .await?;
        self.run_replacement(&lost.name, host_is_off.as_deref(), lost.is_asked, Some(counting)).await
    }

    /// Why no replacement begins now. An open Operation may move the node's data disk, and ends or is abandoned first.
    async fn replacement_held(&self) -> Result<Option<String>, ReconcileError> {
        let cluster = self.cluster;
        if let Some(pause) = self.pause_reason(cluster).await? {
            return Ok(Some(pause.words()));
        }
        let operations = self.operations(cluster).await?;
        let open = operations.iter().find(|it| is_other_open(it));
        Ok(open.map(|open| held_by(open, &cluster.name_any())))
    }

    /// Why no other node can admit a new VM for a lost one now. It is asked before anything begins: from then on the former VM of
    /// the lost node is given up. The route for it has come with that of settings.
    async fn incapable(&self, lost: &str) -> Result<Option<ClusterCondition>, ReconcileError> {
        let Some(kubeconfig) = self.kubeconfig(self.cluster).await? else {
            let words = format!("{lost} is not replaced yet: the cluster's kubeconfig is not at hand");
            return Ok(Some((TenantClusterReason::NodeLost, words)));
        };
        let others: Vec<_> = self.record()?.nodes.iter().filter(|node| node.name != lost).collect();
        if others.is_empty() {
            // The only node is never replaced, and the run says what to do.
            return Ok(None);
        }
        let mut silence = None;
        for node in others {
            match self.places.configure(&kubeconfig, node.address, &Properties::default(), true).await {
                Ok(ConfigureAnswer::UnknownRoute) => {}
                Ok(ConfigureAnswer::Configured(_) | ConfigureAnswer::Refused(_)) => return Ok(None),
                Err(error) => silence = Some(format!("{}: {error:#}", node.name)),
            }
        }
        Ok(Some(match silence {
            Some(words) => {
                (TenantClusterReason::NodeLost, format!("{lost} is not replaced yet: no other node answers: {words}"))
            }
            None => {
                let image = self.cluster.resolved().and_then(|resolved| resolved.image.as_deref()).unwrap_or_default();
                (
                    TenantClusterReason::NodeLostAwaitingOperator,
                    format!(
                        "{lost} is not replaced: the image {image} of the other nodes cannot admit a new VM. Bring the VM of {lost} back with \
                     its data disk, then set a later `image`; if the disk is lost, move to another cluster"
                    ),
                )
            }
        }))
    }

    /// No node is lost: a replacement has ended, or the node is back.
    async fn is_back(&self, before: Option<&NodeRepair>) -> Result<(), ReconcileError> {
        let Some(before) = before.filter(|before| before.node.is_some() || before.started.is_some()) else {
            return Ok(());
        };
        let operations = self.operations(self.cluster).await?;
        for left in operations.iter().filter(|it| is_open_replacement(it)) {
            // An earlier controller did not come to that.
            let node = before.node.as_deref().unwrap_or_default();
            self.show_state(&left.name_any(), node, None, (OperationReason::Ended, String::new())).await?;
        }
        self.note(self.cluster, &[], |status| {
            let last_automatic = status.node_repair.take().and_then(|repair| repair.last_automatic);
            status.node_repair =
                last_automatic.map(|last| NodeRepair { last_automatic: Some(last), ..NodeRepair::default() });
        })
        .await
    }

    /// How many clusters the Provider has, and how many others of them replace a node.
    async fn clusters_of_provider(&self) -> Result<(usize, usize), ReconcileError> {
        let all = tolerant::<TenantCluster>(self.objects).await?.all();
        let of_provider = all.iter().filter(|it| it.spec.provider_ref.name == self.cluster.spec.provider_ref.name);
        let now = self.clock.time();
        let of_provider: Vec<&TenantCluster> = of_provider.collect();
        let is_other =
            |it: &&&TenantCluster| it.metadata.uid != self.cluster.metadata.uid && has_begun_lately(it, &now);
        let others: Vec<&TenantCluster> = of_provider.iter().filter(is_other).copied().collect();
        let mut busy = 0;
        for other in others {
            let (namespace, name) = (other.namespace(), other.name_any());
            let by = Some((CLUSTER_REF, name.as_str()));
            let operations = kinds::list_tolerant::<Operation>(self.objects, namespace.as_deref(), by).await;
            let operations = operations.attempting("looking for the Operations of another cluster")?.all();
            busy += usize::from(operations.iter().any(is_running_replacement));
        }
        Ok((of_provider.len(), busy))
    }

    async fn note_repair(&self, change: impl Fn(&mut NodeRepair)) -> Result<(), ReconcileError> {
        self.note(self.cluster, &[], |status| change(status.node_repair.get_or_insert_default())).await
    }

    /// Begins or continues the replacement of a node. With `retries` one that has made all of its VMs starts again. No other
    /// cluster counts until there is an Operation.
    async fn run_replacement(
        &self,
        node: &str,
        host_is_off: Option<&str>,
        retries: bool,
        counting: Option<MutexGuard<'static, ()>>,
    ) -> Result<LostNodeResult, ReconcileError> {
        let cluster = self.cluster;
        let asks = |words: String| Ok(LostNodeResult::Says((TenantClusterReason::NodeLostAwaitingOperator, words)));
        let Ok(keys) = self.keys(cluster).await? else {
            return asks(format!("{node} is not replaced: the cluster's keys are missing"));
        };
        let Some(deployment) = cluster.deployment() else { return Ok(LostNodeResult::None) };
        let (nodes, around) = (nodes(deployment, self.machines), self.load_references(cluster).await?);
        let pinned = cluster.resolved().cloned().unwrap_or_default();
        let Some(told) = node_settings(cluster, &around, &pinned, &nodes) else {
            return asks(format!("{node} is not replaced: the IPPool of the control-plane nodes no longer exists"));
        };
        let wanted = match told.wanted(&keys, self.opened.networks.clone(), &self.opened.placements) {
            Ok(wanted) => wanted,
            Err(error) => return asks(format!("{node} is not replaced: {error:#}")),
        };
        let name = self.open_operation(node).await?;
        drop(counting);
        let ran = self.run_deploy(Goal::Replace { wanted: &wanted, node, host_is_off, retries }).await?;
        let Some(now) = self.find(cluster).await? else { return Ok(LostNodeResult::Ran(StepOutcome::RequeueNow)) };
        // After a run there is another kubeconfig.
        let access = ClusterAccess::default();
        let round = Round { cluster: &now, access: &access, ..*self };
        let open = round.record()?.replacement.as_ref();
        if retries && !matches!(ran, DeployResult::Cancelled) {
            // It was heard.
            round.remove_requests().await?;
        }
        let (doing, seen, said, rest) = match ran {
            DeployResult::Cancelled => return Ok(LostNodeResult::Ran(StepOutcome::RequeueNow)),
            DeployResult::Refused(words) => {
                let words = format!("{node} is not replaced: {words}");
                match open {
                    Some(open) => {
                        round.show_state(&name, node, Some(open), (OperationReason::Waiting, words.clone())).await?
                    }
                    None => {
                        let said =
                            [(OperationReason::Ended, words.clone()), (OperationReason::Abandoned, words.clone())];
                        let ends = |status: &mut OperationStatus| status.outcome = Some("abandoned".to_owned());
                        round.note_operation(&name, &said, ends).await?;
                        // It has not begun: it is not that of the day, and is tried again after its time.
                        round
                            .note_repair(|repair| {
                                if repair.last_automatic == repair.started {
                                    repair.last_automatic = None;
                                }
                                (repair.started, repair.proved_since, repair.last_proved) = (None, None, None);
                            })
                            .await?;
                    }
                }
                return Ok(LostNodeResult::Says((TenantClusterReason::NodeLost, words)));
            }
            DeployResult::Arrived(RunOutcome::Paused(waits), seen) => {
                let words = joined(&waits);
                ((TenantClusterReason::ReplacingNode, words.clone()), seen, (OperationReason::Running, words), WAITING)
            }
            DeployResult::Arrived(RunOutcome::Stopped(waits), seen) => {
                let command = format!("`kaas cluster replace-node {} {node}` tries again", now.name_any());
                let words = format!("{}. {command}", joined(&waits));
                let doing = (TenantClusterReason::NodeLostAwaitingOperator, words.clone());
                (doing, seen, (OperationReason::Blocked, words), STUCK)
            }
            DeployResult::Arrived(..) => {
                round.show_state(&name, node, open, (OperationReason::Running, node.to_owned())).await?;
                return Ok(LostNodeResult::Ran(StepOutcome::RequeueNow));
            }
        };
        round.show_state(&name, node, open, said).await?;
        round.say(&seen, doing, None).await?;
        Ok(LostNodeResult::Ran(StepOutcome::RequeueAfter(rest)))
    }

    /// The name of the Operation that shows a replacement. It is created before anything begins.
    async fn open_operation(&self, node: &str) -> Result<String, ReconcileError> {
        let cluster = self.cluster;
        let operations = self.operations(cluster).await?;
        if let Some(found) = operations.iter().find(|it| is_open_replacement(it)) {
            return Ok(found.name_any());
        }
        self.remove_ended(&operations, OperationKind::ReplaceNode).await?;
        let step = |action: &str| PlannedStep { action: action.to_owned(), node: Some(node.to_owned()) };
        let name = format!("{}-{}", cluster.name_any(), Uuid::new_v4());
        let made = operation_of(cluster, &name, OperationKind::ReplaceNode, STEPS.map(step).to_vec());
        let (now, said) = (
            self.clock.time(),
            [(OperationReason::Running, node.to_owned()), (OperationReason::NotEnded, String::new())],
        );
        self.create_operation(&made).await?;
        self.note_operation(&name, &said, |status| add_entry(status, "begun", 0, node, Vec::new(), &now)).await?;
        Ok(name)
    }

    /// Writes the state of a replacement into its Operation. Without an open one it has ended.
    async fn show_state(
        &self,
        name: &str,
        node: &str,
        open: Option<&Replacement>,
        said: (OperationReason, String),
    ) -> Result<(), ReconcileError> {
        let now = self.clock.time();
        match open {
            Some(open) => self.note_operation(name, &[said], |status| add_state(status, open, &now)).await,
            None => {
                let said = [(OperationReason::Ended, "done".to_owned()), (OperationReason::Done, String::new())];
                self.note_operation(name, &said, |status| {
                    add_entry(status, "joined", STEPS.len(), node, Vec::new(), &now);
                    status.outcome = Some("done".to_owned());
                })
                .await
            }
        }
    }

    /// Removes the operator's requests, which the record has now.
    async fn remove_requests(&self) -> Result<(), ReconcileError> {
        for annotation in [REPLACE_NODE, HOST_IS_OFF] {
            let Some(now) = self.find(self.cluster).await? else { return Ok(()) };
            if now.annotations().contains_key(annotation) {
                let removed = kinds::remove_annotation(self.objects, &now, annotation).await;
                removed.attempting("taking away that a node is to be replaced")?;
            }
        }
        Ok(())
    }
}

/// Whether a cluster may replace a node, and others wait for that. A team must not delay others by pausing its cluster.
fn has_begun_lately(cluster: &TenantCluster, now: &Time) -> bool {
    let started = cluster.status.as_ref().and_then(|status| status.node_repair.as_ref()?.started.as_ref());
    let is_recent = |started: &Time| now.0.as_second().saturating_sub(started.0.as_second()) < DELAYS;
    !cluster.spec.paused && started.is_some_and(is_recent)
}

/// Whether an Operation replaces a node without waiting for its operator.
fn is_running_replacement(operation: &Operation) -> bool {
    is_open_replacement(operation) && !is_at(operation, OperationReason::Blocked)
}

/// Whether a condition of an Operation has this reason.
fn is_at(operation: &Operation, reason: OperationReason) -> bool {
    let conditions = operation.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    conditions.iter().any(|it| it.about == reason.condition() && it.reason == reason.word())
}

/// How an open Operation of a cluster ends, before which no replacement begins. One that runs may have just detached the node's
/// data disk: only a blocked one is abandoned.
fn held_by(open: &Operation, cluster: &str) -> String {
    let name = open.name_any();
    let command = |act: &str| format!("`kaas cluster upgrade {cluster} --do {act}`");
    if is_at(open, OperationReason::Blocked) {
        return format!("the Operation {name} is blocked, and {} ends it", command("abandon"));
    }
    if is_at(open, OperationReason::AwaitingCommit) {
        let (commit, rollback) = (command("commit"), command("rollback"));
        return format!("the Operation {name} awaits its commit, and {commit} or {rollback} ends it");
    }
    format!("the Operation {name} is open, and continues by itself: see `kubectl describe operations {name}`")
}

/// Whether another change of the control-plane nodes is open. A swap that was created and never begun has no journal.
fn is_other_open(operation: &Operation) -> bool {
    let has_begun = operation.status.as_ref().is_some_and(|status| !status.entries.is_empty());
    match operation.spec.kind {
        OperationKind::ImageSwap => has_begun && !operation.has_ended(),
        OperationKind::KubernetesUpgrade => !operation.has_ended(),
        // A change of settings waits for all nodes, and continues afterwards.
        OperationKind::Configure | OperationKind::ReplaceNode => false,
    }
}

fn is_open_replacement(operation: &Operation) -> bool {
    operation.spec.kind == OperationKind::ReplaceNode && !operation.has_ended()
}

/// Adds the present state of a replacement to the journal of its Operation.
fn add_state(status: &mut OperationStatus, open: &Replacement, now: &Time) {
    let (event, done) = match open.admitted {
        None => ("drawn", 0),
        Some(_) if open.started => ("powered-on", 3),
        Some(_) => ("created", 2),
    };
    let members = vec![
        ("attempt", Value::from(open.attempt)),
        ("vm", Value::from(open.allocated_uuid.to_string())),
        ("evidence", Value::from(open.evidence.as_str())),
    ];
    add_entry(status, event, done, &open.node, members, now);
}

/// Adds an entry, unless the last one is the same. The status has no lease: the store of leases reads no journal of it.
fn add_entry(
    status: &mut OperationStatus,
    event: &str,
    done: usize,
    node: &str,
    members: Vec<(&str, Value)>,
    now: &Time,
) {
    let members = members.into_iter().chain([("node", Value::from(node))]);
    let more: BTreeMap<String, Value> = members.map(|(name, value)| (name.to_owned(), value)).collect();
    if status.entries.last().is_none_or(|last| last.event != event || last.more != more) {
        let at = u64::try_from(now.0.as_second()).unwrap_or_default();
        status.entries.push(JournalEntry { at, lease: 0, event: event.to_owned(), more });
    }
    status.steps_done = i32::try_from(done).unwrap_or(i32::MAX);
    status.step = STEPS.get(done).map(|step| format!("{step} {node}"));
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;

    use super::*;
    use crate::decisions::fixture::{cluster, now};
    use crate::objects::{TenantClusterStatus, set};

    // Finding 5 of controller.md: a replacement that never ended stopped those of all other clusters.
    #[test]
    fn replacement_delays_others_for_a_day_unless_paused() {
        let begun = |ago: i64| {
            let started = Some(Time(Timestamp::from_second(now().0.as_second() - ago).unwrap()));
            let node_repair = Some(NodeRepair { started, ..NodeRepair::default() });
            let mut cluster = cluster();
            cluster.status = Some(TenantClusterStatus { node_repair, ..TenantClusterStatus::default() });
            cluster
        };
        assert!(!has_begun_lately(&cluster(), &now()));
        assert!(has_begun_lately(&begun(60), &now()) && has_begun_lately(&begun(DELAYS - 1), &now()));
        assert!(!has_begun_lately(&begun(DELAYS), &now()));
        let mut paused = begun(60);
        paused.spec.paused = true;
        assert!(!has_begun_lately(&paused, &now()));
    }

    // A swap that a restarted controller was about to continue was to be abandoned.
    #[test]
    fn only_blocked_operation_is_to_be_abandoned() {
        use OperationReason::{AwaitingCommit, Blocked, NotEnded, Running, Waiting};
        let held = |reasons: &[OperationReason]| {
            let mut operation = operation_of(&cluster(), "shop-a", OperationKind::ImageSwap, Vec::new());
            let mut status = OperationStatus::default();
            for reason in reasons {
                set(&mut status.conditions, *reason, "", 1, &now());
            }
            operation.status = Some(status);
            held_by(&operation, "shop")
        };
        assert!(
            held(&[Blocked, NotEnded]).contains("is blocked, and `kaas cluster upgrade shop --do abandon` ends it")
        );
        let none: &[OperationReason] = &[];
        for reasons in [none, &[Running, NotEnded], &[Waiting]] {
            let words = held(reasons);
            assert!(words.contains("continues by itself") && !words.contains("abandon"), "{words}");
        }
        let words = held(&[AwaitingCommit]);
        assert!(words.contains("`kaas cluster upgrade shop --do commit`") && !words.contains("abandon"), "{words}");
    }

    // A replacement that is blocked delayed those of other clusters for a day.
    #[test]
    fn only_running_replacement_delays_others() {
        use OperationKind::{ImageSwap, ReplaceNode};
        let with = |kind: OperationKind, reasons: &[OperationReason], outcome: Option<&str>| {
            let mut operation = operation_of(&cluster(), "shop-a", kind, Vec::new());
            let mut status = OperationStatus { outcome: outcome.map(str::to_owned), ..OperationStatus::default() };
            for reason in reasons {
                set(&mut status.conditions, *reason, "", 1, &now());
            }
            operation.status = Some(status);
            is_running_replacement(&operation)
        };
        assert!(with(ReplaceNode, &[], None), "it was just created");
        assert!(with(ReplaceNode, &[OperationReason::Running, OperationReason::NotEnded], None));
        assert!(with(ReplaceNode, &[OperationReason::Waiting], None), "it is tried again");
        assert!(!with(ReplaceNode, &[OperationReason::Blocked], None));
        assert!(!with(ReplaceNode, &[OperationReason::Ended], Some("done")));
        assert!(!with(ImageSwap, &[OperationReason::Running], None));
    }
}
