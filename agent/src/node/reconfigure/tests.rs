//! Changes in each state of a node, on a temporary root.

use std::cell::Cell;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use contract::finding::Finding;
use contract::properties::Period;
use contract::secret::Secret;
use flate2::read::GzDecoder;
use tempfile::TempDir;

use super::*;
use crate::cluster::records::Progress;
use crate::host::files;
use crate::intake::config::fixture::{in_a_tenant, joined, three_nodes};
use crate::intake::config::{Address, Lease, Worker};
use crate::status::{Reporter, Work};

const SECRET: &str = "9f86d081884c7d659a2feaa0c55ad015";

struct Node {
    root: TempDir,
    restarts: Cell<u32>,
}

impl Node {
    /// A node that has stopped because it has no environment.
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let image = root.path().join("usr/lib/kaas");
        fs::create_dir_all(&image).unwrap();
        fs::write(image.join("image.json"), include_str!("../../intake/config/fixtures/image.json")).unwrap();
        let node = Self { root, restarts: Cell::new(0) };
        node.reports(|status| status.phase = Phase::Refused);
        node
    }

    fn path(&self) -> &Path {
        self.root.path()
    }

    fn reports(&self, change: impl FnOnce(&mut Status)) {
        Reporter::new(self.path(), Status::default()).update(change);
    }

    /// Inserts a CD-ROM with the valid environment, one text in it replaced by another of the same length.
    fn cdrom(self, from: &str, to: &str) -> Self {
        assert_eq!(from.len(), to.len());
        let mut image = Vec::new();
        let packed: &[u8] = include_bytes!("../../intake/environment/fixtures/iso/plain.iso.gz");
        GzDecoder::new(packed).read_to_end(&mut image).unwrap();
        let at = image.windows(from.len()).position(|window| window == from.as_bytes()).unwrap();
        image[at..at + to.len()].copy_from_slice(to.as_bytes());
        let directory = self.path().join("run/host/kaas");
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("cdrom.iso"), image).unwrap();
        let platform = r#"{"cdrom": "/run/host/kaas/cdrom.iso", "data_disks": [], "bios_uuid": "420f1a2b-0000-4000-8000-000000000001"}"#;
        fs::write(directory.join("platform.json"), platform).unwrap();
        self
    }

    fn saved(self) -> Self {
        Records::new(self.path())
            .save_config(&Config::ControlPlane(three_nodes()), &Secret::new(SECRET.to_owned()))
            .unwrap();
        self
    }

    fn formed(self) -> Self {
        let records = Records::new(self.path());
        records.save_progress(Progress { etcd: true, credentials: true, formed: true }).unwrap();
        records.erase_secret().unwrap();
        self
    }

    fn config(&self) -> Config {
        Records::new(self.path()).config().unwrap().unwrap()
    }

    fn apply(&self, changes: &[(&str, &str)]) -> Result<ReconfigureResult, Error> {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_900_000_000);
        apply_with(self.path(), changes, now, &|| {
            self.restarts.set(self.restarts.get() + 1);
            Ok(())
        })
    }

    fn refused(&self, changes: &[(&str, &str)]) -> Vec<(String, String)> {
        match self.apply(changes) {
            Err(Error::Refused(findings)) => {
                findings.iter().map(|Finding { code, subject, .. }| (code.clone(), subject.clone())).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    fn intake(&self) -> Result<Intake, Findings> {
        let platform = Platform::detect(self.path()).unwrap();
        let image = image::read(self.path()).unwrap();
        let overrides = Overrides::load(self.path()).unwrap();
        super::intake(source::from_platform(&platform), &image, &overrides, SystemTime::UNIX_EPOCH)
            .map(|(intake, _)| intake)
    }
}

const WHOLE: [(&str, &str); 6] = [
    ("node-name", "cp2"),
    ("address", "192.168.10.12/24"),
    ("control-nodes", "cp1=192.168.10.11,cp2=192.168.10.12,cp3=192.168.10.13"),
    ("api-vip", "192.168.10.10"),
    ("ssh-authorized-keys", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAMRuvzRF01LdOXikbVk9NHaLBNhwHeESbwCnTN+dPTR"),
    ("deployment-secret", SECRET),
];

#[test]
fn overrides_replace_a_missing_environment() {
    let node = Node::new();
    assert_eq!(node.intake().unwrap_err().iter().next().unwrap().code, "environment.absent");
    assert_eq!(node.apply(&WHOLE).unwrap().effect, Effect::Awaited);
    assert_eq!(node.restarts.get(), 0);
    let mode = fs::metadata(files::below(node.path(), PATH)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let intake = node.intake().unwrap();
    assert_eq!((intake.config.node().name.as_str(), intake.secret.expose()), ("cp2", SECRET));
    assert!(intake.warnings.is_empty());
    assert_eq!(node.apply(&WHOLE).unwrap().effect, Effect::Nothing);
    forget(node.path()).unwrap();
    assert!(node.intake().is_err() && Overrides::load(node.path()).unwrap().is_empty());
    assert!(!format!("{:?}", Overrides::load(node.path()).unwrap()).contains(SECRET));
}

#[test]
fn override_fixes_one_property_of_the_environment() {
    let node = Node::new().cdrom("\"192.168.10.1\"", "\"192.168.99.1\"");
    assert_eq!(node.intake().unwrap_err().iter().next().unwrap().code, "gateway.off-subnet");
    assert_eq!(node.apply(&[("gateway", "192.168.10.1")]).unwrap().effect, Effect::Awaited);
    let config = node.intake().unwrap().config;
    assert_eq!(config.node().interfaces[0].gateway, Some([192, 168, 10, 1].into()));
    assert_eq!(config.node().name, "cp1");
    // After its removal the property is as if it had never been set.
    node.apply(&[("gateway", "")]).unwrap();
    assert_eq!(node.intake().unwrap().config.node().interfaces[0].gateway, None);
}

#[test]
fn complete_overrides_turn_an_unreadable_environments_error() {
    let node = Node::new().cdrom("</Environment>", "</environment>");
    let codes = node.refused(&WHOLE[..5]);
    let codes: Vec<&str> = codes.iter().map(|(code, _)| code.as_str()).collect();
    assert_eq!(codes, ["environment.malformed", "property.missing"]);
    node.apply(&WHOLE).unwrap();
    let warnings = node.intake().unwrap().warnings;
    assert_eq!(warnings.iter().next().unwrap().code, "environment.source-ignored");
}

#[test]
fn all_findings_are_returned_and_nothing_saved() {
    let node = Node::new().cdrom("\"192.168.10.1\"", "\"192.168.99.1\"");
    let found = node.refused(&[("timeout-factor", "99"), ("node-name", "cp9")]);
    let keys: Vec<&str> = found.iter().map(|(_, key)| key.as_str()).collect();
    assert_eq!(keys, ["timeout-factor", "node-name", "gateway"]);
    assert!(Overrides::load(node.path()).unwrap().is_empty());
    assert_eq!(node.refused(&[("gatway", "x"), ("dns", "y")]).len(), 2);
}

#[test]
fn agent_with_a_plan_is_restarted() {
    let node = Node::new();
    let work = Work { number: 1, total: 9, step: "configuring the network".into(), waiting: None };
    node.reports(|status| (status.phase, status.work) = (Phase::Refused, Some(work)));
    assert_eq!(node.apply(&WHOLE).unwrap().effect, Effect::Restarted);
    assert_eq!(node.restarts.get(), 1);
}

#[test]
fn change_fails_while_the_agent_still_looks() {
    let node = Node::new();
    node.reports(|status| status.image = "image".into());
    assert!(matches!(node.apply(&WHOLE), Err(Error::Failed(_))));
    assert!(Overrides::load(node.path()).unwrap().is_empty());
}

#[test]
fn unformed_configuration_may_change_completely() {
    let node = Node::new().saved();
    let changes = [("node-name", "n9"), ("control-nodes", "n9=10.0.0.1,n2=10.0.0.2,n3=10.0.0.3")];
    let found = node.refused(&changes[..1]);
    assert_eq!(found[0].0, "control-nodes.not-listed");
    let own = three_nodes().address();
    let list = three_nodes().cluster.control_nodes.clone();
    let list: Vec<String> = list
        .iter()
        .map(|other| format!("{}={}", if other.address == own { "n9" } else { &other.name }, other.address))
        .collect();
    assert_eq!(
        node.apply(&[("node-name", "n9"), ("control-nodes", &list.join(","))]).unwrap().effect,
        Effect::Restarted
    );
    assert_eq!(node.config().node().name, "n9");
    assert_eq!(Records::new(node.path()).secret().unwrap().unwrap().expose(), SECRET);
}

#[test]
fn properties_of_the_formed_cluster_stay() {
    let node = Node::new().saved().formed();
    let before = node.config();
    let found = node.refused(&[("node-name", "other"), ("api-vip", "10.9.9.9"), ("deployment-secret", SECRET)]);
    let expected = ["node-name", "api-vip", "deployment-secret"].map(|key| ("property.fixed".into(), key.into()));
    assert_eq!(found, expected);
    assert_eq!(node.config(), before);
    // A form returns the values that it was shown.
    let same = [("node-name", before.node().name.as_str()), ("ntp-servers", "ntp.example.com")];
    assert_eq!(node.apply(&same).unwrap().effect, Effect::Restarted);
    assert_eq!(node.config().node().ntp_servers, ["ntp.example.com"]);
    assert_eq!(node.config().control_plane().unwrap().cluster, before.control_plane().unwrap().cluster);
    assert_eq!(node.apply(&same).unwrap().effect, Effect::Nothing);
    assert_eq!(node.restarts.get(), 1);
    // Adapters are no properties and stay.
    assert_eq!(node.config().node().interfaces, before.node().interfaces);
    assert_eq!(Lifecycle::of(node.path()).unwrap(), Lifecycle::Settled(node.config()));
}

#[test]
fn snapshot_interval_may_change_after_forming() {
    let node = Node::new().saved().formed();
    let every = || node.config().control_plane().unwrap().snapshot_every;
    assert_eq!(every(), Period::hours(6));
    assert_eq!(node.apply(&[("snapshot-every", "15m")]).unwrap().effect, Effect::Restarted);
    assert_eq!(every(), Period::minutes(15));
    assert_eq!(node.refused(&[("snapshot-every", "5m")])[0].0, "property.out-of-range");
    assert_eq!(every(), Period::minutes(15));
    node.apply(&[("snapshot-every", "")]).unwrap();
    assert_eq!(every(), Period::hours(6), "taken out, it is the default");
}

#[test]
fn failed_restart_reports_the_change_as_saved() {
    let node = Node::new().saved().formed();
    let error =
        apply_with(node.path(), &[("timeout-factor", "4")], SystemTime::UNIX_EPOCH, &|| anyhow::bail!("no bus"));
    assert!(error.unwrap_err().to_string().contains("is saved"));
    assert_eq!(node.config().timeout_factor(), 4);
}

#[test]
fn unknown_property_is_refused_by_its_name() {
    let node = Node::new().saved();
    let saved = node.config();
    let Err(Error::Refused(findings)) = node.apply(&[("timeout-factor", "4"), ("dns-server", "10.0.0.2")]) else {
        panic!("it was changed")
    };
    assert_eq!(findings.iter().map(|finding| finding.code.as_str()).collect::<Vec<_>>(), ["property.unknown"]);
    assert!(findings.to_string().contains("dns-server"), "{findings}");
    assert_eq!(node.config(), saved);
}

#[test]
fn role_is_fixed_once_saved() {
    let node = Node::new().saved();
    let file = node.path().join("usr/lib/kaas/image.json");
    let text = std::fs::read_to_string(&file).unwrap();
    let several = r#""role": "control-plane", "roles": ["control-plane", "tenant-control-plane"]"#;
    std::fs::write(&file, text.replace(r#""role": "control-plane""#, several)).unwrap();
    let Err(Error::Refused(findings)) = node.apply(&[("role", "tenant-control-plane")]) else {
        panic!("it was changed")
    };
    assert_eq!(findings.iter().map(|finding| finding.code.as_str()).collect::<Vec<_>>(), ["role.other"]);
    let saved = node.config();
    node.apply(&[("role", "control-plane"), ("timeout-factor", "4")]).unwrap();
    assert_eq!((node.config().role(), node.config().timeout_factor()), (saved.role(), 4));
}

#[test]
fn disk_of_another_role_is_not_changed() {
    let node = Node::new().saved().formed();
    let records = Records::new(node.path());
    let config = Config::ControlPlane(in_a_tenant(three_nodes()));
    records.update_config(&config, None).unwrap();
    let Err(Error::Refused(findings)) = node.apply(&[("timeout-factor", "4")]) else { panic!("it was changed") };
    assert_eq!(findings.iter().map(|finding| finding.code.as_str()).collect::<Vec<_>>(), ["role.other"]);
    assert_eq!((node.config(), node.restarts.get()), (config, 0));
}

/// A node that has joined a cluster as this worker.
fn member(worker: Worker) -> Node {
    let node = Node::new();
    let facts = include_str!("../../intake/config/fixtures/image.json");
    let facts = facts.replace("\"role\": \"control-plane\"", "\"role\": \"worker\"");
    fs::write(node.path().join("usr/lib/kaas/image.json"), facts).unwrap();
    let records = Records::new(node.path());
    records.save_config(&Config::Worker(worker), &Secret::new("abcdef.0123456789abcdef".to_owned())).unwrap();
    records.save_progress(Progress { formed: true, ..Progress::default() }).unwrap();
    records.erase_secret().unwrap();
    node
}

#[test]
fn dhcp_worker_refuses_gateway_outside_its_lease() {
    let mut worker = joined();
    let lease = Lease { address: "10.0.0.21/24".parse().unwrap(), ntp_servers: Vec::new() };
    worker.node.interfaces[0].address = Address::Dhcp { lease: Some(lease) };
    let node = member(worker);
    let before = node.config();
    assert_eq!(node.refused(&[("gateway", "10.7.0.1")]), [("gateway.off-subnet".into(), "gateway".into())]);
    assert_eq!(node.refused(&[("address", "10.0.0.21/24")]), [("property.fixed".into(), "address".into())]);
    assert_eq!((node.config(), node.restarts.get()), (before.clone(), 0));
    assert_eq!(node.apply(&[("gateway", "10.0.0.254"), ("address", "DHCP")]).unwrap().effect, Effect::Restarted);
    assert_eq!(node.config().node().interfaces[0].gateway, Some([10, 0, 0, 254].into()));
    assert_eq!(node.config().node().lease(), before.node().lease());
}

#[test]
fn joined_worker_takes_a_new_token() {
    let config = Config::Worker(joined());
    let node = member(joined());
    let records = Records::new(node.path());
    assert_eq!(Lifecycle::of(node.path()).unwrap(), Lifecycle::Settled(config.clone()));
    assert_eq!(node.refused(&[("cluster-name", "another")]), [("property.fixed".into(), "cluster-name".into())]);
    let token = "fedcba.fedcba9876543210";
    assert_eq!(node.apply(&[("join-token", token)]).unwrap().effect, Effect::Restarted);
    assert_eq!(records.secret().unwrap().unwrap().expose(), token);
    assert_eq!(node.config(), config);
    // Its certificate has expired, and the token was erased: all properties may be changed again.
    records.save_progress(Progress::default()).unwrap();
    records.erase_secret().unwrap();
    assert_eq!(node.refused(&[("timeout-factor", "2")]), [("property.missing".into(), "join-token".into())]);
    node.apply(&[("join-token", token)]).unwrap();
    assert_eq!(records.secret().unwrap().unwrap().expose(), token);
}
