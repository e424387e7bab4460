//! The running node. The steps of a boot and the tasks of maintenance work with [`context`]. At [`endpoint`] the node answers
//! operators and the other nodes. [`reconfigure`] changes its properties.
//!
//! It uses neither steps nor tasks, and starts nothing by itself. Boot and maintenance call it. The endpoint passes requests to
//! [`crate::upgrade`], a lower room.

pub mod context;
pub mod endpoint;
#[cfg(test)]
pub(crate) mod fixture;
pub mod reconfigure;
