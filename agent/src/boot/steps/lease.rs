//! The DHCP part of the network step: the address of a worker.

use super::{StepContext, StepError};
use crate::cluster::kubernetes::kubelet;
use crate::intake::config::{Address, Config, Lease};
use crate::system::lease::{self, LeaseState, ObservedLease};

impl StepContext {
    /// Takes the address that a DHCP server has leased, and waits for one. A joined worker keeps the address that its
    /// cluster knows. With another address its kubelet is not started. True if the configuration has changed.
    pub(super) fn take_lease(&mut self) -> Result<bool, StepError> {
        let Config::Worker(worker) = &self.node.config else { return Ok(false) };
        if !worker.node.is_leased() {
            return Ok(false);
        }
        let seen = lease::look(&self.node.platform, self.node.bus(), &worker.node)?;
        let leased = match &seen {
            ObservedLease::Leased(leased) => leased.clone(),
            ObservedLease::Nothing { device } => {
                lease::retry_failed(&self.node.platform, self.node.bus(), &worker.node)?;
                let own = worker.node.lease().map_or_else(String::new, |own| format!(" of {}", own.address.addr()));
                return Err(StepError::Waiting(format!("waiting for a DHCP lease{own} on {device}")));
            }
        };
        let joined_with = worker.node.lease().filter(|_| self.progress.formed);
        let judged = match joined_with.map(|own| lease::compare_lease(worker, own, &seen)) {
            Some(LeaseState::Changed(finding)) => {
                kubelet::suspend(self.node.root(), &self.node.services())?;
                Err(finding.into())
            }
            Some(LeaseState::Unfit(findings)) => Err(findings),
            Some(LeaseState::Kept | LeaseState::Lost(_)) => Ok(()),
            None if worker.node.lease().is_some_and(|known| known.address.addr() == leased.address.addr()) => {
                lease::check_lease(worker, &leased)
            }
            None => lease::check_lease(worker, &leased)
                .and_then(|()| lease::is_free(&self.node.platform, &worker.node, &leased)),
        };
        if let Err(mut findings) = judged {
            // Possibly a foreign server answered before the network's own.
            let asked = lease::request_again(&self.node.platform, self.node.bus(), &worker.node);
            findings.extend(asked.err().unwrap_or_default());
            return Err(StepError::Refused(findings));
        }
        // Later leases are judged by the subnet that the worker has joined in. If it saved a foreign server's narrow
        // subnet once, it would reject the network's own for good.
        let leased = match joined_with {
            Some(own) => Lease { address: own.address, ..leased },
            None => leased,
        };
        let mut worker = worker.clone();
        worker.node.interfaces[0].address = Address::Dhcp { lease: Some(leased) };
        let config = Config::Worker(worker);
        let changed = config != self.node.config;
        if changed && self.progress.formed {
            self.node.records.update_config(&config, None)?;
        }
        self.node.config = config;
        let address = self.node.config.address();
        self.node.reporter.update(|status| status.address = address);
        Ok(changed)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use contract::role::Role;
    use serde_json::{Value, json};

    use super::*;
    use crate::boot::plan::{Goal, Plan};
    use crate::cluster::records::{Progress, Records};
    use crate::host::command::Host;
    use crate::host::disk::DataDisk;
    use crate::host::fake_systemd::FakeSystemd;
    use crate::host::files;
    use crate::host::platform::Platform;
    use crate::intake::config::fixture;
    use crate::node::context::NodeContext;
    use crate::status::{Reporter, Status};

    /// A node whose adapter is the loopback device, which has an address on any machine.
    fn node(root: &Path, systemd: &FakeSystemd, lease: Option<Lease>, formed: bool) -> StepContext {
        let adapter = files::below(root, "/sys/class/net/lo");
        fs::create_dir_all(adapter.join("device")).unwrap();
        for (file, text) in [("address", "02:00:00:00:00:01"), ("ifindex", "1")] {
            fs::write(adapter.join(file), text).unwrap();
        }
        let mut worker = fixture::joined();
        worker.node.interfaces[0].address = Address::Dhcp { lease };
        worker.node.interfaces[0].gateway = None;
        let config = Config::Worker(worker);
        fs::create_dir_all(files::below(root, contract::paths::RECORDS)).unwrap();
        Records::new(root).update_config(&config, None).unwrap();
        let (platform, reporter) = (Platform::detect(root).unwrap(), Reporter::new(root, Status::default()));
        let host = (systemd.bus(), Box::new(Host) as _);
        let node = NodeContext::new(platform, fixture::image(), config, DataDisk::Absent, reporter, host);
        let plan = Plan { goal: Goal::Resume, node: String::new(), image: String::new(), steps: Vec::new() };
        let progress = Progress { formed, ..Progress::default() };
        StepContext::new(node, None, progress, plan)
    }

    fn leased(address: [u8; 4]) -> Value {
        leased_with(address, 8)
    }

    fn leased_with(address: [u8; 4], prefix: u8) -> Value {
        let server = json!([10, 0, 0, 1]);
        json!({
            "Addresses": [{"Family": 2, "Address": address, "PrefixLength": prefix, "ConfigSource": "DHCPv4"}],
            "NTP": [{"Family": 2, "Address": server, "ConfigSource": "DHCPv4"}],
        })
    }

    #[test]
    fn worker_waits_for_a_lease_and_its_settings() {
        let root = tempfile::tempdir().unwrap();
        let systemd = FakeSystemd::new(root.path());
        let mut context = node(root.path(), &systemd, None, false);
        // The address is leased but not on the device yet: another host may still object.
        for description in [json!({}), leased([10, 0, 0, 150])] {
            systemd.describe_links(&description);
            let Err(StepError::Waiting(what)) = context.take_lease() else { panic!("it does not wait") };
            assert_eq!(what, "waiting for a DHCP lease on lo");
        }
        assert_eq!(systemd.reconfigured(), 0);
        // networkd gives up on a link when the kernel refuses a route.
        systemd.fail_links();
        for _ in 0..2 {
            assert!(matches!(context.take_lease(), Err(StepError::Waiting(_))));
            assert_eq!(systemd.reconfigured(), 1);
        }
        assert_eq!(context.node.config.address(), None);
        systemd.describe_links(&leased([127, 0, 0, 1]));
        assert!(context.take_lease().unwrap());
        assert_eq!(context.node.config.role(), Role::Worker);
        assert_eq!(context.node.address().unwrap().octets(), [127, 0, 0, 1]);
        assert_eq!(context.node.config.node().time_servers(), ["10.0.0.1"]);
        assert_eq!(context.node.reporter.status().address, Some([127, 0, 0, 1].into()));
        assert!(!context.take_lease().unwrap(), "the same lease is no news");
    }

    #[test]
    fn only_a_joined_worker_refuses_another_address() {
        let root = tempfile::tempdir().unwrap();
        let systemd = FakeSystemd::new(root.path());
        systemd.describe_links(&leased([127, 0, 0, 1]));
        let before = || Some(Lease { address: "10.0.0.21/24".parse().unwrap(), ntp_servers: Vec::new() });
        let mut context = node(root.path(), &systemd, before(), true);
        context.node.services().start(kubelet::UNIT).unwrap();
        let Err(StepError::Refused(findings)) = context.take_lease() else { panic!("it is taken") };
        assert_eq!(findings.iter().map(|finding| finding.code.as_str()).collect::<Vec<_>>(), ["address.changed"]);
        assert_eq!(context.node.address().unwrap().octets(), [10, 0, 0, 21]);
        assert_eq!(context.node.services().state(kubelet::UNIT).unwrap(), "inactive");
        // A foreign server's lease may never end. The worker requests another one, with its own address.
        assert_eq!(systemd.reconfigured(), 1);
        assert!(matches!(context.take_lease(), Err(StepError::Refused(_))));
        assert_eq!(systemd.reconfigured(), 1, "a server has a minute to answer");
        let file = files::below(root.path(), "/etc/systemd/network/10-kaas-0.network");
        assert!(fs::read_to_string(file).unwrap().contains("RequestAddress=10.0.0.21\n"));
        systemd.describe_links(&json!({}));
        let Err(StepError::Waiting(what)) = context.take_lease() else { panic!("it does not wait") };
        assert_eq!(what, "waiting for a DHCP lease of 10.0.0.21 on lo");
        systemd.describe_links(&leased([127, 0, 0, 1]));
        // A lease of the same address with other settings is taken and saved.
        let same = Some(Lease { address: "127.0.0.1/16".parse().unwrap(), ntp_servers: Vec::new() });
        let mut context = node(root.path(), &systemd, same, true);
        assert!(context.take_lease().unwrap());
        let kept = Records::new(root.path()).config().unwrap().unwrap();
        assert_eq!((kept.node().time_servers(), &kept), (vec!["10.0.0.1".to_owned()], &context.node.config));
        let mut context = node(root.path(), &systemd, before(), false);
        assert!(context.take_lease().unwrap());
    }

    #[test]
    fn lease_of_the_virtual_ip_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let systemd = FakeSystemd::new(root.path());
        let mut context = node(root.path(), &systemd, None, false);
        let Config::Worker(worker) = &mut context.node.config else { panic!("it is a worker") };
        worker.cluster.api_address = [127, 0, 0, 1].into();
        systemd.describe_links(&leased([127, 0, 0, 1]));
        let Err(StepError::Refused(findings)) = context.take_lease() else { panic!("it is taken") };
        assert_eq!(findings.iter().map(|finding| finding.code.as_str()).collect::<Vec<_>>(), ["address.duplicate"]);
        assert_eq!(context.node.config.address(), None);
    }

    #[test]
    fn huge_subnet_is_refused_before_and_after_join() {
        for formed in [false, true] {
            let root = tempfile::tempdir().unwrap();
            let systemd = FakeSystemd::new(root.path());
            let own = Lease { address: "127.0.0.1/8".parse().unwrap(), ntp_servers: Vec::new() };
            let mut context = node(root.path(), &systemd, formed.then_some(own), formed);
            systemd.describe_links(&leased_with([127, 0, 0, 1], 1));
            let Err(StepError::Refused(findings)) = context.take_lease() else { panic!("it is taken") };
            assert_eq!(findings.iter().next().unwrap().code, "address.prefix");
            assert_eq!(systemd.reconfigured(), 1);
            // The worker recovers without a restart.
            systemd.describe_links(&leased([127, 0, 0, 1]));
            context.take_lease().unwrap();
            assert_eq!(context.node.address().unwrap().octets(), [127, 0, 0, 1]);
        }
    }

    #[test]
    fn former_narrow_lease_keeps_the_networks_subnet_valid() {
        let root = tempfile::tempdir().unwrap();
        let systemd = FakeSystemd::new(root.path());
        let own = Lease { address: "127.0.0.1/8".parse().unwrap(), ntp_servers: Vec::new() };
        // Each boot begins with the saved lease of the one before. The API address is outside the narrow subnet, and
        // inside the network's own.
        let boot = |prefix| {
            let kept = match Records::new(root.path()).config() {
                Ok(Some(Config::Worker(kept))) => kept.node.lease().cloned(),
                _ => None,
            };
            let mut context = node(root.path(), &systemd, kept.or_else(|| Some(own.clone())), true);
            let Config::Worker(worker) = &mut context.node.config else { panic!("it is a worker") };
            worker.cluster.api_address = [127, 0, 0, 40].into();
            systemd.describe_links(&leased_with([127, 0, 0, 1], prefix));
            context.take_lease().map(drop)
        };
        for prefix in [8, 28, 8] {
            assert!(boot(prefix).is_ok(), "/{prefix}");
        }
    }

    #[test]
    fn static_address_requests_no_lease() {
        let root = tempfile::tempdir().unwrap();
        let mut context = node(root.path(), &FakeSystemd::new(root.path()), None, false);
        context.node.config = Config::Worker(fixture::worker());
        assert!(!context.take_lease().unwrap());
    }
}
