//! Upgrades of control-plane nodes to another image or minor version, as the operator sees them. Calls fail and controllers die:
//! in the end the state is the declared one.

mod commit;
mod drift;
mod faults;
mod obstacles;
mod rests;
mod sizes;
mod words;

use std::net::Ipv4Addr;
use std::time::Duration;

use fleet::hypervisor::PowerState;
use k8s_openapi::api::core::v1::{Node, NodeSpec};
use kube::runtime::controller::Action;

use super::World;
use super::api::Mortal;
use super::place;
use super::replace::{annotate, host_returns, is_replaced, is_shut_out, loses_a_node, replaces_on_a_silent_host};
use crate::context::ReconcileError;
use crate::decisions::fixture;
use crate::objects::{
    Commit, DO, LifecyclePhase, Machine, NodeImage, Operation, OperationKind, REPLACE_NODE, TenantCluster,
    TenantClusterSpec,
};
use crate::reach::in_memory::Fault;
use crate::reconcilers::points::drawn_seldom;
use crate::term::Term;

const FORMER: &str = "kaas-tenant-0.2.0";
const NEW: &str = "kaas-tenant-0.3.0";
const NODES: [&str; 3] = ["shop-cp1", "shop-cp2", "shop-cp3"];

/// An image whose digest and build consist of these two digits.
fn image(name: &str, version: &str, digits: &str, kubernetes: &[&str]) -> NodeImage {
    let mut image = fixture::image(name, version);
    image.spec.digest = format!("sha256:{}", digits.repeat(32));
    let status = image.status.as_mut().unwrap();
    (status.appliance, status.build) = (Some("kaas-tenant".to_owned()), Some(digits.repeat(16)));
    status.etcd = Some("3.6".to_owned());
    status.kubernetes = kubernetes.iter().map(|minor| (*minor).to_owned()).collect();
    image
}

/// The names of the VMs that a swap creates.
fn new_vms(build: &str) -> Vec<String> {
    NODES.iter().map(|node| format!("{node}-{}", &build.repeat(16)[..7])).collect()
}

impl World {
    /// A cluster that serves, and an image for an upgrade.
    async fn upgradable() -> Self {
        let world = Self::new();
        world.api.put(&image(FORMER, "0.2.0", "0a", &["1.36"]));
        world.api.put(&image(NEW, "0.3.0", "0b", &["1.36", "1.37"]));
        world.until("ready", Self::is_ready).await;
        world
    }

    /// Changes the spec as the operator would.
    fn edit(&self, edit: impl FnOnce(&mut TenantClusterSpec)) {
        let mut cluster: TenantCluster = serde_json::from_value(self.api.object("tenantclusters")).unwrap();
        edit(&mut cluster.spec);
        self.api.put(&cluster);
    }

    fn goes_to(&self, image: &str) {
        self.edit(|spec| spec.image = Some(image.to_owned()));
    }

    /// All nodes run the image, and nothing is committed.
    async fn swaps_to(&self, image: &str) {
        self.goes_to(image);
        self.until("on the new image", |world| world.up_to_date() == "AwaitingCommit").await;
    }

    async fn upgrades_to(&self, image: &str) {
        self.goes_to(image);
        self.until("committed", Self::is_current).await;
    }

    /// Pauses or resumes changes, by the spec or by a change of the control cluster.
    fn pauses(&mut self, by_spec: bool, is_paused: bool) {
        if by_spec {
            self.edit(|spec| spec.paused = is_paused);
        } else {
            self.is_marked = !is_paused;
        }
    }

    /// Returns once the place has seen this change.
    async fn until_change(&self, change: &str) {
        while !self.place.lock().changes.contains(&change) {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Reconciles until something is seen meanwhile, and interrupts the reconcile there.
    async fn amid<T>(&self, what: &str, seen: impl Fn(&Self) -> Option<T>) -> T {
        let comes = async {
            loop {
                match seen(self) {
                    Some(seen) => break seen,
                    None => tokio::time::sleep(Duration::from_millis(200)).await,
                }
            }
        };
        let goes = async {
            for _ in 0..120 {
                let _ = self.reconcile().await;
                tokio::time::sleep(Duration::from_secs(15)).await;
            }
        };
        tokio::select! {
            biased;
            seen = comes => seen,
            () = goes => panic!("never {what}"),
        }
    }

    /// How many data disks were attached.
    fn attached(&self) -> usize {
        self.place.lock().changes.iter().filter(|it| **it == "attach").count()
    }

    /// Whether the last Operation has no request.
    fn is_answered(&self) -> bool {
        self.operations()[0].metadata.annotations.as_ref().is_none_or(|it| it.is_empty())
    }

    /// All Operations, the newest first.
    fn operations(&self) -> Vec<Operation> {
        let names = self.api.names("operations");
        let mut all: Vec<Operation> =
            names.iter().map(|name| self.api.read(Some("team-blue"), name).unwrap()).collect();
        all.sort_by_key(|operation| std::cmp::Reverse(operation.status.as_ref().map(|status| status.lease)));
        all
    }

    /// Puts a request on the last Operation.
    fn asks(&self, word: &str) {
        let mut operation = self.operations().remove(0);
        operation.metadata.annotations.get_or_insert_default().insert(DO.to_owned(), word.to_owned());
        self.api.put(&operation);
    }

    fn outcome(&self) -> Option<String> {
        self.operations().first()?.status.clone()?.outcome
    }

    /// The name of the VM that is being shut down, if that is the last entry of the last Operation.
    fn shuts_down(&self) -> Option<String> {
        let operation = self.operations().into_iter().next()?;
        let last = operation.status?.entries.pop()?;
        let node = usize::try_from(last.more.get("node")?.as_u64()?).ok()?;
        let is_it = last.event == "begun" && last.more["action"] == "shut-down";
        operation.spec.plan?["nodes"][node]["old_name"].as_str().filter(|_| is_it).map(str::to_owned)
    }

    fn reason_of_operation(&self, about: &str) -> String {
        let status = self.operations().remove(0).status.unwrap();
        status.conditions.into_iter().find(|it| it.about == about).map(|it| it.reason).unwrap_or_default()
    }

    /// Whether the VM of each node with its data disk is on.
    fn are_on(&self) -> bool {
        let state = self.place.lock();
        let mut nodes = state.vms.iter().filter(|(vm, ..)| vm.data_disks().next().is_some());
        nodes.all(|(vm, ..)| vm.power == PowerState::On)
    }

    fn machines(&self) -> Vec<Machine> {
        let names = self.api.names("machines");
        let own = names.iter().filter(|name| name.starts_with("shop-"));
        own.map(|name| self.api.read(Some("team-blue"), name).unwrap()).collect()
    }

    /// One reconcile, whose term ends once a data disk is detached from a VM.
    async fn ends_its_term_at_a_detach(&self) -> Result<Action, ReconcileError> {
        let ends = async {
            self.until_change("detach").await;
            self.term.end();
        };
        tokio::join!(self.reconcile(), ends).0
    }

    /// Whether everything is as the present spec says.
    fn is_current(&self) -> bool {
        let cluster = self.api.object("tenantclusters");
        let is_judged = cluster["status"]["observedGeneration"] == cluster["metadata"]["generation"];
        is_judged && self.condition("UpToDate").0 == "True" && self.is_ready()
    }

    fn up_to_date(&self) -> String {
        self.condition("UpToDate").1
    }

    /// Reconciles often enough for everything that begins by itself.
    async fn rests(&self) {
        for _ in 0..50 {
            let _ = self.reconcile().await;
            tokio::time::sleep(Duration::from_secs(30)).await;
        }
    }

    /// Reconciles until the cluster is current, and all its control-plane nodes must then run this image.
    async fn until_all_run(&self, name: &str, what: &str) {
        self.until(what, Self::is_current).await;
        self.all_run(name, what);
    }

    /// Checks that all control-plane nodes run an image, each in one VM with its original disk, and that pools see it.
    fn all_run(&self, name: &str, what: &str) {
        assert_eq!(self.status()["resolved"]["image"], name, "{what}");
        let digits = if name == FORMER { "0a" } else { "0b" };
        assert_eq!(self.status()["resolved"]["digest"], format!("sha256:{}", digits.repeat(32)), "{what}");
        assert!(self.machines().iter().all(|it| it.spec.image.name == name), "{what}");
        let state = self.place.lock();
        assert_eq!(state.vms.len(), 3, "{what}: {:?}", state.vms);
        for (vm, ..) in &state.vms {
            assert_eq!(state.images[&vm.uuid()], digits.repeat(32), "{what}: {vm}");
            let disks: Vec<_> = vm.data_disks().map(|disk| disk.reference.uuid).collect();
            assert_eq!(disks, [state.contents[&vm.stamp.as_ref().unwrap().node].disk], "{what}: {vm}");
        }
        assert!(state.contents.values().all(|content| content.swap.is_none()), "{what}");
        assert_eq!(state.disks.len(), 3, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn another_image_is_swapped_and_committed() {
    let world = World::upgradable().await;
    world.swaps_to(NEW).await;
    let operation = world.operations().remove(0);
    assert_eq!((operation.spec.kind, operation.spec.to_image.as_deref()), (OperationKind::ImageSwap, Some(NEW)));
    assert_eq!(operation.spec.from_image.as_deref(), Some(FORMER));
    assert_eq!((world.condition("Progressing").1.as_str(), world.is_ready()), ("OperationRuns", true));
    assert_eq!(world.status()["operation"], operation.metadata.name.clone().unwrap());
    // Nothing is committed: pools see the former image, and each node has two VMs.
    assert_eq!((world.status()["resolved"]["image"].as_str(), world.place.vms().len()), (Some(FORMER), 6));
    let begun = tokio::time::Instant::now();
    world.until("committed", World::is_current).await;
    assert!(begun.elapsed() >= Duration::from_secs(9 * 60), "{:?}", begun.elapsed());
    world.all_run(NEW, "it is committed");
    assert_eq!(world.place.vms().into_keys().collect::<Vec<_>>(), new_vms("0b"));
    assert_eq!((world.outcome().as_deref(), world.operations().len()), (Some("committed"), 1));
    assert_eq!(world.reason_of_operation("Succeeded"), "Done");
    assert_eq!(world.place.lock().snapshots.len(), 1, "its store was kept before");
    // From then on nothing changes, and a VM that is off is powered on as before.
    let changes = world.place.lock().changes.len();
    world.rests().await;
    assert_eq!((world.place.lock().changes.len(), world.operations().len()), (changes, 1));
    world.place.change(&new_vms("0b")[0], |vm| vm.power = PowerState::Off);
    world.until("all are on", |world| world.condition("ControlPlaneReady").1 == "AllReady").await;
}

#[tokio::test(start_paused = true)]
async fn the_former_image_rolls_back_before_the_commit() {
    let world = World::upgradable().await;
    world.swaps_to(NEW).await;
    world.goes_to(FORMER);
    world.until_all_run(FORMER, "it went back").await;
    assert_eq!(world.place.vms().into_keys().collect::<Vec<_>>(), NODES);
    assert_eq!(world.outcome().as_deref(), Some("rolled back"));
    // The same image again is another upgrade.
    world.upgrades_to(NEW).await;
    world.all_run(NEW, "it is committed");
    assert_eq!(world.operations().len(), 2);
    let changes = world.place.lock().changes.len();
    world.goes_to(FORMER);
    world.rests().await;
    let (status, reason, words) = world.condition("Preflight");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "ImageUnsuitable"), "{words}");
    assert!(words.contains("no rollback is possible"), "{words}");
    assert_eq!((world.up_to_date().as_str(), world.condition("Progressing").1.as_str()), ("ChangeBlocked", "Blocked"));
    assert!(world.is_ready(), "it serves");
    assert_eq!((world.place.lock().changes.len(), world.operations().len()), (changes, 2));
}

/// A user who may edit a cluster can begin and roll back any number of swaps.
#[tokio::test(start_paused = true)]
async fn only_the_last_operations_are_kept() {
    let world = World::upgradable().await;
    let mut begun = Vec::new();
    for turn in 0..13 {
        world.swaps_to(NEW).await;
        begun.push(world.operations()[0].metadata.name.clone().unwrap());
        assert!(world.operations().len() <= 11, "{turn}: {}", world.operations().len());
        world.goes_to(FORMER);
        world.until("back", World::is_current).await;
    }
    world.all_run(FORMER, "it went back");
    begun.reverse();
    let kept: Vec<String> = world.operations().into_iter().filter_map(|operation| operation.metadata.name).collect();
    assert_eq!(kept, begun[..11], "those that were begun last");
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_swap_continues_from_its_state() {
    let world = World::upgradable().await;
    world.swaps_to(NEW).await;
    world.asks("abandon");
    world.until("abandoned", |world| world.outcome().is_some()).await;
    world.rests().await;
    assert_eq!((world.outcome().as_deref(), world.up_to_date().as_str()), (Some("abandoned"), "ChangeFailed"));
    assert_eq!(world.reason_of_operation("Succeeded"), "Abandoned");
    assert_eq!((world.status()["resolved"]["image"].as_str(), world.place.vms().len()), (Some(FORMER), 6));
    world.asks("resume");
    world.until("taken for what it is", World::is_current).await;
    assert_eq!(world.status()["resolved"]["image"], NEW);
    assert!(world.machines().iter().all(|machine| machine.spec.image.name == NEW));
    assert_eq!(world.operations().len(), 1, "nothing was left to do");
}

/// An abandoned swap is final for nodes that were healthy on the new image: the former image in the spec does not change that.
#[tokio::test(start_paused = true)]
async fn an_abandoned_upgrade_does_not_restore_the_image() {
    let world = World::upgradable().await;
    world.swaps_to(NEW).await;
    world.asks("abandon");
    world.until("abandoned", |world| world.outcome().is_some()).await;
    world.goes_to(FORMER);
    world.rests().await;
    world.says("UpToDate", "ChangeBlocked", "upgrade.downgrade");
    assert_eq!(world.status()["controlPlane"]["updated"], 0);
    world.goes_to(NEW);
    world.until("taken for what it is", World::is_current).await;
    world.rests().await;
    assert!(world.is_current() && world.status()["resolved"]["image"] == NEW, "and stays so");
}

#[tokio::test(start_paused = true)]
async fn a_request_during_an_upgrade_takes_effect_immediately() {
    let world = World::upgradable().await;
    world.goes_to(NEW);
    let asked = async {
        world.until_change("attach").await;
        world.asks("rollback");
    };
    let (done, ()) = tokio::join!(world.reconcile(), asked);
    done.unwrap();
    world.until("back", |world| world.outcome().is_some()).await;
    world.rests().await;
    world.all_run(FORMER, "it was taken back");
    let imports = world.place.lock().changes.iter().filter(|it| **it == "import").count();
    assert_eq!(imports, 1, "no other node was touched");
}

#[tokio::test(start_paused = true)]
async fn another_controller_continues_an_interrupted_upgrade() {
    let mut world = World::upgradable().await;
    world.goes_to(NEW);
    let done = world.ends_its_term_at_a_detach().await;
    assert!(matches!(done, Err(ReconcileError::Ended(_))), "{done:?}");
    let changes = world.place.lock().changes.len();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(world.place.lock().changes.len(), changes, "nothing more is changed");
    world.term = Term::unlimited("controller two");
    world.until_all_run(NEW, "another one went on").await;
    assert_eq!(world.operations().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn kubernetes_follows_the_commit_and_failures_wait() {
    let world = World::upgradable().await;
    world.place.lock().ill.stuck.insert("shop-cp2".to_owned());
    world.edit(|spec| {
        spec.image = Some(NEW.to_owned());
        spec.version = "1.37".to_owned();
    });
    world.until("failed", |world| world.up_to_date() == "ChangeFailed").await;
    world.all_run(NEW, "the image came first");
    assert_eq!(world.status()["kubernetes"], "1.36", "not all of them are there");
    let raise = |world: &World| -> Operation { world.api.read(Some("team-blue"), "shop-kubernetes-1-37").unwrap() };
    assert_eq!(raise(&world).spec.kind, OperationKind::KubernetesUpgrade);
    let entries = raise(&world).status.unwrap().entries;
    let [snapshot] = &entries[..] else { panic!("{entries:?}") };
    let place = snapshot.more["note"].as_str().unwrap();
    assert!(place.starts_with("before-kubernetes-1.37.db"), "it says where the snapshot is: {place}");
    assert_eq!(world.status()["operation"], "shop-kubernetes-1-37");
    assert!(world.condition("UpToDate").2.contains("draining it took too long"), "{:?}", world.condition("UpToDate"));
    world.rests().await;
    assert_eq!(world.up_to_date(), "ChangeFailed");
    // Nodes are never downgraded.
    world.edit(|spec| spec.version = "1.36".to_owned());
    world.rests().await;
    assert_eq!(world.up_to_date(), "ChangeBlocked");
    assert_eq!(world.condition("Preflight").1, "NotSupported");
    world.edit(|spec| spec.version = "1.37".to_owned());
    {
        let mut state = world.place.lock();
        state.ill.stuck.clear();
        state.contents.get_mut("shop-cp2").unwrap().upgrade = None;
    }
    let mut operation = raise(&world);
    operation.metadata.annotations.get_or_insert_default().insert(DO.to_owned(), "resume".to_owned());
    world.api.put(&operation);
    world.until("raised", World::is_current).await;
    assert_eq!((&world.status()["kubernetes"], &world.status()["version"]), (&"1.37".into(), &"1.37.1".into()));
    assert!(world.machines().iter().all(|machine| machine.spec.kubernetes == "1.37"));
    assert_eq!(raise(&world).status.unwrap().outcome.as_deref(), Some("done"));
    assert_eq!(raise(&world).status.unwrap().entries, entries, "a further try has no better one");
    assert!(raise(&world).metadata.annotations.is_none_or(|it| it.is_empty()));
}

/// Finding 5 of controller.md: a cluster with a lost node could never be upgraded.
#[tokio::test(start_paused = true)]
async fn cluster_is_upgraded_after_a_replacement() {
    let world = World::upgradable().await;
    loses_a_node(&world).await;
    world.until("replaced", is_replaced).await;
    world.upgrades_to(NEW).await;
    world.all_run(NEW, "after the replacement");
}

// The conflict about the address of the node prevented the commit, and the VM was shut out after the commit only.
#[tokio::test(start_paused = true)]
async fn returned_vm_is_shut_out_before_a_commit() {
    let world = World::upgradable().await;
    let former = replaces_on_a_silent_host(&world).await;
    // The operator takes the host out of the inventory, and adds it again.
    let made = {
        let mut state = world.place.lock();
        let at = state.vms.iter().position(|(vm, ..)| vm.reference == former.reference).unwrap();
        state.vms.remove(at)
    };
    world.edit(|spec| spec.upgrade.commit = Commit::Manual);
    world.swaps_to(NEW).await;
    world.place.lock().vms.push(made);
    host_returns(&world);
    world.reconciles(2, 30).await;
    assert!(is_shut_out(&world, &former));
    assert_eq!((world.outcome(), world.up_to_date().as_str()), (None, "AwaitingCommit"));
    world.asks("commit");
    world.until("committed", World::is_current).await;
}

// The messages about a lost node were dropped while a swap awaited its commit.
#[tokio::test(start_paused = true)]
async fn lost_node_is_named_before_a_commit() {
    let world = World::upgradable().await;
    world.edit(|spec| spec.upgrade.commit = Commit::Manual);
    world.swaps_to(NEW).await;
    let operation = world.operations()[0].metadata.name.clone().unwrap();
    world.place.change(&new_vms("0b")[2], |vm| (vm.power, vm.disks) = (PowerState::Off, Vec::new()));
    world.reconciles(2, 30).await;
    let held = format!("It is not replaced now: the Operation {operation} awaits its commit");
    world.says("Progressing", "Blocked", &held);
    world.says("Progressing", "Blocked", "the VM of shop-cp3 is off, without its data disk");
    annotate(&world, REPLACE_NODE, "shop-cp9");
    world.reconciles(2, 30).await;
    world.says("Progressing", "Blocked", "has no control-plane node shop-cp9");
    world.says("Progressing", "Blocked", &held);
    assert_eq!(world.outcome(), None);
}

/// Finding 11 of controller.md: a pool that is paused keeps workers of a former version. Their Machines have no version in their
/// status.
#[tokio::test(start_paused = true)]
async fn kubernetes_is_not_raised_past_the_oldest_worker() {
    let world = World::upgradable().await;
    world.upgrades_to(NEW).await;
    let of_cluster = world.machines().remove(0).metadata;
    let mut worker = Machine::new("shop-general-w1", crate::objects::fixture::worker());
    let metadata = &mut worker.metadata;
    (metadata.namespace, metadata.labels) = (of_cluster.namespace, of_cluster.labels);
    metadata.owner_references = of_cluster.owner_references;
    worker.spec.kubernetes = "1.33".to_owned();
    world.api.put(&worker);
    world.edit(|spec| spec.version = "1.37".to_owned());
    world.rests().await;
    let words = "the Machine shop-general-w1 of the NodePool shop-general runs Kubernetes 1.33";
    world.says("UpToDate", "ChangeBlocked", words);
    assert!(world.api.named("operations", "shop-kubernetes-1-37").is_none(), "nothing begins");
    assert!(world.status()["kubernetes"] == "1.36" && world.is_ready());
    // The pool has replaced it by a worker that is three minor versions behind.
    worker.spec.kubernetes = "1.34".to_owned();
    world.api.put(&worker);
    world.until("raised", World::is_current).await;
    assert_eq!(world.status()["kubernetes"], "1.37");
}

/// Finding 25 of controller.md: conditions of an Operation had the generation of its cluster.
#[tokio::test(start_paused = true)]
async fn conditions_of_an_operation_have_its_own_generation() {
    let world = World::upgradable().await;
    for is_paused in [true, false, true, false] {
        world.edit(|spec| spec.paused = is_paused);
    }
    world.swaps_to(NEW).await;
    let Operation { metadata, status, .. } = world.operations().remove(0);
    let of_cluster = world.api.object("tenantclusters")["metadata"]["generation"].as_i64();
    assert!(of_cluster > metadata.generation, "{of_cluster:?}");
    let generations: Vec<Option<i64>> =
        status.unwrap().conditions.iter().map(|condition| Some(condition.observed_generation)).collect();
    assert!(!generations.is_empty());
    assert!(generations.iter().all(|generation| *generation == metadata.generation), "{generations:?}");
}

/// A user who may put requests on an Operation may also write its labels.
#[tokio::test(start_paused = true)]
async fn an_operation_without_labels_keeps_its_cluster() {
    let world = World::upgradable().await;
    world.swaps_to(NEW).await;
    let mut operation = world.operations().remove(0);
    operation.metadata.labels = None;
    world.api.put(&operation);
    world.until_all_run(NEW, "it is committed").await;
    assert_eq!((world.outcome().as_deref(), world.operations().len()), (Some("committed"), 1));
    world.is_deleted("nothing is left of it").await;
}

#[tokio::test(start_paused = true)]
async fn an_operation_with_a_finalizer_is_awaited() {
    let world = World::upgradable().await;
    world.upgrades_to(NEW).await;
    let mut kept = world.operations().remove(0);
    kept.metadata.finalizers = Some(vec!["x.example/y".to_owned()]);
    world.api.put(&kept);
    world.delete();
    world.until("waited for", |world| world.condition("Progressing").2.contains("keep Operations")).await;
    let calls = world.api.calls();
    world.reconcile().await.unwrap();
    assert!(world.api.calls() - calls < 40, "{} calls", world.api.calls() - calls);
    let mut kept = world.operations().remove(0);
    kept.metadata.finalizers = None;
    world.api.put(&kept);
    world.goes("the cluster once no Operation is kept").await;
}

#[tokio::test(start_paused = true)]
async fn deletion_during_an_upgrade_leaves_nothing() {
    for at in ["import", "detach", "power_on"] {
        let world = World::upgradable().await;
        let before = world.place.lock().changes.iter().filter(|it| **it == at).count();
        world.goes_to(NEW);
        let deleted = async {
            while world.place.lock().changes.iter().filter(|it| **it == at).count() == before {
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            world.delete();
        };
        let (_, ()) = tokio::join!(world.reconcile(), deleted);
        world.goes(&format!("it was deleted at {at}")).await;
        assert!(world.place.lock().snapshots.is_empty());
    }
}

/// Reconciles with a controller that may die, until it has, or the condition holds.
async fn until_dead(world: &World, mortal: &Mortal, is_so: impl Fn(&World) -> bool) -> bool {
    for _ in 0..120 {
        if world.reconcile_at(mortal).await.is_none() {
            return true;
        }
        tokio::time::sleep(Duration::from_secs(15)).await;
        if is_so(world) {
            return false;
        }
    }
    panic!("it comes to no end: {:#}", world.api.object("tenantclusters"));
}

fn has_ended(world: &World) -> bool {
    world.outcome().is_some() && world.is_current()
}

/// A controller dies at drawn calls of a prepared world: another one completes the work, and the end is checked.
async fn whichever_call_a_controller_dies_at(
    way: &str,
    prepared: impl AsyncFn() -> World,
    is_whole: impl Fn(&World, &str),
) {
    let calls = {
        let world = prepared().await;
        let mortal = Mortal::new(&world.api, None);
        until_dead(&world, &mortal, has_ended).await;
        mortal.calls()
    };
    let points: Vec<_> = (0..calls).flat_map(|call| [true, false].map(|before| (call, before))).collect();
    let tried = drawn_seldom(&format!("deaths of a controller on the way to {way}"), points);
    let (all, mut died) = (tried.len(), 0);
    for (call, before) in tried {
        let what = format!("a death {} call {call} on the way to {way}", if before { "before" } else { "after" });
        let mut world = prepared().await;
        let mortal = Mortal::new(&world.api, Some((call, before)));
        if !until_dead(&world, &mortal, has_ended).await {
            continue;
        }
        died += 1;
        world.term = Term::unlimited("controller two");
        world.until(&what, has_ended).await;
        is_whole(&world, &what);
        assert_eq!(world.operations().len(), 1, "{what}");
    }
    // If calls come in another order, the last ones may not be reached.
    assert!(died * 2 >= all, "{died} of {all} controllers died on the way to {way}");
}
