//! Runs the machines of a test vCenter as system containers: reads requests line by line, answers each, and reports
//! the state of the bodies. Requests of one machine run in order, those of several machines in parallel. The end of
//! its input means that the vCenter has ended, so all bodies end.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};
use serde::Serialize;

use super::super::cdrom;
use super::super::container::Containers;
use super::super::disk::{FileId, copy};
use super::super::network::{Network, port_of};
use super::super::records::LabDirectory;
use super::super::shown;
use super::super::tools::Tools;
use super::container_store::ContainerStore;
use super::protocol::{self, Act, Event, EventKind, Machine, Reply, Request};
use super::trees::Trees;
use super::vm_container::{self, Form, VmContainer, VmDisk};
use super::watch::GuestState;

/// Interval of observing a body.
const PACE: Duration = Duration::from_millis(300);
/// Name and addresses of a guest are read once per this number of observations.
const LOOKS: u32 = 5;

/// The runner of one vCenter's machines. Writes replies and events to `out`.
pub struct ContainerRunner<W> {
    engine: Containers,
    network: Network,
    shelf: ContainerStore,
    datastores: PathBuf,
    trees: Trees,
    tools: Tools,
    slots: Mutex<BTreeMap<String, Slot>>,
    ending: AtomicBool,
    out: Mutex<W>,
}

/// A machine's slot, whether it is on or off.
type Slot = Arc<Mutex<Option<Live>>>;

/// A running body.
struct Live {
    run: String,
    body: VmContainer,
    said: GuestState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Do,
    /// Nothing: the state is already as requested.
    Nothing,
    Refuse(&'static str),
}

/// Decides about a request. `running` names the power-on of the machine that runs.
fn decide(running: Option<&str>, act: &Act) -> Action {
    match (act, running) {
        (Act::Start { machine }, Some(running)) if running == machine.run => Action::Refuse("it runs already"),
        // The rest of an earlier power-on is ended first.
        (Act::Start { .. }, _) => Action::Do,
        (Act::Cut { run, .. }, Some(running)) if running == run => Action::Do,
        (Act::Cut { .. }, _) => Action::Nothing,
        (Act::Shutdown { run, .. } | Act::Nic { run, .. }, Some(running)) if running == run => Action::Do,
        (Act::Shutdown { .. } | Act::Nic { .. }, _) => Action::Refuse("this power-on of it is over"),
    }
}

impl<W: Write + Send> ContainerRunner<W> {
    /// A runner with this engine on this network. The machines' disks are below `directory`.
    pub fn new(engine: Containers, network: Network, directory: LabDirectory, tools: Tools, out: W) -> Self {
        Self {
            engine,
            network,
            datastores: directory.path().join(super::DATASTORES),
            trees: Trees::at(directory.path().join("trees"), tools.clone()),
            shelf: ContainerStore::of(directory),
            tools,
            slots: Mutex::default(),
            ending: AtomicBool::new(false),
            out: Mutex::new(out),
        }
    }

    /// Runs requests until the input ends, then ends all bodies.
    pub fn carry(&self, input: impl BufRead) -> anyhow::Result<()> {
        thread::scope(|scope| {
            let mut heard = Ok(());
            for line in input.lines() {
                match line.map(|line| protocol::read(&line)) {
                    Ok(Ok(request)) => drop(scope.spawn(move || self.answer(request))),
                    Ok(Err(refused)) => refused.iter().for_each(|reply| self.say(reply)),
                    Err(error) => {
                        heard = Err(error).context("reading what the vCenter asks for");
                        break;
                    }
                }
            }
            self.ending.store(true, Ordering::SeqCst);
            heard.and(self.end_all())
        })
    }

    fn answer(&self, Request { id, act }: Request) {
        let slot = self.slot(act.vm());
        let mut live = lock(&slot);
        let deed = decide(live.as_ref().map(|live| live.run.as_str()), &act);
        let done = match deed {
            Action::Do => self.act(&act, &mut live),
            Action::Nothing => Ok(()),
            Action::Refuse(why) => Err(anyhow::anyhow!(why)),
        };
        self.say(&Reply { id, error: done.as_ref().err().map(|error| format!("{error:#}")) });
        let started = match (&act, &*live, done) {
            (Act::Start { .. }, Some(live), Ok(())) => live.run.clone(),
            _ => return,
        };
        drop(live);
        self.watch(act.vm(), &slot, &started);
    }

    fn act(&self, act: &Act, live: &mut Option<Live>) -> anyhow::Result<()> {
        match (act, live) {
            (Act::Start { machine }, live) => {
                if let Some(earlier) = live {
                    self.cut(&mut earlier.body)?;
                    *live = None;
                }
                let body = self.start(machine)?;
                *live = Some(Live { run: machine.run.clone(), body, said: GuestState::of_before(&machine.guestinfo) });
                Ok(())
            }
            (Act::Shutdown { .. }, Some(live)) => match self.engine.press_power_button(&live.body.container())? {
                true => Ok(()),
                false => bail!("nothing in the guest takes such a request yet"),
            },
            (Act::Cut { .. }, live) => {
                if let Some(running) = live {
                    self.cut(&mut running.body)?;
                }
                *live = None;
                Ok(())
            }
            (Act::Nic { key, connected, .. }, Some(live)) => {
                let place = live.body.place_of(*key).with_context(|| format!("it has no adapter {key}"))?;
                self.network.connect(&port_of(&live.body.key, place), *connected)
            }
            (Act::Shutdown { .. } | Act::Nic { .. }, None) => bail!("it is off"),
        }
    }

    /// Starts a machine's body. Its record is written before it uses anything of the host.
    fn start(&self, machine: &Machine) -> anyhow::Result<VmContainer> {
        if self.ending.load(Ordering::SeqCst) {
            bail!("the vCenter is gone");
        }
        let (_, key) = vm_container::identity(&machine.vm)?;
        // A runner that was killed may have left it running.
        if let Some(mut earlier) = self.shelf.recall(&key)? {
            self.cut(&mut earlier)?;
        }
        self.forget_gone(&key)?;
        let mut body = self.made_of(machine)?;
        self.shelf.save(&body)?;
        match vm_container::form(machine) {
            Form::Document(document) => {
                cdrom::burn(&self.tools, document.as_bytes(), &self.shelf.cdrom(&key))?;
                body.cdrom = Some(self.shelf.cdrom(&key));
            }
            Form::Image(image) => body.cdrom = Some(image.to_owned()),
            Form::None => {}
        }
        self.shelf.mark_power_on(&key)?;
        for nic in &body.nics {
            self.network.ensure_bridge(&nic.bridge, None)?;
        }
        match self.engine.power_on(&body.container()) {
            Ok(process) => body.process = Some(process),
            Err(error) => {
                let cleaned = self.cut(&mut body);
                return Err(match cleaned {
                    Ok(()) => error,
                    Err(cleanup) => anyhow::anyhow!("{error:#}; and cleaning up after it: {cleanup:#}"),
                });
            }
        }
        self.shelf.save(&body)?;
        Ok(body)
    }

    /// Creates the body of a machine. An empty data disk gets a copy of its parent's content.
    fn made_of(&self, machine: &Machine) -> anyhow::Result<VmContainer> {
        let (uuid, key) = vm_container::identity(&machine.vm)?;
        let mut system = None;
        let mut disks = Vec::new();
        for disk in vm_container::in_order(&machine.disks) {
            let own = disk.files.first().context("a disk without a file")?;
            let content = vm_container::content(disk, length)?;
            let tree = if system.is_none() { self.trees.of(content)? } else { None };
            if let Some(tree) = tree {
                system = Some((tree, FileId::of(own)?));
                continue;
            }
            if content != own {
                copy(content, own)?;
            }
            disks.push(VmDisk { path: own.clone(), file: FileId::of(own)? });
        }
        let (tree, system) = system.context("none of its disks has a root partition to start from")?;
        let nics = vm_container::adapters(&machine.nics)?;
        let (name, in_order_uuid) = (machine.name.clone(), machine.in_order_uuid);
        Ok(VmContainer { key, name, uuid, in_order_uuid, tree, system, nics, disks, cdrom: None, process: None })
    }

    /// Cuts a body's power, and releases what it used on the host.
    fn cut(&self, body: &mut VmContainer) -> anyhow::Result<()> {
        self.engine.cut_off(&body.container())?;
        self.is_off(body)
    }

    fn is_off(&self, body: &mut VmContainer) -> anyhow::Result<()> {
        self.engine.give_back(&body.container())?;
        body.process = None;
        self.shelf.save(body)
    }

    fn end_all(&self) -> anyhow::Result<()> {
        let slots: Vec<Slot> = self.slots().values().cloned().collect();
        let mut ended = Ok(());
        for slot in slots {
            let mut live = lock(&slot);
            let cut = live.as_mut().map_or(Ok(()), |live| self.cut(&mut live.body));
            *live = None;
            ended = ended.and(cut);
        }
        ended
    }

    /// Removes /var and console logs of machines that no longer exist.
    fn forget_gone(&self, but: &str) -> anyhow::Result<()> {
        let mut there = BTreeSet::new();
        files_below(&self.datastores, &mut there)?;
        for body in self.shelf.all()? {
            if body.key != but && body.process.is_none() && !there.contains(&body.system) {
                self.shelf.forget(&body.key)?;
            }
        }
        Ok(())
    }

    /// Reports the state of a power-on until it ends.
    fn watch(&self, vm: &str, slot: &Slot, run: &str) {
        let say = |said| self.say(&Event { vm: vm.to_owned(), run: run.to_owned(), said });
        for look in 0.. {
            thread::sleep(PACE);
            let mut held = lock(slot);
            let Some(live) = held.as_mut().filter(|live| live.run == run) else { return };
            if self.engine.runs(&live.body.container()) {
                let now = self.look(live, look % LOOKS == 0);
                live.said.changes(&now).into_iter().for_each(say);
                live.said = now;
                continue;
            }
            // After the report that it is off, another machine may use its disks.
            match self.is_off(&mut live.body) {
                Ok(()) => {
                    *held = None;
                    return say(EventKind::Ended);
                }
                Err(error) => eprintln!("giving back what {} had: {error:#}", live.body.name),
            }
        }
    }

    /// The state that a body shows. A value that cannot be read keeps its last state.
    fn look(&self, live: &Live, at_tools: bool) -> GuestState {
        let mut now = live.said.clone();
        let container = live.body.container();
        for (key, file) in self.files(&live.body.key) {
            match shown::read(&file) {
                Ok(Some(text)) => drop(now.guestinfo.insert(key, String::from_utf8_lossy(&text).trim().to_owned())),
                Ok(None) => drop(now.guestinfo.remove(key)),
                Err(error) => eprintln!("{}: {error:#}", live.body.name),
            }
        }
        if at_tools && container.can_be_asked() {
            let name = container.host_name();
            let addresses = self.network.container_addresses(&container.port);
            match name.and_then(|name| Ok((name, addresses?))) {
                Ok((name, addresses)) => now.tools = Some((name, addresses)),
                Err(error) => eprintln!("{}: {error:#}", live.body.name),
            }
        }
        now
    }

    fn files(&self, key: &str) -> [(&'static str, PathBuf); 2] {
        let [statement, fingerprints] = super::watch::keys();
        [(statement, self.engine.statement_file(key)), (fingerprints, self.engine.fingerprints_file(key))]
    }

    fn say(&self, what: &impl Serialize) {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        // A reader that has stopped listening has closed the input as well.
        let _ = serde_json::to_string(what).map(|line| writeln!(out, "{line}").and_then(|()| out.flush()));
    }

    fn slots(&self) -> MutexGuard<'_, BTreeMap<String, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn slot(&self, vm: &str) -> Slot {
        self.slots().entry(vm.to_owned()).or_default().clone()
    }
}

fn lock(slot: &Slot) -> MutexGuard<'_, Option<Live>> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

fn length(file: &Path) -> anyhow::Result<u64> {
    Ok(fs::metadata(file).with_context(|| format!("looking at {}", file.display()))?.len())
}

fn files_below(directory: &Path, found: &mut BTreeSet<FileId>) -> anyhow::Result<()> {
    for entry in fs::read_dir(directory).with_context(|| format!("reading {}", directory.display()))? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => files_below(&entry.path(), found)?,
            false => drop(found.insert(FileId::of(&entry.path())?)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;
    use std::os::unix::fs::{FileExt, MetadataExt};

    use super::super::super::process::ProcessId;
    use super::*;

    fn start(run: &str) -> Act {
        let vm = "420f1a2b-0000-4000-8000-000000000001".to_owned();
        let machine = Machine {
            in_order_uuid: false,
            vm,
            run: run.to_owned(),
            name: "n".to_owned(),
            disks: Vec::new(),
            nics: Vec::new(),
            cdroms: Vec::new(),
            guestinfo: [].into(),
        };
        Act::Start { machine: Box::new(machine) }
    }

    #[test]
    fn a_request_is_for_one_power_on() {
        let (vm, run) = ("vm".to_owned(), "now".to_owned());
        let cut = Act::Cut { vm: vm.clone(), run: run.clone() };
        let nic = Act::Nic { vm: vm.clone(), run: run.clone(), key: 4000, connected: true };
        let shutdown = Act::Shutdown { vm, run };
        let of = |running| [&start("now"), &cut, &nic, &shutdown].map(|act| decide(running, act));
        let over = Action::Refuse("this power-on of it is over");
        assert_eq!(of(Some("now")), [Action::Refuse("it runs already"), Action::Do, Action::Do, Action::Do]);
        for running in [None, Some("another")] {
            assert_eq!(of(running), [Action::Do, Action::Nothing, over, over], "{running:?}");
        }
    }

    /// A runner without a host: no request of the test may need one.
    fn carrier<W: Write + Send>(directory: &Path, out: W) -> ContainerRunner<W> {
        let network = Network::of(&format!("none-{}", std::process::id()));
        let lab = LabDirectory::of(directory, "x").unwrap();
        fs::create_dir_all(lab.path().join(super::super::DATASTORES)).unwrap();
        let engine = Containers::new("none", lab.clone(), network.clone());
        ContainerRunner::new(engine, network, lab, Tools::at(directory), out)
    }

    #[test]
    fn each_request_gets_a_reply_with_its_error() {
        let directory = tempfile::tempdir().unwrap();
        let (heard, out) = std::io::pipe().unwrap();
        let (input, mut asks) = std::io::pipe().unwrap();
        let carrier = carrier(directory.path(), out);
        let disk = directory.path().join("blank.vmdk");
        fs::write(&disk, [0; 4096]).unwrap();
        let blank = serde_json::json!({"id": 1, "verb": "start", "machine": {"vm": "420f1a2b-0000-4000-8000-000000000001",
            "run": "r", "name": "n", "disks": [{"capacity": 4096, "files": [disk]}]}});
        let lines = format!(
            "{blank}\n{}\nnoise\n{}\n{}\n",
            r#"{"id": 2, "verb": "cut", "vm": "u", "run": "r"}"#,
            r#"{"id": 3, "verb": "nic", "vm": "u", "run": "r", "key": 4000}"#,
            r#"{"id": 4, "verb": "fly", "vm": "u", "run": "r"}"#,
        );
        let carries = thread::spawn(move || carrier.carry(BufReader::new(input)).unwrap());
        asks.write_all(lines.as_bytes()).unwrap();
        let mut heard = BufReader::new(heard).lines();
        let text: Vec<String> = heard.by_ref().take(4).map(Result::unwrap).collect();
        drop(asks);
        carries.join().unwrap();
        assert!(heard.next().is_none(), "more than was asked for");
        let said = |id: i64| {
            let replies = text.iter().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
            let mut its = replies.filter(|reply| reply["id"] == id);
            let reply = its.next().unwrap();
            assert_eq!(its.next(), None);
            reply["error"].as_str().unwrap_or("done").to_owned()
        };
        assert_eq!(said(1), "none of its disks has a root partition to start from");
        assert_eq!(said(2), "done");
        assert_eq!(said(3), "this power-on of it is over");
        assert!(said(4).contains("fly"), "{}", said(4));
    }

    #[test]
    fn a_machines_files_go_with_its_system_disk() {
        let directory = tempfile::tempdir().unwrap();
        let carrier = carrier(directory.path(), Vec::new());
        let store = carrier.datastores.join("LocalDS_0");
        for place in ["stays", "goes", "runs"] {
            fs::create_dir_all(store.join(place)).unwrap();
            let disk = store.join(place).join("disk-flat.vmdk");
            fs::write(&disk, "").unwrap();
            let process = ProcessId::of(std::process::id() as i32).filter(|_| place == "runs");
            let system = FileId::of(&disk).unwrap();
            let (key, name, tree) = (place.to_owned(), place.to_owned(), "/tree".into());
            let (uuid, nics, disks) = (uuid::Uuid::nil(), Vec::new(), Vec::new());
            let in_order_uuid = false;
            carrier
                .shelf
                .save(&VmContainer { key, name, uuid, in_order_uuid, tree, system, nics, disks, cdrom: None, process })
                .unwrap();
        }
        fs::rename(store.join("stays"), store.join("moved")).unwrap();
        // Other files must not get their inodes.
        let held = ["goes", "runs"].map(|place| fs::File::open(store.join(place).join("disk-flat.vmdk")).unwrap());
        for place in ["goes", "runs"] {
            fs::remove_dir_all(store.join(place)).unwrap();
        }
        carrier.forget_gone("another").unwrap();
        let left: Vec<_> = carrier.shelf.all().unwrap().into_iter().map(|body| body.key).collect();
        assert_eq!(left, ["runs", "stays"]);
        drop(held);
    }

    #[test]
    fn a_disk_copy_is_complete_and_sparse() {
        let directory = tempfile::tempdir().unwrap();
        let [parent, own] = ["parent-flat.vmdk", "own-delta.vmdk"].map(|name| directory.path().join(name));
        let file = fs::File::create(&parent).unwrap();
        file.set_len(64 << 20).unwrap();
        file.write_all_at(b"data", 32 << 20).unwrap();
        fs::write(&own, "").unwrap();
        copy(&parent, &own).unwrap();
        assert_eq!(fs::read(&own).unwrap(), fs::read(&parent).unwrap());
        assert!(fs::metadata(&own).unwrap().blocks() < 4096, "holes are written out");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
    }

    #[test]
    fn nothing_starts_after_the_vcenter_has_ended() {
        let directory = tempfile::tempdir().unwrap();
        let carrier = carrier(directory.path(), Vec::new());
        carrier.carry(&b""[..]).unwrap();
        carrier.answer(Request { id: 1, act: start("late") });
        let text = String::from_utf8(carrier.out.into_inner().unwrap()).unwrap();
        assert!(text.contains("the vCenter is gone"), "{text}");
    }
}
