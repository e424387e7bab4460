//! The store of a deployment's leases and journals, outside the cluster that is changed.

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

/// The identifiers that are drawn for a machine before they are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocatedIds {
    /// The identifier in its VM's stamp.
    pub id: Uuid,
    /// The BIOS UUID of its VM, if it is already drawn.
    pub vm: Option<Uuid>,
    /// Its address. `None` if it uses DHCP.
    pub address: Option<Ipv4Addr>,
}

/// Numbered directories with a few small files. Exactly one command creates each. The store may be a directory of this
/// machine, a datastore, or objects of a control cluster.
///
/// Two properties are required. Creating a directory fails if it exists. A later read sees an earlier write. A write
/// may be cut, and listing may be slow.
#[async_trait]
pub trait Store: Send + Sync {
    /// The numbers of the directories, in any order.
    ///
    /// # Errors
    /// The numbers cannot be read: any directory may exist.
    async fn numbers(&self) -> anyhow::Result<Vec<u64>>;

    /// Whether a numbered directory exists.
    async fn exists(&self, number: u64) -> anyhow::Result<bool>;

    /// Creates a numbered directory. Of several commands that try, one succeeds. The others get `false`.
    ///
    /// # Errors
    /// The call failed, but the directory may exist.
    async fn make(&self, number: u64) -> anyhow::Result<bool>;

    /// Removes a numbered directory with its content.
    ///
    /// # Errors
    /// The directory cannot be removed. A part of it may be gone.
    async fn remove(&self, number: u64) -> anyhow::Result<()>;

    /// Reads a file of a numbered directory. `None` if it is missing. Bytes that are not UTF-8 are replaced: a cut file
    /// is read up to the cut.
    async fn read(&self, number: u64, file: &str) -> anyhow::Result<Option<String>>;

    /// Writes a file of an existing numbered directory. The file is durable when this returns.
    ///
    /// # Errors
    /// The file was not written for certain. It may have the old text, the new text, or a part of the new text.
    async fn write(&self, number: u64, file: &str, text: &str) -> anyhow::Result<()>;

    /// The names of the files of a numbered directory, in any order. Empty if it does not exist.
    async fn files(&self, number: u64) -> anyhow::Result<Vec<String>>;

    /// Draws the identifiers of a machine of this name, for the lease of this number. `address` is free according to
    /// the journals in this store. A store that knows the machines may draw from that knowledge and return another
    /// address. It then finds identifiers itself that were drawn and are in no journal.
    async fn draw(&self, _number: u64, _machine: &str, address: Option<Ipv4Addr>) -> anyhow::Result<AllocatedIds> {
        Ok(AllocatedIds { id: Uuid::new_v4(), vm: None, address })
    }

    /// The holder that acquires a lease here, to do `what`: this process, unless the program overrides it. `now` is in
    /// seconds of Unix time. A controller has its own name and no process.
    fn holder(&self, what: &str, now: u64) -> Holder {
        Holder::this(what, now)
    }

    /// Whether a holder is known to have ended: it begins nothing more, even if it has a permission. A holder of
    /// another form may be alive. A controller looks for its Lease.
    async fn has_ended(&self, holder: &Holder) -> anyhow::Result<bool> {
        Ok(holder.is_dead())
    }
}

/// The store of etcd snapshots. They contain the cluster's Secrets: not all users who may read leases and journals may
/// read them.
#[async_trait]
pub trait Snapshots: Send + Sync {
    /// The place of a file with this name, in words for users. `None` if it is missing.
    async fn kept(&self, name: &str) -> anyhow::Result<Option<String>>;

    /// A directory for an incoming file, with enough room for it. It is deleted with the value.
    async fn spool(&self) -> anyhow::Result<TempDir> {
        Ok(tempfile::tempdir()?)
    }

    /// The room for incoming files. It is taken when the size is known.
    fn room(&self) -> SpaceQuota {
        SpaceQuota::unbounded()
    }

    /// Stores a complete file of a [`Snapshots::spool`] and returns its place. The file may be moved away from the
    /// spool.
    ///
    /// # Errors
    /// There is no room. Nothing of the file is stored.
    async fn keep(&self, name: &str, file: &Path) -> anyhow::Result<String>;
}
