//! A deployment's leases and journals on a datastore: numbered directories with small files. Only one caller creates
//! each directory: `FileManager.MakeDirectory` fails if it exists.

use std::fmt;

use async_trait::async_trait;
use vsphere::{Client, DatastorePath, Unguarded};

use super::datastore_directory::DatastoreDirectory;
use super::request_deadline::in_time;
use crate::lease::{Store, name_of, number_of};

/// The limit for a file of a lease or a journal, in bytes.
const LONGEST: usize = 16 << 20;

/// Numbered directories in a directory of a datastore.
pub struct DatastoreStore(DatastoreDirectory);

impl DatastoreStore {
    /// The store in a directory of a datastore, such as `[datastore] kaas/control`, which is created with the first
    /// lease. `datacenter` is the inventory path of the datastore's data center.
    ///
    /// # Errors
    /// The data center or the datastore does not exist, or the account cannot see it. Or the client's requests may
    /// arrive later than [`crate::lease::MARGIN`].
    pub async fn new(client: Client, datacenter: &str, directory: DatastorePath) -> anyhow::Result<Self> {
        in_time(&client)?;
        Ok(Self(DatastoreDirectory::find(client, datacenter, directory).await?))
    }

    /// Whether the directory exists.
    pub async fn is_made(&self) -> anyhow::Result<bool> {
        Ok(self.0.exists().await?)
    }

    fn numbered(&self, number: u64) -> DatastoreDirectory {
        self.0.below(&name_of(number))
    }
}

/// The path, for messages.
impl fmt::Display for DatastoreStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[async_trait]
impl Store for DatastoreStore {
    async fn numbers(&self) -> anyhow::Result<Vec<u64>> {
        let listed = self.0.listed().await?.unwrap_or_default();
        Ok(listed.iter().filter_map(|file| number_of(&file.name)).collect())
    }

    async fn exists(&self, number: u64) -> anyhow::Result<bool> {
        Ok(self.numbered(number).exists().await?)
    }

    async fn make(&self, number: u64) -> anyhow::Result<bool> {
        let directory = self.numbered(number);
        match directory.make(&Unguarded).await {
            Err(error) if error.is_fault("FileNotFound") => {
                self.0.make_with_parents(&Unguarded).await?;
                Ok(directory.make(&Unguarded).await?)
            }
            made => Ok(made?),
        }
    }

    async fn remove(&self, number: u64) -> anyhow::Result<()> {
        Ok(self.numbered(number).remove(&Unguarded).await?)
    }

    async fn read(&self, number: u64, file: &str) -> anyhow::Result<Option<String>> {
        Ok(self.numbered(number).read(file, LONGEST).await?)
    }

    async fn write(&self, number: u64, file: &str, text: &str) -> anyhow::Result<()> {
        Ok(self.numbered(number).write(file, text, &Unguarded).await?)
    }

    async fn files(&self, number: u64) -> anyhow::Result<Vec<String>> {
        let listed = self.numbered(number).listed().await?.unwrap_or_default();
        Ok(listed.into_iter().filter(|file| !file.is_directory).map(|file| file.name).collect())
    }
}
