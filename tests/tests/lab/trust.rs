//! Publishers of the images that a cluster of a signed OVA accepts, on the container engine. The operator's command checks the
//! signature. The node checks the statement of its image.

use scenarios::by_hand::{import, move_disk, refuses, shut_down};
use scenarios::node_swap::Node;
use scenarios::publisher::Publisher;
use scenarios::scenario::{FORMING, Scenario, Setting, unpacked};
use scenarios::upgrade::Upgrade;

pub mod long {
    use super::*;

    /// The publisher's next version is accepted. The command and the node refuse unsigned OVAs and those of another publisher,
    /// until the operator names that publisher. An older version is accepted only on request.
    pub fn cluster_takes_images_of_its_publisher_only() {
        let (ours, theirs) = (Publisher::new(), Publisher::new());
        let (first, next, other) = (ours.ova("0.2.0"), ours.ova("0.2.2"), theirs.ova("0.2.1"));
        let source = |ova| unpacked(ova).unwrap_or_else(|error| panic!("{error:#}"));
        let setting = Setting::one("trust");
        let scenario = Scenario::prepare_from(&setting, source(&first));
        scenario.power_on(&["cp1"]);
        scenario.all_ready(FORMING);
        let pinned = || Node::of(&scenario, "cp1").and_then(|node| node.facts()).unwrap().pinned;
        let unsigned = Upgrade::of(&scenario);
        let kept = unsigned.kept();
        assert_eq!(pinned().as_deref(), Some(&*ours.fingerprint));

        let why = unsigned.fails(&["plan", "--downgrade"]);
        assert!(why.contains("upgrade.unsigned"), "{why}");
        let to_other = Upgrade::to(&scenario, other.clone());
        let why = to_other.fails(&["plan"]);
        assert!(why.contains("upgrade.publisher") && why.contains(&ours.fingerprint), "{why}");
        scenario.reached("the command refuses unsigned OVAs and another publisher's");

        import(&scenario, "cp1-x", Some(source(&other)));
        shut_down(&scenario, "cp1");
        move_disk(&scenario, "cp1", "cp1-x");
        scenario.power_on(&["cp1-x"]);
        refuses(&scenario, "cp1-x", "image.publisher");
        scenario.cut("cp1-x");
        move_disk(&scenario, "cp1-x", "cp1");
        scenario.lab().destroy("cp1-x").unwrap();
        scenario.power_on(&["cp1"]);
        scenario.says("cp1", "kaas: ready", FORMING);

        let upgrade = Upgrade::to(&scenario, next);
        upgrade.run(&["apply"]);
        upgrade.run(&["commit"]);
        assert_eq!((upgrade.kept(), pinned()), (kept.clone(), Some(ours.fingerprint.clone())));

        let certificate = theirs.certificate();
        let named = format!("--publisher={}", certificate.display());
        let why = to_other.fails(&["apply", &named]);
        assert!(why.contains("upgrade.downgrade"), "{why}");
        to_other.run(&["apply", &named, "--downgrade"]);
        assert_eq!(pinned().as_deref(), Some(&*ours.fingerprint), "a key is pinned before the commit");
        to_other.run(&["commit"]);
        assert_eq!((to_other.kept(), pinned()), (kept, Some(theirs.fingerprint.clone())));
        let noted = scenario.inside(&scenario.vm_of("cp1"), &["cat", "/data/kaas/swaps.log"]);
        assert!(noted.contains("older than 0.2.2, as was asked for") && noted.contains(&theirs.fingerprint), "{noted}");
    }
}
