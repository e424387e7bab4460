//! Fixture: a cluster, and the objects that it names.

use fleet::hypervisor::{Disk, DiskKind, DiskRef, PowerState, Stamp, Vm, VmRef};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::CustomResourceExt;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::objects::{
    IPPool, JournalEntry, LifecyclePhase, NodeImage, NodeImageReason, NodeImageSpec, NodeImageStatus, Operation,
    OperationKind, OperationSpec, OperationStatus, Provider, ProviderReason, ProviderStatus, Reference, Tenant,
    TenantCluster, VMClassSpec, set,
};

pub(crate) const UID: &str = "5c0a3f4e-0f0e-4f54-9f8f-0b6c3f4f2a10";

/// A control-plane node's VM with its data disk, powered on.
pub(crate) fn vm(node: &str, uuid: u128, disk: u128) -> Vm {
    let reference = DiskRef { uuid: Uuid::from_u128(disk), path: "[ds] a.vmdk".to_owned() };
    let disk = Disk { reference, kind: DiskKind::Data, parent: None, controller: "c".to_owned() };
    Vm {
        reference: VmRef { uuid: Uuid::from_u128(uuid), id: format!("vm-{uuid}") },
        name: node.to_owned(),
        stamp: Some(Stamp { deployment: Uuid::from_u128(1), node: node.to_owned(), swap: None }),
        power: PowerState::On,
        size: None,
        disks: vec![disk],
        adapters: Vec::new(),
        snapshots: Vec::new(),
        tasks: Vec::new(),
        settings: None,
        version: "0".to_owned(),
    }
}

const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBvmWVAZWKQyXZyfC9bSOVuJpqjq3h1nGBhFJPbLUjJi admin";

/// An object as an API server returns it: with kind and version.
fn object<K: CustomResourceExt + serde::de::DeserializeOwned>(name: &str, spec: Value) -> K {
    let names = K::crd().spec.names;
    serde_json::from_value(json!({
        "apiVersion": "kaas.local/v1alpha1", "kind": names.kind, "metadata": {"name": name}, "spec": spec,
    }))
    .unwrap()
}

/// A cluster of three control-plane nodes in two zones, without any VM.
pub(crate) fn cluster() -> TenantCluster {
    let mut cluster: TenantCluster = object(
        "shop",
        json!({
            "providerRef": {"name": "dc1"},
            "version": "1.36",
            "image": "kaas-tenant-0.2.0",
            "controlPlane": {"replicas": 3},
            "network": {
                "name": "blue",
                "endpoint": {"address": "192.168.10.10"},
                "serviceVIPs": {"poolRef": {"name": "blue-nodes"}, "count": 2},
            },
            "site": {"ntpServers": ["ntp.example.com"], "adminCIDRs": ["192.168.10.0/24"], "sshAuthorizedKeys": [KEY]},
        }),
    );
    let metadata = &mut cluster.metadata;
    (metadata.namespace, metadata.uid) = (Some("team-blue".to_owned()), Some(UID.to_owned()));
    metadata.generation = Some(1);
    cluster
}

/// A Ready Provider of two zones.
pub(crate) fn provider() -> Provider {
    let mut provider: Provider = object(
        "dc1",
        json!({
            "type": "vSphere",
            "vsphere": {
                "server": "vcenter.example.com", "datacenter": "DC1", "folder": "tenants",
                "zones": [
                    {"name": "a", "cluster": "cluster-1", "datastore": "vsan-1"},
                    {"name": "b", "cluster": "cluster-2", "resourcePool": "tenants", "datastore": "vsan-2"},
                ],
                "networks": [
                    {"name": "blue", "portGroup": "VM Network", "addressing": "Pool", "poolRef": {"name": "blue-nodes"}},
                    {"name": "leased", "portGroup": "Leased", "addressing": "DHCP"},
                ],
            },
            "credentialsRef": {"name": "dc1"},
            "allowedNamespaces": {"names": ["team-blue"]},
        }),
    );
    let mut status = ProviderStatus::default();
    set(&mut status.conditions, ProviderReason::Available, "", 1, &now());
    provider.status = Some(status);
    provider
}

/// The pool of the network's addresses: 192.168.10.20 to .29.
pub(crate) fn pool() -> IPPool {
    object(
        "blue-nodes",
        json!({
            "subnet": "192.168.10.0/24",
            "ranges": [{"first": "192.168.10.20", "last": "192.168.10.29"}],
            "gateway": "192.168.10.1",
            "dnsServers": ["192.168.10.2"],
        }),
    )
}

/// A supported, compatible and ready image of this version.
pub(crate) fn image(name: &str, version: &str) -> NodeImage {
    let digest = format!("sha256:{}", "0a".repeat(32));
    let mut image = NodeImage::new(name, NodeImageSpec { digest, publisher: None, lifecycle: Vec::new() });
    let mut status = NodeImageStatus {
        version: Some(version.to_owned()),
        kubernetes: vec!["1.35".to_owned(), "1.36".to_owned()],
        phase: Some(LifecyclePhase::Supported),
        ..NodeImageStatus::default()
    };
    set(&mut status.conditions, NodeImageReason::Understood, "", 1, &now());
    set(&mut status.conditions, NodeImageReason::TemplatesReady, "", 1, &now());
    image.status = Some(status);
    image
}

/// A Tenant with these namespaces, which lists networks of the Provider.
pub(crate) fn tenant(name: &str, namespaces: &[&str], networks: &[&str]) -> Tenant {
    let providers = json!([{"name": "dc1", "networks": networks}]);
    object(name, json!({"namespaces": namespaces, "allow": {"providers": providers}}))
}

pub(crate) fn class() -> VMClassSpec {
    serde_json::from_value(json!({"processors": 4, "memoryMiB": 16384, "dataDiskGiB": 40})).unwrap()
}

pub(crate) fn now() -> Time {
    Time(Timestamp::from_second(1_796_115_600).unwrap())
}

/// The Operation of an image swap to the next image, with this plan and the entries after it. Its conditions are not set.
pub(crate) fn swap(plan: Value, entries: &[Value]) -> Operation {
    let all = std::iter::once(json!({"event": "planned"})).chain(entries.iter().cloned());
    let entry = |(at, mut entry): (usize, Value)| -> JournalEntry {
        (entry["at"], entry["lease"]) = (at.into(), 1.into());
        serde_json::from_value(entry).unwrap()
    };
    let spec = OperationSpec {
        cluster_ref: Reference::to("shop"),
        kind: OperationKind::ImageSwap,
        from_image: Some("kaas-tenant-0.2.0".to_owned()),
        to_image: Some("kaas-tenant-0.3.0".to_owned()),
        from_size: None,
        to_size: None,
        to_class: None,
        from_version: None,
        to_version: None,
        cluster_generation: 1,
        steps: Vec::new(),
        plan: Some(plan),
    };
    let entries = all.enumerate().map(entry).collect();
    let status = OperationStatus { lease: 1, entries, ..OperationStatus::default() };
    Operation { status: Some(status), ..Operation::new("shop-1", spec) }
}
