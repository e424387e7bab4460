//! Entries of a VM's `extraConfig`, by their keys.
//!
//! Source of the paths: "keyed" array properties, `config.extraConfig["key"]` (vSphere Web Services API, PropertyCollector;
//! OpenStack Nova finds its VMs by `config.extraConfig["nvp.vm-uuid"]`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::collector::Object;
use crate::soap::Element;

pub(super) fn path(key: &str) -> String {
    format!("config.extraConfig[\"{key}\"]")
}

pub(super) fn keyed(keys: &[&str]) -> Vec<String> {
    keys.iter().map(|key| path(key)).collect()
}

/// All entries of a VM's `extraConfig`. A guest can write `guestinfo.…` entries up to its VM's limit
/// (`tools.setInfo.sizeLimit`, 1 MB by default). They may be five times as long in an answer.
pub(super) const ALL: &str = "config.extraConfig";

/// The requested entries of a VM's `extraConfig`. Values are not shown, because some are secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct Extra {
    found: BTreeMap<String, String>,
    /// `None` if all entries were requested.
    asked: Option<BTreeSet<String>>,
}

impl Extra {
    /// The value of a requested key. vCenter keeps a removed entry as an empty text, which counts as missing.
    pub fn get(&self, key: &str) -> Option<&str> {
        let is_asked = self.asked.as_ref().is_none_or(|asked| asked.contains(key));
        debug_assert!(is_asked, "the entry {key} was not asked for: that it is not here says nothing");
        self.found.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The keys of all entries that were found, sorted. Removed entries are included.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.found.keys().map(String::as_str)
    }

    pub(super) fn of(vm: &Object, keys: &[&str]) -> Self {
        let entry = |key: &&str| Some(((*key).to_owned(), vm.get(&path(key))?.text_of("value")?.to_owned()));
        let asked = keys.iter().map(|key| (*key).to_owned()).collect();
        Self { found: keys.iter().filter_map(entry).collect(), asked: Some(asked) }
    }

    pub(super) fn all(vm: &Object) -> Self {
        let entry = |option: &Element| Some((option.text_of("key")?.to_owned(), option.text_of("value")?.to_owned()));
        let options = vm.get(ALL).map(Element::children).unwrap_or_default();
        Self { found: options.iter().filter_map(entry).collect(), asked: None }
    }
}

impl fmt::Debug for Extra {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.found.keys()).finish()
    }
}
