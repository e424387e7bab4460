//! A spec's own text and those of the files that it includes. Knows nothing of what is in them besides
//! `include = ["FILE", …]`.
//!
//! All of them are read as one document, an included file before the one that includes it. What a spec *stands on* is
//! the first file that it includes, and what that one stands on: each of these has its packages locked beside it. What
//! further included files bring belongs to the file that includes them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::check;
use crate::document::{Document, Mistakes};

/// The texts that a spec is read from.
#[derive(Debug, Default)]
pub struct Texts {
    texts: Vec<Text>,
    /// The files that stand on each other, the spec last.
    layers: Vec<PathBuf>,
    known: BTreeSet<PathBuf>,
}

#[derive(Debug)]
struct Text {
    file: PathBuf,
    text: String,
    layer: usize,
}

impl Texts {
    /// Reads a spec and all that it includes.
    ///
    /// # Errors
    /// [`Mistakes`] when an included file is not there or included already, or a text is no TOML; another error when a
    /// file cannot be read.
    pub fn load(spec: &Path) -> Result<Self> {
        let mut texts = Self::default();
        texts.add(spec, None)?;
        Ok(texts)
    }

    /// Adds a file: to this layer, or as one that others stand on.
    fn add(&mut self, file: &Path, layer: Option<usize>) -> Result<()> {
        let text = fs::read_to_string(file).with_context(|| format!("reading the spec {}", file.display()))?;
        self.known.insert(file.canonicalize().with_context(|| format!("finding {}", file.display()))?);
        let document = Document::new(file, &text);
        let included = document.read(|top| {
            top.pass_over_others();
            Some(top.paths("include", check::file))
        })?;
        let mut own = layer;
        for (index, include) in included.iter().enumerate() {
            let path = &include.value;
            if self.known.contains(&path.canonicalize().with_context(|| format!("finding {}", path.display()))?) {
                let mistake = document.mistake(include, format!("{} is included already", path.display()));
                return Err(Mistakes(vec![mistake]).into());
            }
            if index == 0 && layer.is_none() {
                self.add(path, None)?;
            } else {
                let own = *own.get_or_insert_with(|| self.layer(file));
                self.add(path, Some(own))?;
            }
        }
        let layer = own.unwrap_or_else(|| self.layer(file));
        self.texts.push(Text { file: file.to_owned(), text, layer });
        Ok(())
    }

    fn layer(&mut self, file: &Path) -> usize {
        self.layers.push(file.to_owned());
        self.layers.len() - 1
    }

    pub fn document(&self) -> Document<'_> {
        Document::joined(self.texts.iter().map(|text| (text.file.as_path(), text.text.as_str())).collect())
    }

    /// The files that stand on each other, the spec last.
    pub fn layers(&self) -> &[PathBuf] {
        &self.layers
    }

    /// To which of [`Texts::layers`] the document's file of this number belongs.
    pub fn layer_of(&self, file: usize) -> usize {
        self.texts[file].layer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Layers, and texts in their order with the layer of each.
    type Loaded = (Vec<String>, Vec<(String, usize)>);

    /// What `spec.toml` stands on, or what is wrong, without the name of the directory.
    fn load(files: &[(&str, &str)]) -> Result<Loaded, String> {
        let directory = tempfile::tempdir().unwrap();
        for (name, include) in files {
            fs::write(directory.path().join(name), format!("{include}\nother = 1\n")).unwrap();
        }
        let name = |path: &Path| path.strip_prefix(directory.path()).unwrap().to_str().unwrap().to_owned();
        match Texts::load(&directory.path().join("spec.toml")) {
            Ok(texts) => Ok((
                texts.layers.iter().map(|path| name(path)).collect(),
                texts.texts.iter().map(|text| (name(&text.file), text.layer)).collect(),
            )),
            Err(error) => Err(format!("{error:#}").replace(&format!("{}/", directory.path().display()), "")),
        }
    }

    #[test]
    fn a_spec_stands_on_what_it_includes_first() {
        let (layers, texts) = load(&[
            ("spec.toml", "include = [\"tenant.toml\", \"site.toml\"]"),
            ("tenant.toml", "include = [\"common.toml\"]"),
            ("common.toml", ""),
            ("site.toml", "include = [\"ours.toml\"]"),
            ("ours.toml", ""),
        ])
        .unwrap();
        assert_eq!(layers, ["common.toml", "tenant.toml", "spec.toml"]);
        let expected = [("common.toml", 0), ("tenant.toml", 1), ("ours.toml", 2), ("site.toml", 2), ("spec.toml", 2)];
        assert_eq!(texts, expected.map(|(name, layer)| (name.to_owned(), layer)));
    }

    #[test]
    fn a_file_that_is_not_there_or_included_twice_is_named_where_it_is_included() {
        for (files, expected) in [
            (
                &[("spec.toml", "\ninclude = [\n  \"a.toml\",\n]")][..],
                "spec.toml:3: include[0]: there is no file a.toml",
            ),
            (
                &[
                    ("spec.toml", "include = [\"a.toml\", \"b.toml\"]"),
                    ("a.toml", "include = [\"b.toml\"]"),
                    ("b.toml", ""),
                ],
                "spec.toml:1: include[1]: b.toml is included already",
            ),
            (
                &[("spec.toml", "include = [\"a.toml\"]"), ("a.toml", "\ninclude = [\"./spec.toml\"]")],
                "a.toml:2: include[0]: spec.toml is included already",
            ),
        ] {
            let error = load(files).unwrap_err();
            assert!(error.ends_with(&format!("\n  {expected}")), "{error}");
        }
    }
}
