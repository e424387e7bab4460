//! `fleet` at work on an Operation of one cluster: one run, which ends where it can be gone on with. It is asked to end there when a
//! person wants something else, and at a step at which no node is away when the cluster is paused.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use contract::minor::Minor;
use fleet::upgrade::{Action, Arrived, Direction, GaveUp, KubernetesOptions, Notice, Options, Target, Verb};
use kube::ResourceExt;
use serde_json::Value;
use tokio::sync::watch;
use uuid::Uuid;

use super::change::{Changing, asked, is_done, kubernetes, last_swap, lowest, options, raising, target};
use super::deploy::is_of_api;
use super::operator::{OVER, Operator};
use super::{After, HEEDING, Work};
use crate::context::{Attempt, Trouble};
use crate::decisions::{CLUSTER, Change, Stage, Swapping, blocked, outlived, pinned_size, words};
use crate::objects::{
    AUTO, ControlPlaneSize, JournalEntry, Machine, NodeImage, Operation, OperationKind, OperationReason, OperationSpec,
    PlannedStep, Reference, TenantCluster, TenantClusterReason,
};
use crate::reach::{Failure, Swap, kinds};

/// How long after a run that waits for something the next one is.
const WAITING: Duration = Duration::from_secs(15);
/// So often a run that is under way says in the Operation where it is, if that is new.
const TELLING: Duration = Duration::from_secs(5);
/// How long a data disk may be on its way before a run is ended nonetheless.
const SETTLES: Duration = Duration::from_secs(60);

/// What is done.
#[derive(Clone, Copy)]
enum Task<'t> {
    Swap(&'t Target, &'t Options),
    Go(Verb, Uuid),
    Raise(&'t KubernetesOptions),
}

/// What became of it.
enum Done {
    /// Where a swap has come to.
    Arrived(Arrived),
    /// All control nodes are at the minor.
    Raised,
    /// It was asked to end.
    Cancelled,
    /// A node refuses, or gave up: it is not asked again before a person says so.
    GaveUp(String),
    /// It could not be done now: it is tried again.
    Failed(String),
}

/// What a run does now.
#[derive(Default)]
struct Doing {
    words: Mutex<String>,
    /// Whether a data disk is on its way from one VM to another one: nothing but the journal leads to it then.
    moves_disk: AtomicBool,
    /// Whether the journal has what was asked for: a step is told of afterwards, and that it turns before.
    is_noted: AtomicBool,
    /// Whether it ends at the next step at which no node is away.
    is_to_rest: AtomicBool,
    /// Where a snapshot was just kept that no journal has yet.
    snapshot: Mutex<Option<String>>,
}

impl Doing {
    fn told(&self, notice: &Notice<'_>) {
        let told = match notice {
            Notice::Step { plan, step, .. } => words(plan, *step),
            Notice::Done { note } => return log::info!("{note}"),
            Notice::Losses { node, words } => return log::warn!("{node}: {words}"),
            Notice::Waiting { what, why } => format!("waiting for {what}: {why}"),
            Notice::Paused { reason } => format!("waiting: {reason}"),
            Notice::DirectionChanged { reason, .. } => format!("turning: {reason}"),
            Notice::TakingOver { words } => return log::info!("{words}"),
            Notice::Stamped { node, .. } => format!("stamping the VM of {node}"),
            Notice::Snapshot { place, bytes } => {
                log::info!("snapshot: {bytes} bytes, {place}");
                *self.snapshot.lock().unwrap_or_else(PoisonError::into_inner) = Some(format!("{place}: {bytes} bytes"));
                return;
            }
            Notice::NoSnapshot { name } => return log::warn!("{name} is not kept here, and none is taken now"),
            Notice::Kubernetes { node, to, .. } => format!("{} to Kubernetes {to}", node.name),
            Notice::KubernetesRuns { version, .. } => format!("Kubernetes {version} runs"),
        };
        log::info!("{told}");
        if let Notice::Step { step, .. } = notice {
            let moves = [Action::Detach, Action::DetachNew, Action::Attach, Action::AttachOld].contains(&step.action);
            self.moves_disk.store(moves, Ordering::SeqCst);
        }
        if matches!(notice, Notice::Step { .. } | Notice::Kubernetes { .. }) {
            self.is_noted.store(true, Ordering::SeqCst);
        }
        *self.words.lock().unwrap_or_else(PoisonError::into_inner) = told;
    }

    /// Returns once no data disk is on its way, or it has been for too long.
    async fn settles(&self) {
        let limit = tokio::time::Instant::now() + SETTLES;
        while self.moves_disk.load(Ordering::SeqCst) && tokio::time::Instant::now() < limit {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    fn now(&self) -> String {
        self.words.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn snapshot(&self) -> Option<String> {
        self.snapshot.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Whether no node is away as long as nothing follows such a step.
fn rests(notice: &Notice<'_>) -> bool {
    let stands =
        |action: Action| matches!(action, Action::Verify | Action::Snapshot | Action::Import | Action::Prepare);
    match notice {
        Notice::Step { step, .. } => stands(step.action),
        Notice::Kubernetes { .. } => true,
        _ => false,
    }
}

impl Work<'_> {
    /// Does what was decided.
    pub(super) async fn operate(
        &self,
        cluster: &TenantCluster,
        machines: &[Machine],
        changing: &Changing,
        operator: Operator<'_>,
    ) -> Result<After, Trouble> {
        match &changing.change {
            Change::Nothing | Change::Blocked(_) | Change::Waits(..) | Change::Judge(..) => Ok(After::Rest(WAITING)),
            Change::Show(name) => {
                if let Some(operation) = self.operation(cluster, name).await? {
                    self.show_operation(cluster, &operation).await?;
                }
                Ok(After::Again)
            }
            Change::Answer(name, refused) => {
                if let Some(words) = refused {
                    let operation = self.operation(cluster, name).await?;
                    let raises = operation.filter(|it| it.spec.kind == OperationKind::RaiseKubernetes);
                    let said = match raises.as_ref().and_then(blocked) {
                        // It is not gone on with by itself: nothing else says so.
                        Some(why) => (OperationReason::Blocked, format!("{why} ({words})")),
                        None => (OperationReason::NotToBeHad, words.clone()),
                    };
                    self.note_operation(cluster, name, &[said], |_| ()).await?;
                }
                self.take_away(cluster, name).await?;
                Ok(After::Again)
            }
            Change::Pin(resolved, of) => self.pin(cluster, machines, resolved, of.as_deref()).await,
            Change::Swap(image, again, size) => self.swap(cluster, (image, *size), again.as_deref(), operator).await,
            Change::Go(name, verb) => {
                let Some((_, swapping)) = &changing.swap else { return Ok(After::Again) };
                self.swaps(cluster, Some(name), Task::Go(*verb, swapping.id), operator).await
            }
            Change::Raise(to, again) => self.raise(cluster, machines, *to, again.is_some(), operator).await,
            Change::Abandon(name) => {
                let said = [
                    (OperationReason::Ended, "abandoned".to_owned()),
                    (OperationReason::Abandoned, "a person has asked for it".to_owned()),
                ];
                let outcome = "abandoned".to_owned();
                self.note_operation(cluster, name, &said, |status| status.outcome = Some(outcome.clone())).await?;
                self.take_away(cluster, name).await?;
                Ok(After::Again)
            }
        }
    }

    async fn operation(&self, cluster: &TenantCluster, name: &str) -> Result<Option<Operation>, Trouble> {
        let found = kinds::find::<Operation>(self.objects, cluster.namespace().as_deref(), name).await;
        found.attempting("reading an Operation")
    }

    /// Takes away whatever a person has asked of an Operation.
    async fn take_away(&self, cluster: &TenantCluster, name: &str) -> Result<(), Trouble> {
        match self.operation(cluster, name).await?.as_ref().and_then(asked) {
            Some(word) => self.answered(cluster, name, word).await,
            None => Ok(()),
        }
    }

    /// Begins a swap, or only plans it where the cluster is paused.
    async fn swap(
        &self,
        cluster: &TenantCluster,
        (image, size): (&NodeImage, ControlPlaneSize),
        again: Option<&str>,
        operator: Operator<'_>,
    ) -> Result<After, Trouble> {
        let Some(target) = target(image) else { return Ok(After::Rest(WAITING)) };
        // Those that somebody has made who has died before he began them: nothing follows from them.
        let is_begun = |it: &Operation| it.status.as_ref().is_some_and(|status| !status.entries.is_empty());
        let all = self.operations(cluster).await?;
        for left in all.iter().filter(|it| it.spec.kind == OperationKind::Swap && !is_begun(it)) {
            kinds::delete(self.objects, left).await.attempting("removing an Operation that was never begun")?;
        }
        for ended in outlived(&all) {
            kinds::delete(self.objects, ended).await.attempting("removing an Operation that has ended long ago")?;
        }
        let pinned = cluster.status.as_ref().and_then(|status| status.resolved.clone()).unwrap_or_default();
        let operator = operator.beginning(Swap {
            sizes: (pinned_size(&pinned), Some(size)),
            class: Some(cluster.spec.control_plane.vm_class.clone()).filter(|class| class != AUTO),
            from_image: pinned.image.unwrap_or_default(),
            to_image: image.name_any(),
            generation: cluster.metadata.generation.unwrap_or(1),
        });
        self.swaps(cluster, again, Task::Swap(&target, &options(cluster, Some(size))), operator).await
    }

    /// Goes on with a swap. `asked_of` is the Operation that a person may have asked it of.
    async fn swaps(
        &self,
        cluster: &TenantCluster,
        asked_of: Option<&str>,
        task: Task<'_>,
        operator: Operator<'_>,
    ) -> Result<After, Trouble> {
        // It is taken away if it was asked for. Another word that has come meanwhile is heard next.
        let word = match task {
            Task::Go(verb, _) => word_of(verb),
            Task::Swap(..) | Task::Raise(_) => RESUME,
        };
        let operations = self.operations(cluster).await?;
        let before = last_swap(&operations).map(ResourceExt::name_any);
        let had = asked_of.map(|name| length(&operations, name));
        let done = self.runs(cluster, asked_of, word, task, &operator).await?;
        let operations = self.operations(cluster).await?;
        // Of a swap that did not come to begin there is none: the last one is one before it.
        let is_its = |last: &&Operation| matches!(task, Task::Go(..)) || before.as_ref() != Some(&last.name_any());
        let last = last_swap(&operations).filter(is_its);
        if let Some(last) = last {
            self.show_operation(cluster, last).await?;
            let name = last.name_any();
            self.note(cluster, &[], |status| status.operation = Some(name.clone())).await?;
        }
        let has_arrived = matches!(&done, Done::Arrived(arrived) if *arrived != Arrived::Cancelled);
        let has_noted = |name: &str| match task {
            Task::Go(verb, _) => {
                let has_grown = had < Some(length(&operations, name));
                operations.iter().any(|it| it.name_any() == name && is_noted(it, verb, has_arrived, has_grown))
            }
            Task::Swap(..) | Task::Raise(_) => last.is_some(),
        };
        // What is not noted is heard once more by whoever goes on.
        if let Some(name) = asked_of.filter(|name| has_noted(name)) {
            self.answered(cluster, name, word).await?;
        }
        Ok(match done {
            Done::Arrived(Arrived::Paused(_)) => After::Rest(WAITING),
            Done::Failed(words) | Done::GaveUp(words) => {
                log::warn!("{}/{}: {words}", cluster.namespace().unwrap_or_default(), cluster.name_any());
                match last.filter(is_open) {
                    Some(last) => {
                        let said = [(OperationReason::Waiting, words)];
                        self.note_operation(cluster, &last.name_any(), &said, |_| ()).await?;
                    }
                    // There is no Operation that could say it.
                    None => self.note(cluster, &[(TenantClusterReason::Changing, words)], |_| ()).await?,
                }
                After::Rest(WAITING)
            }
            Done::Arrived(_) | Done::Raised | Done::Cancelled => After::Again,
        })
    }

    /// Takes control nodes to a minor of Kubernetes.
    async fn raise(
        &self,
        cluster: &TenantCluster,
        machines: &[Machine],
        to: Minor,
        again: bool,
        operator: Operator<'_>,
    ) -> Result<After, Trouble> {
        let name = raising(cluster, &to.to_string());
        let made = raise_of(cluster, machines, to, &name);
        match kinds::create(self.objects, &made).await {
            Ok(_) | Err(Failure::Exists) => {}
            Err(failure) => return Err(failure).attempting("making an Operation"),
        }
        self.note(cluster, &[], |status| status.operation = Some(name.clone())).await?;
        let begun =
            [(OperationReason::StepsTaken, format!("to Kubernetes {to}")), (OperationReason::NotEnded, String::new())];
        self.note_operation(cluster, &name, &begun, |status| status.outcome = None).await?;
        if again {
            self.answered(cluster, &name, RESUME).await?;
        }
        let options = kubernetes(cluster, to);
        let done = match operator.plans_kubernetes(&options).await {
            Err(error) if is_done(&error) => Done::Raised,
            _ => self.runs(cluster, Some(&name), RESUME, Task::Raise(&options), &operator).await?,
        };
        match done {
            Done::Raised => {
                self.pin_minor(machines, to).await?;
                let steps = i32::try_from(made.spec.steps.len()).unwrap_or(i32::MAX);
                let said = [(OperationReason::Ended, "done".to_owned()), (OperationReason::Done, String::new())];
                self.note_operation(cluster, &name, &said, |status| {
                    (status.step, status.done, status.outcome) = (None, steps, Some("done".to_owned()));
                })
                .await?;
                Ok(After::Again)
            }
            Done::GaveUp(words) => {
                let words = format!("{words}. Say with kaas.local/do `resume` to try it again, or `abandon`");
                self.note_operation(cluster, &name, &[(OperationReason::Blocked, words)], |_| ()).await?;
                Ok(After::Again)
            }
            Done::Failed(words) => {
                self.note_operation(cluster, &name, &[(OperationReason::Waiting, words)], |_| ()).await?;
                Ok(After::Rest(WAITING))
            }
            Done::Arrived(_) | Done::Cancelled => Ok(After::Again),
        }
    }

    /// Has `fleet` work, on what a person may have asked of an Operation by this word. It ends with the term: whoever leads then goes on
    /// from what is kept.
    async fn runs(
        &self,
        cluster: &TenantCluster,
        asked_of: Option<&str>,
        word: &str,
        task: Task<'_>,
        operator: &Operator<'_>,
    ) -> Result<Done, Trouble> {
        // A new swap has no Operation yet; what was asked of the one before is being done.
        let (under_way, done_already) = match task {
            Task::Swap(..) => (None, None),
            Task::Go(..) | Task::Raise(_) => (asked_of, Some(word)),
        };
        let ((end, cancelled), doing) = (watch::channel(false), Doing::default());
        doing.is_to_rest.store(self.rest(cluster).await?.is_some(), Ordering::SeqCst);
        let told = |notice: &Notice<'_>| {
            doing.told(notice);
            if doing.is_to_rest.load(Ordering::SeqCst) && rests(notice) {
                end.send_replace(true);
            }
        };
        let deployment = operator.deployment(&told, cancelled);
        let going = async {
            match task {
                Task::Swap(target, options) => {
                    deployment.apply_to(target, options, OVER).await.map(|(arrived, _)| Done::Arrived(arrived))
                }
                Task::Go(Verb::Abandon, id) => {
                    deployment.abandon(id, OVER).await.map(|(arrived, _)| Done::Arrived(arrived))
                }
                Task::Go(verb, _) => {
                    deployment.go_on(verb, None, OVER).await.map(|(arrived, _)| Done::Arrived(arrived))
                }
                Task::Raise(options) => deployment.upgrade_kubernetes(options, OVER).await.map(|_| Done::Raised),
            }
        };
        tokio::pin!(going);
        let (mut is_heard, mut is_ending) = (false, false);
        let gone = loop {
            tokio::select! {
                gone = &mut going => break gone,
                () = self.term.ended() => {
                    end.send_replace(true);
                    return Err(self.over());
                }
                () = self.is_wanted_otherwise(cluster), if !is_heard => is_heard = true,
                () = self.is_asked_otherwise(cluster, under_way, done_already), if !is_heard => is_heard = true,
                () = self.has_to_rest(cluster), if !doing.is_to_rest.load(Ordering::SeqCst) => {
                    doing.is_to_rest.store(true, Ordering::SeqCst);
                }
                () = doing.settles(), if is_heard && !is_ending => {
                    is_ending = true;
                    end.send_replace(true);
                }
                () = self.tells_operation(cluster, asked_of.map(|name| (name, word)), &doing) => {}
            }
        };
        self.term.may()?;
        self.notes_snapshot(cluster, asked_of, &doing).await?;
        match gone {
            Ok(done) => Ok(done),
            Err(error) if error.is::<fleet::Cancelled>() => Ok(Done::Cancelled),
            Err(error) if error.is::<fleet::authority::Lost>() || is_of_api(&error) => Err(Trouble::Other(error)),
            Err(error) if error.is::<GaveUp>() => Ok(Done::GaveUp(format!("{error:#}"))),
            Err(error) => Ok(Done::Failed(format!("{error:#}"))),
        }
    }

    /// Returns once a person asks something of the Operation that is under way, which is not what is done already: of this one, or of
    /// the swap that is open. What is asked of others ends nothing.
    async fn is_asked_otherwise(&self, cluster: &TenantCluster, of: Option<&str>, before: Option<&str>) {
        loop {
            tokio::time::sleep(HEEDING).await;
            // What is not known is no reason to end.
            let Ok(operations) = self.operations(cluster).await else { continue };
            let under_way = match of {
                Some(name) => operations.iter().find(|operation| operation.name_any() == name),
                None => last_swap(&operations).filter(is_open),
            };
            if under_way.and_then(asked).is_some_and(|now| Some(now) != before) {
                return;
            }
        }
    }

    /// Returns once what is under way has to rest.
    async fn has_to_rest(&self, cluster: &TenantCluster) {
        loop {
            tokio::time::sleep(HEEDING).await;
            // What is not known is no reason to end.
            if let Ok(Some(_)) = self.rest(cluster).await {
                return;
            }
        }
    }

    /// Notes in an Operation that raises Kubernetes where the snapshot of the store is that was kept before: it has no other journal, and
    /// whoever leads next may have none on his node.
    async fn notes_snapshot(&self, cluster: &TenantCluster, of: Option<&str>, doing: &Doing) -> Result<(), Trouble> {
        let Some((of, note)) = of.zip(doing.snapshot()) else { return Ok(()) };
        let at = u64::try_from(self.clock.time().0.as_second()).unwrap_or_default();
        let more = [("action", "snapshot"), ("note", note.as_str())];
        let more = BTreeMap::from(more.map(|(name, text)| (name.to_owned(), Value::from(text))));
        let entry = JournalEntry { at, hold: 0, event: "done".to_owned(), more };
        self.note_operation(cluster, of, &[], |status| {
            let is_noted = status.entries.last().is_some_and(|last| last.more == entry.more);
            if !is_noted {
                status.entries.push(entry.clone());
            }
        })
        .await?;
        *doing.snapshot.lock().unwrap_or_else(PoisonError::into_inner) = None;
        Ok(())
    }

    /// Says what a run does, for as long as it does; and takes away what was asked for, once that is noted.
    async fn tells_operation(&self, cluster: &TenantCluster, word: Option<(&str, &str)>, doing: &Doing) {
        let mut before = String::new();
        loop {
            tokio::time::sleep(TELLING).await;
            if let Err(trouble) = self.notes_snapshot(cluster, word.map(|(of, _)| of), doing).await {
                log::debug!("saying where a snapshot is: {trouble}");
            }
            let now = doing.now();
            if now == before {
                continue;
            }
            let told = async {
                let operations = self.operations(cluster).await?;
                let last = last_swap(&operations).filter(is_open);
                if let Some(last) = last {
                    self.show_operation(cluster, last).await?;
                }
                if let Some((of, word)) = word.filter(|_| doing.is_noted.load(Ordering::SeqCst)) {
                    self.answered(cluster, of, word).await?;
                }
                let said =
                    [(TenantClusterReason::OperationRuns, now.clone()), (TenantClusterReason::Changing, now.clone())];
                self.note(cluster, &said, |status| {
                    if let Some(last) = last {
                        status.operation = Some(last.name_any());
                    }
                })
                .await
            };
            match told.await {
                Ok(()) => before = now,
                Err(trouble) => log::debug!("saying what is done: {trouble}"),
            }
        }
    }
}

/// The word that has something tried again.
const RESUME: &str = "resume";

/// The word by which a person asks for it.
fn word_of(verb: Verb) -> &'static str {
    match verb {
        Verb::Resume => RESUME,
        Verb::Rollback | Verb::RollbackAtOnce => "rollback",
        Verb::Commit => "commit",
        Verb::Abandon => "abandon",
    }
}

/// How many entries the journal of an Operation has.
fn length(operations: &[Operation], name: &str) -> usize {
    let named = operations.iter().find(|operation| operation.name_any() == name);
    named.and_then(|operation| operation.status.as_ref()).map_or(0, |status| status.entries.len())
}

/// Whether what was asked of a swap stands in its journal, so that nobody has to be told once more. `has_arrived` is whether a run has come
/// to where it ends by itself, and `has_grown` whether the journal has by that.
fn is_noted(operation: &Operation, verb: Verb, has_arrived: bool, has_grown: bool) -> bool {
    let Ok(Some(swapping)) = Swapping::of(operation) else { return false };
    let goes = match verb {
        // A node that is back stays so where the journal could not be written.
        Verb::Resume => has_arrived && (has_grown || !matches!(swapping.stage, Stage::NodeIsBack(_))),
        Verb::Rollback | Verb::RollbackAtOnce => swapping.direction == Direction::Back && swapping.is_of_all,
        Verb::Commit => swapping.direction == Direction::Commit,
        Verb::Abandon => swapping.direction == Direction::Abandon,
    };
    // Of one that is over nothing is to be had any more.
    goes || !swapping.is_open()
}

/// Whether a swap has not ended.
fn is_open(operation: &&Operation) -> bool {
    matches!(Swapping::of(operation), Ok(Some(swapping)) if swapping.is_open())
}

/// The Operation that takes control nodes to a minor.
fn raise_of(cluster: &TenantCluster, machines: &[Machine], to: Minor, name: &str) -> Operation {
    let node = |machine: &Machine| PlannedStep { action: "kubernetes".to_owned(), node: Some(machine.name_any()) };
    let snapshot = PlannedStep { action: "snapshot".to_owned(), node: None };
    let from = lowest(machines).map(|minor| minor.to_string());
    let spec = OperationSpec {
        cluster_ref: Reference::to(cluster.name_any()),
        kind: OperationKind::RaiseKubernetes,
        from_image: None,
        to_image: None,
        from_size: None,
        to_size: None,
        to_class: None,
        from_version: from,
        to_version: Some(to.to_string()),
        cluster_generation: cluster.metadata.generation.unwrap_or(1),
        steps: std::iter::once(snapshot).chain(machines.iter().map(node)).collect(),
        plan: None,
    };
    let mut operation = Operation::new(name, spec);
    operation.metadata.namespace = cluster.namespace();
    operation.metadata.labels = Some([(CLUSTER.to_owned(), cluster.name_any())].into());
    operation
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::decisions::fixture;
    use crate::records::fixture::plan;

    /// One of a swap whose first node is back on its image.
    fn of_node_that_is_back() -> Operation {
        let back = json!({
            "event": "direction-changed", "direction": "back", "only": 0, "code": "upgrade.asked", "reason": "it is ill",
        });
        fixture::swap(plan(), &[back])
    }

    /// The store may be away for the moment in which the journal is to be turned, and the run say no more than that it waits.
    #[test]
    fn that_a_node_that_is_back_is_tried_again_is_noted_once_the_journal_says_so() {
        let operation = of_node_that_is_back();
        let all = [operation.clone()];
        assert_eq!((length(&all, "shop-1"), length(&all, "shop-2")), (2, 0));
        assert!(matches!(Swapping::of(&operation).unwrap().unwrap().stage, Stage::NodeIsBack(_)));
        for (has_arrived, has_grown) in [(false, false), (false, true), (true, false), (true, true)] {
            // Grown and back: it was tried, and is back once more.
            let noted = is_noted(&operation, Verb::Resume, has_arrived, has_grown);
            assert_eq!(noted, has_arrived && has_grown, "{has_arrived} {has_grown}");
        }
    }
}
