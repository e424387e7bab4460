//! The initial root: systemd, udev, dm-verity and the agent's early step, copied file by file from the image's own
//! tree with the libraries they need. It has neither shell nor scripts: the firmware loads a small file, which starts
//! quickly.

mod contents;
mod cpio;

use std::path::Path;

use anyhow::{Context, Result};

use crate::kernel::UnpackedKernel;
use crate::linked::Selection;
use crate::rootfs::AGENT;
use crate::tree::Tree;

pub use cpio::archive;

/// Composes the initial root from the image's root. Fails if it lacks a file that the initial root needs.
pub fn compose(root: &Tree, kernel: &UnpackedKernel) -> Result<Tree> {
    let mut selection = Selection::of(root);
    for path in contents::FILES {
        selection.add(Path::new(path)).with_context(|| format!("adding {path} to the initial root"))?;
    }
    for path in contents::UNITS {
        let path = Path::new("usr/lib/systemd/system").join(path);
        selection.add(&path).with_context(|| format!("adding {} to the initial root", path.display()))?;
    }
    selection.add(Path::new(AGENT)).context("adding the agent to the initial root")?;
    let mut tree = selection.into_tree();
    for (unit, wanted_by) in contents::WANTED {
        tree.link(format!("usr/lib/systemd/system/{wanted_by}/{unit}"), format!("../{unit}"));
    }
    for (path, target) in contents::LINKS {
        tree.link(path, target);
    }
    for (path, text) in contents::TEXTS {
        tree.text(path, *text);
    }
    for directory in contents::DIRECTORIES {
        tree.directory(directory);
    }
    tree.host_directory(&kernel.initial_modules, Path::new("usr/lib/modules"))?;
    Ok(tree)
}
