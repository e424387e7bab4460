//! Cargo's settings. Cargo reads the settings of its working directory and of all directories above, of any owner, and
//! runs programs that they name. It therefore starts in the root directory: only root's and the user's own settings
//! remain. Their meaning does not matter here.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::sources;
use crate::caller;
use crate::process::Tool;

/// Working directory of Cargo and the compilers.
pub const START: &str = "/";
/// rustup reads this variable before the file in the working directory.
const TOOLCHAIN: &str = "RUSTUP_TOOLCHAIN";

/// Makes a program start in the root directory, with the compiler version of the workspace, unless the user has set
/// another.
pub fn start(program: Tool, workspace: &Path) -> Result<Tool> {
    let program = program.current_dir(START);
    let wanted = if std::env::var_os(TOOLCHAIN).is_some() { None } else { sources::toolchain(workspace)? };
    Ok(match wanted {
        Some(version) => program.env(TOOLCHAIN, version),
        None => program,
    })
}

/// Cargo's home directory of the user who builds.
pub fn home() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("CARGO_HOME").or_else(|| Some(set("HOME")?.join(".cargo")))
}

/// The text of all settings that Cargo reads in the directory `start`, above it, and in the user's directory `home`.
/// Includes included files. Source: Cargo's book, "Hierarchical structure" of its configuration.
///
/// # Errors
/// When another user may have written one, because settings can run any program. When one cannot be read or parsed.
pub fn read(start: &Path, home: Option<&Path>) -> Result<String> {
    let mut settings = Settings::default();
    let above = start.ancestors().map(|directory| directory.join(".cargo"));
    for directory in above.chain(home.map(Path::to_owned)) {
        let files = ["config", "config.toml"].map(|name| directory.join(name));
        if let Some(file) = files.iter().find(|file| file.is_file()) {
            settings.add(file)?;
        }
    }
    Ok(settings.text)
}

#[derive(Default)]
struct Settings {
    text: String,
    read: BTreeSet<PathBuf>,
}

impl Settings {
    fn add(&mut self, file: &Path) -> Result<()> {
        let reading = || format!("reading {}", file.display());
        if !self.read.insert(file.canonicalize().with_context(reading)?) {
            return Ok(());
        }
        judge(file)?;
        let text = std::fs::read_to_string(file).with_context(reading)?;
        let included = includes(&text).with_context(|| format!("understanding {}", file.display()))?;
        self.text += &text;
        self.text.push('\0');
        let directory = file.parent().unwrap_or(Path::new(START));
        for Include { path, optional } in included {
            let file = directory.join(path);
            if !optional || file.exists() {
                self.add(&file)?;
            }
        }
        Ok(())
    }
}

fn judge(file: &Path) -> Result<()> {
    let metadata = std::fs::metadata(file).with_context(|| format!("looking at {}", file.display()))?;
    let builder = caller::Caller::of_environment().map_or(nix::unistd::geteuid().as_raw(), |caller| caller.user);
    let whose = if metadata.uid() != 0 && metadata.uid() != builder {
        "is another user's"
    } else if metadata.mode() & 0o002 != 0 {
        "can be written by everybody"
    } else {
        return Ok(());
    };
    bail!("{} {whose}, and Cargo would do what it says: remove it, or build as its owner", file.display())
}

/// An included file, with its path relative to the including file's directory.
struct Include {
    path: String,
    optional: bool,
}

/// The files that a text includes: `include` is a list of paths, or of tables with `path` and `optional` (Cargo's
/// book, "Including extra configuration files").
fn includes(text: &str) -> Result<Vec<Include>> {
    let table: toml::Table = text.parse()?;
    let Some(list) = table.get("include") else { return Ok(Vec::new()) };
    let list = list.as_array().context("its `include` is no list")?;
    let include = |entry: &toml::Value| {
        let path = entry.as_str().or_else(|| entry.get("path")?.as_str())?.to_owned();
        Some(Include { path, optional: entry.get("optional").and_then(toml::Value::as_bool).unwrap_or(false) })
    };
    list.iter().map(|entry| include(entry).context("its `include` has something that is no path")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn write(file: &Path, text: &str) {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }

    #[test]
    fn all_of_cargos_settings_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let (home, start) = (directory.path().join("home"), directory.path().join("a/start"));
        let settings = || read(&start, Some(&home)).unwrap();
        let none = settings();
        write(&home.join("config.toml"), "[profile.appliance]\n");
        let own = settings();
        assert!(own != none && own.contains("[profile.appliance]"));
        write(&directory.path().join("a/.cargo/config.toml"), "[build]\n");
        assert!(settings().contains("[build]"));
    }

    #[test]
    fn included_settings_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let home = directory.path();
        let settings = |text: &str| {
            write(&home.join("config.toml"), text);
            read(Path::new(START), Some(home))
        };
        write(&home.join("more/a.toml"), "include = [{ path = \"b.toml\" }]\n");
        // Cargo itself refuses a circle.
        write(&home.join("more/b.toml"), "include = [\"../config.toml\"]\n[net]\n");
        assert!(settings("include = [\"more/a.toml\"]\n").unwrap().contains("[net]"));
        assert!(settings("include = [\"absent.toml\"]\n").is_err());
        settings("include = [{ path = \"absent.toml\", optional = true }]\n").unwrap();
        for wrong in ["include = \"more/a.toml\"\n", "include = [3]\n", "include\n"] {
            let error = settings(wrong).unwrap_err().to_string();
            assert!(error.starts_with("understanding ") && error.ends_with("config.toml"), "{error}");
        }
    }

    #[test]
    fn settings_that_others_can_write_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let (home, included) = (directory.path(), directory.path().join("more.toml"));
        write(&home.join("config.toml"), "include = [\"more.toml\"]\n");
        write(&included, "[net]\n");
        let refused = || read(Path::new(START), Some(home)).unwrap_err().to_string();
        read(Path::new(START), Some(home)).unwrap();
        fs::set_permissions(&included, fs::Permissions::from_mode(0o666)).unwrap();
        assert!(refused().contains("more.toml can be written by everybody"), "{}", refused());
        fs::set_permissions(&included, fs::Permissions::from_mode(0o644)).unwrap();
        // Only root can change a file's owner.
        if nix::unistd::geteuid().is_root() {
            std::os::unix::fs::chown(&included, Some(12345), None).unwrap();
            assert!(refused().contains("more.toml is another user's"), "{}", refused());
        }
    }
}
