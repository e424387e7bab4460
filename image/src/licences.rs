//! Licence texts of what is linked into the image's programs. Debian's packages bring theirs (/usr/share/doc).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

/// The texts' place in the image.
pub const PLACE: &str = "usr/share/licenses/kaas/LICENCES.txt";

/// A part with the licence texts that it brings.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Licensed {
    /// A module's path or a crate's name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The SPDX expression that it declares.
    pub licence: Option<String>,
    /// The texts.
    pub texts: Vec<String>,
}

/// How names of files with licences begin.
const NAMES: [&str; 7] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE", "PATENTS"];
/// How names of sources end, such as `license.go`.
const SOURCES: [&str; 10] = [".GO", ".RS", ".S", ".C", ".H", ".PY", ".SH", ".TOML", ".YAML", ".TMPL"];
/// Directories whose files are not linked.
const NOT_LINKED: [&str; 6] = ["testdata", "vendor", "tests", "test", "examples", "LICENSES"];

/// The licence texts in the directory of a part, sorted.
///
/// # Errors
/// When a file cannot be read.
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

/// Parts that bring no licence text.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Exception {
    names: Vec<String>,
    reason: String,
    /// The file that holds the text in its place, relative to the list.
    text: PathBuf,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Exceptions {
    #[serde(default)]
    without: Vec<Exception>,
}

/// One document with every text once, and in front of it the names of the parts that bring it; `own` is the text of the
/// appliance itself. Parts without a text have to be in the `licences.toml` of `directory`.
///
/// # Errors
/// When a part has neither a text nor an exception; names all such parts.
pub fn document(own: &str, parts: &[Licensed], directory: &Path) -> Result<String> {
    let path = directory.join("licences.toml");
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let exceptions: Exceptions = toml::from_str(&text).with_context(|| format!("reading {}", path.display()))?;
    let mut by_text: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut missing = BTreeSet::new();
    for part in parts {
        let shown = format!("{} {}", part.name, part.version);
        let mut texts = part.texts.clone();
        if texts.is_empty() {
            let Some(exception) = exceptions.without.iter().find(|exception| exception.names.contains(&part.name))
            else {
                missing.insert(shown);
                continue;
            };
            let file = directory.join(&exception.text);
            let text = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
            texts.push(format!("{}\n\n{}", exception.reason, text.trim_end()));
        }
        for text in texts {
            by_text.entry(text).or_default().insert(shown.clone());
        }
    }
    let missing = missing.into_iter().collect::<Vec<_>>().join(", ");
    ensure!(
        missing.is_empty(),
        "no licence text in the sources of {missing}: add each to {} with a reason and a text",
        path.display()
    );
    let mut sections: Vec<_> = by_text.into_iter().map(|(text, names)| (names, text)).collect();
    sections.sort();
    let line = "=".repeat(80);
    let mut document = format!(
        "Licences of the appliance and of what its programs link.\nDebian's packages: /usr/share/doc/*/copyright\n\n{line}\nkaas\n\n{}\n",
        own.trim_end()
    );
    for (names, text) in sections {
        let names = names.into_iter().collect::<Vec<_>>().join("\n");
        document += &format!("\n{line}\n{names}\n\n{text}\n");
    }
    Ok(document)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(name: &str, texts: Vec<String>) -> Licensed {
        Licensed { name: name.to_owned(), version: "v1".to_owned(), licence: None, texts }
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
        let (one, two) = (part("a.org/a", texts.clone()), part("b.org/b", texts));
        fs::write(directory.path().join("licences.toml"), "").unwrap();
        let made = document("own text", &[two.clone(), one.clone()], directory.path()).unwrap();
        assert_eq!(made, document("own text", &[one, two], directory.path()).unwrap());
        assert_eq!(made.matches("the text").count(), 1);
        assert!(made.contains("a.org/a v1\nb.org/b v1\n\nother\n") && made.contains("kaas\n\nown text\n"), "{made}");
    }

    #[test]
    fn a_part_without_a_text_needs_an_exception() {
        let directory = tempfile::tempdir().unwrap();
        let bare = part("bare", Vec::new());
        let list = directory.path().join("licences.toml");
        fs::write(&list, "").unwrap();
        let error = document("", std::slice::from_ref(&bare), directory.path()).unwrap_err().to_string();
        assert!(error.contains("no licence text in the sources of bare v1"), "{error}");
        fs::write(&list, "[[without]]\nnames = [\"bare\"]\nreason = \"none in the archive\"\ntext = \"MIT.txt\"\n")
            .unwrap();
        assert!(document("", std::slice::from_ref(&bare), directory.path()).is_err());
        fs::write(directory.path().join("MIT.txt"), "the text\n").unwrap();
        let made = document("", &[bare], directory.path()).unwrap();
        assert!(made.contains("bare v1\n\nnone in the archive\n\nthe text\n"), "{made}");
    }
}
