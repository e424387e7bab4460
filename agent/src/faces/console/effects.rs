//! Performs the state's effects. This is the only place of the console that changes anything.

use std::path::Path;

use anyhow::Context as _;
use contract::properties;
use contract::secret::Secret;

use super::events::{Effect, Outcome};
use super::form::Scope;
use super::lock::{self, Answer};
use crate::boot::reset;
use crate::faces::bundle;
use crate::host::bus;
use crate::host::command::{Command, Host, Runner};
use crate::host::platform::Platform;
use crate::node::reconfigure::{self, ReconfigureResult};
use crate::upgrade::swap::force_adopt;

/// How many lines of the journal are shown.
const LINES: &str = "300";

/// The largest support bundle, in bytes. The command line has the same default.
const BUNDLE: u64 = 25 << 20;

pub(super) fn perform(root: &Path, effect: Effect) -> Outcome {
    match outcome(root, effect) {
        Ok(outcome) => outcome,
        Err(error) => {
            log::warn!("console: {error:#}");
            Outcome::Failed(format!("It failed: {error:#}"))
        }
    }
}

fn outcome(root: &Path, effect: Effect) -> anyhow::Result<Outcome> {
    Ok(match effect {
        Effect::Unlock(password) => match lock::try_password(&Platform::detect(root)?, &Host, password.expose())? {
            Answer::Open => {
                log::info!("the console was unlocked");
                Outcome::Unlocked
            }
            Answer::Wait(seconds) => {
                log::warn!("a wrong console password was given");
                Outcome::Wait(seconds)
            }
        },
        Effect::Present(scope) => present(root, scope)?,
        Effect::Change(changes) => change(root, &changes)?,
        Effect::SetPassword(password) => {
            let hash = hash(root, &password)?;
            change(root, &[(properties::CONSOLE_PASSWORD_HASH, hash)])?
        }
        Effect::Logs => Outcome::Logs(journal(root)?),
        Effect::Restart => power("Reboot", "The VM restarts.")?,
        Effect::PowerOff => power("PowerOff", "The VM is shut down.")?,
        Effect::Bundle => bundle(root)?,
        Effect::LookAtReset => {
            let outlook = reset::look(&Platform::detect(root)?, &Host)?;
            let words = outlook.words();
            let ends = matches!(outlook.cluster, reset::ClusterImpact::Ends(_));
            let reset::ResetPreview { node, cluster_name, .. } = outlook;
            Outcome::Reset { words, node, cluster: ends.then_some(cluster_name) }
        }
        Effect::Reset { node, cluster } => {
            // Read again: in the meantime another member may have failed.
            let platform = Platform::detect(root)?;
            let outlook = reset::look(&platform, &Host)?;
            match outlook.confirmed(&node, cluster.as_deref()) {
                Ok(()) => {
                    reset::begin(&outlook, &platform, &Host)?;
                    Outcome::Done("The VM restarts and erases what the node kept.".to_owned())
                }
                Err(words) => Outcome::Failed(words),
            }
        }
        Effect::LookAtForceAdopt => {
            let outlook = force_adopt::look(&Platform::detect(root)?, &Host)?;
            Outcome::ForceAdopt { words: outlook.words(), word: outlook.word() }
        }
        Effect::ForceAdopt(typed) => {
            // Read again: the disk may be another one than shown before.
            let outlook = force_adopt::look(&Platform::detect(root)?, &Host)?;
            match outlook.is_confirmed_by(&typed) {
                Ok(()) => {
                    log::warn!("asked for on the console: {}", outlook.words());
                    force_adopt::begin(&outlook, &Host)?;
                    Outcome::Done("The data disk is this VM's now. It restarts as its node.".to_owned())
                }
                Err(words) => Outcome::Failed(words),
            }
        }
        Effect::Shell => Outcome::Done(String::new()),
    })
}

fn present(root: &Path, scope: Scope) -> anyhow::Result<Outcome> {
    Ok(Outcome::Present(scope, reconfigure::present(root)?))
}

fn change(root: &Path, changes: &[(&'static str, Secret)]) -> anyhow::Result<Outcome> {
    let keys: Vec<&str> = changes.iter().map(|(key, _)| *key).collect();
    let changes: Vec<(&str, &str)> = changes.iter().map(|(key, text)| (*key, text.expose())).collect();
    Ok(match reconfigure::apply(root, &changes) {
        Ok(ReconfigureResult { effect, .. }) => {
            log::info!("changed on the console: {}", keys.join(", "));
            Outcome::Done(
                match effect {
                    reconfigure::Effect::Nothing => "The properties have these values already.",
                    reconfigure::Effect::Awaited => "Saved. The agent applies it in a few seconds.",
                    reconfigure::Effect::Restarted => "Saved. The agent was restarted and applies it.",
                }
                .to_owned(),
            )
        }
        Err(reconfigure::Error::Refused(findings)) => Outcome::Refused(findings),
        Err(reconfigure::Error::Failed(error)) => return Err(error),
    })
}

/// Hashes a password with the system's own programs. It is set for `admin`, and the hash from /etc/shadow goes into the
/// configuration.
fn hash(root: &Path, password: &Secret) -> anyhow::Result<Secret> {
    let platform = Platform::detect(root)?;
    let line = zeroize::Zeroizing::new(format!("admin:{}\n", password.expose()));
    Host.run(&Command::new("chpasswd").input(line.as_bytes())).context("hashing the password")?;
    let shadow = std::fs::read_to_string(platform.path("/etc/shadow")).context("reading /etc/shadow")?;
    let hash = shadow.lines().find_map(|line| line.strip_prefix("admin:")?.split(':').next());
    Ok(Secret::new(hash.context("the image has no user admin")?.to_owned()))
}

fn journal(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut command = Command::new("journalctl").args(["--unit=kaas-agent", "--no-pager", "--output=short-iso"]);
    if root != Path::new("/") {
        command = command.arg(format!("--root={}", root.display()));
    }
    let text = Host.run(&command.arg(format!("--lines={LINES}")))?;
    Ok(String::from_utf8_lossy(&text).lines().map(str::to_owned).collect())
}

fn bundle(root: &Path) -> anyhow::Result<Outcome> {
    let summary = bundle::write(root, &Host, None, BUNDLE, &mut |_| {})?;
    let file = summary.file.as_deref().unwrap_or(root);
    let (file, size) = (file.display(), summary.bytes.div_ceil(1024));
    Ok(Outcome::Done(format!(
        "The support bundle is {file}, {size} KiB. Fetch it with scp, or look into it in the shell."
    )))
}

/// Asks logind to shut the system down in order (`org.freedesktop.login1.Manager`).
fn power(method: &str, words: &str) -> anyhow::Result<Outcome> {
    log::warn!("asked for on the console: {method}");
    let () = bus::system()?.call(
        "org.freedesktop.login1",
        "/org/freedesktop/login1",
        "org.freedesktop.login1.Manager",
        method,
        &(false,),
    )?;
    Ok(Outcome::Done(words.to_owned()))
}
