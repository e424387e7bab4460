//! Other sizes of control-plane nodes, with another image and with the same one.

mod room;

use fleet::hypervisor::VmSize;
use serde_json::json;

use super::*;
use crate::objects::{ControlPlaneSize, NodePool, VMClass};

const SMALL: (u32, u32) = (2, 4096);
const LARGE: (u32, u32) = (4, 16384);

fn class(name: &str, (processors, memory): (u32, u32)) -> VMClass {
    VMClass::new(name, serde_json::from_value(json!({"processors": processors, "memoryMiB": memory})).unwrap())
}

impl World {
    /// A cluster of small control-plane nodes that serves, and classes of other sizes.
    async fn resizable() -> Self {
        let world = Self::upgradable().await;
        world.api.put(&class("small", SMALL));
        world.api.put(&class("large", LARGE));
        world
    }

    fn names_class(&self, class: &str) {
        self.edit(|spec| spec.control_plane.vm_class = class.to_owned());
    }

    async fn swaps_to_class(&self, class: &str) {
        self.names_class(class);
        self.until("in new VMs", |world| world.up_to_date() == "AwaitingCommit").await;
    }

    fn names_both(&self, class: &str, image: &str) {
        self.names_class(class);
        self.goes_to(image);
    }

    /// The size in the Machines of control-plane nodes, which is the same in all.
    fn held(&self) -> (u32, u32) {
        let sizes: Vec<_> = self.machines().iter().map(|it| (it.spec.processors, it.spec.memory_mib)).collect();
        assert!(sizes.len() == 3 && sizes.iter().all(|size| *size == sizes[0]), "{sizes:?}");
        sizes[0]
    }

    /// Reconciles until the cluster is current, and its control-plane nodes must then have this image and size.
    async fn until_all_have(&self, image: &str, size: (u32, u32), what: &str) {
        self.until(what, Self::is_current).await;
        self.all_have(image, size, what);
    }

    /// Checks that all control-plane nodes run an image in VMs of one size, and that it is pinned.
    fn all_have(&self, image: &str, size: (u32, u32), what: &str) {
        self.all_run(image, what);
        let resolved = self.status()["resolved"].clone();
        assert_eq!((&resolved["processors"], &resolved["memoryMiB"]), (&size.0.into(), &size.1.into()), "{what}");
        assert_eq!(self.held(), size, "{what}");
        let wanted = VmSize { processors: size.0, memory: size.1.into() };
        assert!(self.place.lock().vms.iter().all(|(vm, ..)| vm.size == Some(wanted)), "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn another_class_swaps_nodes_to_its_size() {
    let world = World::resizable().await;
    let before = world.place.lock().changes.len();
    world.names_class("large");
    let noted = async {
        while !world.place.lock().changes[before..].contains(&"import") {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        world.held()
    };
    // The first look records it, and the next one begins.
    world.reconcile().await.unwrap();
    let (done, held) = tokio::join!(world.reconcile(), noted);
    done.unwrap();
    assert_eq!(held, LARGE, "before the first VM");
    world.until("in large ones", |world| world.up_to_date() == "AwaitingCommit").await;
    let (_, _, words) = world.condition("UpToDate");
    assert!(words.contains("with 4 processors and 16384 MiB of memory"), "{words}");
    let spec = world.operations().remove(0).spec;
    let size = |(processors, memory_mib)| Some(ControlPlaneSize { processors, memory_mib });
    assert_eq!((spec.from_image.as_deref(), spec.to_image.as_deref()), (Some(FORMER), Some(FORMER)));
    assert_eq!((spec.from_size, spec.to_size), (size(SMALL), size(LARGE)));
    assert_eq!((world.status()["resolved"]["processors"].as_u64(), world.place.vms().len()), (Some(2), 6));
    world.until_all_have(FORMER, LARGE, "it is committed").await;
    assert!(world.operations()[0].status.as_ref().unwrap().resolved_updated);
    let changes = world.place.lock().changes.len();
    world.rests().await;
    assert_eq!((world.place.lock().changes.len(), world.operations().len()), (changes, 1), "once");
    // Smaller again, by another class.
    world.names_class("small");
    world.until("committed", |world| world.is_current() && world.operations().len() == 2).await;
    world.all_have(FORMER, SMALL, "smaller again");
}

#[tokio::test(start_paused = true)]
async fn the_former_class_rolls_back_to_kept_vms() {
    let world = World::resizable().await;
    let vms = world.place.vms();
    world.swaps_to_class("large").await;
    world.names_class("small");
    world.until_all_have(FORMER, SMALL, "it went back").await;
    assert_eq!(world.place.vms(), vms, "the very same");
    assert_eq!(world.outcome().as_deref(), Some("rolled back"));
    // An unhealthy node is rolled back too, without an automatic retry.
    world.place.lock().ill.never_good.extend(NODES.map(str::to_owned));
    world.names_class("large");
    world.until("failed", |world| world.up_to_date() == "ChangeFailed").await;
    world.rests().await;
    world.all_have(FORMER, SMALL, "it is not found good");
    assert!(world.condition("UpToDate").2.contains("another vmClass"), "{:?}", world.condition("UpToDate"));
    assert_eq!(world.operations().len(), 2);
    world.place.lock().ill.never_good.clear();
    world.asks("resume");
    world.until_all_have(FORMER, LARGE, "it was tried again").await;
}

#[tokio::test(start_paused = true)]
async fn auto_before_the_commit_rolls_back() {
    let world = World::resizable().await;
    let vms = world.place.vms();
    world.swaps_to_class("large").await;
    assert_eq!(world.operations()[0].spec.to_class.as_deref(), Some("large"));
    world.names_class("auto");
    world.until("back", World::is_current).await;
    world.rests().await;
    world.all_have(FORMER, SMALL, "it went back");
    assert_eq!((world.place.vms(), world.outcome().as_deref()), (vms, Some("rolled back")));
}

#[tokio::test(start_paused = true)]
async fn image_and_size_change_and_roll_back_together() {
    let world = World::resizable().await;
    let vms = world.place.vms();
    world.names_both("large", NEW);
    world.until("on the new image", |world| world.up_to_date() == "AwaitingCommit").await;
    assert_eq!((world.held(), world.operations().len()), (LARGE, 1));
    world.names_both("small", FORMER);
    world.until_all_have(FORMER, SMALL, "it went back").await;
    assert_eq!((world.place.vms(), world.operations().len()), (vms, 1));
    world.names_both("large", NEW);
    world.until_all_have(NEW, LARGE, "it is committed").await;
    assert_eq!(world.operations().len(), 2, "image and size are one change");
}

#[tokio::test(start_paused = true)]
async fn auto_sizes_grow_with_workers_only() {
    let world = World::resizable().await;
    let pool = |replicas: u32| {
        let spec = json!({"clusterRef": {"name": "shop"}, "vmClass": "large", "replicas": replicas});
        let mut pool = NodePool::new("shop-general", serde_json::from_value(spec).unwrap());
        pool.metadata.namespace = Some("team-blue".to_owned());
        world.api.put(&pool);
    };
    pool(30);
    world.rests().await;
    assert_eq!((world.up_to_date().as_str(), world.operations().len()), ("Current", 0), "nobody has said when");
    // The clock of tests begins at midnight of a Friday.
    world.edit(|spec| spec.maintenance.window = Some("Sat 00:00-03:00".to_owned()));
    world.rests().await;
    assert_eq!((world.up_to_date().as_str(), world.operations().len()), ("AwaitingWindow", 0));
    assert_eq!(world.held(), SMALL);
    tokio::time::sleep(Duration::from_secs(24 * 3600)).await;
    // No workers are created in this test: it is Ready without them.
    let has_changed = |world: &World| world.up_to_date() == "Current" && world.outcome().is_some();
    world.until("grown", |world| has_changed(world)).await;
    world.all_have(FORMER, LARGE, "the window was open");
    pool(1);
    world.edit(|spec| spec.image = Some(NEW.to_owned()));
    world.until("upgraded", |world| has_changed(world) && world.operations().len() == 2).await;
    world.all_have(NEW, LARGE, "it is as large as it was");
    world.edit(|spec| spec.maintenance.window = None);
    pool(200);
    world.rests().await;
    world.all_have(NEW, LARGE, "before another image");
}

#[tokio::test(start_paused = true)]
async fn missing_classes_and_other_disk_sizes_are_reported() {
    let world = World::resizable().await;
    let changes = world.place.lock().changes.len();
    world.names_class("huge");
    world.rests().await;
    world.says("Preflight", "ReferenceMissing", "VMClass huge");
    assert_eq!((world.up_to_date().as_str(), world.place.lock().changes.len()), ("ChangeBlocked", changes));
    world.names_class("medium");
    world.until("in large ones", |world| world.outcome().as_deref() == Some("committed")).await;
    world.rests().await;
    world.all_have(FORMER, LARGE, "processors and memory");
    world.says("UpToDate", "ChangeNotSupported", "32 GiB");
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_resize_leaves_no_current_size() {
    let world = World::resizable().await;
    world.swaps_to_class("large").await;
    world.asks("abandon");
    world.until("abandoned", |world| world.outcome().is_some()).await;
    world.rests().await;
    assert_eq!((world.up_to_date().as_str(), world.held()), ("ChangeFailed", LARGE));
    world.names_class("small");
    world.rests().await;
    let is_known = |world: &World| {
        world.says("UpToDate", "ChangeBlocked", "2 processors");
        assert_eq!(world.held(), LARGE, "what they have counts");
    };
    is_known(&world);
    // A rollback restores their former size, which is not the pinned one.
    world.api.put(&class("wide", (4, 8192)));
    world.swaps_to_class("wide").await;
    assert_eq!(world.held(), LARGE, "they may come back");
    world.names_class("small");
    world.until("back", |world| world.outcome().as_deref() == Some("rolled back")).await;
    world.rests().await;
    is_known(&world);
    world.names_class("large");
    world.until("taken for what it is", World::is_current).await;
    assert_eq!((world.held(), world.operations().len()), (LARGE, 2), "nothing was left to do");
    assert_eq!(world.status()["resolved"]["memoryMiB"], LARGE.1);
    world.rests().await;
    assert!(world.operations().iter().any(|it| it.status.as_ref().unwrap().resolved_updated), "that is noted");
}

/// The operator has already given its VM that size.
#[tokio::test(start_paused = true)]
async fn a_node_without_resize_is_maintained_too() {
    let world = World::resizable().await;
    world.swaps_to_class("large").await;
    world.until("committed", World::is_current).await;
    let alone = world.place.vms().into_keys().find(|name| name.starts_with("shop-cp2")).unwrap();
    let small = VmSize { processors: SMALL.0, memory: SMALL.1.into() };
    world.place.change(&alone, |vm| vm.size = Some(small));
    world.names_class("small");
    world.until("smaller", |world| world.is_current() && world.operations().len() == 2).await;
    world.all_have(FORMER, SMALL, "smaller again");
    assert!(world.place.vms().contains_key(&alone), "{:?}", world.place.vms());
    world.place.change(&alone, |vm| vm.power = PowerState::Off);
    world.until("all are on", World::are_on).await;
    world.is_deleted("it was deleted").await;
}

/// The database of the control cluster is from before the resize, and the VMs are not.
#[tokio::test(start_paused = true)]
async fn a_restored_database_does_not_undo_a_resize() {
    let mut world = World::resizable().await;
    let before = world.api.snapshot();
    world.swaps_to_class("large").await;
    world.until("committed", World::is_current).await;
    world.api.restore(before);
    world.term = Term::unlimited("controller two");
    let changes = world.place.lock().changes.len();
    world.rests().await;
    assert_eq!(world.condition("Progressing").1, "AdoptionRequired");
    assert_eq!(world.up_to_date(), "ChangeBlocked");
    assert_eq!((world.operations().len(), world.place.lock().changes.len()), (0, changes), "nothing of it is changed");
}

/// Calls fail and controllers die: in the end VMs have the declared size, and it is recorded.
#[tokio::test(start_paused = true)]
async fn faults_in_a_resize_are_harmless() {
    for to in [LARGE, SMALL] {
        let prepared = async || {
            let world = World::resizable().await;
            world.names_class("large");
            if to == SMALL {
                world.until("in large ones", |world| world.up_to_date() == "AwaitingCommit").await;
                world.names_class("small");
            }
            world
        };
        let is_whole = |world: &World, what: &str| world.all_have(FORMER, to, what);
        whichever_call_a_controller_dies_at(&format!("{to:?}"), prepared, is_whole).await;
    }
    let calls = {
        let world = World::resizable().await;
        let before = world.api.calls();
        world.names_class("large");
        world.until("committed", has_ended).await;
        world.api.calls() - before
    };
    let of_call = |call: usize| [Fault::NotDone, Fault::Done, Fault::Changed].map(|fault| (call, fault));
    let points: Vec<_> = (0..calls).flat_map(of_call).collect();
    for (call, fault) in drawn_seldom("answers of the API server in a resize", points) {
        let world = World::resizable().await;
        world.api.fails_at(call, fault);
        world.names_class("large");
        world.until(&format!("{fault:?} at call {call}"), has_ended).await;
        world.all_have(FORMER, LARGE, &format!("{fault:?} at call {call}"));
    }
}
