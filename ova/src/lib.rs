//! Open Virtualization Format archives: the OVF descriptor and environment, streamOptimized VMDK disks, the manifest,
//! its signature, and the tar file that contains them. The crate knows only formats, nothing of Kubernetes or of an
//! appliance's properties.
//!
//! To write an OVA on a build host:
//!
//! 1. [`vmdk::from_raw`] compresses a raw disk;
//! 2. [`ovf::Descriptor`] describes the virtual machine;
//! 3. [`archive::write`] puts descriptor, manifest, signature and disks into one OVA.
//!
//! To read an OVA, [`archive::Archive`] lists, verifies and streams its members. [`vmdk::read_stream`] converts a disk
//! to a raw image. [`ovf::environment`] makes the document from which a guest reads its properties.
//!
//! Equal inputs give equal bytes, whatever the machine and its number of threads.
//!
//! Rooms, from the top down. A room uses rooms of its line and below, never one above:
//!
//! ```text
//! archive
//! manifest ovf vmdk
//! name signature
//! digest new_file progress
//! ```

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
