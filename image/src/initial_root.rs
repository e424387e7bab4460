//! The initial root: systemd, udev, dm-verity and the agent's early step, taken
//! file by file from the image's own tree with the libraries they need. No
//! shell, no scripts: what the firmware loads is small and starts quickly.

mod contents;
mod cpio;
mod elf;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::kernel::Unpacked;
use crate::rootfs::AGENT;
use crate::tree::{Kind, Tree};

pub use cpio::archive;

/// Where the dynamic linker looks for libraries on Debian, with the directory of systemd's own.
const LIBRARY_DIRECTORIES: [&str; 2] = ["usr/lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu/systemd"];
const DYNAMIC_LINKER: &str = "usr/lib64/ld-linux-x86-64.so.2";

/// Puts the initial root together from the image's root.
///
/// # Errors
/// When the image lacks a file that the initial root needs.
pub fn compose(root: &Tree, kernel: &Unpacked) -> Result<Tree> {
    let mut builder = Builder { root, tree: Tree::default() };
    for path in contents::FILES {
        builder.add(Path::new(path)).with_context(|| format!("adding {path} to the initial root"))?;
    }
    for path in contents::UNITS {
        let path = Path::new("usr/lib/systemd/system").join(path);
        builder.add(&path).with_context(|| format!("adding {} to the initial root", path.display()))?;
    }
    builder.add(Path::new(AGENT)).context("adding the agent to the initial root")?;
    let mut tree = builder.tree;
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

struct Builder<'r> {
    root: &'r Tree,
    tree: Tree,
}

impl Builder<'_> {
    /// Adds a path with what it points to or is linked with.
    fn add(&mut self, path: &Path) -> Result<()> {
        let mut pending = vec![path.to_owned()];
        let mut seen = BTreeSet::new();
        while let Some(path) = pending.pop() {
            if self.tree.get(&path).is_some() || !seen.insert(path.clone()) {
                continue;
            }
            let Some(node) = self.root.get(&path) else { bail!("the image has no {}", path.display()) };
            self.tree.insert(&path, node.clone());
            match &node.kind {
                Kind::Directory => {
                    let inside = self.root.iter().filter(|(inner, _)| inner.parent() == Some(&path));
                    pending.extend(inside.map(|(inner, _)| inner.to_owned()));
                }
                Kind::Link(target) if target == Path::new("/dev/null") => {}
                Kind::Link(target) => pending.push(resolve(&path, target)),
                Kind::File(content) => {
                    let bytes = content.read().with_context(|| format!("reading {}", path.display()))?;
                    let needed = elf::needed(&bytes).with_context(|| format!("reading {}", path.display()))?;
                    if !needed.is_empty() {
                        pending.push(PathBuf::from(DYNAMIC_LINKER));
                    }
                    for library in needed {
                        pending.push(self.library(&library).with_context(|| format!("{} needs it", path.display()))?);
                    }
                }
            }
        }
        Ok(())
    }

    fn library(&self, name: &str) -> Result<PathBuf> {
        if DYNAMIC_LINKER.ends_with(name) {
            return Ok(PathBuf::from(DYNAMIC_LINKER));
        }
        let mut places = LIBRARY_DIRECTORIES.iter().map(|directory| Path::new(directory).join(name));
        places.find(|place| self.root.get(place).is_some()).with_context(|| format!("the image has no library {name}"))
    }
}

/// What a link at `path` points to, as a path of the tree.
fn resolve(path: &Path, target: &Path) -> PathBuf {
    let mut place = match target.is_absolute() {
        true => PathBuf::new(),
        false => path.parent().unwrap_or(Path::new("")).to_owned(),
    };
    for part in target.components() {
        match part {
            std::path::Component::ParentDir => {
                place.pop();
            }
            std::path::Component::Normal(name) => place.push(name),
            _ => {}
        }
    }
    // /lib, /bin and the like are links into /usr.
    let merged = ["bin", "sbin", "lib", "lib64"].iter().any(|name| place.starts_with(name));
    if merged { Path::new("usr").join(place) } else { place }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_followed_within_the_tree() {
        let cases = [
            ("usr/sbin/init", "../lib/systemd/systemd", "usr/lib/systemd/systemd"),
            ("usr/lib64/ld.so", "/lib/x86_64-linux-gnu/ld.so", "usr/lib/x86_64-linux-gnu/ld.so"),
            ("usr/bin/udevd", "udevadm", "usr/bin/udevadm"),
        ];
        for (path, target, expected) in cases {
            assert_eq!(resolve(Path::new(path), Path::new(target)), Path::new(expected));
        }
    }

    #[test]
    fn links_bring_their_targets_and_missing_files_are_named() {
        let mut root = Tree::default();
        root.text("usr/bin/udevadm", "text");
        root.link("usr/lib/systemd/systemd-udevd", "../../bin/udevadm");
        let mut builder = Builder { root: &root, tree: Tree::default() };
        builder.add(Path::new("usr/lib/systemd/systemd-udevd")).unwrap();
        assert!(builder.tree.get("usr/bin/udevadm").is_some());
        let error = builder.add(Path::new("usr/bin/kmod")).unwrap_err().to_string();
        assert_eq!(error, "the image has no usr/bin/kmod");
    }
}
