//! `kaas-agent restore`: creates the store again from a snapshot, after the quorum was lost or to roll the whole
//! cluster back.
//!
//! To etcd, the restored members are a separate cluster: it has a new token, so that a member with older data cannot
//! mix with it. Either every control-plane node restores the same snapshot with the same code, or one node restores
//! alone and the others are replaced. Revisions continue far above the old ones, and everything older counts as
//! compacted (etcd's "Disaster recovery"), so that every client with a watch lists again.
//!
//! The new data are completed next to the old ones, which stay. Only renames follow. The note of the restore is in the
//! member's own directory, so that data and note change places together. A member with the data from before is never
//! taken for a restored one, nor the other way round. After an interruption at any moment, the next start of the agent
//! decides which data the node continues with: see [`settle`]. The command may then run again. While it runs, no other
//! restore runs on this node and the agent does not start etcd, see [`guard`].

use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, bail};
use clap::Args;
use contract::ports;
use contract::properties::ControlNode;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{DATA, UNIT, guard, listens, peer_url, quota, snapshot};
use crate::cluster::kubernetes::{MANIFESTS, kubelet};
use crate::cluster::records::{Entry, Records};
use crate::cluster::recovered_keys;
use crate::host::bus;
use crate::host::command::{Command, Host, LONG, Runner};
use crate::host::files;
use crate::host::hex;
use crate::host::services::{AGENT, Services};
use crate::intake::config::ControlPlane;

/// The jump of the revisions: more than a busy cluster writes in a week.
const BUMP: u64 = 1_000_000_000;

/// How long the control plane and each service may take to stop, times the timeout factor.
const STOPPING: Duration = Duration::from_secs(90);

/// The member's directory in etcd's data, and also in the output of etcdutl.
const MEMBER: &str = "member";

/// The output directory of etcdutl, until it is complete.
const MAKING: &str = "restoring";

/// The new member's directory, complete, until the old one is moved away.
const MADE: &str = "member.restored";

/// The note of the restore, as [`RestoreRecord`], in the member's directory. etcd ignores it.
const NOTE: &str = "restored.json";

/// The arguments of the command.
#[derive(Args)]
pub struct Options {
    /// The snapshot, as `snapshot save` or the agent has made it
    snapshot: PathBuf,
    /// The cluster's name, to show that it is meant: all that was written after the snapshot is lost
    #[arg(long, value_name = "CLUSTER")]
    confirm: String,
    /// The other control-plane nodes are lost: continue with this one, and replace them afterwards
    #[arg(long, conflicts_with = "code")]
    alone: bool,
    /// The code that the first node printed after it restored this snapshot
    #[arg(long = "as", value_name = "CODE")]
    code: Option<String>,
    /// The encryption keys of the snapshot's Secrets, in a file from `kaas recovery-key open`. Needed if all control-plane
    /// nodes of the snapshot's cluster were lost
    #[arg(long, value_name = "FILE")]
    recovered_keys: Option<PathBuf>,
}

/// The record of the restored cluster on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoreRecord {
    /// Separates the members of this cluster from earlier ones.
    pub token: String,
    /// The names of its first control-plane nodes.
    pub members: Vec<String>,
    /// The time of the restore, in RFC 3339.
    pub at: String,
}

impl Entry for RestoreRecord {
    const FILE: &'static str = "restored.json";
    const WHAT: &'static str = "the restored cluster";
}

/// After an error the node continues with its old data, unless the new ones were about to replace them: another call
/// completes that.
pub fn command(root: &Path, options: &Options, out: &mut impl Write) -> anyhow::Result<()> {
    let records = Records::new(root);
    let config = records.config()?.context("this node has no configuration yet: there is nothing to restore into")?;
    let config = config.control_plane()?;
    let cluster = records.rendezvous()?.state().cluster();
    let cluster = cluster.filter(|_| config.control_node().is_ok());
    let cluster = cluster.context("this node belongs to no cluster yet: let it form one, then restore")?;
    let _alone = guard::lock(root)?;
    let restoring = RestoreRun::prepare(config, cluster, options, &Host)?;
    let given = options.recovered_keys.as_deref().map(recovered_keys::read).transpose()?;
    if options.alone {
        nobody_else_answers(config)?;
    }
    let contents = &restoring.contents;
    writeln!(out, "the snapshot is in order: revision {}, {} keys", contents.revision, contents.total_key)?;
    restoring.find_room(root)?;
    guard::ignore_terminal_signals()?;
    let bus = bus::system()?;
    let services = Services::new(&bus);
    // Before the store needs them. If it does not need them, they are forgotten.
    if let Some(given) = given {
        records.begin_entry(&given)?;
    }
    writeln!(out, "stopping the control plane")?;
    let etcd = || services.state(UNIT);
    let kept = stop(root, config, &services)
        .and_then(|()| restoring.put_in_place(root, &records, &Host, &etcd, SystemTime::now()));
    // Also after an error: the node then continues with its old data.
    services.start(AGENT)?;
    if let Some(kept) = kept? {
        writeln!(out, "the data from before are kept as {}", kept.display())?;
    }
    write!(out, "{}", restoring.next(config, options))?;
    Ok(())
}

#[derive(Debug)]
struct RestoreRun {
    file: PathBuf,
    contents: snapshot::Contents,
    node: ControlNode,
    members: Vec<ControlNode>,
    code: String,
    token: String,
}

impl RestoreRun {
    fn prepare(config: &ControlPlane, cluster: Uuid, options: &Options, runner: &dyn Runner) -> anyhow::Result<Self> {
        let name = &config.cluster.name;
        if options.confirm != *name {
            bail!("this node belongs to the cluster {name:?}, not to {:?}: nothing was changed", options.confirm);
        }
        let file = &options.snapshot;
        let sum = hex::lower(&files::sha256(file).with_context(|| format!("reading {}", file.display()))?);
        let contents = snapshot::examine(runner, file)?;
        let code = match &options.code {
            None => format!("{}-{}", &Uuid::new_v4().simple().to_string()[..16], &sum[..16]),
            Some(code) => {
                let given = code.rsplit_once('-').filter(|(drawn, given)| drawn.len() == 16 && given.len() == 16);
                let (_, given) = given.with_context(|| format!("{code:?} is no code of `kaas-agent restore`"))?;
                if given != &sum[..16] {
                    bail!("{} is another snapshot than the one that the code was given for", file.display());
                }
                code.clone()
            }
        };
        let node = config.control_node()?.clone();
        let members = if options.alone { vec![node.clone()] } else { config.cluster.control_nodes.clone() };
        let token = format!("{cluster}-{code}");
        Ok(Self { file: file.clone(), contents, node, members, code, token })
    }

    /// Checks whether the new data fit next to the old ones. First removes the incomplete data of an earlier restore.
    fn find_room(&self, root: &Path) -> anyhow::Result<()> {
        files::remove_directory(&files::below(root, DATA).join(MAKING)).context("clearing up")?;
        let size = fs::metadata(&self.file).with_context(|| format!("measuring {}", self.file.display()))?.len();
        guard::find_room(root, size)
    }

    /// Creates the new data and puts them in the place of the old ones. Returns the directory in which the old ones are
    /// kept. `etcd` returns the state of etcd's unit, which must not run. If the new data cannot be created, nothing
    /// remains of them.
    fn put_in_place(
        &self,
        root: &Path,
        records: &Records,
        runner: &dyn Runner,
        etcd: &dyn Fn() -> anyhow::Result<String>,
        now: SystemTime,
    ) -> anyhow::Result<Option<PathBuf>> {
        settle(root, records).context("settling an earlier restore")?;
        let data = files::below(root, DATA);
        let (making, made, member) = (data.join(MAKING), data.join(MADE), data.join(MEMBER));
        let at = humantime::format_rfc3339_seconds(now).to_string();
        let ready = self.make(&making, &at, runner).and_then(|()| match etcd()?.as_str() {
            "inactive" | "failed" => Ok(()),
            state => bail!("etcd was started meanwhile ({state}): the node keeps its former data"),
        });
        if let Err(error) = ready {
            // etcd may need that room.
            if let Err(left) = files::remove_directory(&making) {
                log::warn!("removing {}: {left}", making.display());
            }
            return Err(error);
        }
        let kept = data.join(format!("{}{at}", guard::KEPT));
        files::put_in_place(&making.join(MEMBER), &made).context("making the new data whole")?;
        let had = member.try_exists().context("looking for the old data")?;
        if had {
            files::put_in_place(&member, &kept).context("keeping the old data")?;
        }
        files::put_in_place(&made, &member).context("putting the new data in place")?;
        settle(root, records)?;
        Ok(had.then_some(kept))
    }

    /// Creates the new data, and the note that describes them.
    fn make(&self, making: &Path, at: &str, runner: &dyn Runner) -> anyhow::Result<()> {
        let members: Vec<String> =
            self.members.iter().map(|node| format!("{}={}", node.name, peer_url(node))).collect();
        let command = Command::new("etcdutl")
            .args(["snapshot", "restore"])
            .arg(&self.file)
            .arg(format!("--data-dir={}", making.display()))
            .arg(format!("--name={}", self.node.name))
            .arg(format!("--initial-cluster={}", members.join(",")))
            .arg(format!("--initial-cluster-token={}", self.token))
            .arg(format!("--initial-advertise-peer-urls={}", peer_url(&self.node)))
            .arg(format!("--bump-revision={BUMP}"))
            .arg("--mark-compacted")
            .within(LONG);
        runner.run(&command).context("restoring the snapshot")?;
        let members = self.members.iter().map(|node| node.name.clone()).collect();
        let note = serde_json::to_vec_pretty(&RestoreRecord { token: self.token.clone(), members, at: at.to_owned() })?;
        files::write_atomically(&making.join(MEMBER).join(NOTE), &note, 0o600).context("noting what is restored")
    }

    fn next(&self, config: &ControlPlane, options: &Options) -> String {
        let others: Vec<&str> = config.peers().map(|peer| peer.name.as_str()).collect();
        let mut text = String::from("restored; the agent starts the control plane: see `kaas-agent status`\n");
        match others.as_slice() {
            [] => {}
            others if options.alone => {
                text.push_str("never power on the other nodes with their old data disks again; when this node is ");
                text.push_str("ready, replace each:\n");
                for other in others {
                    text.push_str(&format!("  kaas-agent replace-member {other}\n"));
                }
            }
            others if options.code.is_none() => {
                let (names, cluster, code) = (others.join(" and "), &config.cluster.name, &self.code);
                text.push_str(&format!("now on {names}, with a copy of the same file:\n"));
                text.push_str(&format!("  kaas-agent restore FILE --confirm {cluster} --as {code}\n"));
            }
            _ => {}
        }
        text
    }
}

/// Ensures after an interrupted restore that the node continues with the complete data of one cluster, and records
/// which cluster that is. If the old data were not moved away yet, the node continues with them. Otherwise it continues
/// with the new ones, and etcd's quota is decided again. Incomplete data are removed: they may be as large as the store.
/// The caller has stopped etcd. After an error another call continues.
pub fn settle(root: &Path, records: &Records) -> anyhow::Result<()> {
    let data = files::below(root, DATA);
    let (made, member) = (data.join(MADE), data.join(MEMBER));
    files::remove_directory(&data.join(MAKING)).context("clearing up an interrupted restore")?;
    if made.try_exists()? {
        match member.try_exists()? {
            true => files::remove_directory(&made).context("clearing up an interrupted restore")?,
            false => {
                log::warn!(
                    "a restore was interrupted after it had removed the old data: the node uses the restored data"
                );
                files::put_in_place(&made, &member).context("putting the restored data in place")?;
            }
        }
    }
    if let Some(restored) = files::read_record::<RestoreRecord>(&member.join(NOTE))?
        && records.entry::<RestoreRecord>()?.as_ref() != Some(&restored)
    {
        quota::forget(records)?;
        records.begin_entry(&restored)?;
    }
    Ok(())
}

/// Otherwise two clusters with the same name would run.
fn nobody_else_answers(config: &ControlPlane) -> anyhow::Result<()> {
    let timeout = config.timeout(Duration::from_secs(2));
    let answering: Vec<&str> =
        config.peers().filter(|peer| listens(peer, timeout)).map(|peer| peer.name.as_str()).collect();
    if !answering.is_empty() {
        bail!(
            "etcd still runs on {}: power off all other control-plane nodes, or restore on each of them and leave out --alone",
            answering.join(" and ")
        );
    }
    Ok(())
}

/// Stops the agent, which would start everything again. Then stops the control plane by removing its manifests, then
/// the kubelet and etcd. The agent writes the manifests again when it is started.
fn stop(root: &Path, config: &ControlPlane, services: &Services<'_>) -> anyhow::Result<()> {
    let timeout = config.timeout(STOPPING);
    services.stop(AGENT, timeout)?;
    let manifests = files::below(root, MANIFESTS);
    for entry in fs::read_dir(&manifests).into_iter().flatten() {
        fs::remove_file(entry?.path()).context("taking the control plane's manifests away")?;
    }
    if services.state(kubelet::UNIT)? == "active" {
        let api = SocketAddr::from((config.address(), ports::API));
        let until = Instant::now() + timeout;
        while TcpStream::connect_timeout(&api, Duration::from_secs(1)).is_ok() && Instant::now() < until {
            thread::sleep(Duration::from_millis(500));
        }
    }
    services.stop(kubelet::UNIT, timeout)?;
    services.stop(UNIT, timeout)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::command::Error;
    use crate::intake::config::fixture::{one_node, three_nodes};
    use std::io;
    use std::sync::Mutex;

    const CLUSTER: Uuid = Uuid::from_u128(7);

    /// Creates the directories that etcdutl would, and records its commands.
    #[derive(Default)]
    struct Etcdutl(Mutex<Vec<String>>);

    /// Stops half-way, as on a full disk.
    struct CutOff;

    impl Runner for CutOff {
        fn run(&self, command: &Command) -> Result<Vec<u8>, Error> {
            let _ = Etcdutl::default().run(command);
            Err(Error::Start { command: command.to_string(), source: io::ErrorKind::StorageFull.into() })
        }
    }

    fn inactive() -> anyhow::Result<String> {
        Ok("inactive".to_owned())
    }

    /// A node below `root` that has data, and a restore of it.
    fn about_to_restore(root: &Path) -> RestoreRun {
        fs::create_dir_all(root.join("var/lib/etcd/member/wal")).unwrap();
        fs::write(root.join("var/lib/etcd/member/old"), "").unwrap();
        let options = options(&root.join("s.db"));
        RestoreRun::prepare(&three_nodes(), CLUSTER, &options, &Etcdutl::default()).unwrap()
    }

    impl Runner for Etcdutl {
        fn run(&self, command: &Command) -> Result<Vec<u8>, Error> {
            let line = command.to_string();
            if let Some((_, rest)) = line.split_once("--data-dir=") {
                let data = Path::new(rest.split(' ').next().unwrap());
                fs::create_dir_all(data.join("member/wal")).unwrap();
                fs::write(data.join("member/new"), "").unwrap();
            }
            self.0.lock().unwrap().push(line);
            Ok(br#"{"revision":7,"totalKey":3,"version":"3.6.0"}"#.to_vec())
        }
    }

    fn options(file: &Path) -> Options {
        fs::write(file, "a store").unwrap();
        Options { snapshot: file.to_owned(), confirm: "lab".into(), alone: false, code: None, recovered_keys: None }
    }

    #[test]
    fn old_data_stay_and_members_get_new_token() {
        let root = tempfile::tempdir().unwrap();
        let records = Records::new(root.path());
        let data = root.path().join("var/lib/etcd");
        fs::create_dir_all(data.join("member/wal")).unwrap();
        // The remains of an earlier, interrupted attempt.
        fs::create_dir_all(data.join("restoring/member")).unwrap();
        // The record of a newer version about a cluster that was restored before.
        let record = root.path().join("data/kaas/restored.json");
        fs::create_dir_all(record.parent().unwrap()).unwrap();
        fs::write(&record, r#"{"token": "t", "members": [], "at": "", "later": 1}"#).unwrap();
        let runner = Etcdutl::default();
        let options = options(&root.path().join("s.db"));
        let restoring = RestoreRun::prepare(&three_nodes(), CLUSTER, &options, &runner).unwrap();
        let now = humantime::parse_rfc3339("2026-11-21T14:30:05Z").unwrap();
        let kept = restoring.put_in_place(root.path(), &records, &runner, &inactive, now).unwrap().unwrap();
        assert!(kept.ends_with("member.before-restore-2026-11-21T14:30:05Z") && kept.join("wal").is_dir());
        assert!(data.join("member/new").exists() && !data.join("restoring").exists());
        let restored = records.entry::<RestoreRecord>().unwrap().unwrap();
        assert_eq!(restored.members, ["node1", "node2", "node3"]);
        assert!(!fs::read_to_string(&record).unwrap().contains("later"));
        assert!(restored.token.starts_with(&CLUSTER.to_string()) && restored.token.ends_with(&restoring.code));
        let asked = runner.0.lock().unwrap().join("\n");
        for part in [
            "--name=node1",
            "--initial-cluster=node1=https://10.0.0.11:2380,node2=https://10.0.0.12:2380,node3=https://10.0.0.13:2380",
            "--bump-revision=1000000000 --mark-compacted",
            &restored.token,
        ] {
            assert!(asked.contains(part), "{part} is not in {asked}");
        }
    }

    /// Whether the node continues with the new data, and the token of the restored cluster in its record.
    fn goes_on_with(root: &Path) -> (bool, Option<String>) {
        settle(root, &Records::new(root)).unwrap();
        let member = root.join("var/lib/etcd/member");
        let (old, new) = (member.join("old").exists(), member.join("new").exists());
        assert!(old != new && member.join("wal").is_dir(), "old: {old}, new: {new}");
        assert!(!root.join("var/lib/etcd").join(MADE).exists() && !root.join("var/lib/etcd").join(MAKING).exists());
        let token = Records::new(root).entry::<RestoreRecord>().unwrap().map(|restored| restored.token);
        (new, token)
    }

    #[test]
    fn interrupted_restore_leaves_data_of_one_cluster() {
        let now = humantime::parse_rfc3339("2026-11-21T14:30:05Z").unwrap();
        for before in [None, Some("earlier")] {
            for things in 0.. {
                let root = tempfile::tempdir().unwrap();
                let records = Records::new(root.path());
                let data = root.path().join("var/lib/etcd");
                fs::create_dir_all(data.join("member/wal")).unwrap();
                fs::write(data.join("member/old"), "").unwrap();
                // The old data may be of a restored cluster, too.
                if let Some(token) = before {
                    let (token, at) = (token.to_owned(), "2026-11-20T14:30:05Z".to_owned());
                    records.begin_entry(&RestoreRecord { token, members: vec![], at }).unwrap();
                }
                let runner = Etcdutl::default();
                let options = options(&root.path().join("s.db"));
                let restoring = RestoreRun::prepare(&three_nodes(), CLUSTER, &options, &runner).unwrap();
                let restore = || restoring.put_in_place(root.path(), &records, &runner, &inactive, now);
                let (done, cut) = files::power::with(things, restore);
                let (new, token) = goes_on_with(root.path());
                let expected = if new { Some(restoring.token.as_str()) } else { before };
                assert_eq!(token.as_deref(), expected, "after {things} things");
                // The command runs again and completes the restore. The data from before are kept.
                let later = now + Duration::from_secs(60);
                restoring.put_in_place(root.path(), &records, &runner, &inactive, later).unwrap();
                assert_eq!(goes_on_with(root.path()), (true, Some(restoring.token.clone())), "after {things} things");
                let kept = |name: &str| data.join(format!("member.before-restore-2026-11-21T14:3{name}")).join("old");
                assert!(kept("0:05Z").exists() || kept("1:05Z").exists(), "after {things} things");
                if !cut {
                    done.unwrap();
                    assert!(things > 6, "only {things} things were saved");
                    break;
                }
            }
        }
    }

    #[test]
    fn quota_of_the_old_data_is_forgotten_once() {
        let root = tempfile::tempdir().unwrap();
        let (records, restoring) = (Records::new(root.path()), about_to_restore(root.path()));
        let noted = root.path().join("data/kaas/etcd-quota.json");
        let starts = || quota::settle(root.path(), &records, 0, 1, 1).unwrap();
        starts();
        assert!(noted.exists());
        restoring.put_in_place(root.path(), &records, &Etcdutl::default(), &inactive, SystemTime::now()).unwrap();
        assert!(!noted.exists());
        starts();
        settle(root.path(), &records).unwrap();
        assert!(noted.exists());
    }

    #[test]
    fn failed_restore_leaves_the_disk_unchanged() {
        let root = tempfile::tempdir().unwrap();
        let (records, restoring) = (Records::new(root.path()), about_to_restore(root.path()));
        let data = root.path().join("var/lib/etcd");
        let refused = restoring.put_in_place(root.path(), &records, &CutOff, &inactive, SystemTime::now()).unwrap_err();
        assert!(format!("{refused:#}").starts_with("restoring the snapshot: "), "{refused:#}");
        let left: Vec<_> = fs::read_dir(&data).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, [MEMBER]);
        assert_eq!(goes_on_with(root.path()), (false, None));
        // The power went away during the restore.
        fs::create_dir_all(data.join(MAKING).join("member/snap")).unwrap();
        assert_eq!(goes_on_with(root.path()), (false, None));
    }

    #[test]
    fn member_that_was_started_meanwhile_keeps_its_directory() {
        let root = tempfile::tempdir().unwrap();
        let (records, restoring) = (Records::new(root.path()), about_to_restore(root.path()));
        let (runner, active) = (Etcdutl::default(), || Ok("active".to_owned()));
        let refused = restoring.put_in_place(root.path(), &records, &runner, &active, SystemTime::now()).unwrap_err();
        assert!(refused.to_string().contains("etcd was started meanwhile"), "{refused}");
        assert_eq!(goes_on_with(root.path()), (false, None));
    }

    #[test]
    fn remains_of_an_earlier_restore_take_no_room() {
        let root = tempfile::tempdir().unwrap();
        let restoring = about_to_restore(root.path());
        let making = root.path().join("var/lib/etcd").join(MAKING);
        fs::create_dir_all(making.join("member")).unwrap();
        restoring.find_room(root.path()).unwrap();
        assert!(!making.exists());
        // More than any disk has: the file has only a length.
        fs::File::options().write(true).open(&restoring.file).unwrap().set_len(15 << 40).unwrap();
        fs::create_dir(root.path().join("var/lib/etcd/member.before-restore-2026-11-21T14:30:05Z")).unwrap();
        let refused = restoring.find_room(root.path()).unwrap_err().to_string();
        assert!(refused.contains(" take 15728640 MiB ") && refused.contains("256 MiB have to stay free"), "{refused}");
        assert!(refused.contains("/member.before-restore-2026-11-21T14:30:05Z, snapshots in /data/"), "{refused}");
    }

    #[test]
    fn code_is_valid_for_the_same_snapshot_alone() {
        let directory = tempfile::tempdir().unwrap();
        let (runner, config) = (Etcdutl::default(), three_nodes());
        let first = options(&directory.path().join("s.db"));
        let one = RestoreRun::prepare(&config, CLUSTER, &first, &runner).unwrap();
        let again = RestoreRun::prepare(&config, CLUSTER, &first, &runner).unwrap();
        assert_ne!(one.token, again.token, "restoring twice must not give one cluster");
        assert!(one.next(&config, &first).contains(&format!("--confirm lab --as {}", one.code)));
        let mut second = options(&directory.path().join("copy.db"));
        second.code = Some(one.code.clone());
        let two = RestoreRun::prepare(&config, CLUSTER, &second, &runner).unwrap();
        assert_eq!((&two.token, &two.code), (&one.token, &one.code));
        fs::write(&second.snapshot, "another store").unwrap();
        let refused = RestoreRun::prepare(&config, CLUSTER, &second, &runner).unwrap_err().to_string();
        assert!(refused.contains("is another snapshot"), "{refused}");
        second.code = Some("nonsense".into());
        let refused = RestoreRun::prepare(&config, CLUSTER, &second, &runner).unwrap_err().to_string();
        assert!(refused.contains("is no code"), "{refused}");
    }

    #[test]
    fn lone_restore_has_one_member_and_replaces_others() {
        let directory = tempfile::tempdir().unwrap();
        let (runner, config) = (Etcdutl::default(), three_nodes());
        let options = Options { alone: true, ..options(&directory.path().join("s.db")) };
        let restoring = RestoreRun::prepare(&config, CLUSTER, &options, &runner).unwrap();
        assert_eq!(restoring.members.len(), 1);
        let next = restoring.next(&config, &options);
        assert!(next.contains("replace-member node2\n") && next.contains("replace-member node3\n"), "{next}");
        let only = RestoreRun::prepare(&one_node(), CLUSTER, &options, &runner).unwrap();
        assert_eq!(only.next(&one_node(), &options).lines().count(), 1);
    }

    #[test]
    fn other_name_or_missing_file_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let (runner, config) = (Etcdutl::default(), three_nodes());
        let mut options = options(&directory.path().join("s.db"));
        options.confirm = "other".into();
        let refused = RestoreRun::prepare(&config, CLUSTER, &options, &runner).unwrap_err().to_string();
        assert_eq!(refused, "this node belongs to the cluster \"lab\", not to \"other\": nothing was changed");
        options.confirm = "lab".into();
        options.snapshot = directory.path().join("missing.db");
        assert!(RestoreRun::prepare(&config, CLUSTER, &options, &runner).is_err());
        let none = Records::new(directory.path());
        let refused = command(directory.path(), &options, &mut Vec::new()).unwrap_err().to_string();
        assert!(refused.contains("nothing to restore into"), "{refused}");
        assert!(none.entry::<RestoreRecord>().unwrap().is_none());
    }
}
