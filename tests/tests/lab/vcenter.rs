//! An appliance on a vCenter to test against, whose machines are system containers.

pub mod long {
    use std::fs;
    use std::net::Ipv4Addr;
    use std::path::Path;
    use std::process::Command;

    use contract::deployer::{Fingerprints, PrivateKey};
    use contract::properties as keys;
    use contract::statement::{Phase, Statement};
    use fleet::find_ova;
    use fleet::nodes::Deployer;
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;
    use ova::archive::Archive;
    use ova::ovf::Descriptor;
    use scenarios::earlier_ova;
    use scenarios::file_cluster::{CLUSTER, FileCluster, files_of};
    use scenarios::places::named_ova;
    use scenarios::scenario::{ALL, FORMING, MOMENT};
    use scenarios::vcenter::Site;
    use scenarios::writer::Writer;
    use serde_json::{Value, json};
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

    /// Uses govc as operators do: import, power on, read, shut down, power off, disconnect, destroy. The node accepts its deployer, which
    /// reads address and certificate from the vCenter.
    pub fn an_ova_imported_by_govc_forms_a_cluster() {
        let site = Site::up("vcenter");
        let ova = find_ova(&named_ova()).unwrap();
        let key = PrivateKey::draw().unwrap();
        site.import(NODE, &ova, (&network_of(&ova), "VM Network"), &properties(&key));
        site.govc(&["vm.power", "-on", NODE]);
        is_ready(&site);
        let formed = identity(&site);

        // The vCenter shows its name, its address, and the fingerprint by which its deployer recognizes it.
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
            // Its guestinfo is empty while it is off.
            assert_eq!(site.guestinfo(NODE, Statement::GUESTINFO), None);
            site.govc(&["vm.power", "-on", NODE]);
            is_ready(&site);
            assert_eq!(identity(&site), formed, "{how}");
        }

        // A second VM has only some of the required properties. Its node refuses them, and govc destroys the VM with its disks.
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

    /// One file deploys a cluster. While a client writes through the virtual IP, its image is swapped, rolled back, swapped again and
    /// committed. `kaas control delete` deletes everything but the data disks that it lists.
    pub fn one_file_deploys_upgrades_and_destroys_three_nodes() {
        let newer = find_ova(&named_ova()).unwrap();
        let newer = newer.to_str().unwrap();
        let site = Site::up("onefile");
        let cluster = FileCluster::three(&site, earlier_ova::path());
        let planned = cluster.run(&["control", "create", "--dry-run"]).0;
        assert!(planned.contains("VM cp3: 2 processors, 2048 MiB, data disk of 4 GiB"), "{planned}");
        assert_eq!(cluster.vms(), [], "a dry run makes nothing");

        let (_, took) = cluster.run(&["control", "create"]);
        let before = cluster.ready();
        assert!(before.keys().eq(ALL), "{before:?}");
        site.reached(&format!("three nodes are Ready {} s after the command", took.as_secs()));
        let (formed, first) = (cluster.identity(), cluster.vms());
        assert!(first.iter().map(|(name, _)| name.as_str()).eq(ALL), "{first:?}");
        assert!(first.iter().all(|(_, is_on)| *is_on), "{first:?}");
        assert_eq!(cluster.rules(), 1);
        cluster.wait_until_healthy();
        let kept = cluster.kept();
        let as_before = || {
            assert_eq!(cluster.kept(), kept);
            assert_eq!(cluster.identity(), formed);
        };
        let plan = cluster.run(&["control", "upgrade", "plan", "--ova", newer]).0;
        assert!(plan.contains("rollback: ") && plan.contains("one node after the other"), "{plan}");

        // Swap, rollback and second swap, each while a client writes.
        let swapped = |what: &str, arguments: &[&str]| {
            let writer = Writer::through(cluster.client());
            let (_, took) = cluster.run(&[&["control", "upgrade"], arguments].concat());
            site.reached(&format!("{what} in {} s: {}", took.as_secs(), writer.end()));
            as_before();
            cluster.wait_until_healthy();
            cluster.ready()
        };
        let there = swapped("there", &["apply", "--ova", newer]);
        assert!(there.keys().eq(ALL) && ALL.iter().all(|node| there[*node] != before[*node]), "{before:?} {there:?}");
        let both = cluster.vms();
        assert!(both.len() == 2 * ALL.len(), "{both:?}");
        assert!(ALL.iter().all(|node| both.contains(&((*node).to_owned(), false))), "{both:?}");
        let why = cluster.fails(&["control", "upgrade", "plan", "--ova", newer]);
        assert!(why.contains("upgrade.uncommitted"), "{why}");

        assert_eq!(swapped("back", &["rollback"]), before);
        assert_eq!(cluster.vms(), first);
        assert_eq!(swapped("there again", &["apply", "--ova", newer]), there);
        cluster.run(&["control", "upgrade", "commit"]);
        as_before();
        let last = cluster.vms();
        assert!(last.len() == ALL.len() && ALL.iter().all(|node| cluster.vm_of(node) != *node), "{last:?}");
        let why = cluster.fails(&["control", "upgrade", "rollback"]);
        assert!(why.contains("no rollback is possible"), "{why}");
        // A second `create` changes nothing but renews the kubeconfig.
        cluster.run(&["control", "create"]);
        fs::remove_file(cluster.kubeconfig()).unwrap();
        cluster.run(&["control", "kubeconfig"]);
        assert_eq!(cluster.vms(), last);
        assert_eq!(cluster.ready(), there);

        // Only the listed data disks remain. `--data-disks` deletes them.
        let left = cluster.destroy(&[]);
        assert_eq!(left.len(), ALL.len(), "{left:?}");
        let machines = cluster.machines();
        assert!(!machines.is_empty() && machines.iter().all(|machine| machine.is_template), "{machines:?}");
        assert_eq!(cluster.rules(), 0);
        let mut files: Vec<String> = left.iter().flat_map(|disk| files_of(disk)).collect();
        files.sort();
        assert_eq!(cluster.files(), files);
        assert_eq!(cluster.destroy(&["--data-disks"]), [""; 0]);
        assert_eq!(cluster.files(), [""; 0]);
        let status = cluster.run(&["control", "status"]).0;
        assert!(status.contains(&format!("the cluster {CLUSTER} was deleted")), "{status}");
        site.down_empty();
    }

    /// During a swap all sessions end, the vCenter restarts, and all sessions end again. The operator's command is frozen, and a second
    /// one takes over. The swap completes, and the first command makes no further change.
    pub fn disturbances_stop_no_swap() {
        let newer = find_ova(&named_ova()).unwrap();
        let site = Site::up("disturb");
        let cluster = FileCluster::three(&site, earlier_ova::path());
        cluster.run(&["control", "create"]);
        cluster.wait_until_healthy();
        let (before, kept) = (cluster.ready(), cluster.kept());

        let writer = Writer::through(cluster.client());
        let first = cluster.begin(&["control", "upgrade", "apply", "--ova", newer.to_str().unwrap()]);
        cluster.has_written(6);
        site.control("end", &json!({}));
        cluster.has_written(12);
        site.control("restart", &json!({ "milliseconds": 5000 }));
        cluster.has_written(18);
        site.control("end", &json!({}));
        cluster.has_written(24);
        let process = Pid::from_raw(i32::try_from(first.id()).unwrap());
        kill(process, Signal::SIGSTOP).unwrap();
        site.reached("the first operator is frozen");
        let why = cluster.fails(&["control", "upgrade", "resume"]);
        assert!(why.contains("holds the lease of this deployment") && why.contains("--take-over"), "{why}");
        let second = cluster.begin(&["control", "upgrade", "resume", "--take-over"]);
        site.wait("the second operator's journal", MOMENT, || Ok(cluster.journals().len() == 2));
        cluster.has_written(28);
        let frozen = cluster.journals().into_values().next().unwrap();
        kill(process, Signal::SIGCONT).unwrap();
        let first = first.wait_with_output().unwrap();
        let failed = String::from_utf8_lossy(&first.stderr);
        assert!(!first.status.success() && failed.contains("has taken over"), "{failed}");
        site.reached(failed.trim());
        let second = second.wait_with_output().unwrap();
        assert!(second.status.success(), "{}", String::from_utf8_lossy(&second.stderr));
        assert_eq!(cluster.journals().into_values().next().unwrap(), frozen, "the first one has gone on");
        site.reached(&format!("disturbed: {}", writer.end()));
        assert_eq!(cluster.kept(), kept);
        let there = cluster.ready();
        assert!(there.keys().eq(ALL) && ALL.iter().all(|node| there[*node] != before[*node]), "{before:?} {there:?}");
        site.down();
    }
}
