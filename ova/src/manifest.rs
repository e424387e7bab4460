//! The manifest: a SHA-256 digest for each file of an OVF package.
//!
//! Source: DSP0243 1.1 §5.1. Lines are exactly `SHA256(name)= hex`, as
//! importers compare them: no space before `(`, one after `=`. The manifest
//! lists the descriptor and the disks, not itself and not the signature.

use std::fmt;

use crate::Sha256;
use crate::digest::Digest;
use crate::name::{self, InvalidName};

/// A limit of files. No package has as many.
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
        /// Its text, shortened.
        text: String,
    },
    /// Digests of another kind.
    #[error("line {line} of the manifest has a digest of the kind {algorithm}, which is not accepted")]
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

    /// Adds a file. Fails if the name is invalid, or already listed.
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
    pub fn parse(text: &str) -> Result<Manifest, Error> {
        let LenientManifest { entries, inexact } = LenientManifest::parse(text)?;
        let mut manifest = Manifest::new();
        inexact.map_or(Ok(()), Err)?;
        for (line, (name, digest)) in (1..).zip(entries) {
            let algorithm = digest.algorithm;
            let other = || Error::Algorithm { line, algorithm: format!("{algorithm:?}") };
            manifest.add(&name, digest.sha256().ok_or_else(other)?)?;
        }
        Ok(manifest)
    }
}

/// The manifest of a package of any vendor, with the digests and the forms of lines that vendors write.
///
/// VirtualBox and `sha256sum --tag` write `SHA1 (name) = digest`, others `SHA2-256(name)= digest`; some tools leave lines
/// empty. vCenter refuses all of these. A name has any characters, `)` included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LenientManifest {
    entries: Vec<(String, Digest)>,
    /// The first line that is not exactly of the form that vCenter accepts, as an error.
    pub(crate) inexact: Option<Error>,
}

impl LenientManifest {
    pub(crate) fn parse(text: &str) -> Result<LenientManifest, Error> {
        let mut manifest = LenientManifest { entries: Vec::new(), inexact: None };
        for (number, line) in (1..).zip(text.lines()) {
            let wrong = || Error::Form { line: number, text: line.chars().take(80).collect() };
            if line.trim().is_empty() {
                manifest.inexact.get_or_insert_with(wrong);
                continue;
            }
            let (algorithm, rest) = line.split_once('(').ok_or_else(wrong)?;
            let (front, digest) = rest.rsplit_once('=').ok_or_else(wrong)?;
            let name = front.trim_end().strip_suffix(')').ok_or_else(wrong)?;
            let (algorithm, digest) = (algorithm.trim(), digest.trim());
            if algorithm.starts_with("SHA2-") || line != format!("{algorithm}({name})= {digest}") {
                manifest.inexact.get_or_insert_with(wrong);
            }
            let unknown = || Error::Algorithm { line: number, algorithm: algorithm.chars().take(80).collect() };
            let algorithm = Digest::algorithm(algorithm).ok_or_else(unknown)?;
            let digest = Digest::parse(algorithm, digest).ok_or_else(wrong)?;
            name::check_relative(name)?;
            if manifest.entries.len() == MOST_FILES {
                return Err(Error::TooMany);
            }
            if manifest.digest(name).is_some() {
                return Err(Error::Twice { name: name.into() });
            }
            manifest.entries.push((name.into(), digest));
        }
        if manifest.entries.is_empty() { Err(Error::Empty) } else { Ok(manifest) }
    }

    /// The digest of the file `name`, if it is listed.
    pub(crate) fn digest(&self, name: &str) -> Option<&Digest> {
        self.entries.iter().find(|(listed, _)| listed == name).map(|(_, digest)| digest)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|(name, _)| name.as_str())
    }

    /// Whether an algorithm is used that allows two files with the same digest.
    pub(crate) fn is_weak(&self) -> bool {
        self.entries.iter().any(|(_, digest)| digest.is_weak())
    }
}

/// Writes the text of the manifest's file.
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
            (format!("{good}\n\n{}", good.replace("a.ovf", "b.ovf")), "line 2"),
            (format!("{good}\n\n"), "line 2"),
            (format!(" {good}"), "line 1"),
            (
                format!("{good}\nSHA1(b.ovf)= {}", "a".repeat(40)),
                "line 2 of the manifest has a digest of the kind SHA1",
            ),
            (good.replace("a.ovf", "ä.ovf"), "\"ä.ovf\""),
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

    #[test]
    fn vendors_forms_and_digests_are_read() {
        let (sha1, sha512) = ("a9".repeat(20), "dd".repeat(64));
        let text = format!(
            "SHA512(a.ovf)= {sha512}\nSHA1 (Kali (Workshop)-disk1.vmdk) = {sha1}\r\n\nSHA256(dir/a=b)= {}\n",
            ABC.to_uppercase()
        );
        let manifest = LenientManifest::parse(&text).unwrap();
        let listed = |name: &str| manifest.digest(name).map(ToString::to_string);
        assert_eq!(listed("a.ovf"), Some(sha512.clone()));
        assert_eq!(listed("Kali (Workshop)-disk1.vmdk"), Some(sha1.clone()));
        assert_eq!(listed("dir/a=b"), Some(ABC.into()));
        assert!(manifest.is_weak() && manifest.inexact.unwrap().to_string().contains("line 2"));
        let exact = Manifest::parse(&format!("SHA256(a.ovf)= {ABC}\n")).unwrap();
        let lenient = LenientManifest::parse(&exact.to_string()).unwrap();
        assert_eq!((lenient.inexact.is_none(), lenient.is_weak()), (true, false));
        for (line, exact) in [
            (format!("SHA256(a)= {ABC}"), true),
            (format!("SHA512(a b)= {sha512}\r\n"), true),
            (format!("SHA256 (a) = {ABC}"), false),
            (format!("SHA256 (a)= {ABC}"), false),
            (format!("SHA256(a) = {ABC}"), false),
            (format!("SHA256(a)={ABC}"), false),
            (format!("SHA2-256(a)= {ABC}"), false),
            (format!("SHA2-512(a)= {sha512}"), false),
            (format!("SHA256(a)= {ABC}\n\n"), false),
        ] {
            assert_eq!(LenientManifest::parse(&line).unwrap().inexact.is_none(), exact, "{line}");
        }
        for (text, expected) in [
            (format!("MD5(a)= {}", "a".repeat(32)), "kind MD5"),
            (format!("SHA1(a)= {sha1}0"), "line 1"),
            (format!("SHA256(a)= {sha1}"), "line 1"),
            (format!("SHA1 a = {sha1}"), "line 1"),
            (format!("SHA1(a = {sha1}"), "line 1"),
            (format!("SHA1(../a)= {sha1}"), "\"../a\""),
            (format!("SHA1(a)= {sha1}\nSHA1(a)= {sha1}"), "twice"),
            ("\n".into(), "no file"),
        ] {
            let error = LenientManifest::parse(&text).expect_err(&text).to_string();
            assert!(error.contains(expected), "{expected:?} is not in {error:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(?s)(SHA256\\(a\\)= )?.{0,100}") {
            let _ = Manifest::parse(&text);
        }

        #[test]
        fn vendors_texts_are_read_or_refused(text in "(?s)(SHA(1|256|512) ?\\(.{0,9}\\) ?= ?[0-9a-f]{40}\r?\n)?.{0,100}") {
            if let Ok(manifest) = LenientManifest::parse(&text) {
                proptest::prop_assert!(manifest.names().all(|name| manifest.digest(name).is_some()));
            }
        }
    }
}
