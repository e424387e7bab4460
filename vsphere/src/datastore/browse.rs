//! Files and directories of a datastore.

use crate::changes::Changes;
use crate::client::Client;
use crate::error::{Error, Result};
use crate::guard::Unguarded;
use crate::method::{CANCEL_TASK, DELETE_DATASTORE_FILE, MAKE_DIRECTORY, MOVE_DATASTORE_FILE, SEARCH_DATASTORE};
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
    /// The time of the last change, in the form of XML Schema. Empty if vCenter does not report it.
    pub changed: String,
}

impl Client {
    /// The entries of a directory whose names match a pattern, such as `*.vmdk`. If the wait is dropped, the search is
    /// cancelled. Otherwise it would run as long as a datastore hangs, in parallel with the next one.
    ///
    /// # Errors
    /// [`crate::Outcome::NotFound`] if the directory does not exist.
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
        let search = Search { client: self, task: Some(response.need_reference("returnval")?) };
        match search.end().await {
            TaskEnd::Done(Some(found)) => Ok(found.all("file").map(file).collect()),
            TaskEnd::Done(None) => Err(Error::unanswered(attempt(), "vCenter has no result")),
            TaskEnd::Failed(fault) => Err(Error::of_fault(attempt(), fault)),
            TaskEnd::Unseen(reason) => Err(Error::unanswered(attempt(), reason)),
        }
    }
}

/// A search that is under way. It is cancelled if it is dropped before its end.
struct Search<'a> {
    client: &'a Client,
    task: Option<MoRef>,
}

impl Search<'_> {
    async fn end(mut self) -> TaskEnd {
        let Some(task) = &self.task else { return TaskEnd::Unseen("it was ended".to_owned()) };
        let end = self.client.end_of(task, self.client.settings().task_limit, None).await;
        if !matches!(end, TaskEnd::Unseen(_)) {
            self.task = None;
        }
        end
    }
}

impl Drop for Search<'_> {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            self.client.give_back(cancel(self.client.clone(), task));
        }
    }
}

async fn cancel(client: Client, task: MoRef) {
    // The task only reads, and this client started it.
    if let Err(error) = client.perform(CANCEL_TASK, &task, Vec::new(), &Unguarded).await {
        log::debug!("a search of a datastore was not ended, and goes on: {error}");
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
    /// Creates a directory, one level. `FileAlreadyExists` if it exists, also for one of two callers at once.
    pub async fn make_directory(&self, directory: &DatastorePath, datacenter: &MoRef) -> Result<()> {
        let manager = self.client.service().manager("fileManager")?;
        let arguments = vec![
            Element::text("name", directory),
            Element::reference("datacenter", datacenter),
            Element::text("createParentDirectories", false),
        ];
        self.change(MAKE_DIRECTORY, &manager, arguments).await.map(drop)
    }

    /// Moves a file, or a directory with its content, to another path on its datastore. Not for files of disks, which
    /// would no longer be disks.
    ///
    /// # Errors
    /// `FileNotFound`, `FileLocked`. `FileAlreadyExists` if the new path exists.
    pub async fn move_file(&self, from: &DatastorePath, to: &DatastorePath, datacenter: &MoRef) -> Result<()> {
        let manager = self.client.service().manager("fileManager")?;
        let arguments = vec![
            Element::text("sourceName", from),
            Element::reference("sourceDatacenter", datacenter),
            Element::text("destinationName", to),
            Element::reference("destinationDatacenter", datacenter),
            Element::text("force", false),
        ];
        self.run(MOVE_DATASTORE_FILE, &manager, arguments).await.map(drop)
    }

    /// Deletes a file, or a directory **with its content**.
    ///
    /// # Errors
    /// `FileNotFound`, `FileLocked`.
    pub async fn delete_file(&self, path: &DatastorePath, datacenter: &MoRef) -> Result<()> {
        let manager = self.client.service().manager("fileManager")?;
        let arguments = vec![Element::text("name", path), Element::reference("datacenter", datacenter)];
        self.run(DELETE_DATASTORE_FILE, &manager, arguments).await.map(drop)
    }
}
