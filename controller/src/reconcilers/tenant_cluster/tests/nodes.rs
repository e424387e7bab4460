//! The agents of the control-plane nodes in memory, for upgrades: the contents of data disks, and which VM has them.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use async_trait::async_trait;
use contract::bios_uuid::BiosUuid;
use contract::kubernetes_upgrade::{self, UpgradeState};
use contract::node::{Etcd, HealthySince, Kubernetes, Member, Node, Pods, RunningImage};
use contract::properties as keys;
use contract::swap::{self, EvacuationState, Losses, Rejection, Stage, SwapState, VmImage};
use fleet::hypervisor::{PowerState, Vm};
use fleet::lease::{Snapshots, SpaceQuota};
use fleet::upgrade::{Asked, NodeRequest, Nodes};
use uuid::Uuid;

use super::contents::{Content, FIRST};
use super::place::{InMemoryPlace, Made, State};

/// How long a VM with a node's disk takes to boot.
const BOOTS: Duration = Duration::from_secs(30);
const CLUSTER: Uuid = Uuid::from_u128(0xc1);

/// Version and build of an image, from its digest.
pub fn image(digest: &str) -> swap::Image {
    let version = match digest.get(..2) {
        Some("0a") => "0.2.0",
        Some("0b") => "0.3.0",
        _ => "0.4.0",
    };
    swap::Image { version: version.to_owned(), build: digest.get(..32).unwrap_or_default().to_owned() }
}

impl State {
    /// The name of the node in a VM's stamp.
    pub fn node_of(vm: &Vm) -> Option<&str> {
        vm.stamp.as_ref().map(|stamp| stamp.node.as_str())
    }

    /// Whether a VM was created by a swap.
    fn is_swapped(vm: &Vm) -> bool {
        vm.stamp.as_ref().is_some_and(|stamp| stamp.swap.is_some())
    }

    /// Whether a control-plane node's VM has booted with its disk.
    pub fn is_up(&self, (vm, _, since): &Made, forms: Duration) -> bool {
        let takes = if self.has_once_formed { BOOTS } else { forms };
        let has_disk = vm.data_disks().next().is_some();
        vm.power == PowerState::On && has_disk && since.is_some_and(|since| since.elapsed() >= takes)
    }

    /// The VM in which a control-plane node runs, if it has booted.
    fn up(&self, node: &str) -> Option<&Made> {
        let own = self.vms.iter().filter(|(vm, ..)| Self::node_of(vm) == Some(node));
        own.into_iter().find(|made| self.is_up(made, Duration::MAX))
    }

    pub fn address(&self, vm: &Vm) -> Option<Ipv4Addr> {
        let form = self.forms.get(&vm.name)?;
        form.get(keys::ADDRESS)?.split('/').next()?.parse().ok()
    }

    fn control_nodes(&self) -> Vec<(String, Ipv4Addr)> {
        let control = self.vms.iter().filter(|(vm, ..)| self.contents.contains_key(Self::node_of(vm).unwrap_or("")));
        let mut all: Vec<_> =
            control.filter_map(|(vm, ..)| Some((Self::node_of(vm)?.to_owned(), self.address(vm)?))).collect();
        all.sort();
        all.dedup();
        all
    }

    fn serves(&self) -> anyhow::Result<()> {
        let all = self.control_nodes();
        let up = all.iter().filter(|(node, _)| self.up(node).is_some()).count();
        ensure!(self.has_once_formed && 2 * up > all.len(), "the API does not answer");
        Ok(())
    }

    fn answering(&self, address: Ipv4Addr) -> anyhow::Result<(String, Vm)> {
        let all = self.control_nodes();
        let (node, _) = all.into_iter().find(|(_, of)| *of == address).context("no such node")?;
        let (vm, ..) = self.up(&node).with_context(|| format!("{node} does not answer"))?;
        Ok((node, vm.clone()))
    }

    /// A node whose VM is powered on uses its disk, or gets it back.
    pub fn takes_disk(&mut self, vm: &Vm) {
        let Some(node) = Self::node_of(vm).map(str::to_owned) else { return };
        let others = self.vms.iter().filter(|(other, ..)| {
            let is_other = Self::node_of(other) == Some(&node) && other.reference != vm.reference;
            // A VM whose host does not respond is off by the operator's word.
            is_other && other.power != PowerState::Off && !self.cut_off.contains(&other.reference.id)
        });
        assert_eq!(others.count(), 0, "two VMs of {node} are on");
        let digest = self.images.get(&vm.uuid()).cloned().unwrap_or_default();
        let Some(content) = self.contents.get_mut(&node) else { return };
        assert_eq!(vm.data_disks().map(|disk| disk.reference.uuid).collect::<Vec<_>>(), [content.disk], "{node}");
        content.evacuation = None;
        let Some(swap) = &mut content.swap else { return };
        if swap.from.vm == Some(vm.uuid().into()) {
            content.swap = None;
        } else {
            assert_eq!(swap.to, Some(image(&digest)), "{node} takes its disk unprepared");
            swap.stage = Stage::Taken;
        }
    }

    fn told(&self, address: Ipv4Addr) -> anyhow::Result<Node> {
        let (name, vm) = self.answering(address)?;
        let content = self.contents.get(&name).context("no such node")?;
        let all = self.control_nodes();
        let member = |(node, address): &(String, Ipv4Addr)| Member {
            name: node.clone(),
            id: format!("{:x}", address.octets()[3]),
            learner: false,
            healthy: self.up(node).is_some(),
        };
        let digest = self.images.get(&vm.uuid()).cloned().unwrap_or_default();
        let image = image(&digest);
        let is_ill = Self::is_swapped(&vm) && self.ill.never_good.contains(&name);
        let evacuation = content.evacuation.map(|id| EvacuationState {
            id,
            stage: Stage::Prepared,
            error: None,
            code: None,
            losses: Losses::default(),
        });
        Ok(Node {
            node: name.clone(),
            image: RunningImage {
                name: "kaas-tenant".to_owned(),
                version: image.version,
                build: image.build,
                publisher: None,
            },
            pinned: None,
            disk: content.disk,
            // As a released image reports it.
            holder: Some(BiosUuid::from(vm.uuid()).swapped()),
            generation: 1,
            kubernetes: Kubernetes {
                version: content.kubernetes.clone(),
                available: vec!["1.37.1".to_owned(), FIRST.to_owned()],
                upgrade: content.upgrade.clone(),
            },
            etcd: Some(Etcd {
                version: "3.6.1".to_owned(),
                member: format!("{:x}", address.octets()[3]),
                leader: all.first().is_some_and(|(first, _)| *first == name),
                applied: 1,
                members: all.iter().map(member).collect(),
            }),
            virtual_address: None,
            ready: true,
            healthy: (!is_ill).then_some(HealthySince { since: 1 }),
            swap: content.swap.clone(),
            evacuation,
            pods: Some(Pods { cordoned: Some(false), losses: Some(Losses::default()) }),
        })
    }

    fn content(&mut self, address: Ipv4Addr) -> anyhow::Result<(String, Vm, &mut Content)> {
        let (name, vm) = self.answering(address)?;
        let content = self.contents.get_mut(&name).context("no such node")?;
        Ok((name, vm, content))
    }
}

impl InMemoryPlace {
    fn begin_swap(&self, node: Ipv4Addr, request: &swap::Request) -> anyhow::Result<Asked> {
        let mut state = self.lock();
        let all = state.control_nodes();
        if let Some((away, _)) = all.iter().find(|(node, _)| state.up(node).is_none()) {
            return Ok(Asked::Refused(Rejection { code: "swap.quorum".to_owned(), reason: format!("{away} is away") }));
        }
        let undrained = state.ill.undrained.clone();
        let digest = |vm: &Vm, state: &State| state.images.get(&vm.uuid()).cloned().unwrap_or_default();
        let (name, vm) = state.answering(node)?;
        let from = image(&digest(&vm, &state));
        if undrained.contains(&name) {
            let refused = Rejection { code: "drain.blocked".to_owned(), reason: "a PodDisruptionBudget".to_owned() };
            return Ok(Asked::Refused(refused));
        }
        let gives_up = state.ill.gives_up.contains(&name);
        let (_, vm, content) = state.content(node)?;
        let (stage, code) = match gives_up {
            true => (Stage::Failed, Some("drain.blocked".to_owned())),
            false => (Stage::Prepared, None),
        };
        match &mut content.swap {
            Some(open) if open.id != request.id => bail!("another swap is open"),
            Some(open) if open.stage == Stage::Failed => (open.stage, open.code) = (stage, code),
            Some(_) => {}
            None => {
                content.swap = Some(SwapState {
                    id: request.id,
                    stage,
                    error: None,
                    code,
                    losses: Losses::default(),
                    from: VmImage { vm: Some(vm.uuid().into()), version: from.version, build: from.build },
                    to: Some(request.to.clone()),
                });
            }
        }
        Ok(if gives_up { Asked::Begun } else { Asked::Done })
    }

    fn cancel_swap(&self, node: Ipv4Addr, swap: Uuid) -> anyhow::Result<Asked> {
        let mut state = self.lock();
        let (_, _, content) = state.content(node)?;
        if content.swap.as_ref().is_some_and(|open| open.id == swap && open.stage != Stage::Taken) {
            content.swap = None;
        }
        Ok(Asked::Done)
    }

    fn evacuate(&self, node: Ipv4Addr, request: &swap::EvacuationRequest) -> anyhow::Result<Asked> {
        self.lock().content(node)?.2.evacuation = Some(request.id);
        Ok(Asked::Done)
    }

    fn cancel_evacuation(&self, node: Ipv4Addr) -> anyhow::Result<Asked> {
        self.lock().content(node)?.2.evacuation = None;
        Ok(Asked::Done)
    }

    fn commit(&self, node: Ipv4Addr, swap: Uuid) -> anyhow::Result<Asked> {
        let mut state = self.lock();
        let (_, _, content) = state.content(node)?;
        if let Some(open) = content.swap.take() {
            ensure!(open.id == swap && open.stage == Stage::Taken, "another swap, or it is not taken");
        }
        Ok(Asked::Done)
    }

    fn upgrade_kubernetes(&self, node: Ipv4Addr, request: &kubernetes_upgrade::Request) -> anyhow::Result<Asked> {
        let mut state = self.lock();
        let stuck = state.ill.stuck.clone();
        let (name, _, content) = state.content(node)?;
        if request.check {
            return Ok(Asked::Done);
        }
        if stuck.contains(&name) {
            let error = Some("draining it took too long".to_owned());
            content.upgrade = Some(UpgradeState { to: request.to.clone(), error, code: None });
            return Ok(Asked::Begun);
        }
        (content.kubernetes, content.upgrade) = (format!("{}.1", request.to), None);
        Ok(Asked::Done)
    }
}

#[async_trait]
impl Nodes for InMemoryPlace {
    async fn cluster(&self) -> anyhow::Result<Uuid> {
        self.lock().serves().map(|()| CLUSTER)
    }

    async fn control_nodes(&self) -> anyhow::Result<Vec<(String, Ipv4Addr)>> {
        let mut state = self.lock();
        state.serves()?;
        if let Some(left) = state.ill.silent_after {
            state.ill.silent_after = left.checked_sub(1);
            ensure!(left > 0, "the API does not answer");
        }
        Ok([state.control_nodes(), state.strangers.clone()].concat())
    }

    async fn facts(&self, node: Ipv4Addr) -> anyhow::Result<Node> {
        let told = {
            let mut state = self.lock();
            state.asked.insert(node);
            (!state.are_mute).then(|| state.told(node))
        };
        match told {
            Some(told) => told,
            None => std::future::pending().await,
        }
    }

    async fn request(&self, node: Ipv4Addr, request: NodeRequest<'_>) -> anyhow::Result<Asked> {
        match request {
            NodeRequest::BeginSwap(request) => self.begin_swap(node, request),
            NodeRequest::CancelSwap(swap) => self.cancel_swap(node, swap),
            NodeRequest::Evacuate(request) => self.evacuate(node, request),
            NodeRequest::CancelEvacuation(_) => self.cancel_evacuation(node),
            NodeRequest::Commit(swap) => self.commit(node, swap),
            NodeRequest::UpgradeKubernetes(request) => self.upgrade_kubernetes(node, request),
            NodeRequest::RenewCertificates(_) => Ok(Asked::Unknown),
        }
    }

    async fn snapshot(&self, node: Ipv4Addr, to: &Path, _: &SpaceQuota) -> anyhow::Result<u64> {
        self.lock().answering(node)?;
        std::fs::write(to, "a store")?;
        Ok(7)
    }

    async fn publish(&self, _: &str) -> anyhow::Result<()> {
        self.lock().serves()
    }
}

#[async_trait]
impl Snapshots for InMemoryPlace {
    async fn kept(&self, name: &str) -> anyhow::Result<Option<String>> {
        Ok(self.lock().snapshots.get(name).cloned())
    }

    async fn keep(&self, name: &str, file: &Path) -> anyhow::Result<String> {
        assert_eq!(std::fs::read_to_string(file)?, "a store");
        self.lock().snapshots.insert(name.to_owned());
        Ok(name.to_owned())
    }
}
