//! What the cluster needs besides its control plane, as Kubernetes objects:
//! cluster DNS and the rights of the host services. Pure; applying is
//! [`crate::cluster::kubernetes::api::apply`]'s.

mod coredns;
mod rights;

use contract::image::ImageFacts;
use serde_json::Value;

use crate::intake::config::ControlPlane;

/// The rights of the host services.
pub fn rights() -> Vec<Value> {
    rights::objects()
}

/// The annotation that says which build's add-ons these are.
pub const BUILD: &str = "kaas.local/build";

/// Cluster DNS. On each node it is the one that the node's own image carries.
pub fn cluster_dns(config: &ControlPlane, image: &ImageFacts) -> Vec<Value> {
    coredns::objects(config, &image.build)
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
