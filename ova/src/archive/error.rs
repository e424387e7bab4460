//! What can be wrong with an archive.

use std::io;
use std::path::{Path, PathBuf};

use crate::{InvalidName, manifest, ovf, signature};

/// Why an OVA was not written, or is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused.
    #[error("{attempt} {}: {source}", path.display())]
    File {
        /// What was being done, such as "reading".
        attempt: &'static str,
        /// With which file.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// A file that cannot be put into the archive.
    #[error("{} cannot go into the archive: {reason}", path.display())]
    Input {
        /// The file.
        path: PathBuf,
        /// Why, and what to do.
        reason: String,
    },
    /// The archive breaks the rules of tar or of OVF.
    #[error("{} is not an OVA that can be used, at byte {offset}: {reason}", path.display())]
    Damaged {
        /// The archive.
        path: PathBuf,
        /// Where in it.
        offset: u64,
        /// What is wrong there.
        reason: String,
    },
    /// The files are not what manifest and descriptor say.
    #[error("{} {}", path.display(), contents(*damaged, problems))]
    Contents {
        /// The archive.
        path: PathBuf,
        /// Whether a file was changed since it was made: its digest is not that of the manifest.
        damaged: bool,
        /// All that is wrong; never empty.
        problems: Vec<String>,
    },
    /// A name that does not do.
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
