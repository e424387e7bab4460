//! Clusters that are deployed and destroyed, with leases and journal on a datastore.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;

use contract::deployer::{Digests, Fingerprint, Fingerprints};
use serde_json::json;
use tokio::sync::watch;
use zeroize::Zeroizing;

use super::others::by_hand;
use super::*;
use crate::control_plane::{
    Deploy, DeployStatus, DesiredState, Goal, Guests, Notice, RunOutcome, Wait, WantedNode, moved,
};
use crate::hypervisor::DiskRef;
use crate::lease::{Store, TakeOver};
use crate::vcenter::DatastoreStore;
use crate::workers::Image;

pub const REMOVE: Goal<'static> =
    Goal::Destroy { cluster: "control", disks: true, left: &[], doubtful: &[], held: &[], also: &[] };

/// Guests whose cluster is formed as soon as they run.
struct Formed(BTreeSet<String>);

#[async_trait]
impl Guests for Formed {
    fn deployer_fingerprint(&self) -> Option<Fingerprint> {
        None
    }

    async fn kubeconfig(&self, node: Ipv4Addr, _: &Fingerprints) -> anyhow::Result<Zeroizing<String>> {
        Ok(Zeroizing::new(format!("from {node}")))
    }

    async fn renew(&self, node: Ipv4Addr, _: &str) -> anyhow::Result<Zeroizing<String>> {
        Ok(Zeroizing::new(format!("from {node}")))
    }

    async fn accepts(&self, _: Ipv4Addr, _: &str) -> anyhow::Result<bool> {
        Ok(true)
    }

    async fn ready(&self, _: &str) -> anyhow::Result<BTreeSet<String>> {
        Ok(self.0.clone())
    }
}

/// Guests show these fingerprints once they run.
async fn guests_show_fingerprints(bed: &Bed) {
    let shown = Fingerprints { ca: Fingerprint::of(b"a"), endpoint: Fingerprint::of(b"e") };
    let key = Fingerprints::GUESTINFO.trim_start_matches("guestinfo.");
    bed.switch(json!({ "guests_say": format!("{key}={}", serde_json::to_string(&shown).unwrap()) })).await;
}

pub struct World {
    pub bed: Bed,
    pub hypervisor: VcenterHypervisor,
    pub store: DatastoreStore,
    _ova: Ova,
    pub wanted: DesiredState,
}

impl World {
    pub async fn of(nodes: u8) -> Self {
        Self::on(Bed::start(&["-others", "5", "-lease-timeout", "3s"]), nodes).await
    }

    pub async fn on(bed: Bed, nodes: u8) -> Self {
        let ova = ova();
        guests_show_fingerprints(&bed).await;
        let node = |number: u8| WantedNode {
            name: format!("cp{number}"),
            address: Ipv4Addr::new(10, 0, 0, 10 + number),
            properties: properties(&format!("cp{number}")),
            drawn: None,
            placement: None,
        };
        let wanted = DesiredState {
            cluster: "control".to_owned(),
            nodes: (1..=nodes).map(node).collect(),
            size: SIZE,
            image: Image { digest: ova.digest.clone(), name: "kaas-control-plane 0.2.0".to_owned() },
            ova: ova.path.clone(),
            networks: vec![NETWORK.to_owned()],
            digests: Digests::of(b"the deployer's key"),
            placement: Placement::default(),
        };
        Self { hypervisor: bed.hypervisor().await, store: bed.store().await, bed, _ova: ova, wanted }
    }

    /// Starts again with a new cluster, in the same process.
    pub async fn reset(&mut self) {
        self.bed.spoil_nothing().await;
        self.bed.reset().await;
        guests_show_fingerprints(&self.bed).await;
        (self.hypervisor, self.store) = (self.bed.hypervisor().await, self.bed.store().await);
    }

    pub async fn give(&self, wish: Goal<'_>) -> anyhow::Result<RunOutcome> {
        self.give_on(wish, &self.store).await
    }

    /// As [`Self::give`], with leases and journal in this store.
    pub async fn give_on(&self, wish: Goal<'_>, store: &dyn Store) -> anyhow::Result<RunOutcome> {
        self.given_on(wish, store).await.map(|(arrived, _)| arrived)
    }

    /// As [`Self::give_on`], with the status of the cluster.
    async fn given_on(&self, wish: Goal<'_>, store: &dyn Store) -> anyhow::Result<(RunOutcome, DeployStatus)> {
        self.deploy(&self.guests(), store).go(wish, TakeOver::FromTheDead).await
    }

    /// Panics unless the cluster is then up.
    pub async fn deploys(&self) {
        let deployed = self.give(Goal::Deploy(&self.wanted)).await.unwrap();
        assert!(matches!(deployed, RunOutcome::Up(_)), "{deployed:?}");
    }

    /// The waits that stop a command.
    pub async fn stops(&self, wish: Goal<'_>) -> Vec<Wait> {
        let stopped = self.give(wish).await.unwrap();
        let RunOutcome::Stopped(waits) = stopped else { panic!("{stopped:?}") };
        waits
    }

    /// Whether a command would be refused before it begins.
    pub async fn may_be_wanted(&self, wish: Goal<'_>) -> anyhow::Result<()> {
        self.deploy(&self.guests(), &self.store).may_be_wanted(wish).await
    }

    fn guests(&self) -> Formed {
        Formed(self.wanted.nodes.iter().map(|node| node.name.clone()).collect())
    }

    fn deploy<'a>(&'a self, guests: &'a Formed, store: &'a dyn Store) -> Deploy<'a> {
        Deploy {
            hypervisor: &self.hypervisor,
            guests,
            store,
            placement: Placement::default(),
            what: "a test",
            watch: &|notice: &Notice<'_>| log::trace!("{notice:?}"),
            pace: Duration::from_millis(20),
            pause_limit: Duration::from_secs(20),
            empties: &|| Ok(()),
            renewed: &|_| {},
            restorable: None,
            cancelled: watch::channel(false).1,
        }
    }

    /// Panics unless each node has one running VM with its system disk and a data disk.
    pub async fn is_up(&self) {
        let vms = loop {
            match self.hypervisor.vms().await {
                Ok(vms) => break vms,
                // An injected fault occurs now.
                Err(error) => assert_eq!(error.kind, ErrorKind::Transient, "{error}"),
            }
        };
        let mut nodes: Vec<_> = vms.iter().map(|vm| vm.stamp.as_ref().unwrap().node.clone()).collect();
        nodes.sort();
        assert!(nodes.iter().eq(self.wanted.nodes.iter().map(|node| &node.name)), "{vms:?}");
        for vm in &vms {
            assert_eq!((vm.power, vm.disks.len(), vm.data_disks().count()), (crate::hypervisor::PowerState::On, 2, 1));
        }
    }

    /// Panics unless only templates and foreign objects are left. No disk may be left either.
    pub async fn is_gone(&self) {
        let begun = std::time::Instant::now();
        let left = loop {
            let left: Vec<_> = self.bed.machines().await.into_iter().filter(|machine| !machine.template).collect();
            if !left.iter().any(|machine| machine.name.starts_with("kaas-image-")) {
                break left;
            }
            assert!(begun.elapsed() < Duration::from_secs(120), "{left:?}");
            // vCenter removes an interrupted upload when its lease ends. A command that gave up after that, and before
            // the template, leaves an import that the next one removes and creates again. A machine that is too busy
            // may leave one once more.
            if begun.elapsed() > Duration::from_secs(30) {
                let DesiredState { ova, image, .. } = &self.wanted;
                let staged =
                    self.hypervisor.import_template(ova, &image.digest, None, &Placement::default(), &Free).await;
                println!("half a template is made anew: {:?}", staged.map(|_| ()));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        assert!(left.iter().all(|machine| machine.name.starts_with("other-")), "{left:?}");
        assert_eq!(left.len(), 5);
        let top = self.bed.file("[LocalDS_0] ");
        for directory in std::fs::read_dir(top).unwrap().map(|entry| entry.unwrap()) {
            // The directory of a VM whose data disk was removed later may stay after a fault, empty.
            if directory.file_name().to_string_lossy().starts_with("cp") {
                let left: Vec<_> =
                    std::fs::read_dir(directory.path()).unwrap().map(|file| file.unwrap().path()).collect();
                assert!(left.is_empty(), "{left:?}");
            }
        }
    }
}

#[tokio::test]
async fn three_nodes_are_deployed_and_destroyed() {
    let world = World::of(3).await;
    world.deploys().await;
    world.is_up().await;
    let before = world.bed.machines().await;
    world.deploys().await;
    assert_eq!(world.bed.machines().await, before, "a second deploy changes nothing");
    assert_eq!(world.give(REMOVE).await.unwrap(), RunOutcome::Gone);
    world.is_gone().await;
    let top = std::fs::read_dir(world.bed.file("[LocalDS_0] ")).unwrap();
    let left = top.map(|entry| entry.unwrap().file_name()).filter(|name| name.to_string_lossy().starts_with("cp"));
    assert_eq!(left.collect::<Vec<_>>(), [""; 0], "nor a directory");
}

/// After that, no noted path leads to the disk, and no command may report the disk as gone.
#[tokio::test]
async fn disk_on_renamed_datastore_is_reported_as_left() {
    let mut world = World::of(1).await;
    world.wanted.placement.datastore = Some("LocalDS_1".to_owned());
    world.deploys().await;
    let vms = world.hypervisor.vms().await.unwrap();
    let disk = vms[0].data_disks().next().unwrap().reference.clone();
    assert!(disk.path.starts_with("[LocalDS_1] "), "{}", disk.path);
    world.bed.count_anew().await;
    world.bed.spoil("DeleteVirtualDisk_Task", "fault", json!({ "fault": "FileLocked", "times": -1 })).await;
    let renamed = async {
        world.bed.reached("DeleteVirtualDisk_Task").await;
        world.bed.govc(&["object.rename", "/DC0/datastore/LocalDS_1", "renamed"]);
    };
    let (gone, ()) = tokio::join!(world.given_on(REMOVE, &world.store), renamed);
    let (arrived, status) = gone.unwrap();
    assert_eq!((arrived, status.left.as_slice()), (RunOutcome::Gone, std::slice::from_ref(&disk)));
    assert!(world.bed.file(&disk.path).exists());
    // The disk is now at another path. A datastore that exists and gives no answer does not prove that the disk is
    // missing.
    let now = DiskRef { path: disk.path.replace("[LocalDS_1]", "[renamed]"), ..disk.clone() };
    assert!(world.hypervisor.has_disk(&now).await.unwrap() && !world.hypervisor.has_disk(&disk).await.unwrap());
    let named = DiskRef { path: disk.path.replace("[LocalDS_1]", "[LocalDS_0]"), ..disk };
    for fault in ["InvalidDatastore", "InaccessibleDatastore", "DatastoreNotWritableOnHost"] {
        world.bed.spoil("QueryVirtualDiskUuid", "fault", json!({ "fault": fault })).await;
        let error = world.hypervisor.has_disk(&named).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Transient, "{fault}: {error}");
    }
    // A missing file proves nothing while no host reaches its datastore.
    world.bed.switch(json!({ "datastores_away": { "LocalDS_0": "FileNotFound" } })).await;
    let error = world.hypervisor.has_disk(&named).await.unwrap_err();
    says(&error, ErrorKind::Transient, "no host reaches the datastore LocalDS_0");
}

#[tokio::test]
async fn copy_of_a_running_node_is_not_changed() {
    let world = World::of(1).await;
    world.deploys().await;
    let (client, node) = (world.bed.client().await, world.hypervisor.vms().await.unwrap().remove(0));
    world.bed.make_folder(&client, "elsewhere").await;
    world.bed.govc(&["object.mv", "/DC0/vm/control/cp1", "/DC0/vm/elsewhere"]);
    assert_eq!(world.hypervisor.vms().await.unwrap(), []);
    let elsewhere = moved(&world.hypervisor, &world.store, &[]).await.unwrap();
    assert_eq!(elsewhere, [world.hypervisor.again(&node).await]);
    // It is found by its BIOS UUID.
    world.deploys().await;
    // A copy of its files is registered in its former folder.
    let ova = ova();
    let made = by_hand(&client, &ova, "cp1-copy", "control").await;
    let copy = world.hypervisor.seen(&made).await;
    world.hypervisor.stamp(&copy, &stamp("cp1", None), &Free).await.unwrap();
    let same = vsphere::ConfigSpec::new().bios_uuid(&node.uuid().to_string());
    client.changes(&vsphere::Unguarded).reconfigure(&made, &same).await.unwrap();
    let before = world.bed.machines().await;
    for wish in [Goal::Deploy(&world.wanted), REMOVE] {
        let waits = world.stops(wish).await;
        let odd = waits.iter().find(|wait| wait.reason.code == "deploy.vm-odd").unwrap();
        assert!(["cp1 (", "cp1-copy ("].iter().all(|name| odd.reason.words.contains(name)), "{odd}");
        assert_eq!(world.bed.machines().await, before);
    }
}
