//! An image that says something else of itself: the root tree of an OVA under test with another description, for system
//! containers.

use std::fs;

use anyhow::Context;
use fleet::find_ova_of;
use lab::Source;
use serde_json::{Value, json};

use crate::places::named_ova;
use crate::scenario::{image_under_test, unpacked};

/// A root tree like that of the image under test, with this version and another build identifier in its description.
pub struct OtherImage {
    directory: tempfile::TempDir,
    pub version: String,
    pub build: String,
}

impl OtherImage {
    /// Creates it next to the tree under test: files are shared by hard links. It must outlive the scenario.
    pub fn make(version: &str) -> Self {
        let made = image_under_test().and_then(|source| Self::try_make(&source, version, |_| {}));
        made.unwrap_or_else(|error| panic!("making an image {version}: {error:#}"))
    }

    /// The same of the tenants' image, with this version of Kubernetes only.
    pub fn of_tenants(version: &str, kubernetes: &str) -> Self {
        let minor = kubernetes.rsplit_once('.').map_or(kubernetes, |(minor, _)| minor);
        let carries = |image: &mut Value| image["kubernetes"] = json!([{"minor": minor, "version": kubernetes}]);
        let source = find_ova_of(&named_ova(), "kaas-tenant").and_then(|ova| unpacked(&ova));
        let made = source.and_then(|source| Self::try_make(&source, version, carries));
        made.unwrap_or_else(|error| panic!("making an image with Kubernetes {kubernetes}: {error:#}"))
    }

    fn try_make(source: &Source, version: &str, change: impl FnOnce(&mut Value)) -> anyhow::Result<Self> {
        let tree = source.tree();
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
        change(&mut image);
        // The link goes before the file, which the other tree has as well, is written.
        fs::remove_file(&path)?;
        fs::write(&path, serde_json::to_vec_pretty(&image)?)?;
        Ok(Self { directory, version: version.to_owned(), build })
    }

    /// The source of its VMs.
    pub fn source(&self) -> Source {
        Source::Tree { tree: self.directory.path().join("root") }
    }
}
