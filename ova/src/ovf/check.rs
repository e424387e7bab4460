//! Checks a descriptor of the product before it is written, and finds all problems at once.

use std::collections::BTreeSet;
use std::fmt;

use super::model::{Descriptor, Hardware, Sizing, Transport};
use super::property::{Property, PropertyType, Qualifier};
use super::xml::ForbiddenCharacter;

/// A problem of a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The subject, such as `property "vip"`.
    pub subject: String,
    /// The problem, as a clause about the subject.
    pub reason: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.subject, self.reason)
    }
}

/// A descriptor that cannot be written, with all problems.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the OVF descriptor is not valid: {}", list(problems))]
pub struct InvalidDescriptor {
    /// All problems; never empty.
    pub problems: Vec<Problem>,
}

impl From<ForbiddenCharacter> for InvalidDescriptor {
    fn from(forbidden: ForbiddenCharacter) -> InvalidDescriptor {
        let reason = forbidden.to_string();
        InvalidDescriptor { problems: vec![Problem { subject: "a text".into(), reason }] }
    }
}

/// Problems as one sentence.
pub(super) fn list(problems: &[Problem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// The oldest hardware version with all used features, UEFI secure boot and large UEFI disks included (ESXi 6.7
/// Update 2).
const OLDEST_HARDWARE: u32 = 15;
/// Units of a paravirtual SCSI controller that every hardware version has.
const SCSI_UNITS: u32 = 16;
/// The unit of the controller itself.
const SCSI_CONTROLLER_UNIT: u32 = 7;
/// The most network adapters of a VM.
const MOST_ADAPTERS: usize = 10;

/// Collects problems.
#[derive(Default)]
pub(super) struct Findings(Vec<Problem>);

impl Findings {
    pub(super) fn add(&mut self, subject: impl Into<String>, reason: impl Into<String>) {
        self.0.push(Problem { subject: subject.into(), reason: reason.into() });
    }

    fn add_if(&mut self, wrong: bool, subject: &str, reason: impl Into<String>) {
        if wrong {
            self.add(subject, reason);
        }
    }

    pub(super) fn into_vec(self) -> Vec<Problem> {
        self.0
    }

    /// Adds a problem for each name that occurs twice.
    fn unique<'a>(&mut self, what: &str, names: impl Iterator<Item = &'a str>) {
        let mut seen = BTreeSet::new();
        for name in names {
            self.add_if(!seen.insert(name), &format!("{what} {name:?}"), "occurs twice");
        }
    }
}

impl Descriptor {
    pub(super) fn check(&self) -> Result<(), InvalidDescriptor> {
        let mut findings = Findings::default();
        findings.add_if(!is_identifier(&self.name), &format!("name {:?}", self.name), NOT_AN_IDENTIFIER);
        check_disks(self, &mut findings);
        check_sizing(&self.sizing, &mut findings);
        check_hardware(self, &mut findings);
        check_product(self, &mut findings);
        findings.unique("network", self.networks.iter().map(|network| network.name.as_str()));
        match findings.into_vec() {
            problems if problems.is_empty() => Ok(()),
            problems => Err(InvalidDescriptor { problems }),
        }
    }
}

const NOT_AN_IDENTIFIER: &str = "must be made of ASCII letters, digits, \".\", \"_\" and \"-\" and begin with a letter";

fn is_identifier(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
}

fn check_disks(descriptor: &Descriptor, findings: &mut Findings) {
    for disk in &descriptor.disks {
        let subject = format!("disk {:?}", disk.id);
        findings.add_if(!is_identifier(&disk.id), &subject, NOT_AN_IDENTIFIER);
        findings.add_if(disk.capacity == 0, &subject, "has no capacity");
        // vSphere makes disks of whole KiB.
        findings.add_if(
            !disk.capacity.is_multiple_of(1024),
            &subject,
            "has a capacity that is not a multiple of 1 KiB",
        );
        if let Some(file) = &disk.file {
            if let Err(error) = crate::name::check(&file.name) {
                findings.add(&subject, format!("has no good file: {error}"));
            }
            findings.add_if(file.size.is_none(), &subject, "has a file without a size, which importers compare");
            let empty = file.size == Some(0);
            findings.add_if(empty, &subject, "has an empty file; leave the file out for an empty disk");
            let too_much = file.populated.is_some_and(|populated| populated > disk.capacity);
            findings.add_if(too_much, &subject, "has more data than capacity");
        }
        let attached = descriptor.hardware.disks.iter().any(|attached| attached.disk == disk.id);
        findings.add_if(!attached, &subject, "hangs on no controller; attach it or leave it out");
    }
    findings.unique("disk", descriptor.disks.iter().map(|disk| disk.id.as_str()));
    let files = descriptor.disks.iter().filter_map(|disk| disk.file.as_ref());
    findings.unique("file", files.map(|file| file.name.as_str()));
}

fn check_sizing(sizing: &Sizing, findings: &mut Findings) {
    let (sizes, profiles): (Vec<_>, &[_]) = match sizing {
        Sizing::Fixed(size) => (vec![("the size".to_owned(), size)], &[]),
        Sizing::Profiles(profiles) => {
            let defaults = profiles.iter().filter(|profile| profile.default).count();
            findings.add_if(defaults != 1, "sizing", format!("has {defaults} default profiles; mark exactly one"));
            (profiles.iter().map(|profile| (format!("profile {:?}", profile.id), &profile.size)).collect(), profiles)
        }
    };
    for (subject, size) in sizes {
        findings.add_if(size.cpus == 0, &subject, "has no processors");
        findings.add_if(size.memory_mib == 0, &subject, "has no memory");
        findings.add_if(!size.memory_mib.is_multiple_of(4), &subject, "has memory that is not a multiple of 4 MiB");
    }
    for profile in profiles {
        findings.add_if(!is_identifier(&profile.id), &format!("profile {:?}", profile.id), NOT_AN_IDENTIFIER);
    }
    findings.unique("profile", profiles.iter().map(|profile| profile.id.as_str()));
}

fn check_hardware(descriptor: &Descriptor, findings: &mut Findings) {
    let hardware = &descriptor.hardware;
    let version = format!("hardware version {}", hardware.version);
    findings.add_if(
        hardware.version < OLDEST_HARDWARE,
        &version,
        format!("is too old; use {OLDEST_HARDWARE} or later"),
    );
    let iso = hardware.transports.contains(&Transport::Iso);
    findings.add_if(iso && hardware.cd_rom.is_none(), "transport iso", "needs a CD-ROM drive; add one");
    let configurable = descriptor.product.properties().next().is_some();
    findings.add_if(
        configurable && hardware.transports.is_empty(),
        "the product",
        "has properties but no transport that brings them to the guest; add one",
    );
    for adapter in &hardware.adapters {
        let known = descriptor.networks.iter().any(|network| network.name == adapter.network);
        findings.add_if(!known, &format!("network {:?}", adapter.network), "has an adapter, but is not listed");
    }
    let adapters = hardware.adapters.len();
    findings.add_if(
        adapters > MOST_ADAPTERS,
        "hardware",
        format!("has {adapters} adapters; {MOST_ADAPTERS} are allowed"),
    );
    check_attachments(descriptor, hardware, findings);
    findings.unique("extra config", hardware.extra_config.iter().map(|(key, _)| key.as_str()));
}

fn check_attachments(descriptor: &Descriptor, hardware: &Hardware, findings: &mut Findings) {
    let profiles: Vec<_> = descriptor.sizing.profiles().iter().map(|profile| profile.id.as_str()).collect();
    for (number, attached) in hardware.disks.iter().enumerate() {
        let subject = format!("disk {:?}", attached.disk);
        let known = descriptor.disks.iter().any(|disk| disk.id == attached.disk);
        findings.add_if(!known, &subject, "is attached, but not described");
        let unit_ok = attached.unit < SCSI_UNITS && attached.unit != SCSI_CONTROLLER_UNIT;
        findings.add_if(!unit_ok, &subject, format!("is at unit {}; use 0 to 15, but not 7", attached.unit));
        for profile in &attached.profiles {
            let known = profiles.contains(&profile.as_str());
            findings.add_if(!known, &subject, format!("is for profile {profile:?}, which does not exist"));
        }
        let meets = |other: &&super::model::HardDisk| {
            other.unit == attached.unit
                && (other.profiles.is_empty()
                    || attached.profiles.is_empty()
                    || other.profiles.iter().any(|profile| attached.profiles.contains(profile)))
        };
        if let Some(other) = hardware.disks[..number].iter().find(meets) {
            findings.add(subject, format!("has the same unit as disk {:?}", other.disk));
        }
    }
}

fn check_product(descriptor: &Descriptor, findings: &mut Findings) {
    let product = &descriptor.product;
    for (what, text) in [("name", &product.name), ("vendor", &product.vendor), ("version", &product.version)] {
        findings.add_if(text.is_empty(), "the product", format!("has no {what}"));
    }
    for (what, text) in [("class", &product.class), ("instance", &product.instance)] {
        let empty = text.as_ref().is_some_and(String::is_empty);
        findings.add_if(empty, "the product", format!("has an empty {what}, which changes all keys; leave it out"));
    }
    for (number, group) in product.groups.iter().enumerate() {
        let unnamed = number > 0 && group.category.is_none();
        findings.add_if(unnamed, &format!("property group {}", number + 1), "has no category; only the first may");
    }
    for property in product.properties() {
        check_property(property, findings);
    }
    findings.unique("property", product.properties().map(|property| property.key.as_str()));
}

fn check_property(property: &Property, findings: &mut Findings) {
    let subject = format!("property {:?}", property.key);
    let key = !property.key.is_empty() && !property.key.contains(|c: char| ".:".contains(c) || c.is_whitespace());
    findings.add_if(!key, &subject, "has a key that is empty or has a period, colon or space (DSP0243 §9.5.1)");
    findings.add_if(property.label.is_empty() && property.user_configurable, &subject, "has no label");
    let string = property.kind == PropertyType::String;
    findings.add_if(property.password && !string, &subject, "is a password, but not a string");
    if let PropertyType::Other(kind) = &property.kind {
        findings.add(&subject, format!("has the type {kind:?}, which OVF does not define"));
    }
    for qualifier in &property.qualifiers {
        let fits = match qualifier {
            Qualifier::MinLen(_) | Qualifier::MaxLen(_) | Qualifier::Ip => string,
            Qualifier::MinValue(_) | Qualifier::MaxValue(_) => {
                matches!(
                    property.kind,
                    PropertyType::Unsigned { .. } | PropertyType::Signed { .. } | PropertyType::Real { .. }
                )
            }
            Qualifier::ValueMap(values) => !values.is_empty() && property.kind != PropertyType::Boolean,
        };
        findings.add_if(!fits, &subject, format!("has the qualifier {qualifier}, which does not go with its type"));
        let zero = *qualifier == Qualifier::MinLen(0);
        findings.add_if(zero, &subject, "has the qualifier MinLen(0), which clients misread; leave it out");
    }
    match &property.default {
        // An empty default means "nothing yet": the form then asks for a suitable value.
        Some(default) if !default.is_empty() || !property.user_configurable => {
            if let Err(unsuitable) = property.admit(default) {
                findings.add(subject, format!("has a default that does not suit it: it {unsuitable}"));
            }
        }
        Some(_) => {}
        None => findings.add_if(!property.user_configurable, &subject, "is a constant without a value"),
    }
}
