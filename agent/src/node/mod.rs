//! The running node: what its parts work with, and where it answers others.
//!
//! Steps of a boot and periodic checks have it in common; it knows neither.

pub mod context;
pub mod endpoint;
#[cfg(test)]
pub(crate) mod fixture;
