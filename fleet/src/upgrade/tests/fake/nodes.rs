//! The nodes of the fakes and their cluster's API.

use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use async_trait::async_trait;
use contract::kubernetes_upgrade;
use contract::node::{Etcd, HealthySince, Kubernetes, Member, Node, Pods, RunningImage, VirtualAddress};
use contract::swap::{self, Losses, Rejection, Stage, VmImage};
use tokio::time::Instant;
use uuid::Uuid;

use super::fault::{Call, CallKind, Fault, Late};
use super::{Content, Ill, Machine, NODES, State, World, address, connected, old};
use crate::hypervisor::PowerState;
use crate::lease::{MARGIN, SpaceQuota};
use crate::nodes::Answered;
use crate::upgrade::{Asked, NodeRequest, Nodes};

impl World {
    /// A node tells something.
    async fn node<T: Send>(
        &self,
        name: &'static str,
        tell: impl FnOnce(&mut State) -> anyhow::Result<T> + Send,
    ) -> anyhow::Result<T> {
        let (fault, told) = {
            let mut state = self.lock();
            state.pass();
            (state.faults.count(Call { name, kind: CallKind::Ask }), tell(&mut state))
        };
        match fault {
            Some(fault) if fault.kills() => self.die(fault).await,
            Some(_) => bail!("no answer ({name})"),
            None => told,
        }
    }

    /// A request to a node, which may arrive late.
    async fn doing(
        &self,
        name: &'static str,
        act: impl FnOnce(&mut State) -> anyhow::Result<Asked> + Send + 'static,
    ) -> anyhow::Result<Asked> {
        let (fault, done) = {
            let mut state = self.lock();
            state.pass();
            let fault = state.faults.count(Call { name, kind: CallKind::Do });
            assert!(!state.overtaken, "{name}: asked by a command that was overtaken");
            let done = match fault {
                Some(Fault::Error(_) | Fault::CutBefore) => None,
                Some(Fault::Late) => {
                    let effect = Box::new(move |state: &mut State| drop(act(state)));
                    let until = Instant::now() + MARGIN;
                    state.faults.late.push(Late { left: Some(4), until, task: None, settles: false, effect });
                    None
                }
                Some(Fault::CutOnTheWay) => {
                    state.send(move |state| drop(act(state)));
                    None
                }
                _ => Some(act(&mut state)),
            };
            state.check();
            (fault, done)
        };
        match fault {
            Some(fault) if fault.kills() => self.die(fault).await,
            Some(_) => bail!("no answer ({name})"),
            None => done.expect("an answer"),
        }
    }
}

impl State {
    /// The data disk of a node that answers, and the VM that it answers from.
    fn answering(&self, node: Ipv4Addr) -> anyhow::Result<(&Machine, usize)> {
        let up = |machine: &&Machine| {
            machine.vm.power == PowerState::On
                && machine.serves
                && connected(&machine.vm).next().is_some()
                && !matches!(self.ill_of(machine), Ill::Silent | Ill::NoEndpoint)
                && self
                    .content_of(machine)
                    .is_some_and(|content| address(content.node) == node && !self.unreached.contains(content.node))
        };
        let machine = self.machines.iter().find(up).context("no answer")?;
        let at = &self.content_of(machine).context("no answer")?.at;
        Ok((machine, self.contents.iter().position(|content| content.at == *at).context("no answer")?))
    }

    fn content_at(&mut self, node: Ipv4Addr) -> anyhow::Result<&mut Content> {
        let index = self.answering(node)?.1;
        Ok(&mut self.contents[index])
    }

    /// Kubernetes on a node; each look finds an upgrade further on.
    fn kubernetes(&mut self, index: usize) -> Kubernetes {
        let disk = &mut self.contents[index];
        let stuck = self.stuck == Some(disk.node);
        let upgrade = disk.upgrade.clone();
        match &mut disk.upgrade {
            Some(upgrade) if stuck => upgrade.error = Some("draining it took too long".into()),
            Some(upgrade) if upgrade.error.is_none() => {
                disk.kubernetes = "1.36.3";
                disk.upgrade = None;
            }
            _ => {}
        }
        let carried = vec!["1.36.3".into(), "1.35.4".into()];
        Kubernetes { version: disk.kubernetes.into(), available: carried, upgrade }
    }

    fn members(&self) -> Vec<Member> {
        let member = |node: &&'static str| Member {
            name: (*node).to_owned(),
            id: self.contents.iter().find(|disk| disk.node == *node).map_or("lost".into(), |disk| disk.member.clone()),
            learner: false,
            healthy: self.is_served(node),
        };
        self.nodes.iter().map(member).take(self.members_shown.unwrap_or(usize::MAX)).collect()
    }

    fn hand_over(&mut self, node: &str) {
        let other = self.nodes.iter().copied().find(|other| *other != node && self.is_served(other));
        for role in [&mut self.leader, &mut self.address_holder] {
            if *role == node
                && let Some(other) = other
            {
                *role = other;
            }
        }
    }

    fn api(&self) -> anyhow::Result<()> {
        ensure!(self.quorum() && !self.api_away, "the API does not answer");
        Ok(())
    }
}

fn refuse(code: &str, reason: impl Into<String>) -> anyhow::Result<Asked> {
    Ok(Asked::Refused(Rejection { code: code.into(), reason: reason.into() }))
}

#[async_trait]
impl Nodes for World {
    async fn cluster(&self) -> anyhow::Result<Uuid> {
        self.node("cluster", |state| state.api().map(|()| state.cluster)).await
    }

    async fn control_nodes(&self) -> anyhow::Result<Vec<(String, Ipv4Addr)>> {
        self.node("control_nodes", |state| {
            state.api()?;
            Ok(state.nodes.iter().map(|node| ((*node).to_owned(), address(node))).collect())
        })
        .await
    }

    async fn facts(&self, node: Ipv4Addr) -> anyhow::Result<Node> {
        let told = self.tell(node).await;
        let slow = self.lock().slow;
        let is_well = told.as_ref().is_ok_and(|facts| facts.etcd.is_some());
        let refuses = told.as_ref().is_err_and(|error| error.is::<Answered>());
        if !slow.is_zero() && !is_well && !refuses {
            tokio::time::sleep(slow).await;
        }
        told
    }

    async fn request(&self, node: Ipv4Addr, request: NodeRequest<'_>) -> anyhow::Result<Asked> {
        match request {
            NodeRequest::BeginSwap(request) => self.begin_swap(node, request).await,
            NodeRequest::CancelSwap(swap) => self.cancel_swap(node, swap).await,
            NodeRequest::Evacuate(request) => self.evacuate(node, request).await,
            NodeRequest::CancelEvacuation(id) => self.cancel_evacuation(node, id).await,
            NodeRequest::Commit(swap) => self.commit(node, swap).await,
            NodeRequest::UpgradeKubernetes(request) => self.upgrade_kubernetes(node, request).await,
            NodeRequest::RenewCertificates(id) => self.renew_certificates(node, id).await,
        }
    }

    async fn snapshot(&self, node: Ipv4Addr, to: &Path, _: &SpaceQuota) -> anyhow::Result<u64> {
        if self.lock().no_snapshot {
            return std::future::pending().await;
        }
        self.node("snapshot", |state| {
            state.answering(node)?;
            std::fs::write(to, "a store")?;
            Ok(7)
        })
        .await
    }

    /// No step depends on it: no fault is injected.
    async fn publish(&self, journal: &str) -> anyhow::Result<()> {
        let mut state = self.lock();
        state.api()?;
        state.published = Some(journal.to_owned());
        Ok(())
    }
}

impl World {
    async fn begin_swap(&self, node: Ipv4Addr, request: &swap::Request) -> anyhow::Result<Asked> {
        let request = request.clone();
        self.doing("begin_swap", move |state| {
            let index = state.answering(node)?.1;
            let own = state.contents[index].clone();
            let ill = state.nodes.iter().find(|node| !state.is_served(node));
            let under_way = |disk: &&Content| disk.swap.as_ref().is_some_and(|swap| swap.stage.is_under_way());
            let other = state.contents.iter().filter(under_way).find(|disk| disk.node != own.node);
            if let Some(ill) = ill {
                return refuse("swap.quorum", format!("{ill} is not healthy"));
            }
            if let Some(other) = other {
                return refuse("swap.other", format!("{} is being swapped", other.node));
            }
            state.hand_over(own.node);
            let disk = &mut state.contents[index];
            match &mut disk.swap {
                Some(swap) if swap.id == request.id && swap.stage == Stage::Prepared => Ok(Asked::Done),
                Some(swap) if swap.id == request.id && swap.stage == Stage::Failed => {
                    swap.stage = Stage::Draining;
                    Ok(Asked::Begun)
                }
                Some(swap) if swap.id == request.id && swap.stage == Stage::Draining => Ok(Asked::Begun),
                Some(swap) => refuse("swap.open", format!("{swap} is not committed")),
                none => {
                    let image = old();
                    *none = Some(swap::SwapState {
                        id: request.id,
                        stage: Stage::Draining,
                        error: None,
                        code: None,
                        losses: Losses::default(),
                        from: VmImage { vm: disk.holder, version: image.version, build: image.build },
                        to: Some(request.to.clone()),
                    });
                    disk.cordoned = true;
                    Ok(Asked::Begun)
                }
            }
        })
        .await
    }

    async fn cancel_swap(&self, node: Ipv4Addr, swap: Uuid) -> anyhow::Result<Asked> {
        self.doing("cancel_swap", move |state| {
            let (own, quorum) = (state.content_at(node)?.node, state.quorum());
            anyhow::ensure!(quorum && state.is_served(own), "etcd does not answer");
            let disk = state.content_at(node)?;
            match &disk.swap {
                Some(open) if open.id == swap && open.stage == Stage::Taken => refuse("swap.taken", "taken"),
                Some(open) if open.id == swap => {
                    (disk.swap, disk.cordoned) = (None, false);
                    Ok(Asked::Done)
                }
                _ => Ok(Asked::Done),
            }
        })
        .await
    }

    async fn evacuate(&self, node: Ipv4Addr, request: &swap::EvacuationRequest) -> anyhow::Result<Asked> {
        let request = request.clone();
        self.doing("evacuate", move |state| {
            let index = state.answering(node)?.1;
            let own = state.contents[index].node;
            if state.nodes.iter().any(|node| !state.is_served(node)) {
                return refuse("swap.quorum", "another node is not healthy");
            }
            state.hand_over(own);
            let disk = &mut state.contents[index];
            disk.cordoned = true;
            let first = disk.evacuation.replace(request.id) != Some(request.id);
            Ok(if first || state.stuck == Some(own) { Asked::Begun } else { Asked::Done })
        })
        .await
    }

    async fn cancel_evacuation(&self, node: Ipv4Addr, id: Uuid) -> anyhow::Result<Asked> {
        self.doing("cancel_evacuation", move |state| {
            let disk = state.content_at(node)?;
            if disk.evacuation == Some(id) {
                (disk.evacuation, disk.cordoned) = (None, false);
            }
            Ok(Asked::Done)
        })
        .await
    }

    async fn commit(&self, node: Ipv4Addr, swap: Uuid) -> anyhow::Result<Asked> {
        self.doing("commit", move |state| {
            let disk = state.content_at(node)?;
            match &disk.swap {
                Some(open) if open.stage != Stage::Taken => refuse("swap.open", "it is not taken"),
                Some(open) if swap != open.id => refuse("swap.another", "another swap was meant"),
                _ => {
                    disk.swap = None;
                    Ok(Asked::Done)
                }
            }
        })
        .await
    }

    async fn upgrade_kubernetes(&self, node: Ipv4Addr, request: &kubernetes_upgrade::Request) -> anyhow::Result<Asked> {
        let request = request.clone();
        self.doing("upgrade_kubernetes", move |state| {
            let disk = state.content_at(node)?;
            if request.check {
                return Ok(Asked::Done);
            }
            disk.upgrade = Some(kubernetes_upgrade::UpgradeState { to: request.to.clone(), error: None, code: None });
            Ok(Asked::Begun)
        })
        .await
    }

    async fn renew_certificates(&self, node: Ipv4Addr, id: Uuid) -> anyhow::Result<Asked> {
        self.doing("renew_certificates", move |state| {
            let own = state.content_at(node)?.node;
            if state.refusing.contains(own) {
                return refuse("renewal.refused", "not now");
            }
            let again = state.renewals.contains(&(own, id));
            state.renewals.push((own, id));
            Ok(if again { Asked::Done } else { Asked::Begun })
        })
        .await
    }

    /// A node's statement about itself.
    async fn tell(&self, node: Ipv4Addr) -> anyhow::Result<Node> {
        self.node("facts", |state| {
            let (machine, index) = state.answering(node)?;
            if state.refusing.contains(state.contents[index].node) {
                return Err(Answered::with("the node answered 403 Forbidden: another client certificate").into());
            }
            let (machine, disk) = (machine.clone(), state.contents[index].clone());
            let serves = state.serves(&machine);
            let ill = state.ill_of(&machine);
            let etcd = Etcd {
                version: "3.6.16".into(),
                member: if ill == Ill::OtherMember { "ff".into() } else { disk.member.clone() },
                leader: state.leader == disk.node,
                applied: 4711,
                members: state.members(),
            };
            let kubernetes = state.kubernetes(index);
            // Each look finds a preparation further on.
            let stuck = state.stuck == Some(disk.node);
            if let Some(swap) = state.contents[index].swap.as_mut().filter(|swap| swap.stage == Stage::Draining) {
                (swap.stage, swap.error) = match stuck {
                    true => (Stage::Failed, Some("a PodDisruptionBudget keeps web/a".into())),
                    false => (Stage::Prepared, None),
                };
                swap.code = stuck.then(|| "drain.blocked".into());
                state.contents[index].cordoned = !stuck;
            }
            let good = matches!(ill, Ill::Well | Ill::NoStart);
            Ok(Node {
                node: disk.node.to_owned(),
                image: RunningImage {
                    name: "kaas-control-plane".into(),
                    version: machine.image.version.clone(),
                    build: machine.image.build.clone(),
                    publisher: self.publisher.clone(),
                },
                pinned: self.publisher.clone(),
                disk: disk.identity,
                holder: disk.holder,
                generation: disk.generation,
                kubernetes,
                // Without a quorum it cannot say which members there are.
                etcd: (serves && state.quorum()).then_some(etcd),
                virtual_address: Some(VirtualAddress {
                    address: Ipv4Addr::new(10, 0, 0, 10),
                    held: state.address_holder == disk.node,
                }),
                ready: serves,
                healthy: (good && serves && state.quorum()).then_some(HealthySince { since: 1 }),
                swap: disk.swap,
                evacuation: disk.evacuation.map(|id| swap::EvacuationState {
                    id,
                    // A node that becomes unhealthy meanwhile gives up, and says so until it is asked again.
                    stage: if good && serves { Stage::Prepared } else { Stage::Failed },
                    error: None,
                    code: None,
                    losses: Losses::default(),
                }),
                pods: Some(Pods { cordoned: Some(state.contents[index].cordoned), losses: Some(state.losses.clone()) }),
            })
        })
        .await
    }

    /// The nodes' images, by name.
    pub fn images(&self) -> Vec<(&'static str, String)> {
        let state = self.lock();
        let image = |node: &'static str| {
            let (machine, _) = state.answering(address(node)).ok()?;
            Some((node, machine.image.version.clone()))
        };
        NODES.into_iter().filter_map(image).collect()
    }
}
