//! Tenant clusters next to a control cluster, on the container engine and from the OVAs. Their workers are added, replaced and
//! removed, while clients outside of the cluster use a server on them.

use std::net::Ipv4Addr;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use contract::join_token::GROUP as JOINS;
use contract::platform::Dmi;
use rcgen::{CertificateParams, KeyPair};
use scenarios::built_ova;
use scenarios::requests::while_requested;
use scenarios::scenario::{API_MOVES, FORMING, MOMENT, Scenario, Setting};
use scenarios::tenant::{Tenant, control};
use scenarios::workload::Workload;
use scenarios::writer::Writer;
use serde_json::{Value, json};
use uuid::Uuid;

/// How long a server may be away whose worker is lost: both of its pods may have run on that worker.
const UNPLANNED: Duration = Duration::from_secs(180);

pub mod short {
    use super::*;

    /// Emulated processors are slow, and the machine may be busy.
    const WORK: Duration = Duration::from_secs(15 * 60);

    /// Says how long a worker took to join, and what it takes of memory.
    fn figures(scenario: &Scenario, tenant: &Tenant<'_>, worker: &str) {
        let (took, memory) = (tenant.joined_after(worker), tenant.memory(worker));
        scenario.reached(&format!("{worker} joined {took} s after its power-on; its processes have {memory} MiB"));
    }

    /// Checks the parts that a worker has in a virtual machine only. The kernel has the drivers of its disks, of its adapter, and of
    /// file servers and storage arrays. The scratch partition has its records. The firmware identifies the VM.
    fn is_a_machine(scenario: &Scenario, tenant: &Tenant<'_>, worker: &str) {
        let inside = |script: &str| scenario.inside_for(worker, &["sh", "-ec", script], WORK);
        let bound = inside(
            "modprobe --all nfsv4 iscsi_tcp
             cd /sys/bus/pci/drivers
             ls -d nvme/0000:* virtio-pci/0000:* vmw_pvscsi/0000:*",
        );
        assert!(bound.lines().count() >= 3, "{bound}");
        let kept = inside(
            "source=$(findmnt --noheadings --output=SOURCE /data)
             echo \"$source\"
             lsblk --noheadings --raw --output=PARTLABEL,FSTYPE \"$(echo \"$source\" | cut --delimiter='[' --fields=1)\"
             test -s /data/kaas/config.json",
        );
        let kept: Vec<&str> = kept.lines().collect();
        assert!(matches!(kept[..], [source, "kaas-var ext4"] if source.ends_with("[/lib/kaas]")), "{kept:?}");
        scenario.wait("the blank disk to be laid for local volumes", WORK, || {
            Ok(scenario.lab().run_inside(worker, &["mountpoint", "/data/local-volumes"], WORK).is_ok())
        });
        let provider = ["get", "node", worker, "--output=jsonpath={.spec.providerID}"];
        let shown = |name: &str| inside(&format!("cat /sys/class/dmi/id/{name}")).trim().to_owned();
        let vm = tenant.vm(worker);
        let dmi = Dmi::of_vmware(vm.parse::<Uuid>().expect("a UUID").into(), false);
        assert_eq!((shown("product_serial"), shown("product_uuid")), (dmi.product_serial, dmi.product_uuid));
        assert_eq!(scenario.kubectl(&provider), format!("vsphere://{vm}"));
    }

    /// The API server denies requests of a removed worker, of root on any node, and of users of local volumes as the policies
    /// say. It reports no error in their expressions.
    fn the_policies_are_in_force(scenario: &Scenario, control: &str) {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let create = |user: &str, groups: &[&str], object: &Value| {
            std::fs::write(file.path(), object.to_string()).expect("the object");
            let path = file.path().to_str().expect("a path");
            let who: Vec<String> = groups.iter().map(|group| format!("--as-group={group}")).collect();
            let user = format!("--as={user}");
            let what = ["create", "--dry-run=server", "--validate=false", "--filename", path, &user];
            scenario.lab().kubectl(&what.into_iter().chain(who.iter().map(String::as_str)).collect::<Vec<_>>())
        };
        let node = |name: &str, range: Option<&str>| {
            json!({
                "apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {"podCIDR": range},
            })
        };
        let params = CertificateParams::default();
        let pem = params.serialize_request(&KeyPair::generate().expect("a key")).and_then(|request| request.pem());
        let pem = BASE64_STANDARD.encode(pem.expect("a request"));
        let request = |name: &str| {
            json!({
                "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name},
                "spec": {"request": pem, "signerName": "kaas.local/nobody", "usages": ["client auth"]},
            })
        };
        let class = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "mine"},
            "provisioner": "rancher.io/local-path", "parameters": {"pathPattern": "pvc-of-another"},
        });
        let (name, namespace) = ("local-path-config", "local-path-storage");
        let template = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace},
            "data": {"helperPod.yaml": "{}"},
        });
        // She may write ConfigMaps there, and makes no pods.
        let (role, group) = (json!({"name": "writes", "namespace": namespace}), "rbac.authorization.k8s.io");
        scenario.apply(&json!({
            "apiVersion": format!("{group}/v1"), "kind": "Role", "metadata": role,
            "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]}],
        }));
        scenario.apply(&json!({
            "apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": role,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": "writes"},
            "subjects": [{"apiGroup": group, "kind": "User", "name": "jane"}],
        }));
        let (admins, people) = (["kubeadm:cluster-admins", "system:authenticated"], ["people", "system:authenticated"]);
        let (removed, of_control) = ("system:node:removed", format!("system:node:{control}"));
        let (nodes, joins) = (["system:nodes", "system:authenticated"], ["system:bootstrappers", JOINS]);
        let denied = [
            (removed, &nodes, node("removed", None), "a worker makes its Node object once"),
            (removed, &nodes, request("asks-again"), "a worker that was removed asks for no certificates"),
            ("system:bootstrap:abcdef", &joins, request("a!b"), "its name is of letters"),
            (&of_control, &nodes, node(control, Some("10.9.8.0/24")), "does not choose the addresses of its pods"),
            ("anna", &admins, class, "the parameter pathPattern is refused"),
            ("jane", &people, template.clone(), "only a user who may create pods in this namespace may write it"),
        ];
        for (user, groups, object, why) in &denied {
            // The policies are created when all nodes run one image, and use the records of workers from a minute later.
            scenario.wait(&format!("{user} to be told that {why}"), FORMING, || {
                Ok(create(user, *groups, object).is_err_and(|error| format!("{error:#}").contains(why)))
            });
        }
        create("system:bootstrap:abcdef", &joins, &request("a-b")).expect("a request like a kubelet's");
        let refused = create("anna", &admins, &template).expect_err("it exists");
        assert!(format!("{refused:#}").contains("already exists"), "{refused:#}");
        let seen = "--output=jsonpath={.metadata.generation} {.status.observedGeneration} {.status.typeChecking}";
        for policy in [
            "kaas-nodes",
            "kaas-certificate-requests",
            "kaas-pod-ranges",
            "kaas-local-volume-paths",
            "kaas-local-volume-pods",
        ] {
            scenario.wait(&format!("nothing to be said against {policy}"), MOMENT, || {
                let said = scenario.lab().kubectl(&["get", "validatingadmissionpolicy", policy, seen])?;
                let parts: Vec<&str> = said.trim().splitn(3, ' ').collect();
                Ok(matches!(parts[..], [made, seen, "{}"] if made == seen))
            });
        }
    }

    /// One control-plane node and two workers, one of them in a virtual machine. The workers run the workload, reach each other, and
    /// leave no token.
    pub fn tenant_forms_and_its_workers_run_a_workload() {
        let host = control(&Setting::one("host-s"));
        let scenario = host.tenant_with("ta", "1", "1", &["--worker-data-disk", "4096"]);
        let tenant = Tenant::of(&scenario);
        let workers = tenant.workers();
        let [one] = workers.as_slice() else { panic!("{workers:?}") };
        assert_eq!(tenant.tokens(), 0, "a join token is left");
        let control = scenario.lab().plan().nodes[0].name.clone();
        assert_eq!(scenario.lab().ready_nodes().unwrap().len(), 2);

        the_policies_are_in_force(&scenario, &control);

        // On emulated processors it boots for minutes. It gets the processors of the control cluster, which the test no longer needs.
        // The rest is done meanwhile.
        host.cut("cp1");
        let machine = tenant.begins(&["add-worker", "--worker-engine", "qemu", "--timeout", "5400s"]);
        figures(&scenario, &tenant, one);
        let workload = Workload::start(&scenario, one, WORK);
        workload.is_reached_by_name_from(&control);
        workload.is_reached_by_address_from(&control);

        assert_eq!(machine.ends()["available"], 2);
        let workers = tenant.workers();
        let [_, two] = workers.as_slice() else { panic!("{workers:?}") };
        assert_eq!(tenant.tokens(), 0, "a join token is left");
        figures(&scenario, &tenant, two);
        is_a_machine(&scenario, &tenant, two);
        workload.is_reached_by_name_from(two);
        let workload = workload.moved_to(two);
        workload.is_reached_by_name_from(one);
        workload.is_reached_by_address_from(one);
        let pool = ["get", "nodes", "--selector=kaas.local/pool=workers", "--output=name"];
        assert_eq!(scenario.kubectl(&pool).lines().count(), 2, "the workers' pool is not their label");

        let status = tenant.run(&["remove-worker", one]);
        assert_eq!((&status["arrived"], &status["available"]), (&"done".into(), &1.into()));
        scenario.ready(&[&control, two], MOMENT);
        assert!(!scenario.lab().vms().unwrap().contains(one), "its VM is left");
    }
}

pub mod long {
    use super::*;

    /// Planned work loses no request. Then a worker is cut off, and one is taken away with its VM: its pods run elsewhere.
    pub fn server_answers_while_its_workers_change() {
        let newer = tempfile::tempdir().unwrap();
        let newer = built_ova::build_tenant("0.2.9", newer.path()).unwrap_or_else(|error| panic!("{error:#}"));
        let host = control(&Setting::one("host-l"));
        let scenario = host.tenant("tb", "1", "2");
        let tenant = Tenant::of(&scenario);
        let page = tenant.serves();

        let added = while_requested(&scenario, page, "a worker is added", || drop(tenant.run(&["add-worker"])));
        let first = tenant.workers()[0].clone();
        let removed = while_requested(&scenario, page, "a worker is drained and removed", || {
            tenant.run(&["remove-worker", &first]);
        });
        let before = tenant.workers();
        let ova = newer.to_str().unwrap();
        let replaced = while_requested(&scenario, page, "all workers are replaced by a newer image", || {
            tenant.run(&["replace-workers", "--ova", ova]);
        });
        let after = tenant.workers();
        assert_eq!(after.len(), 2, "{after:?}");
        assert!(after.iter().all(|worker| !before.contains(worker)), "{before:?} are left");
        for (what, figures) in [("added", added), ("removed", removed), ("replaced", replaced)] {
            assert_eq!(figures.failed, 0, "{what}: {figures}");
        }

        // A budget without disruptions blocks a drain: the command names the pod, and continues once the budget allows it.
        scenario.kubectl(&[
            "patch",
            "poddisruptionbudget",
            "web",
            r#"--patch={"spec": {"minAvailable": 2}}"#,
            "--type=merge",
        ]);
        let serving = tenant.served_by().unwrap()[0].clone();
        tenant.run(&["add-worker"]);
        let blocked = tenant.gives(&["remove-worker", &serving, "--timeout", "30s"], 3);
        let why = &blocked["reasons"][0];
        assert_eq!(why["worker"], serving.as_str(), "{blocked}");
        assert_eq!(why["code"], "workers.drain-blocked", "{blocked}");
        assert!(why["reason"].as_str().is_some_and(|words| words.contains("default/web-")), "{blocked}");
        scenario.kubectl(&[
            "patch",
            "poddisruptionbudget",
            "web",
            r#"--patch={"spec": {"minAvailable": 1}}"#,
            "--type=merge",
        ]);
        tenant.run(&["resume"]);

        let serving = tenant.served_by().unwrap()[0].clone();
        let elsewhere = |lost: &String| {
            let serving = tenant.served_by()?;
            Ok(serving.len() == 2 && !serving.contains(lost))
        };
        let cut_off = while_requested(&scenario, page, "a worker is cut off", || {
            scenario.lab().partition(&serving, true).unwrap();
            scenario.wait("its pods to run elsewhere", FORMING, || elsewhere(&serving));
        });
        scenario.lab().partition(&serving, false).unwrap();
        scenario.wait("all workers to do their part again", MOMENT, || Ok(tenant.workers().len() == 2));

        // The test removes a VM: another one serves in its place.
        let serving = tenant.served_by().unwrap()[0].clone();
        let gone = while_requested(&scenario, page, "a worker's VM is gone", || {
            scenario.cut(&serving);
            scenario.lab().destroy(&serving).unwrap();
            tenant.run(&["resume"]);
            scenario.wait("its pods to run elsewhere", FORMING, || elsewhere(&serving));
        });
        assert_eq!(tenant.workers().len(), 2);
        // Kubernetes takes 40 s or more to see that a node is silent, and its pods bear that for 10 s.
        for (what, figures) in [("cut off", cut_off), ("gone", gone)] {
            assert!(figures.longest_gap < UNPLANNED, "{what}: {figures}");
        }
        assert_eq!(tenant.tokens(), 0, "a join token is left");
    }

    /// Local volumes lie on the disk that a worker was given, outlive its power, and are missed when the disk is gone.
    pub fn worker_starts_no_pod_without_its_volumes() {
        let host = control(&Setting::one("host-v"));
        let scenario = host.tenant_with("td", "1", "1", &["--worker-data-disk", "4096"]);
        let (tenant, lab) = (Tenant::of(&scenario), scenario.lab());
        let worker = tenant.workers()[0].clone();
        let labelled = ["get", "nodes", "--selector=kaas.local/local-volumes=true", "--output=name"];
        assert_eq!(scenario.kubectl(&labelled).trim(), format!("node/{worker}"));
        tenant.keeps();
        scenario.inside(
            &worker,
            &["sh", "-c", "mountpoint /data/local-volumes && cd /data/local-volumes/pvc-* && echo 7 > rows"],
        );
        let kept = || scenario.inside(&worker, &["sh", "-c", "cat /data/local-volumes/pvc-*/rows"]);
        let nodes = [format!("{}-cp1", lab.name()), worker.clone()];
        let ready = || scenario.ready(&[&nodes[0], &nodes[1]], FORMING);
        assert_eq!(kept().trim(), "7");

        scenario.inside(&worker, &["sync"]);
        scenario.cut(&worker);
        scenario.power_on(&[&worker]);
        scenario.says(&worker, "kaas: ready", FORMING);
        assert_eq!(kept().trim(), "7");

        scenario.cut(&worker);
        let disk = lab.disks(&worker).unwrap()[0];
        lab.detach_disk(&worker, disk).unwrap();
        scenario.power_on(&[&worker]);
        scenario.says(&worker, "disk.volumes-absent", MOMENT);
        scenario.cut(&worker);
        lab.attach_disk(&worker, disk).unwrap();
        scenario.power_on(&[&worker]);
        scenario.says(&worker, "kaas: ready", FORMING);
        ready();
        assert_eq!(kept().trim(), "7");
    }

    /// One of three control-plane nodes is lost with its disk: the API still serves, and a blank VM replaces the node.
    pub fn lost_node_of_a_tenant_is_replaced() {
        let host = control(&Setting::one("host-r"));
        let scenario = host.tenant("tc", "3", "1");
        let tenant = Tenant::of(&scenario);
        let lost = scenario.lab().plan().nodes[2].name.clone();
        let writer = Writer::start(&scenario);
        scenario.cut(&lost);
        scenario.wait("the lost node to be missed", MOMENT, || Ok(scenario.lab().ready_nodes()?.len() == 3));
        let figures = writer.end();
        scenario.reached(&format!("one of three control nodes is off: {figures}"));
        assert!(figures.longest_gap < API_MOVES, "{figures}");
        // The node that admits the new one also sends the settings that were changed since the tenant was created.
        for node in &scenario.lab().plan().nodes[..2] {
            scenario.inside(&node.name, &["kaas-agent", "configure", "cluster-metrics=false"]);
        }
        let replaced = tenant.run(&["replace-control-plane", &lost]);
        assert_eq!(replaced["node"], lost.as_str());
        assert_eq!(replaced["disks"].as_array().map(Vec::len), Some(1), "{replaced}");
        assert_eq!(scenario.lab().ready_nodes().unwrap().len(), 4);
    }

    /// Workers by DHCP join, and keep their addresses. A worker reports a lease with another address, and stops its part of the
    /// cluster until it has its own address again.
    pub fn worker_reports_a_changed_lease_and_waits() {
        let host = control(&Setting::one("host-d"));
        let scenario = host.tenant_with("te", "1", "2", &["--worker-addresses", "dhcp"]);
        let (tenant, lab) = (Tenant::of(&scenario), scenario.lab());
        let workers = tenant.workers();
        let [one, two] = workers.as_slice() else { panic!("{workers:?}") };
        let own = tenant.address(one);
        assert_eq!(lab.address_of(one).unwrap(), Some(own.to_string()), "it is not what is leased");
        let workload = Workload::start(&scenario, one, MOMENT);
        workload.is_reached_by_name_from(two);

        scenario.cut(one);
        scenario.power_on(&[one.as_str()]);
        scenario.soon_says(one, "kaas: ready");
        assert_eq!(tenant.address(one), own, "a power cut has changed its address");

        let is_ready = || -> anyhow::Result<bool> { Ok(lab.ready_nodes()?.contains(one)) };
        let told = || -> anyhow::Result<Option<String>> {
            let status = lab.status(one)?;
            let mut findings = status["findings"].as_array().into_iter().flatten();
            let told = findings.find(|finding| finding["code"] == "address.changed");
            Ok(told.and_then(|finding| finding["seen"].as_str()).map(str::to_owned))
        };
        let network = lab.plan().tenant.as_ref().expect("a tenant's network");
        // Neither its own nor the other worker's, whose lease would change as well.
        let taken = [own, tenant.address(two)];
        let mut leased = (u32::from(network.first_worker)..=u32::from(network.last_worker)).rev().map(Ipv4Addr::from);
        let other = leased.find(|address| !taken.contains(address)).expect("an address that nobody has");
        lab.lease_to(one, other).unwrap();
        let seen = scenario.obtain("another address to be told", FORMING, told);
        assert!(seen.contains(&own.to_string()) && seen.contains(&other.to_string()), "{seen}");
        scenario.wait("the cluster to call it not ready", FORMING, || is_ready().map(|ready| !ready));
        assert_eq!(tenant.address(one), own, "the cluster was told of another address");

        lab.lease_to(one, own).unwrap();
        scenario.wait("it to have its own address again", FORMING, || Ok(told()?.is_none()));
        scenario.wait("the cluster to call it ready again", FORMING, is_ready);
        workload.is_reached_by_address_from(two);
    }
}
