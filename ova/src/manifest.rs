//! The manifest: a SHA-256 digest for each file of an OVF package.
//!
//! Source: DSP0243 1.1 §5.1. Lines are exactly `SHA256(name)= hex`, as
//! importers compare them: no space before `(`, one after `=`. The manifest
//! lists the descriptor and the disks, not itself and not the signature.

use std::fmt;

use crate::Sha256;
use crate::name::{self, InvalidName};

/// More files than any package has.
const MOST_FILES: usize = 1000;

/// The files of a package and their digests, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    entries: Vec<Entry>,
}

/// A file and its digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name in the package.
    pub name: String,
    /// The digest of its bytes.
    pub digest: Sha256,
}

/// Why a manifest cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A line has another form.
    #[error("line {line} of the manifest is {text:?}; lines have the form \"SHA256(name)= digest\"")]
    Form {
        /// Its number, from 1.
        line: usize,
        /// What it says, shortened.
        text: String,
    },
    /// Digests of another kind.
    #[error("line {line} of the manifest has a digest of the kind {algorithm}; only SHA256 is accepted")]
    Algorithm {
        /// Its number, from 1.
        line: usize,
        /// The kind.
        algorithm: String,
    },
    /// A name that no file of a package has.
    #[error("the manifest cannot be used: {0}")]
    Name(#[from] InvalidName),
    /// Two lines for one file.
    #[error("the manifest lists {name:?} twice")]
    Twice {
        /// The file.
        name: String,
    },
    /// It is empty.
    #[error("the manifest lists no file")]
    Empty,
    /// It is longer than any archive.
    #[error("the manifest lists more than {MOST_FILES} files")]
    TooMany,
}

impl Manifest {
    /// A manifest without files.
    pub fn new() -> Manifest {
        Manifest::default()
    }

    /// Adds a file.
    ///
    /// # Errors
    /// When the name does not do, or is there already.
    pub fn add(&mut self, name: &str, digest: Sha256) -> Result<(), Error> {
        name::check(name)?;
        if self.digest(name).is_some() {
            return Err(Error::Twice { name: name.into() });
        }
        self.entries.push(Entry { name: name.into(), digest });
        Ok(())
    }

    /// The files, in order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The digest of the file `name`, if it is listed.
    pub fn digest(&self, name: &str) -> Option<Sha256> {
        self.entries.iter().find(|entry| entry.name == name).map(|entry| entry.digest)
    }

    /// Reads a manifest.
    ///
    /// # Errors
    /// At the first line that is not exactly of the form; or when there are none, or too many.
    pub fn parse(text: &str) -> Result<Manifest, Error> {
        let mut manifest = Manifest::new();
        for (number, line) in text.lines().enumerate() {
            let wrong = || Error::Form { line: number + 1, text: line.chars().take(80).collect() };
            let (algorithm, rest) = line.split_once('(').ok_or_else(wrong)?;
            if ["SHA1", "SHA384", "SHA512", "MD5"].contains(&algorithm.trim_end()) {
                return Err(Error::Algorithm { line: number + 1, algorithm: algorithm.trim_end().into() });
            }
            let (name, digest) = rest.split_once(")= ").ok_or_else(wrong)?;
            let digest = digest.parse().map_err(|_| wrong())?;
            if algorithm != "SHA256" {
                return Err(wrong());
            }
            if manifest.entries.len() == MOST_FILES {
                return Err(Error::TooMany);
            }
            manifest.add(name, digest)?;
        }
        if manifest.entries.is_empty() { Err(Error::Empty) } else { Ok(manifest) }
    }
}

/// The manifest as it stands in its file.
impl fmt::Display for Manifest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.entries.iter().try_for_each(|entry| writeln!(f, "SHA256({})= {}", entry.name, entry.digest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn the_form_is_exact() {
        let mut manifest = Manifest::new();
        manifest.add("a.ovf", Sha256::of(b"abc")).unwrap();
        manifest.add("a disk.vmdk", Sha256::of(b"abc")).unwrap();
        let text = manifest.to_string();
        assert_eq!(text, format!("SHA256(a.ovf)= {ABC}\nSHA256(a disk.vmdk)= {ABC}\n"));
        assert_eq!(Manifest::parse(&text), Ok(manifest));
    }

    #[test]
    fn other_forms_are_refused() {
        let good = format!("SHA256(a.ovf)= {ABC}");
        let cases = [
            (good.replace("SHA256", "SHA2-256"), "line 1"),
            (good.replace("SHA256(", "SHA256 ("), "line 1"),
            (good.replace(")= ", ")="), "line 1"),
            (good.replace(")= ", ") = "), "line 1"),
            (good.replace(")= ", ")=  "), "line 1"),
            (format!("{good}0"), "line 1"),
            (format!("{good}\n\n{good}"), "line 2"),
            (good.replace("SHA256", "SHA1"), "kind SHA1"),
            (format!("{good}\n{good}\n"), "twice"),
            (good.replace("a.ovf", "../a.ovf"), "\"../a.ovf\""),
            (String::new(), "no file"),
            ((0..=1000).map(|number| format!("SHA256({number})= {ABC}\n")).collect(), "more than 1000"),
            ("\u{0}".into(), "line 1"),
        ];
        for (text, expected) in cases {
            let error = Manifest::parse(&text).expect_err(&text).to_string();
            assert!(error.contains(expected), "{expected:?} is not in {error:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(?s)(SHA256\\(a\\)= )?.{0,100}") {
            let _ = Manifest::parse(&text);
        }
    }
}
