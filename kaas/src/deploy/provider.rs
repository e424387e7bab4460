//! What runs a cluster's VMs, as its file names it: one table of `[provider]`.

mod lab;

use std::path::PathBuf;

use contract::deployer::PrivateKey;
use fleet::authority::DirectoryStore;
use fleet::deploy::Wanted;
use fleet::hypervisor::Hypervisor;
use image::document::{Mistake, Table};

use self::lab::LabProvider;
use super::described::{NodeTable, Text};

/// Where a cluster's VMs are, or will be.
pub trait Provider {
    /// In words for people.
    fn words(&self) -> String;

    /// What of a description it cannot do, offline.
    fn mistakes(&self, text: &Text, nodes: &[NodeTable]) -> Vec<Mistake>;

    /// The networks that VMs are on, in the order of the image's.
    fn networks(&self) -> Vec<String>;

    /// The place; none if it is not there.
    ///
    /// # Errors
    /// When it cannot be looked at.
    fn find(&self) -> anyhow::Result<Option<Place>>;

    /// The place, made if it is not there. Killed in the middle, it is made anew by the next call.
    ///
    /// # Errors
    /// When it cannot be made.
    fn make(&self, wanted: &Wanted, key: &PrivateKey, say: &dyn Fn(&str)) -> anyhow::Result<Place>;

    /// Whether a cluster may be destroyed: nothing else stands on its place.
    ///
    /// # Errors
    /// What stands on it.
    fn may_destroy(&self) -> anyhow::Result<()>;

    /// Removes the place, once no VM and no disk is in it.
    ///
    /// # Errors
    /// When it cannot be removed; it can be tried again then.
    fn clear(&self) -> anyhow::Result<()>;

    /// How the cluster is reached from here where its own addresses do not lead there, in words for people.
    ///
    /// # Errors
    /// When the way cannot be opened.
    fn ways_in(&self) -> anyhow::Result<Vec<String>>;

    /// What a node says on its console that must be corrected, and where that is kept.
    fn complaints(&self, node: &str) -> Vec<String>;
}

/// Where a cluster's VMs are.
pub struct Place {
    /// What runs them.
    pub hypervisor: Box<dyn Hypervisor>,
    /// Where it is kept who may change them, and what was begun.
    pub store: DirectoryStore,
    /// The network namespace that they are reached from; none for this process's own.
    pub network: Option<PathBuf>,
}

/// What runs the VMs, as the file describes it.
#[derive(Clone, Debug)]
pub enum Described {
    /// A lab of this machine.
    Lab(LabProvider),
}

impl Described {
    /// Reads `[provider]`: one table, named as what runs the VMs.
    pub(super) fn read(table: &Table<'_, '_>) -> Option<Self> {
        table.table("lab", |lab| LabProvider::read(lab)).map(Self::Lab)
    }

    fn provider(&self) -> &(dyn Provider + 'static) {
        match self {
            Self::Lab(lab) => lab,
        }
    }
}

impl std::ops::Deref for Described {
    type Target = dyn Provider;

    fn deref(&self) -> &Self::Target {
        self.provider()
    }
}
