//! The configuration of each part, as reviewed.

use std::path::Path;

use contract::platform::CONTAINER_FILE;
use contract::role::Role;
use serde_json::json;

use super::*;
use crate::host::command::{self, Command, Runner};
use crate::host::files;
use crate::host::platform::Platform;
use crate::intake::config::Config;
use crate::intake::config::fixture::{in_a_tenant, joined, one_node, three_nodes};

fn machine() -> Platform {
    Platform::detect(Path::new("/nonexistent")).unwrap()
}

fn container() -> (tempfile::TempDir, Platform) {
    let root = tempfile::tempdir().unwrap();
    let file = files::below(root.path(), CONTAINER_FILE);
    let content = r#"{"cdrom": null, "data_disks": [], "bios_uuid": "420f1a2b-0000-4000-8000-000000000001",
        "cgroup_root": "/lab/node1", "fail_cgroup_v1": false, "restrict_oom_score_adj": true}"#;
    crate::host::files::write_atomically(&file, content.as_bytes(), 0o644).unwrap();
    let platform = Platform::detect(root.path()).unwrap();
    (root, platform)
}

#[test]
fn kubeadm_on_three_machines() {
    insta::assert_snapshot!(kubeadm::configuration::documents(&three_nodes(), &machine(), "1.36.3", &[]));
}

#[test]
fn the_operators_certificate_serves_its_names() {
    let names = ["api.example.com".to_owned(), "*.k8s.example.com".to_owned()];
    let text = kubeadm::configuration::documents(&three_nodes(), &machine(), "1.36.3", &names);
    let pem = "/etc/kubernetes/pki/kaas-api.pem";
    assert!(text.contains(&format!("\"value\": \"{pem},{pem}:api.example.com,*.k8s.example.com\"")), "{text}");
}

/// Finding 7 of controller.md.
#[test]
fn size_of_node_range_reaches_the_controller_manager() {
    let text = |prefix: u8| {
        let mut config = three_nodes();
        config.cluster.node_prefix = prefix;
        kubeadm::configuration::documents(&config, &machine(), "1.36.3", &[])
    };
    assert!(!text(24).contains("node-cidr-mask-size"), "existing clusters keep their arguments");
    assert_eq!(text(25).matches("node-cidr-mask-size").count(), 1);
}

#[test]
fn patches_have_marks_and_slow_hosts_timeouts() {
    let mut config = one_node();
    let marks = [("kube-apiserver", "0123".to_owned()), ("kube-scheduler", "4567".to_owned())];
    let mut all = String::new();
    for factor in [1, 5] {
        config.timeout_factor = factor;
        for (name, text) in kubeadm::configuration::patches(&config, &marks) {
            all += &format!("{name}\n{text}");
        }
    }
    insta::assert_snapshot!(all);
}

#[test]
fn containerd_on_a_machine_and_in_a_container() {
    let text = containerd::configuration(&machine(), "1.0.0");
    insta::assert_snapshot!(text);
    let (_root, platform) = container();
    let text = containerd::configuration(&platform, "1.0.0");
    assert!(text.contains("SystemdCgroup = false") && text.contains("restrict_oom_score_adj = true"), "{text}");
}

/// Answers every command with this.
struct Says(&'static str);

impl Runner for Says {
    fn run(&self, _: &Command) -> Result<Vec<u8>, command::Error> {
        Ok(self.0.as_bytes().to_vec())
    }
}

#[test]
fn containers_send_no_raw_packets_by_default() {
    // The output of `ctr oci spec` of containerd 2.4, shortened.
    let own = Says(
        r#"{"ociVersion": "1.3.0", "process": {"user": {"uid": 0, "gid": 0}, "cwd": "/", "capabilities": {
            "bounding": ["CAP_CHOWN", "CAP_NET_RAW", "CAP_NET_BIND_SERVICE"],
            "effective": ["CAP_CHOWN", "CAP_NET_RAW", "CAP_NET_BIND_SERVICE"],
            "permitted": ["CAP_CHOWN", "CAP_NET_RAW", "CAP_NET_BIND_SERVICE"]},
            "rlimits": [{"type": "RLIMIT_NOFILE", "hard": 1024, "soft": 1024}], "noNewPrivileges": true},
            "root": {"path": "rootfs"}}"#,
    );
    let spec: serde_json::Value = serde_json::from_slice(&containerd::container_spec(&own).unwrap()).unwrap();
    for set in ["bounding", "effective", "permitted"] {
        let expected = serde_json::json!(["CAP_CHOWN", "CAP_NET_BIND_SERVICE"]);
        assert_eq!(spec["process"]["capabilities"][set], expected, "{set}");
    }
    assert!(spec["process"].get("rlimits").is_none());
    assert_eq!(spec["root"]["path"], "rootfs");
    for strange in ["", "{}", r#"{"process": {}}"#] {
        assert!(containerd::container_spec(&Says(strange)).is_err(), "{strange}");
    }
}

#[test]
fn waiting_for_a_hanging_runtime_ends() {
    struct Limited;
    impl Runner for Limited {
        fn run(&self, command: &Command) -> Result<Vec<u8>, command::Error> {
            assert!(command.limit().as_secs() <= 60, "{:?}", command.limit());
            Ok(b"io.containerd.grpc.v1 cri linux/amd64 ok".to_vec())
        }
    }
    assert!(containerd::serves_kubernetes(&Limited).unwrap());
}

#[test]
fn a_registry_mirror_replaces_all_registries() {
    let (root, platform) = container();
    let mirrors = root.path().join("etc/containerd/certs.d/_default/hosts.toml");
    let own = root.path().join("etc/containerd/certs.d/kaas.local/hosts.toml");
    let nobody = "server = 'https://127.0.0.1:0'\n";
    assert!(containerd::lay_registries(&platform, None).unwrap());
    assert!(!containerd::lay_registries(&platform, None).unwrap());
    assert_eq!(std::fs::read_to_string(&own).unwrap(), nobody, "no mirror stands for what is carried");
    let mirror = Some("https://mirror.example/v2");
    assert!(containerd::lay_registries(&platform, mirror).unwrap());
    assert!(!containerd::lay_registries(&platform, mirror).unwrap());
    let expected = "[host.\"https://mirror.example/v2\"]\ncapabilities = ['pull', 'resolve']\n";
    assert_eq!(std::fs::read_to_string(&mirrors).unwrap(), expected);
    assert_eq!(std::fs::read_to_string(&own).unwrap(), nobody);
    assert!(containerd::lay_registries(&platform, None).unwrap());
    assert!(!mirrors.exists() && own.exists());
}

/// Upstream reports each look, every 10 s, once `nodeStatusUpdateFrequency` alone is set.
#[test]
fn an_unchanged_status_is_reported_every_five_minutes() {
    for factor in [1, 8] {
        let settings = kubelet::configuration(&one_node().node, one_node().cluster.dns_address(), factor, &machine());
        assert_eq!(settings["nodeStatusReportFrequency"], "5m");
    }
}

#[test]
fn tenant_control_planes_register_with_their_taint() {
    for (role, taints) in [
        (Role::ControlPlane, json!([])),
        (Role::TenantControlPlane, json!([{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}])),
    ] {
        let mut settings = kubelet::configuration(&one_node().node, one_node().cluster.dns_address(), 1, &machine());
        kubelet::of_control_plane(&mut settings, role);
        assert_eq!(settings["registerWithTaints"], taints);
        let mut config = one_node();
        config.role = role;
        let documents = kubeadm::configuration::documents(&config, &machine(), "1.36.3", &[]);
        let registered: serde_json::Value = serde_json::from_str(documents.split("\n---\n").next().unwrap()).unwrap();
        assert_eq!(registered["nodeRegistration"]["taints"], taints, "kubeadm marks it with the same");
    }
}

#[test]
fn a_contained_kubelet_stays_below_its_cgroup() {
    let (_root, platform) = container();
    let settings = kubelet::configuration(&one_node().node, one_node().cluster.dns_address(), 1, &platform);
    assert_eq!(settings["cgroupRoot"], "/lab/node1");
    assert_eq!(settings["cgroupDriver"], "cgroupfs");
    assert_eq!(settings["failCgroupV1"], false);
    assert_eq!(settings["resolvConf"], "");
}

#[test]
fn kube_proxy_leaves_a_containers_connection_tracking_alone() {
    let (_root, platform) = container();
    let pods = one_node().cluster.pod_cidr;
    let configuration = |platform| proxy::configuration(&Config::ControlPlane(one_node()), pods, platform);
    assert_eq!(configuration(&platform)["conntrack"]["maxPerCore"], 0);
    assert!(configuration(&machine()).get("conntrack").is_none());
}

#[test]
fn tenant_nodes_leave_service_vips_to_their_announcers() {
    let pods = one_node().cluster.pod_cidr;
    let strict = |config| proxy::configuration(&config, pods, &machine())["ipvs"]["strictARP"].clone();
    assert_eq!(strict(Config::ControlPlane(in_a_tenant(one_node()))), true);
    assert_eq!(strict(Config::Worker(joined())), true);
    assert!(strict(Config::ControlPlane(one_node())).is_null());
}

#[test]
fn external_ips_are_refused_and_routed_nowhere() {
    let arguments = api_server::arguments();
    let plugins = &arguments.iter().find(|(name, _)| *name == "enable-admission-plugins").unwrap().1;
    let plugins: Vec<_> = plugins.split(',').collect();
    // kubeadm's own choice gives way to this one.
    assert_eq!(plugins, ["NodeRestriction", "DenyServiceExternalIPs"]);
    let pods = one_node().cluster.pod_cidr;
    let proxy = proxy::configuration(&Config::ControlPlane(one_node()), pods, &machine());
    assert_eq!(proxy["featureGates"]["AllowServiceExternalIPs"], false);
}

#[test]
fn pods_leave_processes_to_the_node() {
    let settings = kubelet::configuration(&one_node().node, one_node().cluster.dns_address(), 1, &machine());
    let number = |value: &serde_json::Value| value.as_str().unwrap().parse::<u64>().unwrap();
    let reserved = number(&settings["systemReserved"]["pid"]);
    assert!(reserved > 0 && number(&settings["evictionHard"]["pid.available"]) > reserved, "{settings:#}");
    assert!(settings["podPidsLimit"].as_u64().is_some_and(|limit| (1..=reserved).contains(&limit)));
    // The other thresholds are the kubelet's own.
    assert_eq!(settings["evictionHard"].as_object().unwrap().len(), 1);
    assert_eq!(settings["mergeDefaultEvictionSettings"], true);
}

#[test]
fn larger_nodes_keep_more_memory_free_of_pods() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("proc")).unwrap();
    let reserved = |gib: u64| {
        let text = format!("MemTotal: {} kB\n", gib << 20);
        std::fs::write(root.path().join("proc/meminfo"), text).unwrap();
        let platform = Platform::detect(root.path()).unwrap();
        kubelet::configuration(&one_node().node, one_node().cluster.dns_address(), 1, &platform)["systemReserved"]["memory"]
            .clone()
    };
    let steps =
        [(1, "400Mi"), (2, "512Mi"), (4, "1024Mi"), (8, "1843Mi"), (16, "2662Mi"), (128, "9543Mi"), (256, "12164Mi")];
    for (gib, memory) in steps {
        assert_eq!(reserved(gib), memory, "{gib} GiB");
    }
}

#[test]
fn pods_end_before_a_shutdown() {
    let mut settings = kubelet::configuration(&one_node().node, one_node().cluster.dns_address(), 1, &machine());
    assert!(settings.get("shutdownGracePeriod").is_none());
    kubelet::of_worker(&mut settings, &joined().registration, None);
    let seconds = |name: &str| settings[name].as_str().unwrap().trim_end_matches('s').parse::<u32>().unwrap();
    let (whole, of_system) = (seconds("shutdownGracePeriod"), seconds("shutdownGracePeriodCriticalPods"));
    assert!(0 < of_system && of_system < whole);
    // Otherwise the kubelet writes its own file.
    let logind = include_str!("../../../../systemd/logind.conf.d/kaas.conf");
    let delay = logind.lines().find_map(|line| line.strip_prefix("InhibitDelayMaxSec=")).unwrap();
    assert!(delay.parse::<u32>().unwrap() > whole);
}

/// The kubelet does not start where one of these differs (`pkg/util/sysctl` and `cm/container_manager_linux.go`).
#[test]
fn the_image_sets_what_the_kubelet_protects() {
    let ours = include_str!("../../../../systemd/sysctl.d/60-kaas.conf");
    let unit = include_str!("../../../../systemd/system/kubelet.service");
    let again = unit.lines().find(|line| line.starts_with("ExecStartPre=-/usr/lib/systemd/systemd-sysctl ")).unwrap();
    for setting in [
        "vm.overcommit_memory = 1",
        "vm.panic_on_oom = 0",
        "kernel.panic = 10",
        "kernel.panic_on_oops = 1",
        "kernel.keys.root_maxkeys = 1000000",
        "kernel.keys.root_maxbytes = 25000000",
    ] {
        assert!(ours.lines().any(|line| line.trim_start_matches('-') == setting), "{setting}");
        let place = setting.split('.').next().unwrap();
        assert!(again.contains(&format!(" --prefix=/{place}")), "{setting} is not set again when the kubelet starts");
    }
    let protects = |platform: &Platform| {
        kubelet::configuration(&one_node().node, one_node().cluster.dns_address(), 1, platform)["protectKernelDefaults"]
            .clone()
    };
    assert_eq!(protects(&machine()), true);
    let (_root, container) = container();
    assert_eq!(protects(&container), false, "its settings are its host's");
}

#[test]
fn the_kubelet_forgets_pods_of_earlier_boots() {
    let root = tempfile::tempdir().unwrap();
    kubelet::forget_pods(root.path()).unwrap();
    let checkpoint = root.path().join("var/lib/kubelet/cpu_manager_state");
    let volume = root.path().join("var/lib/kubelet/pods/1/volumes/kubernetes.io~empty-dir/data");
    // containerd ends the pods of an earlier boot with it. Addresses are in /run.
    let result = root.path().join("var/lib/cni/results/kaas-1");
    for path in [&checkpoint, &volume, &result] {
        files::write_atomically(path, b"", 0o600).unwrap();
    }
    kubelet::forget_pods(root.path()).unwrap();
    assert!(!checkpoint.exists());
    assert!(volume.exists() && result.exists());
}

#[test]
fn the_newest_usable_certificate_replaces_an_unusable_one() {
    use crate::cluster::pki::{CertificateAuthorities, Leaf};
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("var/lib/kubelet/pki");
    let (now, at) = (std::time::SystemTime::now(), |name: &str| directory.join(name));
    let made = |at| {
        let authorities = CertificateAuthorities::make(at).unwrap();
        Leaf::client("system:node:worker1").issue(&authorities.kubernetes, at).unwrap()
    };
    let pair = made(now);
    let whole = [pair.certificate.as_str(), pair.key.expose()].concat();
    // By a clock that is two years ahead: CAs are valid from a year before.
    let early = made(now + std::time::Duration::from_secs(2 * 366 * 24 * 60 * 60));
    let early = [early.certificate.as_str(), early.key.expose()].concat();
    let mut zeros = whole.clone().into_bytes();
    zeros[100..].fill(0);
    let half = &whole.as_bytes()[..whole.len() - 40];
    let unusable: [&[u8]; 5] = [b"", &zeros, pair.certificate.as_bytes(), half, early.as_bytes()];
    let replace = || kubelet::replace_unusable_certificates(root.path(), now).unwrap();
    for unusable in unusable {
        let _ = std::fs::remove_dir_all(&directory);
        assert!(!replace(), "there is none");
        for (name, content) in [
            ("kubelet-client-2026-01-01-00-00-00.pem", b"".as_slice()),
            ("kubelet-client-2026-02-01-00-00-00.pem", whole.as_bytes()),
            ("kubelet-client-2026-03-01-00-00-00.pem", unusable),
            ("kubelet-server-2026-03-01-00-00-00.pem", unusable),
        ] {
            files::write_atomically(&at(name), content, 0o600).unwrap();
        }
        for kind in ["client", "server"] {
            let newest = at(&format!("kubelet-{kind}-2026-03-01-00-00-00.pem"));
            std::os::unix::fs::symlink(newest, at(&format!("kubelet-{kind}-current.pem"))).unwrap();
        }
        assert!(replace(), "the kubelet has to start again");
        assert_eq!(std::fs::read(at("kubelet-client-current.pem")).unwrap(), whole.as_bytes());
        assert!(at("kubelet-server-current.pem").symlink_metadata().is_err(), "the kubelet asks for a new one");
        // A usable certificate stays.
        files::write_atomically(&at("kubelet-client-2026-04-01-00-00-00.pem"), whole.as_bytes(), 0o600).unwrap();
        assert!(!replace());
        let link = std::fs::read_link(at("kubelet-client-current.pem")).unwrap();
        assert_eq!(link, Path::new("kubelet-client-2026-02-01-00-00-00.pem"));
    }
}

#[test]
fn after_a_wrong_time_certificates_are_linked_again() {
    use crate::cluster::pki::{self, CertificateAuthorities, CertificateWithKey, Leaf};
    const YEAR: std::time::Duration = std::time::Duration::from_secs(365 * 24 * 60 * 60);
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("var/lib/kubelet/pki");
    let (now, link) = (std::time::SystemTime::now(), directory.join("kubelet-client-current.pem"));
    let made = |at| {
        let authorities = CertificateAuthorities::make(at).unwrap();
        Leaf::client("system:node:worker1").issue(&authorities.kubernetes, at).unwrap()
    };
    let lay = |name: &str, pair: &CertificateWithKey| {
        let text = [pair.certificate.as_str(), pair.key.expose()].concat();
        files::write_atomically(&directory.join(name), text.as_bytes(), 0o600).unwrap();
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(name, &link).unwrap();
    };
    let give = |pair: CertificateWithKey| {
        let kubeconfig = pki::kubeconfig("https://10.0.0.10:6443".into(), "CA".into(), pair).render("worker1");
        files::write_atomically(&files::below(root.path(), kubelet::KUBECONFIG), kubeconfig.as_bytes(), 0o600).unwrap();
    };
    let replace = |at| kubelet::replace_unusable_certificates(root.path(), at).unwrap();
    let linked = || std::fs::read_link(&link).ok();
    let newest = Some(Path::new("kubelet-client-2026-02-01-00-00-00.pem").to_owned());
    let joined = made(now - 2 * YEAR);
    give(joined.clone());
    lay("kubelet-client-2026-02-01-00-00-00.pem", &made(now));
    assert!(!replace(now));
    assert!(replace(now - 20 * YEAR) && linked().is_none(), "none is valid yet");
    // The kubelet did not start meanwhile.
    assert!(replace(now));
    assert_eq!(linked(), newest);
    // The kubelet starts with the certificate that the worker joined with.
    lay("kubelet-client-2006-02-01-00-00-00.pem", &joined);
    assert!(replace(now));
    assert_eq!(linked(), newest);
    assert!(!replace(now));
    // The link is dangling, or was removed for a newer certificate.
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink("kubelet-client-2026-03-01-00-00-00.pem", &link).unwrap();
    assert!(replace(now));
    assert_eq!(linked(), newest);
    std::fs::remove_file(&link).unwrap();
    give(made(now + YEAR));
    assert!(!replace(now) && linked().is_none());
}

#[test]
fn workers_with_volume_disks_register_with_their_label() {
    use crate::intake::config::Registration;
    let pool = Registration { pool: Some("edge".to_owned()), ..Registration::default() };
    let label = format!("{}=true", contract::local_volumes::LABEL);
    assert_eq!(kubelet::labels(&Registration::default(), false), None);
    assert_eq!(kubelet::labels(&pool, false).unwrap(), "--node-labels=kaas.local/pool=edge");
    assert_eq!(kubelet::labels(&Registration::default(), true).unwrap(), format!("--node-labels={label}"));
    assert_eq!(kubelet::labels(&pool, true).unwrap(), format!("--node-labels=kaas.local/pool=edge,{label}"));
}
