//! What a body says of itself: the difference between what was said and what is so. Pure, but for the looking itself.

use std::collections::BTreeMap;

use contract::deployer::Fingerprints;
use contract::statement::Statement;

use super::protocol::EventKind;

/// What a guest shows of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GuestState {
    /// Once it takes a request to shut down: its name and its addresses.
    pub tools: Option<(String, Vec<String>)>,
    /// Guestinfo that it has set, by key without `guestinfo.`.
    pub guestinfo: BTreeMap<&'static str, String>,
}

/// Keys of guestinfo that a guest sets, without `guestinfo.`: its statement and its fingerprints.
pub fn keys() -> [&'static str; 2] {
    [Statement::GUESTINFO, Fingerprints::GUESTINFO].map(|key| key.trim_start_matches("guestinfo."))
}

impl GuestState {
    /// What the vCenter believes at a power-on: guestinfo of the power-on before, which a guest's own does not outlive.
    pub fn of_before(guestinfo: &BTreeMap<String, String>) -> Self {
        let left = keys().into_iter().filter_map(|key| Some((key, guestinfo.get(key)?.clone())));
        Self { tools: None, guestinfo: left.collect() }
    }

    /// What is to be said so that this becomes `now`. Tools that do not answer for a moment have not ended.
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
    fn what_changes_is_said_once() {
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
    fn what_was_set_at_an_earlier_power_on_is_removed_and_the_vcenters_own_stays() {
        let of = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let before = GuestState::of_before(&of(&[("kaas.statement", "refused"), ("ovfEnv", "<a/>"), ("mine", "x")]));
        let removed = EventKind::Guestinfo { key: "kaas.statement".to_owned(), value: String::new() };
        assert_eq!(before.changes(&GuestState::default()), [removed]);
    }
}
