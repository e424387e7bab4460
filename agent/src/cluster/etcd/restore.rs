//! `kaas-agent restore`: makes the store anew from a snapshot, after the quorum
//! was lost or to turn the whole cluster back.
//!
//! The restored members are a cluster of their own to etcd: it has a new token,
//! so that a member with older data cannot mix with it. Either every control
//! node restores the same snapshot with the same code, or one does so alone and the
//! others are replaced. Revisions go on far above the old ones and everything
//! older counts as compacted (etcd's "Disaster recovery"), so that whoever watches
//! lists anew.
//!
//! The new data are made whole beside the old ones, which stay; only renames come after that. What was restored is noted
//! in the member's own directory, so that data and note change places together: a member with the data from before
//! never passes for a restored one, nor the other way round. Cut off at any moment, the next start of the agent settles
//! whose data the node goes on with: see [`settle`]. The command may then be given again. As long as it runs, nobody
//! else restores and the agent does not start etcd, see [`guard`].

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

use super::{DATA, UNIT, guard, listens, peer_url, snapshot};
use crate::cluster::kubernetes::{MANIFESTS, kubelet};
use crate::cluster::records::{Entry, Records};
use crate::cluster::recovered_keys;
use crate::host::bus;
use crate::host::command::{Command, Host, LONG, Runner};
use crate::host::files;
use crate::host::hex;
use crate::host::services::{AGENT, Services};
use crate::intake::config::ControlPlane;

/// How far revisions jump: more than a busy cluster writes in a week.
const BUMP: u64 = 1_000_000_000;

/// How long the control plane and each service may take to stop, times the timeout factor.
const STOPPING: Duration = Duration::from_secs(90);

/// The member's directory among etcd's data, its place among what etcdutl makes, too.
const MEMBER: &str = "member";

/// What etcdutl makes, until it is whole.
const MAKING: &str = "restoring";

/// The new member's directory, whole, until the old one has given way.
const MADE: &str = "member.restored";

/// What was restored, as [`Restored`], in the member's directory: etcd leaves it alone.
const NOTE: &str = "restored.json";

/// What an administrator says.
#[derive(Args)]
pub struct Options {
    /// The snapshot, as `snapshot save` or the agent has made it
    snapshot: PathBuf,
    /// The cluster's name, to show that it is meant: all that was written after the snapshot is lost
    #[arg(long, value_name = "CLUSTER")]
    confirm: String,
    /// The other control nodes are lost: go on with this one, and replace them afterwards
    #[arg(long, conflicts_with = "code")]
    alone: bool,
    /// What the first node said that restored this snapshot
    #[arg(long = "as", value_name = "CODE")]
    code: Option<String>,
    /// The encryption keys of the snapshot's Secrets, as `kaas recovery open` has made the file: needed where the snapshot is
    /// that of a cluster whose control nodes were all lost
    #[arg(long, value_name = "FILE")]
    recovered_keys: Option<PathBuf>,
}

/// The restored cluster, as a node remembers it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoreRecord {
    /// Tells this cluster of members from those before it.
    pub token: String,
    /// The names of the control nodes that it began with.
    pub members: Vec<String>,
    /// When, as RFC 3339 writes it.
    pub at: String,
}

impl Entry for RestoreRecord {
    const FILE: &'static str = "restored.json";
    const WHAT: &'static str = "the restored cluster";
}

/// Restores and says what comes next.
///
/// # Errors
/// Why not. The node then goes on with the data that it had, unless the new ones were
/// about to take their place: calling it again completes that.
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
    // Before the store needs them; where it does not, they are forgotten.
    if let Some(given) = given {
        records.begin_entry(&given)?;
    }
    writeln!(out, "stopping the control plane")?;
    let etcd = || services.state(UNIT);
    let kept = stop(root, config, &services)
        .and_then(|()| restoring.put_in_place(root, &records, &Host, &etcd, SystemTime::now()));
    // Also where it failed: the node then goes on with what it had.
    services.start(AGENT)?;
    if let Some(kept) = kept? {
        writeln!(out, "the data from before are kept as {}", kept.display())?;
    }
    write!(out, "{}", restoring.next(config, options))?;
    Ok(())
}

/// What is to be restored, when nothing stands against it.
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

    /// Sees whether the new data fit beside the old ones, without what an earlier restore has left half made.
    fn find_room(&self, root: &Path) -> anyhow::Result<()> {
        files::remove_directory(&files::below(root, DATA).join(MAKING)).context("clearing up")?;
        let size = fs::metadata(&self.file).with_context(|| format!("measuring {}", self.file.display()))?.len();
        guard::find_room(root, size)
    }

    /// Makes the new data and puts them in the place of the old ones, which are
    /// kept: says where. `etcd` says the state of etcd's unit, which must not run. Where the new data cannot be made,
    /// nothing is left of them.
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
            state => bail!("etcd was started meanwhile ({state}): the node goes on with the data that it had"),
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

    /// Makes the new data, and the note of what they are.
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

    /// What the administrator does next.
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

/// Sees to it that the node goes on with one cluster's data, whole, and remembers which, whatever a restore was in the
/// midst of when it was cut off. etcd must not be running.
///
/// | Cut off                                | The node goes on with        |
/// |----------------------------------------|------------------------------|
/// | before the old data have given way     | the old data, as if nothing had been restored |
/// | after that                             | the new data                 |
///
/// What was half made is removed: it may be as large as the store.
///
/// # Errors
/// The file system's, or a note that is not understood; doing it again goes on.
pub fn settle(root: &Path, records: &Records) -> anyhow::Result<()> {
    let data = files::below(root, DATA);
    let (made, member) = (data.join(MADE), data.join(MEMBER));
    files::remove_directory(&data.join(MAKING)).context("clearing up a restore that was cut off")?;
    if made.try_exists()? {
        match member.try_exists()? {
            true => files::remove_directory(&made).context("clearing up a restore that was cut off")?,
            false => {
                log::warn!("a restore was cut off once the old data had given way: the new data take their place");
                files::put_in_place(&made, &member).context("putting the restored data in place")?;
            }
        }
    }
    if let Some(restored) = files::read_record::<RestoreRecord>(&member.join(NOTE))?
        && records.entry::<RestoreRecord>()?.as_ref() != Some(&restored)
    {
        records.begin_entry(&restored)?;
    }
    Ok(())
}

/// With members that still run, two clusters would call themselves by one name.
fn nobody_else_answers(config: &ControlPlane) -> anyhow::Result<()> {
    let timeout = config.timeout(Duration::from_secs(2));
    let answering: Vec<&str> =
        config.peers().filter(|peer| listens(peer, timeout)).map(|peer| peer.name.as_str()).collect();
    if !answering.is_empty() {
        bail!(
            "etcd still runs on {}: power off all other control nodes, or restore on each of them and leave out --alone",
            answering.join(" and ")
        );
    }
    Ok(())
}

/// Stops the agent, which would start everything again, then the control plane
/// by taking its manifests from the kubelet, then the kubelet and etcd. The agent makes
/// the manifests anew when it is started.
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

    /// Makes the directories that etcdutl would, and remembers what it was asked.
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

    /// etcd's unit while it is stopped.
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
    fn the_old_data_stay_and_the_members_get_a_token_of_their_own() {
        let root = tempfile::tempdir().unwrap();
        let records = Records::new(root.path());
        let data = root.path().join("var/lib/etcd");
        fs::create_dir_all(data.join("member/wal")).unwrap();
        // What an earlier attempt left when it was cut off.
        fs::create_dir_all(data.join("restoring/member")).unwrap();
        // What a newer version has noted of a cluster that was restored before.
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

    /// What a node goes on with: whose data it has, and which restored cluster it remembers.
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
    fn a_restore_that_is_cut_off_anywhere_leaves_data_and_epoch_of_one_cluster() {
        let now = humantime::parse_rfc3339("2026-11-21T14:30:05Z").unwrap();
        for before in [None, Some("earlier")] {
            for things in 0.. {
                let root = tempfile::tempdir().unwrap();
                let records = Records::new(root.path());
                let data = root.path().join("var/lib/etcd");
                fs::create_dir_all(data.join("member/wal")).unwrap();
                fs::write(data.join("member/old"), "").unwrap();
                // The old data may be of a restored cluster, too, also of one from before it was noted beside them.
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
                // Given again, the command completes it, and the data from before are kept.
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
    fn a_restore_that_fails_leaves_the_disk_as_it_was() {
        let root = tempfile::tempdir().unwrap();
        let (records, restoring) = (Records::new(root.path()), about_to_restore(root.path()));
        let data = root.path().join("var/lib/etcd");
        let refused = restoring.put_in_place(root.path(), &records, &CutOff, &inactive, SystemTime::now()).unwrap_err();
        assert!(format!("{refused:#}").starts_with("restoring the snapshot: "), "{refused:#}");
        let left: Vec<_> = fs::read_dir(&data).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, [MEMBER]);
        assert_eq!(goes_on_with(root.path()), (false, None));
        // The power went away in the midst of it.
        fs::create_dir_all(data.join(MAKING).join("member/snap")).unwrap();
        assert_eq!(goes_on_with(root.path()), (false, None));
    }

    #[test]
    fn a_member_that_was_started_meanwhile_keeps_its_directory() {
        let root = tempfile::tempdir().unwrap();
        let (records, restoring) = (Records::new(root.path()), about_to_restore(root.path()));
        let (runner, active) = (Etcdutl::default(), || Ok("active".to_owned()));
        let refused = restoring.put_in_place(root.path(), &records, &runner, &active, SystemTime::now()).unwrap_err();
        assert!(refused.to_string().contains("etcd was started meanwhile"), "{refused}");
        assert_eq!(goes_on_with(root.path()), (false, None));
    }

    #[test]
    fn what_an_earlier_restore_left_is_no_reason_to_refuse_one_for_want_of_room() {
        let root = tempfile::tempdir().unwrap();
        let restoring = about_to_restore(root.path());
        let making = root.path().join("var/lib/etcd").join(MAKING);
        fs::create_dir_all(making.join("member")).unwrap();
        restoring.find_room(root.path()).unwrap();
        assert!(!making.exists());
        // More than any disk has: the file is empty but for its length.
        fs::File::options().write(true).open(&restoring.file).unwrap().set_len(15 << 40).unwrap();
        fs::create_dir(root.path().join("var/lib/etcd/member.before-restore-2026-11-21T14:30:05Z")).unwrap();
        let refused = restoring.find_room(root.path()).unwrap_err().to_string();
        assert!(refused.contains(" take 15728640 MiB ") && refused.contains("256 MiB have to stay free"), "{refused}");
        assert!(refused.contains("/member.before-restore-2026-11-21T14:30:05Z, snapshots in /data/"), "{refused}");
    }

    #[test]
    fn the_other_nodes_use_the_first_ones_code_for_the_same_snapshot_alone() {
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
    fn alone_there_is_one_member_and_the_others_are_to_be_replaced() {
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
    fn another_name_or_no_file_changes_nothing() {
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
