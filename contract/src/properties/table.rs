//! The rows of the table. Nothing else in the project spells a property key.

use super::Category::{self, Access, Advanced, Cluster, Node, Site};
use super::{Kind, Need, Period, Property};
use crate::role::Role;

macro_rules! properties {
    ($($name:ident = $key:literal $(=> $field:ident: $type:ty)?, $row:expr;)*) => {
        $(#[doc = concat!("Key of the property `", $key, "`.")] pub const $name: &str = $key;)*

        pub(super) const TABLE: &[Property] = &[$(Property { key: $key, ..$row }),*];

        macro_rules! for_each_field {
            ($macro:ident) => {
                $macro! { $($name = $key $(=> $field: $type)?;)* }
            };
        }
    };
}

const fn row(category: Category, kind: Kind) -> Property {
    Property {
        key: "",
        category,
        kind,
        label: "",
        description: "",
        example: None,
        needs: [Some(Need::Optional); Role::ALL.len()],
        changeable: false,
        spec: &[],
    }
}

impl Property {
    const fn must_be_given(self) -> Self {
        Self { needs: [Some(Need::Required); Role::ALL.len()], ..self }
    }

    /// No role uses it but those that are named afterwards.
    const fn of_no_other_role(self) -> Self {
        Self { needs: [None; Role::ALL.len()], ..self }
    }

    const fn changeable(self) -> Self {
        Self { changeable: true, ..self }
    }

    const fn spec(self, spec: &'static [&'static str]) -> Self {
        Self { spec, ..self }
    }

    const fn label(self, label: &'static str) -> Self {
        Self { label, ..self }
    }

    const fn description(self, description: &'static str) -> Self {
        Self { description, ..self }
    }

    const fn example(self, example: &'static str) -> Self {
        Self { example: Some(example), ..self }
    }

    /// A worker's alone.
    const fn of_workers(self, need: Need) -> Self {
        let mut needs = [None; Role::ALL.len()];
        needs[Role::Worker as usize] = Some(need);
        Self { needs, ..self }
    }

    /// A worker learns it of its cluster, or has no use for it.
    const fn not_of_workers(self) -> Self {
        self.need_in(Role::Worker, None)
    }

    const fn or(self, default: &'static str) -> Self {
        Self { needs: [Some(Need::Default(default)); Role::ALL.len()], ..self }
    }
}

/// How often snapshots may be taken.
const EVERY: Kind = Kind::Period { shortest: Period::minutes(15), longest: Period::days(7) };

properties! {
    ROLE = "role", row(Node, Kind::Role)
        .label("Role")
        .description(
            "Role of this VM in its cluster. Asked for if the appliance has several roles. It never changes on this \
             node.",
        )
        .example("tenant-control-plane");
    NODE_NAME = "node-name" => name: Option<String>, row(Node, Kind::DnsLabel)
        .must_be_given()
        .label("Node name")
        .description(
            "Host name of this VM, without a domain. For a control-plane node it is a name of the list of control-plane \
             nodes. For a worker it is a name that no other node of the cluster has.",
        )
        .example("cp1");
    ADDRESS = "address" => address_source: Option<AddressSource>, row(Node, Kind::AddressOrDhcp)
        .must_be_given()
        .label("IPv4 address with prefix length")
        .description(
            "Static IPv4 address of this VM and the prefix length of its subnet, for example 192.168.10.11/24. For a worker \
             also \"dhcp\": a DHCP server leases its address. It also gives whatever of gateway, DNS, search domains and time \
             servers is left empty here. Reserve the address there: it never changes on this node.",
        )
        .example("192.168.10.11/24");
    GATEWAY = "gateway" => gateway: Option<Ipv4Addr>, row(Node, Kind::Address)
        .changeable()
        .label("Default gateway")
        .description(
            "IPv4 address of the default gateway, in the VM's subnet. Leave it empty in a network that has \
             none.",
        )
        .example("192.168.10.1");
    DATA_ADDRESS = "data-address" => data_address: Option<Ipv4Net>, row(Node, Kind::AddressWithPrefix)
        .changeable()
        .label("IPv4 address on a data network")
        .description(
            "For a second network adapter: the VM's address there and the prefix length of that subnet. Add the \
             adapter to the VM before its first power-on. Leave it empty with one adapter.",
        )
        .example("10.20.0.11/24");
    ROUTES = "routes" => routes: Vec<Route>, row(Node, Kind::Routes)
        .changeable()
        .label("Static routes")
        .description(
            "Networks behind other gateways than the default one, as \"network via gateway\", separated by commas. \
             Each gateway is in the VM's subnet or in that of its data network.",
        )
        .example("10.30.0.0/16 via 10.20.0.1, 172.16.0.0/12 via 192.168.10.254");
    DNS_SERVERS = "dns-servers" => dns_servers: Vec<Ipv4Addr>, row(Node, Kind::AddressList)
        .changeable()
        .spec(&["site.dnsServers"])
        .label("DNS servers")
        .description(
            "IPv4 addresses of DNS servers, separated by commas. Leave it empty to run without DNS. At most \
             three are used by programs in containers.",
        )
        .example("192.168.10.2,192.168.10.3");
    SEARCH_DOMAINS = "search-domains" => search_domains: Vec<String>, row(Node, Kind::DomainList)
        .changeable()
        .spec(&["site.searchDomains"])
        .label("DNS search domains")
        .description("Domains that are tried after short names, separated by commas.")
        .example("example.com,lab.example.com");
    NTP_SERVERS = "ntp-servers" => ntp_servers: Vec<String>, row(Node, Kind::HostList)
        .changeable()
        .spec(&["site.ntpServers"])
        .label("NTP servers")
        .description(
            "Names or IPv4 addresses of time servers, separated by commas. Without one the VM follows the \
             clock of its ESXi host.",
        )
        .example("ntp.example.com,192.168.10.2");
    NODE_LABELS = "node-labels" => labels: Vec<Label>, row(Node, Kind::Labels)
        .of_workers(Need::Optional)
        .label("Labels of the node")
        .description(
            "Kubernetes labels that the node has when it joins, as key=value, separated by commas. Most keys under \
             kubernetes.io and k8s.io are not a node's own to set.",
        )
        .example("example.com/tier=edge,topology.kubernetes.io/zone=a");
    NODE_TAINTS = "node-taints" => taints: Vec<Taint>, row(Node, Kind::Taints)
        .of_workers(Need::Optional)
        .label("Taints of the node")
        .description(
            "Kubernetes taints that the node has when it joins, as key=value:Effect, separated by commas. The effect is \
             NoSchedule, PreferNoSchedule or NoExecute.",
        )
        .example("example.com/edge=true:NoSchedule");
    NODE_POOL = "node-pool" => pool: Option<String>, row(Node, Kind::DnsLabel)
        .of_workers(Need::Optional)
        .label("Pool")
        .description("Name of the pool that the node belongs to: its label kaas.local/pool.")
        .example("general");
    CLUSTER_NAME = "cluster-name" => cluster_name: Option<String>, row(Cluster, Kind::DnsLabel)
        .label("Cluster name")
        .description("Name of the cluster. It appears in kubeconfig files.")
        .or("control")
        .need_in(Role::TenantControlPlane, Some(Need::Required))
        .need_in(Role::Worker, Some(Need::Required));
    CONTROL_NODES = "control-nodes" => control_nodes: Option<Vec<ControlNode>>, row(Cluster, Kind::ControlNodes)
        .must_be_given()
        .not_of_workers()
        .label("Control-plane nodes")
        .description(
            "One or three control-plane nodes as name=address, separated by commas, in the same order on every \
             node. The first one creates the certificate authorities. For example \
             cp1=192.168.10.11,cp2=192.168.10.12,cp3=192.168.10.13.",
        )
        .example("cp1=192.168.10.11,cp2=192.168.10.12,cp3=192.168.10.13");
    API_VIP = "api-vip" => virtual_address: Option<Ipv4Addr>, row(Cluster, Kind::Address)
        .need_in(Role::TenantControlPlane, Some(Need::Required))
        .need_in(Role::Worker, Some(Need::Required))
        .label("Virtual IP of the Kubernetes API")
        .description(
            "Unused IPv4 address in the subnet of the control-plane nodes. Clients reach the Kubernetes API there, \
             whichever of those nodes is up. Needed with three control-plane nodes. A worker joins the cluster there.",
        )
        .example("192.168.10.10");
    DEPLOYMENT_SECRET = "deployment-secret" => secret: Option<Secret>, row(Cluster, Kind::Secret)
        .must_be_given()
        .not_of_workers()
        .label("Deployment secret")
        .description(
            "Proves to the control-plane nodes that they belong together. Use the same random value on every node, \
             with at least 128 bits: for example the output of \"openssl rand -hex 16\". It is not needed \
             after the cluster has formed.",
        );
    KUBERNETES_VERSION = "kubernetes-version" => kubernetes_minor: Option<String>, row(Cluster, Kind::KubernetesMinor)
        .label("Kubernetes version")
        .description("Minor version to form the cluster with. When empty, the newest one in this appliance.")
        .example("1.36")
        .not_of_workers();
    POD_CIDR = "pod-cidr" => pod_cidr: Option<Ipv4Net>, row(Cluster, Kind::Range { shortest: 8, longest: 24 })
        .label("Pod CIDR")
        .description(
            "IPv4 range for pods; each node takes a part of it. It must not overlap the nodes' subnet, the \
             service CIDR or any network that pods need to reach.",
        )
        .or("10.244.0.0/16")
        .not_of_workers();
    NODE_PREFIX = "node-prefix" => node_prefix: Option<u32>,
    row(Cluster, Kind::Integer { lowest: 24, highest: 25 })
        .label("Prefix length of a node's pods")
        .description(
            "Size of each node's part of the pod CIDR: 24 for 253 pod addresses, 25 for 125. With 25 the same pod CIDR has room \
             for twice as many nodes.",
        )
        .or("24")
        .not_of_workers();
    SERVICE_CIDR = "service-cidr" => service_cidr: Option<Ipv4Net>,
    row(Cluster, Kind::Range { shortest: 12, longest: 24 })
        .label("Service CIDR")
        .description(
            "IPv4 range for Kubernetes services, a /12 to a /24. It must not overlap the nodes' subnet or \
             the pod CIDR.",
        )
        .or("10.96.0.0/16")
        .not_of_workers();
    POD_SECURITY = "pod-security" => pod_security: Option<PodSecurity>, row(Cluster, Kind::PodSecurity)
        .changeable()
        .spec(&["podSecurity"])
        .label("Pod security")
        .description(
            "The enforced level of the Pod Security Standards, for namespaces without a label of their level. \
             kube-system is exempt.",
        )
        .or("baseline")
        .not_of_workers();
    CLUSTER_DNS = "cluster-dns" => cluster_dns: Option<bool>, row(Cluster, Kind::Switch)
        .of_no_other_role()
        .need_in(Role::TenantControlPlane, Some(Need::Default("true")))
        .changeable()
        .spec(&["addons.clusterDns"])
        .label("Cluster DNS")
        .description(
            "Whether the appliance brings cluster DNS. Without it you bring your own, behind the tenth address of the service \
             CIDR.",
        );
    CLUSTER_METRICS = "cluster-metrics" => cluster_metrics: Option<bool>, row(Cluster, Kind::Switch)
        .of_no_other_role()
        .need_in(Role::TenantControlPlane, Some(Need::Default("true")))
        .changeable()
        .spec(&["addons.clusterMetrics"])
        .label("Metrics of nodes and pods")
        .description("Whether the appliance brings metrics-server: \"kubectl top\" and horizontal scaling need it.");
    LOCAL_VOLUMES = "local-volumes" => local_volumes: Option<bool>, row(Cluster, Kind::Switch)
        .of_no_other_role()
        .need_in(Role::TenantControlPlane, Some(Need::Default("true")))
        .changeable()
        .spec(&["addons.localVolumes"])
        .label("Local volumes")
        .description(
            "Whether the appliance brings the storage class \"local\": volumes on the data disks of workers that have one. A \
             volume is lost with its worker.",
        );
    SERVICE_VIPS = "service-vips" => service_addresses: Vec<AddressRange>, row(Cluster, Kind::AddressRanges)
        .of_no_other_role()
        .need_in(Role::TenantControlPlane, Some(Need::Optional))
        .changeable()
        .spec(&["network.serviceVIPs.ranges", "network.serviceVIPs.poolRef", "network.serviceVIPs.count"])
        .label("Virtual IPs of services")
        .description(
            "Unused IPv4 addresses in the workers' subnet for services of the type LoadBalancer: ranges or networks, \
             separated by commas. Without any the appliance brings no load balancer. The same on every node.",
        )
        .example("192.168.10.200-192.168.10.219,192.168.10.224/28");
    JOIN_TOKEN = "join-token" => join_token: Option<Secret>, row(Cluster, Kind::JoinToken)
        .of_workers(Need::Required)
        .changeable()
        .label("Join token")
        .description(
            "Bootstrap token with which the worker joins its cluster, as \"kubeadm token create\" on a control-plane \
             node prints it. Needed once: it is erased when the worker has joined. A worker whose certificate has expired \
             joins again with a new one.",
        );
    CLUSTER_CA_HASH = "cluster-ca-hash" => authority_hash: Option<String>, row(Cluster, Kind::AuthorityHash)
        .of_workers(Need::Required)
        .label("Hash of the cluster's CA")
        .description(
            "SHA-256 of the public key of the cluster's certificate authority, as \"kubeadm token create \
             --print-join-command\" prints it: the worker joins no other cluster.",
        )
        .example("sha256:7c2e69131a36ae2a042a339b33381c6d0d43887e2de83720eff5359e26aec866");
    SSH_AUTHORIZED_KEYS = "ssh-authorized-keys" => ssh_authorized_keys: Vec<String>, row(Access, Kind::SshKeys)
        .changeable()
        .spec(&["site.sshAuthorizedKeys"])
        .label("SSH public keys")
        .description(
            "Public keys that may log in as \"admin\" over SSH. Give one or more in authorized_keys format, \
             separated by \\n, or the file's content in base64. SSH stays off when this is empty; a console \
             password is needed then.",
        );
    CONSOLE_PASSWORD_HASH = "console-password-hash" => console_password_hash: Option<String>,
    row(Access, Kind::PasswordHash)
        .changeable()
        .spec(&["site.consolePasswordRef"])
        .label("Console password hash")
        .description(
            "Hash of the password for \"admin\" on the VM console, as made by \"mkpasswd -m yescrypt\" or \
             \"openssl passwd -6\". Never the password itself. When empty, the console shows status only.",
        );
    ADMIN_CIDRS = "admin-cidrs" => admin_networks: Vec<Ipv4Net>, row(Access, Kind::NetworkList)
        .changeable()
        .spec(&["site.adminCIDRs"])
        .label("Networks of administrators")
        .description(
            "Networks from which SSH and the node's endpoint (port 9441) are reached. Give those of administrators, \
             \"kaas control upgrade\", monitoring and load balancers that ask for the node's health. Nodes and pods of the \
             cluster reach the endpoint anyway; the Kubernetes API stays open to all. When empty, both are open to all.",
        )
        .example("192.168.10.0/24,10.8.0.0/16");
    DEPLOYER_PUBLIC_KEY = "deployer-public-key" => deployer_public_key: Option<String>, row(Access, Kind::DeployerKey)
        .changeable()
        .label("Deployer's public key")
        .description(
            "Once the cluster has formed, a client that proves the private key gets an administrator's certificate of a \
             day. It asks the node's endpoint (port 9441), as often as it likes. Another key, or none, makes the certificates of \
             the former one worthless. While a key is replaced, nodes have both. The same on every control-plane node.",
        )
        .not_of_workers();
    HTTP_PROXY = "http-proxy" => http_proxy: Option<String>, row(Site, Kind::Url { credentials: true })
        .changeable()
        .spec(&["site.proxy.http"])
        .label("HTTP proxy")
        .description(
            "Proxy for http:// addresses, for example http://proxy.example.com:3128. The cluster itself \
             needs none.",
        )
        .example("http://proxy.example.com:3128");
    HTTPS_PROXY = "https-proxy" => https_proxy: Option<String>, row(Site, Kind::Url { credentials: true })
        .changeable()
        .spec(&["site.proxy.https"])
        .label("HTTPS proxy")
        .description("Proxy for https:// addresses, for example http://proxy.example.com:3128.")
        .example("http://proxy.example.com:3128");
    NO_PROXY = "no-proxy" => no_proxy: Vec<String>, row(Site, Kind::ExclusionList)
        .changeable()
        .spec(&["site.proxy.noProxy"])
        .label("Addresses without the proxy")
        .description(
            "Hosts, domains and IPv4 ranges that are reached without the proxy, separated by commas. The \
             cluster's own addresses are always excluded.",
        )
        .example(".example.com,192.168.0.0/16");
    EXTRA_CA_CERTIFICATES = "extra-ca-certificates" => extra_ca_certificates: Vec<String>, row(Site, Kind::Certificates)
        .changeable()
        .spec(&["site.extraCACertificates"])
        .label("Additional CA certificates")
        .description(
            "Certificate authorities to trust besides the public ones: PEM with line ends written as \\n, or \
             the PEM file's content in base64.",
        );
    REGISTRY_MIRROR = "registry-mirror" => registry_mirror: Option<String>, row(Site, Kind::Url { credentials: false })
        .changeable()
        .spec(&["site.registryMirror"])
        .label("Registry mirror")
        .description(
            "Registry from which to pull container images that the appliance does not carry, for example \
             https://registry.example.com. The cluster itself needs none.",
        )
        .example("https://registry.example.com");
    SNAPSHOT_TARGET = "snapshot-target" => snapshot_target: Option<Secret>, row(Site, Kind::DirectoryUrl)
        .changeable()
        .spec(&["backup.target", "backup.credentialsRef"])
        .label("Snapshot target")
        .description(
            "Directory on a WebDAV or similar server. Each snapshot of the cluster's store is copied there with \
             HTTP PUT. For example https://backup.example.com/clusters/one/. User name and password may precede \
             the host. The snapshots hold all that Kubernetes knows, Secrets encrypted.",
        )
        .example("https://backup.example.com/clusters/one/")
        .not_of_workers();
    SNAPSHOT_EVERY = "snapshot-every" => snapshot_every: Option<Period>, row(Site, EVERY)
        .changeable()
        .spec(&["backup.every"])
        .label("Time between snapshots")
        .description(
            "How often the control-plane node of etcd's leader takes a snapshot of the cluster's store. Each is as large as the \
             store. The newest twelve stay on the node's data disk, and of the last three days one each. The same on every node.",
        )
        .example("1h")
        .or("6h")
        .not_of_workers();
    RECOVERY_PUBLIC_KEY = "recovery-public-key" => recovery_public_key: Option<String>, row(Site, Kind::RecoveryKey)
        .changeable()
        .spec(&["backup.recoveryPublicKey"])
        .label("Recovery public key")
        .description(
            "Your public key, to which the keys that encrypt the cluster's Secrets are sealed inside each snapshot. With \
             the private key, which stays with you, a snapshot can be restored after all control-plane nodes were lost. The \
             same on every node.",
        )
        .not_of_workers();
    VXLAN_PORT = "vxlan-port" => vxlan_port: Option<u32>, row(Advanced, Kind::Port { lowest: 1024 })
        .label("VXLAN port")
        .description(
            "UDP port of the pod network between nodes. Change it where the physical network or NSX uses \
             this port itself.",
        )
        .or("8472")
        .not_of_workers();
    TIMEOUT_FACTOR = "timeout-factor" => timeout_factor: Option<u32>,
    row(Advanced, Kind::Integer { lowest: 1, highest: 20 })
        .changeable()
        .label("Timeout factor for slow hosts")
        .description(
            "All timeouts of the appliance are multiplied by it, 1 to 20. Raise it on slow or overloaded \
             hosts.",
        )
        .or("1");
}
pub(crate) use for_each_field;
