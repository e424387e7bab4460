//! What each fault means for the call that it ends: the one table of it.
//!
//! Source: the faults of each method in the vSphere Web Services API reference, and in that of storage policies (`Pbm…`). A fault that is not listed leaves its call in
//! doubt: an error is never taken for "nothing happened".

/// What became of a call that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing happened; the same call may succeed later, by itself or by what a person does.
    Transient,
    /// Nothing happened: the object is not as it was seen.
    Changed,
    /// It may have happened, or may still.
    InDoubt,
    /// Nothing happened, and the same call will be refused again.
    Refused,
    /// Nothing happened: a privilege is missing, or the login is not accepted.
    Denied,
    /// Nothing happened: the object is not there.
    NotFound,
    /// The guard has stopped the call: nothing was begun after that.
    Stopped,
}

/// Whether the client itself makes a call again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// It hands the fault on.
    Never,
    /// Once, after a new login.
    AfterLogin,
    /// With pauses, for as long as its patience lasts: another task is in the way for a while.
    Later,
}

/// What a fault means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Treatment {
    /// What became of the call.
    pub outcome: Outcome,
    /// Whether it is made again.
    pub again: Again,
}

/// For each fault that no row names.
pub(crate) const OF_UNKNOWN: Treatment = Treatment { outcome: Outcome::InDoubt, again: Again::Never };

/// Type of the fault, what became of its call, whether the client makes it again.
pub const TREATMENTS: &[(&str, Outcome, Again)] = &[
    ("NotAuthenticated", Outcome::Transient, Again::AfterLogin),
    // "Thrown when login fails due to token not provided or token could not be validated": the same, of storage policies.
    ("PbmFaultInvalidLogin", Outcome::Transient, Again::AfterLogin),
    ("TaskInProgress", Outcome::Transient, Again::Later),
    // The login, and what it may.
    ("InvalidLogin", Outcome::Denied, Again::Never),
    ("NoPermission", Outcome::Denied, Again::Never),
    ("PasswordExpired", Outcome::Denied, Again::Never),
    ("PbmFaultNoPermission", Outcome::Denied, Again::Never),
    ("RestrictedVersion", Outcome::Denied, Again::Never),
    // Not there.
    ("FileNotFound", Outcome::NotFound, Again::Never),
    ("ManagedObjectNotFound", Outcome::NotFound, Again::Never),
    ("NotFound", Outcome::NotFound, Again::Never),
    ("PbmFaultNotFound", Outcome::NotFound, Again::Never),
    // Not as it was seen. A device that is part of a snapshot, or is held already, is refused as InvalidDeviceSpec.
    ("ConcurrentAccess", Outcome::Changed, Again::Never),
    ("InvalidDeviceBacking", Outcome::Changed, Again::Never),
    ("InvalidDeviceSpec", Outcome::Changed, Again::Never),
    ("InvalidPowerState", Outcome::Changed, Again::Never),
    ("InvalidSnapshotFormat", Outcome::Changed, Again::Never),
    ("InvalidState", Outcome::Changed, Again::Never),
    // What passes, or what a person mends elsewhere.
    ("AdminNotDisabled", Outcome::Transient, Again::Never),
    ("CannotAccessFile", Outcome::Transient, Again::Never),
    ("CannotAccessNetwork", Outcome::Transient, Again::Never),
    ("CannotAccessVmDisk", Outcome::Transient, Again::Never),
    ("CannotCreateFile", Outcome::Transient, Again::Never),
    // "An operation fails because of a problem with the specified datastore": where its paths are down as well as where it is not there.
    ("DatastoreNotWritableOnHost", Outcome::Transient, Again::Never),
    ("DuplicateName", Outcome::Transient, Again::Never),
    ("FileAlreadyExists", Outcome::Transient, Again::Never),
    ("FileLocked", Outcome::Transient, Again::Never),
    ("InaccessibleDatastore", Outcome::Transient, Again::Never),
    ("InsufficientCpuResourcesFault", Outcome::Transient, Again::Never),
    ("InsufficientFailoverResourcesFault", Outcome::Transient, Again::Never),
    ("InsufficientHostCapacityFault", Outcome::Transient, Again::Never),
    ("InsufficientMemoryResourcesFault", Outcome::Transient, Again::Never),
    ("InsufficientResourcesFault", Outcome::Transient, Again::Never),
    ("InsufficientStorageSpace", Outcome::Transient, Again::Never),
    ("InvalidDatastore", Outcome::Transient, Again::Never),
    ("InvalidDatastoreState", Outcome::Transient, Again::Never),
    ("InvalidHostState", Outcome::Transient, Again::Never),
    ("NoCompatibleHost", Outcome::Transient, Again::Never),
    ("NoDiskSpace", Outcome::Transient, Again::Never),
    ("OutOfSyncDvsHost", Outcome::Transient, Again::Never),
    ("ResourceInUse", Outcome::Transient, Again::Never),
    ("ResourceNotAvailable", Outcome::Transient, Again::Never),
    ("RuleViolation", Outcome::Transient, Again::Never),
    ("ToolsUnavailable", Outcome::Transient, Again::Never),
    // What is asked for is wrong.
    ("InvalidArgument", Outcome::Refused, Again::Never),
    ("InvalidDatastorePath", Outcome::Refused, Again::Never),
    ("InvalidFolder", Outcome::Refused, Again::Never),
    ("InvalidName", Outcome::Refused, Again::Never),
    ("InvalidProperty", Outcome::Refused, Again::Never),
    ("InvalidRequest", Outcome::Refused, Again::Never),
    ("InvalidType", Outcome::Refused, Again::Never),
    ("NotImplemented", Outcome::Refused, Again::Never),
    ("NotSupported", Outcome::Refused, Again::Never),
    ("OvfInvalidPackage", Outcome::Refused, Again::Never),
    ("OvfInvalidValue", Outcome::Refused, Again::Never),
    ("OvfMissingElement", Outcome::Refused, Again::Never),
    ("OvfNoHostNic", Outcome::Refused, Again::Never),
    ("OvfNoSupportedHardwareFamily", Outcome::Refused, Again::Never),
    ("OvfUnsupportedElement", Outcome::Refused, Again::Never),
    ("OvfUnsupportedPackage", Outcome::Refused, Again::Never),
    ("OvfUnsupportedSection", Outcome::Refused, Again::Never),
    ("PbmCompatibilityCheckFault", Outcome::Refused, Again::Never),
    // What was begun, and nobody knows how far it went.
    ("HostCommunication", Outcome::InDoubt, Again::Never),
    ("HostNotConnected", Outcome::InDoubt, Again::Never),
    ("HostNotReachable", Outcome::InDoubt, Again::Never),
    ("RequestCanceled", Outcome::InDoubt, Again::Never),
    ("SystemError", Outcome::InDoubt, Again::Never),
    ("Timedout", Outcome::InDoubt, Again::Never),
];

/// What a fault of this type means, if the table has it.
pub(crate) fn known(kind: &str) -> Option<Treatment> {
    let row = TREATMENTS.iter().find(|(name, ..)| *name == kind);
    row.map(|&(_, outcome, again)| Treatment { outcome, again })
}
