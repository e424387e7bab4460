//! OVAs that differ from the one under test, built from the same specs with what the build cache has. Their root is
//! uncompressed, because compression takes minutes.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::places::{kaas_dev, workspace};

/// `kaas-dev image build` of a version into a directory, with further arguments. Returns the OVA.
pub fn build<A: AsRef<OsStr>>(version: &str, output: &Path, arguments: &[A]) -> anyhow::Result<PathBuf> {
    of_spec("control-plane", version, output, arguments)
}

/// The same of the tenants' spec.
pub fn build_tenant(version: &str, output: &Path) -> anyhow::Result<PathBuf> {
    of_spec::<&str>("tenant", version, output, &[])
}

fn of_spec<A: AsRef<OsStr>>(spec: &str, version: &str, output: &Path, arguments: &[A]) -> anyhow::Result<PathBuf> {
    let mut build = Command::new(kaas_dev());
    run(build.args(["image", "build", "--uncompressed", "--version", version]).args(arguments), spec, output)
}

/// The image that upgrades are tried from, as [`build`] does. Fails without the sources of the earlier commit.
pub fn build_earlier(output: &Path) -> anyhow::Result<PathBuf> {
    let mut build = Command::new(workspace().join(".ci/earlier"));
    run(build.arg(kaas_dev()).args(["image", "build"]), "control-plane", output)
}

fn run(build: &mut Command, spec: &str, output: &Path) -> anyhow::Result<PathBuf> {
    build.args(["--output", "json", "--to-directory"]).arg(output);
    build.arg(workspace().join(format!("image/specs/{spec}.toml")));
    let built = build.output().context("starting the build")?;
    ensure!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let report: Value = serde_json::from_slice(&built.stdout).context("reading the build's report")?;
    Ok(Path::new(report["ova"].as_str().context("a report without an OVA")?).to_owned())
}
