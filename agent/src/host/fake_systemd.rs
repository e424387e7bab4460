//! For tests: systemd, hostnamed and networkd at the other end of a socket. A started unit becomes active, and no
//! process runs. A stop or restart is queued, and begins after the unit's state was read once.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;

use tokio::runtime::Builder;
use zbus::OwnedObjectPath;

use super::bus::{self, Bus};
use super::files;
use super::services::FAILED_STARTS;

const SYSTEMD: &str = "/org/freedesktop/systemd1";
const HOSTNAMED: &str = "/org/freedesktop/hostname1";
const NETWORKD: &str = "/org/freedesktop/network1";
/// The object of all network devices.
const LINK: &str = "/org/freedesktop/network1/link/any";
/// The object of all units. It has the unit that was requested last.
const UNIT: &str = "/org/freedesktop/systemd1/unit/asked";
const ETCD: &str = "etcd.service";

/// The units since power-on, of the system below a directory.
#[derive(Clone)]
pub(crate) struct FakeSystemd {
    root: PathBuf,
    units: Arc<Mutex<Units>>,
    link: Arc<Mutex<Described>>,
}

struct Described {
    description: String,
    failed: bool,
    reconfigured: usize,
}

#[derive(Default)]
struct Units {
    active: BTreeSet<String>,
    /// Active units that were asked to stop, and whether they have begun to stop.
    stopping: BTreeMap<String, bool>,
    /// Stopping units that start again.
    again: BTreeSet<String>,
    ending: BTreeMap<String, Ending>,
    asked: String,
    etcd: String,
}

/// A service that ends at each start.
struct Ending {
    /// It ends while this file exists.
    cause: PathBuf,
    /// Whether systemd starts it again.
    tries: bool,
    restarts: u32,
}

impl Ending {
    fn ends(&self) -> bool {
        self.tries && self.cause.exists()
    }
}

impl FakeSystemd {
    pub(crate) fn new(root: &Path) -> Self {
        let link = Described { description: "{}".to_owned(), failed: false, reconfigured: 0 };
        Self { root: root.to_owned(), units: Arc::default(), link: Arc::new(Mutex::new(link)) }
    }

    /// Sets networkd's description of each device, in JSON.
    pub(crate) fn describe_links(&self, description: &serde_json::Value) {
        self.link.lock().unwrap().description = description.to_string();
    }

    pub(crate) fn fail_links(&self) {
        self.link.lock().unwrap().failed = true;
    }

    /// How often networkd was asked to reconfigure a device.
    pub(crate) fn reconfigured(&self) -> usize {
        self.link.lock().unwrap().reconfigured
    }

    pub(crate) fn end_at_each_start(&self, service: &str, cause: &Path) {
        let mut units = self.units.lock().unwrap();
        units.active.remove(service);
        let ending = Ending { cause: cause.to_owned(), tries: true, restarts: FAILED_STARTS };
        units.ending.insert(service.to_owned(), ending);
    }

    pub(crate) fn bus(&self) -> Bus {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let systemd = self.clone();
        thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                theirs.set_nonblocking(true).unwrap();
                let connection = zbus::connection::Builder::unix_stream(theirs)
                    .server(zbus::Guid::generate())
                    .p2p()
                    .serve_at(SYSTEMD, Manager(systemd.clone()))
                    .serve_at(UNIT, Unit(systemd.clone()))
                    .serve_at(UNIT, Service(systemd.clone()))
                    .serve_at(NETWORKD, Networkd(systemd.clone()))
                    .serve_at(LINK, Link(systemd))
                    .serve_at(HOSTNAMED, HostName)
                    .build();
                connection.await.unwrap().closed().await;
            });
        });
        bus::over(ours)
    }

    /// The configuration that etcd's last process was started with.
    pub(crate) fn etcd_configuration(&self) -> String {
        self.units.lock().unwrap().etcd.clone()
    }

    fn start(&self, unit: &str) {
        let mut units = self.units.lock().unwrap();
        if units.stopping.contains_key(unit) {
            units.again.insert(unit.to_owned());
        } else if !units.active.contains(unit) {
            self.begin(&mut units, unit);
        }
    }

    fn stop(&self, unit: &str, again: bool) {
        let mut units = self.units.lock().unwrap();
        if let Some(ending) = units.ending.get_mut(unit) {
            ending.tries = false;
        }
        if units.active.contains(unit) {
            units.stopping.entry(unit.to_owned()).or_default();
            units.again.remove(unit);
        }
        drop(units);
        if again {
            self.start(unit);
        }
    }

    fn begin(&self, units: &mut Units, unit: &str) {
        if unit == ETCD {
            // A started etcd has a log.
            fs::create_dir_all(files::below(&self.root, "/var/lib/etcd/member/wal")).unwrap();
            units.etcd = fs::read_to_string(files::below(&self.root, "/run/kaas/etcd.yaml")).unwrap_or_default();
        }
        if let Some(ending) = units.ending.get_mut(unit) {
            ending.tries = true;
            if ending.ends() {
                ending.restarts += FAILED_STARTS;
                return;
            }
        }
        units.active.insert(unit.to_owned());
    }

    /// The state of the unit that was requested last. A unit that was asked to stop is first still active, then
    /// stopping, then stopped.
    fn state(&self) -> &'static str {
        let mut units = self.units.lock().unwrap();
        let unit = units.asked.clone();
        let queued = units.stopping.get_mut(&unit).is_some_and(|begun| !std::mem::replace(begun, true));
        if !queued && units.stopping.remove(&unit).is_some() {
            units.active.remove(&unit);
            if units.again.remove(&unit) {
                self.begin(&mut units, &unit);
            }
            "deactivating"
        } else if units.active.contains(&unit) {
            "active"
        } else if units.ending.get(&unit).is_some_and(Ending::ends) {
            "activating"
        } else {
            "inactive"
        }
    }
}

fn found() -> OwnedObjectPath {
    zbus::ObjectPath::try_from(UNIT).unwrap().into()
}

struct Manager(FakeSystemd);

#[zbus::interface(name = "org.freedesktop.systemd1.Manager")]
impl Manager {
    fn load_unit(&self, name: String) -> OwnedObjectPath {
        self.0.units.lock().unwrap().asked = name;
        found()
    }

    fn start_unit(&self, name: String, _mode: String) -> OwnedObjectPath {
        self.0.start(&name);
        found()
    }

    fn restart_unit(&self, name: String, _mode: String) -> OwnedObjectPath {
        self.0.stop(&name, true);
        found()
    }

    fn stop_unit(&self, name: String, _mode: String) -> OwnedObjectPath {
        self.0.stop(&name, false);
        found()
    }

    fn reset_failed_unit(&self, name: String) {
        if let Some(ending) = self.0.units.lock().unwrap().ending.get_mut(&name) {
            ending.restarts = 0;
        }
    }
}

struct Unit(FakeSystemd);

#[zbus::interface(name = "org.freedesktop.systemd1.Unit")]
impl Unit {
    #[zbus(property)]
    fn active_state(&self) -> String {
        self.0.state().to_owned()
    }
}

struct Service(FakeSystemd);

#[zbus::interface(name = "org.freedesktop.systemd1.Service")]
impl Service {
    #[zbus(property)]
    fn n_restarts(&self) -> u32 {
        let units = self.0.units.lock().unwrap();
        units.ending.get(&units.asked).map_or(0, |ending| ending.restarts)
    }

    #[zbus(property)]
    fn exec_main_start_timestamp_monotonic(&self) -> u64 {
        let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).unwrap();
        u64::try_from(std::time::Duration::from(now).as_micros()).unwrap()
    }
}

struct Networkd(FakeSystemd);

#[zbus::interface(name = "org.freedesktop.network1.Manager")]
impl Networkd {
    fn get_link_by_index(&self, _index: i32) -> (String, OwnedObjectPath) {
        (String::new(), zbus::ObjectPath::try_from(LINK).unwrap().into())
    }

    fn reload(&self) {}

    fn reconfigure_link(&self, _index: i32) {
        let mut link = self.0.link.lock().unwrap();
        link.failed = false;
        link.reconfigured += 1;
    }
}

struct Link(FakeSystemd);

#[zbus::interface(name = "org.freedesktop.network1.Link")]
impl Link {
    fn describe(&self) -> String {
        self.0.link.lock().unwrap().description.clone()
    }

    #[zbus(property)]
    fn administrative_state(&self) -> String {
        if self.0.link.lock().unwrap().failed { "failed".to_owned() } else { "configuring".to_owned() }
    }
}

struct HostName;

#[zbus::interface(name = "org.freedesktop.hostname1")]
impl HostName {
    fn set_static_hostname(&self, _name: String, _interactive: bool) {}
}
