//! containerd: its configuration (version 3, containerd 2).

use std::fs::{self, File};
use std::io;
use std::path::Path;

use crate::config::Config;
use crate::files;
use crate::image;
use crate::kubernetes::kubelet;
use crate::platform::Platform;

/// Where the configuration is laid at each boot.
pub const CONFIGURATION: &str = "/run/kaas/containerd.toml";
/// Where registry mirrors are described, one folder each.
pub const REGISTRIES: &str = "/etc/containerd/certs.d";
/// The systemd unit.
pub const UNIT: &str = "containerd.service";
/// The plugins' programs, in the image.
pub const NETWORK_PROGRAMS: &str = "/usr/lib/cni";
/// The pod network's configuration.
pub const NETWORK_CONFIGURATION: &str = "/etc/cni/net.d";

/// The configuration; `pause` is the pause image's version.
pub fn configuration(platform: &Platform, pause: &str) -> String {
    let sandbox = image::reference("pause", &format!("v{pause}"));
    let systemd = kubelet::systemd_cgroups(platform);
    let restrict = platform.restrict_oom_score_adj();
    format!(
        "version = 3\n\
         root = '/var/lib/containerd'\n\
         state = '/run/containerd'\n\
         \n\
         [plugins.'io.containerd.cri.v1.images'.pinned_images]\n\
         sandbox = '{sandbox}'\n\
         \n\
         [plugins.'io.containerd.cri.v1.images'.registry]\n\
         config_path = '{REGISTRIES}'\n\
         \n\
         [plugins.'io.containerd.cri.v1.runtime']\n\
         restrict_oom_score_adj = {restrict}\n\
         \n\
         [plugins.'io.containerd.cri.v1.runtime'.cni]\n\
         bin_dirs = ['{NETWORK_PROGRAMS}']\n\
         conf_dir = '{NETWORK_CONFIGURATION}'\n\
         \n\
         [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]\n\
         runtime_type = 'io.containerd.runc.v2'\n\
         \n\
         [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]\n\
         SystemdCgroup = {systemd}\n"
    )
}

/// containerd's data, on the scratch partition.
const DATA: &str = "var/lib/containerd";
/// Says that the images loaded into [`DATA`] have reached the disk.
const COMPLETE: &str = "var/lib/containerd/.kaas-images-complete";

/// Removes containerd's data if the loading of images into it was cut off:
/// containerd does not flush what it unpacks, so that a program in an image may
/// be empty after a power cut although its records are whole. containerd must not be
/// running. Says whether there was any data.
///
/// # Errors
/// The file system's; calling again completes it.
pub fn forget_unless_complete(root: &Path) -> io::Result<bool> {
    if root.join(COMPLETE).exists() {
        return Ok(false);
    }
    let mut any = false;
    let entries = match fs::read_dir(root.join(DATA)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        any = true;
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(any)
}

/// Notes that images are being loaded.
///
/// # Errors
/// The file system's; nothing must be loaded then.
pub fn mark_incomplete(root: &Path) -> io::Result<()> {
    match fs::remove_file(root.join(COMPLETE)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    File::open(root.join(DATA))?.sync_all()
}

/// Brings what was loaded to the disk and notes that the images are whole,
/// unless that is noted already.
///
/// # Errors
/// The file system's; nothing is noted then.
pub fn mark_complete(root: &Path) -> io::Result<()> {
    let mark = root.join(COMPLETE);
    if mark.exists() {
        return Ok(());
    }
    nix::unistd::syncfs(File::open(root.join(DATA))?)?;
    files::write_atomically(&mark, b"", 0o644)
}

/// The description of the registry mirror that stands for all registries
/// (`hosts.toml` of containerd's registry hosts), if one is configured.
pub fn mirror(config: &Config) -> Option<String> {
    let mirror = config.node.registry_mirror.as_deref()?;
    // TOML's basic strings are escaped as JSON's are.
    let mirror = serde_json::Value::from(mirror);
    Some(format!("[host.{mirror}]\ncapabilities = ['pull', 'resolve']\n"))
}
