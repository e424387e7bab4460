//! Opens the console and SSH of a configured node before the first step of the plan, which may wait for long. They are
//! also opened if the boot makes no plan.

use std::path::Path;

use anyhow::anyhow;

use crate::cluster::firewall::{Firewall, Rules};
use crate::cluster::records::Records;
use crate::host::bus::{self, Bus};
use crate::host::command::{Host, Runner};
use crate::host::platform::Platform;
use crate::host::services::Services;
use crate::intake::config::Config;
use crate::system::{access, network};

/// Opens console and SSH as `config` says, which may be newer than the saved one. A failure is logged. It does not
/// close what is already open.
pub(super) fn open_before_steps(platform: &Platform, runner: &dyn Runner, bus: &Bus, config: &Config) {
    // The host's keys are on the data disk. That of a new node is not mounted.
    if !matches!(Records::new(platform.root()).config(), Ok(None)) {
        log_failure(access::ensure(platform, runner, &Services::new(bus), config.node()).map(drop));
    }
}

/// The same if the boot makes no plan: the node then also configures its network. If `known` is `None`, the saved
/// configuration is used.
pub(super) fn open_without_plan(root: &Path, known: Option<&Config>) {
    let open = || open(&Platform::detect(root)?, &Host, &bus::system()?, known);
    log_failure(open());
}

fn open(platform: &Platform, runner: &dyn Runner, bus: &Bus, known: Option<&Config>) -> anyhow::Result<()> {
    let Some(saved) = Records::new(platform.root()).config()? else { return Ok(()) };
    let config = known.unwrap_or(&saved);
    open_before_steps(platform, runner, bus, config);
    Firewall::new(platform.root()).ensure(runner, &Rules::of(config)).map_err(|finding| anyhow!("{finding}"))?;
    network::ensure(platform, runner, bus, config, true).map(drop).map_err(|findings| anyhow!("{findings}"))
}

fn log_failure(opened: anyhow::Result<()>) {
    if let Err(error) = opened {
        log::warn!("cannot open SSH and console: {error:#}");
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Mutex;

    use super::*;
    use crate::cluster::records::Progress;
    use crate::host::command::{Command, Error};
    use crate::host::fake_systemd::FakeSystemd;
    use contract::secret::Secret;

    const HASH: &str = "$5$saltstring$uzdVN3XcAOYKRlFzn8F5/iMpo99aMD8sXQTYY9P10Z8";

    /// Records the commands. `nft` fails, as in the worst case.
    #[derive(Default)]
    struct Programs(Mutex<Vec<String>>);

    impl Runner for Programs {
        fn run(&self, command: &Command) -> Result<Vec<u8>, Error> {
            let line = command.to_string();
            self.0.lock().unwrap().push(format!("{line} < {}", String::from_utf8_lossy(command.given())));
            match line.starts_with("nft") {
                true => Err(Error::Start { command: line, source: std::io::Error::other("no") }),
                false => Ok(Vec::new()),
            }
        }
    }

    /// A node that has saved a configuration with a password and a key.
    fn node() -> (tempfile::TempDir, Platform) {
        let root = tempfile::tempdir().unwrap();
        let platform = Platform::detect(root.path()).unwrap();
        for directory in ["/etc", "/data/ssh"] {
            fs::create_dir_all(platform.path(directory)).unwrap();
        }
        fs::write(platform.path("/etc/shadow"), "admin:!*:1::::::\n").unwrap();
        fs::write(platform.path("/data/ssh/ssh_host_ed25519_key"), "key").unwrap();
        let config = config(HASH, "ssh-ed25519 AAAA one");
        Records::new(root.path()).save_config(&config, &Secret::new("s".into())).unwrap();
        (root, platform)
    }

    fn config(hash: &str, key: &str) -> Config {
        let mut config = crate::intake::config::fixture::three_nodes();
        config.node.console_password_hash = Some(hash.to_owned());
        config.node.ssh_authorized_keys = vec![key.to_owned()];
        Config::ControlPlane(config)
    }

    #[test]
    fn new_properties_open_an_unformed_node() {
        let (root, platform) = node();
        let (systemd, programs) = (FakeSystemd::new(root.path()), Programs::default());
        let given = config("$5$new$y", "ssh-ed25519 BBBB two");
        open(&platform, &programs, &systemd.bus(), Some(&given)).unwrap_err();
        let ran = programs.0.lock().unwrap();
        assert!(ran.contains(&"chpasswd --encrypted < admin:$5$new$y\n".to_owned()), "{ran:?}");
        assert!(!ran.iter().any(|line| line.contains(HASH)), "{ran:?}");
        let keys = fs::read_to_string(platform.path("/etc/ssh/authorized_keys.d/admin")).unwrap();
        assert_eq!(keys, "ssh-ed25519 BBBB two\n");
    }

    #[test]
    fn a_damaged_record_leaves_console_and_ssh_open() {
        let (root, platform) = node();
        let at = |path: &str| platform.path(path);
        let records = Records::new(root.path());
        records.save_progress(Progress { etcd: true, ..Progress::default() }).unwrap();
        fs::write(at("/data/kaas/progress.json"), "{").unwrap();
        fs::write(at("/data/kaas/config.json"), "{").unwrap();

        let (systemd, programs) = (FakeSystemd::new(root.path()), Programs::default());
        let bus = systemd.bus();
        // Without a firewall the node stays off the network, but the console opens.
        assert!(open(&platform, &programs, &bus, None).unwrap_err().to_string().contains("firewall"));
        let ran = programs.0.lock().unwrap();
        assert!(ran.contains(&format!("chpasswd --encrypted < admin:{HASH}\n")), "{ran:?}");
        assert_eq!(Services::new(&bus).state("ssh.service").unwrap(), "active");
        assert!(fs::read_to_string(at("/etc/ssh/authorized_keys.d/admin")).unwrap().contains("AAAA one"));
    }
}
