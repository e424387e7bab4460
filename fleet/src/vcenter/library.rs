//! A library: images that deployments share, laid by whoever looks after them for all. To the vCenter it is one more deployment,
//! which has templates and no VM: it is laid by a hypervisor of that deployment, and read by those of the others. Who may write into
//! its directory on the datastore says what is an image for all of them.

use uuid::Uuid;
use vsphere::{About, DatastorePath};

use super::VcenterHypervisor;
use super::image::Standing;
use crate::hypervisor::{Placement, Result};

/// What libraries are numbered under.
const LIBRARIES: Uuid = Uuid::from_u128(0x2f1b_7c94_03a5_4b0e_9a6d_71c8_5e20_4d37);

/// Images that deployments share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    /// The deployment that they are laid by.
    pub id: Uuid,
    /// The directory that holds the notes of what was laid.
    pub journal: DatastorePath,
}

impl Library {
    /// That of a folder of templates. Whoever names the same vCenter and the same of these means the same one. `datastore` is the
    /// inventory path, below the data center, of that on which the notes are.
    pub fn of(about: &About, datacenter: &str, templates: &str, datastore: &str) -> Self {
        let (datacenter, templates) = (datacenter.trim_matches('/'), templates.trim_matches('/'));
        let text = format!("{} {datacenter}/{templates}", about.instance_uuid);
        Self {
            id: Uuid::new_v5(&LIBRARIES, text.as_bytes()),
            journal: DatastorePath::new(name_of(datastore), "kaas/library"),
        }
    }
}

/// A template that was laid, and is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// Its name, as it was laid.
    pub name: String,
    pub uuid: Uuid,
    /// What of it is not as it was laid: no VM is made from it then. None of one that is whole.
    pub altered: Option<String>,
}

impl VcenterHypervisor {
    /// The templates of an image where VMs of a placement are put, as far as they are there. `digest` is the image's, in hexadecimal.
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

/// The name of a path's object, as datastore paths write it: without the inventory's way to write some characters.
fn name_of(path: &str) -> String {
    let last = path.rsplit('/').next().unwrap_or_default();
    last.replace("%2f", "/").replace("%2F", "/").replace("%5c", "\\").replace("%5C", "\\").replace("%25", "%")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_the_same_for_whoever_names_the_same_folder() {
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
