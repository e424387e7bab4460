//! The state that the server's thread and the boot flow share: the record, and rejected connections.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use contract::codes;
use contract::finding::{Finding, Findings, Severity};
use contract::properties::ControlNode;
use uuid::Uuid;

use super::channel::Endpoint;
use super::error::Error;
use super::meeting::Own;
use super::message::{Facts, Hello, Membership, Progress};
use super::record::RendezvousRecord;
use super::settings::{JoinWindow, SaveRecord, Settings};
use crate::cluster::pki::MemberBundle;

/// How many rejected addresses are kept, so that strangers cannot fill the memory.
const STRANGERS: usize = 16;

/// How long a rejected connection is reported.
const STRANGER_STAYS: Duration = Duration::from_secs(60);

pub(super) struct Shared {
    pub settings: Settings,
    pub facts: Facts,
    pub instance: Uuid,
    pub endpoint: Endpoint,
    window: JoinWindow,
    inner: Mutex<Inner>,
    changed: Condvar,
}

struct Inner {
    record: RendezvousRecord,
    keep: SaveRecord,
    receiving: bool,
    strangers: BTreeMap<IpAddr, (Finding, Instant)>,
}

impl Shared {
    pub(super) fn new(
        settings: Settings,
        endpoint: Endpoint,
        record: RendezvousRecord,
        keep: SaveRecord,
        window: JoinWindow,
    ) -> Self {
        Self {
            window,
            facts: Facts::of(&settings.config, &settings.image),
            instance: Uuid::new_v4(),
            endpoint,
            inner: Mutex::new(Inner { record, keep, receiving: false, strangers: BTreeMap::new() }),
            changed: Condvar::new(),
            settings,
        }
    }

    /// A thread that panicked has left the record complete: it is replaced at once or not at all.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn peers(&self) -> Vec<ControlNode> {
        self.settings.config.peers().cloned().collect()
    }

    pub(super) fn first(&self) -> &ControlNode {
        &self.settings.config.cluster.control_nodes[0]
    }

    pub(super) fn this(&self) -> &ControlNode {
        self.settings.config.control_node().unwrap_or_else(|_| self.first())
    }

    fn listed(&self, address: IpAddr) -> Option<&ControlNode> {
        self.settings.config.cluster.control_nodes.iter().find(|node| IpAddr::V4(node.address) == address)
    }

    pub(super) fn is_listed(&self, address: IpAddr) -> bool {
        self.listed(address).is_some()
    }

    /// This node's introduction to `to`.
    pub(super) fn hello(&self, to: Option<&str>) -> Hello {
        let inner = self.lock();
        Hello {
            node: self.settings.config.node.name.clone(),
            instance: self.instance,
            state: inner.state(),
            facts: self.facts.clone(),
            clock: clock(),
            yours: to.and_then(|to| match &inner.record {
                RendezvousRecord::First { progress, .. } => progress.get(to).copied(),
                _ => None,
            }),
        }
    }

    pub(super) fn own(&self) -> Own {
        let inner = self.lock();
        Own { first: self.settings.config.is_first(), state: inner.record.state(), quorum: inner.quorum() }
    }

    /// This node's bundle, once it may be used: on the first node when etcd can have a quorum, elsewhere when it has
    /// been saved.
    pub(super) fn settled(&self) -> Result<Option<MemberBundle>, Error> {
        let inner = self.lock();
        match &inner.record {
            RendezvousRecord::Unformed => Ok(None),
            RendezvousRecord::First { bundles, .. } if inner.quorum() => {
                bundles.get(&self.settings.config.node.name).cloned().map(Some).ok_or(Error::NotListed)
            }
            RendezvousRecord::First { .. } => Ok(None),
            RendezvousRecord::Member { bundle, .. } => Ok(Some((**bundle).clone())),
            RendezvousRecord::Admitting { .. } => Err(Error::NotListed),
            RendezvousRecord::Closed { cluster } => Err(Error::Closed(*cluster)),
        }
    }

    /// Makes the first node's decision. It is saved when this returns.
    pub(super) fn form(&self) -> Result<(), Error> {
        let mut inner = self.lock();
        if inner.record != RendezvousRecord::Unformed {
            return Ok(());
        }
        let config = &self.settings.config;
        let record = RendezvousRecord::decide(&config.cluster, &config.node.name, SystemTime::now())?;
        inner.replace(record)
    }

    /// Sets whether others learn that a bundle may be on its way to this node.
    pub(super) fn set_receiving(&self, receiving: bool) {
        self.lock().receiving = receiving;
    }

    /// Accepts this node's bundle. It is saved when this returns.
    pub(super) fn take_bundle(&self, bundle: MemberBundle, admitted: bool) -> Result<(), Error> {
        bundle.check(self.this(), SystemTime::now())?;
        let mut inner = self.lock();
        if inner.record != RendezvousRecord::Unformed {
            return Ok(());
        }
        inner.replace(RendezvousRecord::Member { bundle: Box::new(bundle), admitted })
    }

    /// Whether `node` may get its bundle now. `false` if that cannot be determined.
    pub(super) fn is_open_to(&self, node: &str) -> bool {
        (self.window)(node).unwrap_or_else(|error| {
            log::error!("looking whether {node} may join now: {error:#}");
            false
        })
    }

    /// The bundle for `node`, if any. Certificates that would end soon are made again first: a node may come months
    /// after the decision to form.
    pub(super) fn bundle_for(&self, node: &str) -> Result<Option<MemberBundle>, Error> {
        let mut inner = self.lock();
        let present = match &inner.record {
            // A holder of the secret at a joined node's address gets nothing.
            RendezvousRecord::First { progress, .. } if progress.get(node) == Some(&Progress::Joined) => None,
            RendezvousRecord::First { bundles, .. } => bundles.get(node),
            RendezvousRecord::Admitting { bundle, .. } if bundle.node == node => Some(&**bundle),
            _ => None,
        };
        let Some(present) = present.cloned() else { return Ok(None) };
        let now = SystemTime::now();
        let listed = self.settings.config.cluster.control_nodes.iter().find(|listed| listed.name == node);
        let Some(listed) = listed.filter(|listed| present.check(listed, now).is_err()) else {
            return Ok(Some(present));
        };
        log::info!("the bundle of {node} is made again: its certificates end soon");
        let fresh = MemberBundle::make(present.cluster, listed, &present.cas, now)?;
        let mut record = inner.record.clone();
        match &mut record {
            RendezvousRecord::First { bundles, .. } => drop(bundles.insert(node.to_owned(), fresh.clone())),
            RendezvousRecord::Admitting { bundle, .. } => **bundle = fresh.clone(),
            _ => {}
        }
        inner.replace(record)?;
        Ok(Some(fresh))
    }

    /// Whether the node that is admitted has saved its bundle.
    pub(super) fn handed_over(&self) -> bool {
        matches!(self.lock().record, RendezvousRecord::Admitting { saved: true, .. })
    }

    /// Records on the first node the progress of another one. It never decreases.
    pub(super) fn note(&self, node: &str, cluster: Uuid, reached: Progress) -> Result<bool, Error> {
        let mut inner = self.lock();
        if let RendezvousRecord::Admitting { cluster: own, bundle, saved } = &inner.record {
            if *own != cluster || bundle.node != node {
                return Ok(false);
            }
            if !saved {
                let record = RendezvousRecord::Admitting { cluster, bundle: bundle.clone(), saved: true };
                inner.replace(record)?;
                drop(inner);
                self.changed.notify_all();
            }
            return Ok(true);
        }
        let RendezvousRecord::First { cluster: own, progress, .. } = &inner.record else { return Ok(false) };
        let Some(known) = progress.get(node) else { return Ok(false) };
        if *own != cluster {
            return Ok(false);
        }
        if *known < reached {
            let mut record = inner.record.clone();
            if let RendezvousRecord::First { progress, .. } = &mut record {
                progress.insert(node.to_owned(), reached);
            }
            inner.replace(record)?;
            drop(inner);
            self.changed.notify_all();
        }
        Ok(true)
    }

    /// Closes the rendezvous on this node for good. This is saved when it returns.
    pub(super) fn close(&self) -> Result<(), Error> {
        let mut inner = self.lock();
        match inner.record.state().cluster() {
            Some(cluster) => inner.replace(RendezvousRecord::Closed { cluster }),
            None => Err(Error::NotFormed),
        }
    }

    /// The progress of each other node, as the first node knows it.
    pub(super) fn progress(&self) -> BTreeMap<String, Progress> {
        match &self.lock().record {
            RendezvousRecord::First { progress, .. } => progress.clone(),
            _ => BTreeMap::new(),
        }
    }

    /// Remembers the address of a peer that failed to prove the deployment secret.
    pub(super) fn turn_away(&self, address: IpAddr) {
        let (subject, listed) = match self.listed(address) {
            Some(node) => (format!("{} ({address})", node.name), true),
            None => (address.to_string(), false),
        };
        let (seen, action) = (
            "it connected with a different deployment secret",
            "Give every control-plane node the same deployment secret, and check that nothing else uses the address",
        );
        let mut finding = codes::PEER_SECRET.finding(subject, seen, action);
        if !listed {
            finding.severity = Severity::Warning;
        }
        let mut inner = self.lock();
        let now = Instant::now();
        inner.strangers.retain(|_, (_, at)| now.duration_since(*at) < STRANGER_STAYS);
        if inner.strangers.len() < STRANGERS || listed {
            if !inner.strangers.contains_key(&address) {
                log::warn!("{finding}");
            }
            inner.strangers.insert(address, (finding, now));
        }
    }

    /// The addresses that failed to prove the deployment secret lately. Addresses that have `proved` it since are
    /// removed.
    pub(super) fn strangers(&self, proved: &[Ipv4Addr]) -> Findings {
        let mut inner = self.lock();
        let now = Instant::now();
        inner.strangers.retain(|address, (_, at)| {
            now.duration_since(*at) < STRANGER_STAYS && !proved.iter().any(|proved| IpAddr::V4(*proved) == *address)
        });
        let mut findings = Findings::default();
        for (finding, _) in inner.strangers.values() {
            findings.push(finding.clone());
        }
        findings
    }

    /// Waits until something has changed, at most for `time`.
    pub(super) fn pause(&self, time: Duration) {
        let inner = self.lock();
        drop(self.changed.wait_timeout(inner, time).unwrap_or_else(PoisonError::into_inner));
    }
}

impl Inner {
    fn state(&self) -> Membership {
        match self.record.state() {
            Membership::Unformed if self.receiving => Membership::Receiving,
            state => state,
        }
    }

    /// Whether etcd can have a quorum: this node and those that hold their bundle.
    fn quorum(&self) -> bool {
        match &self.record {
            RendezvousRecord::First { bundles, progress, .. } => {
                let ready = 1 + progress.values().filter(|progress| **progress >= Progress::HandedOver).count();
                ready > bundles.len() / 2
            }
            _ => false,
        }
    }

    /// Saves the record, then replaces it in memory.
    fn replace(&mut self, record: RendezvousRecord) -> Result<(), Error> {
        (self.keep)(&record).map_err(Error::Keep)?;
        self.record = record;
        Ok(())
    }
}

/// Seconds since 1970. A clock before that counts as 0.
pub(super) fn clock() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
