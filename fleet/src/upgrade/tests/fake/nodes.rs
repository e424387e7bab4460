//! The nodes of the fakes and their cluster's API.

use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::{bail, ensure};
use contract::kubernetes_upgrade;
use contract::node::{Etcd, Good, Member, Node, RunningImage, VirtualAddress};
use contract::swap::{self, Refused, Stage, Use};
use uuid::Uuid;

use super::{Disk, Ill, Machine, World, address, index, member, new, old};
use crate::upgrade::PowerState;
use crate::upgrade::{Asked, Lease, Nodes};

impl Nodes for World {
    fn cluster(&self) -> anyhow::Result<Uuid> {
        Ok(Uuid::from_u128(0xc0))
    }

    fn control_nodes(&self) -> anyhow::Result<Vec<(String, Ipv4Addr)>> {
        self.call(|state| Ok(state.disks.values().map(|disk| (disk.node.clone(), address(&disk.node))).collect()))
    }

    fn facts(&self, node: Ipv4Addr) -> anyhow::Result<Node> {
        let ill = self.ill;
        self.call(|state| {
            let disk = state.disks.values().find(|disk| address(&disk.node) == node).expect("a node").clone();
            let name = disk.node.clone();
            let on = |machine: &&Machine| {
                machine.node == name && machine.vm.power == PowerState::On && machine.vm.nic_connected
            };
            let Some(machine) = state.machines.iter().find(on).cloned() else { bail!("no answer") };
            let is_new = machine.image == new();
            if is_new && ill == Ill::Silent {
                bail!("no answer");
            }
            let members = state.disks.values().map(|disk| Member {
                name: disk.node.clone(),
                id: member(&disk.node),
                learner: false,
                healthy: state.serving(&disk.node).is_some(),
            });
            let etcd = Etcd {
                version: "3.6.16".into(),
                member: if is_new && ill == Ill::OtherMember { "ff".into() } else { member(&name) },
                leader: state.leader == name,
                applied: 4711,
                members: members.collect(),
            };
            let kubernetes = state.kubernetes(&name);
            // Each look finds a preparation further on.
            if let Some(swap) =
                state.disks.values_mut().filter(|disk| disk.node == name).find_map(|disk| disk.swap.as_mut())
                && swap.stage == Stage::Draining
            {
                swap.stage = Stage::Prepared;
            }
            let good = !is_new || ill == Ill::Well;
            Ok(Node {
                node: name.clone(),
                image: RunningImage {
                    name: "kaas-control-plane".into(),
                    version: machine.image.version.clone(),
                    build: machine.image.build.clone(),
                    publisher: self.publisher.clone(),
                },
                pinned: self.publisher.clone(),
                disk: Uuid::from_u128(0x1d0 + index(&name)),
                holder: disk.holder,
                generation: disk.generation,
                kubernetes,
                etcd: machine.serves.then_some(etcd),
                virtual_address: Some(VirtualAddress {
                    address: Ipv4Addr::new(10, 0, 0, 10),
                    held: state.address_holder == name,
                }),
                ready: machine.serves,
                good: (good && machine.serves && state.quorum()).then_some(Good { since: 1 }),
                swap: disk.swap,
                evacuation: None,
                pods: None,
            })
        })
    }

    fn begin_swap(&self, node: Ipv4Addr, request: &swap::Request) -> anyhow::Result<Asked> {
        self.call(|state| {
            let refuse = |code: &str, reason: String| Ok(Asked::Refused(Refused { code: code.into(), reason }));
            let disks: Vec<Disk> = state.disks.values().cloned().collect();
            let own = disks.iter().find(|disk| address(&disk.node) == node).expect("a node");
            if let Some(ill) = disks.iter().find(|disk| state.serving(&disk.node).is_none()) {
                return refuse("swap.quorum", format!("{} is not healthy", ill.node));
            }
            let under_way = |disk: &&Disk| disk.swap.as_ref().is_some_and(|swap| swap.stage != Stage::Taken);
            if let Some(other) = disks.iter().filter(under_way).find(|disk| disk.node != own.node) {
                return refuse("swap.other", format!("{} is being swapped", other.node));
            }
            let other = disks.iter().find(|disk| disk.node != own.node).map_or(own, |disk| disk).node.clone();
            for role in [&mut state.leader, &mut state.address_holder] {
                if *role == own.node {
                    role.clone_from(&other);
                }
            }
            let image = old();
            let disk = state.disks.values_mut().find(|disk| address(&disk.node) == node).expect("a node");
            match &mut disk.swap {
                Some(swap) if swap.id == request.id => {
                    swap.stage = Stage::Prepared;
                    Ok(Asked::Done)
                }
                Some(_) => refuse("swap.open", "not committed".into()),
                none => {
                    *none = Some(swap::SwapState {
                        id: request.id,
                        stage: Stage::Draining,
                        error: None,
                        code: None,
                        losses: swap::Losses::default(),
                        from: Use { vm: disk.holder, version: image.version, build: image.build },
                        to: Some(request.to.clone()),
                    });
                    Ok(Asked::Begun)
                }
            }
        })
    }

    fn cancel_swap(&self, node: Ipv4Addr, swap: Uuid) -> anyhow::Result<Asked> {
        self.call(|state| {
            let disk = state.disks.values_mut().find(|disk| address(&disk.node) == node).expect("a node");
            match &disk.swap {
                Some(open) if open.id == swap && open.stage == Stage::Taken => {
                    Ok(Asked::Refused(Refused { code: "swap.taken".into(), reason: "taken".into() }))
                }
                _ => {
                    disk.swap = None;
                    Ok(Asked::Done)
                }
            }
        })
    }

    fn commit(&self, node: Ipv4Addr) -> anyhow::Result<Asked> {
        self.call(|state| {
            let disk = state.disks.values_mut().find(|disk| address(&disk.node) == node).expect("a node");
            disk.swap = None;
            Ok(Asked::Done)
        })
    }

    fn upgrade_kubernetes(&self, node: Ipv4Addr, request: &kubernetes_upgrade::Request) -> anyhow::Result<Asked> {
        self.call(|state| {
            let disk = state.disks.values_mut().find(|disk| address(&disk.node) == node).expect("a node");
            if request.check {
                return Ok(Asked::Done);
            }
            disk.upgrade = Some(kubernetes_upgrade::UpgradeState { to: request.to.clone(), error: None, code: None });
            Ok(Asked::Begun)
        })
    }

    fn snapshot(&self, _node: Ipv4Addr, to: &Path) -> anyhow::Result<u64> {
        self.call(|_| {
            std::fs::write(to, "a store")?;
            Ok(7)
        })
    }

    fn lease(&self) -> anyhow::Result<Option<Lease>> {
        let state = self.lock();
        ensure!(state.quorum(), "the API does not answer");
        Ok(state.lease.clone())
    }

    fn write_lease(&self, lease: &Lease) -> anyhow::Result<()> {
        let mut state = self.lock();
        ensure!(state.quorum(), "the API does not answer");
        let version = state.lease.as_ref().and_then(|lease| lease.version.clone());
        ensure!(version == lease.version, "somebody else has written it at the same time");
        let next = version.map_or(1, |version| version.parse::<u64>().unwrap() + 1);
        state.lease = Some(Lease { version: Some(next.to_string()), ..lease.clone() });
        Ok(())
    }

    fn journal(&self) -> anyhow::Result<Option<String>> {
        let state = self.lock();
        ensure!(state.quorum(), "the API does not answer");
        Ok(state.journal.clone())
    }

    fn write_journal(&self, journal: &str) -> anyhow::Result<()> {
        let mut state = self.lock();
        ensure!(state.quorum(), "the API does not answer");
        state.journal = Some(journal.to_owned());
        Ok(())
    }
}
