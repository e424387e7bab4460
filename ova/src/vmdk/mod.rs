//! streamOptimized VMDK disks: written from raw images, and read.
//!
//! The format is that of VMware's *Virtual Disk Format 5.0* technical note (2011), chapters "Hosted Sparse Extents" and
//! "Stream-Optimized Compressed Sparse Extents". The module knows nothing of OVF or of archives.
//!
//! A file is a header, an embedded text descriptor, and compressed grains of 64 KiB in the order of the disk. Each 512
//! grains share a grain table. A grain directory lists the tables. A footer repeats the header with the directory's
//! place, and an end-of-stream marker closes the file. Grains of zeros are left out.

mod descriptor;
mod error;
mod format;
mod read;
mod source;
mod tables;
#[cfg(test)]
pub(crate) mod tests;
mod write;

pub use descriptor::AdapterType;
pub use error::Error;
pub use format::GRAIN_BYTES;
pub use read::{Contents, IMPORTED_VERSION, read_stream, to_raw, verify};
pub use write::{Options, WrittenDisk, from_raw};
