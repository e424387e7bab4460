//! The files of a package: what a descriptor's References and its DiskSection say of them.
//!
//! Source: DSP0243 1.1 §7.1 and §9.1. Apart from [`super::Descriptor`], which is what a virtual machine is made
//! from: this is what a package is checked against, files included that are no disk's.

use std::collections::BTreeMap;

use roxmltree::Node;

use super::capacity::capacity;
use super::document::{Look, ParseError, envelope, number, wrong};

/// More files, or disks, than any package has.
const MOST: usize = 1000;

/// The files of a package, in the order in which an archive has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct References {
    files: Vec<FileReference>,
    by_id: BTreeMap<String, usize>,
}

/// A file of a package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileReference {
    /// Its name, or its address if it is not in the package (`ovf:href`).
    pub name: String,
    /// Its bytes (`ovf:size`), if the descriptor says.
    pub size: Option<u64>,
    /// Such as `gzip`, if it is compressed as a whole (`ovf:compression`).
    pub compression: Option<String>,
    /// Whether it is split into files with numbers behind their names (`ovf:chunkSize`).
    pub in_chunks: bool,
    /// The disks whose content it is; none for another kind of file.
    pub disks: Vec<DiskContent>,
}

/// What is said of a disk that a file is the content of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskContent {
    /// Size as the guest sees it, in bytes.
    pub capacity: u64,
    /// The file's format as a URI (`ovf:format`), which OVF demands.
    pub format: String,
    /// Bytes of data in it (`ovf:populatedSize`), if the descriptor says.
    pub populated: Option<u64>,
}

impl References {
    /// Reads a descriptor's References, and its DiskSection as far as it is about files.
    ///
    /// # Errors
    /// When it is not XML, or what it says of files makes no sense.
    pub fn parse(xml: &str) -> Result<References, ParseError> {
        envelope(xml, |envelope| {
            let mut references = References::read(envelope)?;
            references.read_disks(envelope)?;
            Ok(references)
        })
    }

    /// The files.
    pub fn files(&self) -> &[FileReference] {
        &self.files
    }

    /// The file with an `ovf:id`.
    pub(super) fn file(&self, id: &str) -> Option<&FileReference> {
        self.by_id.get(id).map(|&index| &self.files[index])
    }

    /// The files alone.
    pub(super) fn read<'a>(envelope: Node<'a, 'a>) -> Result<References, ParseError> {
        let mut references = References { files: Vec::new(), by_id: BTreeMap::new() };
        for node in envelope.child("References").into_iter().flat_map(|section| section.children_named("File")) {
            let id = node.need_ovf("id")?;
            if references.files.len() == MOST {
                return Err(wrong(node, format!("there are more than {MOST} files among the References")));
            }
            if references.by_id.insert(id.into(), references.files.len()).is_some() {
                return Err(wrong(node, format!("there are two files {id:?} among the References")));
            }
            let compression = node.ovf("compression").filter(|kind| !["", "identity"].contains(kind));
            references.files.push(FileReference {
                name: node.need_ovf("href")?.into(),
                size: node.ovf("size").map(|text| number(node, text)).transpose()?,
                compression: compression.map(String::from),
                in_chunks: node.ovf("chunkSize").is_some(),
                disks: Vec::new(),
            });
        }
        Ok(references)
    }

    fn read_disks<'a>(&mut self, envelope: Node<'a, 'a>) -> Result<(), ParseError> {
        let section = envelope.child("DiskSection");
        for (index, node) in section.into_iter().flat_map(|section| section.children_named("Disk")).enumerate() {
            if index == MOST {
                return Err(wrong(node, format!("there are more than {MOST} disks")));
            }
            let Some(id) = file_of(node) else { continue };
            let index = *self.by_id.get(id).ok_or_else(|| no_file(node, id))?;
            self.files[index].disks.push(DiskContent {
                capacity: capacity(node)?,
                format: node.need_ovf("format")?.into(),
                populated: populated(node)?,
            });
        }
        Ok(())
    }
}

/// The `ovf:id` of the file that a `Disk` refers to, unless it begins empty.
pub(super) fn file_of<'a>(disk: Node<'a, 'a>) -> Option<&'a str> {
    disk.ovf("fileRef").filter(|reference| !reference.is_empty())
}

/// A `Disk` that refers to a file that is not there.
pub(super) fn no_file<'a>(disk: Node<'a, 'a>, id: &str) -> ParseError {
    wrong(disk, format!("there is no file {id:?} among the References"))
}

/// A `Disk`'s `ovf:populatedSize`.
pub(super) fn populated<'a>(disk: Node<'a, 'a>) -> Result<Option<u64>, ParseError> {
    disk.ovf("populatedSize").map(|text| number(disk, text)).transpose()
}
