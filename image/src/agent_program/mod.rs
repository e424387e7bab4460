//! The agent, built by Cargo for the image.

mod sources;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::Workshop;
use crate::cache::{Key, Stage};
use crate::caller;
use crate::process::Tool;

/// The agent, built.
#[derive(Clone, Debug)]
pub struct Agent {
    /// Its program.
    pub program: PathBuf,
    /// What the Rust compiler calls itself.
    pub rust: String,
    /// What the C compiler calls itself, which compiles the cryptography.
    pub cc: String,
}

/// The C compiler, and what would have the build take another one or other flags.
const CC: &str = "cc";
const C_SETTINGS: [&str; 5] = ["CC", "CFLAGS", "AR", "ARFLAGS", "CRATE_CC_NO_DEFAULTS"];
/// The compilers that Cargo would run in rustc's place, and their flags.
const RUST_SETTINGS: [&str; 6] =
    ["RUSTC", "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER", "RUSTC_BOOTSTRAP", "RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS"];

/// Whether a variable of the environment can change the program that is built. Where crates come from and where Cargo
/// keeps things is the user's to say.
fn shapes_program(name: &str) -> bool {
    let of_c = |setting: &str| {
        let target = ["", "_x86_64-unknown-linux-gnu", "_x86_64_unknown_linux_gnu"];
        let for_target = target.iter().any(|target| name.strip_suffix(target) == Some(setting));
        for_target || ["TARGET_", "HOST_"].iter().any(|kind| name.strip_prefix(kind) == Some(setting))
    };
    let of_target = name.starts_with("CARGO_TARGET_")
        && ["_LINKER", "_RUSTFLAGS", "_RUNNER"].iter().any(|setting| name.ends_with(setting));
    let by_start = ["CARGO_PROFILE_", "CARGO_BUILD_", "AWS_LC_SYS_"].iter().any(|start| name.starts_with(start));
    of_target || by_start || RUST_SETTINGS.contains(&name) || C_SETTINGS.iter().copied().any(of_c)
}

/// Builds the agent's program from its workspace, or finds it built from the same sources by the same compilers.
///
/// # Errors
/// When it does not build, or does not run with the image's C library.
pub fn build(workspace: &Path, workshop: &Workshop<'_>) -> Result<Agent> {
    let &Workshop { tools, cache, progress, .. } = workshop;
    let workspace = workspace.canonicalize().with_context(|| format!("finding {}", workspace.display()))?;
    let sources = cache.sources()?;
    sources::lay_out(&workspace, sources.path())?;
    // Asked where Cargo builds: rustup chooses by folders.
    let first_line = |program: &str| -> Result<String> {
        let said = Tool::as_caller(program).current_dir(sources.path()).arg("--version").output(progress)?;
        let said = String::from_utf8_lossy(&said).lines().next().unwrap_or_default().trim().to_owned();
        if said.is_empty() { bail!("{program} --version says nothing") } else { Ok(said) }
    };
    let (rust, cc) = (first_line("rustc")?, first_line(CC)?);
    let mut key = Key::of(Stage::AGENT)
        .text("compiler", &rust)
        .text("C compiler", &cc)
        .file("manifest", &workspace.join("Cargo.toml"))?
        .file("lock", &workspace.join("Cargo.lock"))?
        // It may name a linker, flags or another profile.
        .text("Cargo's configuration", configuration(sources.path(), cargo_home().as_deref())?)
        .key("tools", tools.key());
    for package in sources::packages(&workspace, "agent")? {
        key = key.folder(&package, &workspace.join(&package))?;
    }
    let key = key.finish();
    let place =
        cache.stage(&key, progress, |folder| {
            let program = folder.join("kaas-agent");
            caller::take(&compile(sources.path(), workshop)?, &program).context("keeping the agent's program")?;
            // Of two C libraries the older one's programs run with the newer one, not the other way round.
            tools.run("/kaas-agent").reads_at(&program, "/kaas-agent").tool().arg("--version").run(progress).context(
                "the agent does not run with the image's C library: build on a host whose C library is not newer",
            )
        })?;
    Ok(Agent { program: place.join("kaas-agent"), rust, cc })
}

fn compile(sources: &Path, workshop: &Workshop<'_>) -> Result<PathBuf> {
    let &Workshop { cache, progress, .. } = workshop;
    let home = cargo_home();
    // Paths of this machine would come into the program through the panic messages of its dependencies. The
    // workspace's own are relative to it.
    let flags = home.map(|home| format!("--remap-path-prefix={}=/cargo", home.display())).unwrap_or_default();
    let programs = cache.programs();
    std::fs::create_dir_all(&programs).with_context(|| format!("making {}", programs.display()))?;
    // Earlier versions laid the sources out there. Cargo notes files below its folder by their paths from there, and would
    // take what is left of them for the sources of today, unchanged.
    let former = programs.join("sources");
    if former.symlink_metadata().is_ok() {
        std::fs::remove_dir_all(&former).with_context(|| format!("removing {}", former.display()))?;
    }
    caller::lend(&programs)?;
    let said = settle(Tool::as_caller("cargo").current_dir(sources), flags)
        // A target folder of its own: other flags would make the developer's builds start over.
        .env("CARGO_TARGET_DIR", cache.programs())
        .args(["build", "--locked", "--package", "agent", "--bin", "kaas-agent", "--profile", "appliance"])
        .arg("--message-format=json-render-diagnostics")
        .output(progress)?;
    executable(&said).context("cargo named no program of the agent")
}

/// Cargo's folder of the user who builds.
fn cargo_home() -> Option<PathBuf> {
    std::env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| {
        let home = std::env::var_os("HOME")?;
        Some(PathBuf::from(home).join(".cargo"))
    })
}

/// What is set for Cargo where it builds: the files of the folder `sources`, of those above it and of the user, as Cargo
/// takes them ("Hierarchical structure" of its configuration).
///
/// # Errors
/// When somebody else has written one: it could make Cargo run any program.
fn configuration(sources: &Path, home: Option<&Path>) -> Result<String> {
    let above = sources.ancestors().map(|folder| folder.join(".cargo"));
    let mut all = String::new();
    for folder in above.chain(home.map(Path::to_owned)) {
        let Some(file) =
            ["config", "config.toml"].map(|name| folder.join(name)).into_iter().find(|file| file.is_file())
        else {
            continue;
        };
        let owner = std::fs::metadata(&file).with_context(|| format!("looking at {}", file.display()))?.uid();
        let builder = caller::Caller::of_environment().map_or(nix::unistd::geteuid().as_raw(), |caller| caller.user);
        if owner != 0 && owner != builder {
            bail!(
                "{} is another user's, and Cargo would do what it says: remove it, or build elsewhere",
                file.display()
            );
        }
        all += &std::fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
        all.push('\0');
    }
    Ok(all)
}

/// Leaves of the environment only what does not change the program.
fn settle(cargo: Tool, flags: String) -> Tool {
    cargo.without(shapes_program).env("CC", CC).env("CARGO_ENCODED_RUSTFLAGS", flags)
}

/// The program in Cargo's messages, one JSON object a line.
fn executable(messages: &[u8]) -> Result<PathBuf> {
    for line in messages.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
        let message: serde_json::Value = serde_json::from_slice(line).context("reading cargo's messages")?;
        let named = message["target"]["name"] == "kaas-agent";
        if let (true, Some(path)) = (named, message["executable"].as_str()) {
            return Ok(PathBuf::from(path));
        }
    }
    bail!("none of cargo's messages has an executable")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_set_for_cargo_is_read_and_a_strangers_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (home, sources) = (folder.path().join("home"), folder.path().join("a/sources"));
        let none = configuration(&sources, Some(&home)).unwrap();
        let write = |file: PathBuf, text: &str| {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        };
        write(home.join("config.toml"), "[profile.appliance]\n");
        let own = configuration(&sources, Some(&home)).unwrap();
        assert!(own != none && own.contains("[profile.appliance]"));
        let above = folder.path().join("a/.cargo/config.toml");
        write(above.clone(), "[build]\n");
        assert!(configuration(&sources, Some(&home)).unwrap().contains("[build]"));
        // Only root can make a file somebody else's.
        if nix::unistd::geteuid().is_root() {
            std::os::unix::fs::chown(&above, Some(12345), None).unwrap();
            let refused = configuration(&sources, Some(&home)).unwrap_err().to_string();
            assert!(refused.contains("another user's"), "{refused}");
        }
    }

    #[test]
    fn settings_that_change_the_program_do_not_reach_its_build() {
        let gone = [
            "CARGO_PROFILE_APPLIANCE_OPT_LEVEL",
            "CARGO_BUILD_TARGET",
            "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER",
            "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS",
            "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER",
            "RUSTC",
            "RUSTC_WRAPPER",
            "RUSTC_WORKSPACE_WRAPPER",
            "RUSTFLAGS",
            "AWS_LC_SYS_NO_ASM",
            "CFLAGS",
            "TARGET_CFLAGS",
            "CC_x86_64_unknown_linux_gnu",
        ];
        let kept =
            ["CARGO_HOME", "CARGO_TARGET_DIR", "CARGO_REGISTRIES_MINE_INDEX", "CARGO_HTTP_CAINFO", "CARGO_NET_RETRY"];
        let cargo = gone.iter().chain(&kept).fold(Tool::on_host("env"), |tool, name| tool.env(name, "set"));
        let said = settle(cargo, "--flag".to_owned()).output(&crate::progress::Progress::silent()).unwrap();
        let said = String::from_utf8(said).unwrap();
        let has = |line: &str| said.lines().any(|said| said == line);
        for name in gone {
            assert!(!has(&format!("{name}=set")), "{name}");
        }
        for name in kept {
            assert!(has(&format!("{name}=set")), "{name}");
        }
        assert!(has("CC=cc") && has("CARGO_ENCODED_RUSTFLAGS=--flag"), "{said}");
    }

    #[test]
    fn the_program_is_found_in_cargos_messages() {
        let messages = br#"{"reason":"compiler-artifact","target":{"name":"agent"},"executable":null}
{"reason":"compiler-artifact","target":{"name":"kaas-agent"},"executable":"/t/appliance/kaas-agent"}
{"reason":"build-finished","success":true}
"#;
        assert_eq!(executable(messages).unwrap(), PathBuf::from("/t/appliance/kaas-agent"));
        assert!(executable(b"{}\n").is_err());
    }
}
