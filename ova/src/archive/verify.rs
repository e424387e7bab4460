//! Whether an OVA is whole: every byte is what the manifest says, and every disk what the descriptor says.

use std::io::Read;

use super::error::Error;
use super::read::{Archive, Member};
use crate::digest::HashingReader;
use crate::manifest::Manifest;
use crate::ovf::{Descriptor, DiskContent, FileReference, References};
use crate::{Progress, vmdk};

/// How the name of the one format of disks ends that vSphere imports (`ovf:format`). Tools write several addresses
/// before it.
const STREAM_OPTIMIZED: &str = "vmdk.html#streamOptimized";

impl Archive {
    /// Reads the whole archive once and checks it:
    ///
    /// - the order of members, and that none is missing or too many. Manifest and signature stand behind the
    ///   descriptor or at the end (DSP0243 1.1 §5.3);
    /// - each file's digest against the manifest, its size against the descriptor if that gives one;
    /// - each disk: that it is a streamOptimized VMDK, the only format that vSphere imports; its grains, all decoded;
    ///   its tables; its capacity and the size of its data against the descriptor.
    ///
    /// OVF lets `ovf:populatedSize` be an estimate (DSP0243 1.1 §9.1), and what vSphere makes of it is documented as
    /// a best guess. VMware's open-vmdk and this crate write the exact size of the grains. Here it has to be that: a
    /// number that is not is of another disk, or made up.
    ///
    /// Gives what was checked. `progress` counts bytes of members. Memory is bounded as [`vmdk::verify`] says.
    ///
    /// # Errors
    /// When there is no manifest; or all that is wrong with the contents, at once.
    pub fn verify(&self, progress: &mut dyn FnMut(Progress)) -> Result<(Descriptor, Manifest), Error> {
        let xml = self.descriptor_xml()?;
        let descriptor = Descriptor::parse(&xml)?;
        let references = References::parse(&xml)?;
        let missing = || self.damaged(0, format!("it has no manifest {:?}", self.companion_name("mf")));
        let manifest = self.manifest()?.ok_or_else(missing)?;
        let mut problems = self.layout_problems(&references);
        problems.extend(self.missing_from(&manifest));
        problems.extend(self.content_problems(&references, &manifest, progress)?);
        if problems.is_empty() {
            return Ok((descriptor, manifest));
        }
        Err(Error::Contents { path: self.path().into(), problems })
    }

    /// What is wrong with the members, their order and their sizes.
    fn layout_problems(&self, references: &References) -> Vec<String> {
        let found: Vec<_> = self.members().iter().map(|member| member.name.as_str()).collect();
        let about: Vec<_> = self.about().filter(|name| self.find(name).is_some()).collect();
        let about: Vec<_> = about.iter().map(String::as_str).collect();
        let files: Vec<_> = references.files().iter().map(|file| file.name.as_str()).collect();
        // Both in front, or both at the end.
        let (front, end) = if found.get(1) == about.first() { (&about[..], &[][..]) } else { (&[][..], &about[..]) };
        let expected = [&found[..1], front, &files, end].concat();

        let unnamed = found.iter().filter(|name| !expected.contains(name));
        let mut problems: Vec<_> =
            unnamed.map(|name| format!("{name} is in the archive, but the descriptor does not name it")).collect();
        let absent = files.iter().filter(|name| !found.contains(name));
        problems.extend(absent.map(|name| format!("the descriptor names {name:?}, which is not in the archive")));
        if problems.is_empty() && found != expected {
            problems.push(format!("its members are {}, expected are {}", found.join(", "), expected.join(", ")));
        }
        for file in references.files() {
            if let (Some(member), Some(size)) = (self.find(&file.name), file.size)
                && member.size != size
            {
                problems.push(format!("{} has {} bytes, the descriptor says {size}", file.name, member.size));
            }
        }
        problems
    }

    /// The names that manifest and signature have. No other file is left out of the manifest.
    fn about(&self) -> impl Iterator<Item = String> {
        ["mf", "cert"].map(|extension| self.companion_name(extension)).into_iter()
    }

    /// Files in the manifest that are not in the archive.
    fn missing_from<'a>(&'a self, manifest: &'a Manifest) -> impl Iterator<Item = String> + 'a {
        let missing = manifest.entries().iter().filter(|entry| self.find(&entry.name).is_none());
        missing.map(|entry| format!("{} is in the manifest, but not in the archive", entry.name))
    }

    /// What is wrong with the bytes of the members.
    fn content_problems(
        &self,
        references: &References,
        manifest: &Manifest,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Vec<String>, Error> {
        let about: Vec<_> = self.about().collect();
        let listed: Vec<_> = self.members().iter().filter(|member| !about.contains(&member.name)).collect();
        let total = listed.iter().map(|member| member.size).sum();
        let mut before = 0;
        let mut problems = Vec::new();
        for member in listed {
            let mut progress = |read| progress(Progress { done: before + read, total });
            let mut reader = HashingReader::new(self.reader(member));
            let file = references.files().iter().find(|file| file.name == member.name);
            let in_disk = match file {
                Some(file) if !file.disks.is_empty() => self.disk_problems(member, file, &mut reader, &mut progress)?,
                _ => Vec::new(),
            };
            // What a disk's decoder left, and all of another file.
            let mut buffer = vec![0; 1 << 20];
            while reader.read(&mut buffer).map_err(Error::file("reading", self.path()))? > 0 {
                progress(reader.read_bytes());
            }
            match (reader.finish(), manifest.digest(&member.name)) {
                (_, None) => problems.push(format!("{} is not in the manifest", member.name)),
                (found, Some(listed)) if found != listed => {
                    problems.push(format!("{} has the digest {found}, the manifest says {listed}", member.name));
                }
                _ => {}
            }
            problems.extend(in_disk);
            before += member.size;
        }
        Ok(problems)
    }

    /// Decodes a disk and gives what is wrong with it. Of one that cannot be decoded `reader` is not read to its end.
    fn disk_problems(
        &self,
        member: &Member,
        file: &FileReference,
        reader: &mut HashingReader<impl Read + Send>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Vec<String>, Error> {
        let name = &member.name;
        if let Some(reason) = why_not_imported(file) {
            return Ok(vec![format!("{name} {reason}")]);
        }
        match vmdk::verify(reader, member.size, &mut |at| progress(at.done)) {
            Ok(contents) => Ok(file.disks.iter().flat_map(|disk| differences(name, disk, contents)).collect()),
            Err(vmdk::Error::Damaged { offset, reason }) => Ok(vec![format!("{name}, at byte {offset}: {reason}")]),
            Err(vmdk::Error::Unsupported { reason }) => {
                Ok(vec![format!("{name} is not a streamOptimized VMDK that vSphere imports: {reason}")])
            }
            Err(vmdk::Error::Stream { source, .. }) => Err(Error::file("reading", self.path())(source)),
            Err(other @ (vmdk::Error::File { .. } | vmdk::Error::Source { .. })) => {
                Ok(vec![format!("{name}: {other}")])
            }
        }
    }
}

/// Why vSphere does not import a disk, whatever is in its file.
fn why_not_imported(file: &FileReference) -> Option<String> {
    if let Some(compression) = &file.compression {
        return Some(format!("is compressed as a whole ({compression:?}), which vSphere does not import"));
    }
    if file.in_chunks {
        return Some("is said to be in chunks, which an archive has no use for".into());
    }
    let other = file.disks.iter().find(|disk| !disk.format.ends_with(STREAM_OPTIMIZED))?;
    Some(format!("has the format {:?}; vSphere imports streamOptimized VMDKs alone: convert it", other.format))
}

/// How a disk differs from what the descriptor says of it.
fn differences(name: &str, said: &DiskContent, found: vmdk::Contents) -> Vec<String> {
    let mut problems = Vec::new();
    if found.capacity != said.capacity {
        problems.push(format!("{name} is a disk of {} bytes, the descriptor says {}", found.capacity, said.capacity));
    }
    if let Some(populated) = said.populated.filter(|&populated| populated != found.populated) {
        problems.push(format!("{name} holds {} bytes of data, the descriptor says {populated}", found.populated));
    }
    problems
}
