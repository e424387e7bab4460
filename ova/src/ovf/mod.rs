//! The OVF descriptor of one virtual system, and the environment a guest gets from it.
//!
//! Source: DMTF DSP0243 *Open Virtualization Format Specification* 1.1, and
//! for what it leaves to vendors the descriptors that vSphere itself exports.
//! Knows nothing of Kubernetes, nor which properties an appliance asks for.
//!
//! [`Descriptor`] is the whole of it as one value: [`Descriptor::to_xml`]
//! checks and writes it, [`Descriptor::parse`] reads what tools need of a
//! descriptor, also of others' making.

pub mod environment;

mod check;
mod devices;
mod model;
mod parse;
mod property;
#[cfg(test)]
pub(crate) mod tests;
mod write;
mod xml;

pub use check::{InvalidDescriptor, Problem};
pub use model::{
    CdRomController, Descriptor, Disk, DiskFile, Eula, Firmware, HardDisk, Hardware, Network, NetworkAdapter,
    OperatingSystem, Product, Profile, PropertyGroup, Size, Sizing, Transport,
};
pub use parse::ParseError;
pub use property::{Property, PropertyType, Qualifier, Unsuitable};
