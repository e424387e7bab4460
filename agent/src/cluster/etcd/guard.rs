//! Preconditions of a restore, before it stops anything: exclusive access, and room for the new data. The restore also
//! survives the end of its terminal.

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

/// How long the agent, which only reads, may hold the lock.
const LOCKING: Duration = Duration::from_secs(5);

/// The prefix of the name of the data from before a restore. The time follows.
pub const KEPT: &str = "member.before-restore-";

/// Locks etcd's directory for a restore. The lock ends when the returned file is dropped, or with the process. Until
/// then no other restore runs on this node, and the agent does not start etcd.
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

/// Whether a restore is running. One that begins later stops the agent, and then etcd.
pub fn is_restoring(root: &Path) -> io::Result<bool> {
    match File::open(files::below(root, DATA))?.try_lock_shared() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Blocks the signals of a terminal that closes, and of its keys, for this process. Programs and threads that it starts
/// from here inherit that. Otherwise the node could stay stopped.
pub fn ignore_terminal_signals() -> anyhow::Result<()> {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT] {
        signals.add(signal);
    }
    signals.thread_block().context("holding back the terminal's signals")
}

/// Checks whether a store of `size` bytes fits in addition to the present one. The error lists what can be removed.
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
        "the restored data take {} MiB in addition to the present ones, {reserve} MiB have to stay free, and only {} MiB are \
         free on the data disk: nothing was changed. Enlarge the disk, or remove what is not needed of: {}",
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
    fn second_restore_is_refused_the_agent_sees_one() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(files::below(root.path(), DATA)).unwrap();
        let restoring = || is_restoring(root.path()).unwrap();
        assert!(!restoring());
        let first = lock(root.path()).unwrap();
        assert!(restoring());
        let refused = lock(root.path()).unwrap_err().to_string();
        assert!(refused.starts_with("another restore is under way"), "{refused}");
        drop(first);
        // Between fork and exec, a program that another test starts has the lock.
        eventually("the end of the restore", || !restoring());
        lock(root.path()).unwrap();
    }

    #[test]
    fn restore_and_its_programs_survive_terminal_signals() {
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
