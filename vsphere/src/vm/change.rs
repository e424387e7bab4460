//! A VM's settings and its end.

use crate::changes::Changes;
use crate::collector::{Object, becomes};
use crate::error::Result;
use crate::method::{DESTROY, MARK_AS_TEMPLATE, RECONFIGURE_VM, UNREGISTER_VM};
use crate::reference::MoRef;
use crate::treatment::Outcome;

use super::config_spec::ConfigSpec;

impl Changes<'_> {
    /// Changes a VM's settings, all or none of them.
    ///
    /// # Errors
    /// `ConcurrentAccess` ([`crate::Outcome::Changed`]) when they are not those any more that were seen ([`ConfigSpec::of`]).
    pub async fn reconfigure(&self, vm: &MoRef, spec: &ConfigSpec) -> Result<()> {
        self.run(RECONFIGURE_VM, vm, vec![spec.element("spec")]).await.map(drop)
    }

    /// Makes a VM that is off a template. That is no task: where it gets no answer, the VM shows whether it is one.
    ///
    /// # Errors
    /// `InvalidPowerState` ([`crate::Outcome::Changed`]) when it is on.
    pub async fn mark_as_template(&self, vm: &MoRef) -> Result<()> {
        let marked = self.change(MARK_AS_TEMPLATE, vm, Vec::new()).await.map(drop);
        let is_in_doubt = marked.as_ref().is_err_and(|error| error.outcome() == Outcome::InDoubt);
        // To look needs no permission, and a template is not made of it again.
        let is_template = |seen: &Object| seen.flag("config.template").then_some(true);
        if is_in_doubt && becomes(self.client, vm, &["config.template"], is_template).await {
            return Ok(());
        }
        marked
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
