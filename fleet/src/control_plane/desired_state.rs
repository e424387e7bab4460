//! What is wanted of a cluster.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use contract::deployer::{Digests, Fingerprint, PublicKey};
use contract::properties::{DEPLOYER_PUBLIC_KEY, DEPLOYMENT_SECRET};

use uuid::Uuid;

use crate::hypervisor::{Placement, Size};
use crate::workers::Image;

/// A cluster's control nodes, as they are to be made.
pub struct DesiredState {
    pub cluster: String,
    pub nodes: Vec<WantedNode>,
    /// How large their VMs are.
    pub size: Size,
    pub image: Image,
    pub ova: PathBuf,
    /// The networks that they are on, in the order of the image's.
    pub networks: Vec<String>,
    /// Where those are put of which nothing else is said.
    pub placement: Placement,
    /// Makes what the journal has of their forms: by a key that stays with the deployer.
    pub digests: Digests,
}

pub struct WantedNode {
    /// Its name, and that of its VM.
    pub name: String,
    pub address: Ipv4Addr,
    /// All its OVF properties by key. There are secrets among them.
    pub properties: BTreeMap<String, String>,
    /// BIOS UUID that its VM is made with, if somebody has drawn one for it already. Nobody else has ever been given it. Where this process
    /// itself has drawn it, and what is kept may be turned back, that is said to [`super::Unfinished`].
    pub drawn: Option<Uuid>,
    /// Where its VM is put, if not where the others are.
    pub placement: Option<Placement>,
}

impl DesiredState {
    /// Where a node's VM is put.
    pub(super) fn placement<'a>(&'a self, node: &'a WantedNode) -> &'a Placement {
        node.placement.as_ref().unwrap_or(&self.placement)
    }

    /// What a node's VM is made of, in short: whoever was made of something else is another one. Secrets go in, and whoever reads
    /// the journal cannot guess them by it. The deployment secret is left out, which is of no use to anybody once the cluster
    /// has formed, and may be gone by then.
    pub(super) fn made_of(&self, node: &WantedNode) -> String {
        let told = node.properties.iter().filter(|(key, _)| key.as_str() != DEPLOYMENT_SECRET);
        let told: Vec<_> = told.map(|(key, value)| format!("{key}={value:?}\n")).collect();
        let Size { processors, memory, data_disk } = &self.size;
        self.digests.digest("form", &format!("{processors} {memory} {data_disk:?}\n{}", told.concat()))
    }

    /// Fingerprint of the deployer's key that its VMs are told; none where they are told none.
    pub fn deployer(&self) -> Option<Fingerprint> {
        let told = self.nodes.iter().find_map(|node| node.properties.get(DEPLOYER_PUBLIC_KEY))?;
        Some(told.parse::<PublicKey>().ok()?.fingerprint())
    }

    /// The deployment secret that a node's VM is told, in short; none if it is gone.
    pub(super) fn secret(&self, node: &WantedNode) -> Option<String> {
        let secret = node.properties.get(DEPLOYMENT_SECRET)?;
        Some(self.digests.digest("deployment-secret", secret))
    }
}
