//! The definition of a row, and the rows about the folder, the datastore and its files.

use std::pin::Pin;

use vsphere::DatastorePath;

use super::Probe;
use super::answer::{Tried, saw, word};

/// One assumption. `run` may use what earlier rows have made.
#[derive(Clone, Copy)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) assumption: &'static str,
    /// Whether it runs to its end when the operator ends the probe: nothing would find what its request makes later.
    pub(super) is_whole: bool,
    pub(super) run: for<'p> fn(&'p mut Probe<'_>) -> Pin<Box<dyn Future<Output = Tried> + 'p>>,
}

macro_rules! rows {
    (@) => { false };
    (@ whole) => { true };
    ($($name:literal $assumption:literal $($whole:ident)? |$probe:ident| $answer:block)*) => {
        pub(in crate::vcenter::probe) const ROWS: &[$crate::vcenter::probe::rows::Row] = &[$(
            $crate::vcenter::probe::rows::Row {
                name: $name,
                assumption: $assumption,
                is_whole: rows!(@ $($whole)?),
                run: |$probe| Box::pin(async move $answer),
            },
        )*];
    };
}
pub(super) use rows;

rows! {
    "folder-settings" "vCenter shows the settings of each VM of the folder" |probe| {
        let (folder, version) = (&probe.hypervisor.places.folders[0].0, "config.changeVersion");
        let seen = probe.client.list(folder, &["VirtualMachine"], false, &[version]).await?;
        let hidden = seen.iter().filter(|vm| vm.get(version).is_none()).count();
        saw(hidden == 0, format!("{} VMs, {hidden} without settings", seen.len()))
    }
    "datastore" "The datastore is not NFS, takes VMs, lists its files and has 4 GiB free" |probe| {
        let seen = probe.client.datastore(probe.datastore()).await?;
        probe.client.files(probe.datastore(), &DatastorePath::new(&seen.name, ""), "-").await?;
        let (kind, takes_vms, free) = (word(&seen.kind), seen.takes_vms(), seen.free >> 30);
        let is_so = !kind.to_ascii_lowercase().starts_with("nfs") && takes_vms && free >= 4;
        saw(is_so, format!("{kind}, takes VMs: {takes_vms}, {free} of {} GiB are free", seen.capacity >> 30))
    }
    "file-name" "/folder takes a name with spaces, percent signs and plus signs" |probe| {
        let name = "50% of a +%41";
        if let Err(error) = probe.directory.write(name, "probe", &probe.permit).await {
            return if error.lacks_privilege() { Err(error.into()) } else { saw(false, "it is not taken") };
        }
        let is_same = probe.directory.read(name, 64).await.is_ok_and(|read| read.as_deref() == Some("probe"));
        let is_listed = probe.finds("*", name).await?;
        saw(is_same && is_listed, format!("read back: {is_same}, listed by its name: {is_listed}"))
    }
    "search-middle" "The pattern *.vm*x finds files by a star in the middle" |probe| { probe.search("*.vm*x").await }
    "search-one" "The pattern ?.vmtx finds files by one character" |probe| { probe.search("?.vmtx").await }
    "file-tasks" "recentTask lists the tasks on files that the account began" |probe| {
        let is_listed = probe.hypervisor.sees_tasks_on_files().await?;
        saw(is_listed, format!("listed: {is_listed}"))
    }
}

impl Probe<'_> {
    async fn search(&self, pattern: &str) -> Tried {
        self.directory.write("a.vmtx", "probe", &self.permit).await?;
        let is_found = self.finds(pattern, "a.vmtx").await?;
        saw(is_found, format!("found: {is_found}"))
    }

    async fn finds(&self, pattern: &str, name: &str) -> vsphere::Result<bool> {
        let files = self.client.files(self.directory.datastore().0, &self.setup.directory, pattern).await?;
        Ok(files.iter().any(|file| file.name == name))
    }
}
