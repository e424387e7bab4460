//! `kaas image …`: the command line of the image builder.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Subcommand, ValueEnum};
use image::Request;
use image::cache::Cache;
use image::debian::sources::Settings;
use image::progress::Progress;
use image::spec::Variant;
use image::tools::ToolsTree;
use nix::sys::stat::{Mode, umask};
use ova::signature::Signer;
use serde_json::json;

use crate::sources::Sources;
use crate::{output, reference};

/// Builds appliance images from their specs.
#[derive(Subcommand)]
pub enum Image {
    /// Builds an image and writes its OVA.
    ///
    /// Results are kept in the user's cache, so that a second build makes only what changed. An OVA of the same name
    /// is replaced when the new one is whole.
    Build(Build),
    /// Renews the lock files of specs: the newest packages that the archive has.
    ///
    /// What a spec includes first is locked beside that file, and only what the spec adds beside the spec: give the specs
    /// that share a file together. Says what changed. An index of the archive that is older than the one that a lock was
    /// made from is refused.
    Lock(Lock),
    /// Makes the tools tree, in which builds and the lab run their programs, and prints its directory.
    Tools(Sources),
    /// Fetches the Go that a spec's components are built with, if it is not there, and prints its directory or runs a command
    /// with it.
    ///
    /// The command runs as the user who called sudo, and `go` is that Go for it. Only until it ends does the Go stay for sure:
    /// what no command uses may be cleaned away.
    Go(Go),
    /// Prints the tables of the documentation that come from the code.
    Reference(Reference),
    /// Compare what images are made of with published advisories.
    ///
    /// Go modules are compared with the Go vulnerability database at a pinned version: the names of the linked functions
    /// decide. Crates are compared by cargo-deny, Debian packages with the archive: a newer version in the release's own
    /// suites, and CVEs in changelogs of unstable.
    ///
    /// image/audit/judged.toml holds the judgements. Exit status: 0 if each advisory is fixed or judged, 1 if the check
    /// fails, 3 if an advisory is unjudged or expired or the pinned database is older than 45 days, 4 if none is open but a part is
    /// unchecked. With --pinned only an unjudged advisory gives 3, and 4 is not used.
    Audit(crate::audit::Audit),
    /// Verifies an OVA of tenants' nodes and lays it on the vCenter of a Provider, where clusters find it as a NodeImage.
    Push(Box<crate::push::Push>),
    /// Removes from the cache what no build has used for a while.
    ///
    /// Results of the build's stages go, packages, sources of earlier versions, what checks dependencies and the trees of
    /// bare machines, unless a running command or a lab uses them. What the lab has unpacked stays, and without `--all`
    /// what Cargo builds and what Go has compiled of late.
    Clean(Clean),
}

/// `kaas image build`
#[derive(Args)]
pub struct Build {
    /// The spec.
    spec: PathBuf,
    /// Directory to write the OVA to.
    #[arg(long, short, default_value = "build", value_name = "DIRECTORY")]
    output: PathBuf,
    /// Version of the image, in place of the spec's.
    #[arg(long, value_name = "VERSION")]
    version: Option<String>,
    /// Kubernetes components to carry in place of the spec's, the newest minor first; may be given several times.
    #[arg(long, value_name = "COMPONENT")]
    kubernetes: Vec<String>,
    /// Tree of another commit to take the agent, its contract and the units from, all else from the spec: an image of
    /// then to try upgrades from.
    #[arg(long, value_name = "DIRECTORY")]
    agent_source: Option<PathBuf>,
    /// Private key to sign with, in PEM. Without one the image calls itself a development image.
    #[arg(long, requires = "sign_certificate", value_name = "FILE")]
    sign_key: Option<PathBuf>,
    /// The key's certificate, followed by those that issued it, in PEM.
    #[arg(long, requires = "sign_key", value_name = "FILE")]
    sign_certificate: Option<PathBuf>,
    /// What to print at the end.
    #[arg(long, default_value = "text")]
    report: Report,
    #[command(flatten)]
    sources: Sources,
}

/// `kaas image lock`
#[derive(Args)]
pub struct Lock {
    /// The specs.
    #[arg(required = true)]
    specs: Vec<PathBuf>,
    /// Leave the lock files of included specs as they are, and lock only what these specs add.
    #[arg(long)]
    keep_included: bool,
    /// What to print at the end.
    #[arg(long, default_value = "text")]
    report: Report,
    #[command(flatten)]
    sources: Sources,
}

/// `kaas image go`
#[derive(Args)]
pub struct Go {
    /// The spec.
    spec: PathBuf,
    /// The command and its arguments.
    #[arg(last = true)]
    command: Vec<OsString>,
}

/// `kaas image reference`
#[derive(Args)]
pub struct Reference {
    /// Renew the tables in this document, between its `<!-- NAME:begin -->` and `<!-- NAME:end -->`, instead.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

/// `kaas image clean`
#[derive(Args)]
pub struct Clean {
    /// Keep what was used in so many days; 0 keeps nothing.
    #[arg(long, default_value_t = 14)]
    days: u64,
    /// Keep nothing, what Cargo and Go have compiled included: the next build takes as long as the first one, but for crates
    /// and Go modules, which stay in the user's own directories.
    #[arg(long, conflicts_with = "days")]
    all: bool,
    /// Remove what Go has compiled of components, unless it is at work, and nothing else: all that is to be built with it is.
    #[arg(long, conflicts_with_all = ["days", "all"])]
    go_cache: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Report {
    /// Lines for people.
    Text,
    /// One JSON object.
    Json,
}

/// What root makes in the cache others read, whatever the caller's shell keeps from them: behind sudo compilers run as the
/// user who called it, and trees have users of their own.
fn share() {
    umask(Mode::S_IWGRP | Mode::S_IWOTH);
}

/// Runs one of the commands.
///
/// # Errors
/// What failed, by the command.
pub fn run(command: Image) -> Result<ExitCode> {
    share();
    let done = |()| ExitCode::SUCCESS;
    match command {
        Image::Build(arguments) => build(arguments).map(done),
        Image::Lock(arguments) => lock(arguments).map(done),
        Image::Tools(sources) => tools(sources).map(done),
        Image::Go(arguments) => go(&arguments).map(done),
        Image::Reference(arguments) => renew_reference(&arguments).map(done),
        Image::Audit(arguments) => crate::audit::run(arguments, &cache()?),
        Image::Push(arguments) => crate::push::push(&arguments),
        Image::Clean(arguments) => clean(&arguments).map(done),
    }
}

fn build(arguments: Build) -> Result<()> {
    let signer = signer(&arguments)?;
    let progress = Progress::on_stderr();
    let request = Request {
        spec: &arguments.spec,
        variant: Variant {
            version: arguments.version,
            kubernetes: arguments.kubernetes,
            agent_source: arguments.agent_source,
        },
        output: &arguments.output,
        signer: signer.as_ref(),
        sources: arguments.sources.into(),
        used: lab::tools_in_use,
    };
    let made = image::build(&request, &progress)?;
    progress.finish();
    match arguments.report {
        Report::Text => say!("{} ({} MiB)", made.ova.display(), made.size >> 20),
        Report::Json => {
            let stages: Vec<_> = progress
                .times()
                .into_iter()
                .map(|(stage, time, cached)| json!({ "stage": stage, "seconds": time.as_secs_f64(), "cached": cached }))
                .collect();
            let report = json!({ "ova": made.ova, "size": made.size, "disk": made.disk, "stages": stages });
            output::json(&report)?;
        }
    }
    Ok(())
}

fn signer(arguments: &Build) -> Result<Option<Signer>> {
    let (Some(key), Some(certificate)) = (&arguments.sign_key, &arguments.sign_certificate) else { return Ok(None) };
    let read = |path: &PathBuf| std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()));
    let signer = Signer::from_pem(&read(key)?, &read(certificate)?);
    Ok(Some(signer.with_context(|| format!("using the key {} to sign", key.display()))?))
}

fn lock(arguments: Lock) -> Result<()> {
    let progress = Progress::on_stderr();
    let sources = arguments.sources.into();
    let cache = cache()?;
    let mut locks = Vec::new();
    let renewed = image::renew_locks(&arguments.specs, arguments.keep_included, &sources, &cache, &progress)?;
    for image::RenewedLock { path, packages, changes } in renewed {
        match arguments.report {
            Report::Text => say!("{}: {packages} packages; {changes}", path.display()),
            Report::Json => locks.push(json!({ "lock": path, "packages": packages, "changes": changes })),
        }
    }
    progress.finish();
    if let Report::Json = arguments.report {
        output::json(&json!({ "locks": locks }))?;
    }
    Ok(())
}

/// The user's cache, of which nothing goes that a lab uses.
fn cache() -> Result<Cache> {
    Cache::of_user(lab::tools_in_use)
}

/// The tools tree that this program was built with, made if it is not there.
pub fn tools_tree() -> Result<ToolsTree> {
    share();
    // The settings are those of the environment: the flags belong to the builder's commands.
    ensure_tools(&Settings::of_environment())
}

fn ensure_tools(settings: &Settings) -> Result<ToolsTree> {
    image::tools::check_host(&[])?;
    image::tools::ensure(settings, &cache()?, &Progress::on_stderr())
}

fn tools(sources: Sources) -> Result<()> {
    say!("{}", ensure_tools(&sources.into())?.root().display());
    Ok(())
}

fn go(arguments: &Go) -> Result<()> {
    // It holds the Go as long as the command runs.
    let cache = cache()?;
    let go = image::go(&arguments.spec, &cache, &Progress::on_stderr())?;
    let Some((program, rest)) = arguments.command.split_first() else {
        return output::result(&go.display().to_string());
    };
    let ended = image::run_with_go(&go, program, rest)?;
    ensure!(ended.success(), "{} with {}: {ended}", program.display(), go.display());
    Ok(())
}

fn renew_reference(arguments: &Reference) -> Result<()> {
    let Some(path) = &arguments.write else {
        for (_, part) in reference::parts() {
            say!("{part}");
        }
        return Ok(());
    };
    let document = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let renewed =
        reference::renew(&document).map_err(|part| anyhow::anyhow!("{} has no block for {part}", path.display()))?;
    image::renew::write(path, &renewed)
}

fn clean(arguments: &Clean) -> Result<()> {
    let Some(seconds) = arguments.days.checked_mul(86_400) else {
        bail!("--days {} is out of range", arguments.days);
    };
    let cache = cache()?;
    let cleaned = match arguments {
        Clean { go_cache: true, .. } => cache.clean_compiled_by_go()?,
        Clean { all: true, .. } => cache.clean_all()?,
        Clean { .. } => cache.clean(Duration::from_secs(seconds))?,
    };
    let counts: Vec<_> = cleaned.removed.iter().map(|(name, count)| format!("{count} of {name}")).collect();
    match counts.is_empty() {
        true => say!("{}: nothing removed", cache.root().display()),
        false => say!("{}: removed {} ({} MiB)", cache.root().display(), counts.join(", "), cleaned.bytes >> 20),
    }
    if !cleaned.in_use.is_empty() {
        say!("left what running commands and labs use of {}", cleaned.in_use.join(", "));
    }
    Ok(())
}
