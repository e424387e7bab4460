//! Files and directories of a datastore.

use crate::changes::Changes;
use crate::client::Client;
use crate::error::{Error, Result};
use crate::method::{DELETE_DATASTORE_FILE, MAKE_DIRECTORY, SEARCH_DATASTORE};
use crate::reference::MoRef;
use crate::soap::Element;
use crate::task::TaskEnd;

use super::path::DatastorePath;

/// A file or a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Its name in its directory.
    pub name: String,
    /// Its size in bytes.
    pub size: u64,
    /// Whether it is a directory.
    pub is_directory: bool,
    /// When it was changed, as XML Schema writes it; empty if vCenter does not say.
    pub changed: String,
}

impl Client {
    /// What is in a directory of a datastore under names of a pattern, such as `*.vmdk`.
    ///
    /// # Errors
    /// [`crate::Outcome::NotFound`] when there is no such directory.
    pub async fn files(&self, datastore: &MoRef, directory: &DatastorePath, pattern: &str) -> Result<Vec<File>> {
        let attempt = || format!("listing {directory}");
        let browser = self.look(datastore, &["browser"]).await?;
        let no_browser = || Error::unanswered(attempt(), "the datastore names no browser");
        let browser = browser.reference_at("browser").ok_or_else(no_browser)?;
        let details =
            ["fileType", "fileSize", "modification", "fileOwner"].map(|name| Element::text(name, name != "fileOwner"));
        let spec = Element::new("searchSpec")
            .with([Element::new("details").with(details), Element::text("matchPattern", pattern)]);
        let arguments = vec![Element::text("datastorePath", directory), spec];
        let response = self.call(SEARCH_DATASTORE, &browser, arguments).await?;
        let task = response.need_reference("returnval")?;
        match self.end_of(&task, self.settings().task_limit, None).await {
            TaskEnd::Done(Some(found)) => Ok(found.all("file").map(file).collect()),
            TaskEnd::Done(None) => Err(Error::unanswered(attempt(), "vCenter has no result")),
            TaskEnd::Failed(fault) => Err(Error::of_fault(attempt(), fault)),
            TaskEnd::Unseen(reason) => Err(Error::unanswered(attempt(), reason)),
        }
    }
}

fn file(info: &Element) -> File {
    let text = |name: &str| info.text_of(name).unwrap_or_default().to_owned();
    File {
        name: text("path"),
        size: info.parsed("fileSize").unwrap_or_default(),
        is_directory: info.kind() == Some("FolderFileInfo"),
        changed: text("modification"),
    }
}

impl Changes<'_> {
    /// Makes a directory, one level. Of two who make it at once, one is told that it is there.
    ///
    /// # Errors
    /// `FileAlreadyExists` when it is there.
    pub async fn make_directory(&self, directory: &DatastorePath, datacenter: &MoRef) -> Result<()> {
        let manager = self.client.service().manager("fileManager")?;
        let arguments = vec![
            Element::text("name", directory),
            Element::reference("datacenter", datacenter),
            Element::text("createParentDirectories", false),
        ];
        self.change(MAKE_DIRECTORY, &manager, arguments).await.map(drop)
    }

    /// Deletes a file, or a directory **with all that is in it**.
    ///
    /// # Errors
    /// `FileNotFound`, `FileLocked`.
    pub async fn delete_file(&self, path: &DatastorePath, datacenter: &MoRef) -> Result<()> {
        let manager = self.client.service().manager("fileManager")?;
        let arguments = vec![Element::text("name", path), Element::reference("datacenter", datacenter)];
        self.run(DELETE_DATASTORE_FILE, &manager, arguments).await.map(drop)
    }
}
