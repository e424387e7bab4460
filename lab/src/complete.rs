//! Completes a lab's control-plane nodes: creates missing VMs and powers VMs on.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Context;
use fleet::hypervisor::Stamp;
use fleet::upgrade::OpenUpgrade;

use super::deployment_lease::with_lease_at;
use super::records::VmRecord;
use super::{Lab, LeaseRequest, NewVm, PlannedNode};

#[derive(Clone, Copy, Debug)]
pub struct NodeSize {
    /// Memory in MiB.
    pub memory: u32,
    pub processors: u32,
    /// Size of the data disk in bytes.
    pub data_disk: u64,
}

/// The VM of a planned control-plane node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeVmState {
    Nothing,
    /// A VM whose creation was interrupted: it has no disk or an uncreated one, and was never on.
    Incomplete,
    /// A VM, or two during an upgrade.
    Complete,
}

impl Lab {
    /// Creates a control-plane node's VM, powered off.
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

    /// Whether the lab has no VMs and no disks. A command that was killed early leaves such a lab, perhaps without
    /// the operator's keys. A disk proves that VMs existed.
    pub fn is_empty(&self) -> anyhow::Result<bool> {
        Ok(!self.directory.has_disks()? && self.vms()?.is_empty())
    }

    /// The lab of this name, if its creation was interrupted before any control-plane node's VM was powered on.
    /// [`Lab::complete`] creates the missing VMs.
    ///
    /// `None` for a tenant, and for the rest of a lab whose removal was interrupted. If a full disk had no room for the
    /// removal mark, the rest has disks without a VM. A VM's record names its disk before the disk's file exists.
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

    /// Creates the control-plane nodes' VMs that an interrupted command did not create or complete. None of them was
    /// ever on then: a node that [had a VM](Self::lost_node) is left unchanged. A lab without any VM is removed: the
    /// result is `None`.
    ///
    /// # Errors
    /// When another command changes the control-plane nodes, or the host refuses. A repeated call continues.
    pub fn complete(self, size: NodeSize, asking: &LeaseRequest<'_>) -> anyhow::Result<Option<Self>> {
        let records = self.stamped_nodes()?;
        if self.plan().nodes.iter().all(|node| self.made(node, &records) == NodeVmState::Complete) {
            return Ok(Some(self));
        }
        self.completed(size, asking, |_| Ok(()))
    }

    /// As [`Lab::complete`], with a `check` that runs before anything is created, even if nothing is missing.
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

    /// A remedy for a control-plane node that had a VM and lost it, if there is one. To admit it again, other nodes
    /// must be on.
    pub fn lost_node(&self) -> anyhow::Result<Option<String>> {
        let records = self.stamped_nodes()?;
        let were_on = records.iter().any(|vm| self.was_on(vm));
        let is_lost = |node: &&PlannedNode| were_on && self.made(node, &records) == NodeVmState::Nothing;
        Ok(self.plan().nodes.iter().find(is_lost).map(|node| {
            format!(
                "{0} no longer has a VM: `kaas-dev lab tenant replace-control-plane {0} --name {1}` creates one",
                node.name, self.name
            )
        }))
    }

    /// Whether each planned control-plane node has a VM.
    pub(super) fn has_all_nodes(&self) -> anyhow::Result<bool> {
        let records = self.control_nodes()?;
        // VMs that were imported by hand have no stamp: their names identify them.
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
            // The disk of a VM that was on is moving to another VM, or was detached.
            [vm] if self.lacks_its_disk(vm) && vm.name == node.name && !self.was_on(vm) => NodeVmState::Incomplete,
            _ => NodeVmState::Complete,
        }
    }

    /// Powers on the VM of each control-plane node that has its data disk. Skips a node that an upgrade is swapping,
    /// and reports that through `asking.say`. Fails if another command changes the nodes.
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

    /// The VMs that are off and must be powered on.
    fn to_power_on(&self, open: Option<&OpenUpgrade>, say: &dyn Fn(&str)) -> anyhow::Result<Vec<String>> {
        let records = self.stamped_nodes()?;
        let mut off = Vec::new();
        for node in &self.plan().nodes {
            let vms = of(node, &records);
            let is_new =
                |vm: &&VmRecord| vm.stamp.as_ref().is_some_and(|stamp| open.is_some_and(|open| open.made(stamp)));
            if open.is_some_and(|open| !open.upgraded) && vms.iter().any(is_new) {
                say(&format!(
                    "{} is left as it is: an upgrade is swapping it, `kaas-dev control upgrade resume --lab {}` continues it",
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

/// The VMs of a control-plane node, by their stamps.
fn of<'r>(node: &PlannedNode, records: &'r [VmRecord]) -> Vec<&'r VmRecord> {
    let is_its = |record: &&VmRecord| record.stamp.as_ref().is_some_and(|stamp| stamp.node == node.name);
    records.iter().filter(is_its).collect()
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;
    use uuid::Uuid;

    use super::super::process::ProcessId;
    use super::super::{fixture, records};
    use super::*;

    /// A lab of three planned nodes without VMs.
    fn lab() -> (TempDir, Lab) {
        let state = tempfile::tempdir().unwrap();
        let lab = fixture::lab(state.path(), 3, fixture::source(&state.path().join("tree")));
        (state, lab)
    }

    fn add(lab: &Lab, vm: &str, node: &str, swap: Option<Uuid>, has_disk: bool) {
        let stamp = Some(Stamp { deployment: lab.deployment(), node: node.to_owned(), swap });
        lab.make_vm(&fixture::vm(vm, stamp)).unwrap();
        if has_disk {
            fixture::add_disk(lab, vm);
        }
    }

    fn made(lab: &Lab) -> Vec<NodeVmState> {
        let records = lab.stamped_nodes().unwrap();
        lab.plan().nodes.iter().map(|node| lab.made(node, &records)).collect()
    }

    #[test]
    fn complete_creates_only_missing_vms() {
        let (_state, lab) = lab();
        assert!(lab.is_empty().unwrap() && lab.lost_node().unwrap().is_none());
        assert_eq!(made(&lab), [NodeVmState::Nothing; 3]);
        add(&lab, "cp1", "cp1", None, true);
        // A record without what follows it, and a directory without a record.
        add(&lab, "cp2", "cp2", None, false);
        std::fs::create_dir_all(lab.directory.vm("cp3")).unwrap();
        assert_eq!(lab.vms().unwrap(), ["cp1", "cp2"]);
        assert_eq!(made(&lab), [NodeVmState::Complete, NodeVmState::Incomplete, NodeVmState::Nothing]);
        // A disk that is in the record, but has no file.
        let mut second = lab.directory.load_vm("cp2").unwrap();
        second.disks.push(Uuid::from_u128(2));
        lab.directory.save_vm(&second).unwrap();
        assert_eq!(made(&lab), [NodeVmState::Complete, NodeVmState::Incomplete, NodeVmState::Nothing]);
        second.disks.clear();
        lab.directory.save_vm(&second).unwrap();
        fixture::add_disk(&lab, "cp2");
        // No program can write the CD-ROM, which is the step after the record.
        let size = NodeSize { memory: 2048, processors: 2, data_disk: 1 << 20 };
        let why = format!("{:#}", lab.complete_held(size).unwrap_err());
        assert!(why.contains("making the CD-ROM"), "{why}");
        assert_eq!(lab.vms().unwrap(), ["cp1", "cp2", "cp3"]);
        assert_eq!(lab.directory.load_vm("cp3").unwrap().memory, 2048);
    }

    #[test]
    fn labs_are_incomplete_until_a_vm_was_on() {
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
    fn a_half_removed_lab_is_not_completed() {
        let (state, lab) = lab();
        records::save(&lab.directory.record(), &lab.record).unwrap();
        for node in ["cp1", "cp2"] {
            add(&lab, node, node, None, true);
        }
        assert!(Lab::open_incomplete(state.path(), "x").unwrap().is_some());
        // Removal is interrupted between two VMs, and between VMs and disks.
        for vm in ["cp1", "cp2"] {
            std::fs::remove_dir_all(lab.directory.vm(vm)).unwrap();
            assert!(Lab::open_incomplete(state.path(), "x").unwrap().is_none());
        }
        let why = lab.directory.is_free().unwrap_err().to_string();
        assert!(why.contains("`kaas-dev lab down --name x` removes the rest"), "{why}");
    }

    #[test]
    fn a_half_removed_lab_names_the_remedy() {
        let (state, lab) = lab();
        records::save(&lab.directory.record(), &lab.record).unwrap();
        for node in ["cp1", "cp2"] {
            add(&lab, node, node, None, true);
            lab.directory.mark_power_on(node).unwrap();
        }
        let why = || lab.directory.is_free().unwrap_err().to_string();
        assert!(why().contains("kaas-dev lab on VM"), "{}", why());
        // Removal is interrupted after the VM that was on first.
        let to_go = lab.begin_removal().unwrap();
        assert!(to_go.iter().any(|path| path.ends_with("vms")));
        std::fs::remove_dir_all(lab.directory.vm("cp1")).unwrap();
        assert!(why().contains("`kaas-dev lab down --name x` removes the rest"), "{}", why());
        assert!(Lab::open_incomplete(state.path(), "x").unwrap().is_none());
    }

    /// The start of a VM has succeeded.
    fn start(lab: &Lab, vm: &str) {
        let process = ProcessId::of(std::process::id().try_into().unwrap()).unwrap();
        lab.directory.mark_power_on(vm).unwrap();
        lab.has_started(lab.directory.load_vm(vm).unwrap(), process).unwrap();
    }

    #[test]
    fn power_on_cancels_a_removal_that_removed_nothing() {
        let (state, lab) = lab();
        records::save(&lab.directory.record(), &lab.record).unwrap();
        for node in ["cp1", "cp2", "cp3"] {
            add(&lab, node, node, None, true);
            lab.directory.mark_power_on(node).unwrap();
        }
        let why = || lab.directory.is_free().unwrap_err().to_string();
        let is_to_go = || why().contains("`kaas-dev lab down --name x` removes the rest");
        // Removal is interrupted before anything was removed.
        lab.begin_removal().unwrap();
        assert!(is_to_go(), "{}", why());
        // Power-on has begun, and may fail.
        lab.directory.mark_power_on("cp1").unwrap();
        assert!(is_to_go(), "{}", why());
        start(&lab, "cp1");
        assert!(why().contains("kaas-dev lab on VM") && !why().contains("kaas-dev lab down"), "{}", why());
        assert!(Lab::open_incomplete(state.path(), "x").unwrap().is_none(), "nothing of it is made anew");
    }

    #[test]
    fn power_on_does_not_cancel_a_partial_removal() {
        let (state, lab) = lab();
        records::save(&lab.directory.record(), &lab.record).unwrap();
        for node in ["cp1", "cp2", "cp3"] {
            add(&lab, node, node, None, true);
        }
        // A VM of another node does not count.
        add(&lab, "cp4", "cp4", None, true);
        lab.begin_removal().unwrap();
        std::fs::remove_file(lab.directory.vm_record("cp2")).unwrap();
        start(&lab, "cp1");
        let why = lab.directory.is_free().unwrap_err().to_string();
        assert!(why.contains("`kaas-dev lab down --name x` removes the rest"), "{why}");
        assert!(Lab::open_incomplete(state.path(), "x").unwrap().is_none());
    }

    #[test]
    fn an_unrecorded_removal_is_not_completed() {
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
        // Removal is interrupted at each step, also within a directory.
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
    fn nodes_with_lost_vms_or_disks_are_skipped() {
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
        // A node that admits it must be on.
        assert_eq!(lab.to_power_on(None, &|_| {}).unwrap(), ["cp1"]);
        let why = lab.lost_node().unwrap().unwrap();
        assert!(why.starts_with("cp3 no longer has a VM") && why.contains("cp3 --name x`"), "{why}");
        // An interrupted command did not leave these disks.
        let disks = lab.directory.path().join("disks");
        std::fs::create_dir_all(&disks).unwrap();
        std::fs::write(disks.join("x.raw"), "").unwrap();
        assert!(!lab.is_empty().unwrap());
    }

    #[test]
    fn only_the_vm_with_the_data_disk_starts() {
        let (_state, lab) = lab();
        let swap = Some(Uuid::from_u128(7));
        // After a swap, before its end, and while its disk is moving.
        add(&lab, "cp1-abcdef1", "cp1", swap, true);
        add(&lab, "cp2", "cp2", None, false);
        add(&lab, "cp2-abcdef1", "cp2", swap, true);
        add(&lab, "cp3", "cp3", None, false);
        assert_eq!(lab.to_power_on(None, &|_| {}).unwrap(), ["cp1-abcdef1", "cp2-abcdef1"]);
    }
}
