//! The rows, in the order in which they are tried: later ones use what earlier ones have made.

use std::pin::Pin;

use super::Probe;
use super::answer::{Failed, Tried};

type Trying<'p> = Pin<Box<dyn Future<Output = Tried> + 'p>>;

/// One assumption.
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) assumption: &'static str,
    pub(super) run: for<'p> fn(&'p mut Probe<'_>) -> Trying<'p>,
}

macro_rules! rows {
    ($($name:literal $assumption:literal $function:ident;)* not tried: $($other:literal $of:literal $why:literal;)*) => {
        pub(super) const ROWS: &[Row] = &[
            $(Row { name: $name, assumption: $assumption, run: |probe| Box::pin(probe.$function()) },)*
            $(Row { name: $other, assumption: $of, run: |_| Box::pin(async { Tried::Err(Failed::NotTried($why.to_owned())) }) },)*
        ];
    };
}

rows! {
    "role" "The account has all privileges of the printed role" role;
    "folder-settings" "vCenter shows the settings of each VM of the folder" folder_is_readable;
    "datastore-room" "The datastore takes VMs and has 4 GiB free" free_space;
    "datastore-kind" "The datastore is not NFS" datastore_kind;
    "drs" "DRS chooses a host by itself" drs;
    "directory-once" "MakeDirectory of a directory that exists fails with FileAlreadyExists" directory_once;
    "directory-parent" "MakeDirectory in a directory that is missing fails with FileNotFound" directory_parent;
    "file" "/folder takes a file without a content type and gives it back" file_plain;
    "file-name" "/folder takes a name with spaces, percent signs and plus signs" file_names;
    "file-missing" "/folder answers 404 for a file that is missing" file_missing;
    "search-all" "The pattern * finds all files of a directory" search_all;
    "search-middle" "The pattern *.vm*x finds files by a star in the middle" search_middle;
    "search-one" "The pattern ?.vmx finds files by one character" search_one;
    "file-tasks" "The account sees its own tasks of FileManager" file_tasks;
    "lease" "A lease names a place for each file, lives a minute, and its VM goes with it" lease;
    "import" "The OVA becomes a template that comes to rest" import;
    "import-shown" "A VM that is being imported shows no settings" import_shown;
    "clone" "A linked clone needs no host" linked_clone;
    "clone-shown" "A VM that is being cloned shows no settings" clone_shown;
    "clone-uuid" "CloneSpec.config.uuid is taken" clone_uuid;
    "clone-entries" "CloneSpec.config.extraConfig is taken" clone_entries;
    "clone-size" "CloneSpec.config.numCPUs and memoryMB are taken" clone_size;
    "clone-properties" "CloneSpec.config.vAppConfig is taken" clone_properties;
    "clone-configurable" "A clone's properties stay configurable" clone_configurable;
    "clone-adapters" "CloneSpec.config.deviceChange edits adapters" clone_adapters;
    "clone-disk" "CloneSpec.config.deviceChange adds a disk" clone_disk;
    "clone-linked" "A linked clone's disk stands on that of its template" clone_is_linked;
    "edit-configurable" "An edit with key and value alone keeps a property configurable" edit_keeps_configurable;
    "guard" "ReconfigVM_Task with an old changeVersion fails with ConcurrentAccess" guard;
    "entry-length" "An entry of 256 KiB is kept whole" long_entry;
    "full-clone" "A full clone is made as a node is" full_clone;
    "full-clone-uuid" "The disk of a full clone has its own UUID" full_disk_uuid;
    "template-version" "Clones do not change the changeVersion of their template" template_version;
    "template-settings" "The settings of a template stay as they are" template_settings;
    "ha-override" "An edit of the restart priority keeps the other settings of an override" restart_override;
    "object" "A First Class Disk is made and found by its identifier" object_made;
    "controllers" "Three SCSI controllers are added" controllers_added;
    "power-on" "The linked clone powers on" power_on;
    "bios-uuid" "The guest and vCenter name the same BIOS UUID" bios_uuid;
    "properties-while-on" "Properties of a VM that is on cannot be edited" properties_while_on;
    "attach-held" "A disk of a VM that is on cannot be attached: FileLocked" attach_held;
    "object-attach" "ReconfigVM_Task attaches a First Class Disk by its path, and the VM shows its identifier" object_attached;
    "object-uuid" "The VM shows a UUID of the First Class Disk's file" object_uuid;
    "object-snapshot" "An attached First Class Disk outside snapshots takes a snapshot of its own" object_snapshot;
    "object-extend" "ExtendDisk_Task extends an attached First Class Disk" object_extended;
    "object-detach" "ReconfigVM_Task detaches a First Class Disk, which stays" object_detached;
    "object-method" "AttachDisk_Task attaches a First Class Disk as part of snapshots" object_by_method;
    "power-off" "The VM powers off" power_off;
    "controllers-stay" "Empty SCSI controllers survive a power cycle" controllers_stay;
    "entry-after-off" "An entry of guestinfo that was set from outside stays after power-off" entry_after_off;
    "guest-entry-after-off" "An entry of guestinfo that the guest has set goes with power-off" guest_entry_after_off;
    "disk-uuid" "QueryVirtualDiskUuid says what the VM's device says" disk_uuid;
    "disk-detach" "A detached disk keeps its file and its UUID" disk_detached;
    "disk-attach" "A disk of a VM that was just powered off can be attached to another VM at once" disk_attached;
    "rename" "Renaming a VM leaves all paths" renamed;
    "disk-outlives" "A detached disk outlives the VM in whose directory it is" disk_outlives;
    "object-held" "A First Class Disk that a VM holds cannot be deleted: InvalidState" object_held;
    "object-outlives" "A First Class Disk outlives a VM that is destroyed with it" object_outlives;
    "disk-copy" "A copied disk has its own UUID" disk_copied;
    "disk-tasks" "The account sees its own tasks of VirtualDiskManager" disk_tasks;
    "object-delete" "A deleted First Class Disk is NotFound" object_deleted;
    not tried:
    "datastore-away" "A datastore that is away fails with InaccessibleDatastore" "it takes a datastore that is away";
    "stale-lock" "The locks of a host that has failed end within a minute" "it takes a host that has failed";
    "lease-maintenance" "An upload survives maintenance of its host" "it takes a host in maintenance";
    "hardware-upgrade" "An upgrade of the virtual hardware changes the UUID in the guest" "needs VirtualMachine.Config.UpgradeVirtualHardware";
    "rename-datastore" "A renamed datastore keeps its reference" "needs Datastore.Rename";
    "client-clone" "A clone by vSphere Client keeps the UUIDs of its disks" "it takes a clone by vSphere Client";
}
