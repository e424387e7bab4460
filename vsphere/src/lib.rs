//! A small asynchronous SOAP client for vCenter 7, 8 and 9. Knows nothing of what runs in the VMs.
//!
//! The way in:
//!
//! 1. [`Client::connect`] logs in. There is one session for all clones of a client; it is kept alive, and opened anew when it
//!    has ended. [`Client::log_out`] ends it.
//! 2. What only looks is called on [`Client`]: [`Client::find`] leads from a path to an object, [`Client::vm`] and
//!    [`Client::vms_in`] show VMs, [`Client::datastores_in`] datastores, and so on. Exact properties are asked for, page by
//!    page, never whole inventories; [`Client::look`] and [`Client::list`] read any other ones.
//! 3. What changes something is called on [`Changes`], which [`Client::changes`] gives for a [`Fence`]. Tasks are awaited,
//!    and those of one VM are made one after the other. A new VM comes from [`Changes::import`] or [`Changes::clone_vm`], its
//!    settings are those of a [`ConfigSpec`].
//! 4. An [`Error`] says what it leaves behind: [`Error::outcome`].
//!
//! ```no_run
//! # async fn example() -> vsphere::Result<()> {
//! use vsphere::{Client, ConfigSpec, Connect, Power, Secret, Settings, Trust, Unguarded};
//!
//! let client = Client::connect(Connect {
//!     address: "vcenter.example.org".to_owned(),
//!     trust: Trust::System,
//!     user: "deployer@vsphere.local".to_owned(),
//!     password: Secret::new(std::env::var("VCENTER_PASSWORD").unwrap_or_default()),
//!     settings: Settings::default(),
//! })
//! .await?;
//! let folder = client.find("Datacenter/vm/lab").await?;
//! for vm in client.vms_in(&folder, true).await?.vms {
//!     if vm.power == Power::Off && !vm.is_template {
//!         let spec = ConfigSpec::of(&vm).extra("guestinfo.greeting", "hello");
//!         let changes = client.changes(&Unguarded);
//!         changes.reconfigure(&vm.reference, &spec).await?;
//!         changes.power_on(&vm.reference).await?;
//!     }
//! }
//! client.log_out().await
//! # }
//! ```
//!
//! Two tables decide what a failure means, and what is made again: [`METHODS`] and [`TREATMENTS`]. What changes something is
//! sent once: without an answer it is in doubt, and whoever has asked looks what became of it. A third one,
//! [`PRIVILEGES`], says what the account has to be permitted.
//!
//! Storage policies are named by their identifiers, which stand in settings of VMs and disks; [`Client::storage_policies`] finds these by
//! name. To make policies, or to ask which storage does as one says, is not this crate's. An extension that [`ManagedBy`] names is shown by
//! vSphere Client if it is registered; to register one is not this crate's either.

#![deny(missing_docs)]

mod changes;
mod client;
mod cluster;
mod collector;
mod connection;
mod datastore;
mod disk;
mod error;
#[cfg(test)]
mod fake;
mod fault;
mod guard;
mod import;
mod inventory;
mod method;
mod policy;
mod privileges;
mod reference;
mod secret;
mod soap;
mod storage_object;
mod task;
mod treatment;
mod vm;

pub use changes::Changes;
pub use client::{About, CHANGE_LIMIT, Client, Clock, Connect, Limits, Over, Service, Settings, Tries, Until};
pub use cluster::{AntiAffinity, RestartPriority};
pub use collector::Object;
pub use connection::{GONE, InvalidThumbprint, Thumbprint, Trust};
pub use datastore::{Datastore, DatastorePath, File, InvalidPath};
pub use disk::{DiskFile, normal_uuid};
pub use error::{Error, Result};
pub use fault::Fault;
pub use guard::{Fence, Unguarded};
pub use import::{Import, Imported};
pub use inventory::Host;
pub use method::{Effect, METHODS, Method};
pub use policy::StoragePolicy;
pub use privileges::{Missing, Need, On, PRIVILEGES, Privilege, WISHED, role_file};
pub use reference::MoRef;
pub use secret::Secret;
pub use soap::{Element, ForbiddenCharacter, Kind, Malformed, Unreadable};
pub use storage_object::StorageObject;
pub use task::{Progress, Running};
pub use treatment::{Again, Outcome, TREATMENTS, Treatment};
pub use vm::{
    Adapter, AdapterNetwork, Boot, CloneDisks, ClonePolicy, CloneVm, ConfigSpec, Controller, Devices, Disk, DiskMode,
    Entries, ExistingDisk, Extra, Lacking, Listed, ManagedBy, NewDisk, Other, Power, Property, ShutDown, Snapshot,
    Traces, Unread, Vm,
};
