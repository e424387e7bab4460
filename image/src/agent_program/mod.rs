//! The agent, built by Cargo for the image.

mod settings;
mod sources;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::BuildContext;
use crate::cache::{Key, Stage};
use crate::caller;
use crate::process::Tool;
use crate::spec::Files;

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

/// Builds the agent's program from its sources, or finds it built from the same ones by the same compilers. Those are
/// what the spec's own workspace asks for, also for sources of an earlier commit: what crates it shares with today's is
/// compiled once.
///
/// # Errors
/// When it does not build, or does not run with the image's C library.
pub fn build(files: &Files, context: &BuildContext<'_>) -> Result<Agent> {
    let &BuildContext { tools, cache, progress, .. } = context;
    let find = |place: &Path| place.canonicalize().with_context(|| format!("finding {}", place.display()));
    let (workspace, agent) = (find(&files.workspace)?, find(&files.agent)?);
    let first_line = |program: &str| -> Result<String> {
        let asked = settings::start(Tool::as_caller(program), &workspace)?.arg("--version");
        let said =
            String::from_utf8_lossy(&asked.output(progress)?).lines().next().unwrap_or_default().trim().to_owned();
        if said.is_empty() { bail!("{program} --version says nothing") } else { Ok(said) }
    };
    let (rust, cc) = (first_line("rustc")?, first_line(CC)?);
    let settings = settings::read(Path::new(settings::START), settings::home().as_deref())?;
    let key = key(&agent, &Inputs { rust: &rust, cc: &cc, settings: &settings, tools: tools.key() })?;
    let place =
        cache.stage(&key.of_copy(), progress, |directory| {
            let program = directory.join("kaas-agent");
            // Held until the program is taken: Cargo puts that of other sources in the same place.
            let sources = cache.sources(progress)?;
            lay_out(&key, &agent, sources.path())?;
            let compiled = compile(&workspace, sources.path(), context)
                .with_context(|| format!("compiling the agent of {}", agent.display()))?;
            caller::take(&compiled, &program).context("keeping the agent's program")?;
            // Of two C libraries the older one's programs run with the newer one, not the other way round.
            tools.run("/kaas-agent").reads_at(&program, "/kaas-agent").tool().arg("--version").run(progress).context(
                "the agent does not run with the image's C library: build on a host whose C library is not newer",
            )
        })?;
    Ok(Agent { program: place.join("kaas-agent"), rust, cc })
}

/// Lays out the sources that the key is of. It may have waited for another build, minutes in which they were edited.
fn lay_out(key: &Key, workspace: &Path, place: &Path) -> Result<()> {
    sources::lay_out(workspace, place)?;
    key.check().context("laying out the agent's sources")
}

/// What the program depends on besides its sources.
struct Inputs<'i> {
    rust: &'i str,
    cc: &'i str,
    settings: &'i str,
    tools: &'i Key,
}

fn key(workspace: &Path, inputs: &Inputs<'_>) -> Result<Key> {
    let mut key = Key::of(Stage::AGENT)
        .text("compiler", inputs.rust)
        .text("C compiler", inputs.cc)
        .file("manifest", &workspace.join("Cargo.toml"))?
        .file("lock", &workspace.join("Cargo.lock"))?
        // It may name a linker, flags or another profile.
        .text("Cargo's configuration", inputs.settings)
        .key("tools", inputs.tools);
    for package in sources::packages(workspace, "agent")? {
        key = key.directory(&package, &workspace.join(&package))?;
    }
    Ok(key.finish())
}

fn compile(workspace: &Path, sources: &Path, context: &BuildContext<'_>) -> Result<PathBuf> {
    let &BuildContext { cache, progress, .. } = context;
    let home = settings::home();
    // Paths of this machine would come into the program through the panic messages of its dependencies. The
    // workspace's own are relative to it.
    let flags = home.map(|home| format!("--remap-path-prefix={}=/cargo", home.display())).unwrap_or_default();
    let programs = cache.programs();
    std::fs::create_dir_all(&programs).with_context(|| format!("making {}", programs.display()))?;
    // Earlier versions laid the sources out there. Cargo notes files below its directory by their paths from there, and
    // would take what is left of them for the sources of today, unchanged.
    let former = programs.join("sources");
    if former.symlink_metadata().is_ok() {
        std::fs::remove_dir_all(&former).with_context(|| format!("removing {}", former.display()))?;
    }
    caller::lend(&programs)?;
    let cargo = settings::start(Tool::as_caller("cargo"), workspace)?;
    let said = settle(cargo, flags)
        // A target directory of its own: other flags would make the developer's builds start over.
        .env("CARGO_TARGET_DIR", cache.programs())
        .args(arguments(sources))
        .output(progress)?;
    executable(&said).context("cargo named no program of the agent")
}

/// What has Cargo build the program from the workspace in the directory `sources`.
fn arguments(sources: &Path) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = ["build", "--locked", "--manifest-path"].map(OsString::from).to_vec();
    arguments.push(sources.join("Cargo.toml").into());
    let what = ["--package", "agent", "--bin", "kaas-agent", "--profile", "appliance"];
    arguments.extend(what.map(OsString::from));
    arguments.push("--message-format=json-render-diagnostics".into());
    arguments
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

    fn write(file: &Path, text: &str) {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }

    /// A workspace with nothing but an agent that does nothing.
    fn workspace(directory: &Path) {
        let manifest = "[workspace]\nresolver = \"3\"\nmembers = [\"agent\"]\n[workspace.dependencies]\n\
                        agent = { path = \"agent\" }\n[profile.appliance]\ninherits = \"dev\"\n";
        let agent = "[package]\nname = \"agent\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\
                     [[bin]]\nname = \"kaas-agent\"\npath = \"main.rs\"\n";
        write(&directory.join("Cargo.toml"), manifest);
        write(&directory.join("Cargo.lock"), "version = 4\n\n[[package]]\nname = \"agent\"\nversion = \"0.1.0\"\n");
        write(&directory.join("agent/Cargo.toml"), agent);
        write(&directory.join("agent/main.rs"), "fn main() {}\n");
    }

    #[test]
    fn settings_above_the_sources_are_not_heeded() {
        let directory = tempfile::tempdir().unwrap();
        let sources = directory.path().join("cache/sources");
        workspace(&sources);
        write(&directory.path().join(".cargo/config.toml"), "[build]\nrustc-wrapper = \"/of/a/stranger\"\n");
        let cargo = settings::start(Tool::on_host("cargo").current_dir(&sources), &sources).unwrap();
        let cargo = cargo.env("CARGO_TARGET_DIR", directory.path().join("target")).args(arguments(&sources));
        let said = cargo.output(&crate::progress::Progress::silent()).unwrap();
        assert!(executable(&said).unwrap().starts_with(directory.path().join("target")));
    }

    #[test]
    fn the_compiler_is_the_one_that_the_workspace_asks_for_unless_the_user_asks_for_another() {
        let directory = tempfile::tempdir().unwrap();
        write(&directory.path().join("rust-toolchain.toml"), "[toolchain]\nchannel = \"1.2.3\"\n");
        let env = settings::start(Tool::on_host("env"), directory.path()).unwrap();
        let said = String::from_utf8(env.output(&crate::progress::Progress::silent()).unwrap()).unwrap();
        let expected = std::env::var("RUSTUP_TOOLCHAIN").unwrap_or("1.2.3".to_owned());
        assert!(said.lines().any(|line| line == format!("RUSTUP_TOOLCHAIN={expected}")), "{said}");
    }

    #[test]
    fn another_compiler_or_setting_or_source_makes_another_program() {
        let directory = tempfile::tempdir().unwrap();
        workspace(directory.path());
        let tools = |value: &str| Key::of(Stage::TOOLS).text("tools", value).finish();
        let (some, other) = (tools("some"), tools("other"));
        let inputs = || Inputs { rust: "rustc 1", cc: "cc 1", settings: "", tools: &some };
        let key = |inputs: Inputs<'_>| key(directory.path(), &inputs).unwrap();
        let first = key(inputs());
        assert_eq!(key(inputs()), first);
        assert_ne!(key(Inputs { rust: "rustc 2", ..inputs() }), first);
        assert_ne!(key(Inputs { cc: "cc 2", ..inputs() }), first);
        assert_ne!(key(Inputs { settings: "[build]", ..inputs() }), first);
        assert_ne!(key(Inputs { tools: &other, ..inputs() }), first);
        write(&directory.path().join("agent/main.rs"), "fn main() { }\n");
        assert_ne!(key(inputs()), first);
    }

    #[test]
    fn a_program_is_compiled_from_the_sources_of_its_key_alone() {
        let directory = tempfile::tempdir().unwrap();
        let (clone, place) = (directory.path().join("clone"), directory.path().join("place"));
        workspace(&clone);
        let tools = Key::of(Stage::TOOLS).finish();
        let inputs = Inputs { rust: "rustc 1", cc: "cc 1", settings: "", tools: &tools };
        let made = key(&clone, &inputs).unwrap();
        lay_out(&made, &clone, &place).unwrap();
        write(&clone.join("agent/main.rs"), "fn main() { }\n");
        let error = format!("{:#}", lay_out(&made, &clone, &place).unwrap_err());
        assert!(error.ends_with("agent has changed while it was built from: build again"), "{error}");
        lay_out(&key(&clone, &inputs).unwrap(), &clone, &place).unwrap();
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
