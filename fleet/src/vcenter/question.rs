//! Questions that block a VM's task until an operator answers (`VirtualMachineRuntimeInfo.question`, vSphere Web
//! Services API). Examples: whether the VM was moved or copied, or that its datastore is full. They are shown and never
//! answered: the operator decides what the answer means for disks.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::Duration;

use vsphere::MoRef;

use super::VcenterHypervisor;

/// How long a task runs before its VM is checked for a question, and the pause between two checks.
pub(super) const LOOKING: Duration = Duration::from_secs(10);
/// How many characters of a question are shown.
const SHOWN: usize = 600;

/// The question of a VM, in words for users. `None` if it asks nothing.
pub(super) fn asked(vm: &vsphere::Vm) -> Option<String> {
    // Questions have several lines.
    let question = vm.question.as_deref()?.split_whitespace().collect::<Vec<_>>().join(" ");
    let question: String = question.chars().take(SHOWN).collect();
    Some(format!("{} waits for an answer: {question:?}: answer it in vSphere Client", vm.name))
}

impl VcenterHypervisor {
    /// Waits for a future that tasks of these VMs may block. Meanwhile it logs each of their questions once.
    pub(super) async fn telling_questions<T>(&self, vms: &[MoRef], wait: impl Future<Output = T>) -> T {
        tokio::select! {
            biased;
            done = wait => done,
            never = self.tell_questions(vms) => match never {},
        }
    }

    async fn tell_questions(&self, vms: &[MoRef]) -> Infallible {
        let mut told = BTreeSet::new();
        loop {
            tokio::time::sleep(self.looking).await;
            match self.client.vms_with(vms, &[]).await {
                Ok(seen) => {
                    for question in seen.iter().filter_map(asked) {
                        if told.insert(question.clone()) {
                            log::warn!("{question}");
                        }
                    }
                }
                // One has disappeared, or they cannot be read now: the waiting caller finds out.
                Err(error) => log::debug!("looking whether VMs ask something: {error}"),
            }
        }
    }

    /// The question of the deployment's VM that a task is about, as far as the account sees it.
    pub(super) async fn question_at(&self, task: &MoRef) -> Option<String> {
        let own = self.all_own().await.inspect_err(|error| log::debug!("looking whose {task} is: {error}")).ok()?;
        own.iter().find(|vm| vm.tasks.contains(task)).and_then(asked)
    }
}
