//! Makes the programs of a component, whatever its kind of source.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::{Component, Source, download, go};
use crate::cache::{Cache, Key, Stage, file_digest};
use crate::progress::Progress;

/// Two minors of Kubernetes and a few parts, each in a few versions.
const STAGE: Stage = Stage { name: "components", keep: 24 };

/// A component whose programs are made.
#[derive(Clone, Debug)]
pub struct Built {
    /// What it is.
    pub component: Component,
    /// The folder with its programs and their further names.
    pub folder: PathBuf,
    /// What decided its bytes.
    pub key: Key,
}

/// Makes the programs of a component, or finds them made.
///
/// # Errors
/// When its source is not to be had or does not build.
pub fn build(component: &Component, go_version: &str, cache: &Cache, progress: &Progress) -> Result<Built> {
    let key = key(component, go_version)?;
    let named = format!("components {}", component.name);
    let folder = cache.stage_named(STAGE, &named, &key, progress, |folder| {
        make(component, folder, progress).with_context(|| format!("building {} {}", component.name, component.version))
    })?;
    Ok(Built { component: component.clone(), folder, key })
}

fn key(component: &Component, go_version: &str) -> Result<Key> {
    let key = Key::of(include_str!("build.rs")).text("name", &component.name).text("version", &component.version);
    let key = match &component.source {
        Source::GoModule(module) => {
            let mut module = module.clone();
            let folder = std::mem::take(&mut module.folder);
            key.text("recipe", include_str!("go.rs"))
                .text("go", go_version)
                .text("module", format!("{module:?}"))
                .folder("source", &folder)?
        }
        Source::Url(downloads) => {
            // The digest decides, wherever the file comes from.
            downloads.iter().fold(key, |key, download| {
                let member = download.member.as_deref().unwrap_or_default();
                key.text("download", &download.sha256)
                    .text("member", member)
                    .text("as", format!("{:?}", download.program))
            })
        }
        Source::File(files) => {
            let mut key = key;
            for file in files {
                key = key.file("file", &file.path)?.text("as", format!("{:?}", file.program));
            }
            key
        }
    };
    Ok(key.finish())
}

fn make(component: &Component, folder: &Path, progress: &Progress) -> Result<()> {
    match &component.source {
        Source::GoModule(module) => go::build(module, folder, progress)?,
        Source::Url(downloads) => {
            for download in downloads {
                let temporary = folder.join(".download");
                download::fetch(download, &temporary, &folder.join(&download.program.output))?;
            }
        }
        Source::File(files) => {
            for file in files {
                let place = folder.join(&file.program.output);
                fs::copy(&file.path, &place).with_context(|| format!("copying {}", file.path.display()))?;
                let digest = file_digest(&place)?;
                if let Some(expected) = file.sha256.as_ref().filter(|expected| **expected != digest) {
                    bail!("{} has SHA-256 {digest}, not {expected}", file.path.display());
                }
            }
        }
    }
    for program in component.programs() {
        let place = folder.join(&program.output);
        let executable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&place, executable).with_context(|| format!("making {} executable", place.display()))?;
        for name in &program.names {
            symlink(&program.output, folder.join(name)).with_context(|| format!("naming {name}"))?;
        }
    }
    Ok(())
}

/// The version of the host's Go if one of the components takes it, and nothing otherwise.
///
/// # Errors
/// When Go is needed and not installed.
pub fn go_version(components: &[Component], progress: &Progress) -> Result<String> {
    let needed = components.iter().any(|component| matches!(component.source, Source::GoModule(_)));
    if needed { go::version(progress) } else { Ok(String::new()) }
}
