//! Inventory paths, such as `Datacenter/vm/Folder/name`. Names have `%2f`, `%5c` and `%25` for `/`, `\` and `%`, as in
//! vCenter.

use crate::client::Client;
use crate::error::{Error, Result};
use crate::method::FIND_BY_INVENTORY_PATH;
use crate::reference::MoRef;
use crate::soap::Element;

/// A limit of levels, above that of any inventory.
const DEEPEST: usize = 100;

impl Client {
    /// The object with an inventory path. A path has a data center, then `vm`, `host`, `datastore` or `network`.
    ///
    /// # Errors
    /// [`crate::Outcome::NotFound`] if the object does not exist, or the account cannot see it.
    pub async fn find(&self, path: &str) -> Result<MoRef> {
        let index = self.service().manager("searchIndex")?;
        let response = self.call(FIND_BY_INVENTORY_PATH, &index, vec![Element::text("inventoryPath", path)]).await?;
        let unseen =
            || Error::not_found(format!("looking for {path}"), "there is no such object, or the account cannot see it");
        response.reference_of("returnval").ok_or_else(unseen)
    }

    /// The inventory path of an object. Fails if the account cannot see all its ancestors.
    pub async fn path_of(&self, object: &MoRef) -> Result<String> {
        let root = self.service().root_folder()?;
        let (mut names, mut at) = (Vec::new(), object.clone());
        while at != root {
            if names.len() == DEEPEST {
                return Err(Error::unanswered(format!("looking for the path of {object}"), "it does not end"));
            }
            let seen = self.look(&at, &["name", "parent"]).await?;
            names.push(seen.need("name")?.value().to_owned());
            at = seen.need("parent")?.to_reference().ok_or_else(|| {
                Error::unanswered(format!("looking for the path of {object}"), "it has an end that is no root")
            })?;
        }
        names.reverse();
        Ok(names.join("/"))
    }
}
