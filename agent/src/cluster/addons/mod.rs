//! What the cluster needs besides its control plane, as Kubernetes objects:
//! cluster DNS, the rights of the host services and who may have the system's priorities. Pure; applying is
//! [`crate::cluster::kubernetes::api::apply`]'s.

mod coredns;
mod priority;
mod rights;
mod workers;

use contract::image::ImageFacts;
use contract::pod_security::PodSecurity;
use serde_json::Value;

use crate::intake::config::ControlPlane;

/// The rights of the host services.
pub fn rights() -> Vec<Value> {
    rights::objects()
}

/// What gives a deployer's user its rights, as long as his key is the node's: one object, named as the user is.
pub fn deployer_rights(user: &str) -> Vec<Value> {
    vec![rights::administrator(user)]
}

/// What workers need to join this cluster: nothing, where none do. `authority` is the cluster's, in PEM.
pub fn workers(config: &ControlPlane, authority: &str) -> Vec<Value> {
    workers::objects(config, authority)
}

/// The annotation that says which build's add-ons these are.
pub const BUILD: &str = "kaas.local/build";

/// Cluster DNS. On each node it is the one that the node's own image carries.
pub fn cluster_dns(config: &ControlPlane, image: &ImageFacts) -> Vec<Value> {
    coredns::objects(config, &image.build)
}

/// Who may have the priorities of the system's own pods, where this level is enforced.
pub fn priorities(level: PodSecurity) -> Vec<Value> {
    priority::objects(level)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_objects_of_three_nodes_without_resolvers() {
        let mut objects = rights();
        objects.extend(cluster_dns(
            &crate::intake::config::fixture::three_nodes(),
            &crate::intake::config::fixture::image(),
        ));
        insta::assert_snapshot!(format!("{:#}", Value::from(objects)));
    }
}
