//! The image that upgrades are tried from: an earlier version than the one under test, with
//! an earlier patch of Kubernetes. `make test` has built it before the scenarios; then the build
//! cache has all of it.

use std::path::PathBuf;
use std::sync::OnceLock;

use lab::Source;

use crate::built_ova;
use crate::scenario::{unpacked, workspace};

/// Its version.
pub const VERSION: &str = "0.0.9";
/// Its Kubernetes components.
const KUBERNETES: [&str; 2] = ["kubernetes-1-36-2", "kubernetes-1-35"];
/// Where `make test` puts it.
const DIRECTORY: &str = "build/earlier";

/// What VMs of it are made from.
///
/// # Panics
/// It cannot be built.
pub fn source() -> Source {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let built = || {
        let kubernetes = KUBERNETES.map(|component| format!("--kubernetes={component}"));
        let built = built_ova::build(VERSION, &workspace().join(DIRECTORY), &kubernetes);
        built.unwrap_or_else(|error| panic!("building an OVA {VERSION}: {error:#}"))
    };
    unpacked(BUILT.get_or_init(built)).unwrap_or_else(|error| panic!("unpacking an OVA {VERSION}: {error:#}"))
}
