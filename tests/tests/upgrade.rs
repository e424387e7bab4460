//! The operator's command swaps the image under a cluster of three on the
//! container engine, while a client writes.

use scenarios::earlier_ova;
use scenarios::scenario::{ALL, Scenario};
use scenarios::upgrade::Upgrade;
use scenarios::writer::Writer;

mod short {
    use super::*;

    /// One node after the other: no acknowledged write is lost, and the nodes are who they were.
    #[test]
    fn three_nodes_are_swapped_one_after_the_other_while_a_client_writes() {
        let scenario = Scenario::formed_from("rolling", earlier_ova::source());
        let upgrade = Upgrade::of(&scenario);
        let (before, kubernetes) = (upgrade.kept(), upgrade.kubernetes());
        let planned = upgrade.run(&["plan"]);
        assert!(planned.contains("way back: ") && planned.contains("one node after the other"), "{planned}");

        let writer = Writer::start(&scenario);
        upgrade.run(&["apply"]);
        scenario.reached(&format!("forward: {}", writer.end()));
        assert!(ALL.iter().all(|node| scenario.vm_of(node) != *node));
        assert_eq!(upgrade.kept(), before);
        assert_ne!(upgrade.kubernetes(), kubernetes);
        let why = upgrade.fails(&["plan"]);
        assert!(why.contains("upgrade.uncommitted"), "{why}");
    }
}
