//! Restarts of etcd and of the agent on a running node. A process that is about to stop never counts as the started
//! one, and a working node keeps its virtual IP.

use std::fs;

use super::StepContext;
use super::cuts::{Machine, in_a_namespace, member, steps, take};
use crate::boot::plan::Step;
use crate::cluster::etcd;
use crate::cluster::virtual_ip;
use crate::host::fake_systemd::FakeSystemd;
use crate::host::files;
use crate::intake::config::Config;
use crate::intake::config::fixture::{one_node, three_nodes};

/// A node whose etcd has started.
fn begun(machine: &Machine, systemd: &FakeSystemd) -> StepContext {
    let mut context = machine.decide_with(systemd).unwrap();
    let etcd = |step: &Step| matches!(step, Step::Etcd);
    let until = steps(&context).iter().position(etcd).unwrap();
    for step in &steps(&context)[..=until] {
        take(&mut context, step).unwrap();
    }
    context
}

/// Changes etcd's configuration and runs the step.
fn restart(context: &mut StepContext) {
    let Config::ControlPlane(config) = &mut context.node.config else { panic!("it is no control-plane node") };
    config.timeout_factor += 1;
    take(context, &Step::Etcd).unwrap();
}

fn told(machine: &Machine) -> String {
    fs::read_to_string(files::below(machine.root(), virtual_ip::HEALTH)).unwrap()
}

#[test]
fn etcd_restarts_with_its_changed_configuration() {
    in_a_namespace("restarted", || {
        let machine = Machine::new(one_node());
        let systemd = FakeSystemd::new(machine.root());
        let mut context = begun(&machine, &systemd);
        let laid = || fs::read_to_string(files::below(machine.root(), etcd::CONFIGURATION)).unwrap();
        let before = laid();
        assert_eq!(systemd.etcd_configuration(), before);

        restart(&mut context);
        assert_ne!(laid(), before);
        assert_eq!(systemd.etcd_configuration(), laid(), "the process of before has answered");
    });
}

#[test]
fn stopping_etcd_does_not_count_as_started() {
    in_a_namespace("told", || {
        let machine = Machine::new(one_node());
        let mut context = begun(&machine, &FakeSystemd::new(machine.root()));
        let stopping = files::below(machine.root(), etcd::STOPPING);
        fs::write(&stopping, "").unwrap();
        let waits = take(&mut context, &Step::Etcd).unwrap_err().to_string();
        assert!(waits.contains("waiting for etcd, which is stopping"), "{waits}");
        fs::remove_file(stopping).unwrap();
        take(&mut context, &Step::Etcd).unwrap();
    });
}

#[test]
fn only_a_single_node_keeps_the_virtual_ip() {
    in_a_namespace("kept", || {
        let config = three_nodes();
        let address = config.cluster.virtual_address.unwrap();
        let mut alone = config.clone();
        alone.cluster.control_nodes.truncate(1);
        let machine = Machine::new(config.clone());
        for (config, after) in [(config, "-254\n"), (alone, "0\n")] {
            let mut context = machine.decide().unwrap();
            context.node.config = Config::ControlPlane(config);
            take(&mut context, &Step::VirtualAddress).unwrap();
            assert_eq!(told(&machine), "-254\n", "since power-on its API was not seen to serve");
            virtual_ip::set_health(machine.root(), address, true).unwrap();
            take(&mut context, &Step::VirtualAddress).unwrap();
            assert_eq!(told(&machine), after);
        }
    });
}

#[test]
fn etcd_restart_releases_ip_unless_node_is_alone() {
    let address = three_nodes().cluster.virtual_address;
    for (name, is_alone, after) in [("among", false, "-254\n"), ("alone", true, "0\n")] {
        in_a_namespace(name, move || {
            let mut config = one_node();
            config.cluster.virtual_address = address;
            let machine = if is_alone { Machine::new(config) } else { member().0 };
            let mut context = begun(&machine, &FakeSystemd::new(machine.root()));
            virtual_ip::set_health(machine.root(), address.unwrap(), true).unwrap();
            restart(&mut context);
            assert_eq!(told(&machine), after);
        });
    }
}
