//! The activity of a run of `fleet`'s upgrade, from its notices: as text, and whether the run may end there.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fleet::upgrade::{Action, Notice};

use super::super::fleet_run::CurrentActivity;
use crate::decisions::words;

/// How long a data disk may be between two VMs before a run is ended anyway.
const SETTLES: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(super) struct RunProgress {
    words: CurrentActivity,
    /// Whether a data disk is between two VMs: only the journal leads to it then.
    moves_disk: AtomicBool,
    /// Whether the journal has the request. Notices of steps come after their entry, a change of direction before.
    pub(super) is_noted: AtomicBool,
    /// Whether it ends at the next step at which no node is away.
    pub(super) is_to_rest: AtomicBool,
    /// The place of a new snapshot that no journal has yet.
    pub(super) snapshot: Mutex<Option<String>>,
}

impl RunProgress {
    pub(super) fn told(&self, notice: &Notice<'_>) {
        let told = match notice {
            Notice::Step { plan, step, .. } => words(plan, *step),
            Notice::Done { note } => return log::info!("{note}"),
            Notice::Losses { node, words } => return log::warn!("{node}: {words}"),
            Notice::Waiting { what, why } => format!("waiting for {what}: {why}"),
            Notice::Paused { reason } => format!("waiting: {reason}"),
            Notice::DirectionChanged { reason, .. } => format!("turning: {reason}"),
            Notice::TakingOver { words } => return log::info!("{words}"),
            Notice::Stamped { node, .. } => format!("stamping the VM of {node}"),
            Notice::Snapshot { place, bytes } => {
                log::info!("snapshot: {bytes} bytes, {place}");
                *self.snapshot.lock().unwrap_or_else(PoisonError::into_inner) = Some(format!("{place}: {bytes} bytes"));
                return;
            }
            Notice::NoSnapshot { name } => return log::warn!("{name} is not kept here, and none is taken now"),
            Notice::Kubernetes { node, to, .. } => format!("{} to Kubernetes {to}", node.name),
            Notice::KubernetesRuns { version, .. } => format!("Kubernetes {version} runs"),
        };
        log::info!("{told}");
        if let Notice::Step { step, .. } = notice {
            let moves = [Action::Detach, Action::DetachNew, Action::Attach, Action::AttachOld].contains(&step.action);
            self.moves_disk.store(moves, Ordering::SeqCst);
        }
        if matches!(notice, Notice::Step { .. } | Notice::Kubernetes { .. }) {
            self.is_noted.store(true, Ordering::SeqCst);
        }
        self.words.are(told);
    }

    /// Returns once no data disk is between two VMs, or after [`SETTLES`].
    pub(super) async fn settles(&self) {
        let limit = tokio::time::Instant::now() + SETTLES;
        while self.moves_disk.load(Ordering::SeqCst) && tokio::time::Instant::now() < limit {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    pub(super) fn now(&self) -> String {
        self.words.now()
    }

    pub(super) fn snapshot(&self) -> Option<String> {
        self.snapshot.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Whether no node is away before such a step.
pub(super) fn rests(notice: &Notice<'_>) -> bool {
    let stands =
        |action: Action| matches!(action, Action::Verify | Action::Snapshot | Action::CloneVm | Action::Prepare);
    match notice {
        Notice::Step { step, .. } => stands(step.action),
        Notice::Kubernetes { .. } => true,
        _ => false,
    }
}
