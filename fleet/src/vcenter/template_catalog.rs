//! The templates that this deployment has imported, by its own notes in small files next to its journal. Only the notes
//! say which template is an image. A template's settings are not trusted: any account may write them that may change or
//! create a template. Knows nothing of how an image is imported, or what becomes of it.
//!
//! An import is noted before it begins, with the name and the BIOS UUID of its VM: an incomplete import is recognized
//! by these. Once the template is complete, the note is sealed with vCenter's identifiers and the version of the
//! settings. `VirtualMachineConfigInfo.changeVersion` is "a unique identifier for a given version of the configuration.
//! Each change to the configuration updates this value" (vSphere Web Services API). It is not documented whether a
//! clone counts as a change of its source, or a registration by another host. So the seal also contains the settings
//! that affect clones.

use std::collections::BTreeMap;

use ova::Sha256;
use serde::{Deserialize, Serialize};
use uuid::Uuid;
use vsphere::{Element, MoRef};

use super::datastore_directory::DatastoreDirectory;
use crate::hypervisor::{Error, ErrorKind, Fence, Result};

/// The snapshot that clones are made from.
pub(super) const SNAPSHOT: &str = "kaas";

/// The name of the directory, in that of the journal.
const DIRECTORY: &str = "images";
/// The suffixes of a note's files: for a begun import and for a complete template. Neither file is ever written again
/// with other content, except for [`Note::is_denied`].
const BEGUN: &str = ".begun.json";
const SEALED: &str = ".sealed.json";
/// How many characters of the digest are in a template's name, for users.
const SHORT: usize = 12;
/// The limit for a note, in bytes: it contains the properties of an image, a few KiB.
pub(super) const LONGEST: usize = 256 << 10;
/// The limits for the bytes of notes that are read, and for the files. A deployment has a note of each image on each
/// datastore until its template is gone. Some thousands fit.
pub(super) const MOST_BYTES: usize = 16 << 20;
const MOST_FILES: usize = 5000;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Note {
    pub(super) deployment: Uuid,
    /// Of the OVA, as [`crate::hypervisor::ImageTemplate::digest`].
    pub(super) digest: String,
    /// The template's name and BIOS UUID.
    pub(super) name: String,
    pub(super) uuid: Uuid,
    /// vCenter's identifier of the template's datastore.
    pub(super) datastore: String,
    /// The default values of the OVA's properties, by the names that guests use.
    pub(super) defaults: BTreeMap<String, String>,
    /// Whether the account was not permitted to make a template of the import: it may not see it either.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_denied: bool,
    /// Set once it is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) seal: Option<TemplateFingerprint>,
}

/// A complete template at the moment when this deployment had created it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TemplateFingerprint {
    /// vCenter's unique identifier.
    pub(super) reference: String,
    pub(super) instance: String,
    /// The version of its settings.
    pub(super) version: String,
    /// The SHA-256 of each part of the settings that affects clones, by name ([`parts`]). A template with a new version
    /// and the same parts is unchanged: vCenter changes names, summaries and versions by itself.
    pub(super) parts: BTreeMap<String, String>,
    /// The source of clones.
    pub(super) snapshot: String,
    /// The file of its disk, and the files that this disk is linked to.
    pub(super) disk: Vec<String>,
}

impl TemplateFingerprint {
    /// The seal of a template, without the parts of its settings. `None` if it is incomplete.
    pub(super) fn of(vm: &vsphere::Vm) -> Option<Self> {
        let [disk] = vm.devices.disks.as_slice() else { return None };
        let snapshot = snapshot(vm)?;
        vm.is_template.then(|| Self {
            reference: vm.reference.id.clone(),
            instance: vm.instance_uuid.clone(),
            version: vm.change_version.clone(),
            parts: BTreeMap::new(),
            snapshot: snapshot.id.clone(),
            disk: disk.path.iter().chain(&disk.parents).cloned().collect(),
        })
    }

    /// The change of a template since it was sealed. `None` if it is unchanged. If its settings have a new version, the
    /// caller must still compare them.
    pub(super) fn broken(&self, now: &vsphere::Vm) -> Option<&'static str> {
        let Some(seen) = Self::of(now) else { return Some("it is no longer a whole template") };
        let rest = (&seen.reference, &seen.instance) == (&self.reference, &self.instance);
        // A renamed datastore has the same files.
        let files = |seal: &Self| -> Vec<String> { seal.disk.iter().map(|path| file(path).to_owned()).collect() };
        match (rest, seen.snapshot == self.snapshot, files(&seen) == files(self)) {
            (false, ..) => Some("it is another one"),
            (_, false, _) => Some("its snapshot is another one"),
            (.., false) => Some("its disk is another one"),
            _ if seen.version != self.version => Some(CHANGED),
            _ => None,
        }
    }

    /// The parts of a template's settings that have changed since it was sealed.
    pub(super) fn altered(&self, config: &Element) -> Vec<String> {
        let now = parts(config);
        let differs = |(name, sealed): (&String, &String)| (now.get(name) != Some(sealed)).then(|| name.clone());
        self.parts.iter().filter_map(differs).collect()
    }
}

/// The path of a file without its datastore.
fn file(path: &str) -> &str {
    path.split_once("] ").map_or(path, |(_, file)| file)
}

/// The properties of a device that affect a clone. Names, summaries, networks, addresses, content identifiers and
/// states are left out. They are changed by vCenter and backup software. A clone gets its own networks and addresses.
const OF_DEVICES: &str = "device key controllerKey unitNumber busNumber sharedBus capacityInKB connectable startConnected backing \
                          parent fileName diskMode uuid serviceURI proxyURI id sharing";
/// The prefixes of entries of `extraConfig` that hosts write when they register or move a VM.
const BY_HOSTS: [&str; 2] = ["migrate.", "sched.swap."];

/// Whether a host writes this entry of `extraConfig`.
pub(super) fn is_by_host(key: &str) -> bool {
    BY_HOSTS.iter().any(|begin| key.starts_with(begin))
}

/// The SHA-256 of each part of a template's settings (`VirtualMachineConfigInfo`) that affects clones, by name.
pub(super) fn parts(config: &Element) -> BTreeMap<String, String> {
    let whole = |name: &str| config.child(name).map(text_of).unwrap_or_default();
    let is_kept = |entry: &&Element| {
        let (key, value) = (entry.text_of("key").unwrap_or_default(), entry.text_of("value").unwrap_or_default());
        // An entry without a value was removed.
        !value.is_empty() && !is_by_host(key)
    };
    let mut entries: Vec<String> = config.all("extraConfig").filter(is_kept).map(text_of).collect();
    entries.sort();
    let hardware = |name| config.at(&["hardware", name]).map(text_of).unwrap_or_default();
    let devices = config.child("hardware").map(|hardware| device_text(hardware, true)).unwrap_or_default();
    let part = |name: &str, texts: &[String]| (name.to_owned(), Sha256::of(texts.concat().as_bytes()).to_string());
    BTreeMap::from([
        part("hardware", &[whole("version"), whole("guestId"), hardware("numCPU"), hardware("memoryMB"), devices]),
        part("boot options", &[whole("firmware"), whole("bootOptions")]),
        part("extraConfig", &entries),
        part("vAppConfig", &[whole("vAppConfig")]),
    ])
}

/// The text of a device, or of all devices, with the properties of [`OF_DEVICES`].
fn device_text(element: &Element, is_top: bool) -> String {
    let below = element.children().iter().filter(|part| OF_DEVICES.split(' ').any(|name| name == part.name()));
    // A controller lists the keys of its devices, which also name their controller.
    let below = below.filter(|part| part.name() != "device" || is_top);
    let mut parts: Vec<String> = below.map(|part| device_text(part, false)).collect();
    if is_top {
        // vCenter returns devices in any order.
        parts.sort();
    }
    let value = if element.name() == "fileName" { file(element.value()) } else { element.value() };
    serde_json::json!([element.name(), element.kind().unwrap_or_default(), value, parts]).to_string()
}

/// The words for a template whose settings have a new version since it was sealed.
pub(super) const CHANGED: &str = "its settings were changed";

/// The text of an element. Different elements have different texts.
fn text_of(element: &Element) -> String {
    let parts: Vec<String> = element.children().iter().map(text_of).collect();
    let (name, kind, value) = (element.name(), element.kind().unwrap_or_default(), element.value());
    serde_json::json!([name, kind, value, parts]).to_string()
}

/// The snapshot of a template.
pub(super) fn snapshot(vm: &vsphere::Vm) -> Option<&MoRef> {
    vm.snapshots.iter().find(|snapshot| snapshot.name == SNAPSHOT).map(|snapshot| &snapshot.reference)
}

/// The prefix of the names of an image's templates.
pub(super) fn prefix(digest: &str) -> String {
    format!("kaas-image-{}-", digest.get(..SHORT).unwrap_or(digest))
}

/// The files of a note.
#[derive(Default)]
struct Files<'a> {
    ends: Vec<&'a str>,
    /// Their total size in bytes.
    size: usize,
    /// The last change of any of them, as XML Schema writes it.
    changed: &'a str,
}

/// The notes that are read, which are the newest, and the names of the others. Both are newest first.
fn newest<'a>(mut files: Vec<(&'a str, Files<'a>)>) -> (Vec<(&'a str, Files<'a>)>, Vec<&'a str>) {
    files.sort_by(|(_, one), (_, other)| other.changed.cmp(one.changed));
    let (mut size, mut count) = (0, 0);
    let fits = files.iter().take_while(|(_, files)| {
        size += files.size;
        count += files.ends.len();
        size <= MOST_BYTES && count <= MOST_FILES
    });
    let read = fits.count();
    let older = files.split_off(read).into_iter().map(|(name, _)| name).collect();
    files.sort_by_key(|(name, _)| *name);
    (files, older)
}

pub(super) struct TemplateCatalog {
    directory: DatastoreDirectory,
    deployment: Uuid,
}

impl TemplateCatalog {
    pub(super) fn beside(journal: &DatastoreDirectory, deployment: Uuid) -> Self {
        Self { directory: journal.below(DIRECTORY), deployment }
    }

    /// The notes of another deployment, in the same directory.
    pub(super) fn of(self, deployment: Uuid) -> Self {
        Self { deployment, ..self }
    }

    /// The directory by which an operator confirms that a VM is gone, because nothing else can prove it.
    pub(super) fn word(&self, vm: Uuid) -> DatastoreDirectory {
        self.directory.below(&format!("gone-{vm}"))
    }

    /// The datastore with the notes, which is the journal's, and its name. `None` if the notes are another
    /// deployment's, which this one only reads.
    pub(super) fn datastore_of(&self, deployment: Uuid) -> Option<(&MoRef, &str)> {
        (self.deployment == deployment).then(|| self.directory.datastore())
    }

    /// A new import that has not begun.
    pub(super) fn new_note(&self, digest: &str, datastore: &MoRef, defaults: BTreeMap<String, String>) -> Note {
        let uuid = Uuid::new_v4();
        Note {
            deployment: self.deployment,
            digest: digest.to_owned(),
            name: format!("{}{}", prefix(digest), &uuid.simple().to_string()[..8]),
            uuid,
            datastore: datastore.id.clone(),
            defaults,
            is_denied: false,
            seal: None,
        }
    }

    /// The notes of one image.
    pub(super) async fn notes_of(&self, digest: &str) -> Result<Vec<Note>> {
        let (mut notes, _) = self.named(&prefix(digest)).await?;
        notes.retain(|note| note.digest == digest);
        Ok(notes)
    }

    /// All notes that are read.
    pub(super) async fn all(&self) -> Result<Vec<Note>> {
        Ok(self.named("").await?.0)
    }

    /// As [`Self::all`], and how many notes were ignored: it is then unknown what is done with the templates of those.
    pub(super) async fn every(&self) -> Result<(Vec<Note>, usize)> {
        self.named("").await
    }

    /// The notes of templates whose names have this prefix, and how many notes were ignored. An account that may write
    /// there controls neither the bytes that are read nor the memory that is used. A file that is too long is no note,
    /// and of too many notes the oldest are ignored.
    async fn named(&self, prefix: &str) -> Result<(Vec<Note>, usize)> {
        let listed = self.directory.listed().await?.unwrap_or_default();
        let mut files: BTreeMap<&str, Files<'_>> = BTreeMap::new();
        for file in listed.iter().filter(|file| file.name.starts_with(prefix)) {
            for end in [SEALED, BEGUN] {
                let Some(name) = file.name.strip_suffix(end) else { continue };
                if let Some(size) = usize::try_from(file.size).ok().filter(|size| *size <= LONGEST) {
                    let files = files.entry(name).or_default();
                    files.ends.push(end);
                    files.size += size;
                    files.changed = files.changed.max(file.changed.as_str());
                } else {
                    let (name, size) = (&file.name, file.size);
                    log::warn!("{name} in {} has {size} bytes: it is no note, and passed over", self.directory);
                }
            }
        }
        let (files, older) = newest(files.into_iter().collect());
        if let Some(first) = older.first() {
            log::warn!(
                "there are too many notes in {}: the oldest are passed over, from {first} on ({} in all). Remove those whose templates \
                 are gone",
                self.directory,
                older.len()
            );
        }
        let mut notes = Vec::new();
        for (name, Files { mut ends, .. }) in files {
            // The sealed file contains all that the begun one does.
            ends.sort_by_key(|end| *end != SEALED);
            for end in ends {
                if let Some(note) = self.read(name, end).await? {
                    notes.push(note);
                    break;
                }
            }
        }
        Ok((notes, older.len()))
    }

    /// A note. `None` if its file was cut, and so nothing followed from it, or if it is another deployment's.
    async fn read(&self, name: &str, end: &str) -> Result<Option<Note>> {
        let file = format!("{name}{end}");
        let Some(text) = self.directory.read(&file, LONGEST).await? else { return Ok(None) };
        match serde_json::from_str::<Note>(&text) {
            Ok(note) if note.deployment != self.deployment || note.name != name => {
                log::debug!("{file} in {} is not of this deployment: it is passed over", self.directory);
                Ok(None)
            }
            Ok(note) if note.seal.is_some() != (end == SEALED) => Ok(None),
            Ok(note) => Ok(Some(note)),
            Err(error) if error.is_eof() => Ok(None),
            Err(error) => {
                log::warn!("{file} in {} is not understood, and is passed over: {error}", self.directory);
                Ok(None)
            }
        }
    }

    /// Notes an import that is about to begin. The note is durable when this returns.
    pub(super) async fn begin(&self, note: &Note, permit: &dyn Fence) -> Result<()> {
        if !self.directory.exists().await? {
            self.directory.make_with_parents(&permit).await?;
        }
        Ok(self.directory.write(&format!("{}{BEGUN}", note.name), &text(note)?, &permit).await?)
    }

    /// Notes that the account was not permitted to make a template of the import.
    pub(super) async fn deny(&self, note: &Note, permit: &dyn Fence) -> Result<()> {
        self.begin(&Note { is_denied: true, ..note.clone() }, permit).await
    }

    /// Notes that a template is complete, in its current state. A repeated call writes the same.
    pub(super) async fn seal(&self, note: &Note, seal: TemplateFingerprint, permit: &dyn Fence) -> Result<()> {
        let text = text(&Note { seal: Some(seal), ..note.clone() })?;
        Ok(self.directory.write(&format!("{}{SEALED}", note.name), &text, &permit).await?)
    }

    /// Removes the note of a template of which nothing is left.
    pub(super) async fn forget(&self, note: &Note, permit: &dyn Fence) -> Result<()> {
        let ends: &[&str] = if note.seal.is_some() { &[SEALED, BEGUN] } else { &[BEGUN] };
        for end in ends {
            match self.directory.remove_file(&format!("{}{end}", note.name), &permit).await {
                Err(error) if error.outcome() != vsphere::Outcome::NotFound => {
                    let error = Error::from(error);
                    if error.kind == ErrorKind::Fenced {
                        return Err(error);
                    }
                    // The next command removes it.
                    log::debug!("taking the note of {} away: {error}", note.name);
                    return Ok(());
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn text(note: &Note) -> Result<String> {
    serde_json::to_string(note).map_err(Error::refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_of_too_many_notes_are_read() {
        let of = |count: usize, size: usize| {
            let days: Vec<String> = (0..count).map(|day| format!("{day:06}")).collect();
            let file = |changed| (changed, Files { ends: vec![SEALED], size, changed });
            let (read, older) = newest(days.iter().map(|day| file(day.as_str())).collect());
            assert!(read.is_sorted_by_key(|(name, _)| *name) && read.len() + older.len() == count);
            assert!(read.iter().all(|(name, _)| older.iter().all(|old| old < name)), "the newest");
            older.len()
        };
        assert_eq!((of(0, 0), of(3000, 5 << 10), of(MOST_FILES, 0), of(MOST_FILES + 2, 0)), (0, 0, 0, 2));
        let most = MOST_BYTES / LONGEST;
        assert_eq!((of(most, LONGEST), of(most + 1, LONGEST)), (0, 1));
    }

    #[test]
    fn parts_ignore_order_version_and_host() {
        let entry = |key: &str, value: &str| {
            Element::new("extraConfig").with([Element::text("key", key), Element::text("value", value)])
        };
        let boot = |disk: i32| Element::new("bootOrder").with([Element::text("deviceKey", disk)]);
        let config = |version: &str, entries: &[(&str, &str)], order: &[i32], host: &str| {
            let entries = entries.iter().map(|(key, value)| entry(key, value));
            let options = Element::new("bootOptions").with(order.iter().map(|disk| boot(*disk)));
            let head = [Element::text("changeVersion", version), Element::text("name", "x")];
            let url = Element::new("datastoreUrl").with([Element::text("url", host)]);
            let overhead =
                Element::new("initialOverhead").with([Element::text("initialMemoryReservation", host.len())]);
            let of_file = [overhead, Element::text("vmxConfigChecksum", format!("c{version}{host}"))];
            parts(&Element::new("config").with(head).with([url, options]).with(entries).with(of_file))
        };
        let sealed = config("1", &[("a", "1"), ("b", "2")], &[7, 8], "ds:///one");
        assert_eq!(config("2", &[("b", "2"), ("a", "1")], &[7, 8], "ds:///another"), sealed);
        assert_eq!(config("3", &[("a", "1"), ("b", "2"), ("c", "")], &[7, 8], "ds:///one"), sealed);
        for other in [
            config("1", &[("a", "1"), ("b", "3")], &[7, 8], "ds:///one"),
            config("1", &[("a", "1")], &[7, 8], "ds:///one"),
            config("1", &[("a", "1"), ("b", "2"), ("c", "3")], &[7, 8], "ds:///one"),
            config("1", &[("a", "1"), ("b", "2")], &[8, 7], "ds:///one"),
        ] {
            assert_ne!(other, sealed);
        }
    }
}
