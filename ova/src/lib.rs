//! Open Virtualization Format archives: the OVF descriptor and environment,
//! streamOptimized VMDK disks, the manifest, its signature, and the tar that
//! holds them. Knows formats only, nothing of Kubernetes, nor which properties
//! an appliance asks for.
//!
//! The way in, on a build host:
//!
//! 1. [`vmdk::from_raw`] compresses a raw disk;
//! 2. [`ovf::Descriptor`] describes the virtual machine;
//! 3. [`archive::write`] puts descriptor, manifest, signature and disks into one OVA.
//!
//! The way out: [`archive::Archive`] lists, verifies and streams an OVA's
//! members, [`vmdk::read_stream`] turns a disk back into a raw image, and
//! [`ovf::environment`] makes the document by which a guest learns its
//! properties.
//!
//! Equal inputs give equal bytes, whatever the machine and its number of threads.

#![deny(missing_docs)]

pub mod archive;
mod digest;
pub mod manifest;
mod name;
mod new_file;
pub mod ovf;
mod progress;
pub mod signature;
pub mod vmdk;

pub use digest::{ParseSha256Error, Sha256};
pub use name::InvalidName;
pub use progress::Progress;
