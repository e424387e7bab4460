//! Descriptors of other vendors: all those of govmomi's module, which tests/vcenter requires. Each is read, or refused
//! for a reason of a known class. `make vcenter` provides them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use ova::ovf::Envelope;

/// Names the directory `ovf/fixtures` of the module.
const DESCRIPTORS: &str = "KAAS_TEST_DESCRIPTORS";

/// All descriptors below a directory.
fn below(directory: &Path, found: &mut Vec<PathBuf>) {
    let advice = "run `make vcenter`: Go may have removed its modules since";
    let entries = fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}; {advice}", directory.display()));
    for entry in entries.map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            below(&path, found);
        } else if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("ovf")) {
            found.push(path);
        }
    }
}

/// The reasons of refusals: the class, a part of each message, and their number. docs/internals/verification.md explains the
/// reasons.
const REFUSED: [(&str, &[&str], usize); 9] = [
    ("a collection of virtual systems", &["has a collection of virtual systems"], 164),
    ("OVF 0.9", &["one of the draft OVF 0.9"], 149),
    ("OVF 2", &["one of OVF 2"], 1),
    ("no OVF envelope", &["it is not an OVF 1 Envelope"], 5),
    ("no XML", &["is not XML that can be read"], 15),
    ("without what DSP0243 demands", &[" has no "], 23),
    ("no number", &["is not a number that fits here"], 5),
    ("a file that is missing or named twice", &["there is no file", "there are two files"], 4),
    ("a difference disk", &["(ovf:parentRef), which cannot be read"], 2),
];

/// The class of a refusal by its place in [`REFUSED`].
fn class(reason: &str) -> Option<usize> {
    REFUSED.iter().position(|(_, messages, _)| messages.iter().any(|message| reason.contains(message)))
}

#[test]
fn govmomis_descriptors_are_read_or_refused() {
    let directory = std::env::var_os(DESCRIPTORS).unwrap_or_else(|| {
        panic!("{DESCRIPTORS} names no directory: run `make vcenter`, then set it to build/descriptors")
    });
    let directory = Path::new(&directory);
    let mut paths = Vec::new();
    below(directory, &mut paths);
    assert_eq!(paths.len(), 959, "of another version of govmomi? Then judge the refusals again");
    let mut read = BTreeMap::new();
    let mut refused = [0; REFUSED.len()];
    for path in &paths {
        let text = String::from_utf8(fs::read(path).unwrap()).unwrap();
        match Envelope::parse(&text) {
            Ok(envelope) => drop(read.insert(path.strip_prefix(directory).unwrap().to_str().unwrap(), envelope)),
            Err(error) => {
                let reason = error.to_string();
                let class = class(&reason).unwrap_or_else(|| panic!("{}: {reason}", path.display()));
                refused[class] += 1;
            }
        }
    }
    assert_eq!(refused, REFUSED.map(|(.., count)| count), "{:?}", REFUSED.map(|(class, ..)| class));
    assert_eq!(read.len(), 591);

    // Values of some of the files.
    let by_property = &read["disk-capacity-property.ovf"].disks[0];
    assert_eq!((by_property.capacity, by_property.capacity_property.as_deref()), (Some(5 << 30), Some("disksize")));
    for bound in ["normalexplicit", "minonly", "maxonly", "valid"] {
        let path = format!("external/OVFToolTemplates/OVF/xmltestfiles/VirtualHardware_1_0/Pos/{bound}_bound.ovf");
        let hardware = &read[path.as_str()].variants[0];
        assert_eq!((hardware.cpus, hardware.memory_mib), (None, Some(512)), "{bound}");
    }
    let appliance = &read["vmware/VMware-vCenter-Server-Appliance-9.1.0.0.25262036_OVF10.ovf"];
    assert_eq!(appliance.products.len(), 3);
}
