//! Control nodes on another image or minor, as a person sees it; and whatever fails and wherever a controller dies, the declared state
//! in the end.

mod drift;
mod sizes;

use std::net::Ipv4Addr;
use std::time::Duration;

use fleet::hypervisor::PowerState;
use k8s_openapi::api::core::v1::{Node, NodeSpec, Secret};

use super::World;
use super::api::Mortal;
use super::place;
use crate::decisions::fixture;
use crate::objects::{
    Commit, DO, LifecyclePhase, Machine, NodeImage, Operation, OperationKind, TenantCluster, TenantClusterSpec,
};
use crate::reach::in_memory::Fault;
use crate::reconcilers::points::drawn_seldom;
use crate::term::Term;

const FORMER: &str = "kaas-tenant-0.2.0";
const NEW: &str = "kaas-tenant-0.3.0";
const NODES: [&str; 3] = ["shop-cp1", "shop-cp2", "shop-cp3"];

/// An image whose digest and build are of these two digits.
fn image(name: &str, version: &str, digits: &str, kubernetes: &[&str]) -> NodeImage {
    let mut image = fixture::image(name, version);
    image.spec.digest = format!("sha256:{}", digits.repeat(32));
    let status = image.status.as_mut().unwrap();
    (status.appliance, status.build) = (Some("kaas-tenant".to_owned()), Some(digits.repeat(16)));
    status.etcd = Some("3.6".to_owned());
    status.kubernetes = kubernetes.iter().map(|minor| (*minor).to_owned()).collect();
    image
}

/// The names of the VMs that were made for nodes.
fn new_vms(build: &str) -> Vec<String> {
    NODES.iter().map(|node| format!("{node}-{}", &build.repeat(16)[..7])).collect()
}

impl World {
    /// A cluster that serves, and an image that it may go to.
    async fn upgradable() -> Self {
        let world = Self::new();
        world.api.put(&image(FORMER, "0.2.0", "0a", &["1.36"]));
        world.api.put(&image(NEW, "0.3.0", "0b", &["1.36", "1.37"]));
        world.until("ready", Self::is_ready).await;
        world
    }

    /// Edits the cluster as a person does.
    fn edit(&self, edit: impl FnOnce(&mut TenantClusterSpec)) {
        let mut cluster: TenantCluster = serde_json::from_value(self.api.object("tenantclusters")).unwrap();
        edit(&mut cluster.spec);
        self.api.put(&cluster);
    }

    fn goes_to(&self, image: &str) {
        self.edit(|spec| spec.image = Some(image.to_owned()));
    }

    /// All Operations, those that were begun last first.
    fn operations(&self) -> Vec<Operation> {
        let names = self.api.names("operations");
        let mut all: Vec<Operation> =
            names.iter().map(|name| self.api.read(Some("team-blue"), name).unwrap()).collect();
        all.sort_by_key(|operation| std::cmp::Reverse(operation.status.as_ref().map(|status| status.hold)));
        all
    }

    /// Asks something of the last Operation.
    fn asks(&self, word: &str) {
        let mut operation = self.operations().remove(0);
        operation.metadata.annotations.get_or_insert_default().insert(DO.to_owned(), word.to_owned());
        self.api.put(&operation);
    }

    fn outcome(&self) -> Option<String> {
        self.operations().first()?.status.clone()?.outcome
    }

    /// The name of the VM that is being shut down, if that is the last thing that the last Operation has noted.
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

    /// The VM of each node that has its data disk is on.
    fn are_on(&self) -> bool {
        let state = self.place.lock();
        let mut nodes = state.vms.iter().filter(|(vm, ..)| vm.data_disks().next().is_some());
        nodes.all(|(vm, ..)| vm.power == PowerState::On)
    }

    fn machines(&self) -> Vec<Machine> {
        let names = self.api.names("machines");
        names.iter().map(|name| self.api.read(Some("team-blue"), name).unwrap()).collect()
    }

    /// All is as the spec has it, as that is now.
    fn is_current(&self) -> bool {
        let cluster = self.api.object("tenantclusters");
        let is_judged = cluster["status"]["observedGeneration"] == cluster["metadata"]["generation"];
        is_judged && self.condition("UpToDate").0 == "True" && self.is_ready()
    }

    fn up_to_date(&self) -> String {
        self.condition("UpToDate").1
    }

    /// Reconciles so often that nothing that is begun by itself is missed.
    async fn rests(&self) {
        for _ in 0..50 {
            let _ = self.reconcile().await;
            tokio::time::sleep(Duration::from_secs(30)).await;
        }
    }

    /// All control nodes run an image, each in one VM with the disk that it has always had; pools see it.
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
async fn another_image_in_the_spec_swaps_the_control_nodes_and_is_committed_once_all_was_good_for_ten_minutes() {
    let world = World::upgradable().await;
    world.goes_to(NEW);
    world.until("on the new image", |world| world.up_to_date() == "AwaitsCommit").await;
    let operation = world.operations().remove(0);
    assert_eq!((operation.spec.kind, operation.spec.to_image.as_deref()), (OperationKind::Swap, Some(NEW)));
    assert_eq!(operation.spec.from_image.as_deref(), Some(FORMER));
    assert_eq!((world.condition("Progressing").1.as_str(), world.is_ready()), ("OperationRuns", true));
    assert_eq!(world.status()["operation"], operation.metadata.name.clone().unwrap());
    // Nothing is final: pools see the image before, and each node has two VMs.
    assert_eq!((world.status()["resolved"]["image"].as_str(), world.place.vms().len()), (Some(FORMER), 6));
    let begun = tokio::time::Instant::now();
    world.until("committed", World::is_current).await;
    assert!(begun.elapsed() >= Duration::from_secs(9 * 60), "{:?}", begun.elapsed());
    world.all_run(NEW, "it is committed");
    assert_eq!(world.place.vms().into_keys().collect::<Vec<_>>(), new_vms("0b"));
    assert_eq!((world.outcome().as_deref(), world.operations().len()), (Some("committed"), 1));
    assert_eq!(world.reason_of_operation("Succeeded"), "Done");
    assert_eq!(world.place.lock().snapshots.len(), 1, "its store was kept before");
    // From then on nothing is done, and a VM that is off is powered on as before.
    let changes = world.place.lock().changes.len();
    world.rests().await;
    assert_eq!((world.place.lock().changes.len(), world.operations().len()), (changes, 1));
    world.place.change(&new_vms("0b")[0], |vm| vm.power = PowerState::Off);
    world.until("all are on", |world| world.condition("ControlPlaneReady").1 == "AllReady").await;
}

/// Nobody knows how the nodes were meanwhile, and whoever comes to say `rollback` has his ten minutes.
#[tokio::test(start_paused = true)]
async fn the_ten_minutes_before_the_commit_begin_anew_where_nobody_could_look() {
    for is_there in [true, false] {
        let world = World::upgradable().await;
        world.goes_to(NEW);
        world.until("on the new image", |world| world.up_to_date() == "AwaitsCommit").await;
        for _ in 0..2 {
            world.reconcile().await.unwrap();
            tokio::time::sleep(Duration::from_secs(15)).await;
        }
        // The vCenter does not answer, or no controller runs.
        world.place.lock().is_away = is_there;
        for _ in 0..60 {
            if is_there {
                let _ = world.reconcile().await;
            }
            tokio::time::sleep(Duration::from_secs(60)).await;
        }
        world.place.lock().is_away = false;
        let back = tokio::time::Instant::now();
        world.reconcile().await.unwrap();
        assert_eq!((world.outcome(), world.up_to_date().as_str()), (None, "AwaitsCommit"), "{is_there}");
        world.until("committed", World::is_current).await;
        assert!(back.elapsed() >= Duration::from_secs(9 * 60), "{is_there}: {:?}", back.elapsed());
        world.all_run(NEW, "it is committed");
    }
}

/// An image whose guests go off is none to be made final by itself, however soon they are back.
#[tokio::test(start_paused = true)]
async fn a_control_node_that_was_off_begins_the_ten_minutes_before_the_commit_anew() {
    let world = World::upgradable().await;
    world.goes_to(NEW);
    world.until("on the new image", |world| world.up_to_date() == "AwaitsCommit").await;
    let seen = || world.operations()[0].status.clone().unwrap().good_seen;
    for _ in 0..4 {
        // Until it was just noted once more that they are good: it is back before that is too old.
        let before = seen();
        while seen() == before {
            world.reconcile().await.unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
    assert_eq!(world.outcome(), None);
    world.place.change(&new_vms("0b")[0], |vm| vm.power = PowerState::Off);
    let off = tokio::time::Instant::now();
    world.until("committed", World::is_current).await;
    assert!(off.elapsed() >= Duration::from_secs(9 * 60), "{:?}", off.elapsed());
    world.all_run(NEW, "it is committed");
}

/// Whoever is refused `rollback` meanwhile, and told to wait, has his ten minutes once it is over.
#[tokio::test(start_paused = true)]
async fn the_ten_minutes_before_the_commit_do_not_pass_while_an_upgrade_rests() {
    for is_paused in [true, false] {
        let mut world = World::upgradable().await;
        world.goes_to(NEW);
        world.until("on the new image", |world| world.up_to_date() == "AwaitsCommit").await;
        if is_paused {
            world.edit(|spec| spec.paused = true);
        } else {
            world.is_marked = false;
        }
        for _ in 0..80 {
            world.reconcile().await.unwrap();
            tokio::time::sleep(Duration::from_secs(15)).await;
        }
        assert_eq!(world.operations()[0].status.clone().unwrap().good_since, None, "paused: {is_paused}");
        if is_paused {
            world.edit(|spec| spec.paused = false);
        } else {
            world.is_marked = true;
        }
        let over = tokio::time::Instant::now();
        for _ in 0..3 {
            world.reconcile().await.unwrap();
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
        let stands = (world.outcome(), world.up_to_date());
        assert_eq!(stands, (None, "AwaitsCommit".to_owned()), "paused: {is_paused}");
        world.until("committed", World::is_current).await;
        assert!(over.elapsed() >= Duration::from_secs(9 * 60), "paused: {is_paused}: {:?}", over.elapsed());
        world.all_run(NEW, "it is committed");
    }
}

#[tokio::test(start_paused = true)]
async fn where_the_commit_is_a_persons_nothing_is_final_before_his_word() {
    let world = World::upgradable().await;
    world.edit(|spec| {
        spec.upgrade.commit = Commit::Manual;
        spec.image = Some(NEW.to_owned());
    });
    world.until("on the new image", |world| world.up_to_date() == "AwaitsCommit").await;
    world.rests().await;
    assert_eq!((world.up_to_date().as_str(), world.place.vms().len()), ("AwaitsCommit", 6));
    assert_eq!(world.reason_of_operation("Progressing"), "AwaitsCommit");
    // A host has failed meanwhile, and the commit may be days away.
    world.place.change(&new_vms("0b")[0], |vm| vm.power = PowerState::Off);
    world.until("all are on", World::are_on).await;
    world.rests().await;
    assert_eq!(
        (world.condition("ControlPlaneReady").1.as_str(), world.up_to_date().as_str()),
        ("AllReady", "AwaitsCommit")
    );
    world.asks("cimmot");
    world
        .until("answered", |world| world.operations()[0].metadata.annotations.as_ref().is_none_or(|it| it.is_empty()))
        .await;
    assert_eq!(world.reason_of_operation("Progressing"), "NotToBeHad");
    world.asks("commit");
    world.until("committed", World::is_current).await;
    world.all_run(NEW, "a person has committed it");
    assert!(world.operations()[0].metadata.annotations.as_ref().is_none_or(|it| it.is_empty()), "it is noted");
}

#[tokio::test(start_paused = true)]
async fn the_former_image_named_before_the_commit_is_the_way_back_and_afterwards_refused() {
    let world = World::upgradable().await;
    world.goes_to(NEW);
    world.until("on the new image", |world| world.up_to_date() == "AwaitsCommit").await;
    world.goes_to(FORMER);
    world.until("back", World::is_current).await;
    world.all_run(FORMER, "it went back");
    assert_eq!(world.place.vms().into_keys().collect::<Vec<_>>(), NODES);
    assert_eq!(world.outcome().as_deref(), Some("rolled back"));
    // Named again it is another upgrade.
    world.goes_to(NEW);
    world.until("committed", World::is_current).await;
    world.all_run(NEW, "it is committed");
    assert_eq!(world.operations().len(), 2);
    let changes = world.place.lock().changes.len();
    world.goes_to(FORMER);
    world.rests().await;
    let (status, reason, words) = world.condition("Preflight");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "ImageUnsuitable"), "{words}");
    assert!(words.contains("there is no way back"), "{words}");
    assert_eq!((world.up_to_date().as_str(), world.condition("Progressing").1.as_str()), ("ChangeBlocked", "Stuck"));
    assert!(world.is_ready(), "it serves");
    assert_eq!((world.place.lock().changes.len(), world.operations().len()), (changes, 2));
}

/// Whoever may edit a cluster can begin swaps and take them back for as long as he likes.
#[tokio::test(start_paused = true)]
async fn of_swaps_that_have_ended_the_last_ones_are_kept_and_what_is_under_way() {
    let world = World::upgradable().await;
    let mut begun = Vec::new();
    for turn in 0..13 {
        world.goes_to(NEW);
        world.until("on the new image", |world| world.up_to_date() == "AwaitsCommit").await;
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
async fn a_node_that_is_not_found_good_goes_back_and_waits_for_a_person() {
    for word in ["resume", "rollback"] {
        let world = World::upgradable().await;
        // The one that leads etcd comes last.
        world.place.lock().ill.never_good.insert("shop-cp3".to_owned());
        world.goes_to(NEW);
        world.until("failed", |world| world.up_to_date() == "ChangeFailed").await;
        let (_, _, words) = world.condition("UpToDate");
        assert!(words.contains("shop-cp3") && words.contains("kaas.local/do"), "{words}");
        assert_eq!(world.reason_of_operation("Progressing"), "Blocked");
        assert_eq!(world.condition("ControlPlaneReady").1, "AllReady", "the others stay where they are");
        let changes = world.place.lock().changes.len();
        world.rests().await;
        assert_eq!(world.place.lock().changes.len(), changes, "nobody tries again");
        // A host fails meanwhile: of one that runs the new image, and of the one that is back.
        for vm in [new_vms("0b")[1].clone(), NODES[2].to_owned()] {
            world.place.change(&vm, |vm| vm.power = PowerState::Off);
            world.until("all are on", World::are_on).await;
            world.rests().await;
            assert_eq!(world.condition("ControlPlaneReady").1, "AllReady", "{vm}");
            assert_eq!(world.up_to_date(), "ChangeFailed", "{vm}: it waits as before");
        }
        world.place.lock().ill.never_good.clear();
        world.asks(word);
        if word == "resume" {
            world.until("committed", World::is_current).await;
            world.all_run(NEW, "it was mended");
        } else {
            world.until("back", |world| world.outcome().is_some()).await;
            world.rests().await;
            world.all_run(FORMER, "it was taken back");
            assert_eq!(world.up_to_date(), "ChangeFailed", "the image is still named");
            world.goes_to(FORMER);
            world.until("as it is to be", World::is_current).await;
        }
        assert_eq!(world.operations().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_that_went_back_as_a_whole_is_tried_again_by_a_persons_word_alone() {
    let world = World::upgradable().await;
    world.place.lock().ill.never_good.extend(NODES.map(str::to_owned));
    world.goes_to(NEW);
    world.until("failed", |world| world.up_to_date() == "ChangeFailed").await;
    world.all_run(FORMER, "it went back");
    world.rests().await;
    assert_eq!((world.operations().len(), world.up_to_date().as_str()), (1, "ChangeFailed"));
    assert_eq!(world.reason_of_operation("Succeeded"), "RolledBack");
    world.place.lock().ill.never_good.clear();
    world.asks("resume");
    world.until("committed", World::is_current).await;
    world.all_run(NEW, "it was tried again");
    let operations = world.operations();
    assert_eq!(operations.len(), 2);
    let asked = operations.iter().filter_map(|it| it.metadata.annotations.as_ref()).any(|it| !it.is_empty());
    assert!(!asked, "what was asked is noted");
}

#[tokio::test(start_paused = true)]
async fn what_is_abandoned_stays_where_it_stands_and_is_taken_for_what_it_is_when_it_is_asked_for_again() {
    let world = World::upgradable().await;
    world.goes_to(NEW);
    world.until("on the new image", |world| world.up_to_date() == "AwaitsCommit").await;
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

/// An abandoned swap is final where a node was found good on the new image: the former one does not become true by being named.
#[tokio::test(start_paused = true)]
async fn the_former_image_named_after_an_abandoned_upgrade_is_not_current_while_nodes_run_the_new_one() {
    let world = World::upgradable().await;
    world.goes_to(NEW);
    world.until("on the new image", |world| world.up_to_date() == "AwaitsCommit").await;
    world.asks("abandon");
    world.until("abandoned", |world| world.outcome().is_some()).await;
    world.goes_to(FORMER);
    world.rests().await;
    let (_, reason, words) = world.condition("UpToDate");
    assert!(reason == "ChangeBlocked" && words.contains("upgrade.downgrade"), "{reason}: {words}");
    assert_eq!(world.status()["controlPlane"]["updated"], 0);
    world.goes_to(NEW);
    world.until("taken for what it is", World::is_current).await;
    world.rests().await;
    assert!(world.is_current() && world.status()["resolved"]["image"] == NEW, "and stays so");
}

#[tokio::test(start_paused = true)]
async fn a_word_in_the_middle_of_an_upgrade_is_heard_at_once() {
    let world = World::upgradable().await;
    world.goes_to(NEW);
    let asked = async {
        while !world.place.lock().changes.contains(&"attach") {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
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

/// What is asked of an Operation that is over ends no other one.
#[tokio::test(start_paused = true)]
async fn a_word_to_an_operation_that_is_not_the_last_one_is_answered_and_changes_nothing() {
    let world = World::upgradable().await;
    world.place.lock().ill.never_good.extend(NODES.map(str::to_owned));
    world.goes_to(NEW);
    world.until("failed", |world| world.up_to_date() == "ChangeFailed").await;
    let first = world.operations().remove(0).metadata.name.unwrap();
    world.place.lock().ill.never_good.clear();
    world.asks("resume");
    let later = async {
        while world.operations().len() < 2 {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        // Once the word is taken away that it was begun by.
        tokio::time::sleep(Duration::from_secs(15)).await;
        let mut operation: Operation = world.api.read(Some("team-blue"), &first).unwrap();
        operation.metadata.annotations.get_or_insert_default().insert(DO.to_owned(), "rollback".to_owned());
        world.api.put(&operation);
    };
    let (done, ()) = tokio::join!(world.reconcile(), later);
    done.unwrap();
    world.until("committed", World::is_current).await;
    world.all_run(NEW, "it was not disturbed");
    world.rests().await;
    let operation: Operation = world.api.read(Some("team-blue"), &first).unwrap();
    assert!(operation.metadata.annotations.is_none_or(|it| it.is_empty()), "it is answered");
}

#[tokio::test(start_paused = true)]
async fn a_term_that_ends_in_an_upgrade_stops_it_and_another_controller_goes_on() {
    let mut world = World::upgradable().await;
    world.goes_to(NEW);
    let term = world.term.clone();
    let ends = async {
        while !world.place.lock().changes.contains(&"detach") {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        term.end();
    };
    let (done, ()) = tokio::join!(world.reconcile(), ends);
    assert!(matches!(done, Err(crate::context::Trouble::Ended(_))), "{done:?}");
    let changes = world.place.lock().changes.len();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(world.place.lock().changes.len(), changes, "nothing more is changed");
    world.term = Term::unlimited("controller two");
    world.until("committed", World::is_current).await;
    world.all_run(NEW, "another one went on");
    assert_eq!(world.operations().len(), 1);
}

/// A run that ends before it has turned the journal leaves the word to the next one.
#[tokio::test(start_paused = true)]
async fn a_way_back_that_no_run_has_noted_is_heard_by_the_next_one() {
    let mut world = World::upgradable().await;
    world.goes_to(NEW);
    let term = world.term.clone();
    let ends = async {
        while !world.place.lock().changes.contains(&"detach") {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        term.end();
    };
    let (done, ()) = tokio::join!(world.reconcile(), ends);
    assert!(done.is_err(), "{done:?}");
    // The hold of the one before is waited for, and meanwhile somebody wants something else.
    world.term = Term::unlimited("controller two");
    world.asks("rollback");
    let edits = async {
        tokio::time::sleep(Duration::from_secs(6)).await;
        world.edit(|spec| spec.upgrade.gate_seconds += 1);
    };
    let (_, ()) = tokio::join!(world.reconcile(), edits);
    world.until("ended", |world| world.outcome().is_some()).await;
    assert_eq!(world.outcome().as_deref(), Some("rolled back"));
    world.rests().await;
    world.all_run(FORMER, "it was taken back");
    assert!(world.operations()[0].metadata.annotations.as_ref().is_none_or(|it| it.is_empty()), "it is noted");
}

/// Wherever a swap fails that is tried again by a person's word, before it has an Operation of its own.
#[tokio::test(start_paused = true)]
async fn a_swap_that_is_asked_for_again_is_begun_whatever_is_in_the_way_for_a_moment() {
    // It is judged, and planned before and under the hold.
    for call in 0..3 {
        let world = World::upgradable().await;
        world.place.lock().ill.never_good.extend(NODES.map(str::to_owned));
        world.goes_to(NEW);
        world.until("failed", |world| world.up_to_date() == "ChangeFailed").await;
        let told = world.operations()[0].status.clone().unwrap().conditions;
        {
            let mut state = world.place.lock();
            state.ill.never_good.clear();
            state.ill.silent_after = Some(call);
        }
        world.asks("resume");
        world.until(&format!("committed: {call}"), World::is_current).await;
        world.all_run(NEW, &format!("it was tried again: {call}"));
        assert_eq!((world.operations().len(), world.place.lock().ill.silent_after), (2, None), "{call}");
        let first = world.operations().remove(1);
        assert!(first.metadata.annotations.as_ref().is_none_or(|it| it.is_empty()), "{call}: it is noted");
        assert_eq!(first.status.unwrap().conditions, told, "{call}: what has ended says nothing else");
    }
}

/// Pods that do not move away are waited for; whoever does not want to wait goes back.
#[tokio::test(start_paused = true)]
async fn a_step_that_cannot_be_taken_waits_says_why_and_goes_on_or_back() {
    let world = World::upgradable().await;
    world.place.lock().ill.undrained.insert("shop-cp3".to_owned());
    world.goes_to(NEW);
    world
        .until("waiting", |world| {
            !world.operations().is_empty() && world.reason_of_operation("Progressing") == "Waiting"
        })
        .await;
    let status = world.operations().remove(0).status.unwrap();
    assert_eq!(status.step.as_deref(), Some("prepare shop-cp3"));
    assert!(status.conditions.iter().any(|it| it.message.contains("drain.blocked")), "{:?}", status.conditions);
    assert!(world.is_ready(), "the cluster serves");
    world.asks("rollback");
    world.until("back", |world| world.outcome().is_some()).await;
    world.all_run(FORMER, "it went back");
}

#[tokio::test(start_paused = true)]
async fn what_is_in_the_way_is_said_before_anything_moves() {
    type Change<'a> = &'a dyn Fn(&World);
    let put = |world: &World, change: &dyn Fn(&mut NodeImage)| {
        let mut image = image(NEW, "0.3.0", "0b", &["1.36"]);
        change(&mut image);
        world.api.put(&image);
    };
    let status = |world: &World, change: &dyn Fn(&mut crate::objects::NodeImageStatus)| {
        put(world, &|image| change(image.status.as_mut().unwrap()));
    };
    let cases: [(&str, &str, Change<'_>); 7] = [
        ("ReferenceMissing", "there is no NodeImage", &|world| world.api.remove::<NodeImage>(None, NEW)),
        ("ImageUnsuitable", "has expired", &|world| status(world, &|it| it.phase = Some(LifecyclePhase::Expired))),
        ("ImageUnsuitable", "may take the place of", &|world| {
            status(world, &|it| it.upgrades_from = Some(">=0.2.5".to_owned()));
        }),
        ("ImageUnsuitable", "carries Kubernetes 1.37", &|world| {
            status(world, &|it| it.kubernetes = vec!["1.37".to_owned()]);
        }),
        ("NotKnown", "which build", &|world| status(world, &|it| it.build = None)),
        // What nodes and VMs say, and nobody else.
        ("ImageUnsuitable", "etcd", &|world| status(world, &|it| it.etcd = Some("3.7".to_owned()))),
        ("ControlNodesUnfit", "snapshot", &|world| {
            world.place.change("shop-cp2", |vm| vm.snapshots.push("by a backup".to_owned()));
        }),
    ];
    for (reason, part, change) in cases {
        let world = World::upgradable().await;
        change(&world);
        let changes = world.place.lock().changes.len();
        world.goes_to(NEW);
        world.rests().await;
        let (_, because, words) = world.condition("Preflight");
        assert!(because == reason && words.contains(part), "{reason}: {because} {words}");
        assert_eq!((world.up_to_date().as_str(), world.is_ready()), ("ChangeBlocked", true), "{reason}");
        assert_eq!((world.place.lock().changes.len(), world.operations().len()), (changes, 0), "{reason}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_paused_is_planned_and_not_begun_and_stops_where_no_node_is_away() {
    let world = World::upgradable().await;
    let changes = world.place.lock().changes.len();
    world.edit(|spec| {
        spec.paused = true;
        spec.image = Some(NEW.to_owned());
    });
    world.rests().await;
    let operation = world.operations().remove(0);
    assert!(operation.spec.steps.len() > 20 && operation.spec.plan.is_some(), "it can be read");
    assert_eq!((world.place.lock().changes.len(), world.condition("Progressing").1.as_str()), (changes, "Paused"));
    assert_eq!(world.reason_of_operation("Progressing"), "Paused");
    // Whoever unpauses it later wants it to go on.
    world.asks("rollback");
    world
        .until("answered", |world| world.operations()[0].metadata.annotations.as_ref().is_none_or(|it| it.is_empty()))
        .await;
    assert_eq!((world.reason_of_operation("Progressing").as_str(), world.outcome()), ("NotToBeHad", None));
    world.edit(|spec| spec.paused = false);
    let paused = async {
        while !world.place.lock().changes.contains(&"detach") {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        world.edit(|spec| spec.paused = true);
    };
    let (done, ()) = tokio::join!(world.reconcile(), paused);
    done.unwrap();
    world.rests().await;
    assert_eq!(world.condition("ControlPlaneReady").1, "AllReady");
    let attached = world.place.lock().changes.iter().filter(|it| **it == "attach").count();
    assert!((1..3).contains(&attached), "{attached} nodes were swapped");
    assert_eq!(world.operations().len(), 1);
    world.edit(|spec| spec.paused = false);
    world.until("committed", World::is_current).await;
    world.all_run(NEW, "it went on");
}

/// Who has read the plan and corrected it gets what he has named, and no node has moved before.
#[tokio::test(start_paused = true)]
async fn a_plan_that_is_corrected_while_it_is_paused_is_not_carried_out() {
    const OTHER: &str = "kaas-tenant-0.4.0";
    for wanted in [Some(OTHER), None] {
        let world = World::upgradable().await;
        world.api.put(&image(OTHER, "0.4.0", "0c", &["1.36"]));
        world.edit(|spec| {
            spec.paused = true;
            spec.image = Some(NEW.to_owned());
        });
        world.rests().await;
        let read = world.operations().remove(0);
        assert_eq!(read.spec.to_image.as_deref(), Some(NEW));
        let changes = world.place.lock().changes.len();
        world.edit(|spec| spec.image = wanted.map(str::to_owned));
        world.edit(|spec| spec.paused = false);
        if wanted.is_none() {
            world.until("as it was", World::is_current).await;
            world.rests().await;
            world.all_run(FORMER, "it is named no more");
            assert_eq!((world.place.lock().changes.len(), world.operations().len()), (changes, 1));
            assert_eq!(world.outcome().as_deref(), Some("rolled back"));
            continue;
        }
        world.until("planned anew", |world| world.operations().len() == 2).await;
        assert_eq!(world.operations().remove(0).spec.to_image.as_deref(), Some(OTHER));
        let first: Operation = world.api.read(Some("team-blue"), &read.metadata.name.clone().unwrap()).unwrap();
        assert_eq!(first.status.unwrap().outcome.as_deref(), Some("rolled back"));
        world.until("committed", |world| world.status()["resolved"]["image"] == OTHER).await;
        let of_new = world.place.lock().images.values().filter(|digest| digest.starts_with("0b")).count();
        assert_eq!(of_new, 0, "no VM was ever made of the image that was corrected");
    }
}

/// What was named in the middle follows, and the one before it is no person's wish any more.
#[tokio::test(start_paused = true)]
async fn an_image_that_is_named_no_more_is_committed_by_a_persons_word_alone() {
    let world = World::upgradable().await;
    world.goes_to(NEW);
    world.until("on the new image", |world| world.up_to_date() == "AwaitsCommit").await;
    world.goes_to("kaas-tenant-0.3.1");
    world.rests().await;
    assert_eq!((world.up_to_date().as_str(), world.place.vms().len()), ("AwaitsCommit", 6));
    assert!(world.condition("UpToDate").2.contains("kaas-tenant-0.3.1"), "{:?}", world.condition("UpToDate"));
    world.asks("commit");
    world.until("committed", |world| world.outcome().as_deref() == Some("committed")).await;
}

/// Another version of the controller may lead for a while, and go again: nothing is begun by it, or left to it with a node away.
#[tokio::test(start_paused = true)]
async fn while_the_control_cluster_is_upgraded_upgrades_of_tenants_rest_and_go_on_afterwards() {
    let mut world = World::upgradable().await;
    world.is_marked = false;
    world.goes_to(NEW);
    world.rests().await;
    assert_eq!((world.operations().len(), world.up_to_date().as_str()), (0, "Changing"));
    assert!(world.condition("UpToDate").2.contains("control cluster"), "{:?}", world.condition("UpToDate"));
    world.is_marked = true;
    // A control node of the control cluster is drained to be swapped, while a tenant's node is away.
    let cordoned = |unschedulable: bool| {
        let mut node = Node::default();
        node.metadata.name = Some("control-cp1".to_owned());
        let label = "node-role.kubernetes.io/control-plane".to_owned();
        node.metadata.labels = Some([(label, String::new())].into());
        node.spec = Some(NodeSpec { unschedulable: Some(unschedulable), ..NodeSpec::default() });
        world.api.put(&node);
    };
    let drained = async {
        while !world.place.lock().changes.contains(&"detach") {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        cordoned(true);
    };
    let (done, ()) = tokio::join!(world.reconcile(), drained);
    done.unwrap();
    world.rests().await;
    assert_eq!(world.condition("ControlPlaneReady").1, "AllReady", "no node is away");
    let attached = || world.place.lock().changes.iter().filter(|it| **it == "attach").count();
    assert!((1..3).contains(&attached()), "{} nodes were swapped", attached());
    assert_eq!(world.reason_of_operation("Progressing"), "ControlClusterChanges");
    let entries = world.operations()[0].status.clone().unwrap().entries.len();
    world.rests().await;
    assert_eq!(world.operations()[0].status.clone().unwrap().entries.len(), entries, "nothing is noted meanwhile");
    cordoned(false);
    world.until("committed", World::is_current).await;
    world.all_run(NEW, "it went on");
    assert_eq!(world.operations().len(), 1);
}

/// A control node of the control cluster may be lost, or its commit be days away.
#[tokio::test(start_paused = true)]
async fn a_failed_upgrade_is_taken_back_beside_a_change_of_the_control_cluster() {
    let mut world = World::upgradable().await;
    world.place.lock().ill.never_good.insert("shop-cp3".to_owned());
    world.goes_to(NEW);
    world.until("failed", |world| world.up_to_date() == "ChangeFailed").await;
    world.is_marked = false;
    world.asks("rollback");
    world.until("back", |world| world.outcome().is_some()).await;
    world.rests().await;
    world.all_run(FORMER, "it was taken back");
    assert_eq!((world.outcome().as_deref(), world.operations().len()), (Some("rolled back"), 1));
    assert!(world.operations()[0].metadata.annotations.as_ref().is_none_or(|it| it.is_empty()), "it is noted");
}

/// A guest that was asked to shut down goes off by itself, and nobody but the upgrade powers its node on.
#[tokio::test(start_paused = true)]
async fn a_node_that_was_being_shut_down_when_its_controller_died_is_not_off_while_the_upgrade_rests() {
    for is_paused in [true, false] {
        let mut world = World::upgradable().await;
        world.place.lock().is_slow = true;
        world.goes_to(NEW);
        let dies = async {
            loop {
                match world.shuts_down() {
                    Some(vm) => break vm,
                    None => tokio::time::sleep(Duration::from_millis(200)).await,
                }
            }
        };
        let goes = async {
            for _ in 0..120 {
                let _ = world.reconcile().await;
                tokio::time::sleep(Duration::from_secs(15)).await;
            }
        };
        let vm = tokio::select! {
            biased;
            vm = dies => vm,
            () = goes => panic!("no node was ever shut down"),
        };
        world.place.lock().is_slow = false;
        world.place.change(&vm, |vm| vm.power = PowerState::Off);
        if is_paused {
            world.edit(|spec| spec.paused = true);
        } else {
            world.is_marked = false;
        }
        world.term = Term::unlimited("controller two");
        world.rests().await;
        assert_eq!(world.condition("ControlPlaneReady").1, "AllReady", "paused: {is_paused}");
        let attached = world.place.lock().changes.iter().filter(|it| **it == "attach").count();
        assert_eq!(attached, 1, "no other node was begun: paused: {is_paused}");
        if is_paused {
            world.edit(|spec| spec.paused = false);
        } else {
            world.is_marked = true;
        }
        world.until("committed", World::is_current).await;
        world.all_run(NEW, "it went on");
    }
}

#[tokio::test(start_paused = true)]
async fn what_nobody_asked_for_waits_for_the_window() {
    let world = World::upgradable().await;
    // The clock of tests begins at midnight of a Friday.
    world.edit(|spec| {
        spec.image = None;
        spec.maintenance.auto_update = true;
        spec.maintenance.window = Some("Sat 00:00-03:00".to_owned());
    });
    world.rests().await;
    assert_eq!((world.up_to_date().as_str(), world.operations().len()), ("AwaitsWindow", 0));
    assert!(world.condition("UpToDate").2.contains(NEW), "{:?}", world.condition("UpToDate"));
    tokio::time::sleep(Duration::from_secs(24 * 3600)).await;
    world.until("committed", World::is_current).await;
    world.all_run(NEW, "the window is open");
}

#[tokio::test(start_paused = true)]
async fn the_next_minor_of_kubernetes_follows_the_commit_and_what_gives_up_waits_for_a_person() {
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
    assert_eq!(raise(&world).spec.kind, OperationKind::RaiseKubernetes);
    let entries = raise(&world).status.unwrap().entries;
    let [snapshot] = &entries[..] else { panic!("{entries:?}") };
    let place = snapshot.more["note"].as_str().unwrap();
    assert!(place.starts_with("before-kubernetes-1.37.db"), "it says where the snapshot is: {place}");
    assert_eq!(world.status()["operation"], "shop-kubernetes-1-37");
    assert!(world.condition("UpToDate").2.contains("draining it took too long"), "{:?}", world.condition("UpToDate"));
    world.rests().await;
    assert_eq!(world.up_to_date(), "ChangeFailed");
    // Nobody takes a node back.
    world.edit(|spec| spec.version = "1.36".to_owned());
    world.rests().await;
    assert_eq!(
        (world.up_to_date().as_str(), world.condition("Preflight").1.as_str()),
        ("ChangeBlocked", "NotSupported")
    );
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

/// Whoever may say a word to an Operation may write its labels, by mistake too.
#[tokio::test(start_paused = true)]
async fn an_operation_whose_labels_are_taken_off_is_its_clusters_nonetheless() {
    let world = World::upgradable().await;
    world.goes_to(NEW);
    world.until("on the new image", |world| world.up_to_date() == "AwaitsCommit").await;
    let mut operation = world.operations().remove(0);
    operation.metadata.labels = None;
    world.api.put(&operation);
    world.until("committed", World::is_current).await;
    world.all_run(NEW, "it is committed");
    assert_eq!((world.outcome().as_deref(), world.operations().len()), (Some("committed"), 1));
    world.delete();
    world.until("gone", World::is_gone).await;
    world.is_clean("nothing is left of it");
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_somebody_else_keeps_is_waited_for_and_asked_once() {
    let world = World::upgradable().await;
    world.goes_to(NEW);
    world.until("committed", World::is_current).await;
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
    world.until("gone", World::is_gone).await;
    world.is_clean("nobody keeps anything");
}

/// The API is its tenant's, and so is what it lists.
#[tokio::test(start_paused = true)]
async fn a_control_node_that_the_api_makes_up_is_asked_nothing() {
    let (stranger, moved) = (Ipv4Addr::new(10, 0, 0, 5), Ipv4Addr::new(192, 168, 10, 1));
    for listed in [("shop-cp4", stranger), ("shop-cp1", moved)] {
        let world = World::upgradable().await;
        world.place.lock().strangers.push((listed.0.to_owned(), listed.1));
        world.goes_to(NEW);
        world.rests().await;
        let (_, reason, words) = world.condition("Preflight");
        assert!(reason == "NotKnown" && words.contains("not made for it"), "{reason} {words}");
        assert!(!words.contains(&listed.1.to_string()), "{words}");
        assert!(!world.place.lock().asked.contains(&listed.1) && world.operations().is_empty());
        world.place.lock().strangers.clear();
        world.until("committed", World::is_current).await;
    }
}

/// Who is asked may take as long as he likes.
#[tokio::test(start_paused = true)]
async fn a_look_before_a_change_that_comes_to_no_end_heeds_whoever_wants_something_else_and_ends_by_itself() {
    let mut world = World::upgradable().await;
    world.place.lock().are_mute = true;
    world.goes_to(NEW);
    let look = tokio::time::timeout(Duration::from_secs(400), world.reconcile()).await;
    look.expect("it has an end").unwrap();
    let (_, reason, words) = world.condition("Preflight");
    assert!(reason == "NotKnown" && words.contains("within 300 s"), "{reason} {words}");
    let begun = tokio::time::Instant::now();
    let closed = async {
        tokio::time::sleep(Duration::from_secs(30)).await;
        world.term.close();
    };
    let (done, ()) = tokio::join!(world.reconcile(), closed);
    done.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
    world.term = Term::unlimited("controller two");
    let deleted = async {
        tokio::time::sleep(Duration::from_secs(30)).await;
        world.delete();
    };
    let (_, ()) = tokio::join!(tokio::time::timeout(Duration::from_secs(200), world.reconcile()), deleted);
    world.until("gone", World::is_gone).await;
    world.is_clean("it was deleted while it was looked at");
    assert!(begun.elapsed() < Duration::from_secs(400), "{:?}", begun.elapsed());
}

/// A control node is its tenant's: nobody is asked where it says.
#[tokio::test(start_paused = true)]
async fn a_kubeconfig_that_a_node_gives_and_that_leads_elsewhere_is_gone_by_nowhere() {
    for server in ["https://127.0.0.1:10259", "https://10.0.0.5:6443", "https://192.168.10.20:2379"] {
        let world = World::upgradable().await;
        world.goes_to(NEW);
        world.until("on the new image", |world| world.up_to_date() == "AwaitsCommit").await;
        {
            let mut state = world.place.lock();
            state.elsewhere = Some(server);
            state.asked_by.clear();
        }
        world.api.remove::<Secret>(Some("team-blue"), "shop-kubeconfig");
        world.asks("rollback");
        for _ in 0..10 {
            let _ = world.reconcile().await;
            tokio::time::sleep(Duration::from_secs(15)).await;
        }
        assert!(world.place.lock().asked_by.is_empty(), "{:?}", world.place.lock().asked_by);
        let said = format!("{:#} {:?}", world.api.object("tenantclusters"), world.operations());
        assert!(!said.contains(&server["https://".len()..]), "{said}");
        world.place.lock().elsewhere = None;
        world.until("gone on with", |world| world.outcome().is_some()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_deleted_in_the_middle_of_an_upgrade_leaves_nothing() {
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
        world.until("gone", World::is_gone).await;
        world.is_clean(&format!("it was deleted at {at}"));
        assert!(world.place.lock().snapshots.is_empty());
    }
}

/// From an image in the spec to its commit.
async fn story(world: &World, what: &str) {
    world.goes_to(NEW);
    world.until(&format!("upgraded: {what}"), World::is_current).await;
    world.all_run(NEW, what);
    assert_eq!(world.operations().len(), 1, "{what}");
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_of_the_api_server_or_the_vcenter_changes_nothing_of_an_upgrade_in_the_end() {
    let (calls, before, changes) = {
        let world = World::upgradable().await;
        let (calls, before) = (world.api.calls(), world.place.lock().changes.len());
        story(&world, "nothing goes wrong").await;
        let after = world.place.lock().changes.len();
        (world.api.calls() - calls, before, after)
    };
    assert!(calls > 500 && changes > before + 20, "{calls} {before} {changes}");
    let of_call = |call: usize| [Fault::NotDone, Fault::Done, Fault::Changed].map(|fault| (call, fault));
    let points: Vec<_> = (0..calls).flat_map(of_call).collect();
    for (call, fault) in drawn_seldom("answers of the API server in an upgrade", points) {
        let world = World::upgradable().await;
        world.api.fails_at(call, fault);
        story(&world, &format!("{fault:?} at call {call}")).await;
    }
    for call in before..changes {
        for fault in [place::Fault::Fails, place::Fault::Lost] {
            let world = World::upgradable().await;
            world.place.lock().fault = Some((call, fault));
            story(&world, &format!("{fault:?} at change {call}")).await;
        }
    }
}

/// Reconciles by a controller that may die, until it has, or something is so.
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

/// A controller dies at drawn calls of what a world is prepared for: another one brings it to its end, at which all is whole.
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
    // Where calls come in another order the last ones may not be reached.
    assert!(died * 2 >= all, "{died} of {all} controllers died on the way to {way}");
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_dies_in_an_upgrade_or_on_its_way_back_is_followed_by_one_that_goes_on() {
    for to in [NEW, FORMER] {
        let prepared = async || {
            let world = World::upgradable().await;
            world.goes_to(NEW);
            if to == FORMER {
                world.until("on the new image", |world| world.up_to_date() == "AwaitsCommit").await;
                world.goes_to(FORMER);
            }
            world
        };
        whichever_call_a_controller_dies_at(to, prepared, |world, what| world.all_run(to, what)).await;
    }
}
