//! Data disks: how they are examined, prepared, mounted and owned. This includes the disk for a worker's local volumes.
//!
//! Only a disk that was proved blank is ever formatted. Any unknown content is refused with a finding, and there is no
//! option to override that.

pub mod blank;
pub mod device;
pub mod erase;
mod examine;
#[cfg(test)]
pub(crate) mod fixture;
mod frame;
pub mod grow;
pub mod identity;
pub mod layout;
mod mount;
pub mod ownership;
mod prepare;
mod probe;
mod refused;
mod resume;
pub mod scratch;
pub mod slots;
mod volumes;

pub use device::Disk;
pub use examine::{DataDisk, Disks, Examination, MINIMUM_SIZE, examine};
pub use identity::{DiskState, Identity, LocalVolumes, MachineId, Swap};
pub(crate) use mount::is_mounted;
pub use mount::{mount, mount_volumes, unmount};
pub use prepare::{Owner, Target, prepare};
pub use probe::{device_answers, refuses_writes};
pub use refused::{OVERRULED, beside_worker};
pub use slots::{Preparation, Slots};
pub use volumes::{Expected, VolumesOwner, taken as taken_volumes};
