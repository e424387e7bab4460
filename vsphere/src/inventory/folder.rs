//! Folders.

use crate::changes::Changes;
use crate::error::{Error, Result};
use crate::method::CREATE_FOLDER;
use crate::reference::MoRef;
use crate::soap::Element;

impl Changes<'_> {
    /// Creates a folder in another one. `DuplicateName` if an object with this name exists.
    pub async fn create_folder(&self, parent: &MoRef, name: &str) -> Result<MoRef> {
        let response = self.change(CREATE_FOLDER, parent, vec![Element::text("name", name)]).await?;
        let unnamed = || Error::in_doubt(format!("making the folder {name} in {parent}"), "vCenter does not name it");
        response.reference_of("returnval").ok_or_else(unnamed)
    }
}
