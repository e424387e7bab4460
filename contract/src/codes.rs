//! The stable codes of findings about the operator's input and the environment, with the meaning and the usual remedy of each. The
//! documentation's table is made from here, so every code is documented.

use std::fmt::Write;

use crate::finding::{Finding, Severity};

/// A kind of finding: one of the table below.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Code {
    /// The code that scripts and the documentation refer to.
    pub code: &'static str,
    /// How much such a finding matters.
    pub severity: Severity,
    /// The condition that is reported.
    pub meaning: &'static str,
    /// The usual remedy. A finding has a more exact one.
    pub action: &'static str,
}

impl Code {
    /// A finding of this kind. `seen` is the observation, never a secret. `action` is the operator's remedy.
    pub fn finding(&self, subject: impl Into<String>, seen: impl Into<String>, action: impl Into<String>) -> Finding {
        Finding {
            code: self.code.to_owned(),
            severity: self.severity,
            subject: plain(subject.into()),
            seen: plain(seen.into()),
            action: plain(action.into()),
        }
    }
}

/// The longest part of a finding, in characters, because consoles show it.
const LONGEST: usize = 4000;

/// Makes text of unknown origin safe: one line, without control characters for a console.
pub fn plain(text: String) -> String {
    if text.len() <= LONGEST && !text.contains(char::is_control) {
        return text;
    }
    text.chars().take(LONGEST).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

macro_rules! codes {
    ($($name:ident, $code:literal, $severity:ident, $meaning:literal, $action:literal;)*) => {
        $(#[doc = $meaning] pub const $name: Code =
            Code { code: $code, severity: Severity::$severity, meaning: $meaning, action: $action };)*
        /// All codes, in the order of the documentation.
        pub const CODES: &[Code] = &[$($name),*];
    };
}

codes! {
    ENVIRONMENT_ABSENT, "environment.absent", Error, "There is no OVF environment, neither in guestinfo nor on a CD-ROM. At first boot the appliance waits for one.", "Deploy the VM from the OVA with vCenter, or attach a CD-ROM with `ovf-env.xml`.";
    ENVIRONMENT_NOT_UTF8, "environment.not-utf8", Error, "The OVF environment is not UTF-8 text.", "Save the document as UTF-8.";
    ENVIRONMENT_TOO_LARGE, "environment.too-large", Error, "The OVF environment is larger than 1 MiB or has more than 10,000 XML nodes.", "Give a document as vCenter writes it, of a few kilobytes.";
    ENVIRONMENT_TRUNCATED, "environment.truncated", Error, "The OVF environment ends in the middle of the XML document.", "Write the document again, and attach it again.";
    ENVIRONMENT_MALFORMED, "environment.malformed", Error, "The OVF environment is not well-formed XML.", "Correct the XML at the place that the finding names.";
    ENVIRONMENT_ENTITIES, "environment.entities", Error, "The OVF environment declares a document type, which could define entities. An OVF environment never does.", "Remove `<!DOCTYPE` from the document.";
    ENVIRONMENT_WRONG_ROOT, "environment.wrong-root", Error, "The XML document is not an OVF environment: its root is another element or of another namespace.", "Give a document with the root element `Environment` in OVF's namespace.";
    ENVIRONMENT_NO_PROPERTIES, "environment.no-properties", Error, "The OVF environment has no property at all: the VM was not deployed from the OVA, or its vApp options were switched off.", "Deploy the VM from the OVA, with its vApp options on.";
    ENVIRONMENT_DUPLICATE, "environment.duplicate-property", Error, "The OVF environment gives one property two different values.", "Remove all values of the property but one.";
    ENVIRONMENT_UNKNOWN, "environment.unknown-property", Warning, "The OVF environment has a property that the appliance does not know; it is ignored.", "Look for typing mistakes in the keys.";
    ENVIRONMENT_CONFLICT, "environment.conflict", Error, "guestinfo and a CD-ROM, or two CD-ROMs, give different OVF environments.", "Detach the CD-ROM that does not belong to this VM, then restart the VM.";
    ENVIRONMENT_MEDIUM, "environment.medium-unreadable", Error, "A CD-ROM holds a damaged ISO 9660 file system, or reading it failed.", "Make the CD-ROM image again, and attach it again.";
    MEDIUM_NOT_EJECTED, "environment.medium-not-ejected", Warning, "The CD-ROM that the OVF environment came on could not be ejected. It holds secrets and cannot be scrubbed.", "Disconnect the CD-ROM in the VM's settings.";
    GUESTINFO_NOT_SCRUBBED, "guestinfo.not-scrubbed", Warning, "The secrets of the OVF environment could not be removed from guestinfo.", "Remove `guestinfo.ovfEnv` from the VM's settings.";
    ENVIRONMENT_GUESTINFO, "environment.guestinfo-unreadable", Error, "The hypervisor refused or broke off the reading of guestinfo.", "Power the VM off and on. If that does not help, attach the environment as a CD-ROM.";
    ENVIRONMENT_IGNORED, "environment.source-ignored", Warning, "One source of the OVF environment could not be used; another one was.", "Correct or remove the source that the finding names.";

    PROPERTY_MISSING, "property.missing", Error, "A required property is not set.", "Set the property in the OVF form, on the console or with `kaas-agent configure`.";
    PROPERTY_MALFORMED, "property.malformed", Error, "A property is not written in the form that it must have.", "Correct the value. The finding names the form.";
    PROPERTY_IPV6, "property.ipv6", Error, "A property holds an IPv6 address: the appliance works with IPv4 only.", "Give an IPv4 address.";
    PROPERTY_OUT_OF_RANGE, "property.out-of-range", Error, "A number is outside the range that the property allows.", "Give a number in the range that the finding names.";
    PROPERTY_REPEATED, "property.repeated", Warning, "A list holds the same entry twice; the second one is ignored.", "Remove the second entry.";
    PROPERTY_NOT_USED, "property.not-used", Warning, "A property is set that a node of this role does not use; it is ignored.", "Remove the property, or correct the role of the node.";
    PROPERTY_UNKNOWN, "property.unknown", Error, "A change on the node names a property that the appliance does not know.", "Look for a typing mistake in the key.";
    PROPERTY_FIXED, "property.fixed", Error, "A change on the node names a property that the cluster was formed with. Names, addresses and ranges never change in a cluster.", "Keep the former value, or replace the node by a new one.";

    ADDRESS_UNUSABLE, "address.unusable", Error, "An address can never be a host's: it is a loopback, multicast, link-local or otherwise reserved one.", "Give an address that a host of this network can have.";
    ADDRESS_RESERVED, "address.subnet-reserved", Error, "An address is the first (network) or last (broadcast) one of its subnet.", "Give an address between the first and the last one of the subnet.";
    ADDRESS_PREFIX, "address.prefix", Error, "A prefix length leaves no room for the cluster or covers far too much.", "Give the prefix length of the VM's subnet.";
    ADDRESS_DUPLICATE, "address.duplicate", Error, "Two settings have the same address.", "Give each an address that nothing else uses.";
    ADDRESS_DHCP, "address.dhcp", Error, "A control-plane node is to have its address by DHCP: only a worker may.", "Give a static address with the prefix length of its subnet.";
    NAME_DUPLICATE, "name.duplicate", Error, "Two control-plane nodes have the same name.", "Give each node another name.";
    GATEWAY_OFF_SUBNET, "gateway.off-subnet", Error, "The gateway is not in the node's subnet.", "Correct the gateway, or the prefix length of the VM's address.";
    GATEWAY_MISSING, "gateway.missing", Warning, "Servers outside the node's subnet are given, but no gateway to reach them.", "Set the gateway, or give servers in the node's subnet.";
    DNS_MANY, "dns-servers.many", Warning, "More than three DNS servers are given; programs in containers ask the first three only.", "Give at most three DNS servers.";

    CONTROL_NODES_COUNT, "control-nodes.count", Error, "The list names neither one nor three control-plane nodes.", "List one control-plane node, or three for high availability.";
    CONTROL_NODES_NOT_LISTED, "control-nodes.not-listed", Error, "This node is not in the list of control-plane nodes.", "Give this VM a name of the list, or add its name to the list on every node.";
    CONTROL_NODES_ADDRESS, "control-nodes.address-differs", Error, "The list of control-plane nodes gives this node another address than the address property.", "Make the address in the list and the address of the VM the same.";
    CONTROL_NODES_OFF_SUBNET, "control-nodes.off-subnet", Error, "A control-plane node's address is not in this node's subnet; all control-plane nodes share one, so that the virtual IP can move.", "Give all control-plane nodes addresses of one subnet.";
    API_VIP_MISSING, "api-vip.missing", Error, "Three control-plane nodes need a virtual IP.", "Set `api-vip` to an unused address in the subnet of the nodes.";
    SERVICE_VIPS_OFF_SUBNET, "service-vips.off-subnet", Warning, "Virtual IPs of services are outside of this node's subnet. They are reached only if the network leads them to the workers' subnet without a router.", "Give addresses of the workers' subnet, unless the network routes these there.";
    API_VIP_OFF_SUBNET, "api-vip.off-subnet", Error, "The virtual IP is not in the node's subnet.", "Correct the virtual IP, or the prefix length of the VM's address.";

    RANGE_HOST_BITS, "range.host-bits", Error, "A range is not written with its first address.", "Write the range with its first address, or give another prefix length.";
    RANGE_SIZE, "range.size", Error, "A range is too small or too large.", "Give a prefix length in the limits that the finding names.";
    RANGE_UNUSABLE, "range.unusable", Error, "A range holds addresses that can never be hosts'.", "Give a private range, such as one inside 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16.";
    RANGE_OVERLAP, "range.overlap", Error, "Two ranges overlap: the node subnet, the data subnet, the pod CIDR, the service CIDR or ranges of virtual IPs of services. Or a static route covers pods or services.", "Change one of the two ranges, the same on every node.";
    ROUTES_GATEWAY, "routes.gateway", Error, "The gateway of a static route is in no subnet of the VM, or is not a usable address of another host there.", "Give a router in the subnet of the VM's address or data address.";
    ROUTES_DUPLICATE, "routes.duplicate", Error, "There are two static routes to one network.", "Remove one of the two routes.";
    RANGE_COVERS_SERVER, "range.covers-server", Error, "A server that the node needs has an address inside the pod or service CIDR and could not be reached.", "Choose another range, the same on every node.";

    SECRET_INVALID, "deployment-secret.invalid", Error, "The deployment secret is longer than 1,024 characters or holds control characters.", "Give the output of `openssl rand -hex 16`.";
    SECRET_WEAK, "deployment-secret.weak", Error, "The deployment secret is judged to hold less than 128 bits.", "Give the output of `openssl rand -hex 16`.";
    SECRET_WHITESPACE, "deployment-secret.whitespace", Warning, "The deployment secret begins or ends with white space, which counts.", "Remove the white space, unless the other nodes have it too.";

    PASSWORD_PLAIN, "console-password-hash.plain", Error, "The console password is not a crypt(5) hash.", "Give the output of `mkpasswd --method=yescrypt`.";
    PASSWORD_METHOD, "console-password-hash.method", Error, "The console password is hashed with a method that is not accepted.", "Give the output of `mkpasswd --method=yescrypt`.";
    PASSWORD_MALFORMED, "console-password-hash.malformed", Error, "The console password's hash is incomplete or holds characters that a hash never has.", "Copy the whole hash again.";

    SSH_KEY_MALFORMED, "ssh-key.malformed", Error, "An SSH key is incomplete, damaged, or its type and its data disagree.", "Give the content of the key's `.pub` file.";
    SSH_KEY_WEAK, "ssh-key.weak", Error, "An SSH key is of a type or size that is no longer accepted.", "Create another key with `ssh-keygen -t ed25519`, and give its `.pub` file.";
    SSH_KEY_PRIVATE, "ssh-key.private", Error, "A private key was given where public keys belong.", "Give the `.pub` file. Create another key pair, because others may have seen the private key.";

    ACCESS_NONE, "access.none", Error, "Neither an SSH key nor a console password is given: no user could ever log in to the node.", "Set `ssh-authorized-keys` or `console-password-hash`.";

    CERTIFICATE_MALFORMED, "certificate.malformed", Error, "A certificate is damaged or of an unknown form.", "Give the certificate in PEM, with line ends written as `\\n`.";
    CERTIFICATE_NOT_CA, "certificate.not-ca", Error, "A certificate is not a certificate authority's.", "Give the certificate of the CA that signed the server's certificate.";
    CERTIFICATE_PRIVATE, "certificate.private-key", Error, "A private key was given where certificates belong.", "Give certificates only. Replace the private key, because others may have seen it.";
    CERTIFICATE_EXPIRED, "certificate.expired", Warning, "A certificate has expired, or the VM's clock is wrong.", "Renew the certificate, or set the clock of the host.";
    CERTIFICATE_EARLY, "certificate.not-yet-valid", Warning, "A certificate is not valid yet, or the VM's clock is wrong.", "Wait until it is valid, or set the clock of the host.";

    RECOVERY_KEY_PRIVATE, "recovery-key.private", Error, "A private key was given where the public key for recovery belongs.", "Create another pair with `kaas recovery-key new`, and give its public key.";
    DEPLOYER_KEY_PRIVATE, "deployer-key.private", Error, "A private key was given where the deployer's public key belongs.", "Create another key pair, and give its public key.";
    URL_MALFORMED, "url.malformed", Error, "An address of a proxy or registry is not a URL of the form that is needed.", "Write the address in the form that the finding names.";
    KUBERNETES_MINOR, "kubernetes-version.not-in-image", Error, "The image does not carry this minor version of Kubernetes.", "Give a version of the image, or leave the property empty.";

    NODE_LABELS_RESERVED, "node-labels.reserved", Error, "A label is not a node's own to set: a kubelet may not, or another property is for it.", "Remove the label. Set it with `kubectl label node` after the node has joined.";
    JOIN_TOKEN_REFUSED, "join.token-refused", Error, "The cluster does not take the worker's join token: it has expired, was deleted, was mistyped, or is not for joining.", "Create a token with `kubeadm token create --ttl 1h` on a control-plane node, and set `join-token`.";
    JOIN_TOKEN_MISSING, "join.token-missing", Error, "The worker belongs to no cluster, and no longer has a join token.", "Set `join-token` in the form, on the console or with `kaas-agent configure --from -`.";
    JOIN_WRONG_CA, "join.wrong-ca", Error, "The cluster's certificate authority is not the one whose hash the worker was given. The token was not sent.", "Correct the hash or the address. If both are right, another host answers at the cluster's address.";
    JOIN_OTHER_CLUSTER, "join.other-cluster", Error, "The worker belongs to another cluster already, or the cluster at the address has another name. A warning on a worker that stays in its cluster.", "Correct the properties of the cluster, or reset this VM first.";
    JOIN_VERSION_SKEW, "join.version-skew", Error, "The worker's image carries no Kubernetes that may join the cluster. A kubelet is not newer than the API server, and at most three minor versions older.", "Use an image of the control-plane nodes' version, or upgrade these nodes first.";
    JOIN_NAME_IN_USE, "join.name-in-use", Error, "The cluster has another node of the worker's name.", "Give this VM another name. If the other node is gone for good, run `kubectl delete node NAME`.";
    JOIN_ADDRESS_IN_USE, "join.address-in-use", Error, "The cluster has another node with the worker's address.", "Give this VM another address. If the other node is gone for good, run `kubectl delete node NAME`.";
    JOIN_DENIED, "join.denied", Error, "The cluster has denied the worker a certificate.", "Ask the operator of the cluster. The worker repeats its request.";
    JOIN_CERTIFICATE_EXPIRED, "join.certificate-expired", Error, "The certificate by which the cluster knows the worker has expired: it must join again, with a new token.", "Set a new `join-token`.";

    PEER_SECRET, "peer.secret-mismatch", Error, "A control-plane node holds another deployment secret, or something answers in its place. A warning when the address is no control-plane node's.", "Give every control-plane node the same deployment secret. Check that no other host uses the address.";
    PEER_STRANGE, "peer.strange", Error, "Something that is no control-plane node answers at a control-plane node's address.", "Check the list of control-plane nodes. Check that no other host uses the address.";
    PEER_CLOCK, "peer.clock", Error, "The clocks of two control-plane nodes differ by more than half an hour: certificates of the one would not be valid on the other.", "Set the clocks of the hosts, or give every node the same time servers.";
    PEERS_DISAGREE, "peers.disagree", Error, "Two control-plane nodes were given different cluster properties, images or names.", "Deploy the control-plane nodes from one image with the same cluster properties.";
    CLUSTER_EXISTS, "cluster.exists", Error, "This node or another one is blank, while the rest belongs to a cluster already. No second cluster is started.", "Attach the data disk of the node's former VM. If it is lost, run `kaas-agent replace-member` on another node.";
    MEMBER_LOST, "member.lost", Error, "This node had joined the cluster and has lost its data disk.", "Run `kaas-agent replace-member NAME` on another control-plane node.";
    REPLACEMENT_REFUSED, "member.replacement-refused", Error, "A control-plane node refused to admit a blank VM in place of a lost one. The lost node still answers, or the other members have no quorum without it.", "Power the lost node's VM off. Repair the other control-plane nodes first.";
    SECRET_LOST, "deployment-secret.lost", Error, "The deployment secret is gone from the data disk before the cluster is complete.", "Deploy this VM again with an empty data disk.";
    ETCD_DATA_LOST, "etcd.data-lost", Error, "This node's etcd member was part of the cluster, and its data is gone from the data disk.", "Run `kaas-agent replace-member NAME` on another control-plane node. Then deploy this VM with an empty data disk.";
    ETCD_DAMAGED, "etcd.damaged", Error, "This node's etcd ends at each start. Its data on the data disk are damaged, as after a power cut or an error of the storage.", "Replace the member from another control-plane node. On a single node, restore a snapshot with `kaas-agent restore`.";

    DISK_ABSENT, "disk.absent", Error, "The VM has no disk besides its system disk. No address is claimed.", "Power off, add an empty data disk or that of the node's former VM, power on.";
    DISK_BESIDE_WORKER, "disk.beside-worker", Error, "The data disk of a control-plane node is attached to a VM that is a worker. The node does not change the disk.", "Detach the disk, and attach it to the VM of its node.";
    DISK_OF_WORKER, "disk.of-worker", Error, "A disk with the local volumes of a worker is attached to a VM that is not that worker. The node does not change the disk.", "Detach the disk, and attach it to the VM of its worker.";
    DISK_VOLUMES_ABSENT, "disk.volumes-absent", Error, "The data disk with this worker's local volumes is missing, or another one is in its place. The kubelet is not started.", "Attach the disk again. If it is lost, reset the worker.";
    DISK_FOREIGN, "disk.foreign", Error, "A disk holds something that is not the appliance's, and no data disk of this appliance is attached. Nothing is changed.", "Detach the disk. Give the VM an empty data disk.";
    DISK_AMBIGUOUS, "disk.ambiguous", Error, "Several disks could be the data disk, or a data disk of this appliance cannot be trusted.", "Detach all disks but the data disk of this node.";
    DISK_UNREADABLE, "disk.unreadable", Error, "A disk cannot be read: it might be the data disk, so no other one is taken.", "Check the storage of the disk, or detach it. Then power the VM off and on.";
    DISK_NEWER, "disk.newer", Error, "A data disk was last used by a newer image, whose records this one cannot read.", "Start the image that used the disk last, or a newer one.";
    DISK_HELD_ELSEWHERE, "disk.held-elsewhere", Error, "The data disk is held by another VM, which has not released it: that VM was not shut down cleanly.", "Attach the disk to that VM and shut it down. If it is off for good, run `kaas-agent force-adopt`.";
    DISK_OTHER_IMAGE, "disk.other-image", Error, "The data disk was released for a VM of another image than this one.", "Attach the disk to a VM of the image that it was released for, or to the former VM.";
    IMAGE_DOWNGRADE, "image.downgrade", Error, "This VM's image is older than the one that used the data disk last.", "Attach the disk to a VM of the last image or a newer one.";
    IMAGE_FROM_VERSION, "image.from-version", Error, "This VM's image may not take the place of the one that used the data disk last.", "Attach the disk to the former VM, or to one of an image that may follow the last one.";
    IMAGE_PUBLISHER, "image.publisher", Error, "This VM's image is not signed with the publisher's key that is pinned on the data disk.", "Attach the disk to a VM of an image of the pinned publisher, or to the former VM.";
    DISK_STALE, "disk.stale", Error, "The cluster has seen this node with a later content of its data disk: this one is an old copy. etcd is not started.", "Power off, and attach the disk that the node used last. If it is lost, run `kaas-agent replace-member`.";
    DISK_CLONED, "disk.cloned", Error, "The cluster has seen this node with the same data disk in another VM: this one is a copy. etcd is not started.", "Power this VM off and remove it. The original VM continues.";
    DISK_SUPERSEDED, "disk.superseded", Error, "The cluster continues without this data disk. The cluster's store was restored from a snapshot, or another disk has taken the node's place. etcd is not started.", "Power off, and attach the disk that the node used last. If it is lost, run `kaas-agent replace-member`.";
    DISK_TOO_SMALL, "disk.too-small", Error, "The data disk is smaller than 4 GiB.", "Enlarge the data disk to at least 4 GiB.";
    DISK_READ_ONLY, "disk.read-only", Error, "The data disk, the disk of local volumes or the system disk's scratch partition refuses writes. A node that runs restarts by itself once the storage answers, at most once in ten minutes.", "Make the disk writable in the hypervisor, and check its storage. Then power the VM off and on.";
    DISK_FAILED, "disk.failed", Error, "Preparing or mounting the data disk failed. It continues where it stopped when the VM is powered on again.", "Check the storage of the disk, then power the VM off and on.";
    DISK_DAMAGED, "disk.damaged", Error, "The data disk's file system cannot be repaired without losing data.", "Keep the disk. Replace the node from the other nodes, or restore a snapshot.";
    DISK_FULL, "disk.full", Error, "Less than 16 MiB are free on the data disk.", "Enlarge the data disk, then power the VM off and on.";
    DISK_NEARLY_FULL, "disk.nearly-full", Warning, "Four fifths of the data disk, or of the system disk's scratch partition, are used: space or inodes. The finding names the largest users.", "Remove data that the finding names, or enlarge the disk.";
    DISK_ALMOST_FULL, "disk.almost-full", Warning, "Nine tenths of the data disk, or of the system disk's scratch partition, are used: etcd stops when nothing is left, and pods are evicted.", "Remove data that the finding names, or enlarge the disk now.";
    DISK_NOT_GROWN, "disk.not-grown", Warning, "The virtual data disk is larger than the partition or the file system on it, and making these larger failed. It is tried again.", "Restart the VM. If that does not help, check the storage of the disk.";
    CONFIG_NOT_UNDERSTOOD, "config.not-understood", Error, "The configuration on the data disk cannot be read: another version of the appliance has written it, or it is damaged. Nothing is changed.", "Attach the disk to a VM of the image that used it last.";
    CONFIG_RESTORED, "config.restored", Warning, "The configuration on the data disk was damaged or missing. The node restored it from its copy.", "Check the settings of the node, and the storage of the disk.";
    ROLE_OTHER, "role.other", Error, "The data disk belongs to a node of another role than the image makes or the form asks for. For example, a VM of the control cluster has a tenant cluster's disk.", "Attach the disk to a VM of the right image, and give this VM a disk for its role.";
    ROLE_NOT_IN_IMAGE, "role.not-in-image", Error, "The property role names a role that VMs of this image cannot have.", "Correct the property `role`, or use the image of that role.";
    KUBERNETES_NOT_IN_IMAGE, "kubernetes.not-in-image", Error, "The image does not carry the minor version of Kubernetes that the cluster runs, or that an upgrade is to go to.", "Use an image that carries this version.";
    KUBERNETES_SKEW, "kubernetes.skew", Error, "An upgrade of Kubernetes was asked for that skips minor versions or goes back.", "Upgrade to the next minor version.";
    KUBERNETES_NOT_READY, "kubernetes.not-ready", Error, "An upgrade of Kubernetes was asked for while this node or another control-plane node is not ready.", "See `kaas-agent status` on the node that is not ready. Upgrade when it is ready.";
    KUBERNETES_SWAP_OPEN, "kubernetes.swap-open", Error, "An upgrade of Kubernetes was asked for before this node's image swap was committed.", "Commit the image swap first.";
    KUBERNETES_ANOTHER, "kubernetes.another", Error, "An upgrade of Kubernetes was asked for while a node is being swapped or upgraded.", "Wait until the other node has finished.";
    KUBERNETES_ETCD, "kubernetes.etcd", Error, "An upgrade of Kubernetes was asked for while etcd is not fit for it. A member is missing, unhealthy, without a vote or too old, or its state is unknown.", "Repair the member of etcd first.";
    KUBERNETES_REMOVED_APIS, "kubernetes.removed-apis", Error, "An upgrade of Kubernetes was asked for while APIs are in use that it no longer has.", "Change the clients that use these APIs, and restart the API servers.";
    KUBERNETES_PREFLIGHT, "kubernetes.preflight", Error, "kubeadm's preflight checks refuse the upgrade.", "Correct the cause that kubeadm names.";
    KUBERNETES_FAILED, "kubernetes.upgrade-failed", Error, "An upgrade of Kubernetes was cancelled before anything had changed: pods did not move away in time, or the virtual IP did not move.", "Correct the cause, then upgrade again.";
    SWAP_NOT_READY, "swap.not-ready", Error, "A swap or an evacuation was asked of a node that is not formed, or not ready.", "Wait a minute. If that does not help, see `kaas-agent status`.";
    SWAP_QUORUM, "swap.quorum", Error, "A swap or an evacuation was asked for or about to be prepared, and etcd could lose its quorum. A control-plane node has no healthy etcd member with a vote, or its state is unknown.", "Repair the other control-plane nodes first.";
    SWAP_ANOTHER, "swap.another", Error, "A swap, an evacuation or a commit was asked for while another swap, evacuation or upgrade of Kubernetes is under way on any node. Or this is unknown, or a commit named another swap than this node's.", "Finish or cancel the other operation first.";
    SWAP_WITHDRAWN, "swap.withdrawn", Error, "A swap or an evacuation was asked for by the identifier of one that was cancelled: the request came late.", "Start the swap again.";
    SWAP_TAKEN, "swap.taken", Error, "This VM has taken the data disk over, and that is not committed: commit it, or give the disk back to the former VM.", "Commit the swap, or give the disk back to the former VM.";
    SWAP_NOT_GOOD, "swap.not-good", Error, "A swap was to be committed before the boot was marked good.", "Wait until the boot is good. `journalctl -u kaas-mark-good` names what is missing.";
    SWAP_FAILED, "swap.failed", Error, "Preparing, cancelling or committing a swap, or an evacuation, failed.", "Correct the cause that the message names, then repeat the request.";
    DEPLOYER_NOT_FORMED, "deployer.not-formed", Error, "A deployer asked for a certificate before the node was part of a formed cluster.", "Wait until the cluster has formed.";
    DEPLOYER_NO_KEY, "deployer.no-key", Error, "A deployer asked for a certificate, and the node was given no deployer's public key.", "Set `deployer-public-key` on each control-plane node.";
    DEPLOYER_OTHER_KEY, "deployer.other-key", Error, "A deployer asked for a certificate for another key than the node has: it may have been changed.", "Use the private key of `deployer-public-key`, or correct the property.";
    DEPLOYER_NOT_PROVED, "deployer.not-proved", Error, "A deployer did not prove the private key in this very TLS session, or proved it for another cluster.", "Read the fingerprints of the node again, and use the key of this cluster.";
    DEPLOYER_FAILED, "deployer.failed", Error, "Signing or noting a deployer's certificate failed; nothing was given out.", "Repeat the request. If it fails again, see the journal of kaas-agent.";
    DRAIN_BLOCKED, "drain.blocked", Error, "Pods could not move away in time because a PodDisruptionBudget did not allow it. The node was uncordoned again; nothing is lost by asking again later.", "Add replicas, or change the PodDisruptionBudget. Then repeat the request.";
    DRAIN_UNFINISHED, "drain.unfinished", Error, "Pods had been asked to end and still ran when the time for draining was over. The node was uncordoned again.", "See why the pods do not end. Then repeat the request.";
    RESET_UNDER_WAY, "reset.under-way", Warning, "The node is being reset, as was confirmed by its typed name: its data disk is erased.", "Wait. The node then starts again and needs its OVF environment.";
    RESET_FAILED, "reset.failed", Error, "Erasing the data disk for a reset failed. It is tried again.", "Wait. If it keeps failing, replace the data disk with an empty one.";
    DISK_IDENTITY_DAMAGED, "disk.identity-damaged", Warning, "One of the data disk's two identity slots is damaged; the other one is used and the first written again.", "Check the storage, unless power was lost just before.";
    DISK_SPARE, "disk.spare", Warning, "There is another disk in addition to the data disk; the node does not use it.", "Detach the disk if it is not needed.";
    DISK_WAITING, "disk.waiting", Warning, "An empty disk is not used while another disk holds something foreign.", "Detach the other disk.";
    EARLY_FAILED, "early.failed", Warning, "The stage before the system starts could not do all of its work; the machine ID may be that of one boot.", "See the log of the early stage.";
    AGENT_FAILED, "agent.failed", Error, "The agent failed before the first step of its plan. It is tried again.", "Wait. If it keeps failing, see the journal of kaas-agent.";
    NETWORK_NO_ADAPTER, "network.no-adapter", Error, "The VM has no network adapter.", "Power off, add a network adapter for each address of the form, power on.";
    NETWORK_ADAPTERS, "network.adapters", Error, "Which network adapter an address belongs to cannot be known: neither the MAC addresses nor the number of adapters match.", "Give the VM as many network adapters as the form has addresses.";
    NETWORK_NO_CARRIER, "network.no-carrier", Error, "A network adapter is not connected.", "Connect the VM's network adapter in the hypervisor.";
    NETWORK_FAILED, "network.failed", Error, "An address could not be claimed.", "Check the VM's network adapters, then power the VM off and on.";
    FIREWALL_FAILED, "firewall.failed", Error, "The firewall's rules could not be loaded. At boot, the node stays off the network until they are loaded. On a node that runs, the former rules stay in force, unless they were removed.", "Wait. If it keeps failing, power the VM off and on.";
    ADDRESS_IN_USE, "address.in-use", Error, "Another device on the network has this node's address already.", "Free the address, or deploy this node with another one.";
    ADDRESS_CHANGED, "address.changed", Error, "A DHCP server has leased another address to a worker than the one that its cluster knows it by. Its kubelet is stopped: the cluster calls the node not ready, and lets no service use its pods.", "Reserve the former address for this VM on the DHCP server.";
    ADDRESS_LOST, "address.lost", Error, "The DHCP lease of a worker has ended, and no DHCP server gives another: the node has no address.", "Make a DHCP server reachable, and reserve the address for this VM.";

    AUTHORITY_ENDS, "authority.ends-soon", Warning, "One of the cluster's certificate authorities ends within a year.", "Plan a new cluster before that day.";
    AUTHORITY_EXPIRED, "authority.expired", Error, "One of the cluster's certificate authorities has ended, or the VM's clock is wrong.", "Check the clock. If it is right, move the workloads to a new cluster.";
    API_CERTIFICATE_ENDS, "api-certificate.ends-soon", Warning, "Your own certificate of the Kubernetes API ends within 30 days.", "Install the next certificate on each control-plane node with `kaas-agent certificate install`.";
    API_CERTIFICATE_EXPIRED, "api-certificate.expired", Error, "Your own certificate of the Kubernetes API has expired; the API still shows it.", "Install the next certificate on each control-plane node with `kaas-agent certificate install`.";
    API_CERTIFICATE_UNUSABLE, "api-certificate.unusable", Warning, "Your own certificate of the Kubernetes API was damaged on the data disk and is not used.", "Install the certificate again, or remove it with `kaas-agent certificate remove`.";
    ENDPOINT_CLOSED, "endpoint.closed", Warning, "The port of the status endpoint cannot be opened on this node.", "Wait a minute. If that does not help, find the process that uses the port.";
    FINGERPRINTS_CHANGED, "fingerprints.changed", Warning, "The hypervisor showed other fingerprints than this node's, or they could not be written. A program in the VM may have tried to lead the deployer to another cluster.", "Compare the fingerprints with those on the node's console. Check who can write the VM's guestinfo.";
    API_VIP_IN_USE, "api-vip.in-use", Error, "A device that is no control-plane node has the virtual IP. Asked before the cluster has formed.", "Free the address, or give another virtual IP on every node.";

    PROCESSORS_FEW, "processors.few", Warning, "The VM has fewer than two virtual processors.", "Power off, give the VM two virtual processors, power on.";
    MEMORY_TOO_SMALL, "memory.too-small", Error, "The VM has less memory than its role needs: 1,700 MiB for a control-plane node, 900 MiB for a worker. A warning on a node that is part of a cluster.", "Power off, give the VM more memory, power on.";
    MEMORY_SMALL, "memory.small", Warning, "The VM has less memory than the smallest size of the deployment form.", "Power off, give the VM the memory of the smallest size, power on.";
    DISK_SMALL, "disk.small", Warning, "The data disk is smaller than 8 GiB.", "Enlarge the data disk before the cluster grows.";
    CLOCK_IMPLAUSIBLE, "clock.implausible", Error, "The clock shows a time before the image was made, or decades after. A warning where a time server will correct it, and on a node that is part of a cluster.", "Set the clock of the host, or give time servers.";
    CLOCK_BEHIND, "clock.behind", Warning, "At power-on the clock was behind the last time that this node has seen. In a VM it is set to that.", "Set the clock of the host, or give time servers.";
    CLOCK_HOST, "clock.host", Warning, "On VMware: without time servers, the VM could not be set to follow the clock of the ESXi host. With time servers, it could not be set to ignore that clock.", "Check VMware Tools and the clock setting of the VM, or give time servers.";
    CLOCK_UNSYNCHRONIZED, "clock.unsynchronized", Warning, "The clock follows no time server: none answers, or too few agree.", "Make a time server reachable, or at least two of three. Otherwise correct the time servers.";
    CLOCK_DIFFERS, "clock.differs", Warning, "A time server is more than ten minutes away from the clock. The node follows it only if it restarts.", "Correct the time servers. If their time is right, restart the node.";
    GATEWAY_SILENT, "gateway.no-answer", Warning, "No device on the network has the default gateway's address.", "Correct the gateway, or the network of the VM's adapter.";
    DNS_SILENT, "dns-servers.no-answer", Warning, "A DNS server does not answer.", "Correct the DNS servers, or make them reachable.";
    NTP_SILENT, "ntp-servers.no-answer", Warning, "A time server does not answer, or does not know the time.", "Correct the time servers, or make them reachable.";
    PEER_UNREACHABLE, "peer.unreachable", Warning, "Another control-plane node of the cluster cannot be reached.", "Power the other node on, and check the network between the nodes.";
    ETCD_OTHER_MINOR, "etcd.other-minor", Error, "The etcd data on the data disk were last used by another minor version of etcd than this VM's image has. etcd is not started.", "Give the data disk back to the former VM, or to a VM with the same minor version of etcd.";
    ETCD_NOSPACE, "etcd.no-space", Error, "etcd has reached its quota and refuses writes until objects are deleted.", "Delete objects that are not needed, or enlarge the data disks and restart the nodes one by one.";
    ETCD_CORRUPT, "etcd.corrupt", Error, "etcd has found that its members' data differ.", "Replace the member that the finding names. If it names none, restore a snapshot from before.";
    ETCD_NEARLY_FULL, "etcd.nearly-full", Warning, "etcd's database has more than 80 % of its quota.", "Delete objects that are not needed, or enlarge the data disks.";
    MEMBER_AWAITED, "member.awaited", Warning, "The cluster works, and a control-plane node has not joined it yet. The first node keeps its keys for it.", "Run `kaas-agent await NAME` on the first node, and power the other node on within an hour.";
    MEMBER_REPLACING, "member.replacing", Warning, "A lost control-plane node is being replaced; the finding says how far that is.", "Follow the step that the finding names.";
    SNAPSHOT_FAILED, "snapshot.failed", Warning, "No snapshot of the cluster's store could be taken when one was due. It is tried again.", "Correct the cause that the finding names.";
    SNAPSHOT_NOT_SENT, "snapshot.not-sent", Warning, "The newest snapshot could not be copied to the snapshot target. It is tried again.", "Repair the server, or correct `snapshot-target`.";
    SNAPSHOT_TARGET_CLEAR, "snapshot-target.clear-text", Warning, "Snapshots go to the snapshot target over http://: anyone on the way can read and change them, and the password.", "Give an `https://` address. Its CA can be one of `extra-ca-certificates`.";
    RECOVERY_KEY_MISSING, "recovery-key.missing", Warning, "Secrets are encrypted, and this node has no public key to seal the encryption keys to. After the loss of all control-plane nodes, no snapshot gives a Secret back.", "Run `kaas recovery-key new`, and set `recovery-public-key` on each control-plane node.";
    ENCRYPTION_WAITING, "encryption.waiting", Warning, "The next step to a new key for Secrets has waited for more than ten minutes for API servers that have not loaded it.", "Power these nodes on, or replace those that are lost.";
    ENCRYPTION_KEY_MISSING, "encryption.key-missing", Error, "The store was restored from another cluster's snapshot, and the keys of its Secrets were not given. The API server is not started.", "Run `kaas recovery-key open`, then restore again with `--recovered-keys`.";
    POD_SECURITY_PRIVILEGED, "pod-security.privileged", Warning, "No level of the Pod Security Standards is enforced where a namespace does not name one.", "Label namespaces that need more. Then run `kaas-agent configure pod-security=baseline` on each node.";
    NETWORK_POLICY_NOT_ENFORCED, "network-policy.not-enforced", Warning, "There are NetworkPolicies. Kubernetes accepts them, and this version enforces none: every pod reaches every pod.", "Separate workloads by other means, such as TLS with client certificates or another cluster.";
    NODE_NOT_REGISTERED, "node.not-registered", Warning, "The cluster has no Node object of this control-plane node. The node creates it again within a minute.", "Wait a minute. If it is deleted again, the audit log of the API server names the client.";
    NODE_POD_RANGE, "node.pod-range", Warning, "A node has a range of addresses for its pods that the cluster has not given it. The range is outside of the pod CIDR, of another size, or another node's. The pods are reached from no other node. With a range outside of the pod CIDR, kube-controller-manager does not start.", "Delete the node that the finding names. It joins again with a range of the cluster.";
    WORKER_NOT_APPROVED, "worker.not-approved", Warning, "A certificate that a worker has asked for is not approved. Its Node object has another node's address or an unexpected one, its token is for another node, or the worker was removed.", "Correct the worker's address, its Node object or its token.";
    WORKER_NAME_HELD, "worker.name-held", Warning, "A join token has admitted a node by a name. No node of that name has come since, or the present one has not served. Until it serves, or for a year, no other worker is admitted by that name.", "Give workers other names. If the VM with that name was yours, remove it.";
    WORKER_UNKNOWN, "worker.unknown", Warning, "The cluster has a node that no control-plane node has admitted. It was removed, and has come back with its old certificate, which is not renewed. It may get pods as long as it is part of the cluster.", "Power its VM off, and run `kubectl delete node NAME`.";
    RUNTIME_RECREATED, "runtime.recreated", Warning, "containerd failed with what it kept. The node removed that since power-on and imported its own images again. Pods pull other images again.", "Check the storage of the system disk, unless power was lost just before.";
    RUNTIME_FAILED, "runtime.failed", Error, "containerd ends at each start or takes no images. The node has removed what containerd kept since power-on already, or pods may run.", "Restart the VM once. If that does not help, check the storage of the system disk.";
    ADD_ON_NOT_READY, "add-on.not-ready", Warning, "An add-on that the appliance brings does not run, or not on each node that it is for; or one of its objects was missing.", "See `kubectl --namespace=NAMESPACE describe pods` for the reason.";
    AUDIT_WINDOW_SHORT, "audit.window-short", Warning, "The audit log had reached its share of the data disk, and files of the last 24 hours were removed. The first file of each hour and the newest ones stay. The finding stays for a day.", "Find the client with most requests in the audit log, or enlarge the data disk.";
    SETTINGS_REFUSED, "settings.refused", Warning, "A worker cannot take over the settings of its cluster. It keeps its former ones.", "Correct the field of the TenantCluster that the finding names, or replace the worker.";
    MAINTENANCE_FAILED, "maintenance.failed", Warning, "A periodic check or a background job failed. It is tried again.", "Wait. If it keeps failing, see the journal of kaas-agent.";
    MAINTENANCE_STUCK, "maintenance.stuck", Warning, "A background job does not end: it has run for ten times its pace, and for at least 15 minutes times `timeout-factor`. It does not run again until it ends.", "See the journal of kaas-agent. If the job does not end, restart the VM.";
}

/// The documentation's table of codes, in Markdown.
pub fn codes_markdown() -> String {
    let mut text = String::from("| Code | Severity | Meaning | What to do |\n|---|---|---|---|\n");
    for Code { code, severity, meaning, action } in CODES {
        let _ = writeln!(text, "| `{code}` | {severity} | {meaning} | {action} |");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_begins_no_line_on_a_console() {
        let seen = format!("a\r\nkaas: fingerprints {{}}\u{1b}[2J{}", "x".repeat(10_000));
        let finding = MAINTENANCE_FAILED.finding("workers", seen, "look");
        assert!(!finding.to_string().contains(char::is_control) && finding.seen.len() == LONGEST, "{finding}");
        assert!(finding.seen.starts_with("a  kaas: "), "{finding}");
    }

    #[test]
    fn codes_are_dotted_lower_case_and_unique() {
        for (index, code) in CODES.iter().enumerate() {
            assert!(code.code.split('.').count() == 2, "{}", code.code);
            assert!(
                code.code.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c)),
                "{}",
                code.code
            );
            assert!(CODES[..index].iter().all(|other| other.code != code.code), "{} is there twice", code.code);
            assert!(code.meaning.ends_with('.') && code.action.ends_with('.'), "{}", code.code);
        }
        assert_eq!(codes_markdown().lines().count(), CODES.len() + 2);
    }
}
