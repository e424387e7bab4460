//! Changes a VM's settings, and ends VMs.

use crate::changes::Changes;
use crate::collector::{Object, becomes};
use crate::error::Result;
use crate::method::{DESTROY, MARK_AS_TEMPLATE, RECONFIGURE_VM, UNREGISTER_VM};
use crate::reference::MoRef;
use crate::treatment::Outcome;

use super::config_spec::ConfigSpec;

impl Changes<'_> {
    /// Changes all of these settings of a VM, or none.
    ///
    /// # Errors
    /// `ConcurrentAccess` ([`crate::Outcome::Changed`]) if the settings have changed since they were read
    /// ([`ConfigSpec::of`]).
    pub async fn reconfigure(&self, vm: &MoRef, spec: &ConfigSpec) -> Result<()> {
        self.run(RECONFIGURE_VM, vm, vec![spec.element("spec")]).await.map(drop)
    }

    /// Converts a VM that is off to a template. The call has no task: if it gets no answer, the VM shows the result.
    /// `InvalidPowerState` ([`crate::Outcome::Changed`]) if it is on.
    pub async fn mark_as_template(&self, vm: &MoRef) -> Result<()> {
        let marked = self.change(MARK_AS_TEMPLATE, vm, Vec::new()).await.map(drop);
        let is_in_doubt = marked.as_ref().is_err_and(|error| error.outcome() == Outcome::InDoubt);
        // A look needs no permission, and the conversion is not repeated.
        let is_template = |seen: &Object| seen.flag("config.template").then_some(true);
        if is_in_doubt && becomes(self.client, vm, &["config.template"], is_template).await {
            return Ok(());
        }
        marked
    }

    /// Destroys a VM that is off with all its files, **including those of all attached disks**. `InvalidPowerState`
    /// ([`crate::Outcome::Changed`]) if it is on.
    pub async fn destroy(&self, vm: &MoRef) -> Result<()> {
        self.run(DESTROY, vm, Vec::new()).await.map(drop)
    }

    /// Removes a VM that is off from the inventory. Its files stay. `InvalidPowerState` ([`crate::Outcome::Changed`])
    /// if it is on.
    pub async fn unregister(&self, vm: &MoRef) -> Result<()> {
        self.change(UNREGISTER_VM, vm, Vec::new()).await.map(drop)
    }
}
