//! Console and SSH of a node that has a configuration: they open before the first step of the plan, which may wait for long,
//! and also if the boot comes to no plan.

use std::path::Path;

use crate::cluster::firewall::{Firewall, Rules};
use crate::cluster::records::Records;
use crate::host::bus::{self, Bus};
use crate::host::command::{Host, Runner};
use crate::host::platform::Platform;
use crate::host::services::Services;
use crate::intake::config::Config;
use crate::system::{access, network};

/// Opens the ways in of a node whose configuration is saved. A failure is logged: what could be opened is open.
pub(super) fn before_the_steps(platform: &Platform, runner: &dyn Runner, bus: &Bus) {
    match Records::new(platform.root()).config() {
        Ok(Some(config)) => log_failure(access::ensure(platform, runner, &Services::new(bus), config.node()).map(drop)),
        Ok(None) => {}
        Err(error) => log_failure(Err(error)),
    }
}

/// The same if the boot comes to no plan: then the node goes on its network, too.
pub(super) fn without_a_plan(root: &Path) {
    let open = || open(&Platform::detect(root)?, &Host, &bus::system()?);
    log_failure(open());
}

fn open(platform: &Platform, runner: &dyn Runner, bus: &Bus) -> anyhow::Result<()> {
    before_the_steps(platform, runner, bus);
    let Some(config) = Records::new(platform.root()).config()? else { return Ok(()) };
    go_online(platform, runner, bus, &config)
}

fn go_online(platform: &Platform, runner: &dyn Runner, bus: &Bus, config: &Config) -> anyhow::Result<()> {
    let words = |finding: &dyn std::fmt::Display| anyhow::anyhow!("{finding}");
    Firewall::new(platform.root()).ensure(runner, &Rules::of(config)).map_err(|finding| words(&finding))?;
    network::ensure(platform, runner, bus, config, true).map_err(|findings| words(&findings))?;
    Ok(())
}

fn log_failure(opened: anyhow::Result<()>) {
    if let Err(error) = opened {
        log::warn!("opening the ways in: {error:#}");
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

    /// Notes what ran. `nft` fails, as in the worst case.
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

    #[test]
    fn a_damaged_record_leaves_console_and_ssh_open() {
        let root = tempfile::tempdir().unwrap();
        let platform = Platform::detect(root.path()).unwrap();
        let at = |path: &str| crate::host::files::below(root.path(), path);
        for directory in ["/etc", "/data/ssh"] {
            fs::create_dir_all(at(directory)).unwrap();
        }
        fs::write(at("/etc/shadow"), "admin:!*:1::::::\n").unwrap();
        fs::write(at("/data/ssh/ssh_host_ed25519_key"), "key").unwrap();
        let mut config = crate::intake::config::fixture::three_nodes();
        config.node.console_password_hash = Some(HASH.to_owned());
        config.node.ssh_authorized_keys = vec!["ssh-ed25519 AAAA one".to_owned()];
        let records = Records::new(root.path());
        records.save_config(&Config::ControlPlane(config), &Secret::new("s".into())).unwrap();
        records.save_progress(Progress { etcd: true, ..Progress::default() }).unwrap();
        fs::write(at("/data/kaas/progress.json"), "{").unwrap();
        fs::write(at("/data/kaas/config.json"), "{").unwrap();

        let (systemd, programs) = (FakeSystemd::new(root.path()), Programs::default());
        let bus = systemd.bus();
        // Without its firewall it stays off the network; the console opens all the same.
        assert!(open(&platform, &programs, &bus).unwrap_err().to_string().contains("firewall"));
        let ran = programs.0.lock().unwrap();
        assert!(ran.contains(&format!("chpasswd --encrypted < admin:{HASH}\n")), "{ran:?}");
        assert_eq!(Services::new(&bus).state("ssh.service").unwrap(), "active");
        assert!(fs::read_to_string(at("/etc/ssh/authorized_keys.d/admin")).unwrap().contains("AAAA one"));
    }
}
