//! The texts of a spec and of its included files. Reads only `include = ["FILE", …]` of them.
//!
//! All are read as one document, an included file before the file that includes it. The first included file of a
//! spec, and in turn that file's first, are *layers*: each has a lock of its packages next to it. Further included
//! files belong to the layer of the file that includes them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::check;
use crate::document::{Document, Mistakes};

#[derive(Debug, Default)]
pub struct Texts {
    texts: Vec<Text>,
    /// The files that are layers, the spec last.
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
    /// Reads a spec and all included files.
    ///
    /// # Errors
    /// [`Mistakes`] when an included file is missing or already included, or a text is no TOML. Another error when a
    /// file cannot be read.
    pub fn load(spec: &Path) -> Result<Self> {
        let mut texts = Self::default();
        texts.add(spec, None)?;
        Ok(texts)
    }

    /// Adds a file to this layer, or as a new layer.
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

    pub fn layers(&self) -> &[PathBuf] {
        &self.layers
    }

    /// Index in [`Texts::layers`] of the layer to which the document's file with this index belongs.
    pub fn layer_of(&self, file: usize) -> usize {
        self.texts[file].layer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Layers, and texts in their order with the layer of each.
    type Loaded = (Vec<String>, Vec<(String, usize)>);

    /// Loads `spec.toml`. Returns the layers or the error, without the name of the directory.
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
    fn the_first_included_file_is_a_layer() {
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
    fn missing_and_repeated_includes_are_mistakes() {
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
