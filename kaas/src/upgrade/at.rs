//! How a command gets at a deployment, whatever runs its VMs, and ends.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use fleet::hypervisor::{Hypervisor, PowerState, Vm};
use fleet::node::{Client, Deployer};
use fleet::upgrade::{Cancelled, Deployment, Nodes, Notice, Unasked};

use super::arguments::{At, GoingOn, Whose};
use super::{PAUSED, words};
use crate::cluster_file::{ClusterFile, LabSite, Opened, Place, Site};
use crate::deploy::deployer_key_there;
use crate::output::warn;
use crate::signals::Ending;

/// What a command does that cannot ask nodes: without credentials, or with all VMs off.
#[derive(Clone, Copy)]
pub(super) enum Lacking {
    /// It fails.
    Fails,
    /// It goes on without them.
    Goes,
}

impl GoingOn {
    pub(super) fn with(
        &self,
        what: &str,
        act: impl AsyncFnOnce(&Deployment<'_>, &dyn Site) -> anyhow::Result<ExitCode>,
    ) -> anyhow::Result<ExitCode> {
        self.at.changing(what, Some(&self.whose), Duration::from_secs(self.waiting.pause_limit), act)
    }
}

/// Where the VMs run, as the command line names it.
struct Named {
    site: Opened,
    /// The description of the cluster, if the command line names one.
    file: Option<ClusterFile>,
}

impl At {
    fn open(&self) -> anyhow::Result<Named> {
        match (&self.lab, &self.file) {
            (Some(lab), _) => {
                let site = Opened::with(|_| Ok(Box::new(LabSite::named(lab))))?;
                Ok(Named { site, file: None })
            }
            (None, Some(path)) => {
                let file = ClusterFile::read(path)?;
                let site = Opened::of(&file)?;
                Ok(Named { site, file: Some(file) })
            }
            (None, None) => anyhow::bail!("say with --file or --lab where the VMs run"),
        }
    }

    /// Does what changes nothing that would have to be continued.
    pub(super) fn looking(
        &self,
        what: &str,
        whose: Option<&Whose>,
        act: impl AsyncFnOnce(&Deployment<'_>, &dyn Site) -> anyhow::Result<ExitCode>,
    ) -> anyhow::Result<ExitCode> {
        self.with(what, whose, Duration::ZERO, Lacking::Fails, Ending::AtOnce, act)
    }

    /// Does what can be continued when it was asked to end.
    pub(super) fn changing(
        &self,
        what: &str,
        whose: Option<&Whose>,
        pause_limit: Duration,
        act: impl AsyncFnOnce(&Deployment<'_>, &dyn Site) -> anyhow::Result<ExitCode>,
    ) -> anyhow::Result<ExitCode> {
        self.with(what, whose, pause_limit, Lacking::Fails, Ending::WhereItCanBeContinued, act)
    }

    pub(super) fn with(
        &self,
        what: &str,
        whose: Option<&Whose>,
        pause_limit: Duration,
        lacking: Lacking,
        ending: Ending,
        act: impl AsyncFnOnce(&Deployment<'_>, &dyn Site) -> anyhow::Result<ExitCode>,
    ) -> anyhow::Result<ExitCode> {
        let named = self.open()?;
        let site: &Opened = &named.site;
        let place = site.find()?.with_context(|| format!("{} is not there", site.words()))?;
        let nodes: Box<dyn Nodes> = match (named.client(self.kubeconfig.as_deref(), &place), lacking) {
            (Ok(client), _) => Box::new(client),
            (Err(error), Lacking::Goes) => {
                let because = format!("{error:#}");
                warn(&format!("warning: no node can be asked: {because}"));
                Box::new(Unasked::because(because))
            }
            (Err(error), Lacking::Fails) => return Err(error),
        };
        let acted = site.run(ending, async |cancelled| {
            let deployment = Deployment {
                hypervisor: &*place.hypervisor,
                nodes: &*nodes,
                store: &*place.store,
                snapshots: &*place.snapshots,
                what,
                watch: &|notice: &Notice<'_>| words::tell(notice),
                pace: Duration::from_secs(1),
                pause_limit,
                other_cluster: whose.and_then(|whose| whose.other_cluster),
                cancelled,
            };
            act(&deployment, &**site).await
        });
        match acted {
            Err(error) if error.is::<Cancelled>() => {
                warn(&format!("{error:#}"));
                Ok(ExitCode::from(PAUSED))
            }
            acted => acted.map_err(words::advised),
        }
    }
}

impl Named {
    /// How nodes are asked: with the kubeconfig that is given, that the site keeps, that a node gives for the deployer's
    /// key, or that was put where the file says.
    fn client(&self, given: Option<&Path>, place: &Place) -> anyhow::Result<Client> {
        let of = |kubeconfig: &Path| match &place.network {
            Some(network) => Client::from_inside(kubeconfig, network.clone()),
            None => Client::of_kubeconfig(kubeconfig),
        };
        if let Some(kubeconfig) = given {
            return of(kubeconfig);
        }
        if let Some(kubeconfig) = self.site.kubeconfig()? {
            return of(&kubeconfig);
        }
        let file = self.file.as_ref().context("give the cluster administrator's kubeconfig with --kubeconfig")?;
        match self.issued(file, place) {
            Ok(client) => Ok(client),
            Err(_) if file.kubeconfig.try_exists().unwrap_or_default() => of(&file.kubeconfig),
            Err(why) => Err(why.context("no node gives its deployer credentials: give a --kubeconfig")),
        }
    }

    /// A client with credentials of a day, which a node gives for the deployer's key.
    fn issued(&self, file: &ClusterFile, place: &Place) -> anyhow::Result<Client> {
        let path = &file.deployer_key;
        let key = deployer_key_there(path)?.with_context(|| format!("there is no {}", path.display()))?;
        let deployer = place.deployer(key)?;
        self.site.run(Ending::AtOnce, async |_| {
            let mut last = anyhow::anyhow!("no VM of the deployment is on");
            for (address, vm) in running(&file.addresses(), &place.hypervisor.vms().await?) {
                match asked(&deployer, &*place.hypervisor, address, vm).await {
                    Ok(client) => return Ok(client),
                    Err(error) => last = error.context(vm.name.clone()),
                }
            }
            Err(last)
        })
    }
}

/// The VMs of the control nodes that are on, each with its node's address.
fn running<'v>(nodes: &[(String, Ipv4Addr)], vms: &'v [Vm]) -> Vec<(Ipv4Addr, &'v Vm)> {
    let of = |vm: &'v Vm| {
        let node = &vm.stamp.as_ref()?.node;
        let (_, address) = nodes.iter().find(|(name, _)| name == node)?;
        (vm.power == PowerState::On).then_some((*address, vm))
    };
    vms.iter().filter_map(of).collect()
}

/// A client with what one node gives. It is known by what the hypervisor shows of it.
async fn asked(deployer: &Deployer, hypervisor: &dyn Hypervisor, address: Ipv4Addr, vm: &Vm) -> anyhow::Result<Client> {
    let shown = hypervisor.fingerprints(&vm.reference).await?.context("it shows no cluster yet")?;
    deployer.client(&deployer.credentials(address, &shown).await?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn nodes_are_asked_whose_vms_are_on_at_the_addresses_of_the_file() {
        let vm = |name: &str, node: Option<&str>, power: &str| -> Vm {
            let stamp = node.map(|node| json!({"deployment": Uuid::nil(), "node": node}));
            serde_json::from_value(json!({
                "uuid": Uuid::nil(), "id": name, "name": name, "stamp": stamp, "power": power, "disks": [],
                "adapters": [], "snapshots": [], "tasks": [], "version": "1",
            }))
            .unwrap()
        };
        let vms = [
            vm("a", Some("cp1"), "off"),
            vm("b", Some("cp1"), "on"),
            vm("c", Some("cp2"), "on"),
            vm("d", Some("cp9"), "on"),
            vm("e", None, "on"),
        ];
        let nodes = [1, 2, 3].map(|number| (format!("cp{number}"), Ipv4Addr::new(10, 0, 0, number)));
        let running: Vec<_> =
            running(&nodes, &vms).into_iter().map(|(address, vm)| (address.octets()[3], vm.name.as_str())).collect();
        assert_eq!(running, [(1, "b"), (2, "c")]);
    }
}
