//! Copies of data disks, as a journal has noted them: where each lies, and whether it is whole.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::entry::{Entry, Event};
use super::kept_copy::{DiskCopy, KeptCopy};
use super::plan::{Action, Plan, PlannedNode};

/// The mark in the name of a node's copy: the swap before which it was made.
pub(super) fn mark(node: &PlannedNode) -> String {
    let swap = node.swap.simple().to_string();
    format!("before-{}", &swap[..8])
}

/// The copies of a node's data disk that exist after these entries. A disk that was moved between two tries has one in
/// each place.
pub(super) fn kept(entries: &[Entry], node: usize) -> Vec<KeptCopy> {
    let mut kept: BTreeMap<&str, Option<Uuid>> = BTreeMap::new();
    for entry in entries {
        match &entry.event {
            // One that lies there is removed first.
            Event::Begun { step, copy: Some(path), .. } if step.node == Some(node) => {
                kept.insert(path, None);
            }
            Event::Done { step, copies, .. } if step.node == Some(node) => {
                if step.action == Action::DeleteCopy {
                    kept.clear();
                }
                kept.extend(copies.iter().map(|copy| (&*copy.path, copy.uuid)));
            }
            _ => {}
        }
    }
    kept.into_iter().map(|(path, uuid)| KeptCopy { path: path.to_owned(), uuid }).collect()
}

/// The copies of all nodes that exist after these entries.
pub(super) fn of_all(plan: &Plan, entries: &[Entry]) -> Vec<DiskCopy> {
    let of = |(index, node): (usize, &PlannedNode)| {
        let name = node.name.clone();
        kept(entries, index).into_iter().map(move |copy| DiskCopy { node: name.clone(), copy })
    };
    plan.nodes.iter().enumerate().flat_map(of).collect()
}
