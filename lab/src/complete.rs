//! A lab's control nodes as they were planned: made where they are not, and powered on.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Context;
use fleet::hypervisor::Stamp;
use fleet::upgrade::OpenUpgrade;

use super::deployment_lease::with_lease_at;
use super::records::VmRecord;
use super::{Lab, LeaseRequest, NewVm, PlannedNode};

/// How large the VM of a control node is.
#[derive(Clone, Copy, Debug)]
pub struct NodeSize {
    /// Memory in MiB.
    pub memory: u32,
    /// Number of virtual processors.
    pub processors: u32,
    /// Size of the data disk in bytes.
    pub data_disk: u64,
}

/// What of a planned control node is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeVmState {
    /// No VM.
    Nothing,
    /// One that was never finished: it has no disk, or one that was not made, and was never on.
    Incomplete,
    /// A VM, or two in an upgrade.
    Complete,
}

impl Lab {
    /// Makes a control node's VM, powered off.
    pub(super) fn import_node(&self, node: &PlannedNode, size: NodeSize) -> anyhow::Result<()> {
        self.import(&NewVm {
            name: node.name.clone(),
            memory: size.memory,
            processors: size.processors,
            data_disk: Some(size.data_disk),
            network_interface: true,
            properties: node.properties.clone(),
            source: None,
            engine: self.record.engine,
            stamp: Some(Stamp { deployment: self.deployment(), node: node.name.clone(), swap: None }),
            in_order_uuid: false,
        })
    }

    /// Whether a command that was killed has made nothing but the lab itself: it may lack the operator's keys. One with a disk
    /// had VMs.
    ///
    /// # Errors
    /// When its directory cannot be read.
    pub fn is_empty(&self) -> anyhow::Result<bool> {
        Ok(!self.directory.has_disks()? && self.vms()?.is_empty())
    }

    /// The lab of this name, if a command that was killed has begun to make it, and has powered no control node's VM on:
    /// [`Lab::go_on`] makes those that it lacks. A tenant is none of these, nor is what a command has left that was to remove it. One
    /// of an earlier version has not noted that; its lab has disks that no VM has: whoever makes a VM notes its disk before that is
    /// there.
    ///
    /// # Errors
    /// When the lab's directory cannot be read.
    pub fn open_incomplete(state: &Path, name: &str) -> anyhow::Result<Option<Self>> {
        if !Self::exists(state, name)? {
            return Ok(None);
        }
        let lab = Self::open(state, name)?;
        let records = lab.stamped_nodes()?;
        let were_on = records.iter().any(|vm| lab.was_on(vm));
        let goes = lab.directory.is_left_over()? || lab.has_spare_disks(&records)?;
        let is_begun = lab.record.beside.is_none() && !were_on && !goes;
        Ok(is_begun.then_some(lab))
    }

    fn has_spare_disks(&self, records: &[VmRecord]) -> anyhow::Result<bool> {
        let held = records.iter().flat_map(|vm| &vm.disks).filter(|disk| self.disk_file(**disk).exists());
        Ok(self.directory.disk_lengths()?.len() > held.count())
    }

    /// Makes the control nodes' VMs that a command which was killed has not made, or not to the end. That was before any of
    /// them was on: a node that [had a VM](Self::lost_node) is left as it is. A lab of which it has made nothing is removed: none
    /// is left then.
    ///
    /// # Errors
    /// When somebody is at work on the control nodes, or the host refuses; doing it again goes on.
    pub fn complete(self, size: NodeSize, asking: &LeaseRequest<'_>) -> anyhow::Result<Option<Self>> {
        let records = self.stamped_nodes()?;
        if self.plan().nodes.iter().all(|node| self.made(node, &records) == NodeVmState::Complete) {
            return Ok(Some(self));
        }
        self.completed(size, asking, |_| Ok(()))
    }

    /// The same, unless `check` refuses that, which is asked before anything is made, also where nothing is left to make.
    pub(super) fn completed(
        self,
        size: NodeSize,
        asking: &LeaseRequest<'_>,
        check: impl FnOnce(&Self) -> anyhow::Result<()>,
    ) -> anyhow::Result<Option<Self>> {
        with_lease_at(&self.upgrades(), asking, async |hold| {
            hold.confirm().await?;
            if self.is_empty()? {
                self.remove().context("removing a lab that no VM of was made")?;
                return Ok(None);
            }
            check(&self)?;
            self.complete_held(size)?;
            Ok(Some(self))
        })
    }

    fn complete_held(&self, size: NodeSize) -> anyhow::Result<()> {
        let records = self.stamped_nodes()?;
        let were_on = records.iter().any(|vm| self.was_on(vm));
        for node in &self.plan().nodes {
            match self.made(node, &records) {
                NodeVmState::Complete => continue,
                NodeVmState::Nothing if were_on => continue,
                NodeVmState::Incomplete => {
                    for disk in self.disks(&node.name)? {
                        self.detach_disk(&node.name, disk)?;
                    }
                    self.destroy(&node.name)?;
                }
                NodeVmState::Nothing => {}
            }
            self.import_node(node, size)?;
        }
        Ok(())
    }

    /// What to do about a control node that had a VM and has none any more, if there is one. The others let it in anew, which
    /// takes that they are on.
    ///
    /// # Errors
    /// When the lab's directory cannot be read.
    pub fn lost_node(&self) -> anyhow::Result<Option<String>> {
        let records = self.stamped_nodes()?;
        let were_on = records.iter().any(|vm| self.was_on(vm));
        let is_lost = |node: &&PlannedNode| were_on && self.made(node, &records) == NodeVmState::Nothing;
        Ok(self.plan().nodes.iter().find(is_lost).map(|node| {
            format!(
                "{0} has no VM any more: `kaas lab tenant replace-control-plane {0} --name {1}` gives it one",
                node.name, self.name
            )
        }))
    }

    /// Whether each planned control node has a VM.
    pub(super) fn has_all_nodes(&self) -> anyhow::Result<bool> {
        let records = self.control_nodes()?;
        // Those of labs of earlier versions are known by their names.
        let node_of = |vm: &VmRecord| vm.stamp.as_ref().map_or(&vm.name, |stamp| &stamp.node).clone();
        let there: BTreeSet<String> = records.iter().map(node_of).collect();
        Ok(self.plan().nodes.iter().all(|node| there.contains(&node.name)))
    }

    fn was_on(&self, vm: &VmRecord) -> bool {
        self.console(&vm.name).exists()
    }

    fn lacks_its_disk(&self, vm: &VmRecord) -> bool {
        vm.disks.iter().all(|disk| !self.disk_file(*disk).exists())
    }

    fn made(&self, node: &PlannedNode, records: &[VmRecord]) -> NodeVmState {
        match of(node, records).as_slice() {
            [] => NodeVmState::Nothing,
            // The disk of one that was on is on its way to another VM, or was taken out.
            [vm] if self.lacks_its_disk(vm) && vm.name == node.name && !self.was_on(vm) => NodeVmState::Incomplete,
            _ => NodeVmState::Complete,
        }
    }

    /// Powers on the VM of each control node that has its data disk. A node that an upgrade is swapping is left to that, and
    /// `asking.say` is told.
    ///
    /// # Errors
    /// When somebody is at work on the control nodes, or a VM does not start.
    pub fn power_on_nodes(&self, asking: &LeaseRequest<'_>) -> anyhow::Result<()> {
        if self.to_power_on(None, &|_| {})?.is_empty() {
            return Ok(());
        }
        self.with_lease(asking, async |hold| {
            let open = OpenUpgrade::find(hold.store()).await?;
            for vm in self.to_power_on(open.as_ref(), asking.say)? {
                hold.confirm().await?;
                self.power_on(&vm)?;
                (asking.say)(&format!("{vm} is on; its console log is {}", self.console(&vm).display()));
            }
            Ok(())
        })
    }

    /// The VMs that are off and ought to be on.
    fn to_power_on(&self, open: Option<&OpenUpgrade>, say: &dyn Fn(&str)) -> anyhow::Result<Vec<String>> {
        let records = self.stamped_nodes()?;
        let mut off = Vec::new();
        for node in &self.plan().nodes {
            let vms = of(node, &records);
            let is_new =
                |vm: &&VmRecord| vm.stamp.as_ref().is_some_and(|stamp| open.is_some_and(|open| open.made(stamp)));
            if open.is_some_and(|open| !open.upgraded) && vms.iter().any(is_new) {
                say(&format!(
                    "{} is left as it is: an upgrade is swapping it, `kaas upgrade resume --lab {}` goes on",
                    node.name, self.name
                ));
                continue;
            }
            for vm in vms.into_iter().filter(|vm| !vm.disks.is_empty()) {
                if !self.is_not_off(vm)? {
                    off.push(vm.name.clone());
                }
            }
        }
        Ok(off)
    }
}

/// A control node's VMs among those that say whose they are.
fn of<'r>(node: &PlannedNode, records: &'r [VmRecord]) -> Vec<&'r VmRecord> {
    let is_its = |record: &&VmRecord| record.stamp.as_ref().is_some_and(|stamp| stamp.node == node.name);
    records.iter().filter(is_its).collect()
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;
    use uuid::Uuid;

    use super::super::process::ProcessId;
    use super::super::{EngineRecord, fixture, records};
    use super::*;

    /// A lab of three planned nodes without VMs.
    fn lab() -> (TempDir, Lab) {
        let state = tempfile::tempdir().unwrap();
        let lab = fixture::lab(state.path(), 3, fixture::source(&state.path().join("tree")));
        (state, lab)
    }

    /// Gives a VM to a node, with its data disk or without.
    fn add(lab: &Lab, vm: &str, node: &str, swap: Option<Uuid>, has_disk: bool) {
        let stamp = Some(Stamp { deployment: lab.deployment(), node: node.to_owned(), swap });
        let new = NewVm {
            name: vm.to_owned(),
            memory: 1,
            processors: 1,
            data_disk: None,
            network_interface: true,
            properties: [].into(),
            source: None,
            engine: EngineRecord::Container,
            stamp,
            in_order_uuid: false,
        };
        lab.make_vm(&new).unwrap();
        if has_disk {
            hold(lab, vm);
        }
    }

    /// Gives a data disk to a VM.
    fn hold(lab: &Lab, vm: &str) {
        std::fs::create_dir_all(lab.directory.path().join("disks")).unwrap();
        let mut record = lab.directory.load_vm(vm).unwrap();
        record.disks.push(lab.create_disk(1 << 20).unwrap());
        lab.directory.save_vm(&record).unwrap();
    }

    fn made(lab: &Lab) -> Vec<NodeVmState> {
        let records = lab.stamped_nodes().unwrap();
        lab.plan().nodes.iter().map(|node| lab.made(node, &records)).collect()
    }

    #[test]
    fn what_a_killed_command_has_not_made_is_made_and_nothing_else() {
        let (_state, lab) = lab();
        assert!(lab.is_empty().unwrap() && lab.lost_node().unwrap().is_none());
        assert_eq!(made(&lab), [NodeVmState::Nothing; 3]);
        add(&lab, "cp1", "cp1", None, true);
        // A record, and nothing that follows it; and what is there before the record.
        add(&lab, "cp2", "cp2", None, false);
        std::fs::create_dir_all(lab.directory.vm("cp3")).unwrap();
        assert_eq!(lab.vms().unwrap(), ["cp1", "cp2"]);
        assert_eq!(made(&lab), [NodeVmState::Complete, NodeVmState::Incomplete, NodeVmState::Nothing]);
        // A disk that was noted, and not made.
        let mut second = lab.directory.load_vm("cp2").unwrap();
        second.disks.push(Uuid::from_u128(2));
        lab.directory.save_vm(&second).unwrap();
        assert_eq!(made(&lab), [NodeVmState::Complete, NodeVmState::Incomplete, NodeVmState::Nothing]);
        second.disks.clear();
        lab.directory.save_vm(&second).unwrap();
        hold(&lab, "cp2");
        // There is nothing to burn a CD-ROM with, which comes after the record.
        let size = NodeSize { memory: 2048, processors: 2, data_disk: 1 << 20 };
        let why = format!("{:#}", lab.complete_held(size).unwrap_err());
        assert!(why.contains("making the CD-ROM"), "{why}");
        assert_eq!(lab.vms().unwrap(), ["cp1", "cp2", "cp3"]);
        assert_eq!(lab.directory.load_vm("cp3").unwrap().memory, 2048);
    }

    #[test]
    fn a_lab_that_was_begun_is_gone_on_with_until_one_of_its_vms_was_on() {
        let (state, lab) = lab();
        records::save(&lab.directory.record(), &lab.record).unwrap();
        let begun = || Lab::open_incomplete(state.path(), "x").unwrap().is_some();
        assert!(Lab::open_incomplete(state.path(), "y").unwrap().is_none());
        assert!(begun());
        add(&lab, "cp1", "cp1", None, true);
        assert!(begun(), "two of its three nodes have no VM");
        lab.directory.mark_power_on("cp1").unwrap();
        assert!(!begun(), "who lets the others in is on");
        let (state, lab) = self::lab();
        records::save(&lab.directory.record(), &lab.record).unwrap();
        ["cp1", "cp2", "cp3"].iter().for_each(|node| add(&lab, node, node, None, true));
        assert!(
            Lab::open_incomplete(state.path(), "x").unwrap().is_some(),
            "it was killed before the first one was on"
        );
        lab.directory.mark_power_on("cp1").unwrap();
        assert!(Lab::open_incomplete(state.path(), "x").unwrap().is_none());
    }

    #[test]
    fn what_is_left_of_a_lab_that_was_to_go_is_not_gone_on_with() {
        let (state, lab) = lab();
        records::save(&lab.directory.record(), &lab.record).unwrap();
        for node in ["cp1", "cp2"] {
            add(&lab, node, node, None, true);
        }
        assert!(Lab::open_incomplete(state.path(), "x").unwrap().is_some());
        // Its removal is cut off between two VMs, and between VMs and disks.
        for vm in ["cp1", "cp2"] {
            std::fs::remove_dir_all(lab.directory.vm(vm)).unwrap();
            assert!(Lab::open_incomplete(state.path(), "x").unwrap().is_none());
        }
        let why = lab.directory.is_free().unwrap_err().to_string();
        assert!(why.contains("`kaas lab down --name x` removes the rest"), "{why}");
    }

    #[test]
    fn of_a_lab_that_was_to_go_and_has_vms_yet_it_is_said_what_removes_the_rest() {
        let (state, lab) = lab();
        records::save(&lab.directory.record(), &lab.record).unwrap();
        for node in ["cp1", "cp2"] {
            add(&lab, node, node, None, true);
            lab.directory.mark_power_on(node).unwrap();
        }
        let why = || lab.directory.is_free().unwrap_err().to_string();
        assert!(why().contains("kaas lab on VM"), "{}", why());
        // Its removal is cut off after the one that was on first.
        let to_go = lab.begin_removal().unwrap();
        assert!(to_go.iter().any(|path| path.ends_with("vms")));
        std::fs::remove_dir_all(lab.directory.vm("cp1")).unwrap();
        assert!(why().contains("`kaas lab down --name x` removes the rest"), "{}", why());
        assert!(Lab::open_incomplete(state.path(), "x").unwrap().is_none());
    }

    /// A VM's start has succeeded.
    fn start(lab: &Lab, vm: &str) {
        let process = ProcessId::of(std::process::id().try_into().unwrap()).unwrap();
        lab.directory.mark_power_on(vm).unwrap();
        lab.has_started(lab.directory.load_vm(vm).unwrap(), process).unwrap();
    }

    #[test]
    fn a_lab_that_was_to_go_and_is_powered_on_again_is_not_to_go_any_more() {
        let (state, lab) = lab();
        records::save(&lab.directory.record(), &lab.record).unwrap();
        for node in ["cp1", "cp2", "cp3"] {
            add(&lab, node, node, None, true);
            lab.directory.mark_power_on(node).unwrap();
        }
        let why = || lab.directory.is_free().unwrap_err().to_string();
        let is_to_go = || why().contains("`kaas lab down --name x` removes the rest");
        // Its removal is cut off before anything has gone.
        lab.begin_removal().unwrap();
        assert!(is_to_go(), "{}", why());
        // It is being powered on, which may fail.
        lab.directory.mark_power_on("cp1").unwrap();
        assert!(is_to_go(), "{}", why());
        start(&lab, "cp1");
        assert!(why().contains("kaas lab on VM") && !why().contains("kaas lab down"), "{}", why());
        assert!(Lab::open_incomplete(state.path(), "x").unwrap().is_none(), "nothing of it is made anew");
    }

    #[test]
    fn a_lab_of_which_something_has_gone_stays_to_go_whatever_is_powered_on_again() {
        let (state, lab) = lab();
        records::save(&lab.directory.record(), &lab.record).unwrap();
        for node in ["cp1", "cp2", "cp3"] {
            add(&lab, node, node, None, true);
        }
        // What another one than a planned node runs on stands for none.
        add(&lab, "cp4", "cp4", None, true);
        lab.begin_removal().unwrap();
        std::fs::remove_file(lab.directory.vm_record("cp2")).unwrap();
        start(&lab, "cp1");
        let why = lab.directory.is_free().unwrap_err().to_string();
        assert!(why.contains("`kaas lab down --name x` removes the rest"), "{why}");
        assert!(Lab::open_incomplete(state.path(), "x").unwrap().is_none());
    }

    #[test]
    fn what_is_left_of_a_lab_whose_removal_could_not_be_noted_is_not_gone_on_with() {
        let (state, lab) = lab();
        records::save(&lab.directory.record(), &lab.record).unwrap();
        for node in ["cp1", "cp2", "cp3"] {
            add(&lab, node, node, None, true);
        }
        lab.directory.mark_power_on("cp1").unwrap();
        std::os::unix::fs::symlink("nowhere/going", lab.directory.removal_mark()).unwrap();
        let is_begun = || Lab::open_incomplete(state.path(), "x").unwrap().is_some();
        assert!(!is_begun());
        let paths = lab.begin_removal().unwrap();
        assert!(!lab.directory.removal_mark().exists(), "it is noted");
        // Cut off anywhere before its last disk has gone, also in the middle of a directory.
        let disks = paths.iter().position(|path| path.ends_with("disks")).unwrap();
        for path in &paths[..disks] {
            if path.is_dir() {
                for vm in ["cp1", "cp2", "cp3"] {
                    drop(std::fs::remove_file(lab.console(vm)));
                    assert!(!is_begun(), "without the console log of {vm}");
                }
                std::fs::remove_dir_all(path).unwrap();
            } else {
                std::fs::remove_file(path).unwrap();
            }
            assert!(!is_begun(), "without {}", path.display());
        }
    }

    #[test]
    fn nothing_is_made_for_a_node_that_lost_its_vm_or_whose_disk_is_on_its_way() {
        let (_state, lab) = lab();
        add(&lab, "cp1", "cp1", None, true);
        add(&lab, "cp2", "cp2", None, false);
        for was_on in ["cp1", "cp2"] {
            lab.directory.mark_power_on(was_on).unwrap();
        }
        assert_eq!(made(&lab), [NodeVmState::Complete, NodeVmState::Complete, NodeVmState::Nothing]);
        let size = NodeSize { memory: 2048, processors: 2, data_disk: 1 << 20 };
        lab.complete_held(size).unwrap();
        assert_eq!(lab.vms().unwrap(), ["cp1", "cp2"]);
        // Who lets it in has to be on.
        assert_eq!(lab.to_power_on(None, &|_| {}).unwrap(), ["cp1"]);
        let why = lab.lost_node().unwrap().unwrap();
        assert!(why.starts_with("cp3 has no VM any more") && why.contains("cp3 --name x`"), "{why}");
        // Its disks are not a killed command's.
        let disks = lab.directory.path().join("disks");
        std::fs::create_dir_all(&disks).unwrap();
        std::fs::write(disks.join("x.raw"), "").unwrap();
        assert!(!lab.is_empty().unwrap());
    }

    #[test]
    fn the_vm_that_has_the_data_disk_is_powered_on_and_no_other_one() {
        let (_state, lab) = lab();
        let swap = Some(Uuid::from_u128(7));
        // After a swap; before its end; and one of which the disk is on its way.
        add(&lab, "cp1-abcdef1", "cp1", swap, true);
        add(&lab, "cp2", "cp2", None, false);
        add(&lab, "cp2-abcdef1", "cp2", swap, true);
        add(&lab, "cp3", "cp3", None, false);
        assert_eq!(lab.to_power_on(None, &|_| {}).unwrap(), ["cp1-abcdef1", "cp2-abcdef1"]);
    }
}
