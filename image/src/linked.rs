//! Files of the image's root with all their dependencies: targets of links, and libraries of programs. Independent of
//! their purpose.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::elf;
use crate::tree::{Kind, Tree};

/// Directories where the dynamic linker looks for libraries on Debian, and systemd's own directory.
const LIBRARY_DIRECTORIES: [&str; 2] = ["usr/lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu/systemd"];
const DYNAMIC_LINKER: &str = "usr/lib64/ld-linux-x86-64.so.2";

pub struct Selection<'r> {
    root: &'r Tree,
    tree: Tree,
}

impl<'r> Selection<'r> {
    pub fn of(root: &'r Tree) -> Self {
        Self { root, tree: Tree::default() }
    }

    /// The selected files, each at its path in the root.
    pub fn into_tree(self) -> Tree {
        self.tree
    }

    /// Adds a path with the targets of links and libraries of programs. If one is missing, those before it are
    /// selected.
    pub fn add(&mut self, path: &Path) -> Result<()> {
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

/// The target of a link at `path`, as a path of the tree.
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
    // /lib, /bin and similar are links into /usr.
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
    fn links_include_their_targets() {
        let mut root = Tree::default();
        root.text("usr/bin/udevadm", "text");
        root.link("usr/lib/systemd/systemd-udevd", "../../bin/udevadm");
        let mut selection = Selection::of(&root);
        selection.add(Path::new("usr/lib/systemd/systemd-udevd")).unwrap();
        assert!(selection.tree.get("usr/bin/udevadm").is_some());
        let error = selection.add(Path::new("usr/bin/kmod")).unwrap_err().to_string();
        assert_eq!(error, "the image has no usr/bin/kmod");
    }
}
