//! Workers come and go, whatever goes wrong.

mod crash;
mod decide;
pub(super) mod fake;
mod hangs;
mod in_its_place;
mod keeps;
mod minors;
mod newer;
mod records;
mod says;
mod scale;
pub mod stories;
mod unhealthy;
