//! Errors of reading and writing a disk.

use std::io;
use std::path::PathBuf;

/// The reason why a VMDK was not written or not read.
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
    /// The stream that a VMDK is read from failed.
    #[error("reading the VMDK at byte {offset}: {source}")]
    Stream {
        /// Bytes that were read before.
        offset: u64,
        /// The stream's error.
        source: io::Error,
    },
    /// A raw image that cannot become a VMDK.
    #[error("{} cannot become a VMDK: {reason}", path.display())]
    Source {
        /// The raw image.
        path: PathBuf,
        /// The reason, and the remedy.
        reason: String,
    },
    /// A file that breaks the format's rules, or ends too early.
    #[error("the VMDK cannot be read at byte {offset}: {reason}; obtain it again")]
    Damaged {
        /// The position in the file, in bytes.
        offset: u64,
        /// The rule that is broken there.
        reason: String,
    },
    /// A file of another kind than streamOptimized, or of a later version.
    #[error("this file is not a streamOptimized VMDK that can be read: {reason}; convert it to streamOptimized first")]
    Unsupported {
        /// The difference.
        reason: String,
    },
}

impl Error {
    pub(super) fn file(attempt: &'static str, path: &std::path::Path) -> impl FnOnce(io::Error) -> Error {
        let path = path.to_path_buf();
        move |source| Error::File { attempt, path, source }
    }

    pub(super) fn damaged(offset: u64, reason: impl Into<String>) -> Error {
        Error::Damaged { offset, reason: reason.into() }
    }
}
