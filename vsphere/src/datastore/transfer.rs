//! Reads and writes small files on a datastore, through vCenter.
//!
//! Source: "Managing datastore files over HTTP(S)", vSphere Web Services SDK Programming Guide:
//! `/folder/{path}?dcPath=…&dsName=…`.

use url::Url;

use crate::changes::Changes;
use crate::client::{Client, Transfer};
use crate::error::Result;

use super::path::DatastorePath;

impl Client {
    /// The bytes of a file, at most `most`. `datacenter` is the inventory path of the datastore's data center, such as
    /// `folder/DC1` ([`Client::path_of`]).
    ///
    /// # Errors
    /// [`crate::Outcome::NotFound`] if the file does not exist. Another error if it is longer.
    pub async fn read_file(&self, file: &DatastorePath, datacenter: &str, most: usize) -> Result<Vec<u8>> {
        self.transfer(&address(self.server(), file, datacenter), &Transfer::Get(most)).await
    }
}

impl Changes<'_> {
    /// Writes a whole file, and replaces an existing one. Readers may see a part of it meanwhile.
    ///
    /// # Errors
    /// [`crate::Outcome::InDoubt`] if vCenter did not answer. A part of the file may exist.
    pub async fn write_file(&self, file: &DatastorePath, datacenter: &str, bytes: Vec<u8>) -> Result<()> {
        let url = address(self.client.server(), file, datacenter);
        self.client.transfer(&url, &Transfer::Put(bytes, self.guard)).await.map(drop)
    }
}

fn address(server: &Url, file: &DatastorePath, datacenter: &str) -> Url {
    let mut url = server.clone();
    if let Ok(mut path) = url.path_segments_mut() {
        path.clear().push("folder").extend(file.path.split('/').filter(|part| !part.is_empty()));
    }
    url.query_pairs_mut().append_pair("dcPath", datacenter).append_pair("dsName", &file.datastore);
    url
}
