//! The meaning of each fault for its call, in one table.
//!
//! Source: the faults of each method in the vSphere Web Services API reference, and in that of storage policies
//! (`Pbm…`). A fault that is not listed leaves its call in doubt: an error never counts as "nothing happened".

/// The effect of a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing happened. The same call may succeed later, perhaps after an action of the operator.
    Transient,
    /// Nothing happened: the object has changed since it was read.
    Changed,
    /// It may have happened, or may still happen.
    InDoubt,
    /// Nothing happened, and the same call will be rejected again.
    Refused,
    /// Nothing happened: a privilege is missing, or the login was rejected.
    Denied,
    /// Nothing happened: the object does not exist.
    NotFound,
    /// The guard stopped the call, and nothing was started after that.
    Stopped,
}

/// Whether the client repeats a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// It returns the fault.
    Never,
    /// Once, after a new login.
    AfterLogin,
    /// With pauses, until its patience ends, because another task blocks the call.
    Later,
}

/// The treatment of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Treatment {
    /// The effect of the call.
    pub outcome: Outcome,
    /// Whether it is repeated.
    pub again: Again,
}

/// For faults without a row.
pub(crate) const OF_UNKNOWN: Treatment = Treatment { outcome: Outcome::InDoubt, again: Again::Never };

/// The type of the fault, the effect of its call, and whether the client repeats it.
pub const TREATMENTS: &[(&str, Outcome, Again)] = &[
    ("NotAuthenticated", Outcome::Transient, Again::AfterLogin),
    // "Thrown when login fails due to token not provided or token could not be validated": the same fault for storage
    // policies.
    ("PbmFaultInvalidLogin", Outcome::Transient, Again::AfterLogin),
    ("TaskInProgress", Outcome::Transient, Again::Later),
    // The login and its privileges.
    ("InvalidLogin", Outcome::Denied, Again::Never),
    ("NoPermission", Outcome::Denied, Again::Never),
    ("PasswordExpired", Outcome::Denied, Again::Never),
    ("PbmFaultNoPermission", Outcome::Denied, Again::Never),
    ("RestrictedVersion", Outcome::Denied, Again::Never),
    // Missing objects.
    ("FileNotFound", Outcome::NotFound, Again::Never),
    ("ManagedObjectNotFound", Outcome::NotFound, Again::Never),
    ("NotFound", Outcome::NotFound, Again::Never),
    ("PbmFaultNotFound", Outcome::NotFound, Again::Never),
    // Changed objects. A device that is part of a snapshot, or attached already, is rejected with InvalidDeviceSpec.
    ("ConcurrentAccess", Outcome::Changed, Again::Never),
    ("InvalidDeviceBacking", Outcome::Changed, Again::Never),
    ("InvalidDeviceSpec", Outcome::Changed, Again::Never),
    ("InvalidPowerState", Outcome::Changed, Again::Never),
    ("InvalidSnapshotFormat", Outcome::Changed, Again::Never),
    ("InvalidState", Outcome::Changed, Again::Never),
    // Causes that pass, or that the operator has to fix.
    ("AdminNotDisabled", Outcome::Transient, Again::Never),
    ("CannotAccessFile", Outcome::Transient, Again::Never),
    ("CannotAccessNetwork", Outcome::Transient, Again::Never),
    ("CannotAccessVmDisk", Outcome::Transient, Again::Never),
    ("CannotCreateFile", Outcome::Transient, Again::Never),
    // "An operation fails because of a problem with the specified datastore": its paths are down, or it is missing.
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
    // Invalid requests.
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
    // Calls that started, and whose effect is unknown.
    ("HostCommunication", Outcome::InDoubt, Again::Never),
    ("HostNotConnected", Outcome::InDoubt, Again::Never),
    ("HostNotReachable", Outcome::InDoubt, Again::Never),
    ("RequestCanceled", Outcome::InDoubt, Again::Never),
    ("SystemError", Outcome::InDoubt, Again::Never),
    ("Timedout", Outcome::InDoubt, Again::Never),
];

/// The treatment of a fault of this type, if the table has it.
pub(crate) fn known(kind: &str) -> Option<Treatment> {
    let row = TREATMENTS.iter().find(|(name, ..)| *name == kind);
    row.map(|&(_, outcome, again)| Treatment { outcome, again })
}
