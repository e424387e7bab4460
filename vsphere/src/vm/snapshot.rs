//! A VM's snapshots.

use crate::changes::Changes;
use crate::error::{Error, Result};
use crate::method::CREATE_SNAPSHOT;
use crate::reference::MoRef;
use crate::soap::Element;

/// A snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Its reference.
    pub reference: MoRef,
    /// Its name.
    pub name: String,
}

impl Snapshot {
    /// Reads `rootSnapshotList`, parents first.
    pub(super) fn read_all(list: &Element) -> Vec<Self> {
        let (mut found, mut open) = (Vec::new(), list.children().iter().rev().collect::<Vec<_>>());
        while let Some(tree) = open.pop() {
            let name = tree.text_of("name").unwrap_or_default().to_owned();
            found.extend(tree.reference_of("snapshot").map(|reference| Self { reference, name }));
            open.extend(tree.children().iter().filter(|child| child.name() == "childSnapshotList").rev());
        }
        found
    }
}

impl Changes<'_> {
    /// Creates a snapshot of a VM's disks without its memory, as linked clones need it.
    pub async fn create_snapshot(&self, vm: &MoRef, name: &str, description: &str) -> Result<MoRef> {
        let arguments = vec![
            Element::text("name", name),
            Element::text("description", description),
            Element::text("memory", false),
            Element::text("quiesce", false),
        ];
        let made = self.run(CREATE_SNAPSHOT, vm, arguments).await?;
        let unnamed = || Error::in_doubt(format!("making the snapshot {name} of {vm}"), "vCenter does not name it");
        made.and_then(|made| made.to_reference()).ok_or_else(unnamed)
    }
}
