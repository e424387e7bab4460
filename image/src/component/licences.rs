//! The licence texts of the Go modules that are linked into a component: files of the modules themselves, as the ordinary
//! client fetches them and compares them with go.sum.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::build::Built;
use super::{GoModule, Source, go, toolchain};
use crate::cache::{Cache, Key, Stage};
use crate::go_program::{self, Module};
use crate::licences::{self, Licensed};
use crate::progress::Progress;

/// The file that keeps the result.
const RESULT: &str = "licences.json";

/// The linked modules of a component with their licence texts, Go's own included. Empty for one that was not built here.
///
/// # Errors
/// When a module cannot be fetched or read.
pub fn of(built: &Built, cache: &Cache, progress: &Progress) -> Result<Vec<Licensed>> {
    let Source::GoModule(module) = &built.component.source else { return Ok(Vec::new()) };
    let name = &built.component.name;
    let mut modules: Vec<Module> = go_program::of(built)?.into_iter().flat_map(|program| program.modules).collect();
    modules.sort();
    modules.dedup();
    let key = Key::of(Stage::LICENCES).key("component", &built.key).finish();
    let place = cache.stage_named(&format!("licences {name}"), &key, progress, |directory| {
        let licensed = collect(module, &modules, cache, progress).with_context(|| format!("the licences of {name}"))?;
        fs::write(directory.join(RESULT), serde_json::to_vec(&licensed)?).context("writing the licences")
    })?;
    serde_json::from_slice(&fs::read(place.join(RESULT)).context("reading the licences")?)
        .context("reading the licences")
}

/// What `go mod download -json` says of one module.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Downloaded {
    path: String,
    version: String,
    dir: PathBuf,
}

fn collect(module: &GoModule, modules: &[Module], cache: &Cache, progress: &Progress) -> Result<Vec<Licensed>> {
    let go = toolchain::ensure(&module.go, cache, progress)?;
    let library = Module { path: "stdlib".to_owned(), version: module.go.version.clone(), sum: None };
    let mut found = vec![licences::of_directory(
        go.root(),
        &library.path,
        &library.version,
        Some("BSD-3-Clause".to_owned()),
        None,
    )?];
    if modules.is_empty() {
        return Ok(found);
    }
    let names = modules.iter().map(|module| format!("{}@{}", module.path, module.version));
    let mut tool = go::command(&go).current_dir(&module.directory).args(["mod", "download", "-json"]);
    if let Some(modfile) = &module.modfile {
        tool = tool.arg(format!("-modfile={modfile}"));
    }
    let said = tool.args(names).output(progress).context("fetching the modules")?;
    let said = serde_json::Deserializer::from_slice(&said).into_iter::<Downloaded>();
    let directories: BTreeMap<(String, String), PathBuf> = said
        .map(|module| module.map(|module| ((module.path, module.version), module.dir)))
        .collect::<Result<_, _>>()
        .context("understanding what go mod download says")?;
    for Module { path, version, sum } in modules {
        let directory = directories
            .get(&(path.clone(), version.clone()))
            .with_context(|| format!("go mod download named no directory of {path} {version}"))?;
        found.push(licences::of_directory(directory, path, version, None, sum.clone())?);
    }
    Ok(found)
}
