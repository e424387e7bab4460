//! One control node from the OVA in a virtual machine: firmware, kernel image,
//! verity, disks.

use std::time::Duration;

use fleet::lab::Hardware;
use scenarios::scenario::{Scenario, Setting};
use scenarios::workload::Workload;

/// Emulated processors are slow, and the machine may be busy.
const FORMING: Duration = Duration::from_secs(15 * 60);
const WORK: Duration = Duration::from_secs(5 * 60);

mod short {
    use super::*;

    /// A node forms its cluster, runs a pod that is reached by its service's
    /// name, loses its power and comes back as the same cluster.
    #[test]
    fn a_node_forms_a_cluster_and_survives_a_power_cut() {
        let scenario =
            Scenario::prepare(&Setting { name: "vm", nodes: 1, hardware: Some(Hardware::Quick), properties: &[] });
        scenario.power_on(&["cp1"]);
        scenario.all_ready(FORMING);
        let identity = scenario.cluster_identity();
        let machine = scenario.inside("cp1", &["cat", "/etc/machine-id"]);
        let members = scenario.etcd_members("cp1");
        Workload::start(&scenario, "cp1", WORK).is_reached_by_name_from("cp1");
        scenario.kubectl(&["create", "configmap", "before", "--from-literal=written=yes"]);

        scenario.cut("cp1");
        scenario.power_on(&["cp1"]);
        scenario.says("cp1", "kaas: ready", FORMING);
        scenario.wait("the API to answer again", WORK, || {
            let written = ["get", "configmap", "before", "--output=jsonpath={.data.written}"];
            Ok(scenario.lab().kubectl(&written)? == "yes")
        });
        assert_eq!(scenario.cluster_identity(), identity);
        assert_eq!(scenario.inside("cp1", &["cat", "/etc/machine-id"]), machine);
        assert_eq!(scenario.etcd_members("cp1"), members);
    }

    /// The same node on the devices that vSphere gives it.
    #[test]
    fn a_node_on_vsphere_hardware_forms_a_cluster() {
        let scenario = Scenario::prepare(&Setting {
            name: "vsphere",
            nodes: 1,
            hardware: Some(Hardware::Vsphere),
            properties: &[],
        });
        scenario.power_on(&["cp1"]);
        scenario.all_ready(FORMING);
        let drivers =
            scenario.inside("cp1", &["ls", "/sys/bus/pci/drivers/vmxnet3", "/sys/bus/pci/drivers/vmw_pvscsi"]);
        assert_eq!(drivers.matches("0000:").count(), 2, "{drivers}");
        Workload::start(&scenario, "cp1", WORK).is_reached_by_name_from("cp1");
    }
}

mod long {
    use super::*;

    /// Numbers of steps at which the node loses its power: a seeded draw, so that every run cuts at the same ones. The
    /// container engine cuts at every step; here it is the real disks and the real boot that must bear it.
    const CUTS: [usize; 3] = [3, 11, 19];

    /// A node is cut off three times while it forms its cluster, and forms it.
    #[test]
    fn a_node_that_is_cut_off_while_forming_forms_its_cluster() {
        let scenario =
            Scenario::prepare(&Setting { name: "vmcuts", nodes: 1, hardware: Some(Hardware::Quick), properties: &[] });
        for cut in CUTS {
            scenario.power_on(&["cp1"]);
            let reached = scenario.obtain(&format!("step {cut}"), FORMING, || {
                let console = scenario.lab().console_text("cp1")?;
                Ok(console.lines().filter_map(step_number).find(|number| *number >= cut))
            });
            scenario.cut("cp1");
            scenario.reached(&format!("cut off at step {reached}"));
        }
        scenario.power_on(&["cp1"]);
        scenario.all_ready(FORMING);
        assert_eq!(scenario.etcd_members("cp1").len(), 1);
        Workload::start(&scenario, "cp1", WORK).is_reached_by_name_from("cp1");
    }

    /// The number in a line such as `kaas: starting etcd (14/28)`.
    fn step_number(line: &str) -> Option<usize> {
        let (_, said) = line.split_once("kaas: ")?;
        let (_, number) = said.split_once(" (")?;
        number.split_once('/')?.0.parse().ok()
    }
}
