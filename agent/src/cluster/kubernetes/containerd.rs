//! containerd: its configuration (version 3, containerd 2).

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use contract::codes;
use contract::finding::Finding;
use contract::image;
use serde_json::Value;

use crate::cluster::kubernetes::kubelet;
use crate::host::command::{Command, Runner};
use crate::host::files;
use crate::host::platform::Platform;
use crate::host::services::Services;

/// The configuration, written at each boot.
pub const CONFIGURATION: &str = "/run/kaas/containerd.toml";
/// The specification that each container begins with, written at each boot.
pub const CONTAINER_SPEC: &str = "/run/kaas/container.json";
/// The descriptions of registries, one directory each.
const REGISTRIES: &str = "/etc/containerd/certs.d";
pub const MIRROR: &str = "/etc/containerd/certs.d/_default/hosts.toml";
pub const UNIT: &str = "containerd.service";
/// containerd's state: images, snapshots of file systems and its databases of them. All of it can be created again.
const STATE: &str = "/var/lib/containerd";
/// The place of the state while it is removed.
pub const DAMAGED: &str = "/var/lib/containerd.damaged";
/// Exists once the state was removed since power-on.
const RECREATED: &str = "/run/kaas/containerd-recreated";
/// How long containerd may take to stop.
const STOPPING: Duration = Duration::from_secs(100);
/// The plugins' programs, in the image.
pub const NETWORK_PROGRAMS: &str = "/usr/lib/cni";
pub const NETWORK_CONFIGURATION: &str = "/etc/cni/net.d";

/// `pause` is the version of the pause image. The layers of a pulled image are on the disk before the image counts as
/// complete: containerd never looks at them again (containerd issue 8895).
pub fn configuration(platform: &Platform, pause: &str) -> String {
    let sandbox = image::reference("pause", &format!("v{pause}"));
    let systemd = kubelet::systemd_cgroups(platform);
    let restrict = platform.restrict_oom_score_adj();
    format!(
        "version = 3\n\
         root = '/var/lib/containerd'\n\
         state = '/run/containerd'\n\
         \n\
         [plugins.'io.containerd.cri.v1.images']\n\
         image_pull_with_sync_fs = true\n\
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
         base_runtime_spec = '{CONTAINER_SPEC}'\n\
         \n\
         [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]\n\
         SystemdCgroup = {systemd}\n"
    )
}

/// The specification that each container begins with: containerd's own, without the right to send raw packets
/// (CAP_NET_RAW), with which a pod takes another pod's address. Pods that need it request it. A given specification
/// keeps what containerd removes from its own: the limit of open files, which is systemd's for the service.
pub fn container_spec(runner: &dyn Runner) -> anyhow::Result<Vec<u8>> {
    let own =
        runner.run(&Command::new("ctr").args(["oci", "spec"])).context("asking for containerd's specification")?;
    let mut spec: Value = serde_json::from_slice(&own).context("understanding containerd's specification")?;
    let process = spec["process"].as_object_mut().context("containerd's specification has no process")?;
    process.remove("rlimits");
    let sets = process.get_mut("capabilities").and_then(Value::as_object_mut).context("it has no capabilities")?;
    for capabilities in sets.values_mut().filter_map(Value::as_array_mut) {
        capabilities.retain(|capability| capability != "CAP_NET_RAW");
    }
    Ok(serde_json::to_vec_pretty(&spec)?)
}

/// Removes the state that containerd cannot work with, and starts it without that, once since power-on. Containers must
/// not run. Returns whether it did. An interrupted run is repeated.
pub fn recreate(root: &Path, services: &Services<'_>) -> anyhow::Result<bool> {
    let mark = files::below(root, RECREATED);
    if mark.exists() {
        return Ok(false);
    }
    log::warn!("containerd fails with what it keeps: {STATE} is removed, and images are imported or pulled again");
    services.stop(UNIT, STOPPING)?;
    // All of it or nothing: a part alone would count as complete images.
    let (state, damaged) = (files::below(root, STATE), files::below(root, DAMAGED));
    if state.exists() {
        fs::rename(&state, &damaged).with_context(|| format!("setting {STATE} aside"))?;
    }
    files::remove_directory(&damaged)?;
    files::write_atomically(&mark, b"", 0o644)?;
    services.forget_failures(UNIT)?;
    services.start(UNIT)?;
    Ok(true)
}

/// The finding that containerd's state was removed since power-on.
pub fn recreated(root: &Path) -> Option<Finding> {
    files::below(root, RECREATED).exists().then(|| {
        codes::RUNTIME_RECREATED.finding(
            UNIT,
            format!("containerd failed with what it kept in {STATE}, which was removed"),
            "Check the storage behind the system disk if the power was not cut",
        )
    })
}

/// The finding that containerd does not work, and that the node does not repair it now.
pub fn failed() -> Finding {
    codes::RUNTIME_FAILED.finding(
        UNIT,
        "containerd ends at each start, runs without its Kubernetes interface, or takes no images",
        format!(
            "Restart the VM once: the node then removes {STATE} and imports its images again. If it stays, look at \
             `journalctl --unit={UNIT}` and check the storage behind the system disk"
        ),
    )
}

/// Whether the running runtime answers Kubernetes. It starts without its CRI plugin if that fails, for example for lack
/// of inotify instances.
pub fn serves_kubernetes(runner: &dyn Runner) -> anyhow::Result<bool> {
    // This is only a look, and `ctr` waits for a containerd that hangs.
    let list = Command::new("ctr").args(["plugins", "list"]).within(Duration::from_secs(60));
    let output = runner.run(&list).context("listing containerd's plugins")?;
    Ok(cri_is_ok(&String::from_utf8_lossy(&output)))
}

/// Reads the table of `ctr plugins list`: type, ID, platforms, status.
fn cri_is_ok(table: &str) -> bool {
    table.lines().any(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        matches!(columns.as_slice(), ["io.containerd.grpc.v1", "cri", .., "ok"])
    })
}

/// Writes the descriptions of registries (`hosts.toml` of containerd's registry hosts). The mirror replaces all of
/// them. Without a mirror its description is removed. The registry that the appliance's images name does not exist.
/// containerd reads them at each pull, so it needs no restart. Returns whether anything changed.
pub fn lay_registries(platform: &Platform, mirror: Option<&str>) -> anyhow::Result<bool> {
    Ok(lay_own(platform)? | lay_mirror(platform, mirror)?)
}

/// The appliance's images are never pulled: a pull moves the name. A user who can have a pod's image pulled, and can
/// push to a mirror, could replace the appliance's image. No server listens on port 0 (RFC 6335, section 6).
fn lay_own(platform: &Platform) -> anyhow::Result<bool> {
    let path = platform.path(REGISTRIES).join(image::REPOSITORY).join("hosts.toml");
    let result = files::ensure_content(&path, b"server = 'https://127.0.0.1:0'\n", 0o644);
    result.with_context(|| format!("laying {}", path.display()))
}

fn lay_mirror(platform: &Platform, mirror: Option<&str>) -> anyhow::Result<bool> {
    let path = platform.path(MIRROR);
    let result = match mirror {
        None => files::remove(&path),
        Some(mirror) => {
            // TOML's basic strings are escaped as JSON's are.
            let mirror = serde_json::Value::from(mirror);
            let text = format!("[host.{mirror}]\ncapabilities = ['pull', 'resolve']\n");
            files::ensure_content(&path, text.as_bytes(), 0o644)
        }
    };
    result.with_context(|| format!("laying {}", path.display()))
}
