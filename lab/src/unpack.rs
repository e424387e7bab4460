//! Unpacks an OVA for the engines, once for each OVA: descriptor, raw system disk, kernel image and root tree.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use ova::Sha256;
use ova::archive::Archive;
use ova::ovf::Descriptor;
use serde::{Deserialize, Serialize};

use super::directories::state_directory;
use super::host::run;
use super::system_disk;
use super::tools::Tools;

/// Path of the program that the firmware starts on a removable medium.
const REMOVABLE_PATH: &str = "::/EFI/BOOT/BOOTX64.EFI";

/// Name prefix of directories during their creation.
const NEW: &str = "new-";
/// Name prefix of directories during their removal.
const GONE: &str = "gone-";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnpackedOva {
    directory: PathBuf,
}

impl UnpackedOva {
    /// Unpacks an OVA into a directory below `cache`, or finds it there. `say` is called with each step. After an
    /// error, nothing of it remains.
    pub fn ensure(ova: &Path, cache: &Path, tools: &Tools, say: &dyn Fn(&str)) -> anyhow::Result<Self> {
        let attempt = || format!("unpacking {}", ova.display());
        let archive = Archive::open(ova).with_context(attempt)?;
        let Some(manifest) = archive.manifest().with_context(attempt)? else {
            bail!("{} has no manifest; build it again", ova.display());
        };
        let listed: String =
            manifest.entries().iter().map(|entry| format!("{} {}\n", entry.digest, entry.name)).collect();
        let directory = cache.join(Sha256::of(listed.as_bytes()).to_string());
        fs::create_dir_all(cache)?;
        let _lock = locked(cache)?;
        if !directory.exists() {
            say("checking the OVA");
            let (descriptor, _) = archive.verify().with_context(attempt)?;
            let new = tempfile::Builder::new().prefix(NEW).tempdir_in(cache)?;
            fs::write(new.path().join("descriptor.ovf"), archive.descriptor_xml()?)?;
            unpack(&archive, &descriptor, new.path(), tools, say).with_context(attempt)?;
            // After a power cut, the directory under its final name is complete or missing.
            nix::unistd::syncfs(File::open(new.path())?).context("writing the unpacked OVA out")?;
            fs::rename(new.path(), &directory)?;
        }
        let unpacked = Self { directory };
        unpacked.is_used()?;
        forget_others(cache, &unpacked.directory)?;
        clear_left(cache)?;
        Ok(unpacked)
    }

    /// The unpacked OVA with this digest below `cache`, marked as used now.
    pub fn find(cache: &Path, digest: &str) -> anyhow::Result<Option<Self>> {
        if !cache.exists() {
            return Ok(None);
        }
        let _lock = locked(cache)?;
        let Some(found) = Self::at(&cache.join(digest)) else { return Ok(None) };
        found.is_used()?;
        Ok(Some(found))
    }

    /// Marks it as used: a recently used one is not removed.
    fn is_used(&self) -> anyhow::Result<()> {
        Ok(File::open(&self.directory)?.set_modified(SystemTime::now())?)
    }

    /// The unpacked OVA in a directory, if it still exists.
    pub fn at(directory: &Path) -> Option<Self> {
        let whole = directory.join("descriptor.ovf").exists();
        whole.then(|| Self { directory: directory.to_owned() })
    }

    /// SHA-256 of its manifest's digests, in hexadecimal. It identifies the OVA by content.
    pub fn digest(&self) -> &str {
        self.directory.file_name().and_then(|name| name.to_str()).unwrap_or_default()
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub fn descriptor(&self) -> anyhow::Result<Descriptor> {
        let path = self.directory.join("descriptor.ovf");
        let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        Ok(Descriptor::parse(&text)?)
    }

    /// The system disk, raw.
    pub fn system_disk(&self) -> PathBuf {
        self.directory.join("system.raw")
    }

    /// The unified kernel image that the firmware would start.
    pub fn kernel_image(&self) -> PathBuf {
        self.directory.join("kernel.efi")
    }

    pub fn tree(&self) -> PathBuf {
        self.directory.join("tree")
    }
}

fn locked(cache: &Path) -> anyhow::Result<File> {
    let lock = File::options().create(true).truncate(false).write(true).open(cache.join("lock"))?;
    lock.lock().context("waiting for another command that unpacks an OVA")?;
    Ok(lock)
}

/// How long a used one is kept: another command may be about to create a lab from it.
const RECENT: Duration = Duration::from_secs(60 * 60);

/// Marks other unpacked OVAs for removal: each has more than a gigabyte. Keeps the last used one, recently used ones,
/// and those of labs.
fn forget_others(cache: &Path, own: &Path) -> anyhow::Result<()> {
    let labs = fs::read_dir(state_directory()?).into_iter().flatten().flatten();
    let mut records = Vec::new();
    for lab in labs {
        let vms = fs::read_dir(lab.path().join("vms")).into_iter().flatten().flatten();
        let files = vms.map(|vm| vm.path().join("vm.json")).chain([lab.path().join("lab.json")]);
        records.extend(files.filter_map(|file| fs::read_to_string(file).ok()));
    }
    let mut others = Vec::new();
    for entry in fs::read_dir(cache)? {
        let path = entry?.path();
        let used = records.iter().any(|record| record.contains(&*path.to_string_lossy()));
        let modified = fs::metadata(&path)?.modified()?;
        let recent = modified.elapsed().is_ok_and(|age| age < RECENT);
        if path.join("descriptor.ovf").exists() && path != own && !used && !recent && !is_left(&path) {
            others.push((modified, path));
        }
    }
    others.sort();
    others.pop();
    for (_, path) in others {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        fs::rename(&path, cache.join(format!("{GONE}{name}")))
            .with_context(|| format!("removing {}", path.display()))?;
    }
    Ok(())
}

/// Removes directories that are marked for removal or incomplete. The caller holds the lock.
fn clear_left(cache: &Path) -> anyhow::Result<()> {
    for entry in fs::read_dir(cache)? {
        let path = entry?.path();
        if is_left(&path) {
            fs::remove_dir_all(&path).with_context(|| format!("removing {}", path.display()))?;
        }
    }
    Ok(())
}

fn is_left(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    [NEW, GONE].iter().any(|prefix| name.starts_with(prefix))
}

fn unpack(
    archive: &Archive,
    descriptor: &Descriptor,
    into: &Path,
    tools: &Tools,
    say: &dyn Fn(&str),
) -> anyhow::Result<()> {
    let Some(system) = descriptor.disks.iter().find_map(|disk| disk.file.as_ref()) else {
        bail!("none of its disks has a file");
    };
    let raw = into.join("system.raw");
    say("expanding the system disk");
    let (member, bytes) = archive.member(&system.name)?;
    ova::vmdk::read_stream(bytes, member.size, &raw)?;
    let partitions = system_disk::partitions(&raw, tools)?;
    say("taking out the kernel image");
    let esp = system_disk::efi_system(&partitions)?;
    let mut copy = tools.command("mcopy", &[into]);
    copy.arg("-i").arg(format!("{}@@{}", raw.display(), esp.offset())).arg(REMOVABLE_PATH).arg(into.join("kernel.efi"));
    run(&mut copy)?;
    say("taking out the root tree");
    system_disk::extract(&raw, system_disk::root(&partitions)?, &into.join("tree"), tools)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory as [`unpack`] leaves it, with this age of its last use.
    fn unpacked(cache: &Path, name: &str, age: Duration) -> PathBuf {
        let directory = cache.join(name);
        fs::create_dir_all(directory.join("tree")).unwrap();
        fs::write(directory.join("descriptor.ovf"), "").unwrap();
        File::open(&directory).unwrap().set_modified(SystemTime::now() - age).unwrap();
        directory
    }

    #[test]
    fn complete_ovas_are_found_and_marked_as_used() {
        let cache = tempfile::tempdir().unwrap();
        assert_eq!(UnpackedOva::find(&cache.path().join("none yet"), "own").unwrap(), None);
        let (own, other) = (unpacked(cache.path(), "own", RECENT * 3), unpacked(cache.path(), "other", RECENT * 2));
        fs::remove_file(other.join("descriptor.ovf")).unwrap();
        assert_eq!(UnpackedOva::find(cache.path(), "other").unwrap(), None, "it is not whole");
        let found = UnpackedOva::find(cache.path(), "own").unwrap().unwrap();
        assert_eq!((found.digest(), found.directory()), ("own", &*own));
        assert!(fs::metadata(&own).unwrap().modified().unwrap().elapsed().is_ok_and(|age| age < RECENT));
    }

    #[test]
    fn old_ones_are_removed_and_recent_ones_stay() {
        let cache = tempfile::tempdir().unwrap();
        let of = |name: &str, age: Duration| unpacked(cache.path(), name, age);
        let own = of("own", Duration::ZERO);
        let (recent, last, old) = (of("recent", RECENT / 2), of("last", RECENT * 2), of("old", RECENT * 3));
        // A directory that an interrupted command left is not an unpacked OVA.
        let half = [of("new-1", Duration::ZERO), of("gone-2", Duration::ZERO)];
        forget_others(cache.path(), &own).unwrap();
        assert!(cache.path().join("gone-old").is_dir(), "it is out of the way in one step");
        clear_left(cache.path()).unwrap();
        let there: Vec<bool> = [&own, &recent, &last, &old, &half[0], &half[1]].map(|path| path.exists()).into();
        assert_eq!(there, [true, true, true, false, false, false]);
    }
}
