//! Opening an OVA: listing, verifying, streaming members.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::error::Error;
use super::header::{self, BLOCK};
use crate::Progress;
use crate::digest::HashingWriter;
use crate::manifest::Manifest;
use crate::ovf::Descriptor;
use crate::signature::{PublicKey, Signature};

/// The largest descriptor, manifest or signature that is read into memory.
const LARGEST_TEXT: u64 = 16 << 20;
/// More members than any OVA has.
const MOST_MEMBERS: usize = 1000;

/// A file in an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Its bytes.
    pub size: u64,
    offset: u64,
}

/// An open OVA. Its members have been listed; nothing has been verified.
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
    /// When it cannot be read, is not a ustar archive of plain files with
    /// different names, ends too early, or does not begin with a descriptor.
    pub fn open(path: &Path) -> Result<Archive, Error> {
        let file = File::open(path).map_err(Error::file("opening", path))?;
        let size = file.metadata().map_err(Error::file("looking at", path))?.len();
        let mut archive = Archive { file, path: path.into(), members: Vec::new() };
        archive.list(size)?;
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
    ///
    /// # Errors
    /// When there is no such member.
    pub fn member(&self, name: &str) -> Result<(&Member, MemberReader<'_>), Error> {
        let member = self.find(name).ok_or_else(|| self.damaged(0, format!("it has no member {name:?}")))?;
        Ok((member, self.reader(member)))
    }

    /// The descriptor.
    ///
    /// # Errors
    /// When it cannot be read or used.
    pub fn descriptor(&self) -> Result<Descriptor, Error> {
        Ok(Descriptor::parse(&self.descriptor_xml()?)?)
    }

    /// The descriptor as it stands in the archive.
    ///
    /// # Errors
    /// When it cannot be read or is not text.
    pub fn descriptor_xml(&self) -> Result<String, Error> {
        self.text(&self.members[0])
    }

    /// The manifest, if there is one.
    ///
    /// # Errors
    /// When it cannot be read or used.
    pub fn manifest(&self) -> Result<Option<Manifest>, Error> {
        self.with_suffix(".mf").map(|member| Ok(Manifest::parse(&self.text(member)?)?)).transpose()
    }

    /// The signature, if there is one.
    ///
    /// # Errors
    /// When it cannot be read or used.
    pub fn signature(&self) -> Result<Option<Signature>, Error> {
        self.with_suffix(".cert").map(|member| Ok(Signature::parse(&self.text(member)?)?)).transpose()
    }

    /// Checks that `trusted` signed the manifest. What the manifest says of the other files is [`Archive::verify`]'s.
    ///
    /// # Errors
    /// When the archive is not signed, or not by `trusted`, or its manifest was changed.
    pub fn verify_signature(&self, trusted: &PublicKey) -> Result<(), Error> {
        let (Some(signature), Some(manifest)) = (self.signature()?, self.with_suffix(".mf")) else {
            return Err(Error::Unsigned { path: self.path.clone() });
        };
        Ok(signature.verify(&manifest.name, self.text(manifest)?.as_bytes(), trusted)?)
    }

    /// Reads the whole archive and checks it: each file's digest against the
    /// manifest and its size against the descriptor; the order of members; and
    /// that none is missing or too many. Gives what was checked.
    ///
    /// `progress` counts bytes of members.
    ///
    /// # Errors
    /// When there is no manifest; or all that is wrong with the contents, at once.
    pub fn verify(&self, progress: &mut dyn FnMut(Progress)) -> Result<(Descriptor, Manifest), Error> {
        let descriptor = self.descriptor()?;
        let manifest = self.manifest()?.ok_or_else(|| self.damaged(0, "it has no manifest (.mf)"))?;
        let mut problems = self.layout_problems(&descriptor);
        problems.extend(self.missing_from(&manifest));
        problems.extend(self.digest_problems(&manifest, progress)?);
        if problems.is_empty() {
            return Ok((descriptor, manifest));
        }
        Err(Error::Contents { path: self.path.clone(), problems })
    }

    /// What is wrong with order and sizes.
    fn layout_problems(&self, descriptor: &Descriptor) -> Vec<String> {
        let mut problems = Vec::new();
        let base = self.members[0].name.trim_end_matches(".ovf");
        let mut expected = vec![self.members[0].name.clone(), format!("{base}.mf")];
        expected.extend(self.find(&format!("{base}.cert")).map(|member| member.name.clone()));
        let files = || descriptor.disks.iter().filter_map(|disk| disk.file.as_ref());
        expected.extend(files().map(|file| file.name.clone()));
        let found: Vec<_> = self.members.iter().map(|member| member.name.clone()).collect();
        if found != expected {
            problems.push(format!("its members are {}, expected are {}", found.join(", "), expected.join(", ")));
        }
        for file in files() {
            if let Some(member) = self.find(&file.name).filter(|member| member.size != file.size) {
                problems.push(format!("{} has {} bytes, the descriptor says {}", file.name, member.size, file.size));
            }
        }
        problems
    }

    /// Files in the manifest that are not in the archive.
    fn missing_from<'a>(&'a self, manifest: &'a Manifest) -> impl Iterator<Item = String> + 'a {
        let missing = manifest.entries().iter().filter(|entry| self.find(&entry.name).is_none());
        missing.map(|entry| format!("{} is in the manifest, but not in the archive", entry.name))
    }

    /// Members whose bytes are not those of the manifest.
    fn digest_problems(&self, manifest: &Manifest, progress: &mut dyn FnMut(Progress)) -> Result<Vec<String>, Error> {
        let listed = |member: &&Member| !member.name.ends_with(".mf") && !member.name.ends_with(".cert");
        let total = self.members.iter().filter(listed).map(|member| member.size).sum();
        let mut done = 0;
        let mut problems = Vec::new();
        let mut buffer = vec![0; 1 << 20];
        for member in self.members.iter().filter(listed) {
            let Some(expected) = manifest.digest(&member.name) else {
                problems.push(format!("{} is not in the manifest", member.name));
                continue;
            };
            let mut reader = self.reader(member);
            let mut hash = HashingWriter::new(io::sink());
            loop {
                let read = reader.read(&mut buffer).map_err(Error::file("reading", &self.path))?;
                if read == 0 {
                    break;
                }
                io::Write::write_all(&mut hash, &buffer[..read]).map_err(Error::file("reading", &self.path))?;
                done += read as u64;
                progress(Progress { done, total });
            }
            let found = hash.finish();
            if found != expected {
                problems.push(format!("{} has the digest {found}, the manifest says {expected}", member.name));
            }
        }
        Ok(problems)
    }

    fn list(&mut self, size: u64) -> Result<(), Error> {
        let mut offset = 0;
        loop {
            let mut block = [0; BLOCK as usize];
            if offset + BLOCK > size {
                return Err(self.damaged(offset, "it ends before the blocks that mark its end"));
            }
            self.file.read_exact_at(&mut block, offset).map_err(Error::file("reading", &self.path))?;
            if block.iter().all(|&byte| byte == 0) {
                return Ok(());
            }
            let (name, bytes) = header::decode(&block).map_err(|reason| self.damaged(offset, reason))?;
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

    fn find(&self, name: &str) -> Option<&Member> {
        self.members.iter().find(|member| member.name == name)
    }

    fn with_suffix(&self, suffix: &str) -> Option<&Member> {
        self.members.iter().find(|member| member.name.ends_with(suffix))
    }

    fn reader(&self, member: &Member) -> MemberReader<'_> {
        MemberReader { file: &self.file, offset: member.offset, left: member.size }
    }

    fn text(&self, member: &Member) -> Result<String, Error> {
        if member.size > LARGEST_TEXT {
            return Err(self.damaged(member.offset, format!("{} is too large: {} bytes", member.name, member.size)));
        }
        let mut bytes = Vec::new();
        self.reader(member).read_to_end(&mut bytes).map_err(Error::file("reading", &self.path))?;
        String::from_utf8(bytes).map_err(|_| self.damaged(member.offset, format!("{} is not text", member.name)))
    }

    fn damaged(&self, offset: u64, reason: impl Into<String>) -> Error {
        Error::Damaged { path: self.path.clone(), offset, reason: reason.into() }
    }
}
