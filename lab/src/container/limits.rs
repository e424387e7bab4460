//! Raises the host's limit of inotify instances while a lab needs it, and restores it after the last one. Three
//! Kubernetes nodes share one kernel, and so one user's limit, by default 128.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use anyhow::Context;

use super::super::machine;
use super::cgroup;

/// A node uses about 45.
const ENOUGH: u32 = 2048;

/// The limit, and the files that record it. A caller that changes something holds [`machine::lock`].
pub struct Limit {
    value: PathBuf,
    /// The host's own value, until it is restored. A reboot removes it, as it does the change.
    before: PathBuf,
    /// Locked, shared, by commands that need the limit and have no container that others could see.
    held: PathBuf,
}

impl Limit {
    /// This host's.
    pub fn of_host() -> Self {
        Self {
            value: "/proc/sys/fs/inotify/max_user_instances".into(),
            before: "/run/kaas-lab-inotify-instances".into(),
            held: "/run/kaas-lab-inotify-instances.lock".into(),
        }
    }

    /// Raises the limit if it is lower.
    pub fn raise(&self) -> anyhow::Result<()> {
        let value = self.value.display();
        let before = self.read()?;
        if before >= ENOUGH {
            return Ok(());
        }
        // Atomic: if the command is killed, the limit is either unchanged or recorded.
        let new = self.before.with_extension("new");
        let noted = fs::write(&new, before.to_string()).and_then(|()| fs::rename(&new, &self.before));
        noted.with_context(|| format!("writing {}", self.before.display()))?;
        fs::write(&self.value, ENOUGH.to_string()).with_context(|| format!("raising {value} to {ENOUGH}"))
    }

    /// Raises it and keeps it raised until the returned value is dropped.
    fn hold(&self) -> anyhow::Result<LimitLock> {
        let file = self.holders()?;
        file.lock_shared().with_context(|| format!("locking {}", self.held.display()))?;
        let hold = LimitLock(file);
        self.raise()?;
        Ok(hold)
    }

    /// Restores the limit, unless it is locked or was changed. No container that needed it runs.
    pub fn put_back(&self) -> anyhow::Result<()> {
        let before = match fs::read_to_string(&self.before) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            before => before.with_context(|| format!("reading {}", self.before.display()))?,
        };
        if self.holders()?.try_lock().is_err() {
            return Ok(());
        }
        if self.read()? == ENOUGH {
            let putting = || format!("putting {} back to {}", self.value.display(), before.trim());
            fs::write(&self.value, before.trim()).with_context(putting)?;
        }
        fs::remove_file(&self.before).with_context(|| format!("removing {}", self.before.display()))
    }

    fn read(&self) -> anyhow::Result<u32> {
        let reading = || format!("reading {}", self.value.display());
        fs::read_to_string(&self.value).with_context(reading)?.trim().parse().with_context(reading)
    }

    fn holders(&self) -> anyhow::Result<File> {
        // Any process that can open the file can lock it.
        let file = File::options().create(true).truncate(false).write(true).mode(0o600).open(&self.held);
        file.with_context(|| format!("opening {}", self.held.display()))
    }
}

/// A shared lock on the file of holders.
struct LimitLock(File);

impl Drop for LimitLock {
    fn drop(&mut self) {
        // Closing is not enough: a program that another thread is starting has the file open until it executes.
        let _ = self.0.unlock();
    }
}

/// The limit, raised for labs that this host does not see, as in a container with its own /run. Such labs find it
/// high enough and do not change it.
pub struct RaisedLimit(Option<LimitLock>);

impl RaisedLimit {
    /// Raises the limit if it is lower. Fails if another lab's command holds the lock.
    pub fn raised() -> anyhow::Result<Self> {
        let _host = machine::lock()?;
        Ok(Self(Some(Limit::of_host().hold()?)))
    }

    fn let_go(&mut self) -> anyhow::Result<()> {
        let _host = machine::lock()?;
        self.0 = None;
        if cgroup::any_is_there()? {
            return Ok(());
        }
        Limit::of_host().put_back()
    }
}

impl Drop for RaisedLimit {
    fn drop(&mut self) {
        // The host's value stays recorded: the end of the next lab restores it.
        if let Err(error) = self.let_go() {
            eprintln!("putting a limit of this host back: {error:#}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    fn limit(value: &str) -> (Limit, TempDir) {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("value"), value).unwrap();
        (Limit { value: at("value"), before: at("before"), held: at("held") }, directory)
    }

    #[test]
    fn a_lab_raises_and_restores_the_limit() {
        let (limit, _directory) = limit("128\n");
        limit.raise().unwrap();
        limit.raise().unwrap();
        assert_eq!(limit.read().unwrap(), ENOUGH);
        limit.put_back().unwrap();
        assert_eq!(limit.read().unwrap(), 128);
        limit.put_back().unwrap();
        assert!(!limit.before.exists());
    }

    #[test]
    fn a_high_or_changed_limit_is_left_alone() {
        let (limit, _directory) = limit("8192\n");
        drop(limit.hold().unwrap());
        limit.put_back().unwrap();
        assert_eq!(limit.read().unwrap(), 8192);
        fs::write(&limit.value, "128").unwrap();
        limit.raise().unwrap();
        fs::write(&limit.value, "512").unwrap();
        limit.put_back().unwrap();
        assert_eq!(limit.read().unwrap(), 512);
    }

    #[test]
    fn a_later_holder_keeps_the_limit_raised() {
        let (limit, _directory) = limit("128\n");
        limit.raise().unwrap();
        let held = limit.hold().unwrap();
        limit.put_back().unwrap();
        assert_eq!(limit.read().unwrap(), ENOUGH);
        drop(held);
        limit.put_back().unwrap();
        assert_eq!(limit.read().unwrap(), 128);
    }

    /// A holder ends or is killed while a later lab runs.
    #[test]
    fn a_later_lab_restores_the_hosts_limit() {
        let (limit, _directory) = limit("128\n");
        let held = limit.hold().unwrap();
        limit.raise().unwrap();
        drop(held);
        assert_eq!(limit.read().unwrap(), ENOUGH);
        limit.put_back().unwrap();
        assert_eq!(limit.read().unwrap(), 128);
    }

    #[test]
    fn the_last_holder_restores_the_limit() {
        let (limit, _directory) = limit("128\n");
        let (first, second) = (limit.hold().unwrap(), limit.hold().unwrap());
        drop(first);
        limit.put_back().unwrap();
        assert_eq!(limit.read().unwrap(), ENOUGH);
        drop(second);
        limit.put_back().unwrap();
        assert_eq!(limit.read().unwrap(), 128);
    }
}
