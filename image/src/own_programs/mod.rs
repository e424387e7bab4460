//! Our own programs, built by Cargo for images: the agent, and programs that run in a cluster.

mod settings;
mod sources;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::BuildContext;
use crate::cache::{Key, Stage};
use crate::caller;
use crate::process::Tool;
use crate::spec::Files;

pub use sources::{has, name};

/// The package of the agent, which is in all images.
const AGENT: &str = "agent";

#[derive(Clone, Debug)]
pub struct OwnPrograms {
    place: PathBuf,
    /// The version line of the Rust compiler.
    pub rust: String,
    /// The version line of the C compiler, which compiles the cryptography.
    pub cc: String,
}

impl OwnPrograms {
    /// The directory of all programs.
    pub fn directory(&self) -> &Path {
        &self.place
    }

    pub fn agent(&self) -> PathBuf {
        self.program(AGENT)
    }

    /// The program of a package. [`has`] tells whether the sources have it.
    pub fn program(&self, package: &str) -> PathBuf {
        self.place.join(name(package))
    }

    /// The objects that an API server needs before the program of a package works, as a JSON list. The program prints
    /// it.
    pub fn definitions(&self, package: &str) -> PathBuf {
        self.place.join(format!("{package}.json"))
    }
}

/// The C compiler, and variables that select another one or other flags.
const CC: &str = "cc";
const C_SETTINGS: [&str; 5] = ["CC", "CFLAGS", "AR", "ARFLAGS", "CRATE_CC_NO_DEFAULTS"];
/// Variables that replace rustc or set its flags.
const RUST_SETTINGS: [&str; 6] =
    ["RUSTC", "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER", "RUSTC_BOOTSTRAP", "RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS"];

/// Whether an environment variable can change a built program. The source of crates and Cargo's directories are the
/// user's choice.
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

/// Builds our programs, or finds them in the cache for the same sources and compilers. The compilers are those of the
/// spec's own workspace, even for sources of an earlier commit: crates that both share are compiled once.
///
/// One call of Cargo builds all programs for each image, so shared crates have the same features. They are compiled
/// once, and the agent is the same in each image.
///
/// # Errors
/// When a program does not build, or does not run with the image's C library.
pub fn build(files: &Files, context: &BuildContext<'_>) -> Result<OwnPrograms> {
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
    let wanted = BuildTargets::of(&agent)?;
    let key = key(&agent, &wanted, &Inputs { rust: &rust, cc: &cc, settings: &settings, tools: tools.key() })?;
    let place = cache.stage(&key.of_copy(), progress, |directory| {
        // Locked until the programs are copied: Cargo writes programs of other sources to the same path.
        let sources = cache.sources(progress)?;
        lay_out(&key, &agent, sources.path())?;
        let compiled = compile(&workspace, sources.path(), &wanted, context)
            .with_context(|| format!("compiling the programs of {}", agent.display()))?;
        for package in &wanted.programs {
            let (name, program) = (name(package), directory.join(name(package)));
            let made = compiled.get(&name).with_context(|| format!("cargo named no program {name}"))?;
            caller::take(made, &program).with_context(|| format!("keeping {name}"))?;
            let inside = format!("/{name}");
            let run = |argument: &str| tools.run(&inside).reads_at(&program, &inside).tool().arg(argument);
            // Programs for an older C library run with a newer one, but not the reverse.
            run("--version").run(progress).with_context(|| {
                format!("{name} does not run with the image's C library: build on a host whose C library is not newer")
            })?;
            if *package != AGENT {
                let said = run("definitions").output(progress).with_context(|| format!("asking {name}"))?;
                let file = directory.join(format!("{package}.json"));
                std::fs::write(&file, said).with_context(|| format!("writing {}", file.display()))?;
            }
        }
        Ok(())
    })?;
    Ok(OwnPrograms { place, rust, cc })
}

struct BuildTargets {
    /// The existing packages, which decide Cargo's features.
    packages: Vec<&'static str>,
    /// The packages that have a program.
    programs: Vec<&'static str>,
}

impl BuildTargets {
    fn of(workspace: &Path) -> Result<Self> {
        let (mut packages, mut programs) = (Vec::new(), Vec::new());
        for package in sources::PACKAGES {
            if sources::is_there(workspace, package)? {
                packages.push(package);
            }
            if has(workspace, package)? {
                programs.push(package);
            }
        }
        if !programs.contains(&AGENT) {
            bail!("{} has no agent", workspace.display());
        }
        Ok(Self { packages, programs })
    }
}

/// Copies the sources and checks them against the key: they may have been edited while this build waited for another.
fn lay_out(key: &Key, workspace: &Path, place: &Path) -> Result<()> {
    sources::lay_out(workspace, place)?;
    key.check().context("laying out the sources of our programs")
}

/// Inputs of the programs in addition to their sources.
struct Inputs<'i> {
    rust: &'i str,
    cc: &'i str,
    settings: &'i str,
    tools: &'i Key,
}

fn key(workspace: &Path, wanted: &BuildTargets, inputs: &Inputs<'_>) -> Result<Key> {
    let mut key = Key::of(Stage::OWN_PROGRAMS)
        .text("compiler", inputs.rust)
        .text("C compiler", inputs.cc)
        .file("manifest", &workspace.join("Cargo.toml"))?
        .file("lock", &workspace.join("Cargo.lock"))?
        // It may set a linker, flags or another profile.
        .text("Cargo's configuration", inputs.settings)
        .key("tools", inputs.tools);
    let mut all = BTreeSet::new();
    for package in &wanted.packages {
        all.extend(sources::packages(workspace, package)?);
    }
    for package in all {
        key = key.directory(&package, &workspace.join(&package))?;
    }
    Ok(key.finish())
}

fn compile(
    workspace: &Path,
    sources: &Path,
    wanted: &BuildTargets,
    context: &BuildContext<'_>,
) -> Result<BTreeMap<String, PathBuf>> {
    let &BuildContext { cache, progress, .. } = context;
    let home = settings::home();
    // Panic messages of dependencies would put paths of this machine into the programs. The workspace's own paths are
    // relative.
    let flags = home.map(|home| format!("--remap-path-prefix={}=/cargo", home.display())).unwrap_or_default();
    let programs = cache.programs();
    std::fs::create_dir_all(&programs).with_context(|| format!("making {}", programs.display()))?;
    caller::lend(&programs)?;
    let cargo = settings::start(Tool::as_caller("cargo"), workspace)?;
    let said = settle(cargo, flags)
        // A separate target directory: with other flags, the developer's builds would start over.
        .env("CARGO_TARGET_DIR", cache.programs())
        .args(arguments(sources, wanted))
        .output(progress)?;
    executables(&said)
}

/// The arguments with which Cargo builds the programs of the workspace in `sources`.
fn arguments(sources: &Path, wanted: &BuildTargets) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = ["build", "--locked", "--manifest-path"].map(OsString::from).to_vec();
    arguments.push(sources.join("Cargo.toml").into());
    arguments.extend(wanted.packages.iter().flat_map(|package| [OsString::from("--package"), OsString::from(package)]));
    arguments
        .extend(wanted.programs.iter().flat_map(|package| [OsString::from("--bin"), OsString::from(name(package))]));
    let how = ["--profile", "appliance", "--message-format=json-render-diagnostics"];
    arguments.extend(how.map(OsString::from));
    arguments
}

/// Removes environment variables that could change the programs.
fn settle(cargo: Tool, flags: String) -> Tool {
    cargo.without(shapes_program).env("CC", CC).env("CARGO_ENCODED_RUSTFLAGS", flags)
}

/// The programs in Cargo's messages (one JSON object per line), by name.
fn executables(messages: &[u8]) -> Result<BTreeMap<String, PathBuf>> {
    let mut found = BTreeMap::new();
    for line in messages.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
        let message: serde_json::Value = serde_json::from_slice(line).context("reading cargo's messages")?;
        let name = message["target"]["name"].as_str();
        if let (Some(name), Some(path)) = (name, message["executable"].as_str()) {
            found.insert(name.to_owned(), PathBuf::from(path));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(file: &Path, text: &str) {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }

    /// A workspace with only an agent that does nothing.
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
    fn settings_above_the_sources_are_ignored() {
        let directory = tempfile::tempdir().unwrap();
        let sources = directory.path().join("cache/sources");
        workspace(&sources);
        write(&directory.path().join(".cargo/config.toml"), "[build]\nrustc-wrapper = \"/of/a/stranger\"\n");
        let cargo = settings::start(Tool::on_host("cargo").current_dir(&sources), &sources).unwrap();
        let cargo = cargo
            .env("CARGO_TARGET_DIR", directory.path().join("target"))
            .args(arguments(&sources, &BuildTargets::of(&sources).unwrap()));
        let said = cargo.output(&crate::progress::Progress::silent()).unwrap();
        assert!(executables(&said).unwrap()["kaas-agent"].starts_with(directory.path().join("target")));
    }

    #[test]
    fn the_workspace_chooses_the_compiler() {
        let directory = tempfile::tempdir().unwrap();
        write(&directory.path().join("rust-toolchain.toml"), "[toolchain]\nchannel = \"1.2.3\"\n");
        let env = settings::start(Tool::on_host("env"), directory.path()).unwrap();
        let said = String::from_utf8(env.output(&crate::progress::Progress::silent()).unwrap()).unwrap();
        let expected = std::env::var("RUSTUP_TOOLCHAIN").unwrap_or("1.2.3".to_owned());
        assert!(said.lines().any(|line| line == format!("RUSTUP_TOOLCHAIN={expected}")), "{said}");
    }

    #[test]
    fn another_input_makes_another_program() {
        let directory = tempfile::tempdir().unwrap();
        workspace(directory.path());
        let tools = |value: &str| Key::of(Stage::TOOLS).text("tools", value).finish();
        let (some, other) = (tools("some"), tools("other"));
        let inputs = || Inputs { rust: "rustc 1", cc: "cc 1", settings: "", tools: &some };
        let key =
            |inputs: Inputs<'_>| key(directory.path(), &BuildTargets::of(directory.path()).unwrap(), &inputs).unwrap();
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
    fn a_program_is_compiled_from_its_keys_sources() {
        let directory = tempfile::tempdir().unwrap();
        let (clone, place) = (directory.path().join("clone"), directory.path().join("place"));
        workspace(&clone);
        let tools = Key::of(Stage::TOOLS).finish();
        let inputs = Inputs { rust: "rustc 1", cc: "cc 1", settings: "", tools: &tools };
        let wanted = BuildTargets::of(&clone).unwrap();
        let made = key(&clone, &wanted, &inputs).unwrap();
        lay_out(&made, &clone, &place).unwrap();
        write(&clone.join("agent/main.rs"), "fn main() { }\n");
        let error = format!("{:#}", lay_out(&made, &clone, &place).unwrap_err());
        assert!(error.ends_with("agent has changed while it was built from: build again"), "{error}");
        lay_out(&key(&clone, &wanted, &inputs).unwrap(), &clone, &place).unwrap();
    }

    #[test]
    fn settings_that_change_programs_are_removed() {
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
    fn programs_are_found_in_cargos_messages() {
        let messages = br#"{"reason":"compiler-artifact","target":{"name":"agent"},"executable":null}
{"reason":"compiler-artifact","target":{"name":"kaas-agent"},"executable":"/t/appliance/kaas-agent"}
{"reason":"compiler-artifact","target":{"name":"kaas-controller"},"executable":"/t/appliance/kaas-controller"}
{"reason":"build-finished","success":true}
"#;
        let found = executables(messages).unwrap();
        let expected =
            ["agent", "controller"].map(|package| (name(package), Path::new("/t/appliance").join(name(package))));
        assert_eq!(found, BTreeMap::from(expected));
        assert!(executables(b"{}\n").unwrap().is_empty());
    }

    /// Its features affect shared crates, so the package counts even without a program.
    #[test]
    fn a_workspace_without_a_program_has_its_package() {
        let directory = tempfile::tempdir().unwrap();
        let at = |file: &str| directory.path().join(file);
        workspace(directory.path());
        let of = |wanted: BuildTargets| (wanted.packages.join(" "), wanted.programs.join(" "));
        assert_eq!(of(BuildTargets::of(directory.path()).unwrap()), ("agent".into(), "agent".into()));
        let manifest = std::fs::read_to_string(at("Cargo.toml")).unwrap();
        let both = "[workspace.dependencies]\ncontroller = { path = \"controller\" }\n";
        write(&at("Cargo.toml"), &manifest.replace("[workspace.dependencies]\n", both));
        write(&at("controller/Cargo.toml"), "[package]\nname = \"controller\"\nversion = \"0.1.0\"\n");
        let tools = Key::of(Stage::TOOLS).finish();
        let key = || {
            let inputs = Inputs { rust: "rustc 1", cc: "cc 1", settings: "", tools: &tools };
            key(directory.path(), &BuildTargets::of(directory.path()).unwrap(), &inputs).unwrap()
        };
        let before = key();
        assert_eq!(of(BuildTargets::of(directory.path()).unwrap()), ("agent controller".into(), "agent".into()));
        let manifest = std::fs::read_to_string(at("controller/Cargo.toml")).unwrap();
        write(&at("controller/Cargo.toml"), &format!("{manifest}[[bin]]\nname = \"kaas-controller\"\n"));
        let wanted = BuildTargets::of(directory.path()).unwrap();
        let words: Vec<_> =
            arguments(directory.path(), &wanted).into_iter().map(|word| word.into_string().unwrap()).collect();
        let given = |option: &str| {
            let pairs = words.windows(2).filter(|pair| pair[0] == option);
            pairs.map(|pair| pair[1].clone()).collect::<Vec<_>>()
        };
        let all = ["agent", "controller"];
        assert_eq!((given("--package"), given("--bin")), (all.map(str::to_owned).to_vec(), all.map(name).to_vec()));
        assert_ne!(key(), before);
        std::fs::remove_file(at("agent/Cargo.toml")).unwrap();
        assert!(BuildTargets::of(directory.path()).is_err());
    }
}
