//! Images swapped by the engine of upgrades, with its holds and journal on a datastore.

use std::time::Duration;

use serde_json::json;
use tokio::sync::watch;

use super::mirrored::Mirrored;
use super::*;
use crate::authority::{DirectoryStore, TakeOver};
use crate::hypervisor::PowerState;
use crate::upgrade::tests::fake::{self, Ill, World};
use crate::upgrade::{Arrived, Deployment, Mode, Notice, Outcome, Verb};
use crate::vcenter::DatastoreStore;

struct Cluster {
    bed: Bed,
    hypervisor: VcenterHypervisor,
    store: DatastoreStore,
    guests: World,
    old: Ova,
    /// Snapshots of etcd.
    snapshots: TempDir,
}

impl Cluster {
    /// A cluster that runs the old image.
    async fn of(nodes: usize) -> Self {
        let bed = Bed::start(&["-others", "5", "-lease-timeout", "3s"]);
        let cluster = Self {
            hypervisor: bed.hypervisor().await,
            store: bed.store().await,
            guests: World::of(nodes, Mode::Rolling, Ill::Well),
            // Other variables make it another image.
            old: ova_with(vec![("kaas.test".to_owned(), "old".to_owned())]),
            snapshots: tempfile::tempdir().unwrap(),
            bed,
        };
        cluster.found(nodes).await;
        cluster
    }

    async fn found(&self, nodes: usize) {
        let image = self.hypervisor.lay(&self.old).await;
        for node in &fake::NODES[..nodes] {
            let vm = self.hypervisor.added(node, &image).await;
            self.hypervisor.power_on(&vm, &Free).await.unwrap();
        }
        self.mirrored().adopt().await;
    }

    /// The same anew, in the same process.
    async fn reset(&mut self, nodes: usize) {
        self.bed.spoil_nothing().await;
        self.bed.reset().await;
        (self.hypervisor, self.store) = (self.bed.hypervisor().await, self.bed.store().await);
        self.guests = World::of(nodes, Mode::Rolling, Ill::Well);
        self.found(nodes).await;
    }

    fn mirrored(&self) -> Mirrored<'_> {
        Mirrored { vcenter: &self.hypervisor, guests: &self.guests }
    }

    /// Gives a command; without a verb, the one that begins.
    async fn give(&self, verb: Option<Verb>) -> anyhow::Result<Arrived> {
        let (mirrored, snapshots) = (self.mirrored(), DirectoryStore::at(self.snapshots.path().to_owned()));
        let deployment = Deployment {
            hypervisor: &mirrored,
            nodes: &self.guests,
            store: &self.store,
            snapshots: &snapshots,
            what: "a test",
            watch: &|notice: &Notice<'_>| log::trace!("{notice:?}"),
            pace: Duration::from_millis(10),
            pause_limit: Duration::from_secs(20),
            other_cluster: None,
            cancelled: watch::channel(false).1,
        };
        let given = match verb {
            None => deployment.apply(&self.guests.target.ova, &self.guests.options, TakeOver::FromTheDead).await,
            Some(verb) => deployment.go_on(verb, None, TakeOver::FromTheDead).await,
        };
        given.map(|(arrived, _)| arrived)
    }

    /// Panics unless each node's VM of this image runs with its disk, and each other one of it is off, bare and disconnected.
    async fn runs(&self, new: bool, vms_each: usize) {
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

#[tokio::test]
async fn three_nodes_swap_their_images_go_back_swap_again_and_commit() {
    let cluster = Cluster::of(3).await;
    cluster.runs(false, 1).await;
    assert_eq!(cluster.give(None).await.unwrap(), Arrived::Ended(Outcome::Upgraded));
    cluster.runs(true, 2).await;
    assert_eq!(cluster.give(Some(Verb::Rollback)).await.unwrap(), Arrived::Ended(Outcome::RolledBack));
    cluster.runs(false, 1).await;
    assert_eq!(cluster.give(None).await.unwrap(), Arrived::Ended(Outcome::Upgraded));
    assert_eq!(cluster.give(Some(Verb::Commit)).await.unwrap(), Arrived::Ended(Outcome::Committed));
    cluster.runs(true, 1).await;
}

/// Calls that change something during a swap, and what is asked for holds and journal.
const SPOILT: [&str; 7] = [
    "CloneVM_Task",
    "Datastore",
    "Destroy_Task",
    "MarkAsTemplate",
    "PowerOnVM_Task",
    "ReconfigVM_Task",
    "ShutdownGuest",
];

#[tokio::test]
async fn whatever_goes_wrong_in_a_swap_the_command_given_again_ends_it() {
    let mut cluster = Cluster::of(1).await;
    cluster.bed.count_anew().await;
    assert_eq!(cluster.give(None).await.unwrap(), Arrived::Ended(Outcome::Upgraded));
    assert_eq!(cluster.give(Some(Verb::Commit)).await.unwrap(), Arrived::Ended(Outcome::Committed));
    let counts = cluster.bed.counts().await;
    let mut points = Vec::new();
    for method in SPOILT {
        let calls = counts.get(method).copied().unwrap_or_default().calls;
        assert!(calls > 0, "{method} is not called: {counts:?}");
        let faults = [("lose-answer", json!({})), ("drop", json!({})), ("end-session", json!({}))];
        let of_task = ["fail-task", "fail-task-late"].map(|what| (what, json!({ "fault": "HostCommunication" })));
        let of_task = of_task.into_iter().filter(|_| method.ends_with("_Task"));
        let faults: Vec<_> = faults.into_iter().chain(of_task).collect();
        points.extend((0..calls).flat_map(|skip| faults.iter().map(move |fault| (method, skip, fault.clone()))));
    }
    let tried: Vec<_> = points.iter().step_by(super::cluster::one_in(31)).collect();
    println!("{} of {} points", tried.len(), points.len());
    for (method, skip, (what, more)) in tried {
        cluster.reset(1).await;
        let mut rule = more.clone();
        rule["skip"] = json!(skip);
        let begun = std::time::Instant::now();
        cluster.bed.spoil(method, what, rule).await;
        let mut said = Vec::new();
        let ended = loop {
            let verb = if said.is_empty() { None } else { Some(Verb::Resume) };
            let given = match cluster.give(verb).await {
                // It had not begun.
                Err(error) if error.to_string().contains("there is no upgrade") => cluster.give(None).await,
                given => given,
            };
            match given {
                Ok(Arrived::Ended(outcome)) => break outcome,
                given => said.push(format!("{given:?}")),
            }
            assert!(said.len() < 6, "{method} {skip} {what}: {said:#?}");
        };
        assert_eq!(ended, Outcome::Upgraded, "{method} {skip} {what}: {said:#?}");
        cluster.runs(true, 2).await;
        while let Err(error) = cluster.give(Some(Verb::Commit)).await {
            said.push(format!("{error:#}"));
            assert!(said.len() < 6, "{method} {skip} {what}: {said:#?}");
        }
        cluster.runs(true, 1).await;
        println!("{method} {skip} {what}: {:.1} s {said:?}", begun.elapsed().as_secs_f32());
    }
}
