//! A separate cgroup for each container, in every hierarchy of the host: one with cgroup v2, one for each controller
//! with v1.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// One cgroup, with the same name in every hierarchy.
pub struct Cgroup {
    hierarchies: Vec<PathBuf>,
    name: String,
}

/// Mount points of the hierarchies, from /proc/self/mountinfo (proc(5)).
fn hierarchies(mountinfo: &str) -> Vec<(PathBuf, &str)> {
    let mounts = mountinfo.lines().filter_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let kind = after.split(' ').next()?;
        let path = before.split(' ').nth(4)?;
        matches!(kind, "cgroup" | "cgroup2").then(|| (PathBuf::from(path), kind))
    });
    mounts.collect()
}

/// Whether this host has cgroup v1 controllers.
pub fn is_legacy() -> bool {
    let mountinfo = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    hierarchies(&mountinfo).iter().any(|(_, kind)| *kind == "cgroup")
}

/// Parent of all labs' cgroups.
const TOP: &str = "kaas-lab";

/// Whether any VM of any lab of this host has a cgroup.
pub fn any_is_there() -> anyhow::Result<bool> {
    Ok(Cgroup::of(TOP)?.directories().any(|directory| directory.exists()))
}

impl Cgroup {
    /// The cgroup of a VM. Creates nothing.
    pub fn of_vm(lab: &str, vm: &str) -> anyhow::Result<Self> {
        Self::of(&format!("{TOP}/{lab}/{vm}"))
    }

    fn of(name: &str) -> anyhow::Result<Self> {
        let mountinfo = fs::read_to_string("/proc/self/mountinfo").context("looking for cgroups")?;
        let hierarchies = hierarchies(&mountinfo).into_iter().map(|(path, _)| path).collect();
        Ok(Self { hierarchies, name: name.to_owned() })
    }

    fn directories(&self) -> impl Iterator<Item = PathBuf> {
        self.hierarchies.iter().map(|hierarchy| hierarchy.join(&self.name))
    }

    /// Creates the cgroup. A failure can leave parts of it.
    pub fn create(&self) -> anyhow::Result<()> {
        for hierarchy in &self.hierarchies {
            let mut directory = hierarchy.clone();
            for part in Path::new(&self.name) {
                let parent = directory.clone();
                directory.push(part);
                if !directory.exists() {
                    fs::create_dir(&directory).with_context(|| format!("making the cgroup {}", directory.display()))?;
                }
                inherit(&parent, &directory)
                    .with_context(|| format!("setting up the cgroup {}", directory.display()))?;
            }
        }
        Ok(())
    }

    /// Files that move a process into the cgroup when its PID is written to them.
    pub fn doors(&self) -> Vec<PathBuf> {
        self.directories().map(|directory| directory.join("cgroup.procs")).collect()
    }

    fn members(&self) -> Vec<i32> {
        let mut members = Vec::new();
        for directory in self.directories() {
            visit(&directory, &mut |directory| {
                let list = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
                members.extend(list.lines().filter_map(|line| line.parse::<i32>().ok()));
            });
        }
        members.sort_unstable();
        members.dedup();
        members
    }

    /// Whether the cgroup and its descendants have no process.
    pub fn is_empty(&self) -> bool {
        self.members().is_empty()
    }

    /// Kills every process of the cgroup and its descendants.
    pub fn kill(&self) {
        for member in self.members() {
            // An error means that the process has ended.
            let _ = kill(Pid::from_raw(member), Signal::SIGKILL);
        }
    }

    /// Removes the cgroup, its descendants, and ancestors that become empty. Fails while a process is in it.
    pub fn remove(&self) -> anyhow::Result<()> {
        for hierarchy in &self.hierarchies {
            let directory = hierarchy.join(&self.name);
            remove_below(&directory).with_context(|| format!("removing the cgroup {}", directory.display()))?;
            for above in Path::new(&self.name).ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()) {
                // Other VMs or labs may still use it.
                let _ = fs::remove_dir(hierarchy.join(above));
            }
        }
        Ok(())
    }
}

/// A new cgroup can hold processes only after it has processors and memory nodes (v1 cpuset), or its parent delegates
/// the controllers (v2).
fn inherit(parent: &Path, directory: &Path) -> io::Result<()> {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        if parent.join(file).exists() && directory.join("tasks").exists() {
            fs::write(directory.join(file), fs::read(parent.join(file))?)?;
        }
    }
    let handed_down = parent.join("cgroup.subtree_control");
    if handed_down.exists() {
        let controllers = fs::read_to_string(parent.join("cgroup.controllers"))?;
        for controller in controllers.split_ascii_whitespace() {
            fs::write(&handed_down, format!("+{controller}")).map_err(|error| because(parent, error))?;
        }
    }
    Ok(())
}

/// The reason why controllers are not delegated.
fn because(parent: &Path, error: io::Error) -> io::Error {
    if error.kind() != io::ErrorKind::ResourceBusy {
        return error;
    }
    let words = format!(
        "processes are in {} itself, and such a cgroup hands no controllers down (cgroup v2): in a container, move them \
         into a cgroup below it before a lab is started",
        parent.display()
    );
    io::Error::new(io::ErrorKind::ResourceBusy, words)
}

fn visit(directory: &Path, look: &mut impl FnMut(&Path)) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    look(directory);
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            visit(&entry.path(), look);
        }
    }
}

fn remove_below(directory: &Path) -> io::Result<()> {
    let mut directories = Vec::new();
    visit(directory, &mut |directory| directories.push(directory.to_owned()));
    directories.iter().rev().try_for_each(fs::remove_dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_cgroup_error_names_the_cgroup() {
        let busy = because(Path::new("/sys/fs/cgroup"), io::Error::from_raw_os_error(nix::libc::EBUSY));
        assert!(busy.to_string().starts_with("processes are in /sys/fs/cgroup itself"), "{busy}");
        let denied = because(Path::new("/sys/fs/cgroup"), io::Error::from_raw_os_error(nix::libc::EACCES));
        assert_eq!(denied.raw_os_error(), Some(nix::libc::EACCES));
    }

    #[test]
    fn hierarchies_of_both_kinds_are_found() {
        let mountinfo = "25 1 0:23 / /proc rw - proc proc rw\n\
            35 34 0:30 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu\n\
            36 34 0:39 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup rw\n";
        assert_eq!(
            hierarchies(mountinfo),
            [(PathBuf::from("/sys/fs/cgroup/cpu"), "cgroup"), (PathBuf::from("/sys/fs/cgroup/unified"), "cgroup2")]
        );
    }
}
