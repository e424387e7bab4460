//! A running node below a temporary directory, for tests of maintenance.

use std::fs::File;
use std::path::Path;

use super::context::NodeContext;
use crate::host::command::{Host, Runner};
use crate::host::disk::{self, DataDisk, Disk};
use crate::host::fake_systemd::FakeSystemd;
use crate::host::platform::Platform;
use crate::intake::config::Config;
use crate::intake::config::fixture::image;
use crate::status::{Reporter, Status};

/// The node below `root`. Its data disk is a file with only an identity.
pub(crate) fn node(root: &Path, config: Config) -> NodeContext {
    with_runner(root, config, Box::new(Host))
}

/// The same, with programs run by `runner`.
pub(crate) fn with_runner(root: &Path, config: Config, runner: Box<dyn Runner>) -> NodeContext {
    let path = root.join("disk");
    File::create(&path).unwrap().set_len(disk::MINIMUM_SIZE).unwrap();
    let identity = disk::fixture::identity();
    disk::slots::write(&path, &identity).unwrap();
    let platform = Platform::detect(root).unwrap();
    let data_disk = DataDisk::Ours { disk: Disk::open(&path, &platform).unwrap(), identity };
    let reporter = Reporter::new(root, Status::default());
    NodeContext::new(platform, image(), config, data_disk, reporter, (FakeSystemd::new(root).bus(), runner))
}
