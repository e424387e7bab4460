//! An image of another version: the root tree of the OVA under test with another
//! description, for system containers.

use std::fs;

use anyhow::Context;
use lab::Source;
use serde_json::Value;

use crate::scenario::image_under_test;

/// A root tree like that of the image under test, whose image calls itself by this version and has a build of its own.
pub struct OtherImage {
    directory: tempfile::TempDir,
    /// The image's version.
    pub version: String,
    /// Its build identifier.
    pub build: String,
}

impl OtherImage {
    /// Makes it beside the one under test: files are shared by hard links. It must outlive the
    /// scenario that it is used in.
    ///
    /// # Panics
    /// The tree cannot be made.
    pub fn make(version: &str) -> Self {
        Self::try_make(version).unwrap_or_else(|error| panic!("making an image {version}: {error:#}"))
    }

    fn try_make(version: &str) -> anyhow::Result<Self> {
        let tree = image_under_test()?.tree();
        let beside = tree.parent().context("the root tree has no directory above it")?;
        let directory = tempfile::Builder::new().prefix("other-image-").tempdir_in(beside)?;
        let other = directory.path().join("root");
        let copied = std::process::Command::new("cp").args(["--archive", "--link"]).arg(&tree).arg(&other).status()?;
        anyhow::ensure!(copied.success(), "cp ended with {copied}");
        let path = other.join("usr/lib/kaas/image.json");
        let mut image: Value = serde_json::from_slice(&fs::read(&path)?).context("reading image.json")?;
        let build: String = image["build"].as_str().context("an image without a build")?.chars().rev().collect();
        image["version"] = version.into();
        image["build"] = build.as_str().into();
        // The link goes before the file, which the other tree has as well, is written.
        fs::remove_file(&path)?;
        fs::write(&path, serde_json::to_vec_pretty(&image)?)?;
        Ok(Self { directory, version: version.to_owned(), build })
    }

    /// What VMs of it are made from.
    pub fn source(&self) -> Source {
        Source::Tree { tree: self.directory.path().join("root") }
    }
}
