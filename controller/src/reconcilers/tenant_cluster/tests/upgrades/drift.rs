//! The control cluster's database is restored from an earlier snapshot, and VMs are not. No VM is deleted, powered off or made
//! twice.

mod prepared;

use fleet::hypervisor::{Placement, Vm, VmRef};
use serde_json::Value;
use uuid::Uuid;

use super::*;
use crate::objects::ADOPT;
use crate::reconcilers::points::drawn;

impl World {
    async fn restored() -> Self {
        let mut world = Self::upgradable().await;
        let before = world.api.snapshot();
        world.upgrades_to(NEW).await;
        world.turned_back(before);
        world
    }

    /// The database is as it was once, and another controller leads.
    fn turned_back(&mut self, to: Snapshot) {
        self.api.restore(to);
        self.term = Term::unlimited("controller after a restore");
    }

    /// All VMs as they are.
    fn as_they_are(&self) -> Vec<Vm> {
        self.place.lock().vms.iter().map(|(vm, ..)| vm.clone()).collect()
    }

    fn changes(&self) -> usize {
        self.place.lock().changes.len()
    }

    fn has_drifted(&self) -> bool {
        self.condition("Progressing").1 == "AdoptionRequired"
    }

    /// The operator adopts VMs as they are.
    fn adopt(&self, named: &str) {
        let mut cluster: TenantCluster = serde_json::from_value(self.api.object("tenantclusters")).unwrap();
        cluster.metadata.annotations.get_or_insert_default().insert(ADOPT.to_owned(), named.to_owned());
        self.api.put(&cluster);
    }

    /// A user of vCenter has copied a VM without its disks, and powered the copy on.
    fn has_stray(&self, of: &str) {
        let mut stray = self.as_they_are().into_iter().find(|vm| vm.name == of).unwrap();
        (stray.name, stray.disks) = ("stray".to_owned(), Vec::new());
        stray.reference = VmRef { uuid: Uuid::from_u128(0x57a7), id: "vm-stray".to_owned() };
        self.place.lock().vms.push((stray, Placement::default(), None));
    }

    fn is_asked_to_adopt(&self) -> bool {
        !self.api.object("tenantclusters")["metadata"]["annotations"][ADOPT].is_null()
    }

    /// A few looks, as far apart as a controller has them.
    async fn is_looked_at(&self) {
        for _ in 0..4 {
            let _ = self.reconcile().await;
            tokio::time::sleep(Duration::from_secs(60)).await;
        }
    }

    async fn is_not_adopted(&self, parts: [&str; 2]) -> String {
        self.adopt("shop");
        self.is_looked_at().await;
        let words = self.condition("Progressing").2;
        assert!(self.has_drifted() && parts.iter().all(|part| words.contains(part)), "{words}");
        words
    }
}

/// All objects at one moment.
type Snapshot = std::collections::BTreeMap<(String, String, String), Value>;

/// How many control-plane nodes got their disks on new VMs, by the journals in a database.
fn attached(snapshot: &Snapshot) -> usize {
    let operations = snapshot.iter().filter(|((kind, ..), _)| kind == "operations").map(|(_, object)| object);
    let entries = operations.filter_map(|it| it["status"]["entries"].as_array()).flatten();
    entries.filter(|entry| entry["event"] == "begun" && entry["action"] == "attach").count()
}

#[tokio::test(start_paused = true)]
async fn a_database_before_an_upgrade_changes_no_vm() {
    let world = World::restored().await;
    // A VM that the database does not know is not powered on either.
    world.place.change(&new_vms("0b")[0], |vm| vm.power = PowerState::Off);
    let (there, changes) = (world.as_they_are(), world.changes());
    world.rests().await;
    let (status, reason, words) = world.condition("Progressing");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "AdoptionRequired"), "{words}");
    for name in new_vms("0b") {
        assert!(words.contains(&format!("{name} ({})", world.place.vms()[&name])), "{words}");
    }
    assert_eq!(world.up_to_date(), "ChangeBlocked");
    assert_eq!(world.condition("Preflight").1, "ControlPlaneUnfit");
    assert_eq!(world.status()["resolved"]["image"], FORMER);
    assert_eq!((world.changes(), world.operations().len()), (changes, 0));
    // A requested upgrade does not begin, and deleting the cluster removes nothing.
    world.goes_to(NEW);
    world.rests().await;
    assert_eq!(world.operations().len(), 0);
    world.delete();
    world.rests().await;
    assert!(world.has_drifted() && world.condition("Progressing").2.contains("remove these in the vCenter"));
    assert_eq!((world.changes(), world.as_they_are()), (changes, there));
    for name in new_vms("0b") {
        world.place.lose(&name);
    }
    world.until("gone", World::is_gone).await;
}

/// Finding 12 of controller.md.
#[tokio::test(start_paused = true)]
async fn a_drifted_cluster_renews_its_kubeconfig() {
    let world = World::restored().await;
    world.reconcile().await.unwrap();
    let (own, first) = (world.own_kubeconfig(), world.kubeconfig());
    tokio::time::sleep(Duration::from_secs(85 * 3600)).await;
    world.reconcile().await.unwrap();
    assert!(world.has_drifted(), "{:?}", world.condition("Progressing"));
    assert!(world.own_kubeconfig() != own && world.kubeconfig() != first);
}

/// A step reads the vCenter again, and may see more than the first look.
#[tokio::test(start_paused = true)]
async fn a_failed_first_look_stops_all_steps() {
    let world = World::restored().await;
    let (there, changes) = (world.as_they_are(), world.changes());
    let noted = world.status()["deployment"].clone();
    world.delete();
    let mut failed = 0;
    for _ in 0..4 {
        world.place.lock().hidden = 1;
        let _ = world.reconcile().await;
        failed += 1 - world.place.lock().hidden;
        assert_eq!((world.changes(), world.as_they_are()), (changes, there.clone()));
        assert_eq!(world.status()["deployment"], noted, "that its nodes go is not even noted");
        tokio::time::sleep(Duration::from_secs(15)).await;
    }
    assert!(failed > 0, "nobody has looked");
    world.place.lock().hidden = 0;
    world.is_looked_at().await;
    assert!(world.has_drifted(), "{:?}", world.condition("Progressing"));
    assert_eq!((world.changes(), world.as_they_are()), (changes, there));
}

/// Continuing it would shut down nodes that have the new image since.
#[tokio::test(start_paused = true)]
async fn upgrades_with_an_outdated_journal_pause() {
    let upgraded_by = async |world: &World, mortal: &Mortal| {
        world.goes_to(NEW);
        while !world.is_current() && world.reconcile_at(mortal).await.is_some() {
            tokio::time::sleep(Duration::from_secs(15)).await;
        }
    };
    let calls = {
        let world = World::upgradable().await;
        let mortal = Mortal::new(&world.api, None);
        upgraded_by(&world, &mortal).await;
        mortal.calls()
    };
    for call in drawn_seldom("databases of while control nodes were swapped", (0..calls).collect()) {
        let mut world = World::upgradable().await;
        upgraded_by(&world, &Mortal::new(&world.api, Some((call, true)))).await;
        let before = world.api.snapshot();
        if attached(&before) == NODES.len() {
            // Its VMs are as its journal leaves them.
            continue;
        }
        world.term = Term::unlimited("controller two");
        world.until("committed", World::is_current).await;
        let (there, changes) = (world.as_they_are(), world.changes());
        world.turned_back(before);
        world.is_looked_at().await;
        assert!(world.has_drifted(), "{call}: {:?}", world.condition("Progressing"));
        assert_eq!(world.changes(), changes, "{call}");
        assert_eq!(world.as_they_are(), there, "{call}");
        world.adopt("shop");
        world.until_all_run(NEW, &format!("adopted: {call}")).await;
        assert_eq!((world.changes(), world.is_asked_to_adopt()), (changes, false), "{call}");
    }
}

#[tokio::test(start_paused = true)]
async fn adopted_vms_are_the_clusters_again() {
    let world = World::restored().await;
    let changes = world.changes();
    world.adopt("bank");
    world.is_looked_at().await;
    assert!(world.has_drifted() && world.condition("Progressing").2.contains("it has \"bank\""), "another one's name");
    world.place.change(&new_vms("0b")[1], |vm| vm.power = PowerState::Off);
    let words = world.is_not_adopted(["not adopted yet", "power it on"]).await;
    assert!(world.is_asked_to_adopt() && words.contains(ADOPT), "it stays asked for: {words}");
    world.place.change(&new_vms("0b")[1], |vm| vm.power = PowerState::On);
    world.until("adopted", |world| !world.has_drifted()).await;
    assert_eq!((world.changes(), world.is_asked_to_adopt()), (changes, false));
    // A rollback to the image in the spec of that time is impossible.
    world.until("judged", |world| world.condition("Preflight").1 == "ImageUnsuitable").await;
    world.goes_to(NEW);
    world.until_all_run(NEW, "it was adopted").await;
    world.place.change(&new_vms("0b")[0], |vm| vm.power = PowerState::Off);
    world.until("all are on", World::are_on).await;
    world.is_deleted("it was adopted").await;
}

/// No journal has it, and while it is open no other upgrade begins.
#[tokio::test(start_paused = true)]
async fn uncommitted_upgrades_of_healthy_nodes_become_final() {
    let mut world = World::upgradable().await;
    let before = world.api.snapshot();
    world.swaps_to(NEW).await;
    world.turned_back(before);
    world.place.lock().ill.never_good.insert("shop-cp2".to_owned());
    world.is_not_adopted(["shop-cp2", "not healthy"]).await;
    let are_open = || world.place.lock().contents.values().all(|content| content.swap.is_some());
    assert!(are_open(), "nothing is final yet");
    world.place.lock().ill.never_good.clear();
    world.goes_to(NEW);
    world.until("adopted", |world| !world.is_asked_to_adopt()).await;
    assert!(world.place.lock().contents.values().all(|content| content.swap.is_none()));
    world.until("current", World::is_current).await;
}

/// The others may replace it once they are adopted.
#[tokio::test(start_paused = true)]
async fn a_lost_node_blocks_no_adoption() {
    let world = World::restored().await;
    world.place.lose(&new_vms("0b")[2]);
    world.adopt("shop");
    world.until("adopted", |world| !world.is_asked_to_adopt()).await;
    let nodes = world.status()["deployment"]["nodes"].clone();
    let vms = world.place.vms();
    for (node, vm) in new_vms("0b").iter().take(2).enumerate() {
        assert_eq!(nodes[node]["biosUUID"], vms[vm].to_string());
    }
    assert!(world.condition("ControlPlaneReady").0 != "True", "one is lost");
}

/// Between two steps of a swap a disk is on no VM, and the node is not lost with that.
#[tokio::test(start_paused = true)]
async fn nodes_with_a_moving_disk_are_not_lost() {
    let world = World::restored().await;
    let vm = &new_vms("0b")[2];
    let disk = world.place.lock().contents["shop-cp3"].disk;
    world.place.change(vm, |vm| (vm.power, vm.disks) = (PowerState::Off, Vec::new()));
    let changes = world.changes();
    let words = world.is_not_adopted(["attach it", vm.as_str()]).await;
    assert!(words.contains(&disk.to_string()) && world.is_asked_to_adopt(), "{words}");
    assert_eq!(world.changes(), changes);
    world.place.lose(vm);
    world.until("adopted", |world| !world.is_asked_to_adopt()).await;
}

/// Its swap is open, and it may run the former image: while it is off it does not answer.
#[tokio::test(start_paused = true)]
async fn nodes_that_are_off_are_not_lost() {
    let mut world = World::upgradable().await;
    let before = world.api.snapshot();
    world.goes_to(NEW);
    let last_goes_off = |world: &World| {
        let is_last = world.attached() == NODES.len() - 1;
        world.place.lock().is_slow |= is_last;
        world.shuts_down().filter(|_| is_last)
    };
    let off = world.amid("the last one off", last_goes_off).await;
    world.place.lock().is_slow = false;
    world.place.change(&off, |vm| vm.power = PowerState::Off);
    world.turned_back(before);
    world.goes_to(NEW);
    let (there, changes) = (world.as_they_are(), world.changes());
    let are_open = |world: &World| world.place.lock().contents.values().filter(|it| it.swap.is_some()).count();
    let words = world.is_not_adopted(["not adopted yet", "power it on"]).await;
    assert!(words.contains(&off) && world.is_asked_to_adopt(), "{words}");
    assert_eq!((world.changes(), world.as_they_are(), are_open(&world)), (changes, there, NODES.len()));
    world.place.change(&off, |vm| vm.power = PowerState::On);
    world.until("adopted", |world| !world.is_asked_to_adopt()).await;
    assert_eq!(are_open(&world), 0, "each later swap would be refused");
}

#[tokio::test(start_paused = true)]
async fn running_vms_without_data_disks_are_named() {
    let world = World::restored().await;
    let new = new_vms("0b");
    world.has_stray(&new[0]);
    let words = world.is_not_adopted(["stray", "power them off"]).await;
    assert!(world.is_asked_to_adopt() && !words.contains(&new[0]), "{words}");
    world.place.lose("stray");
    world.until("adopted", |world| !world.is_asked_to_adopt()).await;
    assert!(!world.has_drifted());
}

/// Its journal is right, and the operator decides about the commit.
#[tokio::test(start_paused = true)]
async fn manual_commits_wait_despite_a_diskless_vm() {
    let world = World::upgradable().await;
    world.edit(|spec| {
        spec.image = Some(NEW.to_owned());
        spec.upgrade.commit = Commit::Manual;
    });
    world.until("on the new image", |world| world.up_to_date() == "AwaitingCommit").await;
    let changes = world.changes();
    world.has_stray(&new_vms("0b")[0]);
    world.is_looked_at().await;
    let words = world.condition("Progressing").2;
    assert!(words.contains("power them off"), "what adoption refuses is not advised: {words}");
    assert!(!words.contains(ADOPT), "what adoption refuses is not advised: {words}");
    world.is_not_adopted(["stray", "power them off"]).await;
    world.place.lose("stray");
    world.until("heard", |world| !world.is_asked_to_adopt()).await;
    world.until("on the new image", |world| world.up_to_date() == "AwaitingCommit").await;
    assert!(world.place.lock().contents.values().all(|content| content.swap.is_some()), "there is a way back");
    assert_eq!((world.changes(), world.operations().len(), world.outcome()), (changes, 1, None));
    assert_eq!(world.status()["resolved"]["image"], FORMER);
}

/// A word that nothing is to be done for is taken away as well.
#[tokio::test(start_paused = true)]
async fn where_nothing_has_drifted_nothing_is_adopted() {
    let world = World::upgradable().await;
    world.adopt("shop");
    let changes = world.changes();
    world.until("heard", |world| !world.is_asked_to_adopt()).await;
    world.is_looked_at().await;
    assert!(world.is_current() && world.changes() == changes);
}

/// Also of a cluster of which nothing is noted but its object.
#[tokio::test(start_paused = true)]
async fn a_database_during_creation_duplicates_no_vm() {
    let calls = {
        let world = World::new();
        world.api.put(&image(FORMER, "0.2.0", "0a", &["1.36"]));
        let mortal = Mortal::new(&world.api, None);
        while !world.is_ready() {
            let _ = world.reconcile_at(&mortal).await;
            tokio::time::sleep(Duration::from_secs(15)).await;
        }
        mortal.calls()
    };
    let (mut drifted, tried) = (0, drawn("databases of while a cluster was made", (0..calls).collect()));
    // Of a few that are drawn none may be one of those that have drifted.
    let are_all = tried.len() == calls;
    for call in tried {
        let mut world = World::new();
        world.api.put(&image(FORMER, "0.2.0", "0a", &["1.36"]));
        let mortal = Mortal::new(&world.api, Some((call, true)));
        while !world.is_ready() && world.reconcile_at(&mortal).await.is_some() {
            tokio::time::sleep(Duration::from_secs(15)).await;
        }
        let before = world.api.snapshot();
        world.term = Term::unlimited("controller two");
        world.until("ready", World::is_ready).await;
        let (there, changes) = (world.as_they_are(), world.changes());
        world.turned_back(before);
        world.is_looked_at().await;
        world.is_looked_at().await;
        assert!(world.has_drifted() || world.is_ready(), "{call}: {:?}", world.condition("Progressing"));
        assert_eq!(world.changes(), changes, "{call}");
        assert_eq!(world.as_they_are(), there, "{call}");
        if !world.has_drifted() {
            continue;
        }
        drifted += 1;
        // Without a record of the creation the controller does not know the keys of its nodes.
        let is_begun = !world.status()["deployment"].is_null();
        world.adopt("shop");
        world.is_looked_at().await;
        world.is_looked_at().await;
        assert_eq!((world.has_drifted(), world.is_ready()), (!is_begun, is_begun), "{call}: {:#}", world.status());
        assert_eq!((world.changes(), world.as_they_are()), (changes, there), "{call}");
    }
    assert!(drifted > 0 || !are_all);
}
