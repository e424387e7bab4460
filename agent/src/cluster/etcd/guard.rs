//! What a restore needs before it stops anything: to be alone, room for the new data, and not to end with the terminal
//! that it was given at.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use contract::paths;
use nix::sys::signal::{SigSet, Signal};

use super::{DATA, snapshot};
use crate::host::files;

/// How long the agent, which only looks, may be in the way.
const LOCKING: Duration = Duration::from_secs(5);

/// What the data from before a restore are called, with the time.
pub const KEPT: &str = "member.before-restore-";

/// Takes the lock of etcd's directory for a restore. It ends with what is returned, or with the process; until then
/// nobody else restores, and the agent does not start etcd.
///
/// # Errors
/// Somebody else restores, or the directory cannot be locked.
pub fn lock(root: &Path) -> anyhow::Result<File> {
    let directory = File::open(files::below(root, DATA)).context("opening etcd's directory")?;
    let until = Instant::now() + LOCKING;
    loop {
        match directory.try_lock() {
            Ok(()) => return Ok(directory),
            Err(TryLockError::WouldBlock) if Instant::now() < until => thread::sleep(Duration::from_millis(50)),
            Err(TryLockError::WouldBlock) => bail!("another restore is under way on this node: nothing was changed"),
            Err(TryLockError::Error(error)) => return Err(error).context("locking etcd's directory"),
        }
    }
}

/// Whether a restore is under way. Which begins later stops the agent, and then etcd.
///
/// # Errors
/// The file system's.
pub fn is_restoring(root: &Path) -> io::Result<bool> {
    match File::open(files::below(root, DATA))?.try_lock_shared() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// From now on neither a terminal that goes away nor its keys end this process, or the programs and threads that it
/// starts from here: the node must not stay stopped.
///
/// # Errors
/// The kernel's.
pub fn ignore_terminal_signals() -> anyhow::Result<()> {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT] {
        signals.add(signal);
    }
    signals.thread_block().context("holding back the terminal's signals")
}

/// Sees whether a store of `size` bytes fits beside the one that is there.
///
/// # Errors
/// It does not: what can be removed. Or the disk cannot be measured.
pub fn find_room(root: &Path, size: u64) -> anyhow::Result<()> {
    let data = files::below(root, DATA);
    let (free, _) = snapshot::room(&data).context("looking at the free space")?;
    if free >= size.saturating_add(snapshot::RESERVE) {
        return Ok(());
    }
    let names =
        fs::read_dir(&data).context("looking for what can be removed")?.flatten().map(|entry| entry.file_name());
    let mut kept: Vec<String> = names.filter_map(|name| name.into_string().ok()).collect();
    kept.retain(|name| name.starts_with(KEPT));
    kept.sort();
    let mut removable: Vec<String> = kept.iter().map(|name| format!("{DATA}/{name}")).collect();
    removable.push(format!("snapshots in {}", paths::SNAPSHOTS));
    let (mib, reserve) = (|bytes: u64| bytes.div_ceil(1 << 20), snapshot::RESERVE >> 20);
    bail!(
        "the restored data take {} MiB beside the present ones, {reserve} MiB have to stay free, and only {} MiB are free on \
         the data disk: nothing was changed. Enlarge the disk, or remove what is not needed of: {}",
        mib(size),
        free >> 20,
        removable.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::command::{Command, Host, Runner};
    use crate::host::fixture::eventually;

    #[test]
    fn two_restores_are_kept_apart_and_the_agent_sees_one() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(files::below(root.path(), DATA)).unwrap();
        let restoring = || is_restoring(root.path()).unwrap();
        assert!(!restoring());
        let first = lock(root.path()).unwrap();
        assert!(restoring());
        let refused = lock(root.path()).unwrap_err().to_string();
        assert!(refused.starts_with("another restore is under way"), "{refused}");
        drop(first);
        // A program that another test starts has it between fork and exec.
        eventually("the end of the restore", || !restoring());
        lock(root.path()).unwrap();
    }

    #[test]
    fn a_terminal_that_goes_away_ends_neither_the_restore_nor_its_programs() {
        let restore = || {
            ignore_terminal_signals().unwrap();
            for signal in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT] {
                nix::sys::signal::raise(signal).unwrap();
            }
            Host.run(&Command::new("sh").args(["-c", "kill -HUP $$; kill -INT $$; kill -QUIT $$; echo here"])).unwrap()
        };
        assert_eq!(thread::spawn(restore).join().unwrap(), b"here\n");
    }
}
