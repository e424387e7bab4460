//! Reads a payload directory: the index, manifests, and the sources of each blob's bytes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use contract::image;
use contract::payload::{AssembledLayer, Descriptor, IMAGE_NAME, Index, Manifest, REFERENCE_NAME, Segment};
use serde::de::DeserializeOwned;

use super::{DIRECTORY, Error};

#[derive(Clone, Debug)]
pub struct Payload {
    root: PathBuf,
    images: BTreeMap<String, Image>,
}

#[derive(Clone, Debug)]
pub(super) struct Image {
    pub name: String,
    pub descriptor: Descriptor,
}

impl Image {
    pub(super) fn digest(&self) -> &str {
        &self.descriptor.digest
    }
}

/// A source of the bytes of a blob. The pieces are in order.
#[derive(Debug)]
pub(super) enum Piece {
    Bytes(Vec<u8>),
    File { path: PathBuf, size: u64 },
}

impl Piece {
    fn size(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File { size, .. } => *size,
        }
    }
}

impl Payload {
    pub fn open(root: &Path) -> Result<Self, Error> {
        let mut payload = Self { root: root.to_owned(), images: BTreeMap::new() };
        let path = payload.path("index.json");
        let index: Index = read_json(&path)?;
        for descriptor in index.manifests {
            let name = descriptor
                .annotations
                .get(IMAGE_NAME)
                .ok_or_else(|| damaged(&path, format!("{} has no {IMAGE_NAME}", descriptor.digest)))?;
            payload.images.insert(name.clone(), Image { name: name.clone(), descriptor });
        }
        Ok(payload)
    }

    /// Adds to the image of a part of the appliance, of any version, the tag by which the cluster's objects name it.
    /// Returns its own name and the added one.
    pub fn carry(&mut self, part: &str) -> Result<[String; 2], Error> {
        let carried = image::reference(part, image::CARRIED);
        let of_part = |name: &str| {
            name.rsplit_once(':').is_some_and(|(repository, tag)| {
                tag != image::CARRIED && image::reference(part, tag) == format!("{repository}:{tag}")
            })
        };
        let own = self.names().find(|name| of_part(name)).map(str::to_owned);
        // Without one, the refusal names the image that the cluster would request.
        let own = own.unwrap_or_else(|| carried.clone());
        let mut descriptor = self.select(std::slice::from_ref(&own))?[0].descriptor.clone();
        for (key, value) in [(IMAGE_NAME, carried.as_str()), (REFERENCE_NAME, image::CARRIED)] {
            descriptor.annotations.insert(key.to_owned(), value.to_owned());
        }
        self.images.insert(carried.clone(), Image { name: carried.clone(), descriptor });
        Ok([own, carried])
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.images.keys().map(String::as_str)
    }

    /// The images of these names, each once.
    pub(super) fn select(&self, wanted: &[String]) -> Result<Vec<&Image>, Error> {
        let wanted: std::collections::BTreeSet<_> = wanted.iter().collect();
        let find = |name: &&String| {
            self.images.get(*name).ok_or_else(|| Error::NotHeld {
                name: (*name).clone(),
                held: self.names().collect::<Vec<_>>().join(", "),
            })
        };
        wanted.iter().map(find).collect()
    }

    pub(super) fn manifest(&self, image: &Image) -> Result<Manifest, Error> {
        read_json(&self.blob(&image.descriptor)?)
    }

    /// The pieces of a blob. Their sizes have been checked.
    pub(super) fn pieces(&self, descriptor: &Descriptor) -> Result<Vec<Piece>, Error> {
        let blob = self.blob(descriptor)?;
        let (path, pieces) = if blob.exists() {
            let whole = Piece::File { path: blob.clone(), size: descriptor.size };
            (blob, vec![whole])
        } else {
            let path = self.path(&format!("layers/{}.json", hex(descriptor, &blob)?));
            let layer: AssembledLayer = read_json(&path)?;
            if layer.size != descriptor.size {
                return Err(damaged(&path, format!("it makes {} bytes, not {}", layer.size, descriptor.size)));
            }
            let pieces: Result<Vec<_>, _> =
                layer.segments.into_iter().map(|segment| self.piece(segment, &path)).collect();
            (path, pieces?)
        };
        let size: u64 = pieces.iter().map(Piece::size).sum();
        if size != descriptor.size {
            return Err(damaged(&path, format!("its pieces make {size} bytes, not {}", descriptor.size)));
        }
        for piece in &pieces {
            if let Piece::File { path, size } = piece {
                let metadata = fs::metadata(path).map_err(|error| damaged(path, error.to_string()))?;
                if metadata.len() != *size {
                    return Err(damaged(path, format!("it has {} bytes, not {size}", metadata.len())));
                }
            }
        }
        Ok(pieces)
    }

    fn piece(&self, segment: Segment, path: &Path) -> Result<Piece, Error> {
        match segment {
            Segment::Inline { inline } => {
                let bytes = STANDARD.decode(inline).map_err(|error| damaged(path, error.to_string()))?;
                Ok(Piece::Bytes(bytes))
            }
            Segment::File { file, size } => {
                let inside = file
                    .strip_prefix("/")
                    .map_err(|_| damaged(path, format!("{} is not an absolute path", file.display())))?;
                Ok(Piece::File { path: self.root.join(inside), size })
            }
        }
    }

    fn blob(&self, descriptor: &Descriptor) -> Result<PathBuf, Error> {
        let hex = hex(descriptor, &self.path("index.json"))?;
        Ok(self.path(&format!("blobs/sha256/{hex}")))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(DIRECTORY).join(name)
    }
}

/// The digest's hex digits. They become a file name, so other characters are refused.
pub(super) fn hex<'a>(descriptor: &'a Descriptor, said_by: &Path) -> Result<&'a str, Error> {
    let hex = descriptor.digest.strip_prefix("sha256:").unwrap_or_default();
    if hex.len() == 64 && hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        Ok(hex)
    } else {
        Err(damaged(said_by, format!("{} is no SHA-256 digest", descriptor.digest)))
    }
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, Error> {
    let content = fs::read(path).map_err(|error| damaged(path, error.to_string()))?;
    serde_json::from_slice(&content).map_err(|error| damaged(path, error.to_string()))
}

pub(super) fn damaged(path: &Path, reason: String) -> Error {
    Error::Damaged { path: path.to_owned(), reason }
}
