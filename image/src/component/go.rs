//! Builds Go programs from a module folder with the ordinary client.

use std::path::Path;

use anyhow::{Result, bail};

use super::GoModule;
use super::toolchain::Toolchain;
use crate::caller;
use crate::process::Tool;
use crate::progress::Progress;

/// Flags of go in the environment or in the user's settings could change what is built. An empty variable would let
/// those of the settings in; this one is given anyhow.
pub(super) const FLAGS: &str = "-trimpath";

/// A run of a toolchain's go command, which uses nothing of another. Where modules come from is the user's to say.
pub(super) fn command(toolchain: &Toolchain) -> Tool {
    Tool::as_caller(toolchain.root().join("bin/go"))
        .env("GOROOT", toolchain.root())
        .env("GOTOOLCHAIN", "local")
        .env("GOWORK", "off")
        .env("GO111MODULE", "on")
        .env("GOFLAGS", FLAGS)
        .env_remove("GOEXPERIMENT")
        .env_remove("GOTOOLDIR")
}

/// Builds the module's programs into `folder`.
///
/// # Errors
/// When Go fails: a module or sum is missing, or the sources do not compile.
pub fn build(module: &GoModule, toolchain: &Toolchain, folder: &Path, progress: &Progress) -> Result<()> {
    let ldflags = ["-s", "-w", "-buildid="].into_iter().chain(module.ldflags.iter().map(String::as_str));
    let ldflags = ldflags.collect::<Vec<_>>().join(" ");
    caller::lend(folder)?;
    for package in &module.packages {
        let output = folder.join(&package.program.output);
        let mut tool = command(toolchain)
            .current_dir(&module.folder)
            // The target is the image's, not this user's.
            .env("CGO_ENABLED", "0")
            .env("GOOS", "linux")
            .env("GOARCH", "amd64")
            .env("GOAMD64", "v1")
            .env("GOFIPS140", "off")
            .args(["build", "-trimpath", "-buildvcs=false", "-mod=readonly"]);
        if let Some(modfile) = &module.modfile {
            tool = tool.arg(format!("-modfile={modfile}"));
        }
        if !module.tags.is_empty() {
            tool = tool.arg(format!("-tags={}", module.tags.join(",")));
        }
        tool.arg(format!("-ldflags={ldflags}")).arg("-o").arg(&output).arg(&package.package).run(progress)?;
        if !output.is_file() {
            bail!("go build made no {}", output.display());
        }
    }
    Ok(())
}
