//! Errors of reading and writing an archive.

use std::io;
use std::path::{Path, PathBuf};

use crate::{InvalidName, manifest, ovf, signature};

/// Why an OVA was not written, or is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system returned an error.
    #[error("{attempt} {}: {source}", path.display())]
    File {
        /// The action that failed, such as "reading".
        attempt: &'static str,
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// A file that cannot be put into the archive.
    #[error("{} cannot go into the archive: {reason}", path.display())]
    Input {
        /// The file.
        path: PathBuf,
        /// The reason, and the remedy.
        reason: String,
    },
    /// The archive breaks the rules of tar or of OVF.
    #[error("{} is not an OVA that can be used, at byte {offset}: {reason}", path.display())]
    Damaged {
        /// The archive.
        path: PathBuf,
        /// The position in the archive, in bytes.
        offset: u64,
        /// The rule that is broken there.
        reason: String,
    },
    /// The files differ from manifest or descriptor.
    #[error("{} {}", path.display(), contents(*damaged, problems))]
    Contents {
        /// The archive.
        path: PathBuf,
        /// Whether a file was changed after it was made: its digest is not that of the manifest.
        damaged: bool,
        /// All problems; never empty.
        problems: Vec<String>,
    },
    /// A name that a file of an OVA cannot have.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// The descriptor is not valid.
    #[error(transparent)]
    InvalidDescriptor(#[from] ovf::InvalidDescriptor),
    /// The descriptor in the archive cannot be read.
    #[error(transparent)]
    Descriptor(#[from] ovf::ParseError),
    /// The manifest in the archive cannot be used.
    #[error(transparent)]
    Manifest(#[from] manifest::Error),
    /// Signing or verifying failed.
    #[error(transparent)]
    Signature(#[from] signature::Error),
    /// There is no signature.
    #[error("{} is not signed; use a signed one, or do without the check", path.display())]
    Unsigned {
        /// The archive.
        path: PathBuf,
    },
}

impl Error {
    pub(super) fn file(attempt: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        let path = path.to_path_buf();
        move |source| Error::File { attempt, path, source }
    }
}

fn contents(damaged: bool, problems: &[String]) -> String {
    let problems = problems.join("; ");
    if damaged {
        format!("is damaged: {problems}; obtain it again")
    } else {
        format!("was made wrongly: {problems}; ask its publisher for another one")
    }
}
