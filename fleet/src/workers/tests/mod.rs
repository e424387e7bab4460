//! Workers come and go, whatever goes wrong.

mod crash;
mod decide;
pub(super) mod fake;
mod hangs;
mod in_its_place;
mod keeps;
mod minors;
mod named;
mod newer;
mod records;
mod retries;
mod says;
mod scale;
pub mod stories;
mod unhealthy;
