//! An appliance on a vCenter to test against, whose machines are system containers.

pub mod long {
    use std::fs;
    use std::net::Ipv4Addr;
    use std::path::Path;
    use std::process::Command;

    use contract::deployer::{Fingerprints, PrivateKey};
    use contract::properties as keys;
    use contract::statement::{Phase, Statement};
    use fleet::node::Deployer;
    use lab::find_ova;
    use ova::archive::Archive;
    use ova::ovf::Descriptor;
    use scenarios::places::named_ova;
    use scenarios::scenario::{FORMING, MOMENT};
    use scenarios::vcenter::Site;
    use serde_json::Value;
    use uuid::Uuid;

    const NODE: &str = "cp1";
    const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 168, 77, 11);
    /// Asks the node's own API, with the newest kubectl of the image.
    const KUBECTL: &str = r#"for kubectl in /usr/lib/kubernetes/*/kubectl; do :; done; exec "$kubectl" --kubeconfig=/etc/kubernetes/admin.conf "$@""#;

    fn network_of(ova: &Path) -> String {
        let xml = Archive::open(ova).unwrap().descriptor_xml().unwrap();
        let mut networks = Descriptor::parse(&xml).unwrap().networks;
        assert_eq!(networks.len(), 1);
        networks.remove(0).name
    }

    fn properties(key: &PrivateKey) -> Vec<(&'static str, String)> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("key");
        let drawn =
            Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&file).status().unwrap();
        assert!(drawn.success());
        vec![
            (keys::NODE_NAME, NODE.to_owned()),
            (keys::ADDRESS, format!("{ADDRESS}/24")),
            (keys::GATEWAY, "192.168.77.1".to_owned()),
            (keys::CLUSTER_NAME, "vcenter".to_owned()),
            (keys::CONTROL_NODES, format!("{NODE}={ADDRESS}")),
            (keys::DEPLOYMENT_SECRET, Uuid::new_v4().simple().to_string()),
            (keys::SSH_AUTHORIZED_KEYS, fs::read_to_string(file.with_extension("pub")).unwrap().trim().to_owned()),
            (keys::DEPLOYER_PUBLIC_KEY, key.public().unwrap().to_string()),
        ]
    }

    fn kubectl(site: &Site, arguments: &[&str]) -> anyhow::Result<String> {
        site.try_inside(NODE, &[&["sh", "-c", KUBECTL, "sh"], arguments].concat())
    }

    /// Waits until the node is Ready, by what its kubelet has said since it was powered on.
    fn is_ready(site: &Site) {
        site.wait(&format!("{NODE} to say that it is done"), FORMING, || {
            let said = site.guestinfo(NODE, Statement::GUESTINFO);
            let said = said.and_then(|text| Statement::read(text.as_bytes()));
            Ok(said.is_some_and(|said| said.phase == Phase::Done && said.code.is_none()))
        });
        site.wait(&format!("{NODE} to be Ready"), MOMENT, || {
            let list: Value = serde_json::from_str(&kubectl(site, &["get", "nodes", "--output=json"])?)?;
            let conditions = list["items"][0]["status"]["conditions"].as_array().cloned().unwrap_or_default();
            Ok(conditions.iter().any(|one| one["type"] == "Ready" && one["status"] == "True"))
        });
    }

    fn identity(site: &Site) -> String {
        kubectl(site, &["get", "namespace", "kube-system", "--output=jsonpath={.metadata.uid}"]).unwrap()
    }

    /// What people do with govc: import, power on, look, shut down, cut off, disconnect, destroy. The node's deployer gets in by
    /// what the vCenter shows of it.
    pub fn an_ova_that_govc_imports_forms_a_cluster_on_a_vcenter() {
        let site = Site::up("vcenter");
        let ova = find_ova(&named_ova()).unwrap();
        let key = PrivateKey::draw().unwrap();
        site.import(NODE, &ova, (&network_of(&ova), "VM Network"), &properties(&key));
        site.govc(&["vm.power", "-on", NODE]);
        is_ready(&site);
        let formed = identity(&site);

        // What the vCenter shows of it: its name and address, and what its deployer knows it by.
        let machine = site.machine(NODE);
        assert_eq!(machine["guest"]["hostName"], NODE, "{}", machine["guest"]);
        assert_eq!(machine["guest"]["ipAddress"], ADDRESS.to_string(), "{}", machine["guest"]);
        let shown = site.guestinfo(NODE, Fingerprints::GUESTINFO).unwrap();
        let shown = Fingerprints::read(shown.as_bytes()).unwrap();
        let deployer = Deployer::from_inside(key, site.opened().network_namespace()).unwrap();
        deployer.wait(deployer.credentials(ADDRESS, &shown)).unwrap();
        site.reached("its deployer has credentials");

        // An adapter that is disconnected there has no carrier here.
        let carrier = || site.inside(NODE, &["cat", "/sys/class/net/eth0/carrier"]);
        assert_eq!(carrier().trim(), "1");
        site.govc(&["device.disconnect", "-vm", NODE, "ethernet-0"]);
        assert_eq!(carrier().trim(), "0");
        site.govc(&["device.connect", "-vm", NODE, "ethernet-0"]);
        assert_eq!(carrier().trim(), "1");

        // Shut down from outside, from inside, and cut off: it is the same node each time.
        for (how, off) in [("asked to shut down", "-s"), ("powered off from inside", ""), ("cut off", "-off")] {
            match off {
                "" => drop(site.inside(NODE, &["systemctl", "poweroff"])),
                off => drop(site.govc(&["vm.power", off, NODE])),
            }
            site.is(NODE, "poweredOff", MOMENT);
            // What it has said of itself is past.
            assert_eq!(site.guestinfo(NODE, Statement::GUESTINFO), None);
            site.govc(&["vm.power", "-on", NODE]);
            is_ready(&site);
            assert_eq!(identity(&site), formed, "{how}");
        }

        // A second machine, whose form stays empty but for what is needed, is refused by the node itself, and is destroyed with
        // its disks.
        site.import("other", &ova, (&network_of(&ova), "DC0_DVPG0"), &properties(&PrivateKey::draw().unwrap())[..2]);
        site.govc(&["vm.power", "-on", "other"]);
        site.wait("the other one to refuse its form", MOMENT, || {
            let said = site.guestinfo("other", Statement::GUESTINFO);
            Ok(said.and_then(|text| Statement::read(text.as_bytes())).is_some_and(|said| said.phase == Phase::Refused))
        });
        let disks = site.opened().datastores().join("LocalDS_0/other");
        assert!(disks.is_dir(), "{} is looked for below", disks.display());
        site.govc(&["vm.destroy", "other"]);
        assert!(!disks.exists());
        is_ready(&site);
        site.down();
    }
}
