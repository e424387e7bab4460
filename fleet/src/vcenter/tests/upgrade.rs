//! Images swapped by the upgrade engine, with leases and journal on a datastore.

use std::path::Path;
use std::time::Duration;

use tokio::sync::watch;

use super::cut::{Cut, CutStore};
use super::mirrored::Mirrored;
use super::others::by_hand;
use super::*;
use crate::hypervisor::PowerState;
use crate::lease::{DirectoryStore, Store, TakeOver};
use crate::upgrade::tests::fake::{self, Ill, World};
use crate::upgrade::{Deployment, Mode, Notice, Outcome, Request, RunOutcome};
use crate::vcenter::{DatastoreStore, Site};

pub struct Cluster {
    pub bed: Bed,
    pub hypervisor: VcenterHypervisor,
    pub store: DatastoreStore,
    pub guests: World,
    old: Ova,
    /// Snapshots of etcd.
    snapshots: TempDir,
    /// Whether disks are copied.
    copies: bool,
}

impl Cluster {
    /// A cluster that runs the old image.
    pub async fn of(nodes: usize) -> Self {
        let cluster = Self::without_vms(nodes).await;
        cluster.found(nodes).await;
        cluster
    }

    /// A cluster that runs the old image in VMs that an operator has imported.
    pub async fn by_hand(nodes: usize) -> Self {
        let cluster = Self::without_vms(nodes).await;
        let client = cluster.bed.client().await;
        let mut vms = Vec::new();
        for node in &fake::NODES[..nodes] {
            let made = by_hand(&client, &cluster.old, node, "control").await;
            client.changes(&vsphere::Unguarded).power_on(&made).await.unwrap();
            vms.push(Vm { stamp: Some(stamp(node, None)), ..cluster.hypervisor.seen(&made).await });
        }
        cluster.mirrored().runs(vms);
        cluster
    }

    /// A cluster whose disks are copied before new VMs get them.
    pub fn copying(mut self) -> Self {
        self.guests.options.copy_disks = true;
        self.copies = true;
        self
    }

    /// A cluster on another datastore than its journal.
    pub async fn placed(nodes: usize, datastore: &str) -> Self {
        let mut cluster = Self::without_vms(nodes).await;
        let site = Site { datastore: datastore.to_owned(), ..cluster.bed.site() };
        cluster.hypervisor = cluster.bed.hypervisor_of(DEPLOYMENT, &site).await;
        cluster.found(nodes).await;
        cluster
    }

    async fn without_vms(nodes: usize) -> Self {
        let bed = Bed::start(&["-others", "5", "-lease-timeout", "3s"]);
        Self {
            hypervisor: bed.hypervisor().await,
            store: bed.store().await,
            guests: World::of(nodes, Mode::Rolling, Ill::Well),
            // Other variables make it another image.
            old: ova_with(vec![("kaas.test".to_owned(), "old".to_owned())]),
            snapshots: tempfile::tempdir().unwrap(),
            copies: false,
            bed,
        }
    }

    async fn found(&self, nodes: usize) {
        let image = self.hypervisor.lay(&self.old).await;
        for node in &fake::NODES[..nodes] {
            self.hypervisor.started(node, &image).await;
        }
        self.mirrored().adopt().await;
    }

    /// Starts again with a new cluster, in the same process.
    pub async fn reset(&mut self, nodes: usize) {
        self.bed.spoil_nothing().await;
        self.bed.reset().await;
        (self.hypervisor, self.store) = (self.bed.hypervisor().await, self.bed.store().await);
        self.guests = World::of(nodes, Mode::Rolling, Ill::Well);
        self.guests.options.copy_disks = self.copies;
        self.found(nodes).await;
    }

    pub fn mirrored(&self) -> Mirrored<'_> {
        Mirrored { vcenter: &self.hypervisor, guests: &self.guests }
    }

    /// Runs a command. `None` for the one that begins the upgrade.
    pub async fn give(&self, verb: Option<Request>) -> anyhow::Result<RunOutcome> {
        self.give_on(verb, &self.store).await
    }

    /// As [`Self::give`], with leases and journal in this store.
    pub async fn give_on(&self, verb: Option<Request>, store: &dyn Store) -> anyhow::Result<RunOutcome> {
        give(&self.hypervisor, &self.guests, store, self.snapshots.path(), verb).await
    }

    /// Panics unless a command ends with this outcome. `None` for the one that begins the upgrade.
    pub async fn ends(&self, verb: Option<Request>, outcome: Outcome, what: impl std::fmt::Display) {
        assert_eq!(self.give(verb).await.unwrap(), RunOutcome::Ended(outcome), "{what}: {verb:?}");
    }

    /// Begins the upgrade. The command is killed before this entry of its journal.
    pub async fn killed_before(&self, entry: usize) {
        let store = CutStore::at(&self.store, Some((entry, Cut::Before)));
        assert!(store.given(self.give_on(None, &store)).await.is_none(), "{entry}");
    }

    /// The names of the copies next to the data disks.
    pub fn disk_copies(&self) -> Vec<String> {
        let disks: Vec<String> = self.guests.lock().contents.iter().map(|content| content.at.path.clone()).collect();
        let beside = disks.iter().flat_map(|disk| std::fs::read_dir(self.bed.file(disk).parent().unwrap()).unwrap());
        let names = beside.map(|file| file.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.contains("-before-") && !name.ends_with("-flat.vmdk")).collect()
    }

    /// Panics unless each node's VM of this image runs with its disk, and each other one is off, without disk and
    /// disconnected.
    pub async fn runs(&self, new: bool, vms_each: usize) {
        let vms = self.hypervisor.vms().await.unwrap();
        assert_eq!(vms.len(), self.guests.lock().nodes.len() * vms_each, "{vms:#?}");
        for vm in &vms {
            let is_new = vm.stamp.as_ref().is_some_and(|stamp| stamp.swap.is_some());
            let runs = is_new == new;
            assert_eq!(vm.power, if runs { PowerState::On } else { PowerState::Off }, "{vm:#?}");
            assert_eq!(vm.data_disks().count(), usize::from(runs), "{vm:#?}");
            assert_eq!(vm.is_fenced(), !runs, "{vm:#?}");
        }
        assert_eq!(self.bed.machines().await.iter().filter(|machine| machine.name.starts_with("other-")).count(), 5);
        assert!(self.guests.most_away() <= 1);
    }
}

pub fn deployment<'a>(
    mirrored: &'a Mirrored<'_>,
    store: &'a dyn Store,
    snapshots: &'a DirectoryStore,
) -> Deployment<'a> {
    Deployment {
        hypervisor: mirrored,
        nodes: mirrored.guests,
        store,
        snapshots,
        what: "a test",
        watch: &|notice: &Notice<'_>| log::trace!("{notice:?}"),
        pace: Duration::from_millis(10),
        pause_limit: Duration::from_secs(20),
        other_cluster: None,
        cancelled: watch::channel(false).1,
    }
}

/// Runs a command on a deployment. `None` for the one that begins the upgrade.
pub async fn give(
    vcenter: &VcenterHypervisor,
    guests: &World,
    store: &dyn Store,
    snapshots: &Path,
    verb: Option<Request>,
) -> anyhow::Result<RunOutcome> {
    let (mirrored, snapshots) = (Mirrored { vcenter, guests }, DirectoryStore::at(snapshots.to_owned()));
    let deployment = deployment(&mirrored, store, &snapshots);
    let given = match verb {
        None => deployment.apply(&guests.target.ova, &guests.options, TakeOver::FromTheDead).await,
        Some(verb) => deployment.go_on(verb, None, TakeOver::FromTheDead).await,
    };
    given.map(|(arrived, _)| arrived)
}

#[tokio::test]
async fn three_nodes_swap_roll_back_swap_and_commit() {
    let cluster = Cluster::of(3).await;
    cluster.runs(false, 1).await;
    assert_eq!(cluster.give(None).await.unwrap(), RunOutcome::Ended(Outcome::Upgraded));
    cluster.runs(true, 2).await;
    assert_eq!(cluster.give(Some(Request::Rollback)).await.unwrap(), RunOutcome::Ended(Outcome::RolledBack));
    cluster.runs(false, 1).await;
    assert_eq!(cluster.give(None).await.unwrap(), RunOutcome::Ended(Outcome::Upgraded));
    assert_eq!(cluster.give(Some(Request::Commit)).await.unwrap(), RunOutcome::Ended(Outcome::Committed));
    cluster.runs(true, 1).await;
}

/// Sessions end, vCenter restarts, and another operator runs a command, all during a swap. The swap continues, and the
/// other operator gets the name of the holder.
#[tokio::test]
async fn disturbances_stop_no_swap() {
    let cluster = Cluster::of(3).await;
    let store = CutStore::at(&cluster.store, None);
    let reached = async |entries| {
        while store.entries() < entries {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let disturbed = async {
        reached(10).await;
        cluster.bed.end_sessions().await;
        reached(20).await;
        let other = cluster.bed.store().await;
        let refused = cluster.give_on(Some(Request::Resume), &other).await.unwrap_err();
        assert!(refused.to_string().contains("holds the lease of this deployment"), "{refused:#}");
        reached(30).await;
        cluster.bed.restart(500).await;
        reached(40).await;
        cluster.bed.end_sessions().await;
    };
    let mut given = std::pin::pin!(cluster.give_on(None, &store));
    tokio::select! {
        ended = &mut given => panic!("it has ended before all that disturbs it: {ended:?}"),
        () = disturbed => {}
    }
    assert_eq!(given.await.unwrap(), RunOutcome::Ended(Outcome::Upgraded));
    cluster.runs(true, 2).await;
}

#[tokio::test]
async fn disks_are_copied_before_the_move_until_commit() {
    let cluster = Cluster::of(3).await.copying();
    assert_eq!(cluster.give(None).await.unwrap(), RunOutcome::Ended(Outcome::Upgraded));
    cluster.runs(true, 2).await;
    assert_eq!(cluster.disk_copies().len(), 3, "{:?}", cluster.disk_copies());
    assert_eq!(cluster.give(Some(Request::Rollback)).await.unwrap(), RunOutcome::Ended(Outcome::RolledBack));
    cluster.runs(false, 1).await;
    assert_eq!(cluster.disk_copies().len(), 3, "they stay");
    // Another upgrade has its own copies, and removes no others.
    assert_eq!(cluster.give(None).await.unwrap(), RunOutcome::Ended(Outcome::Upgraded));
    assert_eq!(cluster.disk_copies().len(), 6);
    assert_eq!(cluster.give(Some(Request::Commit)).await.unwrap(), RunOutcome::Ended(Outcome::Committed));
    cluster.runs(true, 1).await;
    assert_eq!(cluster.disk_copies().len(), 3);
}
