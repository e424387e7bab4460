//! A deployment's holds and journals on a datastore: numbered directories that vCenter makes for exactly one who asks, and
//! small files in them.
//!
//! `FileManager.MakeDirectory` fails when the directory is there. Files are read and written at `/folder`, in one request
//! each: one that breaks off leaves a part of the text, as a store may. Whether a directory is there is asked of the datastore's
//! browser, which tells "not there" from all other failures by a fault of its own.

use std::fmt;

use anyhow::Context;
use async_trait::async_trait;
use vsphere::{Client, DatastorePath, MoRef, Outcome, Unguarded};

use crate::authority::Store;

/// No journal is longer, in bytes.
const LONGEST: usize = 16 << 20;

/// All names.
const ALL: &str = "*";

/// Numbered directories in a directory of a datastore.
pub struct DatastoreStore {
    client: Client,
    datacenter: MoRef,
    datacenter_path: String,
    datastore: MoRef,
    directory: DatastorePath,
}

impl DatastoreStore {
    /// The store in a directory of a datastore, such as `[datastore] kaas/control`, which is made when a hold is first taken.
    /// `datacenter` is the inventory path of the datastore's data center.
    ///
    /// # Errors
    /// When there is no such data center or datastore, or they cannot be seen.
    pub async fn new(client: Client, datacenter: &str, directory: DatastorePath) -> anyhow::Result<Self> {
        let found = client.find(datacenter).await?;
        let datastore = datastore_of(&client, datacenter, &directory.datastore).await?;
        Ok(Self { client, datacenter: found, datacenter_path: datacenter.to_owned(), datastore, directory })
    }

    fn numbered(&self, number: u64) -> DatastorePath {
        self.directory.join(&name(number))
    }

    /// What is in a directory under names of a pattern; none if the directory is not there.
    async fn listed(&self, directory: &DatastorePath, names: &str) -> anyhow::Result<Option<Vec<vsphere::File>>> {
        match self.client.files(&self.datastore, directory, names).await {
            Ok(files) => Ok(Some(files)),
            Err(error) if error.is_fault("FileNotFound") => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes a directory; whether it was this call that did.
    async fn make_directory(&self, directory: &DatastorePath) -> vsphere::Result<bool> {
        match self.client.changes(&Unguarded).make_directory(directory, &self.datacenter).await {
            Ok(()) => Ok(true),
            Err(error) if error.is_fault("FileAlreadyExists") => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Makes the store's own directory with all above it.
    async fn make_own(&self) -> anyhow::Result<()> {
        let mut way = vec![self.directory.clone()];
        while let Some(above) = way.last().and_then(DatastorePath::parent).filter(|above| !above.path.is_empty()) {
            way.push(above);
        }
        for directory in way.iter().rev() {
            self.make_directory(directory).await?;
        }
        Ok(())
    }
}

/// The datastore of a name, which is unique in a data center. Only one that is in a folder or in a datastore cluster is looked
/// for among all.
async fn datastore_of(client: &Client, datacenter: &str, name: &str) -> anyhow::Result<MoRef> {
    match client.find(&format!("{datacenter}/datastore/{name}")).await {
        Ok(found) if found.kind == "Datastore" => return Ok(found),
        Err(error) if error.outcome() != Outcome::NotFound => return Err(error.into()),
        _ => {}
    }
    let folder = client.find(&format!("{datacenter}/datastore")).await?;
    let all = client.list(&folder, &["Datastore"], true, &["summary.name"]).await?;
    let found = all.into_iter().find(|seen| seen.text("summary.name") == name);
    Ok(found.with_context(|| format!("{datacenter} has no datastore {name}"))?.reference)
}

/// Where it is, for people.
impl fmt::Display for DatastoreStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.directory.fmt(f)
    }
}

/// The name of a numbered directory. Leading zeros let listings sort.
fn name(number: u64) -> String {
    format!("{number:06}")
}

/// The number of a directory, if it is named as one: `7` is not 000007.
fn number(directory: &str) -> Option<u64> {
    directory.parse().ok().filter(|number| name(*number) == directory)
}

#[async_trait]
impl Store for DatastoreStore {
    async fn numbers(&self) -> anyhow::Result<Vec<u64>> {
        let listed = self.listed(&self.directory, ALL).await?.unwrap_or_default();
        Ok(listed.iter().filter_map(|file| number(&file.name)).collect())
    }

    async fn exists(&self, number: u64) -> anyhow::Result<bool> {
        // Nothing is named so: whether the directory is there is all that is asked.
        Ok(self.listed(&self.numbered(number), "-").await?.is_some())
    }

    async fn make(&self, number: u64) -> anyhow::Result<bool> {
        let directory = self.numbered(number);
        match self.make_directory(&directory).await {
            Err(error) if error.is_fault("FileNotFound") => {
                self.make_own().await?;
                Ok(self.make_directory(&directory).await?)
            }
            made => Ok(made?),
        }
    }

    async fn remove(&self, number: u64) -> anyhow::Result<()> {
        Ok(self.client.changes(&Unguarded).delete_file(&self.numbered(number), &self.datacenter).await?)
    }

    async fn read(&self, number: u64, file: &str) -> anyhow::Result<Option<String>> {
        match self.client.read_file(&self.numbered(number).join(file), &self.datacenter_path, LONGEST).await {
            Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
            Err(error) if error.outcome() == Outcome::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn write(&self, number: u64, file: &str, text: &str) -> anyhow::Result<()> {
        let file = self.numbered(number).join(file);
        let bytes = text.as_bytes().to_vec();
        Ok(self.client.changes(&Unguarded).write_file(&file, &self.datacenter_path, bytes).await?)
    }

    async fn files(&self, number: u64) -> anyhow::Result<Vec<String>> {
        let listed = self.listed(&self.numbered(number), ALL).await?.unwrap_or_default();
        Ok(listed.into_iter().filter(|file| !file.is_directory).map(|file| file.name).collect())
    }
}
