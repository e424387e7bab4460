//! The file that describes a cluster, and the provider that runs the cluster's VMs. Every command that takes the file uses this
//! room.
//!
//! 1. [`ClusterFile`] is the file. It reports all its mistakes at once, each with its line.
//! 2. [`provider::Provider`] is the provider that the file names. It is not contacted yet.
//! 3. [`Site`] is the provider once it answers. It checks whether a cluster can be created there.
//! 4. [`ClusterBackend`] is the place of one cluster's VMs.
//! 5. [`node_credentials`] are the credentials for its nodes.

mod credentials;
mod described;
mod file;
mod provider;
mod schema;
mod site_session;
mod source;

pub use credentials::{client_by_key, credentials_by_key, node_credentials, within};
pub use described::{FileContext, NodeTable, Text};
pub use file::ClusterFile;
pub use provider::{AddedProvider, CheckReport, ClusterBackend, Provider, Site, add_provider, added_provider};
pub use schema::schema;
pub use site_session::SiteSession;
pub use source::Source;
