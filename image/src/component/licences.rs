//! The licence texts of the Go modules that are linked into a component: files of the modules, which `go` downloads
//! and compares with go.sum.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

use super::build::Built;
use super::toolchain::{self, Toolchain};
use super::{GoModule, Source, go, go_program};
use crate::cache::{Cache, Key, Stage};
use crate::licences::{self, LicensedPart};
use crate::progress::Progress;

const RESULT: &str = "licences.json";

/// The linked modules of a component with their licence texts, and Go's own. Empty for a component that was not built
/// here.
pub fn of(built: &Built, cache: &Cache, progress: &Progress) -> Result<Vec<LicensedPart>> {
    let Source::GoModule(module) = &built.component.source else { return Ok(Vec::new()) };
    let name = &built.component.name;
    let key = Key::of(Stage::LICENCES).key("component", &built.key).finish();
    let place = cache.stage_named(&format!("licences {name}"), &key, progress, |directory| {
        let licensed = collect(built, module, cache, progress).with_context(|| format!("the licences of {name}"))?;
        fs::write(directory.join(RESULT), serde_json::to_vec(&licensed)?).context("writing the licences")
    })?;
    serde_json::from_slice(&fs::read(place.join(RESULT)).context("reading the licences")?)
        .context("reading the licences")
}

fn collect(built: &Built, module: &GoModule, cache: &Cache, progress: &Progress) -> Result<Vec<LicensedPart>> {
    let programs = go_program::of(built)?;
    let modules: BTreeSet<_> = programs.iter().flat_map(|program| &program.modules).collect();
    let modules: Vec<String> = modules.iter().map(|module| format!("{}@{}", module.path, module.version)).collect();
    let go = toolchain::ensure(&module.go, cache, progress)?;
    let mut found = vec![LicensedPart {
        name: "stdlib".to_owned(),
        version: module.go.version.clone(),
        licence: Some("BSD-3-Clause".to_owned()),
        texts: licences::of_directory(go.root())?,
    }];
    // Without names Go would fetch all modules of the file.
    if !modules.is_empty() {
        let flag = module.modfile.iter().map(|modfile| format!("-modfile={modfile}"));
        for Download { path, version, dir } in download(&go, &module.directory, flag.chain(modules), progress)? {
            found.push(LicensedPart { name: path, version, licence: None, texts: licences::of_directory(&dir)? });
        }
    }
    Ok(found)
}

/// A module in Go's module cache.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Download {
    pub path: String,
    pub version: String,
    pub dir: PathBuf,
}

/// Fetches modules into the module cache, and compares them with the go.sum in a directory.
pub fn download(
    go: &Toolchain,
    directory: &Path,
    arguments: impl IntoIterator<Item = String>,
    progress: &Progress,
) -> Result<Vec<Download>> {
    let go = go::command(go).current_dir(directory);
    let said = go.args(["mod", "download", "-json"]).args(arguments).output(progress).context("fetching modules")?;
    let modules = serde_json::Deserializer::from_slice(&said).into_iter();
    modules.collect::<Result<_, _>>().context("understanding what go mod download says")
}
