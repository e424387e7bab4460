//! The objects that make a cluster, from arguments or from a file. Pure but for reading the file. The API server and the
//! controller judge the values. The objects have only values that the user gave: defaults are the kinds' own.

use std::path::Path;

use anyhow::{bail, ensure};
use controller::objects::{GROUP, VERSION};
use serde_json::{Value, json};

use super::arguments::NewClusterArgs;
use crate::control::{read, text};

/// A cluster and its pools.
#[derive(Debug, PartialEq)]
pub struct ClusterObjects {
    pub cluster: Value,
    pub pools: Vec<Value>,
}

impl ClusterObjects {
    /// The objects for arguments, with the SSH keys that may log in.
    pub fn from_arguments(name: &str, namespace: &str, said: &NewClusterArgs, ssh_keys: &[String]) -> Self {
        let object = |kind: &str, name: &str, spec: Value| {
            json!({
                "apiVersion": format!("{GROUP}/{VERSION}"),
                "kind": kind,
                "metadata": {"name": name, "namespace": namespace},
                "spec": spec,
            })
        };
        let endpoint = match &said.endpoint_pool {
            Some(pool) => json!({"poolRef": {"name": pool}}),
            None => json!({"address": said.endpoint}),
        };
        let mut spec = json!({
            "providerRef": {"name": said.provider},
            "version": said.kubernetes,
            "network": {"name": said.network, "endpoint": endpoint},
        });
        if !said.service_vips.is_empty() {
            let ranges = said.service_vips.iter().map(|(first, last)| json!({"first": first, "last": last}));
            spec["network"]["serviceVIPs"]["ranges"] = ranges.collect();
        }
        if !ssh_keys.is_empty() {
            spec["site"]["sshAuthorizedKeys"] = ssh_keys.into();
        }
        if let Some(image) = &said.image {
            spec["image"] = image.as_str().into();
        }
        if let Some(nodes) = said.control_nodes.as_deref().and_then(|nodes| nodes.parse::<u8>().ok()) {
            spec["controlPlane"]["replicas"] = nodes.into();
        }
        if !said.zone.is_empty() {
            spec["controlPlane"]["zones"] = said.zone.clone().into();
        }
        let pool = said.workers.zip(said.worker_class.as_ref()).map(|(workers, class)| {
            let mut spec = json!({"clusterRef": {"name": name}, "replicas": workers, "vmClass": class});
            if !said.zone.is_empty() {
                spec["zones"] = said.zone.clone().into();
            }
            object("NodePool", &format!("{name}-workers"), spec)
        });
        Self { cluster: object("TenantCluster", name, spec), pools: pool.into_iter().collect() }
    }

    /// The objects of a file. `namespace` is for files that name none.
    ///
    /// # Errors
    /// It cannot be read, has not one cluster, or something that is not of it.
    pub fn read(path: &Path, namespace: &str) -> anyhow::Result<Self> {
        let others =
            "apply others with `kubectl apply --server-side`, or those of a vCenter with `kaas provider create`";
        Self::of(read(path, &["TenantCluster", "NodePool"], others)?, namespace)
    }

    fn of(objects: Vec<Value>, namespace: &str) -> anyhow::Result<Self> {
        let (mut clusters, pools): (Vec<Value>, Vec<Value>) =
            objects.into_iter().partition(|object| text(object, "/kind") == "TenantCluster");
        ensure!(clusters.len() == 1, "the file has {} TenantClusters: give one with its NodePools", clusters.len());
        let mut wanted = Self { cluster: clusters.remove(0), pools };
        let of_file = text(&wanted.cluster, "/metadata/namespace");
        let namespace = if of_file.is_empty() { namespace } else { of_file }.to_owned();
        let name = text(&wanted.cluster, "/metadata/name").to_owned();
        for pool in &wanted.pools {
            let (of, is) = (text(pool, "/spec/clusterRef/name"), text(pool, "/metadata/name"));
            ensure!(of == name, "the NodePool {is} is of the cluster {of:?}, not of {name}");
        }
        for object in std::iter::once(&mut wanted.cluster).chain(&mut wanted.pools) {
            let there = text(object, "/metadata/namespace");
            if !there.is_empty() && there != namespace {
                bail!("{} is in the namespace {there}, and the cluster in {namespace}", text(object, "/metadata/name"));
            }
            object["metadata"]["namespace"] = namespace.as_str().into();
        }
        Ok(wanted)
    }

    pub fn name(&self) -> &str {
        text(&self.cluster, "/metadata/name")
    }

    pub fn namespace(&self) -> &str {
        text(&self.cluster, "/metadata/namespace")
    }
}

/// The keys of a file as `authorized_keys` has them: a line each, without empty ones and remarks.
pub fn keys(text: &str) -> Vec<String> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use controller::objects::{NodePool, TenantCluster};

    use super::*;

    fn said() -> NewClusterArgs {
        NewClusterArgs {
            provider: Some("dc1".to_owned()),
            kubernetes: Some("1.36".to_owned()),
            network: Some("blue".to_owned()),
            endpoint: Some([192, 168, 10, 10].into()),
            ..NewClusterArgs::default()
        }
    }

    #[test]
    fn arguments_become_objects_without_defaults() {
        let wanted = ClusterObjects::from_arguments("shop", "team-blue", &said(), &[]);
        let spec = json!({
            "providerRef": {"name": "dc1"},
            "version": "1.36",
            "network": {"name": "blue", "endpoint": {"address": "192.168.10.10"}},
        });
        assert_eq!((&wanted.cluster["spec"], wanted.pools.len()), (&spec, 0));
        let all = NewClusterArgs {
            image: Some("kaas-tenant-0.2.0".to_owned()),
            control_nodes: Some("3".to_owned()),
            endpoint: None,
            endpoint_pool: Some("api".to_owned()),
            service_vips: vec![([192, 168, 10, 200].into(), [192, 168, 10, 209].into())],
            workers: Some(2),
            worker_class: Some("medium".to_owned()),
            zone: vec!["a".to_owned(), "b".to_owned()],
            ..said()
        };
        let keys = keys("ssh-ed25519 AAAA anna\n\n# gone\nssh-ed25519 BBBB bob\n");
        let wanted = ClusterObjects::from_arguments("shop", "team-blue", &all, &keys);
        let cluster: TenantCluster = serde_json::from_value(wanted.cluster.clone()).unwrap();
        let pool: NodePool = serde_json::from_value(wanted.pools[0].clone()).unwrap();
        assert_eq!(cluster.spec.site.ssh_authorized_keys, ["ssh-ed25519 AAAA anna", "ssh-ed25519 BBBB bob"]);
        assert_eq!(cluster.spec.control_plane.replicas, 3);
        assert_eq!(cluster.spec.control_plane.zones, ["a", "b"]);
        assert_eq!(cluster.spec.network.endpoint.pool_ref.as_ref().unwrap().name, "api");
        assert_eq!(cluster.spec.image.as_deref(), Some("kaas-tenant-0.2.0"));
        assert_eq!((pool.spec.replicas, pool.spec.vm_class.as_str()), (2, "medium"));
        assert_eq!(pool.spec.zones, ["a", "b"]);
        assert_eq!((wanted.name(), wanted.namespace()), ("shop", "team-blue"));
        assert_eq!(pool.metadata.name.as_deref(), Some("shop-workers"));
        let ranges = &wanted.cluster["spec"]["network"]["serviceVIPs"]["ranges"];
        assert_eq!(*ranges, json!([{"first": "192.168.10.200", "last": "192.168.10.209"}]));
        // Each word has its field, and the kinds know each: what they did not would be lost.
        is_in(&wanted.cluster["spec"], &serde_json::to_value(&cluster.spec).unwrap(), "cluster");
        is_in(&wanted.pools[0]["spec"], &serde_json::to_value(&pool.spec).unwrap(), "pool");
    }

    /// Whether all of `part` is in `whole`, which may have defaults in addition.
    fn is_in(part: &Value, whole: &Value, path: &str) {
        match (part, whole) {
            (Value::Object(part), Value::Object(whole)) => {
                for (name, part) in part {
                    let path = format!("{path}.{name}");
                    is_in(part, whole.get(name).unwrap_or_else(|| panic!("{path} is no field")), &path);
                }
            }
            (part, whole) => assert_eq!(part, whole, "{path}"),
        }
    }

    #[test]
    #[should_panic(expected = "cluster.imge is no field")]
    fn unknown_fields_are_found() {
        is_in(&json!({"imge": "a"}), &json!({"image": "a"}), "cluster");
    }

    #[test]
    fn a_file_has_one_cluster_with_its_pools() {
        let cluster = |namespace: Option<&str>| json!({"kind": "TenantCluster", "metadata": {"name": "shop", "namespace": namespace}});
        let pool = |of: &str, namespace: Option<&str>| {
            json!({"kind": "NodePool", "metadata": {"name": "shop-a", "namespace": namespace},
                   "spec": {"clusterRef": {"name": of}}})
        };
        let wanted = ClusterObjects::of(vec![pool("shop", None), cluster(None)], "blue").unwrap();
        assert_eq!((wanted.namespace(), text(&wanted.pools[0], "/metadata/namespace")), ("blue", "blue"));
        assert_eq!(ClusterObjects::of(vec![cluster(Some("red"))], "blue").unwrap().namespace(), "red");
        for wrong in [
            vec![],
            vec![cluster(None), cluster(None)],
            vec![cluster(None), pool("other", None)],
            vec![cluster(None), pool("shop", Some("red"))],
        ] {
            assert!(ClusterObjects::of(wrong.clone(), "blue").is_err(), "{wrong:?}");
        }
    }
}
