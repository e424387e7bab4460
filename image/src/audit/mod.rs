//! Which published advisories concern what an image is made of, and whether each was judged. Each source of advisories
//! is a module; none of them knows the judgements.

mod crates;
mod debian;
mod go;
mod judged;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::SystemTime;

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use crate::cache::Cache;
use crate::component::{self, Component, Source, go_program};
use crate::debian::layers;
use crate::debian::sources::Settings;
use crate::progress::Progress;
use crate::{spec, tools};
use judged::Judgement;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Status {
    #[default]
    Unjudged,
    Expired,
    Judged,
}

/// An advisory that concerns a component. Rows are ordered by these fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Row {
    pub status: Status,
    /// The component; `debian/` and the source package for one of Debian.
    pub component: String,
    /// The advisory's ID in the database that it is from.
    pub id: String,
    /// The affected module or package with its version.
    pub part: String,
    /// The advisory's IDs in other databases.
    pub aliases: Vec<String>,
    /// The first version with a fix, if one exists.
    pub fixed: Option<String>,
    /// The advisory in one line, or the end and the reason of the judgement.
    pub text: String,
}

#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// Parts that were checked, each with the state of its source.
    pub checked: Vec<String>,
    /// Parts that could not be checked, each with the reason.
    pub unchecked: Vec<String>,
    /// The advisories: open ones first.
    pub rows: Vec<Row>,
}

impl Report {
    pub(crate) fn judge(&mut self, judgements: &[Judgement], now: SystemTime) {
        for row in &mut self.rows {
            let accepting = judgements.iter().filter(|judgement| judgement.is_of(row));
            // Of several the one that lasts longest counts: dates compare as texts.
            if let Some(judgement) = accepting.max_by_key(|judgement| &judgement.expires) {
                row.status = if judgement.has_expired(now) { Status::Expired } else { Status::Judged };
                row.text = format!("until {}: {}", judgement.expires, judgement.reason);
            }
        }
        self.rows.sort();
    }

    pub fn count(&self, status: Status) -> usize {
        self.rows.iter().filter(|row| row.status == status).count()
    }

    /// Whether the command fails: on an unjudged advisory, and unless `pinned` on an expired judgement.
    pub fn fails(&self, pinned: bool) -> bool {
        self.count(Status::Unjudged) > 0 || !pinned && self.count(Status::Expired) > 0
    }
}

/// Compares what the images of specs are made of with published advisories; if `pinned`, only with the Go vulnerability
/// database. Pins and judgements are in the directory `audit` next to that of the components.
///
/// # Errors
/// When a spec or a judgement is wrong, a database cannot be reached, or, unless `pinned`, a component is not built.
pub fn run(
    specs: &[PathBuf],
    pinned: bool,
    sources: &Settings,
    now: SystemTime,
    cache: &Cache,
    progress: &Progress,
) -> Result<Report> {
    let mut report = Report::default();
    let mut components: BTreeMap<String, Component> = BTreeMap::new();
    let (mut locks, mut last) = (Vec::new(), None);
    for path in specs {
        let (spec, described) = spec::read(path)?;
        components.extend(crate::used(&spec, &described).map(|component| (component.name.clone(), component.clone())));
        locks.extend(layers::read_locks(&spec.packages.layers, path)?);
        last = Some(spec);
    }
    let spec = last.context("no spec is given")?;
    let directory = spec.components.file.with_file_name("../audit");
    let judgements = judged::read(&directory, now)?;
    // The host may have another Go, or an older one than go.mod asks for.
    let go = component::toolchain::ensure(crate::first_pin(components.values())?, cache, progress)?;
    let database = go::Database::fetch(&directory, &go, progress)?;
    report.rows.extend(database.is_old(now));
    // Without the tools tree no component in C was built.
    let has_tools = !pinned || cache.root().join("tools").is_dir();
    let tools = has_tools.then(|| tools::ensure(sources, cache, progress)).transpose()?;
    for (name, component) in &components {
        let Source::GoModule(module) = &component.source else {
            report.unchecked.push(format!("{name}: it is not built from Go modules"));
            continue;
        };
        if component::build::is_made(component, tools.as_ref(), cache)? {
            let built = component::build::build(component, tools.as_ref(), cache, progress)?;
            report.rows.extend(database.rows(name, &module.go.version, &go_program::of(&built)?));
            report.checked.push(format!("{name} against golang.org/x/vulndb {}", database.version));
        } else {
            ensure!(pinned, "cannot check {name}: it is not built: build the images, then run the command again");
            report.unchecked.push(format!("{name}: it is not built"));
        }
    }
    if pinned {
        report.unchecked.push("crates and Debian packages: run without --pinned".to_owned());
    } else {
        crates::check(&spec.files.workspace, cache, progress, &mut report)?;
        locks.push(tools::shipped()?);
        debian::check(&locks, spec.packages.kernel.as_deref(), sources, cache, progress, &mut report)?;
    }
    report.judge(&judgements, now);
    Ok(report)
}

#[cfg(test)]
mod tests;
