//! Rules of a spec's single values.

use std::path::Path;

use semver::{Version, VersionReq};

use crate::document::{Located, Table};

/// A file or folder beside the spec has to be there.
pub(super) fn exists(table: &Table<'_, '_>, at: &Located<String>, path: &Path, folder: bool) {
    let there = if folder { path.is_dir() } else { path.is_file() };
    if !at.value.is_empty() && !there {
        let kind = if folder { "folder" } else { "file" };
        table.mistake(at, format!("there is no {kind} {}", path.display()));
    }
}

/// Names of images and profiles: they become file names and OVF identifiers.
pub(super) fn name(table: &Table<'_, '_>, at: &Located<String>) {
    let fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let fine = at.value.chars().all(fine) && !at.value.starts_with('-') && at.value.len() <= 40;
    if !fine {
        let message = format!("`{}` does not do: lower-case letters, digits and hyphens, at most 40", at.value);
        table.mistake(at, message);
    }
}

/// What to give for a version.
pub(super) const VERSION: &str = "give one such as 1.2.3 or 1.2.3-rc.1";

/// A version of Semantic Versioning, without a build: the image's own is added to it.
pub(super) fn is_version(text: &str) -> bool {
    Version::parse(text).is_ok_and(|version| version.build.is_empty())
}

/// The image's version.
pub(super) fn version(table: &Table<'_, '_>, at: &Located<String>) {
    if !at.value.is_empty() && !is_version(&at.value) {
        table.mistake(at, format!("`{}` is no version: {VERSION}", at.value));
    }
}

/// The versions that an image may take the place of, as Cargo writes requirements.
pub(super) fn upgrades_from(table: &Table<'_, '_>, at: &Located<String>) -> Option<VersionReq> {
    let from = VersionReq::parse(&at.value).ok();
    if from.is_none() {
        table.mistake(at, format!("`{}` names no versions: give them such as >=0.1.0, <1.0.0", at.value));
    }
    from
}

/// One of a few words.
pub(super) fn one_of(table: &Table<'_, '_>, at: &Located<String>, choices: &[&str]) {
    if !at.value.is_empty() && !choices.contains(&at.value.as_str()) {
        table.mistake(at, format!("`{}` is none of {}", at.value, choices.join(", ")));
    }
}

/// A path in the image: absolute, without `.` or `..`.
pub(super) fn image_path(table: &Table<'_, '_>, at: &Located<String>) {
    let whole = at.value.starts_with('/') && at.value.len() > 1 && !at.value.ends_with('/');
    if !whole || at.value[1..].split('/').any(|part| ["", ".", ".."].contains(&part)) {
        table.mistake(at, format!("`{}` is no path in the image: begin with /, without . and ..", at.value));
    }
}

/// One line of printable text.
pub(super) fn line(table: &Table<'_, '_>, at: &Located<String>) {
    if at.value.chars().any(char::is_control) {
        table.mistake(at, "has to be one line of printable text");
    }
}

/// A kernel parameter: no blank outside quotes, nothing that the build sets itself.
pub(super) fn kernel_parameter(table: &Table<'_, '_>, at: &Located<String>) {
    let key = at.value.split('=').next().unwrap_or_default();
    if at.value.is_empty() || at.value.chars().any(|c| c.is_whitespace() || c.is_control()) {
        table.mistake(at, format!("`{}` is no single kernel parameter", at.value));
    } else if ["root", "roothash", "rootfstype", "init", "ro", "rw"].contains(&key) {
        table.mistake(at, format!("`{key}` is set by the build"));
    }
}
