//! Upgrades of a cluster in memory, with a strict hypervisor, and nodes that keep the rules of the data disk. Calls
//! fail and commands are cut in every way.

mod adopt;
mod all_at_once;
mod bios_uuids;
mod blame;
pub(super) mod cancel;
pub(crate) mod command;
mod commit;
mod controller;
mod copies;
mod crash;
pub(super) mod failing;
pub(crate) mod fake;
mod fencing;
mod gone;
mod hangs;
mod left;
mod limits;
mod lost;
mod obstacles;
mod open;
mod order;
mod other_cluster;
mod ova;
pub(crate) mod package;
mod permit;
mod place;
mod preview;
pub(super) mod salvage;
mod schemas;
mod silence;
mod size;
pub(super) mod stamp;
mod stories;
mod unaskable;
mod unreached;
mod words;
