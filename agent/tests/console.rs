//! The console, driven key by key: the real program on a pseudo-terminal, on a
//! node that is a temporary directory.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use agent::cluster::join::{WorkerMembership, no_token};
use agent::cluster::records::{Progress, Records};
use agent::intake::config::Config;
use agent::status::{Phase, Reporter, Status};
use contract::codes;
use contract::secret::Secret;
use flate2::read::GzDecoder;
use nix::pty::{Winsize, openpty};
use tempfile::TempDir;

/// Only a hanging test takes that long: no assertion depends on times.
const LIMIT: Duration = Duration::from_secs(600);

/// Replaces PAM's helper: knows one password.
const HELPER: &str = "#!/bin/sh\n[ \"$1\" = admin ] && [ \"$(tr -d '\\000')\" = right ] || exit 7\n";

fn lay(root: &Path, path: &str, content: &[u8], mode: u32) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, content).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A node of the present image.
fn node() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    lay(root.path(), "usr/lib/kaas/image.json", include_bytes!("../src/intake/config/fixtures/image.json"), 0o644);
    lay(root.path(), "usr/sbin/unix_chkpwd", HELPER.as_bytes(), 0o755);
    root
}

fn reports(root: &Path, change: impl FnOnce(&mut Status)) {
    Reporter::new(root, Status::default()).update(change);
}

/// Makes the node one of a formed cluster, with a console password.
fn form(root: &Path) {
    let config: Config = serde_json::from_value(serde_json::json!({
        "role": "control-plane",
        "cluster": {
            "name": "lab", "control_nodes": [{"name": "cp1", "address": "10.0.0.11"}], "virtual_address": null,
            "pod_cidr": "10.244.0.0/16", "service_cidr": "10.96.0.0/16", "vxlan_port": 8472, "kubernetes_minor": "1.36",
            "pod_security": "baseline", "add_ons": {},
        },
        "node": {
            "name": "cp1",
            "interfaces": [{"mac": null, "network": null, "address": "10.0.0.11/24", "gateway": null}],
            "dns_servers": [], "search_domains": [], "ntp_servers": [], "ssh_authorized_keys": [],
            "console_password_hash": "$5$saltstring$uzdVN3XcAOYKRlFzn8F5/iMpo99aMD8sXQTYY9P10Z8",
            "proxy": null, "extra_ca_certificates": [], "registry_mirror": null, "snapshot_every": 360,
        },
        "timeout_factor": 1,
    }))
    .unwrap();
    let records = Records::new(root);
    records.save_config(&config, &Secret::new("secret".into())).unwrap();
    records.save_progress(Progress { etcd: true, credentials: true, formed: true }).unwrap();
    records.erase_secret().unwrap();
    reports(root, |status| {
        (status.phase, status.node) = (Phase::Done, Some("cp1".into()));
        status.image = "kaas-control-plane 0.1.0 (development image)".into();
    });
}

/// The program on a terminal of 80 columns and 25 rows.
struct Console {
    child: Child,
    keys: File,
    output: Receiver<Vec<u8>>,
    screen: vt100::Parser,
    raw: Vec<u8>,
}

impl Console {
    fn open(root: &Path) -> Self {
        Self::open_with(root, &[])
    }

    /// With further options. Programs that replace others are in the root's `bin`.
    fn open_with(root: &Path, options: &[&str]) -> Self {
        let path = format!("{}:{}", root.join("bin").display(), std::env::var("PATH").unwrap());
        let size = Winsize { ws_row: 25, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(&size, None).unwrap();
        let slave = || Stdio::from(pty.slave.try_clone().unwrap());
        let child = Command::new(env!("CARGO_BIN_EXE_kaas-agent"))
            .arg("console")
            .arg("--root")
            .arg(root)
            .args(options)
            .env("PATH", path)
            .env("TERM", "linux")
            .stdin(slave())
            .stdout(slave())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let keys = File::from(pty.master);
        let mut reader = keys.try_clone().unwrap();
        let (send, output) = channel();
        thread::spawn(move || {
            let mut chunk = [0; 4096];
            // The read fails once the program has closed its side.
            while let Ok(read @ 1..) = reader.read(&mut chunk) {
                if send.send(chunk[..read].to_vec()).is_err() {
                    break;
                }
            }
        });
        Self { child, keys, output, screen: vt100::Parser::new(25, 80, 0), raw: Vec::new() }
    }

    fn type_in(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until the screen satisfies a condition, and returns it.
    fn until(&mut self, what: &str, condition: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + LIMIT;
        loop {
            let text = self.screen.screen().contents();
            if condition(&text) {
                return text;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match self.output.recv_timeout(left) {
                Ok(bytes) => {
                    self.screen.process(&bytes);
                    self.raw.extend(bytes);
                }
                Err(_) => panic!("no {what:?} on the screen:\n{text}"),
            }
        }
    }

    fn shows(&mut self, words: &str) -> String {
        self.until(words, |text| text.contains(words))
    }

    /// Gives a wrong password, which is not shown.
    fn guess(&mut self, password: &str) {
        self.type_in(password);
        // The first key removes the message about the last one.
        self.until("something hidden", |text| text.contains("***") && !text.contains("not accepted"));
        self.type_in(ENTER);
        self.shows("not accepted");
    }

    /// Ends it, which Ctrl-C does not, and checks that it has shown no secret.
    fn leave(mut self) {
        // Ctrl-L draws all of it again, after what was typed before.
        let seen = self.raw.len();
        self.type_in("\x03\x03\x03\x03\x03\x03\x0c");
        while !self.raw[seen..].windows(4).any(|written| written == b"\x1b[2J") {
            self.raw.extend(self.output.recv_timeout(LIMIT).expect("it is drawn again"));
        }
        assert!(self.child.try_wait().unwrap().is_none(), "Ctrl-C has ended it");
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        loop {
            match self.output.recv_timeout(LIMIT) {
                Ok(bytes) => self.raw.extend(bytes),
                // The program's side is closed, and all is read.
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("the terminal is still open"),
            }
        }
        let raw = String::from_utf8_lossy(&self.raw).into_owned();
        for secret in ["right", "saltstring", "x7$Qm", "fedcba9876543210"] {
            assert!(!raw.contains(secret), "{secret} was written to the terminal");
        }
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const UP: &str = "\x1b[A";
const ENTER: &str = "\r";

#[test]
fn the_menu_locks_and_deletions_need_the_name() {
    let root = node();
    form(root.path());
    let mut console = Console::open(root.path());
    console.shows("Enter: menu");
    console.shows("this node: running, but not ready");

    console.type_in(ENTER);
    console.shows("Type the console password");
    // Each one doubles the pause: the third is long enough to be seen on any machine.
    for guess in ["wrong", "wrong again"] {
        console.guess(guess);
        console.until("the pause to pass", |text| !text.contains("next try"));
    }
    console.guess("once more");
    console.shows("The next try is possible in");
    console.leave();

    // The pause outlives the process.
    let mut console = Console::open(root.path());
    console.shows("Enter: menu");
    console.type_in(ENTER);
    console.shows("The next try is possible in");
    console.until("the pause to pass", |text| !text.contains("next try"));
    console.type_in("right\r");
    console.shows("Esc: lock");

    // The entries at the end: reset, shell, power off.
    console.type_in(UP);
    console.type_in(UP);
    console.type_in(UP);
    console.type_in(ENTER);
    console.shows("To confirm, type: cp1");
    console.type_in("cp2\r");
    console.shows("That is not cp1. Nothing was done.");
    console.type_in("\x1b");
    console.shows("Esc: lock");
    console.type_in("\x1b");
    console.shows("Enter: menu");
    console.type_in(ENTER);
    console.shows("Type the console password");
    console.leave();
}

/// Replaces runuser: a shell that counts its lines.
const SHELL: &str =
    "#!/bin/sh\necho a shell for $*\nn=0\nwhile read -r line; do n=$((n+1)); echo heard $n: $line; done\n";

#[test]
fn an_idle_shell_locks_until_the_password() {
    let root = node();
    form(root.path());
    lay(root.path(), "bin/runuser", SHELL.as_bytes(), 0o755);
    let mut console = Console::open_with(root.path(), &["--idle", "5"]);
    let opens_the_shell = |console: &mut Console| {
        console.shows("Enter: menu");
        console.type_in(ENTER);
        console.shows("Type the console password");
        console.type_in("right\r");
        console.shows("Esc: lock");
        // Reset is the last entry, the shell that before it.
        for key in [UP, UP, ENTER] {
            console.type_in(key);
        }
    };
    opens_the_shell(&mut console);
    console.shows("a shell for --login admin");
    console.type_in("one\n");
    console.shows("heard 1: one");
    let locked = console.shows("Enter: menu");
    assert!(!locked.contains("heard"), "what the shell shows is seen behind the lock:\n{locked}");
    // The same one, which has gone on.
    opens_the_shell(&mut console);
    console.shows("heard 1: one");
    console.type_in("two\n");
    console.shows("heard 2: two");
    // Without the password the shell cannot be ended either.
    console.shows("Enter: menu");
    console.type_in("\x03\r");
    console.shows("Type the console password");
}

#[test]
fn a_bad_property_is_corrected_in_the_form() {
    let root = node();
    let mut image = Vec::new();
    let packed: &[u8] = include_bytes!("../src/intake/environment/fixtures/iso/plain.iso.gz");
    GzDecoder::new(packed).read_to_end(&mut image).unwrap();
    let (good, bad) = (b"\"192.168.10.1\"", b"\"192.168.99.1\"");
    let at = image.windows(good.len()).position(|window| window == good).unwrap();
    image[at..at + bad.len()].copy_from_slice(bad);
    lay(root.path(), "run/host/kaas/cdrom.iso", &image, 0o600);
    let platform = r#"{"cdrom": "/run/host/kaas/cdrom.iso", "data_disks": [], "bios_uuid": "420f1a2b-0000-4000-8000-000000000001"}"#;
    lay(root.path(), "run/host/kaas/platform.json", platform.as_bytes(), 0o600);
    reports(root.path(), |status| {
        status.phase = Phase::Refused;
        status.findings = codes::GATEWAY_OFF_SUBNET.finding("gateway", "it is elsewhere", "Correct it").into();
    });

    let mut console = Console::open(root.path());
    console.shows("Enter: fix");
    console.type_in(ENTER);
    console.shows("Power off");
    console.type_in(ENTER);
    let form = console.shows("it is elsewhere. Correct it.");
    assert!(form.contains("192.168.99.1") && form.contains("(given; kept)"), "{form}");

    // Still wrong: the form shows it next to the field and saves nothing.
    let overrides = root.path().join("run/kaas/overrides.json");
    console.type_in("\x15192.168.10.999\x13");
    console.shows("Nothing was saved");
    assert!(!overrides.exists());
    console.type_in("\x15192.168.10.1\x13");
    console.shows("Saved. The agent applies it");
    let saved: serde_json::Value = serde_json::from_slice(&fs::read(&overrides).unwrap()).unwrap();
    assert_eq!(saved, serde_json::json!({ "gateway": "192.168.10.1" }));
    console.leave();
}

#[test]
fn expired_workers_get_a_token_in_the_form() {
    let root = node();
    let image = include_str!("../src/intake/config/fixtures/image.json");
    let image = image.replace("\"role\": \"control-plane\"", "\"role\": \"worker\"");
    lay(root.path(), "usr/lib/kaas/image.json", image.as_bytes(), 0o644);
    let kept = include_str!("../../tests/testdata/kept/config-worker.json");
    let mut config: serde_json::Value = serde_json::from_str(kept).unwrap();
    config["node"] = serde_json::json!({
        "name": "worker1",
        "interfaces": [{"mac": null, "network": null, "address": "10.0.0.21/24", "gateway": null}],
        "dns_servers": [], "search_domains": [], "ntp_servers": [], "ssh_authorized_keys": [],
        "console_password_hash": "$5$saltstring$uzdVN3XcAOYKRlFzn8F5/iMpo99aMD8sXQTYY9P10Z8",
        "proxy": null, "extra_ca_certificates": [], "registry_mirror": null,
    });
    let config: Config = serde_json::from_value(config).unwrap();
    let records = Records::new(root.path());
    records.save_config(&config, &Secret::new("abcdef.0123456789abcdef".into())).unwrap();
    records.save_progress(Progress { credentials: true, ..Progress::default() }).unwrap();
    records.erase_token().unwrap();
    reports(root.path(), |status| {
        (status.phase, status.node) = (Phase::Refused, Some("worker1".into()));
        status.findings = no_token(&WorkerMembership::Expired(SystemTime::UNIX_EPOCH)).into();
    });

    let mut console = Console::open(root.path());
    console.shows("the worker's certificate ended");
    console.type_in(ENTER);
    console.shows("Type the console password");
    console.type_in("right\r");
    console.shows("Esc: lock");
    // The form is the first entry, and the cursor is on the token.
    console.type_in(ENTER);
    console.shows("the worker's certificate ended");
    console.type_in("fedcba.fedcba9876543210\x13");
    // There is no agent here that could be started again.
    let became = console.until("what became of it", |text| text.contains("Saved.") || text.contains("saved"));
    assert!(!became.contains("Nothing was saved"), "{became}");
    assert_eq!(records.secret().unwrap().unwrap().expose(), "fedcba.fedcba9876543210");
    assert_eq!(records.config().unwrap().unwrap().node().name, "worker1");
    console.leave();
}
