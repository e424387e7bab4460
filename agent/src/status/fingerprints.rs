//! Shows the node's fingerprints through its hypervisor: in guestinfo, or in the file that a container engine names.
//! Every program in a VM can write guestinfo, so the agent checks its content again and again.

use std::fs;
use std::io;
use std::path::PathBuf;

use anyhow::Context as _;
use contract::deployer::Fingerprints;

use crate::host::files;
use crate::host::vmware::backdoor::Port;
use crate::intake::environment::guestinfo::GuestInfo;

pub(super) struct FingerprintPublisher<P> {
    guestinfo: Option<GuestInfo<P>>,
    file: Option<PathBuf>,
    last: Option<Fingerprints>,
    changed: bool,
}

impl<P: Port> FingerprintPublisher<P> {
    pub(super) fn new(guestinfo: Option<GuestInfo<P>>, file: Option<PathBuf>) -> Self {
        Self { guestinfo, file, last: None, changed: false }
    }

    pub(super) fn guestinfo(&mut self) -> Option<&mut GuestInfo<P>> {
        self.guestinfo.as_mut()
    }

    /// Shows the fingerprints. True if another program has overwritten them since the agent has started.
    pub(super) fn show(&mut self, fingerprints: Fingerprints) -> anyhow::Result<bool> {
        let text = fingerprints.to_string();
        let mut stood = true;
        if let Some(guestinfo) = &mut self.guestinfo
            && guestinfo.get(Fingerprints::GUESTINFO)?.is_none_or(|there| there != text.as_bytes())
        {
            stood = false;
            guestinfo.set(Fingerprints::GUESTINFO, &text)?;
        }
        if let Some(file) = &self.file {
            let there = match fs::read(file) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                there => Some(there.with_context(|| format!("reading {}", file.display()))?),
            };
            if there.is_none_or(|there| there != text.as_bytes()) {
                stood = false;
                files::write_atomically(file, text.as_bytes(), 0o644)
                    .with_context(|| format!("writing {}", file.display()))?;
            }
        }
        self.changed |= !stood && self.last == Some(fingerprints);
        self.last = Some(fingerprints);
        Ok(self.changed)
    }
}

#[cfg(test)]
mod tests {
    use contract::deployer::Fingerprint;

    use super::*;
    use crate::host::vmware::backdoor::emulated::Hypervisor;

    fn fingerprints(of: &str) -> Fingerprints {
        Fingerprints { ca: Fingerprint::of(b"authority"), endpoint: Fingerprint::of(of.as_bytes()) }
    }

    #[test]
    fn foreign_fingerprints_are_overwritten_and_reported() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("fingerprints.json");
        let mut shown = FingerprintPublisher::new(Some(GuestInfo::new(Hypervisor::default())), Some(file.clone()));
        let there = |shown: &mut FingerprintPublisher<Hypervisor>| {
            let guestinfo = shown.guestinfo().unwrap().get(Fingerprints::GUESTINFO).unwrap().unwrap();
            assert_eq!(guestinfo, fs::read(&file).unwrap());
            Fingerprints::read(&guestinfo).unwrap()
        };
        let (one, renewed) = (fingerprints("one"), fingerprints("renewed"));
        for ours in [one, one, renewed, renewed] {
            assert!(!shown.show(ours).unwrap());
            assert_eq!(there(&mut shown), ours);
        }
        let forged = fingerprints("a pod's").to_string();
        shown.guestinfo().unwrap().set(Fingerprints::GUESTINFO, &forged).unwrap();
        assert!(shown.show(renewed).unwrap());
        assert_eq!(there(&mut shown), renewed);
        assert!(shown.show(renewed).unwrap(), "it stays told");

        let mut shown = FingerprintPublisher::new(None::<GuestInfo<Hypervisor>>, Some(file.clone()));
        assert!(!shown.show(one).unwrap());
        fs::write(&file, forged).unwrap();
        assert!(shown.show(one).unwrap());
    }

    #[test]
    fn hypervisor_that_refuses_writes_is_an_error() {
        let mut closed = Hypervisor::with("x", "y");
        closed.writable = false;
        let mut shown = FingerprintPublisher::new(Some(GuestInfo::new(closed)), None);
        assert!(shown.show(fingerprints("x")).is_err());
    }
}
