//! The inventory, with scripted answers.

use crate::fake::{Fake, Reply, missing, object, page, reference};
use crate::guard::Unguarded;
use crate::reference::MoRef;
use crate::treatment::Outcome;

fn one(kind: &str, id: &str, properties: &[(&str, &str)]) -> Reply {
    Reply::Response(page(&object(kind, id, properties), None))
}

#[tokio::test]
async fn a_path_leads_to_an_object_and_back() {
    let (fake, client) = Fake::connected().await;
    fake.says("FindByInventoryPath", &reference("returnval", "Folder", "group-v3"));
    let folder = client.find("top/DC/vm/Lab%2f1").await.unwrap();
    fake.replies(
        "RetrievePropertiesEx",
        [
            one("Folder", "group-v9", &[("name", "Lab%2f1"), ("parent", "type=Folder>group-v3")]),
            one("Folder", "group-v3", &[("name", "vm"), ("parent", "type=Datacenter>datacenter-2")]),
            one("Datacenter", "datacenter-2", &[("name", "DC"), ("parent", "type=Folder>group-d4")]),
            one("Folder", "group-d4", &[("name", "top"), ("parent", "type=Folder>group-d1")]),
        ],
    );
    assert_eq!(client.path_of(&folder).await.unwrap(), "top/DC/vm/Lab%2f1");
    fake.replies(
        "RetrievePropertiesEx",
        [one("Folder", "group-v9", &[("name", "a"), ("parent", "type=Folder>group-v9")])],
    );
    assert!(client.path_of(&folder).await.unwrap_err().to_string().contains("does not end"));
    fake.says("FindByInventoryPath", "");
    let error = client.find("DC/vm/none").await.unwrap_err();
    assert_eq!((error.outcome(), error.to_string().contains("DC/vm/none")), (Outcome::NotFound, true));
}

#[tokio::test]
async fn a_folder_is_made() {
    let (fake, client) = Fake::connected().await;
    let parent = MoRef::new("Folder", "group-v3");
    fake.replies(
        "CreateFolder",
        [
            Reply::Response(reference("returnval", "Folder", "group-v9")),
            Reply::Fault("DuplicateName", String::new()),
            Reply::Response(String::new()),
        ],
    );
    let changes = client.changes(&Unguarded);
    assert_eq!(changes.create_folder(&parent, "lab").await.unwrap(), MoRef::new("Folder", "group-v9"));
    assert!(changes.create_folder(&parent, "lab").await.unwrap_err().is_fault("DuplicateName"));
    assert_eq!(changes.create_folder(&parent, "lab").await.unwrap_err().outcome(), Outcome::InDoubt);
}

#[tokio::test]
async fn disconnected_hosts_and_hosts_in_maintenance_take_none() {
    let (fake, client) = Fake::connected().await;
    let host = |id: &str, connection: &str, maintenance: &str| {
        let state = [("runtime.connectionState", connection), ("runtime.inMaintenanceMode", maintenance)];
        let size = [
            ("summary.hardware.numCpuThreads", "16"),
            ("summary.hardware.memorySize", "68719476736"),
            ("summary.quickStats.overallMemoryUsage", "4096"),
        ];
        // vCenter may not know it of a disconnected host.
        let size = &size[..if connection == "connected" { 3 } else { 0 }];
        object("HostSystem", id, &[&[("name", id)][..], &state[..], size].concat())
    };
    let all = [
        host("host-1", "connected", "false"),
        host("host-2", "connected", "true"),
        host("host-3", "notResponding", "false"),
    ];
    fake.says("RetrievePropertiesEx", &page(&all.concat(), None));
    let hosts = ["host-1", "host-2", "host-3"].map(|id| MoRef::new("HostSystem", id));
    let hosts = client.hosts(&hosts).await.unwrap();
    assert_eq!(hosts.iter().map(|host| host.takes_vms()).collect::<Vec<_>>(), [true, false, false]);
    let sizes: Vec<_> = hosts.iter().map(|host| (host.processors, host.memory, host.free_memory())).collect();
    let large = (Some(16_u32), Some(64_u64 << 30), 60_u64 << 30);
    assert_eq!(sizes, [large, large, (None, None, 0)]);
}

#[tokio::test]
async fn each_kind_of_network_has_its_backing() {
    let (fake, client) = Fake::connected().await;
    let mut named = Vec::new();
    for (network, replies) in [
        (MoRef::new("Network", "network-1"), vec![one("Network", "network-1", &[("name", "VM Network")])]),
        (
            MoRef::new("DistributedVirtualPortgroup", "dvportgroup-7"),
            vec![
                one(
                    "DistributedVirtualPortgroup",
                    "dvportgroup-7",
                    &[
                        ("key", "dvportgroup-7"),
                        ("config.distributedVirtualSwitch", "type=VmwareDistributedVirtualSwitch>dvs-6"),
                    ],
                ),
                one("VmwareDistributedVirtualSwitch", "dvs-6", &[("uuid", "50 1e 2f")]),
            ],
        ),
        (
            MoRef::new("OpaqueNetwork", "network-o1"),
            vec![one(
                "OpaqueNetwork",
                "network-o1",
                &[("summary.opaqueNetworkId", "id"), ("summary.opaqueNetworkType", "nsx.LogicalSwitch")],
            )],
        ),
    ] {
        fake.replies("RetrievePropertiesEx", replies);
        let backing = client.network_backing(&network).await.unwrap();
        named.push(
            crate::soap::request("none", &network, vec![backing])
                .unwrap()
                .replace("><", ">\n<")
                .split("_this>")
                .nth(1)
                .unwrap()
                .to_owned(),
        );
    }
    insta::assert_snapshot!(named.join("\n"));
    let error = client.network_backing(&MoRef::new("Folder", "group-n1")).await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::Refused);
}

#[tokio::test]
async fn hidden_switches_and_hosts_are_denied() {
    let (fake, client) = Fake::connected().await;
    let group = MoRef::new("DistributedVirtualPortgroup", "dvportgroup-7");
    let said = |properties: &[(&str, &str)]| one(&group.kind, &group.id, properties);
    let (key, switch) =
        (("key", "dvportgroup-7"), ("config.distributedVirtualSwitch", "type=VmwareDistributedVirtualSwitch>dvs-6"));
    let of_switch = |page_of: String| Reply::Response(page(&page_of, None));
    let switch_kind = "VmwareDistributedVirtualSwitch";
    for replies in [
        // The cases, in order:
        // - The port group does not name its switch.
        // - The switch has no UUID and no reason.
        // - The switch has a reason.
        // - The switch is missing for the account.
        // - The account may not read the switch at all.
        vec![said(&[key])],
        vec![said(&[key, switch]), one(switch_kind, "dvs-6", &[])],
        vec![said(&[key, switch]), of_switch(missing(switch_kind, "dvs-6", "uuid", "NoPermission"))],
        vec![said(&[key, switch]), Reply::Response(String::new())],
        vec![said(&[key, switch]), Reply::Fault("NoPermission", String::new())],
    ] {
        fake.replies("RetrievePropertiesEx", replies);
        let error = client.network_backing(&group).await.unwrap_err();
        assert_eq!((error.outcome(), error.lacks_privilege()), (Outcome::Denied, true), "{error}");
        let words = error.to_string();
        assert!(words.contains("System.Read on the distributed switch of the port group"), "{words}");
        assert!(words.contains("dvportgroup-7"), "{words}");
    }
    // A property that is unreadable for another reason, or a missing switch, is no lack of privileges.
    for (reply, outcome) in [
        (of_switch(missing(switch_kind, "dvs-6", "uuid", "HostCommunication")), Outcome::InDoubt),
        (Reply::Fault("ManagedObjectNotFound", String::new()), Outcome::NotFound),
    ] {
        fake.replies("RetrievePropertiesEx", [said(&[key, switch]), reply]);
        let error = client.network_backing(&group).await.unwrap_err();
        assert_eq!((error.outcome(), error.lacks_privilege()), (outcome, false), "{error}");
    }

    let hosts = ["host-1", "host-2"].map(|id| MoRef::new("HostSystem", id));
    let shown = object("HostSystem", "host-1", &[("name", "esx1"), ("runtime.connectionState", "connected")]);
    for (second, named) in [
        (object("HostSystem", "host-2", &[("name", "esx2")]), "the host esx2"),
        (object("HostSystem", "host-2", &[]), "the host HostSystem host-2"),
        (String::new(), "the host HostSystem host-2"),
    ] {
        fake.says("RetrievePropertiesEx", &page(&[shown.clone(), second].concat(), None));
        let error = client.hosts(&hosts).await.unwrap_err();
        assert_eq!(error.outcome(), Outcome::Denied, "{error}");
        assert!(error.to_string().contains(&format!("System.Read on {named}")), "{error}");
    }
}
