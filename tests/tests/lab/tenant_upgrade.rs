//! Upgrades of a tenant next to a control cluster, on the container engine and from the OVAs: to another image, and to the next
//! Kubernetes. The control-plane node is first, then the workers. Clients outside use a server on the workers meanwhile.

use scenarios::built_ova;
use scenarios::requests::{RequestStats, while_requested};
use scenarios::scenario::{MOMENT, Setting};
use scenarios::tenant::{Tenant, control};
use scenarios::upgrade::Upgrade;
use scenarios::writer::Writer;

/// Planned work loses no request.
fn none_failed(of: &[(&str, RequestStats)]) {
    for (what, figures) in of {
        assert_eq!(figures.failed, 0, "{what}: {figures}");
    }
}

pub mod long {
    use super::*;

    /// The only control-plane node is swapped to a newer image with its data disk, and workers of that image replace the others.
    /// The node is rolled back, then swapped again and committed. It stays the same cluster. No acknowledged write is lost. The
    /// workers serve while the API does not answer.
    pub fn tenant_is_upgraded_to_a_newer_image() {
        let newer = tempfile::tempdir().unwrap();
        let newer = built_ova::build_tenant("0.2.9", newer.path()).unwrap_or_else(|error| panic!("{error:#}"));
        let host = control(&Setting::one("host-i"));
        let scenario = host.tenant("swapped", "1", "2");
        let (tenant, lab) = (Tenant::of(&scenario), scenario.lab());
        let page = tenant.serves();
        let upgrade = Upgrade::to(&scenario, newer.clone());
        let node = lab.plan().nodes[0].name.clone();
        let (kept, disks, first) = (upgrade.kept(), lab.disks(&node).unwrap(), tenant.workers());

        let writer = Writer::start(&scenario);
        let swapped = while_requested(&scenario, page, "the control node goes to a newer image", || {
            upgrade.run(&["apply"]);
        });
        scenario.reached(&format!("there: {}", writer.end()));
        let new = scenario.vm_of(&node);
        assert_ne!(new, node);
        assert_eq!(
            (upgrade.kept(), lab.disks(&new).unwrap(), lab.disks(&node).unwrap()),
            (kept.clone(), disks.clone(), vec![])
        );
        scenario.wait("the workers to do their part", MOMENT, || Ok(tenant.workers() == first));

        let replaced = while_requested(&scenario, page, "the workers are replaced by that image", || {
            tenant.run(&["replace-workers", "--ova", newer.to_str().unwrap()]);
        });
        let workers = tenant.workers();
        assert_eq!(workers.len(), 2, "{workers:?}");
        assert!(workers.iter().all(|worker| !first.contains(worker)), "{first:?} are left");

        let writer = Writer::start(&scenario);
        let back = while_requested(&scenario, page, "the control node goes back", || drop(upgrade.run(&["rollback"])));
        scenario.reached(&format!("back: {}", writer.end()));
        assert_eq!(scenario.vm_of(&node), node);
        assert_eq!((upgrade.kept(), lab.disks(&node).unwrap()), (kept.clone(), disks));
        scenario.wait("the newer workers to do their part", MOMENT, || Ok(tenant.workers() == workers));

        upgrade.run(&["apply"]);
        upgrade.run(&["commit"]);
        assert_eq!(upgrade.kept(), kept);
        assert!(!lab.vms().unwrap().contains(&node), "its old VM is left");
        let why = upgrade.fails(&["rollback"]);
        assert!(why.contains("no rollback is possible"), "{why}");
        scenario.wait("the workers to do their part", MOMENT, || Ok(tenant.workers() == workers));
        none_failed(&[("there", swapped), ("workers", replaced), ("back", back)]);
    }

    /// The control-plane node is upgraded to the next minor version. The workers serve in the former version until the operator
    /// replaces them: by surge, without a failed request. A version newer than that of the control-plane node is refused before a VM
    /// is created. Then all workers lose their power at once, and `resume` starts all of them.
    pub fn workers_follow_to_the_next_kubernetes() {
        let host = control(&Setting::one("host-k"));
        let scenario = host.tenant_with("raised", "1", "2", &["--set", "kubernetes-version=1.36"]);
        let (tenant, lab) = (Tenant::of(&scenario), scenario.lab());
        let (page, upgrade) = (tenant.serves(), Upgrade::of(&scenario));
        let (node, first, vms) = (lab.plan().nodes[0].name.clone(), tenant.workers(), lab.vms().unwrap());
        let minors = || {
            let (control, workers): (Vec<_>, Vec<_>) =
                tenant.kubelets().into_iter().partition(|(name, _)| *name == node);
            [control, workers].map(|nodes| {
                let mut minors: Vec<String> =
                    nodes.into_iter().filter_map(|(_, version)| Some(version.rsplit_once('.')?.0.to_owned())).collect();
                minors.dedup();
                minors.join(" ")
            })
        };
        assert_eq!(minors(), ["v1.36", "v1.36"]);
        let why = tenant.refuses(&["replace-workers", "--kubernetes", "1.37"]);
        assert!(why.contains("workers.skew") && why.contains("no worker runs a newer one"), "{why}");
        assert_eq!(lab.vms().unwrap(), vms, "something was made");

        let control = while_requested(&scenario, page, "the control node goes to the next minor", || {
            upgrade.run(&["kubernetes"]);
        });
        assert_eq!(minors(), ["v1.37", "v1.36"]);
        tenant.run(&["resume"]);
        assert_eq!(tenant.workers(), first, "nobody has said that they are replaced");

        let workers = while_requested(&scenario, page, "the workers are replaced for the minor", || {
            tenant.run(&["replace-workers", "--kubernetes", "1.37"]);
        });
        assert_eq!(minors(), ["v1.37", "v1.37"]);
        let second = tenant.workers();
        assert_eq!(second.len(), 2, "{second:?}");
        assert!(second.iter().all(|worker| !first.contains(worker)), "{first:?} are left");
        none_failed(&[("control node", control), ("workers", workers)]);
        tenant.run(&["replace-workers"]);
        assert_eq!(tenant.workers(), second, "the same again is nothing to do");

        for worker in &second {
            scenario.cut(worker);
        }
        let resumed = tenant.run(&["resume"]);
        assert_eq!((&resumed["arrived"], &resumed["available"]), (&"done".into(), &2.into()), "{resumed}");
        assert_eq!(tenant.workers(), second);
        while_requested(&scenario, page, "all workers are powered on again", || drop(tenant.workers()));
        assert_eq!(tenant.tokens(), 0, "a join token is left");
    }
}
