//! The image that upgrades start from: agent and controller are those of the commit that `.ci/earlier` pins, and Kubernetes
//! reports an earlier patch version. `make test` builds it before the scenarios; the build cache then has all of it.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use lab::Source;

use crate::built_ova;
use crate::places::workspace;
use crate::scenario::unpacked;

/// `make test` builds it there.
const DIRECTORY: &str = "build/earlier";

/// The OVA. It is built once for a run.
///
/// # Panics
/// It cannot be built.
pub fn path() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let built = built_ova::build_earlier(&workspace().join(DIRECTORY));
        built.unwrap_or_else(|error| panic!("building the OVA that upgrades start from: {error:#}"))
    })
}

/// The OVA, unpacked for the lab.
///
/// # Panics
/// It cannot be built or unpacked.
pub fn source() -> Source {
    unpacked(path()).unwrap_or_else(|error| panic!("unpacking {}: {error:#}", path().display()))
}
