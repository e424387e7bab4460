//! Operations: control nodes that are to be on another image, size or minor. What comes next is decided by [`crate::decisions`], by the
//! cluster's spec, by what is pinned of it, and by its Operations; here it is looked at, judged where that needs nodes and VMs, and done:
//!
//! 1. What is in the way of a change is looked for before anything moves, and said: by objects (`decide.rs`), by the place (the image lies
//!    ready in each zone), and by `fleet`'s own judgement of nodes and VMs (`judge.rs`).
//! 2. A swap is `fleet`'s upgrade (`swap.rs`). Its plan and its journal are an Operation, which the store makes of them: whoever takes over
//!    reads there how far it is, and `fleet` goes on (`fleet_upgrade.rs`).
//! 3. The new image is pinned once it is committed, in the Machines of control nodes first and then in `status.resolved`: pools follow
//!    that. Each is written where it is not so yet, so that nothing is lost between two writes (`pin.rs`). So is the size of new VMs; but
//!    from before the first of them is made Machines have the larger one (`size.rs`).
//! 4. Kubernetes is raised afterwards, as an Operation whose journal is the nodes' own: doing it again goes on (`raise.rs`).
//!
//! What is decided is given to whoever does it by `act.rs`; what a run does meanwhile is `doing.rs`. Nodes are asked through `operator.rs` and
//! `own_nodes.rs`, and what `fleet` takes and says is translated in `translate.rs`.
//!
//! What Operations say is written by `tell.rs`: what they wait for, too. A person's word is put to one, and is taken away there once it is
//! noted what became of it. Where it all stands is read anew each time. Nothing here is remembered.

mod act;
mod decide;
mod fleet_upgrade;
mod judge;
mod own_nodes;
mod pin;
mod raise;
mod run_progress;
mod size;
mod swap;
mod tell;
mod translate;
mod upgrade_context;

pub(super) use self::decide::ChangeDecision;
pub(super) use self::judge::JUDGING;
pub(super) use self::upgrade_context::UpgradeContext;

use std::time::Duration;

/// How long after a run that waits for something the next one is.
const WAITING: Duration = Duration::from_secs(15);
