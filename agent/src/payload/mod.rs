//! The container images that the appliance carries, and how they get into
//! containerd.
//!
//! The image holds an OCI image layout whose big layers are not stored as
//! blobs: what a layer would repeat stands in the root already, so the layer is
//! described as segments ([`AssembledLayer`]) and put together while it is
//! read. This module knows nothing of Kubernetes, of which images are wanted
//! and when.

mod schema;

pub use schema::{AssembledLayer, Descriptor, IMAGE_NAME, Index, Manifest, REFERENCE_NAME, Segment};
