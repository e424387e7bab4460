//! Writes an OCI archive: an image layout in a tar file, as `ctr images import` and others read it.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use contract::payload::{Descriptor, Index};
use tar::{Builder, EntryType, Header};

use super::layout::{Image, Payload, Piece, hex};

/// Writes these images, each blob once. After an error the output is an incomplete archive.
pub(super) fn write(payload: &Payload, images: &[&Image], to: &mut dyn Write) -> io::Result<()> {
    let mut archive = Builder::new(to);
    append(&mut archive, "oci-layout", 30, &br#"{"imageLayoutVersion":"1.0.0"}"#[..])?;
    let index = Index {
        schema_version: 2,
        media_type: Some("application/vnd.oci.image.index.v1+json".to_owned()),
        manifests: images.iter().map(|image| image.descriptor.clone()).collect(),
    };
    let index = serde_json::to_vec(&index)?;
    append(&mut archive, "index.json", index.len() as u64, &index[..])?;

    let mut written = BTreeSet::new();
    for image in images {
        let manifest = payload.manifest(image).map_err(io::Error::other)?;
        for descriptor in [&image.descriptor, &manifest.config].into_iter().chain(&manifest.layers) {
            if written.insert(descriptor.digest.clone()) {
                blob(&mut archive, payload, descriptor)?;
            }
        }
    }
    archive.into_inner()?.flush()
}

fn blob<W: Write>(archive: &mut Builder<W>, payload: &Payload, descriptor: &Descriptor) -> io::Result<()> {
    let name = format!("blobs/sha256/{}", hex(descriptor, Path::new("index.json")).map_err(io::Error::other)?);
    let pieces = payload.pieces(descriptor).map_err(io::Error::other)?;
    append(archive, &name, descriptor.size, Pieces { rest: pieces.into_iter(), open: None })
}

fn append<W: Write>(archive: &mut Builder<W>, name: &str, size: u64, content: impl Read) -> io::Result<()> {
    let mut header = Header::new_ustar();
    header.set_entry_type(EntryType::Regular);
    header.set_path(name)?;
    header.set_mode(0o644);
    header.set_size(size);
    header.set_mtime(0);
    header.set_cksum();
    archive.append(&header, content)
}

/// Reads pieces one after the other, each to exactly its size. A file that shrinks while it is read causes an error,
/// not a shifted archive.
struct Pieces {
    rest: std::vec::IntoIter<Piece>,
    open: Option<Open>,
}

struct Open {
    content: Box<dyn Read>,
    left: u64,
    name: String,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(open) = &mut self.open else {
                let Some(piece) = self.rest.next() else { return Ok(0) };
                self.open = Some(match piece {
                    Piece::Bytes(bytes) => {
                        let left = bytes.len() as u64;
                        Open { content: Box::new(io::Cursor::new(bytes)), left, name: "a layer's header".to_owned() }
                    }
                    Piece::File { path, size } => {
                        let file = File::open(&path)
                            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
                        Open { content: Box::new(file), left: size, name: path.display().to_string() }
                    }
                });
                continue;
            };
            if open.left == 0 {
                self.open = None;
                continue;
            }
            let limit = buffer.len().min(usize::try_from(open.left).unwrap_or(usize::MAX));
            let read = open.content.read(&mut buffer[..limit])?;
            if read == 0 && limit > 0 {
                return Err(io::Error::other(format!("{} ends {} bytes too early", open.name, open.left)));
            }
            open.left -= read as u64;
            return Ok(read);
        }
    }
}
