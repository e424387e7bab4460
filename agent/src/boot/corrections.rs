//! Corrected properties: an OVF environment other than the one that the node's configuration came from.
//!
//! It is used until the node belongs to a cluster. Errors of this node or another one are fixed in the form, without a
//! new disk and without a restart. The node reads the form at the next power-on, or when another CD-ROM is attached.

use std::cell::RefCell;
use std::time::{Duration, Instant, SystemTime};

use contract::codes;
use contract::finding::Findings;
use contract::image::ImageFacts;
use contract::properties;
use contract::properties::parse::join::token;
use contract::role::Roles;
use contract::secret::Secret;

use crate::cluster::records::Records;
use crate::host::platform::Platform;
use crate::intake::config::{Config, Intake, Worker};
use crate::intake::environment::{Document, Outcome, source};
use crate::node::reconfigure::{self, Lifecycle, Overrides};

/// Pause between two reads of the OVF environment.
pub const AGAIN: Duration = Duration::from_secs(5);

pub struct EnvironmentConfig {
    pub config: Config,
    /// The role's one-time secret.
    pub secret: Secret,
    /// Identifies the environment. `None` if the secrets were removed from it.
    pub fingerprint: Option<String>,
    /// Findings that are no errors.
    pub warnings: Findings,
}

/// Reads and validates the OVF environment, with the changes made on the console.
pub fn from_environment(platform: &Platform, image: &ImageFacts) -> Result<EnvironmentConfig, Findings> {
    from_source(platform, image, || source::from_platform(platform))
}

/// Reads the `environment` once, so that the fingerprint belongs to the returned configuration.
fn from_source(
    platform: &Platform,
    image: &ImageFacts,
    environment: impl FnOnce() -> Outcome,
) -> Result<EnvironmentConfig, Findings> {
    let overrides = Overrides::load(platform.root()).unwrap_or_else(|error| {
        log::warn!("{error:#}");
        Overrides::default()
    });
    let (intake, fingerprint) = reconfigure::intake(environment(), image, &overrides, SystemTime::now())?;
    let Intake { config, secret, warnings } = intake;
    Ok(EnvironmentConfig { config, secret, fingerprint, warnings })
}

/// Whether the findings are those of an untouched form: all required properties are missing, and no other is wrong.
/// Such a form has the image's first role.
pub fn is_untouched(findings: &Findings, roles: &Roles) -> bool {
    let required = properties::table().iter().filter(|property| property.required(roles.first()));
    let required: Vec<&str> = required.map(|property| property.key).collect();
    let asked: Vec<_> = findings.iter().filter(|finding| finding.code != codes::ACCESS_NONE.code).collect();
    asked.iter().all(|finding| finding.code == codes::PROPERTY_MISSING.code)
        && asked.iter().map(|finding| finding.subject.as_str()).eq(required)
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnvironmentCheck {
    /// Whether there is an environment other than the configuration's, and it may be used.
    pub another: bool,
    /// Why an environment cannot be used. These are warnings, because the node works with its configuration.
    pub passed_over: Findings,
}

/// The configuration from properties that were corrected after it had been saved, or the errors in them. `None` if
/// there are no such properties, or if they may no longer be used. Also returns the warnings of an ignored environment.
pub fn corrected(
    platform: &Platform,
    image: &ImageFacts,
) -> anyhow::Result<(Option<Result<EnvironmentConfig, Findings>>, Findings)> {
    let Lifecycle::Unformed(saved) = Lifecycle::of(platform.root())? else {
        return Ok((None, Findings::default()));
    };
    let sight = look(platform, None)?;
    if let Some(worker) = former_member(platform)? {
        let found = sight.another.then(|| taken_by(saved, &worker, source::from_platform(platform))).flatten();
        return Ok((found.map(Ok), sight.passed_over));
    }
    let of_the_same_role = |found: EnvironmentConfig| match saved.has_role_of(&found.config) {
        Ok(()) => Ok(found),
        Err(finding) => Err(Findings::from(finding)),
    };
    let corrected = sight.another.then(|| from_environment(platform, image).and_then(of_the_same_role));
    Ok((corrected, sight.passed_over))
}

/// A worker whose certificate has expired.
///
/// Pods have run in its VM, and any process there can write an environment into guestinfo. Therefore the worker takes
/// only a token for its own cluster from there. Other changes require `configure`, which root alone can run, or a
/// reset.
fn former_member(platform: &Platform) -> anyhow::Result<Option<Worker>> {
    Ok(match Lifecycle::of(platform.root())? {
        Lifecycle::Unformed(Config::Worker(worker)) if Records::new(platform.root()).progress()?.credentials => {
            Some(worker)
        }
        _ => None,
    })
}

/// Such a worker keeps its own configuration and takes the token.
fn taken_by(saved: Config, worker: &Worker, environment: Outcome) -> Option<EnvironmentConfig> {
    let (document, ..) = environment.document().ok()?;
    let (secret, fingerprint) = (token_of_own_cluster(&document, worker)?, document.fingerprint());
    Some(EnvironmentConfig { config: saved, secret, fingerprint, warnings: Findings::default() })
}

/// The join token, if the environment is for the worker's own cluster.
fn token_of_own_cluster(document: &Document, worker: &Worker) -> Option<Secret> {
    let given = |key| document.value(properties::find(key)?).ok()?.map(str::trim);
    let hash = given(properties::CLUSTER_CA_HASH)?.to_ascii_lowercase();
    let own = hash == worker.cluster.ca_hash && given(properties::CLUSTER_NAME)? == worker.cluster.name;
    given(properties::JOIN_TOKEN).filter(|_| own).and_then(|text| token(text).ok())
}

/// Warns that the OVF environment names a cluster other than the one that the worker has joined. The worker stays.
pub fn asked_elsewhere(saved: &Config, platform: &Platform) -> Findings {
    let Ok(Lifecycle::Settled(Config::Worker(Worker { cluster, .. }))) = Lifecycle::of(platform.root()) else {
        return Findings::default();
    };
    let property = properties::find(properties::CLUSTER_CA_HASH).expect("a key of the table");
    let asked = source::from_platform(platform).document().ok().and_then(|(document, ..)| {
        let text = document.value(property).ok()??.trim().to_ascii_lowercase();
        (!text.is_empty()).then_some(text)
    });
    if asked.is_none_or(|asked| asked == cluster.ca_hash) {
        return Findings::default();
    }
    let finding = codes::JOIN_OTHER_CLUSTER.finding(
        properties::CLUSTER_CA_HASH,
        format!(
            "the properties ask {} into another cluster, and it is a worker of {}",
            saved.node().name,
            cluster.name
        ),
        "Reset this VM first, or deploy another one",
    );
    finding.softened().into()
}

/// Looks for an OVF environment other than the configuration's. `taken` is the fingerprint of the one that was read at
/// this boot, which may not be saved yet.
pub fn look(platform: &Platform, taken: Option<&str>) -> anyhow::Result<EnvironmentCheck> {
    look_at(platform, taken, || source::from_platform(platform))
}

fn look_at(
    platform: &Platform,
    taken: Option<&str>,
    environment: impl FnOnce() -> Outcome,
) -> anyhow::Result<EnvironmentCheck> {
    let taken = match (Lifecycle::of(platform.root())?, taken) {
        (Lifecycle::Settled(_), _) => return Ok(EnvironmentCheck::default()),
        (Lifecycle::Unformed(_), None) => Records::new(platform.root()).environment()?,
        (_, taken) => taken.map(str::to_owned),
    };
    let former = former_member(platform)?;
    let counts =
        |document: &Document| former.as_ref().is_none_or(|worker| token_of_own_cluster(document, worker).is_some());
    let (there, wrong) = match environment() {
        Outcome::Found { document, warnings, .. } => (document.fingerprint().filter(|_| counts(&document)), warnings),
        Outcome::Absent { .. } => (None, Findings::default()),
        Outcome::Refused(findings) => (None, findings),
    };
    let mut passed_over = Findings::default();
    for mut finding in wrong.iter().cloned() {
        finding.seen.push_str("; the node keeps its present properties");
        passed_over.push(finding.softened());
    }
    Ok(EnvironmentCheck { another: there.is_some() && there != taken, passed_over })
}

#[derive(Default)]
pub struct Throttle {
    looked: RefCell<Option<(Instant, EnvironmentCheck)>>,
}

impl Throttle {
    /// The result of `look`, at most [`AGAIN`] old at `now`.
    pub fn ask(&self, now: Instant, look: impl FnOnce() -> anyhow::Result<EnvironmentCheck>) -> EnvironmentCheck {
        let mut looked = self.looked.borrow_mut();
        match looked.as_ref() {
            Some((at, sight)) if now < *at + AGAIN => sight.clone(),
            _ => {
                let sight = look().unwrap_or_else(|error| {
                    log::warn!("looking for corrected properties: {error:#}");
                    EnvironmentCheck::default()
                });
                *looked = Some((now, sight.clone()));
                sight
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs;
    use std::io::Read as _;
    use std::path::Path;

    use flate2::read::GzDecoder;
    use tempfile::TempDir;
    use zeroize::Zeroizing;

    use super::*;
    use crate::cluster::records::Progress;
    use crate::host::files;
    use crate::host::vmware::backdoor::emulated::Hypervisor;
    use crate::intake::config::fixture::{in_a_tenant, joined};
    use crate::intake::config::validate;
    use crate::intake::environment::Origin;
    use crate::intake::environment::guestinfo::{GuestInfo, OVF_ENVIRONMENT, Scrubbed};
    use contract::platform::CONTAINER_FILE;
    use contract::role::{Role, Roles};

    const CDROM: &str = "/run/host/kaas/cdrom.iso";

    /// A running node with a drive, as in the lab's containers.
    struct Node {
        root: TempDir,
        platform: Platform,
        image: ImageFacts,
    }

    impl Node {
        fn new() -> Self {
            let root = tempfile::tempdir().unwrap();
            let image = root.path().join("usr/lib/kaas");
            fs::create_dir_all(&image).unwrap();
            fs::write(image.join("image.json"), include_str!("../intake/config/fixtures/image.json")).unwrap();
            let file = files::below(root.path(), CONTAINER_FILE);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            let text = r#"{"cdrom": "CDROM", "data_disks": [], "bios_uuid": "420f1a2b-0000-4000-8000-000000000001"}"#;
            fs::write(&file, text.replace("CDROM", CDROM)).unwrap();
            let platform = Platform::detect(root.path()).unwrap();
            let image = crate::host::image::read(root.path()).unwrap();
            Self { root, platform, image }
        }

        fn path(&self) -> &Path {
            self.root.path()
        }

        /// Inserts the valid CD-ROM with one text replaced by another of the same length.
        fn insert(&self, from: &str, to: &str) {
            assert_eq!(from.len(), to.len());
            let mut iso = Vec::new();
            let packed: &[u8] = include_bytes!("../intake/environment/fixtures/iso/plain.iso.gz");
            GzDecoder::new(packed).read_to_end(&mut iso).unwrap();
            let at = iso.windows(from.len()).position(|window| window == from.as_bytes()).unwrap();
            iso[at..at + to.len()].copy_from_slice(to.as_bytes());
            fs::write(files::below(self.path(), CDROM), iso).unwrap();
        }

        fn insert_good(&self) {
            self.insert("\"192.168.10.1\"", "\"192.168.10.1\"");
        }

        fn eject(&self) {
            fs::remove_file(files::below(self.path(), CDROM)).unwrap();
        }

        fn codes(&self) -> Vec<String> {
            match from_environment(&self.platform, &self.image) {
                Ok(_) => Vec::new(),
                Err(findings) => findings.iter().map(|finding| finding.code.clone()).collect(),
            }
        }

        fn is_another(&self, taken: Option<&str>) -> bool {
            look(&self.platform, taken).unwrap().another
        }
    }

    #[test]
    fn valid_medium_replaces_each_invalid_one() {
        let node = Node::new();
        assert_eq!(node.codes(), ["environment.absent"]);
        for (from, to, code) in [
            ("</Environment>", "<!-- cut off -", "environment.truncated"),
            ("</Environment>", "</Envir0nment>", "environment.malformed"),
            (
                "<?xml version=\"1.0\" encoding=\"UTF-8\"?>",
                "<!DOCTYPE a [<!ENTITY b \"c\">]>        ",
                "environment.entities",
            ),
            ("\"192.168.10.1\"", "\"192.168.99.1\"", "gateway.off-subnet"),
            ("\"192.168.10.1\"", "\"192.168.10.x\"", "property.malformed"),
        ] {
            node.insert(from, to);
            assert!(node.codes().contains(&code.to_owned()), "{to}: {:?}", node.codes());
            node.insert_good();
            assert_eq!(node.codes(), [""; 0], "after {code}");
            node.eject();
            assert_eq!(node.codes(), ["environment.absent"]);
        }
    }

    #[test]
    fn untouched_form_differs_from_begun_form() {
        let image = Node::new().image;
        let findings = |values: &[(&str, &str)]| {
            let values = values.iter().map(|(key, value)| ((*key).to_owned(), Zeroizing::new((*value).to_owned())));
            validate(&Document::of(values.collect(), Vec::new()), &image, SystemTime::now()).unwrap_err()
        };
        let as_it_comes = [("node-name", ""), ("pod-cidr", "10.244.0.0/16"), ("timeout-factor", "1")];
        for untouched in [&[], as_it_comes.as_slice()] {
            assert!(is_untouched(&findings(untouched), &image.roles), "{untouched:?}");
        }
        for begun in [("node-name", "cp1"), ("node-name", "CP 1"), ("gateway", "10.0.0")] {
            assert!(!is_untouched(&findings(&[begun]), &image.roles), "{begun:?}");
        }
    }

    #[test]
    fn another_environment_replaces_an_unsaved_configuration() {
        let node = Node::new();
        node.insert_good();
        let taken = from_environment(&node.platform, &node.image).ok().unwrap().fingerprint;
        assert!(!node.is_another(taken.as_deref()));
        node.insert("</Environment>", "<!-- cut off -");
        assert!(!node.is_another(taken.as_deref()), "nothing is gained by what cannot be read");
        node.insert("\"192.168.10.1\"", "\"192.168.10.2\"");
        assert!(node.is_another(taken.as_deref()));
        node.eject();
        assert!(!node.is_another(taken.as_deref()));
    }

    #[test]
    fn environment_corrects_configuration_until_the_cluster_forms() {
        let node = Node::new();
        node.insert_good();
        let found = from_environment(&node.platform, &node.image).ok().unwrap();
        let records = Records::new(node.path());
        records.save_config(&found.config, &found.secret).unwrap();
        records.save_environment(&found.fingerprint.unwrap()).unwrap();
        let corrected = || corrected(&node.platform, &node.image).unwrap().0;
        assert!(!node.is_another(None) && corrected().is_none());
        // As after each boot: the node ejects the medium, because it contains secrets.
        node.eject();
        assert!(!node.is_another(None) && corrected().is_none());
        node.insert_good();
        assert!(!node.is_another(None), "the same one again");
        node.insert("\"192.168.10.1\"", "\"192.168.99.1\"");
        assert!(node.is_another(None));
        assert!(corrected().unwrap().is_err_and(|findings| findings.to_string().contains("gateway.off-subnet")));
        node.insert("\"192.168.10.1\"", "\"192.168.10.2\"");
        let found = corrected().unwrap().ok().unwrap();
        assert_eq!(found.config.node().interfaces[0].gateway, Some([192, 168, 10, 2].into()));
        assert!(!node.is_another(found.fingerprint.as_deref()), "it is taken already, and will be saved");
        records.save_progress(Progress { etcd: true, ..Progress::default() }).unwrap();
        assert!(!node.is_another(None) && corrected().is_none(), "the cluster was formed with the other one");
    }

    #[test]
    fn corrected_properties_with_another_role_are_refused() {
        let mut node = Node::new();
        node.insert_good();
        let found = from_environment(&node.platform, &node.image).ok().unwrap();
        let saved = found.config.control_plane().unwrap().clone();
        let records = Records::new(node.path());
        records.save_config(&Config::ControlPlane(in_a_tenant(saved)), &found.secret).unwrap();
        records.save_environment(&found.fingerprint.unwrap()).unwrap();
        node.insert("\"192.168.10.1\"", "\"192.168.10.2\"");
        // A form without a role has the image's first role.
        node.image.roles = Roles::new(vec![Role::ControlPlane, Role::TenantControlPlane]).unwrap();
        let findings = corrected(&node.platform, &node.image).unwrap().0.unwrap().err().unwrap();
        assert_eq!(findings.iter().map(|finding| finding.code.as_str()).collect::<Vec<_>>(), ["role.other"]);
        assert!(
            findings.to_string().contains("the data disk is that of a control-plane node of a tenant"),
            "{findings}"
        );
        node.image.roles = Roles::new(vec![Role::TenantControlPlane, Role::ControlPlane]).unwrap();
        let taken = corrected(&node.platform, &node.image).unwrap().0.unwrap().ok().unwrap();
        assert_eq!(taken.config.role(), Role::TenantControlPlane);
    }

    /// A worker's environment with these values.
    fn form(values: &[(&str, &str)]) -> Outcome {
        let joined = joined();
        let own = [
            ("role", "worker"),
            ("node-name", "worker1"),
            ("cluster-name", joined.cluster.name.as_str()),
            ("cluster-ca-hash", joined.cluster.ca_hash.as_str()),
            ("join-token", "fedcba.fedcba9876543210"),
        ];
        let given = own.iter().filter(|(key, _)| values.iter().all(|(other, _)| key != other)).chain(values);
        let given = given.map(|(key, value)| ((*key).to_owned(), Zeroizing::new((*value).to_owned())));
        let document = Document::of(given.collect(), Vec::new());
        Outcome::Found { document, origin: Origin::GuestInfo, warnings: Findings::default() }
    }

    #[test]
    fn former_member_takes_only_its_own_clusters_token() {
        let node = Node::new();
        let (records, worker) = (Records::new(node.path()), joined());
        let saved = Config::Worker(worker.clone());
        records.save_config(&saved, &Secret::new("abcdef.0123456789abcdef".to_owned())).unwrap();
        records.save_environment("of the first form").unwrap();
        let another = |values: &[(&str, &str)]| look_at(&node.platform, None, || form(values)).unwrap().another;
        let elsewhere: [&[(&str, &str)]; 4] = [
            &[("cluster-ca-hash", "sha256:1111111111111111111111111111111111111111111111111111111111111111")],
            &[("cluster-ca-hash", "")],
            &[("cluster-name", "another")],
            // This environment differs from the one read before, but has no token.
            &[("join-token", ""), ("deployment-secret", "0123456789abcdef0123456789abcdef")],
        ];
        assert!(another(elsewhere[0]), "before it has joined, whatever form there is counts");
        let own = form(&[]).document().unwrap().0.fingerprint().unwrap();
        // The worker joined with an environment that the hypervisor shows at each power-on. Its certificate has
        // expired.
        records.save_environment(&own).unwrap();
        records.erase_token().unwrap();
        records.save_progress(Progress { credentials: true, ..Progress::default() }).unwrap();
        for values in elsewhere {
            assert!(!another(values), "{values:?}");
        }
        assert!(!another(&[]), "the token that it has joined with is no new one");
        records.save_environment("of another form").unwrap();
        assert!(another(&[]), "a new token in the form");
        let with_key = [("ssh-authorized-keys", "ssh-ed25519 AAAA"), ("api-vip", "10.0.0.66")];
        assert!(another(&with_key));
        let taken = taken_by(saved.clone(), &worker, form(&with_key)).unwrap();
        assert_eq!((taken.config, taken.secret.expose()), (saved, "fedcba.fedcba9876543210"));
        assert!(!look_at(&node.platform, taken.fingerprint.as_deref(), || form(&with_key)).unwrap().another);
    }

    /// The sources of a node on vCenter: guestinfo and the drive.
    fn both(node: &Node, guestinfo: &mut GuestInfo<Hypervisor>) -> Outcome {
        source::read(Some(guestinfo), &node.platform.environment_media().unwrap())
    }

    #[test]
    fn corrected_medium_conflicts_until_guestinfo_is_scrubbed() {
        let node = Node::new();
        node.insert_good();
        let found = from_environment(&node.platform, &node.image).ok().unwrap();
        let records = Records::new(node.path());
        records.save_config(&found.config, &found.secret).unwrap();
        records.save_environment(&found.fingerprint.unwrap()).unwrap();
        node.eject();
        let good = include_str!("../intake/environment/fixtures/three-nodes.xml");
        let mut guestinfo = GuestInfo::new(Hypervisor::with(OVF_ENVIRONMENT, good));
        let look =
            |guestinfo: &mut GuestInfo<Hypervisor>| look_at(&node.platform, None, || both(&node, guestinfo)).unwrap();
        assert_eq!(look(&mut guestinfo), EnvironmentCheck::default());
        node.insert("\"192.168.10.1\"", "\"192.168.10.2\"");
        let sight = look(&mut guestinfo);
        assert!(!sight.another && !sight.passed_over.has_errors());
        assert_eq!(sight.passed_over.iter().next().unwrap().code, "environment.conflict");
        assert_eq!(guestinfo.scrub().unwrap(), Scrubbed::Secrets);
        assert_eq!(look(&mut guestinfo), EnvironmentCheck { another: true, ..EnvironmentCheck::default() });
        let found = from_source(&node.platform, &node.image, || both(&node, &mut guestinfo)).ok().unwrap();
        assert_eq!(found.config.node().interfaces[0].gateway, Some([192, 168, 10, 2].into()));
        node.insert("</Environment>", "<!-- cut off -");
        let sight = look(&mut guestinfo);
        assert!(!sight.another && !sight.passed_over.has_errors());
        assert_eq!(sight.passed_over.iter().next().unwrap().code, "environment.truncated");
        records.save_progress(Progress { etcd: true, ..Progress::default() }).unwrap();
        assert_eq!(look(&mut guestinfo), EnvironmentCheck::default(), "nothing is to be corrected any more");
    }

    #[test]
    fn fingerprint_belongs_to_the_document_used() {
        let node = Node::new();
        node.insert_good();
        let taken = from_source(&node.platform, &node.image, || {
            let first = source::from_platform(&node.platform);
            // A second read would find another environment.
            node.insert("\"192.168.10.1\"", "\"192.168.10.2\"");
            first
        });
        let taken = taken.ok().unwrap();
        assert_eq!(taken.config.node().interfaces[0].gateway, Some([192, 168, 10, 1].into()));
        assert!(node.is_another(taken.fingerprint.as_deref()), "the other one is still to be taken up");
    }

    #[test]
    fn medium_is_read_at_most_once_per_pause() {
        let (throttle, start) = (Throttle::default(), Instant::now());
        let looks = Cell::new(0);
        let ask = |after: Duration, found: anyhow::Result<bool>| {
            let sight = throttle.ask(start + after, || {
                looks.set(looks.get() + 1);
                found.map(|another| EnvironmentCheck { another, ..EnvironmentCheck::default() })
            });
            sight.another
        };
        assert!(!ask(Duration::ZERO, Ok(false)));
        assert!(!ask(AGAIN / 2, Ok(true)), "it is not due");
        assert!(ask(AGAIN, Ok(true)));
        assert!(ask(AGAIN + AGAIN / 2, Ok(false)));
        assert!(!ask(2 * AGAIN, Err(anyhow::anyhow!("no disk"))));
        assert_eq!(looks.get(), 3);
    }
}
