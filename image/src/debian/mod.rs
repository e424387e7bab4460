//! Debian root trees from locked packages. Independent of the use of the tree.

pub mod bootstrap;
pub mod changes;
pub mod fetch;
pub mod layers;
pub mod lock;
pub mod mirrors;
pub mod resolve;
pub mod sources;

use std::path::Path;

use sha2::{Digest, Sha256};

use crate::cache::hex;
use crate::document::{Document, Mistakes, Table, values};

/// The packages of a root tree, as a spec requests them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackageSet {
    /// Debian's release, by code name.
    pub suite: String,
    /// Names of packages. Their dependencies and the essential packages are added.
    pub packages: Vec<String>,
    /// The kernel's package: unpacked separately, not installed.
    pub kernel: Option<String>,
}

impl PackageSet {
    /// Reads a table, without a kernel.
    pub fn read(table: &Table<'_, '_>) -> Option<Self> {
        let suite = table.required("suite", "the code name of Debian's release, such as trixie", name);
        let packages = table.required_texts("packages", "the names of the packages", name);
        Some(Self { suite: suite?, packages: values(packages), kernel: None })
    }

    /// Reads a document that has only a table `[debian]`.
    pub fn read_bare(file: &Path, text: &str) -> Result<Self, Mistakes> {
        Document::new(file, text).read(|top| top.table("debian", Self::read))
    }

    /// A digest of the request. A lock file identifies its spec by it.
    pub fn request(&self) -> String {
        let mut packages = self.packages.clone();
        packages.sort();
        let text = format!("{}\n{}\n{}", self.suite, packages.join(" "), self.kernel.as_deref().unwrap_or_default());
        hex(&Sha256::digest(text.as_bytes()))
    }
}

/// Names in Debian: lower case, digits, `+`, `-`, `.` (Debian Policy, 5.6.1).
pub fn name(text: &str) -> Result<String, String> {
    let fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "+-.".contains(c);
    if !text.chars().all(fine) {
        return Err(format!("`{text}` is no name in Debian: lower case, digits, +, - and . only"));
    }
    Ok(text.to_owned())
}
