//! Judges whether a cluster can be created on a vCenter as it was seen. Pure. Each mistake is reported at the line of its
//! value.

use ::vsphere::{Missing, On};
use document::Located;
use fleet::hypervisor::Size;
use fleet::nodes::clean;

use super::VcenterProvider;
use super::inventory::{AtCompute, AtDatastore, DatacenterInventory, HostState, Object, VcenterInventory};
use super::requirements::Requirements;
use super::space_demand::{SpaceDemand, gib_down, gib_up};
use crate::cluster_file::described::FileContext;
use crate::cluster_file::provider::CheckReport;

/// The newest major version of the API that this program was written for.
const NEWEST: u32 = 9;
/// Kinds of datastores that store objects, with possibly several copies of each disk. `FileManager.MakeDirectory` does not
/// create topmost directories there (vSphere Web Services API, `DatastoreNamespaceManager`).
const OF_OBJECTS: [&str; 2] = ["vsan", "vvol"];
/// How to get missing privileges.
const ROLE: &str = "`kaas provider role` prints a role with all that is needed";

/// Whether all named objects exist, and the account has the privileges on them. Then the objects of the deployment can be read.
/// The needs of new VMs are left out: whether there are new VMs is unknown until then.
pub fn is_named(
    described: &VcenterProvider,
    asked: &Requirements,
    seen: &DatacenterInventory,
    written: FileContext<'_>,
) -> bool {
    let mut judging = Judging { described, asked, written, checked: CheckReport::default() };
    judging.named(seen, "");
    judging.checked.mistakes.is_empty()
}

/// Judges all that was found.
pub fn judge(
    described: &VcenterProvider,
    asked: &Requirements,
    seen: &VcenterInventory,
    written: FileContext<'_>,
) -> CheckReport {
    let mut judging = Judging { described, asked, written, checked: CheckReport::default() };
    judging.server(seen);
    match &seen.datacenter {
        None => judging.wrong(&described.datacenter, absent("data center", &described.datacenter.value)),
        Some(found) => judging.datacenter(found, &seen.user),
    }
    judging.checked
}

struct Judging<'a> {
    described: &'a VcenterProvider,
    asked: &'a Requirements,
    written: FileContext<'a>,
    checked: CheckReport,
}

impl Judging<'_> {
    fn wrong<T>(&mut self, at: &Located<T>, words: String) {
        let mistake = self.written.text.mistake(at, words);
        // Two checks may find the same mistake.
        if !self.checked.mistakes.contains(&mistake) {
            self.checked.mistakes.push(mistake);
        }
    }

    fn server(&mut self, seen: &VcenterInventory) {
        let VcenterInventory { server, api, user, .. } = seen;
        self.checked.found.push(format!("{server} at {}, logged in as {user}", self.described.server.value));
        let major = api.split('.').next().and_then(|major| major.parse::<u32>().ok());
        if major.is_none_or(|major| major > NEWEST) {
            self.checked
                .warnings
                .push(format!("{server} has the API {api:?}: this program was made for vCenter 7, 8 and 9"));
        }
    }

    fn datacenter(&mut self, seen: &DatacenterInventory, user: &str) {
        let described = self.described;
        self.named(seen, user);
        let remaining: Vec<_> = self.written.nodes.iter().filter(|node| !seen.own.contains(&node.name.value)).collect();
        let makes = !remaining.is_empty();
        self.datastore(seen, makes);
        if makes {
            self.hosts(seen);
            self.policy(seen);
        }
        for node in remaining {
            let name = &node.name.value;
            if seen.taken.contains(name) {
                let folder = &described.folder.value;
                self.wrong(
                    &node.name,
                    format!("the folder {folder} has something called {name}, which is not this cluster's"),
                );
            }
        }
        self.journal(seen);
        self.addresses(seen);
        self.checked.exists = !seen.own.is_empty();
        self.makes(seen, makes);
    }

    /// Judges the named objects, whatever is yet to be created there.
    fn named(&mut self, seen: &DatacenterInventory, user: &str) {
        let described = self.described;
        self.folder(&described.folder, &seen.folder);
        for (folder, object) in described.other_folders.iter().zip(&seen.other_folders) {
            self.folder(folder, object);
        }
        if let Some(templates) = &described.templates {
            self.folder(templates, &seen.templates);
        }
        self.compute(&seen.compute);
        if let Some(pool) = &described.pool {
            self.object(pool, &seen.pool, "resource pool", &format!("in the cluster {}", described.cluster.value));
        }
        for (network, object) in described.networks.iter().zip(&seen.networks) {
            self.object(network, object, "network", "in the data center");
        }
        if let Some(journal) = &described.journal {
            let name = journal.with(journal.value.datastore.clone());
            self.object(&name, &seen.journal, "datastore", "in the data center");
            match &seen.journal_at {
                Some(there) if !there.accessible => {
                    self.wrong(&name, unreached(&there.name));
                }
                Some(there) if there.maintenance != "normal" => {
                    self.wrong(
                        &name,
                        format!("the datastore {} is in maintenance ({})", there.name, there.maintenance),
                    );
                }
                _ => {}
            }
        }
        self.adapters();
        self.privileges(&seen.missing, user);
        let (at, name) = (&described.datastore, &described.datastore.value);
        match &seen.datastore {
            AtDatastore::Absent => self.wrong(at, absent("datastore", name)),
            AtDatastore::Other(kind) => self.wrong(at, format!("{name} is no datastore: it is a {kind}")),
            AtDatastore::Cluster(members) => {
                let members: Vec<String> = members.iter().map(|member| format!("{name}/{member}")).collect();
                let members = members.join(", ");
                self.wrong(at, format!(
                    "{name} is a datastore cluster, onto which no VM can be put: name one of its datastores, {members}"
                ));
            }
            // The journal is on this datastore too, unless the file names another one. Without the journal, no command can run.
            AtDatastore::There(there) if !there.accessible && seen.journal_at.is_none() => {
                self.wrong(at, unreached(name));
            }
            AtDatastore::There(_) => {}
        }
    }

    fn folder(&mut self, at: &Located<String>, object: &Object) {
        self.object(at, object, "folder of VMs", "in the data center; make it in vSphere Client, or name another one");
    }

    fn object(&mut self, at: &Located<String>, object: &Object, what: &str, place: &str) {
        match object {
            Object::There => {}
            Object::Absent => self.wrong(at, format!("{} {place}", absent(what, &at.value))),
            Object::Other(kind) => self.wrong(at, format!("{} is no {what}: it is a {kind}", at.value)),
            Object::Unreadable(why) => self.wrong(at, format!("the {what} {} cannot be used: {why}", at.value)),
        }
    }

    fn compute(&mut self, compute: &AtCompute) {
        let described = self.described;
        let cluster = &described.cluster;
        match compute {
            AtCompute::Absent => self.wrong(cluster, absent("cluster", &cluster.value)),
            AtCompute::Other(kind) => self.wrong(cluster, format!("{} is no cluster: it is a {kind}", cluster.value)),
            AtCompute::Unreadable(_) | AtCompute::Cluster(_) => {}
            AtCompute::Host(_) => {
                if self.keeps_apart() {
                    let at = &described.anti_affinity;
                    self.wrong(at, format!(
                        "{} is a host without a cluster, which has no rules that keep VMs apart: say anti-affinity = false",
                        cluster.value
                    ));
                }
                if let Some(restart) = &described.restart {
                    self.wrong(
                        restart,
                        format!("{} is a host without a cluster: no other one starts its VMs", cluster.value),
                    );
                }
            }
        }
    }

    /// Whether more than one node must run on different hosts.
    fn keeps_apart(&self) -> bool {
        self.described.anti_affinity.value && self.asked.nodes.len() > 1
    }

    fn adapters(&mut self) {
        let (networks, adapters) = (&self.described.networks, self.asked.adapters);
        if let Some(first) = networks.first().filter(|_| networks.len() != adapters) {
            let count = networks.len();
            self.wrong(first, format!(
                "{count} networks are named, and the image has {adapters} network adapters: give one for each, in their order"
            ));
        }
    }

    /// All missing privileges on one object are one mistake.
    fn privileges(&mut self, missing: &[Missing], user: &str) {
        let mut objects: Vec<(On, &str)> = missing.iter().map(|one| (one.privilege.on, one.on.as_str())).collect();
        objects.dedup();
        for (on, object) in objects {
            let of_it = missing.iter().filter(|one| one.privilege.on == on && one.on == object);
            let names: Vec<String> =
                of_it.map(|one| format!("{} ({})", one.privilege.id, one.privilege.purpose)).collect();
            let at = self.place_of(on, object);
            let words = format!("{user} lacks privileges on {object}: {}; {ROLE}", names.join(", "));
            self.wrong(&at, words);
        }
        if missing.is_empty() {
            self.checked.found.push(format!("{user} has all privileges that are needed"));
        }
    }

    /// The place in the file that names an object with missing privileges.
    fn place_of(&self, on: On, object: &str) -> Located<()> {
        let described = self.described;
        // The names are those of `look`.
        let is = |what: &str, name: &str| object == format!("the {what} {name}");
        let named =
            |what: &str, all: &[Located<String>]| all.iter().find(|one| is(what, &one.value)).map(|one| one.with(()));
        match on {
            On::Folder => {
                let folders = [described.other_folders.as_slice(), described.templates.as_slice()].concat();
                named("folder", &folders).unwrap_or_else(|| described.folder.with(()))
            }
            // A deployment does not create folders, so this privilege is not checked.
            On::ClustersFolder => described.folder.with(()),
            On::Datastore => match &described.journal {
                Some(journal) if !is("datastore", &described.datastore.value) => journal.with(()),
                _ => described.datastore.with(()),
            },
            On::Network => named("network", &described.networks).unwrap_or_else(|| described.datacenter.with(())),
            On::Pool => described.pool.as_ref().unwrap_or(&described.cluster).with(()),
            On::Cluster => described.cluster.with(()),
            On::Root => described.storage_policy.as_ref().unwrap_or(&described.datacenter).with(()),
        }
    }

    /// Whether the datastore takes new VMs. Existing VMs run on while it is emptied, and can be powered on.
    fn datastore(&mut self, seen: &DatacenterInventory, makes: bool) {
        let at = &self.described.datastore;
        let name = &at.value;
        let AtDatastore::There(there) = &seen.datastore else { return };
        if !there.takes_vms() {
            let why = if there.accessible {
                format!("the datastore {name} is in maintenance ({})", there.maintenance)
            } else {
                unreached(name)
            };
            if makes {
                return self.wrong(at, why);
            }
            self.checked.warnings.push(format!("{why}: no VM is to be created, and existing ones are not changed"));
        }
        let room = SpaceDemand::of(self.asked, seen, self.described.clones);
        if room.at_once > there.free {
            let (free, needed) = (gib_down(there.free), gib_up(room.at_once));
            self.wrong(at, format!("the datastore {name} has {free} GiB free, and {needed} GiB are taken at once"));
        } else if room.at_most > there.free {
            self.checked.warnings.push(format!(
                "the datastore {name} has {} GiB free: {} GiB are taken at once, and {} GiB once the disks are full",
                gib_down(there.free),
                gib_up(room.at_once),
                gib_up(room.at_most)
            ));
        } else {
            self.checked.found.push(format!(
                "the datastore {name}: {} GiB are free, and at most {} GiB are taken",
                gib_down(there.free),
                gib_up(room.at_most)
            ));
        }
        if makes && is_of_objects(&there.kind) {
            self.checked.warnings.push(format!(
                "the datastore {name} is of the kind {}: the storage policy decides how much of it is taken. Room is counted for one copy \
                 of thin disks: keep as much more free as the policy says",
                there.kind
            ));
        }
        if !there.shared && self.asked.nodes.len() > 1 {
            self.checked.warnings.push(format!(
                "one host alone reaches the datastore {name}: all nodes run there, and are lost with it"
            ));
        }
    }

    /// Whether the journal's directory can be created, with its parent directories.
    fn journal(&mut self, seen: &DatacenterInventory) {
        let beside = if let AtDatastore::There(there) = &seen.datastore { Some(there) } else { None };
        let (Some(unmade), Some(there)) = (&seen.unmade_journal, seen.journal_at.as_ref().or(beside)) else { return };
        if is_of_objects(&there.kind) && !unmade.has_top {
            self.checked.warnings.push(format!(
                "the journal is to be in {}, and the datastore {} is of the kind {}, on which no directory can be made at the \
                 top: name one for the journal that is below an existing one, or on another datastore",
                unmade.directory, there.name, there.kind
            ));
        }
    }

    fn hosts(&mut self, seen: &DatacenterInventory) {
        let hosts = seen.compute.hosts();
        let cluster = &self.described.cluster;
        if let AtCompute::Unreadable(why) = &seen.compute {
            self.wrong(cluster, format!("cannot tell whether hosts of {} take VMs: {why}", cluster.value));
        }
        if seen.lacks_drs {
            self.wrong(cluster, format!(
                "the cluster {} has DRS turned off, and without it vCenter chooses no host for a new VM: turn DRS on",
                cluster.value
            ));
        }
        // No host reaches an object that does not exist. Its mistake is reported elsewhere.
        let is_named = matches!(seen.datastore, AtDatastore::There(_))
            && seen.networks.iter().all(|network| *network == Object::There)
            && matches!(seen.compute, AtCompute::Cluster(_) | AtCompute::Host(_));
        if !is_named {
            return;
        }
        let why: Vec<String> = hosts.iter().filter_map(|host| refused(host, &self.asked.size)).collect();
        let able = hosts.len() - why.len();
        let why = if why.is_empty() { String::new() } else { format!(" ({})", why.join("; ")) };
        let wanted = self.asked.nodes.len();
        if able == 0 {
            self.wrong(cluster, format!("no host of {} takes VMs of this cluster now{why}", cluster.value));
        } else if self.keeps_apart() && able < wanted {
            let at = &self.described.anti_affinity;
            self.wrong(at, format!(
                "{able} of the {} hosts of {} take VMs of this cluster now{why}, and {wanted} nodes cannot be kept apart on \
                 them: make more hosts ready, or say anti-affinity = false",
                hosts.len(),
                cluster.value
            ));
        } else {
            let all = hosts.len();
            let found = format!("{able} of the {all} hosts of {} take VMs of this cluster now{why}", cluster.value);
            self.checked.found.push(found);
        }
    }

    /// For new VMs only. Existing VMs keep their policy, whatever has become of it.
    fn policy(&mut self, seen: &DatacenterInventory) {
        let (Some(policy), Some(there)) = (&self.described.storage_policy, &seen.policies) else { return };
        let name = &policy.value;
        match there.iter().filter(|there| *there == name).count() {
            1 => self.checked.found.push(format!(
                "the storage policy {name}; whether the datastore is compatible with it vCenter says when a VM is made"
            )),
            0 => {
                let there =
                    if there.is_empty() { "is no other".to_owned() } else { format!("are {}", there.join(", ")) };
                self.wrong(policy, format!("{}; there {there}", absent("storage policy", name)));
            }
            several => self.wrong(policy, format!("there are {several} storage policies called {name}")),
        }
    }

    /// A guest's statement on its addresses is not a proof, so it gives only a warning: any guest could otherwise block a
    /// cluster. Nodes probe an address before they use it.
    fn addresses(&mut self, seen: &DatacenterInventory) {
        for (address, vm) in &seen.holders {
            let node = self.written.nodes.iter().find(|node| node.address() == Some(*address));
            let whose = node.map_or_else(|| "the virtual IP".to_owned(), |node| node.name.value.clone());
            self.checked.warnings.push(format!(
                "the guest of another VM, {}, says that it has the address {address}, which is to be that of {whose}: \
                 see to it that no other machine has it",
                clean(vm)
            ));
        }
    }

    fn makes(&mut self, seen: &DatacenterInventory, makes: bool) {
        let described = self.described;
        if makes && !seen.staged {
            let folder = described.templates.as_ref().unwrap_or(&described.folder);
            self.checked.makes.push(format!("a template of the image in the folder {}", folder.value));
        }
        let cluster = &described.cluster.value;
        if let Some(unmade) = &seen.unmade_journal {
            self.checked.makes.push(format!("the directory {} for the journal", unmade.directory));
        }
        if self.keeps_apart() {
            self.checked.makes.push(format!("a rule of {cluster} that keeps the nodes on different hosts"));
        }
        if let Some(restart) = &described.restart {
            let priority = restart.value.said();
            self.checked.makes.push(format!(
                "an override of {cluster} for each node, by which vSphere HA starts it with the priority {priority}"
            ));
        }
        if described.changes_cluster() {
            self.checked.makes.push(format!(
                "an override of {cluster} for each VM that an upgrade disconnects, by which vSphere HA starts it no more"
            ));
        }
    }
}

/// Why a host takes no VM of this size.
fn refused(host: &HostState, size: &Size) -> Option<String> {
    let name = &host.name;
    if !host.connected {
        return Some(format!("{name} is not connected"));
    }
    if host.in_maintenance {
        return Some(format!("{name} is in maintenance"));
    }
    if !host.reaches_datastore {
        return Some(format!("{name} does not reach the datastore"));
    }
    // A VM with more processors than the host has cannot be powered on (`NotEnoughLogicalCpus`). One with more memory would use
    // its swap file. Firmware keeps some memory for itself: a host of 16 GiB reports less.
    if let Some(has) = host.processors.filter(|has| *has < size.processors) {
        return Some(format!("{name} has {has} of the {} processors that each VM is given", size.processors));
    }
    if let Some(has) = host.memory.map(|bytes| bytes >> 20).filter(|has| has + has / 16 < u64::from(size.memory)) {
        return Some(format!("{name} has {has} of the {} MiB of memory that each VM is given", size.memory));
    }
    (!host.lacks.is_empty()).then(|| format!("{name} has no network {}", host.lacks.join(", ")))
}

fn is_of_objects(kind: &str) -> bool {
    OF_OBJECTS.iter().any(|known| kind.eq_ignore_ascii_case(known))
}

fn unreached(datastore: &str) -> String {
    format!("no host reaches the datastore {datastore} now")
}

fn absent(what: &str, name: &str) -> String {
    format!("there is no {what} {name}, or the account cannot see it")
}
