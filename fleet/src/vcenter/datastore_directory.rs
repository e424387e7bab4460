//! A directory of a datastore with small files. Files are read and written at `/folder`, in one request each: an
//! interrupted write leaves a part of the text. Listings come from the datastore's browser, which reports a missing
//! file by a distinct fault. Knows nothing of the files' content.

use std::fmt;

use anyhow::Context;
use vsphere::{Client, DatastorePath, Fence, File, MoRef, Outcome};

use super::trouble::not_now;
use crate::hypervisor::Result;

const ALL: &str = "*";

#[derive(Clone)]
pub(super) struct DatastoreDirectory {
    client: Client,
    datacenter: MoRef,
    datacenter_path: String,
    datastore: MoRef,
    path: DatastorePath,
}

impl DatastoreDirectory {
    /// The directory of a path. `datacenter` is the inventory path of the datastore's data center.
    pub(super) async fn find(client: Client, datacenter: &str, path: DatastorePath) -> anyhow::Result<Self> {
        let found = client.find(datacenter).await?;
        let datastore = datastore_of(&client, datacenter, &path.datastore).await?;
        Ok(Self { client, datacenter: found, datacenter_path: datacenter.to_owned(), datastore, path })
    }

    /// The datastore of the directory, and the datastore's name.
    pub(super) fn datastore(&self) -> (&MoRef, &str) {
        (&self.datastore, self.path.datastore.as_str())
    }

    pub(super) fn below(&self, name: &str) -> Self {
        Self { path: self.path.join(name), ..self.clone() }
    }

    /// The files in the directory. `None` if it does not exist.
    pub(super) async fn listed(&self) -> vsphere::Result<Option<Vec<File>>> {
        self.named(ALL).await
    }

    pub(super) async fn exists(&self) -> vsphere::Result<bool> {
        // No file has this name: only the directory's existence matters.
        Ok(self.named("-").await?.is_some())
    }

    async fn named(&self, names: &str) -> vsphere::Result<Option<Vec<File>>> {
        match self.client.files(&self.datastore, &self.path, names).await {
            Ok(files) => Ok(Some(files)),
            Err(error) if error.is_fault("FileNotFound") => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates the directory. Returns whether this call created it.
    ///
    /// # Errors
    /// `FileNotFound` if the parent directory does not exist.
    pub(super) async fn make(&self, guard: &dyn Fence) -> vsphere::Result<bool> {
        match self.client.changes(guard).make_directory(&self.path, &self.datacenter).await {
            Ok(()) => Ok(true),
            Err(error) if error.is_fault("FileAlreadyExists") => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Creates the directory with its parents.
    pub(super) async fn make_with_parents(&self, guard: &dyn Fence) -> vsphere::Result<()> {
        let mut way = vec![self.path.clone()];
        while let Some(above) = way.last().and_then(DatastorePath::parent).filter(|above| !above.path.is_empty()) {
            way.push(above);
        }
        for path in way.into_iter().rev() {
            Self { path, ..self.clone() }.make(guard).await?;
        }
        Ok(())
    }

    /// Removes the directory with its content.
    pub(super) async fn remove(&self, guard: &dyn Fence) -> vsphere::Result<()> {
        self.client.changes(guard).delete_file(&self.path, &self.datacenter).await
    }

    pub(super) async fn remove_file(&self, file: &str, guard: &dyn Fence) -> vsphere::Result<()> {
        self.client.changes(guard).delete_file(&self.path.join(file), &self.datacenter).await
    }

    /// Reads a file of at most `most` bytes. `None` if it does not exist. Bytes that are not UTF-8 are replaced.
    ///
    /// # Errors
    /// The file cannot be read, or is longer. A "not found" from vCenter says little: it also answers so if it cannot
    /// reach the datastore by that path just now. Only a file that is not listed either does not exist.
    pub(super) async fn read(&self, file: &str, most: usize) -> Result<Option<String>> {
        match self.client.read_file(&self.path.join(file), &self.datacenter_path, most).await {
            Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
            Err(error) if error.outcome() == Outcome::NotFound => {
                let listed = self.named(file).await?.unwrap_or_default();
                if listed.iter().any(|listed| listed.name == file) {
                    return Err(not_now(format!("{} is listed, and cannot be read: {error}", self.path.join(file))));
                }
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Writes a whole file. It replaces an existing one.
    pub(super) async fn write(&self, file: &str, text: &str, guard: &dyn Fence) -> vsphere::Result<()> {
        let bytes = text.as_bytes().to_vec();
        self.client.changes(guard).write_file(&self.path.join(file), &self.datacenter_path, bytes).await
    }
}

/// The path, for messages.
impl fmt::Display for DatastoreDirectory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.fmt(f)
    }
}

/// The datastore of a name, which is unique in a data center. A listing of all is needed only for a datastore in a
/// folder or a datastore cluster.
pub(super) async fn datastore_of(client: &Client, datacenter: &str, name: &str) -> anyhow::Result<MoRef> {
    let found = find_datastore(client, datacenter, name).await?;
    found.with_context(|| format!("{datacenter} has no datastore {name}"))
}

/// As [`datastore_of`], but `None` if no such datastore exists or the account cannot see it. A datastore that no host
/// reaches exists.
///
/// # Errors
/// The answer is unknown.
pub(super) async fn find_datastore(client: &Client, datacenter: &str, name: &str) -> vsphere::Result<Option<MoRef>> {
    match client.find(&format!("{datacenter}/datastore/{}", escaped(name))).await {
        Ok(found) if found.kind == "Datastore" => return Ok(Some(found)),
        Err(error) if error.outcome() != Outcome::NotFound => return Err(error),
        _ => {}
    }
    let folder = client.find(&format!("{datacenter}/datastore")).await?;
    let all = client.list(&folder, &["Datastore"], true, &["summary.name"]).await?;
    let found = all.into_iter().find(|seen| seen.text("summary.name") == name);
    Ok(found.map(|datastore| datastore.reference))
}

/// Escapes a name for an inventory path.
fn escaped(name: &str) -> String {
    name.replace('%', "%25").replace('/', "%2f").replace('\\', "%5c")
}
