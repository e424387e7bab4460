//! Licence texts of what is linked into the image's programs. Debian's packages bring theirs (/usr/share/doc).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

/// The texts' place in the image.
pub const PLACE: &str = "usr/share/licenses/kaas/LICENCES.txt";

/// A part with the licence texts that it brings.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Licensed {
    /// Its name: a module's path or a crate's name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// SPDX expression, as it declares or as its text shows.
    pub licence: Option<String>,
    /// Its sum in the lock file of its language.
    pub sum: Option<String>,
    /// The texts.
    pub texts: Vec<String>,
}

/// How names of files with licences begin.
const NAMES: [&str; 7] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE", "PATENTS"];
/// Directories whose files are not linked.
const NOT_LINKED: [&str; 6] = ["testdata", "vendor", "tests", "test", "examples", "LICENSES"];

/// Reads the licence texts in the directory of a part. Without a declared licence that of its own first text counts, if
/// it is a common one.
///
/// # Errors
/// When a file cannot be read.
pub fn of_directory(
    directory: &Path,
    name: &str,
    version: &str,
    licence: Option<String>,
    sum: Option<String>,
) -> Result<Licensed> {
    let mut texts = Vec::new();
    let mut own = None;
    let is_linked = |entry: &walkdir::DirEntry| {
        let name = entry.file_name().to_string_lossy();
        entry.depth() == 0
            || !entry.file_type().is_dir()
            || !NOT_LINKED.contains(&&*name) && !name.starts_with(['.', '_'])
    };
    for entry in walkdir::WalkDir::new(directory).sort_by_file_name().into_iter().filter_entry(is_linked) {
        let entry = entry.with_context(|| format!("reading {}", directory.display()))?;
        let file = entry.file_name().to_string_lossy().to_uppercase();
        let source = [".GO", ".RS", ".S", ".C", ".H", ".PY", ".SH", ".TOML", ".YAML", ".TMPL"]
            .iter()
            .any(|end| file.ends_with(end));
        if !entry.file_type().is_file() || source || !NAMES.iter().any(|name| file.starts_with(name)) {
            continue;
        }
        let bytes = std::fs::read(entry.path()).with_context(|| format!("reading {}", entry.path().display()))?;
        let text = String::from_utf8_lossy(&bytes).replace('\r', "");
        if entry.depth() == 1 && own.is_none() {
            own = common(&text).map(str::to_owned);
        }
        texts.push(text.trim_end().to_owned());
    }
    texts.sort();
    texts.dedup();
    Ok(Licensed { name: name.to_owned(), version: version.to_owned(), licence: licence.or(own), sum, texts })
}

/// The SPDX name of a common licence's text.
fn common(text: &str) -> Option<&'static str> {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let has = |part: &str| words.contains(part);
    if has("Apache License Version 2.0") {
        Some("Apache-2.0")
    } else if has("Mozilla Public License Version 2.0") || has("Mozilla Public License, version 2.0") {
        Some("MPL-2.0")
    } else if has("Permission is hereby granted, free of charge, to any person obtaining a copy") {
        Some("MIT")
    } else if has(
        "Permission to use, copy, modify, and/or distribute this software for any purpose with or without fee",
    ) {
        Some("ISC")
    } else if has("Redistribution and use in source and binary forms") {
        let third = has("may be used to endorse or promote products") || has("endorse or promote products derived");
        Some(if third { "BSD-3-Clause" } else { "BSD-2-Clause" })
    } else {
        None
    }
}

/// A part that brings no licence text.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exception {
    names: Vec<String>,
    reason: String,
    /// A file of the directory that holds the text in its place.
    text: Option<String>,
}

#[derive(Default, Deserialize)]
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
    let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let exceptions: Exceptions = toml::from_str(&text).with_context(|| format!("reading {}", path.display()))?;
    let mut by_text: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut missing = BTreeSet::new();
    for part in parts {
        let shown = format!("{} {}", part.name, part.version);
        for text in &part.texts {
            by_text.entry(text.clone()).or_default().insert(shown.clone());
        }
        if !part.texts.is_empty() {
            continue;
        }
        let Some(exception) = exceptions.without.iter().find(|exception| exception.names.contains(&part.name)) else {
            missing.insert(shown);
            continue;
        };
        let declared = part.licence.as_deref().unwrap_or("no declared licence");
        let mut text = format!("{}\nDeclared licence: {declared}", exception.reason);
        if let Some(file) = &exception.text {
            let file = directory.join(file);
            let read = std::fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
            let _ = write!(text, "\n\n{}", read.trim_end());
        }
        by_text.entry(text).or_default().insert(shown);
    }
    if !missing.is_empty() {
        let missing = missing.into_iter().collect::<Vec<_>>().join(", ");
        bail!("no licence text in the sources of {missing}: add each to {} with a reason", path.display());
    }
    let line = "=".repeat(80);
    let mut document = format!(
        "Licences of the appliance and of what its programs link.\nDebian's packages: /usr/share/doc/*/copyright\n\n{line}\nkaas\n\n{}\n",
        own.trim_end()
    );
    let mut sections: Vec<_> = by_text.into_iter().map(|(text, names)| (names, text)).collect();
    sections.sort();
    for (names, text) in sections {
        let names = names.into_iter().collect::<Vec<_>>().join("\n");
        let _ = write!(document, "\n{line}\n{names}\n\n{text}\n");
    }
    Ok(document)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn each_text_is_in_the_document_once() {
        let directory = tempfile::tempdir().unwrap();
        let part = directory.path().join("part");
        for (file, text) in [
            ("LICENSE", "Permission is hereby granted, free of charge, to any person\nobtaining a copy"),
            ("third_party/Copying.md", "other"),
            ("license.go", "package x"),
            ("vendor/LICENSE", "no"),
            ("testdata/LICENSE", "no"),
        ] {
            fs::create_dir_all(part.join(file).parent().unwrap()).unwrap();
            fs::write(part.join(file), text).unwrap();
        }
        let read = |name: &str| of_directory(&part, name, "v1", None, None).unwrap();
        let (one, two) = (read("a.org/a"), read("b.org/b"));
        assert_eq!((one.licence.as_deref(), one.texts.len()), (Some("MIT"), 2), "{:?}", one.texts);
        fs::write(directory.path().join("licences.toml"), "").unwrap();
        let made = document("own text", &[two.clone(), one.clone()], directory.path()).unwrap();
        assert_eq!(made, document("own text", &[one.clone(), two], directory.path()).unwrap());
        assert_eq!(made.matches("Permission is hereby granted").count(), 1);
        assert!(made.contains("a.org/a v1\nb.org/b v1\n\nother\n") && made.contains("kaas\n\nown text\n"), "{made}");
    }

    #[test]
    fn a_part_without_a_text_needs_an_exception() {
        let directory = tempfile::tempdir().unwrap();
        let bare = Licensed {
            name: "bare".to_owned(),
            version: "1".to_owned(),
            licence: Some("MIT".to_owned()),
            sum: None,
            texts: Vec::new(),
        };
        let list = directory.path().join("licences.toml");
        fs::write(&list, "").unwrap();
        let error = document("", std::slice::from_ref(&bare), directory.path()).unwrap_err().to_string();
        assert!(error.contains("no licence text in the sources of bare 1"), "{error}");
        fs::write(&list, "[[without]]\nnames = [\"bare\"]\nreason = \"none in the archive\"\ntext = \"MIT.txt\"\n")
            .unwrap();
        assert!(document("", std::slice::from_ref(&bare), directory.path()).is_err());
        fs::write(directory.path().join("MIT.txt"), "the text\n").unwrap();
        let made = document("", &[bare], directory.path()).unwrap();
        assert!(made.contains("bare 1\n\nnone in the archive\nDeclared licence: MIT\n\nthe text\n"), "{made}");
    }
}
