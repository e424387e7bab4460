//! Requests to an API server for each kind: creations and changes of objects, and the words of the refusals. A part of the scenario
//! of the kinds.

use serde_json::{Value, json};

const PEM: &str = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n";
const ADDRESS: &str = "is not the IPv4 address of a host";
const NETWORK: &str = "is not an IPv4 network";
const NO_HOSTS: &str = "holds addresses that no host can have";

/// Creations that are refused.
pub fn made() -> Vec<(&'static str, Value, &'static str)> {
    let digest = format!("sha256:{}", "0a".repeat(32));
    let range = |first: &str, last: &str| json!({"first": first, "last": last});
    let network = |part: Value| json!({"spec": {"network": part}});
    let backup =
        |every: &str| json!({"spec": {"backup": {"target": "https://backup.example.com/shop/", "every": every}}});
    let pool = |part: Value| json!({"spec": part});
    let restore = json!({
        "snapshot": "https://backup.example.com/a.db", "digest": digest, "recoveryKeyRef": {"name": "key"},
    });
    let (overlap, vips) = ("share an address", "192.168.10.200");
    vec![
        ("Tenant", json!({"metadata": {"name": "a.b"}}), "the name is no DNS label"),
        ("Tenant", pool(json!({"namespaces": []})), "should have at least 1 items"),
        ("Provider", json!({"metadata": {"name": "a.b"}}), "the name is no DNS label"),
        ("Provider", json!({"spec": {"type": "Other"}}), "Unsupported value"),
        ("Provider", json!({"spec": {"vsphere": null}}), "give vsphere with the type vSphere"),
        ("Provider", json!({"spec": {"allowedNamespaces": {"from": "All"}}}), "names go with Listed alone"),
        (
            "Provider",
            json!({"spec": {"vsphere": {"caBundle": PEM}}}),
            "give one of caBundle and thumbprint, or neither",
        ),
        (
            "Provider",
            json!({"spec": {"vsphere": {"zones": [{"name": "a", "cluster": "c"}]}}}),
            "name the datastore that VMs are put on",
        ),
        (
            "Provider",
            json!({"spec": {"vsphere": {"networks": [
                {"name": "blue", "portGroup": "VM Network", "addressing": "DHCP", "poolRef": {"name": "p"}},
            ]}}}),
            "give poolRef with the addressing Pool, and not with DHCP",
        ),
        ("IPPool", json!({"metadata": {"name": "a.b"}}), "its addresses have it as a label"),
        ("IPPool", pool(json!({"subnet": "192.168.10.5/24"})), NETWORK),
        ("IPPool", pool(json!({"subnet": "192.168.10.0/31"})), "not within 8 to 30"),
        ("IPPool", pool(json!({"subnet": "127.0.0.0/16"})), NO_HOSTS),
        (
            "IPPool",
            pool(json!({"ranges": [range("192.168.11.1", "192.168.11.2")]})),
            "a range is not inside the subnet",
        ),
        ("IPPool", pool(json!({"ranges": [range("192.168.10.9", "192.168.10.8")]})), "comes before the first one"),
        ("IPPool", pool(json!({"ranges": [range("192.168.10.300", "192.168.10.8")]})), ADDRESS),
        (
            "IPPool",
            pool(json!({"ranges": [range("192.168.10.20", "192.168.10.29"), range("192.168.10.29", "192.168.10.30")]})),
            overlap,
        ),
        ("IPPool", pool(json!({"gateway": "192.168.11.1"})), "the gateway is not inside the subnet"),
        ("IPPool", pool(json!({"gateway": "192.168.10.30"})), "the gateway is inside a range"),
        ("IPPool", pool(json!({"dnsServers": ["127.0.0.1"]})), ADDRESS),
        ("IPPool", pool(json!({"reserved": ["224.0.0.1"]})), ADDRESS),
        ("PoolAddress", json!({"metadata": {"name": "another"}}), "the name is not the address"),
        ("PoolAddress", pool(json!({"address": "0.1.2.3"})), ADDRESS),
        ("PoolAddress", pool(json!({"claimant": {"purpose": null}})), "Required value"),
        ("PoolAddress", pool(json!({"claimant": {"purpose": "Endpoint"}})), "a Machine's address is for its node"),
        (
            "PoolAddress",
            pool(json!({"claimant": {"kind": "TenantCluster", "purpose": "Endpoint", "index": 1}})),
            "only for Services there are several",
        ),
        ("VMClass", json!({"metadata": {"name": "auto"}}), "or is auto"),
        ("VMClass", pool(json!({"processors": 1})), "should be greater than or equal to 2"),
        (
            "NodeImage",
            pool(json!({"lifecycle": [
                {"phase": "Expired", "from": "2027-01-01T00:00:00Z"}, {"phase": "Supported", "from": "2027-02-01T00:00:00Z"},
            ]})),
            "phases do not follow each other",
        ),
        ("TenantCluster", json!({"metadata": {"name": "a".repeat(31)}}), "at most 30 characters"),
        ("TenantCluster", pool(json!({"version": "2.1"})), "should match"),
        ("TenantCluster", pool(json!({"image": null, "restore": restore})), "with restore, name the image"),
        (
            "TenantCluster",
            pool(json!({"maintenance": {"autoUpdate": true}})),
            "with maintenance.autoUpdate name no image",
        ),
        ("TenantCluster", pool(json!({"controlPlane": {"replicas": 2}})), "Unsupported value"),
        ("TenantCluster", pool(json!({"controlPlane": {"zones": ["a", "a"]}})), "a zone is listed twice"),
        ("TenantCluster", pool(json!({"maintenance": {"window": "Sat 02:00-02:00"}})), "the window has no length"),
        ("TenantCluster", network(json!({"services": "10.244.0.0/20"})), "overlaps the range of pods"),
        (
            "TenantCluster",
            network(json!({"endpoint": {"address": "10.244.0.9"}})),
            "is inside the range of pods or services",
        ),
        ("TenantCluster", network(json!({"endpoint": {"poolRef": {"name": "p"}}})), "give one of address and poolRef"),
        ("TenantCluster", network(json!({"endpoint": {"address": "224.0.0.9"}})), ADDRESS),
        ("TenantCluster", network(json!({"pods": "10.244.0.1/16"})), NETWORK),
        ("TenantCluster", network(json!({"pods": "10.244.0.0/25"})), "not within 8 to 24"),
        ("TenantCluster", network(json!({"pods": "11.0.0.0/8", "nodePrefix": 25})), "is too large for this nodePrefix"),
        ("TenantCluster", network(json!({"nodePrefix": 26})), "should be less than or equal to 25"),
        ("TenantCluster", network(json!({"pods": "169.254.0.0/16"})), NO_HOSTS),
        ("TenantCluster", network(json!({"services": "11.0.0.0/8"})), "not within 12 to 24"),
        (
            "TenantCluster",
            network(json!({"serviceVIPs": {"poolRef": {"name": "p"}}})),
            "give one of ranges and poolRef",
        ),
        ("TenantCluster", network(json!({"serviceVIPs": {"count": 2}})), "give count with poolRef"),
        (
            "TenantCluster",
            network(json!({"serviceVIPs": {"ranges": null, "poolRef": {"name": "p"}}})),
            "give count with poolRef",
        ),
        (
            "TenantCluster",
            network(json!({"serviceVIPs": {"ranges": [range(vips, vips), range(vips, vips)]}})),
            "two of the ranges share an address",
        ),
        (
            "TenantCluster",
            network(json!({"serviceVIPs": {"ranges": [range(vips, "192.168.10.100")]}})),
            "comes before the first one",
        ),
        ("TenantCluster", backup("14m"), "is not within 15m to 7d"),
        ("TenantCluster", backup("10081m"), "is not within 15m to 7d"),
        ("TenantCluster", backup("169h"), "is not within 15m to 7d"),
        ("TenantCluster", backup("8d"), "is not within 15m to 7d"),
        ("TenantCluster", backup("10d"), "is not within 15m to 7d"),
        ("TenantCluster", backup("600"), "should match"),
        ("TenantCluster", backup("06h"), "should match"),
        ("TenantCluster", pool(json!({"site": {"adminCIDRs": ["10.0.0.0/7"]}})), "not within 8 to 32"),
        ("TenantCluster", pool(json!({"site": {"dnsServers": ["127.0.0.53"]}})), ADDRESS),
        (
            "TenantCluster",
            pool(json!({"site": {"ntpServers": ["1.2.3"]}})),
            "is neither a DNS name nor an IPv4 address",
        ),
        ("NodePool", json!({"metadata": {"name": "bank-general"}}), "begins with the cluster's name and a dash"),
        ("NodePool", pool(json!({"replicas": 1001})), "should be less than or equal to 1000"),
        ("NodePool", pool(json!({"zones": ["a", "a"]})), "a zone is listed twice"),
        ("NodePool", pool(json!({"removeFirst": ["bank-general-w1"]})), "names a worker of another cluster"),
        ("NodePool", pool(json!({"removeFirst": ["shop-general"]})), "should match"),
        ("NodePool", pool(json!({"rollout": {"maxSurge": 0, "maxUnavailable": 0}})), "none can be replaced"),
        ("NodePool", pool(json!({"labels": {"/a": "x"}})), "has a key that is no label's"),
        ("NodePool", pool(json!({"labels": {"kubernetes.io/x": "x"}})), "not a node's own to set"),
        ("Machine", json!({"metadata": {"name": "bank-w1"}}), "begins with the cluster's name and a dash"),
        ("Machine", pool(json!({"role": "ControlPlane"})), "a worker has poolRef, and no control-plane node has"),
        (
            "Machine",
            pool(json!({"role": "ControlPlane", "poolRef": null, "removal": "KeepVM"})),
            "only the VM of a worker is kept",
        ),
        ("Machine", pool(json!({"labels": {"a/": "x"}})), "has a key that is no label's"),
        ("Machine", pool(json!({"labels": {"kaas.local/x": "x"}})), "not a node's own to set"),
        ("Operation", json!({"metadata": {"name": "bank-swap"}}), "does not begin with the cluster's name and a dash"),
        ("Operation", pool(json!({"fromImage": "kaas-tenant-0.2.0"})), "a swap is from one image to another one"),
        (
            "Operation",
            pool(json!({"type": "KubernetesUpgrade", "fromVersion": "1.35", "toVersion": "1.37"})),
            "Kubernetes is raised by one minor",
        ),
    ]
}

/// Creations that are accepted.
pub fn made_and_taken() -> Vec<(&'static str, Value)> {
    let backup =
        |every: &str| json!({"spec": {"backup": {"target": "https://backup.example.com/shop/", "every": every}}});
    let cluster = |kind: &str, purpose: &str, index: u32| json!({"spec": {"claimant": {"kind": kind, "purpose": purpose, "index": index}}});
    vec![
        ("PoolAddress", cluster("TenantCluster", "Endpoint", 0)),
        ("PoolAddress", cluster("TenantCluster", "ServiceVIP", 15)),
        ("TenantCluster", json!({"spec": {"image": null, "maintenance": {"autoUpdate": true}}})),
        (
            "TenantCluster",
            json!({"spec": {
                "image": null, "controlPlane": null, "site": null, "addons": null, "backup": null, "upgrade": null,
                "maintenance": null, "podSecurity": null, "network": {"serviceVIPs": null, "pods": null, "services": null},
            }}),
        ),
        ("TenantCluster", backup("15m")),
        ("TenantCluster", backup("10080m")),
        ("TenantCluster", backup("168h")),
        ("TenantCluster", backup("7d")),
        ("NodePool", json!({"spec": {"labels": null, "taints": null, "rollout": null, "repair": null, "replicas": 0}})),
        ("Operation", json!({"spec": {"type": "KubernetesUpgrade", "fromVersion": "1.36", "toVersion": "1.37"}})),
    ]
}

/// Changes of an existing object that are refused.
pub fn edited() -> Vec<(&'static str, Value, &'static str)> {
    let digest = format!("sha256:{}", "0b".repeat(32));
    let spec = |part: Value| json!({"spec": part});
    let vsphere = |part: Value| json!({"spec": {"vsphere": part}});
    let network = |part: Value| json!({"spec": {"network": part}});
    let restore = json!({
        "snapshot": "https://backup.example.com/a.db", "digest": digest, "recoveryKeyRef": {"name": "key"},
    });
    vec![
        ("Provider", vsphere(json!({"datacenter": "DC2"})), "VMs are found by it"),
        ("Provider", vsphere(json!({"folder": "elsewhere"})), "VMs are found by it"),
        (
            "Provider",
            vsphere(json!({"zones": [{"name": "a", "cluster": "cluster-1", "datastore": "other"}]})),
            "a zone keeps its cluster and its datastore",
        ),
        (
            "Provider",
            vsphere(json!({"zones": [{"name": "a", "cluster": "other", "datastore": "vsan-1"}]})),
            "a zone keeps its cluster and its datastore",
        ),
        ("IPPool", spec(json!({"subnet": "192.168.0.0/16"})), "the subnet of a pool stays"),
        (
            "PoolAddress",
            spec(json!({"claimant": {"uid": "0f5e2a30-7c1b-4d7e-9a55-0d6a1c5b7e22"}})),
            "an address in use stays",
        ),
        ("VMClass", spec(json!({"memoryMiB": 8192})), "a class stays as it is"),
        ("NodeImage", spec(json!({"digest": digest})), "an image is its content"),
        ("NodeImage", spec(json!({"publisher": null})), "the publisher of an image stays"),
        ("TenantCluster", spec(json!({"providerRef": {"name": "dc2"}})), "the Provider of a cluster stays"),
        ("TenantCluster", spec(json!({"restore": restore})), "restore cannot change after the cluster was created"),
        ("TenantCluster", spec(json!({"controlPlane": {"replicas": 1}})), "the number of control-plane nodes stays"),
        ("TenantCluster", spec(json!({"controlPlane": {"zones": null}})), "the zones of control-plane nodes stay"),
        ("TenantCluster", network(json!({"name": "green"})), "the network of a cluster stays"),
        (
            "TenantCluster",
            network(json!({"endpoint": {"address": "192.168.10.11"}})),
            "the endpoint of a cluster stays",
        ),
        ("TenantCluster", network(json!({"pods": "10.240.0.0/16"})), "the range of pods never changes"),
        ("TenantCluster", network(json!({"nodePrefix": 25})), "the size of a node's part never changes"),
        ("TenantCluster", network(json!({"services": "10.97.0.0/16"})), "the range of services never changes"),
        ("TenantCluster", network(json!({"vxlanPort": 4789})), "the VXLAN port never changes"),
        ("NodePool", spec(json!({"clusterRef": {"name": "sho"}})), "the cluster of a pool stays"),
        ("Machine", spec(json!({"clusterRef": {"name": "shop-general"}})), "the cluster of a Machine stays"),
        ("Machine", spec(json!({"role": "ControlPlane", "poolRef": null})), "the role of a Machine stays"),
        ("Machine", spec(json!({"poolRef": {"name": "shop-other"}})), "the pool of a Machine stays"),
        ("Machine", spec(json!({"zone": "b"})), "the zone of a Machine stays"),
        ("Machine", spec(json!({"network": "green"})), "the network of a Machine stays"),
        ("Machine", spec(json!({"dataDiskGiB": 41})), "the data disk of a Machine stays"),
        ("Machine", spec(json!({"labels": {"a": "b"}})), "the labels of a Machine cannot change"),
        (
            "Machine",
            spec(json!({"taints": [{"key": "a", "effect": "NoSchedule"}]})),
            "the taints of a Machine cannot change",
        ),
        ("Machine", spec(json!({"image": {"digest": digest}})), "image of a worker cannot change"),
        ("Machine", spec(json!({"kubernetes": "1.37"})), "kubernetes of a worker cannot change"),
        ("Machine", spec(json!({"processors": 8})), "processors of a worker cannot change"),
        ("Machine", spec(json!({"memoryMiB": 8192})), "memoryMiB of a worker cannot change"),
        ("Operation", spec(json!({"clusterGeneration": 8})), "a plan stays as it was decided"),
    ]
}

/// Changes of an existing object that are accepted.
pub fn edited_and_taken() -> Vec<(&'static str, Value)> {
    let zone = |name: &str, datastore: &str| json!({"name": name, "cluster": "cluster-1", "datastore": datastore});
    vec![
        ("Provider", json!({"spec": {"vsphere": {"zones": [zone("b", "vsan-2"), zone("a", "vsan-1")]}}})),
        ("IPPool", json!({"spec": {"ranges": [{"first": "192.168.10.20", "last": "192.168.10.21"}]}})),
        ("TenantCluster", json!({"spec": {"image": "kaas-tenant-0.3.0"}})),
        ("TenantCluster", json!({"spec": {"image": null, "maintenance": {"autoUpdate": true}}})),
        ("TenantCluster", json!({"spec": {"paused": true}, "metadata": {"annotations": {"kaas.local/adopt": "x"}}})),
        ("NodePool", json!({"spec": {"replicas": 0, "vmClass": "large"}})),
        ("Machine", json!({"spec": {"removal": "KeepVM", "drain": {"deleteLocalVolumes": true}}})),
        ("Machine", json!({"spec": {"removal": "DestroyVM"}})),
        ("Operation", json!({"metadata": {"annotations": {"kaas.local/do": "commit"}}})),
    ]
}

/// Changes of a status that are refused.
pub fn noted() -> Vec<(&'static str, Value, &'static str)> {
    let vm = |uuid: &str| json!({"uuid": uuid, "name": "shop-general-w1", "state": "Current"});
    let uuid = "0f5e2a30-7c1b-4d7e-9a55-0d6a1c5b7e21";
    vec![
        ("Machine", json!({"status": {"journal": {"address": "224.0.0.1"}}}), ADDRESS),
        ("Machine", json!({"status": {"vms": [vm(uuid), vm(uuid)]}}), "Duplicate value"),
        ("TenantCluster", json!({"status": {"resolved": {"serviceVIPs": ["0.0.0.0"]}}}), ADDRESS),
        ("TenantCluster", json!({"status": {"deployment": {"lifecycle": "Active"}}}), "Required value"),
    ]
}
