//! Compares a new VM with its request before its first power-on, and sends the missing parts once.

use vsphere::{ConfigSpec, MoRef, Outcome};

use super::VcenterHypervisor;
use crate::hypervisor::{Error, Fence, Result};

/// How often a new VM is compared if its settings change meanwhile. A host's changes may reach vCenter after the task
/// has ended.
const LOOKS: usize = 5;

impl VcenterHypervisor {
    /// The new VM with all requested settings. A complete VM costs one look.
    ///
    /// # Errors
    /// Parts still differ after one `ReconfigVM_Task`. The VM stays as it is: the caller handles it as an incomplete
    /// VM.
    pub(super) async fn complete(&self, made: &MoRef, asked: &ConfigSpec, permit: &dyn Fence) -> Result<vsphere::Vm> {
        let mut is_sent = false;
        for _ in 0..LOOKS {
            let vm = self.client.whole_vm(made).await?;
            let lacking = asked.lacking_in(&vm);
            if lacking.is_nothing() {
                return Ok(vm);
            }
            let parts = lacking.parts.join(", ");
            if is_sent {
                return Err(Error::refused(format!(
                    "the new VM {} differs in {parts} from what was asked for, also after ReconfigVM_Task: see in its \
                     events what vCenter or another program has changed, and run the command again",
                    vm.name
                )));
            }
            log::info!("the new VM {} lacks {parts}: it is reconfigured before its first power-on", vm.name);
            match self.client.changes(&permit).reconfigure(made, &lacking.rest).await {
                Ok(()) => is_sent = true,
                Err(error) if error.outcome() == Outcome::Changed => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::transient(anyhow::anyhow!("the settings of the new VM {made} change at each look")))
    }
}
