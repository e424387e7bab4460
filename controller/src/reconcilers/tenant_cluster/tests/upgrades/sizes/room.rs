//! The room for sizes, and which cluster gets it.

use uuid::Uuid;

use super::*;
use crate::objects::{Limits, Provider, Reference};

impl World {
    fn limited(&self, processors: Option<u32>) {
        let mut provider: Provider = self.api.read(None, "dc1").unwrap();
        provider.spec.limits = processors.map(|_| Limits { nodes: None, processors, memory_mib: None });
        self.api.put(&provider);
    }

    /// A class is named while the cluster is paused, and too little room is left when it resumes.
    async fn has_a_plan_that_waits_for_room(&self) {
        self.limited(Some(12));
        self.edit(|spec| {
            spec.paused = true;
            spec.control_plane.vm_class = "large".to_owned();
        });
        self.rests().await;
        self.limited(Some(11));
        self.edit(|spec| spec.paused = false);
        self.rests().await;
    }

    fn notes_size(&self, mut machine: Machine, (processors, memory): (u32, u32)) {
        (machine.spec.processors, machine.spec.memory_mib) = (processors, memory);
        self.api.put(&machine);
    }

    /// Records a size in the Machines of a later cluster's control-plane nodes.
    fn later_one_notes(&self, size: (u32, u32)) {
        for (number, mut machine) in (1_u128..).zip(self.machines()) {
            machine.metadata.name = Some(format!("zoo-cp{number}"));
            machine.metadata.uid = Some(Uuid::from_u128(number).to_string());
            machine.metadata.owner_references = None;
            machine.spec.cluster_ref = Reference::to("zoo");
            self.notes_size(machine, size);
        }
    }

    /// A later cluster exists, and both have recorded a larger size: there is room for one of them.
    fn both_grow(&self) {
        let mut other: TenantCluster = serde_json::from_value(self.api.object("tenantclusters")).unwrap();
        (other.metadata.name, other.metadata.uid) = (Some("zoo".to_owned()), Some(Uuid::max().to_string()));
        self.api.put(&other);
        for machine in self.machines() {
            self.notes_size(machine, LARGE);
        }
        self.later_one_notes(LARGE);
        self.limited(Some(18));
    }

    /// One reconcile, in which the later cluster gives its room back, or does not.
    async fn waits_for_its_turn(&self, gives_back: bool) {
        let later = async {
            tokio::time::sleep(Duration::from_secs(3)).await;
            assert_eq!(self.held(), LARGE, "it waits for its turn");
            if gives_back {
                self.later_one_notes(SMALL);
            }
        };
        let (done, ()) = tokio::join!(self.reconcile(), later);
        done.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_size_without_room_is_rejected_first() {
    let world = World::resizable().await;
    // Room for the existing nodes, and one larger node.
    world.limited(Some(11));
    let changes = world.place.lock().changes.len();
    world.names_class("large");
    world.rests().await;
    world.says("Preflight", "CapacityMissing", "0 are taken, and 12 wanted");
    assert_eq!((world.up_to_date().as_str(), world.held()), ("ChangeBlocked", SMALL));
    assert_eq!((world.place.lock().changes.len(), world.operations().len()), (changes, 0));
    assert!(world.is_ready(), "it serves");
    // An image with the same size needs no further room, whatever the limits are.
    world.limited(Some(1));
    world.names_both("small", NEW);
    world.until_all_have(NEW, SMALL, "what is there is replaced").await;
    world.limited(Some(12));
    world.names_class("large");
    world.until_all_have(NEW, LARGE, "there is room").await;
}

/// A paused cluster takes no room from clusters that are about to begin.
#[tokio::test(start_paused = true)]
async fn a_paused_cluster_takes_no_room() {
    let world = World::resizable().await;
    world.limited(Some(12));
    world.edit(|spec| {
        spec.paused = true;
        spec.control_plane.vm_class = "large".to_owned();
    });
    world.rests().await;
    assert_eq!((world.operations().len(), world.held()), (1, SMALL), "it is planned");
    // Another cluster has taken a part of it.
    world.limited(Some(11));
    world.edit(|spec| spec.paused = false);
    world.rests().await;
    assert_eq!(world.condition("Preflight").1, "CapacityMissing");
    assert_eq!((world.reason_of_operation("Progressing").as_str(), world.outcome()), ("Waiting", None));
    assert_eq!((world.held(), world.place.vms().len()), (SMALL, 3));
    world.limited(Some(12));
    world.until_all_have(FORMER, LARGE, "there is room").await;
    assert_eq!(world.operations().len(), 1, "by the plan that was read");
}

/// Each has recorded its size before the look, and none has begun.
#[tokio::test(start_paused = true)]
async fn the_older_growing_cluster_keeps_its_room() {
    for gives_back in [true, false] {
        let world = World::resizable().await;
        world.both_grow();
        world.names_class("large");
        world.waits_for_its_turn(gives_back).await;
        if gives_back {
            world.until_all_have(FORMER, LARGE, "it came first").await;
        } else {
            assert_eq!((world.held(), world.condition("Preflight").1.as_str()), (SMALL, "CapacityMissing"));
        }
    }
}

/// Its image needs no room, and it is not planned again for the size before its turn.
#[tokio::test(start_paused = true)]
async fn an_older_clusters_plan_keeps_its_room() {
    for gives_back in [true, false] {
        let world = World::resizable().await;
        world.edit(|spec| {
            spec.paused = true;
            spec.control_plane.vm_class = "large".to_owned();
            spec.image = Some(NEW.to_owned());
        });
        world.rests().await;
        assert_eq!((world.operations().len(), world.held()), (1, SMALL), "it is planned");
        world.both_grow();
        world.edit(|spec| spec.paused = false);
        world.waits_for_its_turn(gives_back).await;
        if gives_back {
            world.until_all_have(NEW, LARGE, "it came first").await;
            assert_eq!(world.operations().len(), 1, "by the plan that was read");
        } else {
            assert_eq!(world.held(), SMALL);
        }
    }
}

/// There may be no room for weeks.
#[tokio::test(start_paused = true)]
async fn nodes_are_maintained_while_a_plan_waits() {
    let world = World::resizable().await;
    world.has_a_plan_that_waits_for_room().await;
    let waits = |world: &World| world.reason_of_operation("Progressing") == "Waiting" && world.outcome().is_none();
    assert!(waits(&world), "{:?}", world.operations());
    world.place.change("shop-cp2", |vm| vm.power = PowerState::Off);
    world.until("all are on", World::are_on).await;
    world.rests().await;
    assert!(waits(&world) && world.held() == SMALL, "{:?}", world.operations());
    world.place.lose("shop-cp3");
    world.until("said", |world| world.condition("Progressing").1 == "Blocked").await;
    assert!(world.condition("Progressing").2.contains("shop-cp3"), "{:?}", world.condition("Progressing"));
    assert_eq!((waits(&world), world.condition("Preflight").1.as_str()), (true, "CapacityMissing"));
}

/// A missing size blocks nothing else.
#[tokio::test(start_paused = true)]
async fn images_and_versions_do_not_await_room() {
    let world = World::resizable().await;
    world.limited(Some(11));
    world.names_both("large", NEW);
    world.until("on the new image", |world| world.up_to_date() == "AwaitingCommit").await;
    let (_, _, words) = world.condition("UpToDate");
    assert!(words.contains("waits: clusters of the Provider dc1 may have 11 processors"), "{words}");
    assert_eq!(world.held(), SMALL, "there is no room for more");
    world.until("committed", |world| world.up_to_date() == "ChangeBlocked").await;
    world.all_have(NEW, SMALL, "it is committed");
    assert_eq!(world.condition("Preflight").1, "CapacityMissing");
    world.edit(|spec| spec.version = "1.37".to_owned());
    world.until("raised", |world| world.machines().iter().all(|machine| machine.spec.kubernetes == "1.37")).await;
    assert_eq!(world.held(), SMALL);
    world.limited(None);
    world.until_all_have(NEW, LARGE, "there is room").await;
}

/// It waits for room by itself, and blocks nothing else.
#[tokio::test(start_paused = true)]
async fn a_waiting_plan_gives_way_to_kubernetes() {
    let world = World::resizable().await;
    world.goes_to(NEW);
    world.until("upgraded", World::is_current).await;
    world.has_a_plan_that_waits_for_room().await;
    assert_eq!((world.reason_of_operation("Progressing").as_str(), world.outcome()), ("Waiting", None));
    world.edit(|spec| spec.version = "1.37".to_owned());
    world.until("raised", |world| world.machines().iter().all(|machine| machine.spec.kubernetes == "1.37")).await;
    world.rests().await;
    assert_eq!((world.outcome().as_deref(), world.held()), (Some("rolled back"), SMALL));
    assert_eq!(world.up_to_date(), "ChangeBlocked");
    assert_eq!(world.condition("Preflight").1, "CapacityMissing");
    world.limited(None);
    world.until_all_have(NEW, LARGE, "there is room").await;
}

/// A class may be deleted and created again while a plan waits for room.
#[tokio::test(start_paused = true)]
async fn a_recreated_class_does_not_fail_a_plan() {
    let world = World::resizable().await;
    world.has_a_plan_that_waits_for_room().await;
    world.api.remove::<VMClass>(None, "large");
    world.rests().await;
    assert_eq!((world.condition("Preflight").1.as_str(), world.outcome()), ("ReferenceMissing", None));
    world.limited(Some(12));
    world.api.put(&class("large", LARGE));
    world.until_all_have(FORMER, LARGE, "it is there again").await;
    assert_eq!(world.operations().len(), 1, "by the plan that was read");
}
