//! Debian root trees from locked packages. Knows nothing of what the tree
//! becomes.

pub mod bootstrap;
pub mod changes;
pub mod fetch;
pub mod lock;
pub mod mirrors;
pub mod resolve;
pub mod sources;

use crate::cache::hex;
use crate::document::{Located, Table};
use sha2::{Digest, Sha256};

/// The packages a root tree is made of, as a spec asks for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackageSet {
    /// Debian's release, by code name.
    pub suite: String,
    /// Names of packages; their dependencies and the essential packages come along.
    pub packages: Vec<String>,
    /// The kernel's package: unpacked beside the tree, not installed.
    pub kernel: Option<String>,
}

impl PackageSet {
    /// Reads the table `[debian]` of a spec, or one like it.
    pub fn read(table: &Table<'_, '_>, kernel: Option<String>) -> Self {
        let suite = table.required_text("suite", "the code name of Debian's release, such as trixie");
        check_name(table, &suite);
        let packages = table.required_texts("packages", "the names of the packages");
        for package in &packages {
            check_name(table, package);
        }
        let packages = packages.into_iter().map(|package| package.value).collect();
        Self { suite: suite.value, packages, kernel }
    }

    /// A digest of what is asked for, by which a lock file knows its spec.
    pub fn request(&self) -> String {
        let mut packages = self.packages.clone();
        packages.sort();
        let text = format!("{}\n{}\n{}", self.suite, packages.join(" "), self.kernel.as_deref().unwrap_or_default());
        hex(&Sha256::digest(text.as_bytes()))
    }
}

/// Names in Debian: lower case, digits, `+`, `-`, `.` (Debian Policy, 5.6.1).
pub fn check_name(table: &Table<'_, '_>, name: &Located<String>) {
    let fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "+-.".contains(c);
    if !name.value.chars().all(fine) {
        table.mistake(name, format!("`{}` is no name in Debian: lower case, digits, +, - and . only", name.value));
    }
}
