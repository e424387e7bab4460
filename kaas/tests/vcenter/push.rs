//! `kaas image`: from an OVA to templates that the clusters of a Provider share, and a NodeImage. Its list and its deletion.

use std::fs;

use contract::role::Role;
use serde_json::{Value, json};
use testbed::ADMINISTRATOR;

use crate::bed::{Bed, appliance};
use crate::control;

/// A vCenter, and a control cluster with a Provider on it. Its three zones have two datastores.
fn beds() -> (Bed, control::Bed) {
    let (vcenter, cluster) = (Bed::start(&["-datastores", "2"]), control::Bed::start());
    vcenter.make_folder("tenants");
    vcenter.make_folder("templates");
    appliance(cluster.path("x").parent().unwrap(), "kaas-tenant", Role::TenantControlPlane);
    let zone = |name: &str, datastore: &str| format!("{{name: {name}, cluster: DC0_C0, datastore: {datastore}}}");
    let zones = [zone("a", "LocalDS_0"), zone("b", "LocalDS_1"), zone("c", "LocalDS_0")].join(", ");
    let provider = format!(
        "apiVersion: kaas.local/v1alpha1\n\
         kind: Provider\n\
         metadata: {{name: dc1}}\n\
         spec:\n\
         \x20 type: vSphere\n\
         \x20 vsphere:\n\
         \x20   server: \"{}\"\n\
         \x20   thumbprint: \"{}\"\n\
         \x20   datacenter: DC0\n\
         \x20   folder: tenants\n\
         \x20   templatesFolder: templates\n\
         \x20   zones: [{zones}]\n\
         \x20   networks: [{{name: blue, portGroup: VM Network, addressing: DHCP}}]\n\
         \x20 credentialsRef: {{name: dc1-account}}\n",
        vcenter.address(),
        vcenter.thumbprint()
    );
    let (file, password) = (cluster.file("dc1.yaml", &provider), cluster.file("password", "secret\n"));
    cluster.says(
        0,
        &format!("provider create --file {file} --user {ADMINISTRATOR} --password-file {password} --wait=false"),
    );
    cluster.kept().asked.clear();
    (vcenter, cluster)
}

#[test]
fn image_is_imported_once_on_each_datastore() {
    let (vcenter, cluster) = beds();
    let (out, _) = cluster.says(0, "image push appliance.ova --provider dc1 --development --wait=false");
    for part in [
        "laying it on the datastore LocalDS_0\n",
        "laying it on the datastore LocalDS_1\n",
        "as the NodeImage kaas-tenant-0.2.0\n",
    ] {
        assert!(out.contains(part), "{part} is not in {out}");
    }
    assert_eq!(vcenter.machines("kaas-image-").len(), 2, "zones share datastores");
    let image = cluster.kept().object("nodeimages", "kaas-tenant-0.2.0").clone();
    let digest = image["spec"]["digest"].as_str().unwrap().to_owned();
    assert!(digest.starts_with("sha256:") && image["spec"]["publisher"].is_null(), "{image}");
    let status = json!({
        "appliance": "kaas-tenant", "version": "0.2.0", "build": "b".repeat(32), "kubernetes": ["1.35", "1.36"], "etcd": "3.6",
    });
    assert_eq!(image["status"], status);
    let path = format!("DC0/vm/templates/{}", vcenter.machines("kaas-image-")[0].0);
    let marked = vcenter.vsphere(async |client| {
        let template = client.find(&path).await.unwrap();
        (client.vm(&template).await.unwrap().is_template, client.entry(&template, "kaas.image").await.unwrap())
    });
    assert_eq!(marked, (true, digest.strip_prefix("sha256:").map(str::to_owned)));

    // A second run imports nothing.
    cluster.says(0, "image push appliance.ova --provider dc1 --development --wait=false");
    assert_eq!((vcenter.machines("kaas-image-").len(), vcenter.sessions()), (2, 0));
    // The command waits until the controller has seen the object.
    cluster.acts(|_, _| {});
    let paused = cluster.json(3, "image push appliance.ova --provider dc1 --development --timeout 0s");
    assert_eq!(paused["image"]["metadata"]["name"], "kaas-tenant-0.2.0");
}

#[test]
fn untrusted_image_is_not_sent() {
    let (vcenter, cluster) = beds();
    let nothing = |told: &str| {
        assert_eq!(vcenter.machines("kaas-image-"), Vec::new(), "{told}");
        assert!(!cluster.kept().has("nodeimages", "kaas-tenant-0.2.0"), "{told}");
    };
    // A publisher is given, but the OVA is not signed.
    let certificate = rcgen::generate_simple_self_signed(Vec::<String>::new()).unwrap().cert.pem();
    let publisher = cluster.file("publisher.pem", &certificate);
    let (_, told) = cluster.says(1, &format!("image push appliance.ova --provider dc1 --publisher {publisher}"));
    assert!(told.contains("is not signed, and the publisher's key is"), "{told}");
    nothing(&told);
    // Another image has this name.
    let other = json!({"spec": {"digest": format!("sha256:{}", "0".repeat(64))}});
    cluster.kept().put("nodeimages", "", "mine", other);
    let (_, told) = cluster.says(1, "image push appliance.ova --provider dc1 --development --name mine");
    assert!(told.contains("the NodeImage mine is of another image already"), "{told}");
    nothing(&told);
    let (_, told) = cluster.says(1, "image push appliance.ova --provider dc2 --development");
    assert!(told.contains("there is no Provider dc2"), "{told}");
    // The OVA was damaged on its way to this machine.
    let ova = cluster.path("appliance.ova");
    let mut bytes = fs::read(&ova).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    fs::write(&ova, bytes).unwrap();
    let (_, told) = cluster.says(1, "image push appliance.ova --provider dc1 --development");
    nothing(&told);
    // An OVA of the nodes of a control cluster.
    appliance(ova.parent().unwrap(), "kaas-control-plane", Role::ControlPlane);
    let (_, told) = cluster.says(1, "image push appliance.ova --provider dc1 --development");
    assert!(told.contains("is a kaas-control-plane: nodes of tenants are made of a kaas-tenant"), "{told}");
    nothing(&told);
}

#[test]
fn refusal_of_vcenter_is_reported_without_an_object() {
    let (vcenter, cluster) = beds();
    let wrong: Value = json!({"data": {"password": "d3Jvbmc="}});
    let secret = cluster.kept().object("secrets", "dc1-account").clone();
    cluster.kept().object("secrets", "dc1-account")["data"]["password"] = wrong["data"]["password"].clone();
    let (_, told) = cluster.says(1, "image push appliance.ova --provider dc1 --development");
    assert!(told.contains("InvalidLogin") && !told.contains("wrong"), "{told}");
    assert!(!cluster.kept().has("nodeimages", "kaas-tenant-0.2.0"));
    *cluster.kept().object("secrets", "dc1-account") = secret;
    cluster.says(0, "image push appliance.ova --provider dc1 --development --wait=false");
    assert_eq!(vcenter.machines("kaas-image-").len(), 2);
}

#[test]
fn image_is_listed_and_deleted_after_use() {
    let cluster = control::Bed::start();
    assert_eq!(cluster.says(0, "image list").0, "NAME  VERSION  KUBERNETES  LIFECYCLE  READY  COMPATIBLE  AGE\n");
    let image = json!({
        "spec": {"digest": format!("sha256:{}", "0".repeat(64))},
        "status": {"version": "0.2.0", "kubernetes": ["1.36", "1.37"], "phase": "Supported"},
    });
    cluster.kept().put("nodeimages", "", "mine", image);
    cluster.kept().says("nodeimages", "mine", "Ready", "True", "TemplatesReady");
    let (listed, _) = cluster.says(0, "image list");
    assert!(listed.contains("mine  0.2.0    1.36,1.37   Supported  True   -"), "{listed}");
    assert_eq!(cluster.json(0, "image list")["images"][0]["metadata"]["name"], "mine");

    let (_, told) = cluster.says(1, "image delete other --confirm other");
    assert!(told.contains("there is no NodeImage other"), "{told}");
    let (_, told) = cluster.says(1, "image delete mine --confirm other");
    assert!(told.contains("not confirmed: the NodeImage is mine; nothing was changed"), "{told}");
    assert!(cluster.kept().written().is_empty());
    cluster.kept().put("tenantclusters", "blue", "shop", json!({"spec": {"image": "mine"}}));
    let (told, _) = cluster.says(3, "image delete mine --confirm mine --timeout 0s");
    assert!(told.contains("waiting: the cluster blue/shop uses mine"), "{told}");
    cluster.acts(|kept, look| kept.objects.retain(|(plural, ..), _| plural != "nodeimages" || look < 2));
    let (told, _) = cluster.says(0, "image delete mine --confirm mine");
    assert!(told.contains("the NodeImage mine is gone"), "{told}");
}
