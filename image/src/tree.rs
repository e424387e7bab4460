//! A tree of files as a value: composed in memory from archives, directories and texts, then written once, sorted, as
//! a tar archive. Owners and modes are set explicitly, never those of the build host. Independent of the purpose of
//! the files.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::cache::{Cache, KeyBuilder};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Directory,
    File(Content),
    Link(PathBuf),
}

/// The source of a file's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    Bytes(Vec<u8>),
    /// In a file of the build host.
    Host(PathBuf),
    /// In an archive: its path, the offset and the length in bytes.
    Slice(PathBuf, u64, u64),
}

impl Content {
    pub fn length(&self) -> io::Result<u64> {
        Ok(match self {
            Content::Bytes(bytes) => bytes.len() as u64,
            Content::Host(path) => fs::metadata(path)?.len(),
            Content::Slice(_, _, length) => *length,
        })
    }

    /// Opens its bytes as a stream.
    pub fn open(&self) -> io::Result<Box<dyn Read + '_>> {
        Ok(match self {
            Content::Bytes(bytes) => Box::new(bytes.as_slice()),
            Content::Host(path) => Box::new(File::open(path)?),
            Content::Slice(path, offset, length) => {
                let mut file = File::open(path)?;
                file.seek(SeekFrom::Start(*offset))?;
                Box::new(file.take(*length))
            }
        })
    }

    pub fn read(&self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.open()?.read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub kind: Kind,
    /// Permission bits, with set-user-ID, set-group-ID and sticky.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
}

impl Node {
    fn of_root(kind: Kind, mode: u32) -> Self {
        Self { kind, mode, uid: 0, gid: 0 }
    }
}

/// A tree: paths without a leading slash, each with its node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree(BTreeMap<PathBuf, Node>);

impl Tree {
    /// The wanted files of a tar archive. The archive must stay in place until the tree is written. Fails if an entry
    /// is a device or has extended attributes: a tree cannot have these.
    pub fn from_tar(path: &Path, wanted: impl Fn(&Path) -> bool) -> Result<Self> {
        let reading = || format!("reading {}", path.display());
        let mut archive = tar::Archive::new(File::open(path).with_context(reading)?);
        let mut tree = Self::default();
        for entry in archive.entries_with_seek().with_context(reading)? {
            let mut entry = entry.with_context(reading)?;
            let name = relative(&entry.path().with_context(reading)?);
            if !wanted(&name) {
                continue;
            }
            if let Some(extensions) = entry.pax_extensions().with_context(reading)? {
                for extension in extensions {
                    let key = extension.with_context(reading)?.key_bytes().to_owned();
                    // File capabilities are dropped: ping needs none with systemd's settings. The few other programs
                    // with capabilities are for the administrator, who has sudo.
                    if key.starts_with(b"SCHILY.xattr.") && key != b"SCHILY.xattr.security.capability" {
                        bail!("{}: {} has an extended attribute, which would be lost", path.display(), name.display());
                    }
                }
            }
            let header = entry.header();
            let kind = match header.entry_type() {
                tar::EntryType::Directory => Kind::Directory,
                tar::EntryType::Regular => {
                    Kind::File(Content::Slice(path.to_owned(), entry.raw_file_position(), entry.size()))
                }
                tar::EntryType::Symlink => {
                    let target = entry.link_name().with_context(reading)?;
                    Kind::Link(target.context("a symbolic link without a target")?.into_owned())
                }
                // A hard link becomes a separate file with the same bytes.
                tar::EntryType::Link => {
                    let target = entry.link_name().with_context(reading)?.context("a hard link without a target")?;
                    let target = tree.0.get(&relative(&target)).context("a hard link before its target")?;
                    target.kind.clone()
                }
                other => bail!("{}: {} is of kind {other:?}", path.display(), name.display()),
            };
            let mode = header.mode().with_context(reading)? & 0o7777;
            let owner = |id: io::Result<u64>| id.ok().and_then(|id| u32::try_from(id).ok()).context("a wrong owner");
            let node = Node { kind, mode, uid: owner(header.uid())?, gid: owner(header.gid())? };
            tree.0.insert(name, node);
        }
        tree.0.remove(Path::new(""));
        Ok(tree)
    }

    /// Adds a file with these bytes, owned by root.
    pub fn text(&mut self, path: &str, content: impl Into<Vec<u8>>) {
        self.file(path, Content::Bytes(content.into()), 0o644);
    }

    /// Adds a file, owned by root, and its parent directories.
    pub fn file(&mut self, path: impl AsRef<Path>, content: Content, mode: u32) {
        self.insert(path.as_ref(), Node::of_root(Kind::File(content), mode));
    }

    /// Adds a symbolic link and its parent directories.
    pub fn link(&mut self, path: impl AsRef<Path>, target: impl Into<PathBuf>) {
        self.insert(path.as_ref(), Node::of_root(Kind::Link(target.into()), 0o777));
    }

    /// Adds a directory, owned by root, and its parent directories. An existing one keeps its mode.
    pub fn directory(&mut self, path: impl AsRef<Path>) {
        let path = relative(path.as_ref());
        if !matches!(self.0.get(&path), Some(Node { kind: Kind::Directory, .. })) {
            self.insert(&path, Node::of_root(Kind::Directory, 0o755));
        }
    }

    /// Adds everything in a directory of the build host under `to`. Files belong to root and are executable if their
    /// owner may execute them. The rest of the mode is the tree's, independent of the host's umask.
    pub fn host_directory(&mut self, from: &Path, to: &Path) -> Result<()> {
        for entry in walkdir::WalkDir::new(from).sort_by_file_name() {
            let entry = entry.with_context(|| format!("reading {}", from.display()))?;
            let path = to.join(entry.path().strip_prefix(from)?);
            let kind = entry.file_type();
            if kind.is_symlink() {
                let target = fs::read_link(entry.path());
                self.link(path, target.with_context(|| format!("reading {}", entry.path().display()))?);
            } else if kind.is_dir() {
                self.directory(path);
            } else {
                let mode = if crate::cache::is_executable(entry.path())? { 0o755 } else { 0o644 };
                self.file(path, Content::Host(entry.path().to_owned()), mode);
            }
        }
        Ok(())
    }

    /// Adds another tree, which has priority.
    pub fn lay_over(&mut self, other: Tree) {
        for (path, node) in other.0 {
            self.insert(&path, node);
        }
    }

    /// Adds a node and its parent directories. Replaces the node at the path, and a directory with its content,
    /// unless the new node is a directory too. The root is implicit and always a directory.
    pub fn insert(&mut self, path: &Path, node: Node) {
        let path = relative(path);
        if path.as_os_str().is_empty() {
            return;
        }
        for above in path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()) {
            self.0.entry(above.to_owned()).or_insert_with(|| Node::of_root(Kind::Directory, 0o755));
        }
        if node.kind != Kind::Directory {
            self.remove(&path);
        }
        self.0.insert(path, node);
    }

    /// Removes a path, with everything below it.
    pub fn remove(&mut self, path: &Path) {
        let path = relative(path);
        self.0.retain(|name, _| !name.starts_with(&path));
    }

    pub fn retain(&mut self, mut wanted: impl FnMut(&Path, &Node) -> bool) {
        self.0.retain(|path, node| wanted(path, node));
    }

    pub fn get(&self, path: impl AsRef<Path>) -> Option<&Node> {
        self.0.get(&relative(path.as_ref()))
    }

    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let path = path.as_ref();
        match self.get(path) {
            Some(Node { kind: Kind::File(content), .. }) => {
                content.read().with_context(|| format!("reading {} of the tree", path.display()))
            }
            _ => bail!("the tree has no file {}", path.display()),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Path, &Node)> {
        self.0.iter().map(|(path, node)| (path.as_path(), node))
    }

    /// The tree as a tar archive in pieces: sorted by path, with the time `epoch` (seconds since 1970). With `root` it
    /// begins with an entry for the root directory itself. Fails if a name is too long.
    pub fn archive(&self, epoch: u64, root: bool) -> Result<Vec<Piece<'_>>> {
        let mut pieces = Vec::new();
        let mut bytes = Vec::new();
        if root {
            bytes.extend(entry(Path::new("./"), &Node::of_root(Kind::Directory, 0o755), epoch)?);
        }
        for (path, node) in self.iter() {
            bytes.extend(entry(path, node, epoch).with_context(|| format!("packing {}", path.display()))?);
            if let Kind::File(content) = &node.kind {
                let length = content.length().with_context(|| format!("packing {}", path.display()))?;
                pieces.push(Piece::Bytes(std::mem::take(&mut bytes)));
                pieces.push(Piece::Content(content, length));
                bytes.resize((length.next_multiple_of(BLOCK) - length) as usize, 0);
            }
        }
        bytes.resize(bytes.len() + END_OF_ARCHIVE, 0);
        pieces.push(Piece::Bytes(bytes));
        Ok(pieces)
    }

    /// Writes the tree as a tar archive, as [`Tree::archive`] with the root.
    pub fn write_tar(&self, mut to: impl Write, epoch: u64) -> Result<()> {
        for piece in self.archive(epoch, true)? {
            match piece {
                Piece::Bytes(bytes) => to.write_all(&bytes)?,
                Piece::Content(content, length) => {
                    let copied = io::copy(&mut content.open()?, &mut to)?;
                    if copied != length {
                        bail!("a file changed while it was packed: {content:?}");
                    }
                }
            }
        }
        Ok(to.flush()?)
    }

    /// Adds the tree to a key: paths, owners, modes and contents. A file in the cache has a key in its path, which
    /// counts instead of its content.
    pub fn add_to_key(&self, mut key: KeyBuilder, cache: &Cache) -> Result<KeyBuilder> {
        for (path, node) in self.iter() {
            let Node { kind, mode, uid, gid } = node;
            key = key.text("path", path.as_os_str().as_bytes()).text("node", format!("{mode:o} {uid} {gid}"));
            key = match kind {
                Kind::Directory => key.text("directory", ""),
                Kind::Link(target) => key.text("link", target.as_os_str().as_bytes()),
                Kind::File(Content::Bytes(bytes)) => key.text("bytes", bytes),
                Kind::File(Content::Slice(archive, offset, length)) => {
                    key.text("slice", format!("{} {offset} {length}", cache.name_of(archive)?))
                }
                Kind::File(Content::Host(file)) => key.text("file", cache.name_of(file)?),
            };
        }
        Ok(key)
    }

    /// Writes the tree into an empty directory of the build host, with owners if this process may set them. After an
    /// error, the files that were written before remain.
    pub fn write_directory(&self, directory: &Path) -> Result<()> {
        use std::os::unix::fs::{PermissionsExt, chown, symlink};
        let privileged = nix::unistd::geteuid().is_root();
        for (path, node) in self.iter() {
            let place = directory.join(path);
            let write = || -> Result<()> {
                match &node.kind {
                    Kind::Directory => fs::create_dir(&place)?,
                    Kind::Link(target) => return Ok(symlink(target, &place)?),
                    Kind::File(content) => {
                        io::copy(&mut content.open()?, &mut File::create_new(&place)?)?;
                    }
                }
                if privileged {
                    chown(&place, Some(node.uid), Some(node.gid))?;
                }
                Ok(fs::set_permissions(&place, fs::Permissions::from_mode(node.mode))?)
            };
            write().with_context(|| format!("writing {}", place.display()))?;
        }
        Ok(())
    }
}

/// A piece of a tar archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece<'t> {
    /// Headers and padding.
    Bytes(Vec<u8>),
    Content(&'t Content, u64),
}

/// Archives have blocks of this size (POSIX, ustar Interchange Format).
const BLOCK: u64 = 512;
/// Two blocks of zeros end an archive.
const END_OF_ARCHIVE: usize = 1024;

/// An entry of an archive without the file's bytes.
fn entry(path: &Path, node: &Node, epoch: u64) -> Result<Vec<u8>> {
    let mut header = tar::Header::new_gnu();
    header.set_mode(node.mode);
    header.set_uid(node.uid.into());
    header.set_gid(node.gid.into());
    header.set_mtime(epoch);
    header.set_size(0);
    let mut archive = tar::Builder::new(Vec::new());
    match &node.kind {
        Kind::Directory => {
            header.set_entry_type(tar::EntryType::Directory);
            archive.append_data(&mut header, path, io::empty())?;
        }
        Kind::Link(target) => {
            header.set_entry_type(tar::EntryType::Symlink);
            archive.append_link(&mut header, path, target)?;
        }
        Kind::File(content) => {
            header.set_entry_type(tar::EntryType::Regular);
            header.set_size(content.length()?);
            archive.append_data(&mut header, path, io::empty())?;
        }
    }
    let mut bytes = archive.into_inner()?;
    bytes.truncate(bytes.len() - END_OF_ARCHIVE);
    Ok(bytes)
}

/// The path without root, `.` and `..`, as in a tree.
fn relative(path: &Path) -> PathBuf {
    path.components().filter(|part| matches!(part, Component::Normal(_))).collect()
}

/// Whether a path matches a pattern, part by part. `*` matches any characters in a part, and a last part `**` matches
/// everything below.
pub fn matches(pattern: &str, path: &Path) -> bool {
    let mut parts = path.components().map(|part| part.as_os_str().as_bytes());
    let mut patterns = pattern.trim_start_matches('/').split('/');
    loop {
        match (patterns.next(), parts.next()) {
            (Some("**"), Some(_)) => return true,
            (Some(pattern), Some(part)) if part_matches(pattern.as_bytes(), part) => {}
            (None, None) => return true,
            _ => return false,
        }
    }
}

fn part_matches(pattern: &[u8], part: &[u8]) -> bool {
    match pattern.split_first() {
        None => part.is_empty(),
        Some((b'*', rest)) => (0..=part.len()).any(|skipped| part_matches(rest, &part[skipped..])),
        Some((byte, rest)) => part.first() == Some(byte) && part_matches(rest, &part[1..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_trees_give_equal_archives() {
        let mut tree = Tree::default();
        tree.text("/etc/hosts", "127.0.0.1 localhost\n");
        tree.link("bin", "usr/bin");
        tree.insert(
            Path::new("usr/bin/sudo"),
            Node { kind: Kind::File(Content::Bytes(vec![7; 5000])), mode: 0o4755, uid: 0, gid: 27 },
        );
        tree.directory(format!("data/{}", "long/".repeat(60)));
        let directory = tempfile::tempdir().unwrap();
        let (first, second) = (directory.path().join("a.tar"), directory.path().join("b.tar"));
        tree.write_tar(File::create(&first).unwrap(), 1000).unwrap();
        let read = Tree::from_tar(&first, |_| true).unwrap();
        read.write_tar(File::create(&second).unwrap(), 1000).unwrap();
        assert_eq!(fs::read(&first).unwrap(), fs::read(&second).unwrap());
        assert_eq!(read.read("etc/hosts").unwrap(), b"127.0.0.1 localhost\n");
        let sudo = read.get("/usr/bin/sudo").unwrap();
        assert_eq!((sudo.mode, sudo.gid), (0o4755, 27));
    }

    #[test]
    fn lay_over_replaces_files_and_merges_directories() {
        let mut tree = Tree::default();
        tree.text("etc/a/one", "1");
        tree.text("etc/b/two", "2");
        let mut over = Tree::default();
        over.text("etc/a/three", "3");
        over.link("etc/b", "/run/b");
        tree.lay_over(over);
        let paths: Vec<_> = tree.iter().map(|(path, _)| path.to_str().unwrap().to_owned()).collect();
        assert_eq!(paths, ["etc", "etc/a", "etc/a/one", "etc/a/three", "etc/b"]);
    }

    #[test]
    fn patterns_match_part_by_part() {
        for (pattern, path, expected) in [
            ("/var/**", "var/lib/dpkg", true),
            ("/var/**", "var", false),
            ("/usr/share/doc/*/copyright", "usr/share/doc/bash/copyright", true),
            ("/usr/share/doc/*/copyright", "usr/share/doc/bash/more/copyright", false),
            ("/etc/ssh/ssh_host_*", "etc/ssh/ssh_host_rsa_key.pub", true),
            ("/etc/ssh/ssh_host_*", "etc/ssh/sshd_config", false),
            ("/usr/share/man", "usr/share/man", true),
            ("/usr/share/man", "usr/share/man/man1", false),
        ] {
            assert_eq!(matches(pattern, Path::new(path)), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn modes_depend_on_the_executable_bit_only() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        for (name, mode) in [("plain", 0o600), ("program", 0o700)] {
            fs::write(directory.path().join(name), "").unwrap();
            fs::set_permissions(directory.path().join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        let mut tree = Tree::default();
        tree.host_directory(directory.path(), Path::new("usr/x")).unwrap();
        assert_eq!(tree.get("usr/x/plain").unwrap().mode, 0o644);
        assert_eq!(tree.get("usr/x/program").unwrap().mode, 0o755);
    }
}
