//! Turns off features of vmxnet3 that fail with tunnels.
//!
//! The virtual NIC offers to segment and checksum tunnelled packets. But several of its versions do so for some UDP
//! ports only, and send the others with wrong checksums. Pods then reach each other with small packets and hang with
//! large ones. Without the offload the kernel does it.

use std::fs;
use std::path::Path;

use crate::host::command::{self, Command, Runner};

/// The features, by ethtool's names.
const FEATURES: [&str; 2] = ["tx-udp_tnl-segmentation", "tx-udp_tnl-csum-segmentation"];

/// Turns off the tunnel features of the device, if it is a vmxnet3 one. Returns whether anything was changed. After an
/// error some features may have been turned off.
pub fn ensure(runner: &dyn Runner, root: &Path, device: &str) -> Result<bool, command::Error> {
    let driver = fs::read_link(root.join("sys/class/net").join(device).join("device/driver"));
    if !driver.is_ok_and(|driver| driver.file_name().is_some_and(|name| name == "vmxnet3")) {
        return Ok(false);
    }
    let features = runner.run(&Command::new("ethtool").args(["-k", device]))?;
    let wrong = wrong(&String::from_utf8_lossy(&features));
    if wrong.is_empty() {
        return Ok(false);
    }
    let off = wrong.iter().flat_map(|feature| [*feature, "off"]);
    runner.run(&Command::new("ethtool").args(["-K", device]).args(off))?;
    Ok(true)
}

/// The features that are on and can be turned off. Missing features and features that cannot be changed end in
/// `[fixed]`.
pub(super) fn wrong(features: &str) -> Vec<&'static str> {
    let on = |feature: &&str| {
        features.lines().any(|line| line.trim().strip_prefix(*feature).is_some_and(|rest| rest.trim() == ": on"))
    };
    FEATURES.into_iter().filter(on).collect()
}
