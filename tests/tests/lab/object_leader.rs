//! The node whose controller leads is cut off, again and again, while a tenant cluster is made, upgraded and deleted by its objects.

pub mod long {
    use super::*;

    /// Three control-plane nodes and a small tenant. At drawn moments of each change the leader's VM loses its power, and another
    /// node continues. At the end all is as declared: each Machine has one VM, and nothing of deleted objects is left.
    pub fn cuts_of_the_leader_change_no_result() {
        let directory = tempfile::tempdir().unwrap();
        let newer = built_ova::build_tenant("0.2.9", directory.path()).unwrap_or_else(|error| panic!("{error:#}"));
        let site = Site::up("leader");
        let control = FileCluster::three(&site, &find_ova(&named_ova()).unwrap());
        control.run(&["control", "create"]);
        let objects = Objects::of(&site, &control);
        objects.provide();
        let [former, newer] = [find_ova_of(&named_ova(), "kaas-tenant").unwrap(), newer].map(|ova| objects.push(&ova));
        let file = objects.file("shop.yaml", &small_cluster("shop", &former, 1));
        let file = file.to_str().unwrap();
        let (files, secrets) = (objects.files(), objects.secrets());
        let create = ["cluster", "create", "--file", file];
        let upgrade = ["cluster", "upgrade", "shop", "--image", &newer];
        let delete = ["cluster", "delete", "shop", "--confirm", "shop"];
        let is_there = || {
            let vms = objects.vms();
            let nodes = ["shop-cp1", "shop-general-w1"];
            assert!(
                vms.iter().map(|(name, is_on)| (name.as_str(), *is_on)).eq(nodes.map(|node| (node, true))),
                "{vms:?}"
            );
            assert_eq!(objects.made(), objects.machines(), "a VM is its Machine's, and no other one");
        };
        // The former VM is kept for a rollback.
        let is_newer = || {
            let vms = objects.vms();
            let (on, off): (Vec<_>, Vec<_>) = vms.iter().partition(|(_, is_on)| *is_on);
            assert!(on.len() == 2 && off.len() == 1 && off[0].0 == "shop-cp1", "{vms:?}");
        };
        let is_gone = || {
            assert_eq!(objects.vms(), []);
            assert_eq!(objects.parts(), [""; 0]);
            assert_eq!(objects.secrets(), secrets);
            assert_eq!(objects.files(), files);
        };

        // How long each takes when nothing happens.
        let (_, making) = objects.run(&create);
        is_there();
        let (_, upgrading) = objects.run(&upgrade);
        is_newer();
        let (_, deleting) = objects.run(&delete);
        is_gone();

        let seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos();
        site.reached(&format!("moments are drawn by {seed}"));
        let mut drawn = seed;
        let mut moment = |of: Duration| {
            // Knuth's, The Art of Computer Programming, volume 2, 3.3.4: enough for moments.
            drawn = drawn.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            of.mul_f64(f64::from(drawn) / f64::from(u32::MAX))
        };
        for _ in 0..CUTS {
            let changes: [(&[&str], _, &dyn Fn()); 3] =
                [(&create, making, &is_there), (&upgrade, upgrading, &is_newer), (&delete, deleting, &is_gone)];
            for (change, lasts, is_so) in changes {
                let after = moment(lasts);
                let leader = site.obtain("a controller to lead", FORMING, || Ok(objects.leader()));
                let changing = objects.begin(change);
                std::thread::sleep(after);
                let vm = control.vm_of(&leader);
                site.govc(&["vm.power", "-off", &format!("/DC0/vm/{CLUSTER}/{vm}")]);
                site.reached(&format!("{leader} is cut off after {:.1} s of {}", after.as_secs_f64(), change[1]));
                changing.ends();
                is_so();
                site.wait("another one to lead", FORMING, || Ok(objects.leader().is_some_and(|next| next != leader)));
                site.govc(&["vm.power", "-on", &format!("/DC0/vm/{CLUSTER}/{vm}")]);
                site.wait("all control nodes to be Ready", FORMING, || Ok(control.ready_now()?.len() == ALL.len()));
            }
        }
        site.down();
    }
}

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fleet::{find_ova, find_ova_of};
use scenarios::built_ova;
use scenarios::file_cluster::{CLUSTER, FileCluster};
use scenarios::objects::{Objects, small_cluster};
use scenarios::places::named_ova;
use scenarios::scenario::{ALL, FORMING};
use scenarios::vcenter::Site;

/// How often each change is cut: twelve cuts in all.
const CUTS: usize = 4;
