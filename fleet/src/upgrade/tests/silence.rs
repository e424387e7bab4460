//! Nodes that let a caller wait for a missing answer, as a hung agent does, or a router that drops.

use std::time::Duration;

use super::command::{begin, end};
use super::fake::{Ill, World};
use crate::upgrade::{Mode, Outcome, Request};

#[tokio::test(start_paused = true)]
async fn slowly_silent_node_still_goes_back() {
    for nodes in [1, 3] {
        for ill in [Ill::Silent, Ill::NoEtcd] {
            // A short limit of the gate does not limit the looks after which a node counts as unhealthy.
            for gate_seconds in [20, 120] {
                let mut world = World::of(nodes, Mode::Rolling, ill);
                world.options.gate_seconds = gate_seconds;
                begin(&world).await;
                world.lock().slow = Duration::from_secs(15);
                assert_eq!(end(&world, Request::Resume).await, Outcome::RolledBack, "{nodes} {ill:?} {gate_seconds}");
            }
        }
    }
}
