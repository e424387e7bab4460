//! The methods of the API, and the effect of each, which decides what a lost answer means.
//!
//! Source: vSphere Web Services API reference, and VMware Storage Policy API reference for the `Pbm` methods. All exist
//! since API 7.0, the version in the requests.

/// The effect of a method, which decides what follows a lost answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It reads, or creates an object that ends with the session. It is repeated a few times.
    Look,
    /// It uses an object of this session (a page, a view, a filter). It is not repeated; the caller starts again.
    OfSession,
    /// It changes state that outlives the session. It is sent once, and without an answer it is in doubt.
    Change,
}

/// The endpoint of a method. Each has a separate path, namespace and set of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// The vSphere Web Services API.
    Vim,
    /// Storage Policy Based Management, with the session of the other endpoint.
    ///
    /// Source: `pbm/client.go` of govmomi: `Path`, `Namespace` and `ServiceInstance`.
    Policies,
}

impl Endpoint {
    /// Its path on the server.
    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::Vim => "sdk",
            Self::Policies => "pbm",
        }
    }

    /// The API version of requests. For vim25, answers leave out parts of later versions. For the other endpoint,
    /// govmomi names no version (`soapRoundTrip` in `vim25/soap/client.go`, whose `Version` is for vim25 only).
    pub(crate) const fn action(self) -> &'static str {
        match self {
            Self::Vim => "urn:vim25/7.0.0.0",
            Self::Policies => "urn:pbm/",
        }
    }
}

/// A method of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Method {
    /// Its name in requests.
    pub name: &'static str,
    /// Its effect.
    pub effect: Effect,
    pub(crate) endpoint: Endpoint,
}

impl Method {
    const fn of(name: &'static str, effect: Effect) -> Self {
        Self { name, effect, endpoint: Endpoint::Vim }
    }

    const fn at(self, endpoint: Endpoint) -> Self {
        Self { endpoint, ..self }
    }
}

macro_rules! methods {
    ($($constant:ident $name:literal $effect:ident $($endpoint:ident)?;)*) => {
        $(pub(crate) const $constant: Method = Method::of($name, Effect::$effect)$(.at(Endpoint::$endpoint))?;)*
        /// All methods.
        pub const METHODS: &[Method] = &[$($constant),*];
    };
}

methods! {
    RETRIEVE_SERVICE_CONTENT "RetrieveServiceContent" Look;
    LOGIN "Login" Look;
    LOGOUT "Logout" OfSession;
    CURRENT_TIME "CurrentTime" Look;
    RETRIEVE_PROPERTIES "RetrievePropertiesEx" Look;
    CONTINUE_RETRIEVE_PROPERTIES "ContinueRetrievePropertiesEx" OfSession;
    CREATE_PROPERTY_COLLECTOR "CreatePropertyCollector" Look;
    CREATE_FILTER "CreateFilter" OfSession;
    WAIT_FOR_UPDATES "WaitForUpdatesEx" OfSession;
    DESTROY_PROPERTY_COLLECTOR "DestroyPropertyCollector" OfSession;
    CREATE_CONTAINER_VIEW "CreateContainerView" Look;
    DESTROY_VIEW "DestroyView" OfSession;
    FIND_BY_INVENTORY_PATH "FindByInventoryPath" Look;
    FIND_ALL_BY_UUID "FindAllByUuid" Look;
    FIND_ALL_BY_IP "FindAllByIp" Look;
    FIND_BY_DATASTORE_PATH "FindByDatastorePath" Look;
    HAS_USER_PRIVILEGE_ON_ENTITIES "HasUserPrivilegeOnEntities" Look;
    QUERY_VIRTUAL_DISK_UUID "QueryVirtualDiskUuid" Look;
    SEARCH_DATASTORE "SearchDatastore_Task" Look;
    CREATE_IMPORT_SPEC "CreateImportSpec" Look;
    RETRIEVE_STORAGE_OBJECT "RetrieveVStorageObject" Look;
    LIST_STORAGE_OBJECTS "ListVStorageObject" Look;
    PBM_RETRIEVE_SERVICE_CONTENT "PbmRetrieveServiceContent" Look Policies;
    PBM_QUERY_PROFILE "PbmQueryProfile" Look Policies;
    PBM_RETRIEVE_CONTENT "PbmRetrieveContent" Look Policies;

    CREATE_FOLDER "CreateFolder" Change;
    IMPORT_VAPP "ImportVApp" Change;
    LEASE_PROGRESS "HttpNfcLeaseProgress" OfSession;
    LEASE_COMPLETE "HttpNfcLeaseComplete" Change;
    LEASE_ABORT "HttpNfcLeaseAbort" Change;
    CLONE_VM "CloneVM_Task" Change;
    RECONFIGURE_VM "ReconfigVM_Task" Change;
    POWER_ON_VM "PowerOnVM_Task" Change;
    POWER_OFF_VM "PowerOffVM_Task" Change;
    SHUTDOWN_GUEST "ShutdownGuest" Change;
    CREATE_SNAPSHOT "CreateSnapshot_Task" Change;
    MARK_AS_TEMPLATE "MarkAsTemplate" Change;
    UNREGISTER_VM "UnregisterVM" Change;
    DESTROY "Destroy_Task" Change;
    COPY_VIRTUAL_DISK "CopyVirtualDisk_Task" Change;
    DELETE_VIRTUAL_DISK "DeleteVirtualDisk_Task" Change;
    MAKE_DIRECTORY "MakeDirectory" Change;
    MOVE_DATASTORE_FILE "MoveDatastoreFile_Task" Change;
    DELETE_DATASTORE_FILE "DeleteDatastoreFile_Task" Change;
    RECONFIGURE_COMPUTE_RESOURCE "ReconfigureComputeResource_Task" Change;
    CANCEL_TASK "CancelTask" Change;
    CREATE_DISK "CreateDisk_Task" Change;
    EXTEND_DISK "ExtendDisk_Task" Change;
    SNAPSHOT_DISK "VStorageObjectCreateSnapshot_Task" Change;
    DELETE_DISK_SNAPSHOT "DeleteSnapshot_Task" Change;
    DELETE_STORAGE_OBJECT "DeleteVStorageObject_Task" Change;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_method_has_one_row() {
        let mut names: Vec<&str> = METHODS.iter().map(|method| method.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), METHODS.len());
    }

    #[test]
    fn each_task_but_a_search_is_sent_once() {
        let repeated =
            METHODS.iter().filter(|method| method.name.ends_with("_Task") && method.effect != Effect::Change);
        assert_eq!(repeated.map(|method| method.name).collect::<Vec<_>>(), ["SearchDatastore_Task"]);
    }
}
