//! Questions on which a VM's task waits until a person answers: whether it was moved or copied, or that its datastore is full
//! (`VirtualMachineRuntimeInfo.question`, vSphere Web Services API). They are shown and never answered: what the answer means for disks is
//! for whoever gives it.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::Duration;

use vsphere::MoRef;

use super::VcenterHypervisor;

/// So long a task goes on before it is looked whether its VM asks something, and again from one look to the next.
pub(super) const LOOKING: Duration = Duration::from_secs(10);
/// So many characters of a question are shown.
const SHOWN: usize = 600;

/// What a VM waits for, in words for people; none if it asks nothing.
pub(super) fn asked(vm: &vsphere::Vm) -> Option<String> {
    // Questions have several lines.
    let question = vm.question.as_deref()?.split_whitespace().collect::<Vec<_>>().join(" ");
    let question: String = question.chars().take(SHOWN).collect();
    Some(format!("{} waits for an answer: {question:?}: answer it in vSphere Client", vm.name))
}

impl VcenterHypervisor {
    /// Waits for something that tasks of these VMs may hold up, and tells each of their questions once meanwhile.
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
                // One has gone, or they cannot be read now: who waits finds out.
                Err(error) => log::debug!("looking whether VMs ask something: {error}"),
            }
        }
    }

    /// What the VM of the deployment asks that a task is of, as far as that can be seen.
    pub(super) async fn question_at(&self, task: &MoRef) -> Option<String> {
        let own = self.all_own().await.inspect_err(|error| log::debug!("looking whose {task} is: {error}")).ok()?;
        own.iter().find(|vm| vm.tasks.contains(task)).and_then(asked)
    }
}
