//! Where a deployment's holds and journals are kept: outside the cluster that is changed.

use std::net::Ipv4Addr;
use std::path::Path;

use async_trait::async_trait;
use tempfile::TempDir;
use uuid::Uuid;

use super::Holder;
use super::space_quota::SpaceQuota;

/// The name of a numbered directory. Leading zeros let listings sort.
pub(crate) fn name_of(number: u64) -> String {
    format!("{number:06}")
}

/// The number of a directory, if it is named as one: `7` is not 000007.
pub fn number_of(directory: &str) -> Option<u64> {
    directory.parse().ok().filter(|number| name_of(*number) == directory)
}

/// What was drawn for a machine before anything follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocatedIds {
    /// What its VM's stamp has.
    pub id: Uuid,
    /// BIOS UUID that its VM is made with, where that is drawn by now.
    pub vm: Option<Uuid>,
    /// Its address; none where it asks for one by DHCP.
    pub address: Option<Ipv4Addr>,
}

/// Numbered directories, each made by exactly one command, with a few small files in it. A directory of this machine can
/// keep it, a datastore, or objects of a control cluster.
///
/// Little is asked of it: making a directory fails when it is there, and what was written is read by whoever asks
/// afterwards. A write may be cut, and listing may be slow.
#[async_trait]
pub trait Store: Send + Sync {
    /// The numbers of the directories, in any order.
    ///
    /// # Errors
    /// When they cannot be read: there may be any then.
    async fn numbers(&self) -> anyhow::Result<Vec<u64>>;

    /// Whether a numbered directory is there.
    async fn exists(&self, number: u64) -> anyhow::Result<bool>;

    /// Makes a numbered directory. Of several commands that try, one succeeds: `false` for the others.
    ///
    /// # Errors
    /// When it cannot be made; it may be there all the same.
    async fn make(&self, number: u64) -> anyhow::Result<bool>;

    /// Removes a numbered directory with all that is in it.
    ///
    /// # Errors
    /// When it cannot be removed; some of it may be gone.
    async fn remove(&self, number: u64) -> anyhow::Result<()>;

    /// Reads a file of a numbered directory; none if it is not there. What is no text in it is replaced: a file that
    /// was cut is read up to the cut.
    async fn read(&self, number: u64, file: &str) -> anyhow::Result<Option<String>>;

    /// Writes a file of a numbered directory that is there: it is kept when this returns.
    ///
    /// # Errors
    /// When it cannot be written, or not for certain: the old text may stand, the new one, or a part of the new one.
    async fn write(&self, number: u64, file: &str, text: &str) -> anyhow::Result<()>;

    /// The names of the files of a numbered directory, in any order; none if it is not there.
    async fn files(&self, number: u64) -> anyhow::Result<Vec<String>>;

    /// Draws what a machine of this name is known by, for the hold of this number. `address` is one that nobody has by what is kept
    /// here. A store that knows more of machines than their journals draws it where it knows them, and may give another address: what
    /// was drawn, and is in no journal afterwards, it finds itself.
    async fn draw(&self, _number: u64, _machine: &str, address: Option<Ipv4Addr>) -> anyhow::Result<AllocatedIds> {
        Ok(AllocatedIds { id: Uuid::new_v4(), vm: None, address })
    }

    /// Who takes a hold here, to do `what`: this process, unless the program says otherwise. `now` is in seconds of
    /// Unix time. A controller has a name of its own, and no process.
    fn holder(&self, what: &str, now: u64) -> Holder {
        Holder::this(what, now)
    }

    /// Whether a holder is known to have ended: it begins nothing more, whatever it was permitted. Asked about holders
    /// of other forms too, which may be alive. A controller looks for its Lease.
    async fn has_ended(&self, holder: &Holder) -> anyhow::Result<bool> {
        Ok(holder.is_dead())
    }
}

/// Where snapshots of etcd are kept. They hold the cluster's Secrets: not everybody who may read holds and journals may
/// read them.
#[async_trait]
pub trait Snapshots: Send + Sync {
    /// Where a file of this name is kept, in words for people; none if it is not.
    async fn kept(&self, name: &str) -> anyhow::Result<Option<String>>;

    /// A directory for what is about to be kept, where there is as much room. It goes with the value.
    async fn spool(&self) -> anyhow::Result<TempDir> {
        Ok(tempfile::tempdir()?)
    }

    /// The room that there is for what is about to be kept: it is taken where it is known how much that is.
    fn room(&self) -> SpaceQuota {
        SpaceQuota::unbounded()
    }

    /// Keeps a file of a [`Snapshots::spool`], whole, and says where. The file may be gone from there.
    ///
    /// # Errors
    /// When there is no room; nothing of it is kept then.
    async fn keep(&self, name: &str, file: &Path) -> anyhow::Result<String>;
}
