//! The container images that the appliance carries, and their import into containerd.
//!
//! The image holds an OCI image layout whose big layers are not stored as blobs. The files of such a layer are in the
//! root already. Therefore the layer is described as segments ([`AssembledLayer`]) and assembled while it is read. An
//! archive of the wanted images is streamed into `ctr`. No data of the size of a layer is ever held in memory or
//! written to a temporary file.
//!
//! This module knows nothing of Kubernetes, of which images are wanted and when.

mod archive;
mod layout;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;

use crate::host::command::{self, Command, LONG, Runner};

pub use layout::Payload;

/// The directory of the payload in the root.
pub const DIRECTORY: &str = "usr/lib/kaas/payload";

/// The label that excludes images from kubelet's garbage collection: they cannot be pulled again from anywhere
/// (containerd `internal/cri/labels`).
const PINNED: &str = "io.cri-containerd.pinned=pinned";

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file of the payload is missing, unreadable or not what it should be.
    #[error("the image payload is damaged: {}: {reason}", path.display())]
    Damaged { path: PathBuf, reason: String },
    /// An image is wanted that the payload does not hold.
    #[error("the image payload holds no {name}; it holds {held}")]
    NotHeld {
        /// The wanted image.
        name: String,
        held: String,
    },
    #[error("bringing images into containerd: {0}")]
    Import(#[from] command::Error),
    #[error("containerd does not hold {0} after its import")]
    NotThere(String),
}

/// The client program of a containerd.
#[derive(Clone, Debug)]
pub struct Containerd {
    /// `ctr`, by name or path.
    pub program: OsString,
    /// Its socket. `None` for the usual one.
    pub address: Option<PathBuf>,
    /// The namespace. `k8s.io` is the one of kubelet's images.
    pub namespace: String,
}

impl Default for Containerd {
    fn default() -> Self {
        Self { program: "ctr".into(), address: None, namespace: "k8s.io".to_owned() }
    }
}

impl Containerd {
    fn images(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        if let Some(address) = &self.address {
            command = command.arg("--address").arg(address);
        }
        command.args(["--namespace", &self.namespace, "images"]).args(arguments.iter().copied())
    }
}

/// Ensures that containerd holds the `wanted` images of the payload, complete, unpacked and safe from garbage
/// collection. Returns the names of those that were imported. After an error, data that containerd has by then stay,
/// and another call completes them.
pub fn ensure(
    payload: &Payload,
    containerd: &Containerd,
    runner: &dyn Runner,
    wanted: &[String],
) -> Result<Vec<String>, Error> {
    let images = payload.select(wanted)?;
    let present = present(containerd, runner)?;
    let missing: Vec<_> = images
        .into_iter()
        .filter(|image| !present.contains(&(image.name.clone(), image.digest().to_owned())))
        .collect();
    if missing.is_empty() {
        return Ok(Vec::new());
    }
    // An unpacked layer counts as complete from then on. Its files must be on the disk by that time, or a power cut
    // leaves empty programs behind for good.
    let import = containerd.images(&["import", "--local", "--sync-fs", "--label", PINNED, "-"]).within(LONG);
    runner.run_fed(&import, &mut |to| archive::write(payload, &missing, to))?;
    let present = self::present(containerd, runner)?;
    let mut brought = Vec::new();
    for image in missing {
        if !present.contains(&(image.name.clone(), image.digest().to_owned())) {
            return Err(Error::NotThere(image.name.clone()));
        }
        brought.push(image.name.clone());
    }
    Ok(brought)
}

/// Names and digests of the images that are complete and unpacked. The columns of `ctr images check` are REF TYPE
/// DIGEST STATUS SIZE UNPACKED. The status of a complete image reads `complete (3/3)`.
fn present(containerd: &Containerd, runner: &dyn Runner) -> Result<BTreeSet<(String, String)>, Error> {
    let output = match runner.run(&containerd.images(&["check"]).within(LONG)) {
        Ok(output) => output,
        // It also fails if one of the images is broken. An import repairs that.
        Err(command::Error::Failed { tail, .. }) => {
            log::warn!("containerd cannot tell which images are whole, all are brought in again: {tail}");
            return Ok(BTreeSet::new());
        }
        Err(error) => return Err(error.into()),
    };
    Ok(String::from_utf8_lossy(&output)
        .lines()
        .filter_map(|line| {
            let columns: Vec<_> = line.split_whitespace().collect();
            match columns[..] {
                [name, _, digest, "complete", .., "true"] => Some((name.to_owned(), digest.to_owned())),
                _ => None,
            }
        })
        .collect())
}
