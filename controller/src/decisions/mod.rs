//! Decides the next steps from what was observed. Pure: requests and changes nothing. An unknown state is never taken for an
//! answer.

mod access;
mod add_ons;
mod addresses;
mod adopted_workers;
mod adoption;
mod capacity;
mod catalog;
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
mod node_image;
mod node_settings;
mod observed;
mod obstacle;
mod owned;
mod pause_reason;
mod pending_event;
mod pod_range;
mod pool;
mod preflight;
pub mod provider;
mod repair;
mod replace;
mod resize;
mod resolved;
mod settings_plan;
mod sizes;
mod spread;
mod swap_progress;
mod text;
mod window;
mod worker_image;
mod workers;

pub use self::access::{Access, NodePlace, namespaces_of, tenant_of};
pub use self::add_ons::add_ons;
pub use self::addresses::{
    Allocation, CLAIMANT, Malformed, NamedAllocation, POOL, allocation, claimed, gives_out, leaving_out, named,
    passing, total,
};
pub use self::adopted_workers::{AdoptedWorker, Evidence, adopted_workers};
pub use self::adoption::{
    adopted, are_bare, is_lost, is_to_adopt, may_adopt, may_cancel, pinned_as_run, power_of, superseded,
    why_not_adopted, without_disk,
};
pub use self::capacity::{capacity, workers_that_fit};
pub use self::catalog::{Offer, catalog, missing_names};
pub use self::change::{Change, ObservedCluster, asked, blocked, lowest_minor, raise_name, with_size};
pub use self::claims::{
    AllocatedAddresses, Claim, ClaimStep, Source, claimant, claims, further_vips, kept_vips, left_over, next_claim,
    service_vips,
};
pub use self::cluster::{
    CreationInputs, CreationStep, DeletionInputs, DeletionStep, KeysSeen, creation_step, deletion_step, is_begun,
    is_due, is_due_after, is_kept, is_leaving, unchanged,
};
pub use self::control_machine::control_machine_status;
pub use self::control_plane::{ControlNode, Keys, NodeSettings, Secrets, machines, names, zones};
pub use self::drift::{ahead, drifted, has_drifted, left_prepared};
pub use self::health::{ClusterCondition, Health, before, leaving, with_api, with_lost, workers_of};
pub use self::ip_pool::{PoolUsage, overlaps, pool_usage};
pub use self::limits::{
    Budget, ClusterInventory, PoolAllowance, ResourceUsage, Scope, growth, is_bounded, keeps_room, limits,
    pool_allowance,
};
pub use self::node_image::{ImageConditions, TemplateInventory, image_conditions, next_phase, phase};
pub use self::node_settings::{node_settings_hashes, pending_settings, setting_fields, with_applied};
pub use self::observed::Observed;
pub use self::obstacle::Obstacle;
pub use self::owned::{
    CLUSTER, CLUSTER_FINALIZER, CLUSTER_REF, FORMER_KEYS_TYPE, INPUT_TYPE, KEYS_TYPE, KUBECONFIG_TYPE,
    MACHINE_FINALIZER, NAMESPACES_IN_USE, NODE_POOL, POOL_FINALIZER, former_keys_secret, is_keys_secret, is_own_secret,
    keys_secret, kubeconfig_secret, namespace_entry, operation_of, owner,
};
pub use self::pause_reason::{PauseReason, control_cluster, swap_reasons};
pub use self::pending_event::{PendingEvent, Reasons, pending_events, reasons};
pub use self::pod_range::{exceeds_range, workers_in_range};
pub use self::pool::{InvalidPool, MOST_POOLS, WantedPool, emptied_pool, is_one_too_many, wanted_pool};
pub use self::preflight::{
    CONSOLE_PASSWORD_HASH, LOGIN, NeededSecret, PreflightInputs, is_input, needed_secrets, network, obstacles,
    pool_of_nodes,
};
pub use self::provider::{VCenterInventory, ZoneInventory};
pub use self::repair::{Repairs, forget_old_illness, repaired, repairs};
pub use self::replace::{LostNode, ReplacementInputs, ReplacementStep, held_message, lost_node, misnamed_node, noted};
pub use self::resize::NodeSizes;
pub use self::resolved::{ResolveInputs as NamedBySpec, resolved, standing, suits};
pub use self::settings_plan::{AskedNode, SettingsStep, next_setting, with_present_vips};
pub use self::sizes::{pinned_size, seen_size, wanted_size};
pub use self::spread::{zone_of_next, zones_of_pool};
pub use self::swap_progress::{
    Stage, SwapProgress, health_times, is_done_with, is_open_swap, last_swap, may_go_back, outlived, unsettled, words,
};
pub use self::text::joined;
pub use self::worker_image::{WorkerImage, awaited, worker_image};
pub use self::workers::{PoolObservation, machine_template, may_make, pool_record, pool_status, shown_worker, site};
