//! `kaas-agent force-adopt`: gives this VM the data disk of a VM that has not released it. The operator confirms that the other
//! VM is off for good. Input is checked here, for the command line and the console alike.

use std::path::Path;

use anyhow::{Context as _, bail};
use clap::Args;
use uuid::Uuid;

use crate::host::command::Runner;
use crate::host::disk::ownership::{self, Claimant, Refusal};
use crate::host::disk::{self, DataDisk, Disk, Identity, slots};
use crate::host::image;
use crate::host::platform::Platform;
use crate::host::services;

/// `kaas-agent force-adopt`
#[derive(Args)]
pub struct Options {
    /// The node's name, typed out, once its former VM is proved to be off and cannot come back
    #[arg(long, value_name = "NODE")]
    confirm: String,
    /// Take the disk although this image is older than the one that used it last
    #[arg(long)]
    downgrade: bool,
    /// Take the disk although this image may not take the place of the one that used it last
    #[arg(long)]
    any_version: bool,
    /// Take the disk although this image is not signed with the pinned key. The key that has signed it is pinned at the commit;
    /// if the image is not signed, the pinned key stays
    #[arg(long)]
    publisher_changed: bool,
}

/// The options by which the operator confirms something out of the ordinary.
const DOWNGRADE: &str = "--downgrade";
const ANY_VERSION: &str = "--any-version";
const PUBLISHER_CHANGED: &str = "--publisher-changed";

impl Options {
    fn has(&self, option: &str) -> bool {
        match option {
            DOWNGRADE => self.downgrade,
            ANY_VERSION => self.any_version,
            _ => self.publisher_changed,
        }
    }
}

/// A disk that this VM may not take, with the reason.
#[derive(Debug)]
pub struct ForceAdoptPreview {
    disk: Disk,
    identity: Identity,
    refusal: Refusal,
    claimant: Claimant,
}

/// Looks for a disk to adopt: one that is refused only for its holder or its image. Changes nothing.
pub fn look(platform: &Platform, runner: &dyn Runner) -> anyhow::Result<ForceAdoptPreview> {
    let claimant = Claimant::of(platform, &image::read(platform.root())?);
    let examination = disk::examine(platform, &claimant, platform.root(), runner).context("looking at the disks")?;
    match examination.data_disk {
        DataDisk::HeldElsewhere { disk, identity } => {
            let refusal = ownership::may_take(&identity, &claimant).err().context("the disk is no longer refused")?;
            Ok(ForceAdoptPreview { disk, identity, refusal, claimant })
        }
        DataDisk::Ours { identity, .. } => {
            bail!("the data disk of {} is this VM's already: nothing was changed", identity.node)
        }
        _ => bail!("there is no data disk to adopt: nothing was changed\n{}", examination.findings),
    }
}

impl ForceAdoptPreview {
    /// The effects, for the operator who is about to type the node's name.
    pub fn words(&self) -> String {
        let Identity { node, cluster, image_version, .. } = &self.identity;
        let holder = match &self.refusal {
            Refusal::Held(holder) => format!(
                "the VM with BIOS UUID {}, which has not released it and must be off for good, or both are {node}",
                holder.for_search()
            ),
            Refusal::OtherImage(image) => format!("a VM of image {} (build {})", image.version, image.build),
            Refusal::Older(_) | Refusal::FromVersion { .. } | Refusal::Publisher(_) => "nobody".to_owned(),
        };
        let publisher = self.claimant.publisher.as_deref();
        let signed = publisher.map_or_else(|| ", not signed,".to_owned(), |key| format!(", signed with {key},"));
        let pinned = self.identity.publisher.as_ref();
        let unusual: String =
            self.unusual().into_iter().map(|(_, why)| format!(" Out of the ordinary: {why}.")).collect();
        format!(
            "This VM, with image {}{}, takes over the data disk of node {node} of cluster {cluster}, last used by image \
             {image_version} and meant for {holder}{}. It restarts as {node}.{unusual}",
            self.claimant.own.version,
            pinned.map_or_else(String::new, |_| signed),
            pinned.map_or_else(String::new, |pinned| format!("; the publisher's key {pinned} is pinned"))
        )
    }

    /// The text that the operator must type on the console: the name of the disk's node, and the options for everything out of
    /// the ordinary.
    pub fn word(&self) -> String {
        let options = self.unusual().into_iter().map(|(option, _)| option);
        std::iter::once(&*self.identity.node).chain(options).collect::<Vec<_>>().join(" ")
    }

    /// Everything out of the ordinary, each with the option that confirms it.
    fn unusual(&self) -> Vec<(&'static str, String)> {
        let version = &self.claimant.own.version;
        let unusual = |refusal| match refusal {
            Refusal::Older(last) => Some((
                DOWNGRADE,
                format!(
                    "this image, {version}, is older than {last}, which used the disk last: it may not understand what it \
                     finds"
                ),
            )),
            Refusal::FromVersion { last, allowed } => Some((
                ANY_VERSION,
                format!("this image, {version}, may take the place of {allowed} only, and {last} used the disk last"),
            )),
            Refusal::Publisher(pinned) => Some((
                PUBLISHER_CHANGED,
                format!(
                    "the publisher's key {pinned} is pinned, and this image is {}",
                    match &self.claimant.publisher {
                        Some(key) => format!("signed with {key}"),
                        None => "not signed".to_owned(),
                    }
                ),
            )),
            Refusal::Held(_) | Refusal::OtherImage(_) => None,
        };
        self.claimant.against(&self.identity).into_iter().filter_map(unusual).collect()
    }

    /// The disk may be another one than shown before. Errors are for the operator.
    pub fn is_confirmed_by(&self, typed: &str) -> Result<(), String> {
        let word = self.word();
        if typed == word {
            Ok(())
        } else {
            Err(format!("to take the disk over, {word:?} has to be typed, not {typed:?}: nothing was changed"))
        }
    }

    /// Errors are for the operator.
    pub fn confirmed(&self, options: &Options) -> Result<(), String> {
        let (Identity { node: own, .. }, node) = (&self.identity, &options.confirm);
        if node != own {
            return Err(format!("the disk is {own}'s, not {node:?}'s: nothing was changed"));
        }
        match self.unusual().into_iter().find(|(option, _)| !options.has(option)) {
            Some((option, why)) => Err(format!("{why}. Nothing was changed. If that is meant: {option}")),
            None => Ok(()),
        }
    }
}

/// Takes the disk and restarts the system, which then has the node's identity. The operator must have confirmed it: see
/// [`ForceAdoptPreview::confirmed`]. After an error the next start continues.
pub fn begin(outlook: &ForceAdoptPreview, runner: &dyn Runner) -> anyhow::Result<()> {
    let ForceAdoptPreview { disk, identity, claimant, .. } = outlook;
    let over = ownership::taken_over(identity, claimant, Uuid::new_v4());
    let take = || {
        let written = (0..2).try_for_each(|_| slots::write(&disk.path, &over));
        written.with_context(|| format!("writing to {}", disk.path.display()))?;
        log::warn!("{} was taken over, as was confirmed: {}", disk.path.display(), outlook.words());
        Ok(())
    };
    services::write_and_reboot(runner, take, "the disk is this VM's now")
}

pub fn command(root: &Path, options: &Options, runner: &dyn Runner) -> anyhow::Result<()> {
    let outlook = look(&Platform::detect(root)?, runner)?;
    outlook.confirmed(options).map_err(anyhow::Error::msg)?;
    println!("{}", outlook.words());
    begin(&outlook, runner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::command::{Command, Error};
    use crate::host::disk::fixture::{self, Machine};
    use crate::host::disk::{DiskState, Slots, layout};
    use std::path::PathBuf;
    use std::sync::Mutex;

    /// A machine with the disk of another one, and an image of this version.
    fn machine(version: &str) -> (Machine, PathBuf) {
        let mut machine = Machine::new();
        let disk = machine.add("other");
        let size = std::fs::metadata(&disk).unwrap().len();
        let whose = Identity {
            disk: Uuid::new_v4(),
            generation: 4,
            holder: Some(contract::bios_uuid::BiosUuid::from_u128(77)),
            state: DiskState::Formed,
            ..fixture::identity()
        };
        layout::write_table(&disk, whose.disk, size, 512, &crate::host::command::Host).unwrap();
        slots::write(&disk, &whose).unwrap();
        slots::write(&disk, &whose).unwrap();
        let image = crate::host::files::below(machine.directory.path(), contract::image::PATH);
        std::fs::create_dir_all(image.parent().unwrap()).unwrap();
        let facts = contract::image::ImageFacts { version: version.into(), ..crate::intake::config::fixture::image() };
        std::fs::write(image, serde_json::to_vec(&facts).unwrap()).unwrap();
        (machine, disk)
    }

    /// Records systemctl commands instead of running them.
    #[derive(Default)]
    struct Notes(Mutex<Vec<String>>);

    impl Runner for Notes {
        fn run(&self, command: &Command) -> Result<Vec<u8>, Error> {
            if command.to_string().starts_with("systemctl") {
                self.0.lock().unwrap().push(command.to_string());
                return Ok(Vec::new());
            }
            crate::host::command::Host.run(command)
        }
    }

    fn typed(machine: &Machine, runner: &Notes, node: &str, downgrade: bool) -> Result<(), String> {
        let options = Options { confirm: node.into(), downgrade, any_version: false, publisher_changed: false };
        // The platform's file is written when it is read first.
        machine.platform();
        command(machine.directory.path(), &options, runner).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn confirmed_takeover_restarts_the_system() {
        let (machine, disk) = machine("0.1.0");
        let notes = Notes::default();
        let refused = typed(&machine, &notes, "cp-2", false).unwrap_err();
        assert!(refused.contains("the disk is cp-1's") && notes.0.lock().unwrap().is_empty(), "{refused}");
        typed(&machine, &notes, "cp-1", false).unwrap();
        assert_eq!(*notes.0.lock().unwrap(), ["systemctl stop kaas-agent.service", "systemctl reboot"]);
        let slots = Slots::read(&disk).unwrap();
        let taken = slots.newest().unwrap();
        assert_eq!((taken.holder, taken.generation, slots.is_redundant()), (Some(machine.uuid), 5, true));
        assert_eq!(machine.verdict(), ("ours", vec![]));
        let again = typed(&machine, &notes, "cp-1", false).unwrap_err();
        assert!(again.contains("this VM's already"), "{again}");
    }

    #[test]
    fn older_image_needs_its_option() {
        let (machine, disk) = machine("0.0.9");
        let notes = Notes::default();
        let refused = typed(&machine, &notes, "cp-1", false).unwrap_err();
        assert!(refused.contains("--downgrade") && notes.0.lock().unwrap().is_empty(), "{refused}");
        let outlook = look(&machine.platform(), &crate::host::command::Host).unwrap();
        assert_eq!(outlook.word(), "cp-1 --downgrade");
        assert!(outlook.words().contains("Out of the ordinary: this image, 0.0.9, is older"), "{}", outlook.words());
        assert_eq!(outlook.is_confirmed_by("cp-1 --downgrade"), Ok(()));
        assert!(outlook.is_confirmed_by("cp-1").unwrap_err().contains("\"cp-1 --downgrade\" has to be typed"));
        typed(&machine, &notes, "cp-1", true).unwrap();
        let taken = Slots::read(&disk).unwrap().newest().unwrap().clone();
        assert_eq!(taken.image_version, "0.0.9");
        assert!(taken.swap.is_some_and(|swap| swap.forced));
    }

    #[test]
    fn image_of_another_publisher_needs_its_option() {
        let (machine, disk) = machine("0.2.0");
        let whose = Slots::read(&disk).unwrap().newest().unwrap().clone();
        let pinned = Identity { publisher: Some("SHA256:pinned".into()), holder: None, ..whose };
        slots::write(&disk, &pinned).unwrap();
        let notes = Notes::default();
        let refused = typed(&machine, &notes, "cp-1", true).unwrap_err();
        assert!(refused.contains("--publisher-changed") && refused.contains("is not signed"), "{refused}");
        assert!(
            notes.0.lock().unwrap().is_empty()
                && machine.verdict() == ("held elsewhere", vec!["image.publisher".into()])
        );
        let options = Options { confirm: "cp-1".into(), downgrade: false, any_version: false, publisher_changed: true };
        command(machine.directory.path(), &options, &notes).unwrap();
        // An unsigned image does not change the pinned key.
        let taken = Slots::read(&disk).unwrap().newest().unwrap().clone();
        assert_eq!((&taken.publisher, taken.holder), (&pinned.publisher, Some(machine.uuid)));
        assert!(taken.swap.is_some_and(|swap| swap.forced && swap.publisher.is_none()));
    }

    #[test]
    fn image_of_an_excluded_version_needs_its_option() {
        let (machine, disk) = machine("0.2.0");
        let image = crate::host::files::below(machine.directory.path(), contract::image::PATH);
        let mut facts = image::read(machine.directory.path()).unwrap();
        facts.upgrades_from = Some(">=0.1.5".parse().unwrap());
        std::fs::write(image, serde_json::to_vec(&facts).unwrap()).unwrap();
        let notes = Notes::default();
        let refused = typed(&machine, &notes, "cp-1", true).unwrap_err();
        assert!(refused.contains("--any-version") && refused.contains(">=0.1.5 only, and 0.1.0"), "{refused}");
        let options = Options { confirm: "cp-1".into(), downgrade: false, any_version: true, publisher_changed: false };
        command(machine.directory.path(), &options, &notes).unwrap();
        assert_eq!(Slots::read(&disk).unwrap().newest().unwrap().holder, Some(machine.uuid));
    }

    #[test]
    fn without_a_disk_nothing_is_taken() {
        let (machine, _) = machine("0.1.0");
        let empty = Machine::new();
        let target = crate::host::files::below(empty.directory.path(), contract::image::PATH);
        std::fs::create_dir_all(target.parent().unwrap()).unwrap();
        std::fs::copy(crate::host::files::below(machine.directory.path(), contract::image::PATH), target).unwrap();
        let refused = typed(&empty, &Notes::default(), "cp-1", false).unwrap_err();
        assert!(refused.contains("no data disk to adopt") && refused.contains("disk.absent"), "{refused}");
    }
}
