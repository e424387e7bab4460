//! Paths of the project, of its OVA and of its command.

use std::path::{Path, PathBuf};

pub(crate) fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The OVA under test, or the directory with it.
pub fn named_ova() -> PathBuf {
    let named = std::env::var_os("KAAS_OVA").map_or_else(|| PathBuf::from("build"), PathBuf::from);
    // Cargo runs tests in their package's directory.
    workspace().join(named)
}

/// The operator's command. `KAAS_COMMAND` names it, as `make` does: another clone may replace the one that Cargo has
/// built.
pub fn kaas() -> String {
    if let Ok(named) = std::env::var("KAAS_COMMAND") {
        assert!(Path::new(&named).is_file(), "`make ova` builds kaas; there is no {named}");
        return named;
    }
    let own = std::env::current_exe().expect("the scenario's own program");
    let found = own.ancestors().map(|directory| directory.join("kaas")).find(|path| path.is_file());
    let found = found.unwrap_or_else(|| panic!("`cargo build -p kaas` builds kaas; none is above {}", own.display()));
    found.display().to_string()
}
