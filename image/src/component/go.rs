//! Builds Go programs from a module directory with the ordinary client.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::GoModule;
use super::toolchain::{FLAGS, Toolchain};
use crate::cache::Cache;
use crate::caller::{self, Caller};
use crate::process::Tool;
use crate::progress::Progress;
use crate::tools::ToolsTree;

/// Settings of the sources of modules and their cache. Only these are the user's.
const ORIGINS: [&str; 10] = [
    "GOPROXY",
    "GOSUMDB",
    "GONOSUMDB",
    "GONOPROXY",
    "GOPRIVATE",
    "GOINSECURE",
    "GOVCS",
    "GOAUTH",
    "GOMODCACHE",
    "GOPATH",
];
/// Further variables that may come from the environment, since no built program depends on them.
const HARMLESS: [&str; 5] = ["GOENV", "GOCACHE", "GOMAXPROCS", "GOGC", "GOMEMLIMIT"];

/// Whether a variable of the environment can change a build. All settings of go that are not known to be harmless can,
/// also those of future releases.
fn shapes_programs(name: &str) -> bool {
    let of_go = name.starts_with("GO") || name.starts_with("CGO_") || name == "GCCGO";
    of_go && !ORIGINS.contains(&name) && !HARMLESS.contains(&name)
}

/// A run of a toolchain's go command, which uses nothing of another and, of the environment, no settings but those of
/// where modules come from.
pub(super) fn command(toolchain: &Toolchain) -> Tool {
    settle(Tool::as_caller(toolchain.root().join("bin/go")), toolchain)
}

fn settle(go: Tool, toolchain: &Toolchain) -> Tool {
    go.without(shapes_programs)
        .env("GOROOT", toolchain.root())
        .env("GOTOOLCHAIN", "local")
        .env("GOWORK", "off")
        .env("GO111MODULE", "on")
        .env("GOFLAGS", FLAGS)
}

/// Where this user's modules come from, by the environment and by what `go env -w` has noted. `directory` holds no
/// module.
fn origins(go: Tool, directory: &Path, progress: &Progress) -> Result<BTreeMap<String, String>> {
    let said = go.current_dir(directory).args(["env", "-json"]).args(ORIGINS).output(progress)?;
    serde_json::from_slice(&said).context("understanding what go env says of where modules come from")
}

/// The compiler makes no debug information (cmd/compile, "-dwarf"). The linker would leave it out (cmd/link, "-w"), and a
/// tenth of the time would be spent for nothing.
const WITHOUT_DWARF: &str = "-gcflags=all=-dwarf=false";

/// Builds the module's programs into `directory`, which stays root's if root builds.
///
/// # Errors
/// When Go fails: a module or sum is missing, or the sources do not compile. When parts are in C, and there are no `tools`.
pub fn build(
    module: &GoModule,
    toolchain: &Toolchain,
    tools: Option<&ToolsTree>,
    directory: &Path,
    cache: &Cache,
    progress: &Progress,
) -> Result<()> {
    let tools = match module.cgo {
        true => Some(tools.context("a program with parts in C takes the C compiler of the tools tree")?),
        false => None,
    };
    build_by(&|| command(toolchain), module, toolchain, tools, directory, cache, progress)
}

fn build_by(
    go: &dyn Fn() -> Tool,
    module: &GoModule,
    toolchain: &Toolchain,
    tools: Option<&ToolsTree>,
    directory: &Path,
    cache: &Cache,
    progress: &Progress,
) -> Result<()> {
    let ldflags = ["-s", "-w", "-buildid="].into_iter().chain(module.ldflags.iter().map(String::as_str));
    let ldflags = ldflags.collect::<Vec<_>>().join(" ");
    let work = cache.work()?;
    let lend = |name: &str| -> Result<PathBuf> {
        let directory = work.path().join(name);
        fs::create_dir(&directory).with_context(|| format!("making {}", directory.display()))?;
        caller::lend(&directory)?;
        Ok(directory)
    };
    // Kubernetes takes gigabytes while it is built: more than /tmp has where that is in memory, as on Debian 13.
    let (lent, temporary) = (lend("built")?, lend("temporary")?);
    let origins = origins(go(), &lent, progress)?;
    let compiled = cache.compiled_by_go()?;
    let settled = |tool: Tool| {
        let tool = origins.iter().fold(tool, |tool, (name, value)| tool.env(name, value));
        // Settings of `go env -w` could change programs too.
        tool.env("GOENV", "off")
            .env("GOTMPDIR", &temporary)
            .env("GOCACHE", compiled.path())
            // The target is the image's, not this user's.
            .env("CGO_ENABLED", if tools.is_some() { "1" } else { "0" })
            .env("GOOS", "linux")
            .env("GOARCH", "amd64")
            .env("GOAMD64", "v1")
            .env("GOFIPS140", "off")
    };
    let mut flags = vec!["-trimpath".to_owned(), "-buildvcs=false".to_owned(), "-mod=readonly".to_owned()];
    flags.push(WITHOUT_DWARF.to_owned());
    flags.extend(module.modfile.iter().map(|modfile| format!("-modfile={modfile}")));
    if !module.tags.is_empty() {
        flags.push(format!("-tags={}", module.tags.join(",")));
    }
    let sources = module.directory.canonicalize().context("finding the module's directory")?;
    for package in &module.packages {
        let output = lent.join(&package.program.output);
        let tool = match tools {
            None => settled(go()).current_dir(&sources).arg("build").args(&flags),
            Some(tools) => {
                // It fetches the modules: the build itself reaches no network.
                let list = settled(go()).current_dir(&sources).args(["list", "-deps"]);
                list.args(&flags).arg(&package.package).output(progress)?;
                let modules = origins.get("GOMODCACHE").context("go env says no GOMODCACHE")?;
                let reads = [toolchain.root(), &sources, Path::new(modules)];
                let tool = in_tree(tools, toolchain, &reads, &[work.path(), compiled.path()]);
                let tool = settled(tool).env("GOPROXY", "off").env("CGO_CFLAGS", C_FLAGS);
                tool.args(["build", "-C"]).arg(&sources).args(&flags).arg("-buildmode=pie")
            }
        };
        tool.arg(format!("-ldflags={ldflags}")).arg("-o").arg(&output).arg(&package.package).run(progress)?;
        caller::take(&output, &directory.join(&package.program.output)).context("keeping what go build made")?;
    }
    Ok(())
}

/// For parts in C: hardened as Debian's packages are (dpkg-buildflags(1)), and without debug information.
const C_FLAGS: &str = "-O2 -fstack-protector-strong -D_FORTIFY_SOURCE=2";

/// A run of go inside the tools tree, as the caller. Compiler, headers and libraries for parts in C are those of the tools'
/// lock: nothing of the host's own shapes the program.
fn in_tree(tools: &ToolsTree, toolchain: &Toolchain, reads: &[&Path], writes: &[&Path]) -> Tool {
    let caller = Caller::of_environment().map(Caller::prefix);
    let go = toolchain.root().join("bin/go").display().to_string();
    let words: Vec<String> = caller.iter().flatten().cloned().chain([go]).collect();
    let mut run = tools.run(&words[0]);
    if caller.is_some() {
        // setpriv looks up the caller's groups.
        run = run.reads("/etc/passwd").reads("/etc/group");
    }
    run = reads.iter().fold(run, |run, path| run.reads(*path));
    run = writes.iter().fold(run, |run, path| run.writes(*path));
    let mut command = run.command();
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    settle(Tool::prepared("go", command).args(&words[1..]), toolchain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::component::toolchain::Pin;
    use crate::component::{GoPackage, Program};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn only_settings_of_origins_stay() {
        for name in
            ["GOEXPERIMENT", "GOTOOLDIR", "GOCACHEPROG", "GODEBUG", "GO_EXTLINK_ENABLED", "GOARCH", "CGO_LDFLAGS"]
        {
            assert!(shapes_programs(name), "{name}");
        }
        for name in ["GOPROXY", "GOSUMDB", "GOMODCACHE", "GOENV", "HTTPS_PROXY", "HOME", "XDG_CACHE_HOME"] {
            assert!(!shapes_programs(name), "{name}");
        }
    }

    /// A go that heeds the user's settings as the real one does, and writes what it was given as the program.
    const GO: &str = r#"#!/bin/sh
if [ "$1" = env ]; then
    [ "$GOENV" = off ] && exit 3
    [ -z "$(ls)" ] || exit 4
    echo '{ "GOPROXY": "file:///of-the-user", "GOPRIVATE": "" }'
    exit
fi
while [ "$1" != -o ]; do shift; done
env >"$2"
"#;

    #[test]
    fn builds_see_only_settings_of_origins() {
        let directory = tempfile::tempdir().unwrap();
        let (cache, progress) = (Cache::at(&directory.path().join("cache")).unwrap(), Progress::silent());
        let go = directory.path().join("go");
        fs::write(&go, GO).unwrap();
        fs::set_permissions(&go, fs::Permissions::from_mode(0o755)).unwrap();
        let result = directory.path().join("result");
        fs::create_dir(&result).unwrap();
        let toolchain = Toolchain::at(directory.path());
        let program = Program { output: "program".to_owned(), names: Vec::new() };
        let package = GoPackage { package: ".".to_owned(), program };
        let module = GoModule {
            go: Pin::default(),
            directory: directory.path().to_owned(),
            modfile: None,
            cgo: false,
            stamped: false,
            tags: Vec::new(),
            ldflags: Vec::new(),
            packages: vec![package],
        };
        let with_settings = || {
            let tool = Tool::on_host(&go).env("GOEXPERIMENT", "nodwarf5").env("GOTOOLDIR", "/other");
            settle(tool.env("GOENV", "/home/anna/go-env"), &toolchain)
        };
        build_by(&with_settings, &module, &toolchain, None, &result, &cache, &progress).unwrap();
        let given = fs::read_to_string(result.join("program")).unwrap();
        let has = |line: &str| given.lines().any(|given| given == line);
        assert!(has("GOENV=off") && has("GOPROXY=file:///of-the-user") && has("GOFLAGS=-trimpath"), "{given}");
        for ours in ["GOTMPDIR", "GOCACHE"] {
            let ours = format!("{ours}={}/", cache.root().display());
            assert!(given.lines().any(|given| given.starts_with(&ours)), "{given}");
        }
        assert!(!given.contains("GOEXPERIMENT") && !given.contains("GOTOOLDIR"), "{given}");
        assert!(has("CGO_ENABLED=0"), "{given}");

        // A compiler of the host would make another program on each host.
        let in_c = GoModule { cgo: true, ..module };
        let error = build(&in_c, &toolchain, None, &result, &cache, &progress).unwrap_err();
        assert!(error.to_string().contains("the C compiler of the tools tree"), "{error}");
    }
}
