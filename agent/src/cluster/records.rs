//! The agent's records on the data disk: one file for each record. Each file is written as a whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context;
use contract::codes;
use contract::finding::Findings;
use contract::json;
use contract::paths;
use contract::secret::Secret;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use zeroize::{Zeroize as _, Zeroizing};

use crate::cluster::rendezvous::RendezvousRecord;
use crate::host::files;
use crate::intake::config::Config;

const CONFIG: &str = "config.json";
const CONFIG_COPY: &str = "config-copy.json";
const SECRET: &str = "secret";
const ENVIRONMENT: &str = "environment";
const RENDEZVOUS: &str = "rendezvous.json";
const PROGRESS: &str = "progress.json";
const PLAN: &str = "plan.json";
const DISK_COUNTER: &str = "disk-counter.json";
const SWAPS: &str = "swaps.log";

/// A record in a separate file.
pub trait Entry: Serialize + DeserializeOwned {
    /// The file's name. No other entry has it.
    const FILE: &'static str;
    /// The name of the record in errors.
    const WHAT: &'static str;
}

/// The one-time work that this node has done, and need not or must not do again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// etcd has had a quorum with this node's member. From then on a member without data is a loss, not a beginning.
    pub etcd: bool,
    /// kubeadm's certificates and kubeconfigs are all on the disk. A worker has once had those of its cluster, whether
    /// they are still valid or not.
    pub credentials: bool,
    /// The node is part of its cluster, and its forming is complete.
    pub formed: bool,
}

/// How often the disk was taken into use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskCounter {
    /// Increases while the disk is in use, so that a copy of the disk has a lower one.
    pub counter: u64,
}

/// A change of a swap in the cluster. The next user of the disk reverts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cordon {
    pub swap: uuid::Uuid,
}

impl Entry for Cordon {
    const FILE: &'static str = "swap.json";
    const WHAT: &'static str = "the cordon";
}

/// The deployers' users that have rights from this node, or were about to get them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeployerRights {
    /// The users' names, which are also the names of their bindings.
    pub users: Vec<String>,
}

impl Entry for DeployerRights {
    const FILE: &'static str = "deployer.json";
    const WHAT: &'static str = "the deployer's rights";
}

pub struct Records {
    directory: PathBuf,
}

impl Records {
    /// The records below `root` (`/` outside of tests). The data disk must be mounted.
    pub fn new(root: &Path) -> Self {
        Self { directory: files::below(root, paths::RECORDS) }
    }

    /// Waits for the lock on the entries. So no other process or thread changes an entry after this one has read it.
    /// Others wait until the returned file is dropped.
    ///
    /// # Errors
    /// An error of the file system.
    pub fn lock(&self) -> anyhow::Result<File> {
        let lock = || {
            fs::create_dir_all(&self.directory)?;
            let directory = File::open(&self.directory)?;
            directory.lock()?;
            Ok::<_, io::Error>(directory)
        };
        lock().with_context(|| format!("locking {}", self.directory.display()))
    }

    /// The text of the saved configuration, from any version of the agent. `None` if it cannot be read.
    pub fn config_text(&self) -> Option<Secret> {
        fs::read(self.path(CONFIG)).ok().map(|text| Secret::new(String::from_utf8_lossy(&text).into_owned()))
    }

    /// The saved configuration, or its copy if it is damaged or missing. `None` if neither file exists.
    ///
    /// # Errors
    /// Neither can be read and understood.
    pub fn config(&self) -> anyhow::Result<Option<Config>> {
        match self.load(CONFIG) {
            Ok(Some(config)) => Ok(Some(config)),
            saved => match self.load(CONFIG_COPY) {
                Ok(Some(copy)) => Ok(Some(copy)),
                Ok(None) => saved,
                Err(error) => saved.and(Err(error)),
            },
        }
    }

    /// Saves the configuration of a form and the deployment secret, which comes first: a configuration without it could
    /// not meet its peers. The configuration of another form replaces the saved one, including the fields of a newer
    /// version. Returns whether anything changed.
    ///
    /// # Errors
    /// The saved configuration cannot be read or understood, or an error of the file system. The configuration is then
    /// not saved.
    pub fn save_config(&self, config: &Config, secret: &Secret) -> anyhow::Result<bool> {
        let changed = self.save_secret(secret)?;
        // A boot with the same form saves the configuration that it has read.
        let same = self.load::<Config>(CONFIG)?.as_ref() == Some(config);
        let changed = (!same && self.put(CONFIG, config)?) || changed;
        self.copy_config();
        Ok(changed)
    }

    /// Saves changes of the node's configuration, after the deployment secret, if there is one. Fields of a newer
    /// version stay. Returns whether anything changed.
    ///
    /// # Errors
    /// The saved configuration cannot be read or understood, or an error of the file system. The old configuration then
    /// remains.
    pub fn update_config(&self, config: &Config, secret: Option<&Secret>) -> anyhow::Result<bool> {
        let changed = secret.map(|secret| self.save_secret(secret)).transpose()?.unwrap_or_default();
        let changed = self.update(CONFIG, config)? || changed;
        self.copy_config();
        Ok(changed)
    }

    /// As [`Records::config`]. If the configuration is damaged or missing, its copy replaces it, with a finding.
    ///
    /// # Errors
    /// Neither the configuration nor its copy can be read and understood, or an error of the file system.
    pub fn recover_config(&self) -> anyhow::Result<(Option<Config>, Findings)> {
        let damaged = match self.load::<Config>(CONFIG) {
            Ok(Some(config)) => {
                // A crash may have left an older copy.
                self.copy_config();
                return Ok((Some(config), Findings::default()));
            }
            Ok(None) => anyhow::anyhow!("{} is missing", self.path(CONFIG).display()),
            Err(error) => error,
        };
        let Some(config) = self.config()? else { return Ok((None, Findings::default())) };
        let restored =
            || files::write_atomically(&self.path(CONFIG), &Zeroizing::new(fs::read(self.path(CONFIG_COPY))?), 0o600);
        restored().context("restoring the configuration from its copy")?;
        let action = "Check the node's settings and the data disk's storage. The next boot no longer says this";
        let finding = codes::CONFIG_RESTORED.finding("data disk", format!("{damaged:#}"), action);
        log::warn!("the configuration was restored from its copy: {damaged:#}");
        Ok((Some(config), finding.into()))
    }

    /// Copies the saved configuration. After a failure, the older copy remains.
    fn copy_config(&self) {
        let copy = || {
            let text = Zeroizing::new(fs::read(self.path(CONFIG))?);
            files::ensure_content(&self.path(CONFIG_COPY), &text, 0o600)
        };
        if let Err(error) = copy() {
            log::warn!("copying the configuration: {error}");
        }
    }

    fn save_secret(&self, secret: &Secret) -> anyhow::Result<bool> {
        let text = Zeroizing::new(secret.expose().as_bytes().to_vec());
        files::ensure_content(&self.path(SECRET), &text, 0o600).context("saving the deployment secret")
    }

    /// The deployment secret, until it is erased.
    pub fn secret(&self) -> anyhow::Result<Option<Secret>> {
        match fs::read_to_string(self.path(SECRET)) {
            Ok(text) => Ok(Some(Secret::new(text))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).context("reading the deployment secret"),
        }
    }

    /// Erases the deployment secret, and the record of the OVF environment that it came with. Returns whether it
    /// existed.
    ///
    /// # Errors
    /// An error of the file system.
    pub fn erase_secret(&self) -> anyhow::Result<bool> {
        let _ = fs::remove_file(self.path(ENVIRONMENT));
        overwrite_and_remove(&self.path(SECRET)).context("erasing the deployment secret")
    }

    /// Erases a worker's join token, which is of no use once it has joined. The record of its OVF environment remains:
    /// the hypervisor may show the same one again at each power-on, and it is not new. Returns whether there was a
    /// token.
    ///
    /// # Errors
    /// An error of the file system.
    pub fn erase_token(&self) -> anyhow::Result<bool> {
        overwrite_and_remove(&self.path(SECRET)).context("erasing the join token")
    }

    /// The fingerprint of the OVF environment that was last applied.
    pub fn environment(&self) -> anyhow::Result<Option<String>> {
        self.load(ENVIRONMENT)
    }

    /// Saves the fingerprint of an OVF environment that was applied. Returns whether it is new.
    ///
    /// # Errors
    /// An error of the file system.
    pub fn save_environment(&self, fingerprint: &str) -> anyhow::Result<bool> {
        self.put(ENVIRONMENT, &fingerprint)
    }

    /// An entry, if it exists.
    pub fn entry<T: Entry>(&self) -> anyhow::Result<Option<T>> {
        self.load(T::FILE)
    }

    /// Saves an entry of something that begins. It replaces a former entry completely. Returns whether it changed.
    ///
    /// # Errors
    /// An error of the file system. The old entry then remains.
    pub fn begin_entry<T: Entry>(&self, entry: &T) -> anyhow::Result<bool> {
        self.put(T::FILE, entry)
    }

    /// Saves an entry of something that continues. Fields of a newer version stay. Returns whether it changed.
    ///
    /// # Errors
    /// The old entry cannot be read or understood, or an error of the file system. The old entry then remains.
    pub fn update_entry<T: Entry>(&self, entry: &T) -> anyhow::Result<bool> {
        self.update(T::FILE, entry)
    }

    /// Removes an entry if it exists.
    ///
    /// # Errors
    /// An error of the file system.
    pub fn forget<T: Entry>(&self) -> anyhow::Result<()> {
        files::remove(&self.path(T::FILE)).map(drop).with_context(|| format!("forgetting {}", T::WHAT))
    }

    /// The node's record of the rendezvous.
    pub fn rendezvous(&self) -> anyhow::Result<RendezvousRecord> {
        Ok(self.load(RENDEZVOUS)?.unwrap_or_default())
    }

    /// Saves the node's record of the rendezvous, keys included.
    ///
    /// # Errors
    /// An error of the file system. The old record then remains.
    pub fn save_rendezvous(&self, record: &RendezvousRecord) -> anyhow::Result<()> {
        self.put(RENDEZVOUS, record).map(drop)
    }

    /// How often the disk was taken into use.
    pub fn disk_counter(&self) -> anyhow::Result<DiskCounter> {
        Ok(self.load(DISK_COUNTER)?.unwrap_or_default())
    }

    /// Saves how often the disk was taken into use.
    ///
    /// # Errors
    /// The old record cannot be read or understood, or an error of the file system. The old record then remains.
    pub fn save_disk_counter(&self, counted: DiskCounter) -> anyhow::Result<bool> {
        self.update(DISK_COUNTER, &counted)
    }

    /// Adds a line about the disk to the data disk's log of swaps.
    ///
    /// # Errors
    /// An error of the file system.
    pub fn note_swap(&self, now: std::time::SystemTime, what: &str) -> anyhow::Result<()> {
        let line = format!("{} {what}\n", humantime::format_rfc3339_seconds(now));
        let mut options = OpenOptions::new();
        options.create(true).append(true);
        let mut file = options.open(self.path(SWAPS)).context("opening the log of swaps")?;
        file.write_all(line.as_bytes()).and_then(|()| file.sync_all()).context("writing the log of swaps")
    }

    /// Whether the log of swaps contains a text. `false` if it cannot be read.
    pub fn is_in_swaps_log(&self, what: &str) -> bool {
        fs::read_to_string(self.path(SWAPS)).is_ok_and(|log| log.contains(what))
    }

    /// The progress of the node.
    pub fn progress(&self) -> anyhow::Result<Progress> {
        Ok(self.load(PROGRESS)?.unwrap_or_default())
    }

    /// Saves the progress of the node. Returns whether it changed.
    ///
    /// # Errors
    /// The old record cannot be read or understood, or an error of the file system. The old record then remains.
    pub fn save_progress(&self, progress: Progress) -> anyhow::Result<bool> {
        self.update(PROGRESS, &progress)
    }

    /// The file of the plan on the data disk.
    pub fn plan(&self) -> PathBuf {
        self.path(PLAN)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn load<T: DeserializeOwned>(&self, name: &str) -> anyhow::Result<Option<T>> {
        files::read_record(&self.path(name))
    }

    /// Saves a record of something that continues, with the unknown fields of a newer version in the old file.
    fn update<T: Serialize + DeserializeOwned>(&self, name: &str, record: &T) -> anyhow::Result<bool> {
        match self.with_unknown(name, record)? {
            None => self.put(name, record),
            Some(merged) => self.put(name, &merged.0),
        }
    }

    /// The record with the fields of the old file that this version does not know. `None` if there are no such fields.
    fn with_unknown<T: Serialize + DeserializeOwned>(&self, name: &str, record: &T) -> anyhow::Result<Option<Wiped>> {
        let Some(old) = self.load(name)?.map(Wiped) else { return Ok(None) };
        let known = T::deserialize(&old.0).with_context(|| format!("understanding {}", self.path(name).display()))?;
        let known = Wiped(serde_json::to_value(known)?);
        if !json::has_unknown(&old.0, &known.0) {
            return Ok(None);
        }
        let mut merged = Wiped(serde_json::to_value(record)?);
        json::keep_unknown(&old.0, &known.0, &mut merged.0);
        Ok(Some(merged))
    }

    fn put(&self, name: &str, record: &impl Serialize) -> anyhow::Result<bool> {
        let path = self.path(name);
        let text = Zeroizing::new(serde_json::to_vec_pretty(record)?);
        files::ensure_content(&path, &text, 0o600).with_context(|| format!("saving {}", path.display()))
    }
}

/// JSON in memory whose texts, which may be secrets, are zeroed when it is dropped.
struct Wiped(Value);

impl Drop for Wiped {
    fn drop(&mut self) {
        fn wipe(value: &mut Value) {
            match value {
                Value::String(text) => text.zeroize(),
                Value::Array(values) => values.iter_mut().for_each(wipe),
                Value::Object(fields) => fields.values_mut().for_each(wipe),
                _ => {}
            }
        }
        wipe(&mut self.0);
    }
}

/// ext4 overwrites the present blocks of a file in place. So the old text is gone from the disk itself, if the storage
/// below does the same.
fn overwrite_and_remove(path: &Path) -> io::Result<bool> {
    let mut file = match OpenOptions::new().write(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    let length = usize::try_from(file.metadata()?.len()).unwrap_or_default();
    file.write_all(&vec![0; length])?;
    file.sync_all()?;
    fs::remove_file(path)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intake::config::ControlPlane;

    #[test]
    fn missing_records_are_empty_damaged_ones_errors() {
        let root = tempfile::tempdir().unwrap();
        let records = Records::new(root.path());
        assert_eq!(records.progress().unwrap(), Progress::default());
        assert!(records.config().unwrap().is_none() && records.secret().unwrap().is_none());
        let progress = Progress { etcd: true, ..Progress::default() };
        assert!(records.save_progress(progress).unwrap());
        assert!(!records.save_progress(progress).unwrap());
        assert_eq!(records.progress().unwrap(), progress);
        fs::write(records.path(PROGRESS), "{").unwrap();
        assert!(records.progress().unwrap_err().to_string().contains("progress.json"));
    }

    #[test]
    fn unreadable_record_is_not_overwritten() {
        let root = tempfile::tempdir().unwrap();
        let records = Records::new(root.path());
        records.save_progress(Progress::default()).unwrap();
        let path = records.path(PROGRESS);
        let progress = Progress { etcd: true, ..Progress::default() };
        let refused = || records.save_progress(progress).unwrap_err().to_string();
        for damaged in ["{", "[]"] {
            fs::write(&path, damaged).unwrap();
            assert_eq!(refused(), format!("understanding {}", path.display()));
            assert_eq!(fs::read_to_string(&path).unwrap(), damaged);
        }
        // The symbolic link is a loop.
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&path, &path).unwrap();
        assert_eq!(refused(), format!("reading {}", path.display()));
        assert!(path.is_symlink());
    }

    #[test]
    fn damaged_or_missing_configuration_is_restored_from_copy() {
        let root = tempfile::tempdir().unwrap();
        let records = Records::new(root.path());
        assert!(records.recover_config().unwrap().0.is_none());
        let mut three = crate::intake::config::fixture::three_nodes();
        records.save_config(&Config::ControlPlane(three.clone()), &Secret::new("s".into())).unwrap();
        three.timeout_factor = 3;
        let config = Config::ControlPlane(three);
        records.update_config(&config, None).unwrap();
        note(&records, CONFIG);
        assert!(records.recover_config().unwrap().1.is_empty());
        let path = records.path(CONFIG);
        for damaged in [Some("{"), Some("\0\0\0"), Some("[]"), None] {
            match damaged {
                Some(text) => fs::write(&path, text).unwrap(),
                None => fs::remove_file(&path).unwrap(),
            }
            assert_eq!(records.config().unwrap().as_ref(), Some(&config), "{damaged:?}");
            let (restored, findings) = records.recover_config().unwrap();
            assert_eq!(restored.as_ref(), Some(&config), "{damaged:?}");
            let found: Vec<_> = findings.iter().map(|finding| finding.code.as_str()).collect();
            assert_eq!(found, ["config.restored"], "{damaged:?}");
            assert!(is_noted(&records, CONFIG) && records.recover_config().unwrap().1.is_empty());
        }
        // A damaged configuration may hold secrets that were changed since: no part of it is kept.
        let mut kept = fs::read_dir(root.path().join("data/kaas")).unwrap().map(|entry| entry.unwrap().file_name());
        assert!(kept.all(|name| [CONFIG, CONFIG_COPY, SECRET].iter().any(|known| name == *known)));
        fs::write(records.path(CONFIG_COPY), "{").unwrap();
        fs::write(&path, "{").unwrap();
        let errors = || [records.recover_config().unwrap_err(), records.config().unwrap_err()];
        assert!(errors().iter().all(|error| error.to_string().contains("config.json")), "{:?}", errors());
        fs::remove_file(&path).unwrap();
        assert!(errors().iter().all(|error| error.to_string().contains("config-copy.json")), "{:?}", errors());
    }

    #[test]
    fn older_version_keeps_fields_of_newer_version() {
        let root = tempfile::tempdir().unwrap();
        let records = Records::new(root.path());
        let config = Config::ControlPlane(crate::intake::config::fixture::three_nodes());
        records.save_config(&config, &Secret::new("s".into())).unwrap();
        records.save_progress(Progress::default()).unwrap();
        for (file, place) in [(CONFIG, ""), (CONFIG, "/node"), (PROGRESS, "")] {
            let mut value: Value = serde_json::from_slice(&fs::read(records.path(file)).unwrap()).unwrap();
            value.pointer_mut(place).unwrap()["of-a-later-version"] = true.into();
            fs::write(records.path(file), value.to_string()).unwrap();
        }
        assert_eq!(records.config().unwrap(), Some(config));
        let mut changed = crate::intake::config::fixture::three_nodes();
        changed.node.ntp_servers = vec!["10.0.0.1".into()];
        let changed = Config::ControlPlane(changed);
        assert!(records.update_config(&changed, None).unwrap());
        let progress = Progress { etcd: true, ..Progress::default() };
        assert!(records.save_progress(progress).unwrap() && !records.save_progress(progress).unwrap());
        assert_eq!((records.config().unwrap(), records.progress().unwrap()), (Some(changed), progress));
        for (file, count) in [(CONFIG, 2), (PROGRESS, 1)] {
            let text = fs::read_to_string(records.path(file)).unwrap();
            assert_eq!(text.matches("of-a-later-version").count(), count, "{text}");
        }
    }

    /// Adds a field, as a newer version may.
    fn note(records: &Records, file: &str) {
        let mut value: Value = serde_json::from_slice(&fs::read(records.path(file)).unwrap()).unwrap();
        value["of-a-later-version"] = true.into();
        fs::write(records.path(file), serde_json::to_vec_pretty(&value).unwrap()).unwrap();
    }

    fn is_noted(records: &Records, file: &str) -> bool {
        fs::read_to_string(records.path(file)).unwrap().contains("of-a-later-version")
    }

    #[test]
    fn new_entry_has_no_fields_of_former_one() {
        let root = tempfile::tempdir().unwrap();
        let records = Records::new(root.path());
        let cordon = |number| Cordon { swap: uuid::Uuid::from_u128(number) };
        assert!(records.begin_entry(&cordon(1)).unwrap());
        note(&records, Cordon::FILE);
        assert!(!records.update_entry(&cordon(1)).unwrap() && is_noted(&records, Cordon::FILE));
        assert!(records.begin_entry(&cordon(2)).unwrap() && !is_noted(&records, Cordon::FILE));
    }

    #[test]
    fn configuration_of_another_form_has_no_former_fields() {
        let root = tempfile::tempdir().unwrap();
        let records = Records::new(root.path());
        let (three, secret) = (crate::intake::config::fixture::three_nodes(), Secret::new("s".into()));
        let waits = |timeout_factor| Config::ControlPlane(ControlPlane { timeout_factor, ..three.clone() });
        let config = waits(1);
        records.save_config(&config, &secret).unwrap();
        note(&records, CONFIG);
        assert!(!records.save_config(&config, &secret).unwrap() && is_noted(&records, CONFIG), "the same");
        let config = waits(2);
        assert!(records.update_config(&config, Some(&secret)).unwrap() && is_noted(&records, CONFIG), "a change in it");
        let config = waits(3);
        assert!(records.save_config(&config, &secret).unwrap() && !is_noted(&records, CONFIG), "another one");
    }

    #[test]
    fn secret_is_for_root_alone_and_erasable() {
        use std::os::unix::fs::PermissionsExt;
        let root = tempfile::tempdir().unwrap();
        let records = Records::new(root.path());
        let config = Config::ControlPlane(crate::intake::config::fixture::three_nodes());
        assert!(records.save_config(&config, &Secret::new("s".into())).unwrap());
        assert_eq!(records.config().unwrap(), Some(config));
        let mode = fs::metadata(records.path(SECRET)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(records.secret().unwrap().unwrap().expose(), "s");
        // Another name of the file shows its later content.
        let copy = root.path().join("copy");
        fs::hard_link(records.path(SECRET), &copy).unwrap();
        assert!(records.erase_secret().unwrap());
        assert_eq!(fs::read(&copy).unwrap(), [0]);
        assert!(!records.erase_secret().unwrap() && records.secret().unwrap().is_none());
    }
}
