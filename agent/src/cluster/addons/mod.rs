//! The Kubernetes objects of the cluster besides its control plane: its add-ons, the rights of the host services and the limits
//! of pods. Pure; [`crate::cluster::kubernetes::api::apply`] applies them.

pub mod controller;
mod coredns;
mod local_volumes;
mod manifest;
mod metallb;
pub mod metrics_server;
mod node_admission;
pub mod pod_policies;
mod rights;
mod workers;

use contract::image::{self, ImageFacts};
use contract::properties::{self, CLUSTER_DNS, CLUSTER_METRICS, LOCAL_VOLUMES, SERVICE_VIPS};
use contract::role::Role;
use serde::Deserialize;
use serde_json::Value;

use crate::cluster::kubernetes::rollout::{Workload, workloads};
use crate::intake::config::{Cluster, ControlPlane, Node};

/// The rights of the host services.
pub fn rights(cluster: &Cluster) -> Vec<Value> {
    rights::objects(cluster)
}

/// The rights of the deployer's user, as long as the node has the deployer's key: one object with the name of the user.
pub fn deployer_rights(user: &str) -> Vec<Value> {
    vec![rights::administrator(user)]
}

/// The objects with which workers join this cluster: none, if no workers join it. `authority` is the cluster's CA, in PEM.
pub fn workers(config: &ControlPlane, authority: &str) -> Vec<Value> {
    workers::objects(config, authority)
}

/// The annotation that says which build's add-ons these are, and with which settings. Each object of an add-on has it: one
/// that lacks it was not reached when they were applied.
pub const BUILD: &str = "kaas.local/build";

/// The label on all objects of an add-on, with its name.
pub const LABEL: &str = "kaas.local/add-on";

/// The controller of tenant clusters, which no property chooses: the control cluster has it where its image does.
pub const CONTROLLER: &str = "controller";

/// All other add-ons, by the properties that choose them.
const ALL: [&str; 4] = [CLUSTER_DNS, CLUSTER_METRICS, LOCAL_VOLUMES, SERVICE_VIPS];

/// Something that the appliance brings into a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddOn {
    /// The property that chooses it, or [`CONTROLLER`].
    pub name: &'static str,
    /// The value of [`BUILD`] in its objects.
    pub mark: String,
    /// The file of the image with the kinds of objects that it brings, which must be known before `objects`.
    pub kinds: Option<String>,
    /// The file of the image with further objects of it, as a list (`v1`, `List`) in JSON: they come before `objects`.
    pub listed: Option<String>,
    /// Its objects, in the order in which they are applied.
    pub objects: Vec<Value>,
}

impl AddOn {
    fn new(name: &'static str, mark: String, objects: Vec<Value>) -> Self {
        let mut add_on = Self { name, mark, kinds: None, listed: None, objects };
        add_on.objects.iter_mut().for_each(|object| mark_as(name, &add_on.mark, object));
        add_on
    }

    /// The same with what its file lists.
    ///
    /// # Errors
    /// That is no list of objects.
    pub fn with_listed(mut self, text: &[u8]) -> serde_json::Result<Self> {
        let List { mut items } = serde_json::from_slice(text)?;
        items.iter_mut().for_each(|object| mark_as(self.name, &self.mark, object));
        items.append(&mut self.objects);
        Ok(Self { listed: None, objects: items, ..self })
    }

    pub fn workloads(&self) -> Vec<Workload> {
        workloads(&self.objects)
    }
}

#[derive(Deserialize)]
struct List {
    items: Vec<Value>,
}

fn mark_as(name: &str, mark: &str, object: &mut Value) {
    object["metadata"]["labels"][LABEL] = name.into();
    object["metadata"]["annotations"][BUILD] = mark.into();
}

/// A pod has no more DNS servers (`MaxDNSNameservers` of `k8s.io/kubernetes/pkg/apis/core/validation`).
const DNS_SERVERS: usize = 3;

/// Those DNS servers of a node that pods ask.
fn dns_servers(node: &Node) -> Vec<String> {
    node.dns_servers.iter().take(DNS_SERVERS).map(ToString::to_string).collect()
}

/// How add-ons resolve names that are not the cluster's: with the DNS servers and search domains of the node that applies them.
pub fn resolvers(node: &Node) -> String {
    [dns_servers(node), node.search_domains.clone()].concat().join(" ")
}

/// The add-ons that the cluster is to have. On each node they are those that the node's own image carries.
pub fn wanted(config: &ControlPlane, image: &ImageFacts) -> Vec<AddOn> {
    let (chosen, build) = (&config.cluster.add_ons, &image.build);
    let resolving = format!("{build} {}", resolvers(&config.node)).trim_end().to_owned();
    let mut wanted = Vec::new();
    if chosen.dns {
        wanted.push(AddOn::new(CLUSTER_DNS, resolving.clone(), coredns::objects(config)));
    }
    if chosen.metrics {
        wanted.push(AddOn::new(CLUSTER_METRICS, build.clone(), metrics_server::objects()));
    }
    if chosen.local_volumes {
        wanted.push(AddOn::new(LOCAL_VOLUMES, build.clone(), local_volumes::objects()));
    }
    if !chosen.service_addresses.is_empty() {
        let mark = format!("{build} {}", chosen.addresses());
        let metallb = AddOn::new(SERVICE_VIPS, mark, metallb::objects(&chosen.service_addresses));
        wanted.push(AddOn { kinds: Some(metallb::KINDS.to_owned()), ..metallb });
    }
    if has_controller(config, image) {
        let controller =
            AddOn::new(CONTROLLER, resolving, controller::objects(build, &config.node, config.cluster.virtual_address));
        let (kinds, listed) = (image::kinds_of(controller::IMAGE), image::objects_of(controller::IMAGE));
        wanted.push(AddOn { kinds: Some(kinds), listed: Some(listed), ..controller });
    }
    wanted
}

/// Whether the controller of tenant clusters runs on a control-plane node of this image.
pub fn has_controller(config: &ControlPlane, image: &ImageFacts) -> bool {
    config.role == Role::ControlPlane && image.carries(controller::IMAGE)
}

pub fn cluster_dns(config: &ControlPlane, image: &ImageFacts) -> Option<AddOn> {
    wanted(config, image).into_iter().find(|add_on| add_on.name == CLUSTER_DNS)
}

/// The names of the add-ons that the cluster is not to have, though nodes of its role can bring them.
pub fn unwanted(config: &ControlPlane, wanted: &[AddOn]) -> Vec<&'static str> {
    let asked = |name: &str| properties::find(name).is_some_and(|property| property.need(config.role).is_some());
    ALL.into_iter().filter(|name| asked(name) && wanted.iter().all(|wanted| wanted.name != *name)).collect()
}

/// The kinds of objects that an add-on is taken away by, as kubectl names them. Namespaces stay, and so do the kinds that it
/// has brought: there may be objects of others in them.
pub const REMOVED: &str = "apiservice,storageclass,poddisruptionbudget,deployment,daemonset,service,configmap,secret,serviceaccount,\
                           rolebinding,role,clusterrolebinding,clusterrole";

/// Objects of the controller's add-on that former images applied and this one lacks, as kubectl names them.
pub const FORMER_OF_CONTROLLER: [&str; 2] =
    ["validatingadmissionpolicybinding/named-secrets.kaas.local", "validatingadmissionpolicy/named-secrets.kaas.local"];

/// The container images of the add-ons that a control-plane node runs, by name.
pub fn images(config: &ControlPlane, image: &ImageFacts) -> Vec<&'static str> {
    let chosen = &config.cluster.add_ons;
    let table = [
        // Always: the property may be turned on later, and its pods may run on any node.
        (true, "coredns"),
        (chosen.metrics, metrics_server::IMAGE),
        (chosen.local_volumes, local_volumes::PROVISIONER),
        (!chosen.service_addresses.is_empty(), metallb::CONTROLLER_IMAGE),
        (has_controller(config, image), controller::IMAGE),
    ];
    table.into_iter().filter(|(chosen, _)| *chosen).map(|(_, image)| image).collect()
}

/// The images that a worker runs, whatever its cluster has chosen: that may change during the worker's life.
pub fn images_of_workers() -> Vec<&'static str> {
    vec!["coredns", metallb::SPEAKER_IMAGE, local_volumes::HELPER]
}

/// Which nodes may come into a cluster that workers join: nothing, where none do.
pub fn node_admission_policies(config: &ControlPlane) -> Vec<Value> {
    node_admission::objects(config)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intake::config::AddOns;
    use crate::intake::config::fixture::{image as facts, in_a_tenant, three_nodes};
    use contract::image;
    use contract::properties::AddressRange;
    use std::net::Ipv4Addr;

    fn with_all() -> ControlPlane {
        let mut config = in_a_tenant(three_nodes());
        let address = |last| Ipv4Addr::new(10, 0, 0, last);
        let service_addresses = vec![
            AddressRange { first: address(50), last: address(59) },
            AddressRange { first: address(70), last: address(70) },
        ];
        config.cluster.add_ons = AddOns { dns: true, metrics: true, local_volumes: true, service_addresses };
        config
    }

    #[test]
    fn the_objects_of_three_nodes_without_resolvers() {
        let mut objects = rights(&three_nodes().cluster);
        objects.extend(cluster_dns(&three_nodes(), &facts()).unwrap().objects);
        insta::assert_snapshot!(format!("{:#}", Value::from(objects)));
    }

    #[test]
    fn the_objects_of_a_tenants_add_ons() {
        for add_on in wanted(&with_all(), &facts()).into_iter().skip(1) {
            insta::assert_snapshot!(add_on.name, format!("{:#}", Value::from(add_on.objects)));
        }
    }

    #[test]
    fn cluster_dns_asks_the_same_servers_everywhere() {
        let corefile = |servers: u8| {
            let mut config = three_nodes();
            config.node.dns_servers = (1..=servers).map(|last| Ipv4Addr::new(10, 0, 0, last)).collect();
            let objects = cluster_dns(&config, &facts()).unwrap().objects;
            let of = objects.iter().find(|object| object["kind"] == "ConfigMap").unwrap();
            of["data"]["Corefile"].as_str().unwrap().to_owned()
        };
        assert!(corefile(4).contains("    forward . 10.0.0.1 10.0.0.2 10.0.0.3 {\n"), "{}", corefile(4));
        assert!(!corefile(0).contains("forward"), "{}", corefile(0));
    }

    #[test]
    fn each_add_on_can_be_left_out() {
        let all = wanted(&with_all(), &facts());
        let names = |add_ons: &[AddOn]| add_ons.iter().map(|add_on| add_on.name).collect::<Vec<_>>();
        assert_eq!(names(&all), ALL);
        assert!(unwanted(&with_all(), &all).is_empty());
        let (control, image) = (three_nodes(), facts());
        assert_eq!(names(&wanted(&control, &image)), [CLUSTER_DNS]);
        assert_eq!(images(&control, &image), ["coredns"]);
        let image = carrying();
        assert_eq!(names(&wanted(&control, &image)), [CLUSTER_DNS, CONTROLLER]);
        assert_eq!(images(&control, &image), ["coredns", "controller"]);
        assert_eq!(names(&wanted(&with_all(), &image)), ALL, "a tenant has none");
        assert!(!images(&with_all(), &image).contains(&"controller"));
        assert!(unwanted(&control, &wanted(&control, &image)).is_empty(), "nobody there has brought them");
        for name in ALL {
            let mut config = with_all();
            let chosen = &mut config.cluster.add_ons;
            match name {
                CLUSTER_DNS => chosen.dns = false,
                CLUSTER_METRICS => chosen.metrics = false,
                LOCAL_VOLUMES => chosen.local_volumes = false,
                _ => chosen.service_addresses.clear(),
            }
            let there = wanted(&config, &image);
            assert_eq!((there.len(), unwanted(&config, &there)), (3, vec![name]));
            assert_eq!(cluster_dns(&config, &image).is_some(), name != CLUSTER_DNS);
        }
    }

    #[test]
    fn nodes_have_the_images_of_their_pods() {
        let images = |text: &str| {
            let prefix = image::reference("", image::CARRIED);
            let (before, after) = prefix.split_at(prefix.len() - image::CARRIED.len() - 1);
            let parts = text.split(before).skip(1).filter_map(|rest| Some(rest.split_once(after)?.0.to_owned()));
            parts.collect::<std::collections::BTreeSet<_>>()
        };
        let config = with_all();
        let all = wanted(&config, &facts());
        let objects = all.iter().flat_map(|add_on| &add_on.objects);
        let (mut of_control_nodes, mut of_others) = (String::new(), String::new());
        for object in objects {
            let pod = &object["spec"]["template"]["spec"];
            let there = pod["nodeSelector"]["node-role.kubernetes.io/control-plane"].is_string();
            if there { &mut of_control_nodes } else { &mut of_others }.push_str(&pod.to_string());
            // The provisioner starts the helper's pods where volumes are.
            of_others.push_str(object["data"]["helperPod.yaml"].as_str().unwrap_or_default());
        }
        let names = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect();
        assert_eq!(images(&of_others), names(images_of_workers()));
        let mut expected = images(&of_control_nodes);
        // Named in the provisioner's arguments.
        expected.remove(local_volumes::HELPER);
        expected.insert("coredns".to_owned());
        assert_eq!(expected, names(super::images(&config, &facts())));
    }

    /// An image with the controller.
    fn carrying() -> ImageFacts {
        ImageFacts { programs: vec!["controller".to_owned()], ..facts() }
    }

    /// The controller's add-on, with what the image lists as the controller itself does.
    fn controllers() -> AddOn {
        let found = wanted(&three_nodes(), &carrying()).pop().unwrap();
        assert_eq!(found.kinds.as_deref(), Some("/usr/lib/kaas/add-ons/controller-kinds.json"));
        assert_eq!(found.listed.as_deref(), Some("/usr/lib/kaas/add-ons/controller-objects.json"));
        let listed = br#"{"items": [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kaas-system", "labels": {
                "pod-security.kubernetes.io/enforce": "privileged"}}},
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "kaas-controller", "namespace": "kaas-system"}}
        ]}"#;
        assert!(found.clone().with_listed(b"[]").is_err());
        found.with_listed(listed).unwrap()
    }

    #[test]
    fn the_objects_of_the_controller() {
        insta::assert_snapshot!("controller", format!("{:#}", Value::from(controllers().objects)));
    }

    /// The image has them from the controller's own sources.
    #[test]
    fn the_controllers_pods_match_its_rights() {
        let rights = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../controller/definitions/rights.yaml");
        let rights = std::fs::read_to_string(rights).unwrap();
        let pods = controllers().objects.pop().unwrap();
        let (account, home) = (&pods["spec"]["template"]["spec"]["serviceAccountName"], &pods["metadata"]["namespace"]);
        assert!(
            rights.contains(&format!("kind: \"ServiceAccount\"\nmetadata:\n  name: {account}\n  namespace: {home}\n"))
        );
        let namespace = rights.split("---\n").find(|object| object.contains("kind: \"Namespace\"")).unwrap();
        assert!(
            namespace.contains("pod-security.kubernetes.io/enforce: \"privileged\"")
                && namespace.contains(&home.to_string())
        );
    }

    /// Its files outlive pods and image swaps, so that an upgrade can be rolled back.
    #[test]
    fn the_controllers_files_are_on_the_data_disk() {
        let pods = controllers().objects.pop().unwrap();
        let pod = &pods["spec"]["template"]["spec"];
        let volumes = pod["volumes"].as_array().unwrap();
        assert!(volumes.iter().all(|volume| volume["emptyDir"].is_null()), "{volumes:?}");
        let kept = volumes.iter().find(|volume| volume["name"] == "kept").unwrap();
        assert_eq!(kept["hostPath"], serde_json::json!({"path": contract::paths::TENANTS, "type": "Directory"}));
        let container = &pod["containers"][0];
        let mounts = container["volumeMounts"].as_array().unwrap();
        assert!(mounts.iter().any(|mount| mount["name"] == "kept" && mount["mountPath"] == contract::paths::TENANTS));
        let told = format!("--directory={}", contract::paths::TENANTS);
        assert!(container["args"].as_array().unwrap().contains(&told.into()));
        assert_eq!(pod["securityContext"]["runAsUser"], crate::cluster::tenants::USER);
    }

    /// The API server would refuse the pods, or kill what needs it most.
    #[test]
    fn all_pods_are_marked_prioritized_limited_and_confined() {
        let mut all = wanted(&with_all(), &facts());
        all.push(controllers());
        let objects: Vec<&Value> = all.iter().flat_map(|add_on| &add_on.objects).collect();
        assert!(objects.iter().all(|object| object["metadata"]["labels"][LABEL].is_string()));
        assert!(objects.iter().all(|object| object["metadata"]["annotations"][BUILD].is_string()));
        let privileged = |namespace: &str| {
            let is_it = |object: &&&Value| object["kind"] == "Namespace" && object["metadata"]["name"] == namespace;
            let found = objects.iter().find(is_it).unwrap_or_else(|| panic!("{namespace} is made by nobody"));
            found["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"
        };
        let mut running = 0;
        for object in objects.iter().filter(|object| Workload::of(object).is_some()) {
            let name = &object["metadata"]["name"];
            let (namespace, pod) =
                (object["metadata"]["namespace"].as_str().unwrap(), &object["spec"]["template"]["spec"]);
            assert!(namespace == "kube-system" || privileged(namespace), "{name} in {namespace}");
            assert!(pod["priorityClassName"].as_str().unwrap().starts_with("system-"), "{name}");
            assert_eq!(
                object["spec"]["selector"]["matchLabels"], object["spec"]["template"]["metadata"]["labels"],
                "{name}"
            );
            for container in pod["containers"].as_array().unwrap() {
                running += 1;
                let (context, resources) = (&container["securityContext"], &container["resources"]);
                assert_eq!(context["allowPrivilegeEscalation"], false, "{name}");
                assert_eq!(context["readOnlyRootFilesystem"], true, "{name}");
                assert_eq!(context["capabilities"]["drop"], serde_json::json!(["ALL"]), "{name}");
                assert!(
                    resources["requests"]["memory"].is_string() && resources["limits"]["memory"].is_string(),
                    "{name}"
                );
                assert!(container["image"].as_str().unwrap().ends_with(":carried"), "{name}");
            }
        }
        assert_eq!(running, 6);
    }
}
