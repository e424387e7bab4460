//! Inventory paths, such as `Datacenter/vm/Folder/name`. In names `/`, `\` and `%` are written `%2f`, `%5c` and `%25`, as
//! vCenter keeps them.

use crate::client::Client;
use crate::error::{Error, Result};
use crate::method::FIND_BY_INVENTORY_PATH;
use crate::reference::MoRef;
use crate::soap::Element;

/// Deeper than any inventory.
const DEEPEST: usize = 100;

impl Client {
    /// The object of an inventory path. A path leads to a data center, and from there to `vm`, `host`, `datastore` or `network`.
    ///
    /// # Errors
    /// [`crate::Outcome::NotFound`] when there is none, or the account cannot see it.
    pub async fn find(&self, path: &str) -> Result<MoRef> {
        let index = self.service().manager("searchIndex")?;
        let response = self.call(FIND_BY_INVENTORY_PATH, &index, vec![Element::text("inventoryPath", path)]).await?;
        let unseen =
            || Error::not_found(format!("looking for {path}"), "there is no such object, or the account cannot see it");
        response.reference_of("returnval").ok_or_else(unseen)
    }

    /// The inventory path of an object.
    ///
    /// # Errors
    /// When it is gone, or the account cannot see all objects on the way.
    pub async fn path_of(&self, object: &MoRef) -> Result<String> {
        let way = self.way_to(object).await?;
        Ok(way.into_iter().rev().map(|(_, name)| name).collect::<Vec<_>>().join("/"))
    }

    /// The data center that an object is in.
    ///
    /// # Errors
    /// When it is in none.
    pub async fn datacenter_of(&self, object: &MoRef) -> Result<MoRef> {
        let way = self.way_to(object).await?;
        let found = way.into_iter().map(|(object, _)| object).find(|object| object.kind == "Datacenter");
        found.ok_or_else(|| Error::not_found(format!("looking for the data center of {object}"), "it is in none"))
    }

    /// An object, what it is in, and so on, with their names; without the root folder, which no path names.
    async fn way_to(&self, object: &MoRef) -> Result<Vec<(MoRef, String)>> {
        let root = self.service().root_folder()?;
        let (mut way, mut at) = (Vec::new(), object.clone());
        while at != root {
            if way.len() == DEEPEST {
                return Err(Error::unanswered(format!("looking for the path of {object}"), "it does not end"));
            }
            let seen = self.look(&at, &["name", "parent"]).await?;
            let name = seen.need("name")?.value().to_owned();
            let above = seen.need("parent")?.to_reference();
            way.push((at, name));
            at = above.ok_or_else(|| {
                Error::unanswered(format!("looking for the path of {object}"), "it has an end that is no root")
            })?;
        }
        Ok(way)
    }
}
