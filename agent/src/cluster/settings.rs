//! A test: each program uses the current settings of the site, which may change at any time. The table lists the programs and files.
//!
//! `kaas-agent configure` saves a setting and restarts the agent. The steps of its boot lay the files that are named here. A row says how a
//! change reaches a program that runs already. Removing a setting is a change too.

use std::fs;
use std::path::Path;

use contract::properties::{CLUSTER_DNS, DNS_SERVERS, EXTRA_CA_CERTIFICATES, HTTP_PROXY, NTP_SERVERS, REGISTRY_MIRROR};

use crate::cluster::addons::{self, AddOn, CONTROLLER};
use crate::cluster::certificates::users;
use crate::cluster::kubernetes::{containerd, kubeadm, kubelet};
use crate::host::fake_systemd::FakeSystemd;
use crate::host::files;
use crate::host::platform::Platform;
use crate::host::services::Services;
use crate::intake::config::fixture::{image, three_nodes};
use crate::system::{proxy, time, trust};

/// How a change of a file reaches the program.
enum Reach {
    /// The program reads the file when it connects. Open connections stay as they are.
    EachTime,
    /// The step that writes the file restarts this unit.
    Written(&'static str),
    /// The unit reads the file at its start. It is restarted if it started with another content
    /// ([`crate::cluster::certificates::users`]).
    Unit(&'static str),
    /// The static pod reads the file at its start. Its manifest has a hash of the content ([`super::kubernetes::kubeadm::marks`]).
    StaticPod(&'static str),
    /// The file in the add-on's pods comes from its objects. A node applies these again if its own value changes: for the cluster the
    /// node decides that was configured or restarted last ([`super::addons::resolvers`]).
    AddOn(&'static str),
}

struct Reader {
    program: &'static str,
    /// The key of the property; of the proxy's the first one.
    setting: &'static str,
    file: &'static str,
    reach: Reach,
}

#[rustfmt::skip]
const READERS: &[Reader] = &[
    Reader { program: "containerd", setting: EXTRA_CA_CERTIFICATES, file: trust::BUNDLE, reach: Reach::Unit(containerd::UNIT) },
    Reader { program: "API server", setting: EXTRA_CA_CERTIFICATES, file: trust::BUNDLE, reach: Reach::StaticPod("kube-apiserver") },
    Reader { program: "controller manager", setting: EXTRA_CA_CERTIFICATES, file: trust::BUNDLE, reach: Reach::StaticPod("kube-controller-manager") },
    Reader { program: "controller of tenant clusters", setting: EXTRA_CA_CERTIFICATES, file: trust::BUNDLE, reach: Reach::EachTime },
    Reader { program: "copies of snapshots", setting: EXTRA_CA_CERTIFICATES, file: trust::BUNDLE, reach: Reach::EachTime },
    Reader { program: "containerd", setting: HTTP_PROXY, file: proxy::FILE, reach: Reach::Unit(containerd::UNIT) },
    Reader { program: "kubelet", setting: DNS_SERVERS, file: kubelet::CONFIGURATION, reach: Reach::Written(kubelet::UNIT) },
    Reader { program: "CoreDNS", setting: DNS_SERVERS, file: "/etc/coredns/Corefile", reach: Reach::AddOn(CLUSTER_DNS) },
    Reader { program: "controller of tenant clusters", setting: DNS_SERVERS, file: "/etc/resolv.conf", reach: Reach::AddOn(CONTROLLER) },
    Reader { program: "time synchronization", setting: NTP_SERVERS, file: time::FILE, reach: Reach::Written(time::UNIT) },
    Reader { program: "containerd", setting: REGISTRY_MIRROR, file: containerd::MIRROR, reach: Reach::EachTime },
];

/// Gives a setting another value, then none: says whether the program was reached each time.
fn reached(root: &Path, mut write: impl FnMut(Option<&str>), mut reached: impl FnMut() -> bool) -> bool {
    fs::create_dir_all(root).unwrap();
    write(Some("first"));
    reached();
    assert!(!reached(), "nothing has changed");
    [Some("second"), None].into_iter().all(|value| {
        write(value);
        reached()
    })
}

#[test]
fn every_program_uses_the_current_settings() {
    for setting in [EXTRA_CA_CERTIFICATES, HTTP_PROXY, DNS_SERVERS, NTP_SERVERS, REGISTRY_MIRROR] {
        assert!(READERS.iter().any(|reader| reader.setting == setting), "nothing reads {setting:?}");
    }
    for Reader { program, setting, file, reach } in READERS {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let path = files::below(root, file);
        let write = |value: Option<&str>| match value {
            Some(value) => files::write_atomically(&path, value.as_bytes(), 0o644).unwrap(),
            None => drop(files::remove(&path).unwrap()),
        };
        let is_reached = match *reach {
            // If the pod had the file alone as a volume, it would keep the former one.
            Reach::EachTime if *program == "controller of tenant clusters" => {
                let pods = add_on(CONTROLLER, &[]).objects.pop().unwrap();
                let volumes = pods["spec"]["template"]["spec"]["volumes"].as_array().unwrap();
                let directory = Path::new(file).parent().unwrap().to_str().unwrap();
                volumes.iter().any(|volume| volume["hostPath"]["path"] == directory)
            }
            // Nothing is between the program and the file.
            Reach::EachTime => continue,
            Reach::Unit(unit) => {
                assert!(users::units().any(|known| known == unit), "{unit}");
                reached(root, write, || {
                    let new = users::needs_restart(root, unit).unwrap();
                    users::mark_restarted(root, unit).unwrap();
                    new
                })
            }
            Reach::StaticPod(component) => {
                let mark = || kubeadm::marks(root).into_iter().find(|(name, _)| *name == component).unwrap().1;
                let mut before = String::new();
                reached(root, write, || std::mem::replace(&mut before, mark()) != before)
            }
            Reach::Written(unit) if unit == time::UNIT => {
                let systemd = FakeSystemd::new(root);
                let (bus, platform) = (systemd.bus(), Platform::detect(root).unwrap());
                let services = Services::new(&bus);
                let ensure = |servers: &[&str]| {
                    let servers: Vec<String> = servers.iter().map(|server| (*server).to_owned()).collect();
                    time::ensure(&platform, &services, &servers).unwrap()
                };
                assert!(ensure(&["10.0.0.1"]) && !ensure(&["10.0.0.1"]) && ensure(&["10.0.0.2"]));
                ensure(&[]) && services.state(unit).unwrap() == "inactive"
            }
            Reach::Written(unit) => {
                assert_eq!(unit, kubelet::UNIT);
                let (mut config, platform) = (three_nodes(), Platform::detect(root).unwrap());
                let resolvers = |config: &crate::intake::config::ControlPlane| {
                    let dns = config.cluster.dns_address();
                    kubelet::configuration(&config.node, dns, 1, &platform)["resolvConf"].clone()
                };
                assert_eq!(resolvers(&config), "");
                config.node.dns_servers = vec![[10, 0, 0, 2].into()];
                resolvers(&config) == kubelet::RESOLVERS
            }
            Reach::AddOn(name) => {
                let servers = [&["10.0.0.1"][..], &["10.0.0.2", "10.0.0.3"], &[]];
                let [one, two, none] = servers.map(|servers| add_on(name, servers));
                assert!(one.mark != two.mark && two.mark != none.mark, "it would not be applied again");
                asks(&one, &["10.0.0.1"]) && asks(&two, &["10.0.0.2", "10.0.0.3"]) && !asks(&none, &[])
            }
        };
        assert!(is_reached, "{program} goes on with the former {setting:?}");
    }
}

fn add_on(name: &str, servers: &[&str]) -> AddOn {
    let (mut config, mut image) = (three_nodes(), image());
    config.node.dns_servers = servers.iter().map(|server| server.parse().unwrap()).collect();
    image.programs = vec!["controller".to_owned()];
    addons::wanted(&config, &image).into_iter().find(|add_on| add_on.name == name).unwrap()
}

/// Whether its pods ask these DNS servers. For an empty list: whether they ask any.
fn asks(add_on: &AddOn, servers: &[&str]) -> bool {
    let text = serde_json::Value::from(add_on.objects.clone()).to_string();
    let nameservers = serde_json::json!({"nameservers": servers}).to_string();
    match servers {
        [] => text.contains("forward .") || text.contains("nameservers"),
        _ => {
            text.contains(&format!("forward . {} {{", servers.join(" ")))
                || text.contains(nameservers.trim_matches(['{', '}']))
        }
    }
}

/// A file in the table that no code writes would reach no program.
#[test]
fn the_files_are_those_that_are_written() {
    let directory = tempfile::tempdir().unwrap();
    let platform = Platform::detect(directory.path()).unwrap();
    containerd::lay_registries(&platform, Some("https://mirror.example")).unwrap();
    assert!(files::below(directory.path(), containerd::MIRROR).exists());
    assert!(containerd::lay_registries(&platform, None).unwrap());
    assert!(!files::below(directory.path(), containerd::MIRROR).exists());
    let unit = include_str!("../../../systemd/system/containerd.service");
    assert!(unit.contains(&format!("\nEnvironmentFile=-{}\n", proxy::FILE)));
}
