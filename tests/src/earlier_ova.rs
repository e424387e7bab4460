//! The image that upgrades are tried from: an earlier version than the one under test, with
//! an earlier patch of Kubernetes. `make test` has built it before the scenarios; then the build
//! cache has all of it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, ensure};
use fleet::lab::Source;
use serde_json::Value;

use crate::scenario::{kaas, unpacked, workspace};

/// Its version.
pub const VERSION: &str = "0.0.9";
/// Its Kubernetes components.
const KUBERNETES: [&str; 2] = ["kubernetes-1-36-2", "kubernetes-1-35"];
/// Where `make test` puts it.
const FOLDER: &str = "build/earlier";

/// What VMs of it are made from.
///
/// # Panics
/// It cannot be built.
pub fn source() -> Source {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let built = || build().unwrap_or_else(|error| panic!("building an OVA {VERSION}: {error:#}"));
    unpacked(BUILT.get_or_init(built)).unwrap_or_else(|error| panic!("unpacking an OVA {VERSION}: {error:#}"))
}

fn build() -> anyhow::Result<PathBuf> {
    let workspace = workspace();
    let mut build = Command::new(kaas());
    build.args(["image", "build", "--version", VERSION, "--report", "json"]);
    build.args(KUBERNETES.map(|component| format!("--kubernetes={component}")));
    build.arg("--output").arg(workspace.join(FOLDER)).arg(workspace.join("image/specs/control-plane.toml"));
    let built = build.output().context("starting the build")?;
    ensure!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let report: Value = serde_json::from_slice(&built.stdout).context("reading the build's report")?;
    Ok(Path::new(report["ova"].as_str().context("a report without an OVA")?).to_owned())
}
