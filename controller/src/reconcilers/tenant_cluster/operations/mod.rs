//! Operations: changes of control-plane nodes to another image, size or minor version. [`crate::decisions`] decides the next
//! change from the cluster's spec, its stored state and its Operations. This module reads the inputs, checks nodes and VMs, and
//! carries the change out:
//!
//! 1. Obstacles are reported before a change begins. They come from objects (`decide.rs`), the place (a template in each zone),
//!    and `fleet`'s checks of nodes and VMs (`judge.rs`).
//! 2. A swap is `fleet`'s upgrade (`swap.rs`). The store keeps its plan and journal as an Operation. The next leader reads the
//!    progress there, and `fleet` continues (`fleet_upgrade.rs`).
//! 3. The new image is pinned after the commit, first in the Machines of control-plane nodes, then in `status.resolved`, which
//!    pools follow. Each write is skipped if it is done already, so an interruption loses nothing (`pin.rs`). The size is pinned
//!    likewise. Machines have the larger size from before the first new VM (`size.rs`).
//! 4. Kubernetes is upgraded afterwards, as an Operation whose journal is in the nodes. A repeated upgrade continues
//!    (`raise.rs`).
//!
//! `act.rs` carries a decision out, and `run_progress.rs` has the activity of a run. `upgrade_context.rs` and `own_nodes.rs` call
//! the nodes, and `translate.rs` converts values from and for `fleet`.
//!
//! `tell.rs` writes the status of Operations. The operator puts a request on an Operation, and it is removed once its result is
//! recorded. The state is read again each time: nothing is in memory.

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

/// The pause after a run that waits.
const WAITING: Duration = Duration::from_secs(15);
