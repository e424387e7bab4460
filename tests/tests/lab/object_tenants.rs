//! Tenant clusters as objects of a control cluster on a vCenter to test against, whose machines are system containers.

pub mod short {
    use super::*;

    const TENANT: &str = "apiVersion: kaas.local/v1alpha1
kind: Tenant
metadata: {name: blue}
spec:
  namespaces: [default]
  allow: {providers: [{name: dc1, networks: [blue]}], ipPools: [blue], vmClasses: [small]}
  quota: {clusters: 1, nodes: 4, processors: 8}
";
    const CATALOG: &str = "/apis/kaas.local/v1alpha1/namespaces/default/catalogs/blue";

    /// From two OVAs on a vCenter to a server that answers, and to nothing again. The cluster uses the whole quota of its team. One of
    /// three control-plane VMs is destroyed and replaced while a client writes.
    pub fn a_tenant_is_declared_serves_and_is_deleted() {
        let site = Site::up("declared");
        let control = FileCluster::one(&site, &find_ova(&named_ova()).unwrap());
        control.run(&["control", "create"]);
        let objects = Objects::of(&site, &control);
        objects.provide();
        let image = objects.push(&find_ova_of(&named_ova(), "kaas-tenant").unwrap());
        let tenant = objects.file("blue.yaml", TENANT);
        objects.run(&["tenant", "create", "--file", tenant.to_str().unwrap()]);
        let file = objects.file("shop.yaml", &small_cluster_of(3, "shop", &image, 1));
        let (before, secrets) = (objects.files(), objects.secrets());
        let (_, took) = objects.run(&["cluster", "create", "--file", file.to_str().unwrap()]);
        site.reached(&format!("a cluster of three control nodes and one worker is Ready after {} s", took.as_secs()));
        let shop = objects.client("shop");
        site.wait("the team to see its use", MOMENT, || {
            let used = objects.ask(CATALOG)?["spec"]["used"].clone();
            Ok(used["clusters"] == 1 && used["nodes"] == 4 && used["processors"] == 8)
        });
        let page = serves(&site, &shop);
        let figures =
            while_requested(&site, page, "a server on its worker", &|| replaces_a_lost_node(&site, &objects, &shop));
        assert_eq!(figures.failed, 0, "{figures}");
        objects.run(&["cluster", "delete", "shop", "--confirm", "shop"]);
        assert_eq!((objects.vms(), objects.parts()), (Vec::new(), Vec::new()));
        assert_eq!((objects.secrets(), objects.files()), (secrets, before));
        site.down();
    }

    /// Finding 5 of controller.md: a control-plane node that was lost with its disk stayed lost.
    fn replaces_a_lost_node(site: &Site, objects: &Objects<'_>, shop: &Client) {
        const LOST: &str = "shop-cp2";
        let former = objects.made();
        let writer = Writer::through(shop.clone());
        site.govc(&["vm.destroy", LOST]);
        objects.run(&["cluster", "replace-node", "shop", LOST, "--confirm", LOST]);
        let figures = writer.end();
        site.reached(&format!("{LOST} was destroyed and replaced: {figures}"));
        assert!(figures.longest_gap < API_MOVES, "{figures}");
        let others = |vms: &BTreeMap<String, String>| {
            let kept = vms.iter().filter(|(name, _)| !name.starts_with(LOST));
            kept.map(|(name, vm)| (name.clone(), vm.clone())).collect::<Vec<_>>()
        };
        let made = objects.made();
        assert_eq!(others(&made), others(&former));
        let new: Vec<&String> = made.iter().filter(|(name, _)| name.starts_with(LOST)).map(|(_, vm)| vm).collect();
        assert!(new.len() == 1 && *new[0] != former[LOST], "{made:?}");
        let ready = asked(shop, Method::GET, "/api/v1/nodes", None).unwrap_or_else(|error| panic!("{error:#}"));
        let is_ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
        let nodes = ready["items"].as_array().expect("a list").iter();
        let ready =
            nodes.filter(|node| node["status"]["conditions"].as_array().is_some_and(|all| all.iter().any(is_ready)));
        assert_eq!(ready.count(), 4);
    }
}

pub mod long {
    use super::*;

    /// From two OVAs to a running application: a control cluster from one file, then a Provider, an image and a tenant cluster as
    /// objects. Its server answers while workers are added and removed, a setting changes, and the control cluster is off. A deletion
    /// leaves one VM, whose Machine says `KeepVM`.
    pub fn objects_create_scale_and_delete_a_tenant() {
        let site = Site::up("objects");
        let control = FileCluster::one(&site, &find_ova(&named_ova()).unwrap());
        control.run(&["control", "create"]);
        let objects = Objects::of(&site, &control);
        objects.provide();
        let image = objects.push(&find_ova_of(&named_ova(), "kaas-tenant").unwrap());
        let file = objects.file("shop.yaml", &small_cluster("shop", &image, 2));
        let before = objects.files();
        let secrets = objects.secrets();

        let (_, took) = objects.run(&["cluster", "create", "--file", file.to_str().unwrap()]);
        site.reached(&format!("a cluster of one control node and two workers is Ready after {} s", took.as_secs()));
        let nodes = ["shop-cp1", "shop-general-w1", "shop-general-w2"];
        assert!(objects.vms().iter().map(|(name, is_on)| (name.as_str(), *is_on)).eq(nodes.map(|node| (node, true))));

        let shop = objects.client("shop");
        let page = serves(&site, &shop);
        let requested = |what: &str, act: &dyn Fn()| while_requested(&site, page, what, act);
        for workers in ["3", "2"] {
            let figures = requested(&format!("{workers} workers"), &|| {
                objects.run(&["pool", "scale", "shop-general", workers]);
            });
            assert_eq!(figures.failed, 0, "{figures}");
        }

        // Finding 14 of controller.md: a setting reaches running nodes by the object.
        let cluster = "/apis/kaas.local/v1alpha1/namespaces/default/tenantclusters/shop";
        let figures = requested("a changed setting", &|| {
            objects.change(cluster, &json!({"spec": {"site": {"searchDomains": ["lab.example.com"]}}}));
            site.wait("all nodes to use the search domain", FORMING, || {
                let domains = nodes.map(|node| site.try_inside(node, &["resolvectl", "domain"]));
                Ok(domains.into_iter().all(|said| said.is_ok_and(|said| said.contains("lab.example.com"))))
            });
            site.wait("the cluster to be up to date", MOMENT, || {
                let status = objects.ask(cluster)?["status"].clone();
                let is_current = |it: &Value| it["type"] == "UpToDate" && it["status"] == "True";
                Ok(status["conditions"].as_array().into_iter().flatten().any(is_current))
            });
        });
        assert_eq!(figures.failed, 0, "{figures}");

        // It does not need the control cluster.
        objects.control_is("-off");
        let figures = requested("the control cluster is off", &|| {
            let writer = Writer::through(shop.clone());
            site.wait("fifty writes without a control cluster", MOMENT, || Ok(writer.acknowledged() >= 50));
            let figures = writer.end();
            assert_eq!(figures.failed, 0, "{figures}");
        });
        assert_eq!(figures.failed, 0, "{figures}");
        objects.control_is("-on");
        let objects = Objects::of(&site, &control);

        // The operator keeps one VM.
        let kept = "shop-general-w1";
        let name = format!("{kept}-kept-{}", &objects.made()[kept][..8]);
        let machine = format!("/apis/kaas.local/v1alpha1/namespaces/default/machines/{kept}");
        objects.change(&machine, &json!({"spec": {"removal": "KeepVM"}}));
        objects.run(&["cluster", "delete", "shop", "--confirm", "shop"]);
        assert_eq!(objects.vms(), [(name.clone(), false)]);
        let devices = site.machine(&name)["config"]["hardware"]["device"].clone();
        let adapters = devices.as_array().into_iter().flatten().filter(|device| device["macAddress"].is_string());
        let connected: Vec<&Value> = adapters.map(|adapter| &adapter["connectable"]["startConnected"]).collect();
        assert_eq!(connected, [&json!(false)], "{devices}");
        site.govc(&["vm.destroy", &name]);
        assert_eq!(objects.vms(), []);
        assert_eq!(objects.parts(), [""; 0]);
        assert_eq!(objects.secrets(), secrets);
        assert_eq!(objects.files(), before);
        site.down();
    }

    /// The controller replaces a worker that is off. Another image in the spec swaps the control-plane node's image; the former image rolls
    /// it back. After the commit of a second upgrade the workers follow by surge. No acknowledged write is lost, and the workers serve
    /// all the time.
    pub fn a_tenant_is_repaired_upgraded_and_rolled_back() {
        let directory = tempfile::tempdir().unwrap();
        let newer = built_ova::build_tenant("0.2.9", directory.path()).unwrap_or_else(|error| panic!("{error:#}"));
        let site = Site::up("objup");
        let control = FileCluster::one(&site, &find_ova(&named_ova()).unwrap());
        control.run(&["control", "create"]);
        let objects = Objects::of(&site, &control);
        objects.provide();
        let [former, newer] = [find_ova_of(&named_ova(), "kaas-tenant").unwrap(), newer].map(|ova| objects.push(&ova));
        let file = objects.file("shop.yaml", &small_cluster("shop", &former, 2));
        objects.run(&["cluster", "create", "--file", file.to_str().unwrap()]);
        let shop = objects.client("shop");
        let page = serves(&site, &shop);
        let requested = |what: &str, act: &dyn Fn()| while_requested(&site, page, what, act);
        let pool = || objects.ask("/apis/kaas.local/v1alpha1/namespaces/default/nodepools/shop-general");

        // Its pods are missed for as long as Kubernetes takes to see it; the other one serves.
        site.govc(&["vm.power", "-off", "shop-general-w2"]);
        site.wait("another worker in its place", FORMING, || {
            let names: Vec<String> = objects.vms().into_iter().map(|(name, _)| name).collect();
            Ok(names == ["shop-cp1", "shop-general-w1", "shop-general-w3"] && pool()?["status"]["readyReplicas"] == 2)
        });
        site.wait("two pods of the server to be ready again", MOMENT, || has_both(&shop));

        let identity = || asked(&shop, Method::GET, "/api/v1/namespaces/kube-system", None);
        let cluster = || identity().unwrap_or_else(|error| panic!("{error:#}"))["metadata"]["uid"].clone();
        let formed = cluster();
        let goes = |what: &str, image: &str| {
            let writer = Writer::through(shop.clone());
            let figures = requested(what, &|| {
                objects.run(&["cluster", "upgrade", "shop", "--image", image]);
            });
            site.reached(&format!("{what}: {}", writer.end()));
            assert_eq!(figures.failed, 0, "{what}: {figures}");
            assert_eq!(cluster(), formed, "{what}");
        };
        goes("there", &newer);
        goes("back", &former);
        goes("there again", &newer);
        let names = || objects.vms().into_iter().map(|(name, _)| name).collect::<Vec<String>>();
        let figures = requested("the commit, and the workers", &|| {
            objects.run(&["cluster", "upgrade", "shop", "--do", "commit"]);
            // The command ends with the workers that follow.
            let names = names();
            let are_others = ["w1", "w2", "w3"].iter().all(|worker| !names.contains(&format!("shop-general-{worker}")));
            assert!(names.len() == 3 && are_others, "{names:?}");
        });
        assert_eq!(figures.failed, 0, "{figures}");
        assert_eq!(cluster(), formed);

        objects.run(&["cluster", "delete", "shop", "--confirm", "shop"]);
        assert_eq!((objects.vms(), objects.parts()), (Vec::new(), Vec::new()));
        site.down();
    }

    /// A control cluster with a tenant cluster is upgraded from the pinned version, rolled back and upgraded again. The tenant
    /// cluster serves all the time. Each version's controller reads the objects that the other one wrote, and scales by them.
    pub fn a_control_cluster_with_a_tenant_is_upgraded() {
        let newer = find_ova(&named_ova()).unwrap();
        let site = Site::up("ctlup");
        let control = FileCluster::one(&site, earlier_ova::path());
        control.run(&["control", "create"]);
        let objects = Objects::of(&site, &control);
        objects.provide();
        let image = objects.push(&find_ova_of(&named_ova(), "kaas-tenant").unwrap());
        let file = objects.file("shop.yaml", &small_cluster("shop", &image, 1));
        let (secrets, files) = (objects.secrets(), objects.files());
        objects.run(&["cluster", "create", "--file", file.to_str().unwrap()]);
        let first = objects.made();
        let page = serves(&site, &objects.client("shop"));
        let requested = |what: &str, act: &dyn Fn()| {
            let figures = while_requested(&site, page, what, act);
            assert_eq!(figures.failed, 0, "{what}: {figures}");
        };
        let upgraded = |what: &str, arguments: &[&str], workers: &str| {
            requested(what, &|| {
                control.wait_until_healthy();
                control.run(&[&["control", "upgrade"], arguments].concat());
            });
            requested(&format!("{what}: {workers} workers"), &|| {
                Objects::of(&site, &control).run(&["pool", "scale", "shop-general", workers]);
            });
            let made = objects.made();
            assert!(first.iter().all(|(name, vm)| made.get(name) == Some(vm)), "{what}: {first:?} {made:?}");
        };
        let apply = ["apply", "--ova", newer.to_str().unwrap()];
        upgraded("upgraded", &apply, "2");
        upgraded("rolled back", &["rollback"], "1");
        upgraded("upgraded again", &apply, "2");
        control.run(&["control", "upgrade", "commit"]);
        let objects = Objects::of(&site, &control);
        objects.run(&["cluster", "delete", "shop", "--confirm", "shop"]);
        assert_eq!((objects.vms(), objects.parts()), (Vec::new(), Vec::new()));
        assert_eq!(objects.secrets(), secrets);
        assert_eq!(objects.files(), files);
        site.down();
    }
}

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

use fleet::nodes::{Client, Method};
use fleet::{find_ova, find_ova_of};
use scenarios::built_ova;
use scenarios::earlier_ova;
use scenarios::file_cluster::FileCluster;
use scenarios::objects::{Objects, small_cluster, small_cluster_of};
use scenarios::places::named_ova;
use scenarios::requests::{RequestStats, while_requested_in};
use scenarios::scenario::{API_MOVES, FORMING, MOMENT};
use scenarios::server::{self, SERVICE};
use scenarios::vcenter::Site;
use scenarios::writer::Writer;
use serde_json::{Value, json};

/// Requests a page on the machines' network while something is done, and says what became of the requests.
fn while_requested(site: &Site, page: SocketAddr, what: &str, act: &dyn Fn()) -> RequestStats {
    while_requested_in(site.opened().network_namespace(), page, what, |said| site.reached(said), act)
}

/// Whether both pods of the server are available.
fn has_both(client: &Client) -> anyhow::Result<bool> {
    let deployment = asked(client, Method::GET, "/apis/apps/v1/namespaces/default/deployments/web", None)?;
    Ok(deployment["status"]["availableReplicas"] == 2)
}

fn asked(client: &Client, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<Value> {
    let answer = client.wait(client.ask_api(method, path, body))?;
    anyhow::ensure!(matches!(answer.status, 200 | 201), "{path}: {}", answer.status);
    answer.json()
}

/// Starts a server on a tenant's workers, and says where it is requested from outside.
fn serves(site: &Site, client: &Client) -> SocketAddr {
    let said = site.inside("shop-cp1", &["cat", "/usr/lib/kaas/image.json"]);
    let image: Value = serde_json::from_str(&said).unwrap();
    let carried = format!("kaas.local/coredns:v{}", image["coredns"].as_str().unwrap());
    for (object, path) in server::objects(&carried, true) {
        asked(client, Method::POST, path, Some(&object)).unwrap_or_else(|error| panic!("{error:#}"));
    }
    site.wait("two pods of the server to be ready", MOMENT, || has_both(client));
    let address = site.obtain("the service to have an address", MOMENT, || {
        let service = asked(client, Method::GET, "/api/v1/namespaces/default/services/web", None)?;
        let address = service["status"]["loadBalancer"]["ingress"][0]["ip"].as_str();
        Ok(address.and_then(|address| address.parse::<Ipv4Addr>().ok()))
    });
    SocketAddr::from((address, SERVICE))
}
