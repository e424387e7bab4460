//! Tenant clusters as objects of a control cluster on a vCenter to test against, whose machines are system containers.

pub mod long {
    use super::*;

    /// The whole way from two OVAs to a running application, and back to nothing: a control cluster by one file, and in it a Provider,
    /// an image and a cluster as objects. Workers come, go and are lost while a server on them is requested; the tenant serves without
    /// its control cluster; what is deleted leaves nothing.
    pub fn a_tenant_comes_grows_serves_and_goes_by_its_objects() {
        let site = Site::up("objects");
        let control = Described::one(&site, &find_ova(&named_ova()).unwrap());
        control.run(&["deploy"]);
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
        let network = site.opened().network_namespace();
        let requested = |what: &str, act: &dyn Fn()| {
            let requests = Requests::start(network.clone(), page);
            let began = Instant::now();
            act();
            let figures = requests.end();
            site.reached(&format!("{what}, {} s: {figures}", began.elapsed().as_secs()));
            figures
        };
        for workers in ["3", "2"] {
            let figures = requested(&format!("{workers} workers"), &|| {
                objects.run(&["cluster", "scale", "shop", workers]);
            });
            assert_eq!(figures.failed, 0, "{figures}");
        }

        // Nobody of the control cluster is needed for it.
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

        objects.run(&["cluster", "delete", "shop", "--confirm", "shop"]);
        assert_eq!(objects.vms(), []);
        assert_eq!(objects.parts(), [""; 0]);
        assert_eq!(objects.secrets(), secrets);
        assert_eq!(objects.files(), before);
        site.down();
    }
}

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Instant;

use fleet::node::{Client, Method};
use lab::{find_ova, find_ova_of};
use scenarios::described::Described;
use scenarios::objects::{Objects, small_cluster};
use scenarios::places::named_ova;
use scenarios::requests::Requests;
use scenarios::scenario::MOMENT;
use scenarios::server::{self, SERVICE};
use scenarios::vcenter::Site;
use scenarios::writer::Writer;
use serde_json::Value;

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
    site.wait("two pods of the server to be ready", MOMENT, || {
        let deployment = asked(client, Method::GET, "/apis/apps/v1/namespaces/default/deployments/web", None)?;
        Ok(deployment["status"]["availableReplicas"] == 2)
    });
    let address = site.obtain("the service to have an address", MOMENT, || {
        let service = asked(client, Method::GET, "/api/v1/namespaces/default/services/web", None)?;
        let address = service["status"]["loadBalancer"]["ingress"][0]["ip"].as_str();
        Ok(address.and_then(|address| address.parse::<Ipv4Addr>().ok()))
    });
    SocketAddr::from((address, SERVICE))
}
