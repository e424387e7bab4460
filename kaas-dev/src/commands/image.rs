//! `kaas-dev image …`: the command line of the image builder.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Subcommand};
use image::Request;
use image::progress::Progress;
use image::spec::Variant;
use kaas::output::{self, Output};
use kaas::say;
use ova::signature::Signer;
use serde_json::json;

use super::audit;
use crate::builder::{Sources, cache, share, tools_tree};

/// Build appliance images from their specs
#[derive(Subcommand)]
pub enum Image {
    /// Build an image and write its OVA
    ///
    /// Results are kept in the user's cache, so that a second build makes only the changed parts. An OVA of the same name is
    /// replaced once the new one is complete.
    #[command(after_help = "Example: `kaas-dev image build image/specs/control-plane.toml`")]
    Build(Build),
    /// Renew the lock files of specs: the newest packages that the archive has
    ///
    /// The packages of an included file are locked next to that file. The spec's own lock has only the packages that the spec
    /// adds. Give specs that share a file together. The changes are printed. An archive index that is older than the one of a
    /// lock is refused.
    #[command(after_help = "Example: `kaas-dev image lock image/specs/control-plane.toml image/specs/tenant.toml`")]
    Lock(Lock),
    /// Create the tools tree, in which builds and the lab run their programs, and print its directory
    #[command(after_help = "Example: `kaas-dev image tools`")]
    Tools(Sources),
    /// Fetch the Go toolchain of a spec's components, and print its directory or run a command with it
    ///
    /// The command runs as the user who called sudo, and `go` is that Go toolchain. The toolchain is kept until the command
    /// ends. Later, `kaas-dev image clean` may remove it.
    #[command(after_help = "Example: `kaas-dev image go image/specs/control-plane.toml -- go version`")]
    Go(Go),
    /// Compare what images are made of with published advisories
    ///
    /// Go modules are compared with the Go vulnerability database at a pinned version: the names of the linked functions
    /// decide. Crates are compared by cargo-deny, Debian packages with the archive: a newer version in the release's own
    /// suites, and CVEs in changelogs of unstable.
    ///
    /// image/audit/judged.toml holds the judgements. Exit status 0: each advisory is fixed or judged. 1: the check failed. 3:
    /// an advisory is unjudged or expired, or the pinned database is older than 45 days. 4: no advisory is open, but a part is
    /// unchecked. With --pinned only an unjudged advisory gives 3, and 4 is not used.
    Audit(audit::Audit),
    /// Remove files that no build has used for a while from the cache
    ///
    /// Removed are results of build stages, packages, sources of earlier versions, tools that check dependencies, and trees of
    /// bare machines. Files that a running command or a lab uses are kept, and the lab's unpacked OVAs. Without `--all`,
    /// results of Cargo and recent results of Go are kept too.
    #[command(after_help = "Example: `kaas-dev image clean`")]
    Clean(Clean),
}

/// `kaas-dev image build`
#[derive(Args)]
pub struct Build {
    /// Spec
    spec: PathBuf,
    /// Directory to write the OVA to
    #[arg(long, default_value = "build", value_name = "DIRECTORY")]
    to_directory: PathBuf,
    /// Version of the image, in place of the spec's
    #[arg(long, value_name = "VERSION")]
    version: Option<String>,
    /// Kubernetes component to carry in place of the spec's. Give the option several times, the newest minor version first
    #[arg(long, value_name = "COMPONENT")]
    kubernetes: Vec<String>,
    /// Tree of another commit: the agent, its contract and the units come from it, the rest from the spec. Such an image is an
    /// earlier one, to test upgrades from
    #[arg(long, value_name = "DIRECTORY")]
    agent_source: Option<PathBuf>,
    /// Leave the root uncompressed, for tests and development: the OVA is larger, and the root is packed in seconds
    #[arg(long)]
    uncompressed: bool,
    /// Private key to sign with, in PEM. Without it, the image is marked as a development image
    #[arg(long, requires = "sign_certificate", value_name = "FILE")]
    sign_key: Option<PathBuf>,
    /// Certificate of the key, followed by those that issued it, in PEM
    #[arg(long, requires = "sign_key", value_name = "FILE")]
    sign_certificate: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    sources: Sources,
}

/// `kaas-dev image lock`
#[derive(Args)]
pub struct Lock {
    /// Specs
    #[arg(required = true)]
    specs: Vec<PathBuf>,
    /// Do not change the lock files of included specs, and lock only the packages that these specs add
    #[arg(long)]
    keep_included: bool,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    sources: Sources,
}

/// `kaas-dev image go`
#[derive(Args)]
pub struct Go {
    /// Spec
    spec: PathBuf,
    /// Command and its arguments
    #[arg(last = true)]
    command: Vec<OsString>,
}

/// `kaas-dev image clean`
#[derive(Args)]
pub struct Clean {
    /// Keep files that were used in this number of days. 0 keeps nothing
    #[arg(long, default_value_t = 14)]
    days: u64,
    /// Keep nothing, not even results of Cargo and Go. The next build takes as long as the first one, except for crates and Go
    /// modules, which stay in the user's own directories
    #[arg(long, conflicts_with = "days")]
    all: bool,
    /// Remove only the results of Go for components, unless a build uses them. The next build compiles these components again
    #[arg(long, conflicts_with_all = ["days", "all"])]
    go_cache: bool,
}

pub fn run(command: Image) -> Result<ExitCode> {
    share();
    let done = |()| ExitCode::SUCCESS;
    match command {
        Image::Build(arguments) => build(arguments).map(done),
        Image::Lock(arguments) => lock(arguments).map(done),
        Image::Tools(sources) => tools(sources).map(done),
        Image::Go(arguments) => go(&arguments).map(done),
        Image::Audit(arguments) => audit::run(arguments, &cache()?),
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
            uncompressed: arguments.uncompressed,
        },
        output: &arguments.to_directory,
        signer: signer.as_ref(),
        sources: arguments.sources.into(),
        used: lab::tools_in_use,
    };
    let made = image::build(&request, &progress)?;
    progress.finish();
    let stages: Vec<_> = progress
        .times()
        .into_iter()
        .map(|(stage, time, cached)| json!({ "stage": stage, "seconds": time.as_secs_f64(), "cached": cached }))
        .collect();
    let report = json!({ "ova": made.ova, "size": made.size, "disk": made.disk, "stages": stages });
    arguments.output.result(&report, || format!("{} ({} MiB)", made.ova.display(), made.size >> 20)).map(drop)
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
    let (mut locks, mut lines) = (Vec::new(), Vec::new());
    let renewed = image::renew_locks(&arguments.specs, arguments.keep_included, &sources, &cache, &progress)?;
    for image::RenewedLock { path, packages, changes } in renewed {
        lines.push(format!("{}: {packages} packages; {changes}", path.display()));
        locks.push(json!({ "lock": path, "packages": packages, "changes": changes }));
    }
    progress.finish();
    arguments.output.result(&json!({ "locks": locks }), || lines.join("\n")).map(drop)
}

fn tools(sources: Sources) -> Result<()> {
    say!("{}", tools_tree(&sources.into())?.root().display());
    Ok(())
}

fn go(arguments: &Go) -> Result<()> {
    // The cache keeps the Go toolchain while the command runs.
    let cache = cache()?;
    let go = image::go(&arguments.spec, &cache, &Progress::on_stderr())?;
    let Some((program, rest)) = arguments.command.split_first() else {
        return output::result(&go.display().to_string());
    };
    let ended = image::run_with_go(&go, program, rest)?;
    ensure!(ended.success(), "{} with {}: {ended}", program.display(), go.display());
    Ok(())
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
