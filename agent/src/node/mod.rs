//! The running node: [`context`] is what the steps of a boot and the tasks of maintenance work with, [`endpoint`] is where
//! the node answers operators and the other nodes.
//!
//! Knows neither steps nor tasks, and begins nothing by itself. Called by boot and maintenance; calls what is below: the
//! endpoint hands requests on to [`crate::upgrade`].

pub mod context;
pub mod endpoint;
#[cfg(test)]
pub(crate) mod fixture;
