//! The OVF descriptor of one virtual system, and the environment a guest gets from it.
//!
//! Source: DMTF DSP0243 *Open Virtualization Format Specification* 1.1, and
//! for what it leaves to vendors the descriptors that vSphere itself exports.
//! Knows nothing of Kubernetes, nor which properties an appliance asks for.
//!
//! [`Descriptor`] is the whole of it as one value, for the product's own
//! appliances: [`Descriptor::to_xml`] checks and writes it, [`Descriptor::parse`]
//! reads it. [`Envelope`] is what `kaas ova` shows of any vendor's descriptor,
//! read as DSP0243 allows. [`References`] is what a descriptor says of the files
//! of its package.

pub mod environment;

mod capacity;
mod check;
mod devices;
mod document;
mod envelope;
mod items;
mod model;
mod parse;
mod property;
mod references;
#[cfg(test)]
pub(crate) mod tests;
mod write;
mod xml;

pub use check::{InvalidDescriptor, Problem};
pub use document::ParseError;
pub use envelope::{Envelope, Variant, VirtualDisk};
pub use model::{
    CdRomController, Descriptor, Disk, DiskFile, Eula, Firmware, HardDisk, Hardware, Network, NetworkAdapter,
    OperatingSystem, Product, Profile, PropertyGroup, Size, Sizing, Transport,
};
pub use property::{Property, PropertyType, Qualifier, Unsuitable};
pub use references::{DiskContent, FileReference, References};
