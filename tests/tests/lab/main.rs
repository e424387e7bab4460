//! All scenarios, in the order in which they are run. `cargo test --workspace --test lab -- NAME` runs those whose
//! names contain NAME, `--list` shows them. `short` ones are part of `make test`, `long` ones of `make test-long`.

mod access;
mod bad_input;
mod console;
mod container;
mod deployer;
mod etcd;
mod full_store;
mod hostile;
mod image;
mod join;
mod kubernetes;
mod leading_controller;
mod maintenance;
mod object_cases;
mod object_deletions;
mod object_leader;
mod object_secrets;
mod object_store;
mod object_tenants;
mod objects;
mod partition;
mod qemu;
mod returns;
mod set_up;
mod storage;
mod swap;
mod tenant;
mod tenant_upgrade;
mod three_nodes;
mod trust;
mod upgrade;
mod vcenter;
mod wire;

use std::process::ExitCode;

use scenarios::runner::{Entry, run};

/// A scenario that is not listed is unused code, and does not compile.
macro_rules! entries {
    ($($module:ident::$length:ident::$story:ident),* $(,)?) => {
        &[$(Entry {
            name: concat!(stringify!($module), "::", stringify!($length), "::", stringify!($story)),
            run: $module::$length::$story,
        }),*]
    };
}

/// Emulated processors first, which take as long as much of the rest; then the slowest.
const SCENARIOS: &[Entry] = entries![
    qemu::short::a_node_is_swapped_onto_vspheres_devices,
    tenant::short::tenant_forms_and_its_workers_run_a_workload,
    three_nodes::short::a_cluster_forms_against_all_odds_and_survives,
    upgrade::short::three_nodes_are_swapped_one_by_one,
    swap::short::node_is_swapped_and_rolled_back_by_hand,
    bad_input::short::bad_properties_are_named_and_nothing_is_formatted,
    bad_input::short::wrong_disks_networks_and_clocks_are_named,
    bad_input::short::a_second_adapter_gets_its_address_and_routes,
    object_tenants::short::a_tenant_is_declared_serves_and_is_deleted,
    objects::short::api_server_judges_objects_by_their_rules,
    qemu::long::node_cut_in_its_swap_is_rolled_back,
    qemu::long::a_node_on_vsphere_hardware_forms_a_cluster,
    qemu::long::vm_forms_a_cluster_with_two_containers,
    qemu::long::node_cut_while_forming_forms_its_cluster,
    qemu::long::node_restarts_after_its_disk_was_away,
    three_nodes::long::first_node_lost_after_its_handout_is_replaced,
    three_nodes::long::two_nodes_are_maintained_without_the_third,
    console::long::node_is_corrected_and_reset_on_its_console,
    console::long::node_works_while_its_clock_is_far_off,
    container::long::bad_properties_are_corrected_on_the_node,
    container::long::node_cut_at_each_step_forms_its_cluster,
    container::long::certificates_are_renewed_in_a_running_cluster,
    container::long::node_with_expired_certificates_renews_them_at_boot,
    access::long::anonymous_clients_get_nothing_and_certificates_are_renewed,
    swap::long::audit_log_survives_a_swap,
    deployer::long::deployer_is_admitted_until_the_key_changes,
    maintenance::long::full_disk_is_a_finding_until_freed,
    maintenance::long::a_reset_node_begins_as_freshly_deployed,
    returns::long::deleted_nodes_return_and_programs_use_current_settings,
    full_store::long::full_store_serves_again_after_deletions,
    full_store::long::full_store_heals_while_a_node_is_away,
    storage::long::nodes_wait_for_their_storage_and_restart,
    storage::long::files_damaged_by_a_power_cut_are_recreated,
    partition::long::silently_cut_node_does_not_slow_the_others,
    etcd::long::lost_node_is_replaced_with_a_code,
    etcd::long::cluster_is_restored_on_all_nodes,
    etcd::long::cluster_without_nodes_gets_its_secrets_back,
    etcd::long::cluster_without_quorum_is_restored,
    swap::long::prepared_swap_is_for_one_image,
    swap::long::disks_of_other_nodes_are_refused,
    swap::long::blank_and_additional_disks_are_not_used,
    join::long::refused_worker_shows_code_and_waits_for_api,
    join::long::worker_with_expired_certificate_joins_with_another_token,
    tenant::long::server_answers_while_its_workers_change,
    tenant::long::lost_node_of_a_tenant_is_replaced,
    tenant::long::worker_starts_no_pod_without_its_volumes,
    tenant::long::worker_reports_a_changed_lease_and_waits,
    tenant_upgrade::long::tenant_is_upgraded_to_a_newer_image,
    tenant_upgrade::long::workers_follow_to_the_next_kubernetes,
    trust::long::cluster_takes_images_of_its_publisher_only,
    upgrade::long::three_nodes_are_swapped_and_rolled_back,
    upgrade::long::three_nodes_are_swapped_at_once_and_committed,
    upgrade::long::command_that_is_killed_repeatedly_completes,
    upgrade::long::frozen_command_does_nothing_after_a_takeover,
    upgrade::long::node_lost_during_an_upgrade_is_replaced,
    upgrade::long::image_without_kubelet_is_rolled_back,
    upgrade::long::image_with_crashing_agent_is_rolled_back,
    upgrade::long::image_without_etcd_is_rolled_back,
    upgrade::long::an_image_without_network_goes_back_by_itself,
    upgrade::long::guest_cut_in_its_swap_ends_healthy,
    vcenter::long::an_ova_imported_by_govc_forms_a_cluster,
    vcenter::long::one_file_deploys_upgrades_and_destroys_three_nodes,
    object_tenants::long::objects_create_scale_and_delete_a_tenant,
    object_tenants::long::a_tenant_is_repaired_upgraded_and_rolled_back,
    object_tenants::long::a_control_cluster_with_a_tenant_is_upgraded,
    object_leader::long::cuts_of_the_leader_change_no_result,
    vcenter::long::disturbances_stop_no_swap,
    set_up::long::a_bare_bookworm_is_set_up_by_root,
    set_up::long::a_bare_trixie_is_set_up_by_root,
    set_up::long::user_with_sudo_sets_a_bare_bookworm_up,
    set_up::long::user_with_sudo_sets_a_bare_trixie_up,
    kubernetes::long::kubernetes_upgrade_loses_nothing,
];

fn main() -> ExitCode {
    run(SCENARIOS)
}
