//! Licence texts of the code that is linked into the image's programs. Debian's packages bring theirs
//! (/usr/share/doc).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

/// Path of the texts in the image.
pub const PLACE: &str = "usr/share/licenses/kaas/LICENCES.txt";

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LicensedPart {
    /// A module's path or a crate's name.
    pub name: String,
    pub version: String,
    /// The SPDX expression that it declares.
    pub licence: Option<String>,
    pub texts: Vec<String>,
}

/// Prefixes of names of licence files.
const NAMES: [&str; 7] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE", "PATENTS"];
/// Suffixes of names of source files, such as `license.go`.
const SOURCES: [&str; 10] = [".GO", ".RS", ".S", ".C", ".H", ".PY", ".SH", ".TOML", ".YAML", ".TMPL"];
/// Directories whose files are not linked.
const NOT_LINKED: [&str; 6] = ["testdata", "vendor", "tests", "test", "examples", "LICENSES"];

/// The licence texts in the directory of a part, sorted.
pub fn of_directory(directory: &Path) -> Result<Vec<String>> {
    let is_linked = |entry: &walkdir::DirEntry| {
        let name = entry.file_name().to_string_lossy();
        let is_left_out = NOT_LINKED.contains(&&*name) || name.starts_with(['.', '_']);
        entry.depth() == 0 || !entry.file_type().is_dir() || !is_left_out
    };
    let mut texts = BTreeSet::new();
    for entry in walkdir::WalkDir::new(directory).into_iter().filter_entry(is_linked) {
        let entry = entry.with_context(|| format!("reading {}", directory.display()))?;
        let name = entry.file_name().to_string_lossy().to_uppercase();
        let is_text =
            NAMES.iter().any(|start| name.starts_with(start)) && !SOURCES.iter().any(|end| name.ends_with(end));
        if entry.file_type().is_file() && is_text {
            let bytes = fs::read(entry.path()).with_context(|| format!("reading {}", entry.path().display()))?;
            texts.insert(String::from_utf8_lossy(&bytes).replace('\r', "").trim_end().to_owned());
        }
    }
    Ok(texts.into_iter().collect())
}

/// A document with each text once, after the names of the parts that bring it. `own` is the text of the appliance,
/// the Apache License 2.0. It also counts for a part that offers this licence and has no text. Another part without a
/// text is an error.
pub fn document<'l>(own: &str, parts: impl Iterator<Item = &'l LicensedPart>) -> Result<String> {
    let own = own.trim_end().to_owned();
    let mut by_text = BTreeMap::from([(&own, BTreeSet::from(["kaas".to_owned()]))]);
    let mut missing = BTreeSet::new();
    for part in parts {
        let shown = format!("{} {}", part.name, part.version);
        let offers = |licence: &String| licence.split(" OR ").any(|offer| offer == "Apache-2.0");
        match &part.texts[..] {
            [] if part.licence.as_ref().is_some_and(offers) => by_text.entry(&own).or_default().insert(shown),
            [] => missing.insert(shown),
            texts => texts.iter().all(|text| by_text.entry(text).or_default().insert(shown.clone())),
        };
    }
    let missing = missing.into_iter().collect::<Vec<_>>().join(", ");
    ensure!(missing.is_empty(), "no licence text in the sources of {missing}: take a version that has one");
    let mut document = "Licences of the appliance and of what its programs link.\n\
                        Debian's packages: /usr/share/doc/*/copyright\n"
        .to_owned();
    let mut sections: Vec<_> = by_text.into_iter().map(|(text, names)| (names, text)).collect();
    sections.sort();
    for (names, text) in sections {
        let names = names.into_iter().collect::<Vec<_>>().join("\n");
        document += &format!("\n{}\n{names}\n\n{text}\n", "=".repeat(80));
    }
    Ok(document)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(name: &str, licence: Option<&str>, texts: Vec<String>) -> LicensedPart {
        LicensedPart { name: name.to_owned(), version: "v1".to_owned(), licence: licence.map(str::to_owned), texts }
    }

    #[test]
    fn each_text_is_in_the_document_once() {
        let directory = tempfile::tempdir().unwrap();
        let sources = directory.path().join("part");
        for (file, text) in [
            ("LICENSE", "the text\r\n\n"),
            ("third_party/Copying.md", "other"),
            ("license.go", "package x"),
            ("vendor/LICENSE", "no"),
            ("testdata/LICENSE", "no"),
        ] {
            fs::create_dir_all(sources.join(file).parent().unwrap()).unwrap();
            fs::write(sources.join(file), text).unwrap();
        }
        let texts = of_directory(&sources).unwrap();
        assert_eq!(texts, ["other", "the text"]);
        let (one, two) = (part("a.org/a", None, texts.clone()), part("b.org/b", None, texts));
        let made = document("own text\n", [&two, &one].into_iter()).unwrap();
        assert_eq!(made, document("own text", [&one, &two].into_iter()).unwrap());
        assert_eq!(made.matches("the text").count(), 1);
        assert!(made.contains("a.org/a v1\nb.org/b v1\n\nother\n") && made.contains("kaas\n\nown text\n"), "{made}");
    }

    #[test]
    fn parts_without_texts_may_offer_the_appliances_licence() {
        let bare = |licence: Option<&str>| document("own", std::iter::once(&part("bare", licence, Vec::new())));
        let made = bare(Some("MIT OR Apache-2.0")).unwrap();
        assert!(made.contains("bare v1\nkaas\n\nown\n"), "{made}");
        for other in [None, Some("MIT"), Some("MIT AND Apache-2.0")] {
            let error = bare(other).unwrap_err().to_string();
            assert!(error.contains("no licence text in the sources of bare v1"), "{error}");
        }
    }
}
