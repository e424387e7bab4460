//! The faults at a call.

/// A fault at a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An error, and nothing happens.
    Fails,
    /// It happens, and the response is lost.
    Lost,
    /// The response is lost, and it happens when the hypervisor settles.
    Late,
    /// The command is killed before.
    KilledBefore,
    /// The command is killed after.
    KilledAfter,
    /// The command is killed, and it happens when the hypervisor settles.
    KilledLate,
    /// Half of a text is written, and the command is killed.
    KilledHalf,
    /// Another command takes over.
    Overtaken,
}

impl Fault {
    pub fn kills(self) -> bool {
        matches!(self, Self::KilledBefore | Self::KilledAfter | Self::KilledLate | Self::KilledHalf)
    }
}

/// The effect of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Does {
    Looks,
    /// Changes something of a VM.
    ChangesVm,
    /// Changes something of the cluster.
    ChangesCluster,
    Writes,
}

impl Does {
    /// All faults that it may have.
    pub fn faults(self) -> &'static [Fault] {
        use Fault::{Fails, KilledAfter, KilledBefore, KilledHalf, KilledLate, Late, Lost};
        match self {
            Self::Looks => &[Fails, KilledBefore],
            Self::ChangesVm => &[Fails, Lost, Late, KilledBefore, KilledAfter, KilledLate],
            Self::ChangesCluster => &[Fails, Lost, KilledBefore, KilledAfter],
            Self::Writes => &[Fails, Lost, KilledBefore, KilledAfter, KilledHalf],
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the answer is lost")]
pub struct Lost;
