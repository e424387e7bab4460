//! The lines of JSON with which a test vCenter requests bodies for its machines, and the replies
//! (`tests/vcenter/bodies`). Independent of what runs the bodies.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

#[derive(Debug, PartialEq, Eq, Deserialize)]
pub struct Request {
    /// The reply has the same number.
    pub id: i64,
    #[serde(flatten)]
    pub act: Act,
}

/// A requested action. `vm` is the machine's BIOS UUID as vCenter writes it, and `run` names one power-on.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase", tag = "verb")]
pub enum Act {
    /// Start a machine.
    Start { machine: Box<Machine> },
    /// Ask its guest to shut down.
    Shutdown {
        /// BIOS UUID.
        vm: String,
        /// The power-on.
        run: String,
    },
    /// Cut its power.
    Cut {
        /// BIOS UUID.
        vm: String,
        run: String,
    },
    /// Connect or disconnect one of its adapters.
    Nic {
        /// BIOS UUID.
        vm: String,
        run: String,
        /// The adapter's key.
        key: i32,
        /// Whether to connect it.
        #[serde(default)]
        connected: bool,
    },
}

impl Act {
    /// BIOS UUID of the machine.
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
    pub run: String,
    /// Name in the inventory: any text.
    pub name: String,
    /// Its disks, in no order.
    #[serde(default)]
    pub disks: Vec<Disk>,
    #[serde(default)]
    pub nics: Vec<Nic>,
    /// Images of its connected CD-ROMs.
    #[serde(default)]
    pub cdroms: Vec<PathBuf>,
    /// Values that its guest reads as `guestinfo.KEY`.
    #[serde(default)]
    pub guestinfo: BTreeMap<String, String>,
    /// Whether its guest reads the BIOS UUID in the same order of bytes.
    #[serde(default)]
    pub in_order_uuid: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Disk {
    /// Size in bytes.
    pub capacity: u64,
    /// The file to write to, followed by its parents.
    pub files: Vec<PathBuf>,
    /// The bus number of its controller.
    #[serde(default)]
    pub bus: i32,
    /// Its unit number on the bus.
    #[serde(default)]
    pub unit: i32,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Nic {
    /// Key of the adapter in requests.
    pub key: i32,
    pub mac: String,
    /// The port group's name: any text.
    #[serde(default)]
    pub network: String,
    #[serde(default)]
    pub connected: bool,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Reply {
    pub id: i64,
    /// Why the request failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Event {
    /// BIOS UUID.
    pub vm: String,
    pub run: String,
    #[serde(flatten)]
    pub said: EventKind,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase", tag = "event")]
pub enum EventKind {
    Ended,
    /// The guest handles a request to shut down, as if VMware Tools ran.
    Tools {
        /// Always `true`.
        running: bool,
        hostname: String,
        /// Its addresses, each adapter's first address first.
        addresses: Vec<String>,
    },
    /// The guest has set guestinfo.
    Guestinfo {
        /// Without `guestinfo.`.
        key: String,
        /// An empty value removes the key.
        value: String,
    },
}

/// Reads a line. The error is the reply to send: a refusal with the line's number. `None` if the line has no number.
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
        // Go leaves out `false`.
        let nic = r#"{"id":2,"verb":"nic","vm":"u","run":"r","key":4000}"#;
        assert_eq!(read(nic).unwrap(), of(Act::Nic { vm, run, key: 4000, connected: false }));
    }

    #[test]
    fn an_unknown_request_is_refused_by_number() {
        let refused = read(r#"{"id":7,"verb":"suspend","vm":"u","run":"r"}"#).unwrap_err().unwrap();
        assert_eq!(refused.id, 7);
        assert!(refused.error.unwrap().contains("suspend"));
        assert_eq!(read("nothing").unwrap_err(), None);
    }

    #[test]
    fn replies_and_events_are_written_correctly() {
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
