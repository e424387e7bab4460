//! Opens an OVA: lists and streams its members.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::error::Error;
use super::header::{self, BLOCK, CheckName};
use crate::manifest::Manifest;
use crate::name;
use crate::ovf::Descriptor;
use crate::signature::{PublicKey, Signature};

/// The largest descriptor, manifest or signature that is read into memory.
const LARGEST_TEXT: u64 = 4 << 20;
/// A limit of members. No OVA has as many.
pub(super) const MOST_MEMBERS: usize = 1000;
/// The largest record that tar fills up with zeros. Its default is 10 KiB.
const LARGEST_RECORD: u64 = 1 << 20;

const NO_END: &str = "it ends before the blocks that mark its end";

/// A file in an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Its size in bytes.
    pub size: u64,
    pub(super) offset: u64,
}

/// An open OVA of this product: held to the strict rules. Its members have been listed; nothing has been verified.
/// [`super::LenientArchive`] reads OVAs of other vendors.
#[derive(Debug)]
pub struct Archive {
    file: File,
    path: PathBuf,
    members: Vec<Member>,
}

/// The bytes of a member.
#[derive(Debug)]
pub struct MemberReader<'a> {
    file: &'a File,
    offset: u64,
    left: u64,
}

impl Read for MemberReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let read = self.file.read_at(&mut buffer[..wanted], self.offset)?;
        self.offset += read as u64;
        self.left -= read as u64;
        Ok(read)
    }
}

impl Archive {
    /// Opens an OVA and lists its members.
    ///
    /// # Errors
    /// If it cannot be read, or is not a ustar archive of plain files with different names. If it ends too early, or
    /// continues after its end. If its first member is not a descriptor.
    pub fn open(path: &Path) -> Result<Archive, Error> {
        Archive::open_with(path, name::check)
    }

    pub(super) fn open_with(path: &Path, check: CheckName) -> Result<Archive, Error> {
        let file = File::open(path).map_err(Error::file("opening", path))?;
        let size = file.metadata().map_err(Error::file("looking at", path))?.len();
        let mut archive = Archive { file, path: path.into(), members: Vec::new() };
        archive.list(size, check)?;
        match archive.members.first() {
            Some(first) if first.name.ends_with(".ovf") => Ok(archive),
            Some(first) => Err(archive.damaged(0, format!("its first member is {:?}, not an .ovf", first.name))),
            None => Err(archive.damaged(0, "it has no members")),
        }
    }

    /// The members, in order.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The member `name` and its bytes.
    pub fn member(&self, name: &str) -> Result<(&Member, MemberReader<'_>), Error> {
        let member = self.find(name).ok_or_else(|| self.damaged(0, format!("it has no member {name:?}")))?;
        Ok((member, self.reader(member)))
    }

    /// The descriptor.
    pub fn descriptor(&self) -> Result<Descriptor, Error> {
        Ok(Descriptor::parse(&self.descriptor_xml()?)?)
    }

    /// The descriptor's text in the archive.
    pub fn descriptor_xml(&self) -> Result<String, Error> {
        self.text(&self.members[0])
    }

    /// The manifest, if there is one.
    pub fn manifest(&self) -> Result<Option<Manifest>, Error> {
        self.companion("mf").map(|member| Ok(Manifest::parse(&self.text(member)?)?)).transpose()
    }

    /// The signature, if there is one.
    pub fn signature(&self) -> Result<Option<Signature>, Error> {
        self.companion("cert").map(|member| Ok(Signature::parse(&self.text(member)?)?)).transpose()
    }

    /// Checks that `trusted` signed the manifest. [`Archive::verify`] compares the other files with the manifest.
    pub fn verify_signature(&self, trusted: &PublicKey) -> Result<(), Error> {
        let (Some(signature), Some(manifest)) = (self.signature()?, self.companion("mf")) else {
            return Err(Error::Unsigned { path: self.path.clone() });
        };
        Ok(signature.verify(&manifest.name, self.text(manifest)?.as_bytes(), trusted)?)
    }

    fn list(&mut self, size: u64, check: CheckName) -> Result<(), Error> {
        let mut offset = 0;
        loop {
            let mut block = [0; BLOCK as usize];
            if offset + BLOCK > size {
                return Err(self.damaged(offset, NO_END));
            }
            self.file.read_exact_at(&mut block, offset).map_err(Error::file("reading", &self.path))?;
            if block.iter().all(|&byte| byte == 0) {
                return self.expect_end(offset, size);
            }
            let (name, bytes) = header::decode(&block, check).map_err(|reason| self.damaged(offset, reason))?;
            let start = offset + BLOCK;
            if bytes > size - start {
                return Err(self.damaged(offset, format!("it ends before {name:?} does, which has {bytes} bytes")));
            }
            if self.find(&name).is_some() {
                return Err(self.damaged(offset, format!("it has two members {name:?}")));
            }
            if self.members.len() == MOST_MEMBERS {
                return Err(self.damaged(offset, format!("it has more than {MOST_MEMBERS} members")));
            }
            self.members.push(Member { name, size: bytes, offset: start });
            offset = start + bytes + header::padding(bytes);
        }
    }

    /// Checks that two blocks of zeros end the archive at `offset` (POSIX.1-1988 §10.1.1). Only zeros that fill up
    /// tar's last record may follow.
    fn expect_end(&self, offset: u64, size: u64) -> Result<(), Error> {
        let length = size - offset;
        if length < 2 * BLOCK {
            return Err(self.damaged(offset, NO_END));
        }
        let mut rest = vec![0; length.min(LARGEST_RECORD) as usize];
        self.file.read_exact_at(&mut rest, offset).map_err(Error::file("reading", &self.path))?;
        match rest.iter().position(|&byte| byte != 0) {
            Some(at) => Err(self.damaged(offset + at as u64, "something follows its end")),
            None if length > LARGEST_RECORD => {
                Err(self.damaged(offset + LARGEST_RECORD, "more follows its end than fills up a record of tar"))
            }
            None => Ok(()),
        }
    }

    pub(super) fn find(&self, name: &str) -> Option<&Member> {
        self.members.iter().find(|member| member.name == name)
    }

    /// The name of the file that belongs to the descriptor: its own name with another extension (DSP0243 1.1 §5.1).
    pub(super) fn companion_name(&self, extension: &str) -> String {
        let descriptor = &self.members[0].name;
        format!("{}.{extension}", descriptor.strip_suffix(".ovf").unwrap_or(descriptor))
    }

    pub(super) fn companion(&self, extension: &str) -> Option<&Member> {
        self.find(&self.companion_name(extension))
    }

    pub(super) fn reader(&self, member: &Member) -> MemberReader<'_> {
        MemberReader { file: &self.file, offset: member.offset, left: member.size }
    }

    pub(super) fn text(&self, member: &Member) -> Result<String, Error> {
        if member.size > LARGEST_TEXT {
            return Err(self.damaged(member.offset, format!("{} is too large: {} bytes", member.name, member.size)));
        }
        let mut bytes = Vec::new();
        self.reader(member).read_to_end(&mut bytes).map_err(Error::file("reading", &self.path))?;
        String::from_utf8(bytes).map_err(|_| self.damaged(member.offset, format!("{} is not text", member.name)))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn damaged(&self, offset: u64, reason: impl Into<String>) -> Error {
        Error::Damaged { path: self.path.clone(), offset, reason: reason.into() }
    }
}
