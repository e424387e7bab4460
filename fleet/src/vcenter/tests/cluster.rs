//! Clusters made and removed by the engine that does so, with its holds and journal on a datastore.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;

use contract::deployer::{Digests, Fingerprint, Fingerprints};
use serde_json::json;
use tokio::sync::watch;
use zeroize::Zeroizing;

use super::*;
use crate::authority::TakeOver;
use crate::deploy::{Arrived, Deploy, Guests, Notice, Wanted, WantedNode, Wish};
use crate::vcenter::DatastoreStore;
use crate::workers::Image;

const REMOVE: Wish<'static> = Wish::Destroy { cluster: "control", disks: true, also: &[] };

/// Guests that have formed as soon as they run.
struct Formed(BTreeSet<String>);

#[async_trait]
impl Guests for Formed {
    async fn kubeconfig(&self, node: Ipv4Addr, _: &Fingerprints) -> anyhow::Result<Zeroizing<String>> {
        Ok(Zeroizing::new(format!("from {node}")))
    }

    async fn ready(&self, _: &str) -> anyhow::Result<BTreeSet<String>> {
        Ok(self.0.clone())
    }
}

struct World {
    bed: Bed,
    hypervisor: VcenterHypervisor,
    store: DatastoreStore,
    _ova: Ova,
    wanted: Wanted,
}

impl World {
    async fn of(nodes: u8) -> Self {
        let bed = Bed::start(&["-others", "5", "-lease-timeout", "3s"]);
        // What its guests show once they run.
        let shown = Fingerprints { authority: Fingerprint::of(b"a"), endpoint: Fingerprint::of(b"e") };
        let ova = ova_with(vec![(Fingerprints::GUESTINFO.to_owned(), serde_json::to_string(&shown).unwrap())]);
        let node = |number: u8| WantedNode {
            name: format!("cp{number}"),
            address: Ipv4Addr::new(10, 0, 0, 10 + number),
            properties: properties(&format!("cp{number}")),
        };
        let wanted = Wanted {
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

    /// All anew, in the same process.
    async fn reset(&mut self) {
        self.bed.spoil_nothing().await;
        self.bed.reset().await;
        (self.hypervisor, self.store) = (self.bed.hypervisor().await, self.bed.store().await);
    }

    async fn give(&self, wish: Wish<'_>) -> anyhow::Result<Arrived> {
        let guests = Formed(self.wanted.nodes.iter().map(|node| node.name.clone()).collect());
        let deploy = Deploy {
            hypervisor: &self.hypervisor,
            guests: &guests,
            store: &self.store,
            placement: Placement::default(),
            what: "a test",
            watch: &|notice: &Notice<'_>| log::trace!("{notice:?}"),
            pace: Duration::from_millis(20),
            pause_limit: Duration::from_secs(20),
            empties: &|| Ok(()),
            cancelled: watch::channel(false).1,
        };
        deploy.go(wish, TakeOver::FromTheDead).await.map(|(arrived, _)| arrived)
    }

    /// Gives the command again and again until it has come to its end.
    async fn insist(&self, wish: Wish<'_>) -> Arrived {
        let mut said = Vec::new();
        for _ in 0..6 {
            match self.give(wish).await {
                Ok(arrived @ (Arrived::Up(_) | Arrived::Gone)) => return arrived,
                Ok(arrived) => said.push(format!("{arrived:?}")),
                Err(error) => said.push(format!("{error:#}")),
            }
        }
        panic!("{said:#?}");
    }

    /// Panics unless each node has one VM that runs, with its system disk and a data disk.
    async fn is_up(&self) {
        let vms = loop {
            match self.hypervisor.vms().await {
                Ok(vms) => break vms,
                // What was to go wrong on the way does so now.
                Err(error) => assert_eq!(error.kind, Kind::Transient, "{error}"),
            }
        };
        let mut nodes: Vec<_> = vms.iter().map(|vm| vm.stamp.as_ref().unwrap().node.clone()).collect();
        nodes.sort();
        assert!(nodes.iter().eq(self.wanted.nodes.iter().map(|node| &node.name)), "{vms:?}");
        for vm in &vms {
            assert_eq!((vm.power, vm.disks.len(), vm.data_disks().count()), (crate::hypervisor::PowerState::On, 2, 1));
        }
    }

    /// Panics unless nothing is left but templates and what is nobody's concern, no disk either.
    async fn is_gone(&self) {
        let left = loop {
            let left: Vec<_> = self.bed.machines().await.into_iter().filter(|machine| !machine.template).collect();
            // Half an upload goes with its lease.
            if !left.iter().any(|machine| machine.name.starts_with("kaas-image-")) {
                break left;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        assert!(left.iter().all(|machine| machine.name.starts_with("other-")), "{left:?}");
        assert_eq!(left.len(), 5);
        let top = self.bed.file("[LocalDS_0] ");
        for directory in std::fs::read_dir(top).unwrap().map(|entry| entry.unwrap()) {
            // The directory of a VM whose data disk went after it stays, empty.
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
    let wish = Wish::Deploy(&world.wanted);
    assert!(matches!(world.give(wish).await.unwrap(), Arrived::Up(_)));
    world.is_up().await;
    let before = world.bed.machines().await;
    assert!(matches!(world.give(wish).await.unwrap(), Arrived::Up(_)));
    assert_eq!(world.bed.machines().await, before, "a second deploy changes nothing");
    assert_eq!(world.give(REMOVE).await.unwrap(), Arrived::Gone);
    world.is_gone().await;
}

/// Calls that change something, and what is asked for the deployment's holds and journal.
const SPOILT: [&str; 12] = [
    "CloneVM_Task",
    "CreateSnapshot_Task",
    "Datastore",
    "DeleteVirtualDisk_Task",
    "Destroy_Task",
    "HttpNfcLeaseComplete",
    "ImportVApp",
    "MarkAsTemplate",
    "NFC",
    "PowerOnVM_Task",
    "ReconfigVM_Task",
    "ShutdownGuest",
];

/// What goes wrong with them.
fn faults(method: &str) -> Vec<(&'static str, serde_json::Value)> {
    let mut faults = vec![("lose-answer", json!({})), ("drop", json!({})), ("end-session", json!({}))];
    if method.ends_with("_Task") {
        faults.push(("fail-task", json!({ "fault": "HostCommunication" })));
        faults.push(("fail-task-late", json!({ "fault": "HostCommunication" })));
    }
    faults
}

/// Of the points at which something can go wrong one in so many is tried, or in as many as the variable says.
pub fn one_in(usual: usize) -> usize {
    let said = std::env::var("KAAS_TEST_VCENTER_EACH").ok();
    said.map_or(usual, |each| each.parse().expect("a number"))
}

#[tokio::test]
async fn whatever_goes_wrong_on_the_way_the_command_given_again_ends_as_it_should() {
    let mut world = World::of(1).await;
    // The way without a fault, to count.
    world.bed.count_anew().await;
    world.insist(Wish::Deploy(&world.wanted)).await;
    world.insist(REMOVE).await;
    let counts = world.bed.counts().await;
    let mut points = Vec::new();
    for method in SPOILT {
        let calls = counts.get(method).copied().unwrap_or_default().calls;
        assert!(calls > 0, "{method} is not called");
        for (skip, fault) in (0..calls).flat_map(|skip| faults(method).into_iter().map(move |fault| (skip, fault))) {
            points.push((method, skip, fault));
        }
    }
    // And any call at all, what only looks among them: it is not answered, its session has ended, a proxy answers for vCenter.
    let calls: u64 = counts.values().map(|count| count.calls).sum();
    let lost = [("drop", json!({})), ("end-session", json!({})), ("status", json!({ "code": 503 }))];
    let any: Vec<_> = (0..calls).flat_map(|skip| lost.iter().map(move |fault| ("", skip, fault.clone()))).collect();
    let tried: Vec<_> = points.iter().step_by(one_in(11)).chain(any.iter().step_by(one_in(127))).collect();
    println!("{} of {} points, {calls} calls", tried.len(), points.len() + any.len());
    for (method, skip, (what, more)) in tried {
        world.reset().await;
        let mut rule = more.clone();
        rule["skip"] = json!(skip);
        let begun = std::time::Instant::now();
        world.bed.spoil(method, what, rule).await;
        world.insist(Wish::Deploy(&world.wanted)).await;
        world.is_up().await;
        world.insist(REMOVE).await;
        world.is_gone().await;
        println!("{method} {skip} {what}: {:.1} s", begun.elapsed().as_secs_f32());
    }
}
