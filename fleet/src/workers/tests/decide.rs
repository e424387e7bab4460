//! Decisions that the function never makes, whatever exists.

use std::collections::BTreeMap;

use proptest::prelude::*;
use uuid::Uuid;

use super::fake::{DEPLOYMENT, done, node_on, pool, template, vm};
use crate::engine::Reason;
use crate::hypervisor::{PowerState, Stamp, Vm, VmRef};
use crate::workers::inventory::Observed;
use crate::workers::reason;
use crate::workers::{Action, Inventory, Pool, Rollout, State, WorkerRecord, next};

/// Workers, VMs and nodes, without time between decision and effect.
struct Model {
    pool: Pool,
    machines: Vec<WorkerRecord>,
    seen: Inventory,
    /// VMs that run outside the searched folders.
    unseen: Vec<Vm>,
    made: u128,
}

/// An event of a worker, by its position.
#[derive(Clone, Debug)]
enum Happens {
    Nothing,
    FallsIll(usize),
    Recovers(usize),
    IsCordoned(usize),
    LosesItsVm(usize),
    LosesPower(usize),
    IsMovedOutOfSight(usize),
    /// Its certificate expires, and the operator wants it to join again.
    HasExpired(usize),
    IsWanted(usize),
    IsAnotherImage,
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        6 => Just(Happens::Nothing),
        2 => (0..6usize).prop_map(Happens::FallsIll),
        2 => (0..6usize).prop_map(Happens::Recovers),
        1 => (0..6usize).prop_map(Happens::IsCordoned),
        1 => (0..6usize).prop_map(Happens::LosesItsVm),
        1 => (0..6usize).prop_map(Happens::LosesPower),
        1 => (0..6usize).prop_map(Happens::IsMovedOutOfSight),
        1 => (0..6usize).prop_map(Happens::HasExpired),
        1 => (0..5usize).prop_map(Happens::IsWanted),
        1 => Just(Happens::IsAnotherImage),
    ]
}

impl Model {
    fn vm(&mut self, name: &str) -> &mut Vm {
        self.seen.vms.iter_mut().find(|vm| vm.name == name).expect("its VM")
    }

    fn available(&self, machine: &WorkerRecord) -> bool {
        let node = self.seen.nodes.iter().find(|node| node.name == machine.name);
        let vm = self.seen.vms.iter().any(|vm| vm.name == machine.name);
        machine.state == State::Running && vm && node.is_some_and(|node| node.ready && !node.cordoned)
    }

    fn happens(&mut self, what: &Happens) {
        match *what {
            Happens::Nothing => {}
            Happens::FallsIll(at) => self.seen.nodes.iter_mut().skip(at).take(1).for_each(|node| node.ready = false),
            Happens::Recovers(at) => {
                for node in self.seen.nodes.iter_mut().skip(at).take(1) {
                    let mut vms = self.seen.vms.iter().chain(&self.unseen);
                    node.ready = vms.any(|vm| vm.name == node.name && vm.power == PowerState::On);
                }
            }
            Happens::IsCordoned(at) => {
                self.seen.nodes.iter_mut().skip(at).take(1).for_each(|node| node.cordoned = true)
            }
            Happens::LosesItsVm(at) if at < self.seen.vms.len() => {
                let lost = self.seen.vms.remove(at);
                self.seen.gone.insert(lost.name.clone());
                self.seen.nodes.iter_mut().filter(|node| node.name == lost.name).for_each(|node| node.ready = false);
            }
            Happens::LosesItsVm(_) => {}
            Happens::LosesPower(at) => {
                let mut members = self.machines.iter().filter(|machine| machine.state == State::Running);
                let name = members.nth(at).map(|machine| machine.name.clone());
                for vm in self.seen.vms.iter_mut().filter(|vm| Some(&vm.name) == name.as_ref()) {
                    vm.power = PowerState::Off;
                }
                for node in self.seen.nodes.iter_mut().filter(|node| Some(&node.name) == name.as_ref()) {
                    node.ready = false;
                }
            }
            Happens::IsMovedOutOfSight(at) => {
                let name = self.seen.nodes.iter().filter(|node| node.ready).nth(at).map(|node| node.name.clone());
                let place = self.seen.vms.iter().position(|vm| Some(&vm.name) == name.as_ref());
                self.unseen.extend(place.map(|place| self.seen.vms.remove(place)));
            }
            Happens::HasExpired(at) => {
                let mut members = self.machines.iter_mut().filter(|machine| machine.state == State::Running);
                let Some(machine) = members.nth(at) else { return };
                machine.state = State::Rejoining;
                let nodes = self.seen.nodes.iter_mut().filter(|node| node.name == machine.name);
                nodes.for_each(|node| node.ready = false);
            }
            Happens::IsWanted(count) => self.pool.count = count,
            Happens::IsAnotherImage => self.pool.template = template(&format!("image-{}", self.made)),
        }
    }

    /// Runs the decided action, and the world's reaction.
    fn act(&mut self, action: Action) {
        let name = action.machine().cloned().unwrap_or_default();
        let mut machine = self.machines.iter().find(|machine| machine.name == name).cloned();
        let Some(machine) = machine.as_mut() else { return self.add(action) };
        match action {
            Action::Add { .. } => {}
            Action::CloneVm(_) => {
                self.made += 1;
                let uuid = Uuid::from_u128(self.made);
                let mut vm = super::fake::vm(&name, uuid, Some(machine.stamp(DEPLOYMENT)));
                vm.reference = VmRef { uuid, id: name.clone() };
                self.seen.vms.push(vm);
                self.seen.gone.remove(&name);
                (machine.bios_uuid, machine.token) = (Some(uuid), Some("abcdef".to_owned()));
            }
            Action::Invite(_) => {
                assert_eq!(self.vm(&name).power, PowerState::Off, "its form is changed while it is on");
                (machine.state, machine.token) = (State::Joining, Some("fedcba".to_owned()));
            }
            Action::PowerOn(_) => {
                assert_eq!(self.vm(&name).power, PowerState::Off);
                self.vm(&name).power = PowerState::On;
                if machine.state == State::Running {
                    return;
                }
                self.seen.said.insert(name.clone(), done(machine.bios_uuid.map(Into::into)));
                machine.state = State::Joining;
                if let Some(node) = self.seen.nodes.iter_mut().find(|node| node.name == name) {
                    node.ready = true;
                    *self.machines.iter_mut().find(|machine| machine.name == name).unwrap() = machine.clone();
                    return;
                }
                let provider = format!("vsphere://{}", machine.bios_uuid.unwrap());
                self.seen.nodes.push(node_on(&name, &provider));
            }
            Action::Hear(_, key) => machine.key = Some(key),
            Action::Suspect(_, key) => (machine.key, machine.impersonated) = (Some(key), true),
            Action::Joined(_) => machine.state = State::Running,
            Action::Fail(_, why) => (machine.state, machine.reason) = (State::Failed, Some(why)),
            Action::Leave(_, why) => (machine.state, machine.reason) = (State::Deleting, Some(why)),
            Action::RemoveToken(_) => machine.token = None,
            Action::Cordon(_) => {
                for node in self.seen.nodes.iter_mut().filter(|node| node.name == name) {
                    (node.cordoned, node.excluded) = (true, true);
                }
                machine.cordoned = Some(0);
            }
            Action::HandOver(_) => machine.handed_over = Some(0),
            Action::Drain(_) => self.seen.pods.clear(),
            Action::PowerOff(_) => self.vm(&name).power = PowerState::Off,
            Action::DeleteNode(_) => {
                assert!(self.unseen.iter().all(|vm| vm.name != name), "its VM was not seen for a moment");
                assert!(self.seen.vms.iter().all(|vm| vm.name != name || vm.power == PowerState::Off));
                self.seen.nodes.retain(|node| node.name != name);
            }
            Action::Detach(..) => {}
            Action::Disconnect(..) | Action::Release(..) => panic!("{action:?}: nobody wants a VM kept"),
            Action::Destroy(_) => {
                self.seen.vms.retain(|vm| vm.name != name);
                self.seen.gone.insert(name.clone());
            }
            Action::Forget(..) => {
                assert!(self.unseen.iter().all(|vm| vm.name != name), "its VM was not seen for a moment");
                assert!(self.seen.vms.iter().all(|vm| vm.name != name), "its VM is forgotten");
                self.machines.retain(|machine| machine.name != name);
                return;
            }
        }
        *self.machines.iter_mut().find(|machine| machine.name == name).unwrap() = machine.clone();
    }

    fn add(&mut self, action: Action) {
        let Action::Add { address } = action else { panic!("{action:?} of no machine") };
        assert!(self.machines.iter().all(|machine| machine.address != address), "an address is given twice");
        self.pool.last_index += 1;
        self.made += 1;
        let machine = WorkerRecord::new(&self.pool, Uuid::from_u128(0x1000 + self.made), address, 0);
        self.machines.push(WorkerRecord { expires: u64::MAX, ..machine });
    }

    /// Decides once, and checks the decision.
    fn round(&mut self) -> bool {
        let next = next(&self.pool, &self.machines, &self.seen);
        let mut of_each = BTreeMap::new();
        for name in next.actions.iter().filter_map(Action::machine) {
            *of_each.entry(name).or_insert(0) += 1;
        }
        assert!(of_each.values().all(|count| *count == 1), "{:?}", next.actions);
        let available = self.machines.iter().filter(|machine| self.available(machine)).count();
        let chosen = |why: &Reason| ["workers.outdated", "workers.surplus"].contains(&why.code.as_str());
        let leaving: Vec<&WorkerRecord> = next
            .actions
            .iter()
            .filter_map(|action| match action {
                Action::Leave(name, why) if chosen(why) => self.machines.iter().find(|machine| machine.name == *name),
                _ => None,
            })
            .collect();
        let of_members = leaving.iter().filter(|machine| machine.state == State::Running).count();
        let serving = leaving.iter().filter(|machine| self.available(machine)).count();
        assert!(
            of_members == 0 || available - serving >= self.pool.floor(),
            "{available} do their part, {} must, and these go: {leaving:?}",
            self.pool.floor()
        );
        let gone = |action: &Action| match action {
            Action::Leave(name, _) | Action::DeleteNode(name) => {
                let is_ready = self.seen.nodes.iter().any(|node| node.name == *name && node.ready);
                is_ready && self.seen.vms.iter().all(|vm| vm.name != *name)
            }
            _ => false,
        };
        assert!(!next.actions.iter().any(gone), "what is not seen is taken for gone: {:?}", next.actions);
        let adds = next.actions.iter().filter(|action| matches!(action, Action::Add { .. })).count();
        let has_vm = |machine: &WorkerRecord| self.seen.vms.iter().any(|vm| vm.name == machine.name);
        let there = self.machines.iter().filter(|machine| machine.stays() || has_vm(machine)).count();
        assert!(adds == 0 || there + adds <= self.pool.count + self.pool.rollout.max_surge, "{there} and {adds} more");
        let done = next.is_done();
        assert!(!done || adds == 0);
        let runs = |machine: &WorkerRecord| {
            let is_on = self.seen.vms.iter().any(|vm| vm.name == machine.name && vm.power == PowerState::On);
            is_on && self.seen.nodes.iter().any(|node| node.name == machine.name && node.ready)
        };
        assert!(!done || self.machines.iter().all(runs), "it is done, and not all run: {:?}", self.machines);
        for action in next.actions {
            self.act(action);
        }
        done
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn limits_hold_and_the_rollout_ends(
        count in 0..5usize,
        surge in 0..3usize,
        missing in 0..3usize,
        events in prop::collection::vec(happens(), 0..40),
    ) {
        prop_assume!(surge + missing > 0);
        let mut wanted = pool(count);
        (wanted.rollout.max_surge, wanted.rollout.max_unavailable) = (surge, missing);
        let mut model = Model { pool: wanted, machines: Vec::new(), seen: Inventory { now: 10, ..Inventory::default() }, unseen: Vec::new(), made: 0 };
        for event in &events {
            model.happens(event);
            model.round();
        }
        // All workers recover, and the operator continues: the rollout ends.
        model.pool.powers_on = true;
        model.seen.vms.append(&mut model.unseen);
        for node in &mut model.seen.nodes {
            let leaves = model.machines.iter().any(|one| one.name == node.name && one.state == State::Deleting);
            (node.ready, node.cordoned) = (true, node.cordoned && leaves);
        }
        let rounds = (0..200).position(|_| {
            for node in &mut model.seen.nodes {
                let on = model.seen.vms.iter().any(|vm| vm.name == node.name && vm.power == PowerState::On);
                node.ready = on;
            }
            // The operator continues: workers that did not join are created again.
            for machine in model.machines.iter_mut().filter(|machine| machine.state == State::Failed) {
                machine.state = State::Deleting;
            }
            model.round()
        });
        prop_assert!(rounds.is_some(), "it never ends: {:?}", model.machines);
        prop_assert_eq!(model.machines.len(), model.pool.count);
        let up_to_date = |machine: &WorkerRecord| machine.template == model.pool.template && model.available(machine);
        prop_assert!(model.machines.iter().all(up_to_date));
    }
}

#[test]
fn a_stamped_vm_without_worker_is_not_changed() {
    let mut pool = pool(1);
    pool.last_index = 1;
    let drawn = Uuid::from_u128(1);
    let machine = WorkerRecord { allocated_uuid: Some(drawn), ..WorkerRecord::new(&pool, Uuid::from_u128(7), None, 0) };
    let stamp = Some(machine.stamp(DEPLOYMENT));
    let seen = |uuid: u128, stamp: Option<Stamp>| Inventory {
        vms: vec![vm(&machine.name, Uuid::from_u128(uuid), stamp)],
        ..Inventory::default()
    };
    let half = seen(1, stamp.clone());
    assert!(matches!(half.vm(&machine), Observed::Vm(vm) if vm.uuid() == drawn));
    // An account that may change a VM's settings can write a stamp, and remove one.
    assert_eq!(seen(2, stamp.clone()).vm(&machine), Observed::Odd);
    assert_eq!(seen(1, None).vm(&machine), Observed::Odd);
    let [action] = <[Action; 1]>::try_from(next(&pool, std::slice::from_ref(&machine), &half).actions).unwrap();
    // An incomplete VM: the worker leaves with it, and another one is created under another name.
    assert!(matches!(&action, Action::Leave(_, why) if why.code == reason::GIVEN_UP), "{action:?}");
    assert_eq!(next(&pool, std::slice::from_ref(&machine), &seen(2, stamp)).actions, []);
    // Of an earlier journal only the stamp is known.
    let earlier = WorkerRecord { allocated_uuid: None, ..machine.clone() };
    let found = seen(2, Some(earlier.stamp(DEPLOYMENT)));
    assert!(matches!(found.vm(&earlier), Observed::Vm(_)));
}

/// Its VM may run: no VM is created above the limit, and the message says whose place is kept, and how to free it.
#[test]
fn a_leaving_worker_on_a_dead_host_advises() {
    let mut pool = pool(1);
    pool.last_index = 1;
    pool.rollout = Rollout { max_surge: 0, max_unavailable: 1, ..Rollout::default() };
    let id = Uuid::from_u128(1);
    let mut machine =
        WorkerRecord { allocated_uuid: Some(id), bios_uuid: Some(id), ..WorkerRecord::new(&pool, id, None, 0) };
    machine.leave(1000, Reason::new(reason::UNHEALTHY, "it was not Ready for 300 s"));
    let machines = std::slice::from_ref(&machine);
    let late = 1000 + pool.rollout.drain_seconds;
    let with = |power, now| {
        let vms = vec![Vm { power, ..vm(&machine.name, id, Some(machine.stamp(DEPLOYMENT))) }];
        Inventory { now, vms, ..Inventory::default() }
    };
    for (power, frees) in [(PowerState::Unknown, "power its host on"), (PowerState::Suspended, "power it off")] {
        for (now, lasting) in [(late, false), (late + 1, true)] {
            let waits = next(&pool, machines, &with(power, now));
            assert_eq!(waits.actions, []);
            let [wait] = waits.waits.as_slice() else { panic!("{waits:?}") };
            assert_eq!((wait.worker.as_deref(), wait.lasting), (Some("t-w1"), lasting), "{wait}");
            assert_eq!(wait.reason.code, reason::VM_STATE);
            let words = &wait.reason.words;
            assert!(words.contains(frees) && words.contains("with maxSurge 0 there are at most 1 VMs"), "{words}");
        }
    }
    // The words are true.
    let adds = |pool: &Pool, seen: &Inventory| {
        let actions = next(pool, machines, seen).actions;
        actions.iter().any(|action| matches!(action, Action::Add { .. }))
    };
    let roomy = Pool { rollout: Rollout { max_surge: 1, ..pool.rollout.clone() }, ..pool.clone() };
    assert!(adds(&roomy, &with(PowerState::Unknown, late)), "there is room for one more VM");
    let gone = Inventory { gone: [machine.name.clone()].into(), now: late, ..Inventory::default() };
    assert!(adds(&pool, &gone), "its VM is gone");
}

/// Fewer workers are wanted than before, or its successor exists already, or the operator must look first.
#[test]
fn only_a_missing_worker_announces_another_one() {
    let id = |number: u64| Uuid::from_u128(number.into());
    // The first one should leave, and its host is dead.
    let told = |count: usize, states: &[State], paused: bool, former: usize| {
        let mut pool = pool(count);
        pool.rollout.paused = paused;
        let mut machines = Vec::new();
        for (number, state) in (1..).zip(states) {
            pool.last_index = number;
            let made = WorkerRecord::new(&pool, id(number), None, 0);
            let (state, vm) = (*state, (*state != State::Provisioning).then_some(id(number)));
            machines.push(WorkerRecord { state, bios_uuid: vm, ..made });
        }
        machines.iter_mut().take(former).for_each(|machine| machine.template = template("former"));
        let first = &machines[0];
        let vms = vec![Vm { power: PowerState::Unknown, ..vm(&first.name, id(1), Some(first.stamp(DEPLOYMENT))) }];
        let seen = Inventory { now: 1000, vms, ..Inventory::default() };
        let waits = next(&pool, &machines, &seen).waits;
        let its =
            waits.iter().find(|wait| wait.worker.as_ref() == Some(&first.name) && wait.reason.code == reason::VM_STATE);
        let words = &its.unwrap_or_else(|| panic!("{waits:?}")).reason.words;
        assert!(
            words.contains(&format!("of {count} workers with maxSurge 1 there are at most {} VMs", count + 1)),
            "{words}"
        );
        words.contains("Another one is made once there is room; a larger maxSurge makes room at once")
    };
    let (member, leaving) = (State::Running, State::Deleting);
    for (count, states, paused, former, expected) in [
        (2, vec![leaving, member, member], false, 0, false),
        (1, vec![leaving, member], false, 0, false),
        (3, vec![leaving, member, member], false, 0, true),
        (0, vec![leaving], false, 0, false),
        // Its successor exists, and the next one should leave as well.
        (2, vec![leaving, member, member], false, 2, true),
        (2, vec![leaving, member, member], true, 2, false),
        // The operator inspects a failed one first.
        (3, vec![leaving, member, State::Failed], false, 0, false),
        // An incomplete one counts until it is removed.
        (2, vec![State::Provisioning, member], false, 0, true),
    ] {
        assert_eq!(
            told(count, &states, paused, former),
            expected,
            "{count} of {states:?}, paused: {paused}, {former} former"
        );
    }
}
