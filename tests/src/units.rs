//! Holds the units of `systemd/` to what the documentation says of all of them.

use std::fs;

use fleet::hypervisor::SHUTTING_DOWN;

use crate::places::workspace;

/// The lines of a section that give a setting its value.
fn values<'a>(unit: &'a str, section: &str, setting: &str) -> Vec<&'a str> {
    let lines = unit.lines().skip_while(|line| line.trim() != format!("[{section}]")).skip(1);
    let own = lines.take_while(|line| !line.starts_with('['));
    own.filter_map(|line| line.split_once('=')).filter(|(name, _)| *name == setting).map(|(_, value)| value).collect()
}

#[test]
fn no_service_of_ours_writes_core_dumps() {
    let directory = workspace().join("systemd/system");
    let mut services = 0;
    for entry in fs::read_dir(directory).expect("the units") {
        let path = entry.expect("the units").path();
        if path.extension().is_some_and(|extension| extension == "service") {
            services += 1;
            let unit = fs::read_to_string(&path).expect("a unit");
            assert_eq!(values(&unit, "Service", "LimitCORE"), ["0"], "{}", path.display());
        }
    }
    assert!(services > 10, "only {services} services");
}

/// After five starts within ten seconds systemd gives a unit up, unless a setting says otherwise: Debian's units as well.
#[test]
fn no_unit_has_a_start_limit() {
    let directory = workspace().join("systemd");
    let manager = fs::read_to_string(directory.join("system.conf.d/kaas.conf")).expect("the settings");
    assert_eq!(values(&manager, "Manager", "DefaultStartLimitIntervalSec"), ["0"]);
    let mut units = 0;
    for entry in walkdir::WalkDir::new(directory.join("system")) {
        let entry = entry.expect("the units");
        if entry.file_type().is_file() {
            let unit = fs::read_to_string(entry.path()).expect("a unit");
            assert!(!unit.contains("StartLimit"), "{}", entry.path().display());
            units += 1;
        }
    }
    assert!(units > 20, "only {units} units");
}

#[test]
fn guest_shuts_down_later_than_its_pods() {
    let logind = fs::read_to_string(workspace().join("systemd/logind.conf.d/kaas.conf")).expect("the settings");
    let delay: u64 = values(&logind, "Login", "InhibitDelayMaxSec")[0].parse().expect("seconds");
    assert!(SHUTTING_DOWN.as_secs() >= delay + 30, "{SHUTTING_DOWN:?}");
}

#[test]
fn a_setting_counts_in_its_section_alone() {
    let unit =
        "[Unit]\nLimitCORE=0\n[Service]\n# LimitCORE=1\nLimitNOFILE=0\nLimitCORE=infinity\n[Install]\nLimitCORE=2\n";
    assert_eq!(values(unit, "Service", "LimitCORE"), ["infinity"]);
    assert_eq!(values(unit, "Unit", "LimitCORE"), ["0"]);
}
