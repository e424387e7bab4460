//! Virtual machines: reads them, and changes them.

mod change;
mod clone;
mod config_spec;
mod device;
mod entries;
mod extra;
mod find;
mod lacking;
mod network;
mod power;
mod property;
mod seen;
mod snapshot;
#[cfg(test)]
mod tests;

pub use clone::{CloneDisks, ClonePolicy, CloneVm};
pub use config_spec::{ConfigSpec, DiskMode, ExistingDisk, NewDisk};
pub use device::{Adapter, AdapterNetwork, Controller, Devices, Disk, Other};
pub use entries::{Entries, Listed, Traces, Unread};
pub use extra::Extra;
pub use lacking::Lacking;
pub use power::{Power, ShutDown};
pub use property::Property;
pub use seen::{Boot, ManagedBy, Vm};
pub use snapshot::Snapshot;
