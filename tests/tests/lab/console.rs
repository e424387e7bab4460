//! The console of a virtual machine, driven over its second serial port, and
//! what only a machine has: a CD-ROM drive, a clock.

use std::process::{Child, Command};
use std::time::Duration;

use contract::properties as keys;
use lab::Hardware;
use scenarios::scenario::{Scenario, Setting};

/// Emulated processors are slow, and the machine may be busy.
const FORMING: Duration = Duration::from_secs(30 * 60);
const WORK: Duration = Duration::from_secs(15 * 60);

/// Which start of the system it is.
fn boot(scenario: &Scenario) -> anyhow::Result<String> {
    scenario.lab().run_inside("cp1", &["cat", "/proc/sys/kernel/random/boot_id"], WORK)
}

/// Presses Ctrl+Alt+Del at the VM's keyboard, without a password. The number of presses would make systemd restart at once (seven
/// times within two seconds: systemd-system.conf(5)). Returns the identity of the system's start, before and afterwards.
fn nobody_restarts_it_by_its_keyboard(scenario: &Scenario) -> String {
    // The input of the keyboard so far, in interrupts of its controller: each key gives one or more when it is pressed
    // and when it is released. Some are lost where processors are emulated.
    let heard = || -> anyhow::Result<u64> {
        let said = scenario.lab().run_inside("cp1", &["cat", "/proc/interrupts"], WORK)?;
        let counts = said.lines().filter(|line| line.trim_end().ends_with("i8042"));
        Ok(counts.flat_map(str::split_whitespace).skip(1).filter_map(|count| count.parse::<u64>().ok()).sum())
    };
    let (before, heard_before) = (boot(scenario).unwrap(), heard().unwrap());
    for _ in 0..20 {
        scenario.lab().press("cp1", &["ctrl", "alt", "delete"]).unwrap_or_else(|error| panic!("{error:#}"));
    }
    scenario.wait("the guest to hear the keys", WORK, || Ok(heard()? >= heard_before + 20 * 3));
    let jobs = scenario.inside("cp1", &["systemctl", "list-jobs", "--no-legend"]);
    assert!(!jobs.contains("reboot.target") && !jobs.contains("shutdown.target"), "{jobs}");
    assert_eq!(boot(scenario).unwrap(), before, "Ctrl+Alt+Del restarted the node");
    before
}

pub mod long {
    use scenarios::terminal::{Terminal, key};

    use super::*;

    const PASSWORD: &str = "Lab pass#word 1";
    /// crypt(5) of it.
    const HASH: &str =
        "$6$kaaslab$sXZ9Yu1kZy8xCxf1jJdoxnVN8ii0hE7FI5fmBFKDPqev1uQoM325LbFiBjdADdlRl3RyCWi.yC0u6QfabhzOx1";
    const ANOTHER: &str = "another & longer one";
    const SLOWED: &str = "The next try is possible in";

    /// The operator's work at the console: from the form that corrects a wrong gateway to the reset.
    pub fn node_is_corrected_and_reset_on_its_console() {
        let scenario = Scenario::prepare(&Setting {
            hardware: Some(Hardware::Quick),
            properties: &[(keys::GATEWAY, "10.1.2.3"), (keys::CONSOLE_PASSWORD_HASH, HASH)],
            ..Setting::one("console")
        });
        scenario.power_on(&["cp1"]);
        scenario.says("cp1", "must be corrected", WORK);
        let mut terminal = Terminal::connect(&scenario, "cp1");
        terminal.press(&[key::REDRAW]);
        terminal.shows("[gateway.off-subnet]", WORK);
        terminal.print("status with a wrong property");

        // Nothing is protected yet: each user of the console may correct it.
        terminal.opens_the_form("is not in the node's subnet", WORK);
        let gateway = scenario.lab().plan().bridge.split('/').next().unwrap_or_default().to_owned();
        terminal.press(&[key::CLEAR, &gateway, key::SAVE]);
        scenario.says("cp1", "kaas: ready", FORMING);
        terminal.shows("serving", WORK);
        terminal.print("status of a node that is ready");

        let runs = nobody_restarts_it_by_its_keyboard(&scenario);

        // From now on the password is asked for, and guessing is slow.
        let unlock = |terminal: &mut Terminal<'_>, password: &str| {
            terminal.press(&[key::ENTER]);
            terminal.shows("Type the console password", WORK);
            terminal.lacks(SLOWED, WORK);
            terminal.press(&[password, key::ENTER]);
            terminal.shows_one_of(&["Enter: open", "was not accepted"], WORK)
        };
        assert_eq!(unlock(&mut terminal, "a guess"), "was not accepted");
        scenario.wait("guessing to be slowed", WORK, || {
            terminal.press(&["a guess", key::ENTER]);
            Ok(terminal.text().contains(SLOWED))
        });
        terminal.print("a wrong password");
        terminal.press(&[key::ESCAPE]);
        terminal.shows("Enter: menu", WORK);
        scenario.wait("the next try to be possible", WORK, || Ok(unlock(&mut terminal, PASSWORD) == "Enter: open"));
        terminal.print("the menu");

        for (title, words) in [
            ("Certificates", "kaas-endpoint"),
            ("Versions and upgrade state", "generation 1"),
            ("Logs of the agent", "Up/Down: scroll"),
        ] {
            terminal.choose(title);
            terminal.shows(words, WORK);
            terminal.print(title);
            terminal.press(&[key::ESCAPE]);
            terminal.shows("Enter: open", WORK);
        }

        terminal.choose("Support bundle");
        terminal.shows(".tar.gz", WORK);
        terminal.print("a support bundle");
        assert!(scenario.inside("cp1", &["ls", "/var/tmp"]).contains("kaas-support-cp1-"));

        terminal.choose("Shell");
        terminal.shows("$", WORK);
        terminal.press(&["echo I am $(id --user --name)", key::ENTER]);
        terminal.shows("I am admin", WORK);
        terminal.press(&["exit", key::ENTER]);
        terminal.shows("The shell has ended", WORK);

        terminal.choose("Console password");
        terminal.shows("once more", WORK);
        terminal.press(&[ANOTHER, key::ENTER, ANOTHER, key::ENTER]);
        terminal.shows("Enter: menu", WORK);
        terminal.print("another password");
        // Back in the menu, which Escape locks.
        terminal.press(&[key::ENTER]);
        terminal.shows("Enter: open", WORK);
        terminal.press(&[key::ESCAPE]);
        terminal.shows("Enter: menu", WORK);
        scenario.wait("the new password to count", WORK, || Ok(unlock(&mut terminal, ANOTHER) == "Enter: open"));

        // Secrets are on the CD-ROM: it went out when the configuration was saved. (Looked at without
        // opening the drive in the ordinary way, which would close its tray.)
        let drive = scenario.inside("cp1", &["/usr/lib/udev/cdrom_id", "/dev/sr0"]);
        assert!(drive.contains("ID_CDROM=1") && !drive.contains("ID_CDROM_MEDIA"), "{drive}");

        let before = boot(&scenario).unwrap();
        assert_eq!(before, runs, "the node has restarted since Ctrl+Alt+Del");
        terminal.choose("Restart");
        terminal.shows("To confirm, type: cp1", WORK);
        terminal.press(&["cp2", key::ENTER]);
        terminal.shows("That is not cp1. Nothing was done.", WORK);
        terminal.print("a restart that was not confirmed");
        terminal.press(&["cp1", key::ENTER]);
        scenario.wait("the VM to have restarted", FORMING, || Ok(boot(&scenario)? != before));
        scenario.wait("the node to be ready", FORMING, || {
            Ok(scenario.lab().run_inside("cp1", &["kaas-agent", "status"], WORK).is_ok())
        });

        let machine = scenario.inside("cp1", &["cat", "/etc/machine-id"]);
        terminal.press(&[key::REDRAW]);
        terminal.shows("Enter: menu", WORK);
        scenario.wait("the password to be taken after a restart", WORK, || {
            Ok(unlock(&mut terminal, ANOTHER) == "Enter: open")
        });
        terminal.choose("Reset");
        terminal.shows("To confirm, type: cp1 ", WORK);
        terminal.print("what a reset means");
        let cluster = scenario.lab().status("cp1").unwrap()["cluster"].as_str().unwrap().to_owned();
        terminal.press(&[&format!("cp1 {cluster}"), key::ENTER]);
        // It begins as freshly deployed: with the wrong gateway, if the restart has closed the drive's
        // tray, otherwise without an environment.
        terminal.shows_one_of(&["[gateway.off-subnet]", "[environment.absent]"], FORMING);
        terminal.print("a node that was reset");
        let lab = scenario.lab();
        let disk = lab.disk_file(lab.disks("cp1").unwrap()[0]);
        let found = Command::new("grep").args(["--text", "--quiet", machine.trim()]).arg(&disk).status().unwrap();
        assert!(!found.success(), "the data disk still holds the node's machine ID");
    }

    /// A server of time in the lab's network, ended with the scenario.
    struct TimeServer(Child);

    impl TimeServer {
        /// So many seconds ahead of this machine.
        fn start(scenario: &Scenario, ahead: u32) -> Self {
            let address = scenario.lab().plan().bridge.split('/').next().unwrap_or_default().to_owned();
            Self(
                scenario
                    .lab()
                    .outside(env!("CARGO_BIN_EXE_time-server"), [address, ahead.to_string()])
                    .spawn()
                    .expect("starting the time server"),
            )
        }
    }

    impl Drop for TimeServer {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// The clock of the hardware is years behind, and the VM's scratch disk has no later time. The node uses the time on the data
    /// disk, and works. A time server then corrects the clock.
    pub fn node_works_while_its_clock_is_far_off() {
        let scenario = Scenario::prepare(&Setting {
            hardware: Some(Hardware::Quick),
            properties: &[(keys::NTP_SERVERS, "192.168.77.1")],
            ..Setting::one("vmclock")
        });
        let inside = |script: &str| scenario.inside("cp1", &["sh", "-ec", script]);
        let synchronized = |limit| {
            scenario.wait("the clock to be synchronized", limit, || {
                let said =
                    scenario.lab().run_inside("cp1", &["timedatectl", "show", "--property=NTPSynchronized"], WORK)?;
                Ok(said.trim() == "NTPSynchronized=yes")
            });
        };
        let server = TimeServer::start(&scenario, 0);
        scenario.power_on(&["cp1"]);
        scenario.all_ready(FORMING);
        synchronized(WORK);
        let before: u64 = inside("date +%s").trim().parse().unwrap();
        drop(server);

        let boot_before = boot(&scenario).unwrap();
        // In one go: what runs notices a clock that goes back by years.
        let _ = scenario.lab().run_inside(
            "cp1",
            &[
                "sh",
                "-c",
                "systemctl stop chronyd-restricted && sync
                 timedatectl set-time '2001-02-03 04:05:06' && reboot --force --force",
            ],
            WORK,
        );
        scenario.wait("the VM to have restarted", FORMING, || Ok(boot(&scenario)? != boot_before));
        scenario.wait("the node to be ready", FORMING, || {
            Ok(scenario.lab().run_inside("cp1", &["kaas-agent", "status"], WORK).is_ok())
        });
        let now: u64 = inside("date +%s").trim().parse().unwrap();
        // The time is kept every few minutes.
        assert!(now + 600 > before, "the clock says {now} after it said {before}");
        let status = scenario.lab().status("cp1").unwrap().to_string();
        assert!(status.contains("clock.behind"), "{status}");

        let server = TimeServer::start(&scenario, 0);
        synchronized(FORMING);
        let here = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        let is_right = || {
            let before = here();
            let now: u64 = inside("date +%s").trim().parse().unwrap();
            let after = here();
            assert!((before - 1..=after + 1).contains(&now), "{now} is not between {before} and {after}");
        };
        is_right();

        // chronyd follows any time in its first three updates. The third answer is the first update, and the register has eight answers.
        scenario.wait("chronyd to have updated the clock three times", FORMING, || {
            let said = scenario.lab().run_inside("cp1", &["chronyc", "-n", "-c", "sources"], WORK)?;
            Ok(said.split(',').nth(5) == Some("377"))
        });
        // chronyd no longer sets the clock: the server's time is named, and not followed.
        drop(server);
        let _server = TimeServer::start(&scenario, 3600);
        scenario.wait("the node to name a time server that is far away", FORMING, || {
            Ok(scenario.lab().status("cp1")?.to_string().contains("clock.differs"))
        });
        // The finding comes with an answer, chronyd judges several: it logs the update that it refuses.
        scenario.wait("chronyd to refuse the server's time", FORMING, || {
            let journal = ["journalctl", "--boot", "--unit=chronyd-restricted", "--output=cat"];
            let said = scenario.lab().run_inside("cp1", &journal, WORK)?;
            Ok(said.contains("exceeds the allowed maximum of"))
        });
        is_right();
    }
}
