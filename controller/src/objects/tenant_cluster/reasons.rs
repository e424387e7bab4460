//! The conditions of a cluster, and why each is as it is.

use super::super::condition::reasons;

reasons! {
    /// Why a condition of a cluster is as it is.
    TenantClusterReason:
    /// All that the cluster needs can be had. It is judged before the first VM, and again before each change.
    Preflight {
        /// Nothing is in the way.
        Passed = True,
        /// The Provider, a zone, a network, a class, a pool or an image of the spec is not there; the message names each.
        ReferenceMissing = False,
        /// The namespace is none of those that the Provider allows: ask who runs it.
        NamespaceNotAllowed = False,
        /// The Provider is not Ready: look at its conditions.
        ProviderNotReady = False,
        /// What the Provider's limits leave does not suffice; the message has the numbers. What hosts and datastores have free is not
        /// judged: the Provider shows it.
        CapacityMissing = False,
        /// A pool has too few free addresses, or the namespace would have more of them for endpoints and Services than it may
        /// (`vipsPerNamespace` of the IPPool), or an address that the spec names is somebody else's or reserved; the message names it.
        AddressesMissing = False,
        /// The endpoint or an address for Services is not in the subnet of the control nodes, or not all addresses of their pools are. A
        /// range that overlaps that subnet is `PropertiesRefused`.
        RangesOverlap = False,
        /// The image does not carry the minor, may not take the place of the one before, has expired, or is of a format that
        /// this controller does not know; the message says which.
        ImageUnsuitable = False,
        /// A Secret that the spec names is not there or lacks a key; the message names it.
        SecretMissing = False,
        /// An object of a name that the cluster's own need is somebody else's; the message names it.
        NameTaken = False,
        /// Control nodes would refuse the form that follows from the spec; the message says what of it, as their consoles would.
        PropertiesRefused = False,
        /// Control nodes or their VMs are not as a change needs them; the message says what of which.
        ControlPlaneUnfit = False,
        /// The spec asks for something that this version of the controller does not do; the message names it.
        NotSupported = False,
        /// Something that has to be known is not.
        PreflightNotKnown as NotKnown = Unknown,
    }
    /// The Kubernetes API is served by all control nodes.
    ControlPlaneReady {
        /// All control nodes are Ready.
        ControlNodesReady as AllReady = True,
        /// The control plane is being made.
        Forming = False,
        /// One of three is not Ready; the API is served. Nobody replaces one whose VM is lost: that waits for a person.
        Degraded = False,
        /// Too few control nodes are Ready: the message names those that are not, and why.
        NoQuorum = False,
        /// The cluster does not answer.
        ControlPlaneNotReached as NotReached = Unknown,
    }
    /// All workers that the pools want are Ready.
    NodesReady {
        /// They are.
        WorkersReady as AllReady = True,
        /// Some come, go or are not Ready; the message names pools, whose conditions say why.
        WorkersMissing = False,
        /// The cluster does not answer.
        NodesNotReached as NotReached = Unknown,
    }
    /// Everything is as the spec has it: image, minor, size, and what control nodes were told when they were made.
    UpToDate {
        /// It is.
        Current = True,
        /// Something differs, and an Operation changes it.
        Changing = False,
        /// Something differs, and waits for the maintenance window.
        AwaitingWindow = False,
        /// The new image waits for its ten minutes, or for a person's commit: `kaas.local/do: commit` on the Operation.
        AwaitingCommit = False,
        /// A change failed and waits for a person; the Operation says why, and what can be done with `kaas.local/do`.
        ChangeFailed = False,
        /// Something differs, and something is in the way of changing it: `Preflight` says what. Nothing has moved.
        ChangeBlocked = False,
        /// Something differs that this version of the controller does not change; the message names it, and says what a person can do.
        ChangeNotSupported = False,
    }
    /// All add-ons of the spec run.
    AddonsReady {
        /// They do.
        AddonsRun as AllReady = True,
        /// Some do not; the message names them.
        AddonsMissing as SomeMissing = False,
        /// The cluster does not answer.
        AddonsNotReached as NotReached = Unknown,
    }
    /// Something is being done.
    Progressing {
        /// An Operation is under way.
        OperationRuns = True,
        /// Control nodes are made, or powered on.
        ControlPlaneChanges = True,
        /// VMs come or go.
        WorkersChange = True,
        /// The cluster is being deleted.
        Deleting = True,
        /// There is nothing to do.
        Idle = False,
        /// `paused` is set: nothing further is begun.
        Paused = False,
        /// The controller's database is older than the VMs that the message names, as after a restore of the control cluster: nothing of
        /// control nodes is changed, powered off, deleted or made before a person has seen to it. Or control nodes were being removed, and
        /// nobody deletes the cluster.
        AdoptionRequired = False,
        /// Something is in the way that only a person can change; the other conditions say what.
        Blocked = False,
    }
    /// The cluster can be used.
    Ready {
        /// It can.
        Available = True,
        /// It is being made.
        Provisioning = False,
        /// Another condition says what is in the way.
        NotReady = False,
        /// It is being deleted.
        ClusterDeleting as Deleting = False,
        /// The cluster does not answer.
        NotReached = Unknown,
    }
}
