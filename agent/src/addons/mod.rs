//! What the cluster needs besides its control plane, as Kubernetes objects:
//! cluster DNS and the rights of the host services. Pure; applying is
//! [`crate::kubernetes::api::apply`]'s.

mod coredns;
mod rights;

use serde_json::Value;

use crate::config::Config;
use crate::image::ImageFacts;

/// All objects, in the order in which they are applied.
pub fn objects(config: &Config, image: &ImageFacts) -> Vec<Value> {
    let mut objects = rights::objects();
    objects.extend(coredns::objects(config, &image.coredns));
    objects
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_objects_of_three_nodes_without_resolvers() {
        let objects = objects(&crate::plan::tests::three_nodes(), &crate::plan::tests::image());
        insta::assert_snapshot!(format!("{:#}", Value::from(objects)));
    }
}
