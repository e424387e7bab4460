//! The inventory, against scripted answers.

use crate::fake::{Fake, Reply, object, page, reference};
use crate::guard::Unguarded;
use crate::reference::MoRef;
use crate::treatment::Outcome;

fn one(kind: &str, id: &str, properties: &[(&str, &str)]) -> Reply {
    Reply::Response(page(&object(kind, id, properties), None))
}

#[tokio::test]
async fn a_path_leads_to_an_object_and_back() {
    let fake = Fake::start().await;
    let client = fake.client().await;
    fake.says("FindByInventoryPath", &reference("returnval", "Folder", "group-v3"));
    let folder = client.find("top/DC/vm/Lab%2f1").await.unwrap();
    let way = || {
        [
            one("Folder", "group-v9", &[("name", "Lab%2f1"), ("parent", "type=Folder>group-v3")]),
            one("Folder", "group-v3", &[("name", "vm"), ("parent", "type=Datacenter>datacenter-2")]),
            one("Datacenter", "datacenter-2", &[("name", "DC"), ("parent", "type=Folder>group-d4")]),
            one("Folder", "group-d4", &[("name", "top"), ("parent", "type=Folder>group-d1")]),
        ]
    };
    fake.replies("RetrievePropertiesEx", way());
    assert_eq!(client.path_of(&folder).await.unwrap(), "top/DC/vm/Lab%2f1");
    fake.replies("RetrievePropertiesEx", way());
    assert_eq!(client.datacenter_of(&folder).await.unwrap(), MoRef::new("Datacenter", "datacenter-2"));
    fake.replies(
        "RetrievePropertiesEx",
        [one("Folder", "group-d4", &[("name", "top"), ("parent", "type=Folder>group-d1")])],
    );
    assert_eq!(client.datacenter_of(&folder).await.unwrap_err().outcome(), Outcome::NotFound);
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
    let fake = Fake::start().await;
    let client = fake.client().await;
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
async fn hosts_in_maintenance_and_those_that_are_not_connected_take_no_vms() {
    let fake = Fake::start().await;
    let client = fake.client().await;
    let host = |id: &str, connection: &str, maintenance: &str| {
        object(
            "HostSystem",
            id,
            &[("name", id), ("runtime.connectionState", connection), ("runtime.inMaintenanceMode", maintenance)],
        )
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
}

#[tokio::test]
async fn a_network_is_named_to_an_adapter_as_its_kind_asks_for() {
    let fake = Fake::start().await;
    let client = fake.client().await;
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
    fake.says("CreateContainerView", &reference("returnval", "ContainerView", "view-1"));
    fake.says("RetrievePropertiesEx", &page(&object("Network", "network-1", &[("name", "VM Network")]), None));
    assert_eq!(client.networks_in(&MoRef::new("Folder", "group-n1")).await.unwrap()[0].name, "VM Network");
}
