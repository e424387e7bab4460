//! A running node below a temporary directory, for tests of what maintenance looks at.

use std::fs::File;
use std::path::Path;

use super::context::NodeContext;
use crate::host::command::Host;
use crate::host::disk::{self, DataDisk, Disk};
use crate::host::fake_systemd::FakeSystemd;
use crate::host::platform::Platform;
use crate::intake::config::Config;
use crate::intake::config::fixture::image;
use crate::status::{Reporter, Status};

/// The node below `root`, whose data disk is a file with an identity and nothing else.
pub(crate) fn node(root: &Path, config: Config) -> NodeContext {
    let path = root.join("disk");
    File::create(&path).unwrap().set_len(disk::MINIMUM_SIZE).unwrap();
    let identity = disk::fixture::identity();
    disk::slots::write(&path, &identity).unwrap();
    let platform = Platform::detect(root).unwrap();
    let data_disk = DataDisk::Ours { disk: Disk::open(&path, &platform).unwrap(), identity };
    let reporter = Reporter::new(root, Status::default());
    let host = (FakeSystemd::new(root).bus(), Box::new(Host) as _);
    NodeContext::new(platform, image(), config, data_disk, reporter, host)
}
