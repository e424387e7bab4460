//! Datastores: their space and state, and their files.

mod browse;
mod listed_tasks;
mod path;
mod seen;
#[cfg(test)]
mod tests;
mod transfer;

pub use browse::File;
pub use path::{DatastorePath, InvalidPath};
pub use seen::Datastore;
