//! Verifies that an OVA is whole: files match the manifest, and disks match the descriptor.
//!
//! [`Archive::examine`] finds the problems and warnings of any vendor's OVA. The two types of archives differ in the
//! findings that they accept.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::mem;

use aws_lc_rs::digest::SHA256;

use super::error::Error;
use super::read::{Archive, MOST_MEMBERS, Member, MemberReader};
use super::warning::Warning;
use crate::digest::{Digest, HashingReader};
use crate::manifest::{LenientManifest, Manifest};
use crate::ovf::{Descriptor, FileReference, ParseError, References};
use crate::{name, vmdk};

/// The end of the URI (`ovf:format`) of the only disk format that vSphere imports. Tools write several addresses before
/// it.
const STREAM_OPTIMIZED: &str = "vmdk.html#streamOptimized";

/// Problems of an archive's contents, and the parts that vSphere would refuse or ignore.
#[derive(Default)]
pub(super) struct Findings {
    damaged: bool,
    problems: Vec<String>,
    pub(super) warnings: Vec<Warning>,
}

impl Findings {
    /// The warnings. The problems, if there are any, are an error.
    pub(super) fn accepted(self, archive: &Archive) -> Result<Vec<Warning>, Error> {
        let Findings { damaged, problems, warnings } = self;
        if problems.is_empty() {
            return Ok(warnings);
        }
        Err(Error::Contents { path: archive.path().into(), damaged, problems })
    }
}

/// A file of the package: one member, or several chunks.
struct Stored<'a> {
    /// The descriptor's entry. `None` if the members are not the whole file.
    file: Option<&'a FileReference>,
    members: Vec<&'a Member>,
}

impl Archive {
    /// Reads the whole archive once and checks it as an OVA of this product:
    ///
    /// - Members: their order, and that none is missing or too many. Manifest and signature are behind the descriptor
    ///   or at the end (DSP0243 1.1 §5.3).
    /// - Files: each digest against the manifest, and the size against the descriptor if it has one.
    /// - Disks: the format is a streamOptimized VMDK, the only one that vSphere imports. All grains are decoded, the
    ///   tables checked, and capacity and size of the data compared with the descriptor.
    ///
    /// Each [`Warning`] is an error, except `hardware-sections` and `signature`. OVF lets `ovf:populatedSize` be an
    /// estimate (DSP0243 1.1 §9.1), and vSphere documents its use as a best guess. This crate writes the exact size of
    /// the grains. A file with another number is refused: it is of another disk, or made up.
    ///
    /// Returns the descriptor and the manifest that were checked. Memory is bounded as in [`vmdk::verify`].
    ///
    /// # Errors
    /// If there is no manifest; or all problems of the contents, at once.
    pub fn verify(&self) -> Result<(Descriptor, Manifest), Error> {
        let missing = || self.damaged(0, format!("it has no manifest {:?}", self.companion_name("mf")));
        let manifest = self.manifest()?.ok_or_else(missing)?;
        let listed = LenientManifest::parse(&manifest.to_string())?;
        let (descriptor, references) =
            self.read_descriptor(Some(&listed), |xml| Ok((Descriptor::parse(xml)?, References::parse(xml)?)))?;
        let mut findings = self.examine(&references, Some(&listed))?;
        // Imports look for a member with the file's name.
        for FileReference { name, chunk_size, .. } in references.files() {
            if chunk_size.is_some() || self.find(name).is_none() {
                findings.problems.push(format!("{name:?} has to be one member of this name, without ovf:chunkSize"));
            }
        }
        let warnings = references.files().iter().filter_map(why_not_imported).chain(mem::take(&mut findings.warnings));
        findings.problems.extend(warnings.map(|warning| warning.message));
        findings.accepted(self)?;
        Ok((descriptor, manifest))
    }

    /// Reads the descriptor with `read`. If that fails and the descriptor is not the manifest's, the error says this.
    pub(super) fn read_descriptor<T>(
        &self,
        manifest: Option<&LenientManifest>,
        read: impl FnOnce(&str) -> Result<T, ParseError>,
    ) -> Result<T, Error> {
        let found = self.descriptor_xml().and_then(|xml| Ok(read(&xml)?));
        if found.is_err() {
            let (descriptor, mut findings) = (vec![&self.members()[0]], Findings::default());
            self.check_content(&Stored { file: None, members: descriptor }, manifest, &mut findings)?;
            if findings.damaged {
                findings.accepted(self)?;
            }
        }
        found
    }

    /// Compares the members with descriptor and manifest, and reads all of them.
    pub(super) fn examine(
        &self,
        references: &References,
        manifest: Option<&LenientManifest>,
    ) -> Result<Findings, Error> {
        let mut findings = Findings::default();
        let stored = self.stored(references, &mut findings);
        for name in manifest.into_iter().flat_map(LenientManifest::names).filter(|name| self.find(name).is_none()) {
            findings.problems.push(format!("{name} is in the manifest, but not in the archive"));
        }
        for file in &stored {
            self.check_content(file, manifest, &mut findings)?;
        }
        Ok(findings)
    }

    /// All files of the package except manifest and signature, each once, in the order of the descriptor. Adds problems
    /// of the members, their order and their sizes.
    fn stored<'a>(&'a self, references: &'a References, findings: &mut Findings) -> Vec<Stored<'a>> {
        let about: Vec<_> = ["mf", "cert"].into_iter().filter_map(|extension| self.companion(extension)).collect();
        let mut files = vec![Stored { file: None, members: vec![&self.members()[0]] }];
        let mut taken = BTreeSet::from([self.members()[0].offset]);
        let mut expected = Vec::new();
        let mut problems = Vec::new();
        for file in references.files() {
            let before = problems.len();
            let members = self.members_of(file, &mut problems);
            // Two files can name one member: percent-encoded, or as chunks. Each member is read once.
            if members.iter().any(|member| !taken.insert(member.offset)) {
                problems.push(format!("{:?} shares members with another file", file.name));
                continue;
            }
            let whole = problems.len() == before;
            let size = members.iter().map(|member| member.size).sum::<u64>();
            if let Some(said) = file.size.filter(|&said| whole && said != size) {
                problems.push(format!("{} has {size} bytes, the descriptor says {said}", file.name));
            }
            expected.extend(members.iter().copied());
            files.push(Stored { file: Some(file).filter(|_| whole), members });
        }
        let known = |member: &Member| about.contains(&member) || taken.contains(&member.offset);
        let unnamed: Vec<_> = self.members().iter().filter(|member| !known(member)).collect();
        let names = unnamed.iter().map(|member| &member.name);
        findings.problems.extend(
            names.map(|name| format!("{name} is in the archive, but the descriptor does not name it")).chain(problems),
        );
        // Manifest and signature are both in front, or both at the end.
        let descriptor = &self.members()[..1];
        let in_front = self.members().get(1) == about.first().copied();
        let (front, end) = if in_front { (&about[..], &[][..]) } else { (&[][..], &about[..]) };
        let expected: Vec<_> =
            descriptor.iter().chain(front.iter().copied()).chain(expected).chain(end.iter().copied()).collect();
        if findings.problems.is_empty() && !self.members().iter().eq(expected.iter().copied()) {
            let list = |members: &mut dyn Iterator<Item = &Member>| {
                members.map(|member| member.name.as_str()).collect::<Vec<_>>().join(", ")
            };
            let (found, expected) = (list(&mut self.members().iter()), list(&mut expected.into_iter()));
            findings.problems.push(format!("its members are {found}, expected are {expected}"));
        }
        files.extend(unnamed.into_iter().map(|member| Stored { file: None, members: vec![member] }));
        files
    }

    /// The members of a file: one, or its chunks (DSP0243 1.1 §7.1). VMware's tools keep a file that is smaller than a
    /// chunk under its own name. Adds their problems.
    fn members_of(&self, file: &FileReference, problems: &mut Vec<String>) -> Vec<&Member> {
        let name = &file.name;
        // Descriptors write names as they are or percent-encoded.
        let decoded = name::percent_decoded(name);
        let find = |end: &str| {
            let plain = self.find(&format!("{name}{end}"));
            plain.or_else(|| self.find(&format!("{}{end}", decoded.as_deref()?)))
        };
        if let Some(member) = find("") {
            return vec![member];
        }
        let Some(chunk_size) = file.chunk_size else {
            problems.push(format!("the descriptor names {name:?}, which is not in the archive"));
            return Vec::new();
        };
        let end = |number: u64| format!(".{number:09}");
        let count = file.size.map(|size| size.div_ceil(chunk_size).max(1));
        let most = count.unwrap_or(u64::MAX).min(MOST_MEMBERS as u64);
        let found: Vec<_> = (0..most).filter_map(|number| Some((number, find(&end(number))?))).collect();
        let count = count.unwrap_or(found.len().max(1) as u64);
        let before_a_gap = (0u64..).zip(&found).take_while(|(wanted, (number, _))| wanted == number).count() as u64;
        let odd = |(number, chunk): &&(u64, &Member)| {
            chunk.size > chunk_size || chunk.size < chunk_size && number + 1 < count
        };
        if before_a_gap < count {
            let missing = format!("{name}{}", end(before_a_gap));
            problems
                .push(format!("the descriptor names {name:?} in chunks, of which {missing:?} is not in the archive"));
        } else if let Some((_, odd)) = found.iter().find(odd) {
            let Member { name, size, .. } = odd;
            problems.push(format!("{name} has {size} bytes, the descriptor says chunks of {chunk_size}"));
        }
        found.into_iter().map(|(_, member)| member).collect()
    }

    /// Adds the problems of a file's bytes.
    fn check_content(
        &self,
        stored: &Stored<'_>,
        manifest: Option<&LenientManifest>,
        findings: &mut Findings,
    ) -> Result<(), Error> {
        let listed = |member: &Member| manifest.and_then(|manifest| manifest.digest(&member.name));
        let members = stored.members.iter().map(|&member| {
            // If the manifest has no digest, the computed one is compared with nothing.
            let algorithm = listed(member).map_or(&SHA256, |digest| digest.algorithm);
            HashingReader::new(self.reader(member), algorithm)
        });
        let mut reader = FileReader { members: members.collect(), finished: Vec::new() };
        let disk = stored.file.filter(|file| !file.disks.is_empty() && why_not_imported(file).is_none());
        let size = stored.members.iter().map(|member| member.size).sum();
        let decoded = disk.map(|file| (file, vmdk::verify(&mut reader, size)));
        // Reads the rest that a disk's decoder left, or all of another file.
        io::copy(&mut reader, &mut io::sink()).map_err(Error::file("reading", self.path()))?;
        for (member, found) in stored.members.iter().zip(reader.finished) {
            findings.problems.extend(match listed(member) {
                Some(listed) if *listed != found => {
                    findings.damaged = true;
                    Some(format!("{} has the digest {found}, the manifest says {listed}", member.name))
                }
                None if manifest.is_some() => Some(format!("{} is not in the manifest", member.name)),
                _ => None,
            });
        }
        let Some((file, decoded)) = decoded else { return Ok(()) };
        let name = &file.name;
        match decoded {
            Ok(contents) => compare(file, contents, findings),
            Err(vmdk::Error::Stream { source, .. }) => return Err(Error::file("reading", self.path())(source)),
            Err(vmdk::Error::Damaged { offset, reason }) => {
                findings.problems.push(format!("{name}, at byte {offset}: {reason}"));
            }
            Err(other) => findings.problems.push(format!("{name}: {other}")),
        }
        Ok(())
    }
}

/// The bytes of a file, member after member, each with its digest.
struct FileReader<'a> {
    members: Vec<HashingReader<MemberReader<'a>>>,
    /// Digests of the members that were read to their ends.
    finished: Vec<Digest>,
}

impl Read for FileReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = self.members.first_mut() {
            let read = member.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            self.finished.push(self.members.remove(0).finish());
        }
        Ok(0)
    }
}

/// The reason why vSphere does not import a disk, whatever is in its file. The content is then not read. DSP0243 1.1
/// §7.1 allows compression, §9.1 leaves the format to its URI.
pub(super) fn why_not_imported(file: &FileReference) -> Option<Warning> {
    let name = &file.name;
    if let Some(compression) = file.compression.as_ref().filter(|_| !file.disks.is_empty()) {
        let reason = "which vSphere does not import: decompress it";
        let message = format!("{name:?} is compressed as a whole ({compression:?}), {reason}");
        return Some(Warning::new("compressed", message));
    }
    let other = file.disks.iter().find(|disk| !disk.format.ends_with(STREAM_OPTIMIZED))?;
    let reason = "vSphere imports streamOptimized VMDKs alone: convert it";
    Some(Warning::new("format", format!("{name:?} has the format {:?}; {reason}", other.format)))
}

/// Adds the differences of a disk to the descriptor and to disks that vSphere imports.
fn compare(file: &FileReference, found: vmdk::Contents, findings: &mut Findings) {
    let name = &file.name;
    let mut warn = |code, message| findings.warnings.push(Warning::new(code, message));
    for disk in &file.disks {
        if let Some(said) = disk.capacity.filter(|&said| said != found.capacity) {
            let differs = format!("{name} is a disk of {} bytes, the descriptor says {said}", found.capacity);
            // open-vmdk rounds to the unit of the descriptor.
            if said.abs_diff(found.capacity) < disk.unit {
                warn("capacity", differs);
            } else {
                findings.problems.push(differs);
            }
        }
        // OVF allows an estimate (DSP0243 1.1 §9.1).
        if let Some(said) = disk.populated.filter(|&said| said != found.populated) {
            let populated = found.populated;
            warn("populated-size", format!("{name} holds {populated} bytes of data, the descriptor says {said}"));
        }
    }
    if found.version != vmdk::IMPORTED_VERSION {
        let (version, imported) = (found.version, vmdk::IMPORTED_VERSION);
        let reason = format!("its version is {version}, vSphere imports version {imported} alone");
        warn("old-version", format!("{name} is of an old format: {reason}"));
    }
    if !found.ends_with_marker {
        let reason = "importers of VMware may call it changed; convert it with `kaas ova unpack` and `kaas ova pack`";
        warn("no-end-marker", format!("{name} does not end with an end-of-stream marker: {reason}"));
    }
}
