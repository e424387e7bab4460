//! The faults at a call: an error with or without its effect, an effect that comes late, a command that is killed.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::State;
use crate::hypervisor::ErrorKind;
use crate::lease::MARGIN;

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An error, and nothing happens. [`ErrorKind::InDoubt`]: the call was lost.
    Error(ErrorKind),
    /// It happens, and the answer is lost.
    Done,
    /// Half of it is written, and an error is returned.
    Half,
    /// The answer is lost, and it happens later.
    Late,
    /// The command is killed, and nothing happens.
    CutBefore,
    /// Another command takes over right before, does nothing and releases the lease.
    Overtaken,
    /// It happens, and the command is killed.
    CutAfter,
    /// Half of it is written, and the command is killed.
    CutHalf,
    /// The command is killed, and it happens later.
    CutLate,
    /// The command is killed while its request is on the way: it is unknown until it arrives.
    CutOnTheWay,
}

impl Fault {
    pub fn kills(self) -> bool {
        matches!(self, Self::CutBefore | Self::CutAfter | Self::CutHalf | Self::CutLate | Self::CutOnTheWay)
    }
}

/// Where it goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// At which call, counted from 1.
    pub call: usize,
    /// The fault.
    pub fault: Fault,
    /// Whether all later calls of the same name fail likewise, until the fault is repaired.
    pub lasting: bool,
}

/// The effect that a call may have on its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// The hypervisor tells.
    Look,
    /// The hypervisor changes something.
    Change,
    /// A node tells.
    Ask,
    /// A node does something.
    Do,
    /// The store tells.
    Read,
    /// The store makes, removes or keeps something whole.
    Keep,
    /// The store writes a small file, or half of it.
    Write,
}

pub const KINDS: [ErrorKind; 7] = [
    ErrorKind::Transient,
    ErrorKind::Changed,
    ErrorKind::InDoubt,
    ErrorKind::Refused,
    ErrorKind::Denied,
    ErrorKind::NotFound,
    ErrorKind::Fenced,
];

impl CallKind {
    /// All that can go wrong at such a call.
    pub fn faults(self) -> Vec<Fault> {
        let errors = KINDS.map(Fault::Error);
        match self {
            Self::Look => [&errors[..], &[Fault::CutBefore]].concat(),
            Self::Change => {
                let cut = [Fault::CutBefore, Fault::CutAfter, Fault::CutLate, Fault::CutOnTheWay];
                [&errors[..], &[Fault::Done, Fault::Late], &cut[..]].concat()
            }
            Self::Ask | Self::Read => vec![errors[0], Fault::CutBefore],
            Self::Do => {
                let cut = [Fault::CutBefore, Fault::CutAfter, Fault::CutOnTheWay];
                [&[errors[0], Fault::Done, Fault::Late], &cut[..]].concat()
            }
            Self::Keep => vec![errors[0], Fault::Done, Fault::CutBefore, Fault::CutAfter],
            Self::Write => {
                let cut = [Fault::CutBefore, Fault::CutHalf, Fault::CutAfter];
                [&[errors[0], Fault::Half, Fault::Done, Fault::Late], &cut[..]].concat()
            }
        }
    }
}

/// A call that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    pub name: &'static str,
    pub kind: CallKind,
}

/// A change that was begun and has not happened yet.
pub struct Late {
    /// Calls until it does. `None` if it is on the way, and only time brings it.
    pub left: Option<usize>,
    /// When it does at the latest.
    pub until: Instant,
    /// The identifier of its VM, and the inventory's words for the task.
    pub task: Option<(String, &'static str)>,
    /// Whether settling waits for it: a guest that was asked to shut down is no task of the hypervisor.
    pub settles: bool,
    pub effect: Box<dyn FnOnce(&mut State) + Send>,
}

#[derive(Default)]
pub struct Faults {
    pub calls: Vec<Call>,
    pub at: Option<At>,
    /// The name of the calls that fail, of a lasting fault.
    name: Option<&'static str>,
    pub late: Vec<Late>,
    /// The command is asked to end during the call of this number.
    pub cancel: Option<(usize, watch::Sender<bool>)>,
    /// The command is killed right after an entry of the journal that contains this.
    pub kill_after_entry: Option<String>,
}

impl Faults {
    /// Counts a call, and says what goes wrong.
    pub fn count(&mut self, call: Call) -> Option<Fault> {
        self.calls.push(call);
        if let Some((_, asked)) = self.cancel.as_ref().filter(|(at, _)| *at == self.calls.len()) {
            asked.send_replace(true);
        }
        let at = self.at?;
        if at.call == self.calls.len() {
            self.name = at.lasting.then_some(call.name);
            return Some(at.fault);
        }
        (self.name == Some(call.name)).then_some(at.fault)
    }

    /// Sets the next fault, or none; calls are counted from 0 again.
    pub fn set(&mut self, at: Option<At>) {
        self.calls.clear();
        (self.at, self.name) = (at, None);
    }
}

impl State {
    /// Another call passes: what is late comes nearer.
    pub fn pass(&mut self) {
        for late in &mut self.faults.late {
            late.left = late.left.map(|left| left.saturating_sub(1));
        }
        self.land(|late| late.left == Some(0));
        self.arrive();
    }

    /// Requests on the way arrive, after the longest time that one may take.
    pub fn arrive(&mut self) {
        let now = Instant::now();
        self.land(|late| late.until <= now);
    }

    /// Sends a request that arrives when its sender is dead, and as late as possible.
    pub fn send(&mut self, effect: impl FnOnce(&mut State) + Send + 'static) {
        let until = Instant::now() + MARGIN - Duration::from_millis(1);
        let effect = Box::new(effect);
        self.faults.late.push(Late { left: None, until, task: None, settles: false, effect });
    }

    /// A command begins to work: nothing of the one before may be on its way.
    pub fn is_alone(&self) {
        let on_the_way = self.faults.late.iter().filter(|late| late.left.is_none()).count();
        assert_eq!(on_the_way, 0, "a command begins while requests of a dead one are on their way");
    }

    /// The events that settling waits for happen.
    pub fn settle(&mut self) {
        self.land(|late| late.settles);
    }

    fn land(&mut self, which: impl Fn(&Late) -> bool) {
        let (now, later): (Vec<Late>, Vec<Late>) = std::mem::take(&mut self.faults.late).into_iter().partition(which);
        self.faults.late = later;
        for late in now {
            (late.effect)(self);
        }
    }
}
