//! What proves that a VM is gone which no look shows. That the inventory has none is no proof: a host that was removed from it keeps its VMs
//! running.

/// What is noted of a VM since it may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastSeen<'a> {
    /// It was never powered on.
    NeverOn,
    /// Its settings were in this file when it was seen last, and the hypervisor called its datastore so, if that is noted.
    At(&'a str, Option<&'a str>),
    /// Nothing: an earlier version has made it.
    Unnoted,
}

impl<'a> LastSeen<'a> {
    /// Where the settings were of a VM that may have been on, if that is noted.
    pub fn noted(settings: Option<&'a str>) -> Self {
        settings.map_or(Self::Unnoted, |settings| Self::At(settings, None))
    }
}

/// Whether a VM is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Absence {
    /// No VM of the inventory has its BIOS UUID, and its settings are not where they were, on a datastore that is reached.
    Gone,
    /// Everything else: it may run. Why, in words.
    Unknown(String),
}
