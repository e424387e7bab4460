//! What is to be done, decided by what was seen. Pure: nothing is asked or done here, and an answer that is not known is no
//! answer.

mod add_ons;
mod addresses;
mod adopted_workers;
mod adoption;
mod change;
mod claims;
mod cluster;
mod control_machine;
mod control_plane;
mod drift;
#[cfg(test)]
pub(crate) mod fixture;
mod growing;
mod health;
mod ip_pool;
mod limits;
mod news;
mod node_image;
mod nodes_image;
mod obstacle;
mod owned;
mod pool;
mod preflight;
pub mod provider;
mod repair;
mod resize;
mod resolved;
mod rest;
mod sizes;
mod spread;
mod swapping;
mod told;
mod window;
mod workers;

pub use self::add_ons::add_ons;
pub use self::addresses::{
    Allocation, CLAIMANT, Malformed, Named, POOL, allocation, claimed, gives_out, leaving_out, named, passing, total,
};
pub use self::adopted_workers::{AdoptedWorker, Witnesses, adopted_workers};
pub use self::adoption::{
    adopted, are_bare, is_lost, is_to_adopt, may_adopt, may_cancel, pinned_as_run, power_of, superseded,
    why_not_adopted, without_disk,
};
pub use self::change::{Change, SeenCluster, asked, blocked, lowest_minor, raise_name, with_size};
pub use self::claims::{Allotted, Claim, Claiming, Source, claimant, claiming, claims, left_over};
pub use self::cluster::{
    Going, KeysSeen, Leaving, Next, Wished, going, is_begun, is_due, is_kept, is_leaving, next, unchanged,
};
pub use self::control_machine::shown;
pub use self::control_plane::{ControlNode, Keys, Secrets, Told, machines, names, zones};
pub use self::drift::{ahead, drifted, has_drifted, left_prepared};
pub use self::health::{Doing, Health, Said, before, leaving, leaving_drifted, leaving_stuck, workers_of};
pub use self::ip_pool::{Counted, counted};
pub use self::limits::{Held, Tenants, Used, growth, held, limits, permission};
pub use self::news::{News, Reasons, news, reasons};
pub use self::node_image::{Found, Judged, judged, next_phase, phase};
pub use self::nodes_image::{NodesImage, awaited, nodes_image};
pub use self::obstacle::Obstacle;
pub use self::owned::{
    CLUSTER, CLUSTER_FINALIZER, CLUSTER_REF, KEYS_TYPE, KUBECONFIG_TYPE, MACHINE_FINALIZER, NODE_POOL, POOL_FINALIZER,
    is_own_secret, keys_secret, kubeconfig_secret, owner,
};
pub use self::pool::{MOST_POOLS, Unfit, WantedPool, emptied_pool, is_one_too_many, wanted_pool};
pub use self::preflight::{
    Around, CONSOLE_PASSWORD_HASH, LOGIN, NeededSecret, needed_secrets, network, obstacles, pool_of_nodes,
};
pub use self::provider::{SeenVCenter, SeenZone};
pub use self::repair::{Repairs, repaired, repairs};
pub use self::resize::Had;
pub use self::resolved::{Named as NamedBySpec, resolved, standing, suits};
pub use self::rest::{Rest, control_cluster, swap_reasons};
pub use self::sizes::{pinned_size, seen_size, wanted_size};
pub use self::spread::{zone_of_next, zones_of_pool};
pub use self::swapping::{
    Stage, Swapping, good, is_done_with, is_open_swap, last_swap, may_go_back, outlived, unsettled, words,
};
pub use self::told::{told_by, told_otherwise};
pub use self::workers::{Looked, kept, like, may_make, pool_status, shown_worker, site};
