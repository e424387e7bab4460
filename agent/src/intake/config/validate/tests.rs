//! A valid environment, and one change a test.

use std::time::Duration;

use contract::finding::Severity;
use contract::image::ImageFacts;
use contract::pod_security::PodSecurity;
use contract::properties;
use contract::properties::{ControlNode, Period, Route};
use contract::role::{Role, Roles};
use ipnet::Ipv4Net;
use proptest::prelude::*;

use super::*;
use crate::intake::config::{Lease, fixture as configurations};

const SECRET: &str = "x7$Qm!p2<Wz&9%rT'v\"B ü";

fn image() -> ImageFacts {
    serde_json::from_str(include_str!("../fixtures/image.json")).unwrap()
}

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_900_000_000)
}

/// The valid environment: the second of three nodes, with all properties.
fn fixture() -> Vec<(&'static str, String)> {
    let rows: Vec<(&str, &str)> = vec![
        ("node-name", "cp2"),
        ("address", "192.168.10.12/24"),
        ("gateway", "192.168.10.1"),
        ("data-address", "10.20.0.12/24"),
        ("routes", "10.30.0.0/16 via 10.20.0.1, 172.16.0.0/12 via 192.168.10.254"),
        ("dns-servers", "192.168.10.2, 192.168.10.3"),
        ("search-domains", "example.com lab.example.com"),
        ("ntp-servers", "ntp.example.com,192.168.10.2"),
        ("cluster-name", "control"),
        ("control-nodes", "cp1=192.168.10.11,cp2=192.168.10.12,cp3=192.168.10.13"),
        ("api-vip", "192.168.10.10"),
        ("deployment-secret", SECRET),
        ("kubernetes-version", "1.35"),
        ("pod-cidr", "10.244.0.0/16"),
        ("service-cidr", "10.96.0.0/16"),
        ("pod-security", "restricted"),
        ("ssh-authorized-keys", include_str!("../../../../../contract/src/properties/fixtures/ssh-keys.pub")),
        ("console-password-hash", "$y$j9T$F5Jx5fExrKuPp53xLKQ..1$xepEX7DgsiGhAJPJyekJSrQ8hX9NhEaSi66Ij4USOM2"),
        ("admin-cidrs", "192.168.10.0/24, 10.8.0.5"),
        ("http-proxy", "http://user:p%40ss@proxy.example.com:3128"),
        ("https-proxy", "http://10.1.2.3:3128"),
        ("no-proxy", ".example.com,192.168.0.0/16"),
        ("extra-ca-certificates", include_str!("../fixtures/site-ca.pem")),
        ("registry-mirror", "https://registry.example.com/mirror"),
        ("snapshot-target", "https://backup:p%40ss@backup.example.com/clusters/one/"),
        ("snapshot-every", "15m"),
        ("recovery-public-key", include_str!("../../../../../contract/src/recovery/fixtures/key.pub")),
        ("vxlan-port", "4789"),
        ("timeout-factor", "3"),
    ];
    rows.into_iter().map(|(key, value)| (key, value.to_owned())).collect()
}

fn escaped(text: &str) -> String {
    let mut out = String::new();
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '"' => out.push_str("&quot;"),
            '\n' => out.push_str("&#10;"),
            other => out.push(other),
        }
    }
    out
}

fn document<K: AsRef<str>, V: AsRef<str>>(properties: &[(K, V)]) -> Document {
    let rows: String = properties
        .iter()
        .map(|(key, value)| {
            format!("<Property oe:key=\"{}\" oe:value=\"{}\"/>", escaped(key.as_ref()), escaped(value.as_ref()))
        })
        .collect();
    let namespace = "http://schemas.dmtf.org/ovf/environment/1";
    let text = format!(
        "<Environment xmlns=\"{namespace}\" xmlns:oe=\"{namespace}\" xmlns:ve=\"http://www.vmware.com/schema/ovfenv\">\
         <PropertySection>{rows}</PropertySection><ve:EthernetAdapterSection>\
         <ve:Adapter ve:mac=\"00:50:56:99:C0:4C\" ve:network=\"VM Network\"/>\
         <ve:Adapter ve:mac=\"00:50:56:99:C0:4D\" ve:network=\"Data\"/></ve:EthernetAdapterSection></Environment>"
    );
    Document::parse(text.as_bytes()).unwrap()
}

/// The fixture with some values replaced. `None` removes one.
fn changed(changes: &[(&str, Option<&str>)]) -> Result<Intake, Findings> {
    let mut properties = fixture();
    for (key, value) in changes {
        assert!(properties::find(key).is_some(), "{key} is no property");
        properties.retain(|(other, _)| other != key);
        properties.extend(value.map(|value| (properties::find(key).unwrap().key, value.to_owned())));
    }
    validate(&document(&properties), &image(), now())
}

/// The codes of the findings, sorted. No finding may contain a secret.
fn codes(findings: &Findings) -> Vec<&str> {
    assert!(!findings.to_string().contains(SECRET));
    let mut codes: Vec<&str> = findings.iter().map(|finding| finding.code.as_str()).collect();
    codes.sort_unstable();
    codes
}

macro_rules! rejects {
    ($($name:ident: [$($key:literal = $value:expr),+] => [$($code:literal),+];)*) => {
        $(#[test]
        fn $name() {
            let findings = changed(&[$(($key, $value.into())),+]).unwrap_err();
            assert_eq!(codes(&findings), [$($code),+], "{findings}");
        })*
    };
}

macro_rules! warns {
    ($($name:ident: [$($key:literal = $value:expr),+] => [$($code:literal),*];)*) => {
        $(#[test]
        fn $name() {
            let intake = changed(&[$(($key, $value.into())),+]).unwrap_or_else(|findings| panic!("{findings}"));
            assert_eq!(codes(&intake.warnings), [$($code),*] as [&str; _], "{}", intake.warnings);
        })*
    };
}

#[test]
fn the_fixture_is_in_order() {
    let intake = changed(&[]).unwrap_or_else(|findings| panic!("{findings}"));
    assert!(intake.warnings.is_empty(), "{}", intake.warnings);
    assert_eq!(intake.secret.expose(), SECRET);
    insta::assert_snapshot!(serde_json::to_string_pretty(&intake.config).unwrap());
}

#[test]
fn four_properties_and_an_access_are_sufficient() {
    let given = |key: &str| ["node-name", "address", "control-nodes", "deployment-secret"].contains(&key);
    let mut properties = fixture();
    properties.retain(|(key, _)| given(key) || *key == "console-password-hash");
    properties.iter_mut().find(|(key, _)| *key == "control-nodes").unwrap().1 = "cp2=192.168.10.12".into();
    let intake = validate(&document(&properties), &image(), now()).unwrap_or_else(|findings| panic!("{findings}"));
    let config = intake.config.control_plane().unwrap();
    assert_eq!(config.cluster.kubernetes_minor, "1.36", "the newest in the image");
    assert_eq!((config.cluster.vxlan_port, config.timeout_factor), (8472, 1));
    assert_eq!(config.snapshot_every, Period::hours(6));
    assert!(intake.warnings.is_empty());
    properties.retain(|(key, _)| given(key));
    assert_eq!(codes(&validate(&document(&properties), &image(), now()).unwrap_err()), ["access.none"]);
    properties.push(("ssh-authorized-keys", "ssh-ed25519 damaged".to_owned()));
    assert_eq!(codes(&validate(&document(&properties), &image(), now()).unwrap_err()), ["ssh-key.malformed"]);
}

#[test]
fn last_access_to_a_member_cannot_be_removed() {
    let mut properties = fixture();
    properties.retain(|(key, _)| *key != "deployment-secret");
    assert!(validate_formed(&document(&properties), &image(), now()).is_ok());
    properties.retain(|(key, _)| *key != "console-password-hash");
    assert!(validate_formed(&document(&properties), &image(), now()).is_ok());
    properties.retain(|(key, _)| *key != "ssh-authorized-keys");
    assert_eq!(codes(&validate_formed(&document(&properties), &image(), now()).unwrap_err()), ["access.none"]);
}

#[test]
fn tenant_cluster_requires_a_name_and_virtual_ip() {
    let image = ImageFacts { roles: Role::TenantControlPlane.into(), ..image() };
    let mut properties = fixture();
    properties.iter_mut().find(|(key, _)| *key == "control-nodes").unwrap().1 = "cp2=192.168.10.12".into();
    let intake = validate(&document(&properties), &image, now()).unwrap_or_else(|findings| panic!("{findings}"));
    assert_eq!(intake.config.role(), Role::TenantControlPlane);
    properties.retain(|(key, _)| !["cluster-name", "api-vip"].contains(key));
    let findings = validate(&document(&properties), &image, now()).unwrap_err();
    let subjects: Vec<&str> = findings.iter().map(|finding| finding.subject.as_str()).collect();
    assert_eq!(codes(&findings), ["property.missing"; 2]);
    assert_eq!(subjects, ["cluster-name", "api-vip"]);
}

/// The result for a tenant's form with these additional lines.
fn of_a_tenant(lines: &[(&'static str, &str)]) -> Result<Intake, Findings> {
    let image = ImageFacts { roles: Role::TenantControlPlane.into(), ..image() };
    let mut properties = fixture();
    properties.extend(lines.iter().map(|(key, value)| (*key, (*value).to_owned())));
    validate(&document(&properties), &image, now())
}

#[test]
fn tenant_has_all_add_ons_by_default() {
    let add_ons = |intake: Intake| {
        let config = intake.config;
        let form: Vec<_> = config.properties(None);
        assert_eq!(validate_formed(&document(&form), &image_of(&config), now()).unwrap().0.properties(None), form);
        config.control_plane().unwrap().cluster.add_ons.clone()
    };
    assert_eq!(
        add_ons(of_a_tenant(&[]).unwrap()),
        AddOns { dns: true, metrics: true, local_volumes: true, service_addresses: Vec::new() }
    );
    let chosen = add_ons(
        of_a_tenant(&[
            ("cluster-dns", "false"),
            ("cluster-metrics", "False"),
            ("local-volumes", "false"),
            ("service-vips", "192.168.10.200-192.168.10.219, 192.168.10.224/29"),
        ])
        .unwrap(),
    );
    assert_eq!((chosen.dns, chosen.metrics, chosen.local_volumes), (false, false, false));
    assert_eq!(chosen.addresses(), "192.168.10.200-192.168.10.219,192.168.10.224-192.168.10.231");
    assert_eq!(add_ons(changed(&[]).unwrap()), AddOns::default());
    let intake = changed(&[("service-vips", Some("192.168.10.200")), ("cluster-metrics", Some("false"))]).unwrap();
    assert_eq!(codes(&intake.warnings), ["property.not-used"; 2]);
}

fn image_of(config: &Config) -> ImageFacts {
    ImageFacts { roles: config.role().into(), ..image() }
}

#[test]
fn service_addresses_may_not_be_in_use() {
    for (pool, code) in [
        ("192.168.10.12", "address.duplicate"),
        ("192.168.10.13-192.168.10.20", "address.duplicate"),
        ("192.168.10.10", "address.duplicate"),
        ("192.168.10.1", "address.duplicate"),
        ("192.168.10.2", "address.duplicate"),
        ("192.168.10.240-192.168.10.255", "address.subnet-reserved"),
        ("10.96.3.0/24", "range.overlap"),
        ("10.244.0.0-10.244.0.9", "range.overlap"),
        ("10.20.0.200", "range.overlap"),
        ("192.168.10.200-192.168.10.210,192.168.10.208/28", "range.overlap"),
        ("192.168.10.200-", "property.malformed"),
    ] {
        let findings = of_a_tenant(&[("service-vips", pool)]).unwrap_err();
        assert!(codes(&findings).contains(&code), "{pool}: {findings}");
        assert!(findings.iter().all(|finding| finding.subject == "service-vips"), "{pool}: {findings}");
    }
    let elsewhere = of_a_tenant(&[("service-vips", "192.168.11.200-192.168.11.210")]).unwrap();
    assert_eq!(codes(&elsewhere.warnings), ["service-vips.off-subnet"]);
}

#[test]
fn form_accepts_only_the_images_roles() {
    let given = |roles: Vec<Role>, role: Option<&'static str>| {
        let image = ImageFacts { roles: Roles::new(roles).unwrap(), ..image() };
        let mut properties = fixture();
        properties.extend(role.map(|role| (properties::ROLE, role.into())));
        validate(&document(&properties), &image, now()).map(|intake| intake.config.role())
    };
    let both = || vec![Role::TenantControlPlane, Role::ControlPlane];
    assert_eq!(given(both(), None).unwrap(), Role::TenantControlPlane, "the image's first");
    assert_eq!(given(both(), Some("control-plane")).unwrap(), Role::ControlPlane);
    assert_eq!(codes(&given(both(), Some("master")).unwrap_err()), ["property.malformed"]);
    let one = || vec![Role::ControlPlane];
    assert_eq!(given(one(), Some("control-plane")).unwrap(), Role::ControlPlane);
    let findings = given(one(), Some("tenant-control-plane")).unwrap_err();
    assert_eq!(codes(&findings), ["role.not-in-image"]);
    assert!(findings.to_string().contains("it is tenant-control-plane, and VMs of this image are control-plane"));
}

#[test]
fn all_findings_are_reported_together() {
    let findings = changed(&[
        ("node-name", None),
        ("address", Some("192.168.10.0/24")),
        ("control-nodes", Some("cp1=10.0.0.1,cp1=10.0.0.1")),
        ("api-vip", Some("fd00::1")),
        ("deployment-secret", Some("hunter2")),
        ("pod-cidr", Some("10.96.0.0/16")),
        ("vxlan-port", Some("80")),
        ("ssh-authorized-keys", Some("nonsense")),
    ])
    .unwrap_err();
    assert_eq!(
        codes(&findings),
        [
            "address.duplicate",
            "address.subnet-reserved",
            "control-nodes.count",
            "deployment-secret.weak",
            "name.duplicate",
            "property.ipv6",
            "property.missing",
            "property.out-of-range",
            "range.overlap",
            "ssh-key.malformed",
        ]
    );
    assert!(!findings.to_string().contains("hunter2"));
}

#[test]
fn empty_form_reports_all_missing_properties() {
    let empty: Vec<(&str, &str)> = properties::table().iter().map(|property| (property.key, "")).collect();
    let findings = validate(&document(&empty), &image(), now()).unwrap_err();
    let expected = [["access.none"].as_slice(), &["property.missing"; 4]].concat();
    assert_eq!(codes(&findings), expected);
    let blank: Vec<(&str, &str)> = properties::table().iter().map(|property| (property.key, " \n")).collect();
    assert_eq!(codes(&validate(&document(&blank), &image(), now()).unwrap_err()), expected);
}

#[test]
fn image_without_kubernetes_is_a_finding() {
    let mut image = image();
    image.kubernetes.clear();
    let mut properties = fixture();
    properties.retain(|(key, _)| *key != "kubernetes-version");
    let findings = validate(&document(&properties), &image, now()).unwrap_err();
    assert_eq!(codes(&findings), ["kubernetes-version.not-in-image"]);
}

/// An IPv6 address is refused with the same words in every property that accepts addresses.
#[test]
fn ipv6_is_refused_everywhere() {
    for (key, value) in [
        ("address", "2001:db8::12/64"),
        ("data-address", "2001:db8::12/64"),
        ("gateway", "fe80::1"),
        ("dns-servers", "2001:db8::53"),
        ("ntp-servers", "2001:db8::123"),
        ("search-domains", "2001:db8::1"),
        ("control-nodes", "cp2=2001:db8::12"),
        ("api-vip", "2001:db8::10"),
        ("pod-cidr", "fd00::/48"),
        ("service-cidr", "fd00:1::/108"),
        ("routes", "2001:db8:1::/48 via 2001:db8::1"),
        ("http-proxy", "http://[2001:db8::1]:3128"),
        ("https-proxy", "http://[2001:db8::1]:3128"),
        ("no-proxy", "fd00::/8"),
        ("registry-mirror", "https://[2001:db8::1]"),
        ("snapshot-target", "https://[2001:db8::1]/snapshots/"),
    ] {
        let findings = changed(&[(key, Some(value))]).unwrap_err();
        let refused = |finding: &contract::finding::Finding| {
            finding.code == "property.ipv6"
                && finding.subject == key
                && finding.seen.ends_with("is an IPv6 address; the appliance works with IPv4 only")
        };
        assert!(findings.iter().any(refused), "{key}: {findings}");
    }
}

rejects! {
    node_name_is_missing: ["node-name" = None] => ["property.missing"];
    node_name_is_upper_case: ["node-name" = "CP2"] => ["property.malformed"];
    node_name_has_a_domain: ["node-name" = "cp2.example.com"] => ["property.malformed"];
    node_is_not_listed: ["node-name" = "cp4"] => ["control-nodes.not-listed"];
    address_is_missing: ["address" = None] => ["property.missing"];
    address_has_no_prefix: ["address" = "192.168.10.12"] => ["property.malformed"];
    address_is_ipv6: ["address" = "2001:db8::12/64"] => ["property.ipv6"];
    address_is_loopback: ["address" = "127.0.0.12/24"] => ["address.unusable"];
    address_is_multicast: ["address" = "224.0.0.12/24"] => ["address.unusable"];
    address_is_the_network: ["address" = "192.168.10.0/24"] => ["address.subnet-reserved"];
    address_is_the_broadcast: ["address" = "192.168.10.255/24"] => ["address.subnet-reserved"];
    address_differs_from_the_list: ["address" = "192.168.10.14/24"] => ["control-nodes.address-differs"];
    subnet_is_too_narrow: ["address" = "192.168.10.12/29", "routes" = None] => ["gateway.off-subnet"];
    subnet_is_a_pair: ["address" = "192.168.10.12/31"] => ["address.prefix"];
    address_is_another_nodes: ["address" = "192.168.10.11/24"] => ["control-nodes.address-differs"];
    subnet_covers_everything: ["address" = "10.0.0.12/8",
        "control-nodes" = "cp1=10.0.0.11,cp2=10.0.0.12,cp3=10.0.0.13", "gateway" = "10.0.0.1",
        "api-vip" = "10.0.0.10", "https-proxy" = None, "data-address" = None, "routes" = None] => ["range.overlap", "range.overlap"];
    gateway_is_elsewhere: ["gateway" = "192.168.11.1"] => ["gateway.off-subnet"];
    gateway_is_the_broadcast: ["gateway" = "192.168.10.255"] => ["address.subnet-reserved"];
    gateway_is_this_node: ["gateway" = "192.168.10.12"] => ["address.duplicate"];
    gateway_is_the_virtual_ip: ["gateway" = "192.168.10.10"] => ["address.duplicate"];
    gateway_is_no_address: ["gateway" = "router"] => ["property.malformed"];
    data_address_has_no_prefix: ["data-address" = "10.20.0.12"] => ["property.malformed"];
    data_address_is_ipv6: ["data-address" = "2001:db8:1::12/64"] => ["property.ipv6"];
    data_subnet_is_the_nodes: ["data-address" = "192.168.10.99/24", "routes" = None] => ["range.overlap"];
    data_subnet_is_in_the_pods: ["data-address" = "10.244.7.12/24", "routes" = None] => ["range.overlap"];
    route_has_no_gateway: ["routes" = "10.30.0.0/16"] => ["property.malformed"];
    route_is_the_default: ["routes" = "0.0.0.0/0 via 10.20.0.1"] => ["range.size"];
    route_gateway_is_far: ["routes" = "10.30.0.0/16 via 10.99.0.1"] => ["routes.gateway"];
    route_gateway_needs_the_data_network: ["data-address" = None] => ["routes.gateway"];
    route_gateway_is_this_node: ["routes" = "10.30.0.0/16 via 10.20.0.12"] => ["routes.gateway"];
    route_gateway_is_the_broadcast: ["routes" = "10.30.0.0/16 via 10.20.0.255"] => ["routes.gateway"];
    route_is_given_twice: ["routes" = "10.30.0.0/16 via 10.20.0.1,10.30.0.0/16 via 10.20.0.2"] => ["routes.duplicate"];
    route_covers_the_pods: ["routes" = "10.240.0.0/12 via 10.20.0.1"] => ["range.overlap"];
    route_is_in_the_services: ["routes" = "10.96.3.0/24 via 10.20.0.1"] => ["range.overlap"];
    dns_server_is_a_name: ["dns-servers" = "dns.example.com"] => ["property.malformed"];
    dns_server_is_ipv6: ["dns-servers" = "192.168.10.2,2001:db8::53"] => ["property.ipv6"];
    dns_server_is_loopback: ["dns-servers" = "127.0.0.53"] => ["address.unusable"];
    dns_server_is_hidden_by_services: ["dns-servers" = "10.96.0.53"] => ["range.covers-server"];
    proxy_is_hidden_by_pods: ["https-proxy" = "http://10.244.1.1:3128"] => ["range.covers-server"];
    search_domain_is_an_address: ["search-domains" = "10.0.0.1"] => ["property.malformed"];
    ntp_server_is_a_url: ["ntp-servers" = "ntp://ntp.example.com"] => ["property.malformed"];
    cluster_name_has_spaces: ["cluster-name" = "my cluster"] => ["property.malformed"];
    control_nodes_are_missing: ["control-nodes" = None] => ["property.missing"];
    control_nodes_have_no_addresses: ["control-nodes" = "cp1,cp2,cp3"] => [
        "property.malformed", "property.malformed", "property.malformed"];
    control_nodes_are_two: ["control-nodes" = "cp1=192.168.10.11,cp2=192.168.10.12"] => ["control-nodes.count"];
    control_nodes_are_five: ["control-nodes" = "cp1=192.168.10.11,cp2=192.168.10.12,cp3=192.168.10.13,\
        cp4=192.168.10.14,cp5=192.168.10.15"] => ["control-nodes.count"];
    control_nodes_share_a_name: ["control-nodes" = "cp1=192.168.10.11,cp2=192.168.10.12,cp1=192.168.10.13"] => [
        "name.duplicate"];
    control_nodes_share_an_address: ["control-nodes" = "cp1=192.168.10.11,cp2=192.168.10.12,cp3=192.168.10.11"] => [
        "address.duplicate"];
    control_node_is_in_another_subnet: ["control-nodes" = "cp1=192.168.10.11,cp2=192.168.10.12,cp3=192.168.99.13"] => [
        "control-nodes.off-subnet"];
    control_node_is_the_broadcast: ["control-nodes" = "cp1=192.168.10.11,cp2=192.168.10.12,cp3=192.168.10.255"] => [
        "address.subnet-reserved"];
    virtual_ip_is_missing: ["api-vip" = None] => ["api-vip.missing"];
    virtual_ip_is_elsewhere: ["api-vip" = "192.168.11.10"] => ["api-vip.off-subnet"];
    virtual_ip_is_a_node: ["api-vip" = "192.168.10.13"] => ["address.duplicate"];
    virtual_ip_is_the_network: ["api-vip" = "192.168.10.0"] => ["address.subnet-reserved"];
    virtual_ip_is_malformed: ["api-vip" = "192.168.10"] => ["property.malformed"];
    secret_is_missing: ["deployment-secret" = None] => ["property.missing"];
    secret_is_short: ["deployment-secret" = "hunter2"] => ["deployment-secret.weak"];
    secret_is_words: ["deployment-secret" = "correct horse battery staple"] => ["deployment-secret.weak"];
    secret_is_regular: ["deployment-secret" = "0123456789abcdef0123456789abcdef"] => ["deployment-secret.weak"];
    secret_has_line_breaks: ["deployment-secret" = "9f86d081884c7d659a2feaa0c55ad015\n"] => ["deployment-secret.invalid"];
    kubernetes_is_not_in_the_image: ["kubernetes-version" = "1.34"] => ["kubernetes-version.not-in-image"];
    kubernetes_has_a_patch_level: ["kubernetes-version" = "1.36.3"] => ["property.malformed"];
    pod_range_is_too_small: ["pod-cidr" = "10.244.0.0/23"] => ["range.size"];
    pod_range_is_out_of_bounds: ["pod-cidr" = "10.244.0.0/25"] => ["range.size"];
    pod_range_has_host_bits: ["pod-cidr" = "10.244.1.0/16"] => ["range.host-bits"];
    pod_range_is_ipv6: ["pod-cidr" = "fd00::/48"] => ["property.ipv6"];
    pod_range_is_loopback: ["pod-cidr" = "127.0.0.0/16"] => ["range.unusable"];
    pod_range_overlaps_services: ["pod-cidr" = "10.96.128.0/17"] => ["range.overlap"];
    pod_range_overlaps_nodes: ["pod-cidr" = "192.168.0.0/16"] => [
        "range.covers-server", "range.covers-server", "range.covers-server", "range.overlap"];
    service_range_is_too_large: ["service-cidr" = "10.0.0.0/8"] => ["range.size"];
    service_range_is_too_small: ["service-cidr" = "10.96.0.0/25"] => ["range.size"];
    service_range_is_in_the_pods: ["service-cidr" = "10.244.3.0/24"] => ["range.overlap"];
    ssh_key_is_cut: ["ssh-authorized-keys" = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5"] => ["ssh-key.malformed"];
    ssh_key_is_private: ["ssh-authorized-keys" = "-----BEGIN OPENSSH PRIVATE KEY-----"] => ["ssh-key.private"];
    password_is_plain: ["console-password-hash" = "hunter2"] => ["console-password-hash.plain"];
    password_is_md5: ["console-password-hash" = "$1$abcdefgh$G9GTe5rFtx2cuh4WnFy5p/"] => ["console-password-hash.method"];
    admin_network_has_host_bits: ["admin-cidrs" = "192.168.10.7/24"] => ["range.host-bits"];
    admin_networks_are_everything: ["admin-cidrs" = "0.0.0.0/0"] => ["range.size"];
    admin_network_is_a_name: ["admin-cidrs" = "bastion.example.com"] => ["property.malformed"];
    admin_network_is_ipv6: ["admin-cidrs" = "192.168.10.0/24, fd00::/48"] => ["property.ipv6"];
    proxy_has_no_scheme: ["http-proxy" = "proxy.example.com:3128"] => ["url.malformed"];
    proxy_is_ipv6: ["http-proxy" = "http://[2001:db8::1]:3128"] => ["property.ipv6"];
    exclusion_is_ipv6: ["no-proxy" = "fd00::/8"] => ["property.ipv6"];
    certificate_is_no_ca: ["extra-ca-certificates" = include_str!("../fixtures/server.pem")] => ["certificate.not-ca"];
    certificate_is_text: ["extra-ca-certificates" = "see ticket"] => ["certificate.malformed"];
    registry_has_a_password: ["registry-mirror" = "https://user:hunter2@registry.example.com"] => ["url.malformed"];
    snapshots_are_too_frequent: ["snapshot-every" = "14m"] => ["property.out-of-range"];
    snapshots_are_too_rare: ["snapshot-every" = "8d"] => ["property.out-of-range"];
    snapshots_have_no_unit: ["snapshot-every" = "6"] => ["property.malformed"];
    vxlan_port_is_low: ["vxlan-port" = "53"] => ["property.out-of-range"];
    vxlan_port_is_high: ["vxlan-port" = "65536"] => ["property.out-of-range"];
    vxlan_port_is_a_name: ["vxlan-port" = "vxlan"] => ["property.malformed"];
    parts_of_nodes_are_too_small: ["node-prefix" = "26"] => ["property.out-of-range"];
    range_holds_two_parts_for_three_nodes: ["pod-cidr" = "10.244.0.0/24", "node-prefix" = "25"] => ["range.size"];
    timeout_factor_is_zero: ["timeout-factor" = "0"] => ["property.out-of-range"];
    timeout_factor_is_a_boolean: ["timeout-factor" = "True"] => ["property.malformed"];
}

warns! {
    one_node_needs_no_virtual_ip: ["control-nodes" = "cp2=192.168.10.12", "api-vip" = None] => [];
    one_node_may_have_one: ["control-nodes" = "cp2=192.168.10.12"] => [];
    pods_for_one_node_fit_a_24: ["control-nodes" = "cp2=192.168.10.12", "pod-cidr" = "10.244.0.0/24"] => [];
    three_nodes_fit_smaller_parts: ["pod-cidr" = "10.244.0.0/23", "node-prefix" = "25"] => [];
    secret_ends_in_a_space: ["deployment-secret" = "9f86d081884c7d659a2feaa0c55ad015 "] => ["deployment-secret.whitespace"];
    route_is_repeated: ["routes" = "10.30.0.0/16 via 10.20.0.1,10.30.0.0/16 via 10.20.0.1"] => ["property.repeated"];
    one_network_is_enough: ["data-address" = None, "routes" = None] => [];
    a_route_replaces_the_gateway: ["gateway" = None, "routes" = "10.1.0.0/16 via 10.20.0.1"] => [];
    dns_servers_are_many: ["dns-servers" = "192.168.10.2,192.168.10.3,192.168.10.4,192.168.10.5"] => ["dns-servers.many"];
    dns_server_is_repeated: ["dns-servers" = "192.168.10.2,192.168.10.2"] => ["property.repeated"];
    gateway_is_missing: ["gateway" = None] => ["gateway.missing"];
    nothing_far_needs_no_gateway: ["gateway" = None, "https-proxy" = None] => [];
    snapshot_target_without_tls_is_a_warning: ["snapshot-target" = "http://backup.example.com/"] => ["snapshot-target.clear-text"];
    certificate_has_expired: ["extra-ca-certificates" = include_str!("../fixtures/expired-ca.pem")] => ["certificate.expired"];
}

#[test]
fn unknown_and_repeated_properties_are_named() {
    let mut properties = fixture();
    properties.push(("node_name", "cp9".into()));
    let intake = validate(&document(&properties), &image(), now()).unwrap();
    assert_eq!(codes(&intake.warnings), ["environment.unknown-property"]);
    properties.push(("node-name", "cp9".into()));
    let findings = validate(&document(&properties), &image(), now()).unwrap_err();
    assert_eq!(codes(&findings), ["environment.duplicate-property", "environment.unknown-property"]);
}

#[test]
fn every_finding_has_a_documented_code() {
    let texts = ["", "x", "hunter2", "::1", "10.0.0.0/8", "0", "http://", "$1$a$b", "a=b,c=10.0.0.1", "ssh-rsa AAAA"];
    for property in properties::table() {
        for text in texts {
            let findings = match changed(&[(property.key, Some(text))]) {
                Ok(intake) => intake.warnings,
                Err(findings) => findings,
            };
            for finding in findings.iter() {
                let known = contract::codes::CODES.iter().find(|code| code.code == finding.code).expect(&finding.code);
                assert_eq!(known.severity, finding.severity);
                assert!(properties::find(&finding.subject).is_some(), "{finding}");
            }
        }
    }
}

const HASH: &str = "$2b$05$abcdefghijklmnopqrstuuMceFj4VbmHOj8C7PetMxzZkwre/z.Ri";

/// Valid configurations with their secrets.
fn configurations() -> impl Strategy<Value = (Config, Secret)> {
    let label = "[a-z]([a-z0-9-]{0,10}[a-z0-9])?";
    let host =
        || prop_oneof![Just("ntp.example.com".to_owned()), (1u8..250).prop_map(|last| format!("172.20.1.{last}"))];
    let names = (
        prop::collection::btree_set(label, 3).prop_filter("a reserved name", |names| !names.contains("localhost")),
        label.prop_filter("a reserved name", |name| name != "localhost"),
    );
    let network = (0u8..=255, 24u8..=26, 0usize..3, any::<bool>(), any::<bool>(), 10u8..=22, 14u8..=24);
    let data = (any::<bool>(), prop::collection::btree_set(0u8..=255, 0..4));
    let lists = (
        prop::collection::btree_set(1u8..250, 0..3),
        prop::collection::btree_set("[a-z]{1,8}\\.(com|org)", 0..3),
        prop::collection::btree_set(host(), 0..3),
        prop::sample::subsequence(
            include_str!("../../../../../contract/src/properties/fixtures/ssh-keys.pub").lines().collect::<Vec<_>>(),
            0..5,
        ),
        prop::option::of(Just(include_str!("../fixtures/site-ca.pem"))),
        prop::collection::btree_set(0u8..=255, 0..3),
    );
    let site = (
        prop::option::of(Just("http://user:p%40ss@proxy.example.com:3128")),
        prop::option::of(Just("https://registry.example.com/mirror")),
        prop::option::of(Just("https://u:p%40ss@backup.example.com/clusters/one")),
        prop::collection::btree_set("(\\.|\\*\\.)?[a-z]{1,8}", 0..3),
        prop::option::of(Just(HASH)),
        1024u16..,
        1u32..=20,
        prop_oneof![Just("1.35"), Just("1.36")],
        prop_oneof![Just(Period::minutes(90)), Just(Period::hours(6)), Just(Period::days(7))],
        "[^\\p{C}\\p{Zs}]{0,40}",
    );
    (names, network, data, lists, site).prop_map(|((names, cluster), network, (data, routed), lists, site)| {
        let (third, prefix, position, three, gateway, pods, services) = network;
        let address = |last: u8| Ipv4Addr::new(172, 20, third, last);
        let names: Vec<String> = names.into_iter().collect();
        let nodes: Vec<ControlNode> = (0..3)
            .map(|index| ControlNode { name: names[index].clone(), address: address(11 + index as u8) })
            .collect();
        let control_nodes = if three { nodes.clone() } else { vec![nodes[position].clone()] };
        let (dns, domains, ntp, keys, ca, administrators) = lists;
        let (proxy, mirror, target, exclusions, hash, vxlan_port, timeout_factor, minor, every, tail) = site;
        let hash = hash.or(keys.is_empty().then_some(HASH));
        let config = Config::ControlPlane(ControlPlane {
            role: Role::ControlPlane,
            cluster: Cluster {
                name: cluster,
                control_nodes,
                virtual_address: three.then(|| address(10)),
                pod_cidr: Ipv4Net::new(Ipv4Addr::new(10, 128, 0, 0), pods).unwrap().trunc(),
                node_prefix: 24,
                service_cidr: Ipv4Net::new(Ipv4Addr::new(192, 168, 0, 0), services.max(16)).unwrap(),
                vxlan_port,
                kubernetes_minor: minor.to_owned(),
                pod_security: PodSecurity::Baseline,
                add_ons: Default::default(),
            },
            node: Node {
                name: nodes[position].name.clone(),
                interfaces: std::iter::once(Interface {
                    mac: Some("00:50:56:99:c0:4c".into()),
                    network: Some("VM Network".into()),
                    address: Ipv4Net::new(nodes[position].address, prefix).unwrap().into(),
                    gateway: gateway.then(|| address(1)),
                })
                .chain(data.then(|| Interface {
                    mac: Some("00:50:56:99:c0:4d".into()),
                    network: Some("Data".into()),
                    address: "172.21.7.9/16".parse::<Ipv4Net>().unwrap().into(),
                    gateway: None,
                }))
                .collect(),
                routes: routed
                    .into_iter()
                    .map(|third| Route {
                        network: Ipv4Net::new_assert(Ipv4Addr::new(172, 22, third, 0), 24),
                        gateway: if data { Ipv4Addr::new(172, 21, 0, third.max(1)) } else { address(1) },
                    })
                    .collect(),
                dns_servers: dns.into_iter().map(address).collect(),
                search_domains: domains.into_iter().collect(),
                ntp_servers: ntp.into_iter().collect(),
                ssh_authorized_keys: keys.into_iter().map(str::to_owned).collect(),
                console_password_hash: hash.map(str::to_owned),
                admin_networks: administrators
                    .into_iter()
                    .map(|second| Ipv4Net::new_assert(Ipv4Addr::new(10, second, 0, 0), 16))
                    .collect(),
                proxy: proxy.map(|proxy| Proxy {
                    http: None,
                    https: Some(proxy.to_owned()),
                    exclusions: exclusions.into_iter().collect(),
                }),
                extra_ca_certificates: ca.into_iter().map(str::to_owned).collect(),
                registry_mirror: mirror.map(str::to_owned),
            },
            snapshot_target: target.map(|target| Secret::new(target.to_owned())),
            snapshot_every: every,
            recovery_public_key: None,
            deployer_public_key: None,
            timeout_factor,
        });
        (config, Secret::new(format!("kJ8vQ2xW9m%Z4pL7tR3yB6n&<\"'>${tail}")))
    })
}

#[test]
fn snapshot_interval_is_saved_in_its_canonical_form() {
    let config = changed(&[("snapshot-every", None)]).unwrap().config;
    assert!(config.properties(None).contains(&("snapshot-every", "6h".to_owned())));
    let weekly = changed(&[("snapshot-every", Some("168h"))]).unwrap().config;
    assert!(weekly.properties(None).contains(&("snapshot-every", "7d".to_owned())));
}

#[test]
fn pod_security_has_a_level_by_default() {
    assert_eq!(
        changed(&[("pod-security", None)]).unwrap().config.control_plane().unwrap().cluster.pod_security,
        PodSecurity::Baseline
    );
    assert_eq!(codes(&changed(&[("pod-security", Some("none"))]).unwrap_err()), ["property.malformed"]);
}

/// Texts similar to values: pieces of them in any order, and other text.
fn any_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("10.0.0.1".to_owned()),
        Just("/24".to_owned()),
        Just(",".to_owned()),
        Just(" via ".to_owned()),
        Just("cp1=".to_owned()),
        Just("::1".to_owned()),
        Just("http://".to_owned()),
        Just("$6$".to_owned()),
        Just("ssh-rsa AAAA".to_owned()),
        Just("-----BEGIN CERTIFICATE-----".to_owned()),
        Just("\\n".to_owned()),
        "[^\\x00-\\x1f\\u{fffe}\\u{ffff}]{0,8}",
    ];
    prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn valid_configuration_survives_a_round_trip((config, secret) in configurations()) {
        let properties = config.properties(Some(&secret));
        let intake = validate(&document(&properties), &image(), now()).map_err(|findings| TestCaseError::fail(findings.to_string()))?;
        prop_assert_eq!(&intake.config, &config);
        prop_assert!(intake.secret == secret, "the secret changed");
        let saved = serde_json::to_string(&config).unwrap();
        prop_assert_eq!(serde_json::from_str::<Config>(&saved).unwrap(), config);
    }

    #[test]
    fn any_value_gives_a_verdict(index in 0..properties::table().len(), value in "[^\\x00-\\x1f\\u{fffe}\\u{ffff}]{0,60}") {
        let key = properties::table()[index].key;
        if let Err(findings) = changed(&[(key, Some(&value))]) {
            prop_assert!(findings.iter().any(|finding| finding.severity == Severity::Error));
        }
    }

    #[test]
    fn any_properties_give_only_documented_findings(
        given in prop::collection::vec((0..properties::table().len(), any_text()), 0..12),
        others in prop::collection::vec(("[a-z.-]{0,12}", any_text()), 0..4),
    ) {
        let table = properties::table();
        let named = given.iter().map(|(index, value)| (table[*index].key, value.as_str()));
        let mut all: Vec<(&str, &str)> = named.chain(others.iter().map(|(key, value)| (key.as_str(), value.as_str()))).collect();
        all.push(("node-name", "cp1"));
        let findings = match validate(&document(&all), &image(), now()) {
            Ok(intake) => intake.warnings,
            Err(findings) => {
                prop_assert!(findings.has_errors());
                findings
            }
        };
        for finding in findings.iter() {
            prop_assert!(contract::codes::CODES.iter().any(|code| code.code == finding.code), "{}", finding);
        }
    }
}

/// Arbitrary content of guestinfo or a CD-ROM gives a configuration or documented findings. A scrubbed document needs
/// no further scrubbing.
#[test]
fn fuzz_of_ovf_environments() {
    use crate::fuzz::{Example, fuzz};
    use crate::intake::environment::document::scrubbed;

    let every_property = |properties: &[(&str, String)]| {
        let rows =
            properties.iter().map(|(key, value)| format!("<Property e:key=\"{key}\" e:value=\"{}\"/>", escaped(value)));
        let uri = "http://schemas.dmtf.org/ovf/environment/1";
        let rows: String = rows.collect();
        format!(
            "<Environment xmlns=\"{uri}\" xmlns:e=\"{uri}\"><PropertySection>{rows}</PropertySection></Environment>"
        )
    };
    let examples = [
        include_bytes!("../../environment/fixtures/three-nodes.xml").to_vec(),
        include_bytes!("../../environment/fixtures/other-prefixes.xml").to_vec(),
        every_property(&fixture()).into_bytes(),
    ];
    let image = image();
    fuzz("OVF environments", 16 << 20, &examples.map(Example::new), |bytes| {
        let documented = |findings: &Findings| {
            let known = |code: &str| contract::codes::CODES.iter().any(|known| known.code == code);
            assert!(findings.iter().all(|finding| known(&finding.code)), "{findings}");
        };
        match Document::parse(bytes) {
            Err(finding) => documented(&finding.into()),
            Ok(document) => match validate(&document, &image, now()) {
                Ok(intake) => documented(&intake.warnings),
                Err(findings) => {
                    assert!(findings.has_errors());
                    documented(&findings);
                }
            },
        }
        if let Ok(Some(clean)) = scrubbed(bytes) {
            assert_eq!(scrubbed(clean.as_bytes()), Ok(None));
        }
    });
}

/// A worker's properties, with the defaults in the form of an image with several roles.
fn of_a_worker() -> Vec<(&'static str, String)> {
    let rows: [(&str, &str); 13] = [
        ("role", "worker"),
        ("node-name", "worker1"),
        ("address", "192.168.20.21/24"),
        ("gateway", "192.168.20.1"),
        ("cluster-name", "one"),
        ("api-vip", "192.168.10.10"),
        ("join-token", "abcdef.0123456789abcdef"),
        ("cluster-ca-hash", "sha256:7c2e69131a36ae2a042a339b33381c6d0d43887e2de83720eff5359e26aec866"),
        ("node-labels", "example.com/tier=edge"),
        ("node-taints", "example.com/edge=true:NoSchedule"),
        ("node-pool", "edge"),
        ("ssh-authorized-keys", include_str!("../../../../../contract/src/properties/fixtures/ssh-keys.pub")),
        ("pod-cidr", "10.244.0.0/16"),
    ];
    rows.into_iter().map(|(key, value)| (key, value.to_owned())).collect()
}

fn tenant() -> ImageFacts {
    ImageFacts { roles: Roles::new(vec![Role::TenantControlPlane, Role::Worker]).unwrap(), ..image() }
}

#[test]
fn workers_configuration_is_saved_without_token() {
    let Intake { config, secret, warnings } = validate(&document(&of_a_worker()), &tenant(), now()).unwrap();
    assert!(
        warnings.is_empty(),
        "the API may be behind a gateway, and what the form comes with is no mistake: {warnings}"
    );
    assert_eq!(secret.expose(), "abcdef.0123456789abcdef");
    let worker = config.worker().unwrap();
    assert_eq!((worker.cluster.name.as_str(), config.network(), config.kubernetes_minor()), ("one", None, None));
    let labels: Vec<String> = worker.registration.labels().iter().map(ToString::to_string).collect();
    assert_eq!(labels, ["example.com/tier=edge", "kaas.local/pool=edge"]);
    assert!(config.control_plane().is_err());
    let saved = serde_json::to_value(&config).unwrap();
    assert!(!saved.to_string().contains("0123456789abcdef"), "{saved}");
    assert_eq!(serde_json::from_value::<Config>(saved).unwrap(), config);
    let again = validate(&document(&config.properties(Some(&secret))), &tenant(), now()).unwrap();
    assert_eq!(again.config.worker().unwrap().registration, worker.registration);
}

#[test]
fn only_a_joined_worker_needs_no_token() {
    let without = |key: &str| {
        let rest: Vec<_> = of_a_worker().into_iter().filter(|(name, _)| *name != key).collect();
        document(&rest)
    };
    for key in ["join-token", "cluster-ca-hash", "api-vip", "cluster-name"] {
        let findings = validate(&without(key), &tenant(), now()).unwrap_err();
        let told: Vec<_> = findings.iter().map(|one| (one.code.as_str(), one.subject.as_str())).collect();
        assert_eq!(told, [("property.missing", key)]);
    }
    let (_, token, _) = validate_formed(&without("join-token"), &tenant(), now()).unwrap();
    assert_eq!(token, None);
    let (_, token, _) = validate_formed(&document(&of_a_worker()), &tenant(), now()).unwrap();
    assert!(token.is_some(), "one that is given counts");
    let mut given = of_a_worker();
    given.push(("control-nodes", "cp1=192.168.10.11".to_owned()));
    let warnings = validate(&document(&given), &tenant(), now()).unwrap().warnings;
    let told: Vec<_> = warnings.iter().map(|one| (one.code.as_str(), one.subject.as_str())).collect();
    assert_eq!(told, [("property.not-used", "control-nodes")]);
}

#[test]
fn dhcp_is_for_workers_only() {
    let with_dhcp = |rows: Vec<(&'static str, String)>| -> Vec<(&'static str, String)> {
        let of = |(key, value)| (key, if key == "address" { "DHCP".to_owned() } else { value });
        rows.into_iter().filter(|(key, _)| *key != "gateway").map(of).collect()
    };
    let Intake { config, secret, warnings } = validate(&document(&with_dhcp(of_a_worker())), &tenant(), now()).unwrap();
    assert!(warnings.is_empty(), "{warnings}");
    assert_eq!((config.address(), config.node().is_leased()), (None, true));
    let saved = serde_json::to_value(&config).unwrap();
    assert_eq!(serde_json::from_value::<Config>(saved).unwrap(), config);
    let form = config.properties(Some(&secret));
    assert!(form.contains(&("address", "dhcp".to_owned())), "{form:?}");
    // No form contains the server's settings. They stay when another property changes.
    let mut learned = config.clone();
    let Config::Worker(worker) = &mut learned else { panic!() };
    let lease = Lease { address: "192.168.20.77/24".parse().unwrap(), ntp_servers: vec![[192, 168, 20, 1].into()] };
    worker.node.interfaces[0].address = Address::Dhcp { lease: Some(lease) };
    let again = validate(&document(&learned.properties(Some(&secret))), &tenant(), now()).unwrap();
    assert_eq!(again.config.address(), None);
    assert_eq!(again.config.after(&learned), learned);
    assert_eq!(learned.node().time_servers(), ["192.168.20.1"]);

    let rows = with_dhcp(of_a_worker());
    let control = |(key, value): (&'static str, String)| match key {
        "role" => Some((key, "tenant-control-plane".to_owned())),
        "join-token" | "cluster-ca-hash" | "node-labels" | "node-taints" | "node-pool" => None,
        _ => Some((key, value)),
    };
    let mut rows: Vec<_> = rows.into_iter().filter_map(control).collect();
    rows.push(("control-nodes", "worker1=192.168.10.11".to_owned()));
    rows.push(("deployment-secret", SECRET.to_owned()));
    let findings = validate(&document(&rows), &tenant(), now()).unwrap_err();
    let told: Vec<_> = findings.iter().map(|one| (one.code.as_str(), one.subject.as_str())).collect();
    assert_eq!(told, [("address.dhcp", "address")], "{findings}");
}

#[test]
fn control_plane_node_requires_a_static_address() {
    let mut saved = serde_json::to_value(Config::ControlPlane(configurations::one_node())).unwrap();
    saved["node"]["interfaces"][0]["address"] = serde_json::json!({"dhcp": null});
    let error = serde_json::from_value::<Config>(saved).unwrap_err().to_string();
    assert!(error.contains("the static address is missing"), "{error}");
}
