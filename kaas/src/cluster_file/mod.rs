//! The file that describes a cluster, and what runs the cluster's VMs: what every command stands on that takes the file.
//!
//! 1. [`ClusterFile`] reads the file; everything that is wrong with it by itself is said at once, each mistake with its line;
//! 2. [`provider::Provider`] is what runs the VMs, as it is named: nothing is asked of it yet;
//! 3. [`Site`] is the same once it answers: it is looked at, and says why a cluster cannot be made there;
//! 4. [`Place`] is where one cluster's VMs are.

mod described;
mod file;
mod provider;
mod schema;
mod site_session;
mod source;

pub use described::NodeTable;
pub use file::ClusterFile;
pub use provider::{CheckReport, ClusterBackend, LabSite, Site};
pub use schema::schema;
pub use site_session::SiteSession;
pub use source::Source;
