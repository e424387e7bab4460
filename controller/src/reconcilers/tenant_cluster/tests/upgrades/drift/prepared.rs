//! Swaps that nodes have only prepared, or failed to prepare, in a database that does not know them. No VM is newer, and the
//! nodes alone report them.

use contract::swap::Stage;

use super::*;
use crate::objects::Provider;

impl World {
    /// On how many control-plane nodes a swap is open.
    fn swaps_open(&self) -> usize {
        self.place.lock().contents.values().filter(|it| it.swap.is_some()).count()
    }

    /// Reconciles until something is so amid that, and breaks it off there.
    async fn comes_to(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        self.amid(what, |world| is_so(world).then_some(())).await;
    }

    /// A node is ready for the swap that is wanted, and none has gone off for it.
    async fn makes_a_node_ready(&self) {
        self.place.lock().is_slow = true;
        self.comes_to("a node that is ready for it", |world| world.swaps_open() > 0).await;
        self.place.lock().is_slow = false;
    }

    /// Nodes have a swap open that the database of this time does not know. It is named with its VMs, and no VM changes. After
    /// adoption by the operator it is cancelled, and the next swap succeeds.
    async fn is_cancelled_by_adoption(&mut self, before: Snapshot) {
        self.turned_back(before);
        let bare: Vec<Vm> = self.as_they_are().into_iter().filter(|vm| vm.disks.is_empty()).collect();
        assert!(!bare.is_empty() && self.swaps_open() > 0);
        let changes = self.changes();
        self.goes_to(NEW);
        self.is_looked_at().await;
        let words = self.condition("Progressing").2;
        assert!(self.has_drifted() && words.contains("kaas cluster adopt shop"), "{:?}", self.condition("Progressing"));
        for vm in &bare {
            assert!(words.contains(&vm.to_string()), "{vm}: {words}");
            assert!(words.contains(&vm.stamp.as_ref().unwrap().node), "{vm}: {words}");
        }
        assert!(words.contains("upgrade.swap-open"), "all that is in the way is told: {words}");
        assert_eq!(self.up_to_date(), "ChangeBlocked");
        self.edit(|spec| spec.paused = true);
        self.is_looked_at().await;
        assert_eq!(self.condition("Progressing").1, "Paused");
        self.edit(|spec| spec.paused = false);
        assert_eq!((self.changes(), self.operations().len(), self.swaps_open()), (changes, 0, bare.len()));
        self.adopt("shop");
        self.until("heard", |world| !world.is_asked_to_adopt()).await;
        assert_eq!((self.changes(), self.swaps_open()), (changes, 0));
        // VMs that were made for it are named until they are gone.
        self.is_looked_at().await;
        let words = self.condition("Preflight").2;
        assert!(!self.has_drifted() && bare.iter().all(|vm| words.contains(&vm.name)), "{words}");
        for vm in &bare {
            self.place.lose(&vm.name);
        }
        self.until_all_run(NEW, "it was cancelled").await;
    }
}

/// Nothing has moved, and no VM is newer: only the nodes know of it.
#[tokio::test(start_paused = true)]
async fn adoption_cancels_a_prepared_swap() {
    let mut world = World::upgradable().await;
    let before = world.api.snapshot();
    world.goes_to(NEW);
    world.makes_a_node_ready().await;
    world.is_cancelled_by_adoption(before).await;
}

/// It says so after each boot of its VM, and takes part in no other one.
#[tokio::test(start_paused = true)]
async fn adoption_cancels_a_swap_that_failed_to_prepare() {
    let mut world = World::upgradable().await;
    let before = world.api.snapshot();
    world.goes_to(NEW);
    world.place.lock().ill.gives_up.extend(NODES.map(str::to_owned));
    world.comes_to("a node that gives up", |world| world.swaps_open() > 0).await;
    let stages: Vec<Stage> =
        world.place.lock().contents.values().filter_map(|it| Some(it.swap.as_ref()?.stage)).collect();
    assert_eq!(stages, [Stage::Failed]);
    world.place.lock().ill.gives_up.clear();
    world.is_cancelled_by_adoption(before).await;
}

/// The state of its swap is unknown; all else is done meanwhile.
#[tokio::test(start_paused = true)]
async fn adoption_waits_for_nodes_that_do_not_answer() {
    let world = World::upgradable().await;
    world.place.change("shop-cp2", |vm| vm.power = PowerState::Off);
    world.adopt("shop");
    let _ = world.reconcile().await;
    assert!(world.is_asked_to_adopt() && !world.has_drifted());
    world.until("heard", |world| !world.is_asked_to_adopt()).await;
    assert!(world.are_on());
    // The operator resumes a suspended VM.
    world.place.change("shop-cp2", |vm| vm.power = PowerState::Suspended);
    world.adopt("shop");
    let _ = world.reconcile().await;
    let words = world.condition("Progressing").2;
    assert!(world.is_asked_to_adopt() && words.contains("shop-cp2 is suspended"), "{words}");
    world.place.change("shop-cp2", |vm| vm.power = PowerState::On);
    world.until("heard", |world| !world.is_asked_to_adopt()).await;
    // A running node that does not answer is named, and other requests are handled meanwhile.
    world.place.lock().are_mute = true;
    world.adopt("shop");
    let _ = world.reconcile().await;
    let words = world.condition("Progressing").2;
    assert!(world.is_asked_to_adopt() && words.contains("shop-cp1 has not answered"), "{words}");
    assert!(words.contains(ADOPT), "{words}");
    let begun = tokio::time::Instant::now();
    let deletes = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        world.delete();
    };
    let is_leaving =
        |world: &World| world.api.names("tenantclusters").is_empty() || world.condition("Progressing").1 == "Deleting";
    tokio::join!(deletes, world.comes_to("a deletion", is_leaving));
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

/// It is tried to be powered on at each look, and that says what it has come to.
#[tokio::test(start_paused = true)]
async fn adoption_names_nodes_that_cannot_power_on() {
    let world = World::upgradable().await;
    world.place.change("shop-cp2", |vm| vm.power = PowerState::Off);
    world.place.lock().is_full = true;
    world.adopt("shop");
    let _ = world.reconcile().await;
    let words = world.condition("Progressing").2;
    assert!(world.is_asked_to_adopt() && words.contains("shop-cp2 is off") && words.contains(ADOPT), "{words}");
    assert!(words.contains("its host is full"), "{words}");
    world.place.lock().is_full = false;
    world.until("heard", |world| !world.is_asked_to_adopt()).await;
}

/// Without its key no node is asked, and without its Provider no vCenter.
#[tokio::test(start_paused = true)]
async fn adoption_waits_without_a_key_or_provider() {
    let world = World::upgradable().await;
    world.adopt("shop");
    let key = world.keys();
    world.remove_keys();
    let _ = world.reconcile().await;
    let words = world.condition("Progressing").2;
    assert!(world.is_asked_to_adopt() && words.contains("in kaas-system is gone") && words.contains(ADOPT), "{words}");
    world.api.put(&key);
    let provider: Provider = world.api.read(None, "dc1").unwrap();
    world.api.remove::<Provider>(None, "dc1");
    let _ = world.reconcile().await;
    let words = world.condition("Progressing").2;
    assert!(world.is_asked_to_adopt() && words.contains("no Provider dc1") && words.contains(ADOPT), "{words}");
    world.api.put(&provider);
    world.until("heard", |world| !world.is_asked_to_adopt()).await;
}

/// Its host is dead, and it does not answer. The annotation would stay as long, and take effect when the operator no longer
/// expects it.
#[tokio::test(start_paused = true)]
async fn adoption_waits_for_no_node_of_unknown_power() {
    let world = World::upgradable().await;
    world.place.change("shop-cp2", |vm| vm.power = PowerState::Unknown);
    world.place.lock().asked.clear();
    world.adopt("shop");
    world.until("heard", |world| !world.is_asked_to_adopt()).await;
    let asked = world.place.lock().asked.clone();
    assert!(!asked.contains(&Ipv4Addr::new(192, 168, 10, 21)) && asked.len() == 2, "{asked:?}");
}

/// Both of its VMs are bare, and no other node has moved: nothing is newer.
#[tokio::test(start_paused = true)]
async fn first_nodes_with_moving_disks_are_not_lost() {
    let mut world = World::upgradable().await;
    let before = world.api.snapshot();
    world.goes_to(NEW);
    world.makes_a_node_ready().await;
    let is_moving = |node: &&str| world.place.lock().contents[*node].swap.is_some();
    let node = NODES.into_iter().find(is_moving).unwrap();
    let own = || -> Vec<Vm> {
        let is_its = |vm: &Vm| vm.stamp.as_ref().is_some_and(|stamp| stamp.node == node);
        world.as_they_are().into_iter().filter(is_its).collect()
    };
    let former = own().into_iter().find(|vm| !vm.disks.is_empty()).unwrap();
    world.place.change(&former.name, |vm| (vm.power, vm.disks) = (PowerState::Off, Vec::new()));
    let bare = own();
    assert_eq!(bare.len(), 2);
    world.turned_back(before);
    let (there, changes) = (world.as_they_are(), world.changes());
    world.adopt("shop");
    world.is_looked_at().await;
    for about in ["Progressing", "ControlPlaneReady"] {
        let words = world.condition(about).2;
        let disk = former.disks[0].reference.uuid.to_string();
        assert!(words.contains("attach it") && words.contains(&disk), "{about}: {words}");
        assert!(bare.iter().all(|vm| words.contains(&vm.to_string())), "{about}: {words}");
    }
    assert!(world.is_asked_to_adopt());
    // Whichever look for VMs fails: also the last one, by which nothing would be left.
    let mut failed = 0;
    for look in 0..12 {
        world.place.lock().unlisted_after = Some(look);
        let _ = world.reconcile().await;
        failed += usize::from(world.place.lock().unlisted_after.take().is_none());
        assert!(world.is_asked_to_adopt(), "{look}");
    }
    assert!(failed > 2, "the last one has failed, too: {failed}");
    assert_eq!((world.changes(), world.as_they_are()), (changes, there));
    // The operator has attached it to the former one.
    world.place.change(&former.name, |vm| (vm.power, vm.disks) = (former.power, former.disks.clone()));
    world.until("heard", |world| !world.is_asked_to_adopt()).await;
    assert_eq!(world.swaps_open(), 0);
}
