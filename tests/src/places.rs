//! Paths of the project, of its OVA and of its commands.

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
    program("kaas")
}

/// The command of labs and of the build host, in the directory of the operator's command.
pub fn kaas_dev() -> String {
    program("kaas-dev")
}

fn program(name: &str) -> String {
    let found = match std::env::var_os("KAAS_COMMAND") {
        Some(named) => PathBuf::from(named).with_file_name(name),
        None => {
            let own = std::env::current_exe().expect("the scenario's own program");
            let found = own.ancestors().map(|directory| directory.join(name)).find(|path| path.is_file());
            found.unwrap_or_else(|| own.with_file_name(name))
        }
    };
    assert!(found.is_file(), "there is no {}: `make ova` or `cargo build` builds it", found.display());
    found.display().to_string()
}
