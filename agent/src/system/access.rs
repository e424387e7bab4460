//! Logins of the user `admin`: by SSH with the configured keys, and on the console with the configured password.
//! Without a key no SSH server runs. The console never shows a login prompt, only its own lock.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use contract::paths;

use crate::host::command::{Command, Runner};
use crate::host::files::{self, ensure_content};
use crate::host::platform::Platform;
use crate::host::services::Services;
use crate::intake::config::Node;

const USER: &str = "admin";
const KEYS: &str = "/etc/ssh/authorized_keys.d/admin";
const SERVER: &str = "/etc/ssh/sshd_config.d/10-kaas.conf";
const CERTIFICATE: &str = "/etc/ssh/ssh_host_ed25519_key-cert.pub";
const CERTIFIED: &str = "/etc/ssh/sshd_config.d/11-kaas-certificate.conf";
const RIGHTS: &str = "/etc/sudoers.d/kaas";
const SHADOW: &str = "/etc/shadow";
const SSH_UNIT: &str = "ssh.service";
const STOP_LIMIT: Duration = Duration::from_secs(30);

/// A password field that matches no password (shadow(5)).
const LOCKED: &str = "!*";

/// Opens or closes SSH and console access as configured. The data disk must be mounted, because it contains the host
/// keys.
pub fn ensure(platform: &Platform, runner: &dyn Runner, services: &Services<'_>, node: &Node) -> anyhow::Result<bool> {
    let mut changed = lay_rights(platform)?;
    changed |= set_password(platform, runner, node.console_password_hash.as_deref())?;
    if node.ssh_authorized_keys.is_empty() {
        changed |= close(services, SSH_UNIT)?;
        return Ok(lay_keys(platform, &[])? || changed);
    }
    changed |= lay_keys(platform, &node.ssh_authorized_keys)?;
    let server_changed = make_host_key(platform, runner)? | lay_server(platform)?;
    Ok(services.start_with(SSH_UNIT, server_changed)? || changed)
}

/// The public half of this node's SSH host key.
pub fn host_key(platform: &Platform) -> anyhow::Result<String> {
    let path = platform.path(paths::SSH_HOST_KEYS).join("ssh_host_ed25519_key.pub");
    fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
}

/// Makes the SSH server show this certificate of its host key. Open sessions continue.
pub fn show_certificate(platform: &Platform, services: &Services<'_>, certificate: &str) -> anyhow::Result<bool> {
    let changed = lay_certificate(platform, certificate)?;
    services.start_with(SSH_UNIT, changed)
}

fn lay_certificate(platform: &Platform, certificate: &str) -> anyhow::Result<bool> {
    let lay = |path: &str, text: &str| {
        ensure_content(&platform.path(path), text.as_bytes(), 0o644).with_context(|| format!("writing {path}"))
    };
    Ok(lay(CERTIFICATE, certificate)? | lay(CERTIFIED, &format!("HostCertificate {CERTIFICATE}\n"))?)
}

fn close(services: &Services<'_>, unit: &str) -> anyhow::Result<bool> {
    if matches!(services.state(unit)?.as_str(), "inactive" | "failed") {
        return Ok(false);
    }
    services.stop(unit, STOP_LIMIT)?;
    Ok(true)
}

/// A user who logs in by key only has no password for sudo.
fn lay_rights(platform: &Platform) -> anyhow::Result<bool> {
    let text = format!("{USER} ALL=(ALL:ALL) NOPASSWD: ALL\n");
    ensure_content(&platform.path(RIGHTS), text.as_bytes(), 0o440).with_context(|| format!("writing {RIGHTS}"))
}

fn lay_keys(platform: &Platform, keys: &[String]) -> anyhow::Result<bool> {
    let path = platform.path(KEYS);
    let result = if keys.is_empty() {
        files::remove(&path)
    } else {
        let text: String = keys.iter().map(|key| format!("{key}\n")).collect();
        ensure_content(&path, text.as_bytes(), 0o644)
    };
    result.with_context(|| format!("writing {KEYS}"))
}

/// sshd_config(5): the first value of a setting wins. This file is read before the distribution's.
fn lay_server(platform: &Platform) -> anyhow::Result<bool> {
    let text = format!(
        "HostKey {}/ssh_host_ed25519_key\n\
         AuthorizedKeysFile /etc/ssh/authorized_keys.d/%u\n\
         AuthenticationMethods publickey\n\
         PasswordAuthentication no\n\
         KbdInteractiveAuthentication no\n\
         PermitRootLogin no\n\
         AllowUsers {USER}\n\
         X11Forwarding no\n",
        paths::SSH_HOST_KEYS
    );
    ensure_content(&platform.path(SERVER), text.as_bytes(), 0o600).with_context(|| format!("writing {SERVER}"))
}

/// Creates the host key once in the life of the data disk. The key gets its name when it is complete, and its public
/// half before.
fn make_host_key(platform: &Platform, runner: &dyn Runner) -> anyhow::Result<bool> {
    let directory = platform.path(paths::SSH_HOST_KEYS);
    let key = directory.join("ssh_host_ed25519_key");
    if key.exists() {
        return Ok(false);
    }
    fs::create_dir_all(&directory).with_context(|| format!("making {}", directory.display()))?;
    let fresh = directory.join("fresh");
    for left in [fresh.clone(), fresh.with_extension("pub")] {
        if left.exists() {
            fs::remove_file(&left).with_context(|| format!("removing {}", left.display()))?;
        }
    }
    runner.run(&Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-C", "", "-f"]).arg(&fresh))?;
    let settle = || -> io::Result<()> {
        for (from, to) in [(fresh.with_extension("pub"), key.with_extension("pub")), (fresh.clone(), key.clone())] {
            fs::File::open(&from)?.sync_all()?;
            fs::rename(&from, &to)?;
        }
        fs::File::open(&directory)?.sync_all()
    };
    settle().with_context(|| format!("keeping the host key in {}", directory.display()))?;
    Ok(true)
}

/// Sets the password hash of `admin`, or locks the password.
fn set_password(platform: &Platform, runner: &dyn Runner, hash: Option<&str>) -> anyhow::Result<bool> {
    let wanted = hash.unwrap_or(LOCKED);
    let present = password_field(&platform.path(SHADOW))?;
    let locked = |field: &str| field.starts_with(['!', '*']);
    if present == wanted || (hash.is_none() && locked(&present)) {
        return Ok(false);
    }
    runner.run(&Command::new("chpasswd").arg("--encrypted").input(format!("{USER}:{wanted}\n")))?;
    Ok(true)
}

/// shadow(5): name, then the password field, separated by colons.
fn password_field(shadow: &Path) -> anyhow::Result<String> {
    let text = fs::read_to_string(shadow).with_context(|| format!("reading {}", shadow.display()))?;
    for line in text.lines() {
        let mut fields = line.split(':');
        if fields.next() == Some(USER) {
            return Ok(fields.next().unwrap_or_default().to_owned());
        }
    }
    bail!("the image has no user {USER}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::command::Error;
    use std::sync::Mutex;

    /// Changes files as chpasswd and ssh-keygen do.
    struct Programs<'a> {
        root: &'a Path,
        ran: Mutex<Vec<String>>,
    }

    impl Runner for Programs<'_> {
        fn run(&self, command: &Command) -> Result<Vec<u8>, Error> {
            let line = command.to_string();
            if let Some((_, file)) = line.split_once("-f ") {
                fs::write(file, "private").unwrap();
                fs::write(format!("{file}.pub"), "public").unwrap();
            } else {
                fs::write(self.root.join("etc/shadow"), "root:*:1::::::\nadmin:$6$new:1::::::\n").unwrap();
            }
            self.ran.lock().unwrap().push(line);
            Ok(Vec::new())
        }
    }

    fn machine() -> (tempfile::TempDir, Platform) {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("etc")).unwrap();
        fs::write(directory.path().join("etc/shadow"), "root:*:1::::::\nadmin:!*:1::::::\n").unwrap();
        let platform = Platform::detect(directory.path()).unwrap();
        (directory, platform)
    }

    #[test]
    fn password_is_set_once_and_not_by_argument() {
        let (directory, platform) = machine();
        let programs = Programs { root: directory.path(), ran: Mutex::default() };
        assert!(!set_password(&platform, &programs, None).unwrap());
        assert!(set_password(&platform, &programs, Some("$6$new")).unwrap());
        assert!(!set_password(&platform, &programs, Some("$6$new")).unwrap());
        assert_eq!(*programs.ran.lock().unwrap(), ["chpasswd --encrypted"]);
        // Without a hash the password is locked again.
        assert!(set_password(&platform, &programs, None).unwrap());
    }

    #[test]
    fn image_without_the_user_is_an_error() {
        let (directory, platform) = machine();
        fs::write(directory.path().join("etc/shadow"), "root:*:1::::::\n").unwrap();
        let programs = Programs { root: directory.path(), ran: Mutex::default() };
        let error = set_password(&platform, &programs, None).unwrap_err().to_string();
        assert_eq!(error, "the image has no user admin");
    }

    #[test]
    fn host_key_is_made_once_despite_interruption() {
        let (directory, platform) = machine();
        let programs = Programs { root: directory.path(), ran: Mutex::default() };
        let keys = directory.path().join("data/ssh");
        fs::create_dir_all(&keys).unwrap();
        fs::write(keys.join("fresh"), "half").unwrap();
        assert!(make_host_key(&platform, &programs).unwrap());
        assert!(!make_host_key(&platform, &programs).unwrap());
        assert_eq!(fs::read_to_string(keys.join("ssh_host_ed25519_key")).unwrap(), "private");
        assert_eq!(fs::read_to_string(keys.join("ssh_host_ed25519_key.pub")).unwrap(), "public");
        assert!(!keys.join("fresh").exists());
    }

    #[test]
    fn certificate_and_its_setting_are_written_once() {
        let (_directory, platform) = machine();
        assert!(host_key(&platform).is_err());
        assert!(lay_certificate(&platform, "one").unwrap());
        assert!(!lay_certificate(&platform, "one").unwrap());
        assert!(lay_certificate(&platform, "two").unwrap());
        assert_eq!(fs::read_to_string(platform.path(CERTIFICATE)).unwrap(), "two");
        let named = fs::read_to_string(platform.path(CERTIFIED)).unwrap();
        assert_eq!(named, "HostCertificate /etc/ssh/ssh_host_ed25519_key-cert.pub\n");
    }

    #[test]
    fn keys_are_written_and_removed() {
        let (_directory, platform) = machine();
        let keys = ["ssh-ed25519 AAAA one".to_owned(), "ssh-ed25519 BBBB two".to_owned()];
        assert!(lay_keys(&platform, &keys).unwrap());
        assert!(!lay_keys(&platform, &keys).unwrap());
        assert_eq!(fs::read_to_string(platform.path(KEYS)).unwrap(), "ssh-ed25519 AAAA one\nssh-ed25519 BBBB two\n");
        assert!(lay_keys(&platform, &[]).unwrap());
        assert!(!lay_keys(&platform, &[]).unwrap());
    }
}
