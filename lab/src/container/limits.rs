//! A limit of the host that three Kubernetes nodes run into: they share one
//! kernel, and with it one user's number of inotify instances, by default 128.
//! It is raised while containers run, and put back after the last one.

use std::fs;
use std::path::Path;

use anyhow::Context;

const LIMIT: &str = "/proc/sys/fs/inotify/max_user_instances";
/// What the host had, until it gets it back; gone after a reboot, like the change itself.
const BEFORE: &str = "/run/kaas-lab-inotify-instances";
/// A node takes about 45.
const ENOUGH: u32 = 2048;

/// Raises the limit if it is lower.
///
/// # Errors
/// When it cannot be read or written.
pub fn raise() -> anyhow::Result<()> {
    let Some(before) = lower()? else { return Ok(()) };
    if !Path::new(BEFORE).exists() {
        fs::write(BEFORE, &before).with_context(|| format!("writing {BEFORE}"))?;
    }
    write_enough()
}

/// The limit, raised without a note: labs find it high enough while the value is there, and leave it alone.
pub struct HeldLimit(Option<String>);

impl HeldLimit {
    /// Raises the limit if it is lower.
    ///
    /// # Errors
    /// When it cannot be read or written.
    pub fn raised() -> anyhow::Result<Self> {
        let before = lower()?;
        if before.is_some() {
            write_enough()?;
        }
        Ok(Self(before))
    }
}

impl Drop for HeldLimit {
    fn drop(&mut self) {
        if let Some(before) = self.0.take()
            && !Path::new(BEFORE).exists()
            && let Err(error) = fs::write(LIMIT, before.trim())
        {
            eprintln!("putting {LIMIT} back to {}: {error}", before.trim());
        }
    }
}

/// The limit, if it is lower than what labs take.
fn lower() -> anyhow::Result<Option<String>> {
    let now = fs::read_to_string(LIMIT).with_context(|| format!("reading {LIMIT}"))?;
    let number: u32 = now.trim().parse().with_context(|| format!("reading {LIMIT}"))?;
    Ok((number < ENOUGH).then_some(now))
}

fn write_enough() -> anyhow::Result<()> {
    fs::write(LIMIT, ENOUGH.to_string()).with_context(|| format!("raising {LIMIT} to {ENOUGH}"))
}

/// Puts the limit back, unless somebody has changed it meanwhile.
///
/// # Errors
/// When it cannot be read or written.
pub fn put_back() -> anyhow::Result<()> {
    let Ok(before) = fs::read_to_string(BEFORE) else { return Ok(()) };
    if fs::read_to_string(LIMIT)?.trim() == ENOUGH.to_string() {
        fs::write(LIMIT, before.trim()).with_context(|| format!("putting {LIMIT} back to {}", before.trim()))?;
    }
    fs::remove_file(BEFORE).with_context(|| format!("removing {BEFORE}"))
}
