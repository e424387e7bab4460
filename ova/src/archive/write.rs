//! Writes an OVA.
//!
//! Disks are read once. Their digests are computed while they are copied. Manifest and signature come before the disks:
//! they are written last, into space that was left for them.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::error::Error;
use super::header::{self, BLOCK, SIZE_LIMIT};
use crate::digest::HashingWriter;
use crate::manifest::Manifest;
use crate::new_file::NewFile;
use crate::ovf::{Descriptor, DiskFile};
use crate::signature::Signer;
use crate::{Progress, Sha256, name};

/// The largest modification time of a ustar header, eleven octal digits (in the year 2242).
const LATEST: u64 = 0o77_777_777_777;

/// The parts of an OVA.
#[derive(Debug)]
pub struct Package<'a> {
    /// Name of the package: its files are `name.ovf`, `name.mf` and `name.cert`.
    pub name: &'a str,
    /// Its descriptor. Names and sizes of the disks' files are compared with the real ones.
    pub descriptor: &'a Descriptor,
    /// The disks' files, in the order of the descriptor's disks that have one. They may have other names.
    pub disks: &'a [PathBuf],
    /// Modification time of all members, in seconds since 1970: SOURCE_DATE_EPOCH.
    pub modified: u64,
    /// Signs the manifest; without it there is no `.cert`.
    pub signer: Option<&'a Signer>,
}

/// A written OVA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenOva {
    /// Bytes of the OVA.
    pub size: u64,
    /// Its manifest.
    pub manifest: Manifest,
}

/// Writes an OVA.
///
/// Equal packages give equal files, unless signed with ECDSA. `progress` counts bytes of disks. On failure, and if the
/// process is killed, the file `ova` is unchanged.
///
/// # Errors
/// If the descriptor is not valid, or the disks differ from it. If a file has 8 GiB or more. If a file cannot be read
/// or written.
pub fn write(ova: &Path, package: &Package<'_>, progress: &mut dyn FnMut(Progress)) -> Result<WrittenOva, Error> {
    name::check(package.name)?;
    let descriptor = package.descriptor.to_xml()?;
    let disks = open_disks(ova, package)?;
    let total = disks.iter().map(|disk| disk.size).sum();

    let mut output = NewFile::create(ova).map_err(Error::file("creating", ova))?;
    let mut tar = Tar { file: output.file(), path: ova, modified: package.modified };
    let names = Names::of(package.name)?;
    let mut manifest = Manifest::new();
    manifest.add(&names.descriptor, Sha256::of(descriptor.as_bytes()))?;
    tar.member(&names.descriptor, descriptor.as_bytes())?;

    // The manifest's text is not known yet, but its length is: all digests have the same length.
    let mut draft = manifest.clone();
    for disk in &disks {
        draft.add(&disk.described.name, Sha256([0; 32]))?;
    }
    let front = tar.position()?;
    let draft = FrontMembers::make(&names, &draft, package.signer, |_| true)?;
    tar.front_members(&draft)?;

    let mut done = 0;
    progress(Progress { done, total });
    for disk in &disks {
        let digest = tar.disk(disk, &mut |bytes| {
            done += bytes;
            progress(Progress { done, total });
        })?;
        manifest.add(&disk.described.name, digest)?;
    }
    tar.end()?;
    let size = tar.position()?;

    let members = FrontMembers::make(&names, &manifest, package.signer, |members| members.blocks() == draft.blocks())?;
    tar.seek(front)?;
    tar.front_members(&members)?;
    output.commit().map_err(Error::file("finishing", ova))?;
    Ok(WrittenOva { size, manifest })
}

/// Names of the package's files, except its disks.
struct Names {
    descriptor: String,
    manifest: String,
    signature: String,
}

impl Names {
    fn of(package: &str) -> Result<Names, Error> {
        let name = |suffix: &str| {
            let name = format!("{package}.{suffix}");
            name::check(&name).map(|()| name)
        };
        Ok(Names { descriptor: name("ovf")?, manifest: name("mf")?, signature: name("cert")? })
    }
}

/// The members between descriptor and disks.
struct FrontMembers {
    /// Names and content, in order.
    members: Vec<(String, String)>,
}

impl FrontMembers {
    /// The number of attempts to sign. The length of ECDSA signatures varies by a few bytes; the least likely one
    /// occurs once in hundreds of signatures.
    const ATTEMPTS: u32 = 10_000;

    /// Signs again until the result `fits`.
    fn make(
        names: &Names,
        manifest: &Manifest,
        signer: Option<&Signer>,
        fits: impl Fn(&FrontMembers) -> bool,
    ) -> Result<FrontMembers, Error> {
        let manifest = manifest.to_string();
        for _ in 0..FrontMembers::ATTEMPTS {
            let mut members = vec![(names.manifest.clone(), manifest.clone())];
            if let Some(signer) = signer {
                let signature = signer.sign(&names.manifest, manifest.as_bytes())?;
                members.push((names.signature.clone(), signature));
            }
            let members = FrontMembers { members };
            if fits(&members) {
                return Ok(members);
            }
        }
        Err(Error::Signature(crate::signature::Error::Signing))
    }

    /// The blocks of the archive that the members take.
    fn blocks(&self) -> u64 {
        self.members.iter().map(|(_, content)| 1 + (content.len() as u64).div_ceil(BLOCK)).sum()
    }
}

/// The open file of a disk, and its description.
struct OpenDisk<'a> {
    path: &'a Path,
    file: File,
    size: u64,
    described: &'a DiskFile,
}

fn open_disks<'a>(ova: &Path, package: &Package<'a>) -> Result<Vec<OpenDisk<'a>>, Error> {
    let described: Vec<_> = package.descriptor.disks.iter().filter_map(|disk| disk.file.as_ref()).collect();
    if described.len() != package.disks.len() {
        let reason = format!("its descriptor has {} disk files, {} are given", described.len(), package.disks.len());
        return Err(Error::Input { path: ova.into(), reason });
    }
    if package.modified > LATEST {
        let reason = format!("its modification time {} does not fit a tar header", package.modified);
        return Err(Error::Input { path: ova.into(), reason });
    }
    let open = |(path, described): (&'a PathBuf, &'a DiskFile)| {
        let refused = |reason: String| Error::Input { path: path.clone(), reason };
        let file = File::open(path).map_err(Error::file("opening", path))?;
        let metadata = file.metadata().map_err(Error::file("looking at", path))?;
        if !metadata.is_file() {
            return Err(refused("it is not a regular file".into()));
        }
        let size = metadata.len();
        if let Some(said) = described.size.filter(|&said| said != size) {
            return Err(refused(format!(
                "it has {size} bytes, the descriptor says {said} for {:?}; make the descriptor from this very file",
                described.name
            )));
        }
        if size >= SIZE_LIMIT {
            return Err(refused(format!(
                "its {size} bytes are 8 GiB or more, which a ustar archive cannot hold; make the disk smaller"
            )));
        }
        Ok(OpenDisk { path, file, size, described })
    };
    package.disks.iter().zip(described).map(open).collect()
}

/// The archive being written.
struct Tar<'a> {
    file: &'a mut File,
    path: &'a Path,
    modified: u64,
}

impl Tar<'_> {
    fn member(&mut self, name: &str, content: &[u8]) -> Result<(), Error> {
        let size = content.len() as u64;
        self.put(header::encode(name, size, self.modified).as_bytes())?;
        self.put(content)?;
        self.pad(size)
    }

    fn front_members(&mut self, front: &FrontMembers) -> Result<(), Error> {
        front.members.iter().try_for_each(|(name, content)| self.member(name, content.as_bytes()))
    }

    fn disk(&mut self, disk: &OpenDisk<'_>, copied: &mut dyn FnMut(u64)) -> Result<Sha256, Error> {
        let size = disk.size;
        self.put(header::encode(&disk.described.name, size, self.modified).as_bytes())?;
        let mut output = HashingWriter::new(&mut *self.file);
        let mut buffer = vec![0; 1 << 20];
        let mut left = size;
        let mut input = &disk.file;
        while left > 0 {
            let wanted = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let read = input.read(&mut buffer[..wanted]).map_err(Error::file("reading", disk.path))?;
            if read == 0 {
                let reason = format!("it became {left} bytes shorter while it was read");
                return Err(Error::Input { path: disk.path.into(), reason });
            }
            output.write_all(&buffer[..read]).map_err(Error::file("writing", self.path))?;
            left -= read as u64;
            copied(read as u64);
        }
        let digest = output.finish();
        self.pad(size)?;
        Ok(digest)
    }

    /// The end of the archive: two blocks of zeros.
    fn end(&mut self) -> Result<(), Error> {
        self.put(&[0; 2 * BLOCK as usize])
    }

    fn pad(&mut self, size: u64) -> Result<(), Error> {
        self.put(&[0; BLOCK as usize][..header::padding(size) as usize])
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.file.write_all(bytes).map_err(Error::file("writing", self.path))
    }

    fn position(&mut self) -> Result<u64, Error> {
        self.file.stream_position().map_err(Error::file("writing", self.path))
    }

    fn seek(&mut self, position: u64) -> Result<(), Error> {
        self.file.seek(SeekFrom::Start(position)).map(drop).map_err(Error::file("writing", self.path))
    }
}
