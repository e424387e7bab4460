//! Further certificate authorities that the host trusts, laid beside those of
//! the distribution by its own `update-ca-certificates`.

use std::collections::BTreeSet;
use std::{fs, io};

use anyhow::Context;

use crate::host::command::{Command, Runner};
use crate::host::files::ensure_content;
use crate::host::platform::Platform;

/// What `update-ca-certificates` makes: the authorities that programs of this host trust.
pub const BUNDLE: &str = "/etc/ssl/certs/ca-certificates.crt";
const DIRECTORY: &str = "/etc/kaas/trust";
/// Says that the bundle was made of what is in [`DIRECTORY`] now.
const DONE: &str = "/etc/kaas/trust/.done";

/// Makes the host trust these authorities, each one certificate in PEM, and
/// none that was given before.
///
/// # Errors
/// The certificates cannot be written or `update-ca-certificates` fails; it runs
/// again the next time.
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
        fs::remove_file(&done).context("taking back the sign of the last run")?;
    }
    runner.run(&Command::new("update-ca-certificates").arg("--localcertsdir").arg(&directory))?;
    fs::write(&done, "").context("leaving a sign of this run")?;
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
    fn the_bundle_is_made_when_the_authorities_change_and_again_after_a_failure() {
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
