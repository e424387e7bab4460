//! The rows in their order, and those about the folder, the datastore and its files.

use std::pin::Pin;

use vsphere::DatastorePath;

use super::Probe;
use super::answer::{Tried, saw, word};

/// One assumption. `run` may use what earlier rows have made.
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) assumption: &'static str,
    pub(super) run: for<'p> fn(&'p mut Probe<'_>) -> Pin<Box<dyn Future<Output = Tried> + 'p>>,
}

macro_rules! rows {
    ($($name:literal $assumption:literal $function:ident($($argument:expr)?);)*) => {
        pub(super) const ROWS: &[Row] = &[
            $(Row { name: $name, assumption: $assumption, run: |probe| Box::pin(probe.$function($($argument)?)) },)*
        ];
    };
}

rows! {
    "folder-settings" "vCenter shows the settings of each VM of the folder" folder_settings();
    "datastore" "The datastore is not NFS, takes VMs, lists its files and has 4 GiB free" datastore_is_usable();
    "file" "/folder takes a file without a content type and gives it back" file("file");
    "file-name" "/folder takes a name with spaces, percent signs and plus signs" file("50% of a file +%41");
    "search-middle" "The pattern *.vm*x finds files by a star in the middle" search("*.vm*x");
    "search-one" "The pattern ?.vmtx finds files by one character" search("?.vmtx");
    "file-tasks" "recentTask lists the tasks on files that the account began" file_tasks();
    "lease" "A lease lives a minute; its VM has the BIOS UUID that was requested, and goes with it" lease();
    "import" "The OVA becomes a template that comes to rest" import();
    "clone" "CloneVM_Task needs no host, also where DRS only recommends one" linked_clone();
    "clone-shown" "A VM that is being cloned shows no settings" clone_shown();
    "clone-uuid" "CloneSpec.config.uuid is taken" taken("the BIOS UUID");
    "clone-entries" "CloneSpec.config.extraConfig is taken" taken("the entry");
    "clone-properties" "CloneSpec.config.vAppConfig is taken, and userConfigurable stays" taken("the OVF property");
    "clone-adapters" "CloneSpec.config.deviceChange edits adapters" taken("the network of");
    "clone-disk" "CloneSpec.config.deviceChange adds a disk" taken("a disk");
    "password" "vCenter does not show the value of a property of the type password" password();
    "edit-configurable" "An edit of a property by key and value alone clears userConfigurable" edit_by_value();
    "guard" "ReconfigVM_Task with an old changeVersion fails with ConcurrentAccess" guard();
    "entry-length" "ReconfigVM_Task keeps an entry of 256 KiB whole" long_entry();
    "full-clone" "The disk of a full clone has a UUID of its own" full_clone();
    "template-version" "Clones do not change the changeVersion of their template" template_version();
    "template-settings" "The settings of a template stay as they are" template_settings();
    "ha-override" "An edit of an override of vSphere HA removes the settings that it leaves out" ha_override();
    "object" "A First Class Disk is made and found by its identifier" object_made();
    "power-on" "The linked clone takes three more SCSI controllers and powers on" power_on();
    "bios-uuid" "The guest states the BIOS UUID that vCenter shows" bios_uuid();
    "properties-while-on" "Properties of a VM that is on cannot be edited: InvalidPowerState" properties_while_on();
    "attach-held" "A disk of a VM that is on cannot be attached to another: FileLocked" attach_held();
    "object-attach" "ReconfigVM_Task attaches a First Class Disk by its path, and the VM shows its identifier" object_attached();
    "object-snapshot" "An attached First Class Disk outside snapshots takes a snapshot of its own" object_snapshot();
    "object-extend" "ExtendDisk_Task extends an attached First Class Disk" object_extended();
    "controllers-stay" "Empty SCSI controllers survive a power cycle" controllers_stay();
    "guest-entry-after-off" "An entry of guestinfo that the guest set goes with power-off" guest_entry();
    "disk-detach" "A detached disk keeps its file and its UUID" disk_detached();
    "disk-attach" "A disk of a VM that was just powered off can be attached to another VM at once" disk_attached();
    "disk-copy" "A copied disk has a UUID of its own" disk_copied();
    "object-outlives" "A First Class Disk outlives a VM that is destroyed with it" object_outlives();
}

impl Probe<'_> {
    async fn folder_settings(&mut self) -> Tried {
        let (folder, version) = (&self.hypervisor.places.folders[0].0, "config.changeVersion");
        let seen = self.client.list(folder, &["VirtualMachine"], false, &[version]).await?;
        let hidden = seen.iter().filter(|vm| vm.get(version).is_none()).count();
        saw(hidden == 0, format!("{} VMs, {hidden} without settings", seen.len()))
    }

    /// On NFS, locks are files, and copies are thick.
    async fn datastore_is_usable(&mut self) -> Tried {
        let seen = self.client.datastore(self.datastore()).await?;
        self.client.files(self.datastore(), &DatastorePath::new(&seen.name, ""), "-").await?;
        let (kind, takes_vms, free) = (word(&seen.kind), seen.takes_vms(), seen.free >> 30);
        let is_so = !kind.to_ascii_lowercase().starts_with("nfs") && takes_vms && free >= 4;
        saw(is_so, format!("{kind}, takes VMs: {takes_vms}, {free} of {} GiB are free", seen.capacity >> 30))
    }

    /// Writes a file as journals are written, reads it, and finds it by its name.
    async fn file(&mut self, name: &str) -> Tried {
        if let Err(error) = self.directory.write(name, "probe", &self.asking).await {
            return if error.lacks_privilege() { Err(error.into()) } else { saw(false, "it is not taken") };
        }
        let is_same = self.directory.read(name, 64).await.is_ok_and(|read| read.as_deref() == Some("probe"));
        let is_listed = self.finds("*", name).await?;
        saw(is_same && is_listed, format!("read back: {is_same}, listed by its name: {is_listed}"))
    }

    async fn finds(&self, pattern: &str, name: &str) -> vsphere::Result<bool> {
        let files = self.client.files(self.directory.datastore().0, &self.setup.directory, pattern).await?;
        Ok(files.iter().any(|file| file.name == name))
    }

    async fn search(&mut self, pattern: &str) -> Tried {
        self.directory.write("a.vmtx", "probe", &self.asking).await?;
        let is_found = self.finds(pattern, "a.vmtx").await?;
        saw(is_found, if is_found { "it is found" } else { "it is not found" })
    }

    async fn file_tasks(&mut self) -> Tried {
        let is_listed = self.hypervisor.sees_tasks_on_files().await?;
        saw(is_listed, if is_listed { "they are listed" } else { "they are not listed" })
    }
}
