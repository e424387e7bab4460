//! Additional CAs that the host trusts. `update-ca-certificates` of the distribution adds them to its own.

use std::collections::BTreeSet;
use std::{fs, io};

use anyhow::Context;

use crate::host::command::{Command, Runner};
use crate::host::files::ensure_content;
use crate::host::platform::Platform;

/// The output of `update-ca-certificates`: the CAs that programs of this host trust.
pub const BUNDLE: &str = "/etc/ssl/certs/ca-certificates.crt";
const DIRECTORY: &str = "/etc/kaas/trust";
/// Exists if the bundle was made from the present content of [`DIRECTORY`].
const DONE: &str = "/etc/kaas/trust/.done";

/// Makes the host trust exactly these additional CAs, each one certificate in PEM. After an error the next call runs
/// `update-ca-certificates` again.
pub fn ensure(platform: &Platform, runner: &dyn Runner, authorities: &[String]) -> anyhow::Result<bool> {
    let directory = platform.path(DIRECTORY);
    let done = platform.path(DONE);
    if authorities.is_empty() && !directory.exists() {
        return Ok(false);
    }
    let changed = lay(&directory, authorities).with_context(|| format!("writing {}", directory.display()))?;
    if !changed && done.exists() {
        return Ok(false);
    }
    if done.exists() {
        fs::remove_file(&done).context("removing the mark of the last run")?;
    }
    runner.run(&Command::new("update-ca-certificates").arg("--localcertsdir").arg(&directory))?;
    fs::write(&done, "").context("leaving a mark of this run")?;
    Ok(true)
}

fn lay(directory: &std::path::Path, authorities: &[String]) -> io::Result<bool> {
    fs::create_dir_all(directory)?;
    let mut changed = false;
    let mut wanted = BTreeSet::new();
    for (index, authority) in authorities.iter().enumerate() {
        let name = format!("kaas-{index:02}.crt");
        changed |= ensure_content(&directory.join(&name), format!("{}\n", authority.trim()).as_bytes(), 0o644)?;
        wanted.insert(name);
    }
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(".crt") && !wanted.contains(&name) {
            fs::remove_file(entry.path())?;
            changed = true;
        }
    }
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::command::Error;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Fails the first time.
    struct Updater(AtomicU32);

    impl Runner for Updater {
        fn run(&self, command: &Command) -> Result<Vec<u8>, Error> {
            match self.0.fetch_add(1, Ordering::Relaxed) {
                0 => Err(Error::Start { command: command.to_string(), source: io::Error::other("cut") }),
                _ => Ok(Vec::new()),
            }
        }
    }

    #[test]
    fn bundle_is_made_after_changes_and_failures() {
        let directory = tempfile::tempdir().unwrap();
        let platform = Platform::detect(directory.path()).unwrap();
        let updater = Updater(AtomicU32::new(0));
        assert!(!ensure(&platform, &updater, &[]).unwrap());
        let one = ["-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----".to_owned()];
        ensure(&platform, &updater, &one).unwrap_err();
        assert!(ensure(&platform, &updater, &one).unwrap());
        assert!(!ensure(&platform, &updater, &one).unwrap());
        assert!(ensure(&platform, &updater, &[]).unwrap());
        assert!(!platform.path(DIRECTORY).join("kaas-00.crt").exists());
        assert_eq!(updater.0.into_inner(), 3);
    }
}
