//! What this deployment has laid ready, as it has noted itself, in small files beside its journal: that alone says which template
//! is an image. What stands in a template's settings anybody can write who may change it there or may make one, so none of it is
//! believed. Knows nothing of how an image is laid, nor what becomes of it.
//!
//! An import is noted before it is begun, with the name and the BIOS UUID that its VM is given: half of one is known by these.
//! Once it is a whole template the note is sealed with what vCenter calls it and with the version of its settings: `changeVersion`
//! is "a unique identifier for a given version of the configuration. Each change to the configuration updates this value"
//! (vSphere Web Services API, `VirtualMachineConfigInfo`). Whether a clone counts as a change of what is cloned, or that another host
//! registers it, is not said: so it is sealed with those of its settings as well that lead into clones.

use std::collections::BTreeMap;

use ova::Sha256;
use serde::{Deserialize, Serialize};
use uuid::Uuid;
use vsphere::{Element, MoRef};

use super::datastore_directory::DatastoreDirectory;
use super::trouble::Asking;
use crate::hypervisor::{Error, ErrorKind, Fence, Result};

/// The snapshot that clones are made from.
pub(super) const SNAPSHOT: &str = "kaas";

/// The directory, in that of the journal.
const DIRECTORY: &str = "images";
/// How the files of a note end: of what was begun, and of what is whole. Neither is ever written anew with other words, but for
/// [`Note::is_denied`].
const BEGUN: &str = ".begun.json";
const SEALED: &str = ".sealed.json";
/// So many characters of the digest are in a template's name, for people.
const SHORT: usize = 12;
/// No note is longer, in bytes: it holds the form of an image, a few KiB.
pub(super) const LONGEST: usize = 256 << 10;
/// So many bytes of notes are read, and so many files. A deployment has a note of each image on each datastore, until its template is gone:
/// some thousands fit in.
pub(super) const MOST_BYTES: usize = 16 << 20;
const MOST_FILES: usize = 5000;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Note {
    pub(super) deployment: Uuid,
    /// Of the OVA, as [`crate::hypervisor::ImageTemplate::digest`].
    pub(super) digest: String,
    /// The template's name, and the BIOS UUID that it is given.
    pub(super) name: String,
    pub(super) uuid: Uuid,
    /// What vCenter calls the datastore that it is laid on.
    pub(super) datastore: String,
    /// What the OVA's form holds as it comes, by the names that guests know.
    pub(super) defaults: BTreeMap<String, String>,
    /// Whether the account was not permitted to make a template of what was imported: it may not see it either.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_denied: bool,
    /// Once it is whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) seal: Option<TemplateFingerprint>,
}

/// A whole template, as it was when this deployment had made it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TemplateFingerprint {
    /// What vCenter calls it, and tells it from all others by.
    pub(super) reference: String,
    pub(super) instance: String,
    /// The version of its settings.
    pub(super) version: String,
    /// The SHA-256 of all settings without their version and what is the host's: only in seals of earlier programs, which have no `parts`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) settings: Option<String>,
    /// The SHA-256 of each part of the settings that leads into clones, by its name ([`parts`]). A template whose version changed and whose
    /// parts did not is as it was: vCenter changes names, summaries and versions by itself.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) parts: BTreeMap<String, String>,
    /// What clones are made from.
    pub(super) snapshot: String,
    /// Its disk's file, and those that it stands on.
    pub(super) disk: Vec<String>,
}

impl TemplateFingerprint {
    /// The seal of a template; none of what is no whole one.
    pub(super) fn of(vm: &vsphere::Vm) -> Option<Self> {
        let [disk] = vm.devices.disks.as_slice() else { return None };
        let snapshot = snapshot(vm)?;
        vm.is_template.then(|| Self {
            reference: vm.reference.id.clone(),
            instance: vm.instance_uuid.clone(),
            version: vm.change_version.clone(),
            settings: None,
            parts: BTreeMap::new(),
            snapshot: snapshot.id.clone(),
            disk: disk.path.iter().chain(&disk.parents).cloned().collect(),
        })
    }

    /// What of a template is not as it was sealed; none if all is. Where its settings have another version these are still to be
    /// looked at.
    pub(super) fn broken(&self, now: &vsphere::Vm) -> Option<&'static str> {
        let Some(seen) = Self::of(now) else { return Some("it is no whole template any more") };
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
}

impl TemplateFingerprint {
    /// The parts of a template's settings that are not as they were sealed.
    pub(super) fn altered(&self, config: &Element) -> Vec<String> {
        let now = parts(config);
        if self.parts.is_empty() {
            let is_same = self.settings.as_ref().is_some_and(|sealed| *sealed == settings(config));
            return if is_same { Vec::new() } else { vec!["not known which".to_owned()] };
        }
        let differs = |(name, sealed): (&String, &String)| (now.get(name) != Some(sealed)).then(|| name.clone());
        self.parts.iter().filter_map(differs).collect()
    }
}

/// The path of a file without its datastore.
fn file(path: &str) -> &str {
    path.split_once("] ").map_or(path, |(_, file)| file)
}

/// What of a device leads into a clone. Names, summaries, networks, addresses, identifiers of contents and states are left out: vCenter and
/// backup software change these, and a clone gets its own networks and addresses.
const OF_DEVICES: &str = "device key controllerKey unitNumber busNumber sharedBus capacityInKB connectable startConnected backing \
                          parent fileName diskMode uuid serviceURI proxyURI id sharing";
/// How entries of `extraConfig` begin that hosts write when they register or move a VM.
const BY_HOSTS: [&str; 2] = ["migrate.", "sched.swap."];

/// Whether a host writes this entry of `extraConfig`.
pub(super) fn is_by_host(key: &str) -> bool {
    BY_HOSTS.iter().any(|begin| key.starts_with(begin))
}

/// The SHA-256 of each part of a template's settings (`VirtualMachineConfigInfo`) that leads into clones, by name.
pub(super) fn parts(config: &Element) -> BTreeMap<String, String> {
    let whole = |name: &str| config.child(name).map(text_of).unwrap_or_default();
    let is_kept = |entry: &&Element| {
        let (key, value) = (entry.text_of("key").unwrap_or_default(), entry.text_of("value").unwrap_or_default());
        // An entry without a value is one that was taken away.
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

/// A device, or all of them, with no more than [`OF_DEVICES`].
fn device_text(element: &Element, is_top: bool) -> String {
    let mut parts: Vec<(&str, String)> = Vec::new();
    let below = element.children().iter().filter(|part| OF_DEVICES.split(' ').any(|name| name == part.name()));
    // A controller lists the keys of its devices, which name it themselves.
    for part in below.filter(|part| part.name() != "device" || is_top) {
        parts.push((part.name(), device_text(part, false)));
    }
    order(&mut parts);
    let parts: Vec<String> = parts.into_iter().map(|(_, text)| text).collect();
    let value = if element.name() == "fileName" { file(element.value()) } else { element.value() };
    serde_json::json!([element.name(), element.kind().unwrap_or_default(), value, parts]).to_string()
}

/// A template whose settings have another version than when it was sealed.
pub(super) const CHANGED: &str = "its settings were changed";

/// What of a template's settings is not its own: their version and the checksum of the file that holds it
/// (`VirtualMachineConfigInfo.vmxConfigChecksum`), and what the host says on which it is registered just now, the memory that this
/// needs to run it among it (`initialOverhead`).
const NOT_ITS_OWN: [&str; 5] = ["changeVersion", "modified", "vmxConfigChecksum", "datastoreUrl", "initialOverhead"];
/// What vCenter lists in any order.
const UNORDERED: [&str; 2] = ["extraConfig", "device"];

/// The SHA-256 of a template's settings as earlier programs sealed them.
pub(super) fn settings(config: &Element) -> String {
    let mut texts: Vec<(&str, String)> = Vec::new();
    for part in config.children().iter().filter(|part| !NOT_ITS_OWN.contains(&part.name())) {
        // An entry without a value is one that was taken away.
        let is_gone = part.name() == "extraConfig" && part.text_of("value").is_none_or(str::is_empty);
        if !is_gone {
            texts.push((part.name(), text_of(part)));
        }
    }
    order(&mut texts);
    let texts: Vec<String> = texts.into_iter().map(|(_, text)| text).collect();
    Sha256::of(texts.concat().as_bytes()).to_string()
}

/// An element, so that no two that differ come to the same.
fn text_of(element: &Element) -> String {
    let mut parts: Vec<(&str, String)> = element.children().iter().map(|part| (part.name(), text_of(part))).collect();
    order(&mut parts);
    let parts: Vec<String> = parts.into_iter().map(|(_, text)| text).collect();
    let (name, kind, value) = (element.name(), element.kind().unwrap_or_default(), element.value());
    serde_json::json!([name, kind, value, parts]).to_string()
}

/// Brings those into one order that have none.
fn order(parts: &mut [(&str, String)]) {
    for unordered in UNORDERED {
        let mut of_it: Vec<String> =
            parts.iter().filter(|(name, _)| *name == unordered).map(|(_, text)| text.clone()).collect();
        of_it.sort();
        let places = parts.iter_mut().filter(|(name, _)| *name == unordered);
        places.zip(of_it).for_each(|((_, text), sorted)| *text = sorted);
    }
}

/// The snapshot of a template.
pub(super) fn snapshot(vm: &vsphere::Vm) -> Option<&MoRef> {
    vm.snapshots.iter().find(|snapshot| snapshot.name == SNAPSHOT).map(|snapshot| &snapshot.reference)
}

/// How the names of an image's templates begin.
pub(super) fn prefix(digest: &str) -> String {
    format!("kaas-image-{}-", digest.get(..SHORT).unwrap_or(digest))
}

/// The files of a note.
#[derive(Default)]
struct Files<'a> {
    ends: Vec<&'a str>,
    /// How long they are together, in bytes.
    size: usize,
    /// When the last of them was changed, as XML Schema writes it.
    changed: &'a str,
}

/// Of the files of notes the newest that are read, by name, and the names of the others, newest first.
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

    /// The same of another deployment, whose notes are read and written here.
    pub(super) fn of(self, deployment: Uuid) -> Self {
        Self { deployment, ..self }
    }

    /// The directory by which an operator says that a VM is gone, because nothing else can prove it.
    pub(super) fn word(&self, vm: Uuid) -> DatastoreDirectory {
        self.directory.below(&format!("gone-{vm}"))
    }

    /// The datastore that the notes are on, which is the journal's, and its name; none where they are another deployment's than this, which
    /// only reads them.
    pub(super) fn datastore_of(&self, deployment: Uuid) -> Option<(&MoRef, &str)> {
        (self.deployment == deployment).then(|| self.directory.datastore())
    }

    /// An import that nothing is done for yet.
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

    /// The same, and how many were passed over: what is done with the templates of these they do not say.
    pub(super) async fn every(&self) -> Result<(Vec<Note>, usize)> {
        self.named("").await
    }

    /// The notes of templates whose names begin so, by name, and how many were passed over. Who may write there decides neither how much
    /// is read nor how much is kept: what is too long is no note, and of too many the oldest are passed over.
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
            // What is sealed says all that was begun.
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

    /// A note; none where it was cut, and so nothing followed from it, or is not this deployment's.
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

    /// Notes what is about to be imported: it is kept when this returns.
    pub(super) async fn begin(&self, note: &Note, permit: &dyn Fence) -> Result<()> {
        let asking = Asking(permit);
        if !self.directory.exists().await? {
            self.directory.make_with_parents(&asking).await?;
        }
        Ok(self.directory.write(&format!("{}{BEGUN}", note.name), &text(note)?, &asking).await?)
    }

    /// Notes that the account was not permitted to make a template of what was imported.
    pub(super) async fn deny(&self, note: &Note, permit: &dyn Fence) -> Result<()> {
        self.begin(&Note { is_denied: true, ..note.clone() }, permit).await
    }

    /// Notes that a template is whole, as it is now. It says the same however often it is written.
    pub(super) async fn seal(&self, note: &Note, seal: TemplateFingerprint, permit: &dyn Fence) -> Result<()> {
        let text = text(&Note { seal: Some(seal), ..note.clone() })?;
        Ok(self.directory.write(&format!("{}{SEALED}", note.name), &text, &Asking(permit)).await?)
    }

    /// Takes a note away of which nothing is left.
    pub(super) async fn forget(&self, note: &Note, permit: &dyn Fence) -> Result<()> {
        let ends: &[&str] = if note.seal.is_some() { &[SEALED, BEGUN] } else { &[BEGUN] };
        for end in ends {
            match self.directory.remove_file(&format!("{}{end}", note.name), &Asking(permit)).await {
                Err(error) if error.outcome() != vsphere::Outcome::NotFound => {
                    let error = Error::from(error);
                    if error.kind == ErrorKind::Fenced {
                        return Err(error);
                    }
                    // The next command forgets it.
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
    fn of_too_many_notes_the_newest_are_read_and_thousands_of_small_ones() {
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
    fn settings_come_to_the_same_in_whatever_order_and_version_and_to_something_else_with_any_change() {
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
            settings(&Element::new("config").with(head).with([url, options]).with(entries).with(of_file))
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
