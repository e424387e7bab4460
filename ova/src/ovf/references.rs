//! The files of a package: the data of a descriptor's References and DiskSection about them.
//!
//! Source: DSP0243 1.1 §7.1 and §9.1. [`super::Descriptor`] is for making a virtual machine. This type is for checking
//! a package of any vendor, with files that belong to no disk.

use std::collections::BTreeMap;

use roxmltree::Node;

use super::capacity::{capacity, in_units, property};
use super::document::{Look, ParseError, envelope, number, short, wrong};

/// A limit of files and of disks. No package has as many.
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
    /// Its name, or its address if it is not in the package (`ovf:href`): a URI reference from the descriptor. Tools
    /// write spaces and other characters as they are, or percent-encoded.
    pub name: String,
    /// Its size in bytes (`ovf:size`), of all chunks together, if the descriptor has it.
    pub size: Option<u64>,
    /// The compression of the whole file, such as `gzip` (`ovf:compression`).
    pub compression: Option<String>,
    /// The size in bytes of each chunk but the last (`ovf:chunkSize`), at least 1, if the file is split. A chunk's name
    /// is the file's, with `.` and its number in nine digits from 0.
    pub chunk_size: Option<u64>,
    /// The disks with this content. Empty for another kind of file.
    pub disks: Vec<DiskContent>,
}

/// The data about a disk with the content of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskContent {
    /// Size for the guest, in bytes. `None` if a property has it.
    pub capacity: Option<u64>,
    /// Bytes of the unit in which the descriptor gives the capacity; 1 if the unit is smaller.
    pub unit: u64,
    /// The file's format as a URI (`ovf:format`), which OVF requires. Empty if the descriptor has none.
    pub format: String,
    /// Bytes of data in it (`ovf:populatedSize`), if the descriptor has it.
    pub populated: Option<u64>,
}

impl References {
    /// Reads a descriptor's References, and the data about files in its DiskSection.
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

    /// Reads the References only.
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
            let name = short(node, "ovf:href", node.need_ovf("href")?, 1000)?.to_owned();
            if references.files.iter().any(|file| file.name == name) {
                return Err(wrong(node, format!("there are two files at {name:?} among the References")));
            }
            let compression = node.ovf("compression").filter(|kind| !["", "identity"].contains(kind));
            references.files.push(FileReference {
                name,
                size: node.ovf("size").map(|text| number(node, text)).transpose()?,
                compression: compression.map(String::from),
                chunk_size: chunk_size(node)?,
                disks: Vec::new(),
            });
        }
        Ok(references)
    }

    /// Adds the DiskSection's data about the files.
    pub(super) fn read_disks<'a>(&mut self, envelope: Node<'a, 'a>) -> Result<(), ParseError> {
        for node in disk_nodes(envelope)? {
            let Some(id) = file_of(node) else { continue };
            let index = *self.by_id.get(id).ok_or_else(|| no_file(node, id))?;
            self.files[index].disks.push(DiskContent {
                capacity: if property(node).is_some() { None } else { Some(capacity(node)?) },
                unit: in_units(node, 1).unwrap_or(1),
                format: node.ovf("format").unwrap_or_default().into(),
                populated: populated(node)?,
            });
        }
        Ok(())
    }
}

/// A `File`'s `ovf:chunkSize`. VMware's tools also write the attribute for a file in one piece.
fn chunk_size<'a>(file: Node<'a, 'a>) -> Result<Option<u64>, ParseError> {
    let size = file.ovf("chunkSize").map(|text| number(file, text)).transpose()?;
    if size == Some(0) {
        return Err(wrong(file, "ovf:chunkSize is 0"));
    }
    Ok(size)
}

/// The `Disk`s of a package. Fails on a difference disk, which neither vSphere imports nor this crate reads.
pub(super) fn disk_nodes<'a>(envelope: Node<'a, 'a>) -> Result<Vec<Node<'a, 'a>>, ParseError> {
    let section = envelope.child("DiskSection");
    let nodes: Vec<_> = section.into_iter().flat_map(|section| section.children_named("Disk")).collect();
    if let Some(node) = nodes.get(MOST) {
        return Err(wrong(*node, format!("there are more than {MOST} disks")));
    }
    for node in &nodes {
        if let Some(parent) = node.ovf("parentRef").filter(|parent| !parent.is_empty()) {
            let disk = node.ovf("diskId").unwrap_or_default();
            let reason = format!(
                "the disk {disk:?} is a difference to the disk {parent:?} (ovf:parentRef), which cannot be read; \
                 export the machine with whole disks"
            );
            return Err(wrong(*node, reason));
        }
    }
    Ok(nodes)
}

/// The `ovf:id` of the file that a `Disk` refers to. `None` if the disk is empty at first.
pub(super) fn file_of<'a>(disk: Node<'a, 'a>) -> Option<&'a str> {
    disk.ovf("fileRef").filter(|reference| !reference.is_empty())
}

/// The error of a `Disk` that refers to a missing file.
pub(super) fn no_file<'a>(disk: Node<'a, 'a>, id: &str) -> ParseError {
    wrong(disk, format!("there is no file {id:?} among the References"))
}

/// A `Disk`'s `ovf:populatedSize`.
pub(super) fn populated<'a>(disk: Node<'a, 'a>) -> Result<Option<u64>, ParseError> {
    disk.ovf("populatedSize").map(|text| number(disk, text)).transpose()
}
