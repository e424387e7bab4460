use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use contract::image::ImageFacts;
use contract::swap::VmImage;
use uuid::Uuid;

use super::node_record;
use crate::cluster::etcd::client::EtcdClient;
use crate::cluster::kubernetes::upgrade::UpgradeRecord;
use crate::cluster::records::Records;
use crate::host::disk::{Identity, Slots, Swap, slots};
use crate::intake::config::ControlPlane;
use crate::status::Reporter;

/// How long this node's member may take to answer, times the timeout factor.
const ASKING: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub struct SwapContext {
    pub config: ControlPlane,
    pub root: PathBuf,
    pub pki: PathBuf,
    pub image: ImageFacts,
    pub disk: PathBuf,
    pub own: VmImage,
    pub reporter: Reporter,
    pub announcer: node_record::Announcer,
    /// Serializes changes of this node's announcement.
    pub announcement_lock: AnnouncementLock,
}

/// A lock for changes of the announcement of a node that leaves its work. A caller holds it from reading the state
/// until the cluster has the announcement. Therefore maintenance cannot undo a swap that has just begun. Clones share
/// the lock.
#[derive(Clone, Default)]
pub struct AnnouncementLock(Arc<Mutex<()>>);

impl AnnouncementLock {
    pub fn take(&self) -> MutexGuard<'_, ()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn is_taken(&self) -> bool {
        self.0.try_lock().is_err()
    }
}

impl SwapContext {
    /// The newest identity on the data disk. An error if it has none.
    pub fn identity(&self) -> anyhow::Result<Identity> {
        let slots = Slots::read(&self.disk).with_context(|| format!("reading {}", self.disk.display()))?;
        slots.newest().cloned().context("the data disk has lost its identity")
    }

    pub fn set_swap(&self, swap: Option<Swap>) -> anyhow::Result<()> {
        self.write(&Identity { swap, ..self.identity()? })
    }

    pub fn write(&self, identity: &Identity) -> anyhow::Result<()> {
        slots::write(&self.disk, identity).with_context(|| format!("writing to {}", self.disk.display()))
    }

    pub fn etcd(&self) -> anyhow::Result<EtcdClient> {
        EtcdClient::new(&self.announcer.node, &self.pki, self.announcer.timeout)
    }

    /// The key that a commit pins: the one named for this swap, if it has signed the running image.
    pub fn next_publisher(&self, identity: &Identity) -> Option<String> {
        let named = identity.swap.as_ref()?.publisher.clone()?;
        (self.image.publisher.as_ref() == Some(&named) && identity.publisher.as_ref() != Some(&named)).then_some(named)
    }

    pub fn records(&self) -> Records {
        Records::new(&self.root)
    }

    /// Announces the swap or upgrade under way, as it is once the lock is held.
    pub fn announce(&self, under_way: impl FnOnce() -> Option<Uuid>) -> anyhow::Result<()> {
        let _turn = self.announcement_lock.take();
        self.announcer.announce(under_way())
    }

    pub fn upgrade(&self) -> Option<UpgradeRecord> {
        self.records().entry::<UpgradeRecord>().ok().flatten().filter(UpgradeRecord::is_under_way)
    }

    /// The other nodes that are being swapped, or upgraded to another Kubernetes.
    pub fn others_under_way(&self) -> anyhow::Result<Vec<String>> {
        let etcd = EtcdClient::new(&self.announcer.node, &self.pki, self.config.timeout(ASKING))?;
        node_record::others_under_way(&etcd, &self.config.node.name)
    }

    /// Writes a change to the log on the data disk. A failure is only logged.
    pub fn note(&self, what: &str) {
        log::info!("{what}");
        if let Err(error) = self.records().note_swap(SystemTime::now(), what) {
            log::warn!("{error:#}");
        }
    }
}
