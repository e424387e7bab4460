//! Events of a body: the difference between the last report and the current state. Pure.

use std::collections::BTreeMap;

use contract::deployer::Fingerprints;
use contract::statement::Statement;

use super::protocol::EventKind;

/// The state that a guest shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GuestState {
    /// Host name and addresses, after the guest handles a request to shut down.
    pub tools: Option<(String, Vec<String>)>,
    /// Guestinfo that it has set, by key without `guestinfo.`.
    pub guestinfo: BTreeMap<&'static str, String>,
}

/// Keys of guestinfo that a guest sets, without `guestinfo.`: its statement and its fingerprints.
pub fn keys() -> [&'static str; 2] {
    [Statement::GUESTINFO, Fingerprints::GUESTINFO].map(|key| key.trim_start_matches("guestinfo."))
}

impl GuestState {
    /// The vCenter's state at a power-on: it still has guestinfo that the guest set before, which does not survive a
    /// power-on.
    pub fn of_before(guestinfo: &BTreeMap<String, String>) -> Self {
        let left = keys().into_iter().filter_map(|key| Some((key, guestinfo.get(key)?.clone())));
        Self { tools: None, guestinfo: left.collect() }
    }

    /// Events that turn this state into `now`. If Tools do not answer for a moment, they have not ended.
    pub fn changes(&self, now: &Self) -> Vec<EventKind> {
        let mut said = Vec::new();
        if let Some((hostname, addresses)) = &now.tools
            && self.tools != now.tools
        {
            let (hostname, addresses) = (hostname.clone(), addresses.clone());
            said.push(EventKind::Tools { running: true, hostname, addresses });
        }
        for key in keys() {
            let (before, now) = (self.guestinfo.get(key), now.guestinfo.get(key));
            if before != now {
                said.push(EventKind::Guestinfo { key: key.to_owned(), value: now.cloned().unwrap_or_default() });
            }
        }
        said
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_reported_once() {
        let [statement, fingerprints] = keys();
        assert_eq!((statement, fingerprints), ("kaas.statement", "kaas.fingerprints"));
        let set = |key: &str, value: &str| EventKind::Guestinfo { key: key.to_owned(), value: value.to_owned() };
        let none = GuestState::default();
        assert_eq!(none.changes(&none), []);
        let mut early = none.clone();
        early.guestinfo.insert(statement, "working".to_owned());
        assert_eq!(none.changes(&early), [set(statement, "working")]);
        let mut later = early.clone();
        later.tools = Some(("cp1".to_owned(), vec!["192.168.77.11".to_owned()]));
        later.guestinfo.insert(statement, "done".to_owned());
        later.guestinfo.insert(fingerprints, "f".to_owned());
        let tools = |addresses: &[&str]| EventKind::Tools {
            running: true,
            hostname: "cp1".to_owned(),
            addresses: addresses.iter().map(|address| (*address).to_owned()).collect(),
        };
        assert_eq!(early.changes(&later), [tools(&["192.168.77.11"]), set(statement, "done"), set(fingerprints, "f")]);
        assert_eq!(later.changes(&later), []);
        let mut silent = later.clone();
        silent.tools = None;
        assert_eq!(later.changes(&silent), []);
    }

    #[test]
    fn guestinfo_of_an_earlier_power_on_is_removed() {
        let of = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let before = GuestState::of_before(&of(&[("kaas.statement", "refused"), ("ovfEnv", "<a/>"), ("mine", "x")]));
        let removed = EventKind::Guestinfo { key: "kaas.statement".to_owned(), value: String::new() };
        assert_eq!(before.changes(&GuestState::default()), [removed]);
    }
}
