//! The conditions of a cluster, and the reason of each status.

use super::super::condition::reasons;

reasons! {
    /// Why a condition of a cluster has its status.
    TenantClusterReason:
    /// Everything that the cluster needs is available. The controller checks this before the first VM, and again before each
    /// change.
    Preflight {
        /// All checks passed.
        Passed = True,
        /// The Provider, a zone, a network, a class, a pool or an image of the spec is missing; the message names each.
        ReferenceMissing = False for operator helps "correct the reference in `spec`, or have the object created",
        /// The namespace may not use the Provider, or a zone, network, IPPool, class or image of the spec; the message names
        /// it. Use what the Catalog of the namespace lists, or ask the operator.
        NamespaceNotAllowed = False for operator
            helps "`kubectl get catalogs --output yaml` shows what the namespace may use",
        /// The Provider is not Ready; the message has the reason. The operator sees its conditions.
        ProviderNotReady = False
            helps "ask the operator about the Provider; `kubectl get catalogs --output yaml` lists the others",
        /// The Provider's limits do not suffice, or the vCenter reports too little free memory, processors or space; the message
        /// has the numbers.
        CapacityMissing = False for operator
            helps "ask the operator for capacity; `kubectl get catalogs --output yaml` lists the zones",
        /// The Tenant's quota does not suffice; the message has the numbers. Delete workers or clusters, or ask the operator. The
        /// Catalog of the namespace shows quota and use.
        QuotaExceeded = False for operator helps "`kubectl get catalogs --output yaml` shows quota and use",
        /// Addresses are missing; the message names what. A pool has too few free addresses, or `vipsPerNamespace` of the IPPool
        /// limits the namespace's addresses for endpoints and Services. Or an address of the spec is reserved, or belongs to
        /// another object.
        AddressesMissing = False for operator
            helps "ask the operator what is free; `kubectl get catalogs --output yaml` lists the IPPools",
        /// The range of pods does not hold the control-plane nodes and all workers of the pools; the message has the numbers. The
        /// range cannot change: create the cluster again with a larger `network.pods`, or with `nodePrefix` 25.
        PodRangeExhausted = False for operator
            helps "lower `spec.replicas` of the pools, or create the cluster again with a larger `network.pods`",
        /// The endpoint or an address for Services is not in the subnet of the control-plane nodes, or not all addresses of their
        /// pools are. A range that overlaps that subnet is `PropertiesRefused`.
        RangesOverlap = False for operator helps "correct `network.endpoint` or `network.serviceVIPs`",
        /// The image is unsuitable; the message has the reason. It lacks the minor version, cannot replace the former image, has
        /// expired, or has a format that this controller does not know.
        ImageUnsuitable = False for operator
            helps "name another `image`: `kubectl get catalogs --output yaml` lists them",
        /// A Secret that the spec names is missing or lacks a key; the message names it.
        SecretMissing = False for operator helps "see `site.consolePasswordRef` and `backup.credentialsRef`",
        /// The name of an object that the cluster needs is used by an object of another owner; the message names it.
        NameTaken = False for operator
            helps "remove the other object with `kubectl delete`, or create the cluster with another name",
        /// Control-plane nodes would reject the OVF properties that follow from the spec; the message says which, as their
        /// consoles would.
        PropertiesRefused = False for operator helps "correct this in `spec`",
        /// Control-plane nodes or their VMs are not in the state that a change needs; the message has details.
        ControlPlaneUnfit = False helps "see `kubectl describe machines`",
        /// The spec asks for something that this version of the controller does not support; the message names it.
        NotSupported = False for operator helps "remove this from `spec`, or upgrade the control cluster",
        /// Something that has to be known is unknown.
        PreflightNotKnown as NotKnown = Unknown,
        /// vCenter does not answer, so the state of the cluster's VMs is unknown. `ControlPlaneReady` and `Ready` come from the
        /// cluster's own API meanwhile. See the conditions of the Provider.
        ProviderNotReached = Unknown,
    }
    /// All control-plane nodes serve the Kubernetes API.
    ControlPlaneReady {
        /// All control-plane nodes are Ready.
        ControlNodesReady as AllReady = True,
        /// The control plane is being created.
        Forming = False helps "see `kubectl describe machines`",
        /// One of three nodes is not Ready; the API is served. If its VM is lost, `Progressing` says when it is replaced.
        Degraded = False helps "see `kubectl describe machines`",
        /// Too few control-plane nodes are Ready; the message names the others, with the reason.
        NoQuorum = False for operator helps "see `kubectl describe machines`",
        /// The cluster does not answer.
        ControlPlaneNotReached as NotReached = Unknown,
    }
    /// All workers that the pools want are Ready.
    NodesReady {
        /// All workers are Ready.
        WorkersReady as AllReady = True,
        /// Some workers are created, removed or not Ready; the message names pools, whose conditions have the reasons.
        WorkersMissing = False helps "see `kubectl describe nodepools`",
        /// The cluster does not answer.
        NodesNotReached as NotReached = Unknown,
    }
    /// Everything matches the spec: image, minor version, size, and the settings of control-plane nodes.
    UpToDate {
        /// Everything matches it.
        Current = True,
        /// Something differs, and an Operation changes it.
        Changing = False helps "see `kubectl describe operations`",
        /// Something differs, and waits for the maintenance window.
        AwaitingWindow = False helps "see `spec.maintenance`",
        /// The new image waits for its ten minutes, or for the operator's commit: `kaas.local/do: commit` on the Operation.
        AwaitingCommit = False helps "see `kubectl describe operations`",
        /// A change failed and waits for the operator; the Operation has the reason, and what can be done with `kaas.local/do`.
        ChangeFailed = False for operator helps "see `kubectl describe operations`",
        /// A control-plane node refuses a setting; the message has the field and the node's words. All nodes have their former
        /// settings. Correct the field.
        SettingsRefused = False for operator helps "correct this field of `spec`",
        /// Something differs, and the change is blocked: the message or `Preflight` has the reason. Nothing was changed.
        ChangeBlocked = False helps "see Preflight in `kubectl describe tenantclusters`",
        /// Something differs that this version of the controller does not change; the message names it, and what the operator can
        /// do.
        ChangeNotSupported = False helps "set the former value in `spec`",
    }
    /// All add-ons of the spec run.
    AddonsReady {
        /// All add-ons run.
        AddonsRun as AllReady = True,
        /// Some add-ons do not run; the message names them.
        AddonsMissing as SomeMissing = False helps "see `kubectl --namespace kube-system get pods` in the cluster",
        /// The cluster does not answer.
        AddonsNotReached as NotReached = Unknown,
    }
    /// A change is in progress.
    Progressing {
        /// An Operation runs.
        OperationRuns = True,
        /// Control-plane nodes are created or powered on.
        ControlPlaneChanges = True,
        /// A lost control-plane node is being replaced by a new VM; the message has the step.
        ReplacingNode = True,
        /// Workers' VMs are created or removed.
        WorkersChange = True,
        /// The cluster is being deleted.
        Deleting = True,
        /// There is nothing to do.
        Idle = False,
        /// `paused` is set: no new change begins.
        Paused = False helps "set `spec.paused` to false to continue",
        /// The controller's database is older than the VMs that the message names, as after a restore of the control cluster. No
        /// control-plane node is changed, powered off, deleted or created until the operator decides. The reason is also set if
        /// the removal of control-plane nodes had begun, and the cluster is not being deleted.
        AdoptionRequired = False for operator helps "compare the VMs, then run `kaas cluster adopt`",
        /// A control-plane node is lost. The message says when it is replaced, or what is waited for.
        NodeLost = False helps "see `kubectl describe machines`",
        /// A control-plane node is lost, and only the operator can have it replaced. Or the annotation `kaas.local/replace-node`
        /// names no control-plane node. The message has the command.
        NodeLostAwaitingOperator = False for operator helps "see `kaas cluster replace-node`",
        /// Only the operator can remove a problem; the other conditions name it.
        Blocked = False for operator helps "see `kubectl describe tenantclusters`",
    }
    /// The cluster can be used.
    Ready {
        /// The cluster can be used.
        Available = True,
        /// The cluster is being created.
        Provisioning = False helps "see `kubectl describe tenantclusters`",
        /// Another condition says what is wrong.
        NotReady = False helps "see `kubectl describe tenantclusters`",
        /// The cluster is being deleted.
        ClusterDeleting as Deleting = False helps "see Progressing in `kubectl describe tenantclusters`",
        /// The cluster does not answer.
        NotReached = Unknown,
    }
}
