//! A library: images that deployments share, imported once for all of them. To the vCenter it is one more deployment,
//! with templates and without VMs. A hypervisor of that deployment imports the images, and those of the others read
//! them. An account that may write into the library's directory on the datastore decides on the images of all.

use uuid::Uuid;
use vsphere::{About, DatastorePath};

use super::VcenterHypervisor;
use super::image::Standing;
use crate::hypervisor::{Placement, Result};

/// The namespace of the libraries' UUIDs.
const LIBRARIES: Uuid = Uuid::from_u128(0x2f1b_7c94_03a5_4b0e_9a6d_71c8_5e20_4d37);

/// Images that deployments share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    /// The deployment that imports them.
    pub id: Uuid,
    /// The directory with the notes of the imports.
    pub journal: DatastorePath,
}

impl Library {
    /// The library of a folder of templates. The same vCenter and the same arguments give the same library. `datastore`
    /// is the inventory path, below the data center, of the datastore with the notes.
    pub fn of(about: &About, datacenter: &str, templates: &str, datastore: &str) -> Self {
        let (datacenter, templates) = (datacenter.trim_matches('/'), templates.trim_matches('/'));
        let text = format!("{} {datacenter}/{templates}", about.instance_uuid);
        Self {
            id: Uuid::new_v5(&LIBRARIES, text.as_bytes()),
            journal: DatastorePath::new(name_of(datastore), "kaas/library"),
        }
    }
}

/// An imported template that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// Its name at the import.
    pub name: String,
    pub uuid: Uuid,
    /// The change since the import: no VM is created from it then. `None` if it is unchanged.
    pub altered: Option<String>,
}

impl VcenterHypervisor {
    /// The existing templates of an image where VMs of a placement are created. `digest` is the image's, in
    /// hexadecimal.
    pub async fn templates(&self, digest: &str, placement: &Placement) -> Result<Vec<Template>> {
        let at = self.datastore_beside(None, placement).await?;
        let mut found = Vec::new();
        for note in self.laid.notes_of(digest).await? {
            let Some(seal) = note.seal.as_ref().filter(|_| note.datastore == at.datastore.id) else { continue };
            let altered = match self.standing(seal).await? {
                Standing::Gone => continue,
                Standing::Whole(_) => None,
                Standing::Altered(what) => Some(what),
            };
            found.push(Template { name: note.name, uuid: note.uuid, altered });
        }
        Ok(found)
    }
}

/// The name of a path's object as in datastore paths, without the escapes of inventory paths.
fn name_of(path: &str) -> String {
    let last = path.rsplit('/').next().unwrap_or_default();
    last.replace("%2f", "/").replace("%2F", "/").replace("%5c", "\\").replace("%5C", "\\").replace("%25", "%")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_folder_gives_the_same_library() {
        let about = |uuid: &str| About {
            full_name: "vCenter".to_owned(),
            api_type: "VirtualCenter".to_owned(),
            api_version: "8.0.3.0".to_owned(),
            instance_uuid: uuid.to_owned(),
        };
        let library = Library::of(&about("a"), "DC1", "templates", "pod/vsan%2f1");
        assert_eq!(library, Library::of(&about("a"), "/DC1", "templates/", "pod/vsan%2f1"));
        assert_eq!(library.journal.to_string(), "[vsan/1] kaas/library");
        for other in [
            Library::of(&about("b"), "DC1", "templates", "pod/vsan%2f1"),
            Library::of(&about("a"), "DC2", "templates", "pod/vsan%2f1"),
            Library::of(&about("a"), "DC1", "other", "pod/vsan%2f1"),
        ] {
            assert_ne!(other.id, library.id);
        }
    }
}
