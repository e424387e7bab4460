//! The image that upgrades are tried from: an earlier version, with Kubernetes under an earlier patch version and the
//! agent of an earlier commit (`.ci/earlier`). `make test` builds it before the scenarios, so the build cache has all
//! of it.

use std::path::PathBuf;
use std::sync::OnceLock;

use lab::Source;

use crate::built_ova;
use crate::places::workspace;
use crate::scenario::unpacked;

/// The directory in which `make test` puts it.
const DIRECTORY: &str = "build/earlier";

/// The source of its VMs.
pub fn source() -> Source {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let built = || {
        let built = built_ova::build_earlier(&workspace().join(DIRECTORY));
        built.unwrap_or_else(|error| panic!("building the OVA that upgrades are tried from: {error:#}"))
    };
    let ova = BUILT.get_or_init(built);
    unpacked(ova).unwrap_or_else(|error| panic!("unpacking {}: {error:#}", ova.display()))
}
