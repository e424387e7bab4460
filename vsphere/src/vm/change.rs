//! A VM's settings and its end.

use crate::changes::Changes;
use crate::error::Result;
use crate::method::{DESTROY, MARK_AS_TEMPLATE, RECONFIGURE_VM, UNREGISTER_VM};
use crate::reference::MoRef;

use super::config_spec::ConfigSpec;

impl Changes<'_> {
    /// Changes a VM's settings, all or none of them.
    ///
    /// # Errors
    /// `ConcurrentAccess` ([`crate::Outcome::Changed`]) when they are not those any more that were seen ([`ConfigSpec::of`]).
    pub async fn reconfigure(&self, vm: &MoRef, spec: &ConfigSpec) -> Result<()> {
        self.run(RECONFIGURE_VM, vm, vec![spec.element("spec")]).await.map(drop)
    }

    /// Makes a VM that is off a template.
    ///
    /// # Errors
    /// `InvalidPowerState` ([`crate::Outcome::Changed`]) when it is on.
    pub async fn mark_as_template(&self, vm: &MoRef) -> Result<()> {
        self.change(MARK_AS_TEMPLATE, vm, Vec::new()).await.map(drop)
    }

    /// Destroys a VM that is off with all its files, **those of every disk that is attached among them**.
    ///
    /// # Errors
    /// `InvalidPowerState` ([`crate::Outcome::Changed`]) when it is on.
    pub async fn destroy(&self, vm: &MoRef) -> Result<()> {
        self.run(DESTROY, vm, Vec::new()).await.map(drop)
    }

    /// Takes a VM that is off out of the inventory; its files stay.
    ///
    /// # Errors
    /// `InvalidPowerState` ([`crate::Outcome::Changed`]) when it is on.
    pub async fn unregister(&self, vm: &MoRef) -> Result<()> {
        self.change(UNREGISTER_VM, vm, Vec::new()).await.map(drop)
    }
}
