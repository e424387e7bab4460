//! The lines of JSON by which a vCenter to test against asks for bodies of its machines, and hears of them
//! (`tests/vcenter/bodies`). It knows nothing of what carries them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A request.
#[derive(Debug, PartialEq, Eq, Deserialize)]
pub struct Request {
    /// What the reply names it by.
    pub id: i64,
    /// What is asked for.
    #[serde(flatten)]
    pub act: Act,
}

/// What is asked for. `vm` is the machine's BIOS UUID as vCenter writes it, and `run` names one power-on.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase", tag = "verb")]
pub enum Act {
    /// Start a machine.
    Start {
        /// All that it is.
        machine: Box<Machine>,
    },
    /// Ask its guest to shut down.
    Shutdown {
        /// Which.
        vm: String,
        /// Which power-on.
        run: String,
    },
    /// Take its power away.
    Cut {
        /// Which.
        vm: String,
        /// Which power-on.
        run: String,
    },
    /// Connect or disconnect one of its adapters.
    Nic {
        /// Which.
        vm: String,
        /// Which power-on.
        run: String,
        /// The adapter's key.
        key: i32,
        /// Whether it is to be connected.
        #[serde(default)]
        connected: bool,
    },
}

impl Act {
    /// Which machine it is about.
    pub fn vm(&self) -> &str {
        match self {
            Self::Start { machine } => &machine.vm,
            Self::Shutdown { vm, .. } | Self::Cut { vm, .. } | Self::Nic { vm, .. } => vm,
        }
    }
}

/// A machine at its power-on.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Machine {
    /// BIOS UUID.
    pub vm: String,
    /// Which power-on.
    pub run: String,
    /// Name in the inventory: any text.
    pub name: String,
    /// Its disks, in no order.
    #[serde(default)]
    pub disks: Vec<Disk>,
    /// Its network adapters.
    #[serde(default)]
    pub nics: Vec<Nic>,
    /// Images of its connected CD-ROMs.
    #[serde(default)]
    pub cdroms: Vec<PathBuf>,
    /// What its guest reads as `guestinfo.KEY`.
    #[serde(default)]
    pub guestinfo: BTreeMap<String, String>,
    /// Whether its guest reads the BIOS UUID in the same order of bytes.
    #[serde(default)]
    pub in_order_uuid: bool,
}

/// A virtual disk.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Disk {
    /// Bytes.
    pub capacity: u64,
    /// The file to write to, and behind it its parents.
    pub files: Vec<PathBuf>,
    /// The number of its controller's bus.
    #[serde(default)]
    pub bus: i32,
    /// Its place there.
    #[serde(default)]
    pub unit: i32,
}

/// A network adapter.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Nic {
    /// By which it is asked for.
    pub key: i32,
    /// MAC address.
    pub mac: String,
    /// The port group's name: any text.
    #[serde(default)]
    pub network: String,
    /// Whether it is connected.
    #[serde(default)]
    pub connected: bool,
}

/// The reply to a request.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Reply {
    /// The request's.
    pub id: i64,
    /// Why it was not done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What is said of a body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Event {
    /// Which machine's.
    pub vm: String,
    /// Which power-on's.
    pub run: String,
    /// What.
    #[serde(flatten)]
    pub said: EventKind,
}

/// What there is to say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase", tag = "event")]
pub enum EventKind {
    /// It is off.
    Ended,
    /// VMware Tools run, as it were.
    Tools {
        /// Always so.
        running: bool,
        /// The guest's name.
        hostname: String,
        /// Its addresses, its own first.
        addresses: Vec<String>,
    },
    /// The guest has set guestinfo.
    Guestinfo {
        /// Without `guestinfo.` before it.
        key: String,
        /// An empty one removes it.
        value: String,
    },
}

/// Reads a line. One that names itself and asks for nothing that is known is refused by name.
///
/// # Errors
/// The reply that it gets; none where nobody can be told.
pub fn read(line: &str) -> Result<Request, Option<Reply>> {
    #[derive(Deserialize)]
    struct Named {
        id: i64,
    }
    serde_json::from_str(line).map_err(|error| {
        let named: Named = serde_json::from_str(line).ok()?;
        Some(Reply { id: named.id, error: Some(format!("a request that is not understood: {error}")) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `tests/vcenter/bodies` writes it.
    const START: &str = r#"{"id":1,"verb":"start","machine":{"vm":"420f1a2b-0000-4000-8000-000000000001","run":"r1",
        "name":"Node 1","object":"vm-31","cpus":2,"memory_mb":4096,"firmware":"efi","disks":[{"key":2000,"uuid":"u",
        "capacity":8589934592,"files":["/d/a-flat.vmdk"],"controller":"ParaVirtualSCSIController","bus":0,"unit":0,
        "independent_persistent":false}],"nics":[{"key":4000,"mac":"00:50:56:00:00:01","network":"VM Network",
        "connected":true}],"cdroms":[],"guestinfo":{"ovfEnv":"<a/>"}},"vm":"420f1a2b-0000-4000-8000-000000000001",
        "run":"r1"}"#;

    #[test]
    fn requests_are_read_as_they_are_written() {
        let Request { id: 1, act: Act::Start { machine } } = read(START).unwrap() else { panic!("another request") };
        assert_eq!((machine.name.as_str(), machine.run.as_str()), ("Node 1", "r1"));
        assert_eq!(machine.disks[0].files, [PathBuf::from("/d/a-flat.vmdk")]);
        assert_eq!((machine.nics[0].key, machine.nics[0].connected), (4000, true));
        assert_eq!(machine.guestinfo["ovfEnv"], "<a/>");
        assert!(!machine.in_order_uuid);
        let in_order = START.replace(r#""guestinfo""#, r#""in_order_uuid":true,"guestinfo""#);
        let Request { act: Act::Start { machine }, .. } = read(&in_order).unwrap() else { panic!("another request") };
        assert!(machine.in_order_uuid);
        let of = |act| Request { id: 2, act };
        let (vm, run) = ("u".to_owned(), "r".to_owned());
        let cut = r#"{"id":2,"verb":"cut","vm":"u","run":"r"}"#;
        assert_eq!(read(cut).unwrap(), of(Act::Cut { vm: vm.clone(), run: run.clone() }));
        // Go leaves out what is false.
        let nic = r#"{"id":2,"verb":"nic","vm":"u","run":"r","key":4000}"#;
        assert_eq!(read(nic).unwrap(), of(Act::Nic { vm, run, key: 4000, connected: false }));
    }

    #[test]
    fn what_is_not_understood_is_refused_by_name() {
        let refused = read(r#"{"id":7,"verb":"suspend","vm":"u","run":"r"}"#).unwrap_err().unwrap();
        assert_eq!(refused.id, 7);
        assert!(refused.error.unwrap().contains("suspend"));
        assert_eq!(read("nothing").unwrap_err(), None);
    }

    #[test]
    fn replies_and_events_are_written_as_they_are_read() {
        let text = |value: &dyn Fn() -> String| value();
        assert_eq!(text(&|| serde_json::to_string(&Reply { id: 1, error: None }).unwrap()), r#"{"id":1}"#);
        let of = |said| serde_json::to_value(Event { vm: "u".to_owned(), run: "r".to_owned(), said }).unwrap();
        assert_eq!(of(EventKind::Ended), serde_json::json!({"event": "ended", "vm": "u", "run": "r"}));
        let tools =
            EventKind::Tools { running: true, hostname: "n".to_owned(), addresses: vec!["192.0.2.1".to_owned()] };
        assert_eq!(
            of(tools),
            serde_json::json!({"event": "tools", "vm": "u", "run": "r", "running": true, "hostname": "n",
                "addresses": ["192.0.2.1"]})
        );
        let set = EventKind::Guestinfo { key: "kaas.statement".to_owned(), value: String::new() };
        assert_eq!(
            of(set),
            serde_json::json!({"event": "guestinfo", "vm": "u", "run": "r", "key": "kaas.statement", "value": ""})
        );
    }
}
