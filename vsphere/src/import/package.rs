//! The OVA of an import.

use std::path::Path;
use std::sync::Arc;

use ova::Sha256;
use ova::archive::Archive;
use ova::manifest::Manifest;

use crate::error::{Error, Result};

/// An OVA whose descriptor matches its manifest. Its other files are checked when they are sent.
#[derive(Debug)]
pub(super) struct Package {
    pub(super) archive: Archive,
    pub(super) descriptor: String,
    manifest: Manifest,
}

impl Package {
    pub(super) async fn open(path: &Path) -> Result<Arc<Self>> {
        let path = path.to_owned();
        let attempt = format!("opening {}", path.display());
        let opened = tokio::task::spawn_blocking(move || Self::read(&path)).await;
        let package = opened.map_err(|error| error.to_string()).and_then(|package| package);
        package.map(Arc::new).map_err(|reason| Error::refused(attempt, reason))
    }

    fn read(path: &Path) -> std::result::Result<Self, String> {
        let archive = Archive::open(path).map_err(|error| error.to_string())?;
        let manifest = archive.manifest().map_err(|error| error.to_string())?;
        let manifest = manifest.ok_or("it has no manifest: nothing says what its files have to be")?;
        let descriptor = archive.descriptor_xml().map_err(|error| error.to_string())?;
        let name = &archive.members()[0].name;
        match manifest.digest(name) {
            Some(digest) if digest == Sha256::of(descriptor.as_bytes()) => Ok(Self { archive, descriptor, manifest }),
            Some(_) => Err(format!("{name} is not what the manifest says: the OVA was changed or is damaged")),
            None => Err(format!("the manifest does not list {name}")),
        }
    }

    /// The size and the digest of a file.
    pub(super) fn file(&self, name: &str) -> std::result::Result<(u64, Sha256), String> {
        let member = self.archive.members().iter().find(|member| member.name == name);
        let size = member.ok_or_else(|| format!("the OVA has no file {name}"))?.size;
        let digest = self.manifest.digest(name).ok_or_else(|| format!("the manifest does not list {name}"))?;
        Ok((size, digest))
    }
}
