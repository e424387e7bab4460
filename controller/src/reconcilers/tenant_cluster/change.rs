//! Control nodes that are to be on another image or minor. What comes next is decided by [`crate::decisions`], by the cluster's spec, by
//! what is pinned of it, and by its Operations; here it is looked at, judged where that needs nodes and VMs, and done:
//!
//! 1. What is in the way of a change is looked for before anything moves, and said: by objects, by the place (the image lies ready in
//!    each zone), and by `fleet`'s own judgement of nodes and VMs.
//! 2. A swap is `fleet`'s upgrade. Its plan and its journal are an Operation, which the store makes of them: whoever takes over reads
//!    there how far it is, and `fleet` goes on.
//! 3. The new image is pinned once it is committed, in the Machines of control nodes first and then in `status.resolved`: pools follow
//!    that. Each is written where it is not so yet, so that nothing is lost between two writes. So is the size of new VMs; but from before
//!    the first of them is made Machines have the larger one (`size.rs`).
//! 4. Kubernetes is raised afterwards, as an Operation whose journal is the nodes' own: doing it again goes on.
//!
//! Where it stands is read anew each time. Nothing here is remembered.

use std::collections::BTreeSet;
use std::time::Duration;

use contract::minor::Minor;
use contract::swap::Image;
use fleet::deploy::DeployStatus;
use fleet::upgrade::{KubernetesOptions, Mode, OnFailure, Options, Refusals, Target};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use serde_json::json;

use super::operator::{KUBERNETES, Operator};
use super::place::Opened;
use super::{After, Work};
use crate::context::{Attempt, Trouble};
use crate::decisions::{
    CLUSTER_REF, Change, Obstacle, Rest, SeenCluster, Stage, Swapping, control_cluster, good, has_drifted, pinned_size,
    swap_reasons, unsettled, with_size,
};
use crate::objects::{
    self, ControlPlaneSize, DO, Machine, NodeImage, Operation, OperationKind, OperationReason, PinnedImage, Resolved,
    TenantCluster, TenantClusterReason, UpgradeMode,
};
use crate::reach::{Collection, Failure, kinds};
use crate::records::digits_of;

/// How long it may take to look whether a change may begin.
pub(super) const JUDGING: Duration = Duration::from_secs(300);

/// What was decided, and by what.
pub(super) struct Changing {
    pub(super) change: Change,
    /// The last Operation, by its name.
    pub(super) operation: Option<String>,
    /// The name of the last swap, whether or not it has ended, and how far it is.
    pub(super) swap: Option<(String, Swapping)>,
    /// Whether something keeps it all from going on. Of a swap that is not understood nobody asks that.
    rests: bool,
    /// Why the size of the spec is not to be had now, where something else comes next.
    pub(super) size_waits: Option<String>,
}

impl Changing {
    /// Whether a swap is open: nobody makes or powers VMs on but its Operation.
    pub(super) fn is_open(&self) -> bool {
        self.swap.as_ref().is_some_and(|(_, swapping)| swapping.is_open())
    }

    /// Whether one is open, and waits where it may for days: it has come to the new image, or a node is back and a person decides.
    pub(super) fn is_left(&self) -> bool {
        let swap = self.swap.as_ref();
        swap.is_some_and(|(_, swapping)| matches!(swapping.stage, Stage::Upgraded | Stage::NodeIsBack(_)))
    }
}

/// The lowest minor of Kubernetes that control nodes are at.
pub(super) fn lowest(machines: &[Machine]) -> Option<Minor> {
    machines.iter().filter_map(|machine| machine.spec.kubernetes.parse().ok()).min()
}

/// The last swap whose journal was begun.
pub(super) fn last_swap(operations: &[Operation]) -> Option<&Operation> {
    let begun = |operation: &&Operation| {
        let status = operation.status.as_ref();
        operation.spec.kind == OperationKind::Swap && status.is_some_and(|status| !status.entries.is_empty())
    };
    operations.iter().filter(begun).max_by_key(|operation| operation.status.as_ref().map(|status| status.hold))
}

/// The name of the Operation that takes a cluster to a minor.
pub(super) fn raising(cluster: &TenantCluster, to: &str) -> String {
    format!("{}-kubernetes-{}", cluster.name_any(), to.replace('.', "-"))
}

impl Work<'_> {
    /// The Operations of a cluster.
    pub(super) async fn operations(&self, cluster: &TenantCluster) -> Result<Vec<Operation>, Trouble> {
        let (namespace, name) = (cluster.namespace(), cluster.name_any());
        let all = kinds::list::<Operation>(self.objects, namespace.as_deref(), Some((CLUSTER_REF, &name))).await;
        all.attempting("looking for the cluster's Operations")
    }

    /// Why nothing is begun of a cluster's control nodes now, and what is under way rests; none if nothing keeps it.
    pub(super) async fn rest(&self, cluster: &TenantCluster) -> Result<Option<Rest>, Trouble> {
        let nodes = kinds::list::<Node>(self.objects, None, None).await;
        let nodes = nodes.attempting("looking for the control cluster's nodes")?;
        Ok(Rest::of(cluster, control_cluster(self.is_marked, &nodes)))
    }

    /// Decides what comes next, by objects and by how large VMs were seen to be.
    pub(super) async fn changing(
        &self,
        cluster: &TenantCluster,
        (machines, seen): (&[Machine], &DeployStatus),
    ) -> Result<Changing, Trouble> {
        let operations = self.operations(cluster).await?;
        let images = kinds::list::<NodeImage>(self.objects, None, None).await.attempting("looking for NodeImages")?;
        let swap = last_swap(&operations);
        let swapping = match swap.map(Swapping::of).transpose() {
            Ok(swapping) => swapping.flatten(),
            Err(mismatch) => {
                let words = format!("the last Operation is not understood: {mismatch}");
                let change = Change::Blocked(Obstacle::new(TenantClusterReason::NotSupported, words));
                let operation = swap.map(ResourceExt::name_any);
                return Ok(Changing { change, operation, swap: None, rests: false, size_waits: None });
            }
        };
        // The one that is under way, whatever is wanted by now.
        let wanted = raising(cluster, &cluster.spec.version);
        let is_open = |operation: &&Operation| {
            let outcome = operation.status.as_ref().and_then(|status| status.outcome.as_ref());
            operation.spec.kind == OperationKind::RaiseKubernetes && outcome.is_none()
        };
        let named = || operations.iter().find(|operation| operation.name_any() == wanted);
        let rests = self.rest(cluster).await?;
        let is_resting = rests.is_some();
        let deployment = cluster.status.as_ref().and_then(|status| status.deployment.as_ref());
        let raise = operations.iter().find(is_open).or_else(named);
        let size = self.size(cluster).await?;
        let room = match &size {
            Ok(size) => self.no_room(cluster, (machines, seen), *size).await?,
            Err(_) => None,
        };
        let plan = swapping.as_ref().filter(|swapping| swapping.is_planned()).and_then(|swapping| swapping.size);
        let plan_room = match plan {
            Some(size) => self.no_room(cluster, (machines, seen), size).await?,
            None => None,
        };
        let looked = SeenCluster {
            cluster,
            swap: swap.zip(swapping.clone()),
            abandoned: unsettled(&operations),
            raise,
            images: &images,
            minor: lowest(machines),
            size,
            room,
            plan_room,
            rests,
            has_drifted: has_drifted(deployment, machines, &operations),
            now: self.clock.time().0,
        };
        let of_raise = raise.filter(is_open);
        // Nobody looks at what is asked of any other one.
        let known = [swap, raise].into_iter().flatten().map(ResourceExt::name_any).collect::<Vec<_>>();
        let other = operations.iter().find(|it| asked(it).is_some() && !known.contains(&it.name_any()));
        let change = match other {
            Some(other) => Change::Answer(other.name_any(), Some("it is not the last one, and has ended".to_owned())),
            None => looked.next(),
        };
        let before = cluster.status.as_ref().and_then(|status| status.operation.clone());
        let size_waits = looked.size_waits(&change);
        Ok(Changing {
            change,
            operation: of_raise
                .or(swap.filter(|_| swapping.as_ref().is_some_and(Swapping::is_open)))
                .map(ResourceExt::name_any)
                .or(before),
            swap: swap.map(ResourceExt::name_any).zip(swapping),
            rests: is_resting,
            size_waits,
        })
    }

    /// Notes since when all control nodes are good on the new image and a person may say that it goes back, or that it is not so.
    pub(super) async fn counts_good(
        &self,
        cluster: &TenantCluster,
        changing: Changing,
        looked: (&[Machine], &DeployStatus),
        are_good: bool,
    ) -> Result<Changing, Trouble> {
        let Some((name, swapping)) = &changing.swap else { return Ok(changing) };
        let found = kinds::find::<Operation>(self.objects, cluster.namespace().as_deref(), name).await;
        let Some(operation) = found.attempting("reading an Operation")? else { return Ok(changing) };
        let before = operation.status.unwrap_or_default();
        // While it rests words are refused: whoever was told to wait has the whole time afterwards.
        let is_counted = are_good && swapping.stage == Stage::Upgraded && !changing.rests;
        let (since, seen) = is_counted.then(|| good(&before, &self.clock.time())).unzip();
        if since == before.good_since && seen == before.good_seen {
            return Ok(changing);
        }
        self.note_operation(cluster, name, &[], |status| {
            (status.good_since, status.good_seen) = (since.clone(), seen.clone());
        })
        .await?;
        self.changing(cluster, looked).await
    }

    /// Judges by the place, by nodes and by their VMs whether a change may begin: what is in the way takes its place. Where nothing is
    /// left to do of it, that is pinned. None once a person wants something else, or all that lasts is to end: who is asked may take as
    /// long as he likes.
    pub(super) async fn with_obstacles(
        &self,
        cluster: &TenantCluster,
        machines: &[Machine],
        changing: Changing,
        opened: &Opened,
        operator: &Operator<'_>,
    ) -> Result<Option<Changing>, Trouble> {
        let judging = async {
            let decided = match &changing.change {
                Change::Judge(image, size, then) => self.judged_nodes(cluster, (image, *size), then, operator).await,
                change => change.clone(),
            };
            let obstacle = match &decided {
                Change::Swap(image, _, size) => {
                    self.judged_swap(cluster, machines, (image, *size), opened, operator).await?
                }
                Change::Raise(to, _) => {
                    let planned = operator.plans_kubernetes(&kubernetes(cluster, *to)).await;
                    planned.err().filter(|error| !is_done(error)).map(|error| Change::Blocked(unfit(&error)))
                }
                _ => None,
            };
            Ok::<_, Trouble>(obstacle.unwrap_or(decided))
        };
        // It changes nothing: it may be broken off anywhere.
        let judged = tokio::select! {
            judged = tokio::time::timeout(JUDGING, judging) => judged,
            () = self.is_wanted_otherwise(cluster) => return Ok(None),
            () = self.term.ended() => return Err(self.over()),
        };
        let change = match judged {
            Ok(change) => change?,
            Err(_) => {
                let words = format!("its control nodes were not all looked at within {} s", JUDGING.as_secs());
                Change::Blocked(Obstacle::new(TenantClusterReason::PreflightNotKnown, words))
            }
        };
        self.term.may()?;
        Ok(Some(Changing { change, ..changing }))
    }

    /// What comes next, if all nodes run an image, in VMs of a size if one is said; else that they do not.
    async fn judged_nodes(
        &self,
        cluster: &TenantCluster,
        (image, size): (&NodeImage, Option<ControlPlaneSize>),
        then: &Change,
        operator: &Operator<'_>,
    ) -> Change {
        use TenantClusterReason::{ControlNodesUnfit, PreflightNotKnown};
        let name = image.name_any();
        let Some(target) = target(image) else {
            let words = format!("nobody has said yet which build the NodeImage {name} is");
            return Change::Blocked(Obstacle::new(PreflightNotKnown, words));
        };
        match operator.plans(&target, &options(cluster, None)).await {
            Err(error) if is_done(&error) => match size {
                Some(size) => self.judged_sizes(cluster, &target, size, then, operator).await,
                None => then.clone(),
            },
            // It could be swapped to: it runs another one.
            Ok(()) => {
                let words = format!(
                    "not all control nodes run {name}, and no object says what they run: name the image that they are to run"
                );
                Change::Blocked(Obstacle::new(ControlNodesUnfit, words))
            }
            Err(error) => Change::Blocked(unfit(&error)),
        }
    }

    /// The same of their VMs' size.
    async fn judged_sizes(
        &self,
        cluster: &TenantCluster,
        target: &Target,
        size: ControlPlaneSize,
        then: &Change,
        operator: &Operator<'_>,
    ) -> Change {
        match operator.plans(target, &options(cluster, Some(size))).await {
            Err(error) if is_done(&error) => then.clone(),
            Err(error) => Change::Blocked(unfit(&error)),
            Ok(()) => {
                let words = format!(
                    "not all control nodes have {size}, and no object says what they have: name a vmClass of the size that they are \
                     to have; where that is this one, another one before"
                );
                Change::Blocked(Obstacle::new(TenantClusterReason::ControlNodesUnfit, words))
            }
        }
    }

    async fn judged_swap(
        &self,
        cluster: &TenantCluster,
        machines: &[Machine],
        (image, size): (&NodeImage, ControlPlaneSize),
        opened: &Opened,
        operator: &Operator<'_>,
    ) -> Result<Option<Change>, Trouble> {
        let pinned = cluster.status.as_ref().and_then(|status| status.resolved.clone()).unwrap_or_default();
        let resolved =
            Resolved { image: image.metadata.name.clone(), digest: Some(image.spec.digest.clone()), ..pinned };
        let zones: BTreeSet<String> = machines.iter().map(|machine| machine.spec.zone.clone()).collect();
        let zones: Vec<String> = zones.into_iter().collect();
        if let Some(obstacle) = self.obstacle_at(opened, &cluster.spec.provider_ref.name, &resolved, &zones).await {
            return Ok(Some(Change::Blocked(obstacle)));
        }
        let Some(target) = target(image) else {
            let words = format!("nobody has said yet which build the NodeImage {} is", image.name_any());
            return Ok(Some(Change::Blocked(Obstacle::new(TenantClusterReason::PreflightNotKnown, words))));
        };
        Ok(match operator.plans(&target, &options(cluster, Some(size))).await {
            Ok(()) => None,
            // All of them run it, and have that size, whoever has brought them there.
            Err(error) if is_done(&error) => Some(Change::Pin(Box::new(with_size(resolved, Some(size))), None)),
            Err(error) => Some(Change::Blocked(unfit(&error))),
        })
    }

    /// Pins an image and a size: in the Machines first. What an Operation has come to is noted there at last, and is pinned no second time.
    pub(super) async fn pin(
        &self,
        cluster: &TenantCluster,
        machines: &[Machine],
        resolved: &Resolved,
        of: Option<&str>,
    ) -> Result<After, Trouble> {
        let (Some(name), Some(digest)) = (&resolved.image, &resolved.digest) else { return Ok(After::Again) };
        let image = PinnedImage { name: name.clone(), digest: digest.clone() };
        let size = pinned_size(resolved);
        let is_so = |machine: &&Machine| machine.spec.image == image && size.is_none_or(|size| has(machine, size));
        for machine in machines.iter().filter(|machine| !is_so(machine)) {
            let mut part = json!({"image": image});
            if let Some(ControlPlaneSize { processors, memory_mib }) = size {
                (part["processors"], part["memoryMiB"]) = (processors.into(), memory_mib.into());
            }
            self.respecify(machine, &part).await?;
        }
        self.note(cluster, &[], |status| status.resolved = Some(resolved.clone())).await?;
        if let Some(name) = of {
            self.note_operation(cluster, name, &[], |status| status.pinned = true).await?;
        }
        Ok(After::Again)
    }

    /// Notes in the Machines of control nodes that they are at a minor.
    pub(super) async fn pin_minor(&self, machines: &[Machine], to: Minor) -> Result<(), Trouble> {
        let to = to.to_string();
        for machine in machines.iter().filter(|machine| machine.spec.kubernetes != to) {
            self.respecify(machine, &json!({"kubernetes": to})).await?;
        }
        Ok(())
    }

    pub(super) async fn respecify(&self, machine: &Machine, part: &serde_json::Value) -> Result<(), Trouble> {
        let part = json!({"metadata": {"resourceVersion": machine.metadata.resource_version}, "spec": part});
        let of = Collection::of::<Machine>(machine.namespace().as_deref());
        let written = self.objects.patch(&of, &machine.name_any(), &part).await;
        written.map(drop).attempting("noting what a control node runs")
    }

    /// Writes the status of an Operation, as far as it is otherwise now.
    pub(super) async fn note_operation(
        &self,
        cluster: &TenantCluster,
        name: &str,
        said: &[(OperationReason, String)],
        change: impl Fn(&mut objects::OperationStatus),
    ) -> Result<(), Trouble> {
        const TRIES: usize = 10;
        const ATTEMPT: &str = "writing an Operation's status";
        for attempt in 1.. {
            let found = kinds::find::<Operation>(self.objects, cluster.namespace().as_deref(), name).await;
            let Some(operation) = found.attempting(ATTEMPT)? else { return Ok(()) };
            let mut status = operation.status.clone().unwrap_or_default();
            change(&mut status);
            // The spec of an Operation never changes: what is told is told by the cluster's.
            let generation = cluster.metadata.generation.unwrap_or_default();
            for (reason, words) in said {
                objects::set(&mut status.conditions, *reason, words, generation, &self.clock.time());
            }
            match kinds::note(self.objects, &operation, operation.status.as_ref(), &status).await {
                Err(Failure::Changed) if attempt < TRIES => {}
                Err(Failure::Missing) => return Ok(()),
                written => return written.map(drop).attempting(ATTEMPT),
            }
        }
        Ok(())
    }

    /// Has an Operation say where its swap stands; or, if it raises Kubernetes, that it rests.
    pub(super) async fn show_operation(&self, cluster: &TenantCluster, operation: &Operation) -> Result<(), Trouble> {
        let rest = self.rest(cluster).await?;
        if let Some(rest) = rest.as_ref().filter(|_| operation.spec.kind == OperationKind::RaiseKubernetes) {
            // That one nobody can have rest.
            let said = [(rest.reason(), "a node that was asked before goes to it by itself, or gives up".to_owned())];
            return self.note_operation(cluster, &operation.name_any(), &said, |_| ()).await;
        }
        let Ok(Some(swapping)) = Swapping::of(operation) else { return Ok(()) };
        let outcome = swapping.ending().map(|ending| ending.words().to_owned());
        let done = i32::try_from(swapping.done).unwrap_or(i32::MAX);
        self.note_operation(cluster, &operation.name_any(), &swap_reasons(rest.as_ref(), &swapping), |status| {
            (status.done, status.step, status.outcome) = (done, swapping.step.clone(), outcome.clone());
            if swapping.stage != Stage::Upgraded {
                (status.good_since, status.good_seen) = (None, None);
            }
        })
        .await
    }

    /// Takes away what a person has asked of an Operation, if it is still this.
    pub(super) async fn answered(&self, cluster: &TenantCluster, name: &str, word: &str) -> Result<(), Trouble> {
        const ATTEMPT: &str = "taking away what was asked of an Operation";
        let namespace = cluster.namespace();
        let found = kinds::find::<Operation>(self.objects, namespace.as_deref(), name).await.attempting(ATTEMPT)?;
        let Some(operation) = found.filter(|operation| asked(operation) == Some(word)) else { return Ok(()) };
        let version = &operation.metadata.resource_version;
        let part = json!({"metadata": {"resourceVersion": version, "annotations": {DO: null}}});
        let of = Collection::of::<Operation>(namespace.as_deref());
        match self.objects.patch(&of, name, &part).await {
            Err(Failure::Missing) => Ok(()),
            written => written.map(drop).attempting(ATTEMPT),
        }
    }
}

/// Whether a Machine says that its node is so large.
fn has(machine: &Machine, size: ControlPlaneSize) -> bool {
    (machine.spec.processors, machine.spec.memory_mib) == (size.processors, size.memory_mib)
}

/// The word that a person has put to an Operation.
pub(super) fn asked(operation: &Operation) -> Option<&str> {
    operation.annotations().get(DO).map(String::as_str)
}

/// An image as `fleet` swaps to it; none of one of which not all is known.
pub(super) fn target(image: &NodeImage) -> Option<Target> {
    let status = image.status.as_ref()?;
    Some(Target {
        ova: Default::default(),
        digest: digits_of(&image.spec.digest)?,
        name: status.appliance.clone()?,
        image: Image { version: status.version.clone()?, build: status.build.clone()? },
        upgrades_from: status.upgrades_from.as_deref().map(str::parse).transpose().ok()?,
        etcd: status.etcd.as_deref().map(str::parse).transpose().ok()?,
        kubernetes: status.kubernetes.clone(),
        signer: image.spec.publisher.clone(),
    })
}

/// How control nodes are swapped. A new VM is put beside the one whose place it takes: its disk does not move. Without a size it has
/// that one's.
pub(super) fn options(cluster: &TenantCluster, size: Option<ControlPlaneSize>) -> Options {
    let upgrade = &cluster.spec.upgrade;
    Options {
        mode: match upgrade.mode {
            UpgradeMode::Rolling => Mode::Rolling,
            UpgradeMode::AllAtOnce => Mode::AllAtOnce,
        },
        gate_seconds: upgrade.gate_seconds.into(),
        drain_seconds: upgrade.drain_seconds.into(),
        on_failure: match upgrade.on_failure {
            objects::OnFailure::Node => OnFailure::Node,
            objects::OnFailure::All => OnFailure::All,
        },
        downgrade: false,
        publisher: None,
        placement: Default::default(),
        size: size.map(Into::into),
    }
}

pub(super) fn kubernetes(cluster: &TenantCluster, to: Minor) -> KubernetesOptions {
    let drain_seconds = cluster.spec.upgrade.drain_seconds.into();
    KubernetesOptions { to: Some(to.to_string()), drain_seconds, limit: KUBERNETES }
}

/// Whether there is nothing left to do.
pub(super) fn is_done(error: &anyhow::Error) -> bool {
    let refusals = error.downcast_ref::<Refusals>();
    refusals.is_some_and(|refusals| refusals.0.iter().all(|refusal| refusal.code == "upgrade.nothing-to-do"))
}

/// Why a change does not begin, by `fleet`'s judgement; or what could not be asked.
fn unfit(error: &anyhow::Error) -> Obstacle {
    use TenantClusterReason::{ControlNodesUnfit, ImageUnsuitable, PreflightNotKnown};
    const OF_THE_IMAGE: [&str; 8] = [
        "upgrade.product",
        "upgrade.downgrade",
        "upgrade.from-version",
        "upgrade.version",
        "upgrade.etcd",
        "upgrade.kubernetes",
        "upgrade.unsigned",
        "upgrade.publisher",
    ];
    let Some(Refusals(refusals)) = error.downcast_ref::<Refusals>() else {
        return Obstacle::new(PreflightNotKnown, format!("{error:#}"));
    };
    let is_of_image = refusals.iter().any(|refusal| OF_THE_IMAGE.contains(&refusal.code));
    let words = refusals.iter().map(|refusal| format!("{}: {} [{}]", refusal.subject, refusal.reason, refusal.code));
    let reason = if is_of_image { ImageUnsuitable } else { ControlNodesUnfit };
    Obstacle::new(reason, words.collect::<Vec<_>>().join("; "))
}
