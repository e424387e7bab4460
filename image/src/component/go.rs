//! Builds Go programs from a module folder with the ordinary client.

use std::path::Path;

use anyhow::{Context, Result, bail};

use super::GoModule;
use crate::caller;
use crate::process::Tool;
use crate::progress::Progress;

/// The version of the host's Go, as it says it: part of what decides a program's bytes.
///
/// # Errors
/// When Go is not installed or does not answer.
pub fn version(progress: &Progress) -> Result<String> {
    let said = Tool::as_caller("go").arg("version").env("GOTOOLCHAIN", "local").output(progress);
    let said = said.context("asking for Go's version: building the components takes Go")?;
    Ok(String::from_utf8_lossy(&said).trim().to_owned())
}

/// Builds the module's programs into `folder`.
///
/// # Errors
/// When Go fails: a module or sum is missing, or the sources do not compile.
pub fn build(module: &GoModule, folder: &Path, progress: &Progress) -> Result<()> {
    let ldflags = ["-s", "-w", "-buildid="].into_iter().chain(module.ldflags.iter().map(String::as_str));
    let ldflags = ldflags.collect::<Vec<_>>().join(" ");
    caller::lend(folder)?;
    for package in &module.packages {
        let output = folder.join(&package.program.output);
        let mut tool = Tool::as_caller("go")
            .current_dir(&module.folder)
            // The flags and the target are the image's, not this user's; where modules come from is the user's.
            .env_remove("GOFLAGS")
            .env("GOTOOLCHAIN", "local")
            .env("GOWORK", "off")
            .env("CGO_ENABLED", "0")
            .env("GOOS", "linux")
            .env("GOARCH", "amd64")
            .env("GOAMD64", "v1")
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
