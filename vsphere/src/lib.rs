//! A small asynchronous SOAP client for vCenter 7, 8 and 9. It knows nothing of the guests in the VMs.
//!
//! To use it:
//!
//! 1. [`Client::connect`] logs in. All clones of a client share one session, which is kept alive, and opened again if
//!    it has ended. [`Client::log_out`] ends it.
//! 2. [`Client`] has the calls that read. [`Client::find`] returns the object of a path, [`Client::vm`] and
//!    [`Client::vms_in`] return VMs, [`Client::datastores_in`] returns datastores, and so on. They read named
//!    properties page by page, never whole inventories. [`Client::look`] and [`Client::list`] read any others.
//! 3. [`Changes`] has the calls that change. [`Client::changes`] returns it for a [`Fence`]. Tasks are awaited, and
//!    those of one VM follow one another. [`Changes::import`] and [`Changes::clone_vm`] create VMs. A [`ConfigSpec`]
//!    has their settings.
//! 4. [`Error::outcome`] tells what a failed call leaves behind.
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
//! Two tables decide what a failure means, and which calls are repeated: [`METHODS`] and [`TREATMENTS`]. A change is
//! sent once. Without an answer it is in doubt, and the caller has to look. A third table, [`PRIVILEGES`], has the
//! privileges of the account.
//!
//! Settings of VMs and disks have the identifiers of storage policies. [`Client::storage_policies`] finds these by
//! name. The crate does not create policies or find storage for them. vSphere Client shows the extension of a
//! [`ManagedBy`] if it is registered. The crate does not register extensions.
//!
//! Rooms, from the top down. A room uses rooms of its line and below, never one above:
//!
//! ```text
//! import
//! vm
//! cluster datastore disk inventory storage_object
//! changes policy privileges
//! task
//! collector
//! client
//! connection
//! error
//! fault
//! soap
//! guard method reference secret treatment
//! ```

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

pub use changes::{Changes, Sent, UploadProgress};
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
