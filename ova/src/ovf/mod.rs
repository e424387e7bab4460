//! The OVF descriptor of one virtual system, and the environment that a guest gets from it.
//!
//! Source: DMTF DSP0243 *Open Virtualization Format Specification* 1.1. For the parts that it leaves to vendors:
//! descriptors that vSphere exports. The module knows nothing of Kubernetes or of an appliance's properties.
//!
//! [`Descriptor`] is the descriptor of the product's own appliances as one value: [`Descriptor::to_xml`] checks and
//! writes it, [`Descriptor::parse`] reads it. [`Envelope`] is any vendor's descriptor, as `kaas ova` shows it, read as
//! DSP0243 allows. [`References`] has the descriptor's data about the files of its package.

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
